//! Acknowledgements at once, as Linux sends them: of the first segments of a connection, of each while its receiver widens the
//! window that it advertises, and of those with the flag PSH. Only other ones are delayed. Of segments out of order, those after
//! the third are acknowledged together (`tcp_comp_sack_delay_ns`).
//!
//! Linux widens the window by two segments for each that arrives, up to a limit that follows what a round trip delivers (dynamic
//! right-sizing). The window of this TCP is the whole buffer from the start; only the decision to acknowledge follows the other.

use trunkline_units::{Instant, Span};

use crate::Content;
use crate::extensions::Extensions;
use crate::extensions::receiver::timestamp;
use crate::segment::Seq;
use crate::tcp::Tcp;
use crate::time::OFF;

/// Segments at the start that are acknowledged one by one.
const FIRST_SEGMENTS: u32 = 16;
/// The window that Linux advertises first, and its limit until a round trip has delivered more than the initial window
/// (`net.ipv4.tcp_rmem`, the second value), in bytes.
const FIRST_WINDOW: u64 = 65_535;
const FIRST_LIMIT: u64 = 81_920;
/// Segments that a round trip is assumed to deliver first.
const FIRST_DELIVERY: u32 = 10;

/// Acknowledgements of segments out of order that leave at once (`TCP_FASTRETRANS_THRESH`), and the most that one replaces
/// (`tcp_comp_sack_nr`).
const FIRST_DUPLICATES: u32 = 3;
const MAX_COMPRESSED: u32 = 44;
/// How long the others wait: this part of a round-trip time, at most a millisecond.
const COMPRESSION_PART: u64 = 20;
const MAX_COMPRESSION: Span = Span::from_ms(1);

/// The window that a receiver as Linux would advertise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuickAck {
    first: u32,
    /// The window (`rcv_ssthresh`) and its limit (`window_clamp`), in bytes.
    window: u64,
    limit: u64,
    /// The most bytes that a round trip has delivered; 0: none yet.
    delivered: u64,
    /// Since when deliveries are counted, and the number that was expected next then.
    since: (Instant, Seq),
    /// Smoothed round-trip time of the receiver, and the last echo that it was measured by.
    round_trip: Option<Span>,
    last_echo: u32,
    /// Duplicate acknowledgements of this number, and how many the next one replaces.
    duplicates: (Seq, u32),
    compressed: u32,
}

impl Default for QuickAck {
    fn default() -> Self {
        QuickAck {
            first: FIRST_SEGMENTS,
            window: FIRST_WINDOW,
            limit: FIRST_LIMIT,
            delivered: 0,
            since: (Instant::ZERO, Seq(0)),
            round_trip: None,
            last_echo: 0,
            duplicates: (Seq(0), 0),
            compressed: 0,
        }
    }
}

impl QuickAck {
    /// Measures the round trip from an acknowledgement to the data that it permitted, by the echo of its timestamp.
    fn measure(&mut self, now: Instant, echo: u32) {
        let ms = timestamp(now).wrapping_sub(echo);
        if echo == 0 || echo == self.last_echo || ms >= 1 << 31 {
            return;
        }
        self.last_echo = echo;
        let sample = Span::from_ms(u64::from(ms).max(1));
        self.round_trip = Some(match self.round_trip {
            Some(mean) if sample >= mean => mean - mean / 8 + sample / 8,
            _ => sample,
        });
    }

    /// Raises the limit once a round trip has delivered more than any before: twice that, and by its growth twice more, as the
    /// sender may double its window in the next one. `ahead` is what has arrived out of order, as far as it reaches.
    fn adjust(&mut self, now: Instant, next: Seq, ahead: u32, mss: u32) {
        let (since, from) = self.since;
        if self.delivered == 0 {
            (self.delivered, self.since) = (u64::from(FIRST_DELIVERY * mss), (now, next));
            return;
        }
        if self.round_trip.is_none_or(|round_trip| now.since(since) < round_trip) {
            return;
        }
        let delivered = u64::from(next.since(from));
        if delivered > self.delivered {
            let twice = 2 * delivered;
            let growth = twice.saturating_mul(delivered - self.delivered) / self.delivered;
            self.limit = self.limit.max(twice + 2 * growth + u64::from(ahead));
            self.delivered = delivered;
        }
        self.since = (now, next);
    }

    /// Returns whether the acknowledgement of a segment out of order waits for others, while `next` is expected.
    fn compresses(&mut self, next: Seq) -> bool {
        if self.duplicates.0 != next {
            self.duplicates = (next, 0);
        }
        if self.window < self.limit || self.first > 0 || self.compressed >= MAX_COMPRESSED {
            return false;
        }
        let is_early = self.duplicates.1 < FIRST_DUPLICATES;
        self.duplicates.1 += u32::from(is_early);
        self.compressed += u32::from(!is_early);
        !is_early
    }

    /// Processes a segment of so many bytes; returns whether to acknowledge it at once.
    fn is_due(&mut self, length: u32) -> bool {
        let grows = self.window < self.limit;
        if grows {
            self.window = (self.window + 2 * u64::from(length)).min(self.limit);
        }
        let is_first = self.first > 0;
        self.first = self.first.saturating_sub(1);
        grows || is_first
    }
}

