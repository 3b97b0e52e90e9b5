//! How well what was sent matches what was asked.
//!
//! A [`Sample`] keeps the values of a run in bounded memory; [`Sample::judge`] sets them against a [`Law`] with
//! the test of Kolmogorov and Smirnov.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};
use trunkline_units::{Seed, Stream};

use crate::Law;

/// Values a sample keeps: all of the first, then a fair choice of as many (Vitter 1985, algorithm R).
const KEPT: usize = 65_536;

/// Half of the points a curve has at the most.
const HALF_CURVE: usize = 100;

/// The values of a run, in bounded memory: exact up to 65,536 values, a uniform random choice of that many
/// beyond. Count, mean, least and largest are over everything.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    kept: Vec<f64>,
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
    /// Draws the reservoir. A sample that was sent to another process uses a separate stream there.
    #[serde(skip, default = "crossed")]
    stream: Stream,
}

fn crossed() -> Stream {
    Seed::default().stream("sample / crossed")
}

/// Whether values were rounded before they were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Used as drawn: times, rates.
    None,
    /// Rounded to the nearest whole number: sizes, counts. The law judged against is that of the rounded
    /// variable.
    Whole,
}

/// A sample set against a law.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitness {
    /// The largest difference between the two cumulative distributions (the statistic D of Kolmogorov and
    /// Smirnov). For a constant: the mean absolute deviation over the constant; for a constant 0, the share of
    /// values that are not 0. 0 is perfect, and is what an empty sample gets.
    pub distance: f64,
    /// Chance of a distance at least this large if the law held; none for constants and empty samples. For
    /// rounded and empirical values, whose laws have steps, the true chance is at most this (Noether 1963).
    pub p_value: Option<f64>,
    /// Values compared.
    pub samples: u64,
    /// `(value, share asked at or below, share sent at or below)`, ascending, at most 200 points.
    pub curve: Vec<(f64, f64, f64)>,
}

impl Sample {
    /// An empty sample. The stream decides which values stay once there are more than are kept.
    pub fn new(stream: Stream) -> Self {
        Sample { kept: Vec::new(), count: 0, sum: 0.0, min: 0.0, max: 0.0, stream }
    }

    /// Adds a finite value. Allocates only when the values kept outgrow a power of two, and never past 65,536.
    #[inline(always)]
    pub fn push(&mut self, value: f64) {
        debug_assert!(value.is_finite(), "a sample holds finite values, not {value}");
        if self.count == 0 {
            (self.min, self.max) = (value, value);
        }
        self.count += 1;
        self.sum += value;
        if value < self.min {
            self.min = value;
        }
        if value > self.max {
            self.max = value;
        }
        if self.kept.len() < KEPT {
            self.kept.push(value);
        } else {
            self.choose(value);
        }
    }

    /// Adds a finite value `n` times.
    pub fn push_run(&mut self, value: f64, n: u64) {
        if n == 0 {
            return;
        }
        self.push(value);
        // Nothing is chosen as long as all are kept.
        let rest = n - 1;
        let all = rest.min((KEPT - self.kept.len()) as u64);
        self.count += all;
        self.kept.resize(self.kept.len() + all as usize, value);
        // Not a product: it rounds otherwise.
        (0..all).for_each(|_| self.sum += value);
        (all..rest).for_each(|_| self.push(value));
    }

    /// Whether a value past the first ones stays, and instead of which.
    #[inline(never)]
    fn choose(&mut self, value: f64) {
        let place = self.stream.below(self.count) as usize;
        if let Some(old) = self.kept.get_mut(place) {
            *old = value;
        }
    }

    /// Values added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Mean of all values; none if there are none.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    /// Least of all values; none if there are none.
    pub fn min(&self) -> Option<f64> {
        (self.count > 0).then_some(self.min)
    }

    /// Largest of all values; none if there are none.
    pub fn max(&self) -> Option<f64> {
        (self.count > 0).then_some(self.max)
    }

    /// Sets the values kept against `law`.
    pub fn judge(&self, law: &Law, rounding: Rounding) -> Fitness {
        let mut sent = self.kept.clone();
        if rounding == Rounding::Whole {
            sent.iter_mut().for_each(|v| *v = libm::round(*v));
        }
        if self.min < self.max {
            sent.sort_unstable_by(f64::total_cmp);
        }
        let (distance, p_value) = match sent.len() {
            0 => (0.0, None),
            _ if law.is_constant() => (deviation(&sent, requested_quantile(law, rounding, 0.5)), None),
            n => {
                let distance = largest_difference(&sent, law, rounding);
                (distance, Some(chance_of_distance(n, distance)))
            }
        };
        Fitness { distance, p_value, samples: sent.len() as u64, curve: curve(&sent, law, rounding) }
    }
}

