//! Subscribers of 32-bit addresses: the ranges of each host, and the segments into which they divide the address
//! space.

use std::collections::BTreeMap;

use crate::packet_set::PacketSet;
use crate::wire::classic::PACKET_ADDRESSES;
use crate::wire::format2::packet_address;

/// The largest number of ranges of a host.
pub const MAX_RANGES: usize = 16_384;
/// The largest number of segments into which the ranges of all hosts divide the address space.
pub const MAX_SEGMENTS: usize = 65_536;
/// The largest number of host entries in all segments.
pub const MAX_SEGMENT_HOSTS: usize = 1 << 20;

/// A set of addresses, as ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(BTreeMap<u32, u32>);

impl Ranges {
    /// Returns the number of ranges.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over first and last address of each range, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.0.iter().map(|(first, last)| (*first, *last))
    }

    /// Returns whether an address is in the set.
    pub fn contains(&self, address: u32) -> bool {
        self.0.range(..=address).next_back().is_some_and(|(_, last)| *last >= address)
    }

    /// Returns whether joining or leaving a range changes nothing.
    pub fn is_unchanged_by(&self, first: u32, last: u32, joined: bool) -> bool {
        let before = self.0.range(..=last).next_back().map(|(from, to)| (*from, *to));
        match joined {
            true => before.is_some_and(|(from, to)| from <= first && to >= last),
            false => before.is_none_or(|(_, to)| to < first),
        }
    }

    /// Returns whether there is room to insert or remove a range. Removing the middle of a range leaves two.
    pub fn has_room(&self, first: u32, last: u32, adds: bool) -> bool {
        let splits = || self.0.range(..first).next_back().is_some_and(|(_, end)| *end > last);
        self.0.len() < MAX_RANGES || if adds { self.last_touching(first, last).is_some() } else { !splits() }
    }

    /// Returns the last range that overlaps or touches a given one.
    fn last_touching(&self, first: u32, last: u32) -> Option<(u32, u32)> {
        let before = self.0.range(..=last.saturating_add(1)).next_back().map(|(f, l)| (*f, *l));
        before.filter(|(_, end)| end.saturating_add(1) >= first)
    }

    /// Inserts a range; returns whether there was room. Requires `first <= last`.
    pub fn insert(&mut self, first: u32, last: u32) -> bool {
        if !self.has_room(first, last, true) {
            return false;
        }
        let (mut from, mut to) = (first, last);
        // Merge all ranges that overlap or touch it.
        while let Some((other, end)) = self.last_touching(first, last) {
            self.0.remove(&other);
            (from, to) = (from.min(other), to.max(end));
        }
        self.0.insert(from, to);
        true
    }

    /// Removes a range; returns whether there was room.
    pub fn remove(&mut self, first: u32, last: u32) -> bool {
        if !self.has_room(first, last, false) {
            return false;
        }
        while let Some((from, to)) = self.0.range(..=last).next_back().map(|(f, l)| (*f, *l)) {
            if to < first {
                break;
            }
            self.0.remove(&from);
            if to > last {
                self.0.insert(last + 1, to);
            }
            if from < first {
                self.0.insert(from, first - 1);
            }
        }
        true
    }
}

/// The subscribers of each address, at most [`MAX_SEGMENTS`] segments with [`MAX_SEGMENT_HOSTS`] entries.
#[derive(Debug)]
pub struct Segments {
    /// The subscribers from each address up to the next, in ascending order. The first address is 0.
    starts: BTreeMap<u32, Vec<u16>>,
    /// The number of host entries in all segments.
    host_entries: usize,
}

impl Default for Segments {
    fn default() -> Segments {
        Segments { starts: BTreeMap::from([(0, Vec::new())]), host_entries: 0 }
    }
}

/// The result of a change of [`Segments`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentChange {
    /// Whether there was room for it.
    pub applied: bool,
    /// The number of segments visited: the cost of the change.
    pub segments_visited: usize,
}

impl Segments {
    /// Returns the subscribers of an address.
    pub fn hosts(&self, address: u32) -> &[u16] {
        self.starts.range(..=address).next_back().map_or(&[], |(_, hosts)| hosts)
    }

    /// Returns the number of segments, at least 1.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Returns whether there is no subscriber.
    pub fn is_empty(&self) -> bool {
        self.len() == 1
    }

