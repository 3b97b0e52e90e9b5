//! Runs the `trunkline` program and checks its output, exit status and files.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::disallowed_methods, reason = "these tests watch a program that runs in real time")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use trunkline_io::must::skip;

/// Limit of a run, after which the program counts as hanging.
const HANGS: Duration = Duration::from_secs(120);

/// A temporary folder for a test and the files of the program.
pub struct TestDir(TempDir);

impl TestDir {
    pub fn new() -> TestDir {
        TestDir(TempDir::new().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    /// Returns a command that runs the program in this folder.
    pub fn trunkline<A: AsRef<OsStr>>(&self, args: &[A]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        command.args(args);
        self.in_dir(command)
    }

    /// Returns a command that runs a script with the program as `"$@"`.
    pub fn shell(&self, script: &str, args: &[&str]) -> Command {
        let mut command = Command::new("sh");
        command.args(["-ec", script, "sh", env!("CARGO_BIN_EXE_trunkline")]).args(args);
        self.in_dir(command)
    }

    /// Returns a command that runs a script with the program as `"$@"` in new namespaces of `unshare`.
    pub fn unshared(&self, namespaces: &str, script: &str, args: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command.args([namespaces, "sh", "-ec", script, "sh", env!("CARGO_BIN_EXE_trunkline")]).args(args);
        self.in_dir(command)
    }

    fn in_dir(&self, mut command: Command) -> Command {
        command.current_dir(self.0.path()).stdin(Stdio::null()).process_group(0);
        command.env("TRUNKLINE_ARCHIVE", self.path("archive.sqlite")).env("HOME", self.0.path());
        for variable in
            ["XDG_DATA_HOME", "XDG_STATE_HOME", "TRUNKLINE_COUNTERS", "TRUNKLINE_KEYS", "TRUNKLINE_SCHEDULE"]
        {
            command.env_remove(variable);
        }
        command
    }

    /// Runs a command to its end.
    pub fn end(&self, command: Command) -> Ended {
        Running::start(command).end()
    }

    /// Runs `trunkline ARGS…` to its end.
    pub fn execute<A: AsRef<OsStr>>(&self, args: &[A]) -> Ended {
        self.end(self.trunkline(args))
    }

    /// Runs an experiment to its end, with results in `out`.
    pub fn run(&self, experiment: &str, more: &[&str]) -> Ended {
        self.end(self.trunkline(&self.run_arguments(experiment, more)))
    }

    /// Starts a run of an experiment, with results in `out`.
    pub fn start(&self, experiment: &str, more: &[&str]) -> Running {
        Running::start(self.trunkline(&self.run_arguments(experiment, more)))
    }

    fn run_arguments<'a>(&self, experiment: &str, more: &[&'a str]) -> Vec<&'a str> {
        self.write("experiment.ns", experiment);
        [&["run", "experiment.ns", "--out", "out"], more].concat()
    }

    /// Runs an experiment that must succeed and returns its record.
    pub fn record(&self, experiment: &str, more: &[&str]) -> Value {
        let ended = self.run(experiment, more);
        assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{}", ended.out);
        self.recorded("out")
    }

    /// The record in a folder of `--out`.
    pub fn recorded(&self, out: &str) -> Value {
        let path = self.path(out).join("live/record.json");
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        serde_json::from_str(&text).unwrap()
    }

    /// The record of a run in the archive.
    pub fn archived(&self, id: u32) -> Value {
        let ended = self.execute(&["records", "export", &id.to_string()]);
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        let json: Value = serde_json::from_str(&ended.out).unwrap();
        json.get(0).cloned().unwrap_or(json)
    }
}

/// The connection of this name.
pub fn connection<'a>(record: &'a Value, name: &str) -> &'a Value {
    let connections = record["connections"].as_array().unwrap();
    connections.iter().find(|c| c["name"] == name).unwrap_or_else(|| panic!("no connection {name}"))
}

/// A number of the record.
pub fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Each message sent is received, lost or damaged, at every receiver.
pub fn assert_accounted(c: &Value) {
    let of = |name: &str| c[name].as_u64().unwrap();
    let copies = c["to"].as_array().unwrap().len() as u64;
    assert!(of("messages_sent") > 0, "{}: nothing was sent", c["name"]);
    let found = of("messages_received") + of("lost") + of("corrupted");
    assert_eq!(found, of("messages_sent") * copies, "{}", c["name"]);
}

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status; less than 0: the signal that killed it.
    pub status: i32,
    pub out: String,
    pub err: String,
}

impl Ended {
    /// Asserts this status and a single line of errors that contains `words`.
    pub fn assert_line(&self, status: i32, words: &str) {
        let lines: Vec<&str> = self.err.lines().collect();
        let [line] = lines[..] else { panic!("one line was expected: {self:#?}") };
        assert!(line.starts_with("trunkline: ") && line.contains(words), "{words:?} in {line:?}?");
        assert_eq!(self.status, status, "{line}");
    }
}

/// A running program, killed on drop.
pub struct Running {
    child: Child,
    out: File,
    err: File,
}

