//! Kqueue.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::event::{EvFlags, EventFilter, FilterFlag, KEvent, Kqueue};
use trunkline_units::Instant;

use super::{Event, MAX_EVENTS};
use crate::Clock;

const NO_WAIT: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };

/// Descriptors to wait for. Its own descriptor is readable when a wait would return.
#[derive(Debug)]
pub(crate) struct Poller(Kqueue);

impl Poller {
    pub fn new() -> io::Result<Poller> {
        Ok(Poller(Kqueue::new()?))
    }

    pub fn add(&self, descriptor: &impl AsFd, key: u64) -> io::Result<()> {
        let descriptor = descriptor.as_fd().as_raw_fd() as usize;
        let filter = EventFilter::EVFILT_READ;
        change(
            &self.0,
            KEvent::new(descriptor, filter, EvFlags::EV_ADD, FilterFlag::empty(), 0, key as isize),
        )
    }

    /// Passes the events of ready descriptors to `each`; waits for one if `may_wait` is set. A signal ends the wait.
    pub fn wait(&self, may_wait: bool, mut each: impl FnMut(Event) -> io::Result<()>) -> io::Result<()> {
        let mut events = [blank(); MAX_EVENTS];
        let count = match self.0.kevent(&[], &mut events, (!may_wait).then_some(NO_WAIT)) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        // Errors of earlier datagrams are not reported to unconnected sockets here.
        events[..count].iter().try_for_each(|event| {
            each(Event { key: event.udata() as u64, is_readable: true, has_error: false })
        })
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A timer whose descriptor is readable after it fires.
#[derive(Debug)]
pub(crate) struct TimerDescriptor(Kqueue);

impl TimerDescriptor {
    pub fn new() -> io::Result<TimerDescriptor> {
        Ok(TimerDescriptor(Kqueue::new()?))
    }

    /// Sets the timer to fire once, when `clock` shows `at`.
    pub fn set(&self, clock: Clock, at: Instant) -> io::Result<()> {
        // Rounded up, so that the clock shows `at` when the timer fires.
        let ns = at.as_ps().saturating_sub(clock.now().as_ps()).div_ceil(1_000);
        let flags = EvFlags::EV_ADD | EvFlags::EV_ONESHOT;
        let ns = isize::try_from(ns).unwrap_or(isize::MAX);
        change(&self.0, KEvent::new(0, EventFilter::EVFILT_TIMER, flags, FilterFlag::NOTE_NSECONDS, ns, 0))
    }

    /// Makes the descriptor unreadable after the timer has fired.
    pub fn clear(&self) -> io::Result<()> {
        self.0.kevent(&[], &mut [blank()], Some(NO_WAIT))?;
        Ok(())
    }
}

impl AsFd for TimerDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn change(queue: &Kqueue, event: KEvent) -> io::Result<()> {
    queue.kevent(&[event], &mut [], Some(NO_WAIT))?;
    Ok(())
}

fn blank() -> KEvent {
    KEvent::new(0, EventFilter::EVFILT_READ, EvFlags::empty(), FilterFlag::empty(), 0, 0)
}
