//! Acknowledged messages: once and in order if they are said to be done, at most once if not, over any path that loses
//! and duplicates, and with restarted stations.

#[path = "support/exchange.rs"]
mod exchange;
#[allow(dead_code, reason = "others need the rest")]
#[path = "support/hand.rs"]
mod hand;
#[allow(dead_code, reason = "others need the rest")]
#[path = "support/world.rs"]
mod world;

use std::collections::BTreeSet;

use hand::{DrivenStation, OWN, at};
use trunkline_endpoint::Port;
use trunkline_llc::wire::CommandStatus;
use trunkline_llc::{Command, Config, Event, Options, Outcome, Refusal, Ticket};
use trunkline_units::{Instant, Span};
use world::{Network, Path};

fn sent(ticket: Ticket, outcome: Outcome, tries: u16, took: Span) -> Event {
    Event::Sent { sap: 2, ticket, outcome, tries, took }
}

/// A station with an acknowledging SAP 2 whose number with station 9 is agreed on: it is 1.
fn agreed(options: Options) -> (DrivenStation, Ticket) {
    let mut hand = DrivenStation::open(&[2], &options);
    let ticket = hand.send(2, at(9, 4), b"a");
    assert_eq!(hand.receive(), [[0, 4, 2, 0x77]]);
    hand.give(9, &[0, 2, 5, 0xF7, 0x30]);
    (hand, ticket)
}

#[test]
fn a_number_is_agreed_on_and_then_alternates() {
    let (mut hand, mut ticket) = agreed(Options::acknowledged(0));
    let mut tickets = vec![ticket];
    for n in 0..6u8 {
        let (control, answer) = if n % 2 == 0 { (0xE7, 0x67) } else { (0x67, 0xE7) };
        assert_eq!(hand.receive(), [[0, 4, 2, control, b'a']]);
        // Answers of another number, station, SAP, priority, with the final bit.
        hand.give(9, &[0, 2, 5, control, 0x40]);
        hand.give(8, &[0, 2, 5, answer, 0x40]);
        hand.give(9, &[0, 2, 7, answer, 0x40]);
        hand.give(9, &[1, 2, 5, answer, 0x40]);
        hand.give(9, &[0, 2, 5, answer | 0x10, 0x40]);
        assert_eq!(hand.events(), []);
        hand.give(9, &[0, 2, 5, answer, 0x40]);
        assert_eq!(hand.events(), [sent(ticket, Outcome::Done, 1, Span::ZERO)]);
        // Doubles.
        hand.give(9, &[0, 2, 5, answer, 0x40]);
        assert_eq!(hand.events(), []);
        ticket = hand.send(2, at(9, 4), b"a");
        tickets.push(ticket);
    }
    let statistics = hand.station.inner().statistics();
    assert_eq!((statistics.agreements, statistics.done, statistics.unexpected_responses), (1, 6, 36));
}

#[test]
fn each_sequence_has_one_message_under_way() {
    let mut hand = DrivenStation::open(&[2, 4], &Options::acknowledged(0));
    for _ in 0..3 {
        for (sap, to) in [(2, at(9, 4)), (2, at(9, 6)), (2, at(8, 4)), (4, at(9, 4))] {
            hand.try_send(sap, to, b"", None).unwrap();
            hand.try_send(sap, to, b"", Some(5)).unwrap();
        }
    }
    let frames = hand.receive();
    assert_eq!(frames.len(), 8);
    assert_eq!(frames.iter().collect::<BTreeSet<_>>().len(), 6, "two pairs differ in the station only");
    assert_eq!(hand.station.inner().sequences(), (8, 0));
}

