//! What leaves first, what waits how long, and what happens when no more may wait.

#[allow(dead_code, reason = "others need the rest")]
#[path = "support/hand.rs"]
mod hand;

use hand::{DrivenStation, OWN, at};
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Writable};
use trunkline_llc::api::Received;
use trunkline_llc::wire::{ALL, GLOBAL_SAP, MAX_INFORMATION};
use trunkline_llc::{Command, Config, Event, Options, Outcome, Refusal, Ticket};
use trunkline_units::{Instant, Seed, Span};

fn options() -> Options {
    Options::default()
}

/// The information of a datagram's frame.
fn information(frame: &[u8]) -> &[u8] {
    assert_eq!(frame[3], 0x03, "{frame:02x?}");
    &frame[4..]
}

#[test]
fn the_highest_priority_leaves_first_and_each_in_order() {
    let mut hand = DrivenStation::open(&[2, 4], &options());
    let mut draw = Seed(7).stream("priorities");
    let (mut expected, mut now) = (Vec::new(), 0u8);
    for _ in 0..60 {
        let (sap, priority) = (2, draw.below(8) as u8);
        hand.try_send(sap, at(9, 4), &[now], Some(priority)).unwrap();
        expected.push((7 - priority, now));
        now += 1;
    }
    expected.sort();
    let got: Vec<_> = hand.receive().iter().map(|frame| (7 - frame[0], information(frame)[0])).collect();
    assert_eq!(got, expected);
}

#[test]
fn unsent_datagrams_fail_and_acknowledged_messages_are_retried() {
    let mut hand = DrivenStation::with(Config { batch: 4, ..Config::new(Port(0), OWN) });
    hand.command(Command::Open { sap: 2, options: &options() }).unwrap();
    hand.command(Command::Open { sap: 4, options: &Options { tries: 2, ..Options::acknowledged(0) } })
        .unwrap();
    let ends = |hand: &mut DrivenStation| -> Vec<(Ticket, Outcome)> {
        hand.receive();
        let ends = std::mem::take(&mut hand.events).into_iter();
        let end = |event| match event {
            Event::Sent { ticket, outcome, .. } => Some((ticket, outcome)),
            _ => None,
        };
        ends.filter_map(end).collect()
    };
    // Those at the end of a batch, and never more than it had.
    for (unsent, failed) in [(0, 0), (1, 1), (3, 3), (4, 4), (9, 4)] {
        let tickets = [(); 4].map(|()| hand.send(2, at(9, 4), b"datagram"));
        assert_eq!(hand.frame().expect("it leaves").1.len(), 4);
        hand.command(Command::Unsent { frames: unsent }).unwrap();
        let outcome = |n: usize| if n >= 4 - failed { Outcome::Failed } else { Outcome::Done };
        let expected: Vec<_> =
            tickets.into_iter().enumerate().map(|(n, ticket)| (ticket, outcome(n))).collect();
        assert_eq!(ends(&mut hand), expected, "{unsent}");
        // It was reported once and has ended.
        hand.command(Command::Unsent { frames: 4 }).unwrap();
        assert_eq!(ends(&mut hand), []);
    }
    assert_eq!(hand.station.inner().statistics().done, 20 - 12);
    let ticket = hand.send(4, at(9, 4), b"acknowledged");
    for _ in 0..2 {
        assert!(hand.frame().is_some());
        hand.command(Command::Unsent { frames: 1 }).unwrap();
        assert_eq!(ends(&mut hand), []);
        hand.wait(Span::from_ms(10));
    }
    assert_eq!(ends(&mut hand), [(ticket, Outcome::Unanswered)]);
}

