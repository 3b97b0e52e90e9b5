//! A station as a state machine: what limits it, and what its packets look like on a line.
//!
//! | module | what |
//! | --- | --- |
//! | [`station`] | [`Station`]: packets out and in, past processors, bus, card and buffers; what it counts |
//! | [`costs`] | [`Costs`] and [`Interface`]: what a packet costs a station |
//! | `processors` | one or several processors, the first of which takes all interrupts |
//! | `server` | a server of its own with a queue: bus, segmentation, reassembly |
//! | [`filter`] | which groups a card lets pass: exactly, or by a hash |
//! | [`disk`] | [`Disk`]: a serial server of bytes |
//! | [`ticks`] | [`Phases`]: when the timers of a BSD station tick |
//! | [`headers`] | addresses, Ethernet and LLC/SNAP as octets, for captures |
//!
//! Nothing here touches the network, reads a clock, or draws the system's randomness.

pub mod costs;
pub mod disk;
pub mod filter;
pub mod headers;
mod processors;
mod server;
pub mod station;
pub mod ticks;

pub use costs::{Costs, Interface};
pub use disk::Disk;
pub use station::{Cause, Counters, Output, Station};
pub use ticks::Phases;
