//! `trunkline monitor`: polling, and the archive of counters.
//!
//! | module | contents |
//! | --- | --- |
//! | `poll` | the daemon that polls devices |
//! | `show` | its output: lines, a table or JSON |

#[cfg(feature = "snmp")]
mod poll;
#[cfg(feature = "snmp")]
mod show;

use super::counters;
use crate::failure::Failure;
use crate::flags::monitor::Tool;

/// Runs a monitor command.
pub fn monitor(tool: &Tool) -> Result<(), Failure> {
    match tool {
        #[cfg(feature = "snmp")]
        Tool::Poll(flags) => poll::poll(flags),
        #[cfg(not(feature = "snmp"))]
        Tool::Poll(_) => Err(Failure::missing_feature("trunkline monitor poll", "snmp")),
        Tool::List(flags) => counters::list::list(flags),
        Tool::Export(flags) => counters::export::export(flags),
        Tool::Import(flags) => counters::import::import(flags),
        Tool::Capture(flags) => counters::capture::capture(flags),
        #[cfg(feature = "forward")]
        Tool::Forward(flags) => counters::forward::forward(flags),
        #[cfg(not(feature = "forward"))]
        Tool::Forward(_) => Err(Failure::missing_feature("trunkline monitor forward", "forward")),
    }
}
