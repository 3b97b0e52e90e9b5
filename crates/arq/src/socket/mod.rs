//! The transport over UDP sockets: blocking, as a stream of bytes, and for `tokio`.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`blocking`] | [`Listener`] and [`Connection`], for threads |
//! | [`stream`] | [`Stream`], a channel without message boundaries, as [`std::io::Read`] and [`std::io::Write`] |
//! | `tokio` | feature `tokio`: the same as futures |
//! | `shared` | who receives for all, and who keeps the time |
//! | `core` | the endpoint and what it told, without waiting |
//!
//! A server that answers, and a client that asks:
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
//!     connection.send(7, b"is anybody there?")?;
//!     assert_eq!(*connection.recv(7)?, *b"is anybody there?");
//!     connection.close()?;
//!     server.join().expect("the server ends well")
//! }
//! ```
//!
//! # Queues
//!
//! What waits to be sent and what has arrived is bounded by [`Options`], channel by channel. Beyond
//! that a connection holds parts of messages that are longer than the credit, [`Settings::longest`] bytes at the most,
//! and of a stream what [`Stream::try_read_exact`] asked for in vain. Connections that nobody has accepted yet count
//! among [`Settings::connections`]; peers that find no room are refused.
//!
//! # Memory
//!
//! A message is handed out in a [`Buffer`](crate::Buffer) that begins on a boundary of 64 bytes, whatever its length and
//! whichever function gave it. Its bytes are copied once, off the frames that brought them. What is handed out of a
//! message of its own frames is the buffer it was put together in; small ones that shared a frame are copied out of it,
//! and those longer than a quarter of their channel's credit are put together from parts. A buffer that is sent is kept
//! as it is until the peer has all of it, and copied once, onto the frames. Of what is sent by reference a copy is kept,
//! which is copied onto the frames; in full flow a long message is copied onto its frames at once, and they are kept.
//!
//! # Threads
//!
//! Whoever waits receives, on the thread that waits, and if several do one of them receives for all. A second thread of
//! each socket keeps the time, and receives only while nobody waits. It goes when the last handle has gone and every
//! connection has come to its end. Over IPv4 a client's socket is connected to its peer,
//! for what a round trip takes, and so is a listener's with whose only peer threads have long exchanged questions and answers: it
//! hears others at a second socket of the same address. Both end when somebody else comes, or a thread that waits is to be woken,
//! and begin again, after longer each time, no more than a few times. In full flow what was sent last may wait for that thread, up to about a millisecond, if
//! its sender goes away without [waiting](Connection::flush) for anything.

use std::io;
use std::time::Duration;

use thiserror::Error;

use crate::{CloseReason, Options, Refusal};

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

/// How a socket behaves, whatever its connections do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Connections at the most, of either end.
    pub connections: usize,
    /// Bytes asked for each of the system's two buffers; it may grant less.
    pub buffer: usize,
    /// Longest message that is put together from parts, in bytes, and all parts that a connection holds. A peer that
    /// sends more is reset. Messages within a quarter of their channel's credit come whole and do not count.
    pub longest: usize,
    /// Lets no packet be fragmented: what is longer than a path carries is lost, so that it can be found out. Holds
    /// anyway if the options [probe](Options::probe_up_to).
    pub probe_mtu: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            connections: 1024,
            buffer: 4 << 20,
            longest: crate::options::MAX_MESSAGE,
            probe_mtu: false,
        }
    }
}

impl Settings {
    /// The same for connections that behave as `options` say.
    fn to_behave(&self, options: &Options) -> Settings {
        Settings { probe_mtu: self.probe_mtu || options.probe_up_to.is_some(), ..self.clone() }
    }
}

/// Why something was not done.
#[derive(Debug, Error)]
pub enum Error {
    /// As much waits on the channel as may, and the call does not wait.
    #[error("the channel is full")]
    Full,
    /// Nothing has come yet, and the call does not wait.
    #[error("nothing has come yet")]
    NotYet,
    /// So many bytes have come and not as many as were asked for.
    #[error("only {0} bytes have come yet")]
    NotEnough(usize),
    /// It did not happen in time.
    #[error("it took too long")]
    TimedOut,
    /// The peer sends no more, and all that it sent has been taken.
    #[error("the peer sends no more")]
    Finished,
    /// The connection is over.
    #[error(transparent)]
    Closed(#[from] CloseReason),
    /// What was asked is impossible.
    #[error(transparent)]
    Refused(Refusal),
    /// The peer sent more than [`Settings::longest`]; it was reset.
    #[error("the peer sends a message that is too long")]
    TooLong,
    /// The system refuses.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        use io::ErrorKind::{
            ConnectionAborted, ConnectionRefused, ConnectionReset, InvalidInput, OutOfMemory, TimedOut,
            UnexpectedEof, WouldBlock,
        };
        let kind = match &error {
            Error::Full | Error::NotYet | Error::NotEnough(_) => WouldBlock,
            Error::TimedOut | Error::Closed(CloseReason::PeerTimeout | CloseReason::HandshakeTimeout) => {
                TimedOut
            }
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

/// How long a call may take.
#[derive(Clone, Copy, Debug)]
enum Patience {
    Endless,
    For(Duration),
}
