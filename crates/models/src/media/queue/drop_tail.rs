//! FIFO with tail drop: what a line without a discipline computes when frames arrive.

use trunkline_endpoint::Frame;
use trunkline_units::Instant;

use super::fifo::{Fifo, Queued};
use super::{Actions, Discipline};

/// A FIFO queue; an arriving frame that does not fit is dropped.
#[derive(Clone, Debug)]
pub struct DropTail<F>(Fifo<F>);

impl<F> Default for DropTail<F> {
    fn default() -> Self {
        DropTail(Fifo::default())
    }
}

impl<F: Frame> Discipline<F> for DropTail<F> {
    fn enqueue(&mut self, now: Instant, frame: F) {
        self.0.push(now, frame);
    }

    fn dequeue(&mut self, _now: Instant, _actions: &mut Actions<F>) -> Option<Queued<F>> {
        self.0.pop()
    }

    fn frames(&self) -> u64 {
        self.0.frames()
    }
}
