//! Laws: the distribution of a variable, given that it is at or above a smallest usable value, the floor.
//!
//! Each draw maps one uniform random number through the inverse of the conditional distribution; none is rejected.
//! Truncated uniform, exponential, Pareto and Weibull distributions stay in their family; only the normal and the lognormal
//! distribution need a separate truncated form, and those of `family`, which need special functions. Truncation at an upper
//! end, clamping and mixtures (`composite`) are built on these.

use std::f64::consts::{PI, SQRT_2};
use std::sync::Arc;

use trunkline_units::Stream;

use crate::analysis::quantile;
use crate::{Variable, VariableError};
use composite::{Bounded, Mixed};
use family::{Family, Truncated};

mod composite;
mod family;
pub mod length_biased;

/// Minimum probability of a value at or above the floor. Below it, the truncated variable would have little in common with
/// the requested one, and is refused.
const MIN_PROBABILITY: f64 = 1e-3;

/// Number of integers up to which a rounded mean is computed.
const ROUNDED_CELLS: u32 = 4_096;

/// Returns the index of a weight of Simpson's rule with 8 intervals: 1, 4, 2, 4, 2, …, 1.
fn weight(i: u32) -> usize {
    match i {
        0 | 8 => 0,
        i if i % 2 == 1 => 1,
        _ => 2,
    }
}

/// The distribution of a [`Variable`], given that it is at or above a floor. Values are in the variable's unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Law {
    variable: Variable,
    shape: Shape,
}

/// The truncated distribution, with its parameters precomputed.
#[derive(Clone, Debug, PartialEq)]
enum Shape {
    Constant(f64),
    Uniform {
        a: f64,
        b: f64,
    },
    Exponential {
        start: f64,
        mean: f64,
    },
    Normal {
        mean: f64,
        sd: f64,
        z: TruncatedNormal,
    },
    /// `exp(mu + sigma·Z)`.
    Lognormal {
        mu: f64,
        sigma: f64,
        z: TruncatedNormal,
    },
    Pareto {
        shape: f64,
        min: f64,
    },
    /// `hazard` is the cumulative hazard at the floor, `(floor / scale)^shape`.
    Weibull {
        scale: f64,
        shape: f64,
        hazard: f64,
    },
    /// Extreme, gamma and beta distributions.
    Family(Truncated),
    /// The ascending values from index `first` on.
    Empirical {
        values: Arc<[f64]>,
        first: usize,
    },
    Truncated(Box<Bounded>),
    Clamped(Box<Bounded>),
    Mixture(Box<Mixed>),
}

impl Law {
    /// Creates the law of `variable`, given that it is at or above `floor` (0 for times and rates, 1 for sizes).
    ///
    /// # Errors
    /// Those of [`Variable::validate`], and [`VariableError::Floor`] for a variable that is at or above `floor` with a
    /// probability below a thousandth.
    ///
    /// # Panics
    /// If `floor` is not a number.
    pub fn new(variable: Variable, floor: f64) -> Result<Law, VariableError> {
        assert!(!floor.is_nan(), "a floor is a number");
        variable.validate()?;
        let (probability, shape) = truncate(&variable, floor)?;
        if probability < MIN_PROBABILITY {
            return Err(VariableError::Floor { floor });
        }
        Ok(Law { variable, shape })
    }

    /// Returns the variable.
    pub fn variable(&self) -> &Variable {
        &self.variable
    }

    /// Draws a value; takes exactly one number from the stream.
    #[inline]
    pub fn sample(&self, stream: &mut Stream) -> f64 {
        match &self.shape {
            Shape::Mixture(mixed) => mixed.sample(stream.unit()),
            shape => shape.quantile(stream.unit()),
        }
    }

    /// Returns the `p`-quantile; `p` is clamped to 0 to 1. The 1-quantile of a distribution without an upper end is infinite.
    pub fn quantile(&self, p: f64) -> f64 {
        self.shape.quantile(p)
    }

    /// Returns the probability of a value at or below `x`.
    pub fn cdf(&self, x: f64) -> f64 {
        self.shape.cdf(x)
    }

    /// Returns the mean; `None` if it is infinite (Pareto with a shape of 1 or less).
    pub fn mean(&self) -> Option<f64> {
        self.shape.mean()
    }