    /// Returns the number of host entries in all segments.
    pub fn host_entries(&self) -> usize {
        self.host_entries
    }

    /// Subscribes a host to a range or unsubscribes it, if there is room. Removing a whole range of a host always
    /// succeeds, because segments begin and end with it.
    pub fn set(&mut self, host: u16, first: u32, last: u32, joins: bool) -> SegmentChange {
        let pieces = 1 + self.starts.range(first..=last).count();
        let cuts: Vec<u32> = [Some(first), last.checked_add(1)].into_iter().flatten().collect();
        let cuts = || cuts.iter().filter(|at| !self.starts.contains_key(at));
        let copied: usize = cuts().map(|at| self.hosts(*at).len()).sum();
        let more = copied + if joins { pieces } else { 0 };
        if self.starts.len() + cuts().count() > MAX_SEGMENTS || self.host_entries + more > MAX_SEGMENT_HOSTS {
            return SegmentChange { applied: false, segments_visited: pieces };
        }
        self.split_at(first);
        if let Some(behind) = last.checked_add(1) {
            self.split_at(behind);
        }
        for (_, hosts) in self.starts.range_mut(first..=last) {
            match (hosts.binary_search(&host), joins) {
                (Err(at), true) => {
                    hosts.insert(at, host);
                    self.host_entries += 1;
                }
                (Ok(at), false) => {
                    hosts.remove(at);
                    self.host_entries -= 1;
                }
                _ => {}
            }
        }
        self.merge(first, last.saturating_add(1));
        SegmentChange { applied: true, segments_visited: pieces }
    }

    /// Makes a segment begin at an address.
    fn split_at(&mut self, at: u32) {
        if !self.starts.contains_key(&at) {
            let hosts = self.hosts(at).to_vec();
            self.host_entries += hosts.len();
            self.starts.insert(at, hosts);
        }
    }

    /// Merges neighboring segments with equal subscribers.
    fn merge(&mut self, first: u32, last: u32) {
        let mut before = self.starts.range(..first).next_back().map(|(at, _)| *at);
        let pieces: Vec<u32> = self.starts.range(first..=last).map(|(at, _)| *at).collect();
        for at in pieces {
            match before {
                Some(other) if self.starts[&other] == self.starts[&at] => {
                    self.host_entries -= self.starts.remove(&at).map_or(0, |hosts| hosts.len());
                }
                _ => before = Some(at),
            }
        }
    }