#[test]
fn an_unanswered_message_is_tried_again_and_then_given_up() {
    let (mut hand, ticket) = agreed(Options::acknowledged(0));
    let next = hand.send(2, at(9, 4), b"b");
    for ms in [0, 10, 20] {
        assert_eq!((hand.now, hand.receive().len()), (Instant::from_ns(ms * 1_000_000), 1));
        let left = hand.deadline().unwrap().since(hand.now);
        assert_eq!(left, Span::from_ms(10));
        hand.wait(left);
    }
    // Whether it arrived is not known: the number is agreed on again, the same, so that a late copy is a double.
    assert_eq!(hand.frame(), Some((9, vec![vec![0, 4, 2, 0xF7]])));
    assert_eq!(hand.events(), [sent(ticket, Outcome::Unanswered, 3, Span::from_ms(30))]);
    // A late answer is none.
    hand.give(9, &[0, 2, 5, 0x67, 0x40]);
    assert_eq!(hand.receive().len(), 0);
    hand.give(9, &[0, 2, 5, 0x77, 0x30]);
    assert_eq!(hand.receive(), [[0, 4, 2, 0x67, b'b']]);
    hand.give(9, &[0, 2, 5, 0xE7, 0x40]);
    assert_eq!(hand.events(), [sent(next, Outcome::Done, 1, Span::from_ms(30))]);
    let statistics = hand.station.inner().statistics();
    assert_eq!((statistics.levels[0].retries, statistics.agreements, statistics.unanswered), (2, 2, 1));
}

#[test]
fn an_answer_while_the_next_try_waits_to_leave_counts() {
    let mut hand = DrivenStation::open(&[2], &Options::acknowledged(0));
    let first = hand.send(2, at(9, 4), b"a");
    assert_eq!(hand.receive(), [[0, 4, 2, 0x77]]);
    // Its patience is over, but the port takes nothing.
    hand.wait(Span::from_ms(10));
    hand.give(9, &[0, 2, 5, 0xF7, 0x30]);
    assert_eq!(hand.receive(), [[0, 4, 2, 0xE7, b'a']]);
    hand.wait(Span::from_ms(10));
    hand.give(9, &[0, 2, 5, 0x67, 0x40]);
    let second = hand.send(2, at(9, 4), b"b");
    assert_eq!(hand.receive(), [[0, 4, 2, 0x67, b'b']]);
    hand.give(9, &[0, 2, 5, 0xE7, 0x40]);
    let done = |ticket, took| sent(ticket, Outcome::Done, 1, took);
    assert_eq!(hand.events(), [done(first, Span::from_ms(20)), done(second, Span::ZERO)]);
    assert_eq!(hand.deadline(), None);
}

#[test]
fn a_message_that_is_late_behind_another_leaves_its_sequence() {
    let (mut hand, first) = agreed(Options::acknowledged(0));
    let limit = Span::from_ms(5);
    let limited = Options { send_limit: limit, ..Options::acknowledged(0) };
    hand.command(Command::Configure { sap: 2, options: &limited }).unwrap();
    let second = hand.send(2, at(9, 4), b"b");
    hand.command(Command::Configure { sap: 2, options: &Options::acknowledged(0) }).unwrap();
    let third = hand.send(2, at(9, 4), b"c");
    assert_eq!(hand.receive(), [[0, 4, 2, 0xE7, b'a']]);
    hand.wait(limit);
    assert_eq!(hand.events(), [sent(second, Outcome::Late, 0, limit)]);
    hand.give(9, &[0, 2, 5, 0x67, 0x40]);
    assert_eq!(hand.receive(), [[0, 4, 2, 0x67, b'c']]);
    hand.give(9, &[0, 2, 5, 0xE7, 0x40]);
    let done = |ticket| sent(ticket, Outcome::Done, 1, limit);
    assert_eq!(hand.events(), [done(first), done(third)]);
}

#[test]
fn absent_station_is_tried_as_often_as_allowed() {
    let mut hand = DrivenStation::open(&[2], &Options { tries: 2, ..Options::acknowledged(0) });
    let ticket = hand.send(2, at(9, 4), b"a");
    assert_eq!(hand.receive().len(), 1);
    hand.wait(Span::from_ms(10));
    assert_eq!(hand.receive(), [[0, 4, 2, 0x77]]);
    hand.wait(Span::from_ms(10));
    assert_eq!(hand.events(), [sent(ticket, Outcome::Unanswered, 2, Span::from_ms(20))]);
    assert_eq!(hand.deadline(), None);
}

