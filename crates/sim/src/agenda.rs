//! What happens next.

use trunkline_units::Instant;

/// The next moment of every place, ordered by (time, place). A place has one deadline at the most, so nothing is ever
/// cancelled: it is set anew. Its size is the number of places, however many frames wait.
///
/// A tournament: places play in blocks of eight, the winners of eight blocks in a block again, up to a single one. Setting
/// a deadline plays again only the games on the way up, as far as they end differently.
#[derive(Clone, Debug)]
pub struct Agenda {
    /// A heap: the winners of blocks `8n + 1` to `8n + 8` play in block `n`.
    blocks: Vec<Block>,
    /// The first block in which places play.
    leaves: usize,
    /// Places there are.
    places: u32,
}

impl Default for Agenda {
    fn default() -> Self {
        Agenda { blocks: vec![Block::EMPTY], leaves: 0, places: 0 }
    }
}

/// Later than everything that happens.
const NEVER: u64 = Instant::MAX.as_ps();
/// Games that the winner of a block wins, and who plays in it.
const GAMES: u32 = 3;
const PLAYERS: usize = 1 << GAMES;

/// Node 1 is the winner, node `n` has the children `2n` and `2n + 1`; the players are the upper half. Picoseconds. Its
/// size is constant so that games need neither loops nor bounds checks.
#[derive(Clone, Debug)]
struct Block([u64; 2 * PLAYERS]);

impl Block {
    const EMPTY: Block = Block([NEVER; 2 * PLAYERS]);

    /// The earliest moment, and the first player that has it.
    #[inline(always)]
    fn first(&self) -> (u64, usize) {
        let Block(nodes) = self;
        let (first, mut node) = (nodes[1], 1);
        for _ in 0..GAMES {
            node *= 2;
            node += usize::from(nodes[node % nodes.len()] != first);
        }
        (first, node - PLAYERS)
    }

    /// The earliest moment of all players but one: of those that it or its winners play against.
    #[inline(always)]
    fn rival(&self, player: usize) -> u64 {
        let Block(nodes) = self;
        let (mut node, mut earliest) = (PLAYERS + player % PLAYERS, NEVER);
        for _ in 0..GAMES {
            earliest = earliest.min(nodes[node ^ 1]);
            node /= 2;
        }
        earliest
    }

    /// Sets a player's moment; if the earliest is another now, that.
    #[inline(always)]
    fn set(&mut self, player: usize, mut earliest: u64) -> Option<u64> {
        let Block(nodes) = self;
        let mut node = PLAYERS + player % PLAYERS;
        if nodes[node] == earliest {
            return None;
        }
        nodes[node] = earliest;
        for _ in 0..GAMES {
            earliest = earliest.min(nodes[node ^ 1]);
            node /= 2;
            if nodes[node] == earliest {
                return None;
            }
            nodes[node] = earliest;
        }
        Some(earliest)
    }
}

impl Agenda {
    /// Gives the next place a number.
    pub fn add(&mut self) -> u32 {
        let place = self.places;
        self.places += 1;
        if place as usize / PLAYERS > (PLAYERS - 1) * self.leaves {
            self.grow();
        }
        let blocks = self.leaves + place as usize / PLAYERS + 1;
        self.blocks.resize(blocks.max(self.blocks.len()), Block::EMPTY);
        place
    }

    /// Makes one level more of it.
    fn grow(&mut self) {
        let old = self.blocks.split_off(self.leaves);
        self.leaves = PLAYERS * self.leaves + 1;
        self.blocks = vec![Block::EMPTY; self.leaves + old.len()];
        let deadlines = old.iter().flat_map(|block| &block.0[PLAYERS..]);
        for (place, at) in deadlines.enumerate() {
            self.set(place as u32, Instant::from_ps(*at));
        }
    }

    /// The first moment and its place; of several at one moment the one with the lowest number.
    #[inline(always)]
    pub fn first(&self) -> Option<(Instant, u32)> {
        let mut block = 0;
        loop {
            let (first, player) = self.blocks[block].first();
            if block >= self.leaves {
                let place = (block - self.leaves) * PLAYERS + player;
                return (first < NEVER).then_some((Instant::from_ps(first), place as u32));
            }
            block = PLAYERS * block + player + 1;
        }
    }

    /// Where a place plays: the block, and as which player.
    #[inline(always)]
    fn seat(&self, place: u32) -> (usize, usize) {
        (self.leaves + place as usize / PLAYERS, place as usize % PLAYERS)
    }

    /// Where the winner of a block plays, if it is not the last one.
    #[inline(always)]
    fn above(block: usize) -> Option<(usize, usize)> {
        let below = block.checked_sub(1)?;
        Some((below / PLAYERS, below % PLAYERS))
    }

    /// The first moment of all places but one.
    #[inline(always)]
    pub fn rival(&self, place: u32) -> Instant {
        let (mut seat, mut earliest) = (Some(self.seat(place)), NEVER);
        while let Some((block, player)) = seat {
            earliest = earliest.min(self.blocks[block].rival(player));
            seat = Self::above(block);
        }
        Instant::from_ps(earliest)
    }

    /// Sets the deadline of `place`, unless it has an earlier one.
    #[inline(always)]
    pub fn hasten(&mut self, place: u32, deadline: Instant) {
        let (block, player) = self.seat(place);
        if deadline.as_ps() < self.blocks[block].0[PLAYERS + player] {
            self.set(place, deadline);
        }
    }

    /// Sets the deadline of `place`; [`Instant::MAX`]: it has none.
    #[inline(always)]
    pub fn set(&mut self, place: u32, deadline: Instant) {
        let (mut seat, mut earliest) = (Some(self.seat(place)), deadline.as_ps());
        while let Some((block, player)) = seat {
            let Some(winner) = self.blocks[block].set(player, earliest) else { return };
            (seat, earliest) = (Self::above(block), winner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_agrees_with_a_sorted_map(steps in proptest::collection::vec((0u32..600, proptest::option::of(0u64..60)), 1..400)) {
            let mut agenda = Agenda::default();
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            for (place, at) in steps {
                // Places are added while others have their deadlines.
                while agenda.places <= place {
                    agenda.add();
                }
                match at {
                    // Some only if that is earlier.
                    Some(at) if at % 3 == 0 => {
                        agenda.hasten(place, Instant::from_ps(at));
                        model.entry(place).and_modify(|was| *was = at.min(*was)).or_insert(at);
                    }
                    _ => agenda.set(place, at.map_or(Instant::MAX, Instant::from_ps)),
                }
                match at {
                    Some(at) if at % 3 == 0 => {}
                    Some(at) => { model.insert(place, at); }
                    None => { model.remove(&place); }
                }
                let first = model.iter().map(|(p, t)| (Instant::from_ps(*t), *p)).min();
                prop_assert_eq!(agenda.first(), first);
                let rival = model.iter().filter(|(p, _)| **p != place).map(|(_, t)| *t).min();
                prop_assert_eq!(agenda.rival(place), rival.map_or(Instant::MAX, Instant::from_ps));
            }
            // Emptied, it gives everything in order.
            let mut last = None;
            while let Some((at, place)) = agenda.first() {
                prop_assert!(last < Some((at, place)));
                prop_assert_eq!(model.remove(&place), Some(at.as_ps()));
                last = Some((at, place));
                agenda.set(place, Instant::MAX);
            }
            prop_assert!(model.is_empty());
        }
    }
}
