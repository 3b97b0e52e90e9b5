//! Ranges of the stream received out of order.

use std::collections::VecDeque;

use crate::segment::Seq;

/// Maximum number of ranges. A segment that would add one more is dropped and retransmitted later; only tiny
/// segments, or windows of many thousand segments with every other one lost, reach the limit.
pub(crate) const MAX_RANGES: usize = 4_096;

/// Sorted, disjoint ranges beyond the next expected byte. Their data is already in the receive buffer.
#[derive(Debug, Default)]
pub(crate) struct Ranges(VecDeque<(Seq, Seq)>);

impl Ranges {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the ranges, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Seq, Seq)> + '_ {
        self.0.iter().copied()
    }

    /// Returns the range that contains `seq`.
    pub(crate) fn containing(&self, seq: Seq) -> Option<(Seq, Seq)> {
        let index = self.0.partition_point(|(_, end)| !end.after(seq));
        self.0.get(index).copied().filter(|(start, _)| !start.after(seq))
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds `start..end` and merges adjacent ranges. Returns false if the limit is reached.
    pub(crate) fn insert(&mut self, start: Seq, end: Seq) -> bool {
        // The common case is a range behind all others.
        let (mut first, mut last) = (self.0.len(), self.0.len());
        if self.0.back().is_some_and(|(_, e)| !e.before(start)) {
            first = self.0.partition_point(|(_, e)| e.before(start));
            last = self.0.partition_point(|(s, _)| !s.after(end));
        }
        if first < last {
            let (s, e) = (self.0[first].0, self.0[last - 1].1);
            self.0[first] = (if s.before(start) { s } else { start }, if e.after(end) { e } else { end });
            self.0.drain(first + 1..last);
        } else if self.0.len() < MAX_RANGES {
            self.0.insert(first, (start, end));
        } else {
            return false;
        }
        true
    }

    /// Removes the ranges contiguous with `next` and returns the new in-order edge.
    pub(crate) fn advance_from(&mut self, mut next: Seq) -> Seq {
        while let Some(&(start, end)) = self.0.front() {
            if start.after(next) {
                break;
            }
            if end.after(next) {
                next = end;
            }
            self.0.pop_front();
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::Seed;

    use super::*;

    #[test]
    fn ranges_are_a_set_of_bytes() {
        for seed in 0..50 {
            let mut stream = Seed(seed).stream("ranges");
            let base = Seq(u32::MAX - 100); // it wraps on the way
            let (mut ranges, mut set, mut next) = (Ranges::default(), [false; 200], 0);
            while next < 190 {
                let start = next + stream.below(20) as usize;
                let end = (start + 1 + stream.below(9) as usize).min(200);
                if start == next {
                    next = ranges.advance_from(base + end as u32).since(base) as usize;
                    set[..end].fill(true);
                } else if start < end {
                    assert!(ranges.insert(base + start as u32, base + end as u32));
                    set[start..end].fill(true);
                }
                let expected = (next..200).find(|i| !set[*i]).unwrap_or(200);
                assert_eq!(next, expected, "seed {seed}");
                let held: Vec<_> = ranges.0.iter().map(|(s, e)| (s.since(base), e.since(base))).collect();
                assert!(held.windows(2).all(|w| w[0].1 < w[1].0), "seed {seed}: {held:?}");
                let bytes: u32 = held.iter().map(|(s, e)| e - s).sum();
                assert_eq!(bytes as usize, set[next..].iter().filter(|b| **b).count(), "seed {seed}");
            }
        }
    }

    #[test]
    fn crumbs_are_refused_at_the_bound_and_what_joins_is_not() {
        let mut ranges = Ranges::default();
        for i in 0..MAX_RANGES as u32 {
            assert!(ranges.insert(Seq(i * 2), Seq(i * 2 + 1)));
        }
        assert!(!ranges.insert(Seq(100_000), Seq(100_001)));
        assert!(ranges.insert(Seq(1), Seq(2)));
        assert!(ranges.insert(Seq(100_000), Seq(100_001)));
        assert_eq!(ranges.advance_from(Seq(0)), Seq(3));
    }
}
