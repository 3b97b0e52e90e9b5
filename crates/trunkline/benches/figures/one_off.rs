//! `trunkline test` beside iperf3 with the same flags over the loopback, and how soon each shows its first figure.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Instant;

use serde_json::Value;

use crate::Outcome;
use crate::contest::{self, Figure, Row, Target};
use crate::options::Options;
use crate::peers::{self, Peers, Server, free_port};
use crate::speed::beside;

/// The flags, and their name in the table.
const CASES: [(&str, &[&str]); 10] = [
    ("TCP", &[]),
    ("TCP, -C reno", &["-C", "reno"]),
    ("TCP, -C reno -l 128K", &["-C", "reno", "-l", "128K"]),
    ("TCP, -C reno -R", &["-C", "reno", "-R"]),
    ("TCP, -C reno -P 8", &["-C", "reno", "-P", "8"]),
    ("TCP, -C reno -w 256K", &["-C", "reno", "-w", "256K"]),
    ("UDP, -b 10M", &["-u", "-b", "10M"]),
    ("UDP, -b 100M", &["-u", "-b", "100M"]),
    ("UDP, -b 1G", &["-u", "-b", "1G"]),
    ("UDP, -b 1G -l 1448 -w 4M", &["-u", "-b", "1G", "-l", "1448", "-w", "4M"]),
];

/// Received rates with the same flags, and the time until the first figure.
pub fn one_off(options: &Options, peers: &Peers, _tap: bool) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, flags) in CASES {
        let figures = [Figure("received, Mb/s", 1, Target::Ratio(0.95)), Figure("lost, %", 3, Target::None)];
        let seconds = options.seconds;
        let trunkline = move |_| trunkline(flags, seconds);
        let iperf3 = move |_| {
            let end = peers::iperf3(free_port()?, flags, seconds)?;
            let received = end["sum_received"]["bits_per_second"].as_f64();
            Ok(vec![received.map(|bps| bps / 1e6), end["sum"]["lost_percent"].as_f64()])
        };
        let tools = beside(peers, Box::new(trunkline), Box::new(iperf3));
        rows.extend(contest::hold(&format!("test, {name}"), &figures, &tools, options.rounds)?);
    }
    rows.extend(first_figure(options, peers)?);
    Ok(rows)
}

/// One run of `trunkline test`: received Mb/s and lost messages in percent.
fn trunkline(flags: &[&str], seconds: u64) -> Outcome<Vec<Option<f64>>> {
    let seconds = seconds.to_string();
    let mut words =
        vec![env!("CARGO_BIN_EXE_trunkline"), "test", "local", "--json", "--no-archive", "-t", &seconds];
    words.extend(flags);
    let record: Value = serde_json::from_str(&peers::run(&words)?).map_err(|e| format!("trunkline: {e}"))?;
    let connections = record["connections"].as_array().ok_or("trunkline: no connections")?;
    let sum = |name: &str| connections.iter().filter_map(|c| c[name].as_f64()).sum::<f64>();
    let lost = (flags.contains(&"-u")).then(|| 100.0 * sum("lost") / sum("messages_sent"));
    Ok(vec![Some(sum("received_bps") / 1e6), lost])
}

/// The time from the start of the command to its first line with a rate, with the default interval of 1 s.
fn first_figure(options: &Options, peers: &Peers) -> Outcome<Vec<Row>> {
    let figures = [Figure("from the command to the first line, s", 3, Target::None)];
    let trunkline =
        |_| until_rate(&[env!("CARGO_BIN_EXE_trunkline"), "test", "local", "--no-archive", "-t", "2"], "b/s");
    let iperf3 = |_| {
        let port = free_port()?.to_string();
        let _server = Server::start(&["iperf3", "-s", "-1", "-p", &port])?;
        until_rate(&["iperf3", "-c", "127.0.0.1", "-p", &port, "-t", "2", "--forceflush"], "bits/sec")
    };
    let tools = beside(peers, Box::new(trunkline), Box::new(iperf3));
    contest::hold("test, TCP", &figures, &tools, options.rounds)
}

/// Runs a program; returns the seconds until its first line with digits and this unit.
fn until_rate(words: &[&str], unit: &str) -> Outcome<Vec<Option<f64>>> {
    let start = Instant::now();
    let mut child = peers::limited(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("{}: {e}", words[0]))?;
    let output = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut first = None;
    for line in output.lines() {
        if line.is_ok_and(|line| line.contains(unit)) {
            first.get_or_insert(start.elapsed().as_secs_f64());
        }
    }
    let status = child.wait().map_err(|e| format!("{}: {e}", words[0]))?;
    if status.success() { Ok(vec![first]) } else { Err(format!("`{}`: {status}", words.join(" "))) }
}
