//! Sets of packet addresses.

use std::collections::VecDeque;

use crate::wire::classic::PACKETS;

const WORDS: usize = PACKETS / 64;

/// Packet addresses, a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packets([u64; WORDS]);

impl Packets {
    /// None.
    pub const NONE: Packets = Packets([0; WORDS]);
    /// All.
    pub const ALL: Packets = Packets([u64::MAX; WORDS]);

    /// From octets, each with eight of them, the lowest bit first.
    pub fn read(octets: &[u8; PACKETS / 8]) -> Packets {
        let mut words = [0; WORDS];
        for (word, octets) in words.iter_mut().zip(octets.as_chunks().0) {
            *word = u64::from_le_bytes(*octets);
        }
        Packets(words)
    }

    /// As octets.
    pub fn write(&self) -> [u8; PACKETS / 8] {
        let mut octets = [0; PACKETS / 8];
        for (octets, word) in octets.as_chunks_mut().0.iter_mut().zip(self.0) {
            *octets = word.to_le_bytes();
        }
        octets
    }

    /// Whether one is in it.
    pub fn has(&self, packet: u16) -> bool {
        self.0[usize::from(packet / 64)] >> (packet % 64) & 1 == 1
    }

    /// Puts one in or takes it out.
    pub fn set(&mut self, packet: u16, is_in: bool) {
        let (word, bit) = (&mut self.0[usize::from(packet / 64)], 1 << (packet % 64));
        if is_in { *word |= bit } else { *word &= !bit }
    }

    /// Puts in all from one to another, which is not before it.
    pub fn fill(&mut self, first: u16, last: u16) {
        for (word, from) in self.0.iter_mut().zip((0u16..).step_by(64)) {
            let (first, last) = (first.max(from), last.min(from + 63));
            if first <= last {
                *word |= u64::MAX >> (63 - (last - first)) << (first - from);
            }
        }
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Those in either.
    pub fn or(&self, other: &Packets) -> Packets {
        Packets(std::array::from_fn(|at| self.0[at] | other.0[at]))
    }

    /// Those that are not in the other.
    pub fn without(&self, other: &Packets) -> Packets {
        Packets(std::array::from_fn(|at| self.0[at] & !other.0[at]))
    }

    /// Each, rising.
    pub fn iter(&self) -> impl Iterator<Item = u16> + use<> {
        self.0.into_iter().zip(0u16..).flat_map(|(word, at)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = left.checked_ilog2().map(|_| left.trailing_zeros())?;
                left &= left - 1;
                Some(at * 64 + bit as u16)
            })
        })
    }
}

/// What is told of a packet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Messages to this packet address are wanted.
    Join(u16),
    /// No more.
    Leave(u16),
}

/// The packet addresses that a converter of level 1 gets, and what is still to be told of them.
#[derive(Debug)]
pub struct Joined {
    packets: Packets,
    changed: VecDeque<Event>,
}

impl Default for Joined {
    fn default() -> Joined {
        Joined { packets: Packets::NONE, changed: VecDeque::new() }
    }
}

impl Joined {
    /// Those that it gets.
    pub fn packets(&self) -> &Packets {
        &self.packets
    }

    /// It gets one, or no longer.
    pub fn change(&mut self, packet: u16, joins: bool) {
        if self.packets.has(packet) == joins {
            return;
        }
        self.packets.set(packet, joins);
        // What is told and undone before it was asked for is nothing.
        let (this, undone) = match joins {
            true => (Event::Join(packet), Event::Leave(packet)),
            false => (Event::Leave(packet), Event::Join(packet)),
        };
        match self.changed.iter().position(|event| *event == undone) {
            Some(at) => _ = self.changed.remove(at),
            None => self.changed.push_back(this),
        }
        debug_assert!(self.changed.len() <= PACKETS, "each packet address waits once");
    }

    /// It gets these and no others. Leaves come before joins.
    pub fn become_these(&mut self, packets: &Packets) {
        self.packets.without(packets).iter().for_each(|packet| self.change(packet, false));
        packets.without(&self.packets).iter().for_each(|packet| self.change(packet, true));
    }

    /// What is to be told next.
    pub fn tell(&mut self) -> Option<Event> {
        self.changed.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn they_are_sets(a in prop::collection::btree_set(0u16..2_048, 0..80),
                         b in prop::collection::btree_set(0u16..2_048, 0..80)) {
            let set = |all: &BTreeSet<u16>| {
                let mut packets = Packets::NONE;
                all.iter().for_each(|packet| packets.set(*packet, true));
                packets
            };
            let (p, q) = (set(&a), set(&b));
            prop_assert_eq!(p.iter().collect::<BTreeSet<_>>(), a.clone());
            prop_assert!(p.count() == a.len() && (0..2_048).all(|packet| p.has(packet) == a.contains(&packet)));
            prop_assert_eq!(p.or(&q), set(&(&a | &b)));
            prop_assert_eq!(p.without(&q), set(&(&a - &b)));
            prop_assert_eq!(Packets::read(&p.write()), p);
            prop_assert!(a.iter().all(|at| p.write()[usize::from(at / 8)] >> (at % 8) & 1 == 1));
            let mut filled = p;
            let (first, last) = (a.iter().next().map_or(7, |at| *at), b.iter().next_back().map_or(2_047, |at| *at));
            if first <= last {
                filled.fill(first, last);
                prop_assert_eq!(filled, set(&a.iter().copied().chain(first..=last).collect()));
            }
            // What is told makes the one of the other, whatever was told before.
            let mut joined = Joined::default();
            joined.become_these(&p);
            joined.become_these(&q);
            let told: BTreeSet<u16> = std::iter::from_fn(|| joined.tell()).map(|event| match event {
                Event::Join(packet) => packet,
                Event::Leave(packet) => unreachable!("{packet} was not told"),
            }).collect();
            prop_assert_eq!(told, b);
        }
    }
}
