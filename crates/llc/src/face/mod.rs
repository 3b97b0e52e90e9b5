//! Stations on Ethernet interfaces and over UDP.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`attached`] | [`Attached`], a station on a network, and [`Sap`], for threads |
//! | [`network`] | [`Network`]: where stations are |
//! | `shared` | who receives for all, and who keeps the time |
//! | `line` | frames over packet sockets and UDP |
//! | `engine` | a station, alone or in a ring |
//!
//! Two stations on the loopback; one asks, the other answers:
//!
//! ```
//! use trunkline_llc::face::{Attached, Error, Settings};
//! use trunkline_llc::{Address, Options, Outcome};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let network = "udp:239.77.2.0:47400".parse()?;
//!     let (left, right) =
//!         (Attached::to(&network, 1, &Settings::default())?, Attached::to(&network, 2, &Settings::default())?);
//!     let asks = left.open(4, &Options::acknowledged(6))?;
//!     let answers = right.open(4, &Options::acknowledged(6))?;
//!     let sent = asks.exchange(Address { sap: 4, station: 2 }, b"is anybody there?")?;
//!     assert_eq!(sent.outcome, Outcome::Done);
//!     let mut message = Vec::new();
//!     let received = answers.receive(&mut message)?;
//!     assert_eq!((received.from, &message[..]), (Address { sap: 4, station: 1 }, &b"is anybody there?"[..]));
//!     Ok(())
//! }
//! ```
//!
//! # Queues
//!
//! What waits at a SAP to be sent and to be taken is bounded by its [`Options`](crate::Options); so is what is told of it
//! and not taken. Beyond that, answers to TEST and XID that nobody took, 64 at a SAP, and 32 events of a ring, the oldest
//! of which give way; and 4,096 ends of messages at a SAP, or 8,192 events with [`Settings::events`]: then no more messages are
//! taken.
//!
//! # Threads
//!
//! Whoever waits receives, on the thread that waits, and if several do one of them receives for all. A second thread of
//! each station keeps the time and answers while nobody waits; [`Settings::helper`] can do without. It goes with the last
//! handle.

use std::io;

use thiserror::Error;
use trunkline_units::Span;

use crate::talk::{Outcome, Refusal, Ticket};
use crate::token;

pub mod attached;
mod engine;
mod line;
pub mod network;
mod shared;

pub use attached::{Attached, Sap};
pub use network::{Network, NoNetwork};

/// How a station on a network behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Octets asked for the system's buffer of what comes; it may grant less. 0: its choice.
    pub buffer: usize,
    /// Octets of frames that the system may take before they leave, each counted with some 800 to 2,000 that it needs to
    /// keep it. They are ahead of everything, however urgent; so a line that is slower than the program is not filled
    /// beyond this. A network card that tells late what has left may want more to be kept busy.
    pub ahead: usize,
    /// Most frames that leave in one call of the system; in a ring always 1. What is more urgent waits for all of them.
    pub batch: usize,
    /// Takes part in a ring: a frame leaves only with the token. The same at all stations.
    pub ring: Option<token::Options>,
    /// Whether a thread of the station's own answers, and tries again, while no caller waits. Without it that happens
    /// only within calls, and timers are as late as the system's ticks make them, some milliseconds. In a ring there
    /// always is one.
    pub helper: bool,
    /// Tells all events by [`Attached::next_event`], each message's end among them, and none by the functions of a SAP.
    /// With a helper it is the helper that receives, so that whoever waits for events is woken by those of other threads'
    /// calls, and messages are answered while an event is dealt with.
    pub events: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { buffer: 1 << 20, ahead: 8 << 10, batch: 1, ring: None, helper: true, events: false }
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Which.
    pub ticket: Ticket,
    /// How it ended.
    pub outcome: Outcome,
    /// How often it was sent.
    pub tries: u16,
    /// From the call until its end.
    pub took: Span,
}

/// Why something was not done.
#[derive(Debug, Error)]
pub enum Error {
    /// As many messages wait at the SAP as may, and the call does not wait.
    #[error("as many messages wait as may")]
    Full,
    /// Nothing has come yet, and the call does not wait.
    #[error("nothing has come yet")]
    NotYet,
    /// It did not happen in time.
    #[error("it took too long")]
    TimedOut,
    /// What was asked is impossible.
    #[error(transparent)]
    Refused(Refusal),
    /// A station's number is 1 to 254.
    #[error("a station's number is 1 to 254")]
    Station,
    /// The system refuses.
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

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match &error {
            Error::Full | Error::NotYet => io::ErrorKind::WouldBlock,
            Error::TimedOut => io::ErrorKind::TimedOut,
            Error::Refused(_) | Error::Station => io::ErrorKind::InvalidInput,
            Error::System(system) => system.kind(),
        };
        io::Error::new(kind, error)
    }
}
