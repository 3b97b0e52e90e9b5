//! The guarantees of a switch.

use super::common;

use common::{Packet, Testbed, check_conservation, load, run_twice};
use trunkline_endpoint::{Destination, LossCause, MediumOutput, Port};
use trunkline_models::media::{Switch, SwitchOptions};
use trunkline_units::{Instant, Seed, Span, Stream};

/// Stations 0 to 3 at their ports, 10 and 11 behind port 3; group 1 at ports 0, 2 and 3, group 2 at port 1.
fn switch(options: SwitchOptions) -> Switch<Packet> {
    let mut switch = Switch::new(4, options);
    for (station, port) in [(0, 0), (1, 1), (2, 2), (3, 3), (10, 3), (11, 3)] {
        switch.add_station(station, Port(port));
    }
    switch.set_group(1, &[Port(0), Port(2), Port(3)]);
    switch.set_group(2, &[Port(1)]);
    switch
}

/// Returns the ports that lead to a destination; `None` if there is no route.
fn routes(to: Destination) -> Option<Vec<u16>> {
    match to {
        Destination::Station(station @ 0..=3) => Some(vec![station as u16]),
        Destination::Station(10 | 11) => Some(vec![3]),
        Destination::Group(1) => Some(vec![0, 2, 3]),
        Destination::Group(2) => Some(vec![1]),
        Destination::All => Some(vec![0, 1, 2, 3]),
        Destination::Station(_) | Destination::Group(_) => None,
    }
}

fn draw_to(stream: &mut Stream) -> Destination {
    match stream.below(3) {
        0 => Destination::Station(stream.below(13) as u32),
        1 => Destination::Group(stream.below(4) as u32),
        _ => Destination::All,
    }
}

#[test]
fn frames_follow_the_table() {
    for seed in (0..100).map(Seed) {
        let mut draw = seed.stream("scene");
        let latency = Span::from_us(draw.below(2) * draw.below(400));
        let options = SwitchOptions { latency, max_inside: 1 + draw.below(20), drops_damaged: false };
        let load = load(&mut draw, 200, 4, Span::from_us(50), draw_to);
        let testbed = run_twice(seed, || switch(options.clone()), &load);
        check_conservation(&testbed, &load, 4, |from, packet| {
            let mut ports = routes(packet.to).expect("a frame without a route is lost");
            ports.retain(|port| *port != from);
            ports
        });
        let outcomes = common::outcomes(&testbed.outputs);
        let lost = |id| outcomes.get(&id).map(|outcome| outcome.lost.clone()).unwrap_or_default();
        let (mut filtered, mut no_route) = (0, 0);
        for (_, from, packet) in &load {
            match (routes(packet.to), &lost(packet.id)[..]) {
                (None, [(_, LossCause::NoRoute)]) => no_route += 1,
                (None, [(_, LossCause::QueueFull)]) => {}
                (Some(ports), []) => filtered += u64::from(ports == [*from]),
                (Some(_), [(_, LossCause::QueueFull)]) => {}
                other => panic!("seed {seed}: {packet:?} met {other:?}"),
            }
        }
        let medium = &testbed.medium;
        assert_eq!((medium.filtered(), medium.no_route()), (filtered, no_route), "seed {seed}");
    }
}

#[test]
fn latency_delays_and_zero_means_the_same_instant() {
    for latency in [Span::ZERO, Span::from_us(4)] {
        let mut testbed = Testbed::new(switch(SwitchOptions { latency, ..SwitchOptions::default() }));
        let at = Instant::from_ns(700);
        testbed.send(at, 0, Packet::new(1, 100, Destination::Station(2)));
        testbed.until(at);
        assert_eq!(testbed.outputs.is_empty(), !latency.is_zero());
        testbed.finish();
        let frame = Packet::new(1, 100, Destination::Station(2));
        assert_eq!(testbed.outputs, [(at + latency, MediumOutput::Transmit { port: Port(2), frame })]);
    }
}

#[test]
fn damaged_frames_pass_unless_they_are_checked() {
    for checks in [false, true] {
        let mut testbed =
            Testbed::new(switch(SwitchOptions { drops_damaged: checks, ..SwitchOptions::default() }));
        testbed.send(Instant::ZERO, 0, Packet { damaged: true, ..Packet::new(1, 100, Destination::All) });
        let outcome = &common::outcomes(&testbed.outputs)[&1];
        let lost: &[_] = if checks { &[(0, LossCause::Damaged)] } else { &[] };
        assert_eq!(outcome.lost, lost);
        assert_eq!(outcome.received.len(), if checks { 0 } else { 3 });
    }
}

#[test]
fn inside_limit_drops_and_notifies() {
    let options = SwitchOptions { latency: Span::from_us(10), max_inside: 2, drops_damaged: false };
    let mut testbed = Testbed::new(switch(options));
    for id in 0..3 {
        testbed.send(Instant::ZERO, 0, Packet::new(id, 100, Destination::Station(1)));
    }
    assert_eq!(common::outcomes(&testbed.outputs)[&2].lost, [(0, LossCause::QueueFull)]);
    assert!(!testbed.has_room(1, 100));
    testbed.request_room(1);
    testbed.take();
    testbed.finish();
    let notified =
        testbed.outputs.iter().filter(|(_, output)| *output == MediumOutput::Room { port: Port(1) });
    assert_eq!(notified.map(|(at, _)| *at).collect::<Vec<_>>(), [Instant::from_ns(10_000)]);
}
