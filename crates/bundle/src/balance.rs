//! Which packet addresses move from one converter of level 1 to another, so that all have alike to do: the same rule in
//! both formats.

use trunkline_units::{Instant, Span};

use crate::wire::classic::PACKETS;

/// How often packet addresses may move from the most to the least loaded.
pub const REBALANCE: Span = Span::from_s(5);
/// Packet addresses that move at once at the most.
pub const MOVES: usize = 8;
/// Over what time messages are counted to tell loads.
const LOAD_TIME: Span = Span::from_s(1);
/// Messages in [`LOAD_TIME`] below which differences do not matter.
const LITTLE: u64 = 200;

/// Messages by packet address, in this and in the last stretch of a second.
#[derive(Debug)]
pub struct Loads {
    of: Box<[[u32; 2]; PACKETS]>,
    until: Instant,
}

/// A packet address that is to move; of converters by their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Which.
    pub packet: u16,
    /// Who has it.
    pub from: usize,
    /// Who is to have it.
    pub to: usize,
}

/// Nothing came yet.
impl Default for Loads {
    fn default() -> Loads {
        Loads { of: Box::new([[0; 2]; PACKETS]), until: Instant::ZERO + LOAD_TIME }
    }
}

impl Loads {
    /// A message of a packet address came.
    pub fn count(&mut self, packet: u16) {
        let load = &mut self.of[usize::from(packet)][0];
        *load = load.saturating_add(1);
    }

    /// Messages in the last stretch, and so far in this.
    pub fn of(&self, packet: u16) -> u64 {
        self.of[usize::from(packet)].iter().map(|load| u64::from(*load)).sum()
    }

    /// Begins a new stretch, if the last has ended.
    pub fn roll(&mut self, now: Instant) {
        if now < self.until {
            return;
        }
        let long_ago = now >= self.until + LOAD_TIME;
        for load in &mut self.of[..] {
            *load = [0, if long_ago { 0 } else { load[0] }];
        }
        self.until = next(self.until, LOAD_TIME, now);
    }

    /// What is best moved, among those that are there and what each `has`: from the most to the least loaded, if there is a
    /// quarter and more between them, and what brings them nearest, so that nothing comes back.
    pub fn best<P: Iterator<Item = u16>>(
        &self,
        there: impl Iterator<Item = usize>,
        has: impl Fn(usize) -> P,
    ) -> Option<Move> {
        let load = |at| has(at).map(|packet| self.of(packet)).sum::<u64>();
        let loads: Vec<(u64, usize)> = there.map(|at| (load(at), at)).collect();
        let (most, least) = (loads.iter().max()?, loads.iter().min()?);
        let between = most.0 - least.0;
        if between <= LITTLE || between * 4 < most.0 {
            return None;
        }
        // What has half of the difference evens them out.
        let packets = has(most.1).map(|packet| (self.of(packet), packet));
        let best = packets.filter(|(load, _)| *load > 0 && *load <= between / 2 + between / 8).max();
        best.map(|(_, packet)| Move { packet, from: most.1, to: least.1 })
    }
}

/// The next moment on a grid after `now`.
pub(crate) fn next(at: Instant, every: Span, now: Instant) -> Instant {
    let steps = now.since(at).as_ps() / every.as_ps() + 1;
    at + Span::from_ps(every.as_ps().saturating_mul(steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What moves between two of which the first has packet addresses 0 to 3 with so many messages, the other 4.
    fn best(of: [u32; 5]) -> Option<u16> {
        let mut loads = Loads::default();
        (0..).zip(of).for_each(|(packet, count)| (0..count).for_each(|_| loads.count(packet)));
        let best = loads.best(0..2, |at| if at == 0 { 0..4 } else { 4..5 });
        assert!(best.is_none_or(|best| (best.from, best.to) == (0, 1)));
        best.map(|best| best.packet)
    }

    #[test]
    fn what_moves_brings_loads_nearest() {
        assert_eq!(best([900, 400, 300, 0, 0]), Some(0), "a little more than half may move");
        assert_eq!(best([1_400, 500, 300, 0, 0]), Some(1), "but not so much that it would come back");
        assert_eq!(best([2_000, 0, 0, 0, 0]), None, "one alone cannot be shared out");
        assert_eq!(best([100, 60, 40, 0, 0]), None, "little is left where it is");
        assert_eq!(best([500, 300, 100, 100, 780]), None, "and so is what is even enough");
    }

    #[test]
    fn loads_are_those_of_the_last_stretch_and_this() {
        let mut loads = Loads::default();
        let at = |ms: u64| Instant::ZERO + Span::from_ms(ms);
        let mut after = |ms, messages| {
            loads.roll(at(ms));
            (0..messages).for_each(|_| loads.count(7));
            loads.of(7)
        };
        assert_eq!([after(0, 3), after(999, 1), after(1_500, 2), after(2_000, 0)], [3, 4, 6, 2]);
        assert_eq!(after(4_000, 0), 0, "nothing for longer than a stretch");
    }
}
