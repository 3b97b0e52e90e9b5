//! Subscribers of message addresses, and the level-1 converters that own packet addresses (table 3-1 and section
//! 3.4.3.3 of the thesis).

use crate::wire::classic::{MAX_HOSTS, PACKET_ADDRESSES, host_bit, packet_address};

/// The interest table: the subscribed hosts of each message address, and the owner of each packet address.
#[derive(Debug)]
pub struct Interest {
    /// One bit per host, by message address.
    hosts: Box<[u16]>,
    /// Number of message addresses with a subscriber, by packet address.
    joined_addresses: Box<[u16]>,
    /// Number of the owning level-1 converter, by packet address; 0 is none.
    owners: Box<[u16]>,
    /// Whether an odd address carries the priority messages of the even address before it, so that both are joined
    /// together.
    pairs: bool,
}

/// The effect of a join or leave on the wide area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterestChange {
    /// No effect.
    None,
    /// This packet address now has a subscriber.
    Joined(u16),
    /// This packet address has no subscriber any more; its owner was this converter, or 0 for none.
    Left(u16, u16),
}

impl Interest {
    /// Creates a table without subscribers.
    pub fn new(pairs: bool) -> Interest {
        let zeros = |count: usize| vec![0; count].into_boxed_slice();
        Interest {
            hosts: zeros(65_536),
            joined_addresses: zeros(PACKET_ADDRESSES),
            owners: zeros(PACKET_ADDRESSES),
            pairs,
        }
    }

    /// Returns the subscribers of a message address, one bit per host.
    pub fn hosts(&self, address: u16) -> u16 {
        self.hosts[usize::from(address)]
    }

    /// Returns the level-1 converter that owns a packet address.
    pub fn owner(&self, packet: u16) -> Option<u16> {
        Some(self.owners[usize::from(packet)]).filter(|number| *number != 0)
    }

    /// Returns whether a packet address has a subscriber.
    pub fn is_joined(&self, packet: u16) -> bool {
        self.joined_addresses[usize::from(packet)] > 0
    }

    /// Returns the packet addresses that a converter owns.
    pub fn owned_by(&self, number: u16) -> impl Iterator<Item = u16> {
        self.owners.iter().zip(0u16..).filter(move |(owner, _)| **owner == number).map(|(_, packet)| packet)
    }

    /// Sets the owner of a packet address; 0 is none.
    pub fn set_owner(&mut self, packet: u16, number: u16) {
        self.owners[usize::from(packet)] = number;
    }

    /// Subscribes a host to an address.
    pub fn join(&mut self, host: u8, address: u16) -> InterestChange {
        let packet = packet_address(address);
        let was_joined = self.is_joined(packet);
        for address in self.pair(address) {
            let group = &mut self.hosts[usize::from(address)];
            self.joined_addresses[usize::from(packet)] += u16::from(*group == 0);
            *group |= host_bit(host);
        }
        if was_joined { InterestChange::None } else { InterestChange::Joined(packet) }
    }

    /// Unsubscribes a host from an address.
    pub fn drop(&mut self, host: u8, address: u16) -> InterestChange {
        let packet = packet_address(address);
        let was_joined = self.is_joined(packet);
        for address in self.pair(address) {
            let group = &mut self.hosts[usize::from(address)];
            let rest = *group & !host_bit(host);
            self.joined_addresses[usize::from(packet)] -= u16::from(*group != 0 && rest == 0);
            *group = rest;
        }
        if !was_joined || self.is_joined(packet) {
            return InterestChange::None;
        }
        let owner = std::mem::take(&mut self.owners[usize::from(packet)]);
        InterestChange::Left(packet, owner)
    }

    /// Returns the addresses to which a host is subscribed.
    pub fn addresses_of(&self, host: u8) -> impl Iterator<Item = u16> {
        debug_assert!((1..=MAX_HOSTS).contains(&host), "host numbers are 1 to 16");
        let bit = host_bit(host);
        self.hosts.iter().zip(0u16..=u16::MAX).filter(move |(group, _)| **group & bit != 0).map(|(_, at)| at)
    }

    /// Returns an address and, with pairs, its partner.
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
    fn with_pairs_a_join_covers_both_addresses() {
        let mut interest = Interest::new(true);
        assert_eq!(interest.join(3, 65), InterestChange::Joined(2));
        assert_eq!((interest.hosts(64), interest.hosts(65), interest.hosts(66)), (4, 4, 0));
        assert_eq!(interest.drop(3, 64), InterestChange::Left(2, 0));
        assert_eq!(interest.addresses_of(3).count(), 0);
    }

    proptest! {
        /// Compares the table with a model made of sets.
        #[test]
        fn interest_matches_a_model(
            steps in prop::collection::vec((1u8..=16, 0u16..200, any::<bool>()), 0..100),
            pairs in any::<bool>(),
        ) {
            let mut interest = Interest::new(pairs);
            let mut model: BTreeSet<(u16, u8)> = BTreeSet::new();
            let packets = |model: &BTreeSet<(u16, u8)>| -> BTreeSet<u16> {
                model.iter().map(|(address, _)| packet_address(*address)).collect()
            };
            for (host, address, joins) in steps {
                let was_joined = packets(&model);
                let both = if pairs { vec![address & !1, address | 1] } else { vec![address] };
                let change = if joins {
                    model.extend(both.into_iter().map(|address| (address, host)));
                    interest.join(host, address)
                } else {
                    both.into_iter().for_each(|address| _ = model.remove(&(address, host)));
                    interest.drop(host, address)
                };
                let after = packets(&model);
                let expected = match (after.difference(&was_joined).next(), was_joined.difference(&after).next()) {
                    (Some(packet), None) => InterestChange::Joined(*packet),
                    (None, Some(packet)) => InterestChange::Left(*packet, 7),
                    _ => InterestChange::None,
                };
                prop_assert_eq!(change, expected);
                if let InterestChange::Joined(packet) = change {
                    interest.set_owner(packet, 7);
                }
                prop_assert_eq!(interest.owned_by(7).collect::<BTreeSet<_>>(), after);
            }
            for address in 0..256 {
                let hosts = (1..=16).filter(|host| model.contains(&(address, *host)));
                prop_assert_eq!(interest.hosts(address), hosts.map(host_bit).sum::<u16>());
            }
        }
    }
}
