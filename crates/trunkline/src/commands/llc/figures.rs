//! Processor time, distributions and tables.

use std::fs;

use serde_json::{Value, json};
use trunkline_io::Clock;
use trunkline_io::usage::CpuTime;
use trunkline_record::Histogram;
use trunkline_units::{Instant, Span};

/// Repetitions for the cost of a measurement.
const TRIALS: u64 = 20_000;

/// Processor time since the start.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    at: Instant,
    process: CpuTime,
    /// Idle time and total time of all processors, in ticks.
    machine: Option<(u64, u64)>,
}

/// Processor time between two readings.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    pub took: Span,
    /// Processors used by this process: 1 is one of them all the time.
    pub process: f64,
    /// Idle share of all processors; the system counts in ticks of 10 ms.
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

/// Reads the first line of `/proc/stat`: idle ticks (with waiting for disks), and all ticks.
fn machine() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let words = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
    // User time already contains the time of guests.
    let all = ticks.iter().take(8).sum();
    Some((ticks.get(3)? + ticks.get(4)?, all))
}

/// Measures the cost of timing a message: two clock readings and a histogram entry.
pub fn timing_cost(clock: Clock) -> Span {
    let mut histogram = Histogram::default();
    let begin = clock.now();
    for _ in 0..TRIALS {
        let from = clock.now();
        histogram.record(clock.now().since(from));
    }
    clock.now().since(begin) / TRIALS
}

/// Returns a distribution in microseconds, as JSON.
pub fn distribution(histogram: &Histogram) -> Value {
    match histogram.distribution_us() {
        None => json!(null),
        Some(d) => json!({
            "count": d.count, "min": d.min, "mean": d.mean, "p50": d.p50, "p90": d.p90, "p99": d.p99,
            "p999": d.p999, "max": d.max,
        }),
    }
}

/// Formats a distribution: p50, p99, p99.9 and max, in microseconds.
pub fn columns(histogram: &Histogram) -> String {
    match histogram.distribution_us() {
        None => format!("{:>10}{:>10}{:>10}{:>10}", "-", "-", "-", "-"),
        Some(d) => format!("{:>10.1}{:>10.1}{:>10.1}{:>10.1}", d.p50, d.p99, d.p999, d.max),
    }
}

/// Returns the column titles.
pub fn heads() -> String {
    format!("{:>10}{:>10}{:>10}{:>10}", "p50 us", "p99", "p99.9", "max")
}

/// Returns the name of a message class.
pub fn class(acknowledged: bool, crc: bool) -> &'static str {
    match (acknowledged, crc) {
        (false, false) => "NONE",
        (true, false) => "ACK",
        (false, true) => "CRC",
        (true, true) => "CRC+ACK",
    }
}

/// Formats a share as a percentage.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
