//! Fast path of request and response: single messages directly from the caller to the socket, and from the socket to
//! the waiting caller.
//!
//! The endpoint uses its own [fast path](crate::connection). Here only repeated checks are skipped. Deadlines that
//! moved later are looked up when the earlier one expires.

use std::net::SocketAddr;

use trunkline_io::Datagrams;
use trunkline_units::Instant;

use super::{Core, MAX_UNPOLLED_BATCHES, MESSAGE_WEIGHT, send_observed};
use crate::connection::FastPathOutcome;
use crate::socket::link::ReceiveBuffers;
use crate::{Buffer, ConnectionId};

/// An established connection without partially received messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct FastConnection {
    pub id: ConnectionId,
    pub peer: SocketAddr,
}

/// Exchanges before the socket is connected for the first time.
const EXCHANGES_TO_CONNECT: u32 = 64;

/// A message on the direct way from the socket to the thread that waits for it.
#[derive(Debug)]
pub(super) struct DirectReceive {
    /// What the receiving thread waits for.
    awaited: Option<(ConnectionId, u16)>,
    /// The message, if it has arrived.
    message: Buffer,
    has_arrived: bool,
    /// Consecutive exchanges, and the number after which the socket is connected to the peer.
    exchanges: u32,
    connects_at: u32,
    /// The socket was connected, and a listener must now receive from other peers on a second one.
    has_connected: bool,
}

impl Default for DirectReceive {
    fn default() -> Self {
        DirectReceive {
            awaited: None,
            message: Buffer::new(),
            has_arrived: false,
            exchanges: 0,
            connects_at: EXCHANGES_TO_CONNECT,
            has_connected: false,
        }
    }
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

    /// Removes the stored connection.
    #[inline]
    pub(super) fn clear_fast_connection(&mut self, id: ConnectionId) {
        self.fast_connection.take_if(|fast| fast.id == id);
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
            || self.has_failed()
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

    /// Takes the message that was received directly for the calling thread, if there is one.
    #[inline]
    pub fn take_directly(&mut self, into: &mut Buffer) -> bool {
        let has_arrived = std::mem::take(&mut self.direct.has_arrived);
        if has_arrived {
            std::mem::swap(into, &mut self.direct.message);
        }
        has_arrived
    }

    /// Returns whether a caller that waits for a message of a channel has only to receive: no message is queued and no
    /// output is pending.
    #[inline]
    pub fn only_receives(&mut self, id: ConnectionId, channel: u16) -> bool {
        self.pending_weight == 0
            && !self.in_full_flow
            && self.failed.is_none()
            && self.fast_connection.as_ref().is_some_and(|fast| fast.id == id)
            && self.node.awaits_message(id, channel)
    }

    /// Sets the message that the receiving thread waits for.
    #[inline]
    pub fn await_message(&mut self, awaited: Option<(ConnectionId, u16)>) {
        self.direct.awaited = awaited;
    }

    /// Takes the received frame directly if it is exactly the awaited message; returns whether it was.
    #[inline]
    pub fn receive_directly(&mut self, now: Instant, socket: &Datagrams, buffers: &ReceiveBuffers) -> bool {
        let Some((id, channel)) = self.direct.awaited.take() else { return false };
        let is_received = self.receive_awaited(now, buffers, id, channel);
        if is_received {
            self.count_exchange(socket);
        } else {
            self.direct.exchanges = 0;
        }
        is_received
    }

    #[inline]
    fn receive_awaited(
        &mut self,
        now: Instant,
        buffers: &ReceiveBuffers,
        id: ConnectionId,
        channel: u16,
    ) -> bool {
        let Some((batch, frame)) = buffers.single_frame() else { return false };
        let is_from_peer = self
            .fast_connection
            .as_ref()
            .is_some_and(|fast| fast.id == id && fast.peer == batch.received.from);
        // Waiting `flush` calls depend on a regular transmission.
        if !is_from_peer || self.pending_weight > 0 || !self.flushing.is_empty() {
            return false;
        }
        match self.node.receive_message_outcome(now, frame, id, channel, &mut self.direct.message) {
            FastPathOutcome::NoMatch => return false,
            FastPathOutcome::Idle(deadline) => self.deadline = self.deadline.min(deadline),
            FastPathOutcome::Message => self.pending_weight += 2 * MESSAGE_WEIGHT,
        }
        (self.direct.has_arrived, self.unpolled_batches) = (true, 0);
        if self.probe.is_some() {
            self.observe_received(batch, frame);
        }
        true
    }

    /// Connects the socket to a peer after a series of exchanges with it alone. A wakeup of a waiting thread, or
    /// another peer, disconnects it; each time the required series is longer.
    #[inline]
    fn count_exchange(&mut self, socket: &Datagrams) {
        self.direct.exchanges = self.direct.exchanges.saturating_add(1);
        if self.direct.exchanges == self.direct.connects_at {
            self.connect_socket(socket);
        }
    }

    /// Connects the socket to the peer of the only connection. A listener then receives from other peers on a second,
    /// unconnected socket.
    #[cold]
    fn connect_socket(&mut self, socket: &Datagrams) {
        // If connecting fails, retry less and less often.
        self.direct.connects_at = self.direct.connects_at.saturating_mul(2);
        if let Some(FastConnection { peer, .. }) =
            self.fast_connection.filter(|_| self.connections.len() == 1)
        {
            self.direct.has_connected =
                if self.listens { socket.connect_with_unconnected(peer) } else { socket.connect(peer) };
        }
    }

    /// Returns, once, whether the socket was connected.
    #[inline]
    pub fn take_has_connected(&mut self) -> bool {
        std::mem::take(&mut self.direct.has_connected)
    }
}
