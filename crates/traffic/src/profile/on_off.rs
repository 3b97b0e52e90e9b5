//! A source that is on or off.

use serde::Serialize;
use trunkline_units::Stream;

use crate::series::Series;

/// One rate while it is on, one (mostly 0) while it is off, and how long each lasts, in whole intervals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OnOff {
    /// Amounts above this are on: where the two parts vary least within themselves (Otsu 1979).
    pub threshold: f64,
    /// Amount an interval while it is on.
    pub on: f64,
    /// And while it is off.
    pub off: f64,
    /// Share of the variance that lies between the two: 1 is a series that is truly on or off.
    pub between: f64,
    /// How long it is on.
    pub on_lasts: Length,
    /// How long it is off.
    pub off_lasts: Length,
}

/// How long something lasts, in intervals: at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "law", rename_all = "snake_case")]
pub enum Length {
    /// It ends after each interval with the same chance, as an exponential variable would.
    Geometric {
        /// Mean, in intervals.
        mean: f64,
    },
    /// P(X ≥ k) = k^−shape: heavy below a shape of 2, which makes the whole remember for long (Willinger and others 1997).
    Pareto {
        /// Tail index, above 1.
        shape: f64,
        /// Mean, in intervals: ζ(shape).
        mean: f64,
    },
}

impl OnOff {
    /// None if all values are the same.
    pub(super) fn fit(series: &Series) -> Option<OnOff> {
        let mut sorted: Vec<f64> = series.known().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let (count, between) = cut(&sorted)?;
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        let threshold = sorted[count - 1];
        let runs = |on: bool| Length::fit(&runs(series, threshold, on));
        Some(OnOff {
            threshold,
            on: mean(&sorted[count..]),
            off: mean(&sorted[..count]),
            between,
            on_lasts: runs(true),
            off_lasts: runs(false),
        })
    }

    pub(super) fn draw(&self, intervals: usize, stream: &mut Stream) -> Vec<f64> {
        let (on, off) = (self.on_lasts.mean(), self.off_lasts.mean());
        let mut is_on = stream.chance(on / (on + off));
        let mut drawn = Vec::with_capacity(intervals);
        while drawn.len() < intervals {
            let (value, lasts) = if is_on { (self.on, self.on_lasts) } else { (self.off, self.off_lasts) };
            let left = intervals - drawn.len();
            drawn.resize(drawn.len() + lasts.draw(stream).min(left), value);
            is_on = !is_on;
        }
        drawn
    }
}

/// Where to cut the sorted values in two, and what share of their variance then lies between the parts.
fn cut(sorted: &[f64]) -> Option<(usize, f64)> {
    let n = sorted.len() as f64;
    let mean = sorted.iter().sum::<f64>() / n;
    let variance: f64 = sorted.iter().map(|v| (v - mean) * (v - mean)).sum();
    let (mut sum, mut best) = (0.0, None);
    for (i, pair) in sorted.windows(2).enumerate() {
        sum += pair[0] - mean;
        let below = (i + 1) as f64;
        // Σ over both parts of (mean of the part − mean)², by its size.
        let between = sum * sum * n / (below * (n - below)) / variance;
        if pair[0] < pair[1] && best.is_none_or(|(_, b)| between > b) {
            best = Some((i + 1, between));
        }
    }
    best.map(|(at, between)| (at, between.min(1.0)))
}

/// How long it was on, or off, each time; without those that an end or a gap cuts, unless there are no others.
fn runs(series: &Series, threshold: f64, on: bool) -> Vec<usize> {
    let is = |value: Option<f64>| value.map(|v| (v > threshold) == on);
    let (mut whole, mut cut) = (Vec::new(), Vec::new());
    let (mut length, mut from_edge) = (0, true);
    let values = series.values().iter().copied().chain([None]);
    for state in values.map(is) {
        if state == Some(true) {
            length += 1;
            continue;
        }
        if length > 0 {
            let edges = from_edge || state.is_none();
            if edges { cut.push(length) } else { whole.push(length) }
        }
        (length, from_edge) = (0, state.is_none());
    }
    if whole.is_empty() { cut } else { whole }
}

impl Length {
    /// Of both laws with the mean of the lengths, the one under which they are likelier.
    fn fit(lengths: &[usize]) -> Length {
        let n = lengths.len().max(1) as f64;
        let mean = (lengths.iter().sum::<usize>() as f64 / n).max(1.0);
        let geometric = Length::Geometric { mean };
        if mean < 1.0 + 1e-9 {
            return geometric;
        }
        let pareto = Length::Pareto { shape: shape_of(mean), mean };
        let likelihood = |law: Length| lengths.iter().map(|k| libm::log(law.chance(*k))).sum::<f64>();
        if likelihood(pareto) > likelihood(geometric) { pareto } else { geometric }
    }

    /// Mean, in intervals.
    pub fn mean(&self) -> f64 {
        match self {
            Length::Geometric { mean } | Length::Pareto { mean, .. } => *mean,
        }
    }

    /// P(X = k).
    fn chance(&self, k: usize) -> f64 {
        let k = k as f64;
        let chance = match self {
            Length::Geometric { mean } => libm::pow(1.0 - 1.0 / mean, k - 1.0) / mean,
            Length::Pareto { shape, .. } => libm::pow(k, -shape) - libm::pow(k + 1.0, -shape),
        };
        chance.max(f64::MIN_POSITIVE)
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

/// The shape with ζ(shape) = mean.
fn shape_of(mean: f64) -> f64 {
    // ζ falls from infinity at 1 to 1 at infinity.
    let (mut low, mut high) = (1.0 + 1e-9, 64.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if zeta(middle) > mean { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// Riemann's ζ(s), s > 1, by Euler and Maclaurin from 10 on (DLMF 25.2.9).
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
    fn runs_that_are_cut_do_not_count() {
        let values = [1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, f64::NAN, 0.0, 1.0, 1.0, 0.0, 1.0];
        let s = series(values.iter().map(|v| v.is_finite().then_some(*v)).collect());
        assert_eq!(runs(&s, 0.5, true), [1, 2]);
        assert_eq!(runs(&s, 0.5, false), [1, 3, 1]);
        let half = series([1.0, 1.0, 0.0].map(Some).to_vec());
        assert_eq!((runs(&half, 0.5, true), runs(&half, 0.5, false)), (vec![2], vec![1]));
    }

    #[test]
    fn what_was_drawn_is_fitted_again() {
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
        let near = |a: f64, b: f64, far: f64| assert!((a / b - 1.0).abs() < far, "{a} for {b}: {found:?}");
        near(found.on_lasts.mean(), 4.0, 0.05);
        near(found.off_lasts.mean(), 12.0, 0.05);
        assert!(matches!(
            (found.on_lasts, found.off_lasts),
            (Length::Geometric { .. }, Length::Geometric { .. })
        ));

        let heavy = Length::Pareto { shape: 2.2, mean: zeta(2.2) };
        let found = OnOff::fit(&drawn(&OnOff { on_lasts: heavy, ..geometric }, 100_000, 2)).unwrap();
        let Length::Pareto { shape, mean } = found.on_lasts else { panic!("{found:?}") };
        near(mean, zeta(2.2), 0.1);
        near(shape, 2.2, 0.1);
    }

    #[test]
    fn a_cut_lies_where_the_parts_vary_least() {
        assert_eq!(cut(&[0.0, 0.0, 0.0, 9.0, 10.0, 11.0]).unwrap().0, 3);
        assert_eq!(cut(&[1.0, 1.0, 1.0, 5.0]), Some((3, 1.0)));
        assert_eq!(cut(&[2.0, 2.0]), None);
    }
}
