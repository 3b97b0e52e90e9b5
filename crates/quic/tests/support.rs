//! Two nodes on a simulated line or over sockets, and the exchanges that both carry.

use bytes::Bytes;
use trunkline_endpoint::pair::PEER_B;
use trunkline_endpoint::{Impairments, Pair, Peer, Port};
use trunkline_io::peer::peer_of;
use trunkline_io::{Clock, EventLoop};
use trunkline_quic::{
    Command, Config, Event, Identity, Node, Options, Randomness, Refusal, Role, Statistics,
};
use trunkline_units::{Rate, Seed, Span};

/// Returns the client and the server.
pub fn nodes(options: Options, randomness: Randomness) -> (Node, Node) {
    let identity = Identity::fixed();
    let config = |role, seed| Config { port: Port(0), options, role, randomness, seed: [seed; 32] };
    let client = Node::new(config(Role::Client { server: identity.fingerprint() }, 1));
    (client, Node::new(config(Role::Server { identity }, 2)))
}

/// Two connected nodes: the client is A, the server B.
pub trait Network {
    fn server_peer(&self) -> Peer;
    fn client(&mut self, command: Command<'_>) -> Result<(), Refusal>;
    fn server(&mut self, command: Command<'_>) -> Result<(), Refusal>;
    /// Runs both ends for a while; returns their events.
    fn run(&mut self) -> (Vec<Event>, Vec<Event>);
    fn nodes(&self) -> (&Node, &Node);
}

/// A simulated line.
pub struct Line(pub Pair<Node, Node>);

impl Line {
    pub fn new(options: Options, impairments: Impairments, seed: u64) -> Line {
        let (client, server) = nodes(options, Randomness::Fixed);
        let mut pair = Pair::new(client, server, Seed(seed));
        pair.impair(impairments, impairments);
        Line(pair)
    }
}

/// Returns a line of 20 Mb/s and 5 ms that loses 5 % of the packets, doubles 1 %, and reorders 5 %.
pub fn bad_line() -> Impairments {
    Impairments {
        delay: Span::from_ms(5),
        rate: Some(Rate::from_bps(20_000_000)),
        drop: 0.05,
        duplicate: 0.01,
        reorder: 0.05,
        late: Span::from_ms(4),
        ..Impairments::default()
    }
}

impl Network for Line {
    fn server_peer(&self) -> Peer {
        PEER_B
    }

    fn client(&mut self, command: Command<'_>) -> Result<(), Refusal> {
        self.0.command_a(command)
    }

    fn server(&mut self, command: Command<'_>) -> Result<(), Refusal> {
        self.0.command_b(command)
    }

    fn run(&mut self) -> (Vec<Event>, Vec<Event>) {
        self.0.run(Span::from_ms(1));
        let events = |events: Vec<(_, Event)>| events.into_iter().map(|(_, event)| event).collect();
        (events(self.0.take_events_a()), events(self.0.take_events_b()))
    }

    fn nodes(&self) -> (&Node, &Node) {
        (self.0.a(), self.0.b())
    }
}

/// Sockets on the loopback interface.
pub struct Sockets {
    client: EventLoop<Node>,
    server: EventLoop<Node>,
}

impl Sockets {
    pub fn new(options: Options) -> Sockets {
        let (client, server) = nodes(options, Randomness::System);
        let clock = Clock::start();
        let run = |node| {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            EventLoop::over(node, socket, clock).unwrap()
        };
        Sockets { client: run(client), server: run(server) }
    }

    pub fn server_address(&self) -> std::net::SocketAddr {
        self.server.ports.socket(0).local_addr().unwrap()
    }
}

impl Network for Sockets {
    fn server_peer(&self) -> Peer {
        peer_of(self.server_address())
    }

    fn client(&mut self, command: Command<'_>) -> Result<(), Refusal> {
        self.client.command(command)
    }

    fn server(&mut self, command: Command<'_>) -> Result<(), Refusal> {
        self.server.command(command)
    }

    fn run(&mut self) -> (Vec<Event>, Vec<Event>) {
        let (mut client, mut server) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            let soon = Some(self.client.clock.now() + Span::from_us(200));
            self.client.turn(soon, |event| client.push(event)).unwrap();
            self.server.turn(soon, |event| server.push(event)).unwrap();
        }
        (client, server)
    }

    fn nodes(&self) -> (&Node, &Node) {
        (&self.client.endpoint, &self.server.endpoint)
    }
}

/// Returns the byte of a stream at an offset.
fn byte(stream: u32, offset: usize) -> u8 {
    (offset.wrapping_mul(31) ^ (offset >> 8) ^ (stream as usize * 7)) as u8
}

/// Sends `length` bytes on each stream and checks that all arrive in order. Returns the statistics of both ends.
pub fn exchange_streams(network: &mut impl Network, streams: u32, length: usize) -> [Statistics; 2] {
    let peer = network.server_peer();
    network.client(Command::Connect { peer }).unwrap();
    let contents = |stream| Bytes::from_iter((0..length).map(|offset| byte(stream, offset)));
    let mut pending: Vec<Bytes> = (0..streams).map(contents).collect();
    let mut received = vec![0; streams as usize];
    let mut is_delivered = false;
    for _ in 0..200_000 {
        let (client, server) = network.run();
        if client.iter().any(|event| matches!(event, Event::Connected | Event::Writable)) {
            for (stream, chunk) in (0..).zip(&mut pending).filter(|(_, chunk)| !chunk.is_empty()) {
                let mut written = 0;
                let chunks = std::slice::from_mut(chunk);
                network.client(Command::Send { stream, chunks, written: &mut written }).unwrap();
                if written == 1 {
                    chunk.clear();
                }
            }
            if pending.iter().all(Bytes::is_empty) {
                network.client(Command::Finish).unwrap();
            }
        }
        for event in server {
            assert!(!matches!(event, Event::Closed(_)), "{event:?}");
            if let Event::Readable { stream } = event {
                let count: &mut usize = &mut received[stream as usize];
                let mut consume = |bytes: &[u8]| {
                    for byte_received in bytes {
                        assert_eq!(*byte_received, byte(stream, *count), "stream {stream} at {count}");
                        *count += 1;
                    }
                };
                network.server(Command::Receive { stream, consume: &mut consume }).unwrap();
            }
        }
        is_delivered |= client.contains(&Event::Delivered);
        let (client, server) = network.nodes();
        if is_delivered && server.has_received_all() {
            assert!(received.iter().all(|count| *count == length), "{received:?}");
            return [client, server].map(|node| node.statistics().unwrap());
        }
    }
    panic!("{received:?} of {length} bytes have arrived");
}

/// Sends `count` datagrams and returns how many arrive, with the statistics of both ends.
pub fn exchange_datagrams(network: &mut impl Network, count: u32, length: usize) -> (u32, [Statistics; 2]) {
    let peer = network.server_peer();
    network.client(Command::Connect { peer }).unwrap();
    let (mut sent, mut received, mut is_delivered) = (0, 0, false);
    for _ in 0..200_000 {
        let (client, server) = network.run();
        if client.iter().any(|event| matches!(event, Event::Connected | Event::Writable)) {
            let mut is_queued = true;
            while is_queued && sent < count {
                let message = Bytes::from(vec![sent as u8; length]);
                network.client(Command::SendDatagram { message, is_queued: &mut is_queued }).unwrap();
                sent += u32::from(is_queued);
            }
            if sent == count {
                network.client(Command::Finish).unwrap();
            }
        }
        for event in server {
            match event {
                Event::DatagramsReadable => {
                    let mut consume = |message: &[u8]| {
                        assert!(message.len() == length && message.iter().all(|byte| *byte == message[0]));
                        received += 1;
                    };
                    network.server(Command::ReceiveDatagrams { consume: &mut consume }).unwrap();
                }
                Event::Readable { stream } => {
                    let mut consume = |_: &[u8]| panic!("nothing was sent on a stream");
                    network.server(Command::Receive { stream, consume: &mut consume }).unwrap();
                }
                _ => {}
            }
        }
        is_delivered |= client.contains(&Event::Delivered);
        let (client, server) = network.nodes();
        if is_delivered && server.has_received_all() {
            return (received, [client, server].map(|node| node.statistics().unwrap()));
        }
    }
    panic!("{sent} of {count} datagrams were sent");
}
