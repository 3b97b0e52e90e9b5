//! Any medium, by one name: dispatch by an enum, so that the loop has no indirect calls.

use trunkline_endpoint::{Arrival, Counters, Medium as _, Passage, Port};
use trunkline_models::atm::CellLink;
use trunkline_models::media::{Hub, Link, Ring, Switch};
use trunkline_units::Instant;

use crate::frame::Frame;

/// One of the media.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are few media, and each frame asks one")]
pub enum Medium {
    /// Point to point, packets.
    Link(Link<Frame>),
    /// Point to point, cells.
    Cells(CellLink<Frame>),
    /// A switch.
    Switch(Switch<Frame>),
    /// Shared Ethernet.
    Hub(Hub<Frame>),
    /// Token ring.
    Ring(Ring<Frame>),
}

macro_rules! each {
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
    /// As [`trunkline_endpoint::Medium::handle`].
    #[inline]
    pub fn handle(&mut self, now: Instant, input: Arrival<Frame>) {
        each!(self, medium => medium.handle(now, input));
    }

    /// As [`trunkline_endpoint::Medium::poll`].
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Passage<Frame> {
        each!(self, medium => medium.poll(now))
    }

    /// As [`trunkline_endpoint::Medium::room`].
    #[inline(always)]
    pub fn room(&mut self, now: Instant, port: Port, length: u32) -> bool {
        match self {
            Medium::Link(link) => link.room(now, port, length),
            other => other.other_room(now, port, length),
        }
    }

    #[inline(never)]
    fn other_room(&mut self, now: Instant, port: Port, length: u32) -> bool {
        each!(self, medium => medium.room(now, port, length))
    }

    /// As [`trunkline_endpoint::Medium::counters`].
    pub fn counters(&self, port: Port) -> &Counters {
        each!(self, medium => medium.counters(port))
    }
}
