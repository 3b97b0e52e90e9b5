//! [`Probe`]: measures the system calls of selected batches.

use std::fmt::Debug;

use trunkline_endpoint::Segment;
use trunkline_units::Instant;

/// Direction of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    In,
    /// Sent.
    Out,
}

/// Observes the system calls of selected batches: their duration and the kernel's receive timestamps.
pub trait Probe: Debug + Send {
    /// Returns whether to observe this batch, which is about to be sent or has just been received.
    fn selects(&mut self, direction: Direction, frames: &[u8], segment: Option<Segment>) -> bool;
    /// Reports that the selected batch was sent by a call with this start and end.
    fn sent(&mut self, call: (Instant, Instant));
    /// Reports that the selected batch arrived in the kernel at `arrived`, if known, and was received by a call with
    /// this start and end. The call may have waited for the batch, and may have received others too.
    fn received(&mut self, arrived: Option<Instant>, call: (Instant, Instant));
}
