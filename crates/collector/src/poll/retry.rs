//! Responses that the archive could not take yet.

use std::collections::VecDeque;
use std::sync::Arc;

use trunkline_counters::archive::TableSpec;
use trunkline_counters::counter::Response;

/// Fixed cost of a queued response, in values.
const RESPONSE_OVERHEAD: usize = 8;

/// A response and the specification of its table.
#[derive(Clone, Debug)]
pub struct TableResponse {
    /// The collector's number of the table.
    pub table: usize,
    /// The specification of the table when the response arrived.
    pub spec: Arc<TableSpec>,
    /// The response.
    pub response: Response,
}

impl TableResponse {
    fn size(&self) -> usize {
        RESPONSE_OVERHEAD + self.response.answer.as_ref().map_or(0, |answer| answer.values.len())
    }
}

/// A queue of responses in order of arrival, bounded by their values.
#[derive(Debug)]
pub struct RetryQueue {
    queue: VecDeque<TableResponse>,
    /// Number of queued values.
    values: usize,
    max_values: usize,
}

impl RetryQueue {
    /// Creates an empty queue for at most `max_values` values.
    pub fn new(max_values: usize) -> RetryQueue {
        RetryQueue { queue: VecDeque::new(), values: 0, max_values }
    }

    /// Appends a response; returns `false` if the queue is full.
    pub fn push(&mut self, one: TableResponse) -> bool {
        let fits = self.values + one.size() <= self.max_values;
        if fits {
            self.values += one.size();
            self.queue.push_back(one);
        }
        fits
    }

    /// Returns the first response.
    pub fn first(&self) -> Option<&TableResponse> {
        self.queue.front()
    }

    /// Removes the first response.
    pub fn pop(&mut self) {
        self.values -= self.queue.pop_front().map_or(0, |one| one.size());
    }

    /// Removes all responses and returns their number.
    pub fn clear(&mut self) -> usize {
        let count = self.len();
        (self.queue, self.values) = (VecDeque::new(), 0);
        count
    }

    /// Returns the number of queued responses.
    pub fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use trunkline_counters::counter::{Answer, Timestamp};

    use super::*;

    fn response(at: i64, width: usize) -> TableResponse {
        let spec = TableSpec {
            device: "a".into(),
            name: "t".into(),
            period: Duration::from_secs(1),
            refresh: None,
            series: Vec::new(),
        };
        let (at, values) = (Timestamp(at), vec![None; width]);
        let answer = Some(Answer { answered_at: at, uptime: None, values });
        let response = Response { due_at: at, requested_at: at, answer };
        TableResponse { table: 0, spec: spec.into(), response }
    }

    #[test]
    fn the_queue_is_ordered_and_limited() {
        let mut queue = RetryQueue::new(3 * (RESPONSE_OVERHEAD + 10));
        assert!((0..3).all(|at| queue.push(response(at, 10))));
        assert!(!queue.push(response(3, 0)), "the queue is full");
        let first = |queue: &RetryQueue| queue.first().map(|one| one.response.due_at.0);
        assert_eq!((first(&queue), queue.len()), (Some(0), 3));
        queue.pop();
        assert!(queue.push(response(4, 10)));
        assert_eq!((first(&queue), queue.clear()), (Some(1), 3));
        queue.pop();
        assert_eq!((first(&queue), queue.clear(), queue.values), (None, 0, 0));
    }
}
