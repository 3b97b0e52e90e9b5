//! Flags of `trunkline serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::archives::CountersArchive;

#[derive(Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    pub archive: CountersArchive,
    /// Address to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:1996")]
    pub listen: SocketAddr,
    /// Require the token in this file from clients; the file is created, readable only by you, if it does not exist
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub token_file: Option<PathBuf>,
}