#[test]
fn who_has_no_room_is_tried_again_and_who_refuses_is_not() {
    use CommandStatus::*;
    for (octet, status, again) in [
        (0x49, Unavailable, true),
        (0x4F, Temporary, true),
        (0x41, Unimplemented, false),
        (0x45, UserError, false),
        (0x46, ProtocolError, false),
        (0x47, Permanent, false),
    ] {
        let (mut hand, ticket) = agreed(Options { tries: 2, ..Options::acknowledged(0) });
        hand.receive();
        hand.give(9, &[0, 2, 5, 0x67, octet]);
        if again {
            assert_eq!(hand.events(), []);
            hand.wait(Span::from_ms(10));
            assert_eq!(hand.receive(), [[0, 4, 2, 0xE7, b'a']]);
            hand.give(9, &[0, 2, 5, 0x67, octet]);
        }
        let (tries, took) = if again { (2, Span::from_ms(10)) } else { (1, Span::ZERO) };
        assert_eq!(hand.events(), [sent(ticket, Outcome::Refused(status), tries, took)]);
    }
    // The last try gets no response, but an earlier one gave the reason.
    let (mut hand, ticket) = agreed(Options { tries: 2, ..Options::acknowledged(0) });
    hand.receive();
    hand.give(9, &[0, 2, 5, 0x67, 0x49]);
    hand.wait(Span::from_ms(10));
    hand.receive();
    hand.wait(Span::from_ms(10));
    assert_eq!(hand.events(), [sent(ticket, Outcome::Refused(Unavailable), 2, Span::from_ms(20))]);
    // A status that means nothing is none.
    let (mut hand, _) = agreed(Options::acknowledged(0));
    hand.receive();
    hand.give(9, &[0, 2, 5, 0x67, 0x42]);
    assert_eq!((hand.events(), hand.station.inner().statistics().malformed), (vec![], 1));
}

#[test]
fn nothing_is_tried_again_when_it_may_be_forgotten() {
    let lifetime = Span::from_ms(100);
    let mut hand = DrivenStation::with(Config { lifetime, ..Config::new(Port(0), OWN) });
    let options = Options { tries: 50, response_timeout: Span::from_ms(20), ..Options::acknowledged(0) };
    hand.command(Command::Open { sap: 2, options: &options }).unwrap();
    let ticket = hand.send(2, at(9, 4), b"a");
    for _ in 0..3 {
        assert_eq!(hand.receive().len(), 1);
        let left = hand.deadline().unwrap().since(hand.now);
        hand.wait(left);
    }
    assert_eq!(hand.events(), [sent(ticket, Outcome::Unanswered, 3, lifetime / 2)]);
    // And the receiver forgets only after the whole of it.
    let mut hand = DrivenStation::with(Config { lifetime, ..Config::new(Port(0), OWN) });
    hand.command(Command::Open { sap: 2, options: &options }).unwrap();
    for (ms, taken) in [(0, true), (0, false), (100, false), (101, true), (1, false)] {
        hand.wait(Span::from_ms(ms));
        hand.give(9, &[0, 2, 4, 0x67, 1]);
        assert_eq!((hand.receive().len(), hand.take(2).is_some()), (1, taken), "after {ms} ms");
    }
}

#[test]
fn memory_of_sequences_is_bounded() {
    let lifetime = Span::from_ms(100);
    let config = || Config { lifetime, sequences: 10, ..Config::new(Port(0), OWN) };
    let mut hand = DrivenStation::with(config());
    hand.command(Command::Open { sap: 2, options: &Options::default() }).unwrap();
    let answers = |hand: &mut DrivenStation, from: u8| {
        hand.give(from, &[0, 2, 4, 0x67, 1]);
        hand.take(2);
        hand.receive()[0][4]
    };
    for from in 10..20 {
        hand.wait(Span::from_ms(1));
        assert_eq!(answers(&mut hand, from), 0x40);
    }
    // No room for more, but for those that are known.
    for from in 20..250 {
        assert_eq!(answers(&mut hand, from), 0x49);
    }
    assert_eq!(answers(&mut hand, 19), 0x40);
    assert_eq!(hand.station.inner().sequences(), (0, 10));
    hand.wait(Span::from_ms(92));
    // One is forgotten, that of station 10.
    assert_eq!((answers(&mut hand, 20), answers(&mut hand, 21)), (0x40, 0x49));
    assert_eq!(hand.station.inner().sequences(), (0, 10));

    // To send, what is idle is forgotten for something else; what is not is not.
    let mut hand = DrivenStation::with(config());
    let options = Options { tries: 1, queue: 100, ..Options::acknowledged(0) };
    hand.command(Command::Open { sap: 2, options: &options }).unwrap();
    for round in 0..3 {
        for to in 10..25 {
            hand.send(2, at(to, 4), b"");
        }
        assert_eq!((hand.receive().len(), hand.station.inner().sequences().0), (15, 15), "round {round}");
        hand.wait(Span::from_ms(10));
        assert_eq!(hand.events().len(), 15);
    }
    assert_eq!(hand.try_send(2, at(200, 4), b"", None).map(|_| hand.station.inner().sequences().0), Ok(15));
}

