//! Traffic at a pace: what its gaps are, by the record and by the tap.

use crate::Outcome;
use crate::contest::{self, Figure, Row, Run, Target, Tool};
use crate::options::Options;
use crate::ours;
use crate::peers::{self, Peers, Server};
use crate::statistics::{exponential_p_value, quantile};
use crate::tap::Tap;

/// Traffic that every tool here can be asked for.
#[derive(Clone, Copy)]
struct Traffic {
    /// Whether the gaps are exponential, else they are constant.
    poisson: bool,
    /// Bytes of a datagram.
    size: u32,
    /// Datagrams a second.
    rate: u32,
    seconds: u64,
}

/// A tool that sends at a rate: the program to look for, its name, whether it supports exponential gaps, and the
/// function that runs it.
type Sender = (&'static str, &'static str, bool, fn(Traffic, u16) -> Outcome<()>);

const SENDERS: [Sender; 4] = [
    ("iperf3", "iperf3", false, iperf3),
    ("iperf", "iperf 2", false, iperf2),
    ("mgen", "mgen", true, mgen),
    ("ITGSend", "D-ITG", true, ditg),
];

/// `cbr` at 100 Mb/s with 1250-byte messages: a gap of 100 µs.
pub fn cbr(options: &Options, peers: &Peers, tap: bool) -> Outcome<Vec<Row>> {
    let traffic = Traffic { poisson: false, size: 1250, rate: 10_000, seconds: options.seconds };
    let figures = [
        Figure("rate error in the record, %", 4, Target::Below(0.1)),
        Figure("median gap in the record, µs", 2, Target::Between(95.0, 105.0)),
        Figure("p99 gap in the record, µs", 1, Target::Below(200.0)),
        Figure("rate error on the wire, %", 4, Target::Below(0.1)),
        Figure("median gap on the wire, µs", 2, Target::Between(95.0, 105.0)),
        Figure("p99 gap on the wire, µs", 1, Target::Below(200.0)),
    ];
    let what = format!(
        "protocol = udp; test = cbr (messagesize = 1250, period = 100 us); duration = {} s;",
        options.seconds
    );
    let trunkline = move |_| {
        let (c, gaps) = tapped(tap, traffic, |port| ours::run(&what, port, 1, &[], &[]))?;
        let rate_error = 100.0 * ours::number(&c, "asked/rate_error")?.abs();
        let told = [rate_error, ours::number(&c, "gap_us/p50")?, ours::number(&c, "gap_us/p99")?];
        Ok([told.map(Some), on_the_wire(traffic, gaps.as_deref())].concat())
    };
    let peer = move |gaps: &[f64]| [[None; 3], on_the_wire(traffic, Some(gaps))].concat();
    let tools = tools(peers, tap, traffic, Box::new(trunkline), 1, &peer);
    contest::hold("cbr 100 Mb/s, 1250 B", &figures, &tools, options.rounds)
}

/// `poisson` at 1000 a second, each run with another seed: how many of the runs pass Kolmogorov–Smirnov at 1 %.
pub fn poisson(options: &Options, peers: &Peers, tap: bool) -> Outcome<Vec<Row>> {
    let traffic = Traffic { poisson: true, size: 150, rate: 1000, seconds: options.poisson_seconds };
    let figures = [
        Figure("runs that pass in the record, %", 0, Target::Between(96.0, 100.0)),
        Figure("runs that pass on the wire, %", 0, Target::Between(96.0, 100.0)),
    ];
    let what = format!(
        "protocol = udp; test = poisson (messagesize = 150, rate = 1000 /s); duration = {} s;",
        options.poisson_seconds
    );
    let trunkline = move |run| {
        let (c, gaps) = tapped(tap, traffic, |port| ours::run(&what, port, run + 1, &[], &[]))?;
        Ok(vec![Some(ours::number(&c, "asked/gap_p_value")?), gaps.map(|gaps| p_value(traffic, &gaps))])
    };
    let peer = move |gaps: &[f64]| vec![None, Some(p_value(traffic, gaps))];
    let tools = tools(peers, tap, traffic, Box::new(trunkline), 5, &peer);
    let title = "poisson 1000/s";
    let mut measured = contest::take_turns(title, &tools, options.poisson_runs)?;
    for column in measured.iter_mut().flatten().flatten() {
        *column = vec![percent_passed(column)];
    }
    Ok(contest::rows(title, &figures, &tools, &measured))
}

