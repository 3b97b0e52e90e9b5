//! `trunkline monitor`: the flow monitor.
//!
//! | module | what |
//! | --- | --- |
//! | `poll` | the daemon that polls |
//! | `show` | what comes, as lines, a table or JSON |

#[cfg(feature = "snmp")]
mod poll;
#[cfg(feature = "snmp")]
mod show;

use super::counters;
use crate::failure::Failure;
use crate::flags::monitor::Tool;

/// Does what was said.
pub fn monitor(tool: &Tool) -> Result<(), Failure> {
    match tool {
        #[cfg(feature = "snmp")]
        Tool::Poll(flags) => poll::poll(flags),
        #[cfg(not(feature = "snmp"))]
        Tool::Poll(_) => Err(Failure::input("this trunkline was built without `snmp`")),
        Tool::List(flags) => counters::list::list(flags),
        Tool::Export(flags) => counters::export::export(flags),
        Tool::Import(flags) => counters::import::import(flags),
        Tool::Capture(flags) => counters::capture::capture(flags),
        #[cfg(feature = "forward")]
        Tool::Forward(flags) => counters::forward::forward(flags),
    }
}
