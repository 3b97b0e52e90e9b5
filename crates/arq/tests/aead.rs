//! Encryption: who has no key, or another, gets no connection and learns nothing; who repeats or changes frames achieves
//! nothing.

use crate::support::manual_pair::{ADDRESSES, HOP, ManualPair};
use trunkline_arq::wire::handshake::{self, Handshake};
use trunkline_arq::{
    Check, CloseReason, Command, Config, Congestion, ConnectionId, EventKind, Fec, Mode, Node, Options,
    PresharedKey, Refusal,
};
use trunkline_endpoint::laws::Checked;
use trunkline_endpoint::{Endpoint, Input, Port};
use trunkline_units::{Instant, Seed, Span};

/// Bytes of count and tag.
const TRAILER: usize = 19;
const PLAIN: &[u8] = b"a secret message that an observer must not read";

fn with_key(secret: u8) -> Options {
    let key = Some(PresharedKey::new(&[secret; 32]));
    Options { key, congestion: Congestion::Fixed, ..Options::default() }
}

/// Why the client's connection did not come to stand, if the server never heard of one.
fn ends_as(client: &Options, server: &Options) -> CloseReason {
    let mut hand = ManualPair::between(client, server);
    hand.exchange();
    let [(0, EventKind::Closed { reason: end })] = hand.events[..] else { panic!("{:?}", hand.events) };
    assert_eq!(hand.nodes[1].inner().connection_count(), 0);
    end
}

#[test]
fn only_the_same_key_opens() {
    assert_eq!(ends_as(&with_key(1), &with_key(2)), CloseReason::RefusedKey);
    assert_eq!(ends_as(&with_key(1), &Options::default()), CloseReason::RefusedParameters);
    assert_eq!(ends_as(&Options::default(), &with_key(1)), CloseReason::RefusedParameters);
    // A listener that requires encryption but has no key.
    assert_eq!(
        ends_as(&Options::default(), &Options { check: Check::Aead, ..Options::default() }),
        CloseReason::RefusedParameters
    );
    assert_eq!(
        ends_as(&with_key(1), &Options { check: Check::Aead, ..Options::default() }),
        CloseReason::RefusedParameters
    );
    let mut hand = ManualPair::open(&with_key(1));
    hand.send(0, PLAIN);
    hand.exchange();
    assert_eq!(hand.take(1), [PLAIN]);
}

#[test]
fn encryption_without_a_key_is_refused() {
    let random = Seed(1).stream("a");
    let mut node = Node::new(Config { port: Port(0), accept: None, max_connections: 2, random });
    let options = Options { check: Check::Aead, ..Options::default() };
    let open = Command::Open { peer: ADDRESSES[1], options: &options, id: &mut ConnectionId::default() };
    assert_eq!(node.handle(Instant::ZERO, Input::Command(open)), Err(Refusal::NoKey));
}

#[test]
fn what_is_sent_cannot_be_read() {
    let mut hand = ManualPair::open(&with_key(77));
    for message in [PLAIN, b"short", &[0x5A; 5000]] {
        hand.send(0, message);
        let frames = hand.outputs(0);
        for (frame, piece) in frames.iter().zip(message.chunks(1400)) {
            let word = &piece[..5];
            assert!(!frame.windows(5).any(|bytes| bytes == word), "{frame:?}");
        }
        hand.pass(HOP);
        let answers = hand.give(1, &frames);
        hand.give(0, &answers);
        assert_eq!(hand.take(1), [message]);
    }
    let debug = format!("{:?} {:?}", with_key(77), hand.nodes[0].inner());
    assert!(debug.contains("PresharedKey(..)") && !debug.contains("77, 77"));
}

