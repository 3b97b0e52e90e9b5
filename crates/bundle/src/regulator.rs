//! What ordinary messages may use of a medium: the levels of 1997, or what is left of it.
//!
//! The levels look at what was carried and let all or nearly nothing go, in turns. [`Congestion::Rates`] lets go what the
//! medium carries, as a bucket of tokens that is filled every interval with 95 % of its capacity, and holds what two bring. What has priority always
//! goes and takes its tokens all the same; of them so many are kept back as it used of late. When it refused more
//! than a sixteenth of what it admits, whoever sends is told to send less, by an eighth every ten intervals, so that what
//! cannot be carried is dropped where it begins; when not, to send more, by a 128th of the capacity: additive increase and multiplicative decrease, by which
//! senders come to like shares (Chiu and Jain, 1989). docs/bundle-congestion.md has the curves.

use trunkline_units::{Instant, Span};

use crate::level::{LEAST, Level, Medium};

/// Which of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// As in 1997.
    Levels,
    /// What is left of the medium.
    #[default]
    Rates,
}

/// No limit to a rate.
pub const NO_LIMIT: u32 = u32::MAX;
/// Intervals between two changes of the rate that senders are told.
pub const CHANGE: u64 = 10;
/// Intervals that are looked at when nobody looked for long: by then all that was is forgotten.
const MEMORY: u64 = 4_096;

/// Octets that a datagram takes beside its own: preamble, gap and headers of Ethernet, IPv4 and UDP. Small ones are dear.
const FRAME: usize = 66;

/// What may go at a rate, such as octets. Filled every 5 ms.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// A second.
    rate: u32,
    /// For so many fills.
    depth: i64,
    /// In [`FILLS`]ths.
    tokens: i64,
    /// What may go at once at the least.
    least: i64,
    until: Instant,
}

/// How often a bucket is filled.
pub const FILL: Span = Span::from_ms(5);
/// How many times a second that is.
const FILLS: i64 = 200;

impl Bucket {
    /// Without a limit. With one as much may go at once as else in a time, at least `least`: what comes in bundles comes at
    /// once.
    pub fn new(least: usize, at_once: Span) -> Bucket {
        let depth = (at_once.as_ps() / FILL.as_ps()).max(1) as i64;
        Bucket { rate: NO_LIMIT, depth, tokens: 0, least: least as i64, until: Instant::ZERO }
    }

    /// The rate; [`NO_LIMIT`]: none.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// Sets it.
    pub fn set(&mut self, rate: u32) {
        self.rate = rate;
    }

    /// Whether so much may go, and if so, that it goes.
    pub fn admits(&mut self, now: Instant, amount: usize) -> bool {
        if self.rate == NO_LIMIT {
            return true;
        }
        if now >= self.until {
            let fills = now.since(self.until).as_ps() / FILL.as_ps() + 1;
            let most = (i64::from(self.rate) * self.depth).max(self.least * FILLS);
            self.tokens = (self.tokens + i64::from(self.rate) * fills.min(MEMORY) as i64).min(most);
            self.until += Span::from_ps(FILL.as_ps().saturating_mul(fills));
        }
        let goes = self.tokens > 0;
        self.tokens -= if goes { amount as i64 * FILLS } else { 0 };
        goes
    }
}

/// What may go over one medium.
#[derive(Clone, Debug)]
pub struct Regulator {
    congestion: Congestion,
    medium: Medium,
    level: Level,
    tokens: i64,
    /// Octets with priority in this interval, and of late.
    urgent: i64,
    reserve: i64,
    /// Octets of ordinary messages that were refused since the rate was last looked at.
    refused: i64,
    /// Told to senders, octets a second.
    rate: u32,
    /// Intervals so far.
    intervals: u64,
    until: Instant,
}

