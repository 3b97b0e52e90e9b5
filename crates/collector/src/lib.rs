//! Polls devices, interfaces and hosts, and writes their counters into an archive.
//!
//! ```
//! use std::path::Path;
//! use std::time::Duration;
//!
//! use trunkline_collector::poll::{AnchoredClock, Collector, Config, report};
//!
//! let config = Config::parse("[[machine]]\nname = 'here'\ninterfaces = ['lo']", Path::new(""))?;
//! let (sender, reports) = report::queue();
//! let (collector, _stop) = Collector::new(config, AnchoredClock::start(), sender);
//! collector.run(true)?; // polls everything once
//! while let Ok(Some(report)) = reports.receive(Duration::ZERO) {
//!     println!("{report:?}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`snmp`] | SNMP sessions and table walks |
//! | [`poll`] | the configuration, the polling tasks, and the archive writer |
//! | [`time`] | a monotonic clock with wall-clock time, and poll schedules |

pub mod poll;
pub mod snmp;
pub mod time;
