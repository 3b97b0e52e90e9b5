//! Parsers of flag values that several commands share.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeBounds;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use trunkline_arq::torture::Blackhole;
use trunkline_units::Span;

use super::Shard;

/// The units of a duration and their nanoseconds, the largest first.
const UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Nanoseconds of a number with a unit; NaN for anything else.
fn nanoseconds(text: &str) -> f64 {
    let digits = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = UNITS.iter().find(|(name, _)| *name == unit.trim());
    match (number.trim().parse::<f64>(), unit) {
        (Ok(number), Some((_, ns))) => (number * *ns as f64).round(),
        _ => f64::NAN,
    }
}

/// Parses a duration from 0 to one hour, such as `20ms`.
pub fn span(text: &str) -> Result<Span, String> {
    match nanoseconds(text) {
        ns if (0.0..=3.6e12).contains(&ns) => Ok(Span::from_ns(ns as u64)),
        _ => Err("expected a duration such as 20ms, at most 1h".into()),
    }
}

/// Parses a part of a whole, such as `3/8`, from `1/N` to `N/N`.
pub fn shard(text: &str) -> Result<Shard, String> {
    let parse =
        |(index, count): (&str, &str)| Some((index.parse::<usize>().ok()?, count.parse::<usize>().ok()?));
    match text.split_once('/').and_then(parse) {
        Some((index, count)) if (1..=count).contains(&index) => Ok(Shard { index: index - 1, count }),
        _ => Err("expected a part and their number, from 1/N to N/N".into()),
    }
}

/// Splits a number from the unit after it.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let number = text[..unit].trim().parse::<f64>().ok()?;
    Some((number, text[unit..].trim()))
}

const RATE: &str = "expected a rate such as 10M or 10Mb/s, from 1 b/s to 1000 Gb/s";

/// Parses a rate in bits per second, from 1 b/s to 1 Tb/s.
pub fn rate(text: &str) -> Result<u64, String> {
    bits_per_second(text).filter(|bps| (1.0..=1e12).contains(bps)).map(|bps| bps as u64).ok_or(RATE.into())
}

/// Parses a rate in bits per second as [`rate`], or 0.
pub fn rate_or_zero(text: &str) -> Result<u64, String> {
    if bits_per_second(text) == Some(0.0) {
        Ok(0)
    } else {
        rate(text).map_err(|error| format!("{error}, or 0"))
    }
}

fn bits_per_second(text: &str) -> Option<f64> {
    let (number, unit) = number_and_unit(text)?;
    let scale = match unit {
        "" | "b/s" => 1.0,
        "K" | "k" | "kb/s" => 1e3,
        "M" | "m" | "Mb/s" => 1e6,
        "G" | "g" | "Gb/s" => 1e9,
        _ => return None,
    };
    Some(number * scale)
}

/// Parses a number of bytes, from 1 B to 1 PB.
pub fn size(text: &str) -> Result<u64, String> {
    let expected = "expected a size such as 1400, 128K, 128KiB or 128kB";
    let (number, unit) = number_and_unit(text).ok_or(expected)?;
    let scale = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1_048_576.0,
        "g" | "gib" => 1_073_741_824.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        _ => return Err(expected.into()),
    };
    in_range((number * scale).round(), 1.0..=1e15, expected).map(|bytes| bytes as u64)
}

/// Returns a value of a range, or what is expected.
pub fn in_range<T: PartialOrd>(value: T, range: impl RangeBounds<T>, expected: &str) -> Result<T, String> {
    if range.contains(&value) { Ok(value) } else { Err(expected.into()) }
}

/// Parses a duration above 0, at most one hour.
pub fn positive_span(text: &str) -> Result<Span, String> {
    in_range(span(text)?, Span::from_ns(1).., "expected a duration above 0s")
}

/// Parses a duration from one nanosecond to 200 days, such as `15min`.
pub fn long_span(text: &str) -> Result<Span, String> {
    match nanoseconds(text) {
        ns if (1.0..=1.728e16).contains(&ns) => Ok(Span::from_ns(ns as u64)),
        _ => Err("expected a duration such as 15s, 15min or 1h".into()),
    }
}

/// Parses the length of a measurement: a duration above 0, at most ten minutes. A number without a unit is in seconds.
pub fn measurement_span(text: &str) -> Result<Span, String> {
    let ns = text.trim().parse::<f64>().map_or_else(|_| nanoseconds(text), |seconds| seconds * 1e9);
    match ns {
        ns if ns > 0.0 && ns <= 600e9 => Ok(Span::from_seconds(ns / 1e9)),
        _ => Err("expected a duration above 0s, at most 10min".into()),
    }
}

