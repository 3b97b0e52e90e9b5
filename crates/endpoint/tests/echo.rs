//! The echo protocol satisfies the contract, and works over an impaired line.

use trunkline_endpoint::echo::{Client, Command, Config, Event, HEADER, MAX_FRAME, Server, ServerEvent};
use trunkline_endpoint::laws::{check_laws, idle_costs_nothing};
use trunkline_endpoint::pair::{Ended, PEER_B};
use trunkline_endpoint::{Endpoint, Impairments, Input, Pair, Peer, Port};
use trunkline_units::{Instant, Rate, Seed, Span};

fn config(peer: Peer) -> Config {
    Config {
        port: Port(0),
        peer,
        length: 64,
        interval: Span::from_ms(10),
        timeout: Span::from_ms(4),
        tries: 5,
    }
}

fn pair(seed: u64, line: Impairments) -> Pair<Client, Server> {
    let mut pair = Pair::new(Client::new(config(PEER_B)), Server::new(), Seed(seed));
    pair.impair(line, line);
    pair
}

/// Returns the numbers of the answered pings, and how many pings took more than one try.
fn answered(events: &[(Instant, Event)]) -> (Vec<u32>, usize) {
    let answers = events.iter().filter_map(|(_, event)| match event {
        Event::Answered { number, tries, .. } => Some((*number, *tries)),
        _ => None,
    });
    let again = answers.clone().filter(|(_, tries)| *tries > 1).count();
    (answers.map(|(number, _)| number).collect(), again)
}

#[test]
fn the_client_satisfies_the_contract() {
    for seed in 0..40 {
        let make = || Client::new(config(Peer::new(&[1])));
        check_laws(Seed(seed), make, |client, now, stream| {
            let command = match stream.below(3) {
                0 => Command::Stop,
                _ => Command::Start { count: stream.below(20) as u32 },
            };
            let _refused = client.handle(now, Input::Command(command));
        });
    }
}

#[test]
fn the_server_satisfies_the_contract() {
    for seed in 0..40 {
        check_laws(Seed(seed), Server::new, |_, _, _| {});
    }
}

#[test]
fn idle_endpoints_do_not_allocate() {
    let count = |run: &mut dyn FnMut()| allocation_counter::measure(run).count_total;
    idle_costs_nothing(&mut Server::new(), Instant::ZERO, count);
    let mut client = Client::new(config(PEER_B));
    client.handle(Instant::ZERO, Input::Command(Command::Start { count: 3 })).unwrap();
    idle_costs_nothing(&mut client, Instant::ZERO, count);
}

#[test]
fn over_a_perfect_line_each_ping_is_answered_in_time() {
    let mut pair = pair(1, Impairments { delay: Span::from_ms(1), ..Impairments::default() });
    pair.command_a(Command::Start { count: 5 }).unwrap();
    assert_eq!(pair.run(Span::from_s(10)), Ended::Quiet);
    let events = pair.take_events_a();
    for (number, (at, event)) in (0..5).zip(&events) {
        let round_trip = Some(Span::from_ms(2));
        assert_eq!(*event, Event::Answered { number, tries: 1, round_trip });
        assert_eq!(*at, Instant::ZERO + Span::from_ms(10 * u64::from(number) + 2));
    }
    assert_eq!(events[5].1, Event::Finished);
    assert_eq!((events.len(), pair.b().answered()), (6, 5));
}

#[test]
fn over_an_impaired_line_every_ping_is_answered_reproducibly() {
    let line = Impairments {
        delay: Span::from_ms(1),
        jitter: Span::from_ms(1),
        drop: 0.1,
        duplicate: 0.1,
        corrupt: 0.1,
        reorder: 0.1,
        late: Span::from_ms(5),
        ..Impairments::default()
    };
    let run = |seed| {
        let mut pair = pair(seed, line);
        pair.command_a(Command::Start { count: 100 }).unwrap();
        assert_eq!(pair.run(Span::from_s(100)), Ended::Quiet, "seed {seed}");
        (pair.take_events_a(), pair.take_events_b(), pair.counts())
    };
    let (events, server, (there, back)) = run(1996);
    // A flipped bit may hit the number or the padding; neither may lose a ping.
    assert_eq!(answered(&events).0, (0..100).collect::<Vec<_>>());
    assert!(answered(&events).1 >= 20);
    assert!(events.iter().any(|(_, e)| matches!(e, Event::Stray { .. })));
    assert!(server.iter().all(|(_, e)| matches!(e, ServerEvent::Malformed { .. })));
    for counts in [there, back] {
        assert!(counts.sent > 100 && counts.dropped > 0 && counts.duplicated > 0);
        assert!(counts.corrupted > 0 && counts.reordered > 0);
    }
    assert_eq!(run(1996), (events.clone(), server, (there, back)));
    assert_ne!(run(1997).0, events);
}