#[test]
fn the_highest_waits_for_one_frame_whatever_else_waits() {
    for seed in 0..20 {
        let mut draw = Seed(seed).stream("life");
        let mut hand = DrivenStation::open(&[2, 4, 6], &Options { queue: 500, ..options() });
        let acknowledged = Options { queue: 500, ..Options::acknowledged(0) };
        hand.command(Command::Open { sap: 8, options: &acknowledged }).unwrap();
        for step in 0..2_000 {
            let sap = 2 + 2 * draw.below(4) as u8;
            match draw.below(8) {
                0..3 => drop(hand.try_send(sap, at(9, 4), b"low", Some(draw.below(7) as u8))),
                3 => hand.give(9, &[draw.below(7) as u8, 2, 4, 0xF3, 1]),
                4 => hand.give(9, &[draw.below(7) as u8, 2, 4, 0x67, 1]),
                5 => hand.wait(Span::from_ms(7)),
                6 => drop(hand.frame()),
                // The frame taken last is leaving; this is the next.
                _ => {
                    hand.try_send(2 + 2 * draw.below(3) as u8, at(9, 4), b"high", Some(7)).unwrap();
                    let (_, next) = hand.frame().expect("something waits");
                    assert_eq!(
                        (next.len(), information(&next[0])),
                        (1, &b"high"[..]),
                        "seed {seed}, step {step}"
                    );
                }
            }
        }
    }
}

/// Sends from each completion; the next message leaves at once, and another SAP's in between.
#[test]
fn sending_from_completions_starves_no_sap() {
    let mut hand = DrivenStation::open(&[2, 4], &options());
    for _ in 0..10 {
        hand.send(4, at(9, 4), b"4");
    }
    let mut sent = hand.send(2, at(9, 4), b"2");
    let mut order = Vec::new();
    let mut buffer = vec![0; MAX_BATCH];
    while order.len() < 30 {
        match hand.station.poll(hand.now, Writable::ALL, &mut buffer) {
            Output::Transmit(t) => order.push(information(&buffer[..t.length])[0]),
            Output::Event(Event::Sent { sap: 2, ticket, outcome: Outcome::Done, tries: 1, .. }) => {
                assert_eq!(ticket, sent);
                sent = hand.send(2, at(9, 4), b"2");
            }
            Output::Event(_) => {}
            Output::Idle(idle) => panic!("{idle:?} after {order:?}"),
        }
    }
    assert_eq!(order[..20], *b"42424242424242424242");
    assert_eq!(order[20..], *b"2222222222");
}

#[test]
fn saps_take_turns_with_events() {
    let mut hand = DrivenStation::open(&[2, 4], &options());
    for sap in [2, 4] {
        for _ in 0..3 {
            hand.send(sap, at(9, 4), b"");
        }
    }
    for sap in [2, 4] {
        hand.command(Command::Reset { sap, sending: true }).unwrap();
    }
    let order = hand.events().into_iter().map(|event| match event {
        Event::Sent { sap, .. } => sap,
        other => panic!("{other:?}"),
    });
    assert_eq!(order.collect::<Vec<_>>(), [2, 4, 2, 4, 2, 4]);
}

#[test]
fn answers_and_messages_take_turns() {
    let mut hand = DrivenStation::open(&[2], &options());
    for _ in 0..5 {
        hand.give(9, &[0, 2, 4, 0xF3]);
        hand.send(2, at(9, 4), b"");
    }
    let controls: Vec<u8> = hand.receive().iter().map(|frame| frame[3]).collect();
    assert_eq!(controls, [0xF3, 3, 0xF3, 3, 0xF3, 3, 0xF3, 3, 0xF3, 3]);
}

#[test]
fn message_occupies_its_slot_until_its_end_is_reported() {
    let mut hand = DrivenStation::open(&[2], &Options { queue: 3, ..options() });
    let tickets = [1, 2, 3].map(|n| hand.send(2, at(9, 4), &[n]));
    assert_eq!(tickets, [1, 2, 3].map(Ticket));
    assert_eq!(hand.try_send(2, at(9, 4), b"", Some(7)), Err(Refusal::Full));
    let identify = Command::Identify { sap: 2, to: at(9, 4) };
    assert_eq!(hand.command(identify), Err(Refusal::Full));
    let test = Command::Test { sap: 2, to: at(9, 4), bytes: b"" };
    assert_eq!(hand.command(test), Err(Refusal::Full));
    // Leaving is not enough.
    assert!(hand.frame().is_some());
    assert_eq!(hand.try_send(2, at(9, 4), b"", None), Err(Refusal::Full));
    hand.wait(Span::from_us(5));
    let told = hand.events();
    let sent = |n, took| {
        let (ticket, outcome) = (Ticket(n), Outcome::Done);
        Event::Sent { sap: 2, ticket, outcome, tries: 1, took }
    };
    assert_eq!(told[0], sent(1, Span::ZERO));
    assert_eq!(told[1], Event::Writable { sap: 2 });
    assert_eq!(told[2..], [sent(2, Span::from_us(5)), sent(3, Span::from_us(5))]);
    assert_eq!(hand.station.inner().waiting(2), 0);
    hand.send(2, at(9, 4), b"");
}