impl Running {
    pub fn start(mut command: Command) -> Running {
        let [out, err] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        command.stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap());
        Running::with(command, out, err)
    }

    /// Starts a program whose standard output is a closed pipe.
    pub fn unread(mut command: Command) -> Running {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let [out, err] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        command.stdout(writer).stderr(err.try_clone().unwrap());
        Running::with(command, out, err)
    }

    /// Starts a program whose output the test has redirected to `out` and `err`.
    pub fn with(mut command: Command, out: File, err: File) -> Running {
        let child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        Running { child, out, err }
    }

    pub fn id(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub fn end(mut self) -> Ended {
        let mut status = None;
        within(HANGS, "the program to end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let status = status.and_then(|s| s.code().or(s.signal().map(|n| -n))).unwrap();
        let text = |file: &mut File| {
            let mut text = String::new();
            file.rewind().unwrap();
            file.read_to_string(&mut text).unwrap();
            text
        };
        Ended { status, out: text(&mut self.out), err: text(&mut self.err) }
    }

    /// Waits for the agent of this host to serve an end of a connection.
    pub fn agent(&self, host: &str) -> Pid {
        let agent = self.agent_at(host);
        within(HANGS, "an agent at work", || serves(agent));
        agent
    }

    /// The agent of this host or converter.
    pub fn agent_at(&self, host: &str) -> Pid {
        let mut found = None;
        within(HANGS, "an agent", || {
            let mut agents = children(self.id()).into_iter();
            found = agents.find(|pid| arguments(*pid).ends_with(&["--stdio".into(), host.into()]));
            found.is_some()
        });
        found.unwrap()
    }

    /// Waits until all ends of the agents of these hosts have exchanged messages and reported results.
    ///
    /// The number of voluntary context switches of their threads shows this: an end publishes results twice a second, and the
    /// thread named like the program forwards them as often.
    pub fn agents_with_results<const N: usize>(&self, hosts: [&str; N]) -> [Pid; N] {
        let agents = hosts.map(|host| self.agent(host));
        let are_busy = |agent: &Pid| {
            let mut ends = threads(*agent).into_iter().filter(|(_, name, _)| name.starts_with("end "));
            // Without messages this many waits take 5 s.
            ends.all(|(.., waits)| waits >= 100)
        };
        within(HANGS, "messages", || agents.iter().all(are_busy));
        let beats = |agent: Pid| -> u64 {
            let threads = threads(agent);
            let first = threads.iter().find(|(id, ..)| *id == agent).expect("the agent lives");
            threads.iter().filter(|one| one.1 == first.1 && one.0 != agent).map(|one| one.2).sum()
        };
        let before = agents.map(beats);
        let passed_on = || agents.iter().zip(before).all(|(agent, before)| beats(*agent) >= before + 3);
        within(HANGS, "results to be passed on", passed_on);
        agents
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a condition is true; panics after `limit`.
pub fn within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < until, "waited {limit:?} for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a signal.
pub fn signal(pid: Pid, signal: Signal) {
    kill(pid, signal).unwrap();
}

/// Whether a process has ended, reaped or not.
pub fn is_gone(pid: Pid) -> bool {
    state_and_parent(pid).is_none_or(|(state, _)| state == "Z")
}

/// The child processes of a process.
pub fn children(of: Pid) -> Vec<Pid> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|e| e.file_name().to_str()?.parse().ok().map(Pid::from_raw));
    pids.filter(|pid| state_and_parent(*pid).is_some_and(|(_, parent)| parent == of)).collect()
}

fn state_and_parent(pid: Pid) -> Option<(String, Pid)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program name is in parentheses and may contain any character.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    Some((words.next()?.into(), Pid::from_raw(words.next()?.parse().ok()?)))
}

fn arguments(pid: Pid) -> Vec<String> {
    let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split_terminator('\0').map(String::from).collect()
}

/// Whether an agent serves an end of a connection, which has a thread of this name.
fn serves(pid: Pid) -> bool {
    threads(pid).iter().any(|(_, name, _)| name.starts_with("end "))
}

/// Returns the threads of a process with their names and numbers of voluntary context switches.
fn threads(pid: Pid) -> Vec<(Pid, String, u64)> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let threads = threads.filter_map(|thread| {
        let status = fs::read_to_string(thread.path().join("status")).ok()?;
        let of = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim_start);
        let id = Pid::from_raw(of("Pid:")?.parse().ok()?);
        Some((id, of("Name:")?.to_owned(), of("voluntary_ctxt_switches:")?.parse().ok()?))
    });
    threads.collect()
}

/// Whether a command works here; if not, prints that the test is skipped.
pub fn can(command: &[&str]) -> bool {
    let mut trial = Command::new(command[0]);
    trial.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let works = trial.status().is_ok_and(|s| s.success());
    if !works {
        skip(format_args!("`{}` does not work here (not installed, or not root)", command.join(" ")));
    }
    works
}

/// A file of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Returns unused ports.
pub fn free_ports<const N: usize>() -> [u16; N] {
    let sockets = [(); N].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    sockets.map(|s| s.local_addr().unwrap().port())
}

/// Returns pseudorandom bytes, the same each time.
pub fn noise(length: usize) -> Vec<u8> {
    let mut x = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..length).map(|_| next()).collect()
}
