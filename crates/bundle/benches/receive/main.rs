//! What it costs a host to receive many small messages: each in a datagram of its own, and in bundles.
//!
//! `cargo bench -p trunkline-bundle --features sockets --bench receive [-- [--idle] [--real-time] RATE…]` measures 4,000, 50,000 and 200,000
//! messages a second, or the rates that are given. It needs root, iproute2, ethtool and util-linux: two network namespaces
//! of its own are joined by a pair of virtual interfaces, and go when it ends.
//!
//! What is told is the host's processor time for a million messages of 150 bytes: of the threads that receive, user and
//! system, and of the kernel's thread that takes packets from the interface (threaded NAPI), all on one processor; who
//! sends has another. The rest of the host's processor has work, as that of a simulation has: a loop of least precedence
//! over a megabyte. Contestants take turns; told are the median of the rounds and the median of the ratios to plain
//! receiving in the same round. `coalesced` is the kernel's own remedy: the interface waits 5 ms before it says that
//! something came (`napi_defer_hard_irqs`, `gro_flush_timeout`). What sends bundles gathers as a central converter does
//! that is set for least processor, or for least delay. The bare receiver takes a bundle a call and finds the messages in
//! it: no interface of a host can take less.
//!
//! With `--idle` the host's processor has nothing else to do, as in the measurement from which the promise of the converter
//! comes: then every message that comes alone also pays for a processor that slept.
//!
//! With `--real-time` the kernel's thread, who receives and who sends have real-time priorities 10, 9 and 5, as in
//! that measurement: so each message is taken as soon as it is there, however busy
//! the machine is, where otherwise some gather unasked while the processor is elsewhere.
//!
//! After 4,000 messages a second it tells what was claimed in 1997 as ratios of this machine: the share of the processor,
//! and the most messages a second of which no more than one of a thousand is lost.

#![allow(clippy::disallowed_methods, reason = "a bench measures time")]

mod beside;
#[path = "../../../../benches/contest.rs"]
mod contest;
mod host;
#[path = "../site/line.rs"]
mod line;
#[path = "../site/messages.rs"]
mod messages;
mod sender;
#[path = "../../../../benches/spaces.rs"]
mod spaces;

use std::net::Ipv4Addr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use trunkline_bundle::gather::Timing;
use trunkline_io::Clock;
use trunkline_units::Span;

use contest::{median, sorted};
use host::Way;
use line::{Line, Thread};
use messages::quantile;

const ROUNDS: usize = 5;
const RATES: [u32; 3] = [4_000, 50_000, 200_000];
/// The rate of which 1997 said that the share of a host's processor fell from 80 to 13 %.
const CLAIMED: u32 = 4_000;
/// The share of messages that may be lost where a rate is still carried.
const HARDLY: f64 = 0.001;
/// Where messages go that are not bundled.
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 77, 0, 1);
const PORT: u16 = 3456;

/// Where they meet.
struct Arena {
    line: Line,
    /// Whether those who measure go before all others of the machine.
    first: bool,
    /// Whether the host's processor has nothing else to do.
    idle: bool,
}

struct Contestant {
    name: &'static str,
    way: Way,
    /// When bundles leave; none: no bundles.
    bundles: Option<Timing>,
    /// Whether the interface waits.
    waits: bool,
}

const CONTESTANTS: [Contestant; 7] = {
    const PROCESSOR: Option<Timing> = Some(Timing::LEAST_PROCESSOR);
    const DELAY: Option<Timing> = Some(Timing::LEAST_DELAY);
    const fn new(name: &'static str, way: Way, bundles: Option<Timing>, waits: bool) -> Contestant {
        Contestant { name, way, bundles, waits }
    }
    [
        new("plain receive", Way::Plain, None, false),
        new("plain, coalesced, by batches", Way::Batches, None, true),
        new("bare receiver of bundles, coalesced", Way::Bare, PROCESSOR, true),
        new("callback, least processor, coalesced", Way::Face, PROCESSOR, true),
        new("callback, least processor", Way::Face, PROCESSOR, false),
        new("callback, least delay", Way::Face, DELAY, false),
        new("a program of DIS, least processor, coalesced", Way::Program, PROCESSOR, true),
    ]
};

/// Those that the claim is about.
const PLAIN: usize = 0;
const CALLBACK: usize = 3;

fn main() {
    let words = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
    let asked: Vec<u32> = words.filter_map(|word| word.parse().ok()).collect();
    let rates = if asked.is_empty() { RATES.to_vec() } else { asked };
    let line = match Line::new() {
        Ok(line) => line,
        Err(why) => return println!("skipped: {why}"),
    };
    let [first, idle] = ["--real-time", "--idle"].map(|flag| std::env::args().any(|word| word == flag));
    if first {
        line.precede(Thread::Kernel(1), 10);
    }
    let arena = Arena { line, first, idle };
    for rate in rates {
        let rounds = contest(&arena, rate);
        if rate == CLAIMED {
            claim(&arena, &rounds);
        }
    }
}

