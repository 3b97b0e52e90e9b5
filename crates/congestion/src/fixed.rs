//! A window of a fixed size.

use crate::{Acknowledgement, Controller, Loss};

/// A constant window, such as the 16 frames of 1998. For paths without other traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    window: u32,
}

impl Fixed {
    /// Creates a window of this amount, at least 1.
    pub fn new(window: u32) -> Fixed {
        Fixed { window: window.max(1) }
    }
}

impl Controller for Fixed {
    fn window(&self) -> u32 {
        self.window
    }

    fn on_ack(&mut self, _: &Acknowledgement) -> bool {
        false
    }

    fn on_lost(&mut self, _: &Loss) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{Flow, Line};

    #[test]
    fn window_is_fixed() {
        assert_eq!(Fixed::new(0).window(), 1);
        // 16 frames per round trip of 10 ms, on a link with far more capacity. Loss does not change the window.
        for loss in [0.0, 0.05] {
            let line = Line { rate: 1_000_000_000, delay_us: 10_000, loss, ..Line::default() };
            let run = line.run(5.0, vec![Flow::new(Box::new(Fixed::new(16)))]);
            let frames_a_round = run.flows[0].total.delivered as f64 / (5.0 / 0.010) / (1.0 - loss);
            assert!((15.0..16.1).contains(&frames_a_round), "{frames_a_round} at {loss}");
        }
    }
}