#[test]
fn a_question_makes_room_when_it_leaves() {
    let mut hand = DrivenStation::open(&[2], &Options { queue: 1, ..options() });
    hand.command(Command::Identify { sap: 2, to: at(9, 4) }).unwrap();
    assert_eq!(hand.try_send(2, at(9, 4), b"", None), Err(Refusal::Full));
    assert_eq!(hand.events(), [Event::Writable { sap: 2 }]);
    hand.send(2, at(9, 4), b"");
}

#[test]
fn the_highest_priority_is_taken_first() {
    let mut hand = DrivenStation::open(&[2], &options());
    for (n, level) in [3, 7, 3, 0, 7].into_iter().enumerate() {
        hand.give(9, &[level, 2, 6, 0x03, n as u8]);
    }
    assert_eq!(hand.events(), [Event::Readable { sap: 2 }]);
    let got: Vec<(u8, Vec<u8>)> =
        std::iter::from_fn(|| hand.take(2)).map(|(r, bytes)| (r.priority, bytes)).collect();
    assert_eq!(got, [(7, vec![1]), (7, vec![4]), (3, vec![0]), (3, vec![2]), (0, vec![3])]);
    // Empty again, so the next message is reported; one that is taken first is not.
    hand.give(9, &[0, 2, 6, 0x03]);
    assert_eq!(hand.events(), [Event::Readable { sap: 2 }]);
    hand.take(2);
    hand.give(9, &[0, 2, 6, 0x03]);
    hand.take(2);
    assert_eq!(hand.events(), []);
}

#[test]
fn full_receive_queue_drops_or_refuses() {
    let mut hand = DrivenStation::open(&[2], &Options { queue: 2, ..options() });
    for n in 0..5 {
        hand.give(9, &[5, 2, 6, 0x03, n]);
    }
    assert_eq!(hand.station.inner().statistics().levels[5].dropped, 3);
    hand.receive();
    // The same number again until there is space: then it is accepted and reported once.
    for _ in 0..2 {
        hand.give(9, &[7, 2, 6, 0x67, b'a']);
        assert_eq!(hand.receive(), [[7, 6, 3, 0xE7, 0x49]]);
    }
    hand.take(2);
    for _ in 0..2 {
        hand.give(9, &[7, 2, 6, 0x67, b'a']);
        assert_eq!(hand.receive(), [[7, 6, 3, 0xE7, 0x40]]);
    }
    // A double is answered though there is no room, a number agreed on, too.
    assert_eq!(hand.station.inner().readable(2), 2);
    hand.give(9, &[7, 2, 6, 0xF7]);
    assert_eq!(hand.receive(), [[7, 6, 3, 0x77, 0x30]]);
    let statistics = hand.station.inner().statistics();
    assert_eq!((statistics.unavailable, statistics.duplicates), (2, 1));
    assert_eq!(hand.take(2).unwrap().1, b"a");
}

#[test]
fn groups_and_broadcasts_reach_their_members() {
    let mut hand = DrivenStation::open(&[2], &options());
    for (sap, groups) in [(4, vec![0x41]), (6, vec![0x41, 0x43]), (254, vec![])] {
        hand.command(Command::Open { sap, options: &Options { groups, ..options() } }).unwrap();
    }
    for dsap in [0x41, 0x43, 0x45, GLOBAL_SAP, 6, 8, 0] {
        hand.give(9, &[1, dsap, 10, 0x03, dsap]);
    }
    let mut got = [2, 4, 6, 254]
        .map(|sap| std::iter::from_fn(|| hand.take(sap)).map(|(_, bytes)| bytes[0]).collect::<Vec<_>>());
    assert_eq!(got, [vec![0xFF], vec![0x41, 0xFF], vec![0x41, 0x43, 0xFF, 6], vec![0xFF]]);
    assert_eq!(hand.station.inner().statistics().no_receiver, 3);
    got[0].clear();
    hand.give(9, &[1, 0x41, 10, 0x03]);
    let from = at(9, 10);
    let received = Received { from, to: 0x41, priority: 1, acknowledged: false, at: Instant::ZERO };
    assert_eq!(hand.take(4), Some((received, vec![])));
    // And out.
    hand.send(2, at(ALL, 0x41), b"all");
    assert_eq!(hand.frame(), Some((ALL, vec![[&[0, 0x41, 2, 0x03][..], b"all"].concat()])));
}

