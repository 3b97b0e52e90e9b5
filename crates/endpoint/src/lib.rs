//! Endpoints: the shape of every protocol.
//!
//! An endpoint is a state machine that never blocks, sleeps, or asks the time. What it is told and what it says
//! passes through two calls, so the same machine runs unchanged in a simulator and over sockets.
//!
//! | module | what |
//! | --- | --- |
//! | [`endpoint`] | the [`Endpoint`] trait, its [`Input`] and [`Output`], and the contract between machine and driver |
//! | [`medium`] | the [`Medium`] trait: what frames cross, and what it counts of them |
//! | [`port`] | [`Port`], [`Peer`], [`Segment`], [`Writable`]: where frames go, and how many are in a batch |
//! | [`drain`](mod@drain) | the loop that polls an endpoint until it is idle |
//! | [`pair`] | two endpoints, a virtual clock, and a line that loses, doubles, delays and damages |
//! | [`laws`] | what every endpoint keeps, checked |
//! | [`echo`] | a small real protocol: numbered pings with retransmission, and a server that remembers nobody |
//!
//! Nothing here touches the network, reads a clock, or draws the system's randomness.

pub mod drain;
pub mod echo;
pub mod endpoint;
pub mod laws;
pub mod medium;
pub mod pair;
pub mod port;

pub use drain::{Sink, drain};
pub use endpoint::{Endpoint, Idle, Input, Output, Reason, Transmit};
pub use medium::{Arrival, Bound, Cause, Counters, Frame, Medium, Passage, Room, To};
pub use pair::{Impairments, Pair};
pub use port::{MAX_BATCH, MAX_SEGMENTS, Peer, Port, PortSet, Segment, Writable};
