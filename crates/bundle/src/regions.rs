//! Named regions: sets of addresses to which a simulation publishes and subscribes, as in HLA.
//!
//! All hosts agree on the [regions](Regions) beforehand: a name and its addresses, such as those of the cells of a
//! country or of a radio channel. A subscriber joins all addresses of the region. A publisher sends each message to
//! one of them, the *n*th; only the simulation knows which one applies, such as the cell of an event. So no host
//! receives a message twice.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::ranges::Ranges;

/// The largest number of regions.
pub const MAX_REGIONS: usize = 4_096;
/// The largest number of ranges in a region.
pub const MAX_REGION_RANGES: usize = 1_024;
/// The largest number of octets in a name.
pub const MAX_NAME_OCTETS: usize = 255;

/// The regions of a host by name, and which of them it publishes and subscribes to.
///
/// Bounds: [`MAX_REGIONS`] regions, each of [`MAX_REGION_RANGES`] ranges.
#[derive(Clone, Debug, Default)]
pub struct Regions(BTreeMap<String, Region>);

#[derive(Clone, Debug)]
struct Region {
    /// The ranges as defined, which number the addresses.
    ranges: Vec<(u32, u32)>,
    published: bool,
    subscribed: bool,
}

/// The reason why an operation on a region fails.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum InvalidRegion {
    /// No region has this name.
    #[error("no region has that name")]
    Unknown,
    /// The region is already defined with other addresses.
    #[error("the region is already defined with other addresses")]
    AlreadyDefined,
    /// The name is empty or too long.
    #[error("the name of a region must have 1 to {MAX_NAME_OCTETS} octets")]
    Name,
    /// There are no ranges or too many, or they overlap, do not ascend or end before they begin.
    #[error("a region must have 1 to {MAX_REGION_RANGES} ranges of addresses that ascend and do not overlap")]
    Ranges,
    /// There are too many regions.
    #[error("there are {MAX_REGIONS} regions already")]
    Full,
    /// Unsubscribing would leave more ranges than a host may join.
    #[error("unsubscribing would leave too many ranges joined")]
    TooManyRanges,
    /// The host does not publish the region.
    #[error("this host does not publish the region")]
    NotPublished,
    /// The region has fewer addresses.
    #[error("the region has fewer addresses")]
    NoSuchAddress,
}

impl Regions {
    /// Defines a region. Ranges are pairs of first and last address that ascend and do not overlap. Repeating a
    /// definition is allowed.
    ///
    /// # Errors
    /// [`InvalidRegion::Name`], [`InvalidRegion::Ranges`], [`InvalidRegion::AlreadyDefined`],
    /// [`InvalidRegion::Full`].
    pub fn define(&mut self, name: &str, ranges: &[(u32, u32)]) -> Result<(), InvalidRegion> {
        if !(1..=MAX_NAME_OCTETS).contains(&name.len()) {
            return Err(InvalidRegion::Name);
        }
        let rise = ranges.windows(2).all(|two| two[0].1 < two[1].0);
        let each = ranges.iter().all(|(first, last)| first <= last);
        if !(1..=MAX_REGION_RANGES).contains(&ranges.len()) || !rise || !each {
            return Err(InvalidRegion::Ranges);
        }
        match self.0.get(name) {
            Some(region) if region.ranges == ranges => Ok(()),
            Some(_) => Err(InvalidRegion::AlreadyDefined),
            None if self.0.len() >= MAX_REGIONS => Err(InvalidRegion::Full),
            None => {
                let region = Region { ranges: ranges.to_vec(), published: false, subscribed: false };
                self.0.insert(name.to_owned(), region);
                Ok(())
            }
        }
    }

    /// Sets whether this host publishes a region.
    ///
    /// # Errors
    /// [`InvalidRegion::Unknown`].
    pub fn set_published(&mut self, name: &str, publishes: bool) -> Result<(), InvalidRegion> {
        self.region(name)?.published = publishes;
        Ok(())
    }