    /// Returns the packet addresses that have a subscriber.
    pub fn packet_addresses(&self) -> PacketSet {
        let mut packets = PacketSet::NONE;
        let ends = self.starts.keys().skip(1).map(|next| next - 1).chain([u32::MAX]);
        for ((first, hosts), last) in self.starts.iter().zip(ends) {
            if hosts.is_empty() {
                continue;
            }
            let (first, last) = (*first / 32, last / 32);
            if last - first >= PACKET_ADDRESSES as u32 - 1 {
                return PacketSet::ALL;
            }
            match (packet_address(first * 32), packet_address(last * 32)) {
                (from, to) if from <= to => packets.insert_range(from, to),
                (from, to) => {
                    packets.insert_range(from, PACKET_ADDRESSES as u16 - 1);
                    packets.insert_range(0, to);
                }
            }
        }
        packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn ranges_cover_all_addresses_and_are_bounded() {
        let mut ranges = Ranges::default();
        assert!(ranges.insert(0, u32::MAX) && ranges.contains(0) && ranges.contains(u32::MAX));
        assert!(ranges.remove(1, u32::MAX - 1) && ranges.len() == 2 && !ranges.contains(1));
        assert!(ranges.insert(1, u32::MAX - 1) && ranges.len() == 1);
        assert!(ranges.remove(0, u32::MAX) && ranges.is_empty());
        (0..MAX_RANGES as u32).for_each(|n| assert!(ranges.insert(n * 4, n * 4 + 2)));
        assert!(!ranges.insert(2_000_000, 2_000_000) && !ranges.remove(1, 1), "full");
        assert!(ranges.insert(3, 3) && ranges.len() == MAX_RANGES - 1);
        let mut all = Segments::default();
        all.set(1, 0, u32::MAX, true);
        assert_eq!((all.len(), all.hosts(0), all.hosts(u32::MAX)), (1, &[1][..], &[1][..]));
        assert_eq!(all.packet_addresses().count(), 2_048);
        all.set(1, 5, u32::MAX, false);
        assert_eq!((all.len(), all.packet_addresses().count()), (2, 1));
    }

    /// A full table refuses changes, loses nothing, and accepts unsubscriptions.
    #[test]
    fn segments_are_bounded_over_all_hosts() {
        let mut all = Segments::default();
        let ranges: Vec<(u16, u32)> = (0..u32::from(u16::MAX)).map(|n| (1 + (n % 7) as u16, n * 8)).collect();
        let taken = ranges.iter().take_while(|(host, at)| all.set(*host, *at, at + 3, true).applied).count();
        assert!(all.len() <= MAX_SEGMENTS && all.len() > MAX_SEGMENTS - 3, "{}", all.len());
        assert_eq!(taken, MAX_SEGMENTS / 2);
        // Removing the middle of a segment needs room, too.
        assert_eq!(all.set(1, 1, 1, false), SegmentChange { applied: false, segments_visited: 1 });
        assert_eq!(all.hosts(1), [1]);
        // A host that subscribes to everything needs one entry in each segment.
        let hosts = (100..=u16::MAX).take_while(|host| all.set(*host, 0, u32::MAX, true).applied).count();
        assert!(
            hosts > 10
                && all.host_entries() <= MAX_SEGMENT_HOSTS
                && all.host_entries() + all.len() >= MAX_SEGMENT_HOSTS,
            "{hosts}"
        );
        let pieces = all.len();
        assert_eq!(
            all.set(100, 0, u32::MAX, false),
            SegmentChange { applied: true, segments_visited: pieces + 1 }
        );
        (101..100 + hosts as u16).for_each(|host| assert!(all.set(host, 0, u32::MAX, false).applied));
        ranges[..taken].iter().for_each(|(host, at)| assert!(all.set(*host, *at, at + 3, false).applied));
        assert!(all.is_empty() && all.host_entries() == 0);
    }

    proptest! {
        /// Compares ranges and segments with a model made of sets.
        #[test]
        fn ranges_and_segments_match_a_model(
            steps in prop::collection::vec((1u16..5, 0u32..200, 0u32..60, any::<bool>()), 0..60),
            base in prop::sample::select(vec![0u32, 65_400, u32::MAX - 260]),
        ) {
            let (mut ranges, mut segments) = (vec![Ranges::default(); 5], Segments::default());
            let mut model: BTreeSet<(u32, u16)> = BTreeSet::new();
            for (host, first, more, joins) in steps {
                let (first, last) = (base + first, base + first + more);
                prop_assert!(segments.set(host, first, last, joins).applied);
                let own = &mut ranges[usize::from(host)];
                let before = own.clone();
                let is_already = own.is_unchanged_by(first, last, joins);
                if joins {
                    prop_assert!(own.insert(first, last));
                    model.extend((first..=last).map(|address| (address, host)));
                } else {
                    prop_assert!(own.remove(first, last));
                    (first..=last).for_each(|address| _ = model.remove(&(address, host)));
                }
                prop_assert_eq!(is_already, *own == before);
            }
            let joined: usize = segments.starts.values().map(Vec::len).sum();
            prop_assert_eq!(segments.host_entries(), joined);
            let mut packets = BTreeSet::new();
            for address in base..=base + 260 {
                let hosts: Vec<u16> = (1..5).filter(|host| model.contains(&(address, *host))).collect();
                prop_assert_eq!(segments.hosts(address), &hosts[..]);
                for host in 1..5 {
                    prop_assert_eq!(ranges[usize::from(host)].contains(address), hosts.contains(&host));
                }
                if !hosts.is_empty() {
                    packets.insert(packet_address(address));
                }
            }
            prop_assert_eq!(segments.packet_addresses().iter().collect::<BTreeSet<_>>(), packets);
            for ranges in ranges {
                let all: Vec<_> = ranges.iter().collect();
                prop_assert!(all.windows(2).all(|two| two[0].1 + 1 < two[1].0), "not separated: {:?}", all);
            }
        }
    }
}
