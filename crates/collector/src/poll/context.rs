//! The resources that every polling task shares.

use super::AnchoredClock;
use super::report::ReportSender;

/// The resources that every polling task shares.
#[derive(Clone, Debug)]
pub struct Context {
    /// The clock.
    pub clock: AnchoredClock,
    /// The queue of reports.
    pub sink: ReportSender,
}
