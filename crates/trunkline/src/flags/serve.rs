//! Flags of `trunkline serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueHint};

#[derive(Debug, Args)]
pub struct Serve {
    /// The archive of counters [default: trunkline/counters.sqlite in $XDG_DATA_HOME or ~/.local/share]
    #[arg(long, value_name = "FILE", env = "TRUNKLINE_COUNTERS", value_hint = ValueHint::FilePath)]
    pub archive: Option<PathBuf>,
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:1996")]
    pub listen: SocketAddr,
    /// Who wants to read needs the token in this file; it is made, for you alone to read, where there is none
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub token_file: Option<PathBuf>,
}
