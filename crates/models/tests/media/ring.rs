//! What a token ring promises: times to the picosecond, the cycle bound, utilisation, priorities, recovery.

use super::common;

use common::{Log, Packet, Testbed, check_conservation, draw_bound, load, run, run_twice, send_when_room};
use proptest::prelude::*;
use trunkline_endpoint::{Bound, Destination, LossCause, Medium, MediumOutput, Port};
use trunkline_models::media::{Framing, Ring, RingOptions};
use trunkline_units::{Instant, Rate, Seed, Span, Stream};

/// Station n is at port n.
fn ring(options: RingOptions, stations: u16, bound: Bound, seed: Seed) -> Ring<Packet> {
    let mut ring = Ring::new(options, &vec![bound; usize::from(stations)], seed.stream("token"));
    (0..stations).for_each(|station| ring.add_station(u32::from(station), Port(station)));
    ring
}

/// A bit takes 1 µs, a hop 3 µs, a token 24 µs, and a frame of n bytes 8 n µs.
fn slow() -> RingOptions {
    RingOptions {
        rate: Rate::from_bps(1_000_000),
        framing: Framing::NONE,
        max_length: 100,
        token_bits: 24,
        latency_bits: 1,
        propagation: Span::from_us(2),
        ..RingOptions::default()
    }
}

fn us(us: u64) -> Instant {
    Instant::from_ns(us * 1_000)
}

fn packet(id: u32, length: u32, to: Destination) -> Packet {
    Packet::new(id, length, to)
}

fn received(outputs: &[Log]) -> Vec<(Instant, u16, u32)> {
    let received = |(at, output): &Log| match output {
        MediumOutput::Transmit { port, frame } => Some((*at, port.0, frame.id)),
        _ => None,
    };
    outputs.iter().filter_map(received).collect()
}

#[test]
fn a_frame_waits_for_the_token_and_the_token_follows_it() {
    let mut testbed = Testbed::new(ring(slow(), 10, Bound::NONE, Seed(1)));
    assert_eq!(testbed.deadline, None, "an idle ring has no event");
    // The token was at station 0 at 0 and goes round in 30 µs: it is at station 4 at 12, 42, 72.
    testbed.send(us(43), 4, packet(0, 10, Destination::Station(6)));
    testbed.send(us(43), 7, packet(1, 5, Destination::Station(1)));
    testbed.finish();
    // Station 7 has it first, at 51: 40 µs and four hops. It is at 8 at 51 + 40 + 24 + 3, and 6 hops later at
    // 4.
    let four = 51 + 40 + 24 + 3 + 6 * 3;
    assert_eq!(received(&testbed.outputs), [(us(51 + 40 + 4 * 3), 1, 1), (us(four + 80 + 2 * 3), 6, 0)]);
    testbed.send(testbed.now, 4, packet(2, 10, Destination::Station(5)));
    testbed.finish();
    // The token left station 4 at 136 + 80 + 24 and comes back a turn later.
    assert_eq!(received(&testbed.outputs)[2], (us(four + 104 + 30 + 80 + 3), 5, 2));
}

#[test]
fn group_frames_reach_all_others_and_own_frames_return() {
    for (to, ports) in [
        (Destination::All, vec![3, 0, 1]),
        (Destination::Group(7), vec![3, 0, 1]),
        (Destination::Station(2), vec![2]),
    ] {
        let mut testbed = Testbed::new(ring(slow(), 4, Bound::NONE, Seed(1)));
        testbed.send(us(0), 2, packet(0, 10, to));
        testbed.finish();
        let hops = |port: u16| u64::from(if port == 2 { 4 } else { (port + 2) % 4 });
        let expected: Vec<_> = ports.into_iter().map(|port| (us(6 + 80 + hops(port) * 3), port, 0)).collect();
        assert_eq!(received(&testbed.outputs), expected, "{to:?}");
    }
}

