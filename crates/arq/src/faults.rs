//! Injected faults: frames are dropped or damaged just before they are sent, as in chapter 4 of the 1998 paper.

use trunkline_endpoint::{Segment, Transmit};
use trunkline_units::Stream;

/// Faults that a [`Node`](crate::Node) injects into its own frames.
#[derive(Clone, Debug)]
pub struct Faults {
    /// Probability that a frame is dropped, 0 to 1.
    pub drop: f64,
    /// Probability that the check sequence of a frame is altered, 0 to 1.
    pub alter: f64,
    /// Source of the random numbers.
    pub random: Stream,
}

/// Counts of injected faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Dropped frames.
    pub dropped: u64,
    /// Frames with an altered check sequence.
    pub altered: u64,
}

/// The faults of a node and what they did.
#[derive(Debug)]
pub(crate) struct FaultInjector {
    faults: Faults,
    pub counts: FaultCounts,
}

impl FaultInjector {
    /// Creates an injector; none if `faults` never do anything.
    pub fn new(faults: Faults) -> Option<Box<FaultInjector>> {
        let is_active = faults.drop > 0.0 || faults.alter > 0.0;
        is_active.then(|| Box::new(FaultInjector { faults, counts: FaultCounts::default() }))
    }

    /// Drops and alters frames of a batch in `buffer`. Returns the rest of the batch, unless it is empty.
    pub fn inject(&mut self, transmit: Transmit, buffer: &mut [u8]) -> Option<Transmit> {
        let Faults { drop, alter, random } = &mut self.faults;
        let length = transmit.segment.map_or(transmit.length, Segment::length).max(1);
        let (mut from, mut to) = (0, 0);
        while from < transmit.length {
            let end = (from + length).min(transmit.length);
            if *drop > 0.0 && random.chance(*drop) {
                self.counts.dropped += 1;
            } else {
                buffer.copy_within(from..end, to);
                if *alter > 0.0 && random.chance(*alter) {
                    // The last byte belongs to the check sequence.
                    buffer[to + end - from - 1] ^= 1;
                    self.counts.altered += 1;
                }
                to += end - from;
            }
            from = end;
        }
        (to > 0).then(|| Transmit { length: to, segment: Segment::of(length, to), ..transmit })
    }
}
