//! What both formats of the central converter need: the media and the counters.

use trunkline_endpoint::Port;

use crate::api::CentralConfig;
use crate::drops::{DropCounts, DropReason};
use crate::regulator::Regulator;
use crate::statistics::CentralStatistics;

/// The port to level 1.
pub(super) const LEVEL1: Port = Port(0);
/// The port to hosts.
pub(super) const HOSTS: Port = Port(1);

/// What both formats need: the media and the counters.
#[derive(Debug)]
pub(super) struct Shared {
    pub config: CentralConfig,
    /// The hosts' medium, and the wide area.
    pub local: Regulator,
    pub wide_area: Regulator,
    pub statistics: CentralStatistics,
}

impl Shared {
    /// Returns the level and rate that hosts may send at.
    pub fn hosts_limit(&self) -> (u8, u32) {
        (self.local.level(), self.local.rate())
    }

    /// The same for level 1, which loads both media.
    pub fn level1_limit(&self) -> (u8, u32) {
        (self.local.level().max(self.wide_area.level()), self.local.rate().min(self.wide_area.rate()))
    }
}

/// Queues a message if its medium admits it.
pub(super) fn queue(
    medium: &mut Regulator,
    priority: bool,
    octets: usize,
    push: impl FnOnce() -> bool,
) -> Result<(), DropReason> {
    if !medium.admits(priority, octets) {
        return Err(DropReason::Congestion);
    }
    push().then_some(()).ok_or(DropReason::Full)
}

/// Counts a message as sent or dropped.
pub(super) fn count(sent: &mut u64, drops: &mut DropCounts, priority: bool, result: Result<(), DropReason>) {
    match result {
        Ok(()) => *sent += 1,
        Err(reason) => drops.count(reason, priority),
    }
}
