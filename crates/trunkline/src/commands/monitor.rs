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

use crate::failure::Failure;
use crate::flags::monitor::Tool;

/// Does what was said.
pub fn monitor(tool: &Tool) -> Result<(), Failure> {
    match tool {
        #[cfg(feature = "snmp")]
        Tool::Poll(flags) => poll::poll(flags),
        #[cfg(not(feature = "snmp"))]
        Tool::Poll(_) => Err(Failure::input("this trunkline was built without `snmp`")),
    }
}
