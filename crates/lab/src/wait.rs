//! Waiting for packets and for a point in time at once.
//!
//! A sleep ends late by what the kernel needs to wake the thread. So with few packets the thread sleeps until a margin before the
//! deadline and then asks for packets without sleeping. The margin is the mean lateness of recent sleeps, and bounded.
//!
//! With many packets, waking for each costs more than carrying it, and the processors have other work: the senders and receivers. So
//! the thread pauses for a fixed short time, and then handles all that has arrived or become due. The pauses are at least a part of
//! its time: the kernel stops a thread with a real-time priority that never sleeps for 50 ms of each second.

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
/// Time over which packets and the processor time of the thread are counted.
const PERIOD: Span = Span::from_ms(50);
/// Processor time in a period that permits a margin.
const MAX_WITH_MARGIN: Span = Span::from_ms(30);
/// Packets in a period, read and delivered, from which on the thread pauses, and below which it wakes for each again.
const MANY: u64 = 1_000;
const FEW: u64 = 500;
/// Length of a pause: this, and at least this part of the time since the last one. If packets wait, only that part, and not
/// more often than this.
const PAUSE: Span = Span::from_us(30);
const PAUSE_PART: u64 = 14;
const MAX_WITHOUT_PAUSE: Span = Span::from_ms(1);
const MAX_PAUSE: Span = Span::from_us(300);
/// Longest sleep, so that the request to stop is noticed.
const MAX_SLEEP: Span = Span::from_ms(20);
/// Descriptors reported at once.
const MAX_EVENTS: usize = 512;

/// Descriptors to wait for. Each is reported once when it becomes readable; read it until it is empty.
#[derive(Debug)]
pub struct Waiter {
    epoll: Epoll,
    clock: Clock,
    /// Mean lateness of recent sleeps.
    lateness: Span,
    has_margin: bool,
    /// Start of the period, the processor time of the thread then, and the packets since then.
    period: Instant,
    processor_time: Span,
    packets: u64,
    /// Whether there are many packets, and the end of the last pause.
    pauses: bool,
    paused: Instant,
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
            packets: 0,
            pauses: false,
            paused: Instant::ZERO,
        })
    }

    fn begin_period(&mut self, now: Instant) {
        let total = processor_time();
        let had_pauses = self.pauses;
        self.pauses = self.packets > if had_pauses { FEW } else { MANY };
        if !had_pauses {
            self.paused = now;
        }
        self.has_margin = !self.pauses && total - self.processor_time <= MAX_WITH_MARGIN;
        (self.period, self.processor_time, self.packets) = (now, total, 0);
    }

    /// Counts packets that were read or delivered.
    pub fn count(&mut self, packets: u64) {
        self.packets += packets;
    }

    /// Sleeps for a while if there are many packets.
    fn pause(&mut self, now: Instant, has_more: bool) {
        let part = now.since(self.paused) / PAUSE_PART;
        let length = match has_more {
            false => part.clamp(PAUSE, MAX_PAUSE),
            true if part * PAUSE_PART >= MAX_WITHOUT_PAUSE => part.min(MAX_PAUSE),
            true => return,
        };
        std::thread::sleep(length.into());
        self.paused = self.clock.now();
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
    /// `until`, or for 20 ms; with many packets only for a pause. `until` is zero if packets wait to be read.
    ///
    /// # Errors
    /// System errors.
    pub fn wait(&mut self, until: Instant, mut each: impl FnMut(u32)) -> io::Result<()> {
        let start = self.clock.now();
        if start.since(self.period) >= PERIOD {
            self.begin_period(start);
        }
        if self.pauses {
            self.pause(start, until == Instant::ZERO);
        }
        let left = if self.pauses { Span::ZERO } else { until.since(start) };
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
