//! Time in integer picoseconds: an OC-3c cell lasts 2.8312 µs, which is no whole number of nanoseconds.

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

use serde::{Deserialize, Serialize};

/// Picoseconds in a nanosecond, a microsecond, a millisecond and a second.
const NS: u64 = 1_000;
const US: u64 = 1_000 * NS;
const MS: u64 = 1_000 * US;
const S: u64 = 1_000 * MS;

/// An instant of a run: picoseconds since its start. Covers 213 days; arithmetic saturates at both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Instant(u64);

/// A duration in picoseconds. Arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Span(u64);

impl Instant {
    /// The start of the run.
    pub const ZERO: Instant = Instant(0);
    /// The last instant that can be represented: "never".
    pub const MAX: Instant = Instant(u64::MAX);

    /// Creates the instant `ps` picoseconds after the start.
    #[inline]
    pub const fn from_ps(ps: u64) -> Self {
        Instant(ps)
    }

    /// Creates the instant `ns` nanoseconds after the start.
    #[inline]
    pub const fn from_ns(ns: u64) -> Self {
        Instant(ns.saturating_mul(NS))
    }

    /// Returns the picoseconds since the start.
    #[inline]
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Returns the whole nanoseconds since the start, rounded down.
    #[inline]
    pub const fn as_ns(self) -> u64 {
        self.0 / NS
    }

    /// Returns the seconds since the start, for reports.
    #[inline]
    pub fn as_s(self) -> f64 {
        self.0 as f64 / S as f64
    }

    /// Returns the time from `earlier` to `self`; zero if `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Instant) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// Zero.
    pub const ZERO: Span = Span(0);
    /// The longest span that can be represented.
    pub const MAX: Span = Span(u64::MAX);

    /// Creates a span of `ps` picoseconds.
    #[inline]
    pub const fn from_ps(ps: u64) -> Self {
        Span(ps)
    }

    /// Creates a span of `ns` nanoseconds.
    #[inline]
    pub const fn from_ns(ns: u64) -> Self {
        Span(ns.saturating_mul(NS))
    }

    /// Creates a span of `us` microseconds.
    #[inline]
    pub const fn from_us(us: u64) -> Self {
        Span(us.saturating_mul(US))
    }

    /// Creates a span of `ms` milliseconds.
    #[inline]
    pub const fn from_ms(ms: u64) -> Self {
        Span(ms.saturating_mul(MS))
    }

    /// Creates a span of `s` seconds.
    #[inline]
    pub const fn from_s(s: u64) -> Self {
        Span(s.saturating_mul(S))
    }

    /// Creates a span of `seconds`, rounded to the nearest picosecond. A negative number or NaN gives zero, too large
    /// a number gives the maximum.
    #[inline]
    pub fn from_seconds(seconds: f64) -> Self {
        // `as` saturates and turns NaN into 0.
        Span((seconds * S as f64).round() as u64)
    }

    /// Returns the picoseconds.
    #[inline]
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Returns the whole nanoseconds, rounded down.
    #[inline]
    pub const fn as_ns(self) -> u64 {
        self.0 / NS
    }

    /// Returns the microseconds, for reports.
    #[inline]
    pub fn as_us(self) -> f64 {
        self.0 as f64 / US as f64
    }

    /// Returns the seconds, for reports.
    #[inline]
    pub fn as_s(self) -> f64 {
        self.0 as f64 / S as f64
    }

    /// Returns whether the span is zero.
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl From<std::time::Duration> for Span {
    #[inline]
    fn from(d: std::time::Duration) -> Self {
        Span(u64::try_from(d.as_nanos()).map_or(u64::MAX, |ns| ns.saturating_mul(NS)))
    }
}

impl From<Span> for std::time::Duration {
    fn from(s: Span) -> Self {
        std::time::Duration::from_nanos(s.as_ns())
    }
}

impl Add<Span> for Instant {
    type Output = Instant;
    #[inline]
    fn add(self, s: Span) -> Instant {
        Instant(self.0.saturating_add(s.0))
    }
}

impl AddAssign<Span> for Instant {
    #[inline]
    fn add_assign(&mut self, s: Span) {
        *self = *self + s;
    }
}

impl Sub<Span> for Instant {
    type Output = Instant;
    #[inline]
    fn sub(self, s: Span) -> Instant {
        Instant(self.0.saturating_sub(s.0))
    }
}

impl Add for Span {
    type Output = Span;
    #[inline]
    fn add(self, s: Span) -> Span {
        Span(self.0.saturating_add(s.0))
    }
}

impl AddAssign for Span {
    #[inline]
    fn add_assign(&mut self, s: Span) {
        *self = *self + s;
    }
}

impl Sub for Span {
    type Output = Span;
    #[inline]
    fn sub(self, s: Span) -> Span {
        Span(self.0.saturating_sub(s.0))
    }
}

impl SubAssign for Span {
    #[inline]
    fn sub_assign(&mut self, s: Span) {
        *self = *self - s;
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    #[inline]
    fn mul(self, n: u64) -> Span {
        Span(self.0.saturating_mul(n))
    }
}

impl Div<u64> for Span {
    type Output = Span;
    #[inline]
    fn div(self, n: u64) -> Span {
        Span(self.0 / n)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Span(self.0).fmt(f)
    }
}

/// Uses the largest unit in which the value is at least one, with at most three decimals: `2.831 us`, `1 min`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0 => (S, "s"),
            n if n < NS => (1, "ps"),
            n if n < US => (NS, "ns"),
            n if n < MS => (US, "us"),
            n if n < S => (MS, "ms"),
            n if n >= 3600 * S && n.is_multiple_of(60 * S) => (3600 * S, "h"),
            n if n >= 60 * S && n.is_multiple_of(S) => (60 * S, "min"),
            _ => (S, "s"),
        };
        crate::amount::write_scaled(f, self.0, unit, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_formatted() {
        for (span, text) in [
            (Span::ZERO, "0 s"),
            (Span::from_ps(2_831_200), "2.831 us"),
            (Span::from_ps(999), "999 ps"),
            (Span::from_ms(20), "20 ms"),
            (Span::from_s(90), "1.5 min"),
            (Span::from_s(100), "1.667 min"),
            (Span::from_s(5400), "1.5 h"),
            (Span::from_seconds(61.5), "61.5 s"),
        ] {
            assert_eq!(span.to_string(), text);
        }
    }

    #[test]
    fn arithmetic_saturates_and_rounds() {
        assert_eq!(Span::from_seconds(0.02), Span::from_ms(20));
        assert_eq!(Span::from_seconds(-1.0), Span::ZERO);
        assert_eq!(Span::from_seconds(f64::NAN), Span::ZERO);
        assert_eq!(Span::from_seconds(f64::INFINITY), Span::MAX);
        assert_eq!(Instant::MAX + Span::from_ps(1), Instant::MAX);
        assert_eq!(Instant::from_ns(1).since(Instant::from_ns(2)), Span::ZERO);
        assert_eq!(Span::from(std::time::Duration::from_micros(3)), Span::from_us(3));
    }
}
