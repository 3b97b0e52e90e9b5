//! A limit of the rate at which senders hand over messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use trunkline_units::{Instant, Span};

/// How far messages may be ahead of the limit: less would delay the messages of a late wakeup.
const TOLERANCE: Span = Span::from_ms(2);

/// A limit of the sum of the rates of all senders that share it.
#[derive(Clone, Debug)]
pub struct RateLimit {
    bps: u64,
    /// When everything sent so far would have left at the limit, in picoseconds.
    earliest_ps: Arc<AtomicU64>,
    has_delayed: Arc<AtomicBool>,
}

impl RateLimit {
    /// Limits the rate to `bps` bit/s of messages, apart from a burst of 2 ms and one message, or one batch, of each sender.
    pub fn new(bps: u64) -> RateLimit {
        RateLimit { bps: bps.max(1), earliest_ps: Arc::default(), has_delayed: Arc::default() }
    }

    /// Returns until when the limit forbids to send, if it does at `now`.
    pub fn wait(&self, now: Instant) -> Option<Instant> {
        let earliest = Instant::from_ps(self.earliest_ps.load(Ordering::Relaxed));
        let is_ahead = earliest > now + TOLERANCE;
        if is_ahead {
            self.has_delayed.store(true, Ordering::Relaxed);
        }
        is_ahead.then(|| earliest - TOLERANCE)
    }

    /// Returns the limit in bit/s.
    pub fn bps(&self) -> u64 {
        self.bps
    }

    /// Returns whether a sender had to wait.
    pub fn has_delayed(&self) -> bool {
        self.has_delayed.load(Ordering::Relaxed)
    }

    /// Records that `bytes` were sent at `now`.
    pub fn record(&self, bytes: u64, now: Instant) {
        let ps = u128::from(bytes) * 8 * 1_000_000_000_000 / u128::from(self.bps);
        let ps = u64::try_from(ps).unwrap_or(u64::MAX);
        let advance = |earliest: u64| Some(earliest.max(now.as_ps()).saturating_add(ps));
        let _ = self.earliest_ps.fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance);
    }
}