impl Regulator {
    /// Nothing was carried yet.
    pub fn new(congestion: Congestion, medium: Medium) -> Regulator {
        let until = Instant::ZERO + medium.interval;
        let mut regulator = Regulator {
            congestion,
            medium,
            level: Level::new(medium),
            tokens: 0,
            urgent: 0,
            reserve: 0,
            refused: 0,
            rate: NO_LIMIT,
            intervals: 0,
            until,
        };
        regulator.tokens = regulator.fill();
        regulator
    }

    /// The level, 3 to 6.
    pub fn level(&self) -> u8 {
        self.level.get()
    }

    /// Octets a second of ordinary messages that each sender may send; [`NO_LIMIT`]: any.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// Octets with which the bucket is filled.
    fn fill(&self) -> i64 {
        (self.medium.capacity / 20 * 19 + self.medium.capacity % 20 * 19 / 20) as i64
    }

    /// What the medium carries a second.
    pub fn capacity(&self) -> u32 {
        let a_second = u128::from(self.medium.capacity) * u128::from(Span::from_s(1).as_ps());
        u32::try_from(a_second / u128::from(self.medium.interval.as_ps())).unwrap_or(NO_LIMIT - 1)
    }

    /// The medium carried a bundle of so many octets, in which so many were [admitted](Regulator::admits) before.
    pub fn carry(&mut self, now: Instant, octets: usize, admitted: usize) {
        self.roll(now);
        self.level.carry(octets);
        self.take(FRAME + octets.saturating_sub(admitted));
    }

    /// Tokens are owed for a few intervals at the most: else much with priority would shut all else out for long.
    fn take(&mut self, octets: usize) {
        self.tokens = (self.tokens - octets as i64).max(-4 * self.fill());
    }

    /// Whether a message that takes so many octets may go, and if so, that it goes.
    pub fn admits(&mut self, priority: bool, octets: usize) -> bool {
        if self.congestion == Congestion::Levels {
            return self.level.admits(priority);
        }
        if priority {
            self.urgent += octets as i64;
        } else if self.tokens <= (self.reserve - self.urgent).max(0) {
            self.refused += octets as i64;
            return false;
        }
        self.take(octets);
        true
    }

    /// When the interval ends, if that may change what senders are told.
    pub fn deadline(&self) -> Option<Instant> {
        let level = self.level.deadline();
        let rates = (self.refused > 0 || self.rate != NO_LIMIT).then_some(self.until);
        level.into_iter().chain(rates).min()
    }

    /// Ends the intervals that have ended by now.
    pub fn roll(&mut self, now: Instant) {
        self.level.roll(now);
        if now < self.until {
            return;
        }
        let over = now.since(self.until).as_ps() / self.medium.interval.as_ps() + 1;
        for _ in 0..over.min(MEMORY) {
            self.end_interval();
        }
        self.intervals += over.saturating_sub(MEMORY);
        self.until += Span::from_ps(self.medium.interval.as_ps().saturating_mul(over));
    }

    fn end_interval(&mut self) {
        self.reserve += (self.urgent - self.reserve) / 8 - i64::from(self.urgent < self.reserve);
        self.urgent = 0;
        self.tokens = (self.tokens + self.fill()).min((2 * self.fill()).max(self.reserve + 1));
        self.intervals += 1;
        if !self.intervals.is_multiple_of(CHANGE) || self.congestion == Congestion::Levels {
            return;
        }
        let capacity = self.capacity();
        // A few are refused whenever much comes at once.
        let many = std::mem::take(&mut self.refused) * 16 > self.fill() * CHANGE as i64;
        self.rate = match (many, self.rate) {
            (true, rate) => (rate.min(capacity) / 8 * 7).max(capacity / 128),
            (false, NO_LIMIT) => NO_LIMIT,
            (false, rate) if rate >= capacity - capacity / 128 => NO_LIMIT,
            (false, rate) => rate + (capacity / 128).max(1),
        };
    }

    /// Whether nothing is held back.
    pub fn is_calm(&self) -> bool {
        self.level() == LEAST && self.rate == NO_LIMIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Span::from_ms(ms)
    }

