//! Compares what arrives with the laws of a model.
//!
//! The receiver runs the model a second time, with the same seed. So it knows which message ends which drawn time and which
//! messages are one item, and nothing of that has to be in the messages. What it records is what arrived: the lengths of the
//! messages, and the times between them.

use trunkline_units::{Instant, Seed};

use super::Driver;
use super::driver::Pieces;
use crate::Pattern;
use crate::source::{Bounds, LawFit};

/// The comparison ends if more messages than this are missing, and more than [`MISSING_PER_ARRIVAL`] for each that arrived: the
/// receiver draws every message that is missing, and a peer can claim any number.
const MOST_MISSING: u64 = 1 << 20;
const MISSING_PER_ARRIVAL: u64 = 64;

/// The items that a receiver expects, and what it has recorded.
#[derive(Debug)]
pub struct ReceivedItems {
    driver: Box<Driver>,
    /// The number of the next message, and its place in the current item.
    sequence: u64,
    pieces: Pieces,
    position: u32,
    /// Bytes of the current item that have arrived; `None` if a message is missing.
    bytes: Option<u64>,
    /// Messages that were not as long as expected.
    differing: u64,
    /// Messages that arrived, and messages before the last of these that did not.
    arrived: u64,
    missing: u64,
    ended: bool,
    /// The number of the message at which too many were missing.
    stopped_at: Option<u64>,
}

impl ReceivedItems {
    /// Creates the comparison for a receiver of the pattern; `None` for patterns that are no application models, and for models
    /// whose traffic depends on responses. `bounds`, `seed` and `name` are those of the sender's source.
    pub fn new(pattern: &Pattern, bounds: Bounds, seed: Seed, name: &str) -> Option<ReceivedItems> {
        let is_repeatable =
            matches!(pattern, Pattern::Application { model, .. } if model.definition().max_outstanding == 0);
        // Times are those between arrivals, so the start does not matter.
        let driver =
            Driver::of_pattern(pattern, bounds, Instant::ZERO, seed, name).filter(|_| is_repeatable)?.ok()?;
        Some(ReceivedItems {
            driver: Box::new(driver),
            sequence: 0,
            pieces: Pieces { count: 0, first: 0, rest: 0 },
            position: 0,
            bytes: None,
            differing: 0,
            arrived: 0,
            missing: 0,
            ended: false,
            stopped_at: None,
        })
    }

    /// Records a message that arrived at `now`. Late and duplicate messages are ignored.
    pub fn record(&mut self, sequence: u64, length: u32, now: Instant) {
        if self.ended || sequence < self.sequence {
            return;
        }
        let missing = self.missing.saturating_add(sequence - self.sequence);
        if missing > MOST_MISSING + MISSING_PER_ARRIVAL * self.arrived {
            (self.ended, self.stopped_at) = (true, Some(sequence));
            return;
        }
        (self.arrived, self.missing) = (self.arrived + 1, missing);
        while !self.ended && self.sequence < sequence {
            self.step(None);
        }
        if !self.ended {
            self.step(Some((length, now)));
        }
    }

    /// Returns the number of the message before which too many were missing to go on; messages from it on are not compared.
    pub fn stopped_at(&self) -> Option<u64> {
        self.stopped_at
    }

    /// Handles the next expected message: it arrived, or it is missing.
    fn step(&mut self, arrival: Option<(u32, Instant)>) {
        if self.position == self.pieces.count {
            let Some((pieces, _)) = self.driver.begin() else {
                self.ended = true;
                return;
            };
            (self.pieces, self.position, self.bytes) = (pieces, 0, Some(0));
        }
        let is_first = self.position == 0;
        let expected = if is_first { self.pieces.first } else { self.pieces.rest };
        self.position += 1;
        self.sequence += 1;
        self.bytes = self.bytes.zip(arrival).map(|(bytes, (length, _))| bytes + u64::from(length));
        self.differing += u64::from(arrival.is_some_and(|(length, _)| length != expected));
        let Some(item) = self.driver.current().copied() else { return };
        if is_first {
            match arrival {
                Some((_, at)) => {
                    self.driver.set_origin(at);
                    self.driver.record_times(&item, at);
                }
                None => self.driver.forget_times(&item),
            }
        }
        if let Some(bytes) = self.bytes.filter(|_| self.position == self.pieces.count) {
            self.driver.record_size(item.size, bytes);
        }
    }

    /// Returns the number of messages that were not as long as the model says. The last one may be shorter because of a limit.
    pub fn differing(&self) -> u64 {
        self.differing
    }

    /// Compares what arrived with the laws: times and lengths.
    pub fn fits(&self) -> Vec<LawFit> {
        self.driver.visible_fits()
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::Span;

    use super::*;
    use crate::{Application, Variable};

    fn items() -> ReceivedItems {
        let model = Application::named("voice").unwrap();
        let size_bytes = Variable::Constant(1_400.0);
        let pattern =
            Pattern::Application { model, variant: None, size_bytes, parameters: model.defaults(None) };
        let bounds = Bounds::new(32, 65_507);
        ReceivedItems::new(&pattern, bounds, Seed(1), "a-b").unwrap()
    }

    fn at(sequence: u64) -> Instant {
        Instant::ZERO + Span::from_ms(20) * sequence
    }

    #[test]
    fn a_jump_that_is_too_long_ends_the_comparison_and_records_nothing() {
        let mut items = items();
        (0..100).for_each(|sequence| items.record(sequence, 172, at(sequence)));
        let before = (items.fits(), items.differing());
        items.record(u64::MAX, 999, at(100));
        assert_eq!((items.stopped_at(), items.differing(), items.sequence), (Some(u64::MAX), before.1, 100));
        items.record(101, 999, at(101));
        assert_eq!(items.fits().len(), before.0.len());
        for (fit, before) in items.fits().iter().zip(&before.0) {
            assert_eq!(
                (fit.sent_mean, fit.goodness_of_fit.samples),
                (before.sent_mean, before.goodness_of_fit.samples)
            );
        }
    }

    /// Each of these jumps is shorter than the longest, but together they would draw a million messages for each that arrives.
    #[test]
    fn the_work_for_each_arrival_is_bounded() {
        let mut items = items();
        for jump in 1..10 {
            let sequence = jump * MOST_MISSING / 4;
            items.record(sequence, 172, at(sequence));
        }
        assert!(items.stopped_at().is_some());
        assert!(items.sequence < MOST_MISSING + 10 * MISSING_PER_ARRIVAL, "{}", items.sequence);
    }

    /// A line that loses 63 of 64 messages is compared to the end.
    #[test]
    fn losses_do_not_end_the_comparison() {
        let mut items = items();
        (0..50_000).for_each(|step| items.record(step * 64, 172, at(step * 64)));
        assert_eq!(items.stopped_at(), None);
    }
}
