//! Epoll and timerfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use trunkline_units::Instant;

use super::{Event, MAX_EVENTS};
use crate::Clock;

/// Descriptors to wait for. Its own descriptor is readable when a wait would return.
#[derive(Debug)]
pub(crate) struct Poller(Epoll);

impl Poller {
    pub fn new() -> io::Result<Poller> {
        Ok(Poller(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?))
    }

    pub fn add(&self, descriptor: &impl AsFd, key: u64) -> io::Result<()> {
        Ok(self.0.add(descriptor, EpollEvent::new(EpollFlags::EPOLLIN, key))?)
    }

    /// Passes the events of ready descriptors to `each`; waits for one if `may_wait` is set. A signal ends the wait.
    #[inline]
    pub fn wait(&self, may_wait: bool, mut each: impl FnMut(Event) -> io::Result<()>) -> io::Result<()> {
        let timeout = if may_wait { EpollTimeout::NONE } else { EpollTimeout::ZERO };
        let mut events = [EpollEvent::empty(); MAX_EVENTS];
        let count = match self.0.wait(&mut events, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        for event in &events[..count] {
            let has = |flag| event.events().intersects(flag);
            let (is_readable, has_error) = (has(EpollFlags::EPOLLIN), has(EpollFlags::EPOLLERR));
            each(Event { key: event.data(), is_readable, has_error })?;
        }
        Ok(())
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}

/// A timer whose descriptor is readable after it fires.
#[derive(Debug)]
pub(crate) struct TimerDescriptor(TimerFd);

impl TimerDescriptor {
    pub fn new() -> io::Result<TimerDescriptor> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        Ok(TimerDescriptor(TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?))
    }

    /// Sets the timer to fire once, when `clock` shows `at`.
    pub fn set(&self, clock: Clock, at: Instant) -> io::Result<()> {
        // Rounded up, so that the clock shows `at` when the timer fires.
        let ns = clock.epoch_ns() + at.as_ps().div_ceil(1_000);
        let time = Expiration::OneShot(TimeSpec::from_duration(Duration::from_nanos(ns)));
        Ok(self.0.set(time, TimerSetTimeFlags::TFD_TIMER_ABSTIME)?)
    }

    /// Makes the descriptor unreadable after the timer has fired.
    pub fn clear(&self) -> io::Result<()> {
        match self.0.wait() {
            Ok(()) | Err(Errno::EAGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for TimerDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
