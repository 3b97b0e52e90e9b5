//! Question and answer: a message at a time, straight from its sender to the socket, and from the socket to who waits.
//!
//! Nothing of that is new to the endpoint, which takes its own [short way](crate::connection): only what is known
//! beforehand is not asked for again. Deadlines that move later are looked at when the first has come.

use std::net::SocketAddr;

use trunkline_io::Datagrams;
use trunkline_units::Instant;

use super::{A_LITTLE, Core, DEAF, Rooms, put};
use crate::connection::FastPathOutcome;
use crate::{Buffer, ConnectionId};

/// A connection that stands, of which no part of a message waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plain {
    pub id: ConnectionId,
    pub peer: SocketAddr,
}

impl Core {
    /// Whether the first deadline has come. One that was noted and has moved since is looked up again.
    #[inline]
    pub fn is_due(&mut self, now: Instant) -> bool {
        if self.deadline <= now {
            self.look_up_deadline();
        }
        self.deadline <= now
    }

    #[cold]
    fn look_up_deadline(&mut self) {
        if self.failed.is_none() {
            self.deadline = self.node.next_deadline().unwrap_or(Instant::MAX);
        }
    }

    /// Remembers a connection that may be handled briefly.
    #[inline]
    pub(super) fn note_plain(&mut self, id: ConnectionId) {
        if self.plain.is_none_or(|plain| plain.id != id) {
            let user = self.users.get(&id).filter(|user| user.open && user.parts.is_empty());
            self.plain = user.and_then(|user| user.peer).map(|peer| Plain { id, peer });
        }
    }

    /// The same connection is no longer one of those.
    #[inline]
    pub(super) fn forget_plain(&mut self, id: ConnectionId) {
        self.plain.take_if(|plain| plain.id == id);
    }

    /// Connects the socket to the peer of the only connection there is, if it may be handled briefly; whether it did. Where
    /// others may come they are then heard at the door.
    pub fn connect_socket(&self, socket: &Datagrams) -> bool {
        let Some(Plain { peer, .. }) = self.plain.filter(|_| self.users.len() == 1) else { return false };
        if self.listens { socket.connect_with_unconnected(peer) } else { socket.connect(peer) }
    }

    /// Sends a message at once in a frame of its own, if that is all there is to say; whether it did.
    #[inline]
    pub fn send_at_once(
        &mut self,
        now: Instant,
        socket: &Datagrams,
        id: ConnectionId,
        channel: u16,
        bytes: &[u8],
    ) -> bool {
        if self.is_due(now) || self.sent >= DEAF || self.held.is_some() || self.has_failed() {
            return false;
        }
        let Some(plain) = self.plain.as_ref().filter(|plain| plain.id == id) else { return false };
        let said = self.node.send_message(now, id, channel, bytes, &mut self.output);
        let Some((length, deadline)) = said else { return false };
        if let held @ Some(_) = put(socket, &plain.peer, &self.output[..length], None) {
            self.held = held;
        }
        self.sent += 1;
        (self.unsaid, self.spoke, self.flows) = (0, now, false);
        self.deadline = self.deadline.min(deadline);
        true
    }

    /// Whether somebody who waits for a message of a channel finds nothing there, and nothing else is to be done than to
    /// receive.
    #[inline]
    pub fn awaits(&mut self, id: ConnectionId, channel: u16) -> bool {
        self.unsaid == 0
            && !self.flows
            && self.rooms.is_some()
            && self.failed.is_none()
            && self.plain.as_ref().is_some_and(|plain| plain.id == id)
            && self.node.awaits_message(id, channel)
    }

    /// Takes what was received if that is the message which somebody waits for and nothing else; whether it was.
    #[inline]
    pub fn take_at_once(
        &mut self,
        now: Instant,
        rooms: &Rooms,
        id: ConnectionId,
        channel: u16,
        into: &mut Buffer,
    ) -> bool {
        let arrived = &rooms.arrived[0];
        let plain = self.plain.as_ref().is_some_and(|plain| plain.id == id && plain.peer == arrived.from);
        if !plain || rooms.count != 1 || self.unsaid > 0 || arrived.stride < arrived.length {
            return false;
        }
        // Who waits until all has been acknowledged is told by the endpoint's speaking only.
        if !self.flushing.is_empty() {
            return false;
        }
        let frame = &rooms.bytes[..arrived.length];
        match self.node.receive_message_outcome(now, frame, id, channel, into) {
            FastPathOutcome::NoMatch => return false,
            FastPathOutcome::Idle(deadline) => self.deadline = self.deadline.min(deadline),
            FastPathOutcome::Message => self.unsaid += 2 * A_LITTLE,
        }
        self.sent = 0;
        true
    }
}
