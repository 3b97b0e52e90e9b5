//! Shared helpers of the tests.

pub mod agent;
#[cfg(feature = "postgres")]
pub mod server;
pub mod store;
