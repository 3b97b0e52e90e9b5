//! Transmission times at a rate, exact over any number of frames.

use trunkline_units::{Instant, Rate, Span};

/// Picoseconds of eight bits at one bit per second.
const BYTE_AT_1_BPS: u64 = 8_000_000_000_000;

/// A transmitter of one frame after the other. Its end time is kept in fractions of a picosecond, so a long stream
/// keeps its rate exactly; reported times are rounded up to a picosecond.
#[derive(Clone, Debug)]
pub struct Serializer {
    /// A byte takes `scale / divisor` picoseconds.
    scale: u64,
    divisor: u64,
    /// First picosecond in which it is idle.
    free_at: Instant,
    /// Rounding remainder: idle exactly at `free_at - (divisor - 1 - remainder) / divisor`.
    remainder: u64,
}

impl Serializer {
    /// # Panics
    /// At rate zero.
    pub fn new(rate: Rate) -> Self {
        assert!(rate.as_bps() > 0, "a line has a rate");
        let common = gcd(BYTE_AT_1_BPS, rate.as_bps());
        let divisor = rate.as_bps() / common;
        Serializer { scale: BYTE_AT_1_BPS / common, divisor, free_at: Instant::ZERO, remainder: divisor - 1 }
    }

    /// Returns the first picosecond in which it is idle.
    #[inline]
    pub fn free_at(&self) -> Instant {
        self.free_at
    }

    /// Transmits `bytes` at `from` or when idle, whichever is later; returns when the last bit has left. A
    /// transmission that begins in the picosecond in which it becomes idle follows without a gap.
    #[inline]
    pub fn transmit(&mut self, from: Instant, bytes: u64) -> Instant {
        if from > self.free_at {
            (self.free_at, self.remainder) = (from, self.divisor - 1);
        }
        let (whole, remainder) =
            match bytes.checked_mul(self.scale).and_then(|n| n.checked_add(self.remainder)) {
                // The common case needs no division, which would dominate the cost.
                Some(n) if self.divisor == 1 => (n, 0),
                Some(n) => (n / self.divisor, n % self.divisor),
                None => self.slow_path(bytes),
            };
        (self.free_at, self.remainder) = (self.free_at + Span::from_ps(whole), remainder);
        self.free_at
    }

    /// For frames of millions of bytes.
    #[cold]
    fn slow_path(&self, bytes: u64) -> (u64, u64) {
        let n = u128::from(bytes) * u128::from(self.scale) + u128::from(self.remainder);
        let divisor = u128::from(self.divisor);
        (u64::try_from(n / divisor).unwrap_or(u64::MAX), (n % divisor) as u64)
    }
}

/// Returns the duration of `bits`, rounded up to a picosecond.
pub fn bit_times(rate: Rate, bits: u32) -> Span {
    let ps = (u128::from(bits) * 1_000_000_000_000).div_ceil(u128::from(rate.as_bps().max(1)));
    Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
}

const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OC3: Rate = Rate::from_bps(149_760_000);

    #[test]
    fn a_stream_does_not_drift() {
        let mut line = Serializer::new(OC3);
        let mut last = Instant::ZERO;
        for _ in 0..353_208 {
            last = line.transmit(Instant::ZERO, 53);
        }
        // 353,208 cells of 424 bits at 149.76 Mb/s, rounded up once and not each time.
        let bits = 353_208u128 * 424 * 1_000_000_000_000;
        assert_eq!(u128::from(last.as_ps()), bits.div_ceil(149_760_000));
    }

    #[test]
    fn an_idle_transmitter_has_no_remainder() {
        let mut line = Serializer::new(OC3);
        let first = line.transmit(Instant::ZERO, 53);
        assert_eq!(first, Instant::from_ps(2_831_197));
        let later = Instant::from_ns(1_000_000);
        assert_eq!(line.transmit(later, 53).since(later), first.since(Instant::ZERO));
    }

    #[test]
    fn long_frames_and_slow_lines() {
        let mut line = Serializer::new(Rate::from_bps(7));
        let last = line.transmit(Instant::ZERO, 3_000_000);
        assert_eq!(u128::from(last.as_ps()), (24_000_000u128 * 1_000_000_000_000).div_ceil(7));
        assert_eq!(line.transmit(Instant::ZERO, u64::MAX), Instant::MAX);
    }
}
