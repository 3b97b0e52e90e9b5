//! Events of a node, why a connection has ended, and why a command is refused.

use quinn_proto::{ConnectionError, TransportErrorCode, VarInt};

/// An event of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The handshake is complete.
    Connected,
    /// A stream may have data, or has ended.
    Readable {
        /// Its number.
        stream: u32,
    },
    /// Datagrams have arrived.
    DatagramsReadable,
    /// There is room to send after a command found none.
    Writable,
    /// The peer has acknowledged everything on the streams, including their ends.
    Delivered,
    /// The connection has ended.
    Closed(CloseReason),
}

/// Why a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No connection is open.
    #[error("no connection is open")]
    NotConnected,
    /// A server does not connect, and a client does so once.
    #[error("this end does not connect")]
    NoClient,
    /// The connection has no stream of this number.
    #[error("the connection has no stream of this number")]
    UnknownStream,
    /// The stream or connection accepts no more data.
    #[error("the stream has ended")]
    Ended,
    /// The message does not fit into a packet.
    #[error("the message does not fit into a packet")]
    TooLong,
}

/// The alert `access_denied` (RFC 8446 section 6.2), with which a client refuses the key of a server.
const ACCESS_DENIED: u8 = 49;

/// Why a connection has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The peer has closed it.
    #[error("the peer closed the connection")]
    Completed,
    /// The peer has been silent for 30 s.
    #[error("the peer did not respond")]
    TimedOut,
    /// The peer does not know the connection.
    #[error("the peer reset the connection")]
    Reset,
    /// The server has another key than the client expects.
    #[error("the receiver's key is not the one that its host reported")]
    WrongKey,
    /// A peer that ended a stream or the connection, or an error of the protocol.
    #[error("QUIC: {0}")]
    Failed(String),
}

impl From<ConnectionError> for CloseReason {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::ApplicationClosed(close) if close.error_code == VarInt::from_u32(0) => {
                CloseReason::Completed
            }
            ConnectionError::LocallyClosed => CloseReason::Completed,
            ConnectionError::TimedOut => CloseReason::TimedOut,
            ConnectionError::Reset => CloseReason::Reset,
            ConnectionError::TransportError(error)
                if error.code == TransportErrorCode::crypto(ACCESS_DENIED) =>
            {
                CloseReason::WrongKey
            }
            error => CloseReason::Failed(error.to_string()),
        }
    }
}
