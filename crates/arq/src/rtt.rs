//! Round-trip time estimation and retransmission timeouts.
//!
//! | clause | implementation |
//! | --- | --- |
//! | RFC 6298 (2.1) to (2.3) | [`RttEstimator::sample`], [`RttEstimator::timeout`] |
//! | RFC 6298 (2.4): no timeout below 1 s | not implemented: see [`Timeouts::floor`]; with it, a loss on a path of 25 µs would cost 40,000 round trips |
//! | RFC 6298 (2.5): maximum timeout | [`Timeouts::ceiling`] |
//! | RFC 6298 (5.5): backoff | [`RttEstimator::backoff`]; the connection resets it at the next sample (Karn) |
//! | RFC 8985 section 6.2, step 4: reordering window | [`RttEstimator::reordering_window`] |
//! | RFC 8985 section 7.2: tail loss probe | [`RttEstimator::probe_timeout`] |

use trunkline_congestion::{MIN_RTT_WINDOW, WindowedMin};
use trunkline_units::{Instant, Span};

/// Upper limit of a sample (13 days), so that no sum saturates.
const MAX_SAMPLE: Span = Span::from_ps(1 << 60);

/// Recoveries without a spurious retransmission after which the reordering window is narrow again (RFC 8985, section
/// 6.2, step 4).
const RECOVERIES_TO_NARROW: u32 = 16;

/// Bounds of the retransmission timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Timeout before the first sample (RFC 6298, 2.1: 1 s).
    pub initial: Span,
    /// Minimum timeout.
    pub floor: Span,
    /// Maximum timeout including backoff; at least `floor`.
    pub ceiling: Span,
    /// Minimum difference between the timeout and the smoothed round-trip time: the precision of timers and of the
    /// scheduler.
    pub granularity: Span,
}

impl Timeouts {
    /// Returns a constant timeout, as in the 1998 paper.
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

/// Estimates the round-trip time of a path.
#[derive(Clone, Copy, Debug)]
pub struct RttEstimator {
    options: Timeouts,
    latest: Option<Span>,
    smoothed: Span,
    variation: Span,
    min: WindowedMin,
    /// The reordering window in quarters of the minimum round-trip time.
    reordering_quarters: u64,
    /// Recoveries since the last spurious retransmission.
    recoveries: u32,
}

impl RttEstimator {
    /// Creates an estimator without samples.
    pub fn new(options: Timeouts) -> RttEstimator {
        RttEstimator {
            options,
            latest: None,
            smoothed: Span::ZERO,
            variation: Span::ZERO,
            min: WindowedMin::new(MIN_RTT_WINDOW),
            reordering_quarters: 1,
            recoveries: 0,
        }
    }

    /// Adds a sample: the time from the only transmission of a frame to its acknowledgement, less the peer's delay
    /// (RFC 6298, 2.2 and 2.3; section 3 for frames sent once only).
    #[inline(always)]
    pub fn sample(&mut self, now: Instant, round_trip: Span) {
        let round_trip = round_trip.min(MAX_SAMPLE);
        if self.latest.is_none() {
            (self.smoothed, self.variation) = (round_trip, round_trip / 2);
        } else {
            let error = round_trip.max(self.smoothed) - round_trip.min(self.smoothed);
            self.variation = (self.variation * 3 + error) / 4;
            self.smoothed = (self.smoothed * 7 + round_trip) / 8;
        }
        self.latest = Some(round_trip);
        self.min.sample(now, round_trip);
    }

    /// Returns the last sample; none before the first.
    #[inline]
    pub fn latest(&self) -> Option<Span> {
        self.latest
    }

    /// Returns the smoothed round-trip time; none before the first sample.
    #[inline]
    pub fn smoothed(&self) -> Option<Span> {
        self.latest.map(|_| self.smoothed)
    }

    /// Returns the minimum of the samples of the last 10 s to 20 s; none before the first.
    #[inline]
    pub fn min(&self) -> Option<Span> {
        self.min.get()
    }

    /// Returns the retransmission timeout if the peer may delay acknowledgements by `peer_ack_delay`.
    #[inline]
    pub fn timeout(&self, peer_ack_delay: Span) -> Span {
        let plain = match self.latest {
            None => self.options.initial,
            Some(_) => self.smoothed + (self.variation * 4).max(self.options.granularity) + peer_ack_delay,
        };
        self.bound(plain)
    }

    /// Returns the timeout after `count` consecutive timeouts: doubled for each.
    pub fn backoff(&self, peer_ack_delay: Span, count: u32) -> Span {
        self.bound(self.timeout(peer_ack_delay) * 1u64.checked_shl(count).unwrap_or(u64::MAX))
    }

    /// Returns the delay of a tail loss probe: two round-trip times, but no more than the timeout.
    #[inline(always)]
    pub fn probe_timeout(&self, peer_ack_delay: Span) -> Span {
        match self.latest {
            None => self.bound(self.options.initial),
            Some(_) => {
                // The smaller of two round-trip times and the timeout.
                let more = self.smoothed.min((self.variation * 4).max(self.options.granularity));
                self.bound(self.smoothed + more + peer_ack_delay)
            }
        }
    }

    /// Returns the reordering window: how much later than its successor a frame may arrive before it is declared
    /// lost. It is a quarter of the minimum round-trip time, widened by
    /// [`on_spurious_retransmission`](Self::on_spurious_retransmission), at most the smoothed round-trip time, and
    /// zero before the first sample.
    pub fn reordering_window(&self) -> Span {
        self.min().map_or(Span::ZERO, |min| (min * self.reordering_quarters / 4).min(self.smoothed))
    }

