//! Who wants which messages, and which converter of level 1 gets them (table 3-1 and section 3.4.3.3 of the thesis).

use crate::wire::classic::{ADDRESSES_A_PACKET, MOST_HOSTS, PACKETS, bit};

/// The packet address of a message address: messages cross the wide area in groups of 32.
pub fn packet(address: u16) -> u16 {
    address / ADDRESSES_A_PACKET
}

/// The database: for each message address the hosts that want it, for each packet address the converter that gets it.
#[derive(Debug)]
pub struct Interest {
    /// Hosts, a bit each, by message address.
    groups: Box<[u16]>,
    /// Message addresses that somebody wants, by packet address.
    wanted: Box<[u16]>,
    /// Which converter of level 1 gets it, by packet address; 0: none.
    holders: Box<[u16]>,
    /// Whether odd addresses are the priority messages of the even ones before them, joined together.
    pairs: bool,
}

/// What a join or a drop changes for the wide area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// A packet address is wanted that was not.
    Wanted(u16),
    /// One is no longer wanted, which this converter gets; 0: none does.
    Unwanted(u16, u16),
}

impl Interest {
    /// Nobody wants anything.
    pub fn new(pairs: bool) -> Interest {
        let zeros = |count: usize| vec![0; count].into_boxed_slice();
        Interest { groups: zeros(65_536), wanted: zeros(PACKETS), holders: zeros(PACKETS), pairs }
    }

    /// The hosts that want a message address, a bit each.
    pub fn group(&self, address: u16) -> u16 {
        self.groups[usize::from(address)]
    }

    /// Which converter of level 1 gets a packet address.
    pub fn holder(&self, packet: u16) -> Option<u16> {
        Some(self.holders[usize::from(packet)]).filter(|number| *number != 0)
    }

    /// Whether somebody wants a packet address.
    pub fn is_wanted(&self, packet: u16) -> bool {
        self.wanted[usize::from(packet)] > 0
    }

    /// Packet addresses that a converter gets.
    pub fn held(&self, number: u16) -> impl Iterator<Item = u16> {
        self.holders
            .iter()
            .zip(0u16..)
            .filter(move |(holder, _)| **holder == number)
            .map(|(_, packet)| packet)
    }

    /// The first packet address from one on that a converter gets.
    pub fn held_from(&self, number: u16, packet: usize) -> Option<usize> {
        let behind = self.holders.get(packet..)?;
        behind.iter().position(|holder| *holder == number).map(|at| packet + at)
    }

    /// A converter gets a packet address from now on; 0: none does.
    pub fn hold(&mut self, packet: u16, number: u16) {
        self.holders[usize::from(packet)] = number;
    }

    /// A host wants an address.
    pub fn join(&mut self, host: u8, address: u16) -> Change {
        let packet = packet(address);
        let before = self.is_wanted(packet);
        for address in self.pair(address) {
            let group = &mut self.groups[usize::from(address)];
            self.wanted[usize::from(packet)] += u16::from(*group == 0);
            *group |= bit(host);
        }
        if before { Change::None } else { Change::Wanted(packet) }
    }

    /// A host no longer wants an address.
    pub fn drop(&mut self, host: u8, address: u16) -> Change {
        let packet = packet(address);
        let before = self.is_wanted(packet);
        for address in self.pair(address) {
            let group = &mut self.groups[usize::from(address)];
            let rest = *group & !bit(host);
            self.wanted[usize::from(packet)] -= u16::from(*group != 0 && rest == 0);
            *group = rest;
        }
        if !before || self.is_wanted(packet) {
            return Change::None;
        }
        let holder = std::mem::take(&mut self.holders[usize::from(packet)]);
        Change::Unwanted(packet, holder)
    }

    /// What a host wants, address by address.
    pub fn of_host(&self, host: u8) -> impl Iterator<Item = u16> {
        debug_assert!((1..=MOST_HOSTS).contains(&host), "hosts are 1 to 16");
        let bit = bit(host);
        self.groups.iter().zip(0u16..=u16::MAX).filter(move |(group, _)| **group & bit != 0).map(|(_, at)| at)
    }

    /// An address and, if there are pairs, its other.
    fn pair(&self, address: u16) -> impl Iterator<Item = u16> + use<> {
        let other = self.pairs.then_some(address ^ 1);
        std::iter::once(address).chain(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn with_pairs_a_join_of_either_is_of_both() {
        let mut interest = Interest::new(true);
        assert_eq!(interest.join(3, 65), Change::Wanted(2));
        assert_eq!((interest.group(64), interest.group(65), interest.group(66)), (4, 4, 0));
        assert_eq!(interest.drop(3, 64), Change::Unwanted(2, 0));
        assert_eq!(interest.of_host(3).count(), 0);
    }

    proptest! {
        /// Against sets.
        #[test]
        fn it_is_what_hosts_said(
            steps in prop::collection::vec((1u8..=16, 0u16..200, any::<bool>()), 0..100),
            pairs in any::<bool>(),
        ) {
            let mut interest = Interest::new(pairs);
            let mut wants: BTreeSet<(u16, u8)> = BTreeSet::new();
            let packets = |wants: &BTreeSet<(u16, u8)>| -> BTreeSet<u16> {
                wants.iter().map(|(address, _)| packet(*address)).collect()
            };
            for (host, address, joins) in steps {
                let before = packets(&wants);
                let both = if pairs { vec![address & !1, address | 1] } else { vec![address] };
                let change = if joins {
                    wants.extend(both.into_iter().map(|address| (address, host)));
                    interest.join(host, address)
                } else {
                    both.into_iter().for_each(|address| _ = wants.remove(&(address, host)));
                    interest.drop(host, address)
                };
                let after = packets(&wants);
                let expected = match (after.difference(&before).next(), before.difference(&after).next()) {
                    (Some(packet), None) => Change::Wanted(*packet),
                    (None, Some(packet)) => Change::Unwanted(*packet, 7),
                    _ => Change::None,
                };
                prop_assert_eq!(change, expected);
                if let Change::Wanted(packet) = change {
                    interest.hold(packet, 7);
                }
                prop_assert_eq!(interest.held(7).collect::<BTreeSet<_>>(), after);
            }
            for address in 0..256 {
                let hosts = (1..=16).filter(|host| wants.contains(&(address, *host)));
                prop_assert_eq!(interest.group(address), hosts.map(bit).sum::<u16>());
            }
        }
    }
}