    #[test]
    fn ordinary_messages_get_what_priority_leaves_of_95_percent() {
        let mut regulator = Regulator::new(Congestion::Rates, Medium::default());
        let (mut ordinary, mut urgent) = (0, 0);
        for interval in 0..2_000u64 {
            for message in 0..80 {
                let priority = message % 4 == 0;
                let goes = regulator.admits(priority, 150);
                assert!(goes || !priority);
                if interval >= 1_000 {
                    *(if priority { &mut urgent } else { &mut ordinary }) += 150 * u64::from(goes);
                }
            }
            regulator.roll(at(5 * (interval + 1)));
        }
        // 3,000 of 5,700 octets an interval have priority.
        assert_eq!(urgent, 3_000 * 1_000);
        assert!((2_600_000..=2_750_000).contains(&ordinary), "{ordinary}");
        assert!(regulator.rate() < NO_LIMIT);
        regulator.roll(at(10_000 + 20_000));
        assert!(regulator.is_calm() && regulator.deadline().is_none());
    }

    #[test]
    fn priority_alone_may_take_all_and_more_and_owes_little() {
        let mut regulator = Regulator::new(Congestion::Rates, Medium::default());
        for interval in 0..100 {
            (0..200).for_each(|_| assert!(regulator.admits(true, 150)));
            regulator.roll(at(5 * (interval + 1)));
        }
        assert!(!regulator.admits(false, 150));
        regulator.roll(at(600 + 500));
        assert!(regulator.admits(false, 150), "soon after it is over");
    }

    #[test]
    fn the_rate_changes_every_ten_intervals_and_no_faster() {
        let mut regulator = Regulator::new(Congestion::Rates, Medium::default());
        let mut changes = Vec::new();
        let mut before = regulator.rate();
        for interval in 1..=400 {
            (0..100).for_each(|_| _ = regulator.admits(false, 150));
            regulator.roll(at(5 * interval));
            if regulator.rate() != before {
                changes.push(interval);
                before = regulator.rate();
            }
        }
        assert!(changes.len() > 10 && changes.iter().all(|interval| interval % CHANGE == 0), "{changes:?}");
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
    fn it_is_the_same_however_often_one_looks() {
        let mut draw = trunkline_units::Seed(4).stream("regulator");
        let mut often = Regulator::new(Congestion::Rates, Medium::default());
        let (mut seldom, mut now) = (often.clone(), 0);
        for _ in 0..500 {
            let until = now + draw.below(200);
            (now..until).for_each(|ms| often.roll(at(ms)));
            now = until;
            often.roll(at(now));
            seldom.roll(at(now));
            for _ in 0..draw.below(60) {
                let priority = draw.chance(0.2);
                assert_eq!(often.admits(priority, 150), seldom.admits(priority, 150));
            }
            assert_eq!((often.rate(), often.deadline()), (seldom.rate(), seldom.deadline()));
        }
    }

    #[test]
    fn a_bucket_lets_its_rate_go_though_it_is_asked_seldom() {
        let mut bucket = Bucket::new(1, Span::from_ms(250));
        bucket.set(1_000);
        let mut of_bundle = |ms| (0..40).filter(|_| bucket.admits(at(ms), 1)).count();
        let went: usize = (0..500).map(|bundle| of_bundle(20 * bundle)).sum();
        // 20,000 asked in ten seconds.
        assert!((9_950..=10_300).contains(&went), "{went}");
    }

    #[test]
    fn a_bucket_lets_its_rate_go_however_small() {
        for rate in [10u32, 1_000, 150_000, 10_000_000] {
            let mut bucket = Bucket::new(1, FILL);
            bucket.set(rate);
            let went =
                (0..100_000).filter(|n| bucket.admits(at(n / 10), (rate / 1_000).max(1) as usize)).count();
            let octets = went as u64 * u64::from((rate / 1_000).max(1));
            let asked = u64::from(rate) * 10;
            assert!(
                octets <= asked + asked / 50 + 2 && octets + asked / 20 + 2 >= asked,
                "{rate}: {octets} of {asked}"
            );
        }
    }
}
