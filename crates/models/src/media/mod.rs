//! Media as state machines: what frames cross between stations.
//!
//! Every medium keeps the contract of [`Medium`](trunkline_endpoint::Medium): a port for each station, owned
//! frames whose payload is never read, time as an argument; every accepted frame is output: delivered, or lost with a
//! cause.
//!
//! | module | contents |
//! | --- | --- |
//! | [`link`] | [`Link`]: two stations, full duplex |
//! | `line` | one direction of a link: queue, transmitter, delay, [`Impairments`]; a frame costs one event |
//! | [`switch`] | [`Switch`]: forwards by a table; its output queues belong to the connected media |
//! | [`hub`] | [`Hub`]: shared Ethernet, CSMA/CD (IEEE 802.3 clause 4) |
//! | [`ring`] | [`Ring`]: token ring, one packet per token, early token release |
//! | [`framing`] | [`Framing`]: framing overhead of a medium |
//! | `serializer` | transmission times at a rate, exact over any number of frames |
//! | `occupancy` | the occupancy of a port's queue, and its bound |
//! | `sender` | the queue of a station on a shared medium, and what it is notified of |
//! | `table` | the port of each station |
//!
//! A probability of zero draws nothing from a stream.

pub mod framing;
pub mod hub;
mod line;
pub mod link;
pub(crate) mod occupancy;
pub mod ring;
mod sender;
mod serializer;
pub mod switch;
mod table;

pub use crate::impairments::Impairments;
pub use framing::Framing;
pub use hub::{Hub, HubOptions};
pub use line::LineOptions;
pub use link::Link;
pub use ring::{Ring, RingOptions};
pub use switch::{Switch, SwitchOptions};
