//! Peers and openings that misbehave, and options that make no sense: what a review found, kept found.

use crate::support::manual_pair::{ADDRESSES, HOP, ManualPair};
use trunkline_arq::wire::check::{ChecksumKey, Direction};
use trunkline_arq::wire::data::{self, ChunkKind, FrameHeader, MULTI_HEADER, write_multi_header};
use trunkline_arq::wire::handshake::{Handshake, RefusalReason, TransportParameters};
use trunkline_arq::wire::repair::RepairHeader;
use trunkline_arq::{
    Check, CloseReason, Command, Config, Congestion, ConnectionId, EventKind, Fec, Mode, Node, Options, wire,
};
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Port, Segment, Writable};
use trunkline_units::{Instant, Seed, Span};

fn node(accept: Option<Options>, connections: usize, place: &str) -> Node {
    Node::new(Config { port: Port(0), accept, max_connections: connections, random: Seed(5).stream(place) })
}

/// Polls a node until it is idle; returns its frames and adds its events to `news`.
fn deliver(node: &mut Node, now: Instant, news: &mut Vec<EventKind>) -> Vec<Vec<u8>> {
    let (mut buffer, mut frames) = (vec![0; MAX_BATCH], Vec::new());
    for _ in 0..10_000 {
        match node.poll(now, Writable::ALL, &mut buffer) {
            Output::Transmit(t) => {
                frames.extend(Segment::frames(t.segment, &buffer[..t.length]).map(<[u8]>::to_vec));
            }
            Output::Event(event) => news.push(event.kind),
            Output::Idle(_) => return frames,
        }
    }
    panic!("it never falls silent: {} frames", frames.len());
}

/// Gives a node a frame from one of the two addresses.
fn give(node: &mut Node, now: Instant, from: usize, bytes: &[u8]) {
    let frame = Input::Frame { port: Port(0), peer: ADDRESSES[from], bytes, segment: None };
    node.handle(now, frame).expect("only commands are refused");
}

fn open(node: &mut Node, now: Instant, to: usize, options: &Options) -> ConnectionId {
    let mut id = ConnectionId::default();
    let open = Command::Open { peer: ADDRESSES[to], options, id: &mut id };
    node.handle(now, Input::Command(open)).expect("it may open");
    id
}

#[test]
fn openings_that_cross_make_one_connection() {
    let options = Options::default();
    let mut nodes = ["a", "b"].map(|place| node(Some(options.clone()), 4, place));
    let (mut now, mut news) = (Instant::ZERO, [vec![], vec![]]);
    open(&mut nodes[0], now, 1, &options);
    open(&mut nodes[1], now, 0, &options);
    for _ in 0..20 {
        let said = [0, 1].map(|end| deliver(&mut nodes[end], now, &mut news[end]));
        now += HOP;
        for end in 0..2 {
            said[1 - end].iter().for_each(|frame| give(&mut nodes[end], now, 1 - end, frame));
        }
    }
    for end in 0..2 {
        assert_eq!(news[end], [EventKind::Opened { peer: ADDRESSES[1 - end] }]);
        assert_eq!(nodes[end].connection_count(), 1);
    }
}

#[test]
fn a_restarted_peer_is_not_turned_away_for_want_of_its_own_place() {
    let options = Options::default();
    let mut server = node(Some(options.clone()), 1, "s");
    let (mut now, mut heard) = (Instant::ZERO, vec![]);
    for place in ["before", "after"] {
        let mut client = node(None, 1, place);
        open(&mut client, now, 1, &options);
        let mut news = vec![];
        for _ in 0..20 {
            deliver(&mut client, now, &mut news).iter().for_each(|frame| give(&mut server, now, 0, frame));
            let answers = deliver(&mut server, now, &mut heard);
            now += HOP;
            answers.iter().for_each(|frame| give(&mut client, now, 1, frame));
        }
        assert!(news.iter().all(|news| matches!(news, EventKind::Opened { .. })), "{news:?}");
    }
    assert_eq!(
        heard,
        [EventKind::Opened { peer: ADDRESSES[0] }, EventKind::Closed { reason: CloseReason::Replaced }]
    );
}

