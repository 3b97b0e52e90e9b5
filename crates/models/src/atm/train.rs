//! The cells of a packet, crossing in one step.

use trunkline_units::{Instant, Span};

use crate::atm::fine::Fine;

/// The cells of one packet on their way from one port to the next.
///
/// # When
///
/// A train is handed on at the moment its *first* surviving cell has arrived, while the others are still to come; it
/// says when they will. So the next port can tell when each of them leaves, as if they came one by one: exactly, if
/// all trains of that port come to it through one input and in order. They do where flows do not share an output, or
/// share it from their source on.
///
/// What passes a train on later than it was handed over (a switch that takes time) has held up all of its cells by as
/// much: whoever takes it counts from the moment at which it is given.
///
/// # How
///
/// Cells that leave a line follow each other evenly, so a train is a few runs of evenly spaced cells, whatever the
/// number of its cells: mostly a single one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Train {
    pub(crate) runs: Vec<Run>,
    /// Cells that the packet had.
    pub(crate) count: u16,
    pub(crate) lost: u16,
    pub(crate) last_lost: bool,
}

/// Cells at even distances; cell `k` has arrived at `first + k · gap`, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: Fine,
    pub(crate) gap: Fine,
    pub(crate) count: u32,
}

impl Run {
    /// When cell `k` has arrived.
    #[inline]
    pub(crate) fn at(&self, k: u32) -> Instant {
        self.first.plus(self.gap.times(u64::from(k))).ceil()
    }

    /// When the last one has.
    #[inline]
    pub(crate) fn last(&self) -> Instant {
        self.end().ceil()
    }

    /// The same, to the fraction.
    #[inline]
    pub(crate) fn end(&self) -> Fine {
        self.first.plus(self.gap.times(u64::from(self.count.saturating_sub(1))))
    }

    /// How many have arrived at `at`.
    #[inline]
    pub(crate) fn until(&self, at: Fine) -> u32 {
        let (mut next, mut count) = (self.first, 0);
        // Mostly few: a division costs as much as a dozen steps.
        while count < 12 {
            if next > at || count == self.count {
                return count;
            }
            next = next.plus(self.gap);
            count += 1;
        }
        let more = if next > at { 0 } else { at.minus(next).within(self.gap) + 1 };
        self.count.min(u32::try_from(more).map_or(u32::MAX, |more| more.saturating_add(count)))
    }

    /// Whether `run` goes on evenly behind this one.
    #[inline]
    pub(crate) fn goes_on(&self, run: &Run) -> bool {
        self.gap == run.gap && self.first.plus(self.gap.times(u64::from(self.count))) == run.first
    }
}

/// Adds `run` behind the others, to the last one if it goes on evenly.
#[inline]
pub(crate) fn append(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(before) if before.goes_on(&run) => before.count += run.count,
        _ => runs.push(run),
    }
}

impl Train {
    /// When each of its cells has arrived, in order; the first at the moment that the train is handed on.
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

    /// Cells that are still there.
    pub fn cells(&self) -> u16 {
        self.count - self.lost
    }

    /// Cells that were lost on the way.
    pub fn lost(&self) -> u16 {
        self.lost
    }

    /// Whether the last cell of the packet is among the lost ones.
    pub fn last_lost(&self) -> bool {
        self.last_lost
    }

    /// When its first cell has arrived.
    pub(crate) fn first(&self) -> Instant {
        self.runs.first().map_or(Instant::MAX, |run| run.at(0))
    }

    /// When its last surviving cell has arrived.
    pub(crate) fn end(&self) -> Instant {
        self.runs.last().map_or(Instant::MAX, Run::last)
    }

    /// Makes all of it later.
    pub(crate) fn shift(&mut self, by: Span) {
        if !by.is_zero() {
            self.runs.iter_mut().for_each(|run| run.first = run.first.plus(Fine::span(by)));
        }
    }

    /// Empties it for another packet, of `count` cells.
    pub(crate) fn reset(&mut self, count: u16) {
        self.runs.clear();
        (self.count, self.lost, self.last_lost) = (count, 0, false);
    }
}
