//! What a hub promises: CSMA/CD against the clauses of IEEE 802.3. `hub_theory.rs` holds it against theory and
//! measurement.

use super::common;

use common::{Log, Packet, Testbed, check_conservation, draw_bound, load, run_twice, send_when_room};
use trunkline_endpoint::{Bound, Destination, LossCause, MediumOutput, Port};
use trunkline_models::media::{Hub, HubOptions};
use trunkline_units::{Instant, Rate, Seed, Span};

/// A bit at 10 Mb/s, in ns.
const BIT: u64 = 100;
const DELAY: u64 = 2_165;

fn hub(stations: usize, bound: Bound, seed: Seed) -> Hub<Packet> {
    with(HubOptions::default(), stations, bound, seed)
}

fn with(options: HubOptions, stations: usize, bound: Bound, seed: Seed) -> Hub<Packet> {
    let streams = (0..stations).map(|station| seed.stream(&format!("station {station}"))).collect();
    Hub::new(options, &vec![bound; stations], streams)
}

fn packet(id: u32, length: u32) -> Packet {
    Packet::new(id, length, Destination::All)
}

fn at(ns: u64) -> Instant {
    Instant::from_ns(ns)
}

/// When frames were received first, and which.
fn received(outputs: &[Log]) -> Vec<(u64, u32)> {
    let mut received: Vec<(u64, u32)> = Vec::new();
    for (at, output) in outputs {
        if let MediumOutput::Transmit { frame, .. } = output
            && received.last().is_none_or(|(_, id)| *id != frame.id)
        {
            received.push((at.as_ns(), frame.id));
        }
    }
    received
}

#[test]
fn single_frame_reaches_all_stations_after_the_delay() {
    let mut testbed = Testbed::new(hub(4, Bound::NONE, Seed(1)));
    testbed.send(at(1_000), 2, packet(1, 1000));
    testbed.finish();
    // Preamble 8, header and check sequence 18.
    let arrival = at(1_000 + 1026 * 8 * BIT + DELAY);
    let expected: Vec<Log> = [0, 1, 3]
        .map(|port| (arrival, MediumOutput::Transmit { port: Port(port), frame: packet(1, 1000) }))
        .into();
    assert_eq!(testbed.outputs, expected);
    assert_eq!(testbed.counters(2).busy, Span::from_ns(1026 * 8 * BIT));
}

#[test]
fn short_frames_are_padded_and_a_gap_follows_each() {
    let mut testbed = Testbed::new(hub(2, Bound::NONE, Seed(1)));
    (0..3).for_each(|id| testbed.send(at(0), 0, packet(id, 1)));
    testbed.finish();
    let frame = (64 + 512) * BIT;
    let ends = |n: u64| n * (frame + 96 * BIT) - 96 * BIT + DELAY;
    assert_eq!(received(&testbed.outputs), [(ends(1), 0), (ends(2), 1), (ends(3), 2)]);
}

#[test]
fn a_busy_medium_is_waited_for() {
    let mut testbed = Testbed::new(hub(2, Bound::NONE, Seed(1)));
    testbed.send(at(0), 0, packet(0, 1000));
    // It senses the carrier a delay after the start, so a picosecond later it defers.
    testbed.send(at(DELAY) + Span::from_ps(1), 1, packet(1, 1000));
    testbed.finish();
    let frame = 1026 * 8 * BIT;
    let second = frame + DELAY + 96 * BIT + frame + DELAY;
    assert_eq!(received(&testbed.outputs), [(frame + DELAY, 0), (second, 1)]);
    assert_eq!(testbed.counters(0).collisions + testbed.counters(1).collisions, 0);
}

