//! SNMP v2c and v3 for a poller: table walks with few requests, and agents that misbehave.
//!
//! | module | contents |
//! | --- | --- |
//! | [`session`] | a session with one agent: one outstanding request, retransmissions, a deadline |
//! | [`walk`] | walks through the columns of a table by GETBULK |
//! | [`mib`] | identifiers of the objects that are requested |
//! | [`fault`] | faults of an agent or of the path to it |
//!
//! The crate `async-snmp` encodes and secures the messages.

pub mod fault;
pub mod mib;
pub mod session;
pub mod walk;

pub use fault::Fault;
pub use session::{RetryPolicy, Session};
pub use walk::Walk;
