//! Starts agents: as processes or as threads.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use trunkline_units::Span;

use crate::agent;
use crate::limits::Limits;
use crate::time_exchange::TimeGrant;

/// The Ethernet interface of the LLC station of a host in a network namespace.
pub const STATION_INTERFACE: &str = "llc0";

/// Starts the agent of a host.
pub trait Launch: Sync {
    /// Starts the agent of `host`, which is reached over a stream.
    fn launch(&self, host: &str) -> io::Result<LaunchedAgent>;

    /// Returns whether the agent of `host` runs on another machine.
    fn is_remote(&self, _host: &str) -> bool {
        false
    }

    /// Returns whether each host and converter has a network namespace, with an Ethernet interface [`STATION_INTERFACE`] if it
    /// has an LLC station, and with routes for groups if it sends or receives bundles.
    fn has_namespaces(&self) -> bool {
        false
    }
}

/// Decides whether a repetition of a connection may start.
pub trait Admission: Send + Sync {
    /// Asks for a connection, by name.
    ///
    /// # Errors
    /// Why it may not start, in one line.
    fn request(&self, connection: &str) -> Result<(), String>;

    /// Ends what was admitted.
    fn release(&self, connection: &str);
}

/// A running agent.
pub struct LaunchedAgent {
    /// The stream to the agent, or to what carries its messages to another machine.
    pub stream: UnixStream,
    /// Its process; `None` if the agent is a thread or on another machine.
    pub child: Option<Child>,
    /// What is known of an agent on another machine.
    pub remote: Option<Arc<dyn RemoteAgent>>,
}

/// An agent on another machine.
pub trait RemoteAgent: Send + Sync {
    /// Returns the address of the agent's machine at which ends open.
    fn address(&self) -> IpAddr;

    /// Returns the address of this machine that reaches the agent.
    fn local_address(&self) -> IpAddr;

    /// Converts a reading of this machine's monotonic clock to the agent's clock, by the offset at present. `None` if the
    /// offset is not known.
    fn to_agent_clock(&self, monotonic_ns: u64) -> Option<AgentClock>;

    /// Exchanges time with the agent's process at this address, in addition to other exchanges, until the run ends. Returns
    /// when the first exchanges are done.
    fn exchange_time(&self, agent: SocketAddr, grant: &TimeGrant);

    /// Returns why the connection to the agent ended, in one line, once it has.
    fn failure(&self) -> Option<String>;

    /// Ends the run and waits until the agent knows it, for a limited time.
    fn end(&self);
}

/// A reading of an agent's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentClock {
    /// The reading of the agent's monotonic clock, in nanoseconds.
    pub monotonic_ns: u64,
    /// Its maximum error.
    pub bound: Span,
    /// Steps of a clock that were detected so far.
    pub steps: u64,
}

/// Runs each agent as a process: `program agent --stdio NAME [--limits JSON]`, with the stream as its standard input.
#[derive(Clone, Debug)]
pub struct Processes {
    /// The program to run.
    pub program: PathBuf,
    /// What the agents permit.
    pub limits: Limits,
}

impl Launch for Processes {
    fn launch(&self, host: &str) -> io::Result<LaunchedAgent> {
        let (ours, theirs) = UnixStream::pair()?;
        // Without limits the list of processes stays readable.
        let limits = match self.limits == Limits::default() {
            true => Vec::new(),
            false => vec!["--limits".to_owned(), serde_json::to_string(&self.limits)?],
        };
        let child = Command::new(&self.program)
            .args(["agent", "--stdio", host])
            .args(limits)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            // Ctrl-C signals the whole process group of the terminal; only the controller handles it.
            .process_group(0)
            .spawn()?;
        Ok(LaunchedAgent { stream: ours, child: Some(child), remote: None })
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
            .spawn(move || agent::serve(theirs, &Limits::default()))?;
        Ok(LaunchedAgent { stream: ours, child: None, remote: None })
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
