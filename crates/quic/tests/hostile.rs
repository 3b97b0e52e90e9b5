//! Bytes of unknown peers neither end a node nor make it grow.

use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Writable};
use trunkline_quic::{Command, Config, Identity, Node, Options, Randomness, Role};
use trunkline_units::{Instant, Seed, Span};

use crate::support::{Network, Sockets, exchange_streams, nodes};

/// Returns all frames that a node sends now.
fn frames(node: &mut Node, now: Instant) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; MAX_BATCH];
    let mut frames = Vec::new();
    loop {
        match node.poll(now, Writable::ALL, &mut buffer) {
            Output::Transmit(transmit) => frames.push(buffer[..transmit.length].to_vec()),
            Output::Event(_) => {}
            Output::Idle(_) => return frames,
        }
    }
}

fn receive(node: &mut Node, now: Instant, peer: Peer, bytes: &[u8]) {
    node.handle(now, Input::Frame { port: Port(0), peer, bytes, segment: None }).unwrap();
}

#[test]
fn random_bytes_are_ignored() {
    let mut random = Seed(1).stream("bytes");
    let (_, mut server) = nodes(Options::default(), Randomness::Fixed);
    let mut answers = 0;
    for step in 0..20_000u64 {
        let now = Instant::ZERO + Span::from_us(10) * step;
        let length = random.below(1_500) as usize;
        let mut bytes: Vec<u8> = (0..length).map(|_| random.bits() as u8).collect();
        // Half of them look like the first packet of a client.
        if step % 2 == 0 && length > 6 {
            bytes[..6].copy_from_slice(&[0xC0, 0, 0, 0, 1, 8]);
        }
        receive(&mut server, now, Peer::new(&step.to_be_bytes()), &bytes);
        answers += frames(&mut server, now).iter().map(Vec::len).sum::<usize>();
    }
    assert_eq!(server.connections(), 0);
    // Less than was received: a node does not amplify.
    assert!(answers < 1_000_000, "{answers} bytes of answers");
}

#[test]
fn handshakes_are_limited() {
    let (_, mut server) = nodes(Options::default(), Randomness::Fixed);
    let now = Instant::ZERO;
    for number in 0..100u32 {
        let mut seed = [0; 32];
        seed[..4].copy_from_slice(&number.to_be_bytes());
        let mut client = Node::new(Config {
            port: Port(0),
            options: Options::default(),
            role: Role::Client { server: Identity::fixed().fingerprint() },
            randomness: Randomness::Fixed,
            seed,
        });
        client.handle(now, Input::Command(Command::Connect { peer: Peer::NONE })).unwrap();
        let first = frames(&mut client, now).remove(0);
        receive(&mut server, now, Peer::new(&number.to_be_bytes()), &first);
        let _ = frames(&mut server, now);
    }
    assert_eq!((server.connections(), server.refused()), (8, 92));
}

#[test]
fn a_flood_does_not_end_a_connection_over_sockets() {
    let mut sockets = Sockets::new(Options::default());
    let flood = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut random = Seed(2).stream("bytes");
    for _ in 0..500 {
        let bytes: Vec<u8> = (0..random.below(1_500)).map(|_| random.bits() as u8).collect();
        flood.send_to(&bytes, sockets.server_address()).unwrap();
    }
    exchange_streams(&mut sockets, 1, 200_000);
    assert_eq!(sockets.nodes().1.connections(), 1);
}
