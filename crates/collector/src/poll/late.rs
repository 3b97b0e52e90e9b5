//! Responses of tables that cannot be made yet.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use trunkline_counters::archive::TableSpec;
use trunkline_counters::counter::Response;

/// Values that a response counts for beside its own.
const BESIDE: usize = 8;

/// A response and what its table is.
pub type One = (Arc<TableSpec>, Response);

/// Responses that wait until there is a table for them, in the order in which they came.
#[derive(Debug)]
pub struct Late {
    tables: BTreeMap<usize, VecDeque<One>>,
    /// Values that wait.
    values: usize,
    most: usize,
}

fn size((_, response): &One) -> usize {
    BESIDE + response.answer.as_ref().map_or(0, |answer| answer.values.len())
}

impl Late {
    /// None yet, and at most so many values.
    pub fn new(most: usize) -> Late {
        Late { tables: BTreeMap::new(), values: 0, most }
    }

    /// Keeps one; false if there is no room.
    pub fn put(&mut self, table: usize, one: One) -> bool {
        let fits = self.values + size(&one) <= self.most;
        if fits {
            self.values += size(&one);
            self.tables.entry(table).or_default().push_back(one);
        }
        fits
    }

    /// Takes the first of a table.
    pub fn take(&mut self, table: usize) -> Option<One> {
        let waiting = self.tables.get_mut(&table)?;
        let one = waiting.pop_front();
        if waiting.is_empty() {
            self.tables.remove(&table);
        }
        self.values -= one.as_ref().map_or(0, size);
        one
    }

    /// Gives back what was taken.
    pub fn back(&mut self, table: usize, one: One) {
        self.values += size(&one);
        self.tables.entry(table).or_default().push_front(one);
    }

    /// Gives up what waits for a table; how much that is.
    pub fn give_up(&mut self, table: usize) -> u64 {
        let waiting = self.tables.remove(&table).unwrap_or_default();
        self.values -= waiting.iter().map(size).sum::<usize>();
        waiting.len() as u64
    }

    /// The tables that something waits for.
    pub fn tables(&self) -> Vec<usize> {
        self.tables.keys().copied().collect()
    }

    /// Responses that wait.
    pub fn count(&self) -> u64 {
        self.tables.values().map(|waiting| waiting.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use trunkline_counters::counter::{Answer, Moment};

    use super::*;

    fn one(at: i64, width: usize) -> One {
        let spec = TableSpec {
            device: "a".into(),
            name: "t".into(),
            period: Duration::from_secs(1),
            refresh: None,
            series: Vec::new(),
        };
        let (at, values) = (Moment(at), vec![None; width]);
        let answer = Some(Answer { answered: at, uptime: None, values });
        (spec.into(), Response { due: at, asked: at, answer })
    }

    #[test]
    fn what_waits_is_in_order_and_bounded() {
        let mut late = Late::new(3 * (BESIDE + 10));
        assert!((0..3).all(|at| late.put(at as usize % 2, one(at, 10))));
        assert!(!late.put(0, one(3, 0)), "no room");
        assert_eq!((late.tables(), late.count()), (vec![0, 1], 3));
        let first = late.take(0).unwrap();
        assert_eq!(first.1.due, Moment(0));
        late.back(0, first);
        assert_eq!([late.take(0), late.take(0)].map(|one| one.unwrap().1.due), [Moment(0), Moment(2)]);
        assert!(late.take(0).is_none());
        assert_eq!((late.give_up(1), late.give_up(1), late.count(), late.values), (1, 0, 0, 0));
        assert!(late.put(0, one(4, 10)));
    }
}
