//! Cost of a simulation: `cargo bench -p trunkline-sim --bench cost [-- --rounds N]`.
//!
//! Callgrind counts instructions for two lengths of a run. The slope excludes the fixed cost of a run and is
//! reproducible. Times are medians of wall-clock seconds over rounds in which the scenarios alternate; they are meaningful
//! on an idle machine only. Figures of other simulators were measured on 2026-11-20 on this class of machine and are not
//! measured again here.

#![allow(clippy::disallowed_methods, reason = "a bench measures in real time")]

use std::process::{Command, ExitCode};
use std::time::Instant;

use trunkline_experiment::{Source, apply_overrides, parse};
use trunkline_record::Record;
use trunkline_run::{Backend as _, NoProgress, RunOptions, StopFlag};
use trunkline_sim::Sim;
use trunkline_units::Seed;

/// A scenario to simulate.
struct Scenario {
    name: &'static str,
    text: String,
    overrides: &'static [(&'static str, &'static str)],
    /// The two lengths for the slope, milliseconds of simulated time.
    lengths: [u64; 2],
    /// Length of a timed run, milliseconds of simulated time: long enough that the fixed cost is negligible.
    timed: u64,
    /// The unit of the cost, and the function that counts units in a record.
    unit: &'static str,
    count: fn(&Record) -> f64,
    promise: &'static str,
}

fn scenarios() -> Vec<Scenario> {
    let ends = |f: &dyn Fn(usize) -> String| (0..10).map(f).collect::<String>();
    let udp = format!(
        "experiment \"udp\" {{ network {{ host sink; switch s; {} link s - sink (rate = 10 Gb/s); }} parallel {{ {} }} }}",
        ends(&|i| format!("host h{i}; link h{i} - s (rate = 1 Gb/s); ")),
        ends(&|i| format!(
            "connection c{i} {{ xmt = h{i}; rcv = sink; protocol = udp; \
             test = cbr (messagesize = 512, period = 20 us); duration = 1 s; }} "
        )),
    );
    let tcp = "experiment \"tcp\" { network { host a, b; switch s (buffer = 256 packets, latency = 4 us);
        link a - s (rate = 155 Mb/s, mtu = 9180 B, delay = 5 us); link s - b (rate = 100 Mb/s, mtu = 9180 B, delay = 10 ms); }
        connection a-b { xmt = a; rcv = b; protocol = tcp (window = 512 KiB); test = full (messagesize = 64 KiB); duration = 1 s; } }";
    // Constant arrivals fill the sessions at once; sizes are single packets.
    let models = "experiment \"models\" { network { host a, b; link a - b (rate = 1 Gb/s, delay = 1 ms); } parallel {
        connection login { xmt = a; rcv = b; protocol = udp; duration = 1 s;
            test = telnet (sessionInterarrival = 1 ms, nOfItems = 100000, maxSessions = 400); }
        connection files { xmt = a; rcv = b; protocol = udp; duration = 1 s;
            test = ftp (sessionInterarrival = 1 ms, nOfItems = 100000, maxSessions = 80, itemSize = exponential(400 B)); }
        connection v1 { xmt = a; rcv = b; protocol = udp; test = voice; duration = 1 s; }
        connection v2 { xmt = b; rcv = a; protocol = udp; test = voice (codec = opus); duration = 1 s; } } }";
    let cells = include_str!("../../../../experiments/table-17-pacing.ns");
    vec![
        Scenario {
            name: "ten UDP sources, 50,000 packets/s of 512 B each, one switch",
            text: udp,
            overrides: &[],
            lengths: [200, 500],
            timed: 4_000,
            unit: "packet",
            count: |r| r.connections.iter().map(|c| c.messages_sent as f64).sum(),
            promise: "<= 1,300 (ns-3.48 41,900; htsim 2,460, without headers or statistics)",
        },
        Scenario {
            name: "TCP past a rate mismatch, packets of 9,180 B",
            text: tcp.into(),
            overrides: &[],
            lengths: [5_000, 15_000],
            timed: 60_000,
            unit: "data segment",
            count: |r| r.connections[0].counters["data_segments_sent"],
            promise: "<= 4,000 (ns-3.48 137,000; htsim 4,280, without headers or BSD timers)",
        },
        Scenario {
            name: "the same with CUBIC, SACK and timestamps",
            text: tcp.into(),
            overrides: &[("congestion", "cubic")],
            lengths: [5_000, 15_000],
            timed: 60_000,
            unit: "data segment",
            count: |r| r.connections[0].counters["data_segments_sent"],
            promise: "-",
        },
        Scenario {
            name: "the same with BBR and what comes with it",
            text: tcp.into(),
            overrides: &[("congestion", "bbr")],
            lengths: [5_000, 15_000],
            timed: 60_000,
            unit: "data segment",
            count: |r| r.connections[0].counters["data_segments_sent"],
            promise: "-",
        },
        Scenario {
            name: "500 sessions of ftp, telnet and voice",
            text: models.into(),
            overrides: &[],
            lengths: [20_000, 60_000],
            timed: 200_000,
            unit: "message",
            count: |r| r.connections.iter().map(|c| c.messages_sent as f64).sum(),
            promise: "-",
        },
        Scenario {
            name: "table 17 with pacing, cell by cell",
            text: cells.into(),
            overrides: &[("a-s.cells", "each"), ("s-b.cells", "each")],
            lengths: [500, 1_500],
            timed: 30_000,
            unit: "cell and hop",
            count: cells_and_hops,
            promise: "50 times real time",
        },
        Scenario {
            name: "the same in trains",
            text: cells.into(),
            overrides: &[],
            lengths: [2_000, 6_000],
            timed: 200_000,
            unit: "cell and hop",
            count: cells_and_hops,
            promise: "-",
        },
    ]
}

