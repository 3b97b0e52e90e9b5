//! What happens next.

use trunkline_units::Instant;

/// The next moment of every place, ordered by (time, place). A place has one deadline at the most, so nothing is ever
/// cancelled: it is set anew. Its size is the number of places, however many frames wait.
///
/// A tournament: places play in blocks of eight, the winners of blocks in blocks again, up to a single one. Setting a
/// deadline plays again only the games on the way up, as far as they end differently.
#[derive(Clone, Debug, Default)]
pub struct Agenda {
    /// From the places up; the last level is one block.
    levels: Vec<Vec<Block>>,
    /// Places there are.
    places: u32,
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
        let mut blocks = self.places as usize / PLAYERS + 1;
        let mut level = 0;
        loop {
            if level == self.levels.len() {
                let mut block = Block::EMPTY;
                if let Some(below) = self.levels.last() {
                    block.set(0, below[0].0[1]);
                }
                self.levels.push(vec![block]);
            }
            self.levels[level].resize(blocks, Block::EMPTY);
            if blocks == 1 {
                break;
            }
            (level, blocks) = (level + 1, (blocks - 1) / PLAYERS + 1);
        }
        self.places += 1;
        self.places - 1
    }

    /// The first moment and its place; of several at one moment the one with the lowest number.
    #[inline(always)]
    pub fn first(&self) -> Option<(Instant, u32)> {
        let (mut first, mut place) = (NEVER, 0);
        for level in self.levels.iter().rev() {
            let (at, player) = level[place].first();
            (first, place) = (at, place * PLAYERS + player);
        }
        (first < NEVER).then_some((Instant::from_ps(first), place as u32))
    }

    /// Sets the deadline of `place`; [`Instant::MAX`]: it has none.
    #[inline(always)]
    pub fn set(&mut self, place: u32, deadline: Instant) {
        let (mut place, mut earliest) = (place as usize, deadline.as_ps());
        for level in &mut self.levels {
            match level[place / PLAYERS].set(place, earliest) {
                Some(winner) => (place, earliest) = (place / PLAYERS, winner),
                None => return,
            }
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
        fn it_agrees_with_a_sorted_map(steps in proptest::collection::vec((0u32..70, proptest::option::of(0u64..60)), 1..400)) {
            let mut agenda = Agenda::default();
            (0..70).for_each(|_| { agenda.add(); });
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            for (place, at) in steps {
                agenda.set(place, at.map_or(Instant::MAX, Instant::from_ps));
                match at {
                    Some(at) => { model.insert(place, at); }
                    None => { model.remove(&place); }
                }
                let first = model.iter().map(|(p, t)| (Instant::from_ps(*t), *p)).min();
                prop_assert_eq!(agenda.first(), first);
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
