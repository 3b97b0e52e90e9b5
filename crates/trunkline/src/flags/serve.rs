//! Flags of `trunkline serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use trunkline_counters::archive::Location;

#[derive(Debug, Args)]
pub struct Serve {
    /// The archive of counters, a file or postgres://USER@HOST/NAME [default: trunkline/counters.sqlite in
    /// $XDG_DATA_HOME or ~/.local/share]
    // Its value may hold a password, which a help text would show.
    #[arg(long, value_name = "ARCHIVE", env = "TRUNKLINE_COUNTERS", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub archive: Option<Location>,
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:1996")]
    pub listen: SocketAddr,
    /// Who wants to read needs the token in this file; it is made, for you alone to read, where there is none
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub token_file: Option<PathBuf>,
}
