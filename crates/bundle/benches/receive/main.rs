//! What it costs a host to receive many small messages: each in a datagram of its own, and in bundles.
//!
//! `cargo bench -p trunkline-bundle --features sockets --bench receive [-- RATE…]` measures 4,000, 50,000 and 200,000
//! messages a second, or the rates that are given. It needs root, iproute2, ethtool and util-linux: two network namespaces
//! of its own are joined by a pair of virtual interfaces, and go when it ends.
//!
//! What is told is the host's processor time for a million messages of 150 bytes: of the thread that receives, user and
//! system, and of the kernel's thread that takes packets from the interface (threaded NAPI), both on one processor; who
//! sends has another. Contestants take turns; told are the median of the rounds and the median of the ratios to plain
//! receiving in the same round. `coalesced` is the kernel's own remedy: the interface waits 5 ms before it says that
//! something came (`napi_defer_hard_irqs`, `gro_flush_timeout`). What sends bundles gathers as a central converter does
//! that is set for least processor.

#![allow(clippy::disallowed_methods, reason = "a bench measures time")]

#[path = "../../../../benches/contest.rs"]
mod contest;
mod host;
mod sender;
#[path = "../../../../benches/spaces.rs"]
mod spaces;

use std::fs;
use std::net::Ipv4Addr;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use contest::median;
use host::Heard;
use spaces::{DEVICE, Spaces};

/// Octets of a message's body: with its address 150 bytes, the thesis's typical message.
const BODY: usize = 148;
const ROUNDS: usize = 5;
const RATES: [u32; 3] = [4_000, 50_000, 200_000];
/// The ends of the line.
const SENDER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const HOST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// How messages come, and how they are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A datagram each, a blocking call for each.
    Plain,
    /// A datagram each, taken by batches.
    Batches,
    /// Bundles, through the interface of a host.
    Bundles,
}

/// Contestants: name, way, whether the interface waits.
const CONTESTANTS: [(&str, Way, bool); 4] = [
    ("plain receive", Way::Plain, false),
    ("coalesced, by batches", Way::Batches, true),
    ("bundles of 8 KiB, 5 ms", Way::Bundles, false),
    ("bundles, coalesced", Way::Bundles, true),
];

fn main() {
    let words = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
    let asked: Vec<u32> = words.filter_map(|word| word.parse().ok()).collect();
    let rates = if asked.is_empty() { RATES.to_vec() } else { asked };
    let host = match Spaces::new().and_then(Receiver::new) {
        Ok(host) => host,
        Err(why) => return println!("skipped: {why}"),
    };
    for rate in rates {
        contest(&host, rate);
    }
}

fn contest(host: &Receiver, rate: u32) {
    let rounds: Vec<Vec<Cost>> = (0..ROUNDS)
        .map(|_| CONTESTANTS.iter().map(|(_, way, waits)| host.measure(*way, *waits, rate)).collect())
        .collect();
    let head = format!("{rate} messages a second, s of processor a million");
    println!(
        "\n{head:<52}  {:>7}  {:>7}  {:>7}  {:>10}  {:>15}  {:>7}",
        "host", "thread", "kernel", "times less", "least to most", "lost"
    );
    for (at, (name, ..)) in CONTESTANTS.iter().enumerate() {
        let of = |figure: fn(&Cost) -> f64| median(rounds.iter().map(|round| figure(&round[at])));
        let times = || rounds.iter().map(|round| round[0].host() / round[at].host());
        let (least, most) = (times().fold(f64::MAX, f64::min), times().fold(0.0, f64::max));
        println!(
            "  {name:<50}  {:>7.3}  {:>7.3}  {:>7.3}  {:>10.2}  {least:>6.2} – {most:>6.2}  {:>6.2}%",
            of(Cost::host),
            of(|cost| cost.thread),
            of(|cost| cost.kernel),
            median(times()),
            of(|cost| cost.lost) * 100.0,
        );
    }
}

/// Seconds of processor for a million messages that came, and the share that did not.
struct Cost {
    thread: f64,
    kernel: f64,
    lost: f64,
}

impl Cost {
    fn host(&self) -> f64 {
        self.thread + self.kernel
    }
}

/// The line, whose second end is the host's.
struct Receiver {
    spaces: Spaces,
    /// The kernel's thread that takes packets from the interface.
    napi: Option<u32>,
}

impl Receiver {
    fn new(spaces: Spaces) -> Result<Receiver, String> {
        for (end, ip) in [SENDER, HOST].into_iter().enumerate() {
            // The longest packets stay what they are, as on a wire.
            spaces.run(
                end,
                &format!(
                    "ip address add {ip}/24 dev {DEVICE}; ethtool -K {DEVICE} tso off gso off tx-udp-segmentation off \
                     >/dev/null 2>&1 || true"
                ),
            )?;
        }
        spaces.run(1, &format!("ethtool -K {DEVICE} gro on; echo 1 >/sys/class/net/{DEVICE}/threaded"))?;
        let napi = napi_thread();
        if let Some(napi) = napi {
            spaces.run(1, &format!("taskset -pc 1 {napi} >/dev/null"))?;
        } else {
            println!("no thread of the kernel for the interface: its time is not told");
        }
        Ok(Receiver { spaces, napi })
    }

    fn measure(&self, way: Way, waits: bool, rate: u32) -> Cost {
        let (defers, timeout) = if waits { (50, 5_000_000) } else { (0, 0) };
        self.spaces
            .run(
                1,
                &format!(
                    "cd /sys/class/net/{DEVICE}; echo {defers} >napi_defer_hard_irqs; echo {timeout} >gro_flush_timeout"
                ),
            )
            .expect("the interface waits as it is told");
        // Enough messages for a figure, and no more than the machine likes.
        let time = Duration::from_secs_f64((40_000.0 / f64::from(rate)).clamp(0.5, 2.0));
        let (ready, over) = (Barrier::new(2), AtomicBool::new(false));
        thread::scope(|scope| {
            let host = self.spaces.spawn(scope, 1, || {
                contest::pin(1);
                host::receive(way, &ready, &over, || self.kernel_time())
            });
            let sends = self.spaces.spawn(scope, 0, || {
                contest::pin(0);
                sender::send(way == Way::Bundles, rate, time, &ready, &over)
            });
            let sent = sends.join().expect("the sender ends");
            let Heard { messages, thread, kernel } = host.join().expect("the host ends");
            let a_million = 1e6 / messages.max(1) as f64;
            Cost {
                thread: thread.as_s() * a_million,
                kernel: kernel.as_s() * a_million,
                lost: 1.0 - messages as f64 / sent.max(1) as f64,
            }
        })
    }

    /// What the kernel's thread has used.
    fn kernel_time(&self) -> trunkline_units::Span {
        let read = |pid| fs::read_to_string(format!("/proc/{pid}/schedstat")).ok();
        let text = self.napi.and_then(read).unwrap_or_default();
        let ns = text.split_whitespace().next().and_then(|word| word.parse().ok());
        trunkline_units::Span::from_ns(ns.unwrap_or(0))
    }
}

/// The youngest thread of the kernel that takes packets from an interface of this name: ours.
fn napi_thread() -> Option<u32> {
    let pids =
        fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_one = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.starts_with(&format!("napi/{DEVICE}-"))
    };
    pids.filter(is_one).max()
}
