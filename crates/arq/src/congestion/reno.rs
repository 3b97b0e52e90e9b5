//! Reno, in frames.

use trunkline_units::{Instant, Rate};

use super::{Acked, Lost, Policy, Sent};

/// Frames that a connection may begin with (RFC 6928).
const START: u32 = 10;

/// Half a window is never less (RFC 5681, equation 4).
const LEAST_THRESHOLD: u32 = 2;

/// Slow start, congestion avoidance and one halving a round (RFC 5681), counted in frames.
///
/// Acknowledged frames are counted, not acknowledgements (RFC 3465), so that a batch acknowledged at once counts fully.
/// The half of a loss is that of the window, not of what is in flight: a window that is not used does not grow, so they
/// are near each other (RFC 9002 section 7.3.2 does the same).
#[derive(Clone, Copy, Debug)]
pub struct Reno {
    window: u32,
    /// Slow start below, congestion avoidance from here on (`ssthresh`).
    threshold: u32,
    most: u32,
    /// Frames acknowledged towards the next frame of window.
    counted: u32,
    /// When the window was last cut: frames sent earlier cut it no more.
    cut: Instant,
}

impl Reno {
    /// Begins with a window of 10 frames; never more than `most`, which is at least 1.
    pub fn new(most: u32) -> Reno {
        let most = most.max(1);
        Reno { window: START.min(most), threshold: most, most, counted: 0, cut: Instant::ZERO }
    }
}

impl Policy for Reno {
    fn window(&self) -> u32 {
        self.window
    }

    fn pace(&self) -> Option<Rate> {
        None
    }

    fn sent(&mut self, _: &Sent) {}

    fn acknowledged(&mut self, acked: &Acked) {
        // A window of which less than half is used says nothing of the path.
        if acked.in_flight < self.window / 2 {
            return;
        }
        let mut frames = acked.frames;
        if self.window < self.threshold {
            let step = frames.min(self.threshold - self.window);
            self.window += step;
            frames -= step;
        }
        if self.window >= self.threshold {
            self.counted = self.counted.saturating_add(frames);
            while self.counted >= self.window && self.window < self.most {
                self.counted -= self.window;
                self.window += 1;
            }
            // A full window saves nothing up.
            self.counted = self.counted.min(self.window);
        }
    }

    fn lost(&mut self, lost: &Lost) {
        let cut_already = lost.sent_at < self.cut;
        // A timeout upon a timeout leaves the threshold where the first put it (RFC 5681 section 3.1).
        let again = lost.timeout && self.window == 1;
        if !(cut_already || again) {
            self.threshold = (self.window / 2).max(LEAST_THRESHOLD).min(self.most);
            self.cut = lost.now;
            self.window = self.threshold;
            self.counted = 0;
        }
        if lost.timeout {
            self.window = 1;
            self.counted = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::line::{Flow, Line};
    use trunkline_units::Span;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Span::from_us(us)
    }

    fn acked(us: u64, frames: u32, in_flight: u32) -> Acked {
        let bytes = u64::from(frames) * 1472;
        let (now, sent_at) = (at(us), at(us.saturating_sub(100)));
        Acked { now, frames, bytes, in_flight, round_trip: None, rate: None, idle: false, came: 0, sent_at }
    }

    fn lost(us: u64, sent_us: u64, timeout: bool) -> Lost {
        Lost { now: at(us), frames: 1, bytes: 1472, sent_at: at(sent_us), in_flight: 10, timeout }
    }

    /// Acknowledges a window's worth of frames, `by` at a time.
    fn round(reno: &mut Reno, us: u64, by: u32) {
        let mut left = reno.window();
        let in_flight = left;
        while left > 0 {
            let frames = by.min(left);
            reno.acknowledged(&acked(us, frames, in_flight));
            left -= frames;
        }
    }

    #[test]
    fn a_window_doubles_a_round_then_grows_by_one() {
        for by in [1, 3, 44] {
            let mut reno = Reno::new(1000);
            for expected in [20, 40, 80] {
                round(&mut reno, 100, by);
                assert_eq!(reno.window(), expected, "{by} at a time");
            }
            reno.lost(&lost(200, 150, false));
            for expected in [41, 42, 43] {
                round(&mut reno, 300, by);
                assert_eq!(reno.window(), expected, "{by} at a time");
            }
        }
    }

    #[test]
    fn a_round_halves_once() {
        let mut reno = Reno::new(1000);
        round(&mut reno, 100, 1);
        round(&mut reno, 200, 1);
        reno.lost(&lost(300, 210, false));
        assert_eq!(reno.window(), 20);
        // Sent before the window was halved.
        reno.lost(&lost(310, 299, false));
        assert_eq!(reno.window(), 20);
        // What was sent again as it was halved, and is lost again.
        reno.lost(&lost(400, 300, false));
        assert_eq!(reno.window(), 10);
    }

    #[test]
    fn a_timeout_begins_anew() {
        let mut reno = Reno::new(1000);
        round(&mut reno, 100, 1);
        round(&mut reno, 200, 1);
        reno.lost(&lost(900, 210, true));
        assert_eq!((reno.window(), reno.threshold), (1, 20));
        reno.lost(&lost(2000, 1000, true));
        assert_eq!((reno.window(), reno.threshold), (1, 20), "the first timeout's threshold stays");
        for expected in [2, 4, 8, 16, 20, 21] {
            round(&mut reno, 3000, 2);
            assert_eq!(reno.window(), expected);
        }
        // After a loss that was noticed early, a timeout of frames of that round still means 1.
        reno.lost(&lost(4000, 3500, false));
        reno.lost(&lost(5000, 3600, true));
        assert_eq!((reno.window(), reno.threshold), (1, 10));
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut reno = Reno::new(1000);
        for us in 0..100 {
            reno.acknowledged(&acked(us, 1, 4));
        }
        assert_eq!(reno.window(), 10);
    }

    #[test]
    fn the_most_is_kept() {
        for most in [0, 1, 7, 64] {
            let mut reno = Reno::new(most);
            for us in 0..1000 {
                reno.acknowledged(&acked(us, 50, u32::MAX));
                assert!((1..=most.max(1)).contains(&reno.window()));
            }
        }
    }

    /// Mathis and others 1997: so many frames in flight as the root of 1.5 over the loss.
    #[test]
    fn throughput_keeps_the_square_root_law() {
        for loss in [1e-3, 3e-3, 1e-2] {
            let line = Line { rate: 1_000_000_000, delay_us: 20_000, loss, ..Line::default() };
            let run = line.run(150.0, vec![Flow::new(Box::new(Reno::new(4096)))]);
            let window = run.flows[0].delivered as f64 / (150.0 / 0.020) / (1.0 - loss);
            let ratio = window / (1.5 / loss).sqrt();
            assert!((0.8..1.2).contains(&ratio), "{ratio} of the law at {loss}, seed {}", line.seed);
        }
    }
}