    /// Widens the reordering window by a quarter after a spurious retransmission. Call it at most once per round
    /// trip.
    pub fn on_spurious_retransmission(&mut self) {
        self.reordering_quarters = self.reordering_quarters.saturating_add(1);
        self.recoveries = 0;
    }

    /// Records a recovery without a spurious retransmission.
    pub fn on_recovery(&mut self) {
        self.recoveries = self.recoveries.saturating_add(1);
        if self.recoveries >= RECOVERIES_TO_NARROW {
            self.reordering_quarters = 1;
        }
    }

    #[inline]
    fn bound(&self, timeout: Span) -> Span {
        // Not `clamp`, which would panic on a ceiling below the floor.
        timeout.min(self.options.ceiling).max(self.options.floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_units::Seed;

    fn s(n: u64) -> Instant {
        Instant::ZERO + Span::from_s(n)
    }

    fn after(samples: &[Span]) -> RttEstimator {
        let mut rtt = RttEstimator::new(Timeouts::default());
        samples.iter().for_each(|&sample| rtt.sample(s(1), sample));
        rtt
    }

    #[test]
    fn estimator_starts_without_samples() {
        let rtt = RttEstimator::new(Timeouts::default());
        assert_eq!((rtt.latest(), rtt.smoothed(), rtt.min()), (None, None, None));
        assert_eq!(rtt.timeout(Span::from_s(9)), Timeouts::default().initial);
        assert_eq!(rtt.probe_timeout(Span::from_s(9)), Timeouts::default().initial);
        assert_eq!(rtt.reordering_window(), Span::ZERO);
    }

    #[test]
    fn first_timeout_is_three_round_trips() {
        // RFC 6298 (2.2): the variation is half of the first sample.
        let rtt = after(&[Span::from_ms(40)]);
        assert_eq!(rtt.timeout(Span::ZERO), Span::from_ms(120));
        assert_eq!(rtt.timeout(Span::from_ms(5)), Span::from_ms(125));
        assert_eq!(rtt.probe_timeout(Span::ZERO), Span::from_ms(80));
    }

    #[test]
    fn second_sample_is_weighted_by_an_eighth_and_a_quarter() {
        // RFC 6298 (2.3), and the order of its two lines.
        let rtt = after(&[Span::from_ms(40), Span::from_ms(80)]);
        assert_eq!(rtt.smoothed(), Some(Span::from_ms(45)));
        assert_eq!(rtt.variation, Span::from_ms(25));
        assert_eq!(rtt.latest(), Some(Span::from_ms(80)));
    }

    #[test]
    fn timeout_of_a_steady_path_is_mean_plus_granularity() {
        let rtt = after(&[Span::from_us(25); 200]);
        assert_eq!(rtt.smoothed(), Some(Span::from_us(25)));
        assert_eq!(rtt.timeout(Span::from_us(30)), Span::from_us(105));
        assert_eq!(rtt.timeout(Span::ZERO), Timeouts::default().floor);
        assert_eq!(rtt.probe_timeout(Span::ZERO), Timeouts::default().floor);
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
            let mut rtt = RttEstimator::new(options);
            let (mut min, mut max) = (Span::MAX, Span::ZERO);
            for _ in 0..100 {
                let sample = Span::from_ps(random.bits() >> random.below(64));
                rtt.sample(s(1), sample);
                (min, max) = (min.min(sample.min(MAX_SAMPLE)), max.max(sample.min(MAX_SAMPLE)));
                let smoothed = rtt.smoothed().unwrap();
                // The mean is rounded down by less than a picosecond per sample.
                assert!(smoothed + Span::from_ps(100) >= min && smoothed <= max, "seed {seed}");
                assert_eq!(rtt.min(), Some(min), "seed {seed}");
                assert!(rtt.reordering_window() <= smoothed, "seed {seed}");
                let delay = Span::from_ps(random.bits());
                let mut last = lowest;
                for count in [0, 1, 2, 7, 63, 64, u32::MAX] {
                    let timeout = rtt.backoff(delay, count);
                    assert!(timeout >= last && timeout <= highest, "seed {seed}: {timeout} after {count}");
                    last = timeout;
                }
                assert!(rtt.probe_timeout(delay) <= rtt.timeout(delay), "seed {seed}");
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
    fn minimum_expires_after_ten_to_twenty_seconds() {
        let mut rtt = RttEstimator::new(Timeouts::default());
        rtt.sample(s(100), Span::from_ms(1));
        for second in 101..110 {
            rtt.sample(s(second), Span::from_ms(5));
        }
        assert_eq!(rtt.min(), Some(Span::from_ms(1)));
        for second in 110..=120 {
            rtt.sample(s(second), Span::from_ms(5));
        }
        assert_eq!(rtt.min(), Some(Span::from_ms(5)), "a path that became longer");
    }

    #[test]
    fn reordering_window_widens_and_narrows() {
        let mut rtt = after(&[Span::from_ms(8); 50]);
        assert_eq!(rtt.reordering_window(), Span::from_ms(2));
        rtt.on_spurious_retransmission();
        assert_eq!(rtt.reordering_window(), Span::from_ms(4));
        for _ in 0..10 {
            rtt.on_spurious_retransmission();
        }
        assert_eq!(rtt.reordering_window(), Span::from_ms(8), "at most the mean");
        for _ in 0..15 {
            rtt.on_recovery();
        }
        assert_eq!(rtt.reordering_window(), Span::from_ms(8));
        rtt.on_recovery();
        assert_eq!(rtt.reordering_window(), Span::from_ms(2));
    }
}
