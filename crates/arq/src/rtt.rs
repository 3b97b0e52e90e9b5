//! Round-trip time, and the timeouts that follow from it.
//!
//! | clause | here |
//! | --- | --- |
//! | RFC 6298 (2.1) to (2.3) | [`RoundTrip::sample`], [`RoundTrip::timeout`] |
//! | RFC 6298 (2.4): no timeout below 1 s | not kept: [`Timeouts::floor`] says, else a loss on a path of 25 µs would cost 40,000 round trips |
//! | RFC 6298 (2.5): a bound of the timeout | [`Timeouts::ceiling`] |
//! | RFC 6298 (5.5): backoff | [`RoundTrip::backoff`]; it lasts until the next sample (Karn), which the connection sees to |
//! | RFC 8985 section 6.2, step 4: reordering window | [`RoundTrip::reordering_window`] |
//! | RFC 8985 section 7.2: when to probe for a lost tail | [`RoundTrip::probe`] |

use trunkline_units::{Instant, Span};

/// A measurement above this (13 days) counts as this, so that no sum saturates.
const LONGEST: Span = Span::from_ps(1 << 60);

/// After so many recoveries without a needless retransmission the reordering window is narrow again (RFC 8985 section
/// 6.2, step 4).
const FORGIVEN: u32 = 16;

/// The bounds of the timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Before anything was measured (RFC 6298 2.1 says 1 s).
    pub initial: Span,
    /// The least timeout.
    pub floor: Span,
    /// The longest, backoff included; at least the floor.
    pub ceiling: Span,
    /// The timeout exceeds the mean by so much at least: how exactly timers fire and processes are woken.
    pub granularity: Span,
}

impl Timeouts {
    /// Always the same, as in 1998.
    pub const fn fixed(span: Span) -> Timeouts {
        Timeouts { initial: span, floor: span, ceiling: span, granularity: Span::ZERO }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            initial: Span::from_ms(200),
            floor: Span::from_us(100),
            ceiling: Span::from_s(60),
            granularity: Span::from_us(50),
        }
    }
}

/// What is known of a path's round-trip time.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrip {
    options: Timeouts,
    latest: Option<Span>,
    smoothed: Span,
    variation: Span,
    least: Least,
    /// The reordering window in quarters of the least round trip.
    quarters: u64,
    /// Recoveries since a retransmission was needless.
    recoveries: u32,
}

impl RoundTrip {
    /// Nothing known yet.
    pub fn new(options: Timeouts) -> RoundTrip {
        RoundTrip {
            options,
            latest: None,
            smoothed: Span::ZERO,
            variation: Span::ZERO,
            least: Least::new(LEAST_WINDOW),
            quarters: 1,
            recoveries: 0,
        }
    }

    /// A frame that was sent once was acknowledged so long after it left, the peer's delay taken off (RFC 6298 2.2, 2.3
    /// and, that it was sent once, section 3).
    #[inline(always)]
    pub fn sample(&mut self, now: Instant, round_trip: Span) {
        let round_trip = round_trip.min(LONGEST);
        if self.latest.is_none() {
            (self.smoothed, self.variation) = (round_trip, round_trip / 2);
        } else {
            let error = round_trip.max(self.smoothed) - round_trip.min(self.smoothed);
            self.variation = (self.variation * 3 + error) / 4;
            self.smoothed = (self.smoothed * 7 + round_trip) / 8;
        }
        self.latest = Some(round_trip);
        self.least.sample(now, round_trip);
    }

    /// The last measurement; none before the first.
    #[inline]
    pub fn latest(&self) -> Option<Span> {
        self.latest
    }

    /// The mean; none before the first measurement.
    #[inline]
    pub fn smoothed(&self) -> Option<Span> {
        self.latest.map(|_| self.smoothed)
    }

    /// The mean deviation; zero before the first measurement.
    pub fn variation(&self) -> Span {
        self.variation
    }

    /// The least of the last 10 s to 20 s of measurements; none before the first.
    #[inline]
    pub fn least(&self) -> Option<Span> {
        self.least.get()
    }

    /// How long to wait for an acknowledgement that the peer may hold back for `peer_ack_delay`.
    #[inline]
    pub fn timeout(&self, peer_ack_delay: Span) -> Span {
        let plain = match self.latest {
            None => self.options.initial,
            Some(_) => self.smoothed + (self.variation * 4).max(self.options.granularity) + peer_ack_delay,
        };
        self.bound(plain)
    }

