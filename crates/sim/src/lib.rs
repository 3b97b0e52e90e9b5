//! The simulator: runs an experiment in simulated time.
//!
//! ```
//! use trunkline_experiment::{Source, parse};
//! use trunkline_run::{Backend as _, NoProgress, RunOptions, StopFlag};
//! use trunkline_sim::Sim;
//!
//! let text = r#"experiment "ten" {
//!     network { host a, b; link a - b (rate = 10 Mb/s, delay = 1 ms); }
//!     connection x { xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 1000, period = 10 ms); messages = 10; }
//! }"#;
//! let plan = parse(&Source { name: "ten", text, folder: None }).plan.expect("a valid experiment");
//! let options = RunOptions {
//!     seed: Default::default(),
//!     text: text.into(),
//!     started_at: String::new(),
//!     folder: ".".into(),
//!     out: std::env::temp_dir(),
//!     stop: StopFlag::default(),
//! };
//! let record = Sim::default().run(&plan, &options, &mut NoProgress);
//! assert_eq!(record.connections[0].messages_received, 10);
//! ```
//!
//! ```text
//!  end ── host ── link ── switch ── link ── host ── end
//!   │     sources, transports, meters: `flow`        │
//!   └── one event queue: the next deadline of each ──┘
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`admission`] | links that admit connections |
//! | `backend` | [`Sim`], the backend: takes a plan, returns a record |
//! | `bundles` | bundle converters and the interfaces of their hosts |
//! | [`capture`] | captures of links and hosts: their points and files, for frames of any type |
//! | `engine` | the event loop: handles deadlines and forwards frames |
//! | `event_queue` | deadlines ordered by time and node |
//! | `explicit_rates` | explicit rates of ATM links: controlling hosts, switches, sources |
//! | `flow` | the ends of one run of a connection, and their measurements |
//! | `frame` | frames and packets: lengths and metadata, few bytes |
//! | [`link_series`] | counters of link ends over time |
//! | `llc_stations` | the LLC stations of hosts and the token ring among them |
//! | [`medium`] | all media as one enum |
//! | [`network`] | media, hosts and forwarding tables of a plan, for frames of any type |
//! | `schedule` | serial, parallel, repeat: when each connection starts |
//! | `stages` | delay of guaranteed messages by stage |
//! | `trace` | simulated frames as captured packets |
//!
//! A run is single-threaded and depends only on the plan and the seed. Parallel runs are independent.

pub mod admission;
mod backend;
mod bundles;
pub mod capture;
mod engine;
mod event_queue;
mod explicit_rates;
mod flow;
mod frame;
pub mod link_series;
mod llc_stations;
pub mod medium;
pub mod network;
mod schedule;
mod stages;
mod trace;

pub use backend::Sim;
pub use bundles::refuse::refuse as refuse_bundles;
pub use bundles::wide_area_port;
pub use llc_stations::refuse::refuse as refuse_llc;
pub use llc_stations::{StationPort, station_port};
