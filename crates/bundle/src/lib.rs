//! The bundle converter: many small simulation messages in few packets, each host only what it wants.
//!
//! A distributed simulation sends one small message a packet to thousands of multicast groups, and the host that must
//! receive them spends its processor on packets. The converter of Bobo (*Message-Bundle Converting in Internet Protocol
//! Multicast-Based High Level Architecture Exercises*, AFIT 1997) stands between the wide area and the hosts: converters
//! of level 1 hear the groups and bundle what they hear, the central one sorts it by who wants it, and an interface at each
//! host takes bundles apart.
//!
//! ```text
//! wide area ══ message ══► level 1 ══ bundles ══► central ══ bundles, to all hosts ══► host ──► simulation
//!           ◄═══════════           ◄═════════            ◄══════════════════════════      ◄──
//! ```
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`level1`] | [`Level1`], the endpoint between the wide area and the central converter |
//! | [`central`] | [`Central`], the endpoint in the middle |
//! | [`host`] | [`Host`], the endpoint at a simulation |
//! | [`settings`] | what all of them agree on |
//! | [`inbox`] | messages that wait until the simulation takes them |
//! | [`gather`] | messages that gather until their bundle leaves |
//! | [`interest`] | who wants which messages, and which converter of level 1 gets them |
//! | [`packets`] | sets of packet addresses |
//! | [`ranges`] | who wants which of 2³² addresses |
//! | [`balance`] | what moves from one converter of level 1 to another |
//! | [`level`] | congestion by levels |
//! | [`regions`] | sets of addresses by name, which a host publishes and subscribes to |
//! | [`regulator`] | congestion by levels or by what is left of a medium |
//! | [`path`] | what the numbers of messages tell: doubles, late and missing ones |
//! | [`reliable`] | messages that are acknowledged |
//! | [`retell`] | what was told is told again |
//! | [`rules`] | which message address a PDU has, and which a host wants |
//! | [`drops`] | what was dropped, by why and priority |
//! | [`wide`](mod@wide) | the three endpoints in the wide format |
//! | [`wire`] | what stands on the wire |
//! | `face` | the machines on UDP sockets, with the feature `sockets` |

pub mod balance;
pub mod central;
pub mod drops;
#[cfg(feature = "sockets")]
pub mod face;
pub mod gather;
pub mod host;
pub mod inbox;
pub mod interest;
pub mod level;
pub mod level1;
pub mod packets;
pub mod path;
pub mod ranges;
pub mod regions;
pub mod regulator;
pub mod reliable;
pub mod retell;
pub mod rules;
pub mod settings;
pub mod wide;
pub mod wire;

pub use central::Central;
pub use host::Host;
pub use level1::Level1;
pub use settings::{Format, Settings, Wide};
