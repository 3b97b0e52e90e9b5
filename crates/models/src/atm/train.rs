//! A train: the cells of a packet, processed in one step.

use trunkline_units::{Instant, Span};

use crate::atm::fine::FineTime;

/// The cells of one packet in flight between two ports.
///
/// # Delivery
///
/// A train is delivered when its *first* surviving cell has arrived, with the arrival times of the others. The next
/// port can then compute each cell's departure as if the cells arrived one by one. That is exact if all trains of that
/// port arrive through one input in order: flows do not share an output, or share it from their source on.
///
/// A device that forwards a train later than it received it (a switch with latency) has delayed all its cells equally:
/// the receiver counts from the moment of delivery.
///
/// # Representation
///
/// Cells leave a line evenly spaced, so a train is a few runs of evenly spaced cells, usually one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Train {
    pub(crate) runs: Vec<Run>,
    /// Number of cells of the packet.
    pub(crate) count: u16,
    /// Number of lost cells.
    pub(crate) lost: u16,
    /// Whether the last cell was lost.
    pub(crate) last_lost: bool,
}

/// Evenly spaced cells; cell `k` arrives at `first + k · gap`, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: FineTime,
    pub(crate) gap: FineTime,
    pub(crate) count: u32,
}

impl Run {
    /// Returns the arrival of cell `k`.
    #[inline]
    pub(crate) fn at(&self, k: u32) -> Instant {
        self.first.plus(self.gap.times(u64::from(k))).ceil()
    }

    /// Returns the arrival of the last cell.
    #[inline]
    pub(crate) fn last(&self) -> Instant {
        self.end().ceil()
    }

    /// Returns the arrival of the last cell, unrounded.
    #[inline]
    pub(crate) fn end(&self) -> FineTime {
        self.first.plus(self.gap.times(u64::from(self.count.saturating_sub(1))))
    }

    /// Returns how many cells have arrived by `at`.
    #[inline]
    pub(crate) fn arrived_by(&self, at: FineTime) -> u32 {
        let (mut next, mut count) = (self.first, 0);
        // Usually few: a division costs as much as a dozen steps.
        while count < 12 {
            if next > at || count == self.count {
                return count;
            }
            next = next.plus(self.gap);
            count += 1;
        }
        let further = if next > at { 0 } else { at.minus(next).div_floor(self.gap) + 1 };
        self.count.min(u32::try_from(further).map_or(u32::MAX, |further| further.saturating_add(count)))
    }

    /// Returns whether `next` follows this run with the same spacing.
    #[inline]
    pub(crate) fn is_continued_by(&self, next: &Run) -> bool {
        self.gap == next.gap && self.first.plus(self.gap.times(u64::from(self.count))) == next.first
    }
}

/// Appends `run`, merged with the last one if it continues that.
#[inline]
pub(crate) fn append(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(before) if before.is_continued_by(&run) => before.count += run.count,
        _ => runs.push(run),
    }
}

impl Train {
    /// Returns the arrival times of its cells in order; the first is the time of delivery.
    pub fn arrivals(&self) -> impl Iterator<Item = Instant> {
        self.runs.iter().flat_map(|run| {
            let mut next = run.first;
            (0..run.count).map(move |_| {
                let at = next.ceil();
                next = next.plus(run.gap);
                at
            })
        })
    }

    /// Returns the number of surviving cells.
    pub fn cells(&self) -> u16 {
        self.count - self.lost
    }

    /// Returns the arrival of its first cell.
    pub(crate) fn first(&self) -> Instant {
        self.runs.first().map_or(Instant::MAX, |run| run.at(0))
    }

    /// Returns the arrival of its last surviving cell.
    pub(crate) fn end(&self) -> Instant {
        self.runs.last().map_or(Instant::MAX, Run::last)
    }

    /// Delays all its cells.
    pub(crate) fn shift(&mut self, by: Span) {
        if !by.is_zero() {
            self.runs.iter_mut().for_each(|run| run.first = run.first.plus(FineTime::from_span(by)));
        }
    }

    /// Resets it for another packet of `count` cells.
    pub(crate) fn reset(&mut self, count: u16) {
        self.runs.clear();
        (self.count, self.lost, self.last_lost) = (count, 0, false);
    }
}
