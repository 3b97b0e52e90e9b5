//! A path that carries no frame longer than so much, which changes.

use trunkline_endpoint::{Endpoint, Input, Output, Segment, Writable};
use trunkline_units::Instant;

/// An endpoint whose longer frames are lost, without a word.
#[derive(Debug)]
pub struct Narrow<E> {
    inner: E,
    /// From when on, and how long frames may be.
    carries: Vec<(Instant, usize)>,
}

impl<E> Narrow<E> {
    /// Each of `carries` holds until the next, of two of one moment the last; before the first there is no bound.
    pub fn new(inner: E, carries: Vec<(Instant, usize)>) -> Narrow<E> {
        assert!(carries.is_sorted_by_key(|(from, _)| *from));
        Narrow { inner, carries }
    }

    pub fn inner(&self) -> &E {
        &self.inner
    }

    pub fn inner_mut(&mut self) -> &mut E {
        &mut self.inner
    }

    /// How long a frame may be now.
    pub fn carries(&self, now: Instant) -> usize {
        self.carries.iter().rev().find(|(from, _)| *from <= now).map_or(usize::MAX, |(_, length)| *length)
    }
}

impl<E: Endpoint> Endpoint for Narrow<E> {
    type Command<'a> = E::Command<'a>;
    type Event = E::Event;
    type Refusal = E::Refusal;

    fn handle(&mut self, now: Instant, input: Input<'_, E::Command<'_>>) -> Result<(), E::Refusal> {
        self.inner.handle(now, input)
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<E::Event> {
        let carries = self.carries(now);
        loop {
            let mut t = match self.inner.poll(now, writable, buffer) {
                Output::Transmit(t) => t,
                other => return other,
            };
            let (mut from, mut to) = (0, 0);
            let length = t.segment.map_or(t.length, Segment::length).max(1);
            while from < t.length {
                let end = (from + length).min(t.length);
                if end - from <= carries {
                    buffer.copy_within(from..end, to);
                    to += end - from;
                }
                from = end;
            }
            if to > 0 {
                (t.length, t.segment) = (to, t.segment.and_then(|s| Segment::of(s.length(), to)));
                return Output::Transmit(t);
            }
        }
    }
}
