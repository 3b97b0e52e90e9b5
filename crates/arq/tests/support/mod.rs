//! Helpers of the integration tests.

pub mod damage;
pub mod forge;
pub mod host;
pub mod line;
#[cfg(feature = "sockets")]
pub mod loopback;
pub mod manual_pair;
pub mod memory;
pub mod model;
pub mod mtu_limit;
pub mod operations;
pub mod plan;
pub mod scenario;