#[test]
fn unknown_destination_and_oversized_frames_are_lost() {
    let mut testbed = Testbed::new(ring(slow(), 4, Bound::NONE, Seed(1)));
    testbed.send(us(0), 1, packet(0, 10, Destination::Station(9)));
    testbed.send(us(0), 1, packet(1, 101, Destination::Station(2)));
    testbed.finish();
    let lost = |id, cause| MediumOutput::Lost {
        port: Port(1),
        frame: packet(id, if id == 0 { 10 } else { 101 }, Destination::Station(if id == 0 { 9 } else { 2 })),
        cause,
    };
    assert_eq!(
        testbed.outputs,
        [(us(0), lost(1, LossCause::TooLong)), (us(3 + 80 + 12), lost(0, LossCause::NoRoute))]
    );
}

#[test]
fn the_most_urgent_goes_first_and_equals_in_order() {
    let mut testbed = Testbed::new(ring(slow(), 3, Bound::NONE, Seed(1)));
    let priorities = [0, 3, 7, 3, 0, 7];
    for (id, priority) in (0..).zip(priorities) {
        testbed.send(us(1), 2, Packet { priority, ..packet(id, 10, Destination::Station(0)) });
    }
    testbed.finish();
    let order: Vec<u32> = received(&testbed.outputs).iter().map(|(_, _, id)| *id).collect();
    assert_eq!(order, [2, 5, 1, 3, 0, 4]);
}

fn draw_options(draw: &mut Stream) -> RingOptions {
    RingOptions {
        rate: Rate::from_bps(
            [4_000_000, 10_000_000, 16_000_000, 100_000_000, 9_999_991][draw.below(5) as usize],
        ),
        max_length: 1400,
        latency_bits: 1 + draw.below(60) as u32,
        propagation: Span::from_ns(draw.below(3_000)),
        token_loss: [0.0, 0.0, 1e-3, 0.05][draw.below(4) as usize],
        recovery: Span::from_us(draw.below(3_000)),
        ..RingOptions::default()
    }
}

fn draw_to(draw: &mut Stream) -> Destination {
    match draw.below(8) {
        0 => Destination::All,
        1 => Destination::Group(1),
        _ => Destination::Station(draw.below(22) as u32),
    }
}

#[test]
fn nothing_vanishes() {
    for seed in (0..150).map(Seed) {
        let mut draw = seed.stream("scene");
        let stations = 1 + draw.below(20) as u16;
        let (options, bound) = (draw_options(&mut draw), draw_bound(&mut draw));
        let gap = Span::from_us(50 + draw.below(1_500));
        let load = load(&mut draw, 200, stations, gap, draw_to);
        let make = || ring(options.clone(), stations, bound, seed);
        let testbed = run_twice(seed, make, &load);
        check_conservation(&testbed, &load, stations, |from, packet| match packet.to {
            Destination::Station(station) => vec![station as u16],
            Destination::Group(_) | Destination::All => (0..stations).filter(|port| *port != from).collect(),
        });
    }
}

/// A ring whose token moves hop by hop, an event each, until nothing waits. No priorities, no loss.
fn walk(options: &RingOptions, stations: u16, load: &common::Load) -> Vec<(Instant, u16, u32)> {
    let time =
        |bits: u64| (u128::from(bits) * 1_000_000_000_000).div_ceil(options.rate.as_bps().into()) as u64;
    let hop = time(options.latency_bits.into()) + options.propagation.as_ps();
    let (mut now, mut at, mut waiting, mut received) = (0, 0, load.clone(), Vec::new());
    while !waiting.is_empty() {
        let first = waiting.iter().position(|(since, port, _)| *port == at && since.as_ps() <= now);
        if let Some(place) = first {
            let (_, _, packet) = waiting.remove(place);
            let takes = time(u64::from(packet.length + options.framing.overhead) * 8);
            let Destination::Station(to) = packet.to else { continue };
            let turn = u64::from((to as u16 + stations - at - 1) % stations) + 1;
            received.push((Instant::from_ps(now + takes + turn * hop), to as u16, packet.id));
            now += takes + time(options.token_bits.into());
        }
        now += hop;
        at = (at + 1) % stations;
    }
    received.sort();
    received
}

