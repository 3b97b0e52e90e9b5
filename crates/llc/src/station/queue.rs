//! Priority queues, reusable slots, a timer queue, and a table by key.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use trunkline_units::Instant;

use super::Message;

/// Stale deadlines that may accumulate, besides two per slot.
const MAX_STALE: usize = 64;

/// One queue per priority. The caller bounds its length.
#[derive(Debug)]
pub(super) struct PriorityQueues<T> {
    queues: [VecDeque<T>; 8],
    /// Bit set of the nonempty priorities.
    levels: u8,
}

impl<T> Default for PriorityQueues<T> {
    fn default() -> Self {
        PriorityQueues { queues: Default::default(), levels: 0 }
    }
}

impl<T> PriorityQueues<T> {
    /// Bit set of the nonempty priorities.
    #[inline]
    pub fn levels(&self) -> u8 {
        self.levels
    }

    /// Returns whether a priority is nonempty.
    #[inline]
    pub fn has(&self, level: u8) -> bool {
        self.levels & 1 << level != 0
    }

    #[inline]
    pub fn push(&mut self, level: u8, item: T) {
        self.queues[usize::from(level)].push_back(item);
        self.levels |= 1 << level;
    }

    /// Inserts at the front of a priority.
    #[inline]
    pub fn push_first(&mut self, level: u8, item: T) {
        self.queues[usize::from(level)].push_front(item);
        self.levels |= 1 << level;
    }

    #[inline]
    pub fn first(&self, level: u8) -> Option<&T> {
        self.queues[usize::from(level)].front()
    }

    #[inline]
    pub fn pop(&mut self, level: u8) -> Option<T> {
        let item = self.queues[usize::from(level)].pop_front();
        self.note(level);
        item
    }

    /// Removes the first item of the highest priority.
    #[inline]
    pub fn pop_highest(&mut self) -> Option<T> {
        self.pop(highest(self.levels)?)
    }

    /// Removes an item from its priority.
    pub fn remove(&mut self, level: u8, item: &T)
    where
        T: PartialEq,
    {
        let queue = &mut self.queues[usize::from(level)];
        if let Some(at) = queue.iter().position(|other| other == item) {
            queue.remove(at);
        }
        self.note(level);
    }

    #[inline]
    fn note(&mut self, level: u8) {
        if self.queues[usize::from(level)].is_empty() {
            self.levels &= !(1 << level);
        }
    }
}

/// Returns the highest priority of a set.
#[inline]
pub(super) fn highest(levels: u8) -> Option<u8> {
    7u8.checked_sub(levels.leading_zeros() as u8)
}

/// Slots that keep their buffers for reuse.
#[derive(Debug, Default)]
pub(super) struct Pool<T> {
    slots: Vec<T>,
    free: Vec<u32>,
}

impl<T: Default> Pool<T> {
    /// Allocates a slot with its previous content.
    #[inline]
    pub fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(T::default());
            self.slots.len() as u32 - 1
        })
    }

    #[inline]
    pub fn release(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Returns the number of slots.
    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len()
    }
}

