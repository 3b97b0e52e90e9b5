//! Waiting for packets and for a point in time at once.
//!
//! A sleep ends late by what the kernel needs to wake the thread. So the thread sleeps until a margin before the deadline and then
//! asks for packets without sleeping. The margin is the mean lateness of recent sleeps, and bounded. A thread with much to do has no
//! margin: one with a real-time priority that hardly sleeps is stopped by the kernel for 50 ms of each second.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::time::{ClockId, clock_gettime};
use trunkline_io::Clock;
use trunkline_units::{Instant, Span};

/// Largest margin.
const MAX_MARGIN: Span = Span::from_us(30);
/// Time over which the processor time of the thread is measured; how much of it permits a margin; and how much is too much, in
/// this number of periods in a row.
const PERIOD: Span = Span::from_ms(50);
const MAX_WITH_MARGIN: Span = Span::from_ms(30);
const MAX_PROCESSOR: Span = Span::from_ms(42);
const BUSY_PERIODS: u32 = 3;
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
    /// Start of the period, and the processor time of the thread then.
    period: Instant,
    processor_time: Span,
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
            processor_time: processor_time(),
            busy_periods: 0,
        })
    }

    fn begin_period(&mut self, now: Instant) {
        let total = processor_time();
        let used = total - self.processor_time;
        self.has_margin = used <= MAX_WITH_MARGIN;
        self.busy_periods = if used > MAX_PROCESSOR { self.busy_periods + 1 } else { 0 };
        (self.period, self.processor_time) = (now, total);
    }

    /// Returns whether the thread has had too much to do for a while.
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
            self.begin_period(start);
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
        if !timeout.is_zero() && count == 0 {
            let late = self.clock.now().since(start + timeout).min(MAX_MARGIN);
            self.lateness = self.lateness - self.lateness / 16 + late / 16;
        }
        events[..count].iter().for_each(|event| each(event.data() as u32));
        Ok(())
    }
}

/// Returns the processor time that the calling thread has used.
pub fn processor_time() -> Span {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Span::ZERO, |time| Duration::from(time).into())
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
