//! The paper's own test, today: a line of 121.8 Mb/s, in separate namespaces.
//!
//! `cargo bench -p trunkline-arq --features sockets --bench line [-- WORD…]` measures the contests whose names hold one
//! of the words, or all. `--rounds N` says how often, else four times.
//!
//! | module | contents |
//! | --- | --- |
//! | [`spaces`] | two namespaces and the line between them |
//! | [`one_way`] | as much as crosses, one way or both |
//! | [`round_trip`] | question and answer |
//!
//! The line is a pair of virtual Ethernet devices, MTU 1500, without offload. What crosses it a second is limited by a
//! token bucket of 30 kB before which 10 ms of packets may wait, both ways; loss is random, both ways. Contestants take
//! turns; the result of each is the median of its rounds, and the median of its ratios to raw UDP in the same round. Raw
//! UDP sends datagrams of 1,472 bytes as fast as the system takes them, so it fills the line, and counts all bytes of
//! those that arrive. The others carry messages of 8 KiB.
//!
//! Namespaces and shaping need root, `ip`, `tc`, `ethtool` and `iptables` (Debian: iproute2, ethtool, iptables). What cannot
//! be had is skipped, with a line that says so.

#![allow(clippy::disallowed_methods, reason = "a bench measures time")]

mod one_way;
mod round_trip;
mod spaces;

use one_way::Goodput;
use spaces::Spaces;
use trunkline_arq::{Congestion, Options, Statistics};

const ROUNDS: usize = 4;

/// What the command asks for.
struct Arguments {
    rounds: usize,
    words: Vec<String>,
}

impl Arguments {
    fn wants(&self, name: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| name.contains(word.as_str()))
    }
}

fn main() {
    let mut asked = Arguments { rounds: ROUNDS, words: Vec::new() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--rounds" {
            let rounds = words.next().and_then(|rounds| rounds.parse().ok());
            asked.rounds = rounds.filter(|rounds| *rounds > 0).expect("--rounds needs a number");
        } else if !word.starts_with('-') {
            asked.words.push(word);
        }
    }
    match Spaces::new() {
        Ok(spaces) => run(&spaces, &asked),
        Err(refused) => println!("the line: skipped, for there is none: {refused}"),
    }
}

fn run(spaces: &Spaces, asked: &Arguments) {
    type Contest = fn(&Spaces, &str, usize);
    let contests: [(&str, bool, f64, Contest); 6] = [
        ("one way, no loss", true, 0.0, one_way),
        ("one way, 1 % loss", true, 0.01, one_way),
        ("one way, 5 % loss", true, 0.05, one_way),
        ("both ways, of twice one way", true, 0.0, both_ways),
        ("round trip, no loss", false, 0.0, round_trips),
        ("round trip, 1 % loss", false, 0.01, lossy_round_trips),
    ];
    for (name, shaped, loss, contest) in contests.into_iter().filter(|(name, ..)| asked.wants(name)) {
        match spaces.shape(shaped, loss) {
            Ok(()) => contest(spaces, name, asked.rounds),
            Err(refused) => println!("{name}: skipped: {refused}"),
        }
    }
}

/// A contestant, given whether it goes both ways.
type Contestant = (String, Box<dyn Fn(&Spaces, bool) -> Goodput>);

fn contestants() -> Vec<Contestant> {
    let mut all: Vec<Contestant> = vec![("raw UDP".into(), Box::new(one_way::udp))];
    for control in controls() {
        let name = format!("TCP, {control}");
        all.push((name, Box::new(move |spaces, both| one_way::tcp(spaces, both, &control))));
    }
    for (name, options) in [("ours, defaults", Options::default()), ("ours, a fixed window of 64", fixed())] {
        all.push((name.into(), Box::new(move |spaces, both| one_way::ours(spaces, both, &options))));
    }
    all
}

