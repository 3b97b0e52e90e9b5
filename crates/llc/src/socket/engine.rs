//! A station, alone or in a ring. A station alone is called directly for the most frequent operations; the result
//! equals that of its endpoint.

use trunkline_endpoint::{Endpoint, Input, Output, Peer, Port, Transmit, Writable};
use trunkline_units::Instant;

use crate::api::{Command, Event, Received, Refusal, Ticket};
use crate::station::{FastPathOutput, FastPathResult, SendResult, Station};
use crate::token::{self, Ring};
use crate::wire::Address;

/// What a waiting thread waits for. The receiving thread takes it directly, without queueing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitTarget {
    /// The next message of a SAP.
    Message(u8),
    /// The outcome of the thread's own message.
    End(Ticket),
}

pub(super) enum EngineOutput {
    Event(Event),
    Ring(token::Event<()>),
    Transmit(Transmit),
    Idle(Option<Instant>),
}

#[derive(Debug)]
pub(super) enum Engine {
    Alone(Box<Station>),
    Ring(Box<Ring<Station>>),
}

impl Engine {
    pub fn station(&self) -> &Station {
        match self {
            Engine::Alone(station) => station,
            Engine::Ring(ring) => ring.inner(),
        }
    }

    #[inline]
    pub fn command(&mut self, now: Instant, command: Command<'_>) -> Result<(), Refusal> {
        match self {
            Engine::Alone(station) => station.handle(now, Input::Command(command)),
            Engine::Ring(ring) => ring.handle(now, Input::Command(token::Command::Inner(command))),
        }
    }

    /// [`Command::Send`], by the fast path into `buffer` if possible.
    #[inline]
    pub fn send(
        &mut self,
        now: Instant,
        sap: u8,
        to: Address,
        bytes: &[u8],
        priority: Option<u8>,
        buffer: Option<&mut [u8]>,
    ) -> Result<(Ticket, SendResult), Refusal> {
        match (self, buffer) {
            (Engine::Alone(station), Some(buffer)) => {
                station.send_fast(now, sap, to, bytes, priority, buffer)
            }
            (Engine::Alone(station), None) => {
                Ok((station.send(now, sap, to, bytes, priority)?, SendResult::Not))
            }
            (engine @ Engine::Ring(_), _) => {
                let mut ticket = Ticket::default();
                engine.command(now, Command::Send { sap, to, bytes, priority, ticket: &mut ticket })?;
                Ok((ticket, SendResult::Not))
            }
        }
    }

    /// [`Command::Take`].
    #[inline]
    pub fn message(
        &mut self,
        now: Instant,
        sap: u8,
        into: &mut Vec<u8>,
    ) -> Result<Option<Received>, Refusal> {
        match self {
            Engine::Alone(station) => station.take(sap, into),
            engine @ Engine::Ring(_) => {
                let mut taken = None;
                engine.command(now, Command::Take { sap, into, taken: &mut taken })?;
                Ok(taken)
            }
        }
    }

    /// Returns the next deadline after only fast-path calls; not for a ring.
    #[inline]
    pub fn deadline(&mut self) -> Instant {
        match self {
            Engine::Alone(station) => station.deadline().unwrap_or(Instant::MAX),
            Engine::Ring(_) => Instant::MAX,
        }
    }

    /// Joins or leaves the ring.
    pub fn set_membership(&mut self, now: Instant, wants: bool) {
        if let Engine::Ring(ring) = self {
            let command = if wants { token::Command::Join } else { token::Command::Leave };
            // A ring refuses neither command.
            let _ = ring.handle(now, Input::Command(command));
        }
    }

    /// Processes a frame of a station, 1 to 254. With a `buffer` for a response, output is returned directly,
    /// including a message for the SAP that is `wanted`.
    #[inline]
    pub fn take(
        &mut self,
        now: Instant,
        station: u8,
        bytes: &[u8],
        wanted: Option<u8>,
        buffer: Option<&mut [u8]>,
    ) -> FastPathResult {
        match (self, buffer) {
            (Engine::Alone(alone), Some(buffer)) => {
                return alone.receive_fast(now, station, bytes, wanted, buffer);
            }
            (Engine::Alone(alone), None) => alone.take_from(now, station, bytes),
            (Engine::Ring(ring), _) => {
                let (port, peer) = (Port(0), Peer::new(&[station]));
                // Only commands are refused.
                let _ = ring.handle(now, Input::Frame { port, peer, bytes, segment: None });
            }
        }
        FastPathResult { what: FastPathOutput::Nothing, answer: 0, more: true }
    }

    pub fn wake(&mut self, now: Instant) {
        let _ = match self {
            Engine::Alone(station) => station.handle(now, Input::Wake),
            Engine::Ring(ring) => ring.handle(now, Input::Wake),
        };
    }

    #[inline]
    pub fn poll(&mut self, now: Instant, buffer: &mut [u8]) -> EngineOutput {
        match self {
            Engine::Alone(station) => {
                if let Some(event) = station.event() {
                    EngineOutput::Event(event)
                } else if let Some(transmit) = station.transmit(now, buffer) {
                    EngineOutput::Transmit(transmit)
                } else {
                    EngineOutput::Idle(station.deadline())
                }
            }
            Engine::Ring(ring) => match ring.poll(now, Writable::ALL, buffer) {
                Output::Event(token::Event::Inner(event)) => EngineOutput::Event(event),
                Output::Event(event) => EngineOutput::Ring(event.map(drop)),
                Output::Transmit(transmit) => EngineOutput::Transmit(transmit),
                Output::Idle(idle) => EngineOutput::Idle(idle.deadline),
            },
        }
    }
}