#[test]
fn repair_frames_are_encrypted_and_rebuild_what_is_lost() {
    // That of a single frame holds what the frame does.
    let mut hand = ManualPair::open(&Options { fec: Some(Fec { frames: 1, repairs: 1 }), ..with_key(1) });
    hand.send(0, PLAIN);
    let [_, repair] = &hand.outputs(0)[..] else { panic!("a frame, and one to make it good") };
    let (head, rest) = repair.split_at(5);
    assert_eq!(head, [0xA0, 0, 0, 0, 1]);
    // A pack of one.
    assert_eq!(rest.len(), 3 + 4 + 1 + PLAIN.len() + TRAILER);
    assert!(!PLAIN.windows(5).any(|word| rest.windows(5).any(|bytes| bytes == word)));
    hand.pass(HOP);
    for at in 1..repair.len() {
        let mut damaged = repair.clone();
        damaged[at] ^= 1;
        assert!(hand.give(1, &[damaged]).is_empty(), "no user asks for it");
        assert_eq!(hand.statistics(1).bad_checksums, at as u64);
    }
    hand.give(1, std::slice::from_ref(repair));
    assert_eq!((hand.take(1), hand.statistics(1).frames_rebuilt), (vec![PLAIN.to_vec()], 1));
    hand.give(1, std::slice::from_ref(repair));
    let counts = hand.statistics(1);
    assert_eq!((counts.repairs_received, counts.duplicates), (1, 1), "nor is it taken twice");
}

#[test]
fn damaged_and_cut_frames_are_not_taken() {
    let mut hand = ManualPair::open(&with_key(1));
    hand.send(0, PLAIN);
    let [frame] = &hand.outputs(0)[..] else { panic!("one frame") };
    hand.pass(HOP);
    let mut number = 0;
    for bit in 8..frame.len() * 8 {
        let mut damaged = frame.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        hand.give(1, &[damaged]);
        number += 1;
    }
    for length in 0..frame.len() {
        hand.give(1, &[frame[..length].to_vec()]);
        number += 1;
    }
    assert_eq!((hand.statistics(1).bad_checksums, hand.statistics(1).frames_received), (number, 0));
    hand.give(1, std::slice::from_ref(frame));
    assert_eq!(hand.take(1), [PLAIN]);
}

#[test]
fn frames_that_come_again_are_counted_and_do_nothing() {
    for mode in Mode::ALL {
        let keep_alive = Span::from_s(1);
        let mut hand = ManualPair::open(&Options { mode, ack_every: 1, keep_alive, ..with_key(1) });
        hand.send(0, PLAIN);
        let mut all = [hand.outputs(0), vec![]];
        hand.pass(HOP);
        all[1] = hand.give(1, &all[0]);
        hand.give(0, &all[1]);
        // A question and its answer.
        for _ in 0..5 {
            let said = hand.wake(0);
            if said.is_empty() {
                continue;
            }
            hand.pass(HOP);
            let answer = hand.give(1, &said);
            hand.give(0, &answer);
            all[0].extend(said);
            all[1].extend(answer);
        }
        assert!(all[0].iter().any(|frame| frame[0] == handshake::PROBE), "{mode:?}");
        let (before, events) = ([0, 1].map(|end| hand.statistics(end)), hand.events.len());
        for round in 1..4 {
            for end in 0..2 {
                assert!(hand.give(end, &all[1 - end]).is_empty(), "{mode:?}: no answer");
                let (now, before) = (hand.statistics(end), before[end]);
                assert_eq!(now.duplicates - before.duplicates, round * all[1 - end].len() as u64, "{mode:?}");
                assert_eq!((now.bad_checksums, now.malformed), (before.bad_checksums, before.malformed));
            }
        }
        assert_eq!(hand.take(1), [PLAIN]);
        assert_eq!(hand.events.len(), events);
    }
}

/// Carries everything to and fro, as [`Hand::exchange`] does, and keeps what each end said.
fn record(hand: &mut ManualPair, all: &mut [Vec<Vec<u8>>; 2]) {
    let mut said = [hand.outputs(0), hand.outputs(1)];
    while said.iter().any(|said| !said.is_empty()) {
        (0..2).for_each(|end| all[end].extend(said[end].iter().cloned()));
        hand.pass(HOP);
        let [a, b] = said;
        said = [hand.give(0, &b), hand.give(1, &a)];
    }
}

/// Two ends that had a connection and have forgotten it, and all that they said to each other, by who said it.
fn recorded(options: &Options) -> (ManualPair, [Vec<Vec<u8>>; 2]) {
    let (mut hand, mut all) = (ManualPair::new(options), [vec![], vec![]]);
    record(&mut hand, &mut all);
    for end in 0..2 {
        hand.send(end, PLAIN);
        let id = hand.ids[end];
        hand.command(end, Command::Close { id });
    }
    record(&mut hand, &mut all);
    assert_eq!([hand.take(0), hand.take(1)], [[PLAIN]; 2]);
    for end in 0..2 {
        let id = hand.ids[end];
        hand.command(end, Command::Forget { id });
        while hand.nodes[end].inner().connection_count() > 0 {
            hand.wake(end);
        }
    }
    hand.events.clear();
    (hand, all)
}

