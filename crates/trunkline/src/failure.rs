//! How a command ends when it does not end well.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why a command did not do what was asked. One clear line goes to standard error, never a backtrace.
#[derive(Debug)]
pub enum Failure {
    /// The run failed, or what it measured did not meet what was expected: status 1.
    Run(String),
    /// The input or the usage is wrong: status 2.
    Input(String),
    /// As `Input`, but everything has been said already.
    Said,
    /// Whoever read our output has gone: nothing is wrong.
    NobodyReads,
}

impl Failure {
    /// Something outside went wrong.
    pub fn run(why: impl Display) -> Self {
        Failure::Run(why.to_string())
    }

    /// Somebody asked for something that cannot be.
    pub fn input(why: impl Display) -> Self {
        Failure::Input(why.to_string())
    }

    /// Says it and gives the status.
    pub fn report(self) -> ExitCode {
        let (line, code) = match self {
            Failure::Run(line) => (line, 1),
            Failure::Input(line) => (line, 2),
            Failure::Said => return ExitCode::from(2),
            Failure::NobodyReads => return ExitCode::SUCCESS,
        };
        let line = trunkline_report::plain(&line);
        let _ = writeln!(io::stderr(), "trunkline: {line}");
        ExitCode::from(code)
    }
}

/// Writing to standard output failed.
impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::BrokenPipe => Failure::NobodyReads,
            _ => Failure::Run(format!("cannot write: {e}")),
        }
    }
}

/// Writes to standard output.
pub fn say(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
