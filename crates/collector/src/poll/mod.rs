//! The collector: polls devices by SNMP, this machine's interfaces and hosts that are pinged, on one thread.
//!
//! | module | what |
//! | --- | --- |
//! | [`config`] | what shall be polled, from a TOML file |
//! | [`collect`] | everybody's tasks, and their end |
//! | [`device`] | a device with an SNMP agent: which table when, and what is told in words |
//! | [`ports`] | its ports: names, speeds, the table `interfaces` |
//! | [`channels`] | its ATM channels and paths |
//! | [`other`] | any other objects of it |
//! | [`sheet`] | rows that come and go → the columns of one table |
//! | [`machine`] | this machine's interfaces |
//! | [`ping`] | hosts that are pinged |
//! | [`report`] | what comes of it, through a bounded queue |
//! | [`keep`] | who writes it into the archive |
//! | `late` | what waits until there is a table for it |
//! | [`rates`] | who makes rates of it as it comes |
//! | [`time`] | a clock that never goes back, and when polls are due |
//!
//! ```text
//!  device ─┐ spread over the period;                         ┌─► keep ──► archive
//!  device ─┼ each waits for itself alone ──► queue, bounded ─┤
//!  ping   ─┘                                                 └─► rates ──► terminal
//! ```
//!
//! A device has one request under way and one task; it delays nobody. What it says is bounded: rows, names, requests by
//! the time of a period. What is wrong is a [`Fault`](crate::snmp::Fault), told when it begins, changes and ends.

pub mod channels;
pub mod collect;
pub mod config;
pub mod device;
pub mod keep;
mod late;
pub mod machine;
pub mod other;
pub mod ping;
pub mod ports;
pub mod rates;
pub mod report;
pub mod sheet;
pub mod time;

pub use collect::{Collector, Stop};
pub use config::Config;
pub use keep::{Keeper, Keeping};
pub use rates::Rates;
pub use report::Report;
pub use time::Time;
