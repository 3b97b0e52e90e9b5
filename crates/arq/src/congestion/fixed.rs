//! A window of a fixed size.

use super::{Acked, Lost, Policy, Sent};
use trunkline_units::Rate;

/// As many frames as it was told, whatever happens: the window of 1998, which was 16. For paths that nobody shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    frames: u32,
}

impl Fixed {
    /// A window of so many frames, at least 1.
    pub fn new(frames: u32) -> Fixed {
        Fixed { frames: frames.max(1) }
    }
}

/// The 16 frames of 1998.
impl Default for Fixed {
    fn default() -> Self {
        Fixed::new(16)
    }
}

impl Policy for Fixed {
    fn window(&self) -> u32 {
        self.frames
    }

    fn pace(&self) -> Option<Rate> {
        None
    }

    fn sent(&mut self, _: &Sent) {}

    fn acknowledged(&mut self, _: &Acked) {}

    fn reconsiders(&mut self, _: &Acked) -> bool {
        false
    }

    fn lost(&mut self, _: &Lost) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::line::{Flow, Line};

    #[test]
    fn the_window_is_what_it_was_told() {
        assert_eq!(Fixed::default().window(), 16);
        assert_eq!(Fixed::new(0).window(), 1);
        // A window of 16 frames a round trip of 10 ms, on a line that would carry far more; loss changes nothing but itself.
        for loss in [0.0, 0.05] {
            let line = Line { rate: 1_000_000_000, delay_us: 10_000, loss, ..Line::default() };
            let run = line.run(5.0, vec![Flow::new(Box::new(Fixed::default()))]);
            let frames_a_round = run.flows[0].delivered as f64 / (5.0 / 0.010) / (1.0 - loss);
            assert!((15.0..16.1).contains(&frames_a_round), "{frames_a_round} at {loss}");
        }
    }
}
