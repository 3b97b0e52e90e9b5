//! Times in units of 2⁻⁶⁴ picoseconds.
//!
//! A cell of 424 bits rarely lasts a whole number of picoseconds. Its duration is rounded down to 2⁻⁶⁴ ps, and
//! reported times are rounded up to a whole picosecond. Reported times are exact while fewer than 2⁶⁴ / rate cells
//! follow without a gap (four days at OC-3c), because an exact time that is not whole lies at least 1/rate
//! picoseconds past a whole one.

use trunkline_units::{Instant, Rate, Span};

/// A time since the start of the run, or a duration, with a resolution of 2⁻⁶⁴ picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FineTime(u128);

const SHIFT: u32 = 64;
const PS_PER_S: u128 = 1_000_000_000_000;

impl FineTime {
    pub(crate) const ZERO: FineTime = FineTime(0);
    /// Never; a whole picosecond, so that no time is later.
    pub(crate) const MAX: FineTime = FineTime((u64::MAX as u128) << SHIFT);
    /// One picosecond.
    pub(crate) const PS: FineTime = FineTime(1 << SHIFT);

    #[inline]
    pub(crate) const fn from_instant(instant: Instant) -> FineTime {
        FineTime((instant.as_ps() as u128) << SHIFT)
    }

    #[inline]
    pub(crate) const fn from_span(span: Span) -> FineTime {
        FineTime((span.as_ps() as u128) << SHIFT)
    }

    /// Returns the duration of `bits` at `rate`; a rate of zero counts as 1 b/s.
    pub(crate) fn for_bits(bits: u64, rate: Rate) -> FineTime {
        let rate = (rate.as_bps() as u128).max(1);
        let scaled = bits as u128 * PS_PER_S;
        FineTime(((scaled / rate) << SHIFT) | (((scaled % rate) << SHIFT) / rate))
    }

    /// Rounds up to a whole picosecond.
    #[inline]
    pub(crate) const fn ceil(self) -> Instant {
        let whole = (self.0 >> SHIFT) as u64;
        // Wraps only in the last picosecond of 213 days.
        Instant::from_ps(whole.wrapping_add((self.0 as u64 != 0) as u64))
    }

    /// Rounds down to whole picoseconds.
    #[inline]
    pub(crate) const fn floor(self) -> Span {
        Span::from_ps((self.0 >> SHIFT) as u64)
    }

    /// Saturates at the last representable time.
    #[inline]
    pub(crate) const fn plus(self, other: FineTime) -> FineTime {
        match self.0.checked_add(other.0) {
            Some(sum) => FineTime(sum),
            None => FineTime::MAX,
        }
    }

    /// Saturates at zero.
    #[inline]
    pub(crate) const fn minus(self, other: FineTime) -> FineTime {
        FineTime(self.0.saturating_sub(other.0))
    }

    #[inline]
    pub(crate) const fn times(self, count: u64) -> FineTime {
        match self.0.checked_mul(count as u128) {
            Some(product) => FineTime(product),
            None => FineTime::MAX,
        }
    }

    /// Returns the quotient, rounded down.
    pub(crate) const fn div_floor(self, divisor: FineTime) -> u64 {
        match self.0.checked_div(divisor.0) {
            Some(count) => count as u64,
            None => u64::MAX,
        }
    }

    /// Returns the quotient, rounded up.
    pub(crate) const fn div_ceil(self, divisor: FineTime) -> u64 {
        if divisor.0 == 0 {
            return 0;
        }
        self.0.div_ceil(divisor.0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_units::Seed;

    #[test]
    fn cells_in_a_row_do_not_drift() {
        let mut stream = Seed(1).stream("fine");
        let rates = [149_760_000, 40_704_000, 599_040_000, 100_000_000, 69_999_999, 1_000_003, 9_999_999_967];
        for rate in rates {
            let cell = FineTime::for_bits(424, Rate::from_bps(rate));
            let mut now = FineTime::ZERO;
            for cells in 1..100_000u128 {
                now = now.plus(cell);
                let exact = (424 * PS_PER_S * cells).div_ceil(u128::from(rate));
                assert_eq!(u128::from(now.ceil().as_ps()), exact, "{cells} cells at {rate}");
            }
            // Far beyond that.
            let far = stream.below(1 << 30);
            let exact = (424 * PS_PER_S * u128::from(far)).div_ceil(u128::from(rate));
            assert_eq!(u128::from(cell.times(far).ceil().as_ps()), exact, "{far} cells at {rate}");
            assert_eq!(cell.times(far).div_ceil(cell), far);
        }
    }
}
