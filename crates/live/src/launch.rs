//! How an agent comes to be.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::agent;

/// Brings up the agent of a host.
pub trait Launch: Sync {
    /// The agent of `host`, reached by a stream.
    fn launch(&self, host: &str) -> io::Result<Launched>;
}

/// A running agent.
#[derive(Debug)]
pub struct Launched {
    /// Where it listens and speaks.
    pub stream: UnixStream,
    /// Its process, if it has one of its own.
    pub child: Option<Child>,
}

/// Each agent a process of its own: `program agent --stdio NAME`, its standard input the stream.
#[derive(Clone, Debug)]
pub struct Processes {
    /// The program that serves as an agent.
    pub program: PathBuf,
}

impl Launch for Processes {
    fn launch(&self, host: &str) -> io::Result<Launched> {
        let (ours, theirs) = UnixStream::pair()?;
        let child = Command::new(&self.program)
            .args(["agent", "--stdio", host])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            // A Ctrl-C goes to the whole group of a terminal; only the controller may take it for a request to stop.
            .process_group(0)
            .spawn()?;
        Ok(Launched { stream: ours, child: Some(child) })
    }
}

/// Each agent a thread of this process: for tests, and for programs that embed the backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Threads;

impl Launch for Threads {
    fn launch(&self, host: &str) -> io::Result<Launched> {
        let (ours, theirs) = UnixStream::pair()?;
        std::thread::Builder::new()
            .name(host.chars().take(15).collect())
            .spawn(move || agent::serve(theirs))?;
        Ok(Launched { stream: ours, child: None })
    }
}

/// How a process ended, in words.
pub(crate) struct Ending(pub std::process::ExitStatus);

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use std::os::unix::process::ExitStatusExt;
        match (self.0.signal(), self.0.code()) {
            (Some(signal), _) => write!(f, "was killed by signal {signal}"),
            (None, Some(code)) => write!(f, "ended with status {code}"),
            (None, None) => f.write_str("ended"),
        }
    }
}