/// Returns the quantile of the law after rounding.
fn requested_quantile(law: &Law, rounding: Rounding, p: f64) -> f64 {
    match rounding {
        Rounding::None => law.quantile(p),
        Rounding::Whole => libm::round(law.quantile(p)),
    }
}

/// Returns the probability of a rounded value at or below `x`. A half rounds up, so the edge is just below it.
fn requested_share(law: &Law, rounding: Rounding, x: f64) -> f64 {
    match rounding {
        Rounding::None => law.cdf(x),
        Rounding::Whole => law.cdf((libm::floor(x) + 0.5).next_down()),
    }
}

/// Returns the probability of a rounded value below `x`, where `x` is a possible value.
fn requested_share_below(law: &Law, rounding: Rounding, x: f64) -> f64 {
    match rounding {
        Rounding::None if law.is_continuous() => law.cdf(x),
        Rounding::None => law.cdf(x.next_down()),
        Rounding::Whole => law.cdf((x - 0.5).next_down()),
    }
}

/// Mean absolute deviation from `constant`, as a share of it.
fn deviation(sent: &[f64], constant: f64) -> f64 {
    let n = sent.len() as f64;
    if constant == 0.0 {
        return sent.iter().filter(|v| **v != 0.0).count() as f64 / n;
    }
    sent.iter().map(|v| libm::fabs(v - constant)).sum::<f64>() / n / libm::fabs(constant)
}

/// The statistic D. Between two values sent the share sent stands still and the share asked rises, so the
/// largest difference lies at a value or just below one, whether the law asked has steps or not.
fn largest_difference(sent: &[f64], law: &Law, rounding: Rounding) -> f64 {
    let n = sent.len() as f64;
    let mut below = 0;
    let mut largest: f64 = 0.0;
    for same in sent.chunk_by(|a, b| a == b) {
        let upto = below + same.len();
        let before = requested_share_below(law, rounding, same[0]) - below as f64 / n;
        let after = upto as f64 / n - requested_share(law, rounding, same[0]);
        largest = largest.max(libm::fabs(before)).max(libm::fabs(after));
        below = upto;
    }
    largest
}

/// Evenly spaced quantiles of both sides, so that neither's tail is missing from the plot.
fn curve(sent: &[f64], law: &Law, rounding: Rounding) -> Vec<(f64, f64, f64)> {
    if sent.is_empty() {
        return Vec::new();
    }
    let last = sent.len() - 1;
    let of_sent = (0..HALF_CURVE).map(|i| sent[i * last / (HALF_CURVE - 1)]);
    let of_law =
        (0..HALF_CURVE).map(|i| requested_quantile(law, rounding, (i as f64 + 0.5) / HALF_CURVE as f64));
    let mut values: Vec<f64> = of_sent.chain(of_law).collect();
    values.sort_unstable_by(f64::total_cmp);
    values.dedup();
    let share_sent = |x: f64| sent.partition_point(|v| *v <= x) as f64 / sent.len() as f64;
    values.into_iter().map(|x| (x, requested_share(law, rounding, x), share_sent(x))).collect()
}

/// P(D ≥ d) for `n` values of a continuous law.
///
/// Up to 100 values: the exact distribution (Marsaglia, Tsang and Wang 2003), with their approximation where
/// the chance is too small for a difference from 1. Beyond: Kolmogorov's series with Stephens' correction (1970).
fn chance_of_distance(n: usize, d: f64) -> f64 {
    let many = n as f64;
    let s = d * d * many;
    if s > 7.24 || (s > 3.76 && n > 99) {
        return (2.0 * libm::exp(-(2.000071 + 0.331 / libm::sqrt(many) + 1.409 / many) * s)).min(1.0);
    }
    if n <= 100 {
        return (1.0 - exact_kolmogorov(n, d)).clamp(0.0, 1.0);
    }
    let root = libm::sqrt(many);
    limit_chance((root + 0.12 + 0.11 / root) * d)
}

