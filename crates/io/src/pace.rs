//! Precise waiting for a point in time.
//!
//! A sleep overshoots by the timer slack (50 µs by default) and by scheduling latency. The pacer minimizes the timer
//! slack, sleeps until a margin before the deadline, and spins for the rest. The margin follows the recent overshoot
//! and is bounded, so that a busy machine is not spun to a halt.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use trunkline_units::{Instant, Span};

use crate::Clock;

/// Minimum spin time before a deadline.
const MARGIN_MIN: Span = Span::from_us(20);
/// Maximum spin time before a deadline.
const MARGIN_MAX: Span = Span::from_us(200);
/// Longest single sleep, so that the stop flag is noticed.
const MAX_SLEEP: Span = Span::from_ms(50);

/// Sets the timer slack of the calling thread to its minimum. If that fails, sleeps overshoot more. Only Linux
/// has it.
pub fn minimize_timer_slack() {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_timerslack(1);
}

/// Lets the calling thread run only on this processor, counted from 0. If that fails, or is not on Linux, it runs on any.
pub fn pin_to_processor(processor: usize) {
    #[cfg(target_os = "linux")]
    {
        use nix::sched::{CpuSet, sched_setaffinity};
        let mut set = CpuSet::new();
        if set.set(processor).is_ok() {
            let _ = sched_setaffinity(nix::unistd::Pid::from_raw(0), &set);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = processor;
}

/// Lets the calling thread run only on an otherwise idle processor (`SCHED_IDLE`).
///
/// # Errors
/// System errors; no privileges are needed. [`io::ErrorKind::Unsupported`] on other systems than Linux.
#[cfg(target_os = "linux")]
pub fn set_idle_priority() -> io::Result<()> {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter lives until the call returns, and 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Fails: only Linux has this priority.
///
/// # Errors
/// Always [`io::ErrorKind::Unsupported`].
#[cfg(not(target_os = "linux"))]
pub fn set_idle_priority() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Waits for deadlines on one thread.
#[derive(Debug)]
pub struct Pacer {
    clock: Clock,
    margin: Span,
}

impl Pacer {
    /// Creates a pacer for the calling thread and minimizes its timer slack.
    pub fn new(clock: Clock) -> Self {
        minimize_timer_slack();
        Pacer { clock, margin: MARGIN_MIN * 3 }
    }

    /// Waits until `moment` and returns the current time; returns at once if `moment` has passed. Returns early,
    /// within 50 ms, once `stop` is set.
    #[inline]
    pub fn wait(&mut self, moment: Instant, stop: &AtomicBool) -> Instant {
        loop {
            let now = self.clock.now();
            if now >= moment {
                return now;
            }
            let left = moment.since(now);
            if left <= self.margin {
                std::hint::spin_loop();
            } else if stop.load(Ordering::Relaxed) {
                return now;
            } else {
                self.sleep(now, left - self.margin);
            }
        }
    }

    fn sleep(&mut self, now: Instant, span: Span) {
        let until = now + span.min(MAX_SLEEP);
        sleep_until(self.clock, until);
        let over = self.clock.now().since(until);
        // Raise the margin at once after an overshoot; lower it slowly.
        let wanted = (over + over / 2).min(MARGIN_MAX);
        self.margin = if wanted > self.margin { wanted } else { self.margin - (self.margin - wanted) / 64 };
        self.margin = self.margin.max(MARGIN_MIN);
    }
}

/// Sleeps until about `until`; a signal may end the sleep early.
#[cfg(not(target_vendor = "apple"))]
fn sleep_until(clock: Clock, until: Instant) {
    use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
    let ns = (clock.epoch_ns() + until.as_ns()) as i64;
    let at = nix::sys::time::TimeSpec::new(ns / 1_000_000_000, ns % 1_000_000_000);
    // The caller loops.
    let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &at);
}

/// The same by a relative sleep: macOS has no absolute one.
#[cfg(target_vendor = "apple")]
fn sleep_until(clock: Clock, until: Instant) {
    std::thread::sleep(until.max(clock.now()).since(clock.now()).into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_ends_at_the_deadline_or_on_stop() {
        let clock = Clock::start();
        let mut pacer = Pacer::new(clock);
        let stop = AtomicBool::new(false);
        for us in [0, 50, 300, 2000] {
            let moment = clock.now() + Span::from_us(us);
            let woke = pacer.wait(moment, &stop);
            assert!(woke >= moment);
        }
        stop.store(true, Ordering::Relaxed);
        let far = clock.now() + Span::from_s(3600);
        assert!(pacer.wait(far, &stop) < far);
    }
}
