//! How a command fails, and output to the standard streams.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why a command failed. The reason goes to standard error in one line.
#[derive(Debug)]
pub enum Failure {
    /// The run or an expectation failed: exit status 1.
    Run(String),
    /// The input or the usage is wrong: exit status 2.
    Input(String),
    /// The input is wrong and has been reported: exit status 2.
    AlreadyReported,
    /// The reader of standard output has closed it: exit status 0.
    BrokenPipe,
}

impl Failure {
    /// A failure of the system or of a run.
    pub fn run(reason: impl Display) -> Self {
        Failure::Run(reason.to_string())
    }

    /// A failure caused by the input or the usage.
    pub fn input(reason: impl Display) -> Self {
        Failure::Input(reason.to_string())
    }

    /// A command that needs a cargo feature which this program was built without: a failure of the usage.
    #[cfg(not(all(
        feature = "agents",
        feature = "forward",
        feature = "parquet",
        feature = "snmp",
        feature = "web"
    )))]
    pub fn missing_feature(command: &str, feature: &str) -> Self {
        Failure::Input(format!(
            "`{command}` needs the cargo feature `{feature}`, and this trunkline was built without it"
        ))
    }

    /// Returns the reason; empty if there is none or it has been reported.
    pub fn reason(&self) -> &str {
        match self {
            Failure::Run(reason) | Failure::Input(reason) => reason,
            Failure::AlreadyReported | Failure::BrokenPipe => "",
        }
    }

    /// Prints the reason to standard error and returns the exit status.
    pub fn report(self) -> ExitCode {
        let (reason, code) = match self {
            Failure::Run(reason) => (reason, 1),
            Failure::Input(reason) => (reason, 2),
            Failure::AlreadyReported => return ExitCode::from(2),
            Failure::BrokenPipe => return ExitCode::SUCCESS,
        };
        warn(&reason);
        ExitCode::from(code)
    }
}

/// Converts an error of writing to standard output.
impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::Run(format!("cannot write: {e}")),
        }
    }
}

/// Writes to standard output.
pub fn print(text: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref())?;
    Ok(out.flush()?)
}

/// Writes a line to standard error, without control characters.
pub fn warn(line: &str) {
    let _ = writeln!(io::stderr(), "trunkline: {}", trunkline_report::sanitize(line));
}
