//! What a [`Node`] is asked and what it tells.

use thiserror::Error;
use trunkline_endpoint::Peer;

use crate::Buffer;
#[cfg(doc)]
use crate::Node;
use crate::options::Options;
use crate::receive::Taken;
use crate::stages::Meter;
/// A connection of a [`Node`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// What a [`Node`] is asked to do.
#[derive(Debug)]
pub enum Command<'a> {
    /// Open a connection to `peer`; its number goes to `id`.
    Open {
        /// Whom to.
        peer: Peer,
        /// How it shall behave.
        options: &'a Options,
        /// Its number.
        id: &'a mut ConnectionId,
    },
    /// Send a copy of `bytes` as one message. Cheapest for small ones, which share frames.
    Send {
        /// Over which connection.
        id: ConnectionId,
        /// Over which of its channels, 0 to 65,534.
        channel: u16,
        /// The message.
        bytes: &'a [u8],
    },
    /// Send `message` itself, which is empty afterwards; if refused it is as before.
    HandOver {
        /// Over which connection.
        id: ConnectionId,
        /// Over which of its channels.
        channel: u16,
        /// The message.
        message: &'a mut Buffer,
    },
    /// Take the next message of a channel. To be repeated until there is [`Taken::Nothing`]: only then is more told.
    Take {
        /// From which connection.
        id: ConnectionId,
        /// From which of its channels.
        channel: u16,
        /// Where it goes, after what is there. A large message takes the place of an empty buffer, uncopied.
        into: &'a mut Buffer,
        /// What came.
        taken: &'a mut Taken,
    },
    /// Read what has arrived of a channel as a stream of bytes, without regard to messages.
    Read {
        /// From which connection.
        id: ConnectionId,
        /// From which of its channels.
        channel: u16,
        /// Where it goes.
        into: &'a mut [u8],
        /// How many bytes came; fewer than there was room for: only then is more told.
        read: &'a mut usize,
    },
    /// Channels of a higher priority send first; 0 to 7, at first 0.
    Prioritize {
        /// Of which connection.
        id: ConnectionId,
        /// Which of its channels.
        channel: u16,
        /// How urgent.
        priority: u8,
    },
    /// Measure from now on how long one in `every` takes, of messages and of frames, each way for itself.
    Measure {
        /// Of which connection, which stands.
        id: ConnectionId,
        /// At least 1.
        every: u32,
        /// With what; in place of an earlier one.
        meter: Box<dyn Meter>,
    },
    /// Send no more, but all that was taken. The connection is over when the peer has closed as well.
    Close {
        /// Which.
        id: ConnectionId,
    },
    /// End it at once. What is under way is lost, and the peer is told once.
    Reset {
        /// Which.
        id: ConnectionId,
    },
    /// Forget a connection that is over, and what has arrived of it and was not taken. One that is not over is reset.
    Forget {
        /// Which.
        id: ConnectionId,
    },
}

/// Why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// As much waits on the channel as may; [`News::Writable`] will tell.
    #[error("the channel is full")]
    Full,
    /// It is not open yet, over, or closed by its user.
    #[error("the connection is not open")]
    Closed,
    /// There is no such connection (any more).
    #[error("no such connection")]
    Unknown,
    /// Longer than [`MAX_MESSAGE`](crate::options::MAX_MESSAGE).
    #[error("a message has at most 1 GiB")]
    TooLong,
    /// Channel 65,535 is the connection's own.
    #[error("channels go from 0 to 65534")]
    Channel,
    /// There is a connection to that peer.
    #[error("there is a connection to that peer already")]
    Busy,
    /// There are as many connections as may be.
    #[error("too many connections")]
    TooMany,
    /// [`Check::Aead`](crate::Check::Aead) was asked for without a key.
    #[error("encryption needs a key")]
    NoKey,
}

/// What a [`Node`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Of which connection.
    pub id: ConnectionId,
    /// What.
    pub news: News,
}

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It stands: one that was asked for, or one that a peer opened.
    Opened {
        /// With whom.
        peer: Peer,
    },
    /// A channel on which nothing was to be taken has something.
    Readable {
        /// Which.
        channel: u16,
    },
    /// A channel that was full takes messages again.
    Writable {
        /// Which.
        channel: u16,
    },
    /// The peer sends no more, and all that it sent has arrived.
    Finished,
    /// It is over. What has arrived can still be taken, until it is forgotten.
    Closed {
        /// Why.
        end: End,
    },
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum End {
    /// Both ends closed it, and everything has arrived.
    #[error("closed by both ends")]
    Done,
    /// Reset here.
    #[error("reset")]
    Here,
    /// Reset by the peer.
    #[error("reset by the peer")]
    Peer,
    /// The peer said nothing for too long.
    #[error("the peer is silent")]
    Silent,
    /// The peer knows nothing of it (any more).
    #[error("the peer knows nothing of the connection: it was restarted")]
    Forgotten,
    /// The peer opened another.
    #[error("the peer opened another connection: it was restarted")]
    Replaced,
    /// The peer did what no peer may.
    #[error("the peer broke the protocol")]
    Violation,
    /// Nobody answered.
    #[error("nobody answers")]
    NoAnswer,
    /// The peer takes no more connections.
    #[error("the peer has no room for another connection")]
    RefusedFull,
    /// The peer takes no connections at all.
    #[error("the peer takes no connections")]
    RefusedClosed,
    /// The peer does not do what was asked: it encrypts and this end does not, or the other way round.
    #[error("the peer does not take these options")]
    RefusedTerms,
    /// The peer speaks another version of the protocol.
    #[error("the peer speaks another version")]
    RefusedVersion,
    /// The peer has another key.
    #[error("the peer has another key")]
    RefusedKey,
}

/// What strangers did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strangers {
    /// Frames of no connection that made no sense, or were damaged.
    pub frames: u64,
    /// Cookies given.
    pub cookies: u64,
    /// Frames with a cookie that was not theirs, or too old, or with a proof by another key.
    pub forged: u64,
    /// Answers not given because too many waited.
    pub unanswered: u64,
}
