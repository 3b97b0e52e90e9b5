//! Variables of a plan, constant or random, with their parameters.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Range of parameters. The squares of their ratios must be finite.
const SMALLEST: f64 = 1e-30;
const LARGEST: f64 = 1e30;

/// Range of shapes. Values of more extreme tails exceed the range of a double.
const TAIL_SHAPES: (f64, f64) = (0.1, 1000.0);

/// A quantity of the plan that may be random. The name of the field that holds it has the unit of the values (`period_s`:
/// seconds; `size_bytes`: bytes; `rate_bps`: bits per second). Parameters describe the variable itself: the mean of a
/// lognormal variable is not that of its logarithm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Variable {
    /// A constant.
    Constant(f64),
    /// Uniform between `a` and `b`, `a < b`.
    Uniform {
        /// Lower end.
        a: f64,
        /// Upper end.
        b: f64,
    },
    /// Exponential with this mean, above 0.
    Exponential {
        /// Mean.
        mean: f64,
    },
    /// Normal.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation, above 0.
        sd: f64,
    },
    /// Lognormal, given by the mean and standard deviation of the variable itself.
    Lognormal {
        /// Mean, above 0.
        mean: f64,
        /// Standard deviation, above 0.
        sd: f64,
    },
    /// Pareto: P(X > x) = (min / x)^shape for x ≥ min.
    Pareto {
        /// Tail index, above 0; the mean is infinite at 1 and below.
        shape: f64,
        /// Smallest value, above 0.
        min: f64,
    },
    /// Weibull: P(X > x) = exp(−(x / scale)^shape).
    Weibull {
        /// Scale, above 0.
        scale: f64,
        /// Shape, above 0.
        shape: f64,
    },
    /// Largest extreme value (Gumbel): P(X ≤ x) = exp(−exp(−(x − a) / b)).
    Extreme {
        /// Location, the most likely value.
        a: f64,
        /// Scale, above 0.
        b: f64,
    },
    /// Gamma, with the mean `scale · shape`.
    Gamma {
        /// Scale, above 0.
        scale: f64,
        /// Shape, above 0.
        shape: f64,
    },
    /// Beta from 0 to `max`: the density is proportional to x^(shape1 − 1) · (max − x)^(shape2 − 1).
    Beta {
        /// First shape, above 0.
        shape1: f64,
        /// Second shape, above 0.
        shape2: f64,
        /// Upper end, above 0.
        max: f64,
    },
    /// The values of a file, each as likely as the others. Sorted, finite, at least one.
    Empirical {
        /// The path of their file in the experiment.
        file: String,
        /// The values, ascending, in the unit of the field.
        values: Arc<[f64]>,
    },
    /// Several constants, such as the bit rates of a video: a setting of an application model. Ascending, at least one. As a
    /// random variable, each is as likely as the others.
    List {
        /// The values, in the unit of the field.
        values: Arc<[f64]>,
    },
    /// A variable, given that it is from `min` to `max`: values outside are drawn again.
    Truncated {
        /// The variable before truncation, neither constant nor one of these three.
        of: Box<Variable>,
        /// Smallest value.
        min: f64,
        /// Largest value, above `min`.
        max: f64,
    },
    /// A variable whose values below `min` become `min`, and those above `max` become `max`.
    Clamped {
        /// The variable before that, neither constant nor one of these three.
        of: Box<Variable>,
        /// Smallest value.
        min: f64,
        /// Largest value, above `min`.
        max: f64,
    },
    /// With this probability the first variable, otherwise the second.
    Mixture {
        /// Probability of the first, above 0 and below 1.
        share: f64,
        /// The first; no mixture.
        first: Box<Variable>,
        /// The second; no mixture.
        second: Box<Variable>,
    },
}

/// Why a variable is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum VariableError {
    /// A parameter is out of its range or not a number.
    #[error("`{parameter}` must be from {low:e} to {high:e}")]
    Range {
        /// Its name.
        parameter: &'static str,
        /// Lower end of the range.
        low: f64,
        /// Upper end of the range.
        high: f64,
    },
    /// A parameter that is a constant or a list has another form.
    #[error("it must be constant")]
    NotConstant,
    /// A constant parameter of a model does not fit another one.
    #[error("it does not fit `{0}`")]
    Relation(&'static str),
    /// The ends of a uniform variable are not in order.
    #[error("`a` must be below `b`")]
    Order,
    /// An empirical variable has no values, or they are not ascending.
    #[error("an empirical variable needs at least one value, ascending")]
    Values,
    /// The variable is rarely at or above the smallest usable value.
    #[error("fewer than one draw in a thousand is {floor} or above")]
    Floor {
        /// The smallest usable value.
        floor: f64,
    },
    /// The ends of a truncated or clamped variable are not in order.
    #[error("`min` must be below `max`")]
    Ends,
    /// A truncated variable is rarely within its ends.
    #[error("fewer than one draw in a thousand is from {min} to {max}")]
    Within {
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
    },
    /// A variable that cannot be truncated, clamped or mixed.
    #[error("this variable cannot be part of another")]
    Nested,
    /// The mean is infinite where a mean is needed.
    #[error("this variable has no mean")]
    NoMean,
}

