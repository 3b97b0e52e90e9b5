//! Timestamps and their error estimates (RFC 8762 section 4.2.1).

use std::time::Duration;

use trunkline_units::{Instant, Span};

/// Seconds from 1900, where NTP begins, to 1970.
const NTP_OFFSET_S: u64 = 2_208_988_800;
const NS_PER_S: u64 = 1_000_000_000;
const PS_PER_S: u128 = 1_000_000_000_000;

/// A reading of both clocks of a host at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// The monotonic clock, for round trips and rates.
    pub at: Instant,
    /// The wall clock since 1970, for timestamps.
    pub unix: Duration,
    /// The maximum error of the wall clock relative to UTC; `None` if it is not synchronized.
    pub utc_error: Option<Span>,
}

/// The format of timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Seconds since 1900 and binary fractions (RFC 5905 section 6), the default of RFC 8762.
    #[default]
    Ntp,
    /// Truncated PTPv2: seconds and nanoseconds (RFC 8186 section 2.1). The seconds are those of UTC since 1970, as a host
    /// without a PTP clock has no others.
    Ptp,
}

/// A timestamp of 64 bits. Its format is in the error estimate beside it. It repeats after 136 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Encodes a time since 1970.
    pub fn new(unix: Duration, format: Format) -> Timestamp {
        let (seconds, ns) = (unix.as_secs(), u64::from(unix.subsec_nanos()));
        let (seconds, fraction) = match format {
            Format::Ntp => (seconds.wrapping_add(NTP_OFFSET_S), (ns << 32) / NS_PER_S),
            Format::Ptp => (seconds, ns),
        };
        Timestamp(seconds << 32 | fraction)
    }

    /// Decodes the time since 1970, in the period of 136 years around `near`. Rounded to a nanosecond. `None` if the
    /// nanoseconds of PTP exceed a second, or the time is before 1970.
    pub fn unix(self, format: Format, near: Duration) -> Option<Duration> {
        let (seconds, fraction) = (self.0 >> 32, self.0 & u64::from(u32::MAX));
        let (offset, ns) = match format {
            Format::Ntp => (NTP_OFFSET_S, (fraction * NS_PER_S + (1 << 31)) >> 32),
            Format::Ptp if fraction < NS_PER_S => (0, fraction),
            Format::Ptp => return None,
        };
        let near_seconds = near.as_secs().checked_add(offset)?;
        // The low 32 bits of the difference, with their sign, choose the period.
        let difference = i64::from(seconds.wrapping_sub(near_seconds) as u32 as i32);
        let seconds = near_seconds.checked_add_signed(difference)?.checked_sub(offset)?;
        Duration::from_secs(seconds).checked_add(Duration::from_nanos(ns))
    }
}

/// An error estimate (RFC 4656 section 4.1.2, RFC 8186 section 2.3), with the format of its timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorEstimate {
    /// The S flag: the clock is synchronized to UTC by an external source.
    pub synchronized: bool,
    /// The Z flag.
    pub format: Format,
    /// Exponent, 0 to 63. The error is `multiplier × 2^(scale − 32)` seconds.
    pub scale: u8,
    /// Factor; 0 is invalid.
    pub multiplier: u8,
}

const S_FLAG: u16 = 1 << 15;
const Z_FLAG: u16 = 1 << 14;

impl ErrorEstimate {
    /// Returns the estimate of a clock with this maximum error, rounded up; the smallest one for a clock that is not
    /// synchronized, whose error is unknown.
    pub fn new(utc_error: Option<Span>, format: Format) -> ErrorEstimate {
        let fractions =
            utc_error.map_or(1, |error| (u128::from(error.as_ps()) << 32).div_ceil(PS_PER_S)).max(1);
        let mut scale = 0;
        while fractions.div_ceil(1 << scale) > u128::from(u8::MAX) {
            scale += 1;
        }
        let multiplier = fractions.div_ceil(1 << scale) as u8;
        ErrorEstimate { synchronized: utc_error.is_some(), format, scale, multiplier }
    }

