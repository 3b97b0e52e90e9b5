//! Compares sent values with the requested distribution.
//!
//! A [`Sample`] retains the sent values in bounded memory; [`Sample::goodness_of_fit`] compares them with a [`Law`] by the
//! Kolmogorov–Smirnov test.

use std::f64::consts::PI;

use trunkline_units::Stream;

use crate::Law;

/// Maximum number of values that a sample retains (Vitter 1985, algorithm R).
const RESERVOIR: usize = 131_072;

/// Half of the maximum number of points of a curve.
const HALF_CURVE: usize = 100;

/// Values in bounded memory: all of up to 131,072 values, or a uniform random selection of as many. The mean is that of all values.
#[derive(Clone, Debug)]
pub struct Sample {
    reservoir: Vec<f64>,
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
    /// Selects the values that the reservoir retains.
    stream: Stream,
}

/// Whether values were rounded before they were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Used as sample_of: times, rates.
    None,
    /// Rounded to the nearest integer: sizes, counts. They are compared with the distribution of the rounded variable.
    Integer,
}

/// How well a sample fits a law.
#[derive(Clone, Debug, PartialEq)]
pub struct GoodnessOfFit {
    /// The largest difference between the two cumulative distributions (Kolmogorov–Smirnov's D). For a constant: the mean
    /// absolute deviation divided by the constant; for the constant 0, the share of values that are not 0. 0 is perfect, and
    /// the distance of an empty sample.
    pub distance: f64,
    /// Probability of a distance at least this large if the values follow the law; `None` for constants and empty samples.
    /// For rounded and empirical values, whose distributions have steps, an upper bound of it (Noether 1963).
    pub p_value: Option<f64>,
    /// Number of compared values.
    pub samples: u64,
    /// `(value, requested share at or below, sent share at or below)`, ascending, at most 200 points.
    pub curve: Vec<(f64, f64, f64)>,
}

/// The level at which a sample differs from its law: one correct sample in a hundred does.
pub const SIGNIFICANCE: f64 = 0.01;

impl GoodnessOfFit {
    /// Returns whether the sample follows the law, at a level of 1 %; `None` without a p-value.
    pub fn follows(&self) -> Option<bool> {
        self.p_value.map(|p| p >= SIGNIFICANCE)
    }
}

impl Sample {
    /// Creates an empty sample. The stream selects the retained values when there are more than fit.
    pub fn new(stream: Stream) -> Self {
        Sample { reservoir: Vec::new(), count: 0, sum: 0.0, min: 0.0, max: 0.0, stream }
    }

    /// Adds a finite value. Allocates when the number of retained values exceeds a power of two, at most 131,072.
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
        if self.reservoir.len() < RESERVOIR {
            self.reservoir.push(value);
        } else {
            self.select(value);
        }
    }

    /// Adds a finite value `n` times.
    pub fn push_repeated(&mut self, value: f64, n: u64) {
        if n == 0 {
            return;
        }
        self.push(value);
        // No random numbers are sample_of while all values are retained.
        let rest = n - 1;
        let retained = rest.min((RESERVOIR - self.reservoir.len()) as u64);
        self.count += retained;
        self.reservoir.resize(self.reservoir.len() + retained as usize, value);
        // Not a product, which would round differently.
        (0..retained).for_each(|_| self.sum += value);
        (retained..rest).for_each(|_| self.push(value));
    }

    /// Replaces a random value of the full reservoir, or discards `value`.
    #[inline(never)]
    fn select(&mut self, value: f64) {
        let index = self.stream.below(self.count) as usize;
        if let Some(old) = self.reservoir.get_mut(index) {
            *old = value;
        }
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the mean of all values; `None` if there are none.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    /// Compares the retained values with a law.
    pub fn goodness_of_fit(&self, law: &Law, rounding: Rounding) -> GoodnessOfFit {
        let mut sent = self.reservoir.clone();
        if rounding == Rounding::Integer {
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
                (distance, Some(probability_of_distance(n, distance)))
            }
        };
        GoodnessOfFit { distance, p_value, samples: sent.len() as u64, curve: curve(&sent, law, rounding) }
    }
}

/// Returns the quantile of the law after rounding.
fn requested_quantile(law: &Law, rounding: Rounding, p: f64) -> f64 {
    match rounding {
        Rounding::None => law.quantile(p),
        Rounding::Integer => libm::round(law.quantile(p)),
    }
}

