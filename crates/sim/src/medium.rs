//! All media as one enum. Dispatch by enum avoids indirect calls in the event loop.

use trunkline_endpoint::{Arrival, Counters, Medium as _, Passage, Port};
use trunkline_models::atm::CellLink;
use trunkline_models::media::{Hub, Link, Ring, Switch};
use trunkline_units::Instant;

use crate::frame::Frame;

/// A medium of any kind.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are few media, and each frame asks one")]
pub enum Medium {
    /// A point-to-point link that carries packets.
    Link(Link<Frame>),
    /// A point-to-point link that carries ATM cells.
    Cells(CellLink<Frame>),
    /// A switch.
    Switch(Switch<Frame>),
    /// Shared Ethernet.
    Hub(Hub<Frame>),
    /// A token ring.
    Ring(Ring<Frame>),
}

macro_rules! dispatch {
    ($self:expr, $medium:ident => $does:expr) => {
        match $self {
            Medium::Link($medium) => $does,
            Medium::Cells($medium) => $does,
            Medium::Switch($medium) => $does,
            Medium::Hub($medium) => $does,
            Medium::Ring($medium) => $does,
        }
    };
}

impl Medium {
    /// See [`trunkline_endpoint::Medium::handle`].
    #[inline]
    pub fn handle(&mut self, now: Instant, input: Arrival<Frame>) {
        dispatch!(self, medium => medium.handle(now, input));
    }

    /// See [`trunkline_endpoint::Medium::poll`].
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Passage<Frame> {
        dispatch!(self, medium => medium.poll(now))
    }

    /// See [`trunkline_endpoint::Medium::room`].
    #[inline(always)]
    pub fn room(&mut self, now: Instant, port: Port, length: u32) -> bool {
        match self {
            Medium::Link(link) => link.room(now, port, length),
            other => other.other_room(now, port, length),
        }
    }

    #[inline(never)]
    fn other_room(&mut self, now: Instant, port: Port, length: u32) -> bool {
        dispatch!(self, medium => medium.room(now, port, length))
    }

    /// See [`trunkline_endpoint::Medium::counters`].
    pub fn counters(&self, port: Port) -> &Counters {
        dispatch!(self, medium => medium.counters(port))
    }
}
