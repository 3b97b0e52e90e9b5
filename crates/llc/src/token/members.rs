//! Membership of a ring: one bit per station.

use std::fmt;

use crate::wire::ALL;

/// Length on the wire, in octets.
pub const OCTETS: usize = 32;

/// A set of stations, 1 to 254. The token visits them by number, cyclically.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Members([u64; 4]);

impl Members {
    /// Creates a set of one station.
    pub fn only(station: u8) -> Members {
        let mut members = Members::default();
        members.insert(station);
        members
    }

    /// Decodes [`OCTETS`] octets: station `n` is bit `n % 8` of octet `n / 8`. `None` if they contain 0 or 255, which
    /// are not stations.
    pub fn read(octets: &[u8; OCTETS]) -> Option<Members> {
        let mut words = [0; 4];
        for (word, octets) in words.iter_mut().zip(octets.as_chunks().0) {
            *word = u64::from_le_bytes(*octets);
        }
        let members = Members(words);
        (!members.has(0) && !members.has(ALL)).then_some(members)
    }

    /// Encodes the set for [`read`](Members::read).
    pub fn octets(&self) -> [u8; OCTETS] {
        let mut octets = [0; OCTETS];
        for (octets, word) in octets.chunks_exact_mut(8).zip(self.0) {
            octets.copy_from_slice(&word.to_le_bytes());
        }
        octets
    }

    /// Returns whether `station` is a member.
    pub fn has(&self, station: u8) -> bool {
        self.0[usize::from(station / 64)] >> (station % 64) & 1 != 0
    }

    /// Adds a station.
    pub fn insert(&mut self, station: u8) {
        self.0[usize::from(station / 64)] |= 1 << (station % 64);
    }

    /// Removes a station.
    pub fn remove(&mut self, station: u8) {
        self.0[usize::from(station / 64)] &= !(1 << (station % 64));
    }

    /// Adds all members of another set.
    pub fn join(&mut self, others: Members) {
        self.0.iter_mut().zip(others.0).for_each(|(word, more)| *word |= more);
    }

    /// Returns the number of members.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// Returns the lowest member.
    pub fn first(&self) -> Option<u8> {
        self.from(0)
    }

    /// Returns the member after `station`, which need not be a member: `station` itself if it is the only one, `None`
    /// if the set is empty.
    pub fn after(&self, station: u8) -> Option<u8> {
        station.checked_add(1).and_then(|next| self.from(next)).or_else(|| self.first())
    }

    /// Returns the number of passes from `from` to the member `to`: 1 to the next, a whole rotation to itself.
    pub fn passes(&self, from: u8, to: u8) -> usize {
        let upto = |n: u8| {
            let word = usize::from(n / 64);
            let whole: u32 = self.0[..word].iter().map(|word| word.count_ones()).sum();
            (whole + (self.0[word] & u64::MAX >> (63 - n % 64)).count_ones()) as usize
        };
        if to > from { upto(to) - upto(from) } else { self.count() - upto(from) + upto(to) }
    }

    /// Iterates from the lowest to the highest member.
    pub fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        (1..ALL).filter(|station| self.has(*station))
    }

    /// Returns the first member at or after `station`, without wrapping.
    fn from(&self, station: u8) -> Option<u8> {
        let start = usize::from(station / 64);
        (start..4).find_map(|at| {
            let word = self.0[at] & if at == start { u64::MAX << (station % 64) } else { u64::MAX };
            (word != 0).then(|| at as u8 * 64 + word.trailing_zeros() as u8)
        })
    }
}

impl FromIterator<u8> for Members {
    fn from_iter<I: IntoIterator<Item = u8>>(stations: I) -> Members {
        let mut members = Members::default();
        stations.into_iter().for_each(|station| members.insert(station));
        members
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compared with a plain set.
        #[test]
        fn the_ring_goes_round_by_number(
            set in proptest::collection::btree_set(1u8..255, 0..40), from in 1u8..255, gone in 1u8..255,
        ) {
            let mut members: Members = set.iter().copied().collect();
            let next = set.range(from + 1..).chain(set.iter()).next().copied();
            prop_assert_eq!(members.after(from), next);
            prop_assert_eq!(members.first(), set.first().copied());
            prop_assert_eq!(members.count(), set.len());
            prop_assert_eq!(members.is_empty(), set.is_empty());
            prop_assert_eq!(members.iter().collect::<BTreeSet<u8>>(), set.clone());
            prop_assert_eq!(Members::read(&members.octets()), Some(members));
            let mut at = from;
            for passes in 1..=set.len() {
                at = members.after(at).unwrap();
                prop_assert_eq!(members.passes(from, at), passes);
            }
            members.remove(gone);
            prop_assert_eq!(members.count(), set.len() - usize::from(set.contains(&gone)));
        }
    }

    #[test]
    fn zero_and_broadcast_are_not_stations() {
        for none in [0u8, 255] {
            let mut octets = Members::only(7).octets();
            octets[usize::from(none / 8)] |= 1 << (none % 8);
            assert_eq!(Members::read(&octets), None);
        }
        assert_eq!(Members::only(9).octets()[1], 2);
    }
}
