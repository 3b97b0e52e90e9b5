//! [`Timer`]: a deadline as a file descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use trunkline_units::Instant;

use crate::Clock;
use crate::poller::TimerDescriptor;

/// A system timer that is set only when a deadline becomes earlier than the one it is set for. A deadline that moves later
/// costs one early wakeup, which is cheaper than setting the timer each time.
#[derive(Debug)]
pub struct Timer {
    descriptor: TimerDescriptor,
    clock: Clock,
    armed_for: Option<Instant>,
}

impl Timer {
    /// Creates a timer that is not set. Its descriptor is readable after it fires.
    ///
    /// # Errors
    /// If no timer is available.
    pub fn new(clock: Clock) -> io::Result<Timer> {
        Ok(Timer { descriptor: TimerDescriptor::new()?, clock, armed_for: None })
    }

    /// Makes the timer fire at `at` or earlier.
    ///
    /// # Errors
    /// System errors.
    pub fn arm(&mut self, at: Instant) -> io::Result<()> {
        if self.armed_for.is_some_and(|set| set <= at) {
            return Ok(());
        }
        self.descriptor.set(self.clock, at)?;
        self.armed_for = Some(at);
        Ok(())
    }

    /// Clears the timer after it has fired, so that it can be set again.
    ///
    /// # Errors
    /// System errors.
    pub fn acknowledge(&mut self) -> io::Result<()> {
        self.armed_for = None;
        self.descriptor.clear()
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
