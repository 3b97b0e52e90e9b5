use std::cell::RefCell;
use std::collections::BTreeSet;

use proptest::prelude::*;
use trunkline_endpoint::Port;
use trunkline_endpoint::pair::{PEER_B, Pair};
use trunkline_units::{Seed, Span};

use super::*;
use crate::torture::{Faults, Tortured, Torturer};
use crate::wire::data::{ACK, FrameHeader, write_single_header};
use crate::wire::handshake::{Handshake, Mode, TransportParameters};
use crate::wire::{KIND_PIECE, ack};
use crate::{Command, Config, Congestion, ConnectionId, Node, Options, ReceiveStatus};

/// The inputs of a key, and a nonce under it.
type NonceUse = ((u64, u64), bool, u64, [u8; 12]);

thread_local! {
    static USED_NONCES: RefCell<Vec<NonceUse>> = const { RefCell::new(Vec::new()) };
}

/// Records key inputs and nonce of a sealed frame.
pub(super) fn record_nonce(ids: (u64, u64), direction: Direction, generation: u64, nonce: &[u8; 12]) {
    USED_NONCES
        .with_borrow_mut(|used| used.push((ids, direction == Direction::ToServer, generation, *nonce)));
}

fn ends(secret: u8) -> [Box<Cipher>; 2] {
    let key = PresharedKey::new(&[secret; 32]);
    [Direction::ToServer, Direction::ToClient].map(|direction| Cipher::new(&key, (1, 2), direction))
}

