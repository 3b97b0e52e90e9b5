//! Values as the language writes them, so that they are read back as the same values.

use trunkline_traffic::{Burst, Variable};
use trunkline_units::{Rate, Size, Span};

use super::quantity::Dimension;
use crate::plan::Amount;
use crate::token::quoted;

/// A number, or a random variable whose parameters carry the same unit.
pub(crate) fn variable(value: &Variable, dimension: Dimension) -> String {
    let unit = |value: f64| number(value, dimension.base());
    let of_part = |part: &Variable| variable(part, dimension);
    let bounded = |name: &str, of: &Variable, min: f64, max: f64| {
        format!("{name}({}, {}, {})", of_part(of), unit(min), unit(max))
    };
    match value {
        Variable::Constant(value) => unit(*value),
        Variable::Uniform { a, b } => format!("uniform({}, {})", unit(*a), unit(*b)),
        Variable::Exponential { mean } => format!("exponential({})", unit(*mean)),
        Variable::Normal { mean, sd } => format!("normal({}, {})", unit(*mean), unit(*sd)),
        Variable::Lognormal { mean, sd } => format!("lognormal({}, {})", unit(*mean), unit(*sd)),
        Variable::Pareto { shape, min } => format!("pareto({shape}, {})", unit(*min)),
        Variable::Weibull { scale, shape } => format!("weibull({}, {shape})", unit(*scale)),
        Variable::Extreme { a, b } => format!("extreme({}, {})", unit(*a), unit(*b)),
        Variable::Gamma { scale, shape } => format!("gamma({}, {shape})", unit(*scale)),
        Variable::Beta { shape1, shape2, max } => format!("beta({shape1}, {shape2}, {})", unit(*max)),
        Variable::Empirical { file, .. } => format!("empirical({})", quoted(file)),
        Variable::List { values } => values.iter().map(|value| unit(*value)).collect::<Vec<_>>().join(" : "),
        Variable::Truncated { of, min, max } => bounded("truncated", of, *min, *max),
        Variable::Clamped { of, min, max } => bounded("clamped", of, *min, *max),
        Variable::Mixture { share, first, second } => {
            format!("mixture({share}, {}, {})", of_part(first), of_part(second))
        }
    }
}

/// `SIZE` or `SIZE:COUNT`.
pub(crate) fn burst(burst: &Burst) -> String {
    let size = variable(&burst.size_bytes, Dimension::Size);
    match burst.count {
        Variable::Constant(1.0) => size,
        _ => format!("{size}:{}", variable(&burst.count, Dimension::Count)),
    }
}

/// `RATE : RATE : …`
pub(crate) fn steps(rates: &[Variable]) -> String {
    let rates: Vec<_> = rates.iter().map(|rate| variable(rate, Dimension::Rate)).collect();
    rates.join(" : ")
}

/// A number in a base unit, as [`base_number`](super::quantity::base_number) names them.
pub(crate) fn number(value: f64, base: &str) -> String {
    match base {
        "B" => bytes(value),
        "s" => seconds(value),
        "b/s" => bits(value),
        "" => value.to_string(),
        unit => format!("{value} {unit}"),
    }
}

/// Seconds in the largest unit that makes them whole and is read back as the same number.
fn seconds(value: f64) -> String {
    const UNITS: [(&str, f64); 5] = [("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9), ("ps", 1e12)];
    let exact =
        UNITS.iter().find(|(_, over)| (value * over).round() / over == value && (value * over).abs() < 1e15);
    match exact {
        Some((unit, over)) => format!("{} {unit}", (value * over).round()),
        None => format!("{value} s"),
    }
}

/// Bits per second in the largest unit that stays short and is read back as the same number.
fn bits(value: f64) -> String {
    const UNITS: [(&str, f64); 3] = [("Gb/s", 1e9), ("Mb/s", 1e6), ("kb/s", 1e3)];
    let fits = |times: f64| {
        value >= times && (value / times) * times == value && (value / times).to_string().len() <= 8
    };
    match UNITS.iter().find(|(_, times)| fits(*times)) {
        Some((unit, times)) => format!("{} {unit}", value / times),
        None => format!("{value} b/s"),
    }
}

/// Bytes, in thousands only where they are round.
fn bytes(value: f64) -> String {
    const UNITS: [(&str, f64); 3] = [("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    match UNITS
        .iter()
        .find(|(_, times)| value >= 10_000.0 && value >= *times && (value / times).fract() == 0.0)
    {
        Some((unit, times)) => format!("{} {unit}", value / times),
        None => format!("{value} B"),
    }
}

pub(crate) fn size(size: &Size) -> String {
    bytes(size.as_bytes() as f64)
}

pub(crate) fn rate(rate: &Rate) -> String {
    bits(rate.as_bps() as f64)
}

/// A span in the largest unit that makes it whole.
pub(crate) fn span(span: &Span) -> String {
    const UNITS: [(&str, u64); 4] =
        [("s", 1_000_000_000_000), ("ms", 1_000_000_000), ("us", 1_000_000), ("ns", 1_000)];
    match UNITS.iter().find(|(_, ps)| span.as_ps().is_multiple_of(*ps)) {
        Some((unit, ps)) => format!("{} {unit}", span.as_ps() / ps),
        None => format!("{} ps", span.as_ps()),
    }
}

pub(crate) fn amount(amount: &Amount) -> String {
    match amount {
        Amount::Bytes(n) => bytes(*n as f64),
        Amount::Cells(n) => format!("{n} cells"),
        Amount::Packets(n) => format!("{n} packets"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well_and_read_back() {
        assert_eq!(seconds(0.02), "20 ms");
        assert_eq!(seconds(100.0), "100 s");
        assert_eq!(seconds(0.0), "0 s");
        assert_eq!(seconds(0.0025), "2500 us");
        assert_eq!(seconds(1.0 / 3.0), "0.3333333333333333 s");
        assert_eq!(bits(149_760_000.0), "149.76 Mb/s");
        assert_eq!(bits(10e9), "10 Gb/s");
        assert_eq!(bits(12_345.678_9), "12345.6789 b/s");
        assert_eq!(bytes(65_536.0), "65536 B");
        assert_eq!(bytes(128_000.0), "128 kB");
        assert_eq!(span(&Span::from_ps(2_831_200)), "2831200 ps");
        assert_eq!(span(&Span::from_s(90)), "90 s");
    }
}