#[test]
fn a_recorded_connection_is_no_connection_later() {
    let options = with_key(1);
    let (mut hand, all) = recorded(&options);
    assert!(all.iter().all(|said| said.len() > 3), "{all:?}");
    // A server with a valid cookie creates a connection, which the attacker cannot use.
    hand.give(1, &all[0]);
    assert_eq!(hand.events, [(1, EventKind::Opened { peer: ADDRESSES[0] })]);
    assert_eq!((hand.statistics(1).frames_received, hand.take(1).len()), (0, 0));
    // The cookies of one that was restarted are others.
    let random = Seed(2).stream("another life");
    let config = Config { port: Port(0), accept: Some(options.clone()), max_connections: 2, random };
    hand.nodes[1] = Checked::new(Node::new(config));
    hand.events.clear();
    hand.give(1, &all[0]);
    assert_eq!((hand.nodes[1].inner().connection_count(), &hand.events[..]), (0, &[][..]));
    // The same frames between two ends that have a new connection.
    let open = Command::Open { peer: ADDRESSES[1], options: &options, id: &mut ConnectionId::default() };
    hand.command(0, open);
    hand.exchange();
    hand.events.clear();
    for end in 0..2 {
        hand.give(end, &all[1 - end]);
        assert_eq!(hand.statistics(end).frames_received, 0);
        assert!(hand.take(end).is_empty());
    }
    assert_eq!(hand.events, []);
    hand.send(0, PLAIN);
    hand.exchange();
    assert_eq!(hand.take(1), [PLAIN]);
}

#[test]
fn an_observer_without_the_key_cannot_end_a_connection() {
    let mut hand = ManualPair::open(&with_key(1));
    hand.send(0, PLAIN);
    let [frame] = &hand.outputs(0)[..] else { panic!("one frame") };
    let mut forged = vec![0; 200];
    let fingerprint = handshake::fingerprint(frame).expect("it is long enough");
    let length = Handshake::Unknown { fingerprint }.write(&mut forged);
    hand.give(0, &[forged[..length].to_vec()]);
    // A reset, as one would look.
    let mut reset = vec![0; 2 + TRAILER];
    reset[0] = handshake::RESET;
    hand.give(0, &[reset.clone()]);
    hand.give(1, &[reset]);
    assert_eq!(hand.events, []);
    hand.pass(HOP);
    hand.give(1, std::slice::from_ref(frame));
    assert_eq!(hand.take(1), [PLAIN]);
}

#[test]
fn an_attacker_cannot_downgrade_a_client() {
    let mut hand = ManualPair::new(&with_key(1));
    let [question] = &hand.outputs(0)[..] else { panic!("one question") };
    let Some(Handshake::Open { client_id, parameters, .. }) = Handshake::read(question) else {
        panic!("it opens")
    };
    let other = PresharedKey::new(&[2; 32]);
    for check in [Check::None, Check::Crc32c, Check::Aead] {
        for proof in [None, Some(&other)] {
            let parameters = handshake::TransportParameters { check, ..parameters };
            let mut answer = vec![0; 200];
            let length = Handshake::Opened { client_id, server_id: 5, parameters }.write(&mut answer);
            answer.truncate(length);
            if let Some(key) = proof.filter(|_| check == Check::Aead) {
                key.prove(&mut answer);
            }
            hand.give(0, &[answer]);
        }
    }
    assert_eq!(hand.events, [], "it keeps asking");
    let answers = hand.give(1, std::slice::from_ref(question));
    let said = hand.give(0, &answers);
    let opened = hand.give(1, &said);
    hand.give(0, &opened);
    let opened =
        |end| hand.events.iter().any(|(who, news)| *who == end && matches!(news, EventKind::Opened { .. }));
    assert!(opened(0) && opened(1));
}

