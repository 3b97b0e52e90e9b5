//! Forged packets from unknown addresses.

use trunkline_arq::wire::check::Check;
use trunkline_arq::wire::handshake::{Handshake, TransportParameters};
use trunkline_arq::{Config, Fec, Mode, Node, Options};
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Transmit, Writable};
use trunkline_units::{Instant, Seed, Span, Stream};

pub fn server(connections: usize) -> Node {
    let random = Seed(1).stream("server");
    let options = Options { fec: Some(Fec { frames: 10, repairs: 2 }), ..Options::default() };
    Node::new(Config { port: Port(0), accept: Some(options), max_connections: connections, random })
}

/// A forged packet, written to `buffer`; how long it is.
pub fn forge(draw: &mut Stream, buffer: &mut [u8]) -> usize {
    let parameters = TransportParameters {
        mode: Mode::Selective,
        check: Check::Crc32c,
        window: draw.bits() as u16,
        frame: draw.bits() as u16,
        ack_delay_us: draw.bits() as u32,
        ack_every: draw.bits() as u16,
        credit: draw.bits() as u32,
        channel_credit: draw.bits() as u32,
        parts: draw.chance(0.5),
        fec: Some(Fec { frames: draw.bits() as u8, repairs: draw.bits() as u8 & 127 })
            .filter(|fec| fec.frames.min(fec.repairs) > 0),
    };
    let client_id = draw.bits();
    match draw.below(5) {
        0 => Handshake::Open { client_id, parameters, cookie: [0; 16] }.write(buffer),
        1 => {
            let cookie = (u128::from(draw.bits()) << 64 | u128::from(draw.bits())).to_be_bytes();
            Handshake::Open { client_id, parameters, cookie }.write(buffer)
        }
        // A version to come.
        2 => {
            let length = Handshake::Open { client_id, parameters, cookie: [0; 16] }.write(buffer);
            buffer[1] = 2 + draw.bits() as u8 % 200;
            Check::Crc32c.seal(0, &mut buffer[..length]);
            length
        }
        // As if of a connection that stands.
        3 => {
            let length = draw.below(1472) as usize;
            random_bytes(draw, &mut buffer[..length]);
            if let Some(first) = buffer[..length].first_mut() {
                *first = (1 + *first % 5) << 5 | *first >> 3;
            }
            length
        }
        _ => {
            let length = draw.below(100) as usize;
            random_bytes(draw, &mut buffer[..length]);
            length
        }
    }
}

fn random_bytes(draw: &mut Stream, bytes: &mut [u8]) {
    bytes.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&draw.bits().to_le_bytes()[..chunk.len()]));
}

/// Sends `packets` forged packets to a node, some with the address of `friend`. Checks that each answer goes to the
/// sender and is not longer than the packet. Returns the time of the last packet.
pub fn flood(node: &mut Node, begin: Instant, packets: u64, seed: u64, friend: Option<Peer>) -> Instant {
    let (mut draw, connections) = (Seed(seed).stream("strangers"), node.connection_count());
    let (mut question, mut answer) = (vec![0; MAX_BATCH], vec![0; MAX_BATCH]);
    let mut now = begin;
    for number in 0..packets {
        let length = forge(&mut draw, &mut question);
        let stranger = Peer::new(&draw.bits().to_be_bytes());
        let peer = friend.filter(|_| number % 4 == 0).unwrap_or(stranger);
        now += Span::from_us(draw.below(20));
        let bytes = &question[..length];
        node.handle(now, Input::Frame { port: Port(0), peer, bytes, segment: None }).expect("never refused");
        let mut answers = 0;
        while let Output::Transmit(Transmit { peer: to, length: said, .. }) =
            node.poll(now, Writable::ALL, &mut answer)
        {
            assert!(said <= length, "packet {number}: {said} bytes for {length}");
            assert_eq!(to, peer, "packet {number}");
            answers += 1;
        }
        assert!(answers <= 1, "packet {number}");
    }
    assert_eq!(node.connection_count(), connections);
    now
}
