//! Media as state machines: what frames cross between stations.
//!
//! Every medium keeps the contract of [`Medium`](trunkline_endpoint::Medium): a port for each station, owned
//! frames that are never opened, time as an argument, and every frame that goes in comes out, delivered or
//! lost with its cause.
//!
//! | module | what |
//! | --- | --- |
//! | [`link`] | [`Link`]: two stations, full duplex |
//! | [`line`](mod@line) | [`Line`]: one direction of a link: queue, transmitter, delay, [`Impairments`]; a frame costs one event |
//! | [`switch`] | [`Switch`]: forwards by a table; queues nothing itself |
//! | [`hub`] | [`Hub`]: shared Ethernet, CSMA/CD (IEEE 802.3 clause 4) |
//! | [`ring`] | [`Ring`]: token ring, one packet a token, early token release |
//! | [`framing`] | [`Framing`]: what a medium adds to a frame |
//! | `serializer` | how long bytes take at a rate, exact over any number of frames |
//! | `occupancy` | how much waits at a port, held against its bound |
//! | `table` | which station is at which port |
//!
//! Nothing here reads a clock or draws randomness of its own: streams are handed in, named by whoever builds
//! the network. No draw is made where a probability is zero.

pub mod framing;
pub mod hub;
pub mod line;
pub mod link;
mod occupancy;
pub mod ring;
mod serializer;
pub mod switch;
mod table;

pub use framing::Framing;
pub use hub::{Hub, HubOptions};
pub use line::{Impairments, Line, LineOptions};
pub use link::Link;
pub use ring::{Ring, RingOptions};
pub use switch::{Switch, SwitchOptions};
