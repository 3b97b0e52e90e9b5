//! Full speed between two agents on the loopback, beside the same run on this machine.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::Outcome;
use crate::contest::{self, Figure, Row, Target, Tool};
use crate::options::Options;
use crate::ours;
use crate::peers::{self, Peers, free_port};

/// Protocols and tests at full speed, and their name in the table.
const CASES: [(&str, &str); 3] = [
    ("TCP", "protocol = tcp (congestion = reno); test = full (messagesize = 131072);"),
    ("UDP", "protocol = udp; test = full (messagesize = 1400);"),
    ("guaranteed", "protocol = guaranteed; test = full (messagesize = 65536);"),
];

/// Received rates over agents; the peer is the local run.
pub fn agents(options: &Options, _peers: &Peers, _tap: bool) -> Outcome<Vec<Row>> {
    let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/figures/agents");
    if fs::exists(folder).is_ok_and(|exists| exists) {
        fs::remove_dir_all(folder).map_err(|e| format!("{folder}: {e}"))?;
    }
    let keys = |name: &str| format!("{folder}/{name}");
    let hosts = ["a", "b"];
    let _agents = hosts
        .into_iter()
        .map(|name| Agent::start(name, &keys(name), &keys("controller")))
        .collect::<Outcome<Vec<Agent>>>()?;
    let keys = keys("controller");
    let mut rows = Vec::new();
    for (name, connection) in CASES {
        let connection = format!("{connection} duration = {} s;", options.seconds);
        let received = |flags: &[&str]| {
            let c = ours::run(&connection, free_port()?, 1, &[], flags)?;
            Ok(vec![Some(ours::number(&c, "received_bps")? / 1e9)])
        };
        let at = ["--at", "a=agent:a", "--at", "b=agent:b", "--keys", &keys];
        let tools = [
            Tool { name: "agents", every: 1, run: Box::new(move |_| received(&at)) },
            Tool { name: "local run", every: 1, run: Box::new(|_| received(&[])) },
        ];
        let figures = [Figure("received, Gb/s", 2, Target::Ratio(0.98))];
        rows.extend(contest::hold(&format!("full over agents, {name}"), &figures, &tools, options.rounds)?);
    }
    Ok(rows)
}

/// An agent on the loopback, which ends with this value.
struct Agent(Child);

impl Agent {
    /// Starts an agent, and enrols the controller.
    fn start(name: &str, keys: &str, controller: &str) -> Outcome<Self> {
        let failed = |e: std::io::Error| format!("the agent {name}: {e}");
        let mut agent = Command::new(env!("CARGO_BIN_EXE_trunkline"))
            .args([
                "agent",
                "--listen",
                "127.0.0.1:0",
                "--keys",
                keys,
                "--max-rate",
                "1000G",
                "--max-bytes",
                "10000GB",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let output = agent.stdout.take().expect("it is piped");
        let agent = Agent(agent);
        let mut join = String::new();
        BufReader::new(output).read_line(&mut join).map_err(failed)?;
        let words = [
            env!("CARGO_BIN_EXE_trunkline"),
            "keys",
            "add",
            name,
            join.trim(),
            "--as",
            "bench",
            "--keys",
            controller,
        ];
        peers::run(&words)?;
        Ok(agent)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
