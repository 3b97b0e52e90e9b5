//! Measures the cost of receiving many small messages at a host: one per datagram, and in bundles.
//!
//! `cargo bench -p trunkline-bundle --features sockets --bench receive [-- [--idle] [--real-time] RATE…]` measures
//! 4,000, 50,000 and 200,000 messages per second, or the given rates. It needs root, iproute2, ethtool and
//! util-linux: it creates two network namespaces joined by a pair of virtual interfaces, and removes them at the end.
//!
//! Reported is the host's processor time per million messages of 150 bytes: of the receiving threads (user and
//! system), and of the kernel thread that takes packets from the interface (threaded NAPI), all on one processor; the
//! sender has another. The host's processor also runs a background load at idle priority, a loop over a megabyte, in
//! place of a simulation. Contestants alternate; reported are the median of the rounds and the median of the ratios
//! to plain receiving in the same round. `coalesced` uses the kernel's interrupt coalescing: the interface delays
//! interrupts by 5 ms (`napi_defer_hard_irqs`, `gro_flush_timeout`). The sender of bundles uses the timing of a
//! central converter for least processor time or least delay. The bare receiver takes a bundle per call and only
//! locates its messages: a lower bound for any host socket.
//!
//! With `--idle` the host's processor has no background load, as in the measurement behind the promised ratio. Then
//! each single message also pays for waking the processor.
//!
//! With `--real-time` the kernel thread, the receiver and the sender have real-time priorities 10, 9 and 5, as in
//! that measurement. Each message is received at once however busy the machine is; otherwise messages accumulate
//! while other threads run.
//!
//! After 4,000 messages per second it compares with the claims of 1997, as ratios on this machine: the processor
//! share, and the highest rate that loses at most one message in a thousand.

#![allow(clippy::disallowed_methods, reason = "a bench measures time")]

mod background;
#[path = "../../../../benches/contest.rs"]
mod contest;
mod host;
#[path = "../site/link.rs"]
mod link;
#[path = "../site/messages.rs"]
mod messages;
mod sender;
#[path = "../../../../benches/spaces.rs"]
mod spaces;

use std::net::Ipv4Addr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use trunkline_bundle::bundler::Timing;
use trunkline_io::Clock;
use trunkline_units::Span;

use contest::{median, sorted};
use host::Method;
use link::{TestLink, Thread};
use messages::quantile;

const ROUNDS: usize = 5;
const RATES: [u32; 3] = [4_000, 50_000, 200_000];
/// The rate at which, according to the thesis of 1997, the processor share of a host fell from 80 to 13 %.
const CLAIM_RATE: u32 = 4_000;
/// The largest loss at which a rate counts as carried.
const MAX_LOSS: f64 = 0.001;
/// The group of unbundled messages.
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 77, 0, 1);
const PORT: u16 = 3456;

/// The test setup.
struct Setup {
    link: TestLink,
    /// Whether the measured threads have real-time priority.
    real_time: bool,
    /// Whether the host's processor has no background load.
    idle: bool,
}

struct Contestant {
    name: &'static str,
    method: Method,
    /// The timing of bundles; `None` sends no bundles.
    bundles: Option<Timing>,
    /// Whether the interface delays interrupts.
    coalesced: bool,
}

const CONTESTANTS: [Contestant; 7] = {
    const PROCESSOR: Option<Timing> = Some(Timing::LEAST_PROCESSOR);
    const DELAY: Option<Timing> = Some(Timing::LEAST_DELAY);
    const fn new(name: &'static str, method: Method, bundles: Option<Timing>, coalesced: bool) -> Contestant {
        Contestant { name, method, bundles, coalesced }
    }
    [
        new("plain receive", Method::Plain, None, false),
        new("plain, coalesced, by batches", Method::Batches, None, true),
        new("bare receiver of bundles, coalesced", Method::Bare, PROCESSOR, true),
        new("callback, least processor, coalesced", Method::Callback, PROCESSOR, true),
        new("callback, least processor", Method::Callback, PROCESSOR, false),
        new("callback, least delay", Method::Callback, DELAY, false),
        new("a program of DIS, least processor, coalesced", Method::Program, PROCESSOR, true),
    ]
};

/// The contestants of the comparison with 1997.
const PLAIN: usize = 0;
const CALLBACK: usize = 3;

