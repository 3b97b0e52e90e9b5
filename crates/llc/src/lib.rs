//! Logical link control (IEEE 802.2): real-time messages between stations, and a token that bounds their delay.
//!
//! The services of AirNET (Cain, Weaver, Colvin, Simoncic 1990: *AirNET: a real-time communications network for
//! aircraft*): stations with service access points; datagrams (type 1) and acknowledged datagrams (type 3); eight
//! priorities; an optional checksum; retries and time limits.
//!
//! ```
//! use trunkline_endpoint::{Endpoint, Input, Output, Port, Writable};
//! use trunkline_llc::{Address, Command, Config, Options, Station, Ticket};
//! use trunkline_units::Instant;
//!
//! let mut station = Station::new(Config::new(Port(0), 1));
//! let open = Command::Open { sap: 4, options: &Options::default() };
//! station.handle(Instant::ZERO, Input::Command(open)).unwrap();
//! let to = Address { sap: 4, station: 2 };
//! let mut ticket = Ticket(0);
//! let send = Command::Send { sap: 4, to, bytes: b"hello", priority: Some(6), ticket: &mut ticket };
//! station.handle(Instant::ZERO, Input::Command(send)).unwrap();
//! let mut buffer = [0; 1600];
//! let Output::Transmit(frame) = station.poll(Instant::ZERO, Writable::ALL, &mut buffer) else { panic!() };
//! assert_eq!(buffer[..frame.length], *b"\x06\x04\x04\x03hello");   // priority, DSAP, SSAP, UI, information
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`wire`] | PDU encoding |
//! | [`options`] | options of a service access point |
//! | [`api`] | commands and events of a station |
//! | [`station`] | [`Station`], the endpoint |
//! | [`statistics`] | counters |
//! | [`token`] | a token ring of stations on a broadcast line |
//! | `socket` | feature `sockets`: stations on Ethernet interfaces and over UDP, for threads |
//! | [`admit`] | the maximum delay of messages in a ring, and which traffic contracts can be kept |
//!
//! A frame on a station's only port is one octet of priority and the PDU. Over UDP that is the datagram; on Ethernet
//! the priority becomes an IEEE 802.1Q tag and the PDU the content of a length-encapsulated frame. A
//! [`Peer`](trunkline_endpoint::Peer) is one octet: the station number, or [`ALL`](wire::ALL) for broadcast.

pub mod admit;
pub mod api;
pub mod options;
#[cfg(feature = "sockets")]
pub mod socket;
pub mod station;
pub mod statistics;
pub mod token;
pub mod wire;

pub use api::{Command, Event, Outcome, Refusal, Ticket};
pub use options::Options;
pub use station::{Config, Station};
pub use statistics::Statistics;
pub use wire::{Address, Pdu};
