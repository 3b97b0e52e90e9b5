//! Token bucket: a rate and a burst that frames keep, of a shaper or a policer (RFC 2697 with one colour).

use trunkline_units::{Instant, Rate, Size, Span};

/// A rate and a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRate {
    /// Rate of bytes of [`Frame::length`](trunkline_endpoint::Frame::length), without framing; not zero.
    pub rate: Rate,
    /// Capacity of the bucket in bytes. A longer frame takes a full bucket and leaves a debt.
    pub burst: u64,
}

/// A bucket, which is full at first. In any time t it lets at most rate · t + burst bytes pass.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    limits: TokenRate,
    /// When it is full again.
    full_at: Instant,
}

impl TokenBucket {
    /// Creates a full bucket.
    pub fn new(limits: TokenRate) -> Self {
        TokenBucket { limits, full_at: Instant::ZERO }
    }

    /// Returns when there are tokens for `length` bytes.
    pub fn ready_at(&self, length: u32) -> Instant {
        let spare = self.limits.burst.saturating_sub(length.into());
        let ps = u128::from(spare) * 8_000_000_000_000 / u128::from(self.limits.rate.as_bps());
        let span = Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX));
        Instant::from_ps(self.full_at.as_ps().saturating_sub(span.as_ps()))
    }

    /// Takes the tokens of `length` bytes.
    pub fn take(&mut self, now: Instant, length: u32) {
        self.full_at = self.full_at.max(now) + self.limits.rate.time_for(Size::from_bytes(length.into()));
    }
}