#[test]
fn a_checksum_is_checked_at_both_ends() {
    let mut hand = DrivenStation::open(&[2], &Options { crc: true, ..options() });
    hand.send(2, at(9, 4), b"123456789");
    hand.send(2, at(9, 4), b"");
    // The check value of CRC-32.
    let frames = hand.receive();
    assert_eq!(frames[0][4..], *b"123456789\xCB\xF4\x39\x26");
    assert_eq!(frames[1][4..], [0, 0, 0, 0]);
    let mut frame = [&[0, 2, 4, 0x03][..], b"123456789\xCB\xF4\x39\x26"].concat();
    for at in 4..frame.len() {
        frame[at] ^= 0x10;
        hand.give(9, &frame);
        frame[at] ^= 0x10;
    }
    hand.give(9, &[0, 2, 4, 0x03, 1, 2, 3]);
    // Acknowledged: not answered, so it comes again.
    hand.give(9, &[0, 2, 4, 0x67, 1, 2, 3, 4, 5]);
    assert_eq!((hand.receive().len(), hand.take(2)), (0, None));
    assert_eq!(hand.station.inner().statistics().bad_crc, 13 + 2);
    hand.give(9, &frame);
    assert_eq!(hand.take(2).unwrap().1, b"123456789");
    frame[3] = 0x67;
    hand.give(9, &frame);
    assert_eq!((hand.receive().len(), hand.take(2).unwrap().1), (1, b"123456789".to_vec()));
    assert_eq!(hand.try_send(2, at(9, 4), &[0; MAX_INFORMATION - 3], None), Err(Refusal::TooLarge));
    hand.send(2, at(9, 4), &[0; MAX_INFORMATION - 4]);
}

#[test]
fn what_waits_too_long_is_given_up() {
    let limit = Span::from_ms(5);
    let mut hand = DrivenStation::open(&[2], &Options { send_limit: limit, ..options() });
    let acknowledged =
        Options { send_limit: limit, response_timeout: Span::from_ms(3), ..Options::acknowledged(0) };
    hand.command(Command::Open { sap: 4, options: &acknowledged }).unwrap();
    // One under way, one behind it; a datagram that cannot leave.
    let (away, behind) = (hand.send(4, at(9, 4), b"a"), hand.send(4, at(9, 4), b"b"));
    assert!(hand.frame().is_some());
    hand.wait(Span::from_ms(1));
    let datagram = hand.send(2, at(9, 4), b"c");
    let mut buffer = vec![0; MAX_BATCH];
    let mut told = Vec::new();
    for _ in 0..10 {
        let idle = loop {
            match hand.station.poll(hand.now, Writable::NONE, &mut buffer) {
                Output::Event(event) => told.push((hand.now, event)),
                Output::Idle(idle) => break idle,
                Output::Transmit(_) => unreachable!(),
            }
        };
        let Some(at) = idle.deadline else { break };
        hand.wait(at.since(hand.now));
    }
    let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
    let late = |sap, ticket, tries| {
        let outcome = Outcome::Late;
        Event::Sent { sap, ticket, outcome, tries, took: limit }
    };
    assert_eq!(told, [(at(5), late(4, away, 1)), (at(5), late(4, behind, 0)), (at(6), late(2, datagram, 0))]);
    assert_eq!(hand.station.inner().statistics().levels[0].deadline_misses, 3);
    // Nothing of them is left.
    assert_eq!((hand.receive().len(), hand.deadline()), (0, None));
}

