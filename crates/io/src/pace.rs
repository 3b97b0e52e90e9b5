//! Waiting for a moment, exactly.
//!
//! A sleep overshoots: by the timer slack (50 µs unless asked otherwise) and by however long the scheduler takes.
//! So the pacer asks for no slack, sleeps until a margin before the moment and spins for the rest. The margin
//! follows what sleeps have cost lately, and is bounded, so that a busy machine is not spun to a halt.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use trunkline_units::{Instant, Span};

use crate::Clock;

/// Spin at least this long before a moment.
const MARGIN_MIN: Span = Span::from_us(20);
/// And at most this long.
const MARGIN_MAX: Span = Span::from_us(200);
/// Longest single sleep, so that a stop is noticed.
const NAP: Span = Span::from_ms(50);

/// Asks the system to end the sleeps of the calling thread when they are due. Where it does not, they overshoot more.
pub fn no_slack() {
    let _ = nix::sys::prctl::set_timerslack(1);
}

/// Has the calling thread run only while its processor has nothing else to do (`SCHED_IDLE`).
///
/// # Errors
/// What the system says; it needs no right.
pub fn when_idle() -> io::Result<()> {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter lives until the call returns, and 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits for moments on one thread.
#[derive(Debug)]
pub struct Pacer {
    clock: Clock,
    margin: Span,
}

impl Pacer {
    /// A pacer for the calling thread, whose timer slack it sets to the least.
    pub fn new(clock: Clock) -> Self {
        no_slack();
        Pacer { clock, margin: MARGIN_MIN * 3 }
    }

    /// Returns at `moment` or just after, with the time then; at once if it has passed. Returns early, within
    /// 50 ms, once `stop` is set.
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
        let until = now + span.min(NAP);
        let ns = (self.clock.epoch_ns() + until.as_ns()) as i64;
        let at = nix::sys::time::TimeSpec::new(ns / 1_000_000_000, ns % 1_000_000_000);
        // An early wake (a signal) only means another turn of the caller's loop.
        let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &at);
        let over = self.clock.now().since(until);
        // Up at once when a sleep ran over, down slowly when they do not.
        let wanted = (over + over / 2).min(MARGIN_MAX);
        self.margin = if wanted > self.margin { wanted } else { self.margin - (self.margin - wanted) / 64 };
        self.margin = self.margin.max(MARGIN_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_no_earlier_than_asked_unless_stopped() {
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
