//! Load balancing: which packet addresses move from one level-1 converter to another. Both formats use the same rule.

use std::collections::BTreeMap;

use trunkline_units::{Instant, Span};

use crate::statistics::Level1PeerCounts;
use crate::wire::classic::PACKET_ADDRESSES;

/// The time between two rounds of load balancing.
pub const REBALANCE_INTERVAL: Span = Span::from_s(5);
/// The largest number of packet addresses that move in one round.
pub const MAX_MOVES: usize = 8;
/// The window in which messages are counted.
const LOAD_WINDOW: Span = Span::from_s(1);
/// The number of messages in [`LOAD_WINDOW`] below which a difference in load is ignored.
const MIN_DIFFERENCE: u64 = 200;

/// Message counts per packet address, of the current and the previous window.
#[derive(Debug)]
pub struct Loads {
    windows: Box<[[u32; 2]; PACKET_ADDRESSES]>,
    window_end: Instant,
}

/// A packet address that should move. Converters are identified by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The packet address.
    pub packet: u16,
    /// The current owner.
    pub from: usize,
    /// The new owner.
    pub to: usize,
}

/// No messages counted.
impl Default for Loads {
    fn default() -> Loads {
        Loads { windows: Box::new([[0; 2]; PACKET_ADDRESSES]), window_end: Instant::ZERO + LOAD_WINDOW }
    }
}

impl Loads {
    /// Counts a message of a packet address.
    pub fn count(&mut self, packet: u16) {
        let load = &mut self.windows[usize::from(packet)][0];
        *load = load.saturating_add(1);
    }

    /// Returns the number of messages in the current and the previous window.
    pub fn messages(&self, packet: u16) -> u64 {
        self.windows[usize::from(packet)].iter().map(|load| u64::from(*load)).sum()
    }

    /// Starts a new window if the current one has ended.
    pub fn advance(&mut self, now: Instant) {
        if now < self.window_end {
            return;
        }
        let long_ago = now >= self.window_end + LOAD_WINDOW;
        for load in &mut self.windows[..] {
            *load = [0, if long_ago { 0 } else { load[0] }];
        }
        self.window_end = next_on_grid(self.window_end, LOAD_WINDOW, now);
    }

    /// Returns the best move among the `eligible` converters, if any. A packet address moves from the busiest to the
    /// idlest converter if their loads differ by a quarter or more. The chosen address brings the loads closest
    /// together, so that it does not move back.
    pub fn best_move<P: Iterator<Item = u16>>(
        &self,
        eligible: impl Iterator<Item = usize>,
        owned_by: impl Fn(usize) -> P,
    ) -> Option<Move> {
        let load = |at| owned_by(at).map(|packet| self.messages(packet)).sum::<u64>();
        let loads: Vec<(u64, usize)> = eligible.map(|at| (load(at), at)).collect();
        let (busiest, idlest) = (loads.iter().max()?, loads.iter().min()?);
        let difference = busiest.0 - idlest.0;
        if difference <= MIN_DIFFERENCE || difference * 4 < busiest.0 {
            return None;
        }
        // Moving half of the difference evens out the loads.
        let packets = owned_by(busiest.1).map(|packet| (self.messages(packet), packet));
        let best = packets.filter(|(load, _)| *load > 0 && *load <= difference / 2 + difference / 8).max();
        best.map(|(_, packet)| Move { packet, from: busiest.1, to: idlest.1 })
    }
}

/// The loads of packet addresses, the rounds of load balancing, and the moves that are not complete.
#[derive(Debug, Default)]
pub struct Balance {
    /// Message counts per packet address.
    pub loads: Loads,
    /// The interval of the rounds, and the next one; `None` without load balancing.
    round: Option<(Span, Instant)>,
    /// Packet addresses on the move, and since when they have no owner.
    moving: BTreeMap<u16, Instant>,
    /// Moves, and the sessions of converters.
    pub counts: Level1PeerCounts,
}