    /// Returns the mean of the values rounded to integers, a half upwards; `None` if it is infinite. The difference to
    /// [`mean`](Self::mean) matters for small counts.
    pub fn rounded_mean(&self) -> Option<f64> {
        if let Shape::Constant(value) = self.shape {
            return Some(libm::round(value));
        }
        let above = |x: f64| 1.0 - self.cdf(x);
        let start = libm::floor(self.quantile(0.0));
        let mut difference = 0.0;
        // The mean is the integral of P(X > x), that of rounded values the sum of P(X ≥ k − ½). Far from the start both agree.
        for k in 0..ROUNDED_CELLS {
            let from = start + f64::from(k);
            let simpson = |i: u32| above(from + f64::from(i) / 8.0) * [1.0, 4.0, 2.0][weight(i)];
            difference += 1.0 - self.cdf((from + 0.5).next_down()) - (0..=8).map(simpson).sum::<f64>() / 24.0;
            if above(from) < 1e-12 {
                break;
            }
        }
        Some(self.mean()? + difference)
    }

    /// Returns the mean number of the multiples of `step`, from 0 on, that are below a value, for a law of positive values; `None`
    /// if it is infinite.
    pub fn mean_multiples(&self, step: f64) -> Option<f64> {
        if self.is_constant() {
            return Some(libm::ceil(self.mean()? / step));
        }
        let above = |x: f64| 1.0 - self.cdf(x);
        let mut difference = 0.0;
        // The mean is the integral of P(X > x), this number its sum over the multiples. Far from 0 the integral of a step is
        // that of a trapezoid, so half of the last term is missing.
        for k in 0..ROUNDED_CELLS {
            let from = step * f64::from(k);
            let simpson = |i: u32| above(from + step * f64::from(i) / 8.0) * [1.0, 4.0, 2.0][weight(i)];
            difference += above(from) - (0..=8).map(simpson).sum::<f64>() / 24.0;
            if above(from) < 1e-12 {
                break;
            }
        }
        Some(self.mean()? / step + difference + above(step * f64::from(ROUNDED_CELLS)) / 2.0)
    }

    /// Returns whether no single value has a positive probability: constants, empirical and clamped variables have such.
    pub fn is_continuous(&self) -> bool {
        self.shape.is_continuous()
    }

    /// Returns whether the variable is a constant.
    pub fn is_constant(&self) -> bool {
        matches!(self.shape, Shape::Constant(_))
    }
}

impl Shape {
    fn quantile(&self, p: f64) -> f64 {
        let p = p.clamp(0.0, 1.0);
        match self {
            Shape::Constant(value) => *value,
            Shape::Uniform { a, b } => a + (b - a) * p,
            Shape::Exponential { start, mean } => start - mean * libm::log1p(-p),
            Shape::Normal { mean, sd, z } => mean + sd * z.quantile(p),
            Shape::Lognormal { mu, sigma, z } => libm::exp(mu + sigma * z.quantile(p)),
            Shape::Pareto { shape, min } => min * libm::exp(-libm::log1p(-p) / shape),
            Shape::Weibull { scale, shape, hazard } => {
                scale * libm::pow(hazard - libm::log1p(-p), 1.0 / shape)
            }
            Shape::Family(truncated) => truncated.quantile(p),
            Shape::Empirical { values, first } => quantile(&values[*first..], p),
            Shape::Truncated(bounded) => bounded.truncated_quantile(p),
            Shape::Clamped(bounded) => bounded.clamped_quantile(p),
            Shape::Mixture(mixed) => mixed.quantile(p),
        }
    }

    fn cdf(&self, x: f64) -> f64 {
        let probability = match self {
            Shape::Constant(value) => f64::from(x >= *value),
            Shape::Uniform { a, b } => (x - a) / (b - a),
            Shape::Exponential { start, mean } => -libm::expm1((start - x) / mean),
            Shape::Normal { mean, sd, z } => z.cdf((x - mean) / sd),
            Shape::Lognormal { mu, sigma, z } if x > 0.0 => z.cdf((libm::log(x) - mu) / sigma),
            Shape::Pareto { shape, min } if x > *min => -libm::expm1(shape * libm::log(min / x)),
            Shape::Weibull { scale, shape, hazard } if x > 0.0 => {
                -libm::expm1(hazard - libm::pow(x / scale, *shape))
            }
            Shape::Lognormal { .. } | Shape::Pareto { .. } | Shape::Weibull { .. } => 0.0,
            Shape::Family(truncated) => truncated.cdf(x),
            Shape::Empirical { values, first } => {
                let values = &values[*first..];
                values.partition_point(|v| *v <= x) as f64 / values.len() as f64
            }
            Shape::Truncated(bounded) => bounded.truncated_cdf(x),
            Shape::Clamped(bounded) => bounded.clamped_cdf(x),
            Shape::Mixture(mixed) => mixed.cdf(x),
        };
        probability.clamp(0.0, 1.0)
    }

