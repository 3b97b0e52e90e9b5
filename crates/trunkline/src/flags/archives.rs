//! The flags that name an archive: of runs, or of counters.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use trunkline_counters::archive::Location;

/// The archive of runs.
#[derive(Debug, Clone, Args)]
pub struct RunArchive {
    /// The archive of runs, a file [default: trunkline/archive.sqlite in $XDG_DATA_HOME or ~/.local/share]
    #[arg(long, value_name = "FILE", env = "TRUNKLINE_ARCHIVE", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub archive: Option<PathBuf>,
}

/// The archive of counters.
#[derive(Debug, Clone, Args)]
pub struct CountersArchive {
    /// The archive of counters, a file or postgres://USER@HOST/NAME [default: trunkline/counters.sqlite in
    /// $XDG_DATA_HOME or ~/.local/share]
    // The value may contain a password, which the help must not show.
    #[arg(long, value_name = "ARCHIVE", env = "TRUNKLINE_COUNTERS", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub archive: Option<Location>,
}
