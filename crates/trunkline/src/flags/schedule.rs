//! The flags of `trunkline schedule`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use jiff::Timestamp;
use trunkline_schedule::RunName;

use super::RunArchive;

#[derive(Debug, Args)]
pub struct Schedule {
    #[command(subcommand)]
    pub action: Action,
}

#[derive(Debug, Subcommand)]
pub enum Action {
    /// Check a schedule and its experiments, and print the runs of the next days
    ///
    /// Every run is assumed to take its expected time, so the list also shows which runs will start late or be missed.
    Check {
        /// The schedule file
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Number of days
        #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=3660))]
        days: u16,
        /// Begin at this time, e.g. 2026-12-04T14:00:00Z [default: now]
        #[arg(long, value_name = "TIME")]
        from: Option<Timestamp>,
        /// Maximum number of runs to print
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u32,
    },
    /// Start each run at its time, until the last run has ended or until Ctrl-C
    ///
    /// Each run is a separate process, `trunkline run`, and its record goes to the archive of runs. The first SIGINT or
    /// SIGTERM stops the current runs and stores their partial results. Exit status: 0 at the end or when interrupted, 1
    /// if the state cannot be written or another controller uses it, 2 if the input or the usage is wrong.
    Run {
        /// The schedule file
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Folder for the latest record and report of each entry
        #[arg(long, value_name = "DIR", default_value = "trunkline-results", value_hint = ValueHint::DirPath)]
        out: PathBuf,
        #[command(flatten)]
        state: StateFile,
        #[command(flatten)]
        archive: RunArchive,
    },
    /// List the next run of each entry and the runs that were decided last
    List {
        /// Only runs of this entry
        #[arg(long, value_name = "NAME")]
        entry: Option<String>,
        /// Maximum number of decided runs to list
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: u32,
        /// Print one JSON object per run
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        state: StateFile,
    },
    /// Explain what a run waits for, or how it ended
    Why {
        /// The run: the name of its entry and its number, e.g. stair-step#3
        #[arg(value_name = "NAME#NUMBER")]
        run: RunName,
        #[command(flatten)]
        state: StateFile,
    },
}

/// The state of a schedule.
#[derive(Debug, Clone, Args)]
pub struct StateFile {
    /// The state of the schedule, a file [default: trunkline/schedule.sqlite in $XDG_DATA_HOME or ~/.local/share]
    #[arg(long, value_name = "FILE", env = "TRUNKLINE_SCHEDULE", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub state: Option<PathBuf>,
}
