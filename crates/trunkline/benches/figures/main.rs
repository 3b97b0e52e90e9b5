//! The figures Trunkline promises, beside the peers it finds installed: `cargo bench -p trunkline --bench figures`.
//!
//! | module | contents |
//! | --- | --- |
//! | [`options`] | what may be said on the command line |
//! | [`contest`] | tools run in turn, and the table they make |
//! | [`speed`], [`pace`], [`latency`] | the figures: full speed; `cbr` and `poisson`; round trips |
//! | [`agents`] | full speed over agents, beside the local run |
//! | [`quic`] | full speed over QUIC, beside the least program with `quinn` |
//! | [`replay`] | the times and sizes of a replayed capture |
//! | [`one_off`] | `trunkline test` with the flags of iperf3 |
//! | [`models`] | application models: their laws, and many sessions at once |
//! | [`ours`] | Trunkline, through its binary and its record |
//! | [`peers`] | the other tools: which are here, how they are started |
//! | [`pingpong`] | the least a round trip can cost: two blocking processes |
//! | [`tap`] | one instrument for all: when each datagram crossed the loopback |
//! | [`statistics`] | medians and the Kolmogorov–Smirnov test |
//! | [`page`] | the machine, and `docs/benchmarks.md` |
//!
//! Times only mean something side by side, so every tool runs in turn with the others and each round gives a ratio.
//! A figure that falls short is printed, and is no error; a tool that does not do its work is.

#![allow(clippy::disallowed_methods, reason = "a bench measures in real time")]

mod agents;
mod contest;
mod latency;
mod models;
mod one_off;
mod options;
mod ours;
mod pace;
mod page;
mod peers;
mod pingpong;
mod quic;
mod replay;
mod speed;
mod statistics;
mod tap;

use std::env;
use std::process::ExitCode;

use contest::Row;
use options::Options;
use peers::Peers;

/// Why there is no figure: one clear line.
type Outcome<T> = Result<T, String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let done = match arguments.first().map(String::as_str) {
        Some(pingpong::SERVE) => pingpong::serve(&arguments[1..]),
        Some(pingpong::PING) => pingpong::ping(&arguments[1..]),
        Some(quic::SERVE) => quic::serve(&arguments[1..]),
        Some(quic::SEND) => quic::send(&arguments[1..]),
        _ => Options::read(&arguments).and_then(|options| bench(&options)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("figures: {why}");
            ExitCode::FAILURE
        }
    }
}

fn bench(options: &Options) -> Outcome<()> {
    let peers = Peers::find();
    let tap = tap::hold();
    let machine = page::machine(&peers, &tap);
    println!("{machine}");

    let mut rows: Vec<Row> = Vec::new();
    for (name, measure) in FIGURES {
        if options.wants(name) {
            rows.extend(measure(options, &peers, tap.is_ok())?);
        }
    }
    let table = contest::table(&rows);
    println!("\n{table}");
    if options.write {
        page::write(options, &machine, &table)?;
    }
    Ok(())
}

/// Measures some rows of the table; the last argument says whether there is a tap.
type Figure = fn(&Options, &Peers, bool) -> Outcome<Vec<Row>>;

const FIGURES: [(&str, Figure); 11] = [
    ("udp", speed::udp),
    ("tcp", speed::tcp),
    ("cbr", pace::cbr),
    ("poisson", pace::poisson),
    ("request", latency::request),
    ("test", one_off::one_off),
    ("agents", agents::agents),
    ("quic", quic::quic),
    ("replay", replay::replay),
    ("models", models::models),
    ("sessions", models::sessions),
];
