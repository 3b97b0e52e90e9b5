//! Waiting for packets and for a point in time at once.
//!
//! A sleep ends late by what the kernel needs to wake the thread. So the thread sleeps until a margin before the deadline and then
//! asks for packets without sleeping. The margin follows the lateness of recent sleeps and is bounded.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use trunkline_io::Clock;
use trunkline_units::{Instant, Span};

/// Bounds of the margin.
const MIN_MARGIN: Span = Span::from_us(20);
const MAX_MARGIN: Span = Span::from_us(150);
/// Longest sleep, so that the request to stop is noticed.
const MAX_SLEEP: Span = Span::from_ms(20);
/// Descriptors reported at once.
const MAX_EVENTS: usize = 64;

/// Descriptors to wait for. Each is reported once when it becomes readable; read it until it is empty.
#[derive(Debug)]
pub struct Waiter {
    epoll: Epoll,
    clock: Clock,
    margin: Span,
}

impl Waiter {
    /// Creates a waiter for the calling thread and minimizes the thread's timer slack.
    ///
    /// # Errors
    /// System errors.
    pub fn new(clock: Clock) -> io::Result<Waiter> {
        trunkline_io::pace::minimize_timer_slack();
        Ok(Waiter { epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?, clock, margin: MIN_MARGIN * 3 })
    }

    /// Adds a descriptor, which is reported as `key`.
    ///
    /// # Errors
    /// System errors.
    pub fn add(&self, descriptor: &impl AsFd, key: u32) -> io::Result<()> {
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        Ok(self.epoll.add(descriptor, EpollEvent::new(flags, key.into()))?)
    }

    /// Passes the keys of descriptors that have become readable to `each`. If there are none, waits until there is one, until
    /// `until`, or for 20 ms.
    ///
    /// # Errors
    /// System errors.
    pub fn wait(&mut self, until: Instant, mut each: impl FnMut(u32)) -> io::Result<()> {
        let left = until.since(self.clock.now());
        let is_asleep = left > self.margin;
        let timeout = if is_asleep { (left - self.margin).min(MAX_SLEEP) } else { Span::ZERO };
        let wake_at = self.clock.now() + timeout;
        let mut events = [EpollEvent::empty(); MAX_EVENTS];
        let count = match epoll_wait(&self.epoll, &mut events, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        if is_asleep && count == 0 {
            self.adjust_margin(self.clock.now().since(wake_at));
        }
        events[..count].iter().for_each(|event| each(event.data() as u32));
        Ok(())
    }

    /// Raises the margin at once after a late wake; lowers it slowly.
    fn adjust_margin(&mut self, late: Span) {
        let wanted = (late + late / 2).min(MAX_MARGIN);
        self.margin = if wanted > self.margin { wanted } else { self.margin - (self.margin - wanted) / 64 };
        self.margin = self.margin.max(MIN_MARGIN);
    }
}

/// Waits with a timeout in nanoseconds, which `epoll_wait` does not have.
fn epoll_wait(epoll: &Epoll, events: &mut [EpollEvent], timeout: Span) -> Result<usize, Errno> {
    use std::os::fd::AsRawFd as _;
    let time = Duration::from(timeout);
    let time = libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    // SAFETY: the events and the time live through the call; `EpollEvent` has the representation of `epoll_event`.
    let count = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.0.as_raw_fd(),
            events.as_mut_ptr().cast::<libc::epoll_event>(),
            events.len() as libc::c_int,
            &raw const time,
            std::ptr::null::<libc::sigset_t>(),
            0usize,
        )
    };
    Errno::result(count).map(|count| count as usize)
}
