//! Distributions whose quantiles or means need special functions: largest extreme value, gamma and beta.

use super::{Shape, upper_gamma_fraction};

/// Euler's constant.
const EULER: f64 = 0.577_215_664_901_532_9;
/// Terms of a series or continued fraction, at most.
const MAX_TERMS: u32 = 10_000;

/// A distribution without truncation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Family {
    Extreme { a: f64, b: f64 },
    Gamma { scale: f64, shape: f64 },
    Beta { shape1: f64, shape2: f64, max: f64 },
}

/// A distribution, given that its values are at or above a floor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Truncated {
    of: Family,
    floor: f64,
    /// P(X < floor) of the unrestricted distribution.
    below: f64,
    mean: f64,
}

impl Truncated {
    /// Returns the probability of a value at or above `floor`, and the distribution given that.
    pub fn shape(of: Family, floor: f64) -> (f64, Shape) {
        let floor = floor.max(of.start());
        let below = of.cdf(floor);
        let mean = of.partial_mean(floor, f64::INFINITY) / (1.0 - below);
        (1.0 - below, Shape::Family(Truncated { of, floor, below, mean }))
    }

    pub fn quantile(&self, p: f64) -> f64 {
        let above = (1.0 - p) * (1.0 - self.below);
        self.of.quantile(self.below + p * (1.0 - self.below), above).max(self.floor)
    }

    pub fn cdf(&self, x: f64) -> f64 {
        if x < self.floor { 0.0 } else { (self.of.cdf(x) - self.below) / (1.0 - self.below) }
    }

    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Returns E[X · 1(from ≤ X ≤ to)].
    pub fn partial_mean(&self, from: f64, to: f64) -> f64 {
        let from = from.max(self.floor);
        self.of.partial_mean(from, to.max(from)) / (1.0 - self.below)
    }
}

impl Family {
    /// Returns the lower end.
    fn start(self) -> f64 {
        match self {
            Family::Extreme { .. } => f64::NEG_INFINITY,
            Family::Gamma { .. } | Family::Beta { .. } => 0.0,
        }
    }

    fn cdf(self, x: f64) -> f64 {
        match self {
            Family::Extreme { a, b } => libm::exp(-libm::exp((a - x) / b)),
            Family::Gamma { scale, shape } => lower_gamma_share(shape, x / scale),
            Family::Beta { shape1, shape2, max } => beta_share(shape1, shape2, x / max),
        }
    }

    /// Returns the quantile of a probability `p`, which is 1 − `q`.
    fn quantile(self, p: f64, q: f64) -> f64 {
        match self {
            // −ln p, without loss of precision where p is close to 1.
            Family::Extreme { a, b } => {
                a - b * libm::log(if q < 0.5 { -libm::log1p(-q) } else { -libm::log(p) })
            }
            Family::Gamma { .. } if q <= 0.0 => f64::INFINITY,
            Family::Gamma { scale, shape } => {
                let share = |x: f64| lower_gamma_share(shape, x);
                let mut high = shape + 1.0;
                while share(high) < p {
                    high *= 2.0;
                }
                let density = |x: f64| libm::exp((shape - 1.0) * libm::log(x) - x - libm::lgamma(shape));
                scale * invert(p, high, shape.min(high), share, density)
            }
            Family::Beta { shape1, shape2, max } => {
                let log_beta = log_beta(shape1, shape2);
                let density = |x: f64| {
                    libm::exp((shape1 - 1.0) * libm::log(x) + (shape2 - 1.0) * libm::log1p(-x) - log_beta)
                };
                let mean = shape1 / (shape1 + shape2);
                max * invert(p, 1.0, mean, |x| beta_share(shape1, shape2, x), density)
            }
        }
    }

    /// Returns E[X · 1(from ≤ X ≤ to)] for `from` ≤ `to`.
    fn partial_mean(self, from: f64, to: f64) -> f64 {
        match self {
            Family::Extreme { a, b } => {
                // T = exp(−(X − a) / b) is exponential, and X = a − b · ln T.
                let [high, low] = [from, to].map(|x| libm::exp((a - x) / b));
                a * (libm::exp(-low) - libm::exp(-high)) - b * (log_integral(high) - log_integral(low))
            }
            Family::Gamma { scale, shape } => {
                let share = |x: f64| lower_gamma_share(shape + 1.0, x / scale);
                scale * shape * (share(to) - share(from))
            }
            Family::Beta { shape1, shape2, max } => {
                let share = |x: f64| beta_share(shape1 + 1.0, shape2, x / max);
                max * shape1 / (shape1 + shape2) * (share(to) - share(from))
            }
        }
    }
}

