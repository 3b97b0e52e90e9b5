//! The monotonic clock of a run.

use nix::time::{ClockId, clock_gettime};
use trunkline_units::Instant;

/// Tells [`Instant`]s of a run from the system's monotonic clock. Every process of a machine that is given the
/// same epoch tells the same time, so one-way delays between them are true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    epoch_ns: u64,
}

impl Clock {
    /// A clock whose run begins now.
    pub fn start() -> Self {
        Clock { epoch_ns: monotonic_ns() }
    }

    /// The clock of a run that began when the monotonic clock read `epoch_ns`.
    pub fn at(epoch_ns: u64) -> Self {
        Clock { epoch_ns }
    }

    /// What the monotonic clock read when the run began, in nanoseconds.
    pub fn epoch_ns(self) -> u64 {
        self.epoch_ns
    }

    /// Now; the beginning of the run if that has not come yet.
    #[inline]
    pub fn now(self) -> Instant {
        Instant::from_ns(monotonic_ns().saturating_sub(self.epoch_ns))
    }
}

#[inline]
fn monotonic_ns() -> u64 {
    let t = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every system has a monotonic clock");
    t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64
}
