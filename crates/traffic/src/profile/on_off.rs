//! On–off sources.

use serde::Serialize;
use trunkline_units::Stream;

use crate::series::Series;

/// A source that alternates between two states with constant rates. The state `off` mostly has the rate 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OnOff {
    /// Amounts above this belong to the state `on`. The threshold minimizes the variance within the states (Otsu 1979).
    pub threshold: f64,
    /// Amount per interval in the state `on`.
    pub on: f64,
    /// Amount per interval in the state `off`.
    pub off: f64,
    /// Share of the variance between the states: 1 for a series with only two values.
    pub between: f64,
    /// Duration of `on`.
    pub on_lasts: Length,
    /// Duration of `off`.
    pub off_lasts: Length,
}

/// Distribution of the duration of a state, in intervals: at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "law", rename_all = "snake_case")]
pub enum Length {
    /// The state ends after each interval with the same probability: the discrete form of an exponential distribution.
    Geometric {
        /// Mean, in intervals.
        mean: f64,
    },
    /// P(X ≥ k) = k^−shape. With a shape below 2 the tail is heavy and the source has long memory (Willinger and others
    /// 1997).
    Pareto {
        /// Tail index, above 1.
        shape: f64,
        /// Mean, in intervals: ζ(shape).
        mean: f64,
    },
}

impl OnOff {
    /// Fits a source to a series; `None` if all values are equal.
    pub(super) fn fit(series: &Series) -> Option<OnOff> {
        let mut sorted: Vec<f64> = series.known().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let (count, between) = divide(&sorted)?;
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        let threshold = sorted[count - 1];
        let duration = |on: bool| Length::fit(&durations(series, threshold, on));
        Some(OnOff {
            threshold,
            on: mean(&sorted[count..]),
            off: mean(&sorted[..count]),
            between,
            on_lasts: duration(true),
            off_lasts: duration(false),
        })
    }

    pub(super) fn draw(&self, intervals: usize, stream: &mut Stream) -> Vec<f64> {
        let (on, off) = (self.on_lasts.mean(), self.off_lasts.mean());
        let mut is_on = stream.chance(on / (on + off));
        let mut drawn = Vec::with_capacity(intervals);
        while drawn.len() < intervals {
            let (value, duration) = if is_on { (self.on, self.on_lasts) } else { (self.off, self.off_lasts) };
            let remaining = intervals - drawn.len();
            drawn.resize(drawn.len() + duration.draw(stream).min(remaining), value);
            is_on = !is_on;
        }
        drawn
    }
}

/// Returns the index that divides the sorted values so that the variance between the parts is largest, and the share of
/// that variance; `None` if all values are equal.
fn divide(sorted: &[f64]) -> Option<(usize, f64)> {
    let n = sorted.len() as f64;
    let mean = sorted.iter().sum::<f64>() / n;
    let variance: f64 = sorted.iter().map(|v| (v - mean) * (v - mean)).sum();
    let (mut sum, mut best) = (0.0, None);
    for (i, pair) in sorted.windows(2).enumerate() {
        sum += pair[0] - mean;
        let below = (i + 1) as f64;
        // Σ over both parts of (mean of the part − mean)², weighted by its size.
        let between = sum * sum * n / (below * (n - below)) / variance;
        if pair[0] < pair[1] && best.is_none_or(|(_, b)| between > b) {
            best = Some((i + 1, between));
        }
    }
    best.map(|(at, between)| (at, between.min(1.0)))
}

/// Returns the durations of a state. Those that an end of the series or a gap truncates are excluded, unless there are no
/// others.
fn durations(series: &Series, threshold: f64, on: bool) -> Vec<usize> {
    let is_in_state = |value: Option<f64>| value.map(|v| (v > threshold) == on);
    let (mut complete, mut truncated) = (Vec::new(), Vec::new());
    let (mut length, mut begins_at_edge) = (0, true);
    let values = series.values().iter().copied().chain([None]);
    for state in values.map(is_in_state) {
        if state == Some(true) {
            length += 1;
            continue;
        }
        if length > 0 {
            let is_truncated = begins_at_edge || state.is_none();
            if is_truncated { truncated.push(length) } else { complete.push(length) }
        }
        (length, begins_at_edge) = (0, state.is_none());
    }
    if complete.is_empty() { truncated } else { complete }
}

impl Length {
    /// Fits both distributions to the mean of the durations, and returns the more likely one.
    fn fit(lengths: &[usize]) -> Length {
        let n = lengths.len().max(1) as f64;
        let mean = (lengths.iter().sum::<usize>() as f64 / n).max(1.0);
        let geometric = Length::Geometric { mean };
        if mean < 1.0 + 1e-9 {
            return geometric;
        }
        let pareto = Length::Pareto { shape: shape_of(mean), mean };
        let likelihood = |law: Length| lengths.iter().map(|k| libm::log(law.probability(*k))).sum::<f64>();
        if likelihood(pareto) > likelihood(geometric) { pareto } else { geometric }
    }

    /// Returns the mean, in intervals.
    pub fn mean(&self) -> f64 {
        match self {
            Length::Geometric { mean } | Length::Pareto { mean, .. } => *mean,
        }
    }

