//! The collector of the flow monitor: polls devices, interfaces and hosts into the archive of counters.
//!
//! | module | contents |
//! | --- | --- |
//! | [`snmp`] | SNMP sessions and table walks |
//! | [`poll`] | the configuration, the schedule, and what is polled |

pub mod poll;
pub mod snmp;
