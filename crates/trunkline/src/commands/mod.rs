//! The commands.

mod analyse;
mod converter;
mod curves;
mod experiment;
mod llc;
mod monitor;
mod pool;
mod records;
mod report;
mod reproduce;
mod run;
#[cfg(feature = "web")]
mod serve;
mod study;
mod sweep;
mod test;
mod torture;

use std::path::PathBuf;

use clap::CommandFactory;

pub use monitor::time::{now, parse_moment};

use self::experiment::Experiment;
use crate::failure::{Failure, print};
use crate::flags::{Agent, Command, Flags};

/// Runs a command.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Check(flags) => {
            let experiment = Experiment::read(&flags.file, &flags.overrides)?;
            print(&trunkline_experiment::plan_text(&experiment.plan))
        }
        Command::Run(flags) => run::run(&flags),
        Command::Test(flags) => test::test(&flags),
        Command::Sweep(flags) => sweep::sweep(&flags),
        Command::Reproduce(flags) => reproduce::reproduce(&flags),
        Command::Torture(flags) => torture::torture(&flags),
        Command::Top(flags) => crate::top::top(&flags),
        Command::Llc(flags) => llc::llc(&flags.tool),
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
        Command::Agent(flags) => agent(&flags),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Flags::command(), "trunkline", &mut script);
            print(&script)
        }
        Command::Man { dir } => man(dir),
    }
}

/// Runs the agent of one host over standard input. The controller, not the agent, handles Ctrl-C.
fn agent(_: &Agent) -> Result<(), Failure> {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    let input = std::io::stdin().as_fd().try_clone_to_owned().map_err(Failure::run)?;
    let stream = UnixStream::from(input);
    if stream.peer_addr().is_err() {
        return Err(Failure::input("standard input is not a socket; `trunkline run` starts `agent --stdio`"));
    }
    // A panic in one thread must end the whole agent, or the controller would wait for it.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort()
    }));
    trunkline_live::agent::serve(stream);
    Ok(())
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
