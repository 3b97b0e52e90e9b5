//! Congestion by levels, as in 1997: 3 is none, 6 is most.

use trunkline_units::{Instant, Span};

/// No congestion.
pub const LEAST: u8 = 3;
/// The most.
pub const MOST: u8 = 6;

/// A medium whose load makes levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Medium {
    /// Octets that it carries in an interval: 6,000 in 5 ms is 10 Mb/s Ethernet, 60,000 is 100 Mb/s. Not zero.
    pub capacity: u64,
    /// How long an interval is. Not zero.
    pub interval: Span,
}

/// 10 Mb/s Ethernet, looked at every 5 ms.
impl Default for Medium {
    fn default() -> Medium {
        Medium { capacity: 6_000, interval: Span::from_ms(5) }
    }
}

/// How long a level that was told holds, where it is told again and again: longer than a few such times.
const HOLDS: Span = Span::from_s(1);

/// A level that the central converter keeps and tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    level: u8,
    until: Instant,
    /// Whether it holds no longer than [`HOLDS`]: who told it may have restarted, or its end may be lost.
    pub fades: bool,
}

impl Told {
    /// Nothing was told.
    pub const NONE: Told = Told { level: LEAST, until: Instant::MAX, fades: false };

    /// It is told.
    pub fn hear(&mut self, now: Instant, level: u8) {
        (self.level, self.until) = (level, if self.fades { now + HOLDS } else { Instant::MAX });
    }

    /// What it is now.
    pub fn at(self, now: Instant) -> u8 {
        if now >= self.until { LEAST } else { self.level }
    }

    /// When it will fade, if it does.
    pub fn deadline(self, now: Instant) -> Option<Instant> {
        (self.at(now) > LEAST && self.until < Instant::MAX).then_some(self.until)
    }
}

/// The level of one medium.
///
/// After an interval in which the medium carried more than 80 % of its capacity the level is one higher, after one with
/// less than 40 % one lower.
#[derive(Clone, Debug)]
pub struct Level {
    medium: Medium,
    level: u8,
    /// Carried in this interval.
    octets: u64,
    /// Messages that were not urgent and went all the same.
    allowed: u8,
    /// When this interval ends.
    until: Instant,
}

impl Level {
    /// No congestion.
    pub fn new(medium: Medium) -> Level {
        Level { medium, level: LEAST, octets: 0, allowed: 0, until: Instant::ZERO + medium.interval }
    }

    /// The level, 3 to 6.
    pub fn get(&self) -> u8 {
        self.level
    }

    /// The medium carried so many octets.
    pub fn carry(&mut self, octets: usize) {
        self.octets += octets as u64;
    }

    /// When the interval ends, if that may change anything.
    pub fn deadline(&self) -> Option<Instant> {
        (self.level > LEAST || self.octets > 0).then_some(self.until)
    }

    /// Ends the intervals that have ended by now; whether the level changed.
    pub fn roll(&mut self, now: Instant) -> bool {
        let before = self.level;
        while self.until <= now {
            if self.level == LEAST && self.octets == 0 {
                // Nothing happens any more until now: on to the interval that now is in.
                let interval = self.medium.interval.as_ps();
                let over = now.since(self.until).as_ps() / interval + 1;
                self.until += Span::from_ps(over * interval);
                self.allowed = 0;
                break;
            }
            // Five times the octets against four and two times the capacity.
            if self.octets * 5 > self.medium.capacity * 4 {
                self.level = (self.level + 1).min(MOST);
            } else if self.octets * 5 < self.medium.capacity * 2 {
                self.level = (self.level - 1).max(LEAST);
            }
            (self.octets, self.allowed) = (0, 0);
            self.until += self.medium.interval;
        }
        self.level != before
    }

    /// Whether a message may go, and if so, that it goes: below level 4, if it is a priority message, or below level 6 as
    /// long as fewer than 7 − level have gone in this interval.
    pub fn admits(&mut self, priority: bool) -> bool {
        Level::admit(self.level, &mut self.allowed, priority)
    }

    /// The same where somebody else keeps the level.
    pub fn admit(level: u8, allowed: &mut u8, priority: bool) -> bool {
        if level < 4 || priority {
            return true;
        }
        let goes = level < MOST && *allowed < 7 - level;
        *allowed += u8::from(goes);
        goes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(level: &mut Level, interval: u64, octets: usize) -> u8 {
        level.carry(octets);
        level.roll(Instant::ZERO + Span::from_ms(5) * interval);
        level.get()
    }

    #[test]
    fn it_rises_above_80_percent_and_falls_below_40() {
        let mut level = Level::new(Medium::default());
        let octets = [4_800, 4_801, 4_801, 4_800, 2_400, 9_999, 9_999, 2_399, 0, 2_400, 0, 0];
        let levels: Vec<u8> =
            octets.into_iter().zip(1..).map(|(octets, n)| after(&mut level, n, octets)).collect();
        assert_eq!(levels, [3, 4, 5, 5, 5, 6, 6, 5, 4, 4, 3, 3]);
    }

    #[test]
    fn intervals_that_nobody_looked_at_count() {
        let mut level = Level::new(Medium::default());
        (1..4).for_each(|n| _ = after(&mut level, n, 6_000));
        assert_eq!(level.get(), 6);
        assert!(level.roll(Instant::ZERO + Span::from_ms(26)));
        assert_eq!((level.get(), level.deadline()), (4, Some(Instant::ZERO + Span::from_ms(30))));
        level.roll(Instant::ZERO + Span::from_s(1_000));
        assert_eq!((level.get(), level.deadline()), (3, None));
        level.carry(1);
        let next = Instant::ZERO + Span::from_s(1_000) + Span::from_ms(5);
        assert_eq!(level.deadline(), Some(next), "intervals stay where they were");
    }

    #[test]
    fn what_goes_at_which_level() {
        let mut goes = |level: u8| {
            let mut allowed = 0;
            (0..9).filter(|_| Level::admit(level, &mut allowed, false)).count()
        };
        assert_eq!([3, 4, 5, 6].map(&mut goes), [9, 3, 2, 0]);
        assert!((3..=6).all(|level| Level::admit(level, &mut 255, true)));
    }
}
