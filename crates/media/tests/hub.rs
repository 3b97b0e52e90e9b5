//! What a hub promises: CSMA/CD against the clauses of IEEE 802.3, the capture effect against its Markov
//! chain, and throughput against the published formula.

mod common;

use common::{Packet, Said, World, check_conservation, draw_bound, load, run_twice, send_politely};
use trunkline_endpoint::{Bound, Cause, Passage, Port, To};
use trunkline_media::{Hub, HubOptions};
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
    Packet::new(id, length, To::All)
}

fn at(ns: u64) -> Instant {
    Instant::from_ns(ns)
}

/// When frames were heard first, and which.
fn heard(said: &[Said]) -> Vec<(u64, u32)> {
    let mut heard: Vec<(u64, u32)> = Vec::new();
    for (at, passage) in said {
        if let Passage::Transmit { frame, .. } = passage
            && heard.last().is_none_or(|(_, id)| *id != frame.id)
        {
            heard.push((at.as_ns(), frame.id));
        }
    }
    heard
}

#[test]
fn everybody_hears_a_lone_frame_a_delay_later() {
    let mut world = World::new(hub(4, Bound::NONE, Seed(1)));
    world.send(at(1_000), 2, packet(1, 1000));
    world.finish();
    // Preamble 8, header and check sequence 18.
    let arrival = at(1_000 + 1026 * 8 * BIT + DELAY);
    let expected: Vec<Said> = [0, 1, 3]
        .map(|port| (arrival, Passage::Transmit { port: Port(port), frame: packet(1, 1000) }))
        .into();
    assert_eq!(world.said, expected);
    assert_eq!(world.counters(2).busy, Span::from_ns(1026 * 8 * BIT));
}

#[test]
fn short_frames_are_padded_and_a_gap_follows_each() {
    let mut world = World::new(hub(2, Bound::NONE, Seed(1)));
    (0..3).for_each(|id| world.send(at(0), 0, packet(id, 1)));
    world.finish();
    let frame = (64 + 512) * BIT;
    let ends = |n: u64| n * (frame + 96 * BIT) - 96 * BIT + DELAY;
    assert_eq!(heard(&world.said), [(ends(1), 0), (ends(2), 1), (ends(3), 2)]);
}

#[test]
fn a_busy_medium_is_waited_for() {
    let mut world = World::new(hub(2, Bound::NONE, Seed(1)));
    world.send(at(0), 0, packet(0, 1000));
    // It senses the carrier a delay after the start, so a picosecond later it defers.
    world.send(at(DELAY) + Span::from_ps(1), 1, packet(1, 1000));
    world.finish();
    let frame = 1026 * 8 * BIT;
    let second = frame + DELAY + 96 * BIT + frame + DELAY;
    assert_eq!(heard(&world.said), [(frame + DELAY, 0), (second, 1)]);
    assert_eq!(world.counters(0).collisions + world.counters(1).collisions, 0);
}

#[test]
fn who_cannot_sense_collides_and_backs_off_by_slots() {
    for seed in (0..50).map(Seed) {
        let mut world = World::new(hub(2, Bound::NONE, seed));
        world.send(at(0), 0, packet(0, 1000));
        world.send(at(2_000), 1, packet(1, 1000));
        world.finish();
        let (a, b) = (world.counters(0), world.counters(1));
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
        assert_eq!(heard(&world.said)[0], (end, first as u32), "seed {seed}");
    }
}

#[test]
fn a_frame_is_given_up_after_sixteen_collisions() {
    let mut given_up = 0;
    for seed in (0..60).map(Seed) {
        // One frame against forty: either it gets through, or it collides with one after the other.
        let options = HubOptions { longest: 70_000, ..HubOptions::default() };
        let mut world = World::new(with(options, 2, Bound::NONE, seed));
        world.send(at(0), 1, packet(0, 46));
        (1..41).for_each(|id| world.send(at(0), 0, packet(id, 66_000)));
        world.finish();
        let lost = &common::fates(&world.said)[&0].lost;
        let c = world.counters(1);
        if lost.is_empty() {
            assert!(c.frames == 1 && c.lost == 0 && c.collisions < 16, "seed {seed}: {c:?}");
        } else {
            assert_eq!(lost, &[(1, Cause::Collisions)], "seed {seed}");
            assert!(c.frames == 0 && c.lost == 1 && c.collisions == 16, "seed {seed}: {c:?}");
            given_up += 1;
        }
    }
    assert!((1..59).contains(&given_up), "{given_up} of 60 gave up");
}

