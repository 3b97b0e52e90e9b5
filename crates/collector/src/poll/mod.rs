//! The collector: polls devices by SNMP, this machine's interfaces and hosts that are pinged, on one thread.
//!
//! | module | contents |
//! | --- | --- |
//! | [`config`] | the configuration, read from a TOML file |
//! | [`collect`] | all polling tasks, on one thread |
//! | [`device`] | a device with an SNMP agent: the schedule of its tables, and its texts |
//! | [`ports`] | the ports of a device: names, speeds, the table `interfaces` |
//! | [`atm`] | the ATM channels and paths of a device |
//! | [`objects`] | other objects of a device |
//! | [`table`] | converts rows that appear and disappear into the columns of one table |
//! | [`machine`] | interfaces of this machine |
//! | [`ping`] | hosts that are pinged |
//! | [`report`] | reports of polling tasks, their bounded queue, and what all tasks share |
//! | [`archive`] | writes reports into the archive |
//! | `retry` | responses that the archive could not take yet |
//! | [`rates`] | rates of change, for a terminal |
//!
//! ```text
//!  device ─┐                           ┌─► archive ──► file or database
//!  device ─┼─► report queue, bounded ──┤
//!  ping   ─┘                           └─► rates ────► terminal
//! ```
//!
//! Polls are spread over the period. Each device has its own task with one outstanding request, so a slow device delays
//! no other. Rows, names, and the time of a poll are limited. A [`Fault`](crate::snmp::Fault) is reported when it begins,
//! changes and ends.

pub mod archive;
pub mod atm;
pub mod collect;
pub mod config;
pub mod device;
pub mod machine;
pub mod objects;
pub mod ping;
pub mod ports;
pub mod rates;
pub mod report;
mod retry;
pub mod table;

pub use crate::time::AnchoredClock;
pub use archive::{ArchiveWriter, WriteOptions};
pub use collect::{Collector, Stop};
pub use config::{Config, ConfigError};
pub use rates::Rates;
pub use report::Report;