/// Returns the probability of a rounded value at or below `x`. A half rounds up, so the edge is just below it.
fn requested_share(law: &Law, rounding: Rounding, x: f64) -> f64 {
    match rounding {
        Rounding::None => law.cdf(x),
        Rounding::Integer => law.cdf((libm::floor(x) + 0.5).next_down()),
    }
}

/// Returns the probabilities of a rounded value below `x`, and at or below `x`, where `x` is a possible value.
fn requested_shares(law: &Law, rounding: Rounding, x: f64) -> (f64, f64) {
    let share = requested_share(law, rounding, x);
    match rounding {
        Rounding::None if law.is_continuous() => (share, share),
        Rounding::None => (law.cdf(x.next_down()), share),
        Rounding::Integer => (law.cdf((x - 0.5).next_down()), share),
    }
}

/// Returns the mean absolute deviation from `constant`, as a share of it.
fn deviation(sent: &[f64], constant: f64) -> f64 {
    let n = sent.len() as f64;
    if constant == 0.0 {
        return sent.iter().filter(|v| **v != 0.0).count() as f64 / n;
    }
    sent.iter().map(|v| libm::fabs(v - constant)).sum::<f64>() / n / libm::fabs(constant)
}

/// Returns the statistic D of sorted values. Between two sent values the sent share is constant and the requested share
/// rises, so the largest difference is at a value or just below one, even if the requested distribution has steps.
///
/// Both shares rise, so those at the ends of an interval bound the difference within it. An interval whose bound is not above the
/// largest difference so far is not searched: of 131,072 values that follow the law, about a fiftieth are compared.
fn largest_difference(sent: &[f64], law: &Law, rounding: Rounding) -> f64 {
    let sent_share = |index: usize| index as f64 / sent.len() as f64;
    let mut largest: f64 = 0.0;
    // Indices of the values in an interval, and the requested shares at its lower end and below its upper end.
    let mut intervals = vec![(0, sent.len(), 0.0, 1.0)];
    while let Some((from, to, low, high)) = intervals.pop() {
        let bound = (high - sent_share(from)).max(sent_share(to) - low);
        if from == to || bound <= largest {
            continue;
        }
        let value = sent[from + (to - from) / 2];
        let below = from + sent[from..to].partition_point(|v| *v < value);
        let at_or_below = below + sent[below..to].partition_point(|v| *v <= value);
        let (share_below, share) = requested_shares(law, rounding, value);
        let (before, after) = (share_below - sent_share(below), sent_share(at_or_below) - share);
        largest = largest.max(libm::fabs(before)).max(libm::fabs(after));
        intervals.push((from, below, low, share_below));
        intervals.push((at_or_below, to, share, high));
    }
    largest
}

/// Returns both cumulative distributions at evenly spaced quantiles of each, so that the plot shows both tails.
fn curve(sent: &[f64], law: &Law, rounding: Rounding) -> Vec<(f64, f64, f64)> {
    if sent.is_empty() {
        return Vec::new();
    }
    let last = sent.len() - 1;
    let sent_quantiles = (0..HALF_CURVE).map(|i| sent[i * last / (HALF_CURVE - 1)]);
    let requested_quantiles =
        (0..HALF_CURVE).map(|i| requested_quantile(law, rounding, (i as f64 + 0.5) / HALF_CURVE as f64));
    let mut values: Vec<f64> = sent_quantiles.chain(requested_quantiles).collect();
    values.sort_unstable_by(f64::total_cmp);
    values.dedup();
    let sent_share = |x: f64| sent.partition_point(|v| *v <= x) as f64 / sent.len() as f64;
    values.into_iter().map(|x| (x, requested_share(law, rounding, x), sent_share(x))).collect()
}

/// Returns P(D ≥ d) for `n` values of a continuous distribution.
///
/// Up to 100 values: the exact distribution (Marsaglia, Tsang and Wang 2003), with their approximation where the
/// probability is too small for a difference from 1. Beyond: Kolmogorov's series with Stephens' correction (1970).
fn probability_of_distance(n: usize, d: f64) -> f64 {
    let count = n as f64;
    let s = d * d * count;
    if s > 7.24 || (s > 3.76 && n > 99) {
        return (2.0 * libm::exp(-(2.000071 + 0.331 / libm::sqrt(count) + 1.409 / count) * s)).min(1.0);
    }
    if n <= 100 {
        return (1.0 - exact_kolmogorov(n, d)).clamp(0.0, 1.0);
    }
    let root = libm::sqrt(count);
    kolmogorov_limit((root + 0.12 + 0.11 / root) * d)
}

