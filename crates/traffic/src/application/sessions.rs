//! Overlapping sessions of a model.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use trunkline_units::Instant;

/// Refused sessions in a row after which a model returns its next item, although more have arrived before it: otherwise
/// arrivals that are far more frequent than items would keep it from ever returning one.
pub(super) const MOST_REFUSED: u32 = 1 << 20;

/// Sessions that exist at the same time, in the order of their next items, at most a limit. Each has a lane, a small number that
/// is free again when the session has ended.
#[derive(Debug)]
pub struct Sessions<S> {
    heap: BinaryHeap<Reverse<Entry<S>>>,
    limit: usize,
    free_lanes: Vec<u32>,
    /// The lowest lane that no session has had.
    next_lane: u32,
    refused: u64,
    /// Refused since the last item.
    refused_since: u32,
    started: u64,
}

/// A session with the time of its next item.
#[derive(Debug)]
struct Entry<S> {
    due: Instant,
    lane: u32,
    session: S,
}

impl<S> Sessions<S> {
    /// Creates an empty set of at most `limit` sessions. Their lanes begin at `first_lane`.
    pub fn new(limit: usize, first_lane: u32) -> Self {
        Sessions {
            heap: BinaryHeap::new(),
            limit,
            free_lanes: Vec::new(),
            next_lane: first_lane,
            refused: 0,
            refused_since: 0,
            started: 0,
        }
    }

    /// Adds a session whose next item is due at `due`. Refuses it, and returns false, if there are as many as the limit.
    pub fn start(&mut self, due: Instant, session: S) -> bool {
        if self.heap.len() >= self.limit {
            self.refused += 1;
            self.refused_since += 1;
            return false;
        }
        self.started += 1;
        let lane = self.free_lanes.pop().unwrap_or_else(|| {
            self.next_lane += 1;
            self.next_lane - 1
        });
        self.heap.push(Reverse(Entry { due, lane, session }));
        true
    }

    /// Returns whether a session that arrives at `arrival` does so before the next item is returned; false if very many were
    /// refused since the last item.
    pub fn arrives_first(&self, arrival: Instant) -> bool {
        self.refused_since < MOST_REFUSED && self.next_due().is_none_or(|due| arrival <= due)
    }

    /// Returns when the next item of any session is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.due)
    }

    /// Lets the session with the next item handle it: `handle` gets the lane, the time and the session, and returns the time of
    /// the session's next item, or `None` if the session ends.
    pub fn advance<T>(
        &mut self,
        handle: impl FnOnce(u32, Instant, &mut S) -> (T, Option<Instant>),
    ) -> Option<T> {
        self.refused_since = 0;
        let mut first = self.heap.peek_mut()?;
        let Reverse(entry) = &mut *first;
        let (result, next) = handle(entry.lane, entry.due, &mut entry.session);
        match next {
            // It moves to its place when `first` is dropped.
            Some(due) => entry.due = due,
            None => {
                self.free_lanes.push(entry.lane);
                PeekMut::pop(first);
            }
        }
        Some(result)
    }

    /// Returns the counts of sessions that started and that were refused, by their names in the record.
    pub fn counters(&self) -> Vec<(&'static str, f64)> {
        vec![("sessions", self.started as f64), ("sessions_refused", self.refused as f64)]
    }
}

impl<S> Ord for Entry<S> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due, self.lane).cmp(&(other.due, other.lane))
    }
}

impl<S> PartialOrd for Entry<S> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<S> PartialEq for Entry<S> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<S> Eq for Entry<S> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_take_turns_and_excess_ones_are_refused() {
        let mut sessions = Sessions::new(2, 1);
        let at = Instant::from_ns;
        for (due, items) in [(30, 2), (10, 3), (20, 1)] {
            sessions.start(at(due), items);
        }
        let mut order = Vec::new();
        while let Some(due) = sessions.next_due() {
            let step = sessions.advance(|lane, now, items: &mut u32| {
                *items -= 1;
                (lane, (*items > 0).then(|| now + trunkline_units::Span::from_ns(15)))
            });
            order.push((due, step.unwrap()));
        }
        let expected = [(10, 2), (25, 2), (30, 1), (40, 2), (45, 1)];
        assert_eq!(order, expected.map(|(due, lane)| (at(due), lane)));
        assert_eq!(sessions.counters(), [("sessions", 2.0), ("sessions_refused", 1.0)]);
        sessions.start(at(50), 1);
        assert_eq!(sessions.advance(|lane, _, _| (lane, None)), Some(1), "the lane that became free last");
    }
}