/// Returns the number of cells sent by hosts times two hops.
fn cells_and_hops(record: &Record) -> f64 {
    let counts = record.hosts.iter().flat_map(|h| &h.interfaces);
    counts.filter(|(name, _)| name.ends_with("tx_frames")).map(|(_, n)| *n as f64 * 2.0).sum()
}

fn simulate(scenario: &Scenario, ms: u64) -> Record {
    let source = Source { name: scenario.name, text: &scenario.text, folder: None };
    let mut plan = parse(&source).plan.expect("the scenario is an experiment");
    let duration = format!("{ms}ms");
    let length = [("duration", duration.as_str())];
    apply_overrides(&mut plan, length.into_iter().chain(scenario.overrides.iter().copied()))
        .expect("and may be changed so");
    let options = RunOptions {
        seed: Seed::default(),
        text: String::new(),
        started_at: String::new(),
        folder: ".".into(),
        out: ".".into(),
        stop: StopFlag::default(),
    };
    Sim::default().run(&plan, &options, &mut NoProgress)
}

/// Returns the instructions of a run of `ms` milliseconds.
fn instructions(scenario: usize, ms: u64) -> Result<f64, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["--only", &scenario.to_string(), &ms.to_string()])
        .output()
        .map_err(|e| format!("valgrind: {e}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let line =
        stderr.lines().find_map(|l| l.split("Collected :").nth(1)).ok_or(format!("callgrind: {stderr}"))?;
    line.trim().replace(',', "").parse().map_err(|e| format!("{line}: {e}"))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let all = scenarios();
    if let [only, which, ms] = &arguments[..]
        && only == "--only"
    {
        let (which, ms): (usize, u64) = (which.parse().expect("a number"), ms.parse().expect("a number"));
        simulate(&all[which], ms);
        return ExitCode::SUCCESS;
    }
    let rounds = arguments
        .iter()
        .position(|a| a == "--rounds")
        .and_then(|i| arguments.get(i + 1)?.parse().ok())
        .unwrap_or(5);
    let mut seconds = vec![Vec::new(); all.len()];
    for _ in 0..rounds {
        for (times, scenario) in seconds.iter_mut().zip(&all) {
            let started_at = Instant::now();
            let record = simulate(scenario, scenario.timed);
            times.push((started_at.elapsed().as_secs_f64(), record));
        }
    }
    println!("| scenario | instructions | of | promised | times real time | steps/s |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for (index, (scenario, times)) in all.iter().zip(seconds).enumerate() {
        let [short, long] = scenario.lengths;
        let record = &times[0].1;
        let steps: f64 = record.environment["steps"].parse().expect("a number");
        let elapsed_s = median(times.iter().map(|(s, _)| *s).collect());
        let slope = instructions(index, short).and_then(|a| Ok(instructions(index, long)? - a));
        let units =
            (scenario.count)(&simulate(scenario, long)) - (scenario.count)(&simulate(scenario, short));
        let cost = slope.map_or_else(|reason| reason, |slope| format!("{:.0}", slope / units));
        println!(
            "| {} | {cost} | {} | {} | {:.0} | {:.1} M |",
            scenario.name,
            scenario.unit,
            scenario.promise,
            scenario.timed as f64 / 1e3 / elapsed_s,
            steps / elapsed_s / 1e6
        );
    }
    // A test of `frame` keeps these sizes.
    println!(
        "\nA packet in flight takes 64 bytes, plus 24 bytes and two timestamps in the queue of its link."
    );
    ExitCode::SUCCESS
}
