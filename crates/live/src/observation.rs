//! What the ends of connections have measured so far, for an observer of the run.

use std::collections::BTreeMap;
use std::sync::Mutex;

use trunkline_run::assemble::RepetitionOutcome;
use trunkline_units::Span;

use crate::locked;

/// The latest outcomes of the running repetitions, by the index of their connection. An outcome that the observer has
/// not taken is replaced by the next, so the memory is bounded.
#[derive(Debug, Default)]
pub struct Observation {
    interval: Option<Span>,
    outcomes: Mutex<BTreeMap<usize, RepetitionOutcome>>,
}

impl Observation {
    /// Creates an observation; `interval` is that of the reports which the observer requests, if it does.
    pub fn new(interval: Option<Span>) -> Self {
        Observation { interval, ..Observation::default() }
    }

    /// Returns the interval of the reports that the observer requests, if it does.
    pub fn interval(&self) -> Option<Span> {
        self.interval
    }

    /// Stores the outcome so far of a connection.
    pub fn publish(&self, connection: usize, outcome: RepetitionOutcome) {
        locked(&self.outcomes).insert(connection, outcome);
    }

    /// Returns the outcomes that are new since the last call.
    pub fn take(&self) -> BTreeMap<usize, RepetitionOutcome> {
        std::mem::take(&mut *locked(&self.outcomes))
    }
}