impl<T> std::ops::Index<u32> for Pool<T> {
    type Output = T;
    #[inline]
    fn index(&self, slot: u32) -> &T {
        &self.slots[slot as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Pool<T> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut T {
        &mut self.slots[slot as usize]
    }
}

/// Deadlines of messages. A stale entry remains until it expires; it counts only if the message still has that deadline.
#[derive(Debug, Default)]
pub(super) struct TimerQueue {
    /// The first entry, stored apart because it is usually the only one.
    next: Option<(Instant, u32)>,
    others: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl TimerQueue {
    #[inline]
    pub fn push(&mut self, at: Instant, slot: u32, slots: &Pool<Message>) {
        match self.next {
            None => self.next = Some((at, slot)),
            Some(next) => self.push_beside(next, (at, slot), slots),
        }
    }

    fn push_beside(&mut self, next: (Instant, u32), new: (Instant, u32), slots: &Pool<Message>) {
        self.next = Some(next.min(new));
        self.others.push(Reverse(next.max(new)));
        if self.others.len() > MAX_STALE + 2 * slots.len() {
            let mut left = std::mem::take(&mut self.others).into_vec();
            left.retain(|Reverse((at, slot))| slots[*slot].noted == *at);
            left.sort_unstable();
            left.dedup();
            self.others = left.into();
        }
    }

    /// Returns the first valid deadline.
    #[inline]
    pub fn first(&mut self, slots: &Pool<Message>) -> Option<(Instant, u32)> {
        while let Some((at, slot)) = self.next
            && slots[slot].noted != at
        {
            self.next = if self.others.is_empty() { None } else { self.pop() };
        }
        self.next
    }

    #[inline(never)]
    fn pop(&mut self) -> Option<(Instant, u32)> {
        self.others.pop().map(|Reverse(first)| first)
    }
}

/// Items by a 32-bit key, with a cache of the last lookup.
#[derive(Debug)]
pub(super) struct KeyedSlots<T> {
    slots: Vec<(u32, T)>,
    index: BTreeMap<u32, u32>,
    last: Option<(u32, u32)>,
}

impl<T> Default for KeyedSlots<T> {
    fn default() -> Self {
        KeyedSlots { slots: Vec::new(), index: BTreeMap::new(), last: None }
    }
}

impl<T> KeyedSlots<T> {
    #[inline]
    pub fn find(&mut self, key: u32) -> Option<u32> {
        match self.last {
            Some((last, slot)) if last == key => Some(slot),
            _ => {
                let slot = *self.index.get(&key)?;
                self.last = Some((key, slot));
                Some(slot)
            }
        }
    }

    /// Adds an item.
    pub fn add(&mut self, key: u32, item: T) -> u32 {
        let slot = self.slots.len() as u32;
        self.slots.push((key, item));
        self.index.insert(key, slot);
        slot
    }

    /// Replaces the item of a slot.
    pub fn replace(&mut self, slot: u32, key: u32, item: T) {
        let before = std::mem::replace(&mut self.slots[slot as usize], (key, item));
        self.index.remove(&before.0);
        self.index.insert(key, slot);
        self.last = None;
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().map(|(_, item)| item)
    }
}

impl<T> std::ops::Index<u32> for KeyedSlots<T> {
    type Output = T;
    #[inline]
    fn index(&self, slot: u32) -> &T {
        &self.slots[slot as usize].1
    }
}

impl<T> std::ops::IndexMut<u32> for KeyedSlots<T> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut T {
        &mut self.slots[slot as usize].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_level_comes_first_and_each_in_order() {
        let mut levels = PriorityQueues::default();
        for (level, item) in [(3, 'a'), (7, 'b'), (3, 'c'), (0, 'd'), (7, 'e')] {
            levels.push(level, item);
        }
        levels.push_first(3, 'f');
        levels.remove(7, &'b');
        levels.remove(0, &'x');
        let all: String = std::iter::from_fn(|| levels.pop_highest()).collect();
        assert_eq!((all.as_str(), levels.levels()), ("efacd", 0));
        assert_eq!((highest(0), highest(1), highest(0b1001_0000)), (None, Some(0), Some(7)));
    }

    #[test]
    fn moments_that_were_overtaken_do_not_pile_up() {
        let (mut moments, mut slots) = (TimerQueue::default(), Pool::<Message>::default());
        slots.take();
        for ps in 0..10_000 {
            slots[0].noted = Instant::from_ps(ps);
            moments.push(slots[0].noted, 0, &slots);
        }
        assert!(moments.others.len() <= MAX_STALE + 3);
        assert_eq!(moments.first(&slots), Some((Instant::from_ps(9_999), 0)));
        slots[0].noted = Instant::MAX;
        assert_eq!(moments.first(&slots), None);
        // Nor does repeated rescheduling.
        slots[0].noted = Instant::from_ps(1 << 40);
        for ps in 0..10_000 {
            moments.push(Instant::from_ps(if ps % 2 == 0 { 1 << 40 } else { ps }), 0, &slots);
        }
        assert!(moments.others.len() <= MAX_STALE + 3);
        assert_eq!(moments.first(&slots), Some((slots[0].noted, 0)));
    }

    #[test]
    fn a_slot_of_memory_is_of_one_key() {
        let mut memory = KeyedSlots::default();
        let slot = memory.add(1, 'a');
        memory.add(2, 'b');
        assert_eq!(memory.find(1), Some(slot));
        memory.replace(slot, 3, 'c');
        assert_eq!((memory.find(1), memory.find(3), memory[slot], memory.len()), (None, Some(slot), 'c', 2));
    }
}
