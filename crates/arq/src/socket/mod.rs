//! The transport over UDP sockets: blocking, as a stream of bytes, and for `tokio`.
//!
//! | module | contents |
//! | --- | --- |
//! | [`blocking`] | [`Listener`] and [`Connection`], for threads |
//! | [`stream`] | [`Stream`], a channel without message boundaries, as [`std::io::Read`] and [`std::io::Write`] |
//! | `tokio` | feature `tokio`: [`Listener`] and [`Connection`] with futures |
//! | `shared` | the blocking socket in the [event loop](trunkline_io::shared_loop) of threads |
//! | `core` | the endpoint and the state of its connections |
//!
//! An echo server and a client:
//!
//! ```
//! use trunkline_arq::Options;
//! use trunkline_arq::socket::{Connection, Error, Listener};
//!
//! fn main() -> Result<(), Error> {
//!     let listener = Listener::bind("127.0.0.1:0", &Options::default())?;
//!     let address = listener.address();
//!     let server = std::thread::spawn(move || {
//!         let client = listener.accept()?;
//!         while let Ok((channel, question)) = client.recv_any() {
//!             client.send_buffer(channel, question)?;
//!         }
//!         client.close()
//!     });
//!     let connection = Connection::connect(address, &Options::default())?;
//!     connection.send(7, b"hello")?;
//!     assert_eq!(*connection.recv(7)?, *b"hello");
//!     connection.close()?;
//!     server.join().expect("the server thread panicked")
//! }
//! ```
//!
//! # Queues
//!
//! [`Options`] bounds the messages that wait to be sent and those that have arrived, by channel. In addition a
//! connection holds parts of messages longer than the credit, at most [`Settings::max_message`] bytes, and bytes of
//! incomplete [`Stream::try_read_exact`] calls. Connections that are not accepted yet count towards
//! [`Settings::max_connections`]; further peers are refused.
//!
//! # Memory
//!
//! Every message is returned in a [`Buffer`](crate::Buffer) aligned to 64 bytes. Its bytes are copied once, from the
//! frames. A message with its own frames is returned in the buffer in which it was assembled; small messages that
//! shared a frame are copied from it, and messages longer than a quarter of their channel's credit are assembled from
//! parts. A buffer that is sent is kept until the peer has acknowledged all of it, and copied once, into the frames.
//! A message sent by reference is copied first, and from there into the frames; in full flow a long message is copied
//! directly into its frames.
//!
//! # Threads
//!
//! A waiting thread receives; if several wait, one of them receives for all. A second thread of each socket keeps the
//! deadlines, and receives only while no other thread does. It ends with the last handle and the last connection.
//! Over IPv4 a client's socket is connected to its peer, which saves time in each round trip; so is a listener's
//! after a long series of exchanges with a single peer. The listener then receives from other peers on a second
//! socket with the same address. The connection is undone when another peer sends, or when a waiting thread must be
//! woken, and is repeated a few times after longer and longer series. In full flow the last messages may be delayed
//! by up to about a millisecond, if the sender does not [flush](Connection::flush).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;
use trunkline_io::Clock;

use crate::{CloseReason, Faults, Options, Refusal};

pub mod blocking;
mod core;
mod shared;
pub mod stream;
#[cfg(feature = "tokio")]
pub mod tokio;

#[cfg(test)]
mod tests;

pub use blocking::{Connection, Listener};
pub use stream::Stream;

/// Settings of a socket, independent of its connections.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Maximum number of connections opened by either end.
    pub max_connections: usize,
    /// Requested size of the socket's send and receive buffers in bytes; the system may grant less.
    pub socket_buffer: usize,
    /// Differentiated services code point of sent packets, 0 to 63; none: the system's default.
    pub dscp: Option<u8>,
    /// Maximum length of a message assembled from parts, and of all parts of a connection together, in bytes. A peer
    /// that sends more is reset. Messages up to a quarter of their channel's credit are not assembled from parts and
    /// do not count.
    pub max_message: usize,
    /// Forbids fragmentation: packets longer than the path MTU are lost, which makes the MTU measurable. Implied if
    /// the options [probe](Options::probe_up_to).
    pub probe_mtu: bool,
    /// The local address of a connecting socket; none: any address and port.
    pub local: Option<SocketAddr>,
    /// The clock, whose time [meters](crate::Meter) and [probes](trunkline_io::Probe) receive.
    pub clock: Clock,
    /// Faults to inject into the frames that the socket sends.
    pub faults: Option<Faults>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            max_connections: 1024,
            socket_buffer: 4 << 20,
            dscp: None,
            max_message: crate::options::MAX_MESSAGE,
            probe_mtu: false,
            local: None,
            clock: Clock::start(),
            faults: None,
        }
    }
}

impl Settings {
    /// Returns the settings with `probe_mtu` set if `options` probe the path MTU.
    fn with_probing(&self, options: &Options) -> Settings {
        Settings { probe_mtu: self.probe_mtu || options.probe_up_to.is_some(), ..self.clone() }
    }

    /// Returns the local address of a socket that connects to `to`.
    fn local_for(&self, to: SocketAddr) -> SocketAddr {
        self.local.unwrap_or(match to {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        })
    }
}

/// The error of an operation.
#[derive(Debug, Error)]
pub enum Error {
    /// The channel's queue is full, and the call does not wait.
    #[error("the channel is full")]
    Full,
    /// No message has arrived, and the call does not wait.
    #[error("no message has arrived yet")]
    NotYet,
    /// Only this many bytes have arrived, fewer than requested.
    #[error("only {0} bytes have arrived yet")]
    NotEnough(usize),
    /// The timeout expired.
    #[error("timed out")]
    TimedOut,
    /// The call was [interrupted](Connection::interrupt).
    #[error("interrupted")]
    Interrupted,
    /// The peer has finished sending, and all its messages were received.
    #[error("the peer has finished sending")]
    Finished,
    /// The connection is over.
    #[error(transparent)]
    Closed(#[from] CloseReason),
    /// The operation is invalid.
    #[error(transparent)]
    Refused(Refusal),
    /// The peer sent a message longer than [`Settings::max_message`] and was reset.
    #[error("the peer sent a message that is too long")]
    TooLong,
    /// A system call failed.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        match refusal {
            Refusal::Full => Error::Full,
            other => Error::Refused(other),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        use io::ErrorKind::{
            ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, InvalidInput, OutOfMemory,
            TimedOut, UnexpectedEof, WouldBlock,
        };
        let kind = match &error {
            Error::Full | Error::NotYet | Error::NotEnough(_) => WouldBlock,
            Error::TimedOut | Error::Closed(CloseReason::PeerTimeout | CloseReason::HandshakeTimeout) => {
                TimedOut
            }
            Error::Interrupted => Interrupted,
            Error::Finished => UnexpectedEof,
            Error::Closed(
                CloseReason::LocalReset | CloseReason::Completed | CloseReason::ProtocolViolation,
            ) => ConnectionAborted,
            Error::Closed(CloseReason::PeerReset | CloseReason::PeerRestarted | CloseReason::Replaced) => {
                ConnectionReset
            }
            Error::Closed(_) => ConnectionRefused,
            Error::Refused(_) => InvalidInput,
            Error::TooLong => OutOfMemory,
            Error::System(system) => system.kind(),
        };
        io::Error::new(kind, error)
    }
}
