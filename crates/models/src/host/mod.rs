//! A host as a state machine: its processing limits, and the headers of its packets.

pub mod costs;
pub mod disk;
pub mod filter;
pub mod headers;
mod processors;
mod routes;
mod server;
pub mod station;
pub mod ticks;
mod waiting;

pub use costs::Costs;
pub use disk::Disk;
pub use routes::Routes;
pub use station::{HostCounters, HostLossCause, Output, Station};
pub use ticks::Phases;
