//! A station, alone or in a ring.

use trunkline_endpoint::{Endpoint, Input, Output, Peer, Port, Transmit, Writable};
use trunkline_units::Instant;

use crate::station::Station;
use crate::talk::{Command, Event, Refusal};
use crate::token::{self, Ring};

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

    /// Wants to be in its ring, or out of it.
    pub fn belong(&mut self, now: Instant, wants: bool) {
        if let Engine::Ring(ring) = self {
            let command = if wants { token::Command::Join } else { token::Command::Leave };
            // A ring refuses neither.
            let _ = ring.handle(now, Input::Command(command));
        }
    }

    #[inline]
    pub fn take(&mut self, now: Instant, station: u8, bytes: &[u8]) {
        let (port, peer) = (Port(0), Peer::new(&[station]));
        // Frames are never refused.
        let _ = match self {
            Engine::Alone(alone) => alone.handle(now, Input::Frame { port, peer, bytes, segment: None }),
            Engine::Ring(ring) => ring.handle(now, Input::Frame { port, peer, bytes, segment: None }),
        };
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
            Engine::Alone(station) => match station.poll(now, Writable::ALL, buffer) {
                Output::Event(event) => Said::Event(event),
                Output::Transmit(transmit) => Said::Transmit(transmit),
                Output::Idle(idle) => Said::Idle(idle.deadline),
            },
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