    /// Returns P(X = k).
    fn probability(&self, k: usize) -> f64 {
        let k = k as f64;
        let probability = match self {
            Length::Geometric { mean } => libm::pow(1.0 - 1.0 / mean, k - 1.0) / mean,
            Length::Pareto { shape, .. } => libm::pow(k, -shape) - libm::pow(k + 1.0, -shape),
        };
        probability.max(f64::MIN_POSITIVE)
    }

    fn draw(&self, stream: &mut Stream) -> usize {
        let u = stream.unit();
        let length = match self {
            Length::Geometric { mean } if *mean <= 1.0 => 1.0,
            Length::Geometric { mean } => 1.0 + libm::floor(libm::log(u) / libm::log1p(-1.0 / mean)),
            Length::Pareto { shape, .. } => libm::floor(libm::pow(u, -1.0 / shape)),
        };
        (length as usize).max(1)
    }
}

/// Returns the shape with ζ(shape) = mean.
fn shape_of(mean: f64) -> f64 {
    // ζ falls from infinity at 1 to 1 at infinity.
    let (mut low, mut high) = (1.0 + 1e-9, 64.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if zeta(middle) > mean { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// Returns Riemann's ζ(s) for s > 1, with the Euler–Maclaurin formula from 10 on (DLMF 25.2.9).
fn zeta(s: f64) -> f64 {
    let sum: f64 = (1..10).map(|k| libm::pow(f64::from(k), -s)).sum();
    let n = 10.0;
    let tail = libm::pow(n, 1.0 - s) / (s - 1.0) + libm::pow(n, -s) / 2.0;
    let correction = s * libm::pow(n, -s - 1.0) / 12.0
        - s * (s + 1.0) * (s + 2.0) * libm::pow(n, -s - 3.0) / 720.0
        + s * (s + 1.0) * (s + 2.0) * (s + 3.0) * (s + 4.0) * libm::pow(n, -s - 5.0) / 30_240.0;
    sum + tail + correction
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use trunkline_units::{Seed, Span};

    use super::*;

    fn series(values: Vec<Option<f64>>) -> Series {
        Series::new(0, Span::from_s(1), values).unwrap()
    }

    fn drawn(profile: &OnOff, intervals: usize, seed: u64) -> Series {
        let values = profile.draw(intervals, &mut Seed(seed).stream("on-off"));
        series(values.into_iter().map(Some).collect())
    }

    #[test]
    fn zeta_matches_closed_forms() {
        assert!((zeta(2.0) - PI * PI / 6.0).abs() < 1e-10);
        assert!((zeta(4.0) - PI * PI * PI * PI / 90.0).abs() < 1e-10);
        assert!((zeta(1.5) - 2.612_375_348_685_488).abs() < 1e-9);
        assert!((shape_of(zeta(1.4)) - 1.4).abs() < 1e-9);
    }

    #[test]
    fn truncated_durations_are_excluded() {
        let values = [1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, f64::NAN, 0.0, 1.0, 1.0, 0.0, 1.0];
        let s = series(values.iter().map(|v| v.is_finite().then_some(*v)).collect());
        assert_eq!(durations(&s, 0.5, true), [1, 2]);
        assert_eq!(durations(&s, 0.5, false), [1, 3, 1]);
        let short = series([1.0, 1.0, 0.0].map(Some).to_vec());
        assert_eq!((durations(&short, 0.5, true), durations(&short, 0.5, false)), (vec![2], vec![1]));
    }

    #[test]
    fn parameters_are_recovered_from_a_draw() {
        let geometric = OnOff {
            threshold: 5.0,
            on: 100.0,
            off: 2.0,
            between: 1.0,
            on_lasts: Length::Geometric { mean: 4.0 },
            off_lasts: Length::Geometric { mean: 12.0 },
        };
        let found = OnOff::fit(&drawn(&geometric, 100_000, 1)).unwrap();
        assert!((found.on, found.off) == (100.0, 2.0) && found.between > 0.999_999, "{found:?}");
        let check = |actual: f64, want: f64, tolerance: f64| {
            assert!((actual / want - 1.0).abs() < tolerance, "{actual} for {want}: {found:?}")
        };
        check(found.on_lasts.mean(), 4.0, 0.05);
        check(found.off_lasts.mean(), 12.0, 0.05);
        assert!(matches!(
            (found.on_lasts, found.off_lasts),
            (Length::Geometric { .. }, Length::Geometric { .. })
        ));

        let heavy = Length::Pareto { shape: 2.2, mean: zeta(2.2) };
        let found = OnOff::fit(&drawn(&OnOff { on_lasts: heavy, ..geometric }, 100_000, 2)).unwrap();
        let Length::Pareto { shape, mean } = found.on_lasts else { panic!("{found:?}") };
        check(mean, zeta(2.2), 0.1);
        check(shape, 2.2, 0.1);
    }

    #[test]
    fn values_are_divided_with_the_least_variance_within_the_parts() {
        assert_eq!(divide(&[0.0, 0.0, 0.0, 9.0, 10.0, 11.0]).unwrap().0, 3);
        assert_eq!(divide(&[1.0, 1.0, 1.0, 5.0]), Some((3, 1.0)));
        assert_eq!(divide(&[2.0, 2.0]), None);
    }
}