fn main() {
    let arguments = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
    let requested: Vec<u32> = arguments.filter_map(|word| word.parse().ok()).collect();
    let rates = if requested.is_empty() { RATES.to_vec() } else { requested };
    let link = match TestLink::new() {
        Ok(link) => link,
        Err(why) => return println!("skipped: {why}"),
    };
    let [real_time, idle] = ["--real-time", "--idle"].map(|flag| std::env::args().any(|word| word == flag));
    if real_time {
        link.set_priority(Thread::Kernel(1), 10);
    }
    let setup = Setup { link, real_time, idle };
    for rate in rates {
        let rounds = contest(&setup, rate);
        if rate == CLAIM_RATE {
            compare_with_1997(&setup, &rounds);
        }
    }
}

/// Compares with the claims of 1997: the processor share at 4,000 messages per second, and the highest rate.
fn compare_with_1997(setup: &Setup, rounds: &[Vec<Cost>]) {
    println!("\n{:<54} {:>9}  {:>22}", "the claim of 1997", "processor", "most messages a second");
    let mut figures = Vec::new();
    for at in [PLAIN, CALLBACK] {
        let share = median(rounds.iter().map(|round| round[at].host() * f64::from(CLAIM_RATE) / 1e6));
        let max_rate = max_rate(setup, &CONTESTANTS[at]);
        println!("  {:<52} {:>8.2}%  {:>22}", CONTESTANTS[at].name, share * 100.0, rate_or_none(max_rate));
        figures.push((share, max_rate));
    }
    let share = figures[0].0 / figures[1].0;
    // A ratio needs two rates above 0.
    let max_rate = match (figures[0].1, figures[1].1) {
        (plain, bundled) if plain > 0.0 && bundled > 0.0 => format!("{:.2}", bundled / plain),
        _ => "-".to_owned(),
    };
    println!("  {:<52} {share:>9.2}  {max_rate:>22}", "times less, times more");
}

/// Formats a rate, or "none" if even the lowest lost too much.
fn rate_or_none(rate: f64) -> String {
    if rate > 0.0 { format!("{rate:.0}") } else { "none".to_owned() }
}

/// Returns the last rate with acceptable loss, or 0. The rate rises until two tries lose more, or the sender is too
/// slow.
fn max_rate(setup: &Setup, one: &Contestant) -> f64 {
    let (mut max_rate, mut requested) = (0.0, 5_000);
    loop {
        let Some(cost) = (0..2).map(|_| measure(setup, one, requested)).find(|cost| cost.lost <= MAX_LOSS)
        else {
            return max_rate;
        };
        if cost.rate < f64::from(requested) * 0.9 {
            return cost.rate.max(max_rate);
        }
        (max_rate, requested) = (cost.rate, requested + requested / 4);
    }
}

fn contest(setup: &Setup, rate: u32) -> Vec<Vec<Cost>> {
    let rounds: Vec<Vec<Cost>> =
        (0..ROUNDS).map(|_| CONTESTANTS.iter().map(|one| measure(setup, one, rate)).collect()).collect();
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

/// Processor seconds per million received messages, and the other results.
struct Cost {
    threads: f64,
    kernel: f64,
    /// Messages sent per second.
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

fn measure(setup: &Setup, one: &Contestant, rate: u32) -> Cost {
    let Setup { link, real_time, idle } = setup;
    let set_priority = |precedence| real_time.then(|| link.set_priority(Thread::This, precedence));
    link.set_coalescing(1, if one.coalesced { Span::from_ms(5) } else { Span::ZERO });
    // Enough messages for a figure, in a limited time.
    let time = Span::from_seconds((40_000.0 / f64::from(rate)).clamp(0.4, 1.0));
    let clock = Clock::start();
    let (ready, stop, finished) = (Barrier::new(2), AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        if !idle {
            scope.spawn(|| {
                contest::pin(1);
                background::work(&finished);
            });
        }
        let host = link.spaces.spawn(scope, 1, || {
            contest::pin(1);
            set_priority(9);
            let result = host::receive(one.method, clock, &ready, &stop, || link.kernel_time(1));
            finished.store(true, Ordering::Relaxed);
            result
        });
        let sender = link.spaces.spawn(scope, 0, || {
            contest::pin(0);
            set_priority(5);
            sender::send(one.bundles, rate, time, clock, (&ready, &stop, &finished))
        });
        let (sent, took) = sender.join().expect("the sender ends");
        let result = host.join().expect("the host ends").expect("the host receives");
        let messages = result.samples.messages;
        let a_million = 1e6 / messages.max(1) as f64;
        let delays = sorted(result.samples.delays[0].iter().copied());
        Cost {
            threads: result.threads.as_s() * a_million,
            kernel: result.kernel.as_s() * a_million,
            rate: sent as f64 / took.as_s(),
            lost: 1.0 - messages as f64 / sent.max(1) as f64,
            delays: [0.5, 0.99].map(|of| quantile(&delays, of)),
        }
    })
}
