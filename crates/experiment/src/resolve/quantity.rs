//! Numbers with units, and random variables made of them.

use std::sync::Arc;

use trunkline_traffic::{Law, Variable, VariableError};

use super::Context;
use crate::FileError;
use crate::diagnostic::{Diagnostic, list};
use crate::parse::shorten;
use crate::plan::SourceRange;
use crate::tree::{Part, PartKind, Setting, Value};

/// What a number measures, what it means bare, and which values can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dimension {
    /// Bytes, at least 1.
    Size,
    /// Bits per second, above 0.
    Rate,
    /// Events a second, above 0.
    PerSecond,
    /// Seconds above 0; bare microseconds.
    Period,
    /// Seconds above 0; bare seconds.
    Duration,
    /// Seconds, 0 or more; bare seconds.
    Delay,
    /// Seconds, 0 or more, of a device; the contract names no bare unit, so none is guessed.
    Time,
    /// How many, at least 1.
    Count,
    /// A number without unit.
    Plain,
    /// Any unit, folded to bytes, seconds, bits per second.
    Any,
}

/// A unit: its name and what it multiplies by and divides by. Two numbers, so that `20 ms` and `20000` microseconds
/// are the same nearest double.
type Unit = (&'static str, f64, f64);

static SIZES: &[Unit] = &[
    ("B", 1.0, 1.0),
    ("kB", 1e3, 1.0),
    ("KiB", 1024.0, 1.0),
    ("MB", 1e6, 1.0),
    ("MiB", 1_048_576.0, 1.0),
    ("GB", 1e9, 1.0),
    ("GiB", 1_073_741_824.0, 1.0),
];
static TIMES: &[Unit] = &[
    ("ps", 1.0, 1e12),
    ("ns", 1.0, 1e9),
    ("us", 1.0, 1e6),
    ("ms", 1.0, 1e3),
    ("s", 1.0, 1.0),
    ("min", 60.0, 1.0),
    ("h", 3600.0, 1.0),
];
static RATES: &[Unit] = &[("b/s", 1.0, 1.0), ("kb/s", 1e3, 1.0), ("Mb/s", 1e6, 1.0), ("Gb/s", 1e9, 1.0)];
static PER_SECOND: &[Unit] = &[("/s", 1.0, 1.0)];
/// Every unit that is one of a family, with the family's name.
static FAMILIES: &[(&str, &[Unit])] =
    &[("a size", SIZES), ("a time", TIMES), ("a rate in bits", RATES), ("a rate of events", PER_SECOND)];

/// The longest time that is accepted, 208 days; the plan can hold 2^64 ps, 213 days.
pub(crate) const LONGEST_S: f64 = 1.8e7;
/// Larger sizes and rates are taken for mistakes; below it a double still counts every byte.
const LARGEST: f64 = 9e15;

impl Dimension {
    fn units(self) -> &'static [Unit] {
        match self {
            Dimension::Size => SIZES,
            Dimension::Rate => RATES,
            Dimension::PerSecond => PER_SECOND,
            Dimension::Period | Dimension::Duration | Dimension::Delay | Dimension::Time => TIMES,
            Dimension::Count | Dimension::Plain | Dimension::Any => &[],
        }
    }

    /// The unit that numbers are folded to; empty where they have none.
    pub(crate) fn base(self) -> &'static str {
        match self {
            Dimension::Size => "B",
            Dimension::Rate => "b/s",
            Dimension::PerSecond => "/s",
            Dimension::Period | Dimension::Duration | Dimension::Delay | Dimension::Time => "s",
            Dimension::Count | Dimension::Plain | Dimension::Any => "",
        }
    }

    fn unit(self, name: &str) -> Option<Unit> {
        let found = |units: &[Unit]| {
            let of_size = std::ptr::eq(units, SIZES);
            units
                .iter()
                .find(|(unit, ..)| *unit == name || (of_size && unit.eq_ignore_ascii_case(name)))
                .copied()
        };
        match self {
            Dimension::Any => FAMILIES.iter().find_map(|(_, units)| found(units)),
            _ => found(self.units()),
        }
    }

    /// Whether `unit` is one of this dimension.
    pub(crate) fn has_unit(self, unit: &str) -> bool {
        self.unit(unit).is_some()
    }

    /// What a number means that names no unit.
    fn bare(self) -> Option<Unit> {
        match self {
            Dimension::Period => Some(("us", 1.0, 1e6)),
            Dimension::Time => None,
            _ => Some(("", 1.0, 1.0)),
        }
    }

    /// How it reads after "expected".
    pub(crate) fn wanted(self) -> &'static str {
        match self {
            Dimension::Size => "a size, such as `1400` or `64 kB`",
            Dimension::Rate => "a rate, such as `10 Mb/s`",
            Dimension::PerSecond => "a number a second, such as `1000 /s`",
            Dimension::Period => "a period, such as `20 ms`",
            Dimension::Duration => "a duration, such as `10 s`",
            Dimension::Delay => "a delay, such as `0 s`",
            Dimension::Time => "a time with its unit, such as `5 us`",
            Dimension::Count => "a count, such as `5`",
            Dimension::Plain | Dimension::Any => "a number",
        }
    }

    /// The least value that can be sent, waited or counted; draws below it are drawn again.
    fn min(self) -> f64 {
        match self {
            Dimension::Size | Dimension::Count => 1.0,
            _ => 0.0,
        }
    }

    fn is_time(self) -> bool {
        matches!(self.units(), units if std::ptr::eq(units, TIMES))
    }

    fn is_whole(self) -> bool {
        matches!(self, Dimension::Size | Dimension::Count)
    }

    fn may_be_zero(self) -> bool {
        matches!(self, Dimension::Delay | Dimension::Time | Dimension::Plain | Dimension::Any)
    }
}