proptest! {
    #[test]
    fn the_token_that_is_computed_is_where_the_one_that_walks_is(seed in any::<u64>()) {
        let mut draw = Seed(seed).stream("scene");
        let stations = 1 + draw.below(20) as u16;
        let options = RingOptions { token_loss: 0.0, max_length: 1500, ..draw_options(&mut draw) };
        let gap = Span::from_us(1 + draw.below(2_000));
        let to = |draw: &mut Stream| Destination::Station(draw.below(u64::from(stations)) as u32);
        let mut load = load(&mut draw, 100, stations, gap, to);
        load.iter_mut().for_each(|(_, _, packet)| packet.priority = 0);
        let testbed = run(Testbed::new(ring(options.clone(), stations, Bound::NONE, Seed(seed))), &load);
        let mut found = received(&testbed.outputs);
        found.sort();
        prop_assert_eq!(found, walk(&options, stations, &load));
    }
}

/// Keeps every station supplied with frames of `length` until each has sent `each`. Says how long each frame
/// that was first in its queue waited for the token at the most, and when all was over.
fn saturate(options: RingOptions, stations: u16, length: u32, each: u64) -> (Span, Instant) {
    let takes = options.rate.time_for(trunkline_units::Size::from_bytes(options.framing.wire(length)));
    let mut testbed = Testbed::new(ring(options, stations, Bound::NONE, Seed(1)));
    for id in 0..each {
        for port in 0..stations {
            let to = Destination::Station(u32::from((port + 1) % stations));
            testbed.send(Instant::ZERO, port, packet(u32::from(port) * each as u32 + id as u32, length, to));
        }
    }
    testbed.finish();
    // Each frame is received by the next station, a hop after its last bit: so the gaps between them are waits.
    let mut last = vec![Instant::ZERO; usize::from(stations)];
    let mut longest = Span::ZERO;
    for (at, port, _) in received(&testbed.outputs) {
        let last = &mut last[usize::from(port)];
        longest = longest.max(at.since(*last) - takes);
        *last = at;
    }
    (longest, testbed.now)
}

#[test]
fn waiting_time_is_within_the_cycle_bound() {
    for (options, stations) in [(RingOptions::default(), 255), (RingOptions::fddi(), 100), (slow(), 7)] {
        let bound = ring(options.clone(), stations, Bound::NONE, Seed(1)).cycle_bound();
        let longest = options.max_length;
        let (waited, _) = saturate(options, stations, longest, 3);
        assert!(waited <= bound, "{waited} of {bound}");
        assert!(waited.as_s() > bound.as_s() * 0.8, "the bound is no idle promise: {waited} of {bound}");
    }
    // 255 stations with 2046 bytes and 21 of framing at 10 Mb/s, a token of 2.4 µs and a hop of 0.6 µs.
    let bound = ring(RingOptions::default(), 255, Bound::NONE, Seed(1)).cycle_bound();
    assert_eq!(bound, Span::from_ns(255 * (2067 * 800 + 2_400 + 600)));
}

#[test]
fn random_load_waits_no_longer_either() {
    for seed in (0..50).map(Seed) {
        let mut draw = seed.stream("scene");
        let stations = 2 + draw.below(30) as u16;
        let options = RingOptions { token_loss: 0.0, max_length: 1500, ..draw_options(&mut draw) };
        let gap = Span::from_us(20 + draw.below(500));
        // Each station has one frame at a time at the most, so each frame's wait is one for the token.
        let mut load = load(&mut draw, 300, stations, gap, |draw| {
            Destination::Station(draw.below(u64::from(stations)) as u32)
        });
        let make = ring(options.clone(), stations, Bound::frames(1), seed);
        let (bound, turn) =
            (make.cycle_bound(), (options.propagation + Span::from_us(15)) * u64::from(stations));
        load.iter_mut().for_each(|(_, _, packet)| packet.priority = 0);
        let testbed = run(Testbed::new(make), &load);
        for (at, _, id) in received(&testbed.outputs) {
            let waited = at.since(load[id as usize].0);
            let frame = options.rate.time_for(trunkline_units::Size::from_bytes(1521));
            assert!(waited <= bound + frame + turn, "seed {seed}: {waited} of {bound}");
        }
    }
}

