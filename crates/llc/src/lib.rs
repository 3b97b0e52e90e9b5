//! Logical link control by IEEE 802.2: real-time messages between stations, and a token that bounds their delay.
//!
//! What AirNET was in 1990 (Cain, Weaver, Colvin, Simoncic: *AirNET: a real-time communications network for aircraft*):
//! a station with service access points; datagrams (type 1) and datagrams that are acknowledged (type 3); eight
//! priorities; an optional checksum; tries and time limits.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`wire`] | PDUs, byte for byte |
//! | [`options`] | how a service access point behaves |
//! | [`talk`] | what a station is asked, and what it tells |
//! | [`station`] | [`Station`], the endpoint |
//! | [`statistics`] | what it counted |
//! | [`token`] | a ring of stations on a line that all of them hear: one packet a token |
//! | `face` | feature `sockets`: stations on Ethernet interfaces and over UDP, for threads |
//! | [`admit`] | the longest that messages wait for the token, and which promises can be kept |
//!
//! A frame of a station, on its one port: the priority, one octet, and the PDU. Over UDP that is the datagram; on
//! Ethernet the priority becomes a tag (IEEE 802.1Q) and the PDU the content of a length-encapsulated frame. A
//! [`Peer`](trunkline_endpoint::Peer) is one octet: the station, or [`ALL`](wire::ALL) for everybody.

pub mod admit;
#[cfg(feature = "sockets")]
pub mod face;
pub mod options;
pub mod station;
pub mod statistics;
pub mod talk;
pub mod token;
pub mod wire;

pub use options::Options;
pub use station::{Config, Station};
pub use statistics::Statistics;
pub use talk::{Command, Event, Outcome, Refusal, Ticket};
pub use wire::{Address, Pdu};