/// Returns Kolmogorov's limit of P(√n·D ≥ x). For small `x` the series in 1/x converges faster.
fn kolmogorov_limit(x: f64) -> f64 {
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

/// Returns P(D < d) for `n` values, exactly: the middle entry of H^n, times n! / n^n (Marsaglia, Tsang and Wang 2003).
fn exact_kolmogorov(n: usize, d: f64) -> f64 {
    let count = n as f64;
    let k = libm::floor(count * d) as usize + 1;
    let m = 2 * k - 1;
    let h = k as f64 - count * d;
    let mut power = ScaledMatrix { entries: transition(m, h), m, exponent: 0 };
    let mut result = ScaledMatrix::identity(m);
    let mut bits = n;
    while bits > 0 {
        if bits & 1 == 1 {
            result = result.times(&power);
        }
        power = power.times(&power);
        bits >>= 1;
    }
    let mut probability = result.entries[(k - 1) * m + k - 1];
    let mut exponent = result.exponent;
    for i in 1..=n {
        probability *= i as f64 / count;
        if probability < 1e-140 {
            probability *= 1e140;
            exponent -= 140;
        }
    }
    probability * libm::exp10(f64::from(exponent))
}

/// Returns the matrix H of the paper, row by row.
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

/// An m × m matrix times ten to a power, so that H^n neither overflows nor underflows.
struct ScaledMatrix {
    entries: Vec<f64>,
    m: usize,
    exponent: i32,
}

impl ScaledMatrix {
    fn identity(m: usize) -> Self {
        let entries = (0..m * m).map(|at| f64::from(at % (m + 1) == 0)).collect();
        ScaledMatrix { entries, m, exponent: 0 }
    }

    fn times(&self, other: &ScaledMatrix) -> ScaledMatrix {
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
        ScaledMatrix { entries, m, exponent }
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::Seed;

    use super::*;
    use crate::Variable;

    fn sample_of(law: &Law, n: usize, seed: u64, rounding: Rounding) -> Sample {
        let mut stream = Seed(seed).stream("draws");
        let mut sample = Sample::new(Seed(seed).stream("reservoir"));
        for _ in 0..n {
            let value = law.sample(&mut stream);
            sample.push(if rounding == Rounding::Integer { libm::round(value) } else { value });
        }
        sample
    }

    fn law(variable: Variable, floor: f64) -> Law {
        Law::new(variable, floor).unwrap()
    }

    #[test]
    fn probabilities_match_the_tables() {
        // Critical values of D (Miller 1956, two-sided) and their probabilities.
        for (n, d, probability) in [
            (5, 0.56328, 0.05),
            (5, 0.66853, 0.01),
            (10, 0.36866, 0.10),
            (10, 0.48893, 0.01),
            (20, 0.29408, 0.05),
            (50, 0.18841, 0.05),
            (100, 0.13403, 0.05),
            (100, 0.16081, 0.01),
        ] {
            let actual = probability_of_distance(n, d);
            assert!((actual - probability).abs() < 2e-4, "n = {n}, D = {d}: {actual} for {probability}");
        }
        // The example of the paper: P(D₁₀ < 0.274) = 0.6284796154565.
        assert!((exact_kolmogorov(10, 0.274) - 0.628_479_615_456_5).abs() < 1e-12);
        // Kolmogorov's limit: 1.2238, 1.3581 and 1.6276 have the probabilities 10, 5 and 1 %.
        for (x, probability) in [(1.2238, 0.10), (1.3581, 0.05), (1.6276, 0.01), (0.8276, 0.50)] {
            assert!((kolmogorov_limit(x) - probability).abs() < 1e-4, "{x}: {}", kolmogorov_limit(x));
        }
    }

    #[test]
    fn methods_agree_where_they_meet() {
        for d in [0.04, 0.08, 0.12, 0.16] {
            let (exact, series) = (probability_of_distance(100, d), probability_of_distance(101, d));
            assert!((exact - series).abs() < 0.01, "D = {d}: {exact}, {series}");
        }
        assert!((kolmogorov_limit(1.0 - 1e-9) - kolmogorov_limit(1.0)).abs() < 1e-7);
        assert_eq!(kolmogorov_limit(0.0), 1.0);
        assert_eq!(probability_of_distance(1, 1.0), 0.0);
        assert!(probability_of_distance(1_000_000, 0.5) < 1e-300);
    }

    #[test]
    fn p_values_are_uniform_if_the_values_follow_the_law() {
        let law = law(Variable::Exponential { mean: 0.001 }, 0.0);
        for n in [40, 400] {
            let fit = |seed| sample_of(&law, n, seed, Rounding::None).goodness_of_fit(&law, Rounding::None);
            let p_values: Vec<f64> = (0..1000).map(|seed| fit(seed).p_value.unwrap()).collect();
            // Binomial(1000, p) within four standard deviations.
            for p in [0.01f64, 0.1, 0.5, 0.9] {
                let count = p_values.iter().filter(|value| **value < p).count() as f64;
                let spread = 4.0 * (1000.0 * p * (1.0 - p)).sqrt();
                assert!((count - 1000.0 * p).abs() < spread, "n = {n}: {count} of 1000 below {p}");
            }
        }
    }

    #[test]
    fn rounded_values_are_compared_with_the_rounded_law() {
        let law = law(Variable::Exponential { mean: 5.0 }, 1.0);
        let mut below = 0;
        for seed in 0..300 {
            let sample = sample_of(&law, 2_000, seed, Rounding::Integer);
            below += usize::from(sample.goodness_of_fit(&law, Rounding::Integer).p_value.unwrap() < 0.01);
            // Compared as unrounded, the same values would not fit.
            assert!(sample.goodness_of_fit(&law, Rounding::None).p_value.unwrap() < 1e-6);
        }
        assert!(below <= 9, "{below} of 300 below 1 %");
    }

    #[test]
    fn a_wrong_law_does_not_fit() {
        let requested = law(Variable::Uniform { a: 0.0, b: 2.0 }, 0.0);
        let sent = law(Variable::Exponential { mean: 1.0 }, 0.0);
        let fit = sample_of(&sent, 500, 1, Rounding::None).goodness_of_fit(&requested, Rounding::None);
        assert!(fit.p_value.unwrap() < 1e-6);
        // A mean with an error of 5 % does not fit either.
        let wrong_mean = law(Variable::Exponential { mean: 1.05 }, 0.0);
        for seed in 0..20 {
            let fit =
                sample_of(&wrong_mean, 60_000, seed, Rounding::None).goodness_of_fit(&sent, Rounding::None);
            assert!(fit.p_value.unwrap() < 1e-6, "seed {seed}: {}", fit.distance);
        }
    }

    #[test]
    fn the_largest_difference_is_that_of_all_values() {
        let normal = || Box::new(Variable::Normal { mean: 100.0, sd: 30.0 });
        let laws = [
            law(Variable::Exponential { mean: 3.0 }, 0.0),
            law(Variable::Clamped { of: normal(), min: 80.0, max: 140.0 }, 0.0),
            law(Variable::Empirical { file: String::new(), values: [1.0, 2.0, 4.0, 8.0].into() }, 0.0),
        ];
        for (law, n, seed) in laws.iter().flat_map(|law| [(law, 1, 1), (law, 7, 2), (law, 30_000, 3)]) {
            for (other, rounding) in
                laws.iter().flat_map(|other| [(other, Rounding::None), (other, Rounding::Integer)])
            {
                let mut sent = sample_of(law, n, seed, rounding).reservoir;
                sent.sort_unstable_by(f64::total_cmp);
                let mut want: f64 = 0.0;
                for x in &sent {
                    let (share_below, share) = requested_shares(other, rounding, *x);
                    let [below, at_or_below] =
                        [sent.partition_point(|v| v < x), sent.partition_point(|v| v <= x)]
                            .map(|count| count as f64 / n as f64);
                    want = want.max((share_below - below).abs()).max((at_or_below - share).abs());
                }
                let actual = largest_difference(&sent, other, rounding);
                assert!((actual - want).abs() < 1e-15, "{law:?} {n} {rounding:?}: {actual} for {want}");
            }
        }
    }

    #[test]
    fn empirical_laws_are_compared_at_their_steps() {
        let law = law(Variable::Empirical { file: String::new(), values: [1.0, 2.0, 4.0, 8.0].into() }, 0.0);
        let mut sample = Sample::new(Seed(1).stream("reservoir"));
        [1.0, 2.0, 4.0, 8.0].iter().cycle().take(400).for_each(|v| sample.push(*v));
        assert_eq!(sample.goodness_of_fit(&law, Rounding::None).distance, 0.0);
        assert_eq!(sample.goodness_of_fit(&law, Rounding::Integer).distance, 0.0);
        (0..400).for_each(|_| sample.push(4.0));
        // Below 4 the requested share is a half and the sent share a quarter.
        assert_eq!(sample.goodness_of_fit(&law, Rounding::None).distance, 0.25);
        // Halves round up: 0.5 is sent as 1.
        let halves = Law::new(Variable::Empirical { file: String::new(), values: [0.5, 1.5].into() }, 0.0);
        let mut sample = Sample::new(Seed(1).stream("reservoir"));
        [1.0, 2.0].iter().for_each(|v| sample.push(*v));
        assert_eq!(sample.goodness_of_fit(&halves.unwrap(), Rounding::Integer).distance, 0.0);
    }

    #[test]
    fn the_distance_of_a_constant_is_the_mean_deviation() {
        let law = |v| Law::new(Variable::Constant(v), 0.0).unwrap();
        let mut sample = Sample::new(Seed(1).stream("reservoir"));
        [90.0, 100.0, 110.0, 120.0].iter().for_each(|v| sample.push(*v));
        let fit = sample.goodness_of_fit(&law(100.0), Rounding::None);
        assert_eq!((fit.distance, fit.p_value, fit.samples), (0.1, None, 4));
        assert_eq!(sample.goodness_of_fit(&law(0.0), Rounding::None).distance, 1.0);
        assert_eq!(sample.goodness_of_fit(&law(99.6), Rounding::Integer).distance, 0.1);
    }

    #[test]
    fn an_empty_sample_has_no_fit() {
        let law = law(Variable::Exponential { mean: 1.0 }, 0.0);
        let sample = Sample::new(Seed(1).stream("reservoir"));
        assert_eq!((sample.count, sample.mean()), (0, None));
        let fit = sample.goodness_of_fit(&law, Rounding::None);
        assert_eq!(fit, GoodnessOfFit { distance: 0.0, p_value: None, samples: 0, curve: vec![] });
    }

    #[test]
    fn a_full_reservoir_has_a_uniform_selection_and_exact_totals() {
        let mut sample = Sample::new(Seed(3).stream("reservoir"));
        let n = 4 * RESERVOIR as u64;
        // Ascending values: a selection that favours early or late ones would not be uniform.
        (1..=n).for_each(|v| sample.push(v as f64));
        assert_eq!(sample.reservoir.len(), RESERVOIR);
        assert_eq!(sample.reservoir.capacity(), RESERVOIR);
        assert_eq!((sample.count, sample.min, sample.max), (n, 1.0, n as f64));
        assert_eq!(sample.mean(), Some((n + 1) as f64 / 2.0));
        let uniform = law(Variable::Uniform { a: 0.0, b: n as f64 }, 0.0);
        let fit = sample.goodness_of_fit(&uniform, Rounding::None);
        assert!(fit.p_value.unwrap() > 1e-3, "{}", fit.distance);
        assert_eq!(fit.samples, RESERVOIR as u64);
    }

    #[test]
    fn a_curve_ascends_and_covers_both_distributions() {
        let law = law(Variable::Pareto { shape: 1.2, min: 40.0 }, 1.0);
        let sample = sample_of(&law, 10_000, 5, Rounding::Integer);
        let curve = sample.goodness_of_fit(&law, Rounding::Integer).curve;
        assert!(curve.len() <= 2 * HALF_CURVE && curve.len() > HALF_CURVE);
        assert!(curve.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1 && w[0].2 <= w[1].2));
        assert_eq!(curve.last().unwrap().2, 1.0);
        assert!(curve.iter().all(|(_, requested, sent)| (requested - sent).abs() < 0.03));
    }
}
