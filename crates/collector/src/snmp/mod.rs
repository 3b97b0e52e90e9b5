//! SNMP v2c and v3 as a poller needs it: tables column by column, a few requests a poll, agents that may be anything.
//!
//! | module | what |
//! | --- | --- |
//! | [`session`] | one agent: a request at a time, tried again, its end in time |
//! | [`walk`] | columns of a table by GETBULK: what to ask next, what an answer means |
//! | [`mib`] | the objects that are asked for, by number |
//! | [`fault`] | everything that can be wrong with an agent or on the way |
//!
//! Messages, their encoding and security are the crate `async-snmp`'s.

pub mod fault;
pub mod mib;
pub mod session;
pub mod walk;

pub use fault::Fault;
pub use session::{RetryPolicy, Session};
pub use walk::Walk;