    fn mean(&self) -> Option<f64> {
        match self {
            Shape::Constant(value) => Some(*value),
            Shape::Uniform { a, b } => Some((a + b) / 2.0),
            Shape::Exponential { start, mean } => Some(start + mean),
            Shape::Normal { mean, sd, z } => Some(mean + sd * z.mean()),
            Shape::Lognormal { mu, sigma, z } => {
                Some(libm::exp(mu + sigma * sigma / 2.0) * upper_tail(z.from - sigma) / z.above)
            }
            Shape::Pareto { shape, min } => (*shape > 1.0).then(|| shape * min / (shape - 1.0)),
            Shape::Weibull { scale, shape, hazard } => {
                Some(scale * libm::exp(*hazard) * upper_gamma(1.0 + 1.0 / shape, *hazard))
            }
            Shape::Family(truncated) => Some(truncated.mean()),
            Shape::Empirical { values, first } => {
                let values = &values[*first..];
                Some(values.iter().sum::<f64>() / values.len() as f64)
            }
            Shape::Truncated(bounded) | Shape::Clamped(bounded) => Some(bounded.mean),
            Shape::Mixture(mixed) => mixed.mean(),
        }
    }

    fn is_continuous(&self) -> bool {
        match self {
            Shape::Constant(_) | Shape::Empirical { .. } | Shape::Clamped(_) => false,
            Shape::Truncated(bounded) => bounded.of.is_continuous(),
            Shape::Mixture(mixed) => mixed.first.is_continuous() && mixed.second.is_continuous(),
            _ => true,
        }
    }
}

/// Returns the probability that `variable` is at or above `floor`, and its distribution given that.
fn truncate(variable: &Variable, floor: f64) -> Result<(f64, Shape), VariableError> {
    Ok(match *variable {
        Variable::Constant(value) => (f64::from(value >= floor), Shape::Constant(value)),
        Variable::Uniform { a, b } => {
            let start = a.max(floor);
            (((b - start) / (b - a)).max(0.0), Shape::Uniform { a: start, b })
        }
        Variable::Exponential { mean } => {
            let start = floor.max(0.0);
            (libm::exp(-start / mean), Shape::Exponential { start, mean })
        }
        Variable::Normal { mean, sd } => {
            let z = TruncatedNormal::from((floor - mean) / sd);
            (z.above, Shape::Normal { mean, sd, z })
        }
        Variable::Lognormal { mean, sd } => {
            let ratio = sd / mean;
            let variance = libm::log1p(ratio * ratio);
            let (mu, sigma) = (libm::log(mean) - variance / 2.0, libm::sqrt(variance));
            let z = TruncatedNormal::from((libm::log(floor.max(0.0)) - mu) / sigma);
            (z.above, Shape::Lognormal { mu, sigma, z })
        }
        Variable::Pareto { shape, min } => {
            let start = min.max(floor);
            (libm::pow(min / start, shape), Shape::Pareto { shape, min: start })
        }
        Variable::Weibull { scale, shape } => {
            let hazard = libm::pow(floor.max(0.0) / scale, shape);
            (libm::exp(-hazard), Shape::Weibull { scale, shape, hazard })
        }
        Variable::Extreme { a, b } => Truncated::shape(Family::Extreme { a, b }, floor),
        Variable::Gamma { scale, shape } => Truncated::shape(Family::Gamma { scale, shape }, floor),
        Variable::Beta { shape1, shape2, max } => {
            Truncated::shape(Family::Beta { shape1, shape2, max }, floor)
        }
        Variable::Empirical { ref values, .. } | Variable::List { ref values } => {
            let first = values.partition_point(|v| *v < floor);
            let share = (values.len() - first) as f64 / values.len() as f64;
            (share, Shape::Empirical { values: values.clone(), first })
        }
        Variable::Truncated { ref of, min, max } => {
            let (_, base) = truncate(of, f64::NEG_INFINITY)?;
            let bounded = Bounded::truncated(base.clone(), min.max(floor), max)
                .filter(|bounded| bounded.share >= MIN_PROBABILITY)
                .ok_or(VariableError::Within { min: min.max(floor), max })?;
            let above = bounded.share / (base.cdf(max) - base.cdf(min.next_down())).max(bounded.share);
            (above, Shape::Truncated(Box::new(bounded)))
        }
        Variable::Clamped { ref of, min, max } => {
            let (_, base) = truncate(of, f64::NEG_INFINITY)?;
            // What is below `min` becomes `min`, so only a floor above it truncates.
            let start = min.max(floor);
            let (above, base) = if floor > min { truncate(of, floor)? } else { (1.0, base) };
            (
                if start < max { above } else { 0.0 },
                Shape::Clamped(Box::new(Bounded::clamped(base, start, max))),
            )
        }
        Variable::Mixture { share, ref first, ref second } => {
            let (first_above, first) = truncate(first, floor)?;
            let (second_above, second) = truncate(second, floor)?;
            let (first_share, second_share) = (share * first_above, (1.0 - share) * second_above);
            let above = first_share + second_share;
            // A part of which nothing is at or above the floor has no quantiles.
            let shape = if first_share <= 0.0 {
                second
            } else if second_share <= 0.0 {
                first
            } else {
                Shape::Mixture(Box::new(Mixed::new(first_share / above, first, second)))
            };
            (above, shape)
        }
    })
}