    /// Subscribes to a region and returns the ranges to join.
    ///
    /// # Errors
    /// [`InvalidRegion::Unknown`].
    pub fn subscribe(&mut self, name: &str) -> Result<Vec<(u32, u32)>, InvalidRegion> {
        let region = self.region(name)?;
        region.subscribed = true;
        Ok(region.ranges.clone())
    }

    /// Returns the ranges to leave before [`unsubscribe`](Regions::unsubscribe): those in no other subscribed region;
    /// none if the region is not subscribed.
    ///
    /// # Errors
    /// [`InvalidRegion::Unknown`], [`InvalidRegion::TooManyRanges`].
    pub fn ranges_to_leave(&self, name: &str) -> Result<Vec<(u32, u32)>, InvalidRegion> {
        let mut left = Ranges::default();
        if !self.0.get(name).ok_or(InvalidRegion::Unknown)?.subscribed {
            return Ok(Vec::new());
        }
        let (own_ranges, others): (Vec<_>, Vec<_>) = self
            .0
            .iter()
            .filter(|(_, region)| region.subscribed)
            .flat_map(|(of, region)| region.ranges.iter().map(move |range| (of == name, *range)))
            .partition(|(own, _)| *own);
        own_ranges.into_iter().for_each(|(_, (first, last))| _ = left.insert(first, last));
        if !others.into_iter().all(|(_, (first, last))| left.remove(first, last)) {
            return Err(InvalidRegion::TooManyRanges);
        }
        Ok(left.iter().collect())
    }

    /// Unsubscribes from a region whose [ranges](Regions::ranges_to_leave) were left.
    ///
    /// # Errors
    /// [`InvalidRegion::Unknown`].
    pub fn unsubscribe(&mut self, name: &str) -> Result<(), InvalidRegion> {
        self.region(name)?.subscribed = false;
        Ok(())
    }

    /// Returns the nth address of a published region, from 0 on.
    ///
    /// # Errors
    /// [`InvalidRegion::Unknown`], [`InvalidRegion::NotPublished`], [`InvalidRegion::NoSuchAddress`].
    pub fn nth_address(&self, name: &str, nth: u32) -> Result<u32, InvalidRegion> {
        let region = self.0.get(name).ok_or(InvalidRegion::Unknown)?;
        if !region.published {
            return Err(InvalidRegion::NotPublished);
        }
        let mut before = u64::from(nth);
        for (first, last) in &region.ranges {
            let count = u64::from(last - first) + 1;
            if before < count {
                return Ok(first + before as u32);
            }
            before -= count;
        }
        Err(InvalidRegion::NoSuchAddress)
    }

