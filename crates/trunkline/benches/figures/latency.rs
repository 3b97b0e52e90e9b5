//! Round trips of 64 bytes there and back, both ends on one processor, so that none is woken by another's.

use crate::Outcome;
use crate::contest::{self, Figure, Row, Target, Tool};
use crate::options::Options;
use crate::ours;
use crate::peers::{self, PINNED, Peers, Server};
use crate::pingpong;

/// `request` over UDP and TCP, beside the plain ping-pong and sockperf.
pub fn request(options: &Options, peers: &Peers, _tap: bool) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for (transport, title) in [("udp", "request, UDP 64 B"), ("tcp", "request, TCP 64 B")] {
        let figures =
            [Figure("median round trip, µs", 2, Target::None), Figure("p99 round trip, µs", 2, Target::None)];
        let seconds = options.seconds;
        let plain = move |_| Ok(pingpong::run(transport, seconds)?.map(Some).into());
        let mut tools = vec![
            Tool { name: "trunkline", every: 1, run: Box::new(move |_| trunkline(transport, seconds)) },
            Tool { name: "plain ping-pong", every: 1, run: Box::new(plain) },
        ];
        if peers.has("sockperf") {
            let run = move |_| sockperf(transport, seconds);
            tools.push(Tool { name: "sockperf", every: 1, run: Box::new(run) });
        }
        rows.extend(contest::hold(title, &figures, &tools, options.rounds)?);
    }
    Ok(rows)
}

fn trunkline(transport: &str, seconds: u64) -> Outcome<Vec<Option<f64>>> {
    let what = format!(
        "protocol = {transport}; test = request (request = 64, response = 64); duration = {seconds} s;"
    );
    let c = ours::run(&what, peers::free_port()?, 1, &PINNED, &[])?;
    Ok(vec![Some(ours::number(&c, "rtt_us/p50")?), Some(ours::number(&c, "rtt_us/p99")?)])
}

fn sockperf(transport: &str, seconds: u64) -> Outcome<Vec<Option<f64>>> {
    let (port, seconds) = (peers::free_port()?.to_string(), seconds.to_string());
    let tcp: &[&str] = if transport == "tcp" { &["--tcp"] } else { &[] };
    let with =
        |role: &[&'static str]| [&PINNED[..], &["sockperf"], role, &["-i", "127.0.0.1", "-p"]].concat();
    let serve = [&with(&["server"])[..], &[port.as_str()], tcp].concat();
    let _server = Server::start(&serve)?;
    let ping = [&with(&["ping-pong"])[..], &[port.as_str(), "-m", "64", "-t", &seconds, "--full-rtt"], tcp];
    let told = peers::run(&ping.concat())?;
    let percentile = |which: &str| {
        let line = told.lines().find(|line| line.contains(which)).and_then(|line| line.split('=').nth(1));
        line.and_then(|value| value.trim().parse().ok()).ok_or(format!("sockperf prints no {which}"))
    };
    Ok(vec![Some(percentile("percentile 50.000")?), Some(percentile("percentile 99.000")?)])
}