/// Splits a word into the number it begins with and the rest.
fn split_number(word: &str) -> Option<(f64, &str)> {
    let digits = |from: usize| from + word[from..].bytes().take_while(u8::is_ascii_digit).count();
    let sign = usize::from(word.starts_with(['+', '-']));
    let mut end = digits(sign);
    if end == sign {
        return None;
    }
    if word[end..].starts_with('.') && word[end + 1..].starts_with(|c: char| c.is_ascii_digit()) {
        end = digits(end + 1);
    }
    if word[end..].starts_with(['e', 'E']) {
        let from = end + 1 + usize::from(word[end + 1..].starts_with(['+', '-']));
        let exponent = digits(from);
        if exponent > from {
            end = exponent;
        }
    }
    Some((word[..end].parse().ok()?, &word[end..]))
}

/// Returns the only part of a value, or reports that there are several.
pub(crate) fn single<'v>(cx: &mut Context<'_>, value: &'v Value, expected: &str) -> Option<&'v Part> {
    if let [part] = &value.parts[..] {
        return Some(part);
    }
    cx.refuse(
        Diagnostic::error(value.location, format!("expected {expected}"))
            .label(format!("expected {expected}, without `:`")),
    )
}

/// Reads NUMBER or NUMBER UNIT and folds the unit in. Checks the unit, not the range.
pub(crate) fn quantity(cx: &mut Context<'_>, part: &Part, dimension: Dimension) -> Option<f64> {
    let read =
        if part.kind == PartKind::Word && part.arguments.is_none() { split_number(&part.text) } else { None };
    let Some((value, rest)) = read else {
        let written = shorten(&part.text);
        let error =
            Diagnostic::error(part.location, format!("expected {}, found `{written}`", dimension.wanted()));
        return cx.refuse(error.label(format!("expected {}", dimension.wanted())));
    };
    if !value.is_finite() {
        return cx.refuse(
            Diagnostic::error(part.location, "this number is too large")
                .label(format!("expected {}", dimension.wanted())),
        );
    }
    let unit = match (&part.unit, rest) {
        (Some(unit), _) => Some((unit.text.as_str(), unit.location)),
        (None, "") => None,
        (None, rest) => {
            Some((rest, SourceRange { start: part.location.end - rest.len(), end: part.location.end }))
        }
    };
    let (_, times, over) = match unit {
        Some((name, location)) => {
            dimension.unit(name).or_else(|| unknown_unit(cx, name, location, dimension))?
        }
        None => dimension
            .bare()
            .or((value == 0.0).then_some(("", 1.0, 1.0)))
            .or_else(|| missing_unit(cx, part))?,
    };
    Some(value * times / over)
}

