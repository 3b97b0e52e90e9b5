//! Runs a model: draws its items one ahead, and records the drawn times and lengths as they left.

use std::collections::VecDeque;

use trunkline_units::{Instant, Seed};

use super::{Application, Draws, Item, Model, Next, Outcome, QuantityId, Since, Size};
use crate::source::{Bounds, LawFit};
use crate::{Pattern, Variable, VariableError};

/// A model with its quantities and its next item.
#[derive(Debug)]
pub struct Driver {
    model: Box<dyn Model>,
    draws: Draws,
    /// The next item, `Await` or `End`.
    upcoming: Next,
    /// The item that is being sent.
    current: Option<Item>,
    /// What a receiver adds to the time of known instants, in picoseconds: the smallest delay.
    origin_ps: Option<i128>,
    /// The last departure of each lane; `None` if it is not known.
    lanes: Vec<Option<Instant>>,
    /// Requests whose outcome is unknown: their number, and the quantity of the response.
    requests: VecDeque<(u64, QuantityId)>,
    next_request: u64,
    longest_message: u32,
    bounds: Bounds,
}

/// How an item is split into messages: `count` messages, the first of `first` bytes and the others of `rest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Number of messages.
    pub count: u32,
    /// Bytes of the first message.
    pub first: u32,
    /// Bytes of each other message.
    pub rest: u32,
}

impl Pieces {
    /// Splits an item into as few messages of `smallest` to `longest` bytes as possible. The bytes of the messages are those of
    /// the item, except that an item is extended by less than `smallest` if its rest would be too short for a message and it is
    /// too long to shorten all others by a few bytes.
    pub fn of(bytes: u32, smallest: u32, longest: u32) -> Pieces {
        let others = bytes.div_ceil(longest).max(1) - 1;
        let first = bytes - others * longest;
        let missing = smallest.saturating_sub(first);
        if others == 0 || missing == 0 {
            return Pieces { count: others + 1, first: first.max(smallest), rest: longest };
        }
        let shorter = missing.div_ceil(others);
        let first = first + shorter * others;
        if first <= longest {
            Pieces { count: others + 1, first, rest: longest - shorter }
        } else {
            Pieces { count: others + 1, first: smallest, rest: longest }
        }
    }

    /// Returns the bytes of all messages.
    pub fn bytes(self) -> u64 {
        u64::from(self.first) + u64::from(self.rest) * u64::from(self.count - 1)
    }
}

impl Driver {
    /// Creates the driver of a pattern from `start` on; `None` for patterns that are no application models.
    ///
    /// # Errors
    /// The first parameter with an invalid value.
    pub fn of_pattern(
        pattern: &Pattern,
        bounds: Bounds,
        start: Instant,
        seed: Seed,
        name: &str,
    ) -> Option<Result<Driver, (&'static str, VariableError)>> {
        let Pattern::Application { model, variant, size_bytes, parameters } = pattern else { return None };
        let longest = if let Variable::Constant(bytes) = size_bytes { *bytes as u32 } else { bounds.largest };
        let draws = Draws::new(*model, variant.as_deref(), parameters, seed, name);
        Some(draws.map(|draws| Driver::new(*model, draws, longest, bounds, start)))
    }

    fn new(
        model: Application,
        mut draws: Draws,
        longest_message: u32,
        bounds: Bounds,
        start: Instant,
    ) -> Driver {
        let mut model = (model.definition().start)(start, &draws);
        let upcoming = model.next(&mut draws);
        let longest_message = longest_message.min(bounds.largest).max(bounds.smallest * 2);
        Driver {
            model,
            draws,
            upcoming,
            current: None,
            origin_ps: None,
            lanes: Vec::new(),
            requests: VecDeque::new(),
            next_request: 0,
            longest_message,
            bounds,
        }
    }

    /// Returns when the next item is due; [`Instant::MAX`] if none is known.
    pub fn next_due(&self) -> Instant {
        match self.upcoming {
            Next::Item(item) => item.due,
            Next::Await | Next::End => Instant::MAX,
        }
    }

    /// Returns whether the model waits for the outcome of a request.
    pub fn awaits_feedback(&self) -> bool {
        matches!(self.upcoming, Next::Await)
    }

    /// Begins the next item and draws the one after it. Returns how it is split, and the bytes of its response or 0.
    pub fn begin(&mut self) -> Option<(Pieces, u32)> {
        let Next::Item(mut item) = self.upcoming else { return None };
        item.response = item.response.map(|size| {
            size.with_bytes(size.bytes().clamp(self.bounds.smallest, self.bounds.largest_response))
        });
        let longest = if item.response.is_some() { self.bounds.largest } else { self.longest_message };
        let bytes = item.size.bytes().min(if item.response.is_some() { longest } else { u32::MAX });
        let pieces = Pieces::of(bytes, self.bounds.smallest, longest);
        item.size = item.size.with_bytes(pieces.bytes().min(u64::from(u32::MAX)) as u32);
        self.current = Some(item);
        if let Some(response) = item.response {
            self.requests.push_back((self.next_request, response.quantity()));
            self.next_request += 1;
        }
        self.upcoming = self.model.next(&mut self.draws);
        Some((pieces, item.response.map_or(0, Size::bytes)))
    }

