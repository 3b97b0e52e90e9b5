//! Every byte arrives in order and once over any link; opening, closing, windows and limits.

use crate::support::{Connection, both, bsd_timers, exchange, line, pattern};
use proptest::prelude::*;
use trunkline_endpoint::{Endpoint, Impairments, Input, MAX_BATCH, Output, Peer, Port, Writable};
use trunkline_tcp::{
    Arithmetic, Bytes, Command, Content, Event, Options, Refusal, State, Tcp, Timers, Virtual,
};
use trunkline_units::{Instant, Rate, Seed, Span, Stream};

const FINE: Timers = Timers::Fine { floor: Span::ZERO };

/// Returns random options.
fn odd_options(stream: &mut Stream) -> Options {
    let bsd = bsd_timers(stream);
    Options {
        mss: 32 + stream.below(3_000) as u16,
        send_buffer: 1 + stream.below(40_000) as u32,
        receive_buffer: 1 + stream.below(200_000) as u32,
        scaling: stream.chance(0.7),
        timers: if stream.chance(0.5) { FINE } else { bsd },
        arithmetic: if stream.chance(0.5) { Arithmetic::Net2 } else { Arithmetic::Rfc2581 },
        delayed_ack: stream.chance(0.7),
        nagle: stream.chance(0.7),
        ..Options::default()
    }
}

#[test]
fn every_byte_arrives_in_order_once_over_any_line() {
    for seed in 0..40 {
        let mut stream = Seed(seed).stream("stream / options");
        let (a, _) = both(odd_options(&mut stream));
        let (_, b) = both(odd_options(&mut stream));
        exchange(seed, &mut stream, a, b);
    }
}

#[test]
fn sequence_numbers_wrap() {
    // Both initial sequence numbers are close to 2^32; both directions pass it.
    let (a, b) = both(Options::default());
    let mut world = Connection::new(1, a, b, [300_000, 300_000], [line(2), line(2)]);
    assert!(world.finish(Span::from_s(60)));
    assert_eq!(world.pair.a().statistics().bytes_received, 300_000);
}

#[test]
fn a_large_window_fills_a_long_line() {
    let size = 4 << 20;
    let options = Options { send_buffer: size, receive_buffer: size, mss: 9_140, ..Options::default() };
    for (scaling, most) in [(true, size), (false, 65_535)] {
        let (a, b) = both(Options { scaling, ..options });
        let fast = Impairments { rate: Some(Rate::from_bps(400_000_000)), ..line(100) };
        let mut world = Connection::new(1, a, b, [30_000_000, 0], [fast, fast]);
        let mut in_flight = 0;
        for _ in 0..1_000 {
            world.step();
            in_flight = in_flight.max(world.pair.a().gauges().in_flight);
        }
        assert!(in_flight <= most && in_flight > most - 9_140 - 128, "{scaling}: {in_flight}");
    }
}

#[test]
fn windows_are_scaled_only_if_both_offer_it() {
    for (ours, theirs) in [(true, false), (false, true), (true, true)] {
        let big = Options { receive_buffer: 1 << 30, ..Options::default() };
        let (a, _) = both(Options { scaling: ours, ..big });
        let (_, b) = both(Options { scaling: theirs, ..big });
        let mut world = Connection::new(1, a, b, [50_000, 50_000], [line(1), line(1)]);
        for _ in 0..100 {
            world.step();
        }
        let window = world.pair.a().gauges().peer_window;
        assert_eq!(window > 65_535, ours && theirs, "{window}");
        assert!(world.complete());
    }
}

/// Two ends, the time, and every segment that was exchanged.
struct Tap<C: Content> {
    ends: [Tcp<C>; 2],
    now: Instant,
    stream: Stream,
    seen: Vec<(Instant, usize, Vec<u8>)>,
}

impl<C: Content> Tap<C> {
    fn new(seed: u64, options: Options) -> Tap<C> {
        let (a, b) = both(options);
        let mut ends = [Tcp::new(a), Tcp::new(b)];
        ends[1].handle(Instant::ZERO, Input::Command(Command::Listen)).unwrap();
        ends[0].handle(Instant::ZERO, Input::Command(Command::Connect)).unwrap();
        Tap { ends, now: Instant::ZERO, stream: Seed(seed).stream("tap"), seen: Vec::new() }
    }

