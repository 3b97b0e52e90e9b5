//! Measures the delay of messages from a multicast group through level 1, the central converter and a host.
//!
//! `cargo bench -p trunkline-bundle --features sockets --bench delay` sends 4,000 messages of 150 bytes per second to
//! 64 multicast groups, all of which a host has joined; 5 % have priority. It needs root, iproute2, ethtool and
//! util-linux: it creates two network namespaces joined by a pair of virtual interfaces, and removes them at the end.
//! The delay is the time from before a message is sent until the host's callback receives it. Reported are mean,
//! median and 99th percentile of all messages of a round, and of these the median of the rounds, in milliseconds.

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
use trunkline_bundle::{Format, Format2};
use trunkline_units::Span;

use contest::{median, sorted};
use link::TestLink;
use messages::quantile;
use site::{Outcome, Traffic, run_traffic, settings};

const ROUNDS: usize = 5;
const TRAFFIC: Traffic = Traffic { rate: 4_000, time: Span::from_s(2), priority: Some(20), sample_every: 1 };

fn main() {
    let link = match TestLink::new() {
        Ok(link) => link,
        Err(why) => return println!("skipped: {why}"),
    };
    let (classic, format2) = (Format::Classic, Format::Format2(Format2::default()));
    let contestants = [
        ("least delay, classic", classic, Timing::LEAST_DELAY),
        ("least delay, format 2", format2, Timing::LEAST_DELAY),
        ("ticks of 5 ms (1997), classic", classic, Timing::CLASSIC),
        ("ticks of 5 ms, format 2", format2, Timing::CLASSIC),
        ("least processor, classic", classic, Timing::LEAST_PROCESSOR),
        ("least processor, format 2", format2, Timing::LEAST_PROCESSOR),
    ];
    let rounds: Vec<Vec<Outcome>> = (0..ROUNDS)
        .map(|_| contestants.iter().map(|(_, f, t)| run_traffic(&link, settings(*f, *t), TRAFFIC)).collect())
        .collect();
    println!(
        "\n{:<32}  {:^26}  {:^26}  {:>7}\n{:<32}  {:>8} {:>8} {:>8}  {:>8} {:>8} {:>8}",
        "4000 messages a second, ms",
        "ordinary",
        "priority",
        "lost",
        "",
        "mean",
        "50 %",
        "99 %",
        "mean",
        "50 %",
        "99 %"
    );
    for (at, (name, ..)) in contestants.iter().enumerate() {
        let median_of =
            |figure: &dyn Fn(&Outcome) -> f64| median(rounds.iter().map(|round| figure(&round[at])));
        let delay = |class: usize, figure: fn(&[f64]) -> f64| {
            median_of(&|outcome| figure(&sorted(outcome.samples.delays[class].iter().copied())) * 1e3)
        };
        let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len().max(1) as f64;
        let [ordinary, priority] = [0, 1].map(|class| {
            let figures = [mean, |all: &[f64]| quantile(all, 0.5), |all: &[f64]| quantile(all, 0.99)];
            figures.map(|figure| delay(class, figure))
        });
        println!(
            "  {name:<30}  {:>8.3} {:>8.3} {:>8.3}  {:>8.3} {:>8.3} {:>8.3}  {:>6.3}%",
            ordinary[0],
            ordinary[1],
            ordinary[2],
            priority[0],
            priority[1],
            priority[2],
            median_of(&|outcome| outcome.lost() as f64 / outcome.sent.max(1) as f64 * 100.0),
        );
    }
}
