//! Frames written by hand, and the octets that come back (IEEE 802.2 clauses 5.4 and 6.6 to 6.7).

#[allow(dead_code, reason = "others need the rest")]
#[path = "support/hand.rs"]
mod hand;

use hand::{DrivenStation, at};
use trunkline_llc::wire::{ALL, GLOBAL_SAP, NULL_SAP};
use trunkline_llc::{Command, Event, Options};

/// A station with SAPs 2, 4 and 6, of which 4 and 6 are in group 0x41, given a frame by station 9.
fn answers_to(frame: &[u8]) -> Vec<Vec<u8>> {
    let mut hand = DrivenStation::open(&[2], &Options::default());
    let options = Options { groups: vec![0x41], ..Options::default() };
    for sap in [6, 4] {
        hand.command(Command::Open { sap, options: &options }).unwrap();
    }
    hand.give(9, frame);
    std::iter::from_fn(|| hand.frame())
        .map(|(to, frames)| {
            assert_eq!((to, frames.len()), (9, 1));
            frames.concat()
        })
        .collect()
}

#[test]
fn xid_and_test_are_answered_octet_by_octet() {
    #[rustfmt::skip]
    let table: &[(&[u8], &[&[u8]])] = &[
        // XID to a SAP, without and with the poll bit; another priority.
        (&[0, 4, 8, 0xAF, 0x81, 1, 0], &[&[0, 8, 5, 0xAF, 0x81, 5, 0]]),
        (&[3, 4, 8, 0xBF, 0x81, 1, 0], &[&[3, 8, 5, 0xBF, 0x81, 5, 0]]),
        // To the station; from a station.
        (&[0, 0, 8, 0xBF, 0x81, 1, 0], &[&[0, 8, 1, 0xBF, 0x81, 5, 0]]),
        (&[0, 0, 0, 0xBF, 0x81, 1, 0], &[&[0, 0, 1, 0xBF, 0x81, 5, 0]]),
        // To a group, and to everybody: each member for itself.
        (&[0, 0x41, 8, 0xBF, 0x81, 1, 0], &[&[0, 8, 5, 0xBF, 0x81, 5, 0], &[0, 8, 7, 0xBF, 0x81, 5, 0]]),
        (&[7, 0xFF, 8, 0xAF, 0x81, 1, 0],
         &[&[7, 8, 3, 0xAF, 0x81, 5, 0], &[7, 8, 5, 0xAF, 0x81, 5, 0], &[7, 8, 7, 0xAF, 0x81, 5, 0]]),
        // TEST, with and without information.
        (&[0, 4, 8, 0xE3, b'h', b'i'], &[&[0, 8, 5, 0xE3, b'h', b'i']]),
        (&[5, 2, 8, 0xF3], &[&[5, 8, 3, 0xF3]]),
        (&[5, 0, 8, 0xF3, 1, 2, 3], &[&[5, 8, 1, 0xF3, 1, 2, 3]]),
        (&[1, 0x41, 8, 0xF3, 1], &[&[1, 8, 5, 0xF3, 1], &[1, 8, 7, 0xF3, 1]]),
        // Absent stations; responses; information from invalid stations.
        (&[0, 8, 8, 0xBF, 0x81, 1, 0], &[]),
        (&[0, 0x43, 8, 0xF3, 1], &[]),
        (&[0, 4, 9, 0xBF, 0x81, 1, 0], &[]),
        (&[0, 4, 9, 0xF3, 1], &[]),
        (&[0, 4, 8, 0x03, 1], &[]),
        // No priority: not for a station.
        (&[8, 4, 8, 0xF3, 1], &[]),
    ];
    for (frame, answers) in table {
        assert_eq!(answers_to(frame), *answers, "{frame:02x?}");
    }
}

#[test]
fn acknowledged_commands_are_answered_octet_by_octet() {
    #[rustfmt::skip]
    let table: &[(&[u8], &[&[u8]])] = &[
        // AC0 is answered by AC1 and back; accepted, no answer of the user was asked for.
        (&[0, 4, 8, 0x67, b'x'], &[&[0, 8, 5, 0xE7, 0x40]]),
        (&[6, 4, 8, 0xE7, b'x'], &[&[6, 8, 5, 0x67, 0x40]]),
        (&[6, 4, 8, 0xE7], &[&[6, 8, 5, 0x67, 0x40]]),
        // With the poll bit: none was ever submitted.
        (&[0, 4, 8, 0x77, b'x'], &[&[0, 8, 5, 0xF7, 0x30]]),
        (&[0, 4, 8, 0xF7], &[&[0, 8, 5, 0x77, 0x30]]),
        // A SAP that is not open has no such service.
        (&[2, 8, 8, 0x67, b'x'], &[&[2, 8, 9, 0xE7, 0x41]]),
        (&[2, 8, 8, 0xF7], &[&[2, 8, 9, 0x77, 0x31]]),
        // A group and the null SAP cannot acknowledge, and invalid stations neither send nor receive.
        (&[0, 0x41, 8, 0x67, b'x'], &[]),
        (&[0, 0xFF, 8, 0x67, b'x'], &[]),
        (&[0, 0, 8, 0x67, b'x'], &[]),
        (&[0, 4, 0, 0x67, b'x'], &[]),
        // Responses to nothing.
        (&[0, 4, 9, 0x67, 0x40], &[]),
        (&[0, 4, 9, 0xF7, 0xFF], &[]),
    ];
    for (frame, answers) in table {
        assert_eq!(answers_to(frame), *answers, "{frame:02x?}");
    }
}

