//! Processor time, distributions and tables.

use std::fs;

use serde_json::{Value, json};
use trunkline_io::Clock;
use trunkline_io::usage::CpuTime;
use trunkline_record::Histogram;
use trunkline_units::{Instant, Span};

/// Repetitions that tell what measuring costs.
const TRIALS: u64 = 20_000;

/// Processor time until now.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    at: Instant,
    process: CpuTime,
    /// Of all processors: idle, and altogether; in ticks.
    machine: Option<(u64, u64)>,
}

/// Processor time between two moments.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    pub took: Span,
    /// Processors' worth that this process used: 1 is one of them all the time.
    pub process: f64,
    /// Share of all processors that nobody used; the system counts in ticks of 10 ms.
    pub idle: Option<f64>,
}

impl Usage {
    pub fn now(clock: Clock) -> Usage {
        Usage { at: clock.now(), process: CpuTime::of_this_process(), machine: machine() }
    }

    pub fn since(self, before: Usage) -> Used {
        let took = self.at.since(before.at);
        let process = self.process.since(before.process);
        let idle = self.machine.zip(before.machine).and_then(|((idle, all), (idle_before, all_before))| {
            let all = all.checked_sub(all_before).filter(|all| *all > 0)?;
            Some(idle.saturating_sub(idle_before) as f64 / all as f64)
        });
        let process = (process.user + process.system).as_s() / took.as_s().max(1e-9);
        Used { took, process, idle }
    }
}

impl Used {
    pub fn json(self) -> Value {
        json!({ "took_s": self.took.as_s(), "process_cpus": self.process, "idle_share": self.idle })
    }

    pub fn text(self) -> String {
        let idle = self.idle.map_or("-".into(), |idle| format!("{:.0} %", idle * 100.0));
        format!("processors: {idle} idle; this process used {:.2} of one\n", self.process)
    }
}

/// The first line of `/proc/stat`: idle ticks, waiting for disks among them, and all.
fn machine() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let words = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
    // The time of guests is counted in user time already.
    let all = ticks.iter().take(8).sum();
    Some((ticks.get(3)? + ticks.get(4)?, all))
}

/// What it costs to time a message: two looks at the clock and a count.
pub fn measuring(clock: Clock) -> Span {
    let mut histogram = Histogram::default();
    let begin = clock.now();
    for _ in 0..TRIALS {
        let from = clock.now();
        histogram.record(clock.now().since(from));
    }
    clock.now().since(begin) / TRIALS
}

/// A distribution in microseconds.
pub fn distribution(histogram: &Histogram) -> Value {
    match histogram.distribution_us() {
        None => json!(null),
        Some(d) => json!({
            "count": d.count, "min": d.min, "mean": d.mean, "p50": d.p50, "p90": d.p90, "p99": d.p99,
            "p999": d.p999, "max": d.max,
        }),
    }
}

/// Its columns: p50, p99, p99.9 and max, in microseconds.
pub fn columns(histogram: &Histogram) -> String {
    match histogram.distribution_us() {
        None => format!("{:>10}{:>10}{:>10}{:>10}", "-", "-", "-", "-"),
        Some(d) => format!("{:>10.1}{:>10.1}{:>10.1}{:>10.1}", d.p50, d.p99, d.p999, d.max),
    }
}

/// What stands above them.
pub fn heads() -> String {
    format!("{:>10}{:>10}{:>10}{:>10}", "p50 us", "p99", "p99.9", "max")
}

/// The class of a message, in the words of 1990.
pub fn class(acknowledged: bool, crc: bool) -> &'static str {
    match (acknowledged, crc) {
        (false, false) => "NONE",
        (true, false) => "ACK",
        (false, true) => "CRC",
        (true, true) => "CRC+ACK",
    }
}

/// As a percentage.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