#[test]
fn a_round_trip_is_measured_from_the_answered_try() {
    // Slower than the timeout: the answer to the first try arrives after the second was sent.
    let mut pair = pair(1, Impairments { delay: Span::from_ms(3), ..Impairments::default() });
    pair.command_a(Command::Start { count: 1 }).unwrap();
    assert_eq!(pair.run(Span::from_s(1)), Ended::Quiet);
    let events: Vec<_> = pair.take_events_a().into_iter().map(|(_, event)| event).collect();
    assert_eq!(
        events,
        [
            Event::Answered { number: 0, tries: 2, round_trip: None },
            Event::Finished,
            Event::Stray { frames: 1 }
        ]
    );
}

#[test]
fn the_client_gives_up_on_a_dead_line_and_can_restart() {
    let mut pair = pair(1, Impairments { drop: 1.0, ..Impairments::default() });
    pair.command_a(Command::Start { count: 3 }).unwrap();
    assert_eq!(pair.run(Span::from_s(1)), Ended::Quiet);
    let gave_up = (Instant::ZERO + Span::from_ms(20), Event::GaveUp { number: 0, tries: 5 });
    assert_eq!(pair.take_events_a(), [gave_up]);
    assert_eq!(pair.counts().0.dropped, 5);
    pair.impair(Impairments::default(), Impairments::default());
    pair.command_a(Command::Start { count: 2 }).unwrap();
    assert_eq!(pair.run(Span::from_s(1)), Ended::Quiet);
    assert_eq!(answered(&pair.take_events_a()).0, [1, 2]);
}

#[test]
fn on_a_slow_line_the_client_waits_for_the_port() {
    // 64 bytes at 64 kb/s take 8 ms, twice the timeout: the retransmission waits for the line.
    let mut pair = pair(1, Impairments { rate: Some(Rate::from_bps(64_000)), ..Impairments::default() });
    pair.command_a(Command::Start { count: 1 }).unwrap();
    assert_eq!(pair.run(Span::from_s(1)), Ended::Quiet);
    let events = pair.take_events_a();
    // Sent at 0 and at 8 ms. At 16 ms, while the third try waits for the line, the answer to the first arrives.
    let answer = Event::Answered { number: 0, tries: 2, round_trip: None };
    assert_eq!(events[0], (Instant::ZERO + Span::from_ms(16), answer));
    assert_eq!(pair.counts().0.sent, 2);
}

#[test]
fn a_frame_to_an_unknown_peer_is_lost() {
    let mut pair = Pair::new(Client::new(config(Peer::new(b"nobody"))), Server::new(), Seed(1));
    pair.command_a(Command::Start { count: 1 }).unwrap();
    assert_eq!(pair.run(Span::from_s(1)), Ended::Quiet);
    assert_eq!((pair.counts().0.dropped, pair.b().answered()), (5, 0));
}

#[test]
fn a_run_ends_at_its_time_limit() {
    let mut pair = pair(1, Impairments::default());
    pair.command_a(Command::Start { count: 100 }).unwrap();
    assert_eq!(pair.run(Span::from_ms(25)), Ended::Limit);
    assert_eq!((pair.now(), pair.b().answered()), (Instant::ZERO + Span::from_ms(25), 3));
    assert_eq!(pair.run(Span::from_s(10)), Ended::Quiet);
    assert_eq!(pair.b().answered(), 100);
}

#[test]
fn lengths_are_clamped_to_the_limits_of_a_frame() {
    for (length, clamped) in [(0, HEADER), (1 << 20, MAX_FRAME)] {
        let client = Client::new(Config { length, ..config(PEER_B) });
        let mut pair = Pair::new(client, Server::new(), Seed(1));
        let rate = Some(Rate::from_bps(8));
        pair.impair(Impairments { rate, ..Impairments::default() }, Impairments::default());
        pair.command_a(Command::Start { count: 1 }).unwrap();
        pair.run(Span::from_s(clamped as u64) + Span::from_ms(1));
        assert_eq!(pair.b().answered(), 1, "{length}");
    }
}