    fn region(&mut self, name: &str) -> Result<&mut Region, InvalidRegion> {
        self.0.get_mut(name).ok_or(InvalidRegion::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn invalid_regions_are_refused_and_limits_hold() {
        let mut regions = Regions::default();
        let long = "x".repeat(MAX_NAME_OCTETS + 1);
        for (name, ranges, refusal) in [
            ("", &[(1, 1)][..], InvalidRegion::Name),
            (&long, &[(1, 1)], InvalidRegion::Name),
            ("none", &[], InvalidRegion::Ranges),
            ("backwards", &[(2, 1)], InvalidRegion::Ranges),
            ("falls", &[(5, 6), (1, 2)], InvalidRegion::Ranges),
            ("twice", &[(5, 6), (6, 7)], InvalidRegion::Ranges),
        ] {
            assert_eq!(regions.define(name, ranges), Err(refusal), "{name}");
        }
        let pieces = |count: u32| (0..count).map(|n| (2 * n, 2 * n)).collect::<Vec<_>>();
        assert_eq!(regions.define("many", &pieces(MAX_REGION_RANGES as u32 + 1)), Err(InvalidRegion::Ranges));
        assert_eq!(regions.define(&long[1..], &pieces(MAX_REGION_RANGES as u32)), Ok(()));
        for n in 1..MAX_REGIONS {
            regions.define(&n.to_string(), &[(0, u32::MAX)]).unwrap();
        }
        assert_eq!(regions.define("one more", &[(1, 1)]), Err(InvalidRegion::Full));
        assert_eq!(regions.define("1", &[(0, u32::MAX)]), Ok(()), "repeated definition");
        assert_eq!(regions.define("1", &[(0, 5)]), Err(InvalidRegion::AlreadyDefined));
        assert_eq!(regions.subscribe("one more"), Err(InvalidRegion::Unknown));
    }

    #[test]
    fn unsubscribing_into_too_many_ranges_is_refused() {
        let mut regions = Regions::default();
        regions.define("all", &[(0, u32::MAX)]).unwrap();
        regions.subscribe("all").unwrap();
        for part in 0..=16 {
            let name = part.to_string();
            let pieces: Vec<_> =
                (0..1_024).map(|n| ((part << 20) | (2 * n), (part << 20) | (2 * n))).collect();
            regions.define(&name, &pieces).unwrap();
            regions.subscribe(&name).unwrap();
        }
        assert_eq!(regions.ranges_to_leave("all"), Err(InvalidRegion::TooManyRanges));
        for name in ["16", "15"] {
            assert_eq!(regions.ranges_to_leave(name), Ok(Vec::new()), "another region has all of it");
            regions.unsubscribe(name).unwrap();
        }
        assert_eq!(
            regions.ranges_to_leave("all").map(|left| left.len()),
            Ok(15 * 1_024),
            "one range between two others"
        );
    }

    #[test]
    fn only_published_regions_have_numbered_addresses() {
        let mut regions = Regions::default();
        regions.define("all", &[(0, u32::MAX)]).unwrap();
        regions.define("two", &[(7, 9), (20, 20)]).unwrap();
        assert_eq!(regions.nth_address("two", 0), Err(InvalidRegion::NotPublished));
        regions.set_published("two", true).unwrap();
        regions.set_published("all", true).unwrap();
        let addresses: Vec<_> = (0..5).map(|nth| regions.nth_address("two", nth)).collect();
        assert_eq!(addresses, [Ok(7), Ok(8), Ok(9), Ok(20), Err(InvalidRegion::NoSuchAddress)]);
        assert_eq!(regions.nth_address("all", u32::MAX), Ok(u32::MAX));
        regions.set_published("two", false).unwrap();
        assert_eq!(regions.nth_address("two", 0), Err(InvalidRegion::NotPublished));
        assert_eq!(regions.set_published("three", true), Err(InvalidRegion::Unknown));
        assert_eq!(regions.nth_address("three", 0), Err(InvalidRegion::Unknown));
    }

    proptest! {
        /// The joined addresses equal the union of the subscribed regions.
        #[test]
        fn joined_addresses_match_the_subscribed_regions(
            named in prop::collection::vec((0u32..60, 0u32..20, 0u32..20, 0u32..20), 4),
            steps in prop::collection::vec((0usize..4, any::<bool>()), 0..30),
        ) {
            let mut regions = Regions::default();
            let mut sets = Vec::new();
            for (name, (first, more, gap, last)) in named.iter().enumerate() {
                let ranges = [(*first, first + more), (first + more + gap + 1, first + more + gap + 1 + last)];
                regions.define(&name.to_string(), &ranges).unwrap();
                sets.push(ranges.iter().flat_map(|(first, last)| *first..=*last).collect::<BTreeSet<u32>>());
            }
            let (mut wanted, mut subscribed) = (Ranges::default(), BTreeSet::new());
            for (index, subscribes) in steps {
                let name = index.to_string();
                if subscribes {
                    subscribed.insert(index);
                    let joins = regions.subscribe(&name).unwrap();
                    joins.into_iter().for_each(|(first, last)| assert!(wanted.insert(first, last)));
                } else {
                    subscribed.remove(&index);
                    let to_leave = regions.ranges_to_leave(&name).unwrap();
                    regions.unsubscribe(&name).unwrap();
                    to_leave.into_iter().for_each(|(first, last)| assert!(wanted.remove(first, last)));
                }
                let all: BTreeSet<u32> = subscribed.iter().flat_map(|index| sets[*index].clone()).collect();
                let actual: BTreeSet<u32> = wanted.iter().flat_map(|(first, last)| first..=last).collect();
                prop_assert_eq!(actual, all);
            }
        }
    }
}
