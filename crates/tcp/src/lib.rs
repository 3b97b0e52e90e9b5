//! TCP as a state machine: 4.3BSD Reno with its 200 ms and 500 ms timers, or TCP of today.
//!
//! A [`Tcp`] is one end of one connection and an [`Endpoint`](trunkline_endpoint::Endpoint) with the single port 0.
//! Its frames are TCP segments, header and payload; the caller puts them into IP packets. The checksum field is zero
//! and is not verified, as with checksum offload; [`checksum`] computes it for callers without offload.
//!
//! The stream's data is a [`Content`]: [`Bytes`] are stored and copied, [`Virtual`] bytes are only counted. The
//! protocol code is the same for both, so the simulator runs what a real network would see.
//!
//! By default it behaves as the Net/2 release of the Berkeley code (Wright and Stevens, *TCP/IP Illustrated*, volume 2, chapters
//! 24 to 30), with the deviations listed in [`tcp`]. [`Options`] also ask for selective acknowledgements, timestamps, ECN, and
//! other congestion controllers, which repair losses as the standards of today do.
//!
//! ```
//! use trunkline_endpoint::pair::{PEER_B, Pair};
//! use trunkline_tcp::{Command, Options, State, Tcp, Virtual};
//! use trunkline_units::{Seed, Span};
//!
//! let client = Tcp::<Virtual>::new(Options { local: 49_152, remote: 80, peer: PEER_B, ..Options::default() });
//! let server = Tcp::<Virtual>::new(Options { local: 80, ..Options::default() });
//! let mut pair = Pair::new(client, server, Seed(1996));
//! pair.command_b(Command::Listen).unwrap();
//! pair.command_a(Command::Connect).unwrap();
//! pair.run(Span::from_s(1));
//! assert_eq!(pair.a().state(), State::Established);
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`options`] | [`Options`]: buffers, sizes, timers, window arithmetic |
//! | [`tcp`] | [`Tcp`]: commands, events, state |
//! | `input` | segment arrival |
//! | `output` | segment transmission |
//! | `expiry` | timer expiry |
//! | `extensions` | selective acknowledgement, timestamps, ECN, other congestion controllers |
//! | `time` | ticks of the fast and slow timers, or exact time |
//! | `rtt` | round-trip time, retransmission timeout, backoff |
//! | `ranges` | ranges received out of order |
//! | [`content`] | [`Content`]: bytes in ring buffers, or only counted |
//! | [`segment`] | the TCP header (RFC 793, RFC 1323) |
//! | [`checksum`] | the checksum over IPv4 |
//! | [`statistics`] | counters and state variables |

pub mod checksum;
pub mod content;
mod expiry;
mod extensions;
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
pub use options::{EcnFeedback, Options, Timers};
pub use segment::{Problem, header_length};
pub use statistics::{Gauges, Statistics};
pub use tcp::{Command, Event, Refusal, State, Tcp};
pub use trunkline_congestion::{Algorithm, Arithmetic};
