//! The rate that a network allows a source, over time.

use trunkline_units::{Instant, Rate, Span};

use crate::reports::Metrics;

/// First interval of the series.
const INTERVAL: Span = Span::from_ms(5);
/// Maximum number of intervals; then the interval doubles.
const MAX_POINTS: usize = 2048;

/// The rate at the end of each interval since the start.
#[derive(Clone, Debug)]
pub struct RateSeries {
    start: Instant,
    interval: Span,
    points: Vec<Rate>,
    /// The rate since the last point.
    rate: Rate,
}

impl RateSeries {
    /// Creates a series that begins with a rate of zero.
    pub fn new(start: Instant) -> Self {
        RateSeries { start, interval: INTERVAL, points: Vec::new(), rate: Rate::default() }
    }

    /// Records a new rate.
    pub fn record(&mut self, now: Instant, rate: Rate) {
        self.advance(now);
        self.rate = rate;
    }

    /// Ends the intervals before `now`.
    fn advance(&mut self, now: Instant) {
        loop {
            let ended = (now.since(self.start).as_ps() / self.interval.as_ps()) as usize;
            if ended <= MAX_POINTS {
                self.points.resize(self.points.len().max(ended), self.rate);
                return;
            }
            // The end of two intervals is that of the second.
            self.points.resize(MAX_POINTS, self.rate);
            self.points = self.points.chunks_exact(2).map(|pair| pair[1]).collect();
            self.interval = self.interval * 2;
        }
    }

    /// Returns the series until `now`: seconds since the start, and the rate as a metric.
    pub fn points(mut self, now: Instant) -> Vec<(f64, Metrics)> {
        self.advance(now);
        self.points.push(self.rate);
        let interval = self.interval.as_s();
        let point = |(at, rate): (usize, &Rate)| {
            (at as f64 * interval, Metrics::from([("allowed_bps".into(), rate.as_bps() as f64)]))
        };
        self.points.iter().enumerate().map(point).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_has_the_rate_of_each_interval_in_bounded_memory() {
        let mut series = RateSeries::new(Instant::ZERO);
        let at = |ms| Instant::ZERO + Span::from_ms(ms);
        series.record(at(12), Rate::from_bps(5));
        series.record(at(14), Rate::from_bps(7));
        let points = series.points(at(21));
        let rates: Vec<f64> = points.iter().map(|(_, metrics)| metrics["allowed_bps"]).collect();
        assert_eq!(rates, [0.0, 0.0, 7.0, 7.0, 7.0]);
        let mut series = RateSeries::new(Instant::ZERO);
        (0..1_000_000).for_each(|ms| series.record(at(ms), Rate::from_bps(ms)));
        let points = series.points(at(1_000_000));
        assert!((MAX_POINTS / 2..=MAX_POINTS + 1).contains(&points.len()), "{}", points.len());
        for (t_s, metrics) in points {
            // The rate is the time in milliseconds, at the end of an interval.
            let late_ms = metrics["allowed_bps"] - t_s * 1e3;
            assert!((0.0..=1_280.0).contains(&late_ms), "{late_ms} at {t_s} s");
        }
    }
}
