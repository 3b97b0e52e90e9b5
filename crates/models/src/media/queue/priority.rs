//! Strict priority: a frame waits as long as a frame of a higher class is queued.

use trunkline_endpoint::Frame;
use trunkline_units::Instant;

use super::fifo::{Fifo, Queued};
use super::{Actions, Discipline};

/// Number of classes: lower effort, and one for each class selector.
const CLASSES: usize = 9;
/// The code point of lower effort (RFC 8622), which is served below the default class.
const LOWER_EFFORT: u8 = 1;

/// Returns the class of a code point: its first three bits, as class selectors order them (RFC 2474 section 4.2.2), above
/// the class of lower effort. Expedited forwarding is in class 6.
fn class(dscp: u8) -> usize {
    if dscp == LOWER_EFFORT { 0 } else { 1 + usize::from(dscp >> 3 & 7) }
}

/// A queue for each class.
#[derive(Clone, Debug)]
pub struct Priority<F> {
    classes: [Fifo<F>; CLASSES],
}

impl<F> Default for Priority<F> {
    fn default() -> Self {
        Priority { classes: std::array::from_fn(|_| Fifo::default()) }
    }
}

impl<F: Frame> Discipline<F> for Priority<F> {
    /// Drops the newest frame of the lowest class, if that is below the class of the arriving frame.
    fn evict(&mut self, arriving: &F) -> Option<F> {
        let lower = &mut self.classes[..class(arriving.dscp())];
        let lowest = lower.iter_mut().find(|fifo| !fifo.is_empty())?;
        lowest.pop_newest().map(|queued| queued.frame)
    }

    fn enqueue(&mut self, now: Instant, frame: F) {
        self.classes[class(frame.dscp())].push(now, frame);
    }

    fn dequeue(&mut self, _now: Instant, _actions: &mut Actions<F>) -> Option<Queued<F>> {
        self.classes.iter_mut().rev().find_map(Fifo::pop)
    }

    fn frames(&self) -> u64 {
        self.classes.iter().map(Fifo::frames).sum()
    }
}