#[test]
fn reset_reports_and_close_does_not() {
    let mut hand = DrivenStation::open(&[2, 4], &Options { queue: 4, ..Options::acknowledged(3) });
    for sap in [2, 4] {
        for n in 0..4 {
            hand.try_send(sap, at(9, 4), &[n], Some(n)).unwrap();
        }
        hand.give(9, &[1, sap, 6, 0x03, sap]);
        hand.give(9, &[2, sap, 6, 0x03, sap]);
    }
    hand.command(Command::Identify { sap: 2, to: at(9, 4) }).unwrap_err();
    hand.frame();
    hand.events.clear();
    hand.command(Command::Reset { sap: 2, sending: true }).unwrap();
    hand.command(Command::Close { sap: 4 }).unwrap();
    let reset = |n: u32| Event::Sent {
        sap: 2,
        ticket: Ticket(n),
        outcome: Outcome::Reset,
        tries: u16::from(n == 4),
        took: Span::ZERO,
    };
    let mut expected = [1, 2, 3, 4].map(reset).to_vec();
    expected.push(Event::Writable { sap: 2 });
    assert_eq!(hand.events(), expected);
    assert_eq!((hand.deadline(), hand.station.inner().open_saps()), (None, &[2][..]));
    assert_eq!(hand.station.inner().readable(2), 2);
    hand.command(Command::Reset { sap: 2, sending: false }).unwrap();
    assert_eq!((hand.take(2), hand.station.inner().readable(2)), (None, 0));
    // It begins anew.
    hand.command(Command::Open { sap: 4, options: &options() }).unwrap();
    assert_eq!(hand.take(4), None);
    hand.send(2, at(9, 4), b"");
}

#[test]
fn every_refusal_has_its_reason() {
    let config = Config { saps: 2, ..Config::new(Port(0), OWN) };
    let mut hand = DrivenStation::with(config);
    for sap in [0, 1, 3, 255] {
        assert_eq!(hand.command(Command::Open { sap, options: &options() }), Err(Refusal::Invalid));
        assert_eq!(hand.try_send(sap, at(9, 4), b"", None), Err(Refusal::Invalid));
    }
    for wrong in [
        Options { priority: 8, ..options() },
        Options { tries: 0, ..options() },
        Options { queue: 0, ..options() },
        Options { groups: vec![2], ..options() },
        Options { groups: vec![GLOBAL_SAP], ..options() },
    ] {
        assert_eq!(hand.command(Command::Open { sap: 2, options: &wrong }), Err(Refusal::Options));
    }
    hand.command(Command::Open { sap: 2, options: &options() }).unwrap();
    hand.command(Command::Open { sap: 4, options: &Options::acknowledged(0) }).unwrap();
    assert_eq!(hand.command(Command::Open { sap: 2, options: &options() }), Err(Refusal::Duplicate));
    assert_eq!(hand.command(Command::Open { sap: 6, options: &options() }), Err(Refusal::TooMany));
    let wrong = Options { priority: 9, ..options() };
    assert_eq!(hand.command(Command::Configure { sap: 2, options: &wrong }), Err(Refusal::Options));
    let (mut into, mut taken) = (vec![], None);
    for command in [
        Command::Configure { sap: 6, options: &options() },
        Command::Close { sap: 6 },
        Command::Send { sap: 6, to: at(9, 4), bytes: b"", priority: None, ticket: &mut Ticket::default() },
        Command::Take { sap: 6, into: &mut into, taken: &mut taken },
        Command::Test { sap: 6, to: at(9, 4), bytes: b"" },
        Command::Identify { sap: 6, to: at(9, 4) },
        Command::Reset { sap: 6, sending: true },
        Command::Reset { sap: 6, sending: false },
    ] {
        assert_eq!(hand.command(command), Err(Refusal::Closed));
    }
    // Destinations that cannot be reached or cannot acknowledge.
    for to in [at(0, 4), at(9, 0)] {
        assert_eq!(hand.try_send(2, to, b"", None), Err(Refusal::Destination));
    }
    for to in [at(0, 4), at(9, 0), at(ALL, 4), at(9, 0x41), at(9, GLOBAL_SAP)] {
        assert_eq!(hand.try_send(4, to, b"", None), Err(Refusal::Destination));
    }
    assert_eq!(hand.command(Command::Test { sap: 2, to: at(0, 4), bytes: b"" }), Err(Refusal::Destination));
    assert_eq!(hand.command(Command::Identify { sap: 2, to: at(0, 4) }), Err(Refusal::Destination));
    assert_eq!(hand.try_send(2, at(9, 4), b"", Some(8)), Err(Refusal::Options));
    let long = [0; MAX_INFORMATION + 1];
    assert_eq!(hand.try_send(2, at(9, 4), &long, None), Err(Refusal::TooLarge));
    let test = Command::Test { sap: 2, to: at(9, 4), bytes: &long };
    assert_eq!(hand.command(test), Err(Refusal::TooLarge));
    // Nothing has come of any of them.
    assert_eq!((hand.receive().len(), hand.events()), (0, vec![]));
}

