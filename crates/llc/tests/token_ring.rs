//! The ring: formed, joined and left, its tokens lost and doubled, its stations killed at any point.

mod support;

use support::bus::Bus;
use support::queue::{Queue, Send};
use support::{brisk, programs, slow};
use trunkline_endpoint::laws::{Checked, check_laws};
use trunkline_endpoint::{Endpoint, Input};
use trunkline_llc::token::frame::CONTROL;
use trunkline_llc::token::{Command, Event, Members, Options, Repair, Ring};
use trunkline_units::{Instant, Seed, Span};

#[test]
fn the_laws_hold() {
    for seed in 0..60 {
        let me = 1 + (seed % 3) as u8;
        let options = if seed % 2 == 0 { brisk(&slow(), 8, 200) } else { Options::default() };
        let make = || Ring::new(Queue::default(), me, options.clone());
        check_laws(Seed(seed), make, |ring: &mut Checked<Ring<Queue>>, now, stream| {
            let command = match stream.below(10) {
                0 => Command::Leave,
                1..=6 => Command::Join,
                _ => Command::Inner(Send::Message {
                    to: 2,
                    priority: stream.below(8) as u8,
                    octets: 40,
                    stamp: (0, now),
                    full: &mut false,
                }),
            };
            let _ = ring.handle(now, Input::Command(command));
        });
    }
}

#[test]
fn rings_of_every_size_form_and_turn() {
    for n in [2, 3, 5, 16, 33, 60] {
        let line = slow();
        let options = brisk(&line, 64, 200);
        let mut bus = Bus::formed(line, &options, 1..=n);
        let before: Vec<u64> = (1..=n).map(|number| bus.statistics(number).tokens).collect();
        bus.run(Span::from_ms(200));
        let turns = (1..=n).zip(before).map(|(number, before)| bus.statistics(number).tokens - before);
        let (least, most) = turns.fold((u64::MAX, 0), |(least, most), n| (least.min(n), most.max(n)));
        assert!(least > 10 && most - least <= 1, "{n} stations: {least} to {most} tokens");
        assert_eq!(bus.events, [], "{n} stations");
    }
}

#[test]
fn a_station_alone_sends_and_lets_others_in() {
    let line = slow();
    let options = brisk(&line, 8, 200);
    let mut bus = Bus::new(line, &options, [3, 5]);
    bus.join(3);
    bus.flow(3, 5, 4, 100, Span::from_ms(1), Span::ZERO);
    bus.run(Span::from_ms(100));
    assert_eq!(bus.rings(), [Members::only(3)]);
    assert!(bus.flows[0].came > 10);
    bus.join(5);
    bus.run(Span::from_ms(100));
    assert_eq!(bus.rings(), [[3, 5].into_iter().collect()]);
}

/// Stations that join at once, within what windows need; leave in any order, and come back.
#[test]
fn stations_join_and_leave_in_any_order() {
    for seed in 0..8 {
        let line = slow();
        let options = brisk(&line, 12, 200);
        let mut stream = Seed(seed).stream("join and leave");
        let mut bus = Bus::formed(line, &options, 1..=12);
        let mut wanted: Members = (1..=12).collect();
        for _ in 0..30 {
            let number = 1 + stream.below(12) as u8;
            if wanted.has(number) {
                bus.leave(number);
                wanted.remove(number);
            } else {
                bus.join(number);
                wanted.insert(number);
            }
            bus.run(Span::from_us(stream.below(3_000)));
        }
        bus.run(options.listen(12) + options.window_interval * 8);
        let expected = if wanted.is_empty() { vec![] } else { vec![wanted] };
        assert_eq!(bus.rings(), expected, "seed {seed}");
        let unkind = |event: &Event<_>| {
            matches!(event, Event::Died { .. } | Event::Doubled | Event::Dropped | Event::Repaired { .. })
        };
        let unkind: Vec<_> = bus.events.iter().filter(|(_, _, event)| unkind(event)).collect();
        assert!(unkind.is_empty(), "seed {seed}: {unkind:?}");
    }
}

/// Any of four stations is killed after any of the inputs of some rotations with windows: before and after each frame, with
/// and without the token. The token is back within what [`Options::repair`] says, and all others are in the ring.
#[test]
fn any_station_dies_at_any_point() {
    let line = slow();
    let options = Options { window_interval: Span::from_ms(3), ..Options::for_line(&line, 6, 200) };
    let mut worst = Span::ZERO;
    for victim in 1..=4 {
        for step in 0..150 {
            let mut bus = Bus::formed(line.clone(), &options, 1..=4);
            for number in 1..=4 {
                bus.flow(
                    number,
                    number % 4 + 1,
                    4,
                    100,
                    Span::from_us(900),
                    Span::from_us(70 * u64::from(number)),
                );
            }
            let end = bus.now + Span::from_ms(100);
            let steps = bus.steps + step;
            while bus.steps < steps {
                assert!(bus.step(end));
            }
            bus.kill(victim);
            bus.flows.retain(|flow| flow.from != victim);
            bus.reset_gap();
            bus.run(Span::from_ms(30));
            let left: Members = (1..=4).filter(|number| *number != victim).collect();
            assert_eq!(bus.rings(), [left], "{victim} killed after {step} inputs");
            assert_eq!(bus.events.iter().filter(|(_, _, e)| matches!(e, Event::Died { .. })).count(), 1);
            worst = worst.max(bus.longest_gap);
        }
    }
    assert!(worst <= options.repair(), "{worst} of {}", options.repair());
    // What is stated is not idle exchange: the patience and the tries are really used up.
    assert!(worst >= options.pass_timeout * u64::from(options.tries), "{worst} of {}", options.repair());
}

