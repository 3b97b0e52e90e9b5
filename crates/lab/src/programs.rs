//! The programs that a plan starts on its hosts: `host w (program = "iperf3 -s -1")`.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use thiserror::Error;
use trunkline_experiment::plan::{NodeKind, Plan};
use trunkline_run::StopFlag;

use crate::laboratory::Lab;
use crate::namespace::mount_names;
use crate::session::Session;

/// How long a program may take to end after SIGTERM before it is killed.
const TERMINATION: Duration = Duration::from_secs(2);
/// How often programs are looked at.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// A program that cannot be started.
#[derive(Debug, Error)]
#[error("host {host}: cannot start its program: {error}")]
pub struct ProgramError {
    host: String,
    error: io::Error,
}

/// The running programs of a plan. Dropping it kills them.
#[derive(Debug, Default)]
pub struct Programs(Vec<Program>);

#[derive(Debug)]
struct Program {
    host: String,
    child: Child,
    /// The process group, which has the processes that the program starts.
    group: Pid,
    /// What it has written.
    output: PathBuf,
    /// Whether it runs until the others have ended.
    is_service: bool,
}

impl Programs {
    /// Starts the programs in the namespaces of their hosts, where the names of the hosts are known. What they write goes to
    /// `HOST.txt` in the folder `out`.
    ///
    /// # Errors
    /// If one cannot be started; the others are killed.
    pub fn start(plan: &Plan, lab: &Lab, session: &Session, out: &Path) -> Result<Programs, ProgramError> {
        let mut programs = Programs::default();
        for node in plan.network.iter().flat_map(|network| &network.nodes) {
            let NodeKind::Host(costs) = &node.kind else { continue };
            let (Some(program), Some(host)) = (&costs.program, lab.host(&node.name)) else { continue };
            let output = out.join(format!("{}.txt", node.name));
            let started = fs::create_dir_all(out).and_then(|()| File::create(&output)).and_then(|file| {
                let mut command = Command::new("sh");
                command
                    .args(["-c", program])
                    .env("TRUNKLINE_HOST", &node.name)
                    .stdin(Stdio::null())
                    .process_group(0);
                command.stdout(file.try_clone()?).stderr(file);
                host.namespace.enter(&mut command);
                mount_names(&mut command, session.names())?;
                lab.processes().spawn(&mut command)
            });
            let child = started.map_err(|error| ProgramError { host: node.name.clone(), error })?;
            let group = Pid::from_raw(child.id() as i32);
            let is_service = costs.service;
            programs.0.push(Program { host: node.name.clone(), child, group, output, is_service });
        }
        Ok(programs)
    }

    /// Ends the programs and returns a line for each that failed by itself. With `wait` those that are no services are waited
    /// for, until a stop is requested.
    pub fn finish(mut self, wait: bool, stop: &StopFlag) -> Vec<String> {
        let is_awaited = |program: &Program| !program.is_service && program.is_running();
        while wait && !stop.is_requested() && self.0.iter().any(is_awaited) {
            std::thread::sleep(CHECK_INTERVAL);
        }
        let failures = self.0.iter_mut().filter_map(Program::failure).collect();
        self.end();
        failures
    }

    /// Terminates what still runs.
    fn end(&mut self) {
        let deadline = Instant::now() + TERMINATION;
        for program in &mut self.0 {
            program.signal(Signal::SIGTERM);
        }
        while self.0.iter().any(Program::is_running) && Instant::now() < deadline {
            std::thread::sleep(CHECK_INTERVAL);
        }
        for program in &mut self.0 {
            program.signal(Signal::SIGKILL);
            let _ = program.child.wait();
        }
        self.0.clear();
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.end();
    }
}

impl Program {
    /// Whether the program still runs. One that has ended stays a zombie, so that no other process group gets its number
    /// before [`Programs::end`] signals it.
    fn is_running(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        matches!(waitid(Id::Pid(self.group), flags), Ok(WaitStatus::StillAlive))
    }

    /// Signals the program and what it has started.
    fn signal(&self, signal: Signal) {
        // The group is gone if all its processes have ended.
        let _ = killpg(self.group, signal);
    }

    /// Describes a failure: how the program ended and the last line that it wrote. `None` if it still runs.
    fn failure(&mut self) -> Option<String> {
        if self.is_running() {
            return None;
        }
        let status = self.child.wait().ok().filter(|status| !status.success())?;
        let text = fs::read(&self.output).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let last: String = last.chars().filter(|c| !c.is_control()).take(200).collect();
        let colon = if last.is_empty() { "" } else { ": " };
        Some(format!("host {}: its program ended with {status}{colon}{last}", self.host))
    }
}
