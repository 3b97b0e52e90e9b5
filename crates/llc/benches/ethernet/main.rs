//! Stations over Ethernet beside bare packet sockets.
//!
//! `cargo bench -p trunkline-llc --features sockets --bench ethernet [-- WORD…]` measures the contests whose names hold one
//! of the words, or all. It needs root: two network namespaces are joined by a pair of virtual interfaces, and
//! go when it ends. Contestants take turns, a round each; the figure of each is the median of its rounds, and the
//! median of its ratios to the first one's of the same round. Absolute figures are the machine's and the hour's, the
//! ratios mean something.
//!
//! Round trips: both ends on one core. One way: the sender on one core, who takes the frames on another.

#![allow(clippy::disallowed_methods, reason = "a bench measures time")]

#[path = "../../../../benches/contest.rs"]
mod contest;
mod one_way;
mod round_trip;
#[path = "../../../../benches/spaces.rs"]
mod spaces;

use contest::Contest;
use spaces::{DEVICE, Spaces};
use trunkline_llc::socket::Network;

/// Octets of the messages: what NASA asked for in 1990.
const SIZE: usize = 100;

/// Rounds of the contest of exchanges, which are short.
const SHORT_ROUNDS: usize = 51;

/// The network at either end.
fn network() -> Network {
    Network::Ethernet { interface: DEVICE.into() }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let spaces = match Spaces::new() {
        Ok(spaces) => spaces,
        Err(why) => return println!("skipped: {why} (it needs root and iproute2)"),
    };
    if let Some(contest) = words.iter().find_map(|word| word.strip_prefix("only=")) {
        // For a profiler: one contestant alone, once.
        return only(contest, &spaces);
    }
    let exchange = "acknowledged exchange of 100 octets, one core";
    if wanted(exchange) {
        Contest::new(
            exchange,
            "us",
            vec![
                ("raw ping-pong", Box::new(|| round_trip::raw(&spaces, false))),
                ("raw, with the priority", Box::new(|| round_trip::raw(&spaces, true))),
                ("ours", Box::new(|| round_trip::ours(&spaces))),
            ],
        )
        .of_rounds(SHORT_ROUNDS)
        .run();
    }
    let one_way = "one way, 100 octets, a frame each";
    if wanted(one_way) {
        Contest::new(
            one_way,
            "M/s",
            vec![
                ("raw send", Box::new(|| one_way::raw(&spaces, 1))),
                ("ours", Box::new(|| one_way::ours(&spaces, 1))),
            ],
        )
        .run();
    }
    let batched = "one way, 100 octets, 64 frames a call";
    if wanted(batched) {
        Contest::new(
            batched,
            "M/s",
            vec![
                ("raw sendmmsg", Box::new(|| one_way::raw(&spaces, 64))),
                ("ours", Box::new(|| one_way::ours(&spaces, 64))),
            ],
        )
        .run();
    }
    let loaded = "priority 7 under load of seven lower ones";
    if wanted(loaded) {
        round_trip::loaded(&spaces);
    }
}

fn only(contest: &str, spaces: &Spaces) {
    let figure = match contest {
        "exchange-raw" => round_trip::raw(spaces, false),
        "exchange" => round_trip::ours(spaces),
        "way-raw" => one_way::raw(spaces, 1),
        "way" => one_way::ours(spaces, 1),
        "batch-raw" => one_way::raw(spaces, 64),
        _ => one_way::ours(spaces, 64),
    };
    println!("{contest}: {figure:.3}");
}
