//! Histograms of time spans, cheap enough to record every message.

use std::borrow::Cow;

use hdrhistogram::Histogram as Hdr;
use serde::{Deserialize, Serialize};
use trunkline_units::Span;

use crate::schema::Distribution;

/// Maximum number of points of a distribution's curve.
const CURVE_POINTS: usize = 200;

/// A histogram of spans with three significant digits, from 1 ns to an hour; longer spans count as an hour.
///
/// `record` costs a few nanoseconds, less for a span equal to the previous one (messages of one batch), and allocates
/// only if a span exceeds the longest one so far by a power of two.
#[derive(Clone, Debug)]
pub struct Histogram {
    ns: Hdr<u64>,
    /// The latest span, its value in nanoseconds, and how often it occurred in a row; not yet counted in `ns`.
    last: Span,
    last_ns: u64,
    pending_count: u64,
}

/// The counts of a [`Histogram`], to be sent to another process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counts(Vec<(u64, u64)>);

impl Counts {
    /// Returns what was counted since `before`, earlier counts of the same histogram.
    pub fn since(&self, before: &Counts) -> Counts {
        let count_before = |ns: u64| {
            let at = before.0.binary_search_by_key(&ns, |(ns, _)| *ns);
            at.map_or(0, |at| before.0[at].1)
        };
        let grown = self.0.iter().map(|&(ns, n)| (ns, n.saturating_sub(count_before(ns))));
        Counts(grown.filter(|(_, n)| *n > 0).collect())
    }
}

/// An hour in nanoseconds.
const LONGEST_NS: u64 = 3_600_000_000_000;

impl Default for Histogram {
    fn default() -> Self {
        let mut ns = Hdr::new_with_bounds(1, 1 << 24, 3).expect("constant bounds are valid");
        ns.auto(true);
        Histogram { ns, last: Span::ZERO, last_ns: 0, pending_count: 0 }
    }
}

impl Histogram {
    /// Records a span.
    #[inline(always)]
    pub fn record(&mut self, span: Span) {
        self.record_n(span, 1);
    }

    /// Records a span `n` times.
    #[inline(always)]
    pub fn record_n(&mut self, span: Span, n: u64) {
        if span != self.last {
            self.switch_to(span);
        }
        self.pending_count += n;
    }

    /// Kept out of the inlined code: most spans equal the previous one.
    #[inline]
    fn switch_to(&mut self, span: Span) {
        self.last = span;
        let ns = span.as_ns().min(LONGEST_NS);
        if ns != self.last_ns {
            self.flush();
            self.last_ns = ns;
        }
    }

    #[inline(never)]
    fn flush(&mut self) {
        if self.pending_count > 0 {
            // With auto-resize on and the value clamped this cannot fail.
            let _ = self.ns.record_n(self.last_ns, std::mem::take(&mut self.pending_count));
        }
    }

    /// Returns the histogram with all counts.
    fn flushed(&self) -> Cow<'_, Hdr<u64>> {
        if self.pending_count == 0 {
            return Cow::Borrowed(&self.ns);
        }
        let mut copy = self.clone();
        copy.flush();
        Cow::Owned(copy.ns)
    }

    /// Returns the number of recorded spans.
    pub fn count(&self) -> u64 {
        self.ns.len() + self.pending_count
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        let _ = self.ns.add(&*other.flushed());
    }

    /// Returns the counts for transfer or storage.
    pub fn counts(&self) -> Counts {
        let recorded = self.ns.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value()));
        let mut counts: Vec<(u64, u64)> = recorded.collect();
        if self.pending_count > 0 {
            let value = self.ns.highest_equivalent(self.last_ns);
            match counts.binary_search_by_key(&value, |(value, _)| *value) {
                Ok(at) => counts[at].1 += self.pending_count,
                Err(at) => counts.insert(at, (value, self.pending_count)),
            }
        }
        Counts(counts)
    }

    /// Creates a histogram from counts.
    pub fn from_counts(counts: &Counts) -> Histogram {
        let mut h = Histogram::default();
        for &(ns, n) in &counts.0 {
            h.record_n(Span::from_ns(ns), n);
        }
        h
    }

    /// Returns the distribution in microseconds; `None` without spans.
    pub fn distribution_us(&self) -> Option<Distribution> {
        let ns = self.flushed();
        if ns.is_empty() {
            return None;
        }
        let us = |ns: u64| ns as f64 / 1e3;
        let quantiles = Quantiles::new(&ns);
        let at = |p: f64| us(quantiles.at(p));
        Some(Distribution {
            count: ns.len(),
            min: us(ns.min()),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: us(ns.max()),
            mean: ns.mean() / 1e3,
            sd: ns.stdev() / 1e3,
            curve: curve(&quantiles),
        })
    }
}

