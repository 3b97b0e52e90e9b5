//! What a backend is: something that runs a plan and returns a record.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trunkline_experiment::Plan;
use trunkline_experiment::plan::Place;
use trunkline_record::Record;
use trunkline_units::{Seed, Span};

/// Runs plans: simulated, in a lab, or live.
pub trait Backend {
    /// `live`, `sim` or `lab`.
    fn name(&self) -> &'static str;

    /// What of this plan it cannot honour, each by name. Empty: it may run.
    fn refuse(&self, plan: &Plan) -> Vec<Refusal>;

    /// Runs the plan. What goes wrong on the way stands in the record, which then is partial: nothing that was
    /// measured is thrown away.
    fn run(&mut self, plan: &Plan, order: &Order, watch: &mut dyn Watch) -> Record;
}

/// Something a plan asks for that a backend does not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Where the text asks for it.
    pub place: Place,
    /// What it is and what to do instead, one line.
    pub text: String,
}

/// How a plan is to be run.
#[derive(Clone, Debug)]
pub struct Order {
    /// What every random stream is drawn from.
    pub seed: Seed,
    /// The experiment's text, for the record.
    pub text: String,
    /// Where relative file names of the experiment begin.
    pub folder: PathBuf,
    /// Where received files go.
    pub out: PathBuf,
    /// Set to end the run early; what was measured is kept.
    pub stop: Stop,
}

/// A request to stop that every thread can see.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks everyone to stop.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked.
    #[inline]
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, for a signal handler or a pacer.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.0
    }
}

/// Hears how a run goes, e.g. to draw a progress bar.
pub trait Watch: Send {
    /// A few times a second: the time since the run began, and the longest it may take where that is known.
    fn progress(&mut self, elapsed: Span, expected: Option<Span>);
}

/// Hears nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn progress(&mut self, _: Span, _: Option<Span>) {}
}
