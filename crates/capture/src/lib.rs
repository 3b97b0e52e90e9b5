//! A traffic monitor without a screen: frames come from an interface or a capture file, are filtered, counted by station,
//! service and connection, judged where they are LLC's, and the last of them kept.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`source`] | where frames come from: interfaces, capture files, folders of simulated runs |
//! | [`packet`] | bytes → what stands in a frame |
//! | [`filter`] | which frames are wanted, as text |
//! | [`name`] | stations, services, connections, classes: the keys of the tables and how they are written |
//! | [`table`] | bounded tables of what each key sent |
//! | [`flow`] | flows each way, in the order in which they came |
//! | [`load`] | packets/s and bits/s, sampled |
//! | [`exchange`] | LLC: tries, answers, priorities |
//! | [`token`] | the ring of LLC: the token's rotation, and what was lost |
//! | [`trace`] | the last so many packets, to be written as pcapng |
//! | [`decode`] | a packet in words |
//! | [`monitor`] | [`Monitor`], all of this together |
//!
//! To the traffic monitor time is what frames bring, and what the caller says when none come; nothing here reads a clock. Nothing grows without
//! bound: tables have as many rows as they are given ([`monitor::Limits`]), the load [`load::KEPT`] samples, the trace its
//! length, exchanges [`exchange::MOST`]. What a frame holds is never an error.

pub mod decode;
pub mod exchange;
pub mod filter;
pub mod flow;
pub mod load;
pub mod monitor;
pub mod name;
pub mod packet;
pub mod source;
pub mod table;
pub mod token;
pub mod trace;

pub use filter::Filter;
pub use monitor::Monitor;
pub use source::Source;