#[test]
fn cookies_without_end_do_not_keep_a_client_asking() {
    let options = Options { peer_timeout: Span::from_s(2), ..Options::default() };
    let mut client = node(None, 4, "a");
    open(&mut client, Instant::ZERO, 1, &options);
    let (mut asked, mut news) = (0, vec![]);
    for ms in 0..10_000 {
        let now = Instant::from_ns(ms * 1_000_000);
        client.handle(now, Input::Wake).expect("only commands are refused");
        for frame in deliver(&mut client, now, &mut news) {
            let Some(Handshake::Open { client_id: number, .. }) = Handshake::read(&frame) else { continue };
            asked += 1;
            let mut answer = [0; 200];
            let length =
                Handshake::Cookie { client_id: number, cookie: [ms as u8 | 1; 16] }.write(&mut answer);
            give(&mut client, now, 1, &answer[..length]);
        }
    }
    assert_eq!(news, [EventKind::Closed { reason: CloseReason::HandshakeTimeout }]);
    assert!(asked < 20, "{asked} times");
}

#[test]
fn a_retransmitted_opening_gives_no_round_trip() {
    // Its first question is still under way when it asks again.
    let options = Options::default();
    let mut nodes = [node(None, 4, "a"), node(Some(options.clone()), 4, "b")];
    let id = open(&mut nodes[0], Instant::ZERO, 1, &options);
    let (mut wire, mut news) = (Vec::<(Instant, usize, Vec<u8>)>::new(), vec![]);
    for ms in 0..1500 {
        let now = Instant::from_ns(ms * 1_000_000);
        for (_, to, frame) in wire.extract_if(.., |(at, ..)| *at <= now) {
            give(&mut nodes[to], now, 1 - to, &frame);
        }
        for (end, node) in nodes.iter_mut().enumerate() {
            node.handle(now, Input::Wake).expect("only commands are refused");
            let said = deliver(node, now, &mut news);
            wire.extend(said.into_iter().map(|frame| (now + Span::from_ms(125), 1 - end, frame)));
        }
    }
    assert!(news.iter().all(|news| matches!(news, EventKind::Opened { .. })) && news.len() == 2, "{news:?}");
    assert!(nodes[0].round_trip(id).is_none_or(|rtt| rtt >= Span::from_ms(250)));
}

#[test]
fn zero_options_are_raised_to_their_bounds() {
    let mut options = Options { send_buffer: 0, credit: 0, channel_credit: 0, ..Options::default() };
    options.timeout.initial = Span::ZERO;
    options.timeout.floor = Span::ZERO;
    options.timeout.ceiling = Span::ZERO;
    let mut hand = ManualPair::open(&options);
    hand.send(0, b"x");
    let first = hand.outputs(0);
    // The laws are checked at each step: time must pass from timeout to timeout.
    let again: usize = (0..5).map(|_| hand.wake(0).len()).sum();
    assert!(!first.is_empty() && again > 0);
    hand.give(1, &first);
    assert!(hand.events.iter().any(|(end, news)| *end == 1 && matches!(news, EventKind::Readable { .. })));
}

#[test]
fn a_listeners_mode_does_not_bind_a_client_that_chose_another() {
    let fec = Some(Fec { frames: 2, repairs: 1 });
    let congestion = Congestion::Fixed;
    let client = Options { fec, congestion, ..Options::default() };
    for mode in Mode::ALL {
        let mut hand = ManualPair::between(&client, &Options { mode, ..client.clone() }).opened();
        hand.send(1, &[7; 20_000]);
        hand.outputs(1);
        let (in_flight, repairs) =
            (hand.nodes[1].inner().in_flight(hand.ids[1]), hand.statistics(1).repairs_sent);
        assert!(in_flight > Some(10) && repairs > 3, "{mode:?}: {in_flight:?}, {repairs}");
    }
}