impl Variable {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first parameter that is out of range: scales from 1e-30 to 1e30, the shapes of Pareto, Weibull,
    /// gamma and beta from 0.1 to 1000, all others within ±1e30; [`VariableError::Order`]; [`VariableError::Values`].
    pub fn validate(&self) -> Result<(), VariableError> {
        match self {
            Variable::Constant(value) => number("value", *value),
            Variable::Uniform { a, b } => {
                number("a", *a)?;
                number("b", *b)?;
                if a < b { Ok(()) } else { Err(VariableError::Order) }
            }
            Variable::Exponential { mean } => scale("mean", *mean),
            Variable::Normal { mean, sd } => number("mean", *mean).and_then(|()| scale("sd", *sd)),
            Variable::Lognormal { mean, sd } => scale("mean", *mean).and_then(|()| scale("sd", *sd)),
            Variable::Pareto { shape, min } => tail("shape", *shape).and_then(|()| scale("min", *min)),
            Variable::Weibull { scale: s, shape } | Variable::Gamma { scale: s, shape } => {
                scale("scale", *s).and_then(|()| tail("shape", *shape))
            }
            Variable::Extreme { a, b } => number("a", *a).and_then(|()| scale("b", *b)),
            Variable::Beta { shape1, shape2, max } => {
                tail("shape1", *shape1)?;
                tail("shape2", *shape2)?;
                scale("max", *max)
            }
            Variable::Empirical { values, .. } | Variable::List { values } => {
                values.iter().try_for_each(|v| number("value", *v))?;
                if !values.is_empty() && values.is_sorted() { Ok(()) } else { Err(VariableError::Values) }
            }
            Variable::Truncated { of, min, max } | Variable::Clamped { of, min, max } => {
                number("min", *min)?;
                number("max", *max)?;
                if min >= max {
                    return Err(VariableError::Ends);
                }
                let is_fixed =
                    |part: &Variable| matches!(part, Variable::Constant(_) | Variable::List { .. });
                of.validate_part(|part| !is_fixed(part) && part.is_simple())
            }
            Variable::Mixture { share, first, second } => {
                within("share", *share, 1e-6, 1.0 - 1e-6)?;
                let is_part = |part: &Variable| !matches!(part, Variable::Mixture { .. });
                first.validate_part(is_part)?;
                second.validate_part(is_part)
            }
        }
    }

    /// Checks a part of another variable, which must satisfy `is_part`.
    fn validate_part(&self, is_part: impl Fn(&Variable) -> bool) -> Result<(), VariableError> {
        if is_part(self) { self.validate() } else { Err(VariableError::Nested) }
    }

    /// Returns whether no other variable is part of it.
    fn is_simple(&self) -> bool {
        !matches!(self, Variable::Truncated { .. } | Variable::Clamped { .. } | Variable::Mixture { .. })
    }

    /// Formats the variable as in the language: `exponential(1 ms)`, or only the value of a constant. `show` formats a value
    /// with its unit; shapes are plain numbers.
    pub fn describe(&self, show: impl Fn(f64) -> String) -> String {
        self.describe_with(&show)
    }

    fn describe_with(&self, show: &dyn Fn(f64) -> String) -> String {
        let bounded = |name: &str, of: &Variable, min: f64, max: f64| {
            format!("{name}({}, {}, {})", of.describe_with(show), show(min), show(max))
        };
        match self {
            Variable::Constant(value) => show(*value),
            Variable::Uniform { a, b } => format!("uniform({}, {})", show(*a), show(*b)),
            Variable::Exponential { mean } => format!("exponential({})", show(*mean)),
            Variable::Normal { mean, sd } => format!("normal({}, {})", show(*mean), show(*sd)),
            Variable::Lognormal { mean, sd } => format!("lognormal({}, {})", show(*mean), show(*sd)),
            Variable::Pareto { shape, min } => format!("pareto({shape}, {})", show(*min)),
            Variable::Weibull { scale, shape } => format!("weibull({}, {shape})", show(*scale)),
            Variable::Extreme { a, b } => format!("extreme({}, {})", show(*a), show(*b)),
            Variable::Gamma { scale, shape } => format!("gamma({}, {shape})", show(*scale)),
            Variable::Beta { shape1, shape2, max } => format!("beta({shape1}, {shape2}, {})", show(*max)),
            Variable::Empirical { file, .. } => format!("empirical({file:?})"),
            Variable::List { values } => {
                values.iter().map(|value| show(*value)).collect::<Vec<_>>().join(" : ")
            }
            Variable::Truncated { of, min, max } => bounded("truncated", of, *min, *max),
            Variable::Clamped { of, min, max } => bounded("clamped", of, *min, *max),
            Variable::Mixture { share, first, second } => {
                format!("mixture({share}, {}, {})", first.describe_with(show), second.describe_with(show))
            }
        }
    }
}

