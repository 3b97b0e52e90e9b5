//! Admission of ordinary messages to a medium: by the levels of 1997 or by rates.
//!
//! Levels react to the octets carried and alternate between admitting all and nearly no messages.
//! [`Congestion::Rates`] is a token bucket, refilled every interval with 95 % of the medium's capacity and at most
//! two refills deep. Priority messages are always admitted and use tokens; the bucket reserves as many as they used
//! recently. If it refuses more than a sixteenth of what it admits, senders must reduce their rate by an eighth every
//! ten intervals, so that excess messages are dropped at their source. Otherwise they may raise it by a 128th of the
//! capacity. Such additive increase and multiplicative decrease converges to equal shares (Chiu and Jain, 1989).
//! docs/reference/bundle-congestion.md shows the curves.

use trunkline_units::{Instant, Span};

use crate::level::{Level, Medium};

/// The kind of congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// Levels, as in 1997.
    Levels,
    /// Rates, by a token bucket.
    #[default]
    Rates,
}

/// A rate without a limit.
pub const NO_LIMIT: u32 = u32::MAX;
/// The number of intervals between two changes of the senders' rate.
pub const INTERVALS_PER_CHANGE: u64 = 10;
/// The largest number of missed intervals to process: by then all earlier state has decayed.
const MAX_CATCH_UP: u64 = 4_096;

/// Octets of a packet besides its UDP payload: preamble, gap and headers of Ethernet, IPv4 and UDP.
const FRAME_OVERHEAD: usize = 66;

/// The burst allowed by a host's receive limit, since a bundle carries the messages of several milliseconds.
pub const SATURATION_BURST: Span = Span::from_ms(250);

/// A token bucket, refilled every 5 ms.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    /// Tokens per second.
    rate: u32,
    /// The largest burst, in refills.
    burst_refills: i64,
    /// In units of 1/[`REFILLS_PER_SECOND`].
    tokens: i64,
    /// The smallest allowed burst.
    min_burst: i64,
    until: Instant,
}

/// The time between two refills.
pub const REFILL_INTERVAL: Span = Span::from_ms(5);
const REFILLS_PER_SECOND: i64 = 200;

impl TokenBucket {
    /// Creates a bucket without a limit. With a limit it admits bursts of the tokens of `at_once`, and at least
    /// `min_burst`, since the messages of a bundle arrive together.
    pub fn new(min_burst: usize, at_once: Span) -> TokenBucket {
        let burst_refills = (at_once.as_ps() / REFILL_INTERVAL.as_ps()).max(1) as i64;
        TokenBucket {
            rate: NO_LIMIT,
            burst_refills,
            tokens: 0,
            min_burst: min_burst as i64,
            until: Instant::ZERO,
        }
    }

    /// Returns the rate per second, or [`NO_LIMIT`].
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// Sets the rate per second.
    pub fn set_rate(&mut self, rate: u32) {
        self.rate = rate;
    }

    /// Takes tokens and returns true, or returns false if there are none.
    pub fn admits(&mut self, now: Instant, amount: usize) -> bool {
        if self.rate == NO_LIMIT {
            return true;
        }
        if now >= self.until {
            let fills = now.since(self.until).as_ps() / REFILL_INTERVAL.as_ps() + 1;
            let most = (i64::from(self.rate) * self.burst_refills).max(self.min_burst * REFILLS_PER_SECOND);
            self.tokens = (self.tokens + i64::from(self.rate) * fills.min(MAX_CATCH_UP) as i64).min(most);
            self.until += Span::from_ps(REFILL_INTERVAL.as_ps().saturating_mul(fills));
        }
        let admitted = self.tokens > 0;
        self.tokens -= if admitted { amount as i64 * REFILLS_PER_SECOND } else { 0 };
        admitted
    }
}

/// The admission control of one medium.
#[derive(Clone, Debug)]
pub struct Regulator {
    congestion: Congestion,
    medium: Medium,
    level: Level,
    tokens: i64,
    /// Octets of priority messages in this interval, and their moving average.
    priority_octets: i64,
    priority_reserve: i64,
    /// Octets of ordinary messages refused since the last change of the rate.
    refused_octets: i64,
    /// The rate of senders, octets per second.
    rate: u32,
    /// The number of intervals so far.
    intervals: u64,
    until: Instant,
}