/// What was said in 1997: the share of the processor at 4,000 messages a second, and how many a host takes at most.
fn claim(arena: &Arena, rounds: &[Vec<Cost>]) {
    println!("\n{:<54} {:>9}  {:>22}", "the claim of 1997", "processor", "most messages a second");
    let mut figures = Vec::new();
    for at in [PLAIN, CALLBACK] {
        let share = median(rounds.iter().map(|round| round[at].host() * f64::from(CLAIMED) / 1e6));
        let most = most(arena, &CONTESTANTS[at]);
        println!("  {:<52} {:>8.2}%  {:>22}", CONTESTANTS[at].name, share * 100.0, or_none(most));
        figures.push((share, most));
    }
    let share = figures[0].0 / figures[1].0;
    // Of nothing nothing is so many times more.
    let most = match (figures[0].1, figures[1].1) {
        (plain, bundled) if plain > 0.0 && bundled > 0.0 => format!("{:.2}", bundled / plain),
        _ => "-".to_owned(),
    };
    println!("  {:<52} {share:>9.2}  {most:>22}", "times less, times more");
}

/// A rate, or that even the least lost too much.
fn or_none(rate: f64) -> String {
    if rate > 0.0 { format!("{rate:.0}") } else { "none".to_owned() }
}

/// The last rate at which hardly any message was lost, 0 if there was none; it rises until more are, twice, or nobody sends
/// faster.
fn most(arena: &Arena, one: &Contestant) -> f64 {
    let (mut most, mut asked) = (0.0, 5_000);
    loop {
        let Some(cost) = (0..2).map(|_| measure(arena, one, asked)).find(|cost| cost.lost <= HARDLY) else {
            return most;
        };
        if cost.rate < f64::from(asked) * 0.9 {
            return cost.rate.max(most);
        }
        (most, asked) = (cost.rate, asked + asked / 4);
    }
}

fn contest(arena: &Arena, rate: u32) -> Vec<Vec<Cost>> {
    let rounds: Vec<Vec<Cost>> =
        (0..ROUNDS).map(|_| CONTESTANTS.iter().map(|one| measure(arena, one, rate)).collect()).collect();
    let head = format!("{rate} messages a second, s of processor a million");
    println!(
        "\n{head:<54} {:>7} {:>7} {:>7}  {:>10}  {:>15}  {:>17}  {:>7}",
        "host", "threads", "kernel", "times less", "least to most", "delay 50, 99 % ms", "lost"
    );
    for (at, Contestant { name, .. }) in CONTESTANTS.iter().enumerate() {
        let of = |figure: &dyn Fn(&Cost) -> f64| median(rounds.iter().map(|round| figure(&round[at])));
        let times = sorted(rounds.iter().map(|round| round[0].host() / round[at].host()));
        println!(
            "  {name:<52} {:>7.3} {:>7.3} {:>7.3}  {:>10.2}  {:>6.2} – {:>6.2}  {:>8.2} {:>8.2}  {:>6.2}%",
            of(&Cost::host),
            of(&|cost| cost.threads),
            of(&|cost| cost.kernel),
            times[ROUNDS / 2],
            times[0],
            times[ROUNDS - 1],
            of(&|cost| cost.delays[0] * 1e3),
            of(&|cost| cost.delays[1] * 1e3),
            of(&|cost| cost.lost) * 100.0,
        );
    }
    rounds
}

/// Seconds of processor for a million messages that came, and what became of the others.
struct Cost {
    threads: f64,
    kernel: f64,
    /// Messages a second that were sent.
    rate: f64,
    lost: f64,
    /// Median and 99th percentile, in seconds.
    delays: [f64; 2],
}

impl Cost {
    fn host(&self) -> f64 {
        self.threads + self.kernel
    }
}

fn measure(arena: &Arena, one: &Contestant, rate: u32) -> Cost {
    let Arena { line, first, idle } = arena;
    let precede = |precedence| first.then(|| line.precede(Thread::This, precedence));
    line.wait(1, if one.waits { Span::from_ms(5) } else { Span::ZERO });
    // Enough messages for a figure, and no more than the machine likes.
    let time = Span::from_seconds((40_000.0 / f64::from(rate)).clamp(0.4, 1.0));
    let clock = Clock::start();
    let (ready, over, ended) = (Barrier::new(2), AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        if !idle {
            scope.spawn(|| {
                contest::pin(1);
                beside::work(&ended);
            });
        }
        let host = line.spaces.spawn(scope, 1, || {
            contest::pin(1);
            precede(9);
            let heard = host::receive(one.way, clock, &ready, &over, || line.kernel_time(1));
            ended.store(true, Ordering::Relaxed);
            heard
        });
        let sends = line.spaces.spawn(scope, 0, || {
            contest::pin(0);
            precede(5);
            sender::send(one.bundles, rate, time, clock, (&ready, &over, &ended))
        });
        let (sent, took) = sends.join().expect("the sender ends");
        let heard = host.join().expect("the host ends").expect("the host receives");
        let messages = heard.noted.messages;
        let a_million = 1e6 / messages.max(1) as f64;
        let delays = sorted(heard.noted.delays[0].iter().copied());
        Cost {
            threads: heard.threads.as_s() * a_million,
            kernel: heard.kernel.as_s() * a_million,
            rate: sent as f64 / took.as_s(),
            lost: 1.0 - messages as f64 / sent.max(1) as f64,
            delays: [0.5, 0.99].map(|of| quantile(&delays, of)),
        }
    })
}
