//! Which law fits values best: each family by maximum likelihood, in the order of Akaike's information criterion.
//!
//! The criterion (AIC, Akaike 1974) is 2k − 2 ln L for k parameters and the likelihood L, so a family with more parameters
//! must be better by more than chance. Only differences matter: 2 is weak evidence, 10 is strong.
//!
//! Integers, such as sizes, are compared by the probability of the rounded value, so that laws and the empirical distribution
//! of few values can be compared.

use std::sync::Arc;

use trunkline_units::Seed;

use crate::{Law, Rounding, Sample, Variable};

/// Maximum number of values; of more, values evenly spaced in their order.
pub const MOST_VALUES: usize = 1 << 16;
/// Minimum number of values.
pub const FEWEST_VALUES: usize = 20;
/// Maximum number of different values of an empirical distribution.
const MOST_ATOMS: usize = 256;
/// Iterations of expectation–maximization, and the improvement of the mean logarithm at which it ends.
const ITERATIONS: usize = 300;
const IMPROVEMENT: f64 = 1e-9;
/// Smallest variance of a part of a mixture, as a share of the variance: a part with one value would be infinitely likely.
const LEAST_VARIANCE: f64 = 1e-4;

/// A fitted law.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Name of the family.
    pub family: &'static str,
    /// The variable with the fitted parameters.
    pub variable: Variable,
    /// Number of fitted parameters.
    pub parameters: u32,
    /// Logarithm of the likelihood.
    pub log_likelihood: f64,
    /// Akaike's information criterion.
    pub aic: f64,
    /// Kolmogorov–Smirnov distance. It has no p-value, as the parameters are fitted.
    pub distance: f64,
}

/// Returns the fitted laws, the best first; empty for fewer than [`FEWEST_VALUES`] finite values.
pub fn laws(values: &[f64], rounding: Rounding) -> Vec<Candidate> {
    let step = values.len().div_ceil(MOST_VALUES).max(1);
    let values: Vec<f64> = values.iter().copied().step_by(step).filter(|v| v.is_finite()).collect();
    if values.len() < FEWEST_VALUES {
        return Vec::new();
    }
    let mut sample = Sample::new(Seed(0).stream("selection"));
    values.iter().for_each(|value| sample.push(*value));
    let mut candidates: Vec<Candidate> = families(&values, rounding)
        .into_iter()
        .filter_map(|(family, parameters, variable)| {
            let law = Law::new(variable.clone(), f64::NEG_INFINITY).ok()?;
            let log_likelihood = match &variable {
                Variable::Empirical { values, .. } => atoms(values),
                variable => values.iter().map(|x| log_likelihood(variable, &law, rounding, *x)).sum(),
            };
            let aic = 2.0 * f64::from(parameters) - 2.0 * log_likelihood;
            let distance = sample.goodness_of_fit(&law, rounding).distance;
            aic.is_finite().then_some(Candidate {
                family,
                variable,
                parameters,
                log_likelihood,
                aic,
                distance,
            })
        })
        .collect();
    candidates.sort_by(|a, b| a.aic.total_cmp(&b.aic));
    candidates
}

type Fitted = (&'static str, u32, Variable);

/// Returns the families that can have these values, fitted.
fn families(values: &[f64], rounding: Rounding) -> Vec<Fitted> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let (min, max) = (sorted[0], sorted[sorted.len() - 1]);
    if min == max {
        return vec![("constant", 1, Variable::Constant(min))];
    }
    let half = if rounding == Rounding::Integer { 0.5 } else { 0.0 };
    let (mean, sd) = moments(values);
    let mut fitted = vec![
        ("uniform", 2, Variable::Uniform { a: min - half, b: max + half }),
        ("normal", 2, Variable::Normal { mean, sd }),
    ];
    let mixture =
        |share, first, second| Variable::Mixture { share, first: Box::new(first), second: Box::new(second) };
    if let Some((share, a, b)) = two_normals(values) {
        let normal = |(mean, sd): (f64, f64)| Variable::Normal { mean, sd };
        fitted.push(("mixture of normal", 5, mixture(share, normal(a), normal(b))));
    }
    let is_discrete = sorted.chunk_by(|a, b| a == b).count() <= MOST_ATOMS;
    if rounding == Rounding::Integer && is_discrete {
        let different = sorted.chunk_by(|a, b| a == b).count() as u32;
        let values: Arc<[f64]> = sorted.into();
        fitted.push(("empirical", different - 1, Variable::Empirical { file: "values".into(), values }));
    }
    if min >= 0.0 {
        fitted.push(("exponential", 1, Variable::Exponential { mean }));
        if let Some((share, a, b)) = two_exponentials(values) {
            let exponential = |mean| Variable::Exponential { mean };
            fitted.push(("mixture of exponential", 3, mixture(share, exponential(a), exponential(b))));
        }
    }
    if min > 0.0 {
        fitted.extend(of_logarithms(values, min, half, mixture));
    }
    fitted
}

