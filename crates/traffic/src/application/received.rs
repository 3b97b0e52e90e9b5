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

/// A message that is further ahead than this ends the comparison: the receiver would have to draw all messages between.
const LONGEST_JUMP: u64 = 1 << 20;

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
    ended: bool,
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
            ended: false,
        })
    }

    /// Records a message that arrived at `now`. Late and duplicate messages are ignored.
    pub fn record(&mut self, sequence: u64, length: u32, now: Instant) {
        if self.ended || sequence < self.sequence {
            return;
        }
        self.ended = sequence - self.sequence > LONGEST_JUMP;
        while !self.ended && self.sequence < sequence {
            self.step(None);
        }
        self.step(Some((length, now)));
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
