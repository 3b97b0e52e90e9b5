//! `trunkline schedule`: experiments at planned times.
//!
//! | module | contents |
//! | --- | --- |
//! | [`jobs`] | the entries of a schedule file, with their experiments checked, as commands |
//! | [`preview`] | `check`: the runs of the next days |
//! | [`process`] | a run as a process with a time limit |
//! | [`controller`] | `run`: starts each run at its time |
//! | [`show`] | `list` and `why` |

mod controller;
mod jobs;
mod preview;
mod process;
mod show;

use crate::archive::schedule_state;
use crate::failure::Failure;
use crate::flags::schedule::Action;

/// Runs a schedule command.
pub fn schedule(action: Action) -> Result<(), Failure> {
    match action {
        Action::Check { file, days, from, limit } => {
            let jobs = jobs::read(&file)?;
            preview::preview(&jobs, from.unwrap_or_else(jiff::Timestamp::now), days, limit)
        }
        Action::Run { file, out, state, archive } => {
            controller::control(&file, &out, &schedule_state(&state)?, &archive)
        }
        Action::List { entry, limit, json, state } => {
            show::list(&schedule_state(&state)?, entry.as_deref(), limit, json)
        }
        Action::Why { run, state } => show::explain(&schedule_state(&state)?, &run),
    }
}
