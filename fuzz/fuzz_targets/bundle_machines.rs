//! A site whose commands, datagrams, restarts and time are what bytes say, in either format: no law of an endpoint is broken,
//! no two converters of level 1 get the same, and hosts get nothing twice.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run bundle_machines fuzz/corpus/bundle_machines fuzz/seeds/bundle_machines`

#![no_main]

#[allow(dead_code, reason = "others need the rest")]
#[path = "../../crates/bundle/tests/support/world.rs"]
mod world;

use libfuzzer_sys::fuzz_target;
use trunkline_bundle::gather::Timing;
use trunkline_bundle::host::{Command, Post};
use trunkline_bundle::level::Medium;
use trunkline_bundle::regulator::Congestion;
use trunkline_bundle::settings::{Spread, Wide};
use trunkline_bundle::{Format, Settings};
use trunkline_endpoint::Port;
use trunkline_units::Span;
use world::{Line, Place, World};

/// Time that passes at the most before the end, so that many sites are tried and not a few for long.
const TIME: Span = Span::from_s(2);

const PLACES: [Place; 6] =
    [Place::Central, Place::Level1(0), Place::Level1(1), Place::Host(0), Place::Host(1), Place::Host(2)];

fuzz_target!(|bytes: &[u8]| {
    let [how, seed, rest @ ..] = bytes else { return };
    let wide = Wide {
        spread: if how & 1 == 0 { Spread::Each } else { Spread::All },
        congestion: if how & 2 == 0 { Congestion::Levels } else { Congestion::Rates },
        path: 512 + 16 * usize::from(how >> 4),
        ..Wide::default()
    };
    let settings = Settings {
        timing: [Timing::CLASSIC, Timing::LEAST_PROCESSOR, Timing::LEAST_DELAY]
            [usize::from(how >> 2 & 3) % 3],
        format: if how >> 4 == 15 { Format::Classic } else { Format::Wide(wide) },
        ..Settings::default()
    };
    let mut world = World::new(2, 3, settings, Medium::default()).seed((*seed).into());
    if settings.format == Format::Classic && how & 1 == 0 {
        world = world.retelling();
    }
    let (mut rest, mut time) = (rest, Span::ZERO);
    // An octet says what happens, the next where or how much, then what it is about.
    while let [what, much, more @ ..] = rest {
        let place = PLACES[usize::from(*much) % 6];
        let host = usize::from(*much) % 3;
        let address = u32::from(*much >> 2);
        let (piece, left) = more.split_at(usize::from(what >> 4).min(more.len()));
        rest = left;
        match what % 16 {
            0 => {
                let (piece, left) = more.split_at((4 * usize::from(*much)).min(more.len()));
                rest = left;
                world.give(PLACES[usize::from(what >> 4) % 6], Port(u16::from(*much) & 1), piece);
            }
            1 => world.start(place),
            2 => world.stop(place),
            3 => world.line = Line { loss: f64::from(*much & 3) / 4.0, ..Line::default() },
            4 => _ = world.command(host, Command::Join(address as u16)),
            5 => _ = world.command(host, Command::Drop(address as u16)),
            6 => _ = world.command(host, Command::JoinRange { first: address, last: address << (what >> 3) }),
            7 => _ = world.command(host, Command::DropRange { first: address, last: address << (what >> 3) }),
            8 | 9 => {
                let post = Post { address, priority: what & 1 == 1, within: None, body: piece };
                let _ = world.command(host, Command::Post(post));
            }
            10 => world.hear(address, what & 16 != 0, piece),
            11 => _ = world.command(host, Command::Saturate((*much > 8).then_some(u32::from(*much)))),
            12 if what >> 4 == 1 => {
                _ = world.command(host, Command::DropAgain { first: address as u16, last: (*much).into() })
            }
            12 => _ = world.command(host, if *much > 250 { Command::Bye } else { Command::DropAll }),
            _ => {
                let passes = Span::from_us(1 << (much % 22)).min(TIME - time);
                time += passes;
                world.run(passes);
            }
        }
    }
    world.line = Line::default();
    world.run(Span::from_s(1));
    assert!(world.joined.len() <= 2 * 2_048);
});
