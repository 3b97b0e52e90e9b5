//! Sets of packet addresses.

use std::collections::VecDeque;

use crate::wire::classic::PACKET_ADDRESSES;

const WORDS: usize = PACKET_ADDRESSES / 64;

/// A set of packet addresses, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketSet([u64; WORDS]);

impl PacketSet {
    /// The empty set.
    pub const NONE: PacketSet = PacketSet([0; WORDS]);
    /// The set of all packet addresses.
    pub const ALL: PacketSet = PacketSet([u64::MAX; WORDS]);

    /// Reads a set from octets of eight packet addresses each, lowest bit first.
    pub fn read(octets: &[u8; PACKET_ADDRESSES / 8]) -> PacketSet {
        PacketSet(std::array::from_fn(|at| u64::from_le_bytes(octets.as_chunks().0[at])))
    }

    /// Writes the set as octets.
    pub fn write(&self) -> [u8; PACKET_ADDRESSES / 8] {
        let mut octets = [0; PACKET_ADDRESSES / 8];
        for (octets, word) in octets.as_chunks_mut().0.iter_mut().zip(self.0) {
            *octets = word.to_le_bytes();
        }
        octets
    }

    /// Returns whether a packet address is in the set.
    pub fn contains(&self, packet: u16) -> bool {
        self.0[usize::from(packet / 64)] >> (packet % 64) & 1 == 1
    }

    /// Inserts or removes a packet address.
    pub fn set(&mut self, packet: u16, is_in: bool) {
        let (word, bit) = (&mut self.0[usize::from(packet / 64)], 1 << (packet % 64));
        if is_in { *word |= bit } else { *word &= !bit }
    }

    /// Inserts all packet addresses from `first` to `last`.
    pub fn insert_range(&mut self, first: u16, last: u16) {
        for (word, from) in self.0.iter_mut().zip((0u16..).step_by(64)) {
            let (first, last) = (first.max(from), last.min(from + 63));
            if first <= last {
                *word |= u64::MAX >> (63 - (last - first)) << (first - from);
            }
        }
    }

    /// Returns the number of packet addresses.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns the packet addresses in either set.
    pub fn union(&self, other: &PacketSet) -> PacketSet {
        PacketSet(std::array::from_fn(|at| self.0[at] | other.0[at]))
    }

    /// Returns the packet addresses that are not in the other set.
    pub fn difference(&self, other: &PacketSet) -> PacketSet {
        PacketSet(std::array::from_fn(|at| self.0[at] & !other.0[at]))
    }

    /// Iterates in ascending order.
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

/// A change of multicast membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembershipEvent {
    /// Join the group of this packet address.
    Join(u16),
    /// Leave the group of this packet address.
    Leave(u16),
}

/// The packet addresses of a level-1 converter and the pending membership events.
#[derive(Debug, Default)]
pub struct JoinedGroups {
    packets: PacketSet,
    events: VecDeque<MembershipEvent>,
}

impl JoinedGroups {
    /// Returns the joined packet addresses.
    pub fn packets(&self) -> &PacketSet {
        &self.packets
    }

    /// Joins or leaves a packet address.
    pub fn change(&mut self, packet: u16, joins: bool) {
        if self.packets.contains(packet) == joins {
            return;
        }
        self.packets.set(packet, joins);
        // An event cancels its pending opposite.
        let (this, undone) = match joins {
            true => (MembershipEvent::Join(packet), MembershipEvent::Leave(packet)),
            false => (MembershipEvent::Leave(packet), MembershipEvent::Join(packet)),
        };
        match self.events.iter().position(|event| *event == undone) {
            Some(at) => _ = self.events.remove(at),
            None => self.events.push_back(this),
        }
        debug_assert!(self.events.len() <= PACKET_ADDRESSES, "each packet address is queued once");
    }

    /// Replaces the joined packet addresses. Leaves come before joins.
    pub fn replace(&mut self, packets: &PacketSet) {
        self.packets.difference(packets).iter().for_each(|packet| self.change(packet, false));
        packets.difference(&self.packets).iter().for_each(|packet| self.change(packet, true));
    }

    /// Returns the next pending event.
    pub fn next_event(&mut self) -> Option<MembershipEvent> {
        self.events.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn packet_sets_match_a_model(a in prop::collection::btree_set(0u16..2_048, 0..80),
                         b in prop::collection::btree_set(0u16..2_048, 0..80)) {
            let set = |all: &BTreeSet<u16>| {
                let mut packets = PacketSet::NONE;
                all.iter().for_each(|packet| packets.set(*packet, true));
                packets
            };
            let (p, q) = (set(&a), set(&b));
            prop_assert_eq!(p.iter().collect::<BTreeSet<_>>(), a.clone());
            prop_assert!(p.count() == a.len() && (0..2_048).all(|packet| p.contains(packet) == a.contains(&packet)));
            prop_assert_eq!(p.union(&q), set(&(&a | &b)));
            prop_assert_eq!(p.difference(&q), set(&(&a - &b)));
            prop_assert_eq!(PacketSet::read(&p.write()), p);
            prop_assert!(a.iter().all(|at| p.write()[usize::from(at / 8)] >> (at % 8) & 1 == 1));
            let mut filled = p;
            let (first, last) = (a.iter().next().map_or(7, |at| *at), b.iter().next_back().map_or(2_047, |at| *at));
            if first <= last {
                filled.insert_range(first, last);
                prop_assert_eq!(filled, set(&a.iter().copied().chain(first..=last).collect()));
            }
            // From any state, the events lead to the new set.
            let mut joined = JoinedGroups::default();
            joined.replace(&p);
            joined.replace(&q);
            let joins: BTreeSet<u16> = std::iter::from_fn(|| joined.next_event()).map(|event| match event {
                MembershipEvent::Join(packet) => packet,
                MembershipEvent::Leave(packet) => unreachable!("{packet} was not joined"),
            }).collect();
            prop_assert_eq!(joins, b);
        }
    }
}
