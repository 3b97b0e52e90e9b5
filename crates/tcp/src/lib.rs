//! 4.3BSD Reno TCP as a state machine, with its 200 ms and 500 ms timers.
//!
//! A [`Tcp`] is one end of one connection and an [`Endpoint`](trunkline_endpoint::Endpoint) with the single port 0.
//! Its frames are TCP segments, header and payload; whoever drives it puts them into datagrams. It leaves the
//! checksum zero and looks at none, like a system whose card does that; [`checksum`] is for those who have no such
//! card.
//!
//! What the stream is made of is its [`Content`]: [`Bytes`] that are kept and copied, or [`Virtual`] ones that are
//! only counted. The protocol is the same code for both, so a simulator runs what a real network would see.
//!
//! It behaves as the Net/2 release of the Berkeley code does (Wright and Stevens, *TCP/IP Illustrated*, volume 2,
//! chapters 24 to 30), with the deviations that [`tcp`] lists.
//!
//! | module | what |
//! | --- | --- |
//! | [`options`] | [`Options`]: buffers, sizes, timers, which arithmetic |
//! | [`tcp`] | [`Tcp`]: commands, events, what can be asked of it |
//! | `input` | what a segment does |
//! | `output` | which segment leaves |
//! | `expiry` | what a timer does |
//! | `time` | ticks of the fast and the slow timer, or the plain clock |
//! | `rtt` | round-trip time, retransmission timeout, backoff |
//! | `ranges` | which parts of the stream came out of order |
//! | [`content`] | [`Content`]: bytes in rings, or numbers |
//! | [`segment`] | the TCP header (RFC 793, RFC 1323) |
//! | [`checksum`] | the checksum over IPv4 |
//! | [`statistics`] | what it counts, and how it stands |

pub mod checksum;
pub mod content;
mod expiry;
mod input;
pub mod options;
mod output;
mod ranges;
mod rtt;
pub mod segment;
pub mod statistics;
pub mod tcp;
mod time;

pub use content::{Bytes, Content, Virtual};
pub use options::{Arithmetic, Options, Timers};
pub use segment::header_length;
pub use statistics::{Gauges, Statistics};
pub use tcp::{Command, Event, Problem, Refusal, State, Tcp};