/// A standard normal variable Z, given that it is at or above `from`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct TruncatedNormal {
    /// Minus infinity without truncation.
    from: f64,
    /// P(Z < from) and P(Z ≥ from), computed separately so that neither loses precision.
    below: f64,
    above: f64,
}

impl TruncatedNormal {
    fn from(from: f64) -> Self {
        TruncatedNormal { from, below: upper_tail(-from), above: upper_tail(from) }
    }

    /// Returns the `p`-quantile, computed in the smaller tail, where a double is more precise.
    fn quantile(&self, p: f64) -> f64 {
        let lower = self.below + p * self.above;
        let upper = (1.0 - p) * self.above;
        let z = if lower < upper { -upper_quantile(lower) } else { upper_quantile(upper) };
        z.max(self.from)
    }

    fn cdf(&self, z: f64) -> f64 {
        if z < 0.0 { (upper_tail(-z) - self.below) / self.above } else { 1.0 - upper_tail(z) / self.above }
    }

    fn mean(&self) -> f64 {
        libm::exp(-self.from * self.from / 2.0) / libm::sqrt(2.0 * PI) / self.above
    }
}

/// Returns P(Z ≤ z) of the standard normal distribution.
pub(crate) fn normal_cdf(z: f64) -> f64 {
    upper_tail(-z)
}

/// Returns the `p`-quantile of the standard normal distribution.
pub(crate) fn normal_quantile(p: f64) -> f64 {
    if p < 0.5 { -upper_quantile(p) } else { upper_quantile(1.0 - p) }
}

/// Returns P(Z > z) of the standard normal distribution.
fn upper_tail(z: f64) -> f64 {
    0.5 * libm::erfc(z / SQRT_2)
}

/// Returns the `z ≥ 0` with P(Z > z) = `q`, for `q` from 0 (infinite) to ½: P. J. Acklam's rational approximation
/// (relative error 1.2e-9), then one step of Halley's method, which leaves only rounding errors.
fn upper_quantile(q: f64) -> f64 {
    if q <= 0.0 {
        return f64::INFINITY;
    }
    let z = acklam(q);
    let error = (upper_tail(z) - q) * libm::sqrt(2.0 * PI) * libm::exp(z * z / 2.0);
    // Where the density underflows, the approximation is not refined.
    if error.is_finite() { z + error / (1.0 + z * error / 2.0) } else { z }
}

