//! The common parts of all backends: from a plan to a record.
//!
//! ```
//! use trunkline_run::ReceiverMeter;
//! use trunkline_run::message::Header;
//! use trunkline_units::Instant;
//!
//! let mut meter = ReceiverMeter::new(Instant::ZERO);
//! for sequence in [0, 1, 3] {
//!     let header = Header::pattern(sequence, Instant::ZERO, 100);
//!     meter.record(&header, Instant::from_ns(1_000 * (sequence + 1)));
//! }
//! let arrivals = meter.arrivals();
//! assert_eq!((arrivals.messages, arrivals.next_sequence), (3, 4)); // message 2 is missing
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`assemble`] | builds the record's entry of a connection from its reports |
//! | [`backend`] | [`Backend`], the trait; [`RunOptions`], [`StopFlag`], [`ProgressObserver`]; creation and completion of a record |
//! | [`bundle`] | bundles: subscriptions, configuration of converters, counters |
//! | [`credit`] | credits of datagrams from end to end |
//! | [`deframe`] | extracts messages from a byte stream |
//! | [`describe`] | text descriptions of tests |
//! | [`expect`] | evaluates expectations on a record |
//! | [`guaranteed`] | the guaranteed transport: options, fault injection, counters |
//! | [`llc`] | LLC: stations, service access points, traffic contracts, outcomes of messages |
//! | [`message`] | the measurement message: header, checksum, payload |
//! | `quic` | QUIC: options, counters, samples, messages; with the feature `quic` |
//! | [`rate_limit`] | a limit of the rate of several senders |
//! | [`rate_series`] | the rate that a network allows a source, over time |
//! | [`receiver_meter`], [`sender_meter`], [`series`] | measurements of each message |
//! | [`reports`] | the reports of both ends of a connection |
//! | [`requester`] | the requesting end of a request test |
//! | [`responder`] | the responding end of a request test |
//! | [`samples`] | metrics of a transport or of an application model over time |
//! | [`sender`] | the sending application: draws and numbers messages, and measures them |
//! | [`stages`] | delay of guaranteed messages by stage |
//! | [`timeouts`] | how long ends wait for messages in flight and for responses |
//!
//! Nothing here reads a clock or opens a socket. Time is an argument, so the simulator measures with the same code.

pub mod assemble;
pub mod backend;
pub mod bundle;
pub mod credit;
pub mod deframe;
pub mod describe;
pub mod expect;
pub mod guaranteed;
pub mod llc;
pub mod message;
#[cfg(feature = "quic")]
pub mod quic;
pub mod rate_limit;
pub mod rate_series;
pub mod receiver_meter;
pub mod reports;
pub mod requester;
pub mod responder;
pub mod samples;
pub mod sender;
pub mod sender_meter;
pub mod series;
pub mod stages;
pub mod timeouts;

pub use backend::{Backend, NoProgress, ProgressObserver, Refusal, RunOptions, StopFlag};
pub use rate_limit::RateLimit;
pub use receiver_meter::ReceiverMeter;
pub use requester::Requester;
pub use responder::Responder;
pub use sender::{Sender, SenderStep};
pub use sender_meter::SenderMeter;