    /// Passes a millisecond and the segments of it; one in twenty is lost.
    fn pass(&mut self) {
        let mut crossing = Vec::new();
        let mut buffer = vec![0; MAX_BATCH];
        for (i, end) in self.ends.iter_mut().enumerate() {
            loop {
                match end.poll(self.now, Writable::ALL, &mut buffer) {
                    Output::Transmit(t) => {
                        let header = trunkline_tcp::header_length(&buffer[..t.length]);
                        self.seen.push((self.now, t.length, buffer[..header].to_vec()));
                        if self.stream.unit() > 0.05 {
                            crossing.push((1 - i, buffer[..t.length].to_vec()));
                        }
                    }
                    Output::Event(_) => {}
                    Output::Idle(_) => break,
                }
            }
        }
        self.now += Span::from_ms(1);
        for end in &mut self.ends {
            end.handle(self.now, Input::Wake).unwrap();
        }
        for (to, bytes) in crossing {
            let input = Input::Frame { port: Port(0), peer: Peer::NONE, bytes: &bytes, segment: None };
            self.ends[to].handle(self.now, input).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn virtual_bytes_produce_the_same_segments(seed: u64) {
        let mut stream = Seed(seed).stream("same");
        let options = odd_options(&mut stream);
        let (mut real, mut counted) = (Tap::<Bytes>::new(seed, options), Tap::<Virtual>::new(seed, options));
        for _ in 0..400 {
            let count = stream.below(u64::from(options.send_buffer.min(3_000)) + 1) as u32;
            let sender = stream.below(2) as usize;
            let bytes = vec![0x5a; count as usize];
            let refused = real.ends[sender].handle(real.now, Input::Command(Command::Send(&bytes[..])));
            let refused_too = counted.ends[sender].handle(counted.now, Input::Command(Command::Send(count)));
            prop_assert_eq!(refused, refused_too);
            let taken = real.ends[sender].readable();
            let mut room = vec![0; taken as usize];
            real.ends[sender].handle(real.now, Input::Command(Command::Take(&mut room[..]))).unwrap();
            counted.ends[sender].handle(counted.now, Input::Command(Command::Take(taken))).unwrap();
            prop_assert!(room.iter().all(|byte| *byte == 0x5a));
            for _ in 0..stream.below(60) {
                real.pass();
                counted.pass();
            }
        }
        prop_assert_eq!(&real.seen, &counted.seen);
        prop_assert_eq!(real.ends[0].statistics(), counted.ends[0].statistics());
        prop_assert!(!real.seen.is_empty());
    }
}

/// Returns a connection after the handshake; its users do nothing.
fn connected(options: Options) -> Connection {
    let (a, b) = both(options);
    let mut world = Connection::new(1, a, b, [0, 0], [line(10), line(10)]);
    world.pair.run(Span::from_ms(40));
    assert!(world.pair.a().is_open() && world.pair.b().is_open());
    world
}

#[test]
fn one_direction_closes_and_the_other_continues() {
    let mut w = connected(Options::default());
    w.pair.command_a(Command::Send(&b"question"[..])).unwrap();
    w.pair.command_a(Command::Close).unwrap();
    w.pair.run(Span::from_s(1));
    assert_eq!((w.pair.a().state(), w.pair.b().state()), (State::FinWait2, State::CloseWait));
    assert_eq!(w.pair.command_a(Command::Send(&b"more"[..])), Err(Refusal::NotOpen));
    for _ in 0..20 {
        w.pair.command_b(Command::Send(&[9; 10_000][..])).unwrap();
        w.pair.run(Span::from_ms(500));
        let mut answer = vec![0; 10_000];
        w.pair.command_a(Command::Take(&mut answer[..])).unwrap();
        assert!(answer.iter().all(|byte| *byte == 9));
    }
    w.pair.command_b(Command::Close).unwrap();
    w.pair.run(Span::from_s(1));
    assert_eq!((w.pair.a().state(), w.pair.b().state()), (State::TimeWait, State::Closed));
    let mut question = [0; 8];
    w.pair.command_b(Command::Take(&mut question[..])).unwrap();
    assert_eq!(&question, b"question");
    w.pair.run(Span::from_s(61));
    assert!(w.pair.a().is_closed() && w.pair.b().is_closed());
    let events: Vec<_> = w.pair.take_events_a().into_iter().map(|(_, event)| event).collect();
    assert_eq!(events.iter().filter(|e| matches!(e, Event::Finished | Event::Closed)).count(), 2);
    assert_eq!(events.last(), Some(&Event::Closed));
}

#[test]
fn both_ends_close_simultaneously() {
    let mut w = connected(Options::default());
    w.pair.command_a(Command::Close).unwrap();
    w.pair.command_b(Command::Close).unwrap();
    w.pair.run(Span::from_ms(15));
    assert_eq!((w.pair.a().state(), w.pair.b().state()), (State::Closing, State::Closing));
    w.pair.run(Span::from_s(5));
    assert_eq!((w.pair.a().state(), w.pair.b().state()), (State::TimeWait, State::TimeWait));
    w.pair.run(Span::from_s(61));
    assert!(w.pair.a().is_closed() && w.pair.b().is_closed());
}

#[test]
fn both_ends_open_simultaneously() {
    let (a, b) = both(Options::default());
    let mut pair = trunkline_endpoint::Pair::new(
        Tcp::<Bytes>::new(a),
        Tcp::<Bytes>::new(Options { remote: 1, ..b }),
        Seed(1),
    );
    pair.impair(line(10), line(10));
    pair.command_a(Command::Connect).unwrap();
    pair.command_b(Command::Connect).unwrap();
    pair.run(Span::from_ms(100));
    assert!(pair.a().is_open() && pair.b().is_open());
    pair.command_a(Command::Send(&b"hello"[..])).unwrap();
    pair.run(Span::from_ms(100));
    assert_eq!(pair.b().readable(), 5);
}

#[test]
fn an_abort_resets_the_other_end() {
    let mut w = connected(Options::default());
    w.pair.command_a(Command::Send(&b"last words"[..])).unwrap();
    w.pair.run(Span::from_ms(100));
    w.pair.command_a(Command::Abort).unwrap();
    w.pair.run(Span::from_s(1));
    assert!(w.pair.a().is_closed() && w.pair.b().is_closed());
    let events: Vec<_> = w.pair.take_events_b().into_iter().map(|(_, event)| event).collect();
    assert_eq!(events[events.len() - 2..], [Event::Reset, Event::Closed]);
    assert_eq!(w.pair.b().readable(), 10); // what has arrived can still be taken
    assert_eq!(w.pair.command_a(Command::Connect), Err(Refusal::Used));
}

#[test]
fn connecting_to_a_closed_port_resets_and_to_nothing_times_out() {
    let (a, b) = both(Options::default());
    let mut pair = trunkline_endpoint::Pair::new(Tcp::<Bytes>::new(a), Tcp::<Bytes>::new(b), Seed(1));
    pair.command_a(Command::Connect).unwrap();
    pair.run(Span::from_s(1));
    let events: Vec<_> = pair.take_events_a().into_iter().map(|(_, event)| event).collect();
    assert_eq!(events, [Event::Reset, Event::Closed]);

    let mut pair = trunkline_endpoint::Pair::new(Tcp::<Bytes>::new(a), Tcp::<Bytes>::new(b), Seed(1));
    pair.impair(Impairments { drop: 1.0, ..Impairments::default() }, Impairments::default());
    pair.command_a(Command::Connect).unwrap();
    pair.run(Span::from_s(100));
    let events: Vec<_> = pair.take_events_a().into_iter().map(|(_, event)| event).collect();
    assert_eq!(events, [Event::TimedOut, Event::Closed]);
}

#[test]
fn an_unreachable_peer_is_abandoned() {
    let mut w = connected(Options::default());
    w.pair.impair(Impairments { drop: 1.0, ..line(10) }, line(10));
    w.pair.command_a(Command::Send(&b"hello?"[..])).unwrap();
    w.pair.run(Span::from_s(3_000));
    assert_eq!(w.pair.take_events_a().last().map(|(_, event)| *event), Some(Event::Closed));
    // Twelve retransmissions; the thirteenth expiry aborts.
    assert_eq!(w.pair.a().statistics().timeouts, 12);
    assert_eq!(w.pair.a().statistics().retransmitted_segments, 12);
}

#[test]
fn full_and_empty_buffers_are_reported() {
    let mut w = connected(Options { send_buffer: 1_000, ..Options::default() });
    assert_eq!(w.pair.command_a(Command::Send(&[0; 1_001][..])), Err(Refusal::TooLarge));
    w.pair.command_a(Command::Send(&[0; 600][..])).unwrap();
    assert_eq!(w.pair.a().room(), 400);
    assert_eq!(w.pair.command_a(Command::Send(&[0; 401][..])), Err(Refusal::Full));
    assert_eq!(w.pair.command_b(Command::Take(&mut [0; 1][..])), Err(Refusal::Short));
    w.pair.run(Span::from_s(1));
    let events: Vec<_> = w.pair.take_events_a().into_iter().map(|(_, event)| event).collect();
    assert_eq!(events, [Event::Connected, Event::Writable]);
    assert_eq!(w.pair.a().unacknowledged(), 0);
    // Unread data closes the window, and the buffer never overflows.
    let mut sent = 0;
    for _ in 0..1_200 {
        let room = w.pair.a().room() as usize;
        w.pair.command_a(Command::Send(&vec![1; room][..])).unwrap();
        sent += room;
        w.pair.run(Span::from_ms(30));
    }
    assert_eq!(w.pair.b().readable(), 65_535);
    assert!(sent > 65_535 && w.pair.a().gauges().peer_window == 0);
    assert!(pattern(0, 1) != pattern(0, 2));
}
