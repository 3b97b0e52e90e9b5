//! The collector of the flow monitor: polls devices, interfaces and hosts into the archive of counters.
//!
//! | module | contents |
//! | --- | --- |
//! | [`snmp`] | SNMP sessions and table walks |
//! | [`poll`] | the configuration, the schedule, and what is polled |
//! | [`time`] | a monotonic clock, and the times of polls |

pub mod poll;
pub mod snmp;
pub mod time;
