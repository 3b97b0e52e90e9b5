//! The live backend runs an experiment with real sockets, one agent process for each host.
//!
//! ```
//! use std::collections::BTreeMap;
//! use trunkline_experiment::{Source, parse};
//! use trunkline_live::{Live, Threads};
//! use trunkline_run::{Backend, NoProgress, RunOptions, StopFlag};
//! use trunkline_units::Seed;
//!
//! let text = "experiment { connection c {
//!     xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 100, period = 1 ms); messages = 10;
//! } }";
//! let plan = parse(&Source { name: "example.ns", text, folder: None }).plan.expect("the text is valid");
//! let mut live = Live::new(Box::new(Threads), BTreeMap::new());
//! assert!(live.refuse(&plan).is_empty());
//! let options = RunOptions {
//!     seed: Seed(1),
//!     started_at: String::new(),
//!     text: text.into(),
//!     folder: ".".into(),
//!     out: std::env::temp_dir(),
//!     stop: StopFlag::default(),
//! };
//! let record = live.run(&plan, &options, &mut NoProgress);
//! assert_eq!(record.connections[0].messages_sent, 10);
//! ```
//!
//! The controller starts an agent for each host and exchanges messages with it; each agent runs one thread for each
//! end of a connection:
//!
//! ```text
//!  Live (controller) ── ControllerMessage ──► agent of host a ── thread per end ── socket
//!        ▲           ◄── AgentMessage ──           …                                ║
//!        │           ── ControllerMessage ──► agent of host b ── thread per end ── socket
//! ```
//!
//! Each host of the plan is a process, so that its processor time and its failures are separate from those of others.
//!
//! | module | contents |
//! | --- | --- |
//! | `backend` | [`Live`]: assigns addresses, refuses unsupported plans, assembles the record |
//! | `controller` | executes the schedule: prepare, start, finish and report for each connection |
//! | [`agent`] | serves one host: opens ends and reports what they measure |
//! | [`consent`] | proof that a destination agrees to receive load |
//! | `launch` | starts agents as processes or threads |
//! | [`limits`] | what an agent permits to controllers on other machines |
//! | `wire` | messages between controller and agents |
//! | `explicit_rate` | explicit rates of links in a lab |
//! | `end` | the ends of connections: datagrams, streams, requests, files, LLC, bundles |
//! | [`clock_offset`] | offset between the clocks of two hosts, with a proven bound |
//! | `station` | the LLC station of a host, shared by its ends |
//! | `bundles` | bundle converters, and the bundle interfaces of hosts |
//! | `kernel_sampler` | counters of the kernel over time |
//! | `interface_sampler` | counters of network interfaces over time |
//! | `observation` | what the ends have measured so far, for an observer |
//! | [`environment`] | facts about the machine |
//! | [`time_exchange`] | exchanges of time over UDP |
//! | [`study`] | processing costs of this machine, independent of any run |

#![allow(clippy::disallowed_methods, reason = "this crate runs in real time")]

pub mod agent;
mod backend;
mod bundles;
pub mod clock_offset;
pub mod consent;
mod controller;
mod end;
pub mod environment;
mod explicit_rate;
mod interface_sampler;
mod kernel_sampler;
mod launch;
pub mod limits;
mod observation;
mod station;
pub mod study;
pub mod time_exchange;
mod wire;

pub use backend::Live;
pub use bundles::group_of_hosts;
pub use explicit_rate::RateController;
pub use launch::{
    Admission, AgentClock, Launch, LaunchedAgent, Processes, RemoteAgent, STATION_INTERFACE, Threads,
};
pub use wire::MAX_REMOTE_MESSAGES;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex and ignores a panic of another thread: the contents are plain data.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
