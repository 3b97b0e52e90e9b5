//! Reno.

use trunkline_units::Instant;

use crate::{Acknowledgement, Bounds, Controller, Loss, is_used};

/// Minimum slow start threshold in segments (RFC 5681, equation 4).
pub(crate) const MIN_THRESHOLD: u32 = 2;

/// Slow start, congestion avoidance and one halving per round (RFC 5681).
///
/// Acknowledged data is counted, not acknowledgements (RFC 3465), so a batch counts in full. A loss halves the window, not
/// the flight size: an unused window does not grow, so both are close (as in RFC 9002 section 7.3.2). A mark halves it as a
/// loss does (RFC 3168 section 6.1.2). [`Reno::in_segments`] rounds reductions down to whole segments, as Linux does.
#[derive(Clone, Copy, Debug)]
pub struct Reno {
    /// The congestion window (`cwnd`).
    window: u32,
    /// Slow start threshold (`ssthresh`).
    threshold: u32,
    bounds: Bounds,
    /// Amount acknowledged towards the next window increment.
    acked: u32,
    /// When the window was last reduced; losses of earlier data do not reduce it again.
    reduced_at: Instant,
    /// Window and threshold before the last reduction, if a loss was its reason: a mark is never spurious.
    undo: Option<(u32, u32)>,
    /// Reductions are rounded down to a multiple of this.
    unit: u32,
}

impl Reno {
    /// Creates a controller with the initial window.
    pub fn new(bounds: Bounds) -> Reno {
        let bounds = bounds.valid();
        Reno {
            window: bounds.initial,
            threshold: bounds.max,
            bounds,
            acked: 0,
            reduced_at: Instant::ZERO,
            undo: None,
            unit: 1,
        }
    }

    /// Creates a controller whose window has whole segments after a reduction, as in Linux.
    pub fn in_segments(bounds: Bounds) -> Reno {
        Reno { unit: bounds.valid().segment, ..Reno::new(bounds) }
    }

    /// Processes acknowledged data; a mark reduces the window to `marked_window`. Returns whether the window may have changed.
    pub(crate) fn acknowledge(&mut self, acked: &Acknowledgement, marked_window: u32) -> bool {
        if acked.marked > 0 && self.may_reduce(acked.sent_at) {
            self.reduce(acked.now, marked_window);
            return true;
        }
        if acked.in_recovery || !is_used(acked, self.window) {
            return false;
        }
        self.grow(acked.amount);
        true
    }

    /// Grows a used window by acknowledged data (RFC 5681 section 3.1).
    fn grow(&mut self, mut amount: u32) {
        if self.window < self.threshold {
            let growth = amount.min(self.threshold - self.window);
            self.window += growth;
            amount -= growth;
        }
        if self.window >= self.threshold {
            self.acked = self.acked.saturating_add(amount);
            while self.acked >= self.window && self.window < self.bounds.max {
                self.acked -= self.window;
                self.window = self.window.saturating_add(self.bounds.segment).min(self.bounds.max);
            }
            // Do not accumulate beyond a full window.
            self.acked = self.acked.min(self.window);
        }
    }

    /// Returns whether data sent at this time counts for a reduction: it was sent after the last one.
    fn may_reduce(&self, sent_at: Instant) -> bool {
        sent_at >= self.reduced_at
    }

    /// Reduces window and threshold to this amount, at least two segments.
    pub(crate) fn reduce(&mut self, now: Instant, window: u32) {
        let min = self.bounds.segment.saturating_mul(MIN_THRESHOLD);
        self.undo = None;
        self.threshold = (window - window % self.unit).max(min).min(self.bounds.max);
        self.reduced_at = now;
        self.window = self.threshold;
        self.acked = 0;
    }
}

impl Controller for Reno {
    fn window(&self) -> u32 {
        self.window
    }

    fn threshold(&self) -> Option<u32> {
        Some(self.threshold)
    }

    fn set_threshold(&mut self, amount: u32) {
        self.threshold = amount.clamp(self.bounds.segment, self.bounds.max);
    }

    fn on_ack(&mut self, acked: &Acknowledgement) -> bool {
        self.acknowledge(acked, self.window / 2)
    }

    fn on_lost(&mut self, lost: &Loss) {
        // Consecutive timeouts leave the threshold of the first (RFC 5681 section 3.1).
        let is_repeated_timeout = lost.timeout && self.window == self.bounds.segment;
        if self.may_reduce(lost.sent_at) && !is_repeated_timeout {
            let before = (self.window, self.threshold);
            self.reduce(lost.now, self.window / 2);
            self.undo = Some(before);
        }
        if lost.timeout {
            self.window = self.bounds.segment;
            self.acked = 0;
        }
    }

    fn on_idle(&mut self, _: Instant) {
        // RFC 5681 section 4.1, and RFC 2861 for the threshold.
        self.threshold = self.threshold.max(self.window / 4 * 3);
        self.window = self.window.min(self.bounds.initial);
    }

