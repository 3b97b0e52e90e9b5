//! QUIC (RFC 9000) as an [`Endpoint`](trunkline_endpoint::Endpoint): the state machine of `quinn-proto` with the project's
//! time, peers and random numbers. The same [`Node`] runs in the simulator and over UDP sockets.
//!
//! A node has one connection: a client opens it, a server accepts the first peer that completes a handshake. The client
//! opens all bidirectional streams at once, so that both ends number them from 0. Messages can also be unreliable
//! datagrams (RFC 9221). The client knows the [fingerprint](Fingerprint) of the server's key and accepts no other.
//!
//! ```
//! use trunkline_endpoint::pair::PEER_B;
//! use trunkline_endpoint::{Pair, Port};
//! use trunkline_quic::{Command, Config, Identity, Node, Options, Randomness, Role};
//! use trunkline_units::{Seed, Span};
//!
//! let identity = Identity::fixed();
//! let config = |role, seed| Config {
//!     port: Port(0),
//!     options: Options::default(),
//!     role,
//!     randomness: Randomness::Fixed,
//!     seed: [seed; 32],
//! };
//! let client = Node::new(config(Role::Client { server: identity.fingerprint() }, 1));
//! let server = Node::new(config(Role::Server { identity }, 2));
//! let mut pair = Pair::new(client, server, Seed(1));
//! pair.command_a(Command::Connect { peer: PEER_B }).unwrap();
//! pair.run(Span::from_s(1));
//! assert!(pair.a().is_established() && pair.b().is_established());
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`event`] | [`Event`], [`CloseReason`], [`Refusal`] |
//! | [`node`] | [`Node`] and its commands |
//! | [`options`] | [`Options`]: congestion control, windows, streams, datagrams, MTU |
//! | [`statistics`] | [`Statistics`] of a connection |
//! | [`tls`] | [`Identity`] and [`Fingerprint`]: the server's key; where TLS takes random numbers from |
//! | `ids` | connection ids and keys from a seed |
//! | `session` | one connection of a node |
//! | `time` | conversion between the project's time and `std::time::Instant` |

pub mod event;
mod ids;
pub mod node;
pub mod options;
mod session;
pub mod statistics;
mod time;
pub mod tls;

pub use event::{CloseReason, Event, Refusal};
pub use node::{Command, Config, Node, Role};
pub use options::{Congestion, Options};
pub use statistics::Statistics;
pub use tls::{Fingerprint, Identity, Randomness};