fn unknown_unit(
    cx: &mut Context<'_>,
    name: &str,
    location: SourceRange,
    dimension: Dimension,
) -> Option<Unit> {
    let family = FAMILIES.iter().find(|(_, units)| units.iter().any(|(unit, ..)| *unit == name));
    let units: Vec<&str> = dimension.units().iter().map(|(unit, ..)| *unit).collect();
    let message = match family {
        Some((family, _)) => format!("`{name}` is the unit of {family}"),
        None if matches!(name, "cells" | "packets") => {
            format!("only the room of a buffer is counted in `{name}`")
        }
        None => format!("unknown unit `{}`", shorten(name)),
    };
    let error = Diagnostic::error(location, message).label(format!("expected {}", dimension.wanted()));
    cx.refuse(match family {
        _ if units.is_empty() => error.help("this number has no unit"),
        None => error.suggest(name, units),
        Some(_) => error.help(format!("expected one of {}", list(&units))),
    })
}

fn missing_unit(cx: &mut Context<'_>, part: &Part) -> Option<Unit> {
    let error = Diagnostic::error(part.location, "this time needs its unit");
    cx.refuse(error.label(format!("expected `{0} us`, `{0} ms`, `{0} s`, …", shorten(&part.text))))
}

/// One fixed number in the range of its dimension.
pub(crate) fn number(cx: &mut Context<'_>, value: &Value, dimension: Dimension) -> Option<f64> {
    let part = single(cx, value, dimension.wanted())?;
    if part.arguments.is_some() && LAWS.iter().any(|(law, _)| *law == part.text) {
        let error = Diagnostic::error(part.location, "no random variable can stand here");
        return cx.refuse(error.label(format!("expected {}", dimension.wanted())));
    }
    constant(cx, part, dimension)
}

/// A number in the range of its dimension.
pub(crate) fn constant(cx: &mut Context<'_>, part: &Part, dimension: Dimension) -> Option<f64> {
    let n = quantity(cx, part, dimension)?;
    // Kilobytes of a decimal fraction: 1.1 kB is 1100 bytes, and not 1100.0000000000002.
    let whole = n.round();
    let n = if dimension.is_whole() && (n - whole).abs() <= n.abs() * 1e-12 { whole } else { n };
    if let Some((message, label)) = out_of_range(n, dimension) {
        return cx.refuse(Diagnostic::error(part.location, message).label(label));
    }
    // Minus zero is zero, and prints so.
    Some(n + 0.0)
}

/// A computed quantity, not above what its dimension can have.
pub(crate) fn in_range(
    cx: &mut Context<'_>,
    n: f64,
    dimension: Dimension,
    location: SourceRange,
) -> Option<f64> {
    let largest = if dimension.is_time() { LONGEST_S } else { LARGEST };
    if n <= largest {
        return Some(n);
    }
    let message = format!("this means {n:e} {}, which is too large", dimension.base());
    let error = Diagnostic::error(location, message).label(format!("expected at most {largest:e}"));
    cx.refuse(error)
}

/// A number as written, folded to the base unit of its family, which is named too: `("16 kB")` is 16,000 `B`. A number
/// without unit has the unit ``; room in a buffer is counted in `cells` or `packets`.
pub(crate) fn base_number(written: &str) -> Option<(f64, &'static str)> {
    let (value, unit) = split_number(written.trim())?;
    let (times, over, base) = match unit.trim() {
        "" => (1.0, 1.0, ""),
        "cells" | "cell" => (1.0, 1.0, "cells"),
        "packets" | "packet" => (1.0, 1.0, "packets"),
        unit => {
            let (_, times, over) = Dimension::Any.unit(unit)?;
            let dimensions = [Dimension::Size, Dimension::Time, Dimension::Rate, Dimension::PerSecond];
            (times, over, dimensions.iter().find(|dimension| dimension.has_unit(unit))?.base())
        }
    };
    Some(value * times / over).filter(|number| number.is_finite()).map(|number| (number, base))
}

/// What is wrong with a number that its dimension cannot have, and what was expected.
fn out_of_range(n: f64, dimension: Dimension) -> Option<(String, String)> {
    let min = match dimension {
        _ if dimension.may_be_zero() => "0 or more",
        _ if dimension.is_whole() => "at least 1",
        _ => "above 0",
    };
    let expected = format!("expected {}, {min}", dimension.wanted());
    Some(if n < 0.0 {
        ("this is below 0".to_owned(), expected)
    } else if n == 0.0 && !dimension.may_be_zero() {
        ("this is zero".to_owned(), expected)
    } else if dimension.is_whole() && n.fract() != 0.0 {
        (format!("{n} is not whole"), "expected a whole number".to_owned())
    } else if dimension.is_time() && n > LONGEST_S {
        ("this is too long".to_owned(), "expected at most the 208 days that a run can last".to_owned())
    } else if n > LARGEST {
        ("this is too large".to_owned(), format!("expected at most {LARGEST:e}"))
    } else {
        return None;
    })
}