/// Returns the `x` from 0 to `high` with `cdf(x)` = `p`, by Newton's method from `start` on. A step that leaves the interval which
/// contains `x` is replaced by halving it.
fn invert(p: f64, high: f64, start: f64, cdf: impl Fn(f64) -> f64, density: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high, mut x) = (0.0, high, start);
    for _ in 0..200 {
        let error = cdf(x) - p;
        if error < 0.0 {
            low = x
        } else {
            high = x
        }
        let next = x - error / density(x);
        let next = if next > low && next < high { next } else { low + (high - low) / 2.0 };
        if libm::fabs(next - x) <= 4.0 * f64::EPSILON * x || high - low <= f64::EPSILON * high {
            return next;
        }
        x = next;
    }
    x
}

/// Returns the integral of ln(t)·e^(−t) from 0 to `t`: −e^(−t)·ln(t) − E₁(t) − γ.
fn log_integral(t: f64) -> f64 {
    if t <= 0.0 {
        return 0.0;
    }
    if t > 700.0 {
        return -EULER;
    }
    if t > 2.0 {
        let e = libm::exp(-t);
        return -e * libm::log(t) - e * upper_gamma_fraction(0.0, t) - EULER;
    }
    // Ein(t) = E₁(t) + ln(t) + γ (DLMF 6.2.3 and 6.6.4).
    let (mut term, mut ein) = (-1.0, 0.0);
    for k in 1..40 {
        term *= -t / f64::from(k);
        ein += term / f64::from(k);
    }
    -libm::expm1(-t) * libm::log(t) - ein
}

/// Returns the regularized lower incomplete gamma function P(a, x), by its series (DLMF 8.7.1) or by the continued fraction.
fn lower_gamma_share(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x == f64::INFINITY {
        return 1.0;
    }
    let density = libm::exp(a * libm::log(x) - x - libm::lgamma(a));
    if x > a + 1.0 {
        return 1.0 - density * upper_gamma_fraction(a, x);
    }
    let mut term = 1.0 / a;
    let mut sum = term;
    for k in 1..MAX_TERMS {
        term *= x / (a + f64::from(k));
        sum += term;
        if term < sum * f64::EPSILON {
            break;
        }
    }
    density * sum
}

/// Returns ln B(a, b).
fn log_beta(a: f64, b: f64) -> f64 {
    libm::lgamma(a) + libm::lgamma(b) - libm::lgamma(a + b)
}

/// Returns the regularized incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22) in the half where it
/// converges fast.
fn beta_share(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let density = libm::exp(a * libm::log(x) + b * libm::log1p(-x) - log_beta(a, b));
    if x < (a + 1.0) / (a + b + 2.0) {
        density * beta_fraction(a, b, x) / a
    } else {
        1.0 - density * beta_fraction(b, a, 1.0 - x) / b
    }
}

fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    let nonzero = |v: f64| if libm::fabs(v) < 1e-300 { 1e-300 } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / nonzero(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for m in 1..MAX_TERMS {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut factor = 1.0;
        for coefficient in [even, odd] {
            d = 1.0 / nonzero(1.0 + coefficient * d);
            c = nonzero(1.0 + coefficient / c);
            factor = c * d;
            fraction *= factor;
        }
        if libm::fabs(factor - 1.0) < f64::EPSILON {
            break;
        }
    }
    fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_special_functions_match_closed_forms() {
        let check = |actual: f64, want: f64| assert!((actual - want).abs() < 1e-12, "{actual} for {want}");
        for x in [1e-6, 0.05, 0.3, 0.5, 0.77, 0.999] {
            check(beta_share(1.0, 1.0, x), x);
            // The sum of the binomial distribution.
            let y: f64 = 1.0 - x;
            let six =
                [20.0 * x.powi(3) * y.powi(3), 15.0 * x.powi(4) * y * y, 6.0 * x.powi(5) * y, x.powi(6)];
            check(beta_share(3.0, 4.0, x), six.iter().sum());
            check(beta_share(0.5, 0.5, x), 2.0 / std::f64::consts::PI * libm::asin(libm::sqrt(x)));
        }
        for x in [1e-6, 0.3, 1.9, 2.1, 7.0, 50.0] {
            check(lower_gamma_share(1.0, x), 1.0 - libm::exp(-x));
            check(lower_gamma_share(0.5, x), libm::erf(libm::sqrt(x)));
            check(lower_gamma_share(2.0, x), 1.0 - (1.0 + x) * libm::exp(-x));
            // The midpoint rule with t = s², where the integrand is finite.
            let n = 200_000;
            let step = libm::sqrt(x) / f64::from(n);
            let at = |i: i32| {
                let s = (f64::from(i) + 0.5) * step;
                4.0 * s * libm::log(s) * libm::exp(-s * s) * step
            };
            assert!((log_integral(x) - (0..n).map(at).sum::<f64>()).abs() < 1e-7, "{x}");
        }
        check(log_integral(700.1), -EULER);
    }

    #[test]
    fn an_extreme_variable_without_truncation_has_the_mean_of_the_textbook() {
        let (above, shape) = Truncated::shape(Family::Extreme { a: 45.0, b: 5.7 }, f64::NEG_INFINITY);
        assert_eq!(above, 1.0);
        assert!((shape.mean().unwrap() - (45.0 + 5.7 * EULER)).abs() < 1e-12);
    }
}