/// A node with a connection that stands, opened by frames made here, and the secret of the client's frames.
fn opened_by_hand(options: Options, fec: Option<Fec>, parts: bool) -> (Node, u64) {
    let mut server = node(Some(options), 4, "s");
    let (now, mut frame, mut news) = (Instant::ZERO, vec![0; 2000], vec![]);
    let parameters = TransportParameters {
        mode: Mode::Selective,
        check: Check::Crc32c,
        window: 4096,
        frame: 1472,
        ack_delay_us: 0,
        ack_every: 1,
        credit: 1 << 20,
        channel_credit: 1 << 20,
        parts,
        fec,
    };
    let (mut cookie, mut number) = ([0; 16], 0);
    for _ in 0..2 {
        let length = Handshake::Open { client_id: 9, parameters, cookie }.write(&mut frame);
        give(&mut server, now, 0, &frame[..length]);
        for said in deliver(&mut server, now, &mut news) {
            match Handshake::read(&said) {
                Some(Handshake::Cookie { cookie: given, .. }) => cookie = given,
                Some(Handshake::Opened { server_id, .. }) => number = server_id,
                other => panic!("{other:?}"),
            }
        }
    }
    (server, ChecksumKey::new(9, number).secret(Direction::ToServer, 0))
}

#[test]
fn crumbs_between_messages_take_what_they_pay_for() {
    // A peer by hand, which alternates empty messages with packs of an empty one: 17 bytes of credit a pair.
    let (mut server, secret) = opened_by_hand(Options::default(), None, false);
    let (now, mut frame, mut news) = (Instant::ZERO, vec![0; 2000], vec![]);
    let mut taken = 0;
    let info = allocation_counter::measure(|| {
        for number in 0..1000u64 {
            let mut at = FrameHeader::write(wire::KIND_MULTI, 0, number, None, &mut frame);
            for pair in 0..40u64 {
                let sequence = (number * 80 + pair * 2) as u16;
                let whole = ChunkKind::Piece { start: true, end: true };
                for (sequence, form, bytes) in
                    [(sequence, whole, &[][..]), (sequence + 1, ChunkKind::Pack, &[0])]
                {
                    write_multi_header(0, sequence, form, bytes.len() as u16, &mut frame[at..]);
                    frame[at + MULTI_HEADER..at + MULTI_HEADER + bytes.len()].copy_from_slice(bytes);
                    at += MULTI_HEADER + bytes.len();
                }
                taken += 17;
            }
            Check::Crc32c.seal(secret, &mut frame[..at + 4]);
            give(&mut server, now, 0, &frame[..at + 4]);
            deliver(&mut server, now, &mut news);
        }
    });
    assert!(!news.iter().any(|news| matches!(news, EventKind::Closed { .. })), "{news:?}");
    // Remembering a crumb costs more than its bytes, but not a thousand times.
    assert!(info.bytes_current < 20 * taken, "{} bytes for {taken} of credit", info.bytes_current);
}

#[test]
fn an_unknown_mode_or_check_is_refused() {
    // What a client asks for that is ahead of us: the open frame's bytes of mode and check.
    for (at, accept) in [(10, true), (11, true), (11, false)] {
        let mut server = node(accept.then(Options::default), 4, "s");
        let mut client = node(None, 4, "c");
        open(&mut client, Instant::ZERO, 1, &Options::default());
        let mut news = vec![];
        let mut asks = deliver(&mut client, Instant::ZERO, &mut news).remove(0);
        asks[at] = 9;
        Check::Crc32c.seal(0, &mut asks);
        give(&mut server, Instant::ZERO, 0, &asks);
        let answers = deliver(&mut server, Instant::ZERO, &mut vec![]);
        let reason = if accept { RefusalReason::Parameters } else { RefusalReason::Closed };
        let told = Handshake::read(&answers[0]);
        assert!(matches!(told, Some(Handshake::Refused { reason: why, .. }) if why == reason), "{told:?}");
        assert!(answers.len() == 1 && answers[0].len() <= asks.len() && server.connection_count() == 0);
        give(&mut client, Instant::ZERO, 1, &answers[0]);
        assert!(deliver(&mut client, Instant::ZERO, &mut news).is_empty());
        let end = if accept { CloseReason::RefusedParameters } else { CloseReason::RefusedClosed };
        assert_eq!(news, [EventKind::Closed { reason: end }]);
    }
}

