//! The [regions](crate::regions) of a [`HostSocket`].

use thiserror::Error;

use super::HostSocket;
use crate::host::CommandError;
use crate::regions::InvalidRegion;

/// The reason why an operation on a region fails.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RegionError {
    /// The region is invalid or unknown.
    #[error(transparent)]
    Region(#[from] InvalidRegion),
    /// The host refused a command.
    #[error(transparent)]
    Refused(#[from] CommandError),
}

/// Publish and subscribe by named region. Joins and leaves by address are independent of regions: the last call for
/// an address applies.
impl HostSocket {
    /// Defines a region. Ranges are pairs of first and last address that ascend and do not overlap; with
    /// [`Settings::pairs`](crate::Settings::pairs) they consist of whole pairs.
    ///
    /// # Errors
    /// Returns why the region is invalid; [`CommandError::Format`] for addresses that the format lacks, and for half
    /// pairs.
    pub fn define(&mut self, name: &str, ranges: &[(u32, u32)]) -> Result<(), RegionError> {
        let settings = self.settings();
        let fits = |(first, last): &(u32, u32)| {
            let has = settings.format2().is_some() || *last <= u16::MAX.into();
            has && !(settings.pairs && (first % 2 != 0 || last % 2 == 0))
        };
        if !ranges.iter().all(fits) {
            return Err(CommandError::Format.into());
        }
        Ok(self.regions.define(name, ranges)?)
    }

    /// Declares that this host sends to a region.
    ///
    /// # Errors
    /// [`InvalidRegion::Unknown`].
    pub fn publish(&mut self, name: &str) -> Result<(), RegionError> {
        Ok(self.regions.set_published(name, true)?)
    }

    /// Withdraws [`publish`](HostSocket::publish).
    ///
    /// # Errors
    /// [`InvalidRegion::Unknown`].
    pub fn unpublish(&mut self, name: &str) -> Result<(), RegionError> {
        Ok(self.regions.set_published(name, false)?)
    }

    /// Joins all addresses of a region.
    ///
    /// # Errors
    /// [`InvalidRegion::Unknown`]; [`CommandError::Full`]: part of it was joined; call it again.
    pub fn subscribe(&mut self, name: &str) -> Result<(), RegionError> {
        let joins = self.regions.subscribe(name)?;
        Ok(joins.into_iter().try_for_each(|(first, last)| self.join_range(first, last))?)
    }

    /// Leaves the addresses of a region, except those of other subscribed regions.
    ///
    /// # Errors
    /// [`InvalidRegion::Unknown`]; [`CommandError::Full`], [`InvalidRegion::TooManyRanges`]: it stays subscribed
    /// until another call succeeds.
    pub fn unsubscribe(&mut self, name: &str) -> Result<(), RegionError> {
        let leaves = self.regions.ranges_to_leave(name)?;
        leaves.into_iter().try_for_each(|(first, last)| self.leave_range(first, last))?;
        Ok(self.regions.unsubscribe(name)?)
    }

    /// Returns the nth address of a published region, from 0 on, for [`send_message`](HostSocket::send_message).
    ///
    /// # Errors
    /// [`InvalidRegion::Unknown`], [`InvalidRegion::NotPublished`], [`InvalidRegion::NoSuchAddress`].
    pub fn region_address(&self, name: &str, nth: u32) -> Result<u32, InvalidRegion> {
        self.regions.nth_address(name, nth)
    }

    /// Sends a message to the nth address of a published region, from 0 on.
    ///
    /// # Errors
    /// As [`HostSocket::region_address`] and [`HostSocket::send`].
    pub fn send_to_region(&mut self, name: &str, nth: u32, body: &[u8]) -> Result<(), RegionError> {
        let address = self.region_address(name, nth)?;
        Ok(self.send(address, body)?)
    }
}
