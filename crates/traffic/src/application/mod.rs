//! Application models: traffic like that of real applications, made of sessions, items and pauses with published laws.
//!
//! A model is one file: a [`Definition`] (its name, its parameters with their defaults and sources) and a state machine, a
//! [`Model`], which says when the next item is due and how long it is. All else is done here and in [`Source`](crate::Source):
//! the language reads and checks the parameters from the definition, items longer than a message are split, every law is
//! compared with what left, the receiver compares the same laws with what arrived, and the reference page is printed.
//!
//! # Adding a model
//!
//! 1. A file `application/NAME.rs` with `pub static NAME: Definition` and a type that implements [`Model`]; `voip` is the
//!    shortest example, `ftp` one with overlapping sessions, `www` one that waits for responses.
//! 2. A line `mod NAME;` below and a line `&NAME::NAME` in [`MODELS`].
//! 3. The reference page: `BLESS=1 cargo test -p trunkline-traffic the_models_page` rewrites its tables; a paragraph about the model
//!    goes above them in `docs/reference/traffic-models.md`.
//!
//! `tests/models.rs` then draws 100,000 values of every law of the model and compares them with the law, its mean and its
//! receiver; a model adds only tests of its structure.
//!
//! # Rules for a model
//!
//! - It draws only from [`Draws`], so that every quantity is named (`CONNECTION / QUANTITY`), recorded and compared.
//! - It reads no clock. Times follow from the start, from drawn [`Interval`]s and from [`Outcome::at`].
//! - [`Model::next`] returns items in the order of their due times. A model that does not use responses must not depend on when
//!   it is called: the receiver runs it a second time to learn what it should see.
//! - A drawn time is returned with the item that ends it ([`Item::after`]), a drawn size as the item's size. They are recorded
//!   when the item leaves, as they were: from departure to departure.
//! - Memory is bounded: [`Sessions`] refuses sessions above its limit and counts them.
//!
//! | module | contents |
//! | --- | --- |
//! | [`definition`] | [`Definition`], [`Parameter`], [`Choice`]: the table of a model; [`Application`], a model by name |
//! | [`draws`] | [`Draws`]: draws and records the quantities of a model |
//! | [`driver`] | [`Driver`]: runs a model for a source, or for a receiver that compares what arrives |
//! | [`received`] | [`ReceivedItems`]: compares what arrives with the laws of the model |
//! | [`sessions`] | [`Sessions`]: overlapping sessions in the order of their next items |
//! | [`long_memory`] | the Hurst exponent that follows from the parameters |
//! | [`reference`](mod@reference) | the reference page |

pub mod definition;
pub mod draws;
pub mod driver;
pub mod long_memory;
pub mod received;
pub mod reference;
pub mod sessions;

mod backup;
mod fgn;
mod frames;
mod ftp;
mod game;
mod mginf;
mod mpeg;
mod onoff;
mod rpc;
mod sensor;
mod smtp;
mod telnet;
mod video;
mod videoconference;
mod voip;
mod webrtc;
mod www;
mod xr;

use std::fmt::Debug;

use trunkline_units::Instant;

pub use definition::{Application, Choice, Definition, Parameter, Relation, Unit, UnknownModel, Variant};
pub use draws::{Draws, Interval, QuantityId, Size};
pub use driver::Driver;
pub use fgn::share_below_zero;
pub use received::ReceivedItems;
pub use sessions::Sessions;

/// All models, in the order of the reference page.
pub static MODELS: &[&Definition] = &[
    &voip::VOIP,
    &ftp::FTP,
    &telnet::TELNET,
    &www::WWW,
    &mpeg::MPEG,
    &videoconference::VIDEOCONFERENCE,
    &game::GAME,
    &xr::XR,
    &backup::BACKUP,
    &sensor::SENSOR,
    &smtp::SMTP,
    &mginf::MGINF,
    &onoff::ONOFF,
    &fgn::FGN,
    &rpc::RPC,
    &video::VIDEO,
    &webrtc::WEBRTC,
];

/// The state machine of an application.
pub trait Model: Debug + Send {
    /// Returns the next item, which is due no earlier than the one before.
    fn next(&mut self, draws: &mut Draws) -> Next;

    /// Handles the outcome of a request: its response has arrived, or counts as lost. [`Model::next`] is called afterwards if it
    /// returned [`Next::Await`] before.
    fn feedback(&mut self, _outcome: &Outcome, _draws: &mut Draws) {}

    /// Returns the mean rate of message bytes in bits per second; `None` if it depends on responses or has no mean.
    fn offered_bps(&self, _draws: &Draws) -> Option<f64> {
        None
    }

    /// Returns levels that follow the traffic, such as a chosen bit rate, by their name in the series of the record. They are
    /// read after each outcome of a request.
    fn gauges(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// Returns counts of events, such as refused sessions, by their name in the record. Repetitions are added; if a name begins
    /// with `mean_`, their mean is taken.
    fn counters(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}

/// What a model does next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// Send this item when it is due.
    Item(Item),
    /// Nothing until the outcome of a request.
    Await,
    /// Nothing any more.
    End,
}

/// Bytes that an application sends at once: one message, or several back to back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Item {
    /// When it is due.
    pub due: Instant,
    /// Its length. Longer items than a message are split; an item that requests a response is shortened instead.
    pub size: Size,
    /// Length of the response that it requests.
    pub response: Option<Size>,
    /// The drawn times that end when it leaves.
    pub intervals: [Option<Timed>; 2],
    /// The series of departures that it belongs to, from 0: one for each session that exists at a time.
    pub lane: u32,
    /// Another series that it belongs to, such as that of the first items of all sessions.
    pub second_lane: Option<u32>,
}

/// A drawn time that ends with the departure of an item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    /// The drawn time.
    pub interval: Interval,
    /// When it began.
    pub since: Since,
}

/// When a drawn time began. It is recorded as it was, from there to the departure of the item; so an error of the model in the
/// due times shows in the fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// At the last departure of a lane.
    Departure(u32),
    /// This many picoseconds after the last departure of a lane, or before it if negative.
    Offset(u32, i64),
    /// At an instant that is known exactly, such as an arrival. A receiver knows it relative to the message with the smallest delay.
    Event(Instant),
}

impl Item {
    /// Creates an item of lane 0 that requests nothing and ends no drawn time.
    pub fn new(due: Instant, size: Size) -> Item {
        Item { due, size, response: None, intervals: [None; 2], lane: 0, second_lane: None }
    }

    /// Adds a drawn time that ends with this item; at most two.
    ///
    /// # Panics
    /// If two are there already.
    #[must_use]
    pub fn after(mut self, interval: Interval, since: Since) -> Item {
        let free =
            self.intervals.iter_mut().find(|slot| slot.is_none()).expect("at most two drawn times end");
        *free = Some(Timed { interval, since });
        self
    }
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The number of the request, from 0: items with a response are counted in the order of their departure.
    pub request: u64,
    /// When the request was due.
    pub due: Instant,
    /// When it was sent.
    pub sent_at: Instant,
    /// When its response arrived, or when it was given up.
    pub at: Instant,
    /// Bytes of the response; `None` if it was given up.
    pub bytes: Option<u32>,
    /// When the response was sent, by the clock of the responder.
    pub responded_at: Instant,
    /// Message bytes that had arrived at the responder then, modulo 2³⁰; 0 if the model has no parameter `feedback`.
    pub received_bytes: u32,
}