/// Returns the families of positive values.
fn of_logarithms(
    values: &[f64],
    min: f64,
    half: f64,
    mixture: impl Fn(f64, Variable, Variable) -> Variable,
) -> Vec<Fitted> {
    let logs: Vec<f64> = values.iter().map(|x| libm::log(*x)).collect();
    let (mu, sigma) = moments(&logs);
    let lognormal = |(mu, sigma): (f64, f64)| {
        let mean = libm::exp(mu + sigma * sigma / 2.0);
        Variable::Lognormal { mean, sd: mean * libm::sqrt(libm::expm1(sigma * sigma)) }
    };
    let start = (min - half).max(min / 2.0);
    let shape = 1.0 / (mu - libm::log(start));
    let mut fitted =
        vec![("lognormal", 2, lognormal((mu, sigma))), ("pareto", 2, Variable::Pareto { shape, min: start })];
    if let Some((share, a, b)) = two_normals(&logs) {
        fitted.push(("mixture of lognormal", 5, mixture(share, lognormal(a), lognormal(b))));
    }
    fitted.extend(weibull(&logs, mu, sigma).map(|variable| ("weibull", 2, variable)));
    fitted
}

/// Returns the mean, and the standard deviation that is most likely.
fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, libm::sqrt(values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n))
}

/// Fits a Weibull law by bisection of the equation of its shape.
fn weibull(logs: &[f64], mean: f64, sd: f64) -> Option<Variable> {
    // In standard units, so that powers do not overflow.
    let slope = |shape: f64| {
        let (mut sum, mut moment) = (0.0, 0.0);
        for log in logs {
            let power = libm::exp(shape * (log - mean));
            sum += power;
            moment += power * (log - mean);
        }
        moment / sum - 1.0 / shape
    };
    // The standard deviation of the logarithm is π / √6 divided by the shape.
    let guess = 1.282_549_830_161_864 / sd;
    let (mut low, mut high) = (guess / 20.0, guess * 20.0);
    if !slope(low).is_finite() || !slope(high).is_finite() {
        return None;
    }
    for _ in 0..60 {
        let middle = libm::sqrt(low * high);
        if slope(middle) < 0.0 { low = middle } else { high = middle }
    }
    let shape = libm::sqrt(low * high);
    let power = logs.iter().map(|log| libm::exp(shape * (log - mean))).sum::<f64>() / logs.len() as f64;
    Some(Variable::Weibull { scale: libm::exp(mean + libm::log(power) / shape), shape })
}

/// Fits a mixture of two exponential laws: the share of the first, and both means.
fn two_exponentials(values: &[f64]) -> Option<(f64, f64, f64)> {
    let mean = moments(values).0;
    let mut part = [(0.5, mean / 2.0), (0.5, mean * 1.5)];
    let mut last = f64::NEG_INFINITY;
    for _ in 0..ITERATIONS {
        let (mut weight, mut sum, mut likelihood) = ([0.0; 2], [0.0; 2], 0.0);
        for x in values {
            let density = part.map(|(share, mean)| share / mean * libm::exp(-x / mean));
            let total = density[0] + density[1];
            likelihood += libm::log(total);
            for i in 0..2 {
                weight[i] += density[i] / total;
                sum[i] += density[i] / total * x;
            }
        }
        let n = values.len() as f64;
        part = [0, 1].map(|i| (weight[i] / n, sum[i] / weight[i]));
        if likelihood / n - last < IMPROVEMENT {
            break;
        }
        last = likelihood / n;
    }
    let [(share, a), (_, b)] = part;
    (a > 0.0 && b > 0.0 && (1e-3..=1.0 - 1e-3).contains(&share)).then_some((share, a, b))
}

/// A mean with its standard deviation.
type Moments = (f64, f64);

