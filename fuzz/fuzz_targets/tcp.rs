//! Anything as segments, at any time, to an end that was called or calls. Nothing may panic, what it says fits the
//! contract, and it never takes more than its buffers hold.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run tcp fuzz/corpus/tcp fuzz/seeds/tcp`

#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_endpoint::{Ecn, Endpoint, Input, MAX_BATCH, Output, Peer, Port, Writable};
use trunkline_tcp::{Algorithm, Bytes, Command, EcnFeedback, Options, Tcp, Timers};
use trunkline_units::{Instant, Span};

const BUFFER: u32 = 4096;

fuzz_target!(|bytes: &[u8]| {
    let [kind, rest @ ..] = bytes else { return };
    let timers = if kind & 2 == 0 { Timers::default() } else { Timers::Fine { floor: Span::ZERO } };
    let buffers = Options { send_buffer: BUFFER, receive_buffer: BUFFER, ..Options::default() };
    // Selective acknowledgement, timestamps, ECN and a controller of today.
    let extensions = Options {
        congestion: (kind & 4 != 0)
            .then_some(Algorithm::Cubic { hystart: kind & 128 != 0, reno_friendly: true }),
        sack: kind & 8 != 0,
        timestamps: kind & 16 != 0,
        ecn: (kind & 32 != 0).then_some(if kind & 64 != 0 {
            EcnFeedback::Exact
        } else {
            EcnFeedback::Classic
        }),
        ..buffers
    };
    let mut tcp =
        Tcp::<Bytes>::new(Options { local: 1, remote: 2, initial_sequence: 7, timers, ..extensions });
    let mut buffer = vec![0; MAX_BATCH];
    let mut now = Instant::ZERO;
    let open = if kind & 1 == 0 { Command::Listen } else { Command::Connect };
    tcp.handle(now, Input::Command(open)).expect("a new end may open");
    let mut rest = rest;
    // A byte says what happens, the next how much of it.
    while let [what, much, more @ ..] = rest {
        let much = usize::from(*much).min(more.len());
        let (piece, left) = more.split_at(much);
        rest = left;
        let frame = |bytes| Input::Frame { port: Port(0), peer: Peer::NONE, bytes, segment: None };
        match what % 8 {
            0..=2 => tcp.handle(now, frame(piece)).expect("a frame is never refused"),
            3 => {
                // With the ports that it wants, so that the rest is looked at.
                let mut segment = piece.to_vec();
                if segment.len() >= 4 {
                    segment[..4].copy_from_slice(&[0, 2, 0, 1]);
                }
                tcp.set_received_ecn(Ecn::from_bits(what >> 4));
                tcp.handle(now, frame(&segment)).expect("a frame is never refused");
            }
            4 => {
                let _ = tcp.handle(now, Input::Command(Command::Send(piece)));
            }
            5 => {
                let wanted = (tcp.readable() as usize).min(much);
                let _ = tcp.handle(now, Input::Command(Command::Take(&mut vec![0; wanted][..])));
            }
            6 => {
                let end = if much % 2 == 0 { Command::Close } else { Command::Abort };
                let _ = tcp.handle(now, Input::Command(end));
            }
            _ => {
                now += Span::from_ms(1 << (much % 18));
                tcp.handle(now, Input::Wake).expect("a wake is never refused");
            }
        }
        for _ in 0..10_000 {
            match tcp.poll(now, Writable::ALL, &mut buffer) {
                Output::Transmit(t) => assert!((20..=MAX_BATCH).contains(&t.length)),
                Output::Event(_) => {}
                Output::Idle(idle) => {
                    assert!(idle.deadline.is_none_or(|deadline| deadline > now) || what % 8 != 7);
                    break;
                }
            }
        }
        assert!(tcp.readable() <= BUFFER && tcp.unacknowledged() <= BUFFER);
    }
});