    /// Returns the item that is being sent.
    pub(super) fn current(&self) -> Option<&Item> {
        self.current.as_ref()
    }

    /// Records that the current item has left at `at`, complete or not.
    pub fn departed(&mut self, at: Instant) {
        let Some(item) = self.current else { return };
        self.draws.record_size(item.size, u64::from(item.size.bytes()));
        self.record_times(&item, at);
    }

    /// Records the times that end with an item which left or arrived at `at`.
    pub(super) fn record_times(&mut self, item: &Item, at: Instant) {
        for timed in item.intervals.into_iter().flatten() {
            let last = |lane: u32| self.lanes.get(lane as usize).copied().flatten();
            let ps = |instant: Instant| i128::from(instant.as_ps());
            let start = match timed.since {
                Since::Departure(lane) => last(lane).map(ps),
                Since::Offset(lane, offset) => last(lane).map(|last| ps(last) + i128::from(offset)),
                Since::Event(event) => Some(ps(event) + self.origin_ps.unwrap_or(0)),
            };
            // An integer of 128 bits becomes a double slowly.
            let elapsed = |start: i128| u64::try_from((ps(at) - start).max(0)).unwrap_or(u64::MAX);
            let seconds = start.map(|start| elapsed(start) as f64 / 1e12);
            self.draws.finish(timed.interval, seconds);
        }
        self.set_departure(item, Some(at));
    }

    /// Takes the arrival of the current item as the reference of known instants, whose clock a receiver does not have, unless an
    /// earlier item had a smaller delay.
    pub(super) fn set_origin(&mut self, at: Instant) {
        let due = self.current.map_or(at, |item| item.due);
        let delay_ps = i128::from(at.as_ps()) - i128::from(due.as_ps());
        self.origin_ps = Some(self.origin_ps.map_or(delay_ps, |origin| origin.min(delay_ps)));
    }

    /// Handles an item that is lost: the times that it ends and begins are unknown.
    pub(super) fn forget_times(&mut self, item: &Item) {
        item.intervals.into_iter().flatten().for_each(|timed| self.draws.finish(timed.interval, None));
        self.set_departure(item, None);
    }

    /// Sets the last departure of the lanes of an item.
    fn set_departure(&mut self, item: &Item, at: Option<Instant>) {
        for lane in [Some(item.lane), item.second_lane].into_iter().flatten() {
            let lane = lane as usize;
            if self.lanes.len() <= lane {
                self.lanes.resize(lane + 1, None);
            }
            self.lanes[lane] = at;
        }
    }

    /// Records a length that arrived.
    pub(super) fn record_size(&mut self, size: Size, bytes: u64) {
        self.draws.record_size(size, bytes);
    }

    /// Hands the outcome of a request to the model.
    pub fn feedback(&mut self, outcome: &Outcome) {
        if let Some(index) = self.requests.iter().position(|(request, _)| *request == outcome.request)
            && let Some((_, quantity)) = self.requests.remove(index)
            && let Some(bytes) = outcome.bytes
        {
            self.draws.record(quantity, f64::from(bytes));
        }
        self.model.feedback(outcome, &mut self.draws);
        if self.awaits_feedback() {
            self.upcoming = self.model.next(&mut self.draws);
        }
    }

    /// Returns the mean rate of message bytes, see [`Model::offered_bps`].
    pub fn offered_bps(&self) -> Option<f64> {
        self.model.offered_bps(&self.draws)
    }

    /// Returns the gauges of the model.
    pub fn gauges(&self) -> Vec<(&'static str, f64)> {
        self.model.gauges()
    }

    /// Returns the counters of the model.
    pub fn counters(&self) -> Vec<(&'static str, f64)> {
        self.model.counters()
    }

    /// Compares what left with the laws.
    pub fn fits(&self) -> Vec<LawFit> {
        self.draws.fits()
    }

    /// Compares what arrived with the laws.
    pub(super) fn visible_fits(&self) -> Vec<LawFit> {
        self.draws.visible_fits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_the_bytes_of_the_item_and_none_is_short() {
        for longest in [64, 1_400, 65_507] {
            for bytes in [32, 33, 63, 64, 65, 1_399, 1_400, 1_401, 2_801, 2_000_000, 100_000_007, u32::MAX] {
                let pieces = Pieces::of(bytes, 32, longest);
                let Pieces { count, first, rest } = pieces;
                let extended = pieces.bytes() - u64::from(bytes);
                assert!(
                    extended == 0 || (extended < 32 && bytes / longest > longest / 2),
                    "{bytes} by {longest}: {pieces:?}"
                );
                assert!(
                    (32..=longest).contains(&first) && (count == 1 || (32..=longest).contains(&rest)),
                    "{pieces:?}"
                );
                assert_eq!(count, bytes.div_ceil(longest));
            }
        }
        assert_eq!(Pieces::of(1, 32, 1_400), Pieces { count: 1, first: 32, rest: 1_400 });
    }
}
