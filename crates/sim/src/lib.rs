//! The simulator: a plan in simulated time.
//!
//! ```text
//!  end ── station ── link ── switch ── link ── station ── end
//!   │  sources, transports, meters: `flow`          │
//!   └── one agenda: the next moment of every place ─┘
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | [`agenda`] | which place is next: by time, then by place |
//! | [`frame`] | what crosses the media: lengths and meaning, hardly ever bytes |
//! | [`medium`] | any medium, by one name |
//! | [`network`] | plan → media, stations, wires and forwarding tables |
//! | [`engine`] | the loop: wakes places and carries frames from one to the next |
//! | [`flow`] | one run of a connection: its ends, and what they measure |
//! | [`bundles`] | the bundle converters, and the interfaces of their hosts |
//! | [`stations`] | the LLC stations of hosts, and the token among them |
//! | [`schedule`] | serial, parallel, repeat: when flows begin |
//! | [`counts`] | what ends of links sent, against time |
//! | [`trace`] | captures of links and hosts, as pcapng |
//! | [`backend`] | [`Sim`]: plan in, record out |
//!
//! A run is one thread and depends on nothing but plan and seed. Runs side by side do not know of each other.

pub mod agenda;
pub mod backend;
pub mod bundles;
pub mod counts;
pub mod engine;
pub mod flow;
pub mod frame;
pub mod medium;
pub mod network;
pub mod schedule;
pub mod stations;
pub mod trace;

pub use backend::Sim;