    /// The timeout after `count` in a row came to nothing: doubled each time.
    pub fn backoff(&self, peer_ack_delay: Span, count: u32) -> Span {
        self.bound(self.timeout(peer_ack_delay) * 1u64.checked_shl(count).unwrap_or(u64::MAX))
    }

    /// When to ask after the last frames of a burst: two round trips, and never later than the timeout.
    #[inline(always)]
    pub fn probe(&self, peer_ack_delay: Span) -> Span {
        match self.latest {
            None => self.bound(self.options.initial),
            Some(_) => {
                // Two round trips, or the timeout if that is earlier.
                let more = self.smoothed.min((self.variation * 4).max(self.options.granularity));
                self.bound(self.smoothed + more + peer_ack_delay)
            }
        }
    }

    /// How much later than a frame sent after it a frame may come without being lost: a quarter of the least round trip,
    /// widened by [`spurious`](Self::spurious), at most the mean; zero before the first measurement.
    pub fn reordering_window(&self) -> Span {
        self.least().map_or(Span::ZERO, |least| (least * self.quarters / 4).min(self.smoothed))
    }

    /// A retransmission was needless: the window widens by another quarter. To be told at most once a round.
    pub fn spurious(&mut self) {
        self.quarters = self.quarters.saturating_add(1);
        self.recoveries = 0;
    }

    /// Lost frames have been repaired, and no retransmission turned out needless.
    pub fn recovered(&mut self) {
        self.recoveries = self.recoveries.saturating_add(1);
        if self.recoveries >= FORGIVEN {
            self.quarters = 1;
        }
    }

    #[inline]
    fn bound(&self, timeout: Span) -> Span {
        // Not `clamp`, which would panic on a ceiling below the floor.
        timeout.min(self.options.ceiling).max(self.options.floor)
    }
}

/// How long a least round trip is remembered at least.
pub(crate) const LEAST_WINDOW: Span = Span::from_s(10);

/// The least of what was sampled within a window: the one that fills and the one before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Least {
    window: Span,
    began: Instant,
    current: Option<Span>,
    previous: Option<Span>,
}

impl Least {
    pub(crate) const fn new(window: Span) -> Least {
        Least { window, began: Instant::ZERO, current: None, previous: None }
    }

    #[inline]
    pub(crate) fn sample(&mut self, now: Instant, value: Span) {
        if now.since(self.began) >= self.window {
            self.began = now;
            self.previous = self.current.take();
        }
        self.current = Some(self.current.map_or(value, |least| least.min(value)));
    }