impl Regulator {
    /// Creates a regulator of an idle medium.
    pub fn new(congestion: Congestion, medium: Medium) -> Regulator {
        let until = Instant::ZERO + medium.interval;
        let mut regulator = Regulator {
            congestion,
            medium,
            level: Level::new(medium),
            tokens: 0,
            priority_octets: 0,
            priority_reserve: 0,
            refused_octets: 0,
            rate: NO_LIMIT,
            intervals: 0,
            until,
        };
        regulator.tokens = regulator.refill();
        regulator
    }

    /// Returns the level, 3 to 6.
    pub fn level(&self) -> u8 {
        self.level.get()
    }

    /// Returns the octets of ordinary messages per second that each sender may send, or [`NO_LIMIT`].
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// Returns the octets of one refill.
    fn refill(&self) -> i64 {
        (self.medium.capacity / 20 * 19 + self.medium.capacity % 20 * 19 / 20) as i64
    }

    /// Returns the capacity in octets per second.
    pub fn capacity(&self) -> u32 {
        let a_second = u128::from(self.medium.capacity) * u128::from(Span::from_s(1).as_ps());
        u32::try_from(a_second / u128::from(self.medium.interval.as_ps())).unwrap_or(NO_LIMIT - 1)
    }

    /// Counts a bundle that the medium carried, of which `admitted` octets were already counted by
    /// [`admits`](Regulator::admits).
    pub fn carry(&mut self, now: Instant, octets: usize, admitted: usize) {
        self.advance(now);
        self.level.carry(octets);
        self.spend_tokens(FRAME_OVERHEAD + octets.saturating_sub(admitted));
    }

    /// The debt is at most four refills, so that a burst of priority messages blocks ordinary ones only briefly.
    fn spend_tokens(&mut self, octets: usize) {
        self.tokens = (self.tokens - octets as i64).max(-4 * self.refill());
    }

    /// Admits a message of this size and returns true, or refuses it.
    pub fn admits(&mut self, priority: bool, octets: usize) -> bool {
        if self.congestion == Congestion::Levels {
            return self.level.admits(priority);
        }
        if priority {
            self.priority_octets += octets as i64;
        } else if self.tokens <= (self.priority_reserve - self.priority_octets).max(0) {
            self.refused_octets += octets as i64;
            return false;
        }
        self.spend_tokens(octets);
        true
    }

    /// Returns the end of the interval if it may change the level that senders receive.
    pub fn deadline(&self) -> Option<Instant> {
        let level = self.level.deadline();
        let rates = (self.refused_octets > 0 || self.rate != NO_LIMIT).then_some(self.until);
        level.into_iter().chain(rates).min()
    }

    /// Ends the intervals up to now.
    pub fn advance(&mut self, now: Instant) {
        self.level.advance(now);
        if now < self.until {
            return;
        }
        let elapsed = now.since(self.until).as_ps() / self.medium.interval.as_ps() + 1;
        for _ in 0..elapsed.min(MAX_CATCH_UP) {
            self.end_interval();
        }
        self.intervals += elapsed.saturating_sub(MAX_CATCH_UP);
        self.until += Span::from_ps(self.medium.interval.as_ps().saturating_mul(elapsed));
    }