/// The recorded values with their cumulative counts, so that one pass over the histogram serves all quantiles.
struct Quantiles {
    lowest: u64,
    highest: u64,
    count: u64,
    /// The number of values up to each recorded value, and that value.
    steps: Vec<(u64, u64)>,
}

impl Quantiles {
    fn new(ns: &Hdr<u64>) -> Self {
        let mut sum = 0;
        let steps = ns.iter_recorded().map(|step| {
            sum += step.count_at_value();
            (sum, step.value_iterated_to())
        });
        let steps = steps.collect();
        Quantiles { lowest: ns.value_at_quantile(0.0), highest: ns.max(), count: ns.len(), steps }
    }

    /// Returns the value at a quantile as [`Hdr::value_at_quantile`], but never more than the largest value.
    fn at(&self, q: f64) -> u64 {
        if q == 0.0 {
            return self.lowest.min(self.highest);
        }
        let rank = ((q.min(1.0) * self.count as f64).ceil() as u64).max(1);
        let at = self.steps.partition_point(|(sum, _)| *sum < rank);
        self.steps.get(at).map_or(self.highest, |(_, value)| (*value).min(self.highest))
    }
}

/// Returns points of the cumulative distribution: 100 evenly spaced ones, then nine per decade of the tail.
fn curve(quantiles: &Quantiles) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::with_capacity(CURVE_POINTS);
    let mut push = |q: f64| {
        let value = quantiles.at(q) as f64 / 1e3;
        if points.last().is_none_or(|&(_, v)| value > v) {
            points.push((q, value));
        } else if let Some(last) = points.last_mut() {
            last.0 = q;
        }
    };
    (0..100).for_each(|i| push(f64::from(i) / 100.0));
    // `tail` is the share above the first point of a decade.
    let mut tail = 0.01;
    while tail * quantiles.count as f64 >= 1.0 && tail > 1e-9 {
        (0..9).for_each(|i| push(1.0 - tail * (1.0 - f64::from(i) / 10.0)));
        tail /= 10.0;
    }
    push(1.0);
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_equal_those_of_the_histogram() {
        let mut stream = trunkline_units::Seed(4).stream("quantiles");
        let mut ns = Hdr::<u64>::new_with_bounds(1, 1 << 30, 3).unwrap();
        for _ in 0..5_000 {
            let bits = stream.below(30);
            ns.record(1 + stream.below(1 << bits)).unwrap();
        }
        let quantiles = Quantiles::new(&ns);
        for q in (0..=10_000).map(|i| f64::from(i) / 10_000.0).chain([0.99999, 1.5]) {
            assert_eq!(quantiles.at(q), ns.value_at_quantile(q).min(ns.max()), "{q}");
        }
    }

    #[test]
    fn a_distribution_has_the_recorded_values() {
        let mut h = Histogram::default();
        assert_eq!(h.distribution_us(), None);
        (1..=1000).for_each(|us| h.record(Span::from_us(us)));
        let d = h.distribution_us().unwrap();
        assert_eq!(d.count, 1000);
        for (actual, want) in [(d.min, 1.0), (d.p50, 500.0), (d.p90, 900.0), (d.p99, 990.0), (d.p999, 999.0)]
        {
            assert!((actual - want).abs() / want < 2e-3, "{actual} for {want}");
        }
        assert!((d.mean - 500.5).abs() < 1.0 && (d.sd - 288.7).abs() < 1.0);
        assert!(d.curve.len() <= CURVE_POINTS);
        assert!(d.curve.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1), "{:?}", d.curve);
        assert_eq!(d.curve.last().unwrap().0, 1.0);
    }

    #[test]
    fn counts_preserve_a_histogram() {
        let mut h = Histogram::default();
        h.record(Span::from_s(20_000)); // beyond the longest: recorded as an hour
        h.record(Span::ZERO);
        h.record_n(Span::from_us(70), 5);
        let mut copy = Histogram::from_counts(&h.counts());
        assert_eq!(copy.distribution_us(), h.distribution_us());
        copy.merge(&h);
        assert_eq!(copy.count(), 14);
        let growth = copy.counts().since(&h.counts());
        assert_eq!(Histogram::from_counts(&growth).distribution_us(), h.distribution_us());
    }
}