#[test]
fn an_opening_that_was_changed_on_its_way_is_refused() {
    let mut hand = ManualPair::new(&with_key(1));
    let first = hand.outputs(0);
    let cookie = hand.give(1, &first);
    let [mut question] = <[Vec<u8>; 1]>::try_from(hand.give(0, &cookie)).expect("one question");
    let whole = question.clone();
    for byte in 10..32 {
        // Mode and check make another frame of it; of the rest any bit.
        if byte >= 12 {
            question[byte] ^= 1;
            Check::Crc32c.seal(0, &mut question);
            let [answer] = &hand.give(1, std::slice::from_ref(&question))[..] else { panic!("an answer") };
            let refused = matches!(
                Handshake::read(answer),
                Some(Handshake::Refused { reason: handshake::RefusalReason::Key, .. })
            );
            assert!(refused, "byte {byte}: {answer:?}");
            question = whole.clone();
        }
    }
    assert_eq!(hand.nodes[1].inner().connection_count(), 0);
    hand.give(1, &[whole]);
    assert_eq!(hand.nodes[1].inner().connection_count(), 1);
}

/// Both ends open at once, and what one says is lost. It asked for a connection with a key, and gets none without, though
/// it accepts such.
#[test]
fn an_opening_that_crosses_another_is_no_way_around_the_key() {
    for seed in 0..20 {
        let open = Options::default();
        let mut hand = ManualPair::between(&with_key(1), &open);
        let random = Seed(seed).stream("c");
        let node =
            Node::new(Config { port: Port(0), accept: Some(open.clone()), max_connections: 2, random });
        hand.nodes[0] = Checked::new(node);
        for (end, options) in [(0, with_key(1)), (1, open)] {
            let (peer, mut id) = (ADDRESSES[1 - end], ConnectionId::default());
            hand.command(end, Command::Open { peer, options: &options, id: &mut id });
        }
        hand.outputs(0);
        let mut said = hand.outputs(1);
        for _ in 0..3 {
            let answers = hand.give(0, &said);
            said = hand.give(1, &answers);
        }
        let opened = hand.events.iter().any(|(_, news)| matches!(news, EventKind::Opened { .. }));
        assert!(!opened, "seed {seed}: {:?}", hand.events);
    }
}

#[test]
fn an_encrypted_connection_is_not_replaced_by_one_without_a_key() {
    let mut hand = ManualPair::new(&with_key(1));
    let random = Seed(3).stream("c");
    let node =
        Node::new(Config { port: Port(0), accept: Some(Options::default()), max_connections: 2, random });
    hand.nodes[0] = Checked::new(node);
    let options = with_key(1);
    let open = Command::Open { peer: ADDRESSES[1], options: &options, id: &mut ConnectionId::default() };
    hand.command(0, open);
    hand.exchange();
    hand.events.clear();
    // An attacker at the peer's address, who also receives the answers.
    let options = Options::default();
    let mut other = ManualPair::between(&options, &options);
    let mut said = other.outputs(0);
    for _ in 0..3 {
        let answers = hand.give(0, &said);
        said = other.give(0, &answers);
    }
    assert_eq!(hand.events, []);
    assert_eq!(other.events, [(0, EventKind::Closed { reason: CloseReason::RefusedKey })]);
    hand.send(1, PLAIN);
    hand.exchange();
    assert_eq!(hand.take(0), [PLAIN]);
}

/// Retransmitted frames have different bytes: each has its own packet number, without gaps.
#[test]
fn every_transmission_is_counted() {
    let mut hand = ManualPair::open(&with_key(1));
    let mut counts = Vec::new();
    for round in 0..50 {
        hand.send(0, PLAIN);
        let mut said = hand.outputs(0);
        if round % 3 == 0 {
            // Lost, and sent again after a while.
            said.extend(hand.wake(0));
        }
        let end = |frame: &Vec<u8>| {
            let [a, b, c] = frame[frame.len() - TRAILER..][..3] else { panic!("a count") };
            u32::from_be_bytes([0, a, b, c])
        };
        counts.extend(said.iter().map(end));
        hand.pass(HOP);
        let answers = hand.give(1, &said[said.len() - 1..]);
        counts.extend(hand.give(0, &answers).iter().map(end));
    }
    assert!(hand.statistics(0).frames_resent > 5);
    assert_eq!(counts, (0..counts.len() as u32).collect::<Vec<_>>());
}
