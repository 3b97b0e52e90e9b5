//! Waiting for packets and for a point in time at once.
//!
//! A sleep ends late by what the kernel needs to wake the thread. So the thread sleeps until a margin before the deadline and then
//! asks for packets without sleeping. The margin is the mean lateness of recent sleeps, and bounded. A thread that hardly sleeps
//! has no margin: one with a real-time priority that never sleeps is stopped by the kernel for 50 ms of each second.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use trunkline_io::Clock;
use trunkline_units::{Instant, Span};

/// Largest margin.
const MAX_MARGIN: Span = Span::from_us(30);
/// Time over which the share of sleep is measured, and the least sleep in it that permits a margin.
const PERIOD: Span = Span::from_ms(50);
const MIN_SLEEP: Span = Span::from_ms(20);
/// Sleep in a period below which the thread has too much to do, and the number of such periods in a row that count.
const BUSY_SLEEP: Span = Span::from_ms(4);
const BUSY_PERIODS: u32 = 4;
/// Longest sleep, so that the request to stop is noticed.
const MAX_SLEEP: Span = Span::from_ms(20);
/// Descriptors reported at once.
const MAX_EVENTS: usize = 64;

/// Descriptors to wait for. Each is reported once when it becomes readable; read it until it is empty.
#[derive(Debug)]
pub struct Waiter {
    epoll: Epoll,
    clock: Clock,
    /// Mean lateness of recent sleeps.
    lateness: Span,
    has_margin: bool,
    /// Start of the period, and the sleep in it.
    period: Instant,
    slept: Span,
    busy_periods: u32,
}

impl Waiter {
    /// Creates a waiter for the calling thread and minimizes the thread's timer slack.
    ///
    /// # Errors
    /// System errors.
    pub fn new(clock: Clock) -> io::Result<Waiter> {
        trunkline_io::pace::minimize_timer_slack();
        Ok(Waiter {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            clock,
            lateness: Span::ZERO,
            has_margin: false,
            period: Instant::ZERO,
            slept: Span::ZERO,
            busy_periods: 0,
        })
    }

    /// Returns whether the thread has hardly slept for a while.
    pub fn is_busy(&self) -> bool {
        self.busy_periods >= BUSY_PERIODS
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
        let start = self.clock.now();
        if start.since(self.period) >= PERIOD {
            self.has_margin = self.slept >= MIN_SLEEP;
            self.busy_periods = if self.slept < BUSY_SLEEP { self.busy_periods + 1 } else { 0 };
            (self.period, self.slept) = (start, Span::ZERO);
        }
        let left = until.since(start);
        let margin = if self.has_margin { self.lateness.min(MAX_MARGIN) } else { Span::ZERO };
        let timeout = if left > margin { (left - margin).min(MAX_SLEEP) } else { Span::ZERO };
        let mut events = [EpollEvent::empty(); MAX_EVENTS];
        let count = match epoll_wait(&self.epoll, &mut events, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        if !timeout.is_zero() {
            self.record_sleep(start, timeout, count == 0);
        }
        events[..count].iter().for_each(|event| each(event.data() as u32));
        Ok(())
    }

    /// Records a sleep that began at `start` and was to last `timeout`; it ended by itself, or because of a packet.
    fn record_sleep(&mut self, start: Instant, timeout: Span, ended_by_itself: bool) {
        let now = self.clock.now();
        self.slept += now.since(start);
        if ended_by_itself {
            self.lateness =
                self.lateness - self.lateness / 16 + now.since(start + timeout).min(MAX_MARGIN) / 16;
        }
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
