//! Parsing and formatting of times.

use trunkline_counters::counter::Timestamp;

/// Returns the current time of the wall clock.
pub fn now() -> Timestamp {
    Timestamp(i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX))
}

/// Parses a time: RFC 3339, or seconds since 1970 with nanosecond precision.
pub fn parse_moment(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    match seconds(text) {
        None if text.contains(':') => {
            i64::try_from(text.parse::<jiff::Timestamp>().ok()?.as_nanosecond()).ok().map(Timestamp)
        }
        found => found,
    }
}

/// Parses seconds with an optional fraction, of which nine digits count.
fn seconds(text: &str) -> Option<Timestamp> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (integer, part) = digits.split_once('.').unwrap_or((digits, ""));
    let are_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if integer.is_empty() || integer.len() > 10 || !are_digits(integer) || !are_digits(part) {
        return None;
    }
    let part: String = part.chars().chain("000000000".chars()).take(9).collect();
    let ns =
        integer.parse::<i64>().ok()?.checked_mul(1_000_000_000)?.checked_add(part.parse::<i64>().ok()?)?;
    Some(Timestamp(if negative { -ns } else { ns }))
}

/// Formats a time as RFC 3339, in UTC.
pub fn format_moment(moment: Timestamp) -> String {
    jiff::Timestamp::from_nanosecond(moment.0.into()).map_or_else(|_| moment.0.to_string(), |t| t.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_to_the_nanosecond() {
        for (text, ns) in [
            ("0", 0),
            ("1763811234.123456789", 1_763_811_234_123_456_789),
            ("1763811234.5", 1_763_811_234_500_000_000),
            ("-1.25", -1_250_000_000),
            ("1970-01-01T00:00:01.5Z", 1_500_000_000),
            ("1970-01-01T01:00:00+01:00", 0),
        ] {
            assert_eq!(parse_moment(text), Some(Timestamp(ns)), "{text}");
        }
        for text in ["", "x", "1e9", "99999999999", "1.2.3", "-", ".5", "9999999999.0", "1:2"] {
            assert_eq!(parse_moment(text), None, "{text}");
        }
        assert_eq!(format_moment(Timestamp(1_500_000_000)), "1970-01-01T00:00:01.5Z");
    }
}
