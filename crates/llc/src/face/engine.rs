//! A station, alone or in a ring. One that is alone is asked what it is asked most by calls of its own, which are what its
//! endpoint does, without the words that pass in and out of it.

use trunkline_endpoint::{Endpoint, Input, Output, Peer, Port, Transmit, Writable};
use trunkline_units::Instant;

use super::shared::Now;
use crate::station::{Handed, Left, Station, What};
use crate::talk::{Command, Event, Received, Refusal, Ticket};
use crate::token::{self, Ring};
use crate::wire::Address;

/// What it says.
pub(super) enum Said {
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

    /// [`Command::Send`]; if it may leave the short way, into `buffer`, where there is one.
    #[inline]
    pub fn send(
        &mut self,
        now: Instant,
        sap: u8,
        to: Address,
        bytes: &[u8],
        priority: Option<u8>,
        buffer: Option<&mut [u8]>,
    ) -> Result<(Ticket, Left), Refusal> {
        match (self, buffer) {
            (Engine::Alone(station), Some(buffer)) => {
                station.send_at_once(now, sap, to, bytes, priority, buffer)
            }
            (Engine::Alone(station), None) => Ok((station.send(now, sap, to, bytes, priority)?, Left::Not)),
            (engine @ Engine::Ring(_), _) => {
                let mut ticket = Ticket::default();
                engine.command(now, Command::Send { sap, to, bytes, priority, ticket: &mut ticket })?;
                Ok((ticket, Left::Not))
            }
        }
    }

    /// [`Command::Take`].
    #[inline]
    pub fn message(
        &mut self,
        now: &mut Now,
        sap: u8,
        into: &mut Vec<u8>,
    ) -> Result<Option<Received>, Refusal> {
        match self {
            Engine::Alone(station) => station.take(sap, into),
            engine @ Engine::Ring(_) => {
                let mut taken = None;
                engine.command(now.get(), Command::Take { sap, into, taken: &mut taken })?;
                Ok(taken)
            }
        }
    }

    /// When something is to be done next, after nothing but the short way was gone: so not in a ring.
    #[inline]
    pub fn deadline(&mut self) -> Instant {
        match self {
            Engine::Alone(station) => station.deadline().unwrap_or(Instant::MAX),
            Engine::Ring(_) => Instant::MAX,
        }
    }

    /// Wants to be in its ring, or out of it.
    pub fn belong(&mut self, now: Instant, wants: bool) {
        if let Engine::Ring(ring) = self {
            let command = if wants { token::Command::Join } else { token::Command::Leave };
            // A ring refuses neither.
            let _ = ring.handle(now, Input::Command(command));
        }
    }

    /// A frame of a station, 1 to 254. What comes of it may be handed out if there is a `buffer` for an answer: also a message
    /// for the SAP that is `wanted`.
    #[inline]
    pub fn take(
        &mut self,
        now: Instant,
        station: u8,
        bytes: &[u8],
        wanted: Option<u8>,
        buffer: Option<&mut [u8]>,
    ) -> Handed {
        match (self, buffer) {
            (Engine::Alone(alone), Some(buffer)) => {
                return alone.take_at_once(now, station, bytes, wanted, buffer);
            }
            (Engine::Alone(alone), None) => alone.take_from(now, station, bytes),
            (Engine::Ring(ring), _) => {
                let (port, peer) = (Port(0), Peer::new(&[station]));
                // Frames are never refused.
                let _ = ring.handle(now, Input::Frame { port, peer, bytes, segment: None });
            }
        }
        Handed { what: What::Nothing, answer: 0, more: true }
    }

    pub fn wake(&mut self, now: Instant) {
        let _ = match self {
            Engine::Alone(station) => station.handle(now, Input::Wake),
            Engine::Ring(ring) => ring.handle(now, Input::Wake),
        };
    }

    #[inline]
    pub fn poll(&mut self, now: Instant, buffer: &mut [u8]) -> Said {
        match self {
            Engine::Alone(station) => {
                if let Some(event) = station.event() {
                    Said::Event(event)
                } else if let Some(transmit) = station.transmit(now, buffer) {
                    Said::Transmit(transmit)
                } else {
                    Said::Idle(station.deadline())
                }
            }
            Engine::Ring(ring) => match ring.poll(now, Writable::ALL, buffer) {
                Output::Event(token::Event::Inner(event)) => Said::Event(event),
                Output::Event(event) => Said::Ring(of_ring(event)),
                Output::Transmit(transmit) => Said::Transmit(transmit),
                Output::Idle(idle) => Said::Idle(idle.deadline),
            },
        }
    }
}

/// The event of a ring itself.
fn of_ring(event: token::Event<Event>) -> token::Event<()> {
    match event {
        token::Event::Inner(_) => token::Event::Inner(()),
        token::Event::Joined { stations } => token::Event::Joined { stations },
        token::Event::Left => token::Event::Left,
        token::Event::Dropped => token::Event::Dropped,
        token::Event::Died { station } => token::Event::Died { station },
        token::Event::Repaired { how, took } => token::Event::Repaired { how, took },
        token::Event::Doubled => token::Event::Doubled,
    }
}