/// The laws and their parameters. Shapes and a `share` have no unit, the others have the unit of the variable.
const LAWS: &[(&str, &[&str])] = &[
    ("uniform", &["a", "b"]),
    ("exponential", &["mean"]),
    ("normal", &["mean", "sd"]),
    ("lognormal", &["mean", "sd"]),
    ("pareto", &["shape", "min"]),
    ("weibull", &["scale", "shape"]),
    ("extreme", &["a", "b"]),
    ("gamma", &["scale", "shape"]),
    ("beta", &["shape1", "shape2", "max"]),
    ("empirical", &["file"]),
    ("truncated", &["variable", "min", "max"]),
    ("clamped", &["variable", "min", "max"]),
    ("mixture", &["share", "first", "second"]),
];

/// A number, or a random variable whose parameters carry the same units.
pub(crate) fn variable(cx: &mut Context<'_>, value: &Value, dimension: Dimension) -> Option<Variable> {
    let part = single(cx, value, dimension.wanted())?;
    variable_part(cx, part, dimension)
}

/// As [`variable`], of one part of a value.
pub(crate) fn variable_part(cx: &mut Context<'_>, part: &Part, dimension: Dimension) -> Option<Variable> {
    let Some(arguments) = &part.arguments else {
        return constant(cx, part, dimension).map(Variable::Constant);
    };
    let Some((law, names)) = LAWS.iter().find(|(law, _)| *law == part.text) else {
        let error =
            Diagnostic::error(part.location, format!("`{}` is no random variable", shorten(&part.text)));
        let error = error.label(format!("expected {}, or a random variable", dimension.wanted()));
        return cx.refuse(error.suggest(&part.text, LAWS.iter().map(|(law, _)| *law)));
    };
    let parameters = parameters(cx, part.location, law, names, arguments)?;
    if *law == "empirical" {
        return empirical(cx, parameters[0], dimension);
    }
    if matches!(*law, "truncated" | "clamped" | "mixture") {
        return composite(cx, law, names, &parameters, dimension);
    }
    let mut read = |at: usize| {
        let part = single(cx, parameters[at], dimension.wanted())?;
        quantity(cx, part, if names[at].starts_with("shape") { Dimension::Plain } else { dimension })
    };
    // All are read before any can fail, so that all are reported.
    let numbers = [0, 1, 2].map(|at| if at < names.len() { read(at) } else { Some(0.0) });
    let [first, second, third] = numbers;
    let variable = law_of(law, [first?, second?, third?]);
    check_law(cx, &variable, dimension, names, &parameters)?;
    Some(variable)
}

/// A variable made of others: `truncated(VARIABLE, MIN, MAX)`, `mixture(SHARE, VARIABLE, VARIABLE)`.
fn composite(
    cx: &mut Context<'_>,
    law: &str,
    names: &[&str],
    parameters: &[&Value],
    dimension: Dimension,
) -> Option<Variable> {
    let mut number = |at: usize, dimension: Dimension| {
        let part = single(cx, parameters[at], dimension.wanted())?;
        quantity(cx, part, dimension)
    };
    let composite = if law == "mixture" {
        let share = number(0, Dimension::Plain);
        let [first, second] = [1, 2].map(|at| variable(cx, parameters[at], dimension).map(Box::new));
        Variable::Mixture { share: share?, first: first?, second: second? }
    } else {
        let (min, max) = (number(1, dimension), number(2, dimension));
        let of = variable(cx, parameters[0], dimension).map(Box::new);
        let (of, min, max) = (of?, min?, max?);
        if law == "truncated" {
            Variable::Truncated { of, min, max }
        } else {
            Variable::Clamped { of, min, max }
        }
    };
    let Err(error) = Law::new(composite.clone(), dimension.min()) else { return Some(composite) };
    let at = match error {
        VariableError::Ends | VariableError::Within { .. } => 2,
        _ => 0,
    };
    let message = format!("`{}` cannot be this", names[at]);
    cx.refuse(Diagnostic::error(parameters[at].location, message).label(error.to_string()))
}

