//! `trunkline check`.

use super::experiment::Experiment;
use crate::failure::{Failure, print};
use crate::flags::Check;

/// Prints the plan of an experiment.
pub fn check(flags: &Check) -> Result<(), Failure> {
    let experiment = Experiment::read(&flags.file, &flags.overrides)?;
    print(&trunkline_experiment::plan_text(&experiment.plan))
}
