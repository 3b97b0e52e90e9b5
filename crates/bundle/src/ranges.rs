//! Who wants which addresses, where there are 2³² of them: ranges, and what several hosts' ranges cut them into.

use std::collections::BTreeMap;

use crate::packets::Packets;
use crate::wire::classic::PACKETS;
use crate::wire::wide::packet_of;

/// Ranges of a host at the most.
pub const MOST_RANGES: usize = 16_384;
/// Pieces into which the ranges of all hosts may cut the addresses.
pub const MOST_PIECES: usize = 65_536;
/// Pieces that all hosts want, each counted once for every host that wants it.
pub const MOST_WANTS: usize = 1 << 20;

/// A set of addresses, as ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(BTreeMap<u32, u32>);

impl Ranges {
    /// How many ranges.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no address is in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// First and last address of each, rising.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.0.iter().map(|(first, last)| (*first, *last))
    }

    /// Whether it has an address.
    pub fn has(&self, address: u32) -> bool {
        self.0.range(..=address).next_back().is_some_and(|(_, last)| *last >= address)
    }

    /// Whether a range is in it from end to end, or no address of it is: then to add it, or to take it away, changes nothing.
    pub fn is_already(&self, first: u32, last: u32, wanted: bool) -> bool {
        let before = self.0.range(..=last).next_back().map(|(from, to)| (*from, *to));
        match wanted {
            true => before.is_some_and(|(from, to)| from <= first && to >= last),
            false => before.is_none_or(|(_, to)| to < first),
        }
    }

    /// Whether there is room to add a range, or to take it away: in the middle of another that leaves two.
    pub fn has_room(&self, first: u32, last: u32, adds: bool) -> bool {
        let splits = || self.0.range(..first).next_back().is_some_and(|(_, end)| *end > last);
        self.0.len() < MOST_RANGES || if adds { self.touched(first, last).is_some() } else { !splits() }
    }

    /// The last range that overlaps or touches one.
    fn touched(&self, first: u32, last: u32) -> Option<(u32, u32)> {
        let before = self.0.range(..=last.saturating_add(1)).next_back().map(|(f, l)| (*f, *l));
        before.filter(|(_, end)| end.saturating_add(1) >= first)
    }

    /// Adds a range; whether there was room. `first` is not after `last`.
    pub fn add(&mut self, first: u32, last: u32) -> bool {
        if !self.has_room(first, last, true) {
            return false;
        }
        let (mut from, mut to) = (first, last);
        // Those that overlap or touch become one with it.
        while let Some((other, end)) = self.touched(first, last) {
            self.0.remove(&other);
            (from, to) = (from.min(other), to.max(end));
        }
        self.0.insert(from, to);
        true
    }

    /// Takes a range away; whether there was room: in the middle of another it leaves two.
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

/// For each address the hosts that want it. Room: [`MOST_PIECES`], and [`MOST_WANTS`].
#[derive(Debug)]
pub struct Segments {
    /// From each address on up to the next, who wants them: numbers that rise. The first is 0.
    from: BTreeMap<u32, Vec<u16>>,
    /// Hosts of all pieces.
    wants: usize,
}

impl Default for Segments {
    fn default() -> Segments {
        Segments { from: BTreeMap::from([(0, Vec::new())]), wants: 0 }
    }
}

/// What a change of [`Segments`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Whether there was room for it.
    pub done: bool,
    /// Pieces that were looked at for it: what it cost.
    pub pieces: usize,
}

impl Segments {
    /// The hosts that want an address.
    pub fn hosts(&self, address: u32) -> &[u16] {
        self.from.range(..=address).next_back().map_or(&[], |(_, hosts)| hosts)
    }

    /// How many pieces there are: 1 if nobody wants anything.
    pub fn len(&self) -> usize {
        self.from.len()
    }

    /// Whether nobody wants anything.
    pub fn is_empty(&self) -> bool {
        self.len() == 1
    }

