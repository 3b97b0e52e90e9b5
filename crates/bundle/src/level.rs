//! Congestion control by levels, as in 1997: 3 is none, 6 is the highest.

use trunkline_units::{Instant, Span};

/// No congestion.
pub const MIN_LEVEL: u8 = 3;
/// The highest congestion.
pub const MAX_LEVEL: u8 = 6;

/// A medium whose load determines a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Medium {
    /// Octets per interval: 6,000 in 5 ms is 10 Mb/s Ethernet, 60,000 is 100 Mb/s. Not zero.
    pub capacity: u64,
    /// The length of an interval. Not zero.
    pub interval: Span,
}

/// 10 Mb/s Ethernet in intervals of 5 ms.
impl Default for Medium {
    fn default() -> Medium {
        Medium { capacity: 6_000, interval: Span::from_ms(5) }
    }
}

/// The level of one medium.
///
/// An interval with more than 80 % of the capacity raises the level by one; an interval with less than 40 % lowers it
/// by one.
#[derive(Clone, Debug)]
pub struct Level {
    medium: Medium,
    level: u8,
    /// Octets carried in this interval.
    octets_carried: u64,
    /// Ordinary messages admitted in this interval.
    admitted: u8,
    /// The end of this interval.
    until: Instant,
}

impl Level {
    /// Creates a level without congestion.
    pub fn new(medium: Medium) -> Level {
        Level {
            medium,
            level: MIN_LEVEL,
            octets_carried: 0,
            admitted: 0,
            until: Instant::ZERO + medium.interval,
        }
    }

    /// Returns the level, 3 to 6.
    pub fn get(&self) -> u8 {
        self.level
    }

    /// Counts octets that the medium carried.
    pub fn carry(&mut self, octets: usize) {
        self.octets_carried += octets as u64;
    }

    /// Returns the end of the interval if it may change the level.
    pub fn deadline(&self) -> Option<Instant> {
        (self.level > MIN_LEVEL || self.octets_carried > 0).then_some(self.until)
    }

    /// Ends the intervals up to now; returns whether the level changed.
    pub fn advance(&mut self, now: Instant) -> bool {
        let before = self.level;
        while self.until <= now {
            if self.level == MIN_LEVEL && self.octets_carried == 0 {
                // Idle intervals change nothing: skip to the current one.
                let interval = self.medium.interval.as_ps();
                let elapsed = now.since(self.until).as_ps() / interval + 1;
                self.until += Span::from_ps(elapsed * interval);
                self.admitted = 0;
                break;
            }
            // More than four fifths, or less than two fifths of the capacity.
            if self.octets_carried * 5 > self.medium.capacity * 4 {
                self.level = (self.level + 1).min(MAX_LEVEL);
            } else if self.octets_carried * 5 < self.medium.capacity * 2 {
                self.level = (self.level - 1).max(MIN_LEVEL);
            }
            (self.octets_carried, self.admitted) = (0, 0);
            self.until += self.medium.interval;
        }
        self.level != before
    }

    /// Admits a message and returns true, or refuses it. Below level 4 and with priority every message is admitted;
    /// at level 4 and 5 the first 7 − level ordinary messages of an interval; at level 6 none.
    pub fn admits(&mut self, priority: bool) -> bool {
        Level::admit(self.level, &mut self.admitted, priority)
    }

    /// The same for a level reported by another endpoint.
    pub fn admit(level: u8, allowed: &mut u8, priority: bool) -> bool {
        if level < 4 || priority {
            return true;
        }
        let is_admitted = level < MAX_LEVEL && *allowed < 7 - level;
        *allowed += u8::from(is_admitted);
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(level: &mut Level, interval: u64, octets: usize) -> u8 {
        level.carry(octets);
        level.advance(Instant::ZERO + Span::from_ms(5) * interval);
        level.get()
    }

    #[test]
    fn the_level_rises_above_80_percent_and_falls_below_40() {
        let mut level = Level::new(Medium::default());
        let octets = [4_800, 4_801, 4_801, 4_800, 2_400, 9_999, 9_999, 2_399, 0, 2_400, 0, 0];
        let levels: Vec<u8> =
            octets.into_iter().zip(1..).map(|(octets, n)| after(&mut level, n, octets)).collect();
        assert_eq!(levels, [3, 4, 5, 5, 5, 6, 6, 5, 4, 4, 3, 3]);
    }

    #[test]
    fn unobserved_intervals_count() {
        let mut level = Level::new(Medium::default());
        (1..4).for_each(|n| _ = after(&mut level, n, 6_000));
        assert_eq!(level.get(), 6);
        assert!(level.advance(Instant::ZERO + Span::from_ms(26)));
        assert_eq!((level.get(), level.deadline()), (4, Some(Instant::ZERO + Span::from_ms(30))));
        level.advance(Instant::ZERO + Span::from_s(1_000));
        assert_eq!((level.get(), level.deadline()), (3, None));
        level.carry(1);
        let next = Instant::ZERO + Span::from_s(1_000) + Span::from_ms(5);
        assert_eq!(level.deadline(), Some(next), "the grid of intervals is unchanged");
    }

    #[test]
    fn each_level_admits_its_number_of_messages() {
        let mut is_admitted = |level: u8| {
            let mut allowed = 0;
            (0..9).filter(|_| Level::admit(level, &mut allowed, false)).count()
        };
        assert_eq!([3, 4, 5, 6].map(&mut is_admitted), [9, 3, 2, 0]);
        assert!((3..=6).all(|level| Level::admit(level, &mut 255, true)));
    }
}