#[test]
fn a_batch_is_of_one_sap_priority_and_station() {
    let config = Config { batch: 4, ..Config::new(Port(0), OWN) };
    let mut hand = DrivenStation::with(config);
    for sap in [2, 4] {
        hand.command(Command::Open { sap, options: &options() }).unwrap();
    }
    for (to, length) in
        [(9, 3), (9, 3), (9, 2), (9, 2), (9, 9), (8, 1), (9, 1), (9, 1), (9, 1), (9, 1), (9, 1)]
    {
        hand.send(2, at(to, 4), &vec![0; length]);
    }
    hand.try_send(2, at(9, 4), b"", Some(1)).unwrap();
    hand.send(4, at(9, 4), b"");
    let batches: Vec<(u8, Vec<usize>)> = std::iter::from_fn(|| hand.frame())
        .map(|(to, frames)| (to, frames.iter().map(|frame| frame.len() - 4).collect()))
        .collect();
    let expected: [(u8, &[usize]); 7] =
        [(9, &[0]), (9, &[3, 3, 2]), (9, &[0]), (9, &[2]), (9, &[9]), (8, &[1]), (9, &[1, 1, 1, 1])];
    let expected = expected.map(|(to, lengths)| (to, lengths.to_vec()));
    assert_eq!(batches[..7], expected);
    assert_eq!(batches[7..], [(9, vec![1])]);
    assert_eq!(hand.events.len(), 13);
}

#[test]
fn frames_with_invalid_sources_are_counted() {
    let mut hand = DrivenStation::open(&[2], &options());
    let frame = [0, 2, 4, 0x03, 1];
    for from in [0, ALL, OWN] {
        hand.give(from, &frame);
    }
    for (port, peer) in [(1, Peer::new(&[9])), (0, Peer::NONE), (0, Peer::new(&[9, 9]))] {
        let input = Input::Frame { port: Port(port), peer, bytes: &frame, segment: None };
        hand.station.handle(hand.now, input).unwrap();
    }
    hand.give(9, &[]);
    hand.give(9, &[0, 2, 4]);
    hand.give(9, &[8, 2, 4, 0x03]);
    hand.give(9, &[0xFF]);
    let statistics = *hand.station.inner().statistics();
    assert_eq!((statistics.bad_source, statistics.malformed, statistics.foreign), (6, 2, 2));
    assert_eq!((statistics.received.total(), hand.take(2)), (0, None));
    // But where frames come back, it may send to itself.
    let mut hand = DrivenStation::with(Config { hears_itself: true, ..Config::new(Port(0), OWN) });
    hand.command(Command::Open { sap: 2, options: &Options::acknowledged(0) }).unwrap();
    hand.send(2, at(OWN, 2), b"me");
    while let Some((_, frames)) = hand.frame() {
        frames.iter().for_each(|frame| hand.give(OWN, frame));
    }
    assert_eq!(hand.take(2).unwrap().1, b"me");
    assert!(matches!(hand.events()[..], [.., Event::Sent { outcome: Outcome::Done, .. }]));
}

#[test]
fn receiving_does_not_wait_for_sending() {
    let mut hand = DrivenStation::open(&[2], &options());
    hand.send(2, at(9, 4), b"waits");
    // The port takes nothing, and nothing is asked of the station in between.
    for n in 0..100 {
        hand.give(9, &[3, 2, 4, if n % 2 == 0 { 0x67 } else { 0xE7 }, n]);
        assert_eq!(hand.take(2).map(|(_, bytes)| bytes), Some(vec![n]));
    }
    let frames = hand.receive();
    assert_eq!((frames.len(), &frames[100][4..]), (101, &b"waits"[..]));
}
