//! Moments as people write them.

use trunkline_counters::counter::Moment;

/// Now, by the clock of the wall.
pub fn now() -> Moment {
    Moment(i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX))
}

/// A moment: RFC 3339, or seconds since 1970 with at most nine digits behind the point, to the nanosecond.
pub fn moment(text: &str) -> Option<Moment> {
    let text = text.trim();
    match seconds(text) {
        None if text.contains(':') => {
            i64::try_from(text.parse::<jiff::Timestamp>().ok()?.as_nanosecond()).ok().map(Moment)
        }
        found => found,
    }
}

/// Digits, and perhaps a point and more digits; of those behind the ninth nothing is kept.
fn seconds(text: &str) -> Option<Moment> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let are_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || whole.len() > 10 || !are_digits(whole) || !are_digits(part) {
        return None;
    }
    let part: String = part.chars().chain("000000000".chars()).take(9).collect();
    let ns = whole.parse::<i64>().ok()?.checked_mul(1_000_000_000)?.checked_add(part.parse::<i64>().ok()?)?;
    Some(Moment(if negative { -ns } else { ns }))
}

/// A moment as RFC 3339, UTC.
pub fn written(moment: Moment) -> String {
    jiff::Timestamp::from_nanosecond(moment.0.into()).map_or_else(|_| moment.0.to_string(), |t| t.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_to_the_nanosecond() {
        for (text, ns) in [
            ("0", 0),
            ("1763811234.123456789", 1_763_811_234_123_456_789),
            ("1763811234.5", 1_763_811_234_500_000_000),
            ("-1.25", -1_250_000_000),
            ("1970-01-01T00:00:01.5Z", 1_500_000_000),
            ("1970-01-01T01:00:00+01:00", 0),
        ] {
            assert_eq!(moment(text), Some(Moment(ns)), "{text}");
        }
        for text in ["", "x", "1e9", "99999999999", "1.2.3", "-", ".5", "9999999999.0", "1:2"] {
            assert_eq!(moment(text), None, "{text}");
        }
        assert_eq!(written(Moment(1_500_000_000)), "1970-01-01T00:00:01.5Z");
    }
}
