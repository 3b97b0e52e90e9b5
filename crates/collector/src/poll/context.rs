//! The clock and the report queue that every polling task shares.

use super::AnchoredClock;
use super::report::ReportSender;

/// What every polling task needs.
#[derive(Clone, Debug)]
pub struct Context {
    /// The clock.
    pub clock: AnchoredClock,
    /// The queue of reports.
    pub sink: ReportSender,
}
