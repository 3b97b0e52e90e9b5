//! A limit of the rate at which senders hand over messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use trunkline_units::{Instant, Rate, Span};

/// How far messages may be ahead of the limit: less would delay the messages of a late wakeup.
const TOLERANCE: Span = Span::from_ms(2);

/// Bytes of the trailer of AAL5, of the payload of a cell and of a cell.
const AAL5_TRAILER: u64 = 8;
const CELL_PAYLOAD: u64 = 48;
const CELL: u64 = 53;

/// A limit of the sum of the rates of all senders that share it.
#[derive(Clone, Debug)]
pub struct RateLimit {
    bps: Arc<AtomicU64>,
    /// Bytes of headers of a message in cells; `None` if only its own bytes count.
    headers_in_cells: Option<u64>,
    /// When everything sent so far would have left at the limit, in picoseconds.
    earliest_ps: Arc<AtomicU64>,
    has_delayed: Arc<AtomicBool>,
}

impl RateLimit {
    /// Limits the rate to `bps` bit/s of messages, apart from a burst of 2 ms and one message, or one batch, of each sender.
    pub fn new(bps: u64) -> RateLimit {
        RateLimit::create(Rate::from_bps(bps.max(1)), None)
    }

    /// Limits the rate of the cells of messages, each of which has `headers` bytes more than its own in an AAL5 packet; a rate of
    /// zero stops them.
    pub fn in_cells(rate: Rate, headers: u64) -> RateLimit {
        RateLimit::create(rate, Some(headers))
    }

    fn create(rate: Rate, headers_in_cells: Option<u64>) -> RateLimit {
        RateLimit {
            bps: Arc::new(AtomicU64::new(rate.as_bps())),
            headers_in_cells,
            earliest_ps: Arc::default(),
            has_delayed: Arc::default(),
        }
    }

    /// Changes the rate. What was sent before counts at the new rate, too.
    pub fn set_rate(&self, rate: Rate, now: Instant) {
        let before = self.bps.swap(rate.as_bps(), Ordering::Relaxed);
        let rescale = |earliest: u64| {
            let ahead = u128::from(earliest.saturating_sub(now.as_ps())) * u128::from(before);
            let ahead = ahead.checked_div(u128::from(rate.as_bps())).unwrap_or(0);
            Some(now.as_ps().saturating_add(u64::try_from(ahead).unwrap_or(u64::MAX)))
        };
        let _ = self.earliest_ps.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rescale);
    }

    /// Returns until when the limit forbids to send, if it does at `now`.
    pub fn wait(&self, now: Instant) -> Option<Instant> {
        if self.bps() == 0 {
            return Some(now + TOLERANCE);
        }
        let earliest = Instant::from_ps(self.earliest_ps.load(Ordering::Relaxed));
        let is_ahead = earliest > now + TOLERANCE;
        if is_ahead {
            self.has_delayed.store(true, Ordering::Relaxed);
        }
        is_ahead.then(|| earliest - TOLERANCE)
    }

    /// Returns the limit in bit/s.
    pub fn bps(&self) -> u64 {
        self.bps.load(Ordering::Relaxed)
    }

    /// Returns whether a sender had to wait.
    pub fn has_delayed(&self) -> bool {
        self.has_delayed.load(Ordering::Relaxed)
    }

    /// Records that `count` messages of `bytes` together are sent at `now`.
    pub fn record_messages(&self, bytes: u64, count: u64, now: Instant) {
        let bytes = match self.headers_in_cells {
            Some(headers) if count > 0 => {
                let packet = bytes.div_ceil(count) + headers + AAL5_TRAILER;
                count * packet.div_ceil(CELL_PAYLOAD) * CELL
            }
            _ => bytes,
        };
        self.record(bytes, now);
    }

    /// Records that `bytes` were sent at `now`.
    pub fn record(&self, bytes: u64, now: Instant) {
        let ps = u128::from(bytes) * 8 * 1_000_000_000_000 / u128::from(self.bps().max(1));
        let ps = u64::try_from(ps).unwrap_or(u64::MAX);
        let advance = |earliest: u64| Some(earliest.max(now.as_ps()).saturating_add(ps));
        let _ = self.earliest_ps.fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_rate_counts_for_what_was_sent_before() {
        let at = |ms| Instant::ZERO + Span::from_ms(ms);
        let limit = RateLimit::in_cells(Rate::default(), 132);
        assert_eq!(limit.wait(at(0)), Some(at(2)), "a rate of zero stops everything");
        limit.set_rate(Rate::from_bps(1_000_000), at(0));
        assert_eq!(limit.wait(at(0)), None);
        // 1,000 + 132 + 8 bytes are 24 cells, so two messages last 20.352 ms.
        limit.record_messages(2_000, 2, at(0));
        let us = |us| Some(Instant::ZERO + Span::from_us(us));
        assert_eq!(limit.wait(at(0)), us(18_352));
        limit.set_rate(Rate::from_bps(2_000_000), at(0));
        assert_eq!(limit.wait(at(0)), us(8_176));
        limit.set_rate(Rate::from_bps(500_000), at(5));
        assert_eq!(limit.wait(at(5)), us(23_704));
    }
}
