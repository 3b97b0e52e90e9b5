//! What happens next.

use trunkline_units::Instant;

/// The next moment of every place, ordered by (time, place). A place has one deadline at the most, so nothing is ever
/// cancelled: it is set anew. A tournament: the leaves are places, each node holds the earlier of its two children, and
/// setting a deadline plays again only the games on the way up. Its size is the number of places, however many frames
/// wait.
#[derive(Clone, Debug)]
pub struct Agenda {
    /// Node 1 is the winner, node `n` has the children `2n` and `2n + 1`; the leaves are the upper half. Picoseconds.
    nodes: Vec<u64>,
    /// Where the leaves begin: a power of two.
    leaves: usize,
    /// Places there are.
    places: u32,
}

/// Later than everything that happens.
const NEVER: u64 = u64::MAX;

impl Default for Agenda {
    fn default() -> Self {
        Agenda { nodes: vec![NEVER; 2], leaves: 1, places: 0 }
    }
}

impl Agenda {
    /// Gives the next place a number.
    pub fn add(&mut self) -> u32 {
        if self.places as usize == self.leaves {
            let mut nodes = vec![NEVER; self.leaves * 4];
            nodes[self.leaves * 2..self.leaves * 3].copy_from_slice(&self.nodes[self.leaves..]);
            self.leaves *= 2;
            for n in (1..self.leaves).rev() {
                nodes[n] = nodes[2 * n].min(nodes[2 * n + 1]);
            }
            self.nodes = nodes;
        }
        self.places += 1;
        self.places - 1
    }

    /// The first moment and its place; of several at one moment the one with the lowest number.
    #[inline]
    pub fn first(&self) -> Option<(Instant, u32)> {
        let first = self.nodes[1];
        if first == NEVER {
            return None;
        }
        let mut node = 1;
        while node < self.leaves {
            node *= 2;
            node += usize::from(self.nodes[node] != first);
        }
        Some((Instant::from_ps(first), (node - self.leaves) as u32))
    }

    /// Sets or removes the deadline of `place`.
    #[inline]
    pub fn set(&mut self, place: u32, deadline: Option<Instant>) {
        let mut earliest = deadline.map_or(NEVER, Instant::as_ps);
        let mut node = self.leaves + place as usize;
        // Checks the bound once: every other index is smaller.
        let nodes = &mut self.nodes[..=node | 1];
        if nodes[node] == earliest {
            return;
        }
        nodes[node] = earliest;
        while node > 1 {
            earliest = earliest.min(nodes[node ^ 1]);
            node /= 2;
            if nodes[node] == earliest {
                return;
            }
            nodes[node] = earliest;
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
        fn it_agrees_with_a_sorted_map(steps in proptest::collection::vec((0u32..40, proptest::option::of(0u64..60)), 1..400)) {
            let mut agenda = Agenda::default();
            (0..40).for_each(|_| { agenda.add(); });
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            for (place, at) in steps {
                agenda.set(place, at.map(Instant::from_ps));
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
                agenda.set(place, None);
            }
            prop_assert!(model.is_empty());
        }
    }
}
