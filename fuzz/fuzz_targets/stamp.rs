//! Arbitrary and changed packets between a STAMP sender and a reflector, lost, duplicated and late. Neither end may panic,
//! an answer is as long as its request, tables stay bounded, and the counts add up.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run stamp fuzz/corpus/stamp fuzz/seeds/stamp`

#![no_main]

use std::net::SocketAddr;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use trunkline_stamp::{
    ClockReading, Format, Key, Reflector, ReflectorOptions, Request, Sender, SenderOptions,
};
use trunkline_units::{Instant, Span};

const SESSIONS: usize = 4;
/// Stored datagrams of each end.
const STORED: usize = 8;

fuzz_target!(|bytes: &[u8]| {
    let [options, size, rest @ ..] = bytes else { return };
    let mut rest = rest;
    let key = (options & 1 != 0).then(|| Key::new(&[7; 16]));
    let format = |bit: u8| if options & bit != 0 { Format::Ptp } else { Format::Ntp };
    let is_stateful = options & 8 != 0;
    let mut sender = Sender::new(SenderOptions {
        ssid: u16::from(options >> 4),
        size: usize::from(*size),
        format: format(2),
        key: key.clone(),
        is_stateful,
    });
    let mut reflector = Reflector::new(ReflectorOptions {
        key,
        format: format(4),
        is_stateful,
        sessions: SESSIONS,
        sessions_of_source: SESSIONS,
        ..ReflectorOptions::default()
    });
    let mut now = ClockReading { at: Instant::ZERO, unix: Duration::from_secs(1), utc_error: None };
    let (mut packets, mut answers): (Vec<Vec<u8>>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
    // An octet says what happens, the next to which datagram, and how much of the rest belongs to it.
    while let [kind, argument, more @ ..] = rest {
        let index = usize::from(*argument);
        let (piece, left) = more.split_at(if kind % 8 >= 4 { index.min(more.len()) } else { 0 });
        rest = left;
        let stored = |list: &[Vec<u8>]| list.get(index % list.len().max(1)).cloned();
        let (request, answer) = match kind % 8 {
            0 => {
                packets.push(sender.send(now).to_vec());
                (None, None)
            }
            1 => (stored(&packets), None),
            2 => (None, stored(&answers)),
            3 => {
                let span = Span::from_ns(1 << (argument % 40));
                now = ClockReading {
                    at: now.at + span,
                    unix: now.unix + span.into(),
                    utc_error: (argument & 0x80 != 0).then_some(span),
                };
                (None, None)
            }
            4 => (Some(piece.to_vec()), None),
            5 => (None, Some(piece.to_vec())),
            // The last datagram with other octets, anywhere.
            6 => (packets.last().map(|packet| changed(packet, piece)), None),
            _ => (None, answers.last().map(|answer| changed(answer, piece))),
        };
        if let Some(request) = request {
            let from = SocketAddr::from(([127, 0, 0, 1 + kind / 128], 1_000 + u16::from(*argument)));
            let (mut buffer, unix) = (vec![0; request.len()], now.unix);
            let request = Request { from, bytes: &request, ttl: *argument, unix };
            if let Ok(length) = reflector.reflect(now, &request, &mut buffer) {
                assert_eq!(length, request.bytes.len());
                answers.push(buffer);
            }
            assert!(reflector.sessions() <= SESSIONS);
        }
        if let Some(answer) = answer {
            let _ = sender.receive(now, &answer);
        }
        for list in [&mut packets, &mut answers] {
            if list.len() > STORED {
                list.remove(0);
            }
        }
        let counts = sender.counts();
        assert!(counts.answered <= counts.sent);
        if let Some(losses) = sender.losses() {
            assert_eq!(losses.forward + losses.backward + losses.unknown, counts.sent - counts.answered);
        }
    }
});

/// Overwrites octets from a position.
fn changed(datagram: &[u8], piece: &[u8]) -> Vec<u8> {
    let mut changed = datagram.to_vec();
    if let [at, piece @ ..] = piece {
        let at = usize::from(*at) % changed.len().max(1);
        let length = piece.len().min(changed.len() - at);
        changed[at..at + length].copy_from_slice(&piece[..length]);
    }
    changed
}
