//! The loop of every driver: poll until idle.

use trunkline_units::Instant;

use crate::{Endpoint, Idle, Output, Transmit, Writable};

/// The destination of an endpoint's output.
pub trait Sink<E> {
    /// Returns the ports that accept a frame now. `drain` calls it before every poll, since sending may fill a port.
    fn writable(&self) -> Writable<'_>;

    /// Sends `bytes`, which are `transmit.length` long. A frame that cannot be sent is lost: the endpoint keeps no copy.
    fn transmit(&mut self, transmit: &Transmit, bytes: &[u8]);

    /// Takes an event.
    fn event(&mut self, event: E);
}

/// Polls `endpoint` at `now` until it is idle, and returns its [`Idle`]. Returns none after more than `limit` outputs,
/// so that an endpoint that can send for ever does not keep its driver from receiving.
///
/// `buffer` has at least [`MAX_BATCH`](crate::MAX_BATCH) bytes; any number of endpoints may share it.
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