    fn end_interval(&mut self) {
        self.priority_reserve += (self.priority_octets - self.priority_reserve) / 8
            - i64::from(self.priority_octets < self.priority_reserve);
        self.priority_octets = 0;
        self.tokens = (self.tokens + self.refill()).min((2 * self.refill()).max(self.priority_reserve + 1));
        self.intervals += 1;
        if !self.intervals.is_multiple_of(INTERVALS_PER_CHANGE) || self.congestion == Congestion::Levels {
            return;
        }
        let capacity = self.capacity();
        // Bursts always cause a few refusals.
        let is_overloaded =
            std::mem::take(&mut self.refused_octets) * 16 > self.refill() * INTERVALS_PER_CHANGE as i64;
        self.rate = match (is_overloaded, self.rate) {
            (true, rate) => (rate.min(capacity) / 8 * 7).max(capacity / 128),
            (false, NO_LIMIT) => NO_LIMIT,
            (false, rate) if rate >= capacity - capacity / 128 => NO_LIMIT,
            (false, rate) => rate + (capacity / 128).max(1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Span::from_ms(ms)
    }

    #[test]
    fn ordinary_messages_share_what_priority_leaves_of_95_percent() {
        let mut regulator = Regulator::new(Congestion::Rates, Medium::default());
        let (mut ordinary, mut urgent) = (0, 0);
        for interval in 0..2_000u64 {
            for message in 0..80 {
                let priority = message % 4 == 0;
                let admitted = regulator.admits(priority, 150);
                assert!(admitted || !priority);
                if interval >= 1_000 {
                    *(if priority { &mut urgent } else { &mut ordinary }) += 150 * u64::from(admitted);
                }
            }
            regulator.advance(at(5 * (interval + 1)));
        }
        // Priority messages use 3,000 of 5,700 octets per interval.
        assert_eq!(urgent, 3_000 * 1_000);
        assert!((2_600_000..=2_750_000).contains(&ordinary), "{ordinary}");
        assert!(regulator.rate() < NO_LIMIT);
        regulator.advance(at(10_000 + 20_000));
        assert_eq!((regulator.level(), regulator.rate(), regulator.deadline()), (3, NO_LIMIT, None));
    }

    #[test]
    fn priority_may_exceed_the_capacity_with_a_bounded_debt() {
        let mut regulator = Regulator::new(Congestion::Rates, Medium::default());
        for interval in 0..100 {
            (0..200).for_each(|_| assert!(regulator.admits(true, 150)));
            regulator.advance(at(5 * (interval + 1)));
        }
        assert!(!regulator.admits(false, 150));
        regulator.advance(at(600 + 500));
        assert!(regulator.admits(false, 150), "soon after the burst");
    }

    #[test]
    fn the_rate_changes_every_ten_intervals_and_no_faster() {
        let mut regulator = Regulator::new(Congestion::Rates, Medium::default());
        let mut changes = Vec::new();
        let mut before = regulator.rate();
        for interval in 1..=400 {
            (0..100).for_each(|_| _ = regulator.admits(false, 150));
            regulator.advance(at(5 * interval));
            if regulator.rate() != before {
                changes.push(interval);
                before = regulator.rate();
            }
        }
        assert!(
            changes.len() > 10 && changes.iter().all(|interval| interval % INTERVALS_PER_CHANGE == 0),
            "{changes:?}"
        );
        assert_eq!(
            before,
            (0..)
                .scan(1_200_000u32, |rate, _| {
                    *rate = *rate / 8 * 7;
                    Some((*rate).max(1_200_000 / 128))
                })
                .nth(39)
                .unwrap()
        );
    }

    #[test]
    fn the_polling_rate_does_not_matter() {
        let mut draw = trunkline_units::Seed(4).stream("regulator");
        let mut frequent = Regulator::new(Congestion::Rates, Medium::default());
        let (mut rare, mut now) = (frequent.clone(), 0);
        for _ in 0..500 {
            let until = now + draw.below(200);
            (now..until).for_each(|ms| frequent.advance(at(ms)));
            now = until;
            frequent.advance(at(now));
            rare.advance(at(now));
            for _ in 0..draw.below(60) {
                let priority = draw.chance(0.2);
                assert_eq!(frequent.admits(priority, 150), rare.admits(priority, 150));
            }
            assert_eq!((frequent.rate(), frequent.deadline()), (rare.rate(), rare.deadline()));
        }
    }

    #[test]
    fn a_token_bucket_holds_its_rate_for_bursts() {
        let mut bucket = TokenBucket::new(1, Span::from_ms(250));
        bucket.set_rate(1_000);
        let mut admitted_in_burst = |ms| (0..40).filter(|_| bucket.admits(at(ms), 1)).count();
        let admitted: usize = (0..500).map(|bundle| admitted_in_burst(20 * bundle)).sum();
        // 20,000 messages are offered in ten seconds.
        assert!((9_950..=10_300).contains(&admitted), "{admitted}");
    }

    #[test]
    fn a_token_bucket_holds_any_rate() {
        for rate in [10u32, 1_000, 150_000, 10_000_000] {
            let mut bucket = TokenBucket::new(1, REFILL_INTERVAL);
            bucket.set_rate(rate);
            let admitted =
                (0..100_000).filter(|n| bucket.admits(at(n / 10), (rate / 1_000).max(1) as usize)).count();
            let octets = admitted as u64 * u64::from((rate / 1_000).max(1));
            let requested = u64::from(rate) * 10;
            assert!(
                octets <= requested + requested / 50 + 2 && octets + requested / 20 + 2 >= requested,
                "{rate}: {octets} of {requested}"
            );
        }
    }
}
