//! What every endpoint keeps, [`Node`] keeps: alone, among strangers, and with a peer that says anything.

use trunkline_arq::wire::check::{Check, ChecksumKey, Direction};
use trunkline_arq::wire::handshake::Handshake;
use trunkline_arq::{
    Buffer, Command, Config, Congestion, ConnectionId, Event, EventKind, Fec, Mode, Node, Options,
    ReceiveStatus,
};
use trunkline_endpoint::laws::{Checked, check_laws};
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Writable};
use trunkline_units::{Instant, Seed, Span, Stream};

fn options(seed: u64) -> Options {
    let mut draw = Seed(seed).stream("options");
    Options {
        mode: Mode::ALL[draw.below(3) as usize],
        congestion: Congestion::ALL[draw.below(Congestion::ALL.len() as u64) as usize],
        window: 1 + draw.below(20) as u16,
        frame: 128 + draw.below(200) as u16,
        credit: 2000,
        channel_credit: 1000,
        send_buffer: 500,
        coalesce_delay: if draw.chance(0.5) { Span::from_us(100) } else { Span::ZERO },
        probe_up_to: draw.chance(0.5).then_some(400),
        fec: draw.chance(0.5).then_some(Fec { frames: 3, repairs: 2 }),
        ..Options::default()
    }
}

fn node(seed: u64, place: &str) -> Node {
    let random = Seed(seed).stream(place);
    Node::new(Config { port: Port(0), accept: Some(options(seed)), max_connections: 3, random })
}

fn peer(number: u64) -> Peer {
    Peer::new(&[number as u8])
}

#[test]
fn a_node_among_unknown_peers_satisfies_the_contract() {
    for seed in 0..30 {
        let mut ids = Vec::new();
        check_laws(
            Seed(seed),
            || node(seed, "node"),
            |node, now, draw| {
                let mut id = ConnectionId::default();
                let open = Command::Open { peer: peer(draw.below(3)), options: &options(seed), id: &mut id };
                if draw.chance(0.5) && node.handle(now, Input::Command(open)).is_ok() {
                    ids.push(id);
                } else if let Some(id) = ids.get(draw.below(ids.len() as u64) as usize) {
                    let _ = node.handle(now, Input::Command(Command::Forget { id: *id }));
                }
            },
        );
    }
}

/// A node, its connection with peer 0, and the key to speak for that.
fn standing(seed: u64) -> (Node, ConnectionId, ChecksumKey) {
    let (mut server, mut client) = (node(seed, "server"), node(seed, "client"));
    let mut buffer = vec![0; MAX_BATCH];
    let (mut id, mut key) = (ConnectionId::default(), None);
    let open = Command::Open { peer: peer(1), options: &options(seed), id: &mut id };
    client.handle(Instant::ZERO, Input::Command(open)).unwrap();
    for _ in 0..4 {
        for way in [true, false] {
            let (from, to) = if way { (&mut client, &mut server) } else { (&mut server, &mut client) };
            loop {
                match from.poll(Instant::ZERO, Writable::ALL, &mut buffer) {
                    Output::Transmit(t) => {
                        let bytes = &buffer[..t.length];
                        if let Some(Handshake::Opened { client_id, server_id, .. }) = Handshake::read(bytes) {
                            key = Some(ChecksumKey::new(client_id, server_id));
                        }
                        let peer = peer(if way { 0 } else { 1 });
                        to.handle(Instant::ZERO, Input::Frame { port: Port(0), peer, bytes, segment: None })
                            .unwrap();
                    }
                    Output::Event(Event { id: own, kind: EventKind::Opened { .. } }) if !way => id = own,
                    Output::Event(_) => {}
                    Output::Idle(_) => break,
                }
            }
        }
    }
    (server, id, key.expect("it opens"))
}

#[test]
fn a_node_with_an_arbitrary_peer_satisfies_the_contract() {
    for seed in 0..60 {
        let (_, id, key) = standing(seed);
        check_laws(
            Seed(seed),
            || standing(seed).0,
            |node, now, draw| {
                if draw.chance(0.5) {
                    let frame = anything(draw, key);
                    let input = Input::Frame { port: Port(0), peer: peer(0), bytes: &frame, segment: None };
                    node.handle(now, input).unwrap();
                } else {
                    command(node, now, draw, id);
                }
            },
        );
    }
}

/// A frame of the peer, with a check that holds, that makes more or less sense.
fn anything(draw: &mut Stream, key: ChecksumKey) -> Vec<u8> {
    let length = 4 + draw.below(60) as usize;
    let mut frame: Vec<u8> = (0..length + Check::Crc32c.bytes()).map(|_| draw.below(4) as u8).collect();
    frame[0] = match draw.below(7) {
        0 => draw.bits() as u8,
        1 => 6 + draw.below(3) as u8,
        6 => 0xC0 | draw.below(4) as u8,
        kind => (kind as u8 - 1) << 5 | draw.below(32) as u8,
    };
    (frame[1], frame[2], frame[3]) = (0, 0, draw.below(12) as u8);
    Check::Crc32c.seal(key.secret(Direction::ToServer, 0), &mut frame);
    frame
}

fn command(node: &mut Checked<Node>, now: Instant, draw: &mut Stream, id: ConnectionId) {
    let channel = draw.below(3) as u16;
    let (mut buffer, mut taken, mut read) = (Buffer::from(&[7; 300][..]), ReceiveStatus::Empty, 0);
    let mut bytes = vec![1; draw.below(300) as usize];
    let command = match draw.below(40) {
        0 => Command::Close { id },
        1 => Command::Reset { id },
        2 => Command::Forget { id },
        3..10 => Command::Receive { id, channel, buffer: &mut buffer, status: &mut taken },
        10..16 => Command::Read { id, channel, buffer: &mut bytes, read: &mut read },
        16..20 => Command::SendOwned { id, channel, message: &mut buffer },
        20..24 => Command::Prioritize { id, channel, priority: draw.bits() as u8 },
        _ => Command::Send { id, channel, bytes: &bytes },
    };
    let _ = node.handle(now, Input::Command(command));
}