    /// Until when samples change nothing that are no less than so much.
    pub(crate) fn lasts(&self) -> Option<(Instant, Span)> {
        self.current.map(|least| (self.began + self.window, least))
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<Span> {
        match (self.current, self.previous) {
            (Some(current), Some(previous)) => Some(current.min(previous)),
            (current, previous) => current.or(previous),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_units::Seed;

    fn s(n: u64) -> Instant {
        Instant::ZERO + Span::from_s(n)
    }

    fn after(samples: &[Span]) -> RoundTrip {
        let mut rtt = RoundTrip::new(Timeouts::default());
        samples.iter().for_each(|&sample| rtt.sample(s(1), sample));
        rtt
    }

    #[test]
    fn nothing_is_known_at_first() {
        let rtt = RoundTrip::new(Timeouts::default());
        assert_eq!((rtt.latest(), rtt.smoothed(), rtt.least()), (None, None, None));
        assert_eq!(rtt.timeout(Span::from_s(9)), Timeouts::default().initial);
        assert_eq!(rtt.probe(Span::from_s(9)), Timeouts::default().initial);
        assert_eq!(rtt.reordering_window(), Span::ZERO);
    }

    #[test]
    fn the_first_timeout_is_three_round_trips() {
        // RFC 6298 (2.2): the variation is half of it.
        let rtt = after(&[Span::from_ms(40)]);
        assert_eq!(rtt.timeout(Span::ZERO), Span::from_ms(120));
        assert_eq!(rtt.timeout(Span::from_ms(5)), Span::from_ms(125));
        assert_eq!(rtt.probe(Span::ZERO), Span::from_ms(80));
    }

    #[test]
    fn the_second_weighs_an_eighth_and_a_quarter() {
        // RFC 6298 (2.3), and the order of its two lines.
        let rtt = after(&[Span::from_ms(40), Span::from_ms(80)]);
        assert_eq!(rtt.smoothed(), Some(Span::from_ms(45)));
        assert_eq!(rtt.variation(), Span::from_ms(25));
        assert_eq!(rtt.latest(), Some(Span::from_ms(80)));
    }

    #[test]
    fn a_steady_path_comes_to_its_mean_and_the_granularity() {
        let rtt = after(&[Span::from_us(25); 200]);
        assert_eq!(rtt.smoothed(), Some(Span::from_us(25)));
        assert_eq!(rtt.timeout(Span::from_us(30)), Span::from_us(105));
        assert_eq!(rtt.timeout(Span::ZERO), Timeouts::default().floor);
        assert_eq!(rtt.probe(Span::ZERO), Timeouts::default().floor);
    }

    #[test]
    fn estimates_stay_among_the_samples_and_timeouts_within_bounds() {
        for seed in 0..200 {
            let mut random = Seed(seed).stream("round trips");
            let options = Timeouts {
                initial: Span::from_ps(random.bits()),
                floor: Span::from_ps(random.bits() >> random.below(64)),
                ceiling: Span::from_ps(random.bits() >> random.below(64)),
                granularity: Span::from_ps(random.bits() >> random.below(64)),
            };
            let (lowest, highest) = (options.floor, options.floor.max(options.ceiling));
            let mut rtt = RoundTrip::new(options);
            let (mut least, mut most) = (Span::MAX, Span::ZERO);
            for _ in 0..100 {
                let sample = Span::from_ps(random.bits() >> random.below(64));
                rtt.sample(s(1), sample);
                (least, most) = (least.min(sample.min(LONGEST)), most.max(sample.min(LONGEST)));
                let smoothed = rtt.smoothed().unwrap();
                // The mean rounds down by less than a picosecond each time.
                assert!(smoothed + Span::from_ps(100) >= least && smoothed <= most, "seed {seed}");
                assert_eq!(rtt.least(), Some(least), "seed {seed}");
                assert!(rtt.reordering_window() <= smoothed, "seed {seed}");
                let delay = Span::from_ps(random.bits());
                let mut last = lowest;
                for count in [0, 1, 2, 7, 63, 64, u32::MAX] {
                    let timeout = rtt.backoff(delay, count);
                    assert!(timeout >= last && timeout <= highest, "seed {seed}: {timeout} after {count}");
                    last = timeout;
                }
                assert!(rtt.probe(delay) <= rtt.timeout(delay), "seed {seed}");
            }
        }
    }

    #[test]
    fn backoff_doubles_up_to_the_ceiling() {
        let rtt = after(&[Span::from_ms(10)]);
        let timeouts = [0, 1, 2, 3].map(|count| rtt.backoff(Span::ZERO, count));
        assert_eq!(timeouts, [30, 60, 120, 240].map(Span::from_ms));
        assert_eq!(rtt.backoff(Span::ZERO, 20), Timeouts::default().ceiling);
    }

    #[test]
    fn the_least_is_remembered_ten_seconds_and_forgotten_after_twenty() {
        let mut rtt = RoundTrip::new(Timeouts::default());
        rtt.sample(s(100), Span::from_ms(1));
        for second in 101..110 {
            rtt.sample(s(second), Span::from_ms(5));
        }
        assert_eq!(rtt.least(), Some(Span::from_ms(1)));
        for second in 110..=120 {
            rtt.sample(s(second), Span::from_ms(5));
        }
        assert_eq!(rtt.least(), Some(Span::from_ms(5)), "a path that became longer");
    }

    #[test]
    fn the_reordering_window_widens_and_narrows() {
        let mut rtt = after(&[Span::from_ms(8); 50]);
        assert_eq!(rtt.reordering_window(), Span::from_ms(2));
        rtt.spurious();
        assert_eq!(rtt.reordering_window(), Span::from_ms(4));
        for _ in 0..10 {
            rtt.spurious();
        }
        assert_eq!(rtt.reordering_window(), Span::from_ms(8), "at most the mean");
        for _ in 0..15 {
            rtt.recovered();
        }
        assert_eq!(rtt.reordering_window(), Span::from_ms(8));
        rtt.recovered();
        assert_eq!(rtt.reordering_window(), Span::from_ms(2));
    }
}