/// TCP's congestion controls: the one that the system takes by itself, and those that peers are measured with.
fn controls() -> Vec<String> {
    let said = |name: &str| {
        let all = std::fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{name}")).unwrap_or_default();
        all.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut controls = said("congestion_control");
    for other in said("available_congestion_control") {
        if ["bbr", "cubic"].contains(&other.as_str()) && !controls.contains(&other) {
            controls.push(other);
        }
    }
    controls
}

/// A window tuned to the line: 64 frames fit into its queue.
fn fixed() -> Options {
    Options { window: 64, congestion: Congestion::Fixed, ..Options::default() }
}

fn one_way(spaces: &Spaces, name: &str, rounds: usize) {
    let contestants = contestants();
    let turns = |_| contestants.iter().map(|(_, contestant)| contestant(spaces, false)).collect();
    let rounds: Vec<Vec<Goodput>> = (0..rounds).map(turns).collect();
    println!("\n{name:<28}  {:>7}  {:>6}  {:>15}", "Mb/s", "ratio", "least to most");
    for (at, (contestant, _)) in contestants.iter().enumerate() {
        let mbps = sorted(rounds.iter().map(|round| round[at].bps * 1e-6));
        let ratios = sorted(rounds.iter().map(|round| round[at].bps / round[0].bps));
        print_results(contestant, &mbps, &ratios);
        if contestant.starts_with("ours") {
            counts(rounds.iter().map(|round| round[at]));
        }
    }
}

/// The ratio is to twice the contestant's own one way.
fn both_ways(spaces: &Spaces, name: &str, rounds: usize) {
    let contestants = contestants();
    let turn = |(_, contestant): &Contestant| (contestant(spaces, false), contestant(spaces, true));
    let turns = |_| contestants.iter().map(turn).collect();
    let rounds: Vec<Vec<(Goodput, Goodput)>> = (0..rounds).map(turns).collect();
    println!("\n{name:<28}  {:>7}  {:>6}  {:>15}", "Mb/s", "ratio", "least to most");
    for (at, (contestant, _)) in contestants.iter().enumerate() {
        let mbps = sorted(rounds.iter().map(|round| round[at].1.bps * 1e-6));
        let ratios = sorted(rounds.iter().map(|round| round[at].1.bps / (2.0 * round[at].0.bps)));
        print_results(contestant, &mbps, &ratios);
        if contestant.starts_with("ours") {
            counts(rounds.iter().map(|round| round[at].1));
        }
    }
}

fn print_results(name: &str, mbps: &[f64], ratios: &[f64]) {
    let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
    println!("  {name:<26}  {:>7.2}  {:>6.4}  {least:>6.4} – {most:>6.4}", median(mbps), median(ratios));
}

/// What ours counted, all rounds together.
fn counts(rounds: impl Iterator<Item = Goodput> + Clone) {
    let sum = |count: fn(&Statistics) -> u64| -> u64 {
        rounds.clone().map(|round| count(&round.west) + count(&round.east)).sum()
    };
    println!(
        "    frames {}, lost {}, resent {}, doubles {}, tail probes {}, timeouts {}, acks {} and {} on data",
        sum(|s| s.frames_sent),
        sum(|s| s.lost),
        sum(|s| s.frames_resent),
        sum(|s| s.duplicates),
        sum(|s| s.tail_probes),
        sum(|s| s.timeouts),
        sum(|s| s.acks_forced),
        sum(|s| s.acks_piggybacked),
    );
}

/// A contestant: its round trips in microseconds, sorted.
type Asker = (&'static str, Box<dyn Fn(&Spaces) -> Vec<f64>>);

fn round_trips(spaces: &Spaces, name: &str, rounds: usize) {
    let mut contestants: Vec<Asker> = vec![("raw UDP", Box::new(round_trip::udp))];
    contestants.extend(reliable());
    compare(spaces, name, rounds, &contestants);
}

/// Without raw UDP: a datagram that is lost is never answered.
fn lossy_round_trips(spaces: &Spaces, name: &str, rounds: usize) {
    compare(spaces, name, rounds, &reliable());
}

fn reliable() -> Vec<Asker> {
    let ours = |spaces: &Spaces| round_trip::ours(spaces, &Options::default());
    vec![("TCP", Box::new(round_trip::tcp)), ("ours, defaults", Box::new(ours))]
}

fn compare(spaces: &Spaces, name: &str, rounds: usize, contestants: &[Asker]) {
    let turns = |_| contestants.iter().map(|(_, contestant)| contestant(spaces)).collect();
    let rounds: Vec<Vec<Vec<f64>>> = (0..rounds).map(turns).collect();
    println!("\n{name:<28}  {:>8}  {:>8}  {:>19}  {:>9}", "p50 us", "p99 us", "least to most", "p99.9 us");
    for (at, (contestant, _)) in contestants.iter().enumerate() {
        let of = |share: f64| sorted(rounds.iter().map(|round| quantile(&round[at], share)));
        let (p50, p99, p999) = (of(0.5), of(0.99), of(0.999));
        let (least, most) = (p99[0], p99[p99.len() - 1]);
        println!(
            "  {contestant:<26}  {:>8.1}  {:>8.1}  {least:>8.1} – {most:>8.1}  {:>9.1}",
            median(&p50),
            median(&p99),
            median(&p999)
        );
    }
}

fn sorted(figures: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures
}

/// Of sorted figures the one in the middle, or the mean of the two.
fn median(figures: &[f64]) -> f64 {
    let half = figures.len() / 2;
    match figures.len() % 2 {
        0 => (figures[half - 1] + figures[half]) / 2.0,
        _ => figures[half],
    }
}

/// Of sorted figures the one that this share is below.
fn quantile(figures: &[f64], share: f64) -> f64 {
    figures[((figures.len() as f64 * share) as usize).min(figures.len() - 1)]
}