/// Kolmogorov's limit: P(√n·D ≥ x). For small `x` the series in 1/x converges at once where the other crawls.
fn limit_chance(x: f64) -> f64 {
    if x <= 0.0 {
        return 1.0;
    }
    if x < 1.0 {
        let term = |j: i32| libm::exp(-f64::from((2 * j - 1).pow(2)) * PI * PI / (8.0 * x * x));
        return 1.0 - libm::sqrt(2.0 * PI) / x * (1..=4).map(term).sum::<f64>();
    }
    let term = |j: i32| if j % 2 == 1 { 2.0 } else { -2.0 } * libm::exp(-2.0 * f64::from(j * j) * x * x);
    (1..=6).map(term).sum::<f64>().clamp(0.0, 1.0)
}

/// P(D < d) for `n` values, exactly: the middle entry of H^n, times n! / n^n (Marsaglia, Tsang and Wang 2003).
fn exact_kolmogorov(n: usize, d: f64) -> f64 {
    let many = n as f64;
    let k = libm::floor(many * d) as usize + 1;
    let m = 2 * k - 1;
    let h = k as f64 - many * d;
    let mut power = Scaled { entries: transition(m, h), m, exponent: 0 };
    let mut result = Scaled::identity(m);
    let mut left = n;
    while left > 0 {
        if left & 1 == 1 {
            result = result.times(&power);
        }
        power = power.times(&power);
        left >>= 1;
    }
    let mut chance = result.entries[(k - 1) * m + k - 1];
    let mut exponent = result.exponent;
    for i in 1..=n {
        chance *= i as f64 / many;
        if chance < 1e-140 {
            chance *= 1e140;
            exponent -= 140;
        }
    }
    chance * libm::exp10(f64::from(exponent))
}

/// The matrix H of the paper, row by row.
fn transition(m: usize, h: f64) -> Vec<f64> {
    let mut entries = vec![0.0; m * m];
    for i in 0..m {
        for j in 0..m.min(i + 2) {
            entries[i * m + j] = 1.0;
        }
    }
    for i in 0..m {
        let step = (i + 1) as f64;
        entries[i * m] -= libm::pow(h, step);
        entries[(m - 1) * m + i] -= libm::pow(h, (m - i) as f64);
    }
    entries[(m - 1) * m] += libm::pow((2.0 * h - 1.0).max(0.0), m as f64);
    for i in 0..m {
        for j in 0..m.min(i + 1) {
            (1..=i + 1 - j).for_each(|g| entries[i * m + j] /= g as f64);
        }
    }
    entries
}

/// A square matrix times ten to a power, so that H^n neither overflows nor vanishes.
struct Scaled {
    entries: Vec<f64>,
    m: usize,
    exponent: i32,
}

impl Scaled {
    fn identity(m: usize) -> Self {
        let entries = (0..m * m).map(|at| f64::from(at % (m + 1) == 0)).collect();
        Scaled { entries, m, exponent: 0 }
    }

