//! All media as one enum. Dispatch by enum avoids indirect calls in the event loop.

use trunkline_endpoint::{Medium as _, MediumCounters, MediumInput, MediumOutput, Port};
use trunkline_models::atm::{CellLink, CreditLink};
use trunkline_models::media::{Hub, Link, Ring, Switch};
use trunkline_units::Instant;

use crate::frame::Frame;

/// A medium of any kind.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are few media")]
pub enum Medium {
    /// A point-to-point link that carries packets.
    Link(Link<Frame>),
    /// A point-to-point link that carries ATM cells.
    Cells(CellLink<Frame>),
    /// A point-to-point link that carries ATM cells as credits permit.
    Credits(CreditLink<Frame>),
    /// A switch.
    Switch(Switch<Frame>),
    /// Shared Ethernet.
    Hub(Hub<Frame>),
    /// A token ring.
    Ring(Ring<Frame>),
}

macro_rules! dispatch {
    ($self:expr, $medium:ident => $call:expr) => {
        match $self {
            Medium::Link($medium) => $call,
            Medium::Cells($medium) => $call,
            Medium::Credits($medium) => $call,
            Medium::Switch($medium) => $call,
            Medium::Hub($medium) => $call,
            Medium::Ring($medium) => $call,
        }
    };
}

/// The calls of [`trunkline_endpoint::Medium`].
impl Medium {
    #[inline]
    pub fn handle(&mut self, now: Instant, input: MediumInput<Frame>) {
        dispatch!(self, medium => medium.handle(now, input));
    }

    #[inline]
    pub fn poll(&mut self, now: Instant) -> MediumOutput<Frame> {
        dispatch!(self, medium => medium.poll(now))
    }

    #[inline(always)]
    pub fn has_room(&mut self, now: Instant, port: Port, length: u32) -> bool {
        match self {
            Medium::Link(link) => link.has_room(now, port, length),
            other => other.has_room_outlined(now, port, length),
        }
    }

    #[inline(never)]
    fn has_room_outlined(&mut self, now: Instant, port: Port, length: u32) -> bool {
        dispatch!(self, medium => medium.has_room(now, port, length))
    }

    /// Returns whether the send queue of a channel has room for a frame, where each channel has one.
    #[inline]
    pub fn channel_has_room(&self, port: Port, channel: u16) -> bool {
        match self {
            Medium::Credits(link) => link.channel_has_room(port, channel),
            _ => true,
        }
    }

    pub fn counters(&self, port: Port) -> &MediumCounters {
        dispatch!(self, medium => medium.counters(port))
    }
}
