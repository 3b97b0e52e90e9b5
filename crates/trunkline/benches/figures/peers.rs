//! The other tools: which are here, and how they are started.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::Outcome;

/// Puts a program and what it starts on one processor.
pub const PINNED: [&str; 3] = ["taskset", "-c", "0"];

/// The peers, and what each says of its version; `None` where it is not installed.
pub struct Peers(Vec<(&'static str, Option<String>)>);

/// The line of output that contains the version of each tool: its prefix; the version is the first number in it.
const KNOWN: [(&str, &[&str], &str); 5] = [
    ("iperf3", &["--version"], "iperf "),
    ("iperf", &["-v"], "iperf version"),
    ("ITGSend", &["-h"], "ITGSend version"),
    ("mgen", &["help"], "mgen: version"),
    ("sockperf", &["--version"], "sockperf, version"),
];

impl Peers {
    /// Looks which are installed.
    pub fn find() -> Self {
        Peers(KNOWN.map(|(name, ask, line)| (name, version(name, ask, line))).into())
    }

    /// Whether a tool is here.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, version)| *known == name && version.is_some())
    }

    /// Each with its version, or that it is missing.
    pub fn describe(&self) -> String {
        let one = |(name, version): &(&str, Option<String>)| match version {
            Some(version) => format!("{name} {version}"),
            None => format!("{name} is not installed"),
        };
        self.0.iter().map(one).collect::<Vec<_>>().join("; ")
    }
}

/// The version of a program, if it can be started.
fn version(program: &str, ask: &[&str], line: &str) -> Option<String> {
    let output = Command::new(program).args(ask).stdin(Stdio::null()).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let told = text.lines().find(|l| l.starts_with(line)).unwrap_or_default();
    let number = told.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    Some(number.unwrap_or("of unknown version").to_owned())
}

/// A program that waits for another, and ends with this value.
pub struct Server(Child);

impl Server {
    /// Starts it and leaves it the time to listen.
    pub fn start(words: &[&str]) -> Outcome<Self> {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|e| format!("{}: {e}", words[0]))?;
        thread::sleep(Duration::from_millis(300));
        match child.try_wait() {
            Ok(None) => Ok(Server(child)),
            _ => Err(format!("`{}` ended at once", words.join(" "))),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself, after its one client.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command that is ended if it takes longer than any run should.
pub fn limited(words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--foreground", "600"]).args(words);
    command
}

/// Runs a program to its end and gives what it printed.
pub fn run(words: &[&str]) -> Outcome<String> {
    let output = limited(words).stdin(Stdio::null()).output().map_err(|e| format!("timeout: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = format!("{text}\n{error}").trim().lines().last().unwrap_or_default().to_owned();
    Err(format!("`{}`: {}: {last}", words.join(" "), output.status))
}

/// A TCP port of the loopback that is free now, and whose UDP twin most likely is.
pub fn free_port() -> Outcome<u16> {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| format!("no free port: {e}"))?;
    let address = socket.local_addr().map_err(|e| format!("no free port: {e}"))?;
    Ok(address.port())
}

/// One test of iperf3 over the loopback: what its client reports at the end.
pub fn iperf3(port: u16, flags: &[&str], seconds: u64) -> Outcome<Value> {
    let (port, seconds) = (port.to_string(), seconds.to_string());
    let _server = Server::start(&["iperf3", "-s", "-1", "-p", &port])?;
    let mut words = vec!["iperf3", "-c", "127.0.0.1", "-p", &port, "-t", &seconds, "-J"];
    words.extend(flags);
    let report: Value = serde_json::from_str(&run(&words)?).map_err(|e| format!("iperf3: {e}"))?;
    Ok(report["end"].clone())
}
