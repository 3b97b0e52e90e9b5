//! Responses whose table cannot be created yet.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use trunkline_counters::archive::TableSpec;
use trunkline_counters::counter::Response;

/// Fixed cost of a queued response, in values.
const RESPONSE_OVERHEAD: usize = 8;

/// A response and the specification of its table.
pub type PendingResponse = (Arc<TableSpec>, Response);

/// Responses that wait for their table, in order of arrival.
#[derive(Debug)]
pub struct PendingResponses {
    tables: BTreeMap<usize, VecDeque<PendingResponse>>,
    /// Number of queued values.
    values: usize,
    max_values: usize,
}

fn size((_, response): &PendingResponse) -> usize {
    RESPONSE_OVERHEAD + response.answer.as_ref().map_or(0, |answer| answer.values.len())
}

impl PendingResponses {
    /// Creates an empty queue for at most `max_values` values.
    pub fn new(max_values: usize) -> PendingResponses {
        PendingResponses { tables: BTreeMap::new(), values: 0, max_values }
    }

    /// Appends a response; returns `false` if the queue is full.
    pub fn push(&mut self, table: usize, response: PendingResponse) -> bool {
        let fits = self.values + size(&response) <= self.max_values;
        if fits {
            self.values += size(&response);
            self.tables.entry(table).or_default().push_back(response);
        }
        fits
    }

    /// Removes the first response of a table.
    pub fn pop(&mut self, table: usize) -> Option<PendingResponse> {
        let waiting = self.tables.get_mut(&table)?;
        let response = waiting.pop_front();
        if waiting.is_empty() {
            self.tables.remove(&table);
        }
        self.values -= response.as_ref().map_or(0, size);
        response
    }

    /// Puts a removed response back at the front.
    pub fn push_front(&mut self, table: usize, response: PendingResponse) {
        self.values += size(&response);
        self.tables.entry(table).or_default().push_front(response);
    }

    /// Drops the responses of a table; returns their number.
    pub fn discard(&mut self, table: usize) -> u64 {
        let waiting = self.tables.remove(&table).unwrap_or_default();
        self.values -= waiting.iter().map(size).sum::<usize>();
        waiting.len() as u64
    }

    /// Returns the tables with queued responses.
    pub fn tables(&self) -> Vec<usize> {
        self.tables.keys().copied().collect()
    }

    /// Returns the number of queued responses.
    pub fn count(&self) -> u64 {
        self.tables.values().map(|waiting| waiting.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use trunkline_counters::counter::{Answer, Timestamp};

    use super::*;

    fn response(at: i64, width: usize) -> PendingResponse {
        let spec = TableSpec {
            device: "a".into(),
            name: "t".into(),
            period: Duration::from_secs(1),
            refresh: None,
            series: Vec::new(),
        };
        let (at, values) = (Timestamp(at), vec![None; width]);
        let answer = Some(Answer { answered_at: at, uptime: None, values });
        (spec.into(), Response { due_at: at, requested_at: at, answer })
    }

    #[test]
    fn pending_responses_are_ordered_and_limited() {
        let mut pending = PendingResponses::new(3 * (RESPONSE_OVERHEAD + 10));
        assert!((0..3).all(|at| pending.push(at as usize % 2, response(at, 10))));
        assert!(!pending.push(0, response(3, 0)), "the queue is full");
        assert_eq!((pending.tables(), pending.count()), (vec![0, 1], 3));
        let first = pending.pop(0).unwrap();
        assert_eq!(first.1.due_at, Timestamp(0));
        pending.push_front(0, first);
        assert_eq!(
            [pending.pop(0), pending.pop(0)].map(|response| response.unwrap().1.due_at),
            [Timestamp(0), Timestamp(2)]
        );
        assert!(pending.pop(0).is_none());
        assert_eq!((pending.discard(1), pending.discard(1), pending.count(), pending.values), (1, 0, 0, 0));
        assert!(pending.push(0, response(4, 10)));
    }
}