#[test]
fn questions_leave_and_only_their_answers_count() {
    let mut hand = DrivenStation::open(&[2], &Options { priority: 6, ..Options::default() });
    // Nothing was asked.
    hand.give(9, &[6, 2, 5, 0xF3]);
    hand.give(9, &[6, 2, 5, 0xBF, 0x81, 5, 0]);
    assert_eq!(hand.events(), []);
    hand.command(Command::Test { sap: 2, to: at(9, 4), bytes: b"abc" }).unwrap();
    hand.command(Command::Identify { sap: 2, to: at(9, NULL_SAP) }).unwrap();
    assert_eq!(hand.station.inner().waiting(2), 2);
    assert_eq!(hand.receive(), [&[6, 4, 2, 0xF3, b'a', b'b', b'c'][..], &[6, 0, 2, 0xBF, 0x81, 5, 0]]);
    assert_eq!(hand.station.inner().waiting(2), 0);
    // Another station, another SAP, no final bit, another SAP asked; an answer that says nothing.
    hand.give(8, &[6, 2, 5, 0xF3, b'a', b'b', b'c']);
    hand.give(9, &[6, 2, 7, 0xF3, b'a', b'b', b'c']);
    hand.give(9, &[6, 2, 5, 0xE3, b'a', b'b', b'c']);
    hand.give(9, &[6, 4, 5, 0xF3, b'a', b'b', b'c']);
    hand.give(9, &[6, 2, 5, 0xBF, 0x81, 5, 0]);
    hand.give(9, &[6, 2, 1, 0xBF, 0x82, 5, 0]);
    assert_eq!(hand.events(), []);
    assert_eq!(
        (hand.station.inner().statistics().unexpected_responses, hand.station.inner().statistics().malformed),
        (7, 1)
    );
    hand.give(9, &[6, 2, 5, 0xF3, b'a', b'b', b'c']);
    hand.give(9, &[6, 2, 5, 0xF3, b'a', b'b']);
    hand.give(9, &[6, 2, 1, 0xBF, 0x81, 0b011, 0]);
    let tested = |length, intact| Event::Tested { sap: 2, from: at(9, 4), length, intact };
    let identified = Event::Identified { sap: 2, from: at(9, NULL_SAP), types: [true, true, false] };
    assert_eq!(hand.events(), [tested(3, true), tested(2, false), identified]);
}

#[test]
fn responses_to_a_broadcast_test_are_bounded() {
    let mut hand = DrivenStation::open(&[2], &Options::default());
    hand.command(Command::Test { sap: 2, to: at(ALL, GLOBAL_SAP), bytes: b"" }).unwrap();
    assert_eq!(hand.frame(), Some((ALL, vec![vec![0, 0xFF, 2, 0xF3]])));
    for station in 2..102 {
        hand.give(station, &[0, 2, 7, 0xF3]);
    }
    let told = hand.events();
    assert_eq!((told.len(), hand.station.inner().statistics().dropped_answers), (64, 36));
    assert_eq!(told[63], Event::Tested { sap: 2, from: at(65, 6), length: 0, intact: true });
}

#[test]
fn a_flood_of_questions_is_answered_within_bounds() {
    let mut hand = DrivenStation::open(&[2, 4], &Options::default());
    for _ in 0..1000 {
        hand.give(9, &[0, 0xFF, 8, 0xF3, 1]);
        hand.give(9, &[0, 2, 8, 0x67, 1]);
    }
    let answers = hand.receive();
    let (acks, echoes): (Vec<_>, Vec<_>) = answers.into_iter().partition(|frame| frame[3] == 0xE7);
    assert_eq!((acks.len(), echoes.len()), (256, 128));
    assert_eq!(hand.station.inner().statistics().dropped_responses, 1000 - 256 + 2000 - 128);
    // Delivered once all the same; and there is room again.
    assert_eq!(hand.station.inner().readable(2), 1);
    hand.give(9, &[0, 4, 8, 0xF3, 1]);
    assert_eq!(hand.receive(), [[0, 8, 5, 0xF3, 1]]);
}

#[test]
fn every_sap_responds_to_the_global_sap() {
    let saps: Vec<u8> = (1..128).map(|half| half * 2).collect();
    let mut hand = DrivenStation::open(&saps, &Options::default());
    hand.give(9, &[0, GLOBAL_SAP, 8, 0xBF, 0x81, 1, 0]);
    assert_eq!(hand.receive().iter().map(|frame| frame[2] & !1).collect::<Vec<_>>(), saps);
}