fn acklam(q: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969683028665376e1,
        2.209460984245205e2,
        -2.759285104469687e2,
        1.38357751867269e2,
        -3.066479806614716e1,
        2.506628277459239,
    ];
    const B: [f64; 6] = [
        -5.447609879822406e1,
        1.615858368580409e2,
        -1.556989798598866e2,
        6.680131188771972e1,
        -1.328068155288572e1,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784894002430293e-3,
        -3.223964580411365e-1,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ];
    const D: [f64; 5] =
        [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416, 1.0];
    let horner = |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |sum, c| sum * x + c);
    if q < 0.02425 {
        let r = libm::sqrt(-2.0 * libm::log(q));
        -horner(&C, r) / horner(&D, r)
    } else {
        let r = 0.5 - q;
        r * horner(&A, r * r) / horner(&B, r * r)
    }
}

/// Returns the upper incomplete gamma function Γ(a, x) for a ≥ 1 and x ≥ 0: by the series of the lower one (DLMF 8.7.1) up to
/// x = a + 6, where at least a ten-thousandth of Γ(a) is above x, and by the continued fraction (DLMF 8.9.2) beyond.
fn upper_gamma(a: f64, x: f64) -> f64 {
    if x > a + 6.0 {
        return libm::exp(a * libm::log(x) - x) * upper_gamma_fraction(a, x);
    }
    let mut term = libm::exp(a * libm::log(x) - x) / a;
    let mut lower = 0.0;
    let mut n = a;
    while term > lower * f64::EPSILON {
        lower += term;
        n += 1.0;
        term *= x / n;
    }
    libm::tgamma(a) - lower
}

