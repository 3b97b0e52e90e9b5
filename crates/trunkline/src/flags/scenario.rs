//! The flags of `trunkline scenario`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

#[derive(Debug, Args)]
pub struct Scenario {
    #[command(subcommand)]
    pub configuration: Configuration,
}

#[derive(Debug, Subcommand)]
pub enum Configuration {
    /// Point-to-point full duplex: every pair of hosts, one pair after the other
    Pairs(Options),
    /// Three pairs of six hosts, full duplex, at the same time
    ThreePairs(Options),
    /// Full duplex between the first host and the other hosts of its switch, at the same time
    Switch(Options),
    /// Full duplex between the first host and every other host of the network, at the same time
    OneToAll(Options),
    /// Full duplex between all hosts, at the same time
    Mesh(Options),
}

#[derive(Debug, Args)]
pub struct Options {
    /// Names of the hosts, as the experiment will have them
    #[arg(required = true, value_name = "HOST")]
    pub hosts: Vec<String>,
    /// Protocol of every connection, with its options, as in an experiment
    #[arg(long, default_value = "tcp")]
    pub protocol: String,
    /// Test of every connection, with its options, as in an experiment
    #[arg(long, default_value = "full (messagesize = 64 kB)")]
    pub test: String,
    /// Duration of every connection
    #[arg(long, default_value = "10 s")]
    pub duration: String,
    /// Output file [default: standard output]
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
}
