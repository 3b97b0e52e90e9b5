//! Starts agents: as processes or as threads.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::agent;

/// Starts the agent of a host.
pub trait Launch: Sync {
    /// Starts the agent of `host`, which is reached over a stream.
    fn launch(&self, host: &str) -> io::Result<LaunchedAgent>;
}

/// A running agent.
#[derive(Debug)]
pub struct LaunchedAgent {
    /// The stream to the agent.
    pub stream: UnixStream,
    /// Its process; `None` if the agent is a thread.
    pub child: Option<Child>,
}

/// Runs each agent as a process: `program agent --stdio NAME`, with the stream as its standard input.
#[derive(Clone, Debug)]
pub struct Processes {
    /// The program to run.
    pub program: PathBuf,
}

impl Launch for Processes {
    fn launch(&self, host: &str) -> io::Result<LaunchedAgent> {
        let (ours, theirs) = UnixStream::pair()?;
        let child = Command::new(&self.program)
            .args(["agent", "--stdio", host])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            // Ctrl-C signals the whole process group of the terminal; only the controller handles it.
            .process_group(0)
            .spawn()?;
        Ok(LaunchedAgent { stream: ours, child: Some(child) })
    }
}

/// Runs each agent as a thread of this process: for tests and for programs that embed the backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Threads;

impl Launch for Threads {
    fn launch(&self, host: &str) -> io::Result<LaunchedAgent> {
        let (ours, theirs) = UnixStream::pair()?;
        std::thread::Builder::new()
            .name(host.chars().take(15).collect())
            .spawn(move || agent::serve(theirs))?;
        Ok(LaunchedAgent { stream: ours, child: None })
    }
}

/// Describes how a process ended.
pub(crate) struct ExitDescription(pub std::process::ExitStatus);

impl fmt::Display for ExitDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use std::os::unix::process::ExitStatusExt;
        match (self.0.signal(), self.0.code()) {
            (Some(signal), _) => write!(f, "was killed by signal {signal}"),
            (None, Some(code)) => write!(f, "ended with status {code}"),
            (None, None) => f.write_str("ended"),
        }
    }
}
