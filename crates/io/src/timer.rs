//! [`Timer`]: a deadline as a file descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use trunkline_units::Instant;

use crate::Clock;

/// A system timer that is set only when a deadline becomes earlier than the one it is set for. A deadline that moves later
/// costs one early wakeup, which is cheaper than setting the timer each time.
#[derive(Debug)]
pub struct Timer {
    fd: TimerFd,
    clock: Clock,
    armed_for: Option<Instant>,
}

impl Timer {
    /// Creates a timer that is not set. Its descriptor is readable after it fires.
    ///
    /// # Errors
    /// If no timer is available.
    pub fn new(clock: Clock) -> io::Result<Timer> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        Ok(Timer { fd: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?, clock, armed_for: None })
    }

    /// Makes the timer fire at `at` or earlier.
    ///
    /// # Errors
    /// System errors.
    pub fn arm(&mut self, at: Instant) -> io::Result<()> {
        if self.armed_for.is_some_and(|set| set <= at) {
            return Ok(());
        }
        // Rounded up, so that the clock shows `at` when the timer fires.
        let ns = self.clock.epoch_ns() + at.as_ps().div_ceil(1_000);
        let time = Expiration::OneShot(TimeSpec::from_duration(Duration::from_nanos(ns)));
        self.fd.set(time, TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
        self.armed_for = Some(at);
        Ok(())
    }

    /// Clears the timer after it has fired, so that it can be set again.
    ///
    /// # Errors
    /// System errors.
    pub fn acknowledge(&mut self) -> io::Result<()> {
        self.armed_for = None;
        match self.fd.wait() {
            Ok(()) | Err(Errno::EAGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