    fn times(&self, other: &Scaled) -> Scaled {
        let m = self.m;
        let entry = |at: usize| {
            let (row, column) = (at / m, at % m);
            (0..m).map(|k| self.entries[row * m + k] * other.entries[k * m + column]).sum::<f64>()
        };
        let mut entries: Vec<f64> = (0..m * m).map(entry).collect();
        let mut exponent = self.exponent + other.exponent;
        if entries[(m / 2) * m + m / 2] > 1e140 {
            entries.iter_mut().for_each(|e| *e *= 1e-140);
            exponent += 140;
        }
        Scaled { entries, m, exponent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Variable;

    fn drawn(law: &Law, n: usize, seed: u64, rounding: Rounding) -> Sample {
        let mut stream = Seed(seed).stream("draws");
        let mut sample = Sample::new(Seed(seed).stream("kept"));
        for _ in 0..n {
            let value = law.sample(&mut stream);
            sample.push(if rounding == Rounding::Whole { libm::round(value) } else { value });
        }
        sample
    }

    fn law(variable: Variable, floor: f64) -> Law {
        Law::new(variable, floor).unwrap()
    }

    #[test]
    fn chances_match_the_tables() {
        // Critical values of D (Miller 1956, two-sided): the chance of at least this much.
        for (n, d, chance) in [
            (5, 0.56328, 0.05),
            (5, 0.66853, 0.01),
            (10, 0.36866, 0.10),
            (10, 0.48893, 0.01),
            (20, 0.29408, 0.05),
            (50, 0.18841, 0.05),
            (100, 0.13403, 0.05),
            (100, 0.16081, 0.01),
        ] {
            let got = chance_of_distance(n, d);
            assert!((got - chance).abs() < 2e-4, "n = {n}, D = {d}: {got} for {chance}");
        }
        // The example of the paper: P(D₁₀ < 0.274) = 0.6284796154565.
        assert!((exact_kolmogorov(10, 0.274) - 0.628_479_615_456_5).abs() < 1e-12);
        // Kolmogorov's limit: 1.2238 and 1.3581 and 1.6276 stand at 10, 5 and 1 %.
        for (x, chance) in [(1.2238, 0.10), (1.3581, 0.05), (1.6276, 0.01), (0.8276, 0.50)] {
            assert!((limit_chance(x) - chance).abs() < 1e-4, "{x}: {}", limit_chance(x));
        }
    }

    #[test]
    fn the_ways_to_a_chance_meet_at_their_seams() {
        for d in [0.04, 0.08, 0.12, 0.16] {
            let (exact, series) = (chance_of_distance(100, d), chance_of_distance(101, d));
            assert!((exact - series).abs() < 0.01, "D = {d}: {exact}, {series}");
        }
        assert!((limit_chance(1.0 - 1e-9) - limit_chance(1.0)).abs() < 1e-7);
        assert_eq!(limit_chance(0.0), 1.0);
        assert_eq!(chance_of_distance(1, 1.0), 0.0);
        assert!(chance_of_distance(1_000_000, 0.5) < 1e-300);
    }

    #[test]
    fn chances_are_uniform_where_the_law_holds() {
        let law = law(Variable::Exponential { mean: 0.001 }, 0.0);
        for n in [40, 400] {
            let chances: Vec<f64> = (0..1000)
                .map(|seed| drawn(&law, n, seed, Rounding::None).judge(&law, Rounding::None).p_value.unwrap())
                .collect();
            // Binomial(1000, p) within four standard deviations.
            for p in [0.01f64, 0.1, 0.5, 0.9] {
                let share = chances.iter().filter(|c| **c < p).count() as f64;
                let spread = 4.0 * (1000.0 * p * (1.0 - p)).sqrt();
                assert!((share - 1000.0 * p).abs() < spread, "n = {n}: {share} of 1000 below {p}");
            }
        }
    }

    #[test]
    fn rounded_values_are_judged_against_the_rounded_law() {
        let law = law(Variable::Exponential { mean: 5.0 }, 1.0);
        let mut below = 0;
        for seed in 0..300 {
            let sample = drawn(&law, 2_000, seed, Rounding::Whole);
            below += usize::from(sample.judge(&law, Rounding::Whole).p_value.unwrap() < 0.01);
            // Taken for unrounded the same values would be refused.
            assert!(sample.judge(&law, Rounding::None).p_value.unwrap() < 1e-6);
        }
        assert!(below <= 9, "{below} of 300 refused at 1 %");
    }

    #[test]
    fn a_wrong_law_is_found_out() {
        let asked = law(Variable::Uniform { a: 0.0, b: 2.0 }, 0.0);
        let sent = law(Variable::Exponential { mean: 1.0 }, 0.0);
        assert!(drawn(&sent, 500, 1, Rounding::None).judge(&asked, Rounding::None).p_value.unwrap() < 1e-6);
        // Not only a wrong shape: a mean that is 5 % off as well.
        let off = law(Variable::Exponential { mean: 1.05 }, 0.0);
        for seed in 0..20 {
            let fit = drawn(&off, 60_000, seed, Rounding::None).judge(&sent, Rounding::None);
            assert!(fit.p_value.unwrap() < 1e-6, "seed {seed}: {}", fit.distance);
        }
    }

    #[test]
    fn an_empirical_law_has_steps_and_they_are_compared_as_steps() {
        let law = law(Variable::Empirical { file: String::new(), values: [1.0, 2.0, 4.0, 8.0].into() }, 0.0);
        let mut sample = Sample::new(Seed(1).stream("kept"));
        [1.0, 2.0, 4.0, 8.0].iter().cycle().take(400).for_each(|v| sample.push(*v));
        assert_eq!(sample.judge(&law, Rounding::None).distance, 0.0);
        assert_eq!(sample.judge(&law, Rounding::Whole).distance, 0.0);
        (0..400).for_each(|_| sample.push(4.0));
        // Below 4 a half is asked and a quarter was sent.
        assert_eq!(sample.judge(&law, Rounding::None).distance, 0.25);
        // Halves round up: 0.5 is sent as 1.
        let halves = Law::new(Variable::Empirical { file: String::new(), values: [0.5, 1.5].into() }, 0.0);
        let mut sample = Sample::new(Seed(1).stream("kept"));
        [1.0, 2.0].iter().for_each(|v| sample.push(*v));
        assert_eq!(sample.judge(&halves.unwrap(), Rounding::Whole).distance, 0.0);
    }

    #[test]
    fn a_constant_is_judged_by_its_mean_deviation() {
        let law = |v| Law::new(Variable::Constant(v), 0.0).unwrap();
        let mut sample = Sample::new(Seed(1).stream("kept"));
        [90.0, 100.0, 110.0, 120.0].iter().for_each(|v| sample.push(*v));
        let fit = sample.judge(&law(100.0), Rounding::None);
        assert_eq!((fit.distance, fit.p_value, fit.samples), (0.1, None, 4));
        assert_eq!(sample.judge(&law(0.0), Rounding::None).distance, 1.0);
        assert_eq!(sample.judge(&law(99.6), Rounding::Whole).distance, 0.1);
    }

    #[test]
    fn an_empty_sample_has_no_fit() {
        let law = law(Variable::Exponential { mean: 1.0 }, 0.0);
        let sample = Sample::new(Seed(1).stream("kept"));
        assert_eq!((sample.count(), sample.mean(), sample.min(), sample.max()), (0, None, None, None));
        let fit = sample.judge(&law, Rounding::None);
        assert_eq!(fit, Fitness { distance: 0.0, p_value: None, samples: 0, curve: vec![] });
    }

    #[test]
    fn past_its_bound_a_sample_keeps_a_fair_choice_and_exact_totals() {
        let mut sample = Sample::new(Seed(3).stream("kept"));
        let n = 4 * KEPT as u64;
        // Ascending: a sample that favoured the early or the late would be far off the uniform law.
        (1..=n).for_each(|v| sample.push(v as f64));
        assert_eq!(sample.kept.len(), KEPT);
        assert_eq!(sample.kept.capacity(), KEPT);
        assert_eq!((sample.count(), sample.min(), sample.max()), (n, Some(1.0), Some(n as f64)));
        assert_eq!(sample.mean(), Some((n + 1) as f64 / 2.0));
        let uniform = law(Variable::Uniform { a: 0.0, b: n as f64 }, 0.0);
        let fit = sample.judge(&uniform, Rounding::None);
        assert!(fit.p_value.unwrap() > 1e-3, "{}", fit.distance);
        assert_eq!(fit.samples, KEPT as u64);
    }

    #[test]
    fn a_curve_rises_and_covers_both_sides() {
        let law = law(Variable::Pareto { shape: 1.2, min: 40.0 }, 1.0);
        let sample = drawn(&law, 10_000, 5, Rounding::Whole);
        let curve = sample.judge(&law, Rounding::Whole).curve;
        assert!(curve.len() <= 2 * HALF_CURVE && curve.len() > HALF_CURVE);
        assert!(curve.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1 && w[0].2 <= w[1].2));
        assert_eq!(curve.last().unwrap().2, 1.0);
        assert!(curve.iter().all(|(_, asked, sent)| (asked - sent).abs() < 0.03));
    }

    #[test]
    fn a_sample_crosses_processes() {
        let law = law(Variable::Exponential { mean: 0.1 }, 0.0);
        let sample = drawn(&law, 1000, 9, Rounding::None);
        let text = serde_json::to_string(&sample).unwrap();
        let twin: Sample = serde_json::from_str(&text).unwrap();
        // JSON may cost a last digit.
        let (here, there) = (sample.judge(&law, Rounding::None), twin.judge(&law, Rounding::None));
        assert!((here.distance - there.distance).abs() < 1e-12);
        assert_eq!((twin.count(), there.samples, there.curve.len()), (1000, 1000, here.curve.len()));
        // Before the first value as well: a receiver that saw nothing still reports.
        let empty = serde_json::to_string(&Sample::new(Seed(1).stream("kept"))).unwrap();
        assert_eq!(serde_json::from_str::<Sample>(&empty).unwrap().count(), 0);
    }
}
