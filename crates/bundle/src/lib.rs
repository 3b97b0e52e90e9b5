//! The bundle converter: carries many small simulation messages in few packets and gives each host only those it
//! subscribes to.
//!
//! A distributed simulation sends one small message per packet to thousands of multicast groups. A host that receives
//! all of them spends its processor time on packets. The converter of Bobo (*Message-Bundle Converting in Internet
//! Protocol Multicast-Based High Level Architecture Exercises*, AFIT 1997) sits between the wide area and the hosts.
//! Level-1 converters receive the groups and bundle the messages, the central converter sorts them by subscriber, and
//! an endpoint at each host unpacks the bundles.
//!
//! ```text
//! wide area ══ message ══► level 1 ══ bundles ══► central ══ bundles, to all hosts ══► host ──► simulation
//!           ◄═══════════           ◄═════════            ◄══════════════════════════      ◄──
//! ```
//!
//! The endpoints do no I/O: a driver passes them datagrams and the time, and sends what they return. Here a host
//! sends two messages in one bundle:
//!
//! ```
//! use trunkline_bundle::host::{HostCommand, OutgoingMessage};
//! use trunkline_bundle::{Host, Settings, wire::classic::ClassicBundle};
//! use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Writable};
//! use trunkline_units::{Instant, Span};
//!
//! let settings = Settings::default();
//! let mut host = Host::new(3, 0, settings);
//! for body in [&b"position"[..], b"velocity"] {
//!     let send = HostCommand::Send(OutgoingMessage::new(&settings, 7, body));
//!     host.handle(Instant::ZERO, Input::Command(send)).unwrap();
//! }
//! // The default timing sends a bundle on each tick of 5 ms.
//! let tick = Instant::ZERO + Span::from_ms(5);
//! host.handle(tick, Input::Wake).unwrap();
//! let mut buffer = vec![0; MAX_BATCH];
//! let Output::Transmit(transmit) = host.poll(tick, Writable::ALL, &mut buffer) else { panic!("no bundle") };
//! let (_, bundle) = ClassicBundle::read_with_mask(&buffer[..transmit.length]).unwrap();
//! assert_eq!(bundle.count(), 2);
//! ```
//!
//! Each role is one state machine for both formats: [`Host`], [`Level1`] and [`Central`]. Commands, admission, limits,
//! counters, timers and the order of outputs are written there once. What only one format has stands beside them:
//!
//! | rule | format 1 (classic) | format 2 |
//! | --- | --- | --- |
//! | a peer is known | by its mask; it never times out | by a [`session`] |
//! | bundles gather | encoded at once, closed when due or full ([`bundler`]) | as messages, priority first ([`outbox`]) |
//! | joins of a host | soft state, refreshed (`joins`, [`refresh`]) | until confirmed (`joins`) |
//! | groups of level 1 | joins and leaves, refreshed (`level1_owners`) | confirmed assignments ([`level1_peers`]) |
//! | priority messages | by address, in order | [`reliable`] |
//! | congestion | levels ([`level`]) | levels or rates ([`regulator`]) |
//! | duplicates | only the owner of a group forwards | [`sequence`] numbers |
//!
//! | module | contents |
//! | --- | --- |
//! | [`api`] | configuration, commands, events and errors of the three endpoints |
//! | [`statistics`] | the counters of the three endpoints |
//! | [`level1`] | [`Level1`], the endpoint between the wide area and the central converter |
//! | [`central`] | [`Central`], the central converter |
//! | [`host`] | [`Host`], the endpoint at a simulation |
//! | [`settings`] | settings that all endpoints of a site share |
//! | [`inbox`] | received messages that wait for the simulation |
//! | [`bundler`] | classic messages that wait for their bundle to leave |
//! | [`interest`] | subscribers and owners of 16-bit addresses |
//! | [`packet_set`] | sets of packet addresses |
//! | [`ranges`] | subscribers of 32-bit addresses |
//! | [`balance`] | load balancing among level-1 converters |
//! | [`level`] | congestion control by levels |
//! | [`regions`] | named sets of addresses that a host publishes and subscribes to |
//! | [`regulator`] | congestion control by levels or by rates |
//! | [`sequence`] | sequence numbers: duplicates, reordering and losses |
//! | [`reliable`] | acknowledged messages |
//! | [`refresh`] | periodic refresh of soft state |
//! | [`rules`] | the message address of a DIS PDU, and the addresses a host subscribes to |
//! | [`drops`] | dropped messages, by reason and priority |
//! | [`outbox`] | messages of format 2 that wait for their bundle to leave |
//! | [`session`] | sessions of format 2 |
//! | [`single_message`] | the single-message bundles of the wide area in format 2 |
//! | `limits` | the admission of messages at a sender |
//! | `joins` | the addresses that a host has joined |
//! | [`members`] | the hosts at the central converter in format 2 |
//! | [`level1_peers`] | the level-1 converters at the central converter in format 2 |
//! | `level1_owners` | the same in format 1 (classic) |
//! | [`wire`] | wire formats |
//! | `socket` | the endpoints on UDP sockets, with the feature `sockets` |

pub mod api;
pub mod balance;
pub mod bundler;
pub mod central;
pub mod drops;
pub mod host;
pub mod inbox;
pub mod interest;
mod joins;
pub mod level;
pub mod level1;
mod level1_owners;
pub mod level1_peers;
mod limits;
pub mod members;
pub mod outbox;
pub mod packet_set;
pub mod ranges;
pub mod refresh;
pub mod regions;
pub mod regulator;
pub mod reliable;
pub mod rules;
pub mod sequence;
pub mod session;
pub mod settings;
pub mod single_message;
#[cfg(feature = "sockets")]
pub mod socket;
pub mod statistics;
pub mod wire;

pub use central::Central;
pub use host::Host;
pub use level1::Level1;
pub use settings::{Format, Format2, Settings};
