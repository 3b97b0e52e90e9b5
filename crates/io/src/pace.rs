//! Precise waiting for a point in time.
//!
//! A sleep overshoots by the timer slack (50 µs by default) and by scheduling latency. The pacer minimizes the timer
//! slack, sleeps until a margin before the deadline, and spins for the rest. The margin follows the recent overshoot
//! and is bounded, so that a busy machine is not spun to a halt.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use trunkline_units::{Instant, Span};

use crate::Clock;

/// Minimum spin time before a deadline.
const MARGIN_MIN: Span = Span::from_us(20);
/// Maximum spin time before a deadline.
const MARGIN_MAX: Span = Span::from_us(200);
/// Longest single sleep, so that the stop flag is noticed.
const MAX_SLEEP: Span = Span::from_ms(50);

/// Sets the timer slack of the calling thread to its minimum. If that fails, sleeps overshoot more.
pub fn minimize_timer_slack() {
    let _ = nix::sys::prctl::set_timerslack(1);
}

/// Lets the calling thread run only on an otherwise idle processor (`SCHED_IDLE`).
///
/// # Errors
/// System errors; no privileges are needed.
pub fn set_idle_priority() -> io::Result<()> {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter lives until the call returns, and 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
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
        let ns = (self.clock.epoch_ns() + until.as_ns()) as i64;
        let at = nix::sys::time::TimeSpec::new(ns / 1_000_000_000, ns % 1_000_000_000);
        // A signal may end the sleep early; the caller loops.
        let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &at);
        let over = self.clock.now().since(until);
        // Raise the margin at once after an overshoot; lower it slowly.
        let wanted = (over + over / 2).min(MARGIN_MAX);
        self.margin = if wanted > self.margin { wanted } else { self.margin - (self.margin - wanted) / 64 };
        self.margin = self.margin.max(MARGIN_MIN);
    }
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
