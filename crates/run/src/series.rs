//! Bytes over time in bounded memory.

use serde::{Deserialize, Serialize};
use trunkline_units::Span;

/// Maximum number of intervals.
const MAX_INTERVALS: usize = 600;
/// Initial length of an interval.
const INITIAL_INTERVAL: Span = Span::from_ms(10);

/// Bytes by interval since the start of a connection. When the series outgrows 600 intervals, they are merged by five or
/// two, so their lengths are 10, 50, 100, 500 ms, 1 s, and so on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    interval: Span,
    bytes: Vec<u64>,
    /// Cache of the last interval, `from..until`, and its index: most messages fall into it again.
    #[serde(skip)]
    current: (Span, Span, usize),
}

impl Default for Series {
    fn default() -> Self {
        Series {
            interval: INITIAL_INTERVAL,
            bytes: Vec::with_capacity(MAX_INTERVALS),
            current: Default::default(),
        }
    }
}

impl Series {
    /// Adds `bytes` at the time `since` after the start.
    #[inline(always)]
    pub fn add(&mut self, since: Span, bytes: u64) {
        let (from, until, _) = self.current;
        if since < from || since >= until {
            self.select_interval(since);
        }
        self.bytes[self.current.2] += bytes;
    }

    /// Adds to three series that are only changed by this function, so they have the same intervals.
    #[inline(always)]
    pub(crate) fn add_each(series: [&mut Series; 3], since: Span, counts: [u64; 3]) {
        let [a, b, c] = series;
        let (from, until, _) = a.current;
        if since < from || since >= until {
            [&mut *a, &mut *b, &mut *c].into_iter().for_each(|series| series.select_interval(since));
        }
        let at = a.current.2;
        a.bytes[at] += counts[0];
        b.bytes[at] += counts[1];
        c.bytes[at] += counts[2];
    }

    #[inline(never)]
    fn select_interval(&mut self, since: Span) {
        while since.as_ps() / self.interval.as_ps() >= MAX_INTERVALS as u64 {
            self.coarsen();
        }
        let index = since.as_ps() / self.interval.as_ps();
        if index as usize >= self.bytes.len() {
            self.bytes.resize(index as usize + 1, 0);
        }
        let from = self.interval * index;
        self.current = (from, from + self.interval, index as usize);
    }

    fn coarsen(&mut self) {
        // 10 ms · 5 = 50, · 2 = 100, · 5 = 500, …
        let leading_one = self.interval.as_ps().to_string().starts_with('1');
        let factor = if leading_one { 5 } else { 2 };
        let joined = self.bytes.chunks(factor).map(|c| c.iter().sum());
        self.bytes = joined.collect();
        self.bytes.reserve(MAX_INTERVALS - self.bytes.len());
        self.interval = self.interval * factor as u64;
        self.current = Default::default();
    }

    /// Returns the current length of an interval.
    pub fn interval(&self) -> Span {
        self.interval
    }

    /// Returns the bytes by interval.
    pub fn bytes(&self) -> &[u64] {
        &self.bytes
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
        let length = self.bytes.len().max(other.bytes.len());
        self.bytes.resize(length, 0);
        self.current = Default::default();
        self.bytes.iter_mut().zip(other.bytes).for_each(|(a, b)| *a += b);
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
        assert_eq!(s.bytes.len(), 600);
        assert_eq!(s.bytes.iter().sum::<u64>(), 700_000);
        let mut fine = Series::default();
        fine.add(Span::from_ms(1), 7);
        fine.merge(s);
        assert_eq!((fine.interval(), fine.bytes.iter().sum()), (Span::from_ms(500), 700_007));
    }
}
