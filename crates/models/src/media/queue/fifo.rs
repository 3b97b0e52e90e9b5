//! Frames in order of arrival.

use std::collections::VecDeque;

use trunkline_endpoint::Frame;
use trunkline_units::{Instant, Span};

/// A frame with the time at which it was queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued<F> {
    /// When it was queued.
    pub at: Instant,
    /// The frame.
    pub frame: F,
}

/// A queue in order of arrival.
#[derive(Clone, Debug)]
pub struct Fifo<F> {
    frames: VecDeque<Queued<F>>,
    bytes: u64,
}

impl<F> Default for Fifo<F> {
    fn default() -> Self {
        Fifo { frames: VecDeque::new(), bytes: 0 }
    }
}

impl<F: Frame> Fifo<F> {
    /// Appends a frame.
    pub fn push(&mut self, at: Instant, frame: F) {
        self.bytes += u64::from(frame.length());
        self.frames.push_back(Queued { at, frame });
    }

    /// Removes the oldest frame.
    pub fn pop(&mut self) -> Option<Queued<F>> {
        let first = self.frames.pop_front()?;
        self.bytes -= u64::from(first.frame.length());
        Some(first)
    }

    /// Removes the newest frame.
    pub fn pop_newest(&mut self) -> Option<Queued<F>> {
        let last = self.frames.pop_back()?;
        self.bytes -= u64::from(last.frame.length());
        Some(last)
    }

    /// Returns the oldest frame.
    pub fn first(&self) -> Option<&Queued<F>> {
        self.frames.front()
    }

    /// Returns for how long the oldest frame has waited; zero without one.
    pub fn delay(&self, now: Instant) -> Span {
        self.frames.front().map_or(Span::ZERO, |first| now.since(first.at))
    }

    /// Returns the number of frames.
    pub fn frames(&self) -> u64 {
        self.frames.len() as u64
    }

    /// Returns the sum of their lengths.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}
