//! The time of a call, read at most once.

use trunkline_io::Clock;
use trunkline_units::Instant;

/// The time of a call. The clock is read on first use, because a reading costs about a hundred instructions.
pub(super) struct CallTime {
    pub clock: Clock,
    /// Zero until the clock is read.
    pub read: Instant,
}

impl CallTime {
    /// Creates the time of a call that begins now.
    pub fn new(clock: Clock) -> CallTime {
        CallTime { clock, read: Instant::ZERO }
    }

    #[inline]
    pub fn get(&mut self) -> Instant {
        if self.read == Instant::ZERO {
            self.read = self.clock.now();
        }
        self.read
    }
}
