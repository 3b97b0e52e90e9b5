//! Sizes and rates.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Span;

/// Bits per byte times picoseconds per second.
const BIT_PS: u64 = 8 * 1_000_000_000_000;

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Size(u64);

/// A rate in bits per second, with decimal prefixes (1 Mb/s = 10⁶ b/s).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(u64);

impl Size {
    /// Creates a size of `n` bytes.
    pub const fn from_bytes(n: u64) -> Self {
        Size(n)
    }

    /// Returns the bytes.
    pub const fn as_bytes(self) -> u64 {
        self.0
    }

    /// Returns the bits; saturates.
    pub const fn as_bits(self) -> u64 {
        self.0.saturating_mul(8)
    }
}

impl Rate {
    /// Creates a rate of `n` bits per second.
    pub const fn from_bps(n: u64) -> Self {
        Rate(n)
    }

    /// Returns the bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Returns the rate at which `size` is transferred in `time`, rounded down; zero time gives zero.
    pub fn of(size: Size, time: Span) -> Rate {
        if time.is_zero() {
            return Rate(0);
        }
        if let Some(scaled) = size.0.checked_mul(BIT_PS) {
            return Rate(scaled / time.as_ps());
        }
        let bps = u128::from(size.0) * u128::from(BIT_PS) / u128::from(time.as_ps());
        Rate(u64::try_from(bps).unwrap_or(u64::MAX))
    }

    /// Returns the time that `size` takes at this rate, rounded up to a picosecond; [`Span::MAX`] at rate zero.
    #[inline]
    pub fn time_for(self, size: Size) -> Span {
        if self.0 == 0 {
            return Span::MAX;
        }
        if let Some(scaled) = size.0.checked_mul(BIT_PS) {
            return Span::from_ps(scaled.div_ceil(self.0));
        }
        let ps = (u128::from(size.0) * u128::from(BIT_PS)).div_ceil(u128::from(self.0));
        Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
    }
}

/// Writes `value / unit name` with at most three decimals and no trailing zeros.
pub(crate) fn write_scaled(f: &mut fmt::Formatter<'_>, value: u64, unit: u64, name: &str) -> fmt::Result {
    let scaled = value as f64 / unit as f64;
    let text = format!("{scaled:.3}");
    f.pad(&format!("{} {name}", text.trim_end_matches('0').trim_end_matches('.')))
}

/// Decimal units: `18.432 kB`, `1.5 kB`.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            n if n < 1_000 => (1, "B"),
            n if n < 1_000_000 => (1_000, "kB"),
            n if n < 1_000_000_000 => (1_000_000, "MB"),
            _ => (1_000_000_000, "GB"),
        };
        write_scaled(f, self.0, unit, name)
    }
}

/// Decimal units: `36.864 Mb/s`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            n if n < 1_000 => (1, "b/s"),
            n if n < 1_000_000 => (1_000, "kb/s"),
            n if n < 1_000_000_000 => (1_000_000, "Mb/s"),
            _ => (1_000_000_000, "Gb/s"),
        };
        write_scaled(f, self.0, unit, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates_are_formatted() {
        assert_eq!(Size::from_bytes(18_432).to_string(), "18.432 kB");
        assert_eq!(Size::from_bytes(999).to_string(), "999 B");
        assert_eq!(Rate::from_bps(36_864_000).to_string(), "36.864 Mb/s");
        assert_eq!(Rate::from_bps(10_000_000_000).to_string(), "10 Gb/s");
    }

    #[test]
    fn the_64_bit_and_128_bit_paths_agree() {
        // The first size whose bits times picoseconds exceed 64 bits is 2,305,844.
        for bytes in [1, 77, 2_305_842, 2_305_843, 2_305_844, 2_305_845, 1 << 40] {
            for by in [1, 3, 999_999_937, 1 << 50] {
                let scaled = u128::from(bytes) * 8_000_000_000_000;
                let (down, up) = (scaled / u128::from(by), scaled.div_ceil(u128::from(by)));
                let [down, up] = [down, up].map(|n| u64::try_from(n).unwrap_or(u64::MAX));
                assert_eq!(Rate::of(Size::from_bytes(bytes), Span::from_ps(by)), Rate(down));
                assert_eq!(Rate(by).time_for(Size::from_bytes(bytes)), Span::from_ps(up));
            }
        }
    }

    #[test]
    fn a_rate_and_its_time_agree() {
        // One ATM cell on OC-3c (149.76 Mb/s of cells) lasts 2.8312 µs.
        let cell = Rate::from_bps(149_760_000).time_for(Size::from_bytes(53));
        assert_eq!(cell, Span::from_ps(2_831_197));
        assert_eq!(Rate::of(Size::from_bytes(1250), Span::from_us(100)), Rate::from_bps(100_000_000));
        assert_eq!(Rate::of(Size::from_bytes(1), Span::ZERO), Rate::from_bps(0));
        assert_eq!(Rate::from_bps(0).time_for(Size::from_bytes(1)), Span::MAX);
    }
}
