//! Anything as frames, to a node with a connection that stands: raw, and with a check that holds, as if by its peer.
//! Nothing may panic, no law of an endpoint may be broken, and it never keeps more than its credit.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run arq_frames`

#![no_main]

#[allow(dead_code, reason = "others need the rest")]
#[path = "../../crates/arq/tests/support/hand.rs"]
mod hand;

use hand::{ADDRESSES, HOP, Hand};
use libfuzzer_sys::fuzz_target;
use trunkline_arq::wire::check::{Check, Key, Way};
use trunkline_arq::wire::open::Greeting;
use trunkline_arq::{Buffer, Command, Fec, Mode, Options, Taken};
use trunkline_endpoint::{Endpoint, Input, Port};
use trunkline_units::Span;

const CREDIT: u32 = 4096;
const CHANNELS: [u16; 6] = [0, 1, 2, 255, 256, 65_534];

fuzz_target!(|bytes: &[u8]| {
    let [kind, rest @ ..] = bytes else { return };
    let options = Options {
        mode: if kind & 1 == 0 { Mode::Selective } else { Mode::GoBackN },
        frame: 512,
        window: 1 + u16::from(kind >> 4),
        ack_every: 1 + u16::from(kind >> 2 & 3),
        credit: CREDIT,
        channel_credit: CREDIT / 2,
        send_buffer: 2000,
        fec: (kind & 2 != 0).then_some(Fec { frames: 4, repairs: 2 }),
        ..Options::default()
    };
    let (mut hand, key) = open(&options);
    let mut rest = rest;
    // A byte says what happens, the next how much of it.
    while let [what, much, more @ ..] = rest {
        let (piece, left) = more.split_at(usize::from(*much).min(more.len()));
        rest = left;
        let end = usize::from(what >> 7);
        let (way, id) = ([Way::Back, Way::Out][end], hand.ids[end]);
        match what % 16 {
            0..=6 => give(&mut hand, end, options.check, key.secret(way, 0), piece),
            7 | 8 => give(&mut hand, end, Check::Crc32c, 0, piece),
            9 => frame(&mut hand, end, piece),
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

/// An open connection and its key, which is told by the frame that opened it.
fn open(options: &Options) -> (Hand, Key) {
    let mut hand = Hand::new(options);
    let mut key = None;
    let mut said = [hand.hear(0), hand.hear(1)];
    while said.iter().any(|said| !said.is_empty()) {
        for frame in said.iter().flatten() {
            if let Some(Greeting::Opened { client, server, .. }) = Greeting::read(frame) {
                key = Some(Key::of(client, server));
            }
        }
        hand.pass(HOP);
        let [a, b] = said;
        said = [hand.give(0, &b), hand.give(1, &a)];
    }
    (hand, key.expect("it opens"))
}

fn command(hand: &mut Hand, end: usize, command: Command<'_>) {
    let _ = hand.nodes[end].handle(hand.now, Input::Command(command));
}

fn give(hand: &mut Hand, end: usize, check: Check, secret: u64, piece: &[u8]) {
    let mut bytes = piece.to_vec();
    bytes.resize(piece.len() + check.bytes(), 0);
    check.seal(secret, &mut bytes);
    frame(hand, end, &bytes);
}

fn frame(hand: &mut Hand, end: usize, bytes: &[u8]) {
    let input = Input::Frame { port: Port(0), peer: ADDRESSES[1 - end], bytes, segment: None };
    hand.nodes[end].handle(hand.now, input).expect("a frame is never refused");
}