    /// Decodes the field.
    pub fn from_bits(bits: u16) -> ErrorEstimate {
        ErrorEstimate {
            synchronized: bits & S_FLAG != 0,
            format: if bits & Z_FLAG != 0 { Format::Ptp } else { Format::Ntp },
            scale: (bits >> 8) as u8 & 63,
            multiplier: bits as u8,
        }
    }

    /// Encodes the field.
    pub fn to_bits(self) -> u16 {
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        flag(self.synchronized, S_FLAG)
            | flag(self.format == Format::Ptp, Z_FLAG)
            | u16::from(self.scale & 63) << 8
            | u16::from(self.multiplier)
    }

    /// Returns the maximum error relative to UTC, rounded up. `None` if the clock is not synchronized or the estimate is
    /// invalid.
    pub fn utc_error(self) -> Option<Span> {
        if !self.synchronized || self.multiplier == 0 {
            return None;
        }
        let ps = (u128::from(self.multiplier) * PS_PER_S) << self.scale;
        Some(Span::from_ps(u64::try_from(ps.div_ceil(1 << 32)).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn timestamps_have_the_published_values() {
        // RFC 5905 figure 4: 1 January 1970 is second 2,208,988,800 of era 0; 8 February 2036 begins era 1.
        assert_eq!(Timestamp::new(Duration::ZERO, Format::Ntp), Timestamp(2_208_988_800 << 32));
        assert_eq!(Timestamp::new(Duration::from_secs(2_085_978_496), Format::Ntp), Timestamp(0));
        let half = Duration::from_millis(500);
        assert_eq!(Timestamp::new(half, Format::Ntp).0 as u32, 1 << 31);
        assert_eq!(Timestamp::new(half, Format::Ptp), Timestamp(500_000_000));
        assert_eq!(Timestamp(1_000_000_000).unix(Format::Ptp, half), None);
    }

    #[test]
    fn errors_have_the_published_formula() {
        let estimate = |bits| ErrorEstimate::from_bits(bits).utc_error();
        assert_eq!(estimate(0x8000 | 32 << 8 | 1), Some(Span::from_s(1)));
        assert_eq!(estimate(0x8000 | 22 << 8 | 200), Some(Span::from_ps(195_312_500_000)));
        assert_eq!(estimate(0x8001), Some(Span::from_ps(233)), "2^-32 s, rounded up");
        assert_eq!(estimate(0xffff), Some(Span::MAX));
        assert_eq!(estimate(0x7fff), None, "not synchronized");
        assert_eq!(estimate(0xa000), None, "the multiplier must not be 0");
        assert_eq!(ErrorEstimate::new(None, Format::Ptp).to_bits(), 0x4001);
    }

    fn format() -> impl Strategy<Value = Format> {
        prop_oneof![Just(Format::Ntp), Just(Format::Ptp)]
    }

    proptest! {
        #[test]
        fn timestamps_keep_nanoseconds(
            near in 0u64..1 << 36, distance in -(1i64 << 31) + 1..(1 << 31) - 1, ns in 0u32..1_000_000_000, format in format(),
        ) {
            if let Some(seconds) = near.checked_add_signed(distance) {
                let unix = Duration::new(seconds, ns);
                prop_assert_eq!(Timestamp::new(unix, format).unix(format, Duration::from_secs(near)), Some(unix));
            }
        }

        #[test]
        fn estimates_are_not_below_the_error(ps in any::<u64>(), format in format()) {
            let estimate = ErrorEstimate::new(Some(Span::from_ps(ps)), format);
            let back = estimate.utc_error().unwrap();
            prop_assert!(back.as_ps() >= ps);
            // 8 bits of precision, above the smallest unit.
            prop_assert!(back.as_ps() <= (ps.saturating_add(ps / 127)).max(ps.saturating_add(234)), "{back} for {ps} ps");
            prop_assert_eq!(ErrorEstimate::from_bits(estimate.to_bits()), estimate);
        }

        #[test]
        fn any_field_decodes(bits in any::<u16>(), timestamp in any::<u64>(), near in any::<u64>(), format in format()) {
            let estimate = ErrorEstimate::from_bits(bits);
            prop_assert_eq!(estimate.to_bits(), bits);
            estimate.utc_error();
            Timestamp(timestamp).unix(format, Duration::from_secs(near));
        }
    }
}