/// Evaluates the continued fraction of Γ(a, x) / (x^a · e^(−x)) for x > a ≥ 0 by Lentz's method.
fn upper_gamma_fraction(a: f64, x: f64) -> f64 {
    let mut b = x + 1.0 - a;
    let mut c = 1e300;
    let mut d = 1.0 / b;
    let mut fraction = d;
    for i in 1..1000 {
        let n = f64::from(i);
        let factor = n * (a - n);
        b += 2.0;
        d = 1.0 / (factor * d + b);
        c = b + factor / c;
        fraction *= c * d;
        if libm::fabs(c * d - 1.0) < f64::EPSILON {
            break;
        }
    }
    fraction
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use trunkline_units::Seed;

    use super::*;
    use crate::fit::{Rounding, Sample};

    fn law(variable: Variable, floor: f64) -> Law {
        Law::new(variable, floor).unwrap()
    }

    /// Returns laws of every family, truncated and not truncated.
    fn laws() -> Vec<Law> {
        let values: Arc<[f64]> = (0..500).map(|i| f64::from(i * i) / 100.0).collect();
        vec![
            law(Variable::Uniform { a: -1.0, b: 3.0 }, 0.0),
            law(Variable::Uniform { a: 2.0, b: 3.0 }, 0.0),
            law(Variable::Exponential { mean: 0.001 }, 0.0),
            law(Variable::Exponential { mean: 3.0 }, 1.0),
            law(Variable::Normal { mean: 20.0, sd: 2.0 }, 0.0),
            law(Variable::Normal { mean: 1.0, sd: 2.0 }, 0.0),
            law(Variable::Normal { mean: -2.0, sd: 1.0 }, 0.0),
            law(Variable::Lognormal { mean: 1000.0, sd: 3000.0 }, 0.0),
            law(Variable::Lognormal { mean: 2.0, sd: 1.0 }, 1.0),
            law(Variable::Pareto { shape: 1.5, min: 40.0 }, 1.0),
            law(Variable::Pareto { shape: 2.5, min: 0.5 }, 1.0),
            law(Variable::Weibull { scale: 2.0, shape: 0.7 }, 0.0),
            law(Variable::Weibull { scale: 2.0, shape: 3.0 }, 1.0),
            law(Variable::Extreme { a: 55.0, b: 6.0 }, 0.0),
            law(Variable::Extreme { a: 45.0, b: 5.7 }, 44.0),
            law(Variable::Extreme { a: -2.0, b: 3.0 }, 0.0),
            law(Variable::Gamma { scale: 400.0, shape: 12.5 }, 32.0),
            law(Variable::Gamma { scale: 2.0, shape: 0.4 }, 1.0),
            law(Variable::Beta { shape1: 3.0, shape2: 4.0, max: 10.0 }, 0.0),
            law(Variable::Beta { shape1: 0.5, shape2: 1.5, max: 10.0 }, 1.0),
            law(Variable::Empirical { file: "x.csv".into(), values: values.clone() }, 1.0),
            // Truncated above, over the floor and below it.
            truncated(Variable::Uniform { a: -1.0, b: 3.0 }, 0.5, 2.0, 0.0),
            truncated(Variable::Exponential { mean: 2.0 }, 0.0, 3.0, 0.5),
            truncated(Variable::Normal { mean: 1.0, sd: 2.0 }, -1.0, 4.0, 0.0),
            truncated(Variable::Lognormal { mean: 10_811.0, sd: 25_400.0 }, 100.0, 2e6, 32.0),
            truncated(Variable::Pareto { shape: 1.1, min: 2.0 }, 2.0, 55.0, 1.0),
            truncated(Variable::Pareto { shape: 1.0, min: 2.0 }, 2.0, 55.0, 1.0),
            truncated(Variable::Pareto { shape: 0.9, min: 0.05 }, 0.1, 300.0, 0.0),
            truncated(Variable::Weibull { scale: 2.0, shape: 0.7 }, 0.1, 30.0, 0.0),
            truncated(Variable::Extreme { a: 120.0, b: 36.0 }, 20.0, 300.0, 32.0),
            truncated(Variable::Gamma { scale: 8.0, shape: 12.5 }, 50.0, 220.0, 1.0),
            truncated(Variable::Beta { shape1: 3.0, shape2: 4.0, max: 10.0 }, 1.0, 9.0, 0.0),
            Law::new(
                Variable::Mixture {
                    share: 0.93,
                    first: Box::new(bounded(
                        Variable::Lognormal { mean: 27_600.0, sd: 59_000.0 },
                        32.0,
                        133e3,
                    )),
                    second: Box::new(bounded(Variable::Pareto { shape: 1.1, min: 133e3 }, 133e3, 1e8)),
                },
                32.0,
            )
            .unwrap(),
            // Overlapping parts.
            Law::new(
                Variable::Mixture {
                    share: 0.4,
                    first: Box::new(Variable::Exponential { mean: 1.0 }),
                    second: Box::new(Variable::Exponential { mean: 5.0 }),
                },
                0.5,
            )
            .unwrap(),
        ]
    }

    fn bounded(of: Variable, min: f64, max: f64) -> Variable {
        Variable::Truncated { of: Box::new(of), min, max }
    }

    fn truncated(of: Variable, min: f64, max: f64, floor: f64) -> Law {
        law(bounded(of, min, max), floor)
    }

    fn sample(law: &Law, n: usize, stream_name: &str) -> Sample {
        let mut stream = Seed::default().stream(stream_name);
        let mut sample = Sample::new(Seed::default().stream("reservoir"));
        (0..n).for_each(|_| sample.push(law.sample(&mut stream)));
        sample
    }

    #[test]
    fn every_sampler_follows_its_law() {
        for (i, law) in laws().iter().enumerate() {
            let fit = sample(law, 20_000, &format!("law {i}")).goodness_of_fit(law, Rounding::None);
            assert!(fit.p_value.unwrap() > 1e-4, "{:?}: {fit:?}", law.variable());
        }
    }

    #[test]
    fn every_mean_is_the_mean_over_the_quantiles() {
        for law in laws() {
            // The midpoint rule neglects the end of the tail.
            let is_slow = |variable: &Variable| {
                matches!(variable, Variable::Gamma { .. } | Variable::Beta { .. } | Variable::Extreme { .. })
            };
            let n = match law.variable() {
                Variable::Truncated { of, .. } if is_slow(of) => 50_000,
                variable if is_slow(variable) => 50_000,
                _ => 1_000_000,
            };
            let sum: f64 = (0..n).map(|i| law.quantile((f64::from(i) + 0.5) / f64::from(n))).sum();
            let (mean, integrated) = (law.mean().unwrap(), sum / f64::from(n));
            let tolerance = match law.variable() {
                Variable::Pareto { shape, .. } if *shape < 2.0 => 0.01,
                // Its tail is truncated far beyond the last midpoint.
                Variable::Mixture { .. } => 0.002,
                _ => 1e-4,
            };
            assert!(
                (mean - integrated).abs() <= tolerance * mean.abs(),
                "{law:?}: {mean} is not {integrated}"
            );
        }
        assert_eq!(law(Variable::Pareto { shape: 1.0, min: 1.0 }, 0.0).mean(), None);
    }

    #[test]
    fn the_rounded_mean_is_that_of_rounded_quantiles() {
        for (variable, floor) in [
            (bounded(Variable::Pareto { shape: 2.43, min: 1.0 }, 1.0, 1_000.0), 1.0),
            (Variable::Exponential { mean: 1.5 }, 1.0),
            (
                Variable::Clamped {
                    of: Box::new(Variable::Pareto { shape: 1.1, min: 2.0 }),
                    min: 2.0,
                    max: 55.0,
                },
                1.0,
            ),
            (Variable::Lognormal { mean: 900.0, sd: 3000.0 }, 32.0),
            (Variable::Constant(3.4), 1.0),
        ] {
            let law = law(variable, floor);
            let n = 1_000_000;
            let rounded = |i: i32| libm::round(law.quantile((f64::from(i) + 0.5) / f64::from(n)));
            let (mean, integrated) =
                (law.rounded_mean().unwrap(), (0..n).map(rounded).sum::<f64>() / f64::from(n));
            assert!((mean / integrated - 1.0).abs() < 1e-3, "{law:?}: {mean} is not {integrated}");
        }
    }

    #[test]
    fn nothing_is_drawn_below_the_floor() {
        for law in laws() {
            let low = law.quantile(0.0);
            assert!(low >= 0.0 && law.quantile(1e-300) >= low, "{law:?}");
            assert_eq!(law.cdf(low - 1e-6), 0.0, "{law:?}");
            assert_eq!(law.cdf(f64::INFINITY), 1.0, "{law:?}");
        }
    }

    #[test]
    fn a_part_of_a_mixture_below_the_floor_is_never_drawn() {
        let part = |variable| Box::new(variable);
        let below = [
            Variable::Uniform { a: 1.0, b: 20.0 },
            Variable::Constant(8.0),
            Variable::Empirical { file: String::new(), values: [1.0, 2.0].into() },
        ];
        for low in below {
            let high = Variable::Uniform { a: 100.0, b: 300.0 };
            let mixtures = [
                Variable::Mixture { share: 0.3, first: part(low.clone()), second: part(high.clone()) },
                Variable::Mixture { share: 0.7, first: part(high.clone()), second: part(low.clone()) },
            ];
            for mixture in mixtures {
                let law = law(mixture, 32.0);
                assert_eq!(
                    (law.quantile(0.0), law.cdf(32.0), law.mean()),
                    (100.0, 0.0, Some(200.0)),
                    "{low:?}"
                );
            }
            let both = Variable::Mixture { share: 0.5, first: part(low.clone()), second: part(low.clone()) };
            assert!(matches!(Law::new(both, 32.0), Err(VariableError::Floor { .. })), "{low:?}");
        }
    }

    #[test]
    fn a_law_that_is_rarely_above_its_floor_is_refused() {
        for (variable, floor) in [
            (Variable::Constant(0.5), 1.0),
            (Variable::Uniform { a: -5.0, b: 0.0 }, 0.0),
            (Variable::Normal { mean: -4.0, sd: 1.0 }, 0.0),
            (Variable::Exponential { mean: 0.1 }, 1.0),
            (Variable::Lognormal { mean: 0.01, sd: 0.01 }, 1.0),
            (Variable::Pareto { shape: 3.0, min: 0.01 }, 1.0),
            (Variable::Weibull { scale: 0.1, shape: 1.0 }, 1.0),
            (Variable::Extreme { a: -10.0, b: 1.0 }, 1.0),
            (Variable::Gamma { scale: 0.1, shape: 1.0 }, 1.0),
            (Variable::Beta { shape1: 3.0, shape2: 4.0, max: 0.9 }, 1.0),
            (Variable::Empirical { file: String::new(), values: [0.1, 0.2].into() }, 1.0),
            (bounded(Variable::Exponential { mean: 1.0 }, 0.0, 8.0), 7.5),
        ] {
            let refusal = Law::new(variable.clone(), floor);
            let is_floor = matches!(refusal, Err(VariableError::Floor { .. } | VariableError::Within { .. }));
            assert!(is_floor, "{variable:?}: {refusal:?}");
        }
        let rare = bounded(Variable::Exponential { mean: 1.0 }, 10.0, 11.0);
        assert_eq!(Law::new(rare, 0.0), Err(VariableError::Within { min: 10.0, max: 11.0 }));
        let order = bounded(Variable::Exponential { mean: 1.0 }, 2.0, 1.0);
        assert_eq!(Law::new(order, 0.0), Err(VariableError::Ends));
        let nested = bounded(bounded(Variable::Exponential { mean: 1.0 }, 0.0, 2.0), 0.0, 1.0);
        assert_eq!(Law::new(nested, 0.0), Err(VariableError::Nested));
    }

    #[test]
    fn clamped_values_gather_at_the_ends() {
        // The number of embedded objects of 3GPP2 C.R1002: 5.64 after the shift by 2.
        let of = Box::new(Variable::Pareto { shape: 1.1, min: 2.0 });
        let law = law(Variable::Clamped { of, min: 2.0, max: 55.0 }, 1.0);
        assert!((law.mean().unwrap() - 2.0 - 5.64).abs() < 0.005, "{:?}", law.mean());
        assert_eq!((law.quantile(1.0), law.cdf(55.0)), (55.0, 1.0));
        let below = law.cdf(55.0f64.next_down());
        assert!((1.0 - below - libm::pow(2.0 / 55.0, 1.1)).abs() < 1e-12);
        let n = 200_000;
        let sample = sample(&law, n, "clamped");
        assert!((sample.mean().unwrap() / law.mean().unwrap() - 1.0).abs() < 0.01);
        assert!(sample.goodness_of_fit(&law, Rounding::None).p_value.unwrap() > 1e-3);
    }

    #[test]
    fn the_normal_quantile_is_precise() {
        // NIST and R's qnorm, 16 digits.
        for (q, z) in [
            (0.5, 0.0),
            (0.025, 1.959_963_984_540_054),
            (0.001, 3.090_232_306_167_813_5),
            (1e-10, 6.361_340_902_404_056),
            (1e-20, 9.262_340_089_798_408),
        ] {
            assert!((upper_quantile(q) - z).abs() < 4e-15 * z.max(1.0), "{q}: {}", upper_quantile(q));
        }
    }

    #[test]
    fn the_incomplete_gamma_function_matches_closed_forms() {
        for x in [1e-9, 0.1, 1.0, 6.9, 8.5, 40.0] {
            let check =
                |actual: f64, want: f64| assert!((actual - want).abs() < 1e-12 * want, "{actual} for {want}");
            check(upper_gamma(1.0, x), libm::exp(-x));
            check(upper_gamma(2.0, x), (1.0 + x) * libm::exp(-x));
            let root = libm::sqrt(x);
            check(upper_gamma(1.5, x), libm::sqrt(PI) / 2.0 * libm::erfc(root) + root * libm::exp(-x));
            check(upper_gamma(5.0, x), (24.0 + x * (24.0 + x * (12.0 + x * (4.0 + x)))) * libm::exp(-x));
        }
        assert_eq!(upper_gamma(3.0, 0.0), 2.0);
    }

    proptest! {
        #[test]
        fn quantile_and_cdf_are_inverse(index in 0usize..33, p in 1e-6f64..=0.999_999) {
            let laws: Vec<_> = laws().into_iter().filter(Law::is_continuous).collect();
            let law = &laws[index];
            let x = law.quantile(p);
            prop_assert!((law.cdf(x) - p).abs() < 1e-12, "{:?}: cdf({x}) = {}", law, law.cdf(x));
            let again = law.quantile(law.cdf(x));
            prop_assert!((again - x).abs() < 1e-8 * x.abs().max(1e-3), "{:?}: {again} for {x}", law);
        }

        #[test]
        fn any_valid_variable_draws_finite_values(mean in -30f64..30.0, sd in 1e-3f64..30.0, p in 0f64..1.0) {
            for variable in [
                Variable::Normal { mean, sd },
                Variable::Lognormal { mean: mean.exp(), sd },
                Variable::Pareto { shape: sd.max(0.1), min: mean.exp() },
                Variable::Weibull { scale: mean.exp(), shape: sd.max(0.1) },
            ] {
                if let Ok(law) = Law::new(variable, 0.0) {
                    let p = p.min(1.0 - f64::EPSILON / 2.0);
                    prop_assert!(law.quantile(p).is_finite() && law.quantile(p) >= 0.0, "{law:?}");
                }
            }
        }
    }
}
