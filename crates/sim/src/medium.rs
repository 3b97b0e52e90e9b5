//! All media as one enum. Dispatch by enum avoids indirect calls in the event loop.

use trunkline_endpoint::{Medium as _, MediumCounters, MediumInput, MediumOutput, Port};
use trunkline_models::atm::{CellFrame, CellLink, CreditLink};
use trunkline_models::media::{Hub, Link, Ring, Switch};
use trunkline_units::Instant;

use crate::frame::Frame;

/// A medium of any kind.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are few media")]
pub enum Medium<F = Frame> {
    /// A point-to-point link that carries packets.
    Link(Link<F>),
    /// A point-to-point link that carries ATM cells.
    Cells(CellLink<F>),
    /// A point-to-point link that carries ATM cells as credits permit.
    Credits(CreditLink<F>),
    /// A switch.
    Switch(Switch<F>),
    /// Shared Ethernet.
    Hub(Hub<F>),
    /// A token ring.
    Ring(Ring<F>),
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
impl<F: CellFrame> Medium<F> {
    /// Handles one input.
    #[inline]
    pub fn handle(&mut self, now: Instant, input: MediumInput<F>) {
        dispatch!(self, medium => medium.handle(now, input));
    }

    /// Returns the next output, until it is idle.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> MediumOutput<F> {
        dispatch!(self, medium => medium.poll(now))
    }

    /// Returns whether the queue at `port` has room for a frame of `length` bytes now.
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

    /// Returns what the medium carries, as records name it: `frames` or `cells`.
    pub fn unit(&self) -> &'static str {
        match self {
            Medium::Cells(_) | Medium::Credits(_) => "cells",
            _ => "frames",
        }
    }

    /// Returns the counters of the frames that the station at `port` has sent.
    pub fn counters(&self, port: Port) -> &MediumCounters {
        dispatch!(self, medium => medium.counters(port))
    }
}