/// Formats a duration as [`span`] parses it.
pub fn format_span(span: Span) -> String {
    let ns = span.as_ns();
    let units = UNITS.into_iter().skip_while(|(unit, _)| *unit != "s");
    let (unit, of) = units.into_iter().find(|(_, of)| ns.is_multiple_of(*of)).unwrap_or(("ns", 1));
    format!("{}{unit}", ns / of)
}

/// Parses a fraction from 0 to 1.
pub fn fraction(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(fraction) if (0.0..=1.0).contains(&fraction) => Ok(fraction),
        _ => Err("expected a fraction from 0 to 1".into()),
    }
}

/// A word of a flag, its meaning for the help, and its value.
pub type Word<T> = (&'static str, &'static str, T);

/// Returns the word of a value.
pub fn word_of<T: PartialEq>(words: &[Word<T>], value: T) -> String {
    words.iter().filter(|(_, _, known)| *known == value).map(|(word, ..)| *word).collect()
}

/// Parses one of these words, which the help lists with their meanings.
pub fn one_of<T: Copy + Send + Sync + 'static>(
    words: impl IntoIterator<Item = Word<T>>,
) -> impl TypedValueParser<Value = T> {
    let words: Vec<_> = words.into_iter().collect();
    let values = words.iter().map(|(word, help, _)| PossibleValue::new(word).help(*help));
    PossibleValuesParser::new(values).map(move |word| {
        let found = words.iter().find(|(name, ..)| *name == word);
        found.expect("clap accepts only these words").2
    })
}

/// Parses `NAME=VALUE`.
pub fn name_value(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    if name.trim().is_empty() {
        return Err("expected a name before `=`".into());
    }
    Ok((name.trim().into(), value.trim().into()))
}

/// Where a host of a live run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// On this machine, at this address.
    Address(IpAddr),
    /// On the agent with this name in the key store.
    Agent(String),
}

/// As [`placement`] parses it, without the name of the host.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::Address(address) => address.fmt(f),
            Placement::Agent(agent) => write!(f, "agent:{agent}"),
        }
    }
}

/// Parses `NAME=ADDRESS` or `NAME=agent:AGENT`.
pub fn placement(text: &str) -> Result<(String, Placement), String> {
    let (name, location) = name_value(text)?;
    if let Some(agent) = location.strip_prefix("agent:") {
        return Ok((name, Placement::Agent(agent.into())));
    }
    let bare = location.trim_start_matches('[').trim_end_matches(']');
    let wrong = || format!("`{location}` is no IPv4 or IPv6 address; an agent is `agent:NAME`");
    Ok((name, Placement::Address(bare.parse().map_err(|_| wrong())?)))
}

/// Parses `PERIOD:LENGTH` of an outage that repeats.
pub fn blackhole(text: &str) -> Result<Blackhole, String> {
    let (every, lasts) = text.split_once(':').ok_or("expected PERIOD:LENGTH, such as 1s:200ms")?;
    let (every, lasts) = (span(every)?, span(lasts)?);
    if every.is_zero() { Err("the period must be above 0s".into()) } else { Ok(Blackhole { every, lasts }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        assert_eq!(long_span("15min"), Ok(Span::from_s(900)));
        assert_eq!(long_span("0.5 s"), Ok(Span::from_ms(500)));
        assert_eq!(long_span("1h"), Ok(Span::from_s(3600)));
        for wrong in ["", "15", "s", "0s", "-1s", "1 fortnight", "1e40s", "nan s"] {
            assert!(long_span(wrong).is_err(), "{wrong}");
        }
        assert_eq!(span("1min"), Ok(Span::from_s(60)));
        assert!(span("61min").is_err() && positive_span("0s").is_err());
        assert_eq!(measurement_span("0.05"), measurement_span("50ms"));
        for wrong in ["0", "601", "-1", "nan", "inf", "11min", "s"] {
            assert!(measurement_span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn formatted_durations_parse_to_themselves() {
        for ns in [0, 1, 1_500, 20_000_000, 1_000_000_000, 3_600_000_000_000] {
            assert_eq!(span(&format_span(Span::from_ns(ns))), Ok(Span::from_ns(ns)));
        }
    }
}
