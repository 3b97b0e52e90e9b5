//! What memory connections take, by counting allocations; in soak at full size.

use allocation_counter::measure;
use trunkline_arq::{Buffer, Command, Config, ConnectionId, Event, EventKind, Node, Options, ReceiveStatus};
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Writable};
use trunkline_units::{Instant, Seed, Span};

use super::forge;

/// Two nodes connected without delay.
pub struct LocalPair {
    pub nodes: [Node; 2],
    pub ids: [ConnectionId; 2],
    pub now: Instant,
    buffer: Vec<u8>,
    /// Channels that were reported as readable, by end.
    pub readable: [Vec<u16>; 2],
}

const ADDRESSES: [Peer; 2] = [Peer::new(b"a"), Peer::new(b"b")];

impl LocalPair {
    pub fn open(options: &Options) -> LocalPair {
        let node = |accept, place: &str| {
            Node::new(Config { port: Port(0), accept, max_connections: 2, random: Seed(1998).stream(place) })
        };
        let nodes = [node(None, "a"), node(Some(options.clone()), "b")];
        let buffer = vec![0; MAX_BATCH];
        let (ids, readable) = Default::default();
        let mut near = LocalPair { nodes, ids, now: Instant::ZERO, buffer, readable };
        let mut id = ConnectionId::default();
        near.command(0, Command::Open { peer: ADDRESSES[1], options, id: &mut id });
        near.run();
        near
    }

    pub fn command(&mut self, end: usize, command: Command<'_>) {
        self.nodes[end].handle(self.now, Input::Command(command)).expect("nothing is refused");
    }

    /// Runs until both ends are idle, and past some timers.
    pub fn run(&mut self) {
        for _ in 0..3 {
            while self.turn() {}
            self.now += Span::from_ms(1);
            (0..2).for_each(|end| self.nodes[end].handle(self.now, Input::Wake).expect("never refused"));
        }
    }

    /// Whether either end said something.
    pub fn turn(&mut self) -> bool {
        let mut said = false;
        for (end, peer) in ADDRESSES.into_iter().enumerate() {
            loop {
                match self.nodes[end].poll(self.now, Writable::ALL, &mut self.buffer) {
                    Output::Transmit(t) => {
                        let bytes = &self.buffer[..t.length];
                        let input = Input::Frame { port: Port(0), peer, bytes, segment: t.segment };
                        self.nodes[1 - end].handle(self.now, input).expect("never refused");
                    }
                    Output::Event(Event { id, kind: EventKind::Opened { .. } }) => self.ids[end] = id,
                    Output::Event(Event { kind: EventKind::Readable { channel }, .. }) => {
                        self.readable[end].push(channel)
                    }
                    Output::Event(_) => {}
                    Output::Idle(_) => break,
                }
                said = true;
            }
        }
        said
    }

    pub fn send(&mut self, end: usize, channel: u16, bytes: &[u8]) {
        let id = self.ids[end];
        self.command(end, Command::Send { id, channel, bytes });
    }

    /// Takes all messages of readable channels; returns their number and bytes.
    pub fn take(&mut self, end: usize) -> (u64, u64) {
        let (mut messages, mut bytes) = (0, 0);
        let mut into = Buffer::new();
        for channel in std::mem::take(&mut self.readable[end]) {
            loop {
                into.clear();
                let mut taken = ReceiveStatus::Empty;
                let id = self.ids[end];
                self.command(end, Command::Receive { id, channel, buffer: &mut into, status: &mut taken });
                messages += u64::from(taken == ReceiveStatus::Complete);
                bytes += into.len() as u64;
                if taken == ReceiveStatus::Empty {
                    break;
                }
            }
        }
        (messages, bytes)
    }
}

/// Bytes for each of `count` channels of one connection, each of which has carried a message each way, at each end.
pub fn of_idle_channels(count: u16) -> [i64; 2] {
    let mut near = LocalPair::open(&Options::default());
    let use_all = |near: &mut LocalPair, channels: std::ops::Range<u16>| {
        for channel in channels {
            for end in 0..2 {
                near.send(end, channel, b"sixteen bytes ..");
            }
            if channel % 64 == 63 {
                near.run();
                assert_eq!([near.take(0).0, near.take(1).0], [64, 64]);
            }
        }
        near.run();
        let _ = [near.take(0), near.take(1)];
    };
    // What a connection has anyway.
    use_all(&mut near, 0..64);
    let grown = measure(|| use_all(&mut near, 64..64 + count));
    // All are still of use, and take no more for it.
    let again = measure(|| use_all(&mut near, 64..64 + count));
    assert!(again.bytes_current <= 0, "{} bytes", again.bytes_current);
    let (mut own, nodes) = ([0; 2], near.nodes);
    for (end, node) in nodes.into_iter().enumerate() {
        own[end] = -measure(|| drop(node)).bytes_current;
    }
    let all: i64 = own.iter().sum();
    own.map(|own| grown.bytes_current * own / all / i64::from(count))
}

/// Returns the peak memory of a flood of forged packets, with the buffers of the flood itself: for a node without
/// connections, and for one with a connection whose peer's address some packets have. Asserts that no memory remains
/// allocated.
pub fn of_unknown_peers(packets: u64) -> (u64, u64) {
    let mut bare = forge::server(10);
    let begun = forge::flood(&mut bare, Instant::ZERO, 1000, 1, None);
    let alone = measure(|| {
        forge::flood(&mut bare, begun, packets, 2, None);
    });
    let mut near = LocalPair::open(&Options::default());
    let friend = Some(ADDRESSES[0]);
    let flood = |near: &mut LocalPair, packets, seed| {
        near.now = forge::flood(&mut near.nodes[1], near.now, packets, seed, friend);
    };
    flood(&mut near, 1000, 3);
    let beside = measure(|| flood(&mut near, packets, 4));
    assert_eq!([alone.bytes_current, beside.bytes_current], [0, 0]);
    near.run();
    near.send(0, 3, b"still here");
    near.run();
    assert_eq!(near.take(1), (1, 10));
    (alone.bytes_max, beside.bytes_max)
}

/// The most memory that both ends take while a message of `length` bytes passes, beyond that message.
pub fn of_a_message(length: usize) -> u64 {
    let mut near = LocalPair::open(&Options::default());
    let mut message = Buffer::with_capacity(length);
    message.resize(length, 7);
    let id = near.ids[0];
    let grown = measure(|| {
        near.command(0, Command::SendOwned { id, channel: 0, message: &mut message });
        let mut got = 0;
        for _ in 0..10_000_000 {
            while near.turn() {}
            let (messages, bytes) = near.take(1);
            got += bytes;
            if messages > 0 {
                break;
            }
            near.now += Span::from_us(10);
            (0..2).for_each(|end| near.nodes[end].handle(near.now, Input::Wake).expect("never refused"));
        }
        assert_eq!(got, length as u64);
    });
    grown.bytes_max
}
