//! Guaranteed delivery: reliable, ordered messages on many channels over any path that loses, damages, repeats and
//! reorders datagrams.
//!
//! A [`Node`] is the [endpoint](trunkline_endpoint::Endpoint): it has connections with any number of peers through one
//! port, and does no I/O of its own.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`node`] | the endpoint: many connections, and how they open |
//! | [`talk`] | what it is asked and what it tells: commands, events, refusals |
//! | [`options`] | how a connection behaves |
//! | [`statistics`] | what it counts |
//! | [`stages`] | how long a message's way takes, stage by stage |
//! | [`buffer`] | bytes of a message |
//! | [`congestion`] | how much may be in flight, and how fast: the policies |
//! | [`rtt`] | round-trip time and the timeouts that follow from it |
//! | [`wire`] | what stands on the wire |
//! | [`torture`] | seeded faults, for any path |
//! | `face` | feature `sockets`: the same over UDP, blocking, as a stream of bytes, and, feature `tokio`, for tasks |
//! | `connection` | one connection: acknowledgements, frames, timers |
//! | `send` | the sending half: messages, frames in flight |
//! | `receive` | the receiving half: which frames arrived, messages put together |
//! | `channels` | a table of channels of which few are used |
//! | `field` | arithmetic of GF(256) |

pub mod buffer;
mod channels;
pub mod congestion;
mod connection;
#[cfg(feature = "sockets")]
pub mod face;
mod field;
pub mod node;
pub mod options;
mod receive;
pub mod rtt;
mod send;
pub mod stages;
pub mod statistics;
pub mod talk;
pub mod torture;
pub mod wire;

pub use buffer::Buffer;
pub use node::{Config, Node};
pub use options::{Check, Congestion, Fec, Mode, Options, PresharedKey};
pub use receive::Taken;
pub use stages::{Meter, Stage};
pub use statistics::{Reach, Statistics};
pub use talk::{Command, ConnectionId, End, Event, News, Refusal, Strangers};
