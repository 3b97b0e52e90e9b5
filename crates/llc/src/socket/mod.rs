//! Stations on Ethernet interfaces and over UDP.
//!
//! | module | contents |
//! | --- | --- |
//! | [`station`] | [`StationSocket`], a station on a network, and [`Sap`], for threads |
//! | [`network`] | [`Network`]: names of networks |
//! | `shared` | the station in the event loop of `io` |
//! | `line` | frames over packet sockets and UDP |
//! | `link` | the line as threads share it, and its receive buffers |
//! | `engine` | a station, alone or in a ring |
//!
//! Two stations on loopback; one sends, the other acknowledges:
//!
//! ```
//! use trunkline_llc::socket::{StationSocket, Error, Settings};
//! use trunkline_llc::{Address, Options, Outcome};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let network = "udp:239.77.2.0:47400".parse()?;
//!     let (left, right) =
//!         (StationSocket::to(&network, 1, &Settings::default())?, StationSocket::to(&network, 2, &Settings::default())?);
//!     let sender = left.open(4, &Options::acknowledged(6))?;
//!     let receiver = right.open(4, &Options::acknowledged(6))?;
//!     let sent = sender.exchange(Address { sap: 4, station: 2 }, b"hello")?;
//!     assert_eq!(sent.outcome, Outcome::Done);
//!     let mut message = Vec::new();
//!     let received = receiver.receive(&mut message)?;
//!     assert_eq!((received.from, &message[..]), (Address { sap: 4, station: 1 }, &b"hello"[..]));
//!     Ok(())
//! }
//! ```
//!
//! # Queues
//!
//! Queues are bounded: messages to send and received messages of a SAP by its [`Options`](crate::Options), unread
//! outcomes of a SAP by 4,096, or events by 8,192 with [`Settings::events`], after which no more messages are
//! accepted; unread TEST and XID responses of a SAP by 64 and events of a ring by 32, of which the oldest are
//! dropped.
//!
//! # Threads
//!
//! A waiting thread receives by itself; of several, one receives for all. A helper thread per station handles timers
//! and responses while no thread waits. It ends with the last handle.

use std::io;

use thiserror::Error;
use trunkline_units::Span;

use crate::api::{Outcome, Refusal, Ticket};
use crate::token;

mod engine;
mod line;
mod link;
pub mod network;
mod shared;
pub mod station;

pub use network::{Network, ParseNetworkError};
pub use station::{Sap, StationSocket};

/// Settings of a station on a network.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Receive buffer of the system in bytes, which may grant less. 0: the default.
    pub buffer: usize,
    /// Send buffer of the system in bytes, with an overhead of 800 to 2,000 per frame. Frames in it precede all
    /// others, however urgent, so this limits how much a slow line queues. A network card that reports completions
    /// late may need more to stay busy.
    pub ahead: usize,
    /// Maximum frames per system call; always 1 in a ring. More urgent frames wait for all of them.
    pub batch: usize,
    /// Options of the ring, if the station is part of one: frames are then sent only with the token. The same at all
    /// stations.
    pub ring: Option<token::Options>,
    /// Reports all events, including message outcomes, through [`StationSocket::next_event`] and none through a SAP.
    /// The helper thread receives, so that a waiting thread is woken by other threads' calls and messages are
    /// answered while an event is handled.
    pub events: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { buffer: 1 << 20, ahead: 8 << 10, batch: 1, ring: None, events: false }
    }
}

/// Outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its ticket.
    pub ticket: Ticket,
    /// Its outcome.
    pub outcome: Outcome,
    /// Number of transmissions.
    pub tries: u16,
    /// Time from the call to the end.
    pub took: Span,
}

/// An error of a socket call.
#[derive(Debug, Error)]
pub enum Error {
    /// The send queue is full, and the call does not block.
    #[error("as many messages wait as may")]
    Full,
    /// No message is queued, and the call does not block.
    #[error("nothing has come yet")]
    NotYet,
    /// The timeout passed.
    #[error("it took too long")]
    TimedOut,
    /// The station refused the command.
    #[error(transparent)]
    Refused(Refusal),
    /// Station numbers are 1 to 254.
    #[error("a station's number is 1 to 254")]
    Station,
    /// A system error.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        match refusal {
            Refusal::Full => Error::Full,
            refusal => Error::Refused(refusal),
        }
    }
}