#[test]
fn what_is_too_long_is_lost() {
    let mut world = World::new(hub(2, Bound::NONE, Seed(1)));
    world.send(at(0), 0, packet(0, 1500));
    world.send(at(0), 0, packet(1, 1501));
    world.finish();
    assert_eq!(common::fates(&world.said)[&1].lost, [(0, Cause::TooLong)]);
    assert_eq!(world.counters(0).frames, 1);
}

#[test]
fn nothing_vanishes() {
    for seed in (0..150).map(Seed) {
        let mut draw = seed.stream("scene");
        let stations = 2 + draw.below(12) as u16;
        let options = HubOptions {
            rate: Rate::from_bps([3_000_000, 10_000_000][draw.below(2) as usize]),
            delay: Span::from_ns(draw.below(25_601)),
            longest: 1400,
        };
        let bound = draw_bound(&mut draw);
        let gap = Span::from_us(100 + draw.below(2_000));
        let load = load(&mut draw, 200, stations, gap, |_| To::All);
        let make = || with(options.clone(), usize::from(stations), bound, seed);
        let world = run_twice(seed, make, &load);
        check_conservation(&world, &load, stations, |from, _| (0..stations).filter(|p| *p != from).collect());
        // The medium carries one frame at a time.
        let mut busy = heard(&world.said);
        busy.dedup_by_key(|(at, _)| *at);
        assert_eq!(busy.len(), heard(&world.said).len(), "seed {seed}");
    }
}

#[test]
fn who_asks_loses_nothing() {
    let world = send_politely(hub(3, Bound::frames(2), Seed(5)), 3, 200, |_| To::All);
    let full: u64 = (0..3).map(|port| world.counters(port).full).sum();
    let given_up = (0..3).map(|port| world.counters(port).lost).sum::<u64>();
    let frames: u64 = (0..3).map(|port| world.counters(port).frames).sum();
    assert_eq!((full, frames + given_up), (0, 600));
}

/// Saturated stations with frames of `length`: who got through, in order, and when the last was heard.
fn saturate(options: HubOptions, stations: u16, length: u32, frames: usize, seed: Seed) -> (Vec<u16>, f64) {
    let mut world = World::new(with(options, usize::from(stations), Bound::NONE, seed));
    let mut id = 0;
    let mut feed = |world: &mut World<Hub<Packet>>, port: u16| {
        id += 1;
        let frame = Packet { channel: port, ..packet(id, length) };
        world.send(world.now, port, frame);
    };
    (0..stations).for_each(|port| (0..2).for_each(|_| feed(&mut world, port)));
    let mut winners = Vec::new();
    while winners.len() < frames {
        let next = world.deadline.expect("saturated stations are never quiet");
        world.until(next);
        let mut last = None;
        for (_, passage) in world.take() {
            match passage {
                Passage::Transmit { frame, .. } if last != Some(frame.id) => {
                    last = Some(frame.id);
                    winners.push(frame.channel);
                    feed(&mut world, frame.channel);
                }
                Passage::Lost { port, .. } => feed(&mut world, port.0),
                _ => {}
            }
        }
    }
    (winners, world.now.as_s())
}

/// The chance that the winner of the last frame also wins the next, if the loser had `loser` collisions by
/// then, and how many collisions the loser has afterwards in either case: exact, by enumerating backoffs of
/// clause 4.2.3.2.5.
///
/// Both start when the medium is clear, so both collide; each then draws; the smaller draw wins, equal ones
/// collide again.
fn duel(winner: u32, loser: u32, weight: f64, wins: &mut [f64; 17], losses: &mut [f64; 17]) {
    if weight < 1e-15 {
        return;
    }
    let (winner, loser) = (winner + 1, loser + 1);
    // After the sixteenth collision the frame is gone and the next one starts afresh, as soon as it may.
    let slots = |n: u32| if n == 16 { 1.0 } else { f64::from(1u32 << n.min(10)) };
    let (w, l) = (slots(winner), slots(loser));
    let (short, long) = if w < l { (w, l) } else { (l, w) };
    let equal = 1.0 / long;
    // P(short < long): the mean of (long - 1 - s) / long over s.
    let shorter_wins = (long - 1.0 - (short - 1.0) / 2.0) / long;
    let winner_wins = if w < l { shorter_wins } else { 1.0 - equal - shorter_wins };
    let left = |n: u32| if n == 16 { 0 } else { n };
    wins[left(loser) as usize] += weight * winner_wins;
    losses[left(winner) as usize] += weight * (1.0 - equal - winner_wins);
    duel(left(winner), left(loser), weight * equal, wins, losses);
}

