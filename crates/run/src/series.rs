//! Bytes against time, in bounded memory.

use serde::{Deserialize, Serialize};
use trunkline_units::Span;

/// Intervals kept at the most.
const MOST: usize = 600;
/// Length of an interval at first.
const FINEST: Span = Span::from_ms(10);

/// Bytes by interval since a connection's start. Intervals begin at 10 ms; when the series outgrows 600 of them they
/// are joined five by five, then two by two, so that they stay 10, 50, 100, 500 ms, 1 s, …
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    interval: Span,
    bytes: Vec<u64>,
    /// The interval that was counted into last, `from..until`, and its index: most messages fall into it again.
    #[serde(skip)]
    current: (Span, Span, usize),
}

impl Default for Series {
    fn default() -> Self {
        Series { interval: FINEST, bytes: Vec::with_capacity(MOST), current: Default::default() }
    }
}

impl Series {
    /// Counts `bytes` at `since` the start.
    #[inline(always)]
    pub fn add(&mut self, since: Span, bytes: u64) {
        let (from, until, _) = self.current;
        if since < from || since >= until {
            self.move_to(since);
        }
        self.bytes[self.current.2] += bytes;
    }

    /// Counts into three series, to which only such calls add: they have the same intervals.
    #[inline(always)]
    pub(crate) fn add_each(series: [&mut Series; 3], since: Span, counts: [u64; 3]) {
        let [a, b, c] = series;
        let (from, until, _) = a.current;
        if since < from || since >= until {
            [&mut *a, &mut *b, &mut *c].into_iter().for_each(|series| series.move_to(since));
        }
        let at = a.current.2;
        a.bytes[at] += counts[0];
        b.bytes[at] += counts[1];
        c.bytes[at] += counts[2];
    }

    #[inline(never)]
    fn move_to(&mut self, since: Span) {
        while since.as_ps() / self.interval.as_ps() >= MOST as u64 {
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
        self.bytes.reserve(MOST - self.bytes.len());
        self.interval = self.interval * factor as u64;
        self.current = Default::default();
    }

    /// Length of an interval now.
    pub fn interval(&self) -> Span {
        self.interval
    }

    /// Bytes by interval.
    pub fn bytes(&self) -> &[u64] {
        &self.bytes
    }

    /// Makes two series speak of the same intervals, the longer of the two.
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
    fn nothing_is_lost_when_a_series_grows_long() {
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