fn law_of(law: &str, [first, second, third]: [f64; 3]) -> Variable {
    match law {
        "uniform" => Variable::Uniform { a: first, b: second },
        "exponential" => Variable::Exponential { mean: first },
        "normal" => Variable::Normal { mean: first, sd: second },
        "lognormal" => Variable::Lognormal { mean: first, sd: second },
        "pareto" => Variable::Pareto { shape: first, min: second },
        "extreme" => Variable::Extreme { a: first, b: second },
        "gamma" => Variable::Gamma { scale: first, shape: second },
        "beta" => Variable::Beta { shape1: first, shape2: second, max: third },
        _ => Variable::Weibull { scale: first, shape: second },
    }
}

/// The parameters of a law in their order, whether they were named or not.
fn parameters<'p>(
    cx: &mut Context<'_>,
    location: SourceRange,
    law: &str,
    names: &[&str],
    arguments: &'p [Setting],
) -> Option<Vec<&'p Value>> {
    let mut found: Vec<Option<&Value>> = vec![None; names.len()];
    for (at, argument) in arguments.iter().enumerate() {
        let slot = match &argument.key {
            None => Some(at),
            Some(key) => names.iter().position(|name| *name == key.text),
        };
        match slot.and_then(|slot| found.get_mut(slot)) {
            Some(slot @ None) => *slot = argument.values.first(),
            _ => {
                let error = Diagnostic::error(argument.location(), format!("`{law}` has no such parameter"));
                return cx.refuse(error.label(format!("expected `{law}({})`", names.join(", "))));
            }
        }
    }
    let all: Option<Vec<&Value>> = found.into_iter().collect();
    if all.is_none() {
        let error = Diagnostic::error(location, format!("`{law}` lacks a parameter"));
        cx.report(error.label(format!("expected `{law}({})`", names.join(", "))));
    }
    all
}

/// Checks that a law exists and that its draws are usable often enough: what falls below the least value is drawn
/// again, which must come to an end.
fn check_law(
    cx: &mut Context<'_>,
    law: &Variable,
    dimension: Dimension,
    names: &[&str],
    values: &[&Value],
) -> Option<()> {
    let min = dimension.min();
    let unit = if dimension == Dimension::Size { " byte" } else { "" };
    let at_least = if min > 0.0 { format!("at least {min}{unit}") } else { "above 0".to_owned() };
    let usable = |x: f64| if min > 0.0 { x >= min } else { x > 0.0 };
    let max = if dimension.is_time() { LONGEST_S } else { LARGEST };
    let (at, wrong) = match *law {
        Variable::Uniform { a, b } if a >= b => (1, Some("above the lower end".to_owned())),
        Variable::Uniform { a, b } => {
            let share = (b - min.max(a)) / (b - a);
            (1, (share < 0.01).then(|| format!("so far up that one draw in a hundred is {at_least}")))
        }
        Variable::Normal { mean, sd } | Variable::Lognormal { mean, sd } => match (usable(mean), sd > 0.0) {
            (false, _) => (0, Some(at_least)),
            (true, sd) => (1, (!sd).then(|| "above 0".to_owned())),
        },
        Variable::Exponential { mean } => (0, (!usable(mean)).then_some(at_least)),
        Variable::Pareto { shape, min } => match (shape > 0.0, usable(min)) {
            (false, _) => (0, Some("above 0".to_owned())),
            (true, min) => (1, (!min).then_some(at_least)),
        },
        Variable::Weibull { scale, shape } | Variable::Gamma { scale, shape } => {
            match (usable(scale), shape > 0.0) {
                (false, _) => (0, Some(at_least)),
                (true, shape) => (1, (!shape).then(|| "above 0".to_owned())),
            }
        }
        Variable::Extreme { b, .. } => (1, (b <= 0.0).then(|| "above 0".to_owned())),
        Variable::Beta { shape1, .. } if shape1 <= 0.0 => (0, Some("above 0".to_owned())),
        Variable::Beta { shape2, .. } if shape2 <= 0.0 => (1, Some("above 0".to_owned())),
        Variable::Beta { max, .. } => (2, (!usable(max)).then_some(at_least)),
        // The others are checked where their parts are read.
        _ => (0, None),
    };
    let scale = match *law {
        Variable::Uniform { b, .. } => b,
        Variable::Pareto { min, .. } => min,
        Variable::Weibull { scale, .. } | Variable::Gamma { scale, .. } => scale,
        Variable::Extreme { a, b } => a.max(b),
        Variable::Beta { max, .. } => max,
        Variable::Normal { mean, sd } | Variable::Lognormal { mean, sd } => mean.max(sd),
        Variable::Exponential { mean } => mean,
        _ => 0.0,
    };
    let wrong = wrong.or((scale > max).then(|| "smaller than that".to_owned()));
    // What the sampler itself would refuse: the last word is its own.
    let refused = Law::new(law.clone(), min).err().map(|error| (0, error.to_string()));
    let Some((at, wanted)) = wrong.map(|w| (at, format!("`{}` {w}", names[at]))).or(refused) else {
        return Some(());
    };
    let error = Diagnostic::error(values[at].location, format!("`{}` cannot be this", names[at]));
    cx.refuse(error.label(format!("expected {wanted}")))
}

