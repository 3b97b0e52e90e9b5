//! `trunkline monitor`: the flow monitor.

use super::counters;
use crate::failure::Failure;
use crate::flags::monitor::MonitorAction;

/// Does what was said.
pub fn monitor(action: &MonitorAction) -> Result<(), Failure> {
    match action {
        MonitorAction::List(flags) => counters::list::list(flags),
        MonitorAction::Export(flags) => counters::export::export(flags),
        MonitorAction::Import(flags) => counters::import::import(flags),
        MonitorAction::Capture(flags) => counters::capture::capture(flags),
        #[cfg(feature = "forward")]
        MonitorAction::Forward(flags) => counters::forward::forward(flags),
    }
}
