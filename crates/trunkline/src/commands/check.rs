//! `trunkline check`.

use super::experiment::Experiment;
use crate::failure::{Failure, say};
use crate::flags::Check;

/// Prints the plan.
pub fn check(flags: &Check) -> Result<(), Failure> {
    let experiment = Experiment::read(&flags.file, &flags.changes)?;
    say(&trunkline_experiment::plan_text(&experiment.plan))
}
