//! A station driven by octets: commands, frames that make more or less sense, time.

use trunkline_endpoint::laws::Checked;
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Writable};
use trunkline_llc::{Address, Command, Config, Options, Station, Ticket};
use trunkline_units::{Instant, Span};

pub const OWN: u8 = 3;
pub const SEQUENCES: usize = 8;
pub const QUEUE: u16 = 5;
/// Most SAPs that are open at a time.
const SAPS_OPEN: usize = 3;

const SAPS: [u8; 8] = [2, 4, 6, 254, 0, 0x41, 0xFF, 3];
const CONTROLS: [u8; 10] = [0x03, 0xAF, 0xBF, 0xE3, 0xF3, 0x67, 0x77, 0xE7, 0xF7, 0x13];
const STATUS: [u8; 8] = [0x40, 0x30, 0x49, 0x4F, 0x41, 0x42, 0x31, 0x39];

pub fn config() -> Config {
    Config {
        saps: SAPS_OPEN,
        batch: 3,
        lifetime: Span::from_ms(50),
        sequences: SEQUENCES,
        ..Config::new(Port(0), OWN)
    }
}

pub fn options(draw: u8) -> Options {
    Options {
        acknowledged: draw & 1 != 0,
        priority: draw >> 1 & 3,
        crc: draw & 8 != 0,
        tries: 1 + u16::from(draw >> 4 & 3),
        response_timeout: Span::from_ms(u64::from(draw >> 6)),
        send_limit: Span::from_ms(if draw & 0x20 == 0 { 0 } else { 7 }),
        groups: if draw & 0x10 == 0 { vec![] } else { vec![0x41] },
        queue: QUEUE,
    }
}

/// A command that these octets say.
pub fn command(station: &mut Checked<Station>, now: Instant, [what, who, much]: [u8; 3]) {
    let (mut into, mut taken, mut ticket) = (Vec::new(), None, Ticket::default());
    let sap = SAPS[usize::from(who % 8)];
    let to =
        Address { sap: SAPS[usize::from(who >> 3 & 7)], station: [1, 2, OWN, 255][usize::from(who >> 6)] };
    let bytes = &[7; 256][..usize::from(much)];
    let options = options(much);
    let priority = (much & 1 != 0).then_some(much >> 1 & 7);
    let command = match what % 16 {
        0 | 1 => Command::Open { sap, options: &options },
        2 => Command::Configure { sap, options: &options },
        3 if much < 64 => Command::Close { sap },
        4 => Command::Reset { sap, sending: much & 1 == 0 },
        5 => Command::Test { sap, to, bytes },
        6 => Command::Identify { sap, to },
        7..11 => Command::Take { sap, into: &mut into, taken: &mut taken },
        _ => Command::Send { sap, to, bytes, priority, ticket: &mut ticket },
    };
    let _ = station.handle(now, Input::Command(command));
}

/// A frame that these octets say.
pub fn frame(station: &mut Checked<Station>, now: Instant, [from, to, control, rest]: [u8; 4]) {
    let bytes = [
        if from & 0x80 == 0 { from >> 2 & 7 } else { from },
        SAPS[usize::from(to % 8)],
        SAPS[usize::from(to >> 3 & 3)] | u8::from(to & 0x20 != 0),
        CONTROLS[usize::from(control % 10)],
        STATUS[usize::from(rest % 8)],
        rest,
    ];
    let bytes = &bytes[..bytes.len() - usize::from(control >> 6).min(2)];
    let frame = Input::Frame { port: Port(0), peer: Peer::new(&[1 + (from & 1)]), bytes, segment: None };
    station.handle(now, frame).expect("only commands are refused");
}

/// All that octets say; what it keeps has bounds at every moment.
pub fn live(mut says: &[u8]) {
    let mut station = Checked::new(Station::new(config()));
    let (mut now, mut buffer) = (Instant::ZERO, vec![0; MAX_BATCH]);
    while let [what, a, b, c, d, rest @ ..] = says {
        says = rest;
        match what % 8 {
            0..3 => command(&mut station, now, [*a, *b, *c]),
            3..6 => frame(&mut station, now, [*a, *b, *c, *d]),
            6 => {
                now += Span::from_us(u64::from(*a) * 100);
                station.handle(now, Input::Wake).expect("only commands are refused");
            }
            // It is not listened to.
            _ => {
                let peer = Peer::new(&[*a]);
                let frame =
                    Input::Frame { port: Port(0), peer, bytes: &rest[..rest.len().min(20)], segment: None };
                station.handle(now, frame).expect("only commands are refused");
                continue;
            }
        }
        let writable = if d & 7 == 0 { Writable::NONE } else { Writable::ALL };
        for step in 0.. {
            assert!(step < 10_000, "it never falls silent");
            match station.poll(now, writable, &mut buffer) {
                Output::Idle(_) => break,
                Output::Transmit(_) | Output::Event(_) => {}
            }
        }
        let inner = station.inner();
        let (to_send, received) = inner.sequences();
        // A SAP that has been closed since may have had its share of the messages.
        let most = SEQUENCES.max(SAPS_OPEN * usize::from(QUEUE));
        assert!(inner.open_saps().len() <= SAPS_OPEN && to_send <= most && received <= SEQUENCES);
        for sap in inner.open_saps() {
            assert!(inner.waiting(*sap) <= QUEUE.into() && inner.readable(*sap) <= QUEUE.into());
        }
    }
}
