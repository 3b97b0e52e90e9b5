//! Measures the cost of level 1 and the central converter together, and the throughput of one processor.
//!
//! `cargo bench -p trunkline-bundle --features sockets --bench through` sends 200,000 messages of 150 bytes per
//! second to 64 multicast groups, all of which a host has joined. It needs root, iproute2, ethtool and util-linux: it
//! creates two network namespaces joined by a pair of virtual interfaces, and removes them at the end. Level 1, the
//! central converter and the kernel thread of their interface share one processor; the sender, the host and the
//! kernel thread of its interface share another.
//!
//! Reported are processor seconds per million received messages: of level 1, of the central converter, of the kernel,
//! and of the three together; and separately of the host with the kernel thread of its interface. `unheard` are
//! messages that the interface or socket of level 1 lost, `dropped` those that a converter dropped and counted, and
//! `lost` all that the host missed. Then the rate rises in steps until each of five tries loses a message; the last
//! rate without loss is reported.
//!
//! The queue of an interface holds 256 packets, 1.3 ms at this rate. With `--real-time` the kernel threads have
//! real-time priority, as if they ran in interrupts; without it packets are lost while other threads run.

#![allow(clippy::disallowed_methods, reason = "a bench measures time")]

#[path = "../../../benches/contest.rs"]
mod contest;
#[path = "site/link.rs"]
mod link;
#[path = "site/messages.rs"]
mod messages;
mod site;
#[path = "../../../benches/spaces.rs"]
mod spaces;

use trunkline_bundle::bundler::Timing;
use trunkline_bundle::{Format, Format2, Settings};
use trunkline_units::Span;

use contest::median;
use link::{TestLink, Thread};
use site::{Outcome, Traffic, run_traffic, settings};

const ROUNDS: usize = 5;
const RATE: u32 = 200_000;
/// How long messages are sent.
const TIME: Span = Span::from_ms(800);
/// The number of tries per rate: a processor that is busy elsewhere for a millisecond loses messages at any rate.
const TRIES: usize = 5;
/// The step of the rate.
const STEP: u32 = 25_000;

/// Names, settings, and the interrupt delay of the interface.
fn contestants() -> [(&'static str, Settings, Span); 4] {
    let classic = settings(Format::Classic, Timing::LEAST_PROCESSOR);
    let format2 = settings(Format::Format2(Format2::default()), Timing::LEAST_PROCESSOR);
    let half_ms = Span::from_us(500);
    [
        ("classic, bundles of 8 KiB", classic, Span::ZERO),
        ("classic, bundles of 8 KiB, interface waits 0.5 ms", classic, half_ms),
        ("format 2, bundles of 1,472 octets", format2, Span::ZERO),
        ("format 2, bundles of 1,472 octets, interface waits 0.5 ms", format2, half_ms),
    ]
}

fn main() {
    let link = match TestLink::new() {
        Ok(link) => link,
        Err(why) => return println!("skipped: {why}"),
    };
    if std::env::args().any(|word| word == "--real-time") {
        (0..2).for_each(|end| link.set_priority(Thread::Kernel(end), 10));
    }
    let contestants = contestants();
    let run = |(_, settings, interrupt_delay): &(&str, Settings, Span), rate| {
        link.set_coalescing(1, *interrupt_delay);
        run_traffic(&link, *settings, Traffic { rate, time: TIME, priority: None, sample_every: 64 })
    };
    let rounds: Vec<Vec<Outcome>> =
        (0..ROUNDS).map(|_| contestants.iter().map(|one| run(one, RATE)).collect()).collect();
    let head = format!("{RATE} messages a second, s of processor a million");
    println!(
        "\n{head:<54}  {:>8}  {:>8}  {:>7} {:>7} {:>7}  {:>7}  {:>8} {:>8} {:>8}",
        "rate", "together", "level 1", "central", "kernel", "host", "unheard", "dropped", "lost"
    );
    for (at, (name, ..)) in contestants.iter().enumerate() {
        let of = |figure: &dyn Fn(&Outcome) -> f64| median(rounds.iter().map(|round| figure(&round[at])));
        let cpu_per_million = |which: &[usize]| of(&|outcome| cpu_per_million(outcome, which));
        let share = |of: u64, outcome: &Outcome| of as f64 / outcome.sent.max(1) as f64 * 100.0;
        println!(
            "  {name:<52}  {:>8.0}  {:>8.3}  {:>7.3} {:>7.3} {:>7.3}  {:>7.3}  {:>7.3}% {:>7.3}% {:>7.3}%",
            of(&Outcome::rate),
            cpu_per_million(&[0, 1, 2]),
            cpu_per_million(&[0]),
            cpu_per_million(&[1]),
            cpu_per_million(&[2]),
            cpu_per_million(&[3, 4]),
            of(&|outcome| share(outcome.not_received(), outcome)),
            of(&|outcome| share(outcome.dropped(), outcome)),
            of(&|outcome| share(outcome.lost(), outcome)),
        );
    }
    println!("\nmost messages a second of which none was lost, by one processor");
    for one in &contestants {
        let rate = max_rate(|rate| run(one, rate));
        println!("  {:<52}  {rate:>8.0}", one.0);
    }
}

/// Returns the last rate without loss. The rate rises until each try loses a message or the sender is too slow.
fn max_rate(run: impl Fn(u32) -> Outcome) -> f64 {
    let (mut max_rate, mut requested) = (0.0, STEP);
    loop {
        let Some(outcome) = (0..TRIES).map(|_| run(requested)).find(|outcome| outcome.lost() == 0) else {
            return max_rate;
        };
        if outcome.rate() < max_rate + f64::from(STEP) / 2.0 {
            return max_rate;
        }
        (max_rate, requested) = (outcome.rate(), requested + STEP);
    }
}

/// Returns processor seconds per million received messages.
fn cpu_per_million(outcome: &Outcome, which: &[usize]) -> f64 {
    let cpu_per_million = which.iter().fold(Span::ZERO, |all, at| all + outcome.cpu_times[*at]);
    cpu_per_million.as_s() * 1e6 / outcome.samples.messages.max(1) as f64
}