impl Balance {
    /// Creates a balance with rounds at this interval; zero disables them.
    pub fn new(every: Span) -> Balance {
        let round = (!every.is_zero()).then_some((every, Instant::ZERO + every));
        Balance { round, ..Balance::default() }
    }

    /// Returns the next round.
    pub fn next_round(&self) -> Option<Instant> {
        self.round.map(|(_, due)| due)
    }

    /// Returns the interval of the rounds once if one is due.
    pub fn take_round(&mut self, now: Instant) -> Option<Span> {
        let (every, due) = self.round.filter(|(_, due)| *due <= now)?;
        self.round = Some((every, next_on_grid(due, every, now)));
        Some(every)
    }

    /// Returns the number of packet addresses on the move.
    pub fn moving(&self) -> usize {
        self.moving.len()
    }

    /// Records that a packet address has no owner since this time, until its new owner has it. An address that moves
    /// again has had none since its first move.
    pub fn start_move(&mut self, since: Instant, packet: u16) {
        self.moving.entry(packet).or_insert(since);
        self.counts.moved += 1;
    }

    /// Records that the new owners have these packet addresses.
    pub fn finish_moves(&mut self, now: Instant, has_arrived: impl Fn(u16) -> bool) {
        self.moving.retain(|packet, since| {
            let arrives = has_arrived(*packet);
            if arrives {
                let gap = now.since(*since);
                self.counts.total_gap += gap;
                self.counts.longest_gap = self.counts.longest_gap.max(gap);
            }
            !arrives
        });
    }

    /// Abandons the moves of packet addresses that are no longer subscribed.
    pub fn retain_moves(&mut self, is_subscribed: impl Fn(u16) -> bool) {
        self.moving.retain(|packet, _| is_subscribed(*packet));
    }
}

/// Returns the first instant after `now` on the grid of `every` that contains `at`.
pub(crate) fn next_on_grid(at: Instant, every: Span, now: Instant) -> Instant {
    let steps = now.since(at).as_ps() / every.as_ps() + 1;
    at + Span::from_ps(every.as_ps().saturating_mul(steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the packet address that moves between two converters: the first owns 0 to 3 with these message counts,
    /// the second owns 4.
    fn best(of: [u32; 5]) -> Option<u16> {
        let mut loads = Loads::default();
        (0..).zip(of).for_each(|(packet, count)| (0..count).for_each(|_| loads.count(packet)));
        let best = loads.best_move(0..2, |at| if at == 0 { 0..4 } else { 4..5 });
        assert!(best.is_none_or(|best| (best.from, best.to) == (0, 1)));
        best.map(|best| best.packet)
    }

    #[test]
    fn a_move_brings_the_loads_closest() {
        assert_eq!(
            best([900, 400, 300, 0, 0]),
            Some(0),
            "a little more than half of the difference may move"
        );
        assert_eq!(best([1_400, 500, 300, 0, 0]), Some(1), "but not so much that it would move back");
        assert_eq!(best([2_000, 0, 0, 0, 0]), None, "a single group cannot be divided");
        assert_eq!(best([100, 60, 40, 0, 0]), None, "small differences stay");
        assert_eq!(best([500, 300, 100, 100, 780]), None, "as do almost even loads");
    }

    #[test]
    fn loads_cover_the_current_and_the_previous_window() {
        let mut loads = Loads::default();
        let at = |ms: u64| Instant::ZERO + Span::from_ms(ms);
        let mut after = |ms, messages| {
            loads.advance(at(ms));
            (0..messages).for_each(|_| loads.count(7));
            loads.messages(7)
        };
        assert_eq!([after(0, 3), after(999, 1), after(1_500, 2), after(2_000, 0)], [3, 4, 6, 2]);
        assert_eq!(after(4_000, 0), 0, "no messages for longer than a window");
    }
}