/// The numbers of a file, one a line, or the first column of a CSV; a first line without a number is its heading.
fn empirical(cx: &mut Context<'_>, value: &Value, dimension: Dimension) -> Option<Variable> {
    let part = single(cx, value, "a file name")?;
    if part.kind != PartKind::Text {
        let error = Diagnostic::error(part.location, "expected a file name in quotes");
        return cx.refuse(error.label("expected `\"FILE\"`"));
    }
    match (cx.files)(&part.text).and_then(|text| sample(&text, dimension)) {
        Ok(values) => Some(Variable::Empirical { file: part.text.clone(), values }),
        Err(cause) => {
            let message = format!("cannot use `{}`: {cause}", shorten(&part.text));
            let error = Diagnostic::error(part.location, message);
            cx.refuse(error.label("expected a file with one number a line"))
        }
    }
}

/// Reads, scales, checks and sorts the numbers of an empirical file.
fn sample(text: &str, dimension: Dimension) -> Result<Arc<[f64]>, FileError> {
    let (_, times, over) = dimension.bare().unwrap_or(("", 1.0, 1.0));
    let max = if dimension.is_time() { LONGEST_S } else { LARGEST };
    let mut values = Vec::new();
    let lines =
        text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty() && !l.trim_start().starts_with('#'));
    for (position, (line, content)) in lines.enumerate() {
        let field = content.split([',', ';', '\t']).next().unwrap_or_default().trim().trim_matches('"');
        let value = match field.parse::<f64>() {
            Ok(value) => value * times / over,
            Err(_) if position == 0 => continue,
            Err(_) => return Err(FileError::NotANumber(line + 1)),
        };
        if !value.is_finite() || value < dimension.min() || value > max {
            return Err(FileError::OutOfRange(line + 1));
        }
        values.push(value + 0.0);
    }
    if values.is_empty() {
        return Err(FileError::NoNumber);
    }
    if !dimension.may_be_zero() && values.iter().all(|value| *value == 0.0) {
        return Err(FileError::AllZero);
    }
    values.sort_by(f64::total_cmp);
    Ok(values.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_units_part() {
        assert_eq!(split_number("10Mb/s"), Some((10.0, "Mb/s")));
        assert_eq!(split_number("1e-4"), Some((1e-4, "")));
        assert_eq!(split_number("1e+4ms"), Some((1e4, "ms")));
        assert_eq!(split_number("5min"), Some((5.0, "min")));
        assert_eq!(split_number("-1.5kB"), Some((-1.5, "kB")));
        assert_eq!(split_number("204.235.71.130"), Some((204.235, ".71.130")));
        assert_eq!(split_number("1exabyte"), Some((1.0, "exabyte")));
        assert_eq!(split_number("word"), None);
        assert_eq!(split_number("/s"), None);
    }

    #[test]
    fn a_file_of_numbers_is_read() {
        let of = |text: &str| sample(text, Dimension::Period).map(|v| v.to_vec()).map_err(|e| e.to_string());
        assert_eq!(of("gap_us,note\n# later\n2000, x\n\n1000\n"), Ok(vec![0.001, 0.002]));
        assert_eq!(of("1000\nx\n"), Err("line 2 is not a number".into()));
        assert_eq!(of("1000\n-1\n"), Err("line 2 is out of range".into()));
        assert_eq!(of("1000\ninf\n"), Err("line 2 is out of range".into()));
        assert!(of("").is_err());
        assert!(of("0\n0\n").is_err());
        assert!(sample("0.5\n", Dimension::Size).is_err());
    }
}
