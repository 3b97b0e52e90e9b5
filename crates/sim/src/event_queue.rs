//! The event queue of the simulator: one timer per node.

use trunkline_units::Instant;

/// The number of a node: anything that has a timer. Nodes are numbered from 0 in the order in which they are added.
pub type NodeId = u32;

/// The deadlines of all nodes, ordered by (time, node).
///
/// A node has at most one deadline, so no event is ever cancelled: [`set`](EventQueue::set) replaces it. The queue takes
/// memory for each node, not for each frame in flight.
///
/// The data structure is a tournament tree with eight children per block. Setting a deadline updates only the path to the
/// root, and stops where the minimum does not change.
#[derive(Clone, Debug)]
pub struct EventQueue {
    /// The tree in heap order: block `n` holds the minima of blocks `8n + 1` to `8n + 8`.
    blocks: Vec<Block>,
    /// Index of the first block that holds deadlines of nodes.
    first_leaf: usize,
    /// Number of nodes.
    node_count: NodeId,
}

impl Default for EventQueue {
    fn default() -> Self {
        EventQueue { blocks: vec![Block::EMPTY], first_leaf: 0, node_count: 0 }
    }
}

/// The deadline of a node that has none, ps.
const NEVER: u64 = Instant::MAX.as_ps();
/// Depth of the binary tree inside a block, and the number of its leaves.
const LEVELS: u32 = 3;
const SLOTS: usize = 1 << LEVELS;

/// A binary tree of minima, ps. Entry 1 is the root, entry `n` has the children `2n` and `2n + 1`, and the upper half are
/// the leaves (slots). The size is constant, so the compiler unrolls the loops and removes the bounds checks.
#[derive(Clone, Debug)]
struct Block([u64; 2 * SLOTS]);

impl Block {
    const EMPTY: Block = Block([NEVER; 2 * SLOTS]);

    /// Returns the earliest deadline and the first slot that has it.
    #[inline(always)]
    fn first(&self) -> (u64, usize) {
        let Block(tree) = self;
        let (first, mut entry) = (tree[1], 1);
        for _ in 0..LEVELS {
            entry *= 2;
            entry += usize::from(tree[entry % tree.len()] != first);
        }
        (first, entry - SLOTS)
    }

    /// Returns the earliest deadline of all slots except one: the minimum of the siblings on its path to the root.
    #[inline(always)]
    fn min_except(&self, slot: usize) -> u64 {
        let Block(tree) = self;
        let (mut entry, mut earliest) = (SLOTS + slot % SLOTS, NEVER);
        for _ in 0..LEVELS {
            earliest = earliest.min(tree[entry ^ 1]);
            entry /= 2;
        }
        earliest
    }

    /// Sets the deadline of a slot. Returns the minimum of the block if it changed.
    #[inline(always)]
    fn set(&mut self, slot: usize, mut earliest: u64) -> Option<u64> {
        let Block(tree) = self;
        let mut entry = SLOTS + slot % SLOTS;
        if tree[entry] == earliest {
            return None;
        }
        tree[entry] = earliest;
        for _ in 0..LEVELS {
            earliest = earliest.min(tree[entry ^ 1]);
            entry /= 2;
            if tree[entry] == earliest {
                return None;
            }
            tree[entry] = earliest;
        }
        Some(earliest)
    }
}

impl EventQueue {
    /// Adds a node without a deadline and returns its number.
    pub fn add_node(&mut self) -> NodeId {
        let node = self.node_count;
        self.node_count += 1;
        if node as usize / SLOTS > (SLOTS - 1) * self.first_leaf {
            self.grow();
        }
        let blocks = self.first_leaf + node as usize / SLOTS + 1;
        self.blocks.resize(blocks.max(self.blocks.len()), Block::EMPTY);
        node
    }

    /// Adds one level to the tree.
    fn grow(&mut self) {
        let leaves = self.blocks.split_off(self.first_leaf);
        self.first_leaf = SLOTS * self.first_leaf + 1;
        self.blocks = vec![Block::EMPTY; self.first_leaf + leaves.len()];
        let deadlines = leaves.iter().flat_map(|block| &block.0[SLOTS..]);
        for (node, at) in deadlines.enumerate() {
            self.set(node as u32, Instant::from_ps(*at));
        }
    }

