//! Anything as frames, to a node with a connection that stands: raw, and with a check that holds, as if by its peer; alone
//! and many in one piece. Nothing may panic, no law of an endpoint may be broken, and it never keeps more than its credit.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run arq_frames`

#![no_main]

#[allow(dead_code, reason = "others need the rest")]
#[path = "../../crates/arq/tests/support/hand.rs"]
mod hand;

use hand::{ADDRESSES, HOP, Hand};
use libfuzzer_sys::fuzz_target;
use trunkline_arq::wire::aead::Cipher;
use trunkline_arq::wire::check::{Check, Key, Way};
use trunkline_arq::wire::data::{ACK, HEADER, PIGGYBACK};
use trunkline_arq::wire::open::Greeting;
use trunkline_arq::{Buffer, Command, Fec, Mode, Node, Options, PresharedKey, Taken};
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, MAX_SEGMENTS, Port, Segment};
use trunkline_units::Span;

const CREDIT: u32 = 4096;
const CHANNELS: [u16; 6] = [0, 1, 2, 255, 256, 65_534];

fuzz_target!(|bytes: &[u8]| {
    let [kind, more, rest @ ..] = bytes else { return };
    let mode = match (kind & 1, more & 1) {
        (0, _) => Mode::Selective,
        (_, 0) => Mode::GoBackN,
        _ => Mode::StopAndWait,
    };
    let key = PresharedKey::new(&[7; 32]);
    let options = Options {
        mode,
        check: [Check::Crc32c, Check::Crc64, Check::None, Check::Folded][usize::from(more >> 1 & 3)],
        key: (more & 8 != 0).then(|| key.clone()),
        probe_up_to: (more & 16 != 0).then_some(1400),
        frame: 512,
        window: 1 + u16::from(kind >> 4),
        ack_every: 1 + u16::from(kind >> 2 & 3),
        credit: CREDIT,
        channel_credit: CREDIT / 2,
        send_buffer: 2000,
        fec: (kind & 2 != 0).then_some(Fec { frames: 4, repairs: 2 }),
        ..Options::default()
    };
    let lays_from = (more & 32 != 0).then_some(u32::from(more >> 6));
    let (mut hand, ids) = open(&options, |node| lays_from.into_iter().for_each(|from| node.lay_frames(from)));
    let mut seals = [Way::Back, Way::Out].map(|way| Seal {
        check: options.check,
        secret: Key::of(ids.0, ids.1).secret(way, 0),
        cipher: options.key.as_ref().map(|key| Cipher::new(key, ids, way)),
    });
    let mut rest = rest;
    // A byte says what happens, the next how much of it.
    while let [what, much, more @ ..] = rest {
        let (piece, left) = more.split_at(usize::from(*much).min(more.len()));
        rest = left;
        let end = usize::from(what >> 7);
        let id = hand.ids[end];
        match what % 20 {
            0..=6 => {
                let bytes = seals[end].seal(piece);
                frame(&mut hand, end, &bytes, None);
            }
            7 | 8 => {
                let bytes = Seal { check: Check::Crc32c, secret: 0, cipher: None }.seal(piece);
                frame(&mut hand, end, &bytes, None);
            }
            9 => frame(&mut hand, end, piece, None),
            // Frames of one length in one piece.
            16 | 17 => {
                let length = 1 + piece.first().map_or(0, |first| usize::from(first % 64));
                let sealed: Vec<Vec<u8>> =
                    piece.chunks(length).take(MAX_SEGMENTS).map(|piece| seals[end].seal(piece)).collect();
                let segment = Segment::of(sealed.first().map_or(0, Vec::len), sealed.concat().len());
                frame(&mut hand, end, &sealed.concat(), segment);
            }
            18 => {
                let (now, mut room) = (hand.now, vec![0; MAX_BATCH]);
                let _ = hand.nodes[end].besides(now).send_at_once(now, id, (*much).into(), piece, &mut room);
            }
            19 => {
                let (now, bytes, mut into) = (hand.now, seals[end].seal(piece), Buffer::new());
                let _ = hand.nodes[end].besides(now).take_at_once(now, &bytes, id, 0, &mut into);
            }
            10 => {
                let said = hand.wake(end);
                hand.give(1 - end, &said);
            }
            11 => hand.pass(Span::from_us(1 << (much % 32))),
            12 => command(&mut hand, end, Command::Send { id, channel: (*much).into(), bytes: piece }),
            13 => {
                let (mut into, mut taken) = (Buffer::new(), Taken::Nothing);
                for channel in CHANNELS {
                    command(
                        &mut hand,
                        end,
                        Command::Take { id, channel, into: &mut into, taken: &mut taken },
                    );
                }
            }
            14 => {
                let (mut into, mut read) = ([0; 100], 0);
                let into = &mut into[..usize::from(much % 100)];
                command(&mut hand, end, Command::Read { id, channel: 0, into, read: &mut read });
            }
            _ => match much {
                0 => command(&mut hand, end, Command::Close { id }),
                1 => command(&mut hand, end, Command::Reset { id }),
                2 => command(&mut hand, end, Command::Forget { id }),
                // What the real peer says.
                _ => {
                    let said = hand.hear(1 - end);
                    hand.give(end, &said);
                }
            },
        }
        hand.hear(0);
        hand.hear(1);
        for end in 0..2 {
            let node = hand.nodes[end].inner();
            let held: u64 =
                (0..=255).chain(CHANNELS[4..].iter().copied()).map(|c| node.held(hand.ids[end], c)).sum();
            assert!(held <= CREDIT.into(), "{held} bytes are held");
            assert!(node.connections() <= 2);
        }
    }
});

/// What makes frames those of an end.
struct Seal {
    check: Check,
    secret: u64,
    cipher: Option<Box<Cipher>>,
}

impl Seal {
    fn seal(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut bytes = piece.to_vec();
        match &mut self.cipher {
            Some(cipher) => {
                bytes.resize(piece.len() + Check::Aead.bytes(), 0);
                // Those that acknowledge say so in the open too.
                let clear = if piece.first().is_some_and(|first| first & ACK != 0) {
                    HEADER + PIGGYBACK
                } else {
                    HEADER
                };
                cipher.seal(piece.len().min(clear), 0, &mut bytes);
            }
            None => {
                bytes.resize(piece.len() + self.check.bytes(), 0);
                self.check.seal(self.secret, &mut bytes);
            }
        }
        bytes
    }
}

/// An open connection and the numbers of its ends, which are told by the frame that opened it.
fn open(options: &Options, prepare: impl Fn(&mut Node)) -> (Hand, (u64, u64)) {
    let mut hand = Hand::prepared(options, options, prepare);
    let mut ids = None;
    let mut said = [hand.hear(0), hand.hear(1)];
    while said.iter().any(|said| !said.is_empty()) {
        for frame in said.iter().flatten() {
            if let Some(Greeting::Opened { client, server, .. }) = Greeting::read(frame) {
                ids = Some((client, server));
            }
        }
        hand.pass(HOP);
        let [a, b] = said;
        said = [hand.give(0, &b), hand.give(1, &a)];
    }
    (hand, ids.expect("it opens"))
}

fn command(hand: &mut Hand, end: usize, command: Command<'_>) {
    let _ = hand.nodes[end].handle(hand.now, Input::Command(command));
}

fn frame(hand: &mut Hand, end: usize, bytes: &[u8], segment: Option<Segment>) {
    let input = Input::Frame { port: Port(0), peer: ADDRESSES[1 - end], bytes, segment };
    hand.nodes[end].handle(hand.now, input).expect("a frame is never refused");
}
