//! The flags of `trunkline lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::Overrides;

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true
)]
pub struct Lab {
    #[command(subcommand)]
    pub action: Option<Action>,
    #[command(flatten)]
    pub open: Open,
}

#[derive(Debug, Args)]
pub struct Open {
    /// The experiment file; `-` reads standard input
    #[arg(required = true, value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub overrides: Overrides,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = trunkline_units::Seed::default().0)]
    pub seed: u64,
    /// Capture the packets of a link, one direction of it (LINK:NODE) or a host as pcapng in `lab` of the folder
    #[arg(long, visible_alias = "capture", value_name = "NAME", value_delimiter = ',')]
    pub trace: Vec<String>,
    /// Folder for captures and what the programs of hosts write [default: trunkline-results/NAME]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Action {
    /// Run a shell or a command on a host of a running lab
    ///
    /// Exit status: that of the command, 2 if there is no such host.
    Enter(Enter),
    /// List the running labs of this user and their hosts
    List,
    /// Write the network of an experiment as a topology of containerlab
    Export(Export),
}

#[derive(Debug, Args)]
pub struct Enter {
    /// The host
    pub host: String,
    /// The lab, by the name of its experiment or by its process, if several have such a host
    #[arg(long, value_name = "NAME|PID")]
    pub lab: Option<String>,
    /// The command to run [default: the shell in $SHELL]
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Export {
    /// The experiment file; `-` reads standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// The container image of the hosts
    #[arg(long, default_value = "debian:stable-slim")]
    pub image: String,
    #[command(flatten)]
    pub overrides: Overrides,
}
