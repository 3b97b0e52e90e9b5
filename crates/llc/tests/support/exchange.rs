//! Acknowledged messages between two stations over a bad path: each that is said to be done was taken once, in order, and
//! none twice.

use std::collections::{BTreeMap, BTreeSet};

use trunkline_llc::{Address, Command, Event, Options, Outcome, Ticket};
use trunkline_units::{Seed, Span};

use crate::world::{Network, Path};

#[derive(Default)]
struct Life {
    /// What was sent under a ticket.
    said: BTreeMap<Ticket, (u8, u8, u32)>,
    done: BTreeSet<(u8, u8, u32)>,
    ends: u32,
}

impl Life {
    fn receive(&mut self, world: &mut Network) {
        for (station, event) in world.events.drain(..) {
            let Event::Sent { ticket, outcome, .. } = event else { continue };
            assert_eq!(station, 1);
            let said = self.said.remove(&ticket).expect("each ends once");
            self.ends += 1;
            if outcome == Outcome::Done {
                self.done.insert(said);
            }
        }
    }
}

/// Two SAPs of station 1 send to one of station 2 with random priorities; it takes what comes, now and then.
fn live(seed: u64, path: Path, options: &Options) {
    let mut world = Network::new(seed, path, 2);
    let mut draw = Seed(seed).stream("life");
    for (station, sap) in [(1, 2), (1, 4), (2, 2)] {
        world.command(station, Command::Open { sap, options }).unwrap();
    }
    let (mut life, mut got, mut number) = (Life::default(), Vec::new(), 0);
    for step in 0..2_500 {
        for _ in 0..draw.below(3) {
            let (sap, priority) = (2 + 2 * draw.below(2) as u8, draw.below(3) as u8);
            let mut ticket = Ticket::default();
            let bytes = u32::to_be_bytes(number);
            let to = Address { sap: 2, station: 2 };
            let send =
                Command::Send { sap, to, bytes: &bytes, priority: Some(priority), ticket: &mut ticket };
            if step < 2_000 && world.command(1, send).is_ok() {
                life.said.insert(ticket, (sap, priority, number));
                number += 1;
            }
        }
        world.run(Span::from_ms(2));
        life.receive(&mut world);
        while draw.chance(0.7)
            && let Some((received, bytes)) = world.take(2, 2)
        {
            assert!(received.acknowledged && received.from.station == 1);
            got.push((received.from.sap, received.priority, u32::from_be_bytes(bytes.try_into().unwrap())));
        }
    }
    world.run(Span::from_s(40));
    life.receive(&mut world);
    while let Some((received, bytes)) = world.take(2, 2) {
        got.push((received.from.sap, received.priority, u32::from_be_bytes(bytes.try_into().unwrap())));
    }
    assert!(life.said.is_empty(), "seed {seed}: each comes to its end");
    assert!(life.done.len() > 20, "seed {seed}: {} of {number}", life.done.len());
    let mut last = BTreeMap::new();
    for (sap, priority, number) in &got {
        let before = last.insert((sap, priority), number);
        assert!(before < Some(number), "seed {seed}: {number} after {before:?}");
    }
    let got: BTreeSet<_> = got.into_iter().collect();
    let missing: Vec<_> = life.done.difference(&got).collect();
    assert!(missing.is_empty(), "seed {seed}: done, but not taken: {missing:?}");
}

/// A path on which frames keep their order; copies may be under way when the next message is.
pub fn in_order(seed: u64) {
    let mut draw = Seed(seed).stream("path");
    let path = Path {
        delay: Span::from_ms(draw.below(6)),
        jitter: Span::ZERO,
        loss: draw.unit() * 0.5,
        double: draw.unit() * 0.3,
    };
    // Tries without an answer take longer than a round trip, but a single one need not.
    let options = Options {
        tries: 3 + draw.below(10) as u16,
        response_timeout: path.delay / 2 + Span::from_ms(1 + draw.below(10)),
        queue: 1 + draw.below(10) as u16,
        crc: draw.chance(0.5),
        ..Options::acknowledged(0)
    };
    live(seed, path, &options);
}

/// A path on which frames overtake each other; but none is doubled by it, and an answer is waited for longer than any is
/// under way, there and back.
pub fn out_of_order(seed: u64) {
    let mut draw = Seed(seed).stream("path");
    let path = Path {
        delay: Span::from_us(100),
        jitter: Span::from_us(1 + draw.below(4_000)),
        loss: draw.unit() * 0.5,
        double: 0.0,
    };
    let patience = (path.delay + path.jitter) * 2 + Span::from_ps(1);
    let options =
        Options { response_timeout: patience, tries: 1 + draw.below(10) as u16, ..Options::acknowledged(0) };
    live(seed, path, &options);
}
