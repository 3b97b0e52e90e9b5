//! What level 1 and the central converter cost together, and what one processor carries.
//!
//! `cargo bench -p trunkline-bundle --features sockets --bench through` sends 200,000 messages of 150 bytes a second to 64
//! multicast groups, all of which a host wants. It needs root, iproute2, ethtool and util-linux: two network namespaces of
//! its own are joined by a pair of virtual interfaces, and go when it ends. Level 1, the central converter and the kernel's
//! thread for their interface are on one processor; who sends, the host and the kernel's thread for its interface on
//! another.
//!
//! What is told is seconds of processor for a million messages that came: of level 1, of the central converter, of the
//! kernel, and of the three together; and beside them of the host, with the kernel's for its interface. `unheard` is what
//! level 1 never saw, since the interface or its socket had no room, `dropped` what either machine dropped and counted, and
//! `lost` all that the host missed. Then the rate rises by steps until something is lost, five times: told is the last at which
//! nothing was.
//!
//! An interface of these holds 256 packets, 1.3 ms at this rate. With `--real-time` the kernel's threads go before all others
//! of their processors, as they do where they run in interrupts; without it packets are lost while others have their turn.

#![allow(clippy::disallowed_methods, reason = "a bench measures time")]

#[path = "../../../benches/contest.rs"]
mod contest;
#[path = "site/line.rs"]
mod line;
#[path = "site/messages.rs"]
mod messages;
mod site;
#[path = "../../../benches/spaces.rs"]
mod spaces;

use trunkline_bundle::gather::Timing;
use trunkline_bundle::{Format, Settings, Wide};
use trunkline_units::Span;

use contest::median;
use line::{Line, Thread};
use site::{Outcome, Traffic, carry, settings};

const ROUNDS: usize = 5;
const RATE: u32 = 200_000;
/// How long messages are sent.
const TIME: Span = Span::from_ms(800);
/// How often a rate is tried at the most: a processor that is elsewhere for a millisecond loses some at any rate.
const TRIES: usize = 5;
/// Steps in which the rate rises.
const STEP: u32 = 25_000;

/// Settings by their names, and how long the interface waits.
fn contestants() -> [(&'static str, Settings, Span); 4] {
    let classic = settings(Format::Classic, Timing::LEAST_PROCESSOR);
    let wide = settings(Format::Wide(Wide::default()), Timing::LEAST_PROCESSOR);
    let half = Span::from_us(500);
    [
        ("classic, bundles of 8 KiB", classic, Span::ZERO),
        ("classic, bundles of 8 KiB, interface waits 0.5 ms", classic, half),
        ("wide, bundles of 1,472 octets", wide, Span::ZERO),
        ("wide, bundles of 1,472 octets, interface waits 0.5 ms", wide, half),
    ]
}

fn main() {
    let line = match Line::new() {
        Ok(line) => line,
        Err(why) => return println!("skipped: {why}"),
    };
    if std::env::args().any(|word| word == "--real-time") {
        (0..2).for_each(|end| line.precede(Thread::Kernel(end), 10));
    }
    let contestants = contestants();
    let run = |(_, settings, waits): &(&str, Settings, Span), rate| {
        line.wait(1, *waits);
        carry(&line, *settings, Traffic { rate, time: TIME, priority: None, tells: 64 })
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
        let used = |which: &[usize]| of(&|outcome| used(outcome, which));
        let share = |of: u64, outcome: &Outcome| of as f64 / outcome.sent.max(1) as f64 * 100.0;
        println!(
            "  {name:<52}  {:>8.0}  {:>8.3}  {:>7.3} {:>7.3} {:>7.3}  {:>7.3}  {:>7.3}% {:>7.3}% {:>7.3}%",
            of(&Outcome::rate),
            used(&[0, 1, 2]),
            used(&[0]),
            used(&[1]),
            used(&[2]),
            used(&[3, 4]),
            of(&|outcome| share(outcome.unheard(), outcome)),
            of(&|outcome| share(outcome.dropped(), outcome)),
            of(&|outcome| share(outcome.lost(), outcome)),
        );
    }
    println!("\nmost messages a second of which none was lost, by one processor");
    for one in &contestants {
        let rate = most(|rate| run(one, rate));
        println!("  {:<52}  {rate:>8.0}", one.0);
    }
}

/// The last rate at which nothing was lost; it rises until something is in each of these tries, or nobody sends faster.
fn most(run: impl Fn(u32) -> Outcome) -> f64 {
    let (mut most, mut asked) = (0.0, STEP);
    loop {
        let Some(outcome) = (0..TRIES).map(|_| run(asked)).find(|outcome| outcome.lost() == 0) else {
            return most;
        };
        if outcome.rate() < most + f64::from(STEP) / 2.0 {
            return most;
        }
        (most, asked) = (outcome.rate(), asked + STEP);
    }
}

/// Seconds of processor for a million messages that came.
fn used(outcome: &Outcome, which: &[usize]) -> f64 {
    let used = which.iter().fold(Span::ZERO, |all, at| all + outcome.used[*at]);
    used.as_s() * 1e6 / outcome.noted.messages.max(1) as f64
}