/// Frames keep their order; copies may be under way when the next message is.
#[test]
fn what_is_done_was_taken_once_and_in_order_where_frames_keep_theirs() {
    (0..12).for_each(exchange::in_order);
}

/// Frames overtake each other; but none is doubled by the path, and an answer is waited for longer than any is under way,
/// there and back.
#[test]
fn what_is_done_was_taken_once_and_in_order_where_patience_is_longer_than_the_path() {
    (0..12).for_each(exchange::out_of_order);
}

#[test]
fn the_first_message_after_a_restart_is_not_taken_for_a_double() {
    // After any number of messages, and with either station restarted.
    for before in 0..5 {
        for restarted in [1, 2] {
            let mut world = Network::new(1, Path { delay: Span::from_us(50), ..Path::default() }, 2);
            let options = Options::acknowledged(0);
            for station in [1, 2] {
                world.command(station, Command::Open { sap: 2, options: &options }).unwrap();
            }
            let send = |world: &mut Network, n: u8| {
                let (mut ticket, to) = (Ticket::default(), at(2, 2));
                let send = Command::Send { sap: 2, to, bytes: &[n], priority: None, ticket: &mut ticket };
                world.command(1, send).unwrap();
                world.run(Span::from_ms(5));
                assert!(matches!(
                    world.events[..],
                    [.., (1, Event::Sent { outcome: Outcome::Done, .. }), _]
                        | [.., (1, Event::Sent { outcome: Outcome::Done, .. })]
                ));
                assert_eq!(world.take(2, 2).map(|(_, bytes)| bytes), Some(vec![n]));
                assert_eq!(world.take(2, 2), None);
            };
            (0..before).for_each(|n| send(&mut world, n));
            world.restart(Config::new(Port(0), restarted));
            world.command(restarted, Command::Open { sap: 2, options: &options }).unwrap();
            (100..105).for_each(|n| send(&mut world, n));
        }
    }
}

#[test]
fn closed_sap_refuses_and_accepts_after_reopening() {
    let mut world = Network::new(1, Path::default(), 2);
    let options = Options { queue: 1, ..Options::acknowledged(0) };
    world.command(1, Command::Open { sap: 2, options: &options }).unwrap();
    let send = |world: &mut Network| {
        let (mut ticket, to) = (Ticket::default(), at(2, 2));
        let done =
            world.command(1, Command::Send { sap: 2, to, bytes: b"", priority: None, ticket: &mut ticket });
        world.run(Span::from_ms(100));
        done.map(|()| match world.events.iter().rev().find(|(station, _)| *station == 1) {
            Some((_, Event::Sent { outcome, .. })) => *outcome,
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(send(&mut world), Ok(Outcome::Refused(CommandStatus::Unimplemented)));
    world.command(2, Command::Open { sap: 2, options: &options }).unwrap();
    assert_eq!(send(&mut world), Ok(Outcome::Done));
    // Full.
    assert_eq!(send(&mut world), Ok(Outcome::Refused(CommandStatus::Unavailable)));
    assert!(world.take(2, 2).is_some());
    assert_eq!(send(&mut world), Ok(Outcome::Done));
    world.command(2, Command::Close { sap: 2 }).unwrap();
    assert_eq!(send(&mut world), Ok(Outcome::Refused(CommandStatus::Unimplemented)));
    world.command(1, Command::Close { sap: 2 }).unwrap();
    assert_eq!(send(&mut world), Err(Refusal::Closed));
}