impl<C: Content> Tcp<C> {
    /// Returns whether the acknowledgement of a segment out of order waits for others, and sets its time.
    #[cold]
    pub(crate) fn compress_ack(&mut self, now: Instant) -> bool {
        let (next, handshake) = (self.rcv_nxt, self.time.span(self.rtt.mean_eighths()) / 8);
        let is_waiting = self.deadlines.acknowledge != OFF;
        let Some(Extensions { quick_ack: Some(quick_ack), sack: true, .. }) = self.extensions.as_deref_mut()
        else {
            return false;
        };
        if !is_waiting {
            quick_ack.compressed = 0;
        }
        if !quick_ack.compresses(next) {
            return false;
        }
        let round_trip = quick_ack.round_trip.map_or(handshake, |round_trip| match handshake.is_zero() {
            true => round_trip,
            false => round_trip.min(handshake),
        });
        let at = now + (round_trip / COMPRESSION_PART).min(MAX_COMPRESSION);
        self.deadlines.acknowledge = self.deadlines.acknowledge.min(at);
        true
    }

    /// Acknowledges a segment with so much data at once if Linux would.
    #[inline(never)]
    pub(crate) fn acknowledge_quickly(&mut self, now: Instant, length: u32, push: bool) {
        let (mss, next, buffer) = (self.maxseg, self.rcv_nxt, self.options.receive_buffer);
        let ahead = self.ranges.iter().last().map_or(0, |(_, end)| end.since(next));
        let Some(Extensions { quick_ack: Some(quick_ack), received, .. }) = self.extensions.as_deref_mut()
        else {
            return;
        };
        if let Some((_, echo)) = received.timestamps.filter(|_| length >= mss) {
            quick_ack.measure(now, echo);
        }
        quick_ack.adjust(now, next, ahead, mss);
        quick_ack.limit = quick_ack.limit.min(buffer.into());
        if (quick_ack.is_due(length) || push) && next != self.last_ack_sent {
            self.request_ack();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1_448;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Span::from_ms(ms)
    }

    /// The bytes that each round trip delivered in a transfer between two kernels, and the limits that they printed
    /// (`tracepoint:tcp:tcp_rcvbuf_grow`: `copied`, `window_clamp`).
    #[test]
    fn limit_is_that_of_linux() {
        let mut quick_ack = QuickAck { round_trip: Some(Span::from_ms(40)), ..QuickAck::default() };
        let mut next = Seq(1);
        quick_ack.adjust(at(0), next, 0, MSS);
        let delivered = [15_928, 28_960, 57_920, 124_528];
        let limits = [81_920, 152_697, 347_520, 821_883];
        for (n, (delivered, limit)) in (1..).zip(delivered.into_iter().zip(limits)) {
            // Less than a round trip later.
            quick_ack.adjust(at(40 * n - 1), next + delivered / 2, 0, MSS);
            next = next + delivered;
            quick_ack.adjust(at(40 * n), next, 0, MSS);
            assert!(quick_ack.limit.abs_diff(limit) <= 1, "{} instead of {limit}", quick_ack.limit);
        }
        // A hole is filled, or not more is delivered.
        quick_ack.adjust(at(200), next + 100_000, 50_000, MSS);
        assert!(quick_ack.limit.abs_diff(821_883) <= 1);
    }

    #[test]
    fn window_widens_by_two_segments_for_each() {
        let mut quick_ack = QuickAck { limit: FIRST_WINDOW + 40 * u64::from(MSS), ..QuickAck::default() };
        let due = (0..30).take_while(|_| quick_ack.is_due(MSS)).count();
        assert_eq!(due, 20);
        let mut first = QuickAck { limit: 0, ..QuickAck::default() };
        assert_eq!((0..30).take_while(|_| first.is_due(MSS)).count(), 16);
    }

    /// After three, up to 44 wait for one; a new number begins anew.
    #[test]
    fn later_duplicates_are_compressed() {
        let mut quick_ack = QuickAck { first: 0, limit: 0, ..QuickAck::default() };
        let waiting = (0..50).map(|_| quick_ack.compresses(Seq(7))).collect::<Vec<_>>();
        assert_eq!(waiting.iter().position(|waits| *waits), Some(3));
        assert_eq!(waiting.iter().filter(|waits| **waits).count(), 44);
        assert!(!quick_ack.compresses(Seq(9)));
        let mut widening = QuickAck { first: 0, ..QuickAck::default() };
        assert!((0..9).all(|_| !widening.compresses(Seq(7))));
    }

    /// A longer round trip counts by an eighth, a shorter one at once, and each echo once.
    #[test]
    fn round_trip_follows_echoes() {
        let mut quick_ack = QuickAck::default();
        let samples =
            [(100, 60, 40), (110, 60, 40), (110, 62, 41), (111, 81, 30)].map(|(now, echo, expected)| {
                quick_ack.measure(at(now), echo);
                (quick_ack.round_trip, Some(Span::from_ms(expected)))
            });
        assert!(samples.iter().all(|(is, expected)| is == expected), "{samples:?}");
    }
}