    /// Pieces that hosts want, each counted for every host.
    pub fn wants(&self) -> usize {
        self.wants
    }

    /// A host wants these addresses, or no longer, if there is room for that. There always is to take away a whole range of a
    /// host: pieces begin where it begins and ends.
    pub fn set(&mut self, host: u16, first: u32, last: u32, wants: bool) -> Change {
        let pieces = 1 + self.from.range(first..=last).count();
        let cuts: Vec<u32> = [Some(first), last.checked_add(1)].into_iter().flatten().collect();
        let cuts = || cuts.iter().filter(|at| !self.from.contains_key(at));
        let copied: usize = cuts().map(|at| self.hosts(*at).len()).sum();
        let more = copied + if wants { pieces } else { 0 };
        if self.from.len() + cuts().count() > MOST_PIECES || self.wants + more > MOST_WANTS {
            return Change { done: false, pieces };
        }
        self.cut(first);
        if let Some(behind) = last.checked_add(1) {
            self.cut(behind);
        }
        for (_, hosts) in self.from.range_mut(first..=last) {
            match (hosts.binary_search(&host), wants) {
                (Err(at), true) => {
                    hosts.insert(at, host);
                    self.wants += 1;
                }
                (Ok(at), false) => {
                    hosts.remove(at);
                    self.wants -= 1;
                }
                _ => {}
            }
        }
        self.join(first, last.saturating_add(1));
        Change { done: true, pieces }
    }

    /// Has a piece begin here.
    fn cut(&mut self, at: u32) {
        if !self.from.contains_key(&at) {
            let hosts = self.hosts(at).to_vec();
            self.wants += hosts.len();
            self.from.insert(at, hosts);
        }
    }

    /// Makes one of neighbours that are alike.
    fn join(&mut self, first: u32, last: u32) {
        let mut before = self.from.range(..first).next_back().map(|(at, _)| *at);
        let pieces: Vec<u32> = self.from.range(first..=last).map(|(at, _)| *at).collect();
        for at in pieces {
            match before {
                Some(other) if self.from[&other] == self.from[&at] => {
                    self.wants -= self.from.remove(&at).map_or(0, |hosts| hosts.len());
                }
                _ => before = Some(at),
            }
        }
    }

