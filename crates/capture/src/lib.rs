//! The packet monitor without its screen: reads frames from an interface or a capture file, filters them, counts them by
//! station, service and connection, analyses LLC exchanges, and stores the last frames.
//!
//! ```
//! use trunkline_capture::Filter;
//! use trunkline_capture::packet::{Captured, Link, Packet};
//!
//! // An Ethernet frame with an LLC test command from SAP 8 to SAP 4.
//! let mut frame = vec![0xff; 6];
//! frame.extend([2, 0, 0, 0, 0, 1, 0, 3, 4, 8, 0xf3]);
//! let original = frame.len() as u32;
//! let captured = Captured { link: Link::Ethernet, at_ns: 0, bytes: &frame, original, tag: None };
//! let packet = Packet::read(&captured, None);
//! assert!("sap 4".parse::<Filter>().unwrap().matches(&packet));
//! assert!(!"tcp port 80".parse::<Filter>().unwrap().matches(&packet));
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`source`] | sources of frames: interfaces, capture files, folders of simulated runs |
//! | [`packet`] | decoding of frames |
//! | [`filter`] | display filters |
//! | [`name`] | stations, services, connections, classes: the keys of the tables and how they are written |
//! | [`table`] | bounded tables of counts by key |
//! | [`flow`] | flows with counts by direction, in order of their first packet |
//! | [`load`] | packets/s and bits/s, sampled |
//! | [`exchange`] | LLC exchanges: retransmissions, responses, priorities |
//! | [`token`] | the token ring: rotation times and lost tokens |
//! | [`trace`] | the last packets, to write as pcapng |
//! | [`decode`] | the description of a packet |
//! | [`monitor`] | [`Monitor`]: combines these |
//!
//! Time comes from the frames, or from the caller between frames; the crate reads no clock. Memory is bounded:
//! [`monitor::Limits`] bounds the tables, [`load::KEPT`] the samples, the trace has a fixed length, [`exchange::MOST`] bounds the
//! exchanges. The contents of a frame are never an error.

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