/// Mean length of the runs of frames that one of two stations sends without the other getting through.
fn mean_run() -> f64 {
    // The state is the loser's collisions. Iterate to the stationary distribution.
    let mut state = [0.0; 17];
    state[0] = 1.0;
    let mut changes = 0.0;
    for _ in 0..2_000 {
        let mut next = [0.0; 17];
        changes = 0.0;
        for (loser, share) in state.iter().enumerate().take(16) {
            let (mut wins, mut losses) = ([0.0; 17], [0.0; 17]);
            duel(0, loser as u32, 1.0, &mut wins, &mut losses);
            changes += share * losses.iter().sum::<f64>();
            for n in 0..17 {
                next[n] += share * (wins[n] + losses[n]);
            }
        }
        state = next;
    }
    1.0 / changes
}

#[test]
fn two_stations_capture_the_medium_as_long_as_their_backoffs_say() {
    // Frames longer than the longest backoff, 1023 slots, so that every contention begins afresh.
    let options = HubOptions { longest: 70_000, ..HubOptions::default() };
    let (winners, _) = saturate(options, 2, 66_000, 60_000, Seed(2));
    let runs = winners.chunk_by(|a, b| a == b).count();
    let (mean, theory) = (winners.len() as f64 / runs as f64, mean_run());
    assert!(theory > 3.0, "a fair medium has runs of 2, this one of {theory}");
    assert!((mean / theory - 1.0).abs() < 0.1, "runs of {mean}, in theory {theory}");
    let first = winners.iter().filter(|winner| **winner == 0).count() as f64 / winners.len() as f64;
    assert!((first - 0.5).abs() < 0.05, "in the long run each gets half, not {first}");
}

/// Metcalfe and Boggs, Ethernet: Distributed Packet Switching for Local Computer Networks (CACM 19(7), 1976),
/// section 6: the share of time in which `stations` that always have something to send send packets that take
/// `packet`, with a slot of `slot`, if in each slot each tries with probability 1 / stations.
fn metcalfe_boggs(stations: f64, packet: f64, slot: f64) -> f64 {
    let a = libm::pow(1.0 - 1.0 / stations, stations - 1.0);
    packet / (packet + (1.0 - a) / a * slot)
}

#[test]
fn the_formula_gives_the_published_table() {
    // Table I of the paper: 3 Mb/s, slots of 16 µs, packets of 4096, 1024, 512 and 48 bits.
    for (stations, efficiencies) in [
        (2.0, [0.9884, 0.9552, 0.9143, 0.5000]),
        (5.0, [0.9834, 0.9367, 0.8810, 0.4096]),
        (32.0, [0.9807, 0.9272, 0.8642, 0.3737]),
        (256.0, [0.9803, 0.9257, 0.8616, 0.3686]),
    ] {
        for (bits, expected) in [4096.0, 1024.0, 512.0, 48.0].into_iter().zip(efficiencies) {
            let found = metcalfe_boggs(stations, bits / 3e6, 16e-6);
            assert!((found - expected).abs() < 6e-5, "{stations} stations, {bits} bits: {found}");
        }
    }
}

/// The share of time in which saturated stations send, gaps included.
fn efficiency(options: HubOptions, stations: u16, length: u32, frames: usize) -> f64 {
    let (winners, seconds) = saturate(options, stations, length, frames, Seed(9));
    winners.len() as f64 * packet_seconds(length) / seconds
}

/// A frame and its gap at 10 Mb/s.
fn packet_seconds(length: u32) -> f64 {
    f64::from(length + 38) * 8.0 / 10e6
}

#[test]
fn throughput_of_long_packets_is_that_of_the_formula() {
    // The formula wants all slots to be 512 bit times: stations as far apart as a slot allows. Its stations
    // try with the best probability and forget nothing; backoff lets few stations do better (capture) and
    // many worse.
    let options = HubOptions { delay: Span::from_ns(25_600), ..HubOptions::default() };
    for stations in [2, 5, 10, 24] {
        for length in [1006, 1500] {
            let found = efficiency(options.clone(), stations, length, 3_000);
            let theory = metcalfe_boggs(f64::from(stations), packet_seconds(length), 51.2e-6);
            let off = found / theory - 1.0;
            assert!(off.abs() < 0.07, "{stations} stations, {length} bytes: {found}, in theory {theory}");
        }
    }
}

#[test]
fn throughput_falls_with_stations_and_rises_with_length() {
    let share = |stations, length| efficiency(HubOptions::default(), stations, length, 3_000);
    for length in [46, 494, 1500] {
        assert!(share(5, length) > share(24, length) && share(24, length) > share(64, length));
    }
    for stations in [24, 64] {
        assert!(share(stations, 46) < share(stations, 494) && share(stations, 494) < share(stations, 1500));
    }
    // Near stations hear each other sooner, so contention costs less than the formula's slots.
    let theory = metcalfe_boggs(24.0, packet_seconds(1500), 51.2e-6);
    assert!(share(24, 1500) > theory, "{theory}");
}