#[test]
fn repair_frames_of_a_liar_take_bounded_memory_and_rebuild_only_frames() {
    let fec = Fec { frames: 8, repairs: 2 };
    for seed in 0..20 {
        let (mut server, secret) =
            opened_by_hand(Options { fec: Some(fec), ..Options::default() }, Some(fec), false);
        let (mut draw, mut news, mut frame) = (Seed(seed).stream("liar"), vec![], vec![0; 2000]);
        let mut now = Instant::ZERO;
        let grown = allocation_counter::measure(|| {
            for number in 0..3000u64 {
                now += Span::from_us(10);
                let length = if draw.chance(0.3) {
                    // Whole messages, some left out, so that there is something to rebuild.
                    let flags = data::START | data::END;
                    let at = FrameHeader::write(wire::KIND_PIECE, flags, number / 8, None, &mut frame);
                    data::write_single_header(7, (number / 8) as u16, &mut frame[at..]);
                    at + 4 + draw.below(100) as usize
                } else {
                    // About there, of the right and of wrong kinds; what is left of the sum may well make sense.
                    let first = (number / 8).wrapping_add(draw.below(30)).wrapping_sub(draw.below(30));
                    let sum: Vec<u8> = match draw.below(3) {
                        0 => (0..4 + draw.below(1400)).map(|_| draw.bits() as u8).collect(),
                        1 => vec![0; 4 + draw.below(1400) as usize],
                        _ => [&[0, 8, 0x23, 0, 7, 0, draw.below(9) as u8], &[0; 40][..]].concat(),
                    };
                    let (row, frames) = (draw.below(4) as u8, 1 + draw.below(9) as u8);
                    RepairHeader::write(row, first, frames, &sum, &mut frame)
                };
                Check::Crc32c.seal(secret, &mut frame[..length + 4]);
                give(&mut server, now, 0, &frame[..length + 4]);
                deliver(&mut server, now, &mut news);
            }
        });
        let counts = server.statistics(ConnectionId::default()).expect("it was never forgotten");
        assert!(counts.malformed > 0 && counts.repairs_received > 0, "{counts:?}");
        // 4 x 8 + 2 x 2 frames are kept, messages besides.
        assert!(grown.bytes_current < 200_000, "{}", grown.bytes_current);
    }
}

#[test]
fn repair_frames_without_negotiation_are_dropped() {
    let wants = Some(Fec { frames: 8, repairs: 2 });
    // The last says that it takes parts as well.
    for (ours, peer_parameters, parts) in
        [(None, wants, false), (wants, None, false), (None, None, false), (wants, wants, true)]
    {
        let (mut server, secret) =
            opened_by_hand(Options { fec: ours, ..Options::default() }, peer_parameters, parts);
        let (mut frame, mut news) = ([0; 100], vec![]);
        let sum = [0, 6, 0x23, 0, 7, 0, 0, b'h', b'i'];
        let length = RepairHeader::write(0, 0, 1, &sum, &mut frame);
        Check::Crc32c.seal(secret, &mut frame[..length + 4]);
        give(&mut server, Instant::ZERO, 0, &frame[..length + 4]);
        deliver(&mut server, Instant::ZERO, &mut news);
        let counts = server.statistics(ConnectionId::default()).expect("it stands");
        assert_eq!((counts.malformed, counts.repairs_received, counts.frames_rebuilt), (1, 0, 0));
        assert_eq!(server.unread_bytes(ConnectionId::default(), 7), 0);
    }
    // The very same where it was: a peer may as well have sent the frame.
    let (mut server, secret) = opened_by_hand(Options { fec: wants, ..Options::default() }, wants, false);
    let mut frame = [0; 100];
    let length = RepairHeader::write(0, 0, 1, &[0, 6, 0x23, 0, 7, 0, 0, b'h', b'i'], &mut frame);
    Check::Crc32c.seal(secret, &mut frame[..length + 4]);
    give(&mut server, Instant::ZERO, 0, &frame[..length + 4]);
    assert!(server.unread_bytes(ConnectionId::default(), 7) > 0);
}
