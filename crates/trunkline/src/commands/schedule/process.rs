//! A run as a process with a time limit.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use trunkline_schedule::{RunName, RunState};

/// Time to store partial results after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);
/// The part of standard error that is read, at its end.
const MAX_ERRORS: u64 = 4096;

/// The process of a run. On Linux it is killed when the controller ends, however that happens; elsewhere it runs on if the
/// controller is killed.
pub struct RunProcess {
    /// The run.
    pub run: RunName,
    child: Child,
    errors: File,
    started: Instant,
    limit: Duration,
    stop: Option<(Instant, String)>,
}

impl RunProcess {
    /// Starts a process. To be called on the main thread: the process is killed when the thread that started it ends.
    pub fn start(
        run: RunName,
        program: &Path,
        arguments: &[OsString],
        limit: Duration,
    ) -> io::Result<RunProcess> {
        let errors = tempfile::tempfile()?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors.try_clone()?);
        // Ctrl-C signals the whole process group of the terminal; only the controller handles it.
        command.process_group(0);
        #[cfg(target_os = "linux")]
        end_with_this_thread(&mut command);
        let child = command.spawn()?;
        Ok(RunProcess { run, child, errors, started: now(), limit, stop: None })
    }

    /// Requests the end of the run, which stores its partial results.
    pub fn stop(&mut self, reason: &str) {
        if self.stop.is_none() {
            self.stop = Some((now(), reason.into()));
            self.signal(Signal::SIGTERM);
        }
    }

    /// Returns how the run ended, with the reason unless it succeeded; `None` while it runs. Enforces the time limit.
    pub fn poll(&mut self) -> io::Result<Option<(RunState, String)>> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(Some(self.outcome(status)));
        }
        if self.started.elapsed() > self.limit {
            self.stop(&format!("stopped after its time limit of {} s", self.limit.as_secs()));
        }
        if self.stop.as_ref().is_some_and(|(since, _)| since.elapsed() > GRACE) {
            self.signal(Signal::SIGKILL);
        }
        Ok(None)
    }

    fn signal(&self, signal: Signal) {
        // The process is not reaped yet, so the identifier is still its own.
        let _ = kill(Pid::from_raw(self.child.id() as i32), signal);
    }

    fn outcome(&mut self, status: ExitStatus) -> (RunState, String) {
        if status.success() {
            return (RunState::Done, String::new());
        }
        match (&self.stop, status.signal()) {
            (Some((_, reason)), _) => (RunState::Failed, reason.clone()),
            (None, Some(signal)) => (RunState::Failed, format!("the run was killed by signal {signal}")),
            (None, None) => (RunState::Failed, self.last_error().unwrap_or_else(|| status.to_string())),
        }
    }

    /// Returns the line of standard error that states the failure.
    fn last_error(&mut self) -> Option<String> {
        let length = self.errors.metadata().ok()?.len();
        self.errors.seek(SeekFrom::Start(length.saturating_sub(MAX_ERRORS))).ok()?;
        let mut bytes = Vec::new();
        (&mut self.errors).take(MAX_ERRORS).read_to_end(&mut bytes).ok()?;
        failure_line(&String::from_utf8_lossy(&bytes))
    }
}

/// Returns the line of the output to standard error that states the failure: that of the command, or the first error in the
/// experiment, which has changed since the schedule was read.
fn failure_line(text: &str) -> Option<String> {
    if let Some(line) = text.lines().rev().find_map(|line| line.strip_prefix("trunkline: ")) {
        return Some(line.to_owned());
    }
    let mut lines = text.lines().skip_while(|line| !line.starts_with("error: "));
    if let (Some(error), Some(position)) = (lines.next(), lines.next()) {
        let (error, position) =
            (error.trim_start_matches("error: "), position.trim_start_matches([' ', '-', '>']));
        return Some(format!("the experiment has changed: {position}: {error}"));
    }
    text.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned)
}

/// Has the process killed when the thread that starts it ends.
#[cfg(target_os = "linux")]
fn end_with_this_thread(command: &mut Command) {
    let controller = nix::unistd::getpid();
    // SAFETY: between fork and exec this only makes two system calls and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            // The controller may have ended before the call.
            let is_alive = nix::unistd::getppid() == controller;
            if is_alive { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
        });
    }
}

#[expect(clippy::disallowed_methods, reason = "a time limit is in real time")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failure_is_one_line() {
        let diagnostic = "warning: x\n --> a.ns:1:1\nerror: this `{` is never closed\n --> a.ns:1:12\n  |\n1 | experiment {\n";
        for (text, want) in [
            ("warning: x\ntrunkline: host a does not answer\n", "host a does not answer"),
            (diagnostic, "the experiment has changed: a.ns:1:12: this `{` is never closed"),
            ("Killed\n\n", "Killed"),
        ] {
            assert_eq!(failure_line(text).as_deref(), Some(want));
        }
        assert_eq!(failure_line(""), None);
    }
}