fn sealed(cipher: &mut Cipher, clear: usize, acknowledged: u64, body: &[u8]) -> Vec<u8> {
    let mut frame = [body, &[0; TRAILER_BYTES]].concat();
    cipher.seal(clear, acknowledged, &mut frame);
    frame
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|digit| !digit.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// The frames of docs/wire.md, section "Encryption", which a second program checks as well.
#[test]
fn frames_match_the_documented_vectors() {
    let text = include_str!("../../../../../docs/wire.md");
    let (_, text) = text.split_once("```sealed\n").expect("test vectors in docs/wire.md");
    let (text, _) = text.split_once("```").expect("end of the test vectors");
    let vectors: std::collections::BTreeMap<&str, Vec<u8>> = text
        .lines()
        .filter_map(|line| line.split('#').next()?.split_once('='))
        .map(|(name, value)| (name.trim(), unhex(value)))
        .collect();
    let id = |name: &str| u64::from_be_bytes(vectors[name][..].try_into().unwrap());
    let ids = (id("client"), id("server"));
    let key = PresharedKey::new(vectors["secret"][..].try_into().unwrap());

    let parameters = TransportParameters {
        mode: Mode::Selective,
        check: Check::Aead,
        window: 16,
        frame: 1472,
        ack_delay_us: 200,
        ack_every: 3,
        credit: 1 << 24,
        channel_credit: 1 << 22,
        parts: false,
        fec: None,
    };
    let mut frame = [0; 200];
    let open = Handshake::Open { client_id: ids.0, parameters, cookie: [0; 16] };
    let opened = Handshake::Opened { client_id: ids.0, server_id: ids.1, parameters };
    for (name, handshake) in [("open", open), ("opened", opened)] {
        let length = handshake.write(&mut frame);
        key.prove(&mut frame[..length]);
        assert_eq!(frame[..length], vectors[name], "{name}");
        assert!(key.proves(&frame[..length]));
    }

    let (mut out, mut back) =
        (Cipher::new(&key, ids, Direction::ToServer), Cipher::new(&key, ids, Direction::ToClient));
    let clear = FrameHeader::write(KIND_PIECE, 3, 0, None, &mut frame);
    write_single_header(7, 0, &mut frame[clear..]);
    frame[clear + 4..][..11].copy_from_slice(b"a test text");
    assert_eq!(sealed(&mut out, clear, 0, &frame[..clear + 15]), vectors["piece"]);
    let length = ack::write(1, 0, 9, 0, None, [].into_iter(), &mut frame);
    assert_eq!(sealed(&mut back, length, 0, &frame[..length]), vectors["ack"]);
    // Later: the second key, and an acknowledged number that has wrapped around three times.
    out.set_first_count((1 << 24) + 5);
    let acknowledged = (3 << 24) + 2;
    let clear = FrameHeader::write(KIND_PIECE, 3 | ACK, 4, Some(acknowledged), &mut frame);
    write_single_header(7, 1, &mut frame[clear..]);
    assert_eq!(sealed(&mut out, clear, epoch(acknowledged), &frame[..clear + 4]), vectors["later"]);
}

#[test]
fn sealed_frames_open_only_at_the_peer() {
    let [mut a, mut b] = ends(1);
    for length in [0, 1, 15, 16, 17, 1453, 65_000] {
        let body: Vec<u8> = (0..4 + length).map(|at| at as u8).collect();
        let frame = sealed(&mut a, 4, 0, &body);
        assert_eq!(frame[..4], body[..4], "the header is readable");
        assert!(length < 16 || frame[4..4 + length] != body[4..], "and nothing else");
        assert_eq!(ends(2)[1].decrypt(4, 0, &frame), Err(OpenError::Damaged), "another secret");
        assert_eq!(a.decrypt(4, 0, &frame), Err(OpenError::Damaged), "the other direction");
        assert_eq!(b.decrypt(4, 1, &frame), Err(OpenError::Damaged), "another epoch is acknowledged");
        assert_eq!(b.decrypt(4, 0, &frame).as_ref(), Ok(&body));
        assert_eq!(b.decrypt(4, 0, &frame), Err(OpenError::Replayed));
    }
    let key = PresharedKey::new(&[1; 32]);
    let frame = sealed(&mut ends(1)[0], 4, 0, b"anything");
    for ids in [(1, 3), (3, 2), (2, 1)] {
        assert_eq!(
            Cipher::new(&key, ids, Direction::ToClient).decrypt(4, 0, &frame),
            Err(OpenError::Damaged)
        );
    }
}

#[test]
fn damaged_and_truncated_frames_are_rejected() {
    let [mut a, mut b] = ends(1);
    let body: Vec<u8> = (0..40).collect();
    let frame = sealed(&mut a, 7, 0, &body);
    for bit in 0..frame.len() * 8 {
        let mut damaged = frame.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(b.decrypt(7, 0, &damaged), Err(OpenError::Damaged), "bit {bit}");
        assert_eq!(b.open(0, &damaged), Err(OpenError::Damaged), "bit {bit}");
    }
    for length in 0..frame.len() {
        assert_eq!(b.decrypt(7, 0, &frame[..length]), Err(OpenError::Damaged), "{length}");
        assert_eq!(b.open(0, &frame[..length]), Err(OpenError::Damaged), "{length}");
    }
    assert_eq!(b.decrypt(7, 0, &frame), Ok(body));
}

#[test]
fn proof_covers_the_frame_and_the_secret() {
    let key = PresharedKey::new(&[1; 32]);
    let mut frame: Vec<u8> = (0..84).collect();
    key.prove(&mut frame);
    assert!(key.proves(&frame) && !PresharedKey::new(&[2; 32]).proves(&frame));
    for bit in 0..80 * 8 {
        frame[bit / 8] ^= 1 << (bit % 8);
        assert!(!key.proves(&frame), "bit {bit}");
        frame[bit / 8] ^= 1 << (bit % 8);
    }
    assert!((0..84).all(|length| !key.proves(&frame[..length])));
}

#[test]
fn keys_rotate_and_late_frames_still_open() {
    let [mut a, mut b] = ends(1);
    let first = (1 << 24) - 50;
    a.set_first_count(first);
    b.set_first_count(first);
    let mut frames: Vec<_> = (0..100).map(|_| sealed(&mut a, 4, 0, b"anything")).collect();
    let keys: BTreeSet<_> = USED_NONCES.with_borrow(|used| used.iter().map(|used| used.2).collect());
    assert_eq!(keys, [0, 1].into(), "two generations");
    let mut draw = Seed(3).stream("order");
    while !frames.is_empty() {
        let frame = frames.swap_remove(draw.below(frames.len() as u64) as usize);
        assert_eq!(b.decrypt(4, 0, &frame).as_deref(), Ok(&b"anything"[..]));
    }
}

#[test]
fn forged_counts_derive_no_extra_keys() {
    let [_, mut b] = ends(1);
    for (next, mut neighbours) in [(5u64 << 24, [4, 5]), ((5 << 24) + (1 << 23) + 1, [5, 6])] {
        b.set_first_count(next);
        let mut forged = vec![0; 4 + TRAILER_BYTES];
        for low in (0..1 << 24).step_by(65_537) {
            put24(&mut forged[4..], low);
            assert_eq!(b.open(0, &forged), Err(OpenError::Damaged));
        }
        let mut known = b.receiving.each_ref().map(|known| known.0);
        known.sort();
        neighbours.sort();
        assert_eq!(known, neighbours);
    }
}

proptest! {
    #[test]
    fn each_count_is_accepted_once(from in 0u64..1 << 30, steps in prop::collection::vec((0u64..40_000, 0u64..20_000), 0..300)) {
        let mut seen = ReplayWindow::new();
        seen.next = from;
        let (mut model, mut last) = (BTreeSet::new(), from);
        for (ahead, behind) in steps {
            let count = (last + ahead % 300 * (ahead / 20_000 * 100 + 1)).saturating_sub(behind).max(from);
            let next = model.last().map_or(from, |last| last + 1);
            let late = next > count && next - 1 - count > WINDOW_COUNTS;
            prop_assert_eq!(seen.record(count), !late && !model.contains(&count));
            if !late {
                model.insert(count);
            }
            last = last.max(count);
        }
    }
}

fn node(options: &Options, place: &str, seed: u64) -> Node {
    let random = Seed(seed).stream(place);
    Node::new(Config { port: Port(0), accept: Some(options.clone()), max_connections: 4, random })
}

/// Exchanges messages over a path with loss, duplication and delay; returns the number of retransmitted frames.
fn exchange_messages(seed: u64, key: &PresharedKey) -> u64 {
    let congestion = Congestion::Fixed;
    let options =
        Options { key: Some(key.clone()), window: 30, frame: 200, congestion, ..Options::default() };
    let faults = Faults {
        drop: 0.2,
        damage: 0.05,
        duplicate: 0.1,
        reorder: 0.2,
        late: Span::from_ms(3),
        ..Faults::default()
    };
    let end = |place: &str| {
        let mut node = node(&options, place, seed);
        node.set_first_numbers((1 << 24) - 40, 0);
        Tortured::new(node, Torturer::new(faults, Seed(seed).stream(&format!("path {place}"))))
    };
    let mut pair = Pair::new(end("a"), end("b"), Seed(seed));
    let mut ids = [ConnectionId::default(); 2];
    pair.command_a(Command::Open { peer: PEER_B, options: &options, id: &mut ids[0] }).unwrap();
    let (mut received, mut sent) = (0, 0);
    for _ in 0..100_000 {
        pair.run(Span::from_ms(1));
        for event in pair.take_events_b() {
            ids[1] = event.1.id;
        }
        let message = [7; 1000];
        if sent < 50 && pair.command_a(Command::Send { id: ids[0], channel: 0, bytes: &message }).is_ok() {
            sent += 1;
            let _ = pair.command_b(Command::Send { id: ids[1], channel: 0, bytes: &message[..100] });
        }
        let (mut into, mut taken) = (crate::Buffer::new(), ReceiveStatus::Empty);
        let take = Command::Receive { id: ids[1], channel: 0, buffer: &mut into, status: &mut taken };
        if pair.command_b(take).is_ok() && taken == ReceiveStatus::Complete {
            assert_eq!(*into, message);
            received += 1;
        }
        if received == 50 {
            let resent =
                |node: &Node, id| node.statistics(id).map_or(0, |statistics| statistics.frames_resent);
            return resent(pair.a().inner(), ids[0]) + resent(pair.b().inner(), ids[1]);
        }
    }
    panic!("seed {seed}: {received} of 50 messages");
}

#[test]
fn no_nonce_is_reused_under_a_key() {
    let key = PresharedKey::new(&[9; 32]);
    USED_NONCES.take();
    let resent: u64 = (0..20).map(|seed| exchange_messages(seed, &key)).sum();
    assert!(resent > 500, "{resent}");
    let used = USED_NONCES.take();
    let keys: BTreeSet<_> = used.iter().map(|(ids, out, generation, _)| (ids, out, generation)).collect();
    assert_eq!(keys.len(), 20 * 4, "two ends, two generations");
    let all = used.len();
    assert!(all > 5000, "{all}");
    assert_eq!(used.into_iter().collect::<BTreeSet<_>>().len(), all);
}
