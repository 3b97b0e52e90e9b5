//! Runs a site with commands, datagrams, restarts and pauses chosen by the input, in either format: every endpoint
//! obeys its laws, no two level-1 converters join the same group, and no host receives a message twice.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run bundle_machines fuzz/corpus/bundle_machines fuzz/seeds/bundle_machines`

#![no_main]

#[allow(dead_code, reason = "others need the rest")]
#[path = "../../crates/bundle/tests/support/simulation.rs"]
mod simulation;

use libfuzzer_sys::fuzz_target;
use simulation::{Impairments, Node, Simulation};
use trunkline_bundle::bundler::Timing;
use trunkline_bundle::host::{HostCommand, OutgoingMessage};
use trunkline_bundle::level::Medium;
use trunkline_bundle::regulator::Congestion;
use trunkline_bundle::settings::{Fanout, Format2};
use trunkline_bundle::{Format, Settings};
use trunkline_endpoint::Port;
use trunkline_units::Span;

/// The longest simulated time before the end, so that the fuzzer tries many sites.
const MAX_TIME: Span = Span::from_s(2);

const NODES: [Node; 6] =
    [Node::Central, Node::Level1(0), Node::Level1(1), Node::Host(0), Node::Host(1), Node::Host(2)];

fuzz_target!(|bytes: &[u8]| {
    let [options, seed, rest @ ..] = bytes else { return };
    let format2 = Format2 {
        fanout: if options & 1 == 0 { Fanout::Unicast } else { Fanout::Broadcast },
        congestion: if options & 2 == 0 { Congestion::Levels } else { Congestion::Rates },
        max_datagram: 512 + 16 * usize::from(options >> 4),
        ..Format2::default()
    };
    let settings = Settings {
        timing: [Timing::CLASSIC, Timing::LEAST_PROCESSOR, Timing::LEAST_DELAY]
            [usize::from(options >> 2 & 3) % 3],
        format: if options >> 4 == 15 { Format::Classic } else { Format::Format2(format2) },
        ..Settings::default()
    };
    let mut sim = Simulation::new(2, 3, settings, Medium::default()).seed((*seed).into());
    if settings.format == Format::Classic && options & 1 == 0 {
        sim = sim.with_refresh();
    }
    let (mut rest, mut time) = (rest, Span::ZERO);
    // Each event is an octet for its kind, an octet for its place or amount, and an argument.
    while let [kind, amount, argument @ ..] = rest {
        let node = NODES[usize::from(*amount) % 6];
        let host = usize::from(*amount) % 3;
        let address = u32::from(*amount >> 2);
        let (piece, left) = argument.split_at(usize::from(kind >> 4).min(argument.len()));
        rest = left;
        match kind % 16 {
            0 => {
                let (piece, left) = argument.split_at((4 * usize::from(*amount)).min(argument.len()));
                rest = left;
                sim.deliver(NODES[usize::from(kind >> 4) % 6], Port(u16::from(*amount) & 1), piece);
            }
            1 => sim.start(node),
            2 => sim.stop(node),
            3 => {
                sim.impairments = Impairments { loss: f64::from(*amount & 3) / 4.0, ..Impairments::default() }
            }
            4 => _ = sim.command(host, HostCommand::Join { first: address, last: address }),
            5 => _ = sim.command(host, HostCommand::Drop { first: address, last: address }),
            6 => _ = sim.command(host, HostCommand::Join { first: address, last: address << (kind >> 3) }),
            7 => _ = sim.command(host, HostCommand::Drop { first: address, last: address << (kind >> 3) }),
            8 | 9 => {
                let message =
                    OutgoingMessage { address, priority: kind & 1 == 1, max_wait: None, body: piece };
                let _ = sim.command(host, HostCommand::Send(message));
            }
            10 => sim.inject(address, kind & 16 != 0, piece),
            11 => _ = sim.command(host, HostCommand::Saturate((*amount > 8).then_some(u32::from(*amount)))),
            12 if kind >> 4 == 1 => {
                _ = sim.command(host, HostCommand::Drop { first: address, last: (*amount).into() })
            }
            12 => _ = sim.command(host, if *amount > 250 { HostCommand::Bye } else { HostCommand::DropAll }),
            _ => {
                let elapsed = Span::from_us(1 << (amount % 22)).min(MAX_TIME - time);
                time += elapsed;
                sim.run(elapsed);
            }
        }
    }
    sim.impairments = Impairments::default();
    sim.run(Span::from_s(1));
    assert!(sim.joined.len() <= 2 * 2_048);
});