/// Fits a mixture of two normal laws: the share of the first, and both means with standard deviations.
fn two_normals(values: &[f64]) -> Option<(f64, Moments, Moments)> {
    let (mean, sd) = moments(values);
    let least = sd * sd * LEAST_VARIANCE;
    let mut part = [(0.5, mean - sd, sd * sd / 2.0), (0.5, mean + sd, sd * sd / 2.0)];
    let mut last = f64::NEG_INFINITY;
    for _ in 0..ITERATIONS {
        let (mut weight, mut sum, mut square, mut likelihood) = ([0.0; 2], [0.0; 2], [0.0; 2], 0.0);
        for x in values {
            let density = part.map(|(share, mean, variance)| {
                share / libm::sqrt(variance) * libm::exp(-(x - mean) * (x - mean) / (2.0 * variance))
            });
            let total = density[0] + density[1] + 1e-300;
            likelihood += libm::log(total);
            for i in 0..2 {
                let share = density[i] / total;
                weight[i] += share;
                sum[i] += share * (x - mean);
                square[i] += share * (x - mean) * (x - mean);
            }
        }
        let n = values.len() as f64;
        part = [0, 1].map(|i| {
            let center = sum[i] / weight[i];
            (weight[i] / n, mean + center, (square[i] / weight[i] - center * center).max(least))
        });
        if likelihood / n - last < IMPROVEMENT {
            break;
        }
        last = likelihood / n;
    }
    let [(share, mean_a, a), (_, mean_b, b)] = part;
    let is_usable = [mean_a, mean_b].iter().all(|m| m.is_finite()) && (1e-3..=1.0 - 1e-3).contains(&share);
    is_usable.then(|| (share, (mean_a, libm::sqrt(a)), (mean_b, libm::sqrt(b))))
}

/// Returns the logarithm of the likelihood of sorted values by their own frequencies.
fn atoms(sorted: &[f64]) -> f64 {
    let n = sorted.len() as f64;
    sorted.chunk_by(|a, b| a == b).map(|same| same.len() as f64 * libm::log(same.len() as f64 / n)).sum()
}

/// Returns the logarithm of the density, or of the probability of a rounded value.
fn log_likelihood(variable: &Variable, law: &Law, rounding: Rounding, x: f64) -> f64 {
    if rounding == Rounding::Integer {
        let probability = law.cdf(x + 0.5) - law.cdf(x - 0.5);
        // Far in a tail the difference is only rounding.
        if probability > 1e-10 {
            return libm::log(probability);
        }
    }
    log_density(variable, x)
}

