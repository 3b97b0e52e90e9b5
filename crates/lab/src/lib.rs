//! The network of an experiment on one machine: real kernel stacks in network namespaces, and between them the media of the
//! simulator, in real time.
//!
//! ```text
//!  program ── kernel of host a ── TUN ─┐                              ┌─ TUN ── kernel of host b ── program
//!                                      └─ link ── switch ── link ─────┘
//!                                          `models`, one thread
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`laboratory`] | [`Lab`]: hosts and links of a plan |
//! | [`namespace`] | network namespaces, also for an ordinary user |
//! | `capacity` | whether this machine carries what a plan asks for
//! | [`backend`] | [`LabBackend`]: runs an experiment in its network
//! | `admission` | links that admit connections
//! | `explicit_rates` | controllers of links with explicit rates
//! | `bundles` | groups of bundle converters
//! | `programs` | the programs of hosts
//! | [`processes`] | processes that end with their lab
//! | [`session`] | running labs, and entering their hosts
//! | [`capture`] | captures of links and hosts
//! | `export` | the topology for containerlab
//! | [`emulator`] | the thread that carries packets in real time |
//! | [`forwarding`] | packets through the media of a plan, as a state machine |
//! | `group_routes` | routes of multicast groups
//! | `ipv6` | addresses and settings of IPv6
//! | [`packet`] | IP packets as frames of the media |
//! | `wait` | waiting for packets and a point in time |
//!
//! The media are built by [`trunkline_sim::network`] from the same plan and the same seed as in a simulation.

#![allow(clippy::disallowed_methods, reason = "this crate runs in real time")]

mod admission;
pub mod backend;
mod bundles;
mod capacity;
pub mod capture;
pub mod emulator;
mod explicit_rates;
mod export;
pub mod forwarding;
mod group_routes;
mod ipv6;
pub mod laboratory;
pub mod namespace;
pub mod packet;
pub mod processes;
mod programs;
pub mod session;
mod wait;

pub use backend::LabBackend;
pub use capture::CaptureOptions;
pub use emulator::Report;
pub use export::containerlab;
pub use laboratory::{Host, Lab, LabError};
pub use namespace::{Namespace, NamespaceError, enter_user_namespace};
pub use processes::Processes;
pub use programs::{ProgramError, Programs};
pub use session::Session;