fn within(parameter: &'static str, value: f64, low: f64, high: f64) -> Result<(), VariableError> {
    if (low..=high).contains(&value) { Ok(()) } else { Err(VariableError::Range { parameter, low, high }) }
}

fn number(parameter: &'static str, value: f64) -> Result<(), VariableError> {
    within(parameter, value, -LARGEST, LARGEST)
}

fn scale(parameter: &'static str, value: f64) -> Result<(), VariableError> {
    within(parameter, value, SMALLEST, LARGEST)
}

fn tail(parameter: &'static str, value: f64) -> Result<(), VariableError> {
    within(parameter, value, TAIL_SHAPES.0, TAIL_SHAPES.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empirical(values: &[f64]) -> Variable {
        Variable::Empirical { file: "gaps.csv".into(), values: values.into() }
    }

    #[test]
    fn variables_are_described_as_in_the_language() {
        let ms = |v: f64| format!("{} ms", v * 1e3);
        for (variable, text) in [
            (Variable::Constant(0.02), "20 ms"),
            (Variable::Uniform { a: 0.02, b: 0.04 }, "uniform(20 ms, 40 ms)"),
            (Variable::Exponential { mean: 0.001 }, "exponential(1 ms)"),
            (Variable::Normal { mean: 0.02, sd: 0.002 }, "normal(20 ms, 2 ms)"),
            (Variable::Lognormal { mean: 0.02, sd: 0.002 }, "lognormal(20 ms, 2 ms)"),
            (Variable::Pareto { shape: 1.5, min: 0.02 }, "pareto(1.5, 20 ms)"),
            (Variable::Weibull { scale: 0.02, shape: 0.7 }, "weibull(20 ms, 0.7)"),
            (Variable::Extreme { a: 0.055, b: 0.006 }, "extreme(55 ms, 6 ms)"),
            (Variable::Gamma { scale: 0.02, shape: 0.7 }, "gamma(20 ms, 0.7)"),
            (Variable::Beta { shape1: 3.0, shape2: 4.0, max: 10.0 }, "beta(3, 4, 10000 ms)"),
            (empirical(&[1.0]), "empirical(\"gaps.csv\")"),
            (
                Variable::Truncated {
                    of: Box::new(Variable::Exponential { mean: 0.001 }),
                    min: 0.0,
                    max: 0.01,
                },
                "truncated(exponential(1 ms), 0 ms, 10 ms)",
            ),
            (
                Variable::Mixture {
                    share: 0.9,
                    first: Box::new(Variable::Constant(0.001)),
                    second: Box::new(Variable::Pareto { shape: 1.5, min: 0.02 }),
                },
                "mixture(0.9, 1 ms, pareto(1.5, 20 ms))",
            ),
        ] {
            assert_eq!(variable.describe(ms), text);
        }
    }

    #[test]
    fn parameters_out_of_range_are_named() {
        let refused = |variable: Variable| variable.validate().unwrap_err();
        let parameter = |variable: Variable| match refused(variable) {
            VariableError::Range { parameter, .. } => parameter,
            other => panic!("{other}"),
        };
        assert_eq!(parameter(Variable::Constant(f64::NAN)), "value");
        assert_eq!(parameter(Variable::Uniform { a: 0.0, b: f64::INFINITY }), "b");
        assert_eq!(parameter(Variable::Exponential { mean: 0.0 }), "mean");
        assert_eq!(parameter(Variable::Normal { mean: 0.0, sd: -1.0 }), "sd");
        assert_eq!(parameter(Variable::Lognormal { mean: -1.0, sd: 1.0 }), "mean");
        assert_eq!(parameter(Variable::Pareto { shape: 0.0, min: 1.0 }), "shape");
        assert_eq!(parameter(Variable::Weibull { scale: 1.0, shape: 1e9 }), "shape");
        assert_eq!(parameter(Variable::Extreme { a: 1.0, b: 0.0 }), "b");
        assert_eq!(parameter(Variable::Gamma { scale: 1.0, shape: 0.0 }), "shape");
        assert_eq!(parameter(Variable::Beta { shape1: 1.0, shape2: 0.0, max: 1.0 }), "shape2");
        assert_eq!(refused(Variable::Uniform { a: 2.0, b: 2.0 }), VariableError::Order);
        assert_eq!(refused(empirical(&[])), VariableError::Values);
        assert_eq!(refused(empirical(&[2.0, 1.0])), VariableError::Values);
        assert_eq!(Variable::Normal { mean: -1.0, sd: 1.0 }.validate(), Ok(()));
        assert_eq!(
            refused(Variable::Exponential { mean: 0.0 }).to_string(),
            "`mean` must be from 1e-30 to 1e30"
        );
    }
}
