//! What happens next.

use trunkline_units::Instant;

/// The next moment of every place, ordered by (time, place). A place has one deadline at the most, so nothing is ever
/// cancelled: it is set anew. Its size is the number of places, however many frames wait.
///
/// A tournament: places play in blocks of 64, the winners of the blocks in blocks again, up to a single one. Setting a
/// deadline plays again only the games on the way up, as far as they end differently.
#[derive(Clone, Debug)]
pub struct Agenda {
    /// From the places up; the last level is one block.
    levels: Vec<Vec<Block>>,
    /// The only block, as long as there are few places.
    few: Option<Box<Block>>,
    /// Places there are.
    places: u32,
}

/// Later than everything that happens.
const NEVER: u64 = Instant::MAX.as_ps();
/// Games that the winner of a block wins, and who plays in it.
const GAMES: u32 = 3;
const PLAYERS: usize = 1 << (2 * GAMES);
/// The same, as long as there are no more places than that.
const FEW_GAMES: u32 = 2;
const FEW: usize = 1 << (2 * FEW_GAMES);

/// A tournament of games of four. Node 1 is the winner, node `n` has the children `4n` to `4n + 3`; the players are
/// the last nodes. Picoseconds. Its size is constant so that games need no bounds checks.
#[derive(Clone, Debug)]
struct Block([u64; 2 * PLAYERS]);

impl Block {
    const EMPTY: Block = Block([NEVER; 2 * PLAYERS]);

    /// The earliest moment, and the first player that has it.
    #[inline(always)]
    fn first<const GAMES: u32>(&self) -> (u64, usize) {
        let Block(nodes) = self;
        let (first, mut node) = (nodes[1], 1);
        for _ in 0..GAMES {
            let game = node * 4 % nodes.len();
            let second = nodes[game] != first;
            let third = second & (nodes[game + 1] != first);
            let fourth = third & (nodes[game + 2] != first);
            node = game + usize::from(second) + usize::from(third) + usize::from(fourth);
        }
        (first, node - (1 << (2 * GAMES)))
    }

    /// Sets a player's moment; if the earliest is another now, that.
    #[inline(always)]
    fn set<const GAMES: u32>(&mut self, player: usize, mut earliest: u64) -> Option<u64> {
        let Block(nodes) = self;
        let players = 1 << (2 * GAMES);
        let mut node = players + player % players;
        if nodes[node] == earliest {
            return None;
        }
        nodes[node] = earliest;
        for _ in 0..GAMES {
            let game = node / 4 * 4;
            let (left, right) = (nodes[game].min(nodes[game + 1]), nodes[game + 2].min(nodes[game + 3]));
            earliest = left.min(right);
            node /= 4;
            if nodes[node] == earliest {
                return None;
            }
            nodes[node] = earliest;
        }
        Some(earliest)
    }
}

impl Default for Agenda {
    fn default() -> Self {
        Agenda { levels: Vec::new(), few: Some(Box::new(Block::EMPTY)), places: 0 }
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
                    block.set::<GAMES>(0, below[0].0[1]);
                }
                self.levels.push(vec![block]);
            }
            self.levels[level].resize(blocks, Block::EMPTY);
            if blocks == 1 {
                break;
            }
            (level, blocks) = (level + 1, (blocks - 1) / PLAYERS + 1);
        }
        if self.places as usize == FEW
            && let Some(few) = self.few.take()
        {
            (0..FEW).for_each(|place| self.set(place as u32, Instant::from_ps(few.0[FEW + place])));
        }
        self.places += 1;
        self.places - 1
    }

    /// The first moment and its place; of several at one moment the one with the lowest number.
    #[inline]
    pub fn first(&self) -> Option<(Instant, u32)> {
        let (mut first, mut place) = (NEVER, 0);
        if let Some(few) = &self.few {
            (first, place) = few.first::<FEW_GAMES>();
        } else {
            for level in self.levels.iter().rev() {
                let (at, player) = level[place].first::<GAMES>();
                (first, place) = (at, place * PLAYERS + player);
            }
        }
        (first < NEVER).then_some((Instant::from_ps(first), place as u32))
    }

    /// Sets the deadline of `place`; [`Instant::MAX`]: it has none.
    #[inline]
    pub fn set(&mut self, place: u32, deadline: Instant) {
        let (mut place, mut earliest) = (place as usize, deadline.as_ps());
        if let Some(few) = &mut self.few {
            few.set::<FEW_GAMES>(place, earliest);
            return;
        }
        for level in &mut self.levels {
            match level[place / PLAYERS].set::<GAMES>(place, earliest) {
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
