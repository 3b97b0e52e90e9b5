//! Metrics sampled over time, in bounded memory.

use trunkline_units::{Instant, Span};

use crate::reports::Metrics;

/// First interval between samples, and the maximum number of samples.
const INTERVAL: Span = Span::from_ms(50);
const MAX_SAMPLES: usize = 2048;

/// Metrics over time, sampled every 50 ms. A long run retains every second sample and samples half as often.
#[derive(Debug)]
pub struct Samples {
    points: Vec<(f64, Metrics)>,
    interval: Span,
    next: Instant,
}

impl Default for Samples {
    fn default() -> Self {
        Samples { points: Vec::new(), interval: INTERVAL, next: Instant::ZERO }
    }
}

impl Samples {
    /// Returns whether a sample is due.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// Records a sample, with the time since `start`.
    #[cold]
    pub fn record(&mut self, start: Instant, now: Instant, metrics: Metrics) {
        self.next = now + self.interval;
        self.points.push((now.since(start).as_s(), metrics));
        if self.points.len() == MAX_SAMPLES {
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.interval = self.interval * 2;
        }
    }

    /// Returns the samples: seconds since the start, and metrics.
    pub fn points(&self) -> &[(f64, Metrics)] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_has_evenly_spaced_samples_in_bounded_memory() {
        let (start, mut samples) = (Instant::ZERO, Samples::default());
        for ms in 0..1_000_000 {
            let now = start + Span::from_ms(ms);
            if samples.is_due(now) {
                samples.record(start, now, Metrics::new());
            }
        }
        let points = samples.points();
        assert!((MAX_SAMPLES / 2..MAX_SAMPLES).contains(&points.len()), "{}", points.len());
        // 1,000 s of 2,048 samples: the interval was doubled four times.
        for pair in points.windows(2) {
            assert!((pair[1].0 - pair[0].0 - 0.8).abs() < 1e-9, "{pair:?}");
        }
    }
}
