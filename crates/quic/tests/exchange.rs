//! What is sent arrives, on a simulated line and over sockets.

use trunkline_endpoint::pair::PEER_B;
use trunkline_endpoint::{Impairments, Pair, Port};
use trunkline_quic::options::MAX_DATAGRAM_MESSAGE;
use trunkline_quic::{
    CloseReason, Command, Config, Congestion, Event, Identity, Node, Options, Randomness, Refusal, Role,
};
use trunkline_units::{Rate, Seed, Span};

use crate::support::{Line, Network, Sockets, bad_line, exchange_datagrams, exchange_streams, nodes};

#[test]
fn streams_arrive_in_order_on_a_bad_line() {
    for (seed, congestion) in [
        (1, Congestion::Cubic),
        (2, Congestion::Cubic),
        (3, Congestion::Reno),
        (4, Congestion::Reno),
        (5, Congestion::Bbr),
    ] {
        let options = Options { streams: 3, congestion, ..Options::default() };
        let mut line = Line::new(options, bad_line(), seed);
        let [client, server] = exchange_streams(&mut line, 3, 300_000);
        assert!(client.packets_lost > 0 && client.congestion_events > 0, "seed {seed}: {client:?}");
        assert!(client.packets_sent > 600 && client.bytes_lost > 0, "seed {seed}: {client:?}");
        assert!(client.rtt > Span::from_ms(9) && client.handshake > Some(Span::from_ms(9)), "{client:?}");
        assert!(server.udp_received > 600 && server.udp_bytes_received > 900_000, "{server:?}");
    }
}

#[test]
fn nothing_is_lost_on_a_good_line() {
    let good = Impairments {
        delay: Span::from_ms(5),
        rate: Some(Rate::from_bps(100_000_000)),
        ..Impairments::default()
    };
    let mut line = Line::new(Options::default(), good, 1);
    let [client, server] = exchange_streams(&mut line, 1, 1_000_000);
    assert_eq!((client.packets_lost, client.bytes_lost, client.congestion_events), (0, 0, 0), "{client:?}");
    // The packet that begins the handshake arrives before the connection that counts.
    assert_eq!((client.udp_sent - 1, client.mtu), (server.udp_received, 1452), "{client:?} {server:?}");
    let late = Some(Span::from_us(15_000));
    assert!(client.handshake > Some(Span::from_ms(10)) && client.handshake < late, "{client:?}");
}

#[test]
fn streams_that_one_packet_opens_arrive_at_once() {
    for length in [1, 50] {
        let options = Options { streams: 8, ..Options::default() };
        let mut sockets = Sockets::new(options);
        exchange_streams(&mut sockets, 8, length);
    }
}

#[test]
fn streams_arrive_over_sockets() {
    for streams in [1, 3] {
        let mut sockets = Sockets::new(Options { streams, ..Options::default() });
        let [client, server] = exchange_streams(&mut sockets, streams, 2_000_000);
        assert!(client.handshake.is_some() && server.udp_received > 0, "{client:?}");
    }
}

#[test]
fn datagrams_are_unreliable() {
    let (received, [client, _]) =
        exchange_datagrams(&mut Line::new(Options::default(), bad_line(), 1), 2_000, MAX_DATAGRAM_MESSAGE);
    assert!((1_800..1_990).contains(&received), "{received}");
    assert_eq!(client.datagrams_sent, 2_000);
    let good = Impairments { delay: Span::from_ms(1), ..Impairments::default() };
    let (received, _) = exchange_datagrams(&mut Line::new(Options::default(), good, 1), 2_000, 500);
    assert_eq!(received, 2_000);
}

#[test]
fn datagrams_arrive_over_sockets() {
    // The window of congestion bounds what is in the socket's buffer.
    let (received, [client, server]) = exchange_datagrams(&mut Sockets::new(Options::default()), 500, 1_000);
    assert_eq!((client.datagrams_sent, server.datagrams_received), (500, u64::from(received)));
}

#[test]
fn the_first_packets_carry_the_longest_datagram_and_no_longer_one() {
    let mut line = Line::new(Options::default(), Impairments::default(), 1);
    line.client(Command::Connect { peer: PEER_B }).unwrap();
    while !line.0.a().is_established() {
        line.run();
    }
    let mut send = |length| {
        let mut is_queued = false;
        let message = vec![0; length].into();
        line.client(Command::SendDatagram { message, is_queued: &mut is_queued }).map(|()| is_queued)
    };
    assert_eq!(send(MAX_DATAGRAM_MESSAGE), Ok(true));
    assert_eq!(send(1_453), Err(Refusal::TooLong));
}

#[test]
fn another_key_is_refused() {
    let (_, server) = nodes(Options::default(), Randomness::Fixed);
    let client = Node::new(Config {
        port: Port(0),
        options: Options::default(),
        role: Role::Client { server: Identity::with_key(&[8; 32]).fingerprint() },
        randomness: Randomness::Fixed,
        seed: [1; 32],
    });
    let mut pair = Pair::new(client, server, Seed(1));
    pair.command_a(Command::Connect { peer: PEER_B }).unwrap();
    pair.run(Span::from_s(1));
    let events: Vec<Event> = pair.take_events_a().into_iter().map(|(_, event)| event).collect();
    assert_eq!(events, [Event::Closed(CloseReason::WrongKey)]);
    assert!(!pair.a().is_established() && !pair.b().is_established());
}

#[test]
fn equal_seeds_give_equal_packets() {
    let run = |seed| {
        let mut line = Line::new(Options { streams: 2, ..Options::default() }, bad_line(), seed);
        let statistics = exchange_streams(&mut line, 2, 100_000);
        (statistics, line.0.now(), line.0.counts())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).1, run(8).1);
}

#[test]
fn closing_reaches_the_peer() {
    let mut line = Line::new(Options::default(), Impairments::default(), 1);
    line.client(Command::Connect { peer: PEER_B }).unwrap();
    while !line.0.b().is_established() {
        line.run();
    }
    line.client(Command::Close).unwrap();
    let (_, server) = line.run();
    assert!(server.contains(&Event::Closed(CloseReason::Completed)), "{server:?}");
    let mut written = 0;
    let chunks = &mut [bytes::Bytes::from_static(b"late")];
    let sent = line.client(Command::Send { stream: 0, chunks, written: &mut written });
    assert_eq!((sent, written), (Ok(()), 0));
}
