//! Measures the cost of polling 200 devices of 50 interfaces every 10 s into an archive, without and with ten dead
//! devices.
//!
//! The devices are one thread of this program, on loopback addresses; its processor time is subtracted. The rest is all
//! threads of the poller and its share of the kernel. `-- --seconds 60` sets the duration of each part.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use trunkline_collector::poll::report::{Report, queue};
use trunkline_collector::poll::{AnchoredClock, ArchiveWriter, Collector, Config, WriteOptions};
use trunkline_counters::archive::{Reader, TableId};
use trunkline_counters::counter::{Event, Timestamp};
use trunkline_io::Clock;
use trunkline_io::usage::CpuTime;

#[path = "../tests/agent/mod.rs"]
mod agent;

use agent::{Agents, Behavior, State, switch};

const DEVICES: usize = 200;
const DEAD: usize = 10;
const PORTS: u32 = 50;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let seconds = args.iter().position(|a| a == "--seconds").and_then(|at| args.get(at + 1)?.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(60));
    println!(
        "{DEVICES} devices of {PORTS} interfaces, a poll every 10 s, {} s; load {}",
        time.as_secs(),
        load()
    );
    println!(
        "dead   answers   silent   late   missed   lost   requests/s   values/s   poller   devices   MB of archive"
    );
    for dead in [0, DEAD] {
        part(time, dead);
    }
    println!("load {}", load());
}

fn load() -> String {
    std::fs::read_to_string("/proc/loadavg")
        .unwrap_or_default()
        .split(' ')
        .take(3)
        .collect::<Vec<_>>()
        .join(" ")
}

fn part(time: Duration, dead: usize) {
    let clock = Clock::start();
    let state = |number| State {
        objects: switch(PORTS),
        behavior: if number < dead { Behavior::Dead } else { Behavior::Good },
        clock: Some(clock),
        ..State::default()
    };
    let states = (0..DEVICES + dead).map(|number| Arc::new(Mutex::new(state(number)))).collect();
    let at: Vec<String> =
        (0..DEVICES + dead).map(|n| format!("127.1.{}.{}:0", n / 250, n % 250 + 1)).collect();
    let agents = Agents::start(&at, states);
    let mut text = "[[credentials]]\nname = 'c'\ncommunity = 'public'\n".to_owned();
    for (number, at) in agents.at.iter().enumerate() {
        text += &format!("[[device]]\nname = 'd{number}'\naddress = '{at}'\ncredentials = 'c'\n");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let config = Config::parse(&text, Path::new("")).expect("a configuration");
    let path = folder.path().join("archive");
    let now = AnchoredClock::start();
    let options = WriteOptions { flush: config.flush, retention: config.retention };
    let writer = ArchiveWriter::open(&path, options, now).expect("an archive");
    let (sink, reports) = queue();
    let (collector, stop) = Collector::new(config, now, sink);
    let (mut answers, mut silent, mut values) = (0u64, 0u64, 0u64);
    let mut faults = BTreeMap::new();
    let cpu = || (CpuTime::of_this_process(), agents.busy.load(Ordering::Relaxed));
    let (before, requests) = (cpu(), agents.requests.load(Ordering::Relaxed));
    thread::scope(|scope| {
        scope.spawn(move || collector.run(false).expect("sockets"));
        scope.spawn(move || {
            thread::park_timeout(time);
            stop.stop();
        });
        let see = |report: &Report| {
            if let Report::FaultChanged { fault: Some(fault), .. } = report {
                *faults.entry(fault.name()).or_insert(0u64) += 1;
            }
            if let Report::Polled { response, .. } = report {
                match &response.answer {
                    Some(answer) => (answers, values) = (answers + 1, values + answer.values.len() as u64),
                    None => silent += 1,
                }
            }
        };
        writer.run(&reports, see, |error| println!("{error}")).expect("an archive that can be written");
    });
    let (after, requests) = (cpu(), agents.requests.load(Ordering::Relaxed) - requests);
    let used = after.0.since(before.0);
    let devices = after.1 - before.1;
    let poller = (used.user + used.system).as_ns().saturating_sub(devices);
    let (late, missed) = events(&path);
    let share = |ns: u64| 100.0 * ns as f64 / time.as_nanos() as f64;
    let size = std::fs::metadata(&path).map_or(0, |m| m.len()) as f64 / 1e6;
    println!(
        "{dead:4}   {answers:7}   {silent:6}   {late:4}   {missed:6}   {:4}   {:10.0}   {:8.0}   {:5.1} %   {:5.1} %   {size:13.1}",
        reports.lost(),
        requests as f64 / time.as_secs_f64(),
        values as f64 / time.as_secs_f64(),
        share(poller),
        share(devices)
    );
    if !faults.is_empty() {
        println!("       faults: {faults:?}");
    }
}

/// Returns the numbers of late and missed polls in the archive.
fn events(path: &Path) -> (usize, usize) {
    let reader = Reader::open(path).expect("an archive");
    let (mut late, mut missed) = (0, 0);
    for table in reader.tables(TableId(0), 10_000).expect("tables") {
        let Some(series) = reader.series(table.id).expect("series").into_iter().next() else { continue };
        for point in reader.points(series.id, Timestamp(0), Timestamp::MAX, 100_000).expect("points").points {
            late += usize::from(point.row.events.contains(Event::Late));
            missed += usize::from(point.row.events.contains(Event::Missed));
        }
    }
    (late, missed)
}