    fn on_spurious(&mut self, _: Instant) {
        if let Some((window, threshold)) = self.undo.take() {
            (self.window, self.threshold) = (self.window.max(window), self.threshold.max(threshold));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{self, Flow, Line, at};

    fn acked(us: u64, frames: u32, in_flight: u32) -> Acknowledgement {
        Acknowledgement { in_flight, ..line::acked(us, frames, 0, false) }
    }

    fn lost(us: u64, sent_us: u64, timeout: bool) -> Loss {
        Loss { sent_at: at(sent_us), ..line::lost(us, 1, timeout) }
    }

    /// Acknowledges a whole window of frames, `ack_every` at a time.
    fn round(reno: &mut Reno, us: u64, ack_every: u32) {
        let in_flight = reno.window();
        let mut remaining = in_flight;
        while remaining > 0 {
            let frames = ack_every.min(remaining);
            reno.on_ack(&acked(us, frames, in_flight));
            remaining -= frames;
        }
    }

    #[test]
    fn window_doubles_then_grows_by_one_per_round() {
        for ack_every in [1, 3, 44] {
            let mut reno = Reno::new(Bounds::new(1, 1000));
            for expected in [20, 40, 80] {
                round(&mut reno, 100, ack_every);
                assert_eq!(reno.window(), expected, "{ack_every} at a time");
            }
            reno.on_lost(&lost(200, 150, false));
            for expected in [41, 42, 43] {
                round(&mut reno, 300, ack_every);
                assert_eq!(reno.window(), expected, "{ack_every} at a time");
            }
        }
    }

    #[test]
    fn window_is_halved_once_per_round() {
        let mut reno = Reno::new(Bounds::new(1, 1000));
        round(&mut reno, 100, 1);
        round(&mut reno, 200, 1);
        reno.on_lost(&lost(300, 210, false));
        assert_eq!(reno.window(), 20);
        // Sent before the window was halved.
        reno.on_lost(&lost(310, 299, false));
        assert_eq!(reno.window(), 20);
        // Retransmitted at the time of the halving, and lost again.
        reno.on_lost(&lost(400, 300, false));
        assert_eq!(reno.window(), 10);
    }

    #[test]
    fn timeout_restarts_slow_start() {
        let mut reno = Reno::new(Bounds::new(1, 1000));
        round(&mut reno, 100, 1);
        round(&mut reno, 200, 1);
        reno.on_lost(&lost(900, 210, true));
        assert_eq!((reno.window(), reno.threshold), (1, 20));
        reno.on_lost(&lost(2000, 1000, true));
        assert_eq!((reno.window(), reno.threshold), (1, 20), "the first timeout's threshold stays");
        for expected in [2, 4, 8, 16, 20, 21] {
            round(&mut reno, 3000, 2);
            assert_eq!(reno.window(), expected);
        }
        // After a loss detected without a timeout, a timeout of frames of the same round trip still reduces the
        // window to 1.
        reno.on_lost(&lost(4000, 3500, false));
        reno.on_lost(&lost(5000, 3600, true));
        assert_eq!((reno.window(), reno.threshold), (1, 10));
    }

    /// `tcp_reno_ssthresh` of Linux halves a number of segments.
    #[test]
    fn reductions_in_segments_are_rounded_down() {
        let windows = [Reno::new as fn(Bounds) -> Reno, Reno::in_segments].map(|new| {
            let mut reno = new(Bounds { segment: 100, initial: 1_300, max: 10_000 });
            reno.on_lost(&lost(1_000, 500, false));
            reno.window()
        });
        assert_eq!(windows, [650, 600]);
    }

    #[test]
    fn unused_window_does_not_grow() {
        let mut reno = Reno::new(Bounds::new(1, 1000));
        for us in 0..100 {
            reno.on_ack(&acked(us, 1, 4));
        }
        assert_eq!(reno.window(), 10);
    }

    #[test]
    fn window_stays_within_its_maximum() {
        for max_window in [0, 1, 7, 64] {
            let mut reno = Reno::new(Bounds::new(1, max_window));
            for us in 0..1000 {
                reno.on_ack(&acked(us, 50, u32::MAX));
                assert!((1..=max_window.max(1)).contains(&reno.window()));
            }
        }
    }

    /// Mathis and others 1997: the window is the square root of 1.5 / loss.
    #[test]
    fn throughput_follows_the_square_root_law() {
        for loss in [1e-3, 3e-3, 1e-2] {
            let line = Line { rate: 1_000_000_000, delay_us: 20_000, loss, ..Line::default() };
            let run = line.run(150.0, vec![Flow::new(Box::new(Reno::new(Bounds::new(1, 4096))))]);
            let window = run.flows[0].total.delivered as f64 / (150.0 / 0.020) / (1.0 - loss);
            let ratio = window / (1.5 / loss).sqrt();
            assert!(
                (0.8..1.2).contains(&ratio),
                "{ratio} of the expected window at {loss}, seed {}",
                line.seed
            );
        }
    }
}
