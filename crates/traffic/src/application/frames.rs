//! The times of frames at a constant rate.

use trunkline_units::{Instant, Span};

use super::{Draws, QuantityId};

/// Returns when frames are due. Computed from the start, so that rounding does not accumulate.
#[derive(Debug)]
pub(super) struct FrameClock {
    start: Instant,
    /// The quantity of frames a second.
    rate: QuantityId,
    count: u64,
}

impl FrameClock {
    /// Creates the clock; `rate` is the quantity of frames a second.
    pub fn new(start: Instant, rate: QuantityId) -> FrameClock {
        FrameClock { start, rate, count: 0 }
    }

    /// Returns the frames a second.
    pub fn rate(&self, draws: &Draws) -> Option<f64> {
        draws.mean(self.rate)
    }

    /// Returns when the next frame is due.
    pub fn tick(&mut self, draws: &mut Draws) -> Instant {
        let due = self.start + Span::from_seconds(self.count as f64 / draws.setting(self.rate));
        self.count += 1;
        due
    }
}
