//! Paced sending that leaves TCP its share: the lesser window of [`Paced`] and of CUBIC.
//!
//! Full queues reduce CUBIC's window, as they reduce that of TCP; random loss does not. A loss is random if the round-trip
//! time shows no queue. If the peer sends as well, acknowledgements wait in its queue and the round-trip time shows nothing,
//! so the limit of CUBIC is lifted.

use trunkline_units::{Instant, Rate, Span};

use super::{LOSS_RTT_DIVISOR, MIN_WINDOW, Paced};
use crate::{Acknowledgement, Bounds, Controller, Cubic, Loss, Transmission};

/// Maximum part of a round trip that counts as waiting for acknowledgements: less than half of the queue that CoDel leaves
/// (RFC 8289: 5 ms).
const MAX_ACK_WAIT: Span = Span::from_ms(2);

/// Less than the target of CoDel.
const SHORT_QUEUE: Span = Span::from_ms(4);

/// [`Paced`], with at most the window that CUBIC would have.
#[derive(Clone, Debug)]
pub struct TcpFriendly {
    paced: Paced,
    cubic: Cubic,
    /// CUBIC's window was the limit at the last acknowledgement.
    is_limited: bool,
    /// The last round-trip sample.
    round_trip: Span,
}

impl TcpFriendly {
    /// Creates a controller with a maximum window, for a peer that acknowledges at least every `ack_every` frames.
    pub fn new(max_window: u32, ack_every: u32) -> TcpFriendly {
        TcpFriendly {
            paced: Paced::new(max_window, ack_every),
            cubic: Cubic::new(Bounds::new(1, max_window)),
            is_limited: false,
            round_trip: Span::ZERO,
        }
    }

    /// Returns the frames of a queue that is no congestion. On a short path, pauses of an end look like a queue.
    fn short_window(&self) -> u32 {
        let frames = self.paced.full_rate() * SHORT_QUEUE.as_s() / self.paced.frame_bits();
        // The cast saturates.
        frames.max(MIN_WINDOW) as u32
    }

    /// Returns whether the last round trip shows a queue.
    fn is_queued(&self) -> bool {
        let paced = &self.paced;
        let min_rtt = paced.min_rtt.get().unwrap_or(Span::ZERO);
        let late_frames = paced.late_ack_frames() + paced.mean_batch;
        let ack_wait = Span::from_seconds(late_frames * paced.frame_bits() / paced.full_rate().max(1.0));
        self.round_trip > min_rtt + min_rtt / LOSS_RTT_DIVISOR + ack_wait.min(MAX_ACK_WAIT)
    }
}

impl Controller for TcpFriendly {
    fn window(&self) -> u32 {
        let window = self.paced.window();
        match self.paced.inputs.peer_sends {
            true => window,
            false => window.min(self.cubic.window().max(self.short_window())),
        }
    }

    fn pace(&self) -> Option<Rate> {
        self.paced.pace()
    }

    fn on_handshake(&mut self, now: Instant, round_trip: Span) {
        self.paced.on_handshake(now, round_trip);
    }

    fn on_sent(&mut self, sent: &Transmission) {
        self.paced.on_sent(sent);
    }

    fn on_ack(&mut self, acked: &Acknowledgement) -> bool {
        let mut has_changed = self.paced.on_ack(acked);
        self.round_trip = acked.round_trip.unwrap_or(self.round_trip);
        let window = self.cubic.window();
        // Frames whose acknowledgements are late count as in flight.
        let is_limited = acked.in_flight.saturating_add(self.paced.inputs.late_ack_frames as u32) >= window;
        if is_limited {
            if !self.is_limited {
                // Time in which the window was not used does not count.
                self.cubic.on_sent(&Transmission { now: acked.now, amount: 0, bytes: 0, in_flight: 0 });
            }
            self.cubic.on_ack(&Acknowledgement { in_flight: window, ..*acked });
            has_changed |= self.cubic.window() != window;
        }
        self.is_limited = is_limited;
        has_changed
    }

    fn on_lost(&mut self, lost: &Loss) {
        self.paced.on_lost(lost);
        if self.is_queued() && !self.paced.inputs.peer_sends {
            // After a timeout the window of `paced` is minimal until the next acknowledgement.
            self.cubic.on_lost(&Loss { timeout: false, ..*lost });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledges 10,000 frames of a sender with 200 in flight, one each 100 us, after a round trip of 20 ms; then 100 more
    /// and three losses after another one. Returns the windows of the controller before and after the losses, and that of
    /// `Paced`.
    fn windows(last_ms: u64, peer_amount: u32) -> (u32, u32, u32) {
        let mut friendly = TcpFriendly::new(1 << 20, 16);
        let mut now = Instant::ZERO;
        for frame in 0..10_100 {
            now += Span::from_us(100);
            let round_trip = Span::from_ms(if frame < 10_000 { 20 } else { last_ms });
            friendly.on_ack(&Acknowledgement {
                now,
                amount: 1,
                bytes: 1472,
                marked: 0,
                in_flight: 200,
                round_trip: Some(round_trip),
                rate: Some(Rate::from_bps(8 * 14_720_000)),
                app_limited: false,
                in_recovery: false,
                peer_amount,
                sent_at: Instant::from_ps(now.as_ps().saturating_sub(round_trip.as_ps())),
                since_sent: crate::SinceSent::default(),
            });
        }
        let before = friendly.window();
        for _ in 0..3 {
            now += Span::from_ms(100);
            friendly.on_lost(&Loss {
                now,
                amount: 1,
                bytes: 1472,
                sent_at: now,
                in_flight: 200,
                timeout: false,
                since_sent: crate::SinceSent::default(),
            });
        }
        (before, friendly.window(), friendly.paced.window())
    }

    #[test]
    fn only_losses_of_a_queue_limit_the_window() {
        let (before, random, _) = windows(20, 0);
        assert_eq!(random, before);
        let (before, full, _) = windows(30, 0);
        // CUBIC's factor, three times.
        assert!(full * 2 < before && full * 4 > before, "{full} after {before}");
        let (_, both_ways, paced) = windows(30, 1);
        assert_eq!(both_ways, paced);
    }
}
