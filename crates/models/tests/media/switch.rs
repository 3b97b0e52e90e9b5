//! What a switch promises.

use super::common;

use common::{Packet, Testbed, check_conservation, load, run_twice};
use trunkline_endpoint::{Cause, Passage, Port, To};
use trunkline_models::media::{Switch, SwitchOptions};
use trunkline_units::{Instant, Seed, Span, Stream};

/// Stations 0 to 3 at their ports, 10 and 11 behind port 3; group 1 at ports 0, 2 and 3, group 2 at port 1.
fn switch(options: SwitchOptions) -> Switch<Packet> {
    let mut switch = Switch::new(4, options);
    for (station, port) in [(0, 0), (1, 1), (2, 2), (3, 3), (10, 3), (11, 3)] {
        switch.station(station, Port(port));
    }
    switch.group(1, &[Port(0), Port(2), Port(3)]);
    switch.group(2, &[Port(1)]);
    switch
}

/// The ports to which a frame leads, or none if no way does.
fn ways(to: To) -> Option<Vec<u16>> {
    match to {
        To::Station(station @ 0..=3) => Some(vec![station as u16]),
        To::Station(10 | 11) => Some(vec![3]),
        To::Group(1) => Some(vec![0, 2, 3]),
        To::Group(2) => Some(vec![1]),
        To::All => Some(vec![0, 1, 2, 3]),
        To::Station(_) | To::Group(_) => None,
    }
}

fn draw_to(stream: &mut Stream) -> To {
    match stream.below(3) {
        0 => To::Station(stream.below(13) as u32),
        1 => To::Group(stream.below(4) as u32),
        _ => To::All,
    }
}

#[test]
fn frames_follow_the_table() {
    for seed in (0..100).map(Seed) {
        let mut draw = seed.stream("scene");
        let latency = Span::from_us(draw.below(2) * draw.below(400));
        let options = SwitchOptions { latency, inside: 1 + draw.below(20), checks: false };
        let load = load(&mut draw, 200, 4, Span::from_us(50), draw_to);
        let world = run_twice(seed, || switch(options.clone()), &load);
        check_conservation(&world, &load, 4, |from, packet| {
            let mut ports = ways(packet.to).expect("what has no way is lost");
            ports.retain(|port| *port != from);
            ports
        });
        let fates = common::fates(&world.said);
        let lost = |id| fates.get(&id).map(|fate| fate.lost.clone()).unwrap_or_default();
        let mut filtered = 0;
        for (_, from, packet) in &load {
            match (ways(packet.to), &lost(packet.id)[..]) {
                (None, [(_, cause)]) => assert!(matches!(cause, Cause::NoRoute | Cause::Full), "seed {seed}"),
                (Some(ports), []) => filtered += u64::from(ports == [*from]),
                (Some(_), [(_, Cause::Full)]) => {}
                other => panic!("seed {seed}: {packet:?} met {other:?}"),
            }
        }
        assert_eq!(world.medium.filtered(), filtered, "seed {seed}");
    }
}

#[test]
fn latency_delays_and_zero_means_the_same_instant() {
    for latency in [Span::ZERO, Span::from_us(4)] {
        let mut world = Testbed::new(switch(SwitchOptions { latency, ..SwitchOptions::default() }));
        let at = Instant::from_ns(700);
        world.send(at, 0, Packet::new(1, 100, To::Station(2)));
        world.until(at);
        assert_eq!(world.said.is_empty(), !latency.is_zero());
        world.finish();
        let frame = Packet::new(1, 100, To::Station(2));
        assert_eq!(world.said, [(at + latency, Passage::Transmit { port: Port(2), frame })]);
    }
}

#[test]
fn damaged_frames_pass_unless_they_are_checked() {
    for checks in [false, true] {
        let mut world = Testbed::new(switch(SwitchOptions { checks, ..SwitchOptions::default() }));
        world.send(Instant::ZERO, 0, Packet { damaged: true, ..Packet::new(1, 100, To::All) });
        let fate = &common::fates(&world.said)[&1];
        let lost: &[_] = if checks { &[(0, Cause::Damaged)] } else { &[] };
        assert_eq!(fate.lost, lost);
        assert_eq!(fate.received.len(), if checks { 0 } else { 3 });
    }
}

#[test]
fn inside_limit_drops_and_notifies() {
    let options = SwitchOptions { latency: Span::from_us(10), inside: 2, checks: false };
    let mut world = Testbed::new(switch(options));
    for id in 0..3 {
        world.send(Instant::ZERO, 0, Packet::new(id, 100, To::Station(1)));
    }
    assert_eq!(common::fates(&world.said)[&2].lost, [(0, Cause::Full)]);
    assert!(!world.room(1, 100));
    world.ask(1);
    world.take();
    world.finish();
    let told = world.said.iter().filter(|(_, passage)| *passage == Passage::Room { port: Port(1) });
    assert_eq!(told.map(|(at, _)| *at).collect::<Vec<_>>(), [Instant::from_ns(10_000)]);
}
