//! The `trunkline` command: flags, commands, exit statuses.
//!
//! ```text
//! trunkline run experiments/quickstart.ns --on live,sim
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`flags`] | the command line, from which help, man pages and completions are generated |
//! | [`commands`] | the commands, which call the libraries |
//! | [`top`](mod@top) | `trunkline top`: the live display of traffic |
//! | [`archive`] | the locations of the archives and other files, and records by path or run number |
//! | [`failure`] | how a command fails: one line and an exit status |

mod archive;
mod commands;
mod failure;
mod flags;
mod top;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let flags = flags::Flags::parse();
    match commands::run(flags.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
