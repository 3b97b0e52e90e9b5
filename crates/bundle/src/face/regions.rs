//! What a [`HostFace`] does with [regions](crate::regions).

use thiserror::Error;

use super::HostFace;
use crate::host::{Post, Refusal};
use crate::regions::NoRegion;

/// Why something was not done with a region.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RegionError {
    /// There is no such region, or not so.
    #[error(transparent)]
    Region(#[from] NoRegion),
    /// The host refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// Publish and subscribe by named region. Joins and leaves by address know nothing of regions: the last word counts.
impl HostFace {
    /// Gives addresses a name: ranges, each with its first and last address, that rise and do not overlap. Where odd addresses are
    /// those of priority messages, ranges are of whole pairs.
    ///
    /// # Errors
    /// What is no region; [`Refusal::Format`] for addresses that the format does not have, and half pairs.
    pub fn define(&mut self, name: &str, ranges: &[(u32, u32)]) -> Result<(), RegionError> {
        let settings = self.settings();
        let fits = |(first, last): &(u32, u32)| {
            let has = settings.wide().is_some() || *last <= u16::MAX.into();
            has && !(settings.pairs && (first % 2 != 0 || last % 2 == 0))
        };
        if !ranges.iter().all(fits) {
            return Err(Refusal::Format.into());
        }
        Ok(self.regions.define(name, ranges)?)
    }

    /// Says that this host sends to a region.
    ///
    /// # Errors
    /// [`NoRegion::Unknown`].
    pub fn publish(&mut self, name: &str) -> Result<(), RegionError> {
        Ok(self.regions.publish(name, true)?)
    }

    /// No more.
    ///
    /// # Errors
    /// [`NoRegion::Unknown`].
    pub fn unpublish(&mut self, name: &str) -> Result<(), RegionError> {
        Ok(self.regions.publish(name, false)?)
    }

    /// Wants all messages of a region.
    ///
    /// # Errors
    /// [`NoRegion::Unknown`]; [`Refusal::Full`]: what found room is wanted, and the rest when it is asked for again.
    pub fn subscribe(&mut self, name: &str) -> Result<(), RegionError> {
        let joins = self.regions.subscribe(name)?;
        Ok(joins.into_iter().try_for_each(|(first, last)| self.join_range(first, last))?)
    }

    /// Wants them no more, but those of other regions to which it is subscribed.
    ///
    /// # Errors
    /// [`NoRegion::Unknown`]; [`Refusal::Full`], [`NoRegion::Pieces`]: it stays subscribed, and what found no room is wanted, until
    /// this is asked for again.
    pub fn unsubscribe(&mut self, name: &str) -> Result<(), RegionError> {
        let leaves = self.regions.leaves(name)?;
        leaves.into_iter().try_for_each(|(first, last)| self.leave_range(first, last))?;
        Ok(self.regions.unsubscribe(name)?)
    }

    /// The nth address of a region, from 0 on, that this host publishes: where to [`post`](HostFace::post).
    ///
    /// # Errors
    /// [`NoRegion::Unknown`], [`NoRegion::Unpublished`], [`NoRegion::Nth`].
    pub fn address_in(&self, name: &str, nth: u32) -> Result<u32, NoRegion> {
        self.regions.address(name, nth)
    }

    /// Sends a message to the nth address of a region, from 0 on.
    ///
    /// # Errors
    /// As [`HostFace::address_in`], and what the host refuses.
    pub fn send_in(&mut self, name: &str, nth: u32, body: &[u8]) -> Result<(), RegionError> {
        let address = self.address_in(name, nth)?;
        let priority = self.settings().is_priority(address);
        Ok(self.post(Post { address, priority, within: None, body })?)
    }
}
