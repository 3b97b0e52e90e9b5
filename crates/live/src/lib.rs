//! The live backend: real sockets on real hosts.
//!
//! ```text
//!  Live (controller) ──Order──► Agent of host a ── thread per end ── socket
//!        ▲           ◄─Report──       …                               ║
//!        │           ──Order──► Agent of host b ── thread per end ── socket
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | [`backend`] | [`Live`], the backend: places hosts, refuses what it cannot do, gathers the record |
//! | [`controller`] | runs the plan's blocks: prepare, start, finish, report, connection by connection |
//! | [`agent`] | serves one host: opens ends when told, reports what they measure |
//! | [`launch`] | how an agent comes to be: a process of its own, or a thread |
//! | [`wire`] | what controller and agents say to each other |
//! | [`end`] | the ends themselves: datagrams, streams, requests, files |
//! | [`station`] | the LLC station of a host, for all its ends |
//! | [`bundles`] | the converters of a plan's network, and the interfaces of the hosts behind them |
//! | [`looks`] | what interfaces counted, against time |
//! | [`environment`] | what the measurement was made with |
//! | [`study`] | what sending and receiving costs this machine, apart from any run |
//!
//! Each host of the plan is a process, so that its processor time is its own and its death is told from the rest.

#![allow(clippy::disallowed_methods, reason = "this crate runs in real time")]

pub mod agent;
pub mod backend;
pub mod bundles;
pub mod controller;
pub mod end;
pub mod environment;
pub mod launch;
pub mod looks;
pub mod station;
pub mod study;
pub mod wire;

pub use backend::Live;
pub use launch::{Launch, Processes, Threads};
