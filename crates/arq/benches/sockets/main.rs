//! The transport on loopback sockets, beside raw UDP and the kernel's TCP.
//!
//! `cargo bench -p trunkline-arq --features sockets --bench sockets [-- WORD…]` measures the contests whose names hold
//! one of the words, or all. Contestants take turns, a round each of at most half a second; the result of each is
//! the median of its rounds, and the median of its ratios to the first of the same round. Absolute figures are the
//! machine's and the hour's, the ratios mean something.
//!
//! Round trips: both ends on one core. Throughput: one core for each end. `-- defaults` compares what a program gets that
//! sets no option with the kernel's TCP, to which those ratios are.

#![allow(clippy::disallowed_methods, reason = "a bench measures time")]

#[path = "../../../../benches/contest.rs"]
mod contest;
mod one_way;
mod round_trip;

use contest::Contest;
use trunkline_arq::{Check, Congestion, Options};
use trunkline_units::Span;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted =
        |contest: &&Contest| words.is_empty() || words.iter().any(|w| contest.name.contains(w.as_str()));
    contests().iter().filter(wanted).for_each(Contest::run);
}

/// Options for a full pipe that is short: what is under way fits a processor's cache, and few acknowledgements tell of it.
fn bulk(check: Check, frame: u16) -> Options {
    let window = (6_000_000 / u32::from(frame)).min(1024) as u16;
    Options {
        check,
        frame,
        window,
        ack_every: 64,
        send_buffer: 1 << 20,
        congestion: Congestion::Fixed,
        coalesce_delay: Span::from_us(50),
        ..Options::default()
    }
}

fn contests() -> Vec<Contest<'static>> {
    let plain = Options::default();
    let unchecked = Options { check: Check::None, ..Options::default() };
    let mut contests = vec![
        Contest::new(
            "round trip of 64 B, one core",
            "us",
            vec![
                ("raw UDP", Box::new(|| round_trip::udp(64))),
                ("TCP", Box::new(|| round_trip::tcp(64))),
                ("ours", Box::new(move || round_trip::ours(64, &plain))),
                ("ours, no check", Box::new(move || round_trip::ours(64, &unchecked))),
                (
                    "ours, fixed",
                    Box::new(move || {
                        round_trip::ours(64, &Options { congestion: Congestion::Fixed, ..Options::default() })
                    }),
                ),
            ],
        )
        .of_rounds(51),
    ];
    for (size, name) in [(1024, "1 KiB one way"), (8192, "8 KiB one way")] {
        contests.push(Contest::new(
            name,
            "Gb/s",
            vec![
                ("raw UDP, blocking", Box::new(|| one_way::datagrams() * 1e-9)),
                ("raw UDP, napping", Box::new(|| one_way::udp() * 1e-9)),
                ("TCP", Box::new(move || one_way::tcp(size) * 1e-9)),
                ("ours", Box::new(move || one_way::ours(size, &bulk(Check::Crc32c, 1472)).bps() * 1e-9)),
                (
                    "ours, no check",
                    Box::new(move || one_way::ours(size, &bulk(Check::None, 1472)).bps() * 1e-9),
                ),
            ],
        ));
    }
    for (size, name) in [(1024, "1 KiB one way, defaults"), (8192, "8 KiB one way, defaults")] {
        contests.push(
            Contest::new(
                name,
                "Gb/s",
                vec![
                    ("TCP, a length before each message", Box::new(move || one_way::framed_tcp(size) * 1e-9)),
                    ("TCP, bytes", Box::new(move || one_way::tcp(size) * 1e-9)),
                    ("raw UDP, blocking", Box::new(|| one_way::datagrams() * 1e-9)),
                    ("ours", Box::new(move || one_way::ours(size, &Options::default()).bps() * 1e-9)),
                ],
            )
            .of_rounds(11),
        );
    }
    let shared = |frame| bulk(Check::Crc32c, frame);
    contests.push(Contest::new(
        "64 B one way",
        "M/s",
        vec![
            ("TCP", Box::new(|| one_way::tcp(64) / 512e6)),
            ("ours, 1472 B frames", Box::new(move || one_way::ours(64, &shared(1472)).rate() * 1e-6)),
            ("ours, 8972 B frames", Box::new(move || one_way::ours(64, &shared(8972)).rate() * 1e-6)),
        ],
    ));
    contests
}
