//! The `trunkline` command: flags, wiring, exit codes.
//!
//! | module | what |
//! | --- | --- |
//! | [`flags`] | what may be said on the command line: help, man page and completions come from it |
//! | [`commands`] | what each command does, by calling the libraries |
//! | [`top`](mod@top) | the monitor: its screen, its lines, what it records |
//! | [`archive`] | where the archive is, and records by path or number |
//! | [`failure`] | how a command ends: one clear line and a status |

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
