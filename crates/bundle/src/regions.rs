//! Regions by name: sets of addresses that a simulation publishes to and subscribes to, as in HLA.
//!
//! A [region](Regions) is what all hosts agree on beforehand: a name and the addresses behind it, say those of the cells of a
//! country, or of a radio channel. Whoever subscribes wants all of them. Whoever publishes sends to one at a time, the *n*th:
//! which that is (in which cell something happens) only the simulation knows. So nobody gets a message twice.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::ranges::Ranges;

/// Regions at the most.
pub const MOST_REGIONS: usize = 4_096;
/// Ranges of a region at the most.
pub const MOST_RANGES: usize = 1_024;
/// Octets of a name at the most.
pub const LONGEST_NAME: usize = 255;

/// Regions by their names, and what this host does with them.
///
/// Bounds: [`MOST_REGIONS`], each of [`MOST_RANGES`] after those that touch have become one.
#[derive(Clone, Debug, Default)]
pub struct Regions(BTreeMap<String, Region>);

#[derive(Clone, Debug)]
struct Region {
    /// As they were given, which is how they are counted.
    ranges: Vec<(u32, u32)>,
    published: bool,
    subscribed: bool,
}

/// What cannot be done with a region.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NoRegion {
    /// Nothing has that name.
    #[error("no region has that name")]
    Unknown,
    /// It has other addresses already.
    #[error("the region has other addresses already")]
    Taken,
    /// It has no name, or one that is too long.
    #[error("a region has a name of 1 to {LONGEST_NAME} octets")]
    Name,
    /// It has no addresses, too many ranges of them, some twice, or a range ends before it begins.
    #[error("a region has 1 to {MOST_RANGES} ranges of addresses that rise and do not overlap")]
    Ranges,
    /// There are as many as may be.
    #[error("there are {MOST_REGIONS} regions already")]
    Full,
    /// What other regions leave of it are more ranges than a host may want.
    #[error("what other regions leave of it are too many ranges")]
    Pieces,
    /// This host does not publish it.
    #[error("the region is not published by this host")]
    Unpublished,
    /// It has no address of that number.
    #[error("the region has not that many addresses")]
    Nth,
}

impl Regions {
    /// Gives addresses a name: ranges, each with its first and last address, that rise and do not overlap. The same again is
    /// no error.
    ///
    /// # Errors
    /// [`NoRegion::Name`], [`NoRegion::Ranges`], [`NoRegion::Taken`], [`NoRegion::Full`].
    pub fn define(&mut self, name: &str, ranges: &[(u32, u32)]) -> Result<(), NoRegion> {
        if !(1..=LONGEST_NAME).contains(&name.len()) {
            return Err(NoRegion::Name);
        }
        let rise = ranges.windows(2).all(|two| two[0].1 < two[1].0);
        let each = ranges.iter().all(|(first, last)| first <= last);
        if !(1..=MOST_RANGES).contains(&ranges.len()) || !rise || !each {
            return Err(NoRegion::Ranges);
        }
        match self.0.get(name) {
            Some(region) if region.ranges == ranges => Ok(()),
            Some(_) => Err(NoRegion::Taken),
            None if self.0.len() >= MOST_REGIONS => Err(NoRegion::Full),
            None => {
                let region = Region { ranges: ranges.to_vec(), published: false, subscribed: false };
                self.0.insert(name.to_owned(), region);
                Ok(())
            }
        }
    }

    /// Says that this host sends to a region, or no longer.
    ///
    /// # Errors
    /// [`NoRegion::Unknown`].
    pub fn publish(&mut self, name: &str, publishes: bool) -> Result<(), NoRegion> {
        self.region(name)?.published = publishes;
        Ok(())
    }

    /// Subscribes to a region; the ranges that are to be joined.
    ///
    /// # Errors
    /// [`NoRegion::Unknown`].
    pub fn subscribe(&mut self, name: &str) -> Result<Vec<(u32, u32)>, NoRegion> {
        let region = self.region(name)?;
        region.subscribed = true;
        Ok(region.ranges.clone())
    }

    /// The ranges that are to be left before it is [unsubscribed](Regions::unsubscribe): those that no other region to which it is
    /// subscribed has; none if it is not subscribed.
    ///
    /// # Errors
    /// [`NoRegion::Unknown`], [`NoRegion::Pieces`].
    pub fn leaves(&self, name: &str) -> Result<Vec<(u32, u32)>, NoRegion> {
        let mut left = Ranges::default();
        if !self.0.get(name).ok_or(NoRegion::Unknown)?.subscribed {
            return Ok(Vec::new());
        }
        let (its, others): (Vec<_>, Vec<_>) = self
            .0
            .iter()
            .filter(|(_, region)| region.subscribed)
            .flat_map(|(of, region)| region.ranges.iter().map(move |range| (of == name, *range)))
            .partition(|(own, _)| *own);
        its.into_iter().for_each(|(_, (first, last))| _ = left.add(first, last));
        if !others.into_iter().all(|(_, (first, last))| left.remove(first, last)) {
            return Err(NoRegion::Pieces);
        }
        Ok(left.iter().collect())
    }

