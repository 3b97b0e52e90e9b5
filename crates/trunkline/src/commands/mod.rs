//! The commands.

mod agent;
mod analyse;
mod congestion;
mod converter;
mod curves;
mod experiment;
mod fmt;
mod hosts;
#[cfg(feature = "agents")]
mod keys;
#[cfg(target_os = "linux")]
mod lab;
mod llc;
mod monitor;
mod pool;
mod recording;
mod records;
mod report;
mod reproduce;
mod run;
mod scenario;
mod schedule;
#[cfg(feature = "web")]
mod serve;
mod stamp;
mod study;
mod sweep;
mod test;
mod torture;

use std::path::PathBuf;

use clap::CommandFactory;

pub use monitor::time::{now, parse_moment};

use self::experiment::Experiment;
use crate::failure::{Failure, print};
use crate::flags::{Command, Flags};

/// Runs a command.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Check(flags) => {
            let experiment = Experiment::read(&flags.file, &flags.overrides)?;
            let warnings = hosts::unknown_agents(&experiment.plan, &flags.keys)?;
            experiment::print_diagnostics(&experiment.name, &experiment.text, &warnings);
            print(&trunkline_experiment::plan_text(&experiment.plan))
        }
        Command::Fmt(flags) => fmt::fmt(&flags),
        Command::Run(flags) => run::run(&flags),
        #[cfg(target_os = "linux")]
        Command::Lab(flags) => lab::lab(&flags),
        #[cfg(not(target_os = "linux"))]
        Command::Lab(_) => Err(Failure::input("a lab needs the network namespaces of Linux")),
        Command::Scenario(flags) => scenario::scenario(&flags),
        Command::Schedule(flags) => schedule::schedule(flags.action),
        Command::Test(flags) => test::test(&flags),
        Command::Sweep(flags) => sweep::sweep(&flags),
        Command::Reproduce(flags) if flags.paper.as_deref() == Some(congestion::NAME) => {
            congestion::congestion(&flags)
        }
        Command::Reproduce(flags) if flags.paper.as_deref() == Some(reproduce::lab::NAME) => {
            reproduce::lab::lab(&flags)
        }
        Command::Reproduce(flags) => reproduce::reproduce(&flags),
        Command::Torture(flags) => torture::torture(&flags),
        Command::Top(flags) => crate::top::top(&flags),
        Command::Llc(flags) => llc::llc(&flags.tool),
        Command::Stamp(flags) => stamp::stamp(&flags.end),
        Command::Converter(flags) => converter::converter(&flags.daemon),
        Command::Monitor(flags) => monitor::monitor(&flags.tool),
        Command::Analyse(flags) => analyse::analyse(&flags),
        #[cfg(feature = "web")]
        Command::Serve(flags) => serve::serve(&flags),
        #[cfg(not(feature = "web"))]
        Command::Serve(_) => Err(Failure::missing_feature("trunkline serve", "web")),
        Command::Compare(flags) => report::compare(&flags),
        Command::Report(flags) => report::report(&flags),
        Command::Records(flags) => records::records(flags.action),
        Command::Study(flags) => study::study(&flags.subject),
        Command::Agent(flags) => agent::agent(&flags),
        #[cfg(feature = "agents")]
        Command::Keys(flags) => keys::keys(&flags.action),
        #[cfg(not(feature = "agents"))]
        Command::Keys(_) => Err(Failure::missing_feature("trunkline keys", "agents")),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Flags::command(), "trunkline", &mut script);
            print(&script)
        }
        Command::Man { dir } => man(dir),
    }
}

fn man(dir: Option<PathBuf>) -> Result<(), Failure> {
    match dir {
        Some(dir) => {
            let written =
                std::fs::create_dir_all(&dir).and_then(|()| clap_mangen::generate_to(Flags::command(), &dir));
            written.map_err(|e| Failure::run(format!("{}: {e}", dir.display())))
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Flags::command()).render(&mut page)?;
            print(&page)
        }
    }
}
