//! The machine, and `docs/benchmarks.md`.

use std::fs;
use std::process::Command;

use crate::options::Options;
use crate::peers::Peers;
use crate::tap::Tap;
use crate::{Outcome, ours};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks.md");

/// Behind the load of a machine that does something else as well.
const BUSY: &str = " (**not idle**: the figures of pace and of round trips suffer, and ratios spread)";

/// What the figures were measured with, as a Markdown list.
pub fn machine(peers: &Peers, tap: &Outcome<Tap>) -> String {
    let cpuinfo = read("/proc/cpuinfo");
    let model = field(&cpuinfo, "model name", ':');
    let processors = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let memory = field(&read("/proc/meminfo"), "MemTotal", ':');
    let memory_kb: u64 = memory.split(' ').next().and_then(|kb| kb.parse().ok()).unwrap_or(0);
    let system = field(&read("/etc/os-release"), "PRETTY_NAME", '=');
    let load = read("/proc/loadavg");
    let load: Vec<&str> = load.split_whitespace().take(3).collect();
    let idle = load.first().and_then(|load| load.parse().ok()).is_none_or(|load: f64| load < 0.5);
    let tap =
        tap.as_ref().map_or_else(|why| format!("none: {why}"), |_| "packet socket on the loopback".into());
    [
        format!("- Date: {}", date()),
        format!("- Machine: {model}, {processors} processors, {} GiB of memory", memory_kb >> 20),
        format!("- System: {}, Linux {}", system, read("/proc/sys/kernel/osrelease").trim()),
        format!("- Load before (1, 5, 15 min): {}{}", load.join(", "), if idle { "" } else { BUSY }),
        format!("- Program: {}", ours::version()),
        format!("- Peers: {}", peers.describe()),
        format!("- Tap: {tap}"),
    ]
    .join("\n")
}

/// Writes the page anew.
pub fn write(options: &Options, machine: &str, table: &str) -> Outcome<()> {
    let Options { rounds, seconds, poisson_runs, poisson_seconds, said, .. } = options;
    let flags = if said.is_empty() { String::new() } else { format!(" --{said}") };
    let text = format!(
        "# Benchmarks

Written by `cargo bench -p trunkline --bench figures{flags}`.

{machine}

{rounds} rounds of {seconds} s with alternating tools, odd rounds in reverse order; `poisson` {poisson_runs} \
         runs of {poisson_seconds} s, the peers after every fifth. Each cell is a median with the range over the \
         rounds in brackets; a ratio is Trunkline's figure over the peer's in the same round.

{table}
{NOTES}"
    );
    fs::write(PAGE, text).map_err(|e| format!("cannot write {PAGE}: {e}"))
}

const NOTES: &str = "\
Other benchmarks: [one-off tests beside iperf3](benchmarks/test.md), [the simulator](benchmarks/simulator.md), [guaranteed delivery](benchmarks/guaranteed.md),
[LLC over Ethernet](benchmarks/llc.md), [bundles](benchmarks/bundle.md), [the archive of counters](benchmarks/monitor.md).

## Definitions

- **full**: received message bytes. Trunkline gives each message a header, reads it on arrival, and compares
  payloads (over TCP at this speed those of every 16th message); iperf3 discards what it reads. Over UDP Trunkline uses
  segmentation offload and large buffers; iperf3 before 3.21 sends one datagram per call, with the system's default buffers. Over
  TCP both request and get the same window.
- **cbr, poisson**: *in the record* are Trunkline's own figures: rate and goodness of fit at the sender, gaps at
  the receiver. *On the wire* is the same instrument for all tools, a packet socket on the loopback with the kernel's timestamps.
  Nothing is batched.
- **poisson**: a run passes if a Kolmogorov–Smirnov test of its gaps against the exponential law has a p-value above 0.01;
  a perfect source passes 99 of 100. The test on the wire is the benchmark's own, not the record's. D-ITG and mgen run
  with their defaults.
- **full, QUIC**: received message bytes, with path MTU discovery up to the given size, which the loopback carries. The
  peer is a program of two processes with `quinn` that sends one stream and discards what it reads.
- **request**: both ends on one processor. The plain ping-pong is two processes that block and measure only the time.
";

fn date() -> String {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d"]).output();
    output.map_or_else(|e| e.to_string(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
}

/// A file of the system; empty where there is none.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// What stands behind a name in a text of `name: value` lines.
fn field(text: &str, name: &str, mark: char) -> String {
    let found = text.lines().find(|line| line.starts_with(name)).and_then(|line| line.split_once(mark));
    found.map_or("unknown", |(_, value)| value.trim().trim_matches('"')).to_owned()
}
