//! Endpoints: the shape of every protocol.
//!
//! An endpoint is a state machine that never blocks, sleeps or reads a clock. All input and output passes through two
//! calls, so the same machine runs unchanged in a simulator and over sockets.
//!
//! ```
//! use trunkline_endpoint::echo::{Client, Command, Config, Server};
//! use trunkline_endpoint::pair::PEER_B;
//! use trunkline_endpoint::{Pair, Port};
//! use trunkline_units::{Seed, Span};
//!
//! let (interval, timeout) = (Span::from_ms(10), Span::from_ms(4));
//! let client = Client::new(Config { port: Port(0), peer: PEER_B, length: 64, interval, timeout, tries: 5 });
//! let mut pair = Pair::new(client, Server::new(), Seed(1));
//! pair.command_a(Command::Start { count: 3 }).unwrap();
//! pair.run(Span::from_s(1));
//! assert_eq!(pair.b().answered(), 3);
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`endpoint`] | the [`Endpoint`] trait, its [`Input`] and [`Output`], and the contract between machine and driver |
//! | [`medium`] | the [`Medium`] trait: what frames cross, and its counters |
//! | [`ecn`] | [`Ecn`]: explicit congestion notification |
//! | [`port`] | [`Port`], [`Peer`], [`Segment`], [`Writable`]: destinations and batches of frames |
//! | [`drain`](mod@drain) | the loop that polls an endpoint until it is idle |
//! | [`pair`] | two endpoints, a virtual clock, and a line with impairments |
//! | [`laws`] | checks that an endpoint satisfies the contract |
//! | [`echo`] | an example protocol: numbered pings with retransmission, and a stateless server |
//!
//! Nothing here touches the network, reads a clock, or uses the system's random number generator.

pub mod drain;
pub mod echo;
pub mod ecn;
pub mod endpoint;
pub mod laws;
pub mod medium;
pub mod pair;
pub mod port;

pub use drain::{Sink, drain};
pub use ecn::Ecn;
pub use endpoint::{Endpoint, Idle, Input, Output, Reason, Transmit};
pub use medium::{
    Bound, Capacity, Destination, Frame, LossCause, Medium, MediumCounters, MediumInput, MediumOutput,
};
pub use pair::{Impairments, Pair};
pub use port::{MAX_BATCH, MAX_SEGMENTS, Peer, Port, PortSet, Segment, Writable};
