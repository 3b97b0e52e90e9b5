//! Round-trip time, retransmission timeout, backoff: Jacobson 1988 in the fixed-point arithmetic of the Berkeley code.
//!
//! All numbers are in units of [`Time`]. The mean is scaled by eight, the variation by four.

use trunkline_units::Span;

use crate::Timers;
use crate::time::{FAST, Time};

/// Timeout multiplier by the number of expiries.
const BACKOFF: [u64; 13] = [1, 2, 4, 8, 16, 32, 64, 64, 64, 64, 64, 64, 64];

/// Maximum consecutive expiries.
const MAX_EXPIRIES: usize = BACKOFF.len() - 1;

/// Clock granularity without ticks (RFC 6298, section 2.3).
const GRANULARITY: Span = Span::from_ms(1);

#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    /// Eight times the mean; 0: unknown.
    mean: i64,
    /// Four times the variation.
    variation: i64,
    rto: u64,
    shift: usize,
    /// Units per tick.
    tick: u64,
    /// Bounds of the timeout.
    least: u64,
    most: u64,
    /// A started tick counts as one; without ticks times are exact.
    origin: i64,
    granularity: i64,
}

impl RoundTrip {
    /// Initial state: the timeout is 12 ticks, as after `tcp_newtcpcb`; without ticks it may be another.
    pub(crate) fn new(timers: Timers, initial: Option<Span>) -> RoundTrip {
        let time = Time::new(timers, FAST);
        let tick = time.tick();
        let (least, origin, granularity) = match timers {
            Timers::Bsd { .. } => (2, 1, 0),
            // As in Linux, the floor is that of the variation: the timeout exceeds the mean by it.
            Timers::Fine { floor } => (0, 0, floor.max(GRANULARITY).as_ps().min(128 * tick) as i64),
        };
        let initial = initial.filter(|_| matches!(timers, Timers::Fine { .. })).map(Span::as_ps);
        let rto = initial.map_or(12 * tick, |span| span.clamp(1, 128 * tick));
        let variation = if initial.is_some() { rto as i64 } else { 24 * tick as i64 };
        RoundTrip { mean: 0, variation, rto, shift: 0, tick, least, most: 128 * tick, origin, granularity }
    }

    /// Adds a sample: a segment was acknowledged after this many units (`tcp_xmit_timer`).
    pub(crate) fn sample(&mut self, units: u64) {
        // An upper bound, so that nothing below overflows.
        let rtt = units.min(1 << 50) as i64;
        if self.mean == 0 {
            // The initial variation is half of the sample, so that the first timeout is three round trips.
            let rtt = rtt + self.origin;
            (self.mean, self.variation) = ((rtt << 3).max(1), rtt << 1);
        } else {
            let error = rtt - (self.mean >> 3);
            self.mean = (self.mean + error).max(1);
            self.variation = (self.variation + error.abs() - (self.variation >> 2)).max(1);
        }
        self.shift = 0;
        self.rto = self.timeout();
    }

    fn timeout(&self) -> u64 {
        let plain = ((self.mean >> 3) + self.variation.max(self.granularity)) as u64;
        (plain * BACKOFF[self.shift]).clamp(self.least, self.most)
    }

    /// Doubles the timeout after an expiry. Returns false if there were too many.
    pub(crate) fn expired(&mut self) -> bool {
        if self.shift == MAX_EXPIRIES {
            return false;
        }
        self.shift += 1;
        self.rto = self.timeout();
        if self.shift > MAX_EXPIRIES / 4 {
            // The mean is unusable: the next sample starts anew; until then the variation keeps the timeout.
            self.variation += self.mean >> 3;
            self.mean = 0;
        }
        true
    }

    /// Returns the units before the next window probe (`tcp_setpersist`): 5 s to 60 s, with backoff.
    pub(crate) fn persist(&mut self) -> u64 {
        let plain = (((self.mean >> 2) + self.variation) >> 1) as u64;
        let wait = (plain * BACKOFF[self.shift]).clamp(10 * self.tick, 120 * self.tick);
        self.shift = (self.shift + 1).min(MAX_EXPIRIES);
        wait
    }

    /// Resets the backoff.
    pub(crate) fn reset_backoff(&mut self) {
        self.shift = 0;
    }

    /// Retransmission timeout.
    #[inline]
    pub(crate) fn rto(&self) -> u64 {
        self.rto
    }

    /// Smoothed round-trip time, in eighths of a unit.
    #[inline]
    pub(crate) fn mean_eighths(&self) -> u64 {
        self.mean as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BSD: Timers = Timers::Bsd { fast_phase: Span::ZERO, slow_phase: Span::ZERO };

    #[test]
    fn the_first_timeouts_are_those_of_the_book() {
        // TCP/IP Illustrated, volume 2, section 25.7: 6 s, then 24, 48, 64 s.
        let mut rtt = RoundTrip::new(BSD, None);
        let mut seen = vec![rtt.rto()];
        while rtt.expired() {
            seen.push(rtt.rto());
        }
        assert_eq!(seen, [12, 48, 96, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128]);
    }

    #[test]
    fn the_first_measurement_gives_three_round_trips() {
        let mut rtt = RoundTrip::new(BSD, None);
        rtt.sample(3); // three ticks passed: four have begun
        assert_eq!(rtt.rto(), 12);
        let mut short = RoundTrip::new(BSD, None);
        short.sample(0);
        assert_eq!(short.rto(), 3);
    }

    #[test]
    fn round_trips_shorter_than_a_tick_leave_three_ticks() {
        // The mean stays at 7/8 and the variation at 3/4, where the shifts stop, so 1 s is a bound and not the usual
        // timeout of a quiet network.
        let mut rtt = RoundTrip::new(BSD, None);
        (0..50).for_each(|_| rtt.sample(0));
        assert_eq!((rtt.mean, rtt.variation, rtt.rto()), (7, 3, 3));
        let mut backed_off = Vec::new();
        while rtt.expired() {
            backed_off.push(rtt.rto());
        }
        assert_eq!(backed_off, [6, 12, 24, 48, 96, 128, 128, 128, 128, 128, 128, 128]);
    }

    #[test]
    fn without_ticks_the_timeout_comes_near_the_round_trip() {
        let mut rtt = RoundTrip::new(Timers::Fine { floor: Span::ZERO }, None);
        let ms = Span::from_ms(1).as_ps();
        (0..200).for_each(|_| rtt.sample(30 * ms));
        assert!((30 * ms..=32 * ms).contains(&rtt.rto()), "{}", rtt.rto());
        let mut floored = RoundTrip::new(Timers::Fine { floor: Span::from_s(1) }, None);
        (0..200).for_each(|_| floored.sample(30 * ms));
        assert_eq!(floored.rto(), 1_030 * ms);
    }

    #[test]
    fn probes_come_ever_slower_from_5_s_to_60_s() {
        let mut rtt = RoundTrip::new(BSD, None);
        rtt.sample(0);
        let waits: Vec<u64> = (0..10).map(|_| rtt.persist()).collect();
        assert!(waits.is_sorted() && waits[0] == 10 && waits[9] == 120, "{waits:?}");
    }

    #[test]
    fn a_mad_measurement_is_survived() {
        for timers in [BSD, Timers::Fine { floor: Span::MAX }] {
            let mut rtt = RoundTrip::new(timers, None);
            for units in [u64::MAX, 0, u64::MAX, 1] {
                rtt.sample(units);
                while rtt.expired() {}
                assert!(rtt.rto() <= 128 * rtt.tick && rtt.persist() <= 120 * rtt.tick);
            }
        }
    }
}
