//! Sums over time in bounded memory.

use serde::{Deserialize, Serialize};
use trunkline_units::Span;

/// Maximum number of intervals.
const MAX_INTERVALS: usize = 600;
/// Initial length of an interval.
const INITIAL_INTERVAL: Span = Span::from_ms(10);

/// Sums by interval since the start of a connection: of bytes, messages or delays. When a series needs more than 600
/// intervals, five or two are merged, so their lengths are 10, 50, 100, 500 ms, 1 s, and so on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    interval: Span,
    sums: Vec<u64>,
    /// Cache of the last interval, `from..until`, and its index: most messages fall into it again.
    #[serde(skip)]
    current: (Span, Span, usize),
}

impl Default for Series {
    fn default() -> Self {
        Series {
            interval: INITIAL_INTERVAL,
            sums: Vec::with_capacity(MAX_INTERVALS),
            current: Default::default(),
        }
    }
}

impl Series {
    /// Adds an amount at the time `elapsed` after the start.
    #[inline(always)]
    pub fn add(&mut self, elapsed: Span, amount: u64) {
        let (from, until, _) = self.current;
        if elapsed < from || elapsed >= until {
            self.select_interval(elapsed);
        }
        self.sums[self.current.2] += amount;
    }

    /// Adds to three series that are only changed by this function, so they have the same intervals.
    #[inline(always)]
    pub(crate) fn add_each(series: [&mut Series; 3], elapsed: Span, amounts: [u64; 3]) {
        let [a, b, c] = series;
        let (from, until, _) = a.current;
        if elapsed < from || elapsed >= until {
            [&mut *a, &mut *b, &mut *c].into_iter().for_each(|series| series.select_interval(elapsed));
        }
        let index = a.current.2;
        a.sums[index] += amounts[0];
        b.sums[index] += amounts[1];
        c.sums[index] += amounts[2];
    }

    #[inline(never)]
    fn select_interval(&mut self, elapsed: Span) {
        while elapsed.as_ps() / self.interval.as_ps() >= MAX_INTERVALS as u64 {
            self.coarsen();
        }
        let index = elapsed.as_ps() / self.interval.as_ps();
        if index as usize >= self.sums.len() {
            self.sums.resize(index as usize + 1, 0);
        }
        let from = self.interval * index;
        self.current = (from, from + self.interval, index as usize);
    }

    /// Merges intervals to the next length.
    fn coarsen(&mut self) {
        // 10 ms · 5 = 50, · 2 = 100, · 5 = 500, …
        let begins_with_one = self.interval.as_ps().to_string().starts_with('1');
        let factor = if begins_with_one { 5 } else { 2 };
        let merged = self.sums.chunks(factor).map(|c| c.iter().sum());
        self.sums = merged.collect();
        self.sums.reserve(MAX_INTERVALS - self.sums.len());
        self.interval = self.interval * factor as u64;
        self.current = Default::default();
    }

    /// Returns the current length of an interval.
    pub fn interval(&self) -> Span {
        self.interval
    }

    /// Returns the sum of each interval.
    pub fn sums(&self) -> &[u64] {
        &self.sums
    }

    /// Coarsens the finer of two series to the intervals of the other.
    pub fn align(&mut self, other: &mut Series) {
        while self.interval < other.interval {
            self.coarsen();
        }
        while other.interval < self.interval {
            other.coarsen();
        }
    }

    /// Adds another series of the same connection.
    pub fn merge(&mut self, mut other: Series) {
        self.align(&mut other);
        let length = self.sums.len().max(other.sums.len());
        self.sums.resize(length, 0);
        self.current = Default::default();
        self.sums.iter_mut().zip(other.sums).for_each(|(a, b)| *a += b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarsening_keeps_the_sum() {
        let mut s = Series::default();
        for i in 0..100_000 {
            s.add(Span::from_ms(3 * i), 7);
        }
        assert_eq!(s.interval(), Span::from_ms(500));
        assert_eq!(s.sums.len(), 600);
        assert_eq!(s.sums.iter().sum::<u64>(), 700_000);
        let mut fine = Series::default();
        fine.add(Span::from_ms(1), 7);
        fine.merge(s);
        assert_eq!((fine.interval(), fine.sums.iter().sum()), (Span::from_ms(500), 700_007));
    }
}