/// Trunkline, and in one round of `every` the peers that can send this traffic, where there is a tap to see them.
fn tools<'a>(
    peers: &Peers,
    tap: bool,
    traffic: Traffic,
    trunkline: Run<'a>,
    every: usize,
    figures: &'a dyn Fn(&[f64]) -> Vec<Option<f64>>,
) -> Vec<Tool<'a>> {
    let can = |sender: &&Sender| tap && peers.has(sender.0) && (sender.2 || !traffic.poisson);
    let peer = |&(_, name, _, send): &Sender| {
        let run = move |_| {
            let ((), gaps) = tapped(true, traffic, |port| send(traffic, port))?;
            Ok(figures(&gaps.unwrap_or_default()))
        };
        Tool { name, every, run: Box::new(run) }
    };
    let ours = Tool { name: "trunkline", every: 1, run: trunkline };
    std::iter::once(ours).chain(SENDERS.iter().filter(can).map(peer)).collect()
}

/// The share of tests passed at 1 %, in percent.
fn percent_passed(p_values: &[f64]) -> f64 {
    100.0 * p_values.iter().filter(|&&p| p >= 0.01).count() as f64 / p_values.len() as f64
}

fn p_value(traffic: Traffic, gaps_us: &[f64]) -> f64 {
    exponential_p_value(gaps_us, 1e6 / f64::from(traffic.rate))
}

/// Sends to a port with a tap open on it, where there can be one.
fn tapped<T>(
    tap: bool,
    traffic: Traffic,
    run: impl FnOnce(u16) -> Outcome<T>,
) -> Outcome<(T, Option<Vec<f64>>)> {
    let port = peers::free_port()?;
    let tap = tap.then(|| Tap::open(port, traffic.size)).transpose()?;
    let done = run(port)?;
    Ok((done, tap.map(Tap::gaps_us).transpose()?))
}

/// Error of the rate in percent, median gap, 99th percentile of the gaps.
fn on_the_wire(traffic: Traffic, gaps_us: Option<&[f64]>) -> [Option<f64>; 3] {
    let Some(gaps) = gaps_us else { return [None; 3] };
    let rate = 1e6 * gaps.len() as f64 / gaps.iter().sum::<f64>();
    let error = 100.0 * (rate / f64::from(traffic.rate) - 1.0).abs();
    [Some(error), Some(quantile(gaps, 0.5)), Some(quantile(gaps, 0.99))]
}

fn iperf3(traffic: Traffic, port: u16) -> Outcome<()> {
    let rate_bps = (traffic.rate * traffic.size * 8).to_string();
    peers::iperf3(port, &["-u", "-b", &rate_bps, "-l", &traffic.size.to_string()], traffic.seconds).map(drop)
}

fn iperf2(traffic: Traffic, port: u16) -> Outcome<()> {
    let port = port.to_string();
    let _receiver = Server::start(&["iperf", "-s", "-u", "-p", &port])?;
    let (rate_bps, size) = ((traffic.rate * traffic.size * 8).to_string(), traffic.size.to_string());
    let (seconds, to) = (traffic.seconds.to_string(), ["iperf", "-c", "127.0.0.1", "-p", &port]);
    peers::run(&[&to[..], &["-u", "-b", &rate_bps, "-l", &size, "-t", &seconds]].concat()).map(drop)
}

fn mgen(traffic: Traffic, port: u16) -> Outcome<()> {
    let port = port.to_string();
    let _receiver = Server::start(&["mgen", "port", &port, "output", "/dev/null"])?;
    let pattern = if traffic.poisson { "POISSON" } else { "PERIODIC" };
    let Traffic { rate, size, seconds, .. } = traffic;
    let on = format!("0.0 ON 1 UDP DST 127.0.0.1/{port} {pattern} [{rate} {size}]");
    let off = format!("{seconds}.0 OFF 1");
    peers::run(&["mgen", "event", &on, "event", &off, "output", "/dev/null"]).map(drop)
}

fn ditg(traffic: Traffic, port: u16) -> Outcome<()> {
    let (control, data) = (peers::free_port()?.to_string(), port.to_string());
    let _receiver = Server::start(&["ITGRecv", "-Sp", &control])?;
    let (rate, size) = (traffic.rate.to_string(), traffic.size.to_string());
    let milliseconds = (traffic.seconds * 1000).to_string();
    let gap = if traffic.poisson { "-E" } else { "-C" };
    let to = ["ITGSend", "-a", "127.0.0.1", "-Sdp", &control, "-rp", &data, "-T", "UDP"];
    let asked = [gap, &rate, "-c", &size, "-t", &milliseconds];
    peers::run(&[&to[..], &asked].concat()).map(drop)
}
