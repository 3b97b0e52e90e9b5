//! Flags of the flow monitor.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Monitor {
    #[command(subcommand)]
    pub tool: Tool,
}

#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Poll devices by SNMP, this machine's interfaces and hosts that are pinged, and keep what they tell
    ///
    /// Without an archive rates go to the terminal as they come. It ends on SIGTERM or Ctrl-C with everything written. What
    /// is wrong with a device is told when it begins, changes and ends, and ends nothing. Exit status 0 if it was ended, or
    /// with --once everything answered; 1 if not, or it cannot poll or write; 2 if the configuration or the usage is wrong.
    Poll(Poll),
}

#[derive(Debug, Args)]
pub struct Poll {
    /// What is polled: a TOML file (docs/monitor.md)
    #[arg(value_hint = ValueHint::FilePath)]
    pub config: PathBuf,
    /// The archive of counters to write into [default: that of the configuration, if it names one]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub archive: Option<PathBuf>,
    /// Poll everything once, print a table of devices and ports, and end
    #[arg(long)]
    pub once: bool,
    /// Print JSON, an object a line, and nothing else, to standard output
    #[arg(long)]
    pub json: bool,
}
