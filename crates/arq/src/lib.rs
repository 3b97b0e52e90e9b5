//! Guaranteed delivery: reliable, ordered messages on many channels over any path that loses, damages, repeats and
//! reorders datagrams.
//!
//! A [`Node`] is the [endpoint](trunkline_endpoint::Endpoint): it has connections with any number of peers through one
//! port, and does no I/O.
//!
//! ```
//! use trunkline_arq::{Buffer, Command, Config, ConnectionId, Node, Options, ReceiveStatus};
//! use trunkline_endpoint::Port;
//! use trunkline_endpoint::pair::{PEER_B, Pair};
//! use trunkline_units::{Seed, Span};
//!
//! let node = |name| {
//!     let (accept, random) = (Some(Options::default()), Seed(1).stream(name));
//!     Node::new(Config { port: Port(0), accept, max_connections: 4, random })
//! };
//! let mut pair = Pair::new(node("client"), node("server"), Seed(1));
//! let (mut id, options) = (ConnectionId::default(), Options::default());
//! pair.command_a(Command::Open { peer: PEER_B, options: &options, id: &mut id })?;
//! pair.run(Span::from_ms(10));
//! pair.command_a(Command::Send { id, channel: 7, bytes: b"hello" })?;
//! pair.run(Span::from_ms(10));
//!
//! let (_, opened) = pair.take_events_b()[0];
//! let (mut buffer, mut status) = (Buffer::new(), ReceiveStatus::Empty);
//! let receive = Command::Receive { id: opened.id, channel: 7, buffer: &mut buffer, status: &mut status };
//! pair.command_b(receive)?;
//! assert_eq!((status, &buffer[..]), (ReceiveStatus::Complete, &b"hello"[..]));
//! # Ok::<(), trunkline_arq::Refusal>(())
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`node`] | the endpoint: many connections, and the handshake |
//! | [`api`] | commands, events, refusals |
//! | [`options`] | options of a connection |
//! | [`statistics`] | counters |
//! | [`stages`] | where the time of a message goes, stage by stage |
//! | [`buffer`] | bytes of a message |
//! | [`faults`] | faults injected into a node's own frames |
//! | [`rtt`] | round-trip time and timeouts |
//! | [`wire`] | wire formats |
//! | [`torture`] | seeded faults for any path |
//! | `socket` | feature `sockets`: connections over UDP, blocking or as a byte stream; feature `tokio`: async |
//! | `connection` | one connection: acknowledgements, frames, timers |
//! | `send` | the sending half: messages, frames in flight |
//! | `receive` | the receiving half: received frames, reassembly |
//! | `channels` | a sparse table of channels |
//! | `limits` | limits of frames, windows, messages and FEC blocks |
//! | `field` | arithmetic in GF(256) |

pub mod api;
pub mod buffer;
mod channels;
mod connection;
pub mod faults;
mod field;
mod limits;
pub mod node;
pub mod options;
mod receive;
pub mod rtt;
mod send;
#[cfg(feature = "sockets")]
pub mod socket;
pub mod stages;
pub mod statistics;
pub mod torture;
pub mod wire;

pub use api::{CloseReason, Command, ConnectionId, Event, EventKind, Refusal, UnknownPeerStats};
pub use buffer::Buffer;
pub use faults::{FaultCounts, Faults};
pub use node::{Config, Node};
pub use options::{Check, Congestion, Fec, Mode, Options, PresharedKey};
pub use receive::ReceiveStatus;
pub use stages::{Meter, Stage};
pub use statistics::{PathMtu, Statistics};
