//! DCTCP (RFC 8257).

use trunkline_units::Instant;

use crate::{Acknowledgement, Bounds, Controller, Loss, Reno};

/// Weight of a new sample of the share of marked data (RFC 8257 section 4.2).
const GAIN: f64 = 1.0 / 16.0;

/// Data Center TCP: growth as [`Reno`], but marks reduce the window by half of their share, so that a small queue marks
/// often and reduces little. A loss halves the window.
///
/// It needs exact feedback: [`Acknowledgement::marked`] must be the amount that was marked.
#[derive(Clone, Copy, Debug)]
pub struct Dctcp {
    reno: Reno,
    /// Estimated share of marked data (`DCTCP.Alpha`).
    alpha: f64,
    /// Acknowledged and marked amounts of the observation window, and its start. It ends at the acknowledgement of data sent
    /// after the start.
    acked: u64,
    marked: u64,
    window_started_at: Instant,
}

impl Dctcp {
    /// Creates a controller with the initial window and a share of 1 (RFC 8257 section 4.2).
    pub fn new(bounds: Bounds) -> Dctcp {
        Dctcp { reno: Reno::new(bounds), alpha: 1.0, acked: 0, marked: 0, window_started_at: Instant::ZERO }
    }
}

impl Controller for Dctcp {
    fn window(&self) -> u32 {
        self.reno.window()
    }

    fn threshold(&self) -> Option<u32> {
        self.reno.threshold()
    }

    fn set_threshold(&mut self, amount: u32) {
        self.reno.set_threshold(amount);
    }

    fn on_ack(&mut self, acked: &Acknowledgement) -> bool {
        self.acked += u64::from(acked.amount);
        self.marked += u64::from(acked.marked.min(acked.amount));
        // RFC 8257 section 3.3, steps 2 to 7.
        if acked.sent_at >= self.window_started_at {
            if self.acked > 0 {
                let share = self.marked as f64 / self.acked as f64;
                self.alpha = self.alpha * (1.0 - GAIN) + GAIN * share;
            }
            (self.acked, self.marked, self.window_started_at) = (0, 0, acked.now);
        }
        // Step 9, once per window of data.
        let window = f64::from(self.reno.window());
        self.reno.acknowledge(acked, (window * (1.0 - self.alpha / 2.0)) as u32)
    }

    fn on_lost(&mut self, lost: &Loss) {
        self.reno.on_lost(lost);
    }

    fn on_idle(&mut self, now: Instant) {
        self.reno.on_idle(now);
    }

    fn on_spurious(&mut self, now: Instant) {
        self.reno.on_spurious(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{acked, at};

    /// Acknowledges a window in segments, of which a share is marked, and returns when.
    fn round(dctcp: &mut Dctcp, us: u64, marked: u32) {
        let in_flight = dctcp.window();
        for n in 0..in_flight {
            let mark = u32::from(n < marked);
            dctcp.on_ack(&Acknowledgement {
                in_flight,
                marked: mark,
                sent_at: at(us - 100),
                ..acked(us, 1, 0, false)
            });
        }
    }

    #[test]
    fn share_of_marks_determines_the_reduction() {
        let mut dctcp = Dctcp::new(Bounds { segment: 1, initial: 100, max: 10_000 });
        dctcp.reno.reduce(Instant::ZERO, 100);
        // With the initial share of 1 a mark halves the window; the rest of its round grows it no more than by one.
        round(&mut dctcp, 1_000, 1);
        assert!((50..=52).contains(&dctcp.window()), "{}", dctcp.window());
        // Without marks the share decays by 15/16 a round.
        let alpha = dctcp.alpha;
        for n in 0..10 {
            round(&mut dctcp, 2_000 + 1_000 * n, 0);
        }
        let expected = alpha * (1.0 - GAIN).powi(10);
        assert!((dctcp.alpha - expected).abs() < 1e-9, "{} and {expected}", dctcp.alpha);
    }

    #[test]
    fn steady_marks_give_their_share() {
        let mut dctcp = Dctcp::new(Bounds { segment: 1, initial: 100, max: 10_000 });
        let mut us = 1_000;
        for _ in 0..300 {
            let window = dctcp.window();
            round(&mut dctcp, us, window / 4);
            us += 1_000;
        }
        assert!((0.2..0.3).contains(&dctcp.alpha), "{}", dctcp.alpha);
    }

    #[test]
    fn mark_reduces_by_half_of_the_share() {
        let mut dctcp = Dctcp::new(Bounds { segment: 1, initial: 100, max: 10_000 });
        // Within an observation window, so that the mark itself does not change the share.
        (dctcp.alpha, dctcp.window_started_at) = (0.1, at(5_000));
        dctcp.on_ack(&Acknowledgement { marked: 1, sent_at: at(4_900), ..acked(5_000, 1, 0, false) });
        assert_eq!(dctcp.window(), 95);
    }

    #[test]
    fn loss_halves_the_window() {
        let mut dctcp = Dctcp::new(Bounds { segment: 1, initial: 100, max: 10_000 });
        dctcp.alpha = 0.1;
        dctcp.on_lost(&crate::line::lost(5_000, 1, false));
        assert_eq!(dctcp.window(), 50);
    }
}
