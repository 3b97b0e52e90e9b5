//! Arbitrary frames to a node with an established connection: raw, and with a valid check as if sent by the peer, single
//! and in batches. The node must not panic or violate the contract of an endpoint, and stores no more than its credit.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run arq_frames fuzz/corpus/arq_frames fuzz/seeds/arq_frames`

#![no_main]

#[allow(dead_code, reason = "others need the rest")]
#[path = "../../crates/arq/tests/support/manual_pair.rs"]
mod manual_pair;

use libfuzzer_sys::fuzz_target;
use manual_pair::{ADDRESSES, HOP, ManualPair};
use trunkline_arq::wire::aead::Cipher;
use trunkline_arq::wire::check::{Check, ChecksumKey, Direction};
use trunkline_arq::wire::data::{ACK, HEADER, PIGGYBACK};
use trunkline_arq::wire::handshake::Handshake;
use trunkline_arq::{Buffer, Command, Fec, Mode, Node, Options, PresharedKey, ReceiveStatus};
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
    let encode_from = (more & 32 != 0).then_some(u32::from(more >> 6));
    let (mut hand, ids) =
        open(&options, |node| encode_from.into_iter().for_each(|from| node.enable_pre_encoding(from)));
    let mut seals = [Direction::ToClient, Direction::ToServer].map(|direction| Seal {
        check: options.check,
        secret: ChecksumKey::new(ids.0, ids.1).secret(direction, 0),
        cipher: options.key.as_ref().map(|key| Cipher::new(key, ids, direction)),
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
            // A batch of frames of equal length.
            16 | 17 => {
                let length = 1 + piece.first().map_or(0, |first| usize::from(first % 64));
                let sealed: Vec<Vec<u8>> =
                    piece.chunks(length).take(MAX_SEGMENTS).map(|piece| seals[end].seal(piece)).collect();
                let segment = Segment::of(sealed.first().map_or(0, Vec::len), sealed.concat().len());
                frame(&mut hand, end, &sealed.concat(), segment);
            }
            18 => {
                let (now, mut room) = (hand.now, vec![0; MAX_BATCH]);
                let _ =
                    hand.nodes[end].inner_mut(now).send_message(now, id, (*much).into(), piece, &mut room);
            }
            19 => {
                let (now, bytes, mut into) = (hand.now, seals[end].seal(piece), Buffer::new());
                let _ = hand.nodes[end].inner_mut(now).receive_message(now, &bytes, id, 0, &mut into);
            }
            10 => {
                let output = hand.wake(end);
                hand.give(1 - end, &output);
            }
            11 => hand.pass(Span::from_us(1 << (much % 32))),
            12 => command(&mut hand, end, Command::Send { id, channel: (*much).into(), bytes: piece }),
            13 => {
                let (mut buffer, mut status) = (Buffer::new(), ReceiveStatus::Empty);
                for channel in CHANNELS {
                    command(
                        &mut hand,
                        end,
                        Command::Receive { id, channel, buffer: &mut buffer, status: &mut status },
                    );
                }
            }
            14 => {
                let (mut bytes, mut read) = ([0; 100], 0);
                let buffer = &mut bytes[..usize::from(much % 100)];
                command(&mut hand, end, Command::Read { id, channel: 0, buffer, read: &mut read });
            }
            _ => match much {
                0 => command(&mut hand, end, Command::Close { id }),
                1 => command(&mut hand, end, Command::Reset { id }),
                2 => command(&mut hand, end, Command::Forget { id }),
                // Output of the real peer.
                _ => {
                    let output = hand.outputs(1 - end);
                    hand.give(end, &output);
                }
            },
        }
        hand.outputs(0);
        hand.outputs(1);
        for end in 0..2 {
            let node = hand.nodes[end].inner();
            let unread: u64 = (0..=255)
                .chain(CHANNELS[4..].iter().copied())
                .map(|c| node.unread_bytes(hand.ids[end], c))
                .sum();
            assert!(unread <= CREDIT.into(), "{unread} bytes are unread");
            assert!(node.connection_count() <= 2);
        }
    }
});

/// Seals frames like an end of the connection.
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
                // Acknowledgements are part of the unencrypted header.
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

/// Opens a connection; returns it with the connection numbers in its opened frame.
fn open(options: &Options, prepare: impl Fn(&mut Node)) -> (ManualPair, (u64, u64)) {
    let mut hand = ManualPair::prepared(options, options, prepare);
    let mut ids = None;
    let mut output = [hand.outputs(0), hand.outputs(1)];
    while output.iter().any(|frames| !frames.is_empty()) {
        for frame in output.iter().flatten() {
            if let Some(Handshake::Opened { client_id, server_id, .. }) = Handshake::read(frame) {
                ids = Some((client_id, server_id));
            }
        }
        hand.pass(HOP);
        let [a, b] = output;
        output = [hand.give(0, &b), hand.give(1, &a)];
    }
    (hand, ids.expect("the connection opens"))
}

fn command(hand: &mut ManualPair, end: usize, command: Command<'_>) {
    let _ = hand.nodes[end].handle(hand.now, Input::Command(command));
}

fn frame(hand: &mut ManualPair, end: usize, bytes: &[u8], segment: Option<Segment>) {
    let input = Input::Frame { port: Port(0), peer: ADDRESSES[1 - end], bytes, segment };
    hand.nodes[end].handle(hand.now, input).expect("a frame is never refused");
}
