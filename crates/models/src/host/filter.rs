//! Multicast filter of a network card.

use std::collections::BTreeMap;

use crate::host::headers::group_mac;

/// The groups that a host has joined, and its card's filter.
///
/// Ethernet cards of the time had a small hash table: each joined address sets one bit, and a frame passes if its bit
/// is set. The processor drops false positives (section 4.2 of the bundle converter report,
/// docs/internals/reproduction.md).
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Number of joins of each group.
    joined: BTreeMap<u32, u32>,
    /// Number of joined groups per bucket; empty: exact filter.
    buckets: Vec<u32>,
}

/// What a card does with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterResult {
    /// Accepts it: it is addressed to the host, or to a group that the host has joined.
    Joined,
    /// Accepts it by mistake: a false positive of the hash filter.
    FalsePositive,
    /// Ignores it.
    Ignored,
}

impl Filter {
    /// Creates a filter with this many hash buckets, or an exact one.
    pub fn new(buckets: Option<u32>) -> Self {
        Filter { joined: BTreeMap::new(), buckets: vec![0; buckets.map_or(0, |count| count.max(1) as usize)] }
    }

    /// Joins a group; joins are counted.
    pub fn join(&mut self, group: u32) {
        let count = self.joined.entry(group).or_insert(0);
        *count += 1;
        if *count == 1 && !self.buckets.is_empty() {
            let bucket = bucket(group, self.buckets.len());
            self.buckets[bucket] += 1;
        }
    }

    /// Removes one join; ignored without a join.
    pub fn leave(&mut self, group: u32) {
        let Some(count) = self.joined.get_mut(&group) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.joined.remove(&group);
        if !self.buckets.is_empty() {
            let bucket = bucket(group, self.buckets.len());
            self.buckets[bucket] -= 1;
        }
    }

    /// Returns the result for a frame to `group`.
    pub fn filter(&self, group: u32) -> FilterResult {
        if self.joined.contains_key(&group) {
            FilterResult::Joined
        } else if !self.buckets.is_empty() && self.buckets[bucket(group, self.buckets.len())] > 0 {
            FilterResult::FalsePositive
        } else {
            FilterResult::Ignored
        }
    }
}

/// Returns the bucket of a group: the upper bits of the CRC-32 of its MAC address, as in the LANCE (Am7990), which
/// uses the upper six for 64 buckets.
pub fn bucket(group: u32, buckets: usize) -> usize {
    let crc = group_mac(group).iter().fold(u32::MAX, |crc, &octet| {
        (0..8).fold(crc ^ u32::from(octet), |crc, _| (crc >> 1) ^ (0xEDB8_8320 * (crc & 1)))
    });
    ((u64::from(crc) * buckets as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_units::Seed;

    #[test]
    fn a_hash_takes_the_upper_bits_of_the_crc() {
        // The CRC as the standard defines it: bit by bit, the low bit of an octet first.
        let crc = |group| {
            let mac = group_mac(group);
            let bits = mac.iter().flat_map(|octet| (0..8).map(move |at| u32::from(octet >> at) & 1));
            bits.fold(u32::MAX, |crc, bit| match (crc & 1) ^ bit {
                0 => crc >> 1,
                _ => (crc >> 1) ^ 0xEDB8_8320,
            })
        };
        for group in [1, 5, 0x7F_FFFF, 0x0001_0203] {
            assert_eq!(bucket(group, 64) as u32, crc(group) >> 26);
            assert_eq!(bucket(group, 1), 0);
        }
    }

    #[test]
    fn joins_are_counted() {
        for buckets in [None, Some(64), Some(1)] {
            let mut filter = Filter::new(buckets);
            assert_eq!(filter.filter(7), FilterResult::Ignored);
            filter.join(7);
            filter.join(7);
            filter.leave(7);
            assert_eq!(filter.filter(7), FilterResult::Joined);
            filter.leave(7);
            filter.leave(7);
            assert_eq!(filter.filter(7), FilterResult::Ignored);
        }
    }

    #[test]
    fn a_small_hash_has_many_false_positives() {
        let false_positives = |buckets, joined| {
            let mut filter = Filter::new(buckets);
            let mut stream = Seed(2).stream("filter");
            let mut group = || stream.below(1 << 23) as u32;
            (0..joined).for_each(|_| filter.join(group()));
            (0..4_000).filter(|_| filter.filter(group()) == FilterResult::FalsePositive).count()
        };
        assert_eq!(false_positives(None, 100), 0);
        assert_eq!(false_positives(Some(1), 1), 4_000);
        // n random groups leave (63/64)^n of 64 buckets empty.
        for joined in [5, 20, 50, 100] {
            let expected = 4_000.0 * (1.0 - (63.0f64 / 64.0).powi(joined));
            let found = false_positives(Some(64), joined as u32) as f64;
            assert!((found - expected).abs() < 600.0, "{joined} joined: {found}, not {expected}");
        }
    }
}