/// Two that are neighbours die at once, so that no station is responsible for the token.
#[test]
fn neighbours_die_together() {
    let line = slow();
    let options = brisk(&line, 6, 200);
    for step in 0..40 {
        let mut bus = Bus::formed(line.clone(), &options, 1..=6);
        let steps = bus.steps + step;
        let end = bus.now + Span::from_ms(100);
        while bus.steps < steps {
            assert!(bus.step(end));
        }
        bus.kill(3);
        bus.kill(4);
        bus.reset_gap();
        bus.run(Span::from_ms(50));
        assert_eq!(bus.rings(), [[1, 2, 5, 6].into_iter().collect()], "after {step} inputs");
        let stated = options.restart() + options.repair() * 2;
        assert!(bus.longest_gap <= stated, "{} of {stated}", bus.longest_gap);
    }
}

/// Each single frame of some rotations with windows is lost once. No station is found dead, there is one token, and it is away
/// no longer than stated.
#[test]
fn any_frame_is_lost() {
    let line = slow();
    let options = Options { window_interval: Span::from_ms(3), ..Options::for_line(&line, 6, 200) };
    let mut resent = 0;
    for lost in 0..120 {
        let mut bus = Bus::formed(line.clone(), &options, 1..=4);
        let which = bus.frames + lost;
        bus.loses = Box::new(move |number, _| number == which);
        bus.run(Span::from_ms(30));
        assert_eq!(bus.rings(), [(1..=4).collect()], "frame {lost}");
        // From the last token before it to the first after it: a visit and a hop besides.
        let stated = options.lost() + Options::visit(&line, 200) * 2 + options.window();
        assert!(bus.longest_gap <= stated, "frame {lost}: {} of {stated}", bus.longest_gap);
        for (_, _, event) in &bus.events {
            match event {
                Event::Repaired { how: Repair::Resent, took } => {
                    resent += 1;
                    assert!(*took <= stated, "{took}");
                }
                other => panic!("frame {lost}: {other:?}"),
            }
        }
        assert!(bus.holders() <= 1);
    }
    assert!(resent > 80, "{resent}");
}

/// At such a loss everything that can happen does; afterwards there is one ring again, of all.
#[test]
fn heavy_loss_ends_well() {
    for seed in 0..10 {
        let line = slow();
        let options = brisk(&line, 8, 200);
        let mut bus = Bus::formed(line, &options, 1..=8);
        let mut stream = Seed(seed).stream("loss");
        bus.loses = Box::new(move |_, _| stream.chance(0.2));
        bus.run(Span::from_ms(500));
        bus.loses = Box::new(|_, _| false);
        bus.run(options.listen(8) + options.window_interval * 6);
        assert_eq!(bus.rings(), [(1..=8).collect()], "seed {seed}");
        assert!(bus.holders() <= 1, "seed {seed}");
        let tokens = bus.statistics(1).tokens;
        bus.run(Span::from_ms(20));
        assert!(bus.statistics(1).tokens > tokens, "seed {seed}");
    }
}

/// A station's program stands still, at any point and for any time, and comes back with what it knew then.
#[test]
fn a_paused_station_does_no_harm() {
    let line = slow();
    let options = brisk(&line, 6, 200);
    let mut dropped = 0;
    for seed in 0..60 {
        let mut stream = Seed(seed).stream("pause");
        let mut bus = Bus::formed(line.clone(), &options, 1..=5);
        for number in 1..=5 {
            bus.flow(number, number % 5 + 1, 4, 100, Span::from_ms(2), Span::from_us(70));
        }
        bus.run(Span::from_us(stream.below(3_000)));
        bus.pause(3);
        bus.run(Span::from_us(stream.below(20_000)));
        bus.reset_gap();
        bus.resume(3, stream.chance(0.5));
        bus.run(Span::from_ms(60));
        assert_eq!(bus.rings(), [(1..=5).collect()], "seed {seed}");
        assert!(bus.longest_gap <= options.repair(), "seed {seed}: {}", bus.longest_gap);
        dropped += bus.events.iter().filter(|(_, _, event)| matches!(event, Event::Dropped)).count();
    }
    assert!(dropped > 15, "{dropped}");
}

