//! What watching costs: `cargo bench -p trunkline --bench monitor`. 200,000 packets/s are offered over a pair of
//! interfaces, in a network namespace of their own, by a sender on one processor; the monitor, on the other, must drop
//! none. Its share of that processor is what `getrusage` says, the kernel's part for it included; what the kernel does
//! for a packet before the monitor is the sender's. Needs root, iproute2, taskset and script (util-linux).
//!
//! `-- --rate N --seconds N --size BYTES` change what is offered.

#![allow(clippy::disallowed_methods, reason = "a bench measures in real time")]

use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, unshare};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use trunkline_io::packet::{Options, PacketSocket};

type Outcome<T> = Result<T, String>;

/// What is offered.
struct Offer {
    rate: u64,
    seconds: u64,
    size: usize,
}

fn main() -> ExitCode {
    match Offer::read().and_then(|offer| bench(&offer)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("monitor: {why}");
            ExitCode::FAILURE
        }
    }
}

impl Offer {
    fn read() -> Outcome<Offer> {
        let mut offer = Offer { rate: 200_000, seconds: 10, size: 100 };
        let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
        for pair in words.chunks(2) {
            let value =
                pair.get(1).and_then(|v| v.parse().ok()).ok_or(format!("{} wants a number", pair[0]))?;
            match pair[0].as_str() {
                "--rate" => offer.rate = value,
                "--seconds" => offer.seconds = value,
                "--size" => offer.size = (value as usize).clamp(64, 1514),
                other => return Err(format!("there is no {other}")),
            }
        }
        Ok(offer)
    }
}

fn bench(offer: &Offer) -> Outcome<()> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|e| format!("a network namespace: {e}"))?;
    let script = "for kind in all default; do echo 1 >/proc/sys/net/ipv6/conf/$kind/disable_ipv6; done
                  ip link add left type veth peer name right && ip link set left up && ip link set right up";
    let made = Command::new("sh").args(["-c", script]).status().map_err(|e| e.to_string())?;
    if !made.success() {
        return Err("no pair of interfaces".into());
    }
    println!(
        "{} packets/s of {} bytes for {} s\n\n{:<22} {:>10} {:>10} {:>8} {:>14}",
        offer.rate, offer.size, offer.seconds, "monitor", "offered/s", "counted", "dropped", "share of core"
    );
    let filter = "sap 4 and priority 5 or (tcp port 80 and host 10.0.0.1)";
    for (name, screen, filter) in
        [("lines", false, ""), ("lines, a filter", false, filter), ("screen", true, "")]
    {
        once(offer, name, screen, filter)?;
    }
    Ok(())
}

/// One run; prints its row.
fn once(offer: &Offer, name: &str, screen: bool, filter: &str) -> Outcome<()> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let csv = folder.path().join("load.csv");
    let before = used()?;
    let mut monitor = start(&csv, screen, filter)?;
    let begun = Instant::now();
    while !watched() {
        if begun.elapsed() > Duration::from_secs(20) {
            return Err("the monitor does not begin".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let probe = PacketSocket::open("right", &Options { promiscuous: true, ..Options::default() });
    let probe = probe.map_err(|e| e.to_string())?;
    let (sent, took) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(offer));
        sender.join().map_err(|_| "the sender panicked".to_owned())?
    })?;
    // What lies in the kernel's backlog comes through late on a crowded machine.
    let (begun, mut came) = (Instant::now(), 0);
    while came < sent && begun.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(20));
        came += probe.take_counters().map_err(|e| e.to_string())?.frames;
    }
    stop(&monitor)?;
    monitor.wait().map_err(|e| e.to_string())?;
    let used = used()? - before;
    let text = std::fs::read_to_string(&csv).map_err(|e| e.to_string())?;
    let mut rows = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = rows.next().unwrap_or_default();
    let column = |name: &str| head.iter().position(|h| *h == name).unwrap_or_default();
    let rows: Vec<Vec<&str>> = rows.collect();
    let sum: u64 = rows.iter().filter_map(|row| row[column("unfiltered_packets")].parse::<u64>().ok()).sum();
    let dropped = rows.last().map_or("?", |row| row[column("kernel_dropped")]);
    println!(
        "{name:<22} {:>10.0} {:>10} {dropped:>8} {:>12.1} %",
        sent as f64 / took,
        if sum == came { sum.to_string() } else { format!("{sum} of {came}") },
        100.0 * used / took
    );
    Ok(())
}

/// The monitor on processor 0, on a terminal or not.
fn start(csv: &Path, screen: bool, filter: &str) -> Outcome<Child> {
    let program = env!("CARGO_BIN_EXE_trunkline");
    let words = format!("{program} top right --record {} {filter}", csv.display());
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]);
    if screen {
        command.args([
            "script",
            "-q",
            "-e",
            "-c",
            &format!("stty cols 120 rows 40; exec {words}"),
            "/dev/null",
        ]);
    } else {
        command.args(words.split_whitespace());
    }
    command.env("TERM", "xterm-256color").stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().map_err(|e| format!("taskset: {e}"))
}

/// Whether a packet socket of this namespace receives: it is of all protocols, and runs.
fn watched() -> bool {
    let text = std::fs::read_to_string("/proc/thread-self/net/packet").unwrap_or_default();
    text.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(3..6).is_some_and(|words| (words[0], words[2]) == ("0003", "1"))
    })
}

/// Sends so many a second, evenly, from processor 1; how many, and how long it took in seconds.
fn send(offer: &Offer) -> Outcome<(u64, f64)> {
    let said = |e: nix::Error| e.to_string();
    let mut one = CpuSet::new();
    one.set(1).map_err(said)?;
    sched_setaffinity(Pid::from_raw(0), &one).map_err(|e| format!("a second processor: {e}"))?;
    let socket = PacketSocket::open("left", &Options::default()).map_err(|e| e.to_string())?;
    // Sixteen senders, so that tables have something to do. What is due together leaves in one call.
    const BATCH: usize = 16;
    let [high, low] = ((offer.size - 14) as u16).to_be_bytes();
    let mut batch = Vec::new();
    for n in 0..BATCH {
        batch.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1 + n as u8, high, low, 6, 4, 3]);
        batch.resize((n + 1) * offer.size, 0);
    }
    let ends: Vec<usize> = (1..=BATCH).map(|n| n * offer.size).collect();
    let (begun, total) = (Instant::now(), offer.rate * offer.seconds);
    let mut sent = 0;
    while sent < total {
        let due = (begun.elapsed().as_secs_f64() * offer.rate as f64) as u64;
        let count = due.min(total).saturating_sub(sent).min(BATCH as u64) as usize;
        if count > 0 {
            sent += socket.send_many(&batch, &ends[..count]).map_err(|e| e.to_string())? as u64;
        }
    }
    Ok((sent, begun.elapsed().as_secs_f64()))
}

/// Interrupts the monitor: the process itself, or the child of its terminal.
fn stop(monitor: &Child) -> Outcome<()> {
    let children = |pid: i32| -> Vec<i32> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    let mut pid = monitor.id() as i32;
    while let Some(child) = children(pid).first() {
        pid = *child;
    }
    kill(Pid::from_raw(pid), Signal::SIGINT).map_err(|e| e.to_string())
}

/// Processor time of every child that has ended, in seconds.
fn used() -> Outcome<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|e| e.to_string())?;
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}