    /// Returns the earliest deadline and its node. Among equal deadlines the lowest node number wins.
    #[inline(always)]
    pub fn first(&self) -> Option<(Instant, NodeId)> {
        let mut block = 0;
        loop {
            let (first, slot) = self.blocks[block].first();
            if block >= self.first_leaf {
                let node = (block - self.first_leaf) * SLOTS + slot;
                return (first < NEVER).then_some((Instant::from_ps(first), node as u32));
            }
            block = SLOTS * block + slot + 1;
        }
    }

    /// Returns the block and the slot of a node.
    #[inline(always)]
    fn slot_of(&self, node: NodeId) -> (usize, usize) {
        (self.first_leaf + node as usize / SLOTS, node as usize % SLOTS)
    }

    /// Returns the block and the slot that hold the minimum of a block, or `None` for the root.
    #[inline(always)]
    fn parent_of(block: usize) -> Option<(usize, usize)> {
        let below = block.checked_sub(1)?;
        Some((below / SLOTS, below % SLOTS))
    }

    /// Returns the earliest deadline of all nodes except one; [`Instant::MAX`] if there is none.
    #[inline(always)]
    pub fn earliest_except(&self, node: NodeId) -> Instant {
        let (mut position, mut earliest) = (Some(self.slot_of(node)), NEVER);
        while let Some((block, slot)) = position {
            earliest = earliest.min(self.blocks[block].min_except(slot));
            position = Self::parent_of(block);
        }
        Instant::from_ps(earliest)
    }

    /// Sets the deadline of `node`, unless it has an earlier one.
    #[inline(always)]
    pub fn set_earlier(&mut self, node: NodeId, deadline: Instant) {
        let (block, slot) = self.slot_of(node);
        if deadline.as_ps() < self.blocks[block].0[SLOTS + slot] {
            self.set(node, deadline);
        }
    }

    /// Sets the deadline of `node`; [`Instant::MAX`] removes it.
    #[inline(always)]
    pub fn set(&mut self, node: NodeId, deadline: Instant) {
        let (mut position, mut earliest) = (Some(self.slot_of(node)), deadline.as_ps());
        while let Some((block, slot)) = position {
            let Some(minimum) = self.blocks[block].set(slot, earliest) else { return };
            (position, earliest) = (Self::parent_of(block), minimum);
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
        fn agrees_with_a_sorted_map(steps in proptest::collection::vec((0u32..600, proptest::option::of(0u64..60)), 1..400)) {
            let mut queue = EventQueue::default();
            let mut expected: BTreeMap<u32, u64> = BTreeMap::new();
            for (node, at) in steps {
                // Nodes are added while others have deadlines.
                while queue.node_count <= node {
                    queue.add_node();
                }
                match at {
                    // A third of the deadlines apply only if they are earlier.
                    Some(at) if at % 3 == 0 => {
                        queue.set_earlier(node, Instant::from_ps(at));
                        expected.entry(node).and_modify(|known| *known = at.min(*known)).or_insert(at);
                    }
                    _ => queue.set(node, at.map_or(Instant::MAX, Instant::from_ps)),
                }
                match at {
                    Some(at) if at % 3 == 0 => {}
                    Some(at) => { expected.insert(node, at); }
                    None => { expected.remove(&node); }
                }
                let first = expected.iter().map(|(p, t)| (Instant::from_ps(*t), *p)).min();
                prop_assert_eq!(queue.first(), first);
                let other = expected.iter().filter(|(p, _)| **p != node).map(|(_, t)| *t).min();
                prop_assert_eq!(queue.earliest_except(node), other.map_or(Instant::MAX, Instant::from_ps));
            }
            // Draining returns all deadlines in order.
            let mut last = None;
            while let Some((at, node)) = queue.first() {
                prop_assert!(last < Some((at, node)));
                prop_assert_eq!(expected.remove(&node), Some(at.as_ps()));
                last = Some((at, node));
                queue.set(node, Instant::MAX);
            }
            prop_assert!(expected.is_empty());
        }
    }
}
