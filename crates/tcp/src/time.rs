//! Ticks of the Berkeley fast and slow timers, or exact time.
//!
//! Durations are counted in units: ticks of the slow timer, or picoseconds without ticks. Ticks follow from the time
//! and the phase, so an idle endpoint needs no wakeups.

use trunkline_units::{Instant, Span};

use crate::Timers;

/// Period of the fast timer: with ticks the longest delay of an acknowledgement.
pub(crate) const FAST: Span = Span::from_ms(200);
/// Period of the slow timer.
pub(crate) const SLOW: Span = Span::from_ms(500);

/// A timer that is not armed.
pub(crate) const OFF: Instant = Instant::MAX;

/// Returns the number of ticks up to `now`, the first at `phase`.
#[inline]
const fn ticks(now: Instant, phase: u64, period: Span) -> u64 {
    match now.as_ps().checked_sub(phase) {
        Some(since) => since / period.as_ps() + 1,
        None => 0,
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    fine: bool,
    fast_phase: u64,
    slow_phase: u64,
    /// Maximum delay of an acknowledgement without ticks.
    ack_delay: Span,
}

impl Time {
    pub(crate) const fn new(timers: Timers, ack_delay: Span) -> Time {
        match timers {
            Timers::Bsd { fast_phase, slow_phase } => Time {
                fine: false,
                fast_phase: fast_phase.as_ps() % FAST.as_ps(),
                slow_phase: slow_phase.as_ps() % SLOW.as_ps(),
                ack_delay,
            },
            Timers::Fine { .. } => Time { fine: true, fast_phase: 0, slow_phase: 0, ack_delay },
        }
    }

    /// Units per tick.
    pub(crate) const fn tick(self) -> u64 {
        if self.fine { SLOW.as_ps() } else { 1 }
    }

    /// Returns the units up to `now`.
    #[inline]
    const fn units(self, now: Instant) -> u64 {
        if self.fine { now.as_ps() } else { ticks(now, self.slow_phase, SLOW) }
    }

    /// Returns the units between `earlier` and `now`.
    #[inline]
    pub(crate) const fn between(self, earlier: Instant, now: Instant) -> u64 {
        self.units(now).saturating_sub(self.units(earlier))
    }

    /// Returns the expiry of a timer of this many units set now; with ticks up to a tick early.
    #[inline]
    pub(crate) fn after(self, now: Instant, units: u64) -> Instant {
        if self.fine {
            now + Span::from_ps(units)
        } else {
            // The next tick's number is the count of past ticks.
            let tick = self.units(now) + units.max(1) - 1;
            Instant::from_ps(self.slow_phase.saturating_add(tick.saturating_mul(SLOW.as_ps())))
        }
    }

    /// Returns when an acknowledgement delayed from now on is sent.
    #[inline]
    pub(crate) fn acknowledge_at(self, now: Instant) -> Instant {
        if self.fine {
            now + self.ack_delay
        } else {
            let tick = ticks(now, self.fast_phase, FAST);
            Instant::from_ps(self.fast_phase.saturating_add(tick.saturating_mul(FAST.as_ps())))
        }
    }

    /// Converts units to a span.
    #[inline]
    pub(crate) fn span(self, units: u64) -> Span {
        Span::from_ps(if self.fine { units } else { units.saturating_mul(SLOW.as_ps()) })
    }

    /// Converts a span to units, rounded up.
    pub(crate) const fn units_of(self, span: Span) -> u64 {
        if self.fine { span.as_ps() } else { span.as_ps().div_ceil(SLOW.as_ps()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant::ZERO + Span::from_ms(ms)
    }

    #[test]
    fn timers_expire_on_ticks() {
        let phases = Timers::Bsd { fast_phase: Span::from_ms(430), slow_phase: Span::from_ms(1_070) };
        let time = Time::new(phases, FAST);
        // Fast ticks at 30, 230, 430, …; slow ones at 70, 570, 1070, …
        for (now, fast, one, two) in
            [(0, 30, 70, 570), (30, 230, 70, 570), (69, 230, 70, 570), (70, 230, 570, 1_070)]
        {
            assert_eq!(time.acknowledge_at(at_ms(now)), at_ms(fast));
            assert_eq!(time.after(at_ms(now), 1), at_ms(one), "at {now}");
            assert_eq!(time.after(at_ms(now), 2), at_ms(two), "at {now}");
        }
        assert_eq!(time.between(at_ms(569), at_ms(1_070)), 2);
    }

    #[test]
    fn without_ticks_they_expire_by_the_clock() {
        let time = Time::new(Timers::Fine { floor: Span::ZERO }, FAST);
        assert_eq!(time.after(at_ms(3), Span::from_ms(7).as_ps()), at_ms(10));
        assert_eq!(time.acknowledge_at(at_ms(3)), at_ms(203));
        assert_eq!(time.span(time.units_of(Span::from_ms(7))), Span::from_ms(7));
    }

    #[test]
    fn the_end_of_time_is_no_trouble() {
        let time = Time::new(Timers::default(), FAST);
        assert_eq!(time.after(Instant::MAX, u64::MAX / 2), Instant::MAX);
        assert!(time.acknowledge_at(Instant::MAX) >= Instant::MAX - FAST);
    }
}
