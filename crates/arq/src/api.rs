//! Commands, events and errors of a [`Node`].

use thiserror::Error;
use trunkline_endpoint::Peer;

use crate::Buffer;
#[cfg(doc)]
use crate::Node;
use crate::options::Options;
use crate::receive::ReceiveStatus;
use crate::stages::Meter;

/// Identifies a connection of a [`Node`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// A command to a [`Node`].
#[derive(Debug)]
pub enum Command<'a> {
    /// Opens a connection to `peer` and sets `id`.
    Open {
        /// The peer.
        peer: Peer,
        /// Options of the connection.
        options: &'a Options,
        /// Set to the identifier of the connection.
        id: &'a mut ConnectionId,
    },
    /// Sends a copy of `bytes` as one message. Best for small messages, which share frames.
    Send {
        /// The connection.
        id: ConnectionId,
        /// The channel, 0 to 65,534.
        channel: u16,
        /// The message.
        bytes: &'a [u8],
    },
    /// Sends `message` without a copy and leaves it empty; on an error it is unchanged.
    SendOwned {
        /// The connection.
        id: ConnectionId,
        /// The channel.
        channel: u16,
        /// The message.
        message: &'a mut Buffer,
    },
    /// Takes the next message of a channel. Repeat until [`ReceiveStatus::Empty`]: only then the node reports
    /// further messages.
    Receive {
        /// The connection.
        id: ConnectionId,
        /// The channel.
        channel: u16,
        /// Buffer to append to. A large message replaces an empty buffer without a copy.
        buffer: &'a mut Buffer,
        /// Set to the result.
        status: &'a mut ReceiveStatus,
    },
    /// Reads a channel as a byte stream, without message boundaries.
    Read {
        /// The connection.
        id: ConnectionId,
        /// The channel.
        channel: u16,
        /// Destination.
        buffer: &'a mut [u8],
        /// Set to the number of bytes; if it is less than requested, further data will be reported.
        read: &'a mut usize,
    },
    /// Sets the priority of a channel, 0 to 7; higher ones send first. The default is 0.
    Prioritize {
        /// The connection.
        id: ConnectionId,
        /// The channel.
        channel: u16,
        /// The priority.
        priority: u8,
    },
    /// Measures the stages of one in `every` messages and frames, separately per direction.
    Measure {
        /// The open connection.
        id: ConnectionId,
        /// Sampling interval, at least 1.
        every: u32,
        /// The meter; replaces an earlier one.
        meter: Box<dyn Meter>,
    },
    /// Closes the sending direction after all accepted messages. The connection ends when the peer has closed too.
    Close {
        /// The connection.
        id: ConnectionId,
    },
    /// Resets the connection. Data in transit is lost, and the peer is notified once.
    Reset {
        /// The connection.
        id: ConnectionId,
    },
    /// Discards an ended connection and its unread messages. An open connection is reset.
    Forget {
        /// The connection.
        id: ConnectionId,
    },
}

/// Reason why a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The channel's send buffer is full; [`EventKind::Writable`] follows.
    #[error("the channel is full")]
    Full,
    /// The connection is not open, has ended, or is closed for sending.
    #[error("the connection is not open")]
    Closed,
    /// Unknown connection.
    #[error("no such connection")]
    Unknown,
    /// The message is longer than [`MAX_MESSAGE`](crate::options::MAX_MESSAGE).
    #[error("the message is longer than 1 GiB")]
    TooLong,
    /// Channel 65,535 is reserved.
    #[error("the channel is not between 0 and 65534")]
    Channel,
    /// A connection to that peer exists.
    #[error("a connection to this peer exists already")]
    Busy,
    /// The maximum number of connections is open.
    #[error("too many connections")]
    TooMany,
    /// The options select [`Check::Aead`](crate::Check::Aead) without a key.
    #[error("encryption needs a key")]
    NoKey,
}

/// An event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The connection.
    pub id: ConnectionId,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The connection is open, by request of either end.
    Opened {
        /// The peer.
        peer: Peer,
    },
    /// An empty channel has become readable.
    Readable {
        /// The channel.
        channel: u16,
    },
    /// A full channel accepts messages again.
    Writable {
        /// The channel.
        channel: u16,
    },
    /// The peer has closed, and everything it sent has arrived.
    Finished,
    /// The connection has ended. Received messages can be taken until it is forgotten.
    Closed {
        /// Reason of the end.
        reason: CloseReason,
    },
}

/// Reason why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CloseReason {
    /// Both ends closed, and everything has arrived.
    #[error("closed by both ends")]
    Completed,
    /// Reset by this end.
    #[error("reset")]
    LocalReset,
    /// Reset by the peer.
    #[error("reset by the peer")]
    PeerReset,
    /// The peer did not respond for too long.
    #[error("the peer does not respond")]
    PeerTimeout,
    /// The peer does not know the connection.
    #[error("the peer does not know the connection: it was restarted")]
    PeerRestarted,
    /// The peer opened a new connection.
    #[error("the peer opened another connection: it was restarted")]
    Replaced,
    /// The peer violated the protocol.
    #[error("the peer violated the protocol")]
    ProtocolViolation,
    /// The peer did not respond to the handshake.
    #[error("the handshake timed out")]
    HandshakeTimeout,
    /// The peer has too many connections.
    #[error("the peer has reached its maximum number of connections")]
    RefusedFull,
    /// The peer accepts no connections.
    #[error("the peer accepts no connections")]
    RefusedClosed,
    /// The peer does not accept the transport parameters: only one end encrypts.
    #[error("the peer does not accept these options")]
    RefusedParameters,
    /// The peer uses another version of the protocol.
    #[error("the peer uses another version of the protocol")]
    RefusedVersion,
    /// The peer has another key.
    #[error("the peer has another key")]
    RefusedKey,
}

/// Counters of frames from unknown peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnknownPeerStats {
    /// Frames that belong to no connection, malformed and damaged ones included.
    pub frames: u64,
    /// Cookies sent.
    pub cookies: u64,
    /// Frames with a wrong or expired cookie, or a proof by another key.
    pub forged: u64,
    /// Responses dropped because too many were queued.
    pub unanswered: u64,
}