    /// The packet addresses of what somebody wants.
    pub fn packets(&self) -> Packets {
        let mut packets = Packets::NONE;
        let ends = self.from.keys().skip(1).map(|next| next - 1).chain([u32::MAX]);
        for ((first, hosts), last) in self.from.iter().zip(ends) {
            if hosts.is_empty() {
                continue;
            }
            let (first, last) = (*first / 32, last / 32);
            if last - first >= PACKETS as u32 - 1 {
                return Packets::ALL;
            }
            match (packet_of(first * 32), packet_of(last * 32)) {
                (from, to) if from <= to => packets.fill(from, to),
                (from, to) => {
                    packets.fill(from, PACKETS as u16 - 1);
                    packets.fill(0, to);
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
    fn ranges_are_bounded_and_reach_to_the_ends() {
        let mut ranges = Ranges::default();
        assert!(ranges.add(0, u32::MAX) && ranges.has(0) && ranges.has(u32::MAX));
        assert!(ranges.remove(1, u32::MAX - 1) && ranges.len() == 2 && !ranges.has(1));
        assert!(ranges.add(1, u32::MAX - 1) && ranges.len() == 1);
        assert!(ranges.remove(0, u32::MAX) && ranges.is_empty());
        (0..MOST_RANGES as u32).for_each(|n| assert!(ranges.add(n * 4, n * 4 + 2)));
        assert!(!ranges.add(2_000_000, 2_000_000) && !ranges.remove(1, 1), "full");
        assert!(ranges.add(3, 3) && ranges.len() == MOST_RANGES - 1);
        let mut all = Segments::default();
        all.set(1, 0, u32::MAX, true);
        assert_eq!((all.len(), all.hosts(0), all.hosts(u32::MAX)), (1, &[1][..], &[1][..]));
        assert_eq!(all.packets().count(), 2_048);
        all.set(1, 5, u32::MAX, false);
        assert_eq!((all.len(), all.packets().count()), (2, 1));
    }

    /// One that is full refuses, has forgotten nothing, and what was wanted can be given up.
    #[test]
    fn pieces_are_bounded_over_all_hosts() {
        let mut all = Segments::default();
        let ranges: Vec<(u16, u32)> = (0..u32::from(u16::MAX)).map(|n| (1 + (n % 7) as u16, n * 8)).collect();
        let taken = ranges.iter().take_while(|(host, at)| all.set(*host, *at, at + 3, true).done).count();
        assert!(all.len() <= MOST_PIECES && all.len() > MOST_PIECES - 3, "{}", all.len());
        assert_eq!(taken, MOST_PIECES / 2);
        // To take away its middle would cut one, too.
        assert_eq!(all.set(1, 1, 1, false), Change { done: false, pieces: 1 });
        assert_eq!(all.hosts(1), [1]);
        // Each that wants it all wants each piece, until there are too many.
        let hosts = (100..=u16::MAX).take_while(|host| all.set(*host, 0, u32::MAX, true).done).count();
        assert!(hosts > 10 && all.wants() <= MOST_WANTS && all.wants() + all.len() >= MOST_WANTS, "{hosts}");
        let pieces = all.len();
        assert_eq!(all.set(100, 0, u32::MAX, false), Change { done: true, pieces: pieces + 1 });
        (101..100 + hosts as u16).for_each(|host| assert!(all.set(host, 0, u32::MAX, false).done));
        ranges[..taken].iter().for_each(|(host, at)| assert!(all.set(*host, *at, at + 3, false).done));
        assert!(all.is_empty() && all.wants() == 0);
    }

    proptest! {
        /// Against sets.
        #[test]
        fn they_are_what_was_said(
            steps in prop::collection::vec((1u16..5, 0u32..200, 0u32..60, any::<bool>()), 0..60),
            base in prop::sample::select(vec![0u32, 65_400, u32::MAX - 260]),
        ) {
            let (mut ranges, mut segments) = (vec![Ranges::default(); 5], Segments::default());
            let mut wants: BTreeSet<(u32, u16)> = BTreeSet::new();
            for (host, first, more, joins) in steps {
                let (first, last) = (base + first, base + first + more);
                prop_assert!(segments.set(host, first, last, joins).done);
                let own = &mut ranges[usize::from(host)];
                let before = own.clone();
                let is_already = own.is_already(first, last, joins);
                if joins {
                    prop_assert!(own.add(first, last));
                    wants.extend((first..=last).map(|address| (address, host)));
                } else {
                    prop_assert!(own.remove(first, last));
                    (first..=last).for_each(|address| _ = wants.remove(&(address, host)));
                }
                prop_assert_eq!(is_already, *own == before);
            }
            let wanted: usize = segments.from.values().map(Vec::len).sum();
            prop_assert_eq!(segments.wants(), wanted);
            let mut packets = BTreeSet::new();
            for address in base..=base + 260 {
                let hosts: Vec<u16> = (1..5).filter(|host| wants.contains(&(address, *host))).collect();
                prop_assert_eq!(segments.hosts(address), &hosts[..]);
                for host in 1..5 {
                    prop_assert_eq!(ranges[usize::from(host)].has(address), hosts.contains(&host));
                }
                if !hosts.is_empty() {
                    packets.insert(packet_of(address));
                }
            }
            prop_assert_eq!(segments.packets().iter().collect::<BTreeSet<_>>(), packets);
            for ranges in ranges {
                let all: Vec<_> = ranges.iter().collect();
                prop_assert!(all.windows(2).all(|two| two[0].1 + 1 < two[1].0), "apart: {:?}", all);
            }
        }
    }
}
