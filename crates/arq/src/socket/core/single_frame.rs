//! Fast path of request and response: single messages directly from the caller to the socket, and from the socket to
//! the waiting caller.
//!
//! The endpoint uses its own [fast path](crate::connection). Here only repeated checks are skipped. Deadlines that
//! moved later are looked up when the earlier one expires.

use std::net::SocketAddr;

use trunkline_io::Datagrams;
use trunkline_units::Instant;

use super::receive_buffers::ReceiveBuffers;
use super::send_frames::send_observed;
use super::{Core, MAX_UNPOLLED_BATCHES, MESSAGE_WEIGHT};
use crate::connection::FastPathOutcome;
use crate::{Buffer, ConnectionId};

/// An established connection without partially received messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct FastConnection {
    pub id: ConnectionId,
    pub peer: SocketAddr,
}

impl Core {
    /// Returns whether the first deadline has expired. A recorded deadline that has moved since is looked up again.
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

    /// Stores a connection to which the fast path applies.
    #[inline]
    pub(super) fn set_fast_connection(&mut self, id: ConnectionId) {
        if self.fast_connection.is_none_or(|fast| fast.id != id) {
            let connection = self
                .connections
                .get(&id)
                .filter(|connection| connection.open && connection.partial_messages.is_empty());
            self.fast_connection =
                connection.and_then(|connection| connection.peer).map(|peer| FastConnection { id, peer });
        }
    }

    #[inline]
    pub(super) fn clear_fast_connection(&mut self, id: ConnectionId) {
        self.fast_connection.take_if(|fast| fast.id == id);
    }

    /// Connects the socket to the peer of the only connection, if the fast path applies to it; returns whether it
    /// did. A listener then receives from other peers on the unconnected socket.
    pub fn connect_socket(&self, socket: &Datagrams) -> bool {
        let Some(FastConnection { peer, .. }) = self.fast_connection.filter(|_| self.connections.len() == 1)
        else {
            return false;
        };
        if self.listens { socket.connect_with_unconnected(peer) } else { socket.connect(peer) }
    }

    /// Sends a message immediately in one frame, if that is the only output; returns whether it did.
    #[inline]
    pub fn send_directly(
        &mut self,
        now: Instant,
        socket: &Datagrams,
        id: ConnectionId,
        channel: u16,
        bytes: &[u8],
    ) -> bool {
        if self.is_due(now)
            || self.unpolled_batches >= MAX_UNPOLLED_BATCHES
            || self.unsent.is_some()
            || self.failed.is_some()
        {
            return false;
        }
        let Some(fast) = self.fast_connection.as_ref().filter(|fast| fast.id == id) else { return false };
        let sent = self.node.send_message(now, id, channel, bytes, &mut self.output);
        let Some((length, deadline)) = sent else { return false };
        let frame = &self.output[..length];
        let unsent = send_observed(&mut self.probe, self.clock, socket, &fast.peer, frame, None);
        if unsent.is_some() {
            self.unsent = unsent;
        }
        self.unpolled_batches += 1;
        (self.pending_weight, self.transmitted_at, self.in_full_flow) = (0, now, false);
        self.deadline = self.deadline.min(deadline);
        true
    }

    /// Returns whether a caller that waits for a message of a channel has only to receive: no message is queued and
    /// no output is pending.
    #[inline]
    pub fn can_take_directly(&mut self, id: ConnectionId, channel: u16) -> bool {
        self.pending_weight == 0
            && !self.in_full_flow
            && self.buffers.is_some()
            && self.failed.is_none()
            && !self.is_interrupted
            && self.fast_connection.as_ref().is_some_and(|fast| fast.id == id)
            && self.node.awaits_message(id, channel)
    }

    /// Takes the received frame if it is exactly the awaited message; returns whether it was.
    #[inline]
    pub fn take_directly(
        &mut self,
        now: Instant,
        buffers: &ReceiveBuffers,
        id: ConnectionId,
        channel: u16,
        into: &mut Buffer,
    ) -> bool {
        let arrived = &buffers.arrived[0];
        let fast =
            self.fast_connection.as_ref().is_some_and(|fast| fast.id == id && fast.peer == arrived.from);
        if !fast || buffers.count != 1 || self.pending_weight > 0 || arrived.stride < arrived.length {
            return false;
        }
        // Waiting `flush` calls depend on a regular transmission.
        if !self.flushing.is_empty() {
            return false;
        }
        let frame = &buffers.bytes[..arrived.length];
        match self.node.receive_message_outcome(now, frame, id, channel, into) {
            FastPathOutcome::NoMatch => return false,
            FastPathOutcome::Idle(deadline) => self.deadline = self.deadline.min(deadline),
            FastPathOutcome::Message => self.pending_weight += 2 * MESSAGE_WEIGHT,
        }
        if self.probe.is_some() {
            self.observe_received(arrived, frame, buffers.calls[0]);
        }
        self.unpolled_batches = 0;
        true
    }
}
