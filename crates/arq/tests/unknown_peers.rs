//! Strangers open nothing and cost nothing; who opens a connection is not misled by them.

use crate::support::forge;
use crate::support::manual_pair::{ADDRESSES, HOP, ManualPair};
use trunkline_arq::wire::handshake::{Handshake, OPEN, RefusalReason, TransportParameters};
use trunkline_arq::{Check, CloseReason, Command, ConnectionId, EventKind, Options};
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Writable};
use trunkline_units::{Instant, Seed, Span, Stream};

#[test]
fn forged_packets_open_nothing() {
    let mut node = forge::server(10);
    forge::flood(&mut node, Instant::ZERO, 100_000, 7, None);
    assert!(node.unknown_peers().cookies > 10_000 && node.unknown_peers().forged > 10_000);
}

#[test]
fn a_node_without_a_key_refuses_encryption() {
    let mut hand = ManualPair::new(&Options::default());
    let Some(Handshake::Open { client_id, parameters, cookie }) = Handshake::read(&hand.outputs(0)[0]) else {
        panic!("a client opens")
    };
    let (parameters, mut frame) = (TransportParameters { check: Check::Aead, ..parameters }, vec![0; 200]);
    let length = Handshake::Open { client_id, parameters, cookie }.write(&mut frame);
    frame.truncate(length);
    let [answer] = &hand.give(1, &[frame])[..] else { panic!("an answer") };
    assert_eq!(
        Handshake::read(answer),
        Some(Handshake::Refused { client_id, reason: RefusalReason::Parameters })
    );
}

#[test]
fn replies_that_cannot_be_sent_are_dropped() {
    let mut node = forge::server(10);
    let mut draw = Seed(3).stream("strangers");
    let mut buffer = vec![0; MAX_BATCH];
    for _ in 0..10_000 {
        let length = forge::forge(&mut draw, &mut buffer);
        let peer = Peer::new(&draw.bits().to_be_bytes());
        let input = Input::Frame { port: Port(0), peer, bytes: &buffer[..length], segment: None };
        node.handle(Instant::ZERO, input).expect("never refused");
    }
    let mut answers = 0;
    while let Output::Transmit(_) = node.poll(Instant::ZERO, Writable::ALL, &mut buffer) {
        answers += 1;
    }
    assert_eq!(answers, 64);
    assert!(node.unknown_peers().unanswered > 1000);
}

/// A greeting that does not belong to anything.
fn misleading(draw: &mut Stream) -> Vec<u8> {
    let client_id = draw.bits();
    let reasons =
        [RefusalReason::Full, RefusalReason::Closed, RefusalReason::Parameters, RefusalReason::Version];
    let greeting = match draw.below(3) {
        0 => Handshake::Cookie { client_id, cookie: [draw.bits() as u8; 16] },
        1 => Handshake::Refused { client_id, reason: reasons[draw.below(4) as usize] },
        _ => Handshake::Unknown { fingerprint: [draw.bits() as u8; 16] },
    };
    let mut frame = vec![0; 200];
    let length = greeting.write(&mut frame);
    frame.truncate(length);
    frame
}

/// Another server's welcome.
fn welcome(draw: &mut Stream, open: &[u8]) -> Vec<u8> {
    let Some(Handshake::Open { parameters, .. }) = Handshake::read(open) else { panic!("a client opens") };
    let mut frame = vec![0; 200];
    let length =
        Handshake::Opened { client_id: draw.bits(), server_id: draw.bits(), parameters }.write(&mut frame);
    frame.truncate(length);
    frame
}

#[test]
fn a_client_is_not_misled_by_forged_greetings() {
    let mut draw = Seed(5).stream("greetings");
    let options = Options::default();
    let mut hand = ManualPair::new(&options);
    let mut said = [hand.outputs(0), hand.outputs(1)];
    let open = said[0][0].clone();
    for round in 0..200 {
        for _ in 0..50 {
            let forged = [misleading(&mut draw), welcome(&mut draw, &open)];
            assert!(hand.give(0, &forged).is_empty(), "no packet is answered");
        }
        if round == 100 {
            hand.send(0, b"still here");
        }
        hand.pass(HOP);
        let [a, b] = said;
        said = [[hand.give(0, &b), hand.outputs(0)].concat(), hand.give(1, &a)];
    }
    let closed = hand.events.iter().any(|(_, news)| matches!(news, EventKind::Closed { .. }));
    assert!(!closed, "{:?}", hand.events);
    assert_eq!(hand.take(1), [b"still here"]);
}

/// A path may hold a frame for long. The one that opened an earlier connection must not end the one that stands.
#[test]
fn an_old_open_frame_does_not_end_a_newer_connection() {
    let options = Options::default();
    let mut hand = ManualPair::new(&options);
    let mut opens = Vec::new();
    let carry = |hand: &mut ManualPair, opens: &mut Vec<Vec<u8>>| {
        let mut said = [hand.outputs(0), hand.outputs(1)];
        while said.iter().any(|said| !said.is_empty()) {
            opens.extend(said[0].iter().filter(|frame| frame[0] == OPEN).cloned());
            hand.pass(HOP);
            let [a, b] = said;
            said = [hand.give(0, &b), hand.give(1, &a)];
        }
    };
    carry(&mut hand, &mut opens);
    let old = std::mem::take(&mut opens);
    assert_eq!(old.len(), 2, "without a cookie and with one");
    // The client gives it up without a word, and opens another.
    let id = hand.ids[0];
    hand.command(0, Command::Forget { id });
    hand.outputs(0);
    let mut id = ConnectionId::default();
    hand.command(0, Command::Open { peer: ADDRESSES[1], options: &options, id: &mut id });
    carry(&mut hand, &mut opens);
    let replaced = (1, EventKind::Closed { reason: CloseReason::Replaced });
    assert!(hand.events.contains(&replaced), "{:?}", hand.events);
    hand.events.clear();
    hand.pass(Span::from_s(1));
    for frame in old.iter().chain(&opens) {
        let answers = hand.give(1, std::slice::from_ref(frame));
        hand.give(0, &answers);
    }
    assert_eq!(hand.events, [], "nothing has happened");
    hand.send(0, b"still here");
    hand.exchange();
    assert_eq!(hand.take(1), [b"still here"]);
}
