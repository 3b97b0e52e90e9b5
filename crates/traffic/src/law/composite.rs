//! Distributions made of others: truncated at both ends, clamped, and mixtures of two.

use std::f64::consts::PI;

use super::{Shape, upper_gamma, upper_tail};

/// A distribution restricted to the values from `min` to `max`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bounded {
    pub of: Shape,
    min: f64,
    max: f64,
    /// P(X < min) of the unrestricted distribution.
    below: f64,
    /// P(min ≤ X ≤ max) of the unrestricted distribution.
    pub share: f64,
    pub mean: f64,
}

impl Bounded {
    /// Returns the distribution of values given that they are from `min` to `max`; `None` if none are.
    pub fn truncated(of: Shape, min: f64, max: f64) -> Option<Bounded> {
        let below = of.cdf(min.next_down());
        let share = of.cdf(max) - below;
        let mean = of.partial_mean(min, max) / share;
        (min < max && share > 0.0).then_some(Bounded { of, min, max, below, share, mean })
    }

    /// Returns the distribution of values that are moved to the nearer end if they are outside.
    pub fn clamped(of: Shape, min: f64, max: f64) -> Bounded {
        let below = of.cdf(min.next_down());
        let above = 1.0 - of.cdf(max);
        let mean = min * below + of.partial_mean(min, max) + max * above;
        Bounded { of, min, max, below, share: 1.0 - below - above, mean }
    }

    pub fn truncated_quantile(&self, p: f64) -> f64 {
        self.of.quantile(self.below + p * self.share).clamp(self.min, self.max)
    }

    pub fn truncated_cdf(&self, x: f64) -> f64 {
        if x < self.min {
            return 0.0;
        }
        if x >= self.max { 1.0 } else { (self.of.cdf(x) - self.below) / self.share }
    }

    pub fn clamped_quantile(&self, p: f64) -> f64 {
        self.of.quantile(p).clamp(self.min, self.max)
    }

    pub fn clamped_cdf(&self, x: f64) -> f64 {
        if x < self.min {
            return 0.0;
        }
        if x >= self.max { 1.0 } else { self.of.cdf(x) }
    }
}

/// One of two distributions: the first with the probability `share`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mixed {
    share: f64,
    pub first: Shape,
    pub second: Shape,
    /// Whether no value of the first is above any value of the second, so that quantiles need no search.
    is_ordered: bool,
}

impl Mixed {
    pub fn new(share: f64, first: Shape, second: Shape) -> Mixed {
        let is_ordered = first.quantile(1.0) <= second.quantile(0.0);
        Mixed { share, first, second, is_ordered }
    }

    /// Maps one uniform random number to a value: first the choice, then the rest of the number.
    pub fn sample(&self, p: f64) -> f64 {
        if p < self.share {
            self.first.quantile(p / self.share)
        } else {
            self.second.quantile((p - self.share) / (1.0 - self.share))
        }
    }

    pub fn cdf(&self, x: f64) -> f64 {
        self.share * self.first.cdf(x) + (1.0 - self.share) * self.second.cdf(x)
    }

    pub fn quantile(&self, p: f64) -> f64 {
        if self.is_ordered {
            return self.sample(p);
        }
        let ends = [&self.first, &self.second].map(|part| part.quantile(p));
        let (mut low, mut high) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        // The quantile is between those of the parts. 200 halvings reach the resolution of a double.
        for _ in 0..200 {
            let middle = low + (high - low) / 2.0;
            if middle <= low || middle >= high {
                break;
            }
            if self.cdf(middle) < p { low = middle } else { high = middle }
        }
        if self.cdf(low) >= p { low } else { high }
    }

    pub fn mean(&self) -> Option<f64> {
        Some(self.share * self.first.mean()? + (1.0 - self.share) * self.second.mean()?)
    }
}

impl Shape {
    /// Returns E[X · 1(from ≤ X ≤ to)] for finite ends.
    fn partial_mean(&self, from: f64, to: f64) -> f64 {
        match self {
            Shape::Uniform { a, b } => {
                let (from, to) = (from.max(*a), to.min(*b).max(from.max(*a)));
                (to - from) * (from + to) / 2.0 / (b - a)
            }
            Shape::Exponential { start, mean } => {
                // (x + mean)·exp(−(x − start) / mean) is E[X · 1(X > x)].
                let beyond = |x: f64| (x + mean) * libm::exp((start - x) / mean);
                beyond(from.max(*start)) - beyond(to.max(*start))
            }
            Shape::Normal { mean, sd, z } => {
                let (from, to) = (z.from.max((from - mean) / sd), (to - mean) / sd);
                let density = |z: f64| libm::exp(-z * z / 2.0) / libm::sqrt(2.0 * PI);
                (mean * interval(from, to) + sd * (density(from) - density(to))) / z.above
            }
            Shape::Lognormal { mu, sigma, z } => {
                let standard = |x: f64| (libm::log(x.max(0.0)) - mu) / sigma - sigma;
                let from = standard(from).max(z.from - sigma);
                libm::exp(mu + sigma * sigma / 2.0) * interval(from, standard(to)) / z.above
            }
            Shape::Pareto { shape, min } => {
                let (from, to) = (from.max(*min), to.max(*min));
                // ∫ x · shape · min^shape · x^(−shape − 1) dx, as a function of ln(to / from) that is exact at shape = 1.
                let exponent = 1.0 - shape;
                let length = libm::log(to / from);
                let integral = if libm::fabs(exponent * length) < 1e-9 {
                    length
                } else {
                    libm::expm1(exponent * length) / exponent
                };
                shape * libm::pow(min / from, *shape) * from * integral
            }
            Shape::Weibull { scale, shape, hazard } => {
                let beyond = |x: f64| {
                    let hazard = hazard.max(libm::pow(x.max(0.0) / scale, *shape));
                    upper_gamma(1.0 + 1.0 / shape, hazard)
                };
                scale * libm::exp(*hazard) * (beyond(from) - beyond(to))
            }
            Shape::Family(truncated) => truncated.partial_mean(from, to),
            Shape::Empirical { values, first } => {
                let values = &values[*first..];
                values.iter().filter(|v| (from..=to).contains(*v)).sum::<f64>() / values.len() as f64
            }
            Shape::Constant(_) | Shape::Truncated(_) | Shape::Clamped(_) | Shape::Mixture(_) => {
                unreachable!("Variable::validate refuses these as parts")
            }
        }
    }
}

/// Returns P(from < Z < to) of the standard normal distribution, without cancellation in the tails.
fn interval(from: f64, to: f64) -> f64 {
    if to <= from {
        0.0
    } else if from > 0.0 {
        upper_tail(from) - upper_tail(to)
    } else {
        upper_tail(-to) - upper_tail(-from)
    }
}