fn log_density(variable: &Variable, x: f64) -> f64 {
    const LOG_ROOT_2PI: f64 = 0.918_938_533_204_672_7;
    match variable {
        Variable::Constant(_) => 0.0,
        Variable::Uniform { a, b } if (*a..=*b).contains(&x) => -libm::log(b - a),
        Variable::Exponential { mean } if x >= 0.0 => -libm::log(*mean) - x / mean,
        Variable::Normal { mean, sd } => {
            let z = (x - mean) / sd;
            -libm::log(*sd) - LOG_ROOT_2PI - z * z / 2.0
        }
        Variable::Lognormal { mean, sd } if x > 0.0 => {
            let variance = libm::log1p((sd / mean) * (sd / mean));
            let (mu, sigma) = (libm::log(*mean) - variance / 2.0, libm::sqrt(variance));
            let z = (libm::log(x) - mu) / sigma;
            -libm::log(x * sigma) - LOG_ROOT_2PI - z * z / 2.0
        }
        Variable::Pareto { shape, min } if x >= *min => {
            libm::log(*shape) + shape * libm::log(min / x) - libm::log(x)
        }
        Variable::Weibull { scale, shape } if x > 0.0 => {
            let log = libm::log(x / scale);
            libm::log(shape / scale) + (shape - 1.0) * log - libm::exp(shape * log)
        }
        Variable::Mixture { share, first, second } => {
            let (a, b) = (log_density(first, x), log_density(second, x));
            let most = a.max(b);
            if most == f64::NEG_INFINITY {
                return most;
            }
            most + libm::log(share * libm::exp(a - most) + (1.0 - share) * libm::exp(b - most))
        }
        _ => f64::NEG_INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(variable: &Variable, n: usize, seed: u64) -> Vec<f64> {
        let law = Law::new(variable.clone(), f64::NEG_INFINITY).unwrap();
        let mut stream = Seed(seed).stream("drawn");
        (0..n).map(|_| law.sample(&mut stream)).collect()
    }

    fn two(share: f64, first: Variable, second: Variable) -> Variable {
        Variable::Mixture { share, first: Box::new(first), second: Box::new(second) }
    }

    /// Laws, and the families that contain them.
    fn families() -> Vec<(Variable, &'static [&'static str])> {
        let exponential = |mean| Variable::Exponential { mean };
        let lognormal = |mean, sd| Variable::Lognormal { mean, sd };
        let normal = |mean, sd| Variable::Normal { mean, sd };
        vec![
            (Variable::Uniform { a: 100.0, b: 1_500.0 }, &["uniform"]),
            (exponential(0.01), &["exponential", "weibull", "mixture of exponential"]),
            (normal(500.0, 80.0), &["normal", "mixture of normal"]),
            (lognormal(3_000.0, 4_000.0), &["lognormal", "mixture of lognormal"]),
            (Variable::Pareto { shape: 1.2, min: 1_000.0 }, &["pareto"]),
            (Variable::Weibull { scale: 0.5, shape: 0.6 }, &["weibull"]),
            (two(0.8, exponential(0.001), exponential(0.1)), &["mixture of exponential"]),
            (two(0.6, normal(100.0, 10.0), normal(1_400.0, 50.0)), &["mixture of normal"]),
            (two(0.7, lognormal(50.0, 20.0), lognormal(9_000.0, 9_000.0)), &["mixture of lognormal"]),
        ]
    }

    /// 95 of 100 seeds; all of 3 without the feature `soak`.
    #[test]
    fn laws_are_recognised_by_2000_of_their_values() {
        let seeds = if cfg!(feature = "soak") { 100 } else { 3 };
        for (variable, expected) in families() {
            let best = |seed| laws(&drawn(&variable, 2_000, seed), Rounding::None)[0].family;
            let found: Vec<_> = (0..seeds).map(best).collect();
            let right = found.iter().filter(|family| expected.contains(family)).count();
            eprintln!("{variable:?}: {right} of {seeds}");
            assert!(right * 100 >= 95 * seeds as usize, "{variable:?}: {right} of {seeds}: {found:?}");
        }
    }

    #[test]
    fn parameters_are_recovered() {
        for (variable, expected) in families() {
            let values = drawn(&variable, 5_000, 7);
            let found = laws(&values, Rounding::None);
            let of = |family: &str| found.iter().find(|c| c.family == family).expect("a candidate");
            let candidate = of(expected[0]);
            let want = Law::new(variable.clone(), f64::NEG_INFINITY).unwrap();
            let actual = Law::new(candidate.variable.clone(), f64::NEG_INFINITY).unwrap();
            for p in [0.1, 0.3, 0.5, 0.7, 0.9] {
                // Shares, as a quantile between the parts of a mixture is sensitive to its share.
                let share = actual.cdf(want.quantile(p));
                assert!((share - p).abs() < 0.02, "{variable:?} at {p}: {share}");
            }
            assert!(candidate.distance < 0.025, "{variable:?}: {}", candidate.distance);
            assert!(found.windows(2).all(|pair| pair[0].aic <= pair[1].aic));
        }
    }

    #[test]
    fn few_sizes_are_empirical_and_rounded_laws_are_themselves() {
        let sizes: Vec<f64> = (0..1_000).map(|i| if i % 3 == 0 { 144.0 } else { 208.0 }).collect();
        let found = laws(&sizes, Rounding::Integer);
        assert_eq!((found[0].family, found[0].parameters), ("empirical", 1));
        let sizes: Vec<f64> =
            drawn(&Variable::Exponential { mean: 300.0 }, 3_000, 1).into_iter().map(libm::round).collect();
        let best = laws(&sizes, Rounding::Integer)[0].family;
        assert!(["exponential", "weibull", "mixture of exponential"].contains(&best), "{best}");
        assert_eq!(laws(&[5.0; 50], Rounding::Integer)[0].family, "constant");
        assert!(laws(&[5.0; 5], Rounding::None).is_empty());
        // Zeros and negative values leave what can have them.
        let families =
            |values: &[f64]| laws(values, Rounding::None).iter().map(|c| c.family).collect::<Vec<_>>();
        let mut values = drawn(&Variable::Exponential { mean: 1.0 }, 100, 1);
        values[0] = 0.0;
        assert!(!families(&values).contains(&"pareto") && families(&values).contains(&"exponential"));
        values[0] = -1.0;
        assert!(!families(&values).contains(&"exponential") && families(&values).contains(&"normal"));
    }
}