#[test]
fn utilisation_is_frames_over_frames_and_tokens() {
    // Saturated, a station's share of the ring is its frame, over frame, token and hop.
    for (stations, length) in [(10, 100), (50, 1000), (255, 2046)] {
        let (_, end) = saturate(RingOptions::default(), stations, length, 4);
        let frame = f64::from(length + 21) * 0.8;
        let theory = frame / (frame + 2.4 + 0.6);
        let found = frame * 1e-6 * f64::from(stations) * 4.0 / end.as_s();
        assert!(
            (found / theory - 1.0).abs() < 0.01,
            "{stations} stations, {length} bytes: {found}, not {theory}"
        );
    }
}

#[test]
fn a_lost_token_is_recovered_by_the_timer() {
    let options = RingOptions { token_loss: 1e-3, ..slow() };
    let mut testbed = Testbed::new(ring(options, 10, Bound::NONE, Seed(8)));
    // An hour without work: a token goes round for 1000 passes of 3 µs, then 10 ms are lost.
    testbed.send(us(3_600_000_000), 3, packet(0, 10, Destination::Station(4)));
    testbed.finish();
    let (lost, expected) = (testbed.medium.tokens_lost() as f64, 3_600.0 / (0.003 + 0.01));
    // A geometric number of passes varies by as much as its mean, 3 ms of 13: four standard deviations.
    let deviation = 3.0 / 13.0 * libm::sqrt(expected);
    assert!((lost - expected).abs() < 4.0 * deviation, "{lost} tokens lost, {expected} expected");
    assert_eq!(received(&testbed.outputs).len(), 1);
}

#[test]
fn a_pass_behind_a_frame_may_lose_the_token_too() {
    // Stations that always have a frame: every pass follows one.
    let options = RingOptions { token_loss: 0.1, ..slow() };
    let mut testbed = Testbed::new(ring(options, 1, Bound::NONE, Seed(6)));
    (0..3_000).for_each(|id| testbed.send(us(0), 0, packet(id, 10, Destination::Station(0))));
    testbed.finish();
    let lost = testbed.medium.tokens_lost();
    // Five standard deviations of a binomial count.
    assert!(lost.abs_diff(300) < 83, "{lost} of 3000 tokens lost");
    assert_eq!(received(&testbed.outputs).len(), 3_000);
}

#[test]
fn a_ring_that_loses_every_token_delivers_what_station_0_has() {
    let mut testbed = Testbed::new(ring(RingOptions { token_loss: 1.0, ..slow() }, 4, Bound::NONE, Seed(1)));
    testbed.send(us(0), 0, packet(0, 10, Destination::Station(2)));
    testbed.send(us(0), 1, packet(1, 10, Destination::Station(2)));
    testbed.until(us(1_000_000));
    assert_eq!(received(&testbed.outputs), [(us(80 + 6), 2, 0)]);
    // Each time it is gone a pass after it was issued, and 10 ms later there is another.
    assert_eq!(testbed.medium.tokens_lost(), 1 + (1_000_000 - 107) / 10_003);
}

#[test]
fn waiting_sender_loses_nothing() {
    let mut testbed = Testbed::new(ring(slow(), 4, Bound::frames(2), Seed(1)));
    (0..3).for_each(|id| testbed.send(us(1), 1, packet(id, 10, Destination::Station(2))));
    assert_eq!(common::outcomes(&testbed.outputs)[&2].lost, [(1, LossCause::QueueFull)]);
    // The token is there at 3; the last bit has left a bit and 80 µs later.
    testbed.until(us(83));
    assert!(!testbed.has_room(1, 10));
    testbed.until(us(84));
    assert!(testbed.medium.has_room(us(84), Port(1), 10));

    let options = RingOptions { max_length: 2046, ..slow() };
    let testbed =
        send_when_room(ring(options, 4, Bound::frames(2), Seed(1)), 4, 100, |_| Destination::Station(0));
    assert_eq!((0..4).map(|port| testbed.counters(port).queue_drops).sum::<u64>(), 0);
    assert_eq!((0..4).map(|port| testbed.counters(port).frames).sum::<u64>(), 400);
}
