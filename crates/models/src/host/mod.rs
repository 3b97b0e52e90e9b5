//! A host as a state machine: its processing limits, and the headers of its packets.
//!
//! | module | contents |
//! | --- | --- |
//! | [`station`] | [`Station`]: the path of packets through processors, bus, card and buffers; counters |
//! | [`costs`] | [`Costs`]: what a packet costs |
//! | `processors` | one or several processors; the first serves all interrupts |
//! | `server` | a FIFO server: bus, segmentation, reassembly |
//! | [`filter`] | multicast filter of the card, exact or by a hash |
//! | [`disk`] | [`Disk`]: a serial server of bytes |
//! | [`ticks`] | [`Phases`]: phases of the BSD timers |
//! | [`headers`] | addresses, Ethernet and LLC/SNAP headers, for captures |

pub mod costs;
pub mod disk;
pub mod filter;
pub mod headers;
mod processors;
mod server;
pub mod station;
pub mod ticks;

pub use costs::Costs;
pub use disk::Disk;
pub use station::{HostCounters, HostLossCause, Output, Station};
pub use ticks::Phases;