    /// Subscribes to it no longer: what it alone [has](Regions::leaves) was left.
    ///
    /// # Errors
    /// [`NoRegion::Unknown`].
    pub fn unsubscribe(&mut self, name: &str) -> Result<(), NoRegion> {
        self.region(name)?.subscribed = false;
        Ok(())
    }

    /// The nth address of a region, from 0 on, if this host publishes it.
    ///
    /// # Errors
    /// [`NoRegion::Unknown`], [`NoRegion::Unpublished`], [`NoRegion::Nth`].
    pub fn address(&self, name: &str, nth: u32) -> Result<u32, NoRegion> {
        let region = self.0.get(name).ok_or(NoRegion::Unknown)?;
        if !region.published {
            return Err(NoRegion::Unpublished);
        }
        let mut before = u64::from(nth);
        for (first, last) in &region.ranges {
            let count = u64::from(last - first) + 1;
            if before < count {
                return Ok(first + before as u32);
            }
            before -= count;
        }
        Err(NoRegion::Nth)
    }

    fn region(&mut self, name: &str) -> Result<&mut Region, NoRegion> {
        self.0.get_mut(name).ok_or(NoRegion::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_is_no_region_is_refused_and_there_are_bounds() {
        let mut regions = Regions::default();
        let long = "x".repeat(LONGEST_NAME + 1);
        for (name, ranges, refusal) in [
            ("", &[(1, 1)][..], NoRegion::Name),
            (&long, &[(1, 1)], NoRegion::Name),
            ("none", &[], NoRegion::Ranges),
            ("backwards", &[(2, 1)], NoRegion::Ranges),
            ("falls", &[(5, 6), (1, 2)], NoRegion::Ranges),
            ("twice", &[(5, 6), (6, 7)], NoRegion::Ranges),
        ] {
            assert_eq!(regions.define(name, ranges), Err(refusal), "{name}");
        }
        let pieces = |count: u32| (0..count).map(|n| (2 * n, 2 * n)).collect::<Vec<_>>();
        assert_eq!(regions.define("many", &pieces(MOST_RANGES as u32 + 1)), Err(NoRegion::Ranges));
        assert_eq!(regions.define(&long[1..], &pieces(MOST_RANGES as u32)), Ok(()));
        for n in 1..MOST_REGIONS {
            regions.define(&n.to_string(), &[(0, u32::MAX)]).unwrap();
        }
        assert_eq!(regions.define("one more", &[(1, 1)]), Err(NoRegion::Full));
        assert_eq!(regions.define("1", &[(0, u32::MAX)]), Ok(()), "the same again");
        assert_eq!(regions.define("1", &[(0, 5)]), Err(NoRegion::Taken));
        assert_eq!(regions.subscribe("one more"), Err(NoRegion::Unknown));
    }

    #[test]
    fn of_a_region_of_too_many_pieces_none_is_left_that_is_wanted() {
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
        assert_eq!(regions.leaves("all"), Err(NoRegion::Pieces));
        for name in ["16", "15"] {
            assert_eq!(regions.leaves(name), Ok(Vec::new()), "all of it is wanted by another");
            regions.unsubscribe(name).unwrap();
        }
        assert_eq!(regions.leaves("all").map(|left| left.len()), Ok(15 * 1_024), "what is behind each piece");
    }

    #[test]
    fn addresses_are_counted_and_only_of_what_is_published() {
        let mut regions = Regions::default();
        regions.define("all", &[(0, u32::MAX)]).unwrap();
        regions.define("two", &[(7, 9), (20, 20)]).unwrap();
        assert_eq!(regions.address("two", 0), Err(NoRegion::Unpublished));
        regions.publish("two", true).unwrap();
        regions.publish("all", true).unwrap();
        let addresses: Vec<_> = (0..5).map(|nth| regions.address("two", nth)).collect();
        assert_eq!(addresses, [Ok(7), Ok(8), Ok(9), Ok(20), Err(NoRegion::Nth)]);
        assert_eq!(regions.address("all", u32::MAX), Ok(u32::MAX));
        regions.publish("two", false).unwrap();
        assert_eq!(regions.address("two", 0), Err(NoRegion::Unpublished));
        assert_eq!(regions.publish("three", true), Err(NoRegion::Unknown));
        assert_eq!(regions.address("three", 0), Err(NoRegion::Unknown));
    }

    proptest! {
        /// Against sets: what is wanted is what the regions to which it is subscribed have.
        #[test]
        fn wanted_is_what_regions_have(
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
            for (which, subscribes) in steps {
                let name = which.to_string();
                if subscribes {
                    subscribed.insert(which);
                    let joins = regions.subscribe(&name).unwrap();
                    joins.into_iter().for_each(|(first, last)| assert!(wanted.add(first, last)));
                } else {
                    subscribed.remove(&which);
                    let leaves = regions.leaves(&name).unwrap();
                    regions.unsubscribe(&name).unwrap();
                    leaves.into_iter().for_each(|(first, last)| assert!(wanted.remove(first, last)));
                }
                let all: BTreeSet<u32> = subscribed.iter().flat_map(|which| sets[*which].clone()).collect();
                let got: BTreeSet<u32> = wanted.iter().flat_map(|(first, last)| first..=last).collect();
                prop_assert_eq!(got, all);
            }
        }
    }
}
