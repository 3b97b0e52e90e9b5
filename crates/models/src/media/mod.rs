//! Media as state machines: what frames cross between stations.
//!
//! Every medium keeps the contract of [`Medium`](trunkline_endpoint::Medium): a port for each station, owned
//! frames whose payload is never read, time as an argument; every accepted frame is output: delivered, or lost with a
//! cause.
//!
//! A probability of zero draws nothing from a stream.

pub mod framing;
pub mod hub;
mod line;
pub mod link;
pub(crate) mod occupancy;
pub mod queue;
pub mod ring;
mod sender;
mod serializer;
pub mod switch;
mod table;

pub use crate::impairments::Impairments;
pub use framing::{Framing, Segmentation};
pub use hub::{Hub, HubOptions};
pub use line::LineOptions;
pub use link::Link;
pub use ring::{Ring, RingOptions};
pub use switch::{Switch, SwitchOptions};