/// A network is cut in two, each part continues, and it heals: one ring, one token.
#[test]
fn a_cut_network_heals() {
    for seed in 0..20 {
        let line = slow();
        let options = brisk(&line, 8, 200);
        let mut stream = Seed(seed).stream("cut");
        let mut bus = Bus::formed(line, &options, 1..=8);
        bus.run(Span::from_us(stream.below(3_000)));
        let other: Members = (1..=8).filter(|_| stream.chance(0.5)).collect();
        other.iter().for_each(|number| bus.group(number, 1));
        bus.run(Span::from_ms(200));
        let parts = [(1..=8).filter(|number| !other.has(*number)).collect(), other];
        for part in parts.iter().filter(|part| !part.is_empty()) {
            assert!(bus.rings().contains(part), "seed {seed}: {part:?} in {:?}", bus.rings());
        }
        (1..=8).for_each(|number| bus.group(number, 0));
        bus.run(options.listen(8) + options.window_interval * 6);
        assert_eq!(bus.rings(), [(1..=8).collect()], "seed {seed}");
        assert!(bus.holders() <= 1, "seed {seed}");
    }
}

/// A station that comes back with a token after a long time: its token is stale.
#[test]
fn a_second_token_ends() {
    let line = slow();
    let options = brisk(&line, 6, 200);
    let mut bus = Bus::formed(line, &options, 1..=4);
    // Station 4 is paused with the token, behind its packet; the ring continues without it; it comes back with
    // the token.
    bus.flood(4, 1, 100);
    let end = bus.now + Span::from_ms(50);
    while !bus.ring(4).has_token() && bus.step(end) {}
    bus.pause(4);
    bus.run(Span::from_ms(10));
    assert_eq!(bus.rings().len(), 2, "the paused one has heard of nothing");
    assert!(bus.ring(4).has_token());
    bus.resume(4, true);
    bus.run(Span::from_ms(60));
    assert_eq!(bus.rings(), [(1..=4).collect()]);
    let of_four: Vec<Event<_>> = bus.events.iter().filter(|e| e.1 == 4).map(|e| e.2).collect();
    assert!(of_four.contains(&Event::Dropped), "{of_four:?}");
    assert!(bus.events.iter().any(|(_, _, e)| matches!(e, Event::Died { station: 4 })));
}

/// Who is heard and does not hear is soon alone, and the others' ring continues.
#[test]
fn a_deaf_station_disturbs_once() {
    let line = slow();
    let options = brisk(&line, 6, 200);
    let mut bus = Bus::formed(line, &options, 1..=5);
    bus.deafen(3);
    bus.run(Span::from_ms(100));
    bus.reset_gap();
    bus.run(Span::from_ms(500));
    assert!(bus.rings().contains(&[1, 2, 4, 5].into_iter().collect()), "{:?}", bus.rings());
    assert!(bus.longest_gap <= options.repair(), "{}", bus.longest_gap);
}

/// Frames that are no frames are counted; an inner endpoint gets what has a priority.
#[test]
fn garbage_is_counted() {
    let options = Options::default();
    let mut ring = Ring::new(Queue::default(), 1, options);
    ring.handle(Instant::ZERO, Input::Command(Command::Join)).unwrap();
    let mut stream = Seed::default().stream("garbage");
    for _ in 0..4_000 {
        let mut bytes: Vec<u8> = (0..stream.below(60)).map(|_| stream.bits() as u8).collect();
        if let Some(first) = bytes.first_mut() {
            *first = if stream.chance(0.5) { CONTROL } else { 8 + stream.below(248) as u8 };
        }
        let peer = trunkline_endpoint::Peer::new(&[stream.below(256) as u8]);
        let port = trunkline_endpoint::Port(0);
        ring.handle(Instant::ZERO, Input::Frame { port, peer, bytes: &bytes, segment: None }).unwrap();
    }
    assert!(ring.statistics().malformed > 3_900, "{:?}", ring.statistics());
    assert_eq!(ring.members(), Members::default());
}

/// With a rest an idle ring turns no faster than that, and a busy one is not held up by it.
#[test]
fn an_idle_ring_rests() {
    let line = programs();
    let options = Options { idle_hold: Span::from_ms(1), ..brisk(&line, 4, 200) };
    let options = Options { pass_timeout: options.pass_timeout + Span::from_ms(2), ..options };
    let mut bus = Bus::formed(line, &options, 1..=3);
    let before = bus.statistics(2).tokens;
    bus.run(Span::from_ms(100));
    let idle = bus.statistics(2).tokens - before;
    assert!((70..100).contains(&idle), "{idle}");
    bus.flood(1, 2, 100);
    let before = bus.statistics(2).tokens;
    bus.run(Span::from_ms(100));
    assert!(bus.statistics(2).tokens - before > 3 * idle);
}

/// Who leaves goes without anybody noticing a loss.
#[test]
fn who_leaves_is_not_missed() {
    let line = slow();
    let options = brisk(&line, 6, 200);
    let mut bus = Bus::formed(line, &options, 1..=4);
    bus.leave(1);
    bus.run(Span::from_ms(50));
    assert_eq!(
        bus.events.iter().map(|(_, who, event)| (*who, *event)).collect::<Vec<_>>(),
        [(1, Event::Left)]
    );
    assert_eq!(bus.rings(), [(2..=4).collect()]);
    (2..=4).for_each(|number| bus.leave(number));
    bus.run(Span::from_ms(50));
    assert_eq!(bus.rings(), []);
}