#[test]
fn who_cannot_sense_collides_and_backs_off_by_slots() {
    for seed in (0..50).map(Seed) {
        let mut testbed = Testbed::new(hub(2, Bound::NONE, seed));
        testbed.send(at(0), 0, packet(0, 1000));
        testbed.send(at(2_000), 1, packet(1, 1000));
        testbed.finish();
        let (a, b) = (testbed.counters(0), testbed.counters(1));
        assert!(a.collisions >= 1 && a.collisions == b.collisions, "seed {seed}");
        // Station 0 detects at 2.0 + 2.165, station 1 at 2.165 µs; both finish their preamble and jam.
        let (end_a, end_b) = (96 * BIT, 2_000 + 96 * BIT);
        let clear = [end_a.max(end_b + DELAY) + 96 * BIT, end_b.max(end_a + DELAY) + 96 * BIT];
        let [drawn_a, drawn_b] = [0, 1].map(|s| seed.stream(&format!("station {s}")).below(2));
        let start =
            [(end_a + drawn_a * 512 * BIT).max(clear[0]), (end_b + drawn_b * 512 * BIT).max(clear[1])];
        if drawn_a == drawn_b {
            assert!(a.collisions > 1, "seed {seed}: equal draws collide again");
            continue;
        }
        let first = if drawn_a < drawn_b { 0 } else { 1 };
        let end = start[first] + 1026 * 8 * BIT + DELAY;
        assert_eq!(received(&testbed.outputs)[0], (end, first as u32), "seed {seed}");
    }
}

#[test]
fn a_frame_is_given_up_after_sixteen_collisions() {
    let mut given_up = 0;
    for seed in (0..60).map(Seed) {
        // One frame against forty: either it gets through, or it collides with one after the other.
        let options = HubOptions { max_length: 70_000, ..HubOptions::default() };
        let mut testbed = Testbed::new(with(options, 2, Bound::NONE, seed));
        testbed.send(at(0), 1, packet(0, 46));
        (1..41).for_each(|id| testbed.send(at(0), 0, packet(id, 66_000)));
        testbed.finish();
        let lost = &common::outcomes(&testbed.outputs)[&0].lost;
        let c = testbed.counters(1);
        if lost.is_empty() {
            assert!(c.frames == 1 && c.other_losses == 0 && c.collisions < 16, "seed {seed}: {c:?}");
        } else {
            assert_eq!(lost, &[(1, LossCause::Collisions)], "seed {seed}");
            assert!(c.frames == 0 && c.other_losses == 1 && c.collisions == 16, "seed {seed}: {c:?}");
            given_up += 1;
        }
    }
    assert!((1..59).contains(&given_up), "{given_up} of 60 gave up");
}

#[test]
fn what_is_too_long_is_lost() {
    let mut testbed = Testbed::new(hub(2, Bound::NONE, Seed(1)));
    testbed.send(at(0), 0, packet(0, 1500));
    testbed.send(at(0), 0, packet(1, 1501));
    testbed.finish();
    assert_eq!(common::outcomes(&testbed.outputs)[&1].lost, [(0, LossCause::TooLong)]);
    assert_eq!(testbed.counters(0).frames, 1);
}

#[test]
fn nothing_vanishes() {
    for seed in (0..150).map(Seed) {
        let mut draw = seed.stream("scene");
        let stations = 2 + draw.below(12) as u16;
        let options = HubOptions {
            rate: Rate::from_bps([3_000_000, 10_000_000][draw.below(2) as usize]),
            delay: Span::from_ns(draw.below(25_601)),
            max_length: 1400,
        };
        let bound = draw_bound(&mut draw);
        let gap = Span::from_us(100 + draw.below(2_000));
        let load = load(&mut draw, 200, stations, gap, |_| Destination::All);
        let make = || with(options.clone(), usize::from(stations), bound, seed);
        let testbed = run_twice(seed, make, &load);
        check_conservation(&testbed, &load, stations, |from, _| {
            (0..stations).filter(|p| *p != from).collect()
        });
        // The medium carries one frame at a time.
        let mut busy = received(&testbed.outputs);
        busy.dedup_by_key(|(at, _)| *at);
        assert_eq!(busy.len(), received(&testbed.outputs).len(), "seed {seed}");
    }
}

#[test]
fn who_asks_loses_nothing() {
    let testbed = send_when_room(hub(3, Bound::frames(2), Seed(5)), 3, 200, |_| Destination::All);
    let full: u64 = (0..3).map(|port| testbed.counters(port).queue_drops).sum();
    let given_up = (0..3).map(|port| testbed.counters(port).other_losses).sum::<u64>();
    let frames: u64 = (0..3).map(|port| testbed.counters(port).frames).sum();
    assert_eq!((full, frames + given_up), (0, 600));
}
