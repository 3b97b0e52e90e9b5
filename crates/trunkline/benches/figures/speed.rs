//! Full speed over the loopback, beside iperf3: what arrives counts, not what is sent.

use serde_json::Value;

use crate::Outcome;
use crate::contest::{self, Figure, Row, Run, Target, Tool};
use crate::options::Options;
use crate::ours;
use crate::peers::{self, Peers, free_port};

/// `full` over UDP with 1400-byte datagrams.
pub fn udp(options: &Options, peers: &Peers, _tap: bool) -> Outcome<Vec<Row>> {
    let figures =
        [Figure("received, Gb/s", 2, Target::Ratio(10.0)), Figure("lost, %", 4, Target::Below(0.1))];
    let seconds = options.seconds;
    let what = format!("protocol = udp; test = full (messagesize = 1400); duration = {seconds} s;");
    let trunkline = move |_| {
        let c = ours::run(&what, free_port()?, 1, &[], &[])?;
        let lost_percent = 100.0 * ours::number(&c, "lost")? / ours::number(&c, "messages_sent")?;
        Ok(vec![Some(ours::number(&c, "received_bps")? / 1e9), Some(lost_percent)])
    };
    let iperf3 = move |_| {
        let end = peers::iperf3(free_port()?, &["-u", "-b", "0", "-l", "1400"], seconds)?;
        Ok(vec![Some(received_bps(&end)? / 1e9), end["sum"]["lost_percent"].as_f64()])
    };
    let tools = beside(peers, Box::new(trunkline), Box::new(iperf3));
    contest::hold("full, UDP 1400 B", &figures, &tools, options.rounds)
}

/// `full` over TCP with 128 KiB messages: a set window, and the one the kernel tunes.
pub fn tcp(options: &Options, peers: &Peers, _tap: bool) -> Outcome<Vec<Row>> {
    let windows = [
        ("full, TCP 256 KiB window", "(window = 262144)", &["-l", "128K", "-w", "256K"][..]),
        ("full, TCP tuned window", "", &["-l", "128K"][..]),
    ];
    let mut rows = Vec::new();
    for (title, window, flags) in windows {
        let figures = [Figure("received, Gb/s", 2, Target::Ratio(0.95))];
        let seconds = options.seconds;
        let what =
            format!("protocol = tcp {window}; test = full (messagesize = 131072); duration = {seconds} s;");
        let trunkline = move |_| {
            let c = ours::run(&what, free_port()?, 1, &[], &[])?;
            Ok(vec![Some(ours::number(&c, "received_bps")? / 1e9)])
        };
        let iperf3 =
            move |_| Ok(vec![Some(received_bps(&peers::iperf3(free_port()?, flags, seconds)?)? / 1e9)]);
        let tools = beside(peers, Box::new(trunkline), Box::new(iperf3));
        rows.extend(contest::hold(title, &figures, &tools, options.rounds)?);
    }
    Ok(rows)
}

/// Trunkline, and iperf3 where it is installed.
pub fn beside<'a>(peers: &Peers, trunkline: Run<'a>, iperf3: Run<'a>) -> Vec<Tool<'a>> {
    let mut tools = vec![Tool { name: "trunkline", every: 1, run: trunkline }];
    if peers.has("iperf3") {
        tools.push(Tool { name: "iperf3", every: 1, run: iperf3 });
    }
    tools
}

fn received_bps(end: &Value) -> Outcome<f64> {
    end["sum_received"]["bits_per_second"].as_f64().ok_or("iperf3 does not say what was received".into())
}
