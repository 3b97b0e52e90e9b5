//! The monotonic clock of a run.

use std::time::Duration;

use libc::{CLOCK_MONOTONIC, CLOCK_REALTIME, clockid_t};
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

    /// The wall clock: since 1970, UTC. Unlike the monotonic clock it goes on where a machine starts anew, and may be set.
    pub fn unix(self) -> Duration {
        Duration::from_nanos(read(CLOCK_REALTIME))
    }

    /// What this clock showed when the wall clock showed `unix`, a moment ago: the kernel marks packets by the wall
    /// clock. Wrong by as much as that was set since.
    pub fn when(self, unix: Duration) -> Instant {
        let ago = self.unix().saturating_sub(unix).as_nanos();
        let ns = monotonic_ns().saturating_sub(u64::try_from(ago).unwrap_or(u64::MAX));
        Instant::from_ns(ns.saturating_sub(self.epoch_ns))
    }
}

#[inline]
fn monotonic_ns() -> u64 {
    read(CLOCK_MONOTONIC)
}

#[inline]
fn read(clock: clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the system fills a value of the type that it expects, which lives through the call.
    let done = unsafe { libc::clock_gettime(clock, &raw mut t) };
    assert!(done == 0, "every system has this clock");
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_of_the_wall_clock_has_its_place() {
        let clock = Clock::start();
        let before = clock.now();
        let unix = clock.unix();
        // Both clocks were read once each, one after the other.
        let when = clock.when(unix);
        assert!(when <= clock.now());
        assert!(clock.when(unix + Duration::from_secs(1 << 40)) >= before, "what is to come is now");
        assert_eq!(clock.when(Duration::ZERO), Instant::ZERO, "long before the run");
    }
}
