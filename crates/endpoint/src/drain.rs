//! The loop that every driver has: poll until idle.

use trunkline_units::Instant;

use crate::{Endpoint, Idle, Output, Transmit, Writable};

/// Where the output of an endpoint goes.
pub trait Sink<E> {
    /// The ports that take a frame now. Asked before every poll, since sending may fill one.
    fn writable(&self) -> Writable<'_>;

    /// Sends `bytes`, which are `transmit.length` long. What cannot be sent is lost; the endpoint has forgotten it.
    fn transmit(&mut self, transmit: &Transmit, bytes: &[u8]);

    /// Takes an event.
    fn event(&mut self, event: E);
}

/// Polls `endpoint` at `now` until it is idle, and says what it waits for then; none if it had more than `limit`
/// things to say, so that a machine that can send for ever does not keep its driver from listening.
///
/// `buffer` has at least [`MAX_BATCH`](crate::MAX_BATCH) bytes; one may serve any number of endpoints.
pub fn drain<E: Endpoint>(
    endpoint: &mut E,
    now: Instant,
    limit: usize,
    buffer: &mut [u8],
    sink: &mut impl Sink<E::Event>,
) -> Option<Idle> {
    for _ in 0..=limit {
        match endpoint.poll(now, sink.writable(), buffer) {
            Output::Transmit(transmit) => sink.transmit(&transmit, &buffer[..transmit.length]),
            Output::Event(event) => sink.event(event),
            Output::Idle(idle) => return Some(idle),
        }
    }
    None
}
