//! A node: the endpoint of `quinn-proto`, its connection, and handshakes of unknown peers.
//!
//! Bounds: a server takes part in at most 8 handshakes at a time and refuses further ones, as it refuses all when it has a
//! connection. Answers without a connection wait in a queue of 16, beyond which they are dropped. What a peer may send
//! before it is read is limited by the windows of [`Options`].

use std::collections::VecDeque;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    ClientConfig, ConnectionHandle, DatagramEvent, EndpointConfig, Incoming, NoneTokenStore, ServerConfig,
};
use trunkline_endpoint::{
    Endpoint, Idle, Input, MAX_BATCH, MAX_SEGMENTS, Output, Peer, Port, Reason, Segment, Transmit, Writable,
};
use trunkline_units::{Instant, Span};

use crate::event::{Event, Refusal};
use crate::ids::Secrets;
use crate::options::Options;
use crate::session::Session;
use crate::statistics::Statistics;
use crate::time::TimeBase;
use crate::tls::{self, Fingerprint, Identity, Randomness};

/// Maximum number of connections, nearly all of them in the handshake.
const MAX_SESSIONS: usize = 8;
/// Maximum number of answers without a connection that wait to be sent.
const MAX_ANSWERS: usize = 16;
/// The resolution of timers. The pacing of a path with a tiny round-trip time may set one to the present.
const TICK: Span = Span::from_ns(1);

/// The configuration of a node.
#[derive(Clone, Debug)]
pub struct Config {
    /// The port for all packets.
    pub port: Port,
    /// Options of the connection.
    pub options: Options,
    /// Whether it is the client or the server.
    pub role: Role,
    /// Where TLS takes random numbers from.
    pub randomness: Randomness,
    /// Seed of all other random numbers. From a secure source, unless the run is simulated.
    pub seed: [u8; 32],
}

/// A side of the connection.
#[derive(Clone, Debug)]
pub enum Role {
    /// Connects to the server with this key.
    Client {
        /// The key.
        server: Fingerprint,
    },
    /// Accepts a connection.
    Server {
        /// Its key.
        identity: Identity,
    },
}

/// A command. Before [`Event::Connected`] and after [`Event::Closed`], only received data can be read.
pub enum Command<'a> {
    /// Connects to a server. Only for a client, and once.
    Connect {
        /// The server.
        peer: Peer,
    },
    /// Writes chunks to a stream, as far as there is room; [`Event::Writable`] reports more room.
    Send {
        /// Number of the stream.
        stream: u32,
        /// The chunks. Of a partly written chunk only the rest stays.
        chunks: &'a mut [Bytes],
        /// Set to the number of completely written chunks.
        written: &'a mut usize,
    },
    /// Sends a message as an unreliable datagram, if there is room; [`Event::Writable`] reports more room.
    SendDatagram {
        /// The message.
        message: Bytes,
        /// Set to whether there was room.
        is_queued: &'a mut bool,
    },
    /// Reads what has arrived on a stream.
    Receive {
        /// Number of the stream.
        stream: u32,
        /// Receives the bytes in order.
        consume: &'a mut dyn FnMut(&[u8]),
    },
    /// Reads all datagrams that have arrived.
    ReceiveDatagrams {
        /// Receives the messages.
        consume: &'a mut dyn FnMut(&[u8]),
    },
    /// Ends all streams; everything sent before still arrives. [`Event::Delivered`] reports that.
    Finish,
    /// Closes the connection at once and reports this to the peer.
    Close,
    /// Resets a stream, as only other implementations do.
    #[cfg(test)]
    Reset {
        /// Number of the stream.
        stream: u32,
    },
}

/// A node of QUIC with one connection.
pub struct Node {
    endpoint: quinn_proto::Endpoint,
    client: Option<ClientConfig>,
    options: Options,
    port: Port,
    clock: TimeBase,
    sessions: Vec<Session>,
    /// Which session is the connection: that of a client, or the first of a server that completed its handshake.
    current: Option<ConnectionHandle>,
    answers: VecDeque<(Peer, Vec<u8>)>,
    /// Whether anything may have to be sent or reported.
    is_active: bool,
    /// The next deadline is not before this instant.
    earliest: Instant,
    packets: Vec<u8>,
    refused: u64,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("options", &self.options).field("current", &self.current).finish()
    }
}

impl Node {
    /// Creates a node.
    pub fn new(config: Config) -> Node {
        let secrets = Secrets::new(&config.seed);
        let mut endpoint_config = EndpointConfig::new(secrets.reset_key());
        let ids = secrets.clone();
        endpoint_config.cid_generator(move || Box::new(ids.ids())).rng_seed(Some(secrets.seed()));
        let max_payload = config.options.max_mtu.max(MIN_RECEIVED);
        endpoint_config.max_udp_payload_size(max_payload).expect("at least 1,200 bytes");
        let (mut client, mut server) = (None, None);
        match &config.role {
            Role::Client { server } => {
                let tls = Arc::new(tls::client_config(*server, config.randomness));
                let tls = QuicClientConfig::try_from(tls).expect("the provider has the first cipher suite");
                let mut made = ClientConfig::new(Arc::new(tls));
                let first_id = secrets.initial_id();
                made.transport_config(config.options.transport(true))
                    .initial_dst_cid_provider(Arc::new(move || first_id))
                    .token_store(Arc::new(NoneTokenStore));
                client = Some(made);
            }
            Role::Server { identity } => {
                let tls = tls::server_config(identity, config.randomness);
                let tls = QuicServerConfig::try_from(tls).expect("the provider has the first cipher suite");
                let mut made = ServerConfig::new(Arc::new(tls), secrets.token_key());
                made.transport_config(config.options.transport(false)).migration(false);
                // Tokens for later connections, which there are not.
                made.validation_token.sent(0);
                server = Some(Arc::new(made));
            }
        }
        Node {
            endpoint: quinn_proto::Endpoint::new(Arc::new(endpoint_config), server, true, None),
            client,
            options: config.options,
            port: config.port,
            clock: TimeBase::new(),
            sessions: Vec::new(),
            current: None,
            answers: VecDeque::new(),
            is_active: false,
            earliest: Instant::ZERO,
            packets: Vec::new(),
            refused: 0,
        }
    }

    /// Returns whether the handshake is complete and the connection has not ended.
    pub fn is_established(&self) -> bool {
        self.connection().is_some_and(|session| session.is_established() && !session.is_closed)
    }

    /// Returns whether the peer has ended all streams and everything was read.
    pub fn has_received_all(&self) -> bool {
        self.connection().is_some_and(Session::has_received_all)
    }

    /// Returns the statistics of the connection, also when it has ended.
    pub fn statistics(&self) -> Option<Statistics> {
        self.connection().map(Session::statistics)
    }

    /// Returns the number of connections and handshakes.
    pub fn connections(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the number of handshakes refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn connection(&self) -> Option<&Session> {
        let current = self.current?;
        self.sessions.iter().find(|session| session.handle == current)
    }

    /// Returns the connection for a command.
    fn open_connection(&mut self) -> Result<&mut Session, Refusal> {
        let current = self.current;
        self.is_active = true;
        let session = self.sessions.iter_mut().find(|session| Some(session.handle) == current);
        session.filter(|session| session.is_established()).ok_or(Refusal::NotConnected)
    }

    fn connect(&mut self, now: Instant, peer: Peer) -> Result<(), Refusal> {
        let client = self.client.take().ok_or(Refusal::NoClient)?;
        let connected =
            self.endpoint.connect(self.clock.std_instant(now), client, address_of(peer), tls::SERVER_NAME);
        let (handle, connection) = connected.expect("the address and the configuration are valid");
        self.current = Some(handle);
        self.sessions.push(Session::new(handle, connection, self.options.streams, self.clock, now));
        self.is_active = true;
        Ok(())
    }

    fn command(&mut self, now: Instant, command: Command<'_>) -> Result<(), Refusal> {
        match command {
            Command::Connect { peer } => return self.connect(now, peer),
            Command::Send { stream, chunks, written } => {
                *written = self.open_connection()?.write(stream, chunks)?;
            }
            Command::SendDatagram { message, is_queued } => {
                *is_queued = self.open_connection()?.send_datagram(message)?;
            }
            Command::Receive { stream, consume } => self.open_connection()?.read(now, stream, consume)?,
            Command::ReceiveDatagrams { consume } => {
                let session = self.open_connection()?;
                while let Some(message) = session.datagram() {
                    consume(&message);
                }
            }
            Command::Finish => self.open_connection()?.finish(),
            Command::Close => {
                let current = self.current;
                let session = self.sessions.iter_mut().find(|session| Some(session.handle) == current);
                session.ok_or(Refusal::NotConnected)?.close(now);
                self.is_active = true;
            }
            #[cfg(test)]
            Command::Reset { stream } => self.open_connection()?.reset(stream),
        }
        Ok(())
    }

    fn receive(&mut self, now: Instant, peer: Peer, frame: &[u8]) {
        let (at, remote) = (self.clock.std_instant(now), address_of(peer));
        let mut answer = Vec::new();
        match self.endpoint.handle(at, remote, None, None, BytesMut::from(frame), &mut answer) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(session) = self.sessions.iter_mut().find(|session| session.handle == handle) {
                    session.handle(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.accept(now, incoming, answer),
            Some(DatagramEvent::Response(_)) => self.answer(peer, answer),
            None => {}
        }
        self.is_active = true;
    }

    fn accept(&mut self, now: Instant, incoming: Incoming, mut answer: Vec<u8>) {
        let peer = peer_of(incoming.remote_address());
        if self.current.is_some() || self.sessions.len() >= MAX_SESSIONS {
            self.refused += 1;
            let _ = self.endpoint.refuse(incoming, &mut answer);
            return self.answer(peer, answer);
        }
        match self.endpoint.accept(incoming, self.clock.std_instant(now), &mut answer, None) {
            Ok((handle, connection)) => {
                let session = Session::new(handle, connection, self.options.streams, self.clock, now);
                self.sessions.push(session);
            }
            Err(_) => {
                self.refused += 1;
                self.answer(peer, answer);
            }
        }
    }

    fn answer(&mut self, peer: Peer, answer: Vec<u8>) {
        if !answer.is_empty() && self.answers.len() < MAX_ANSWERS {
            self.answers.push_back((peer, answer));
        }
    }

    /// Exchanges events between the endpoint and its connections; returns the next event for the user.
    fn next_event(&mut self, now: Instant) -> Option<Event> {
        let mut index = 0;
        while let Some(session) = self.sessions.get_mut(index) {
            while let Some(event) = session.endpoint_event() {
                if let Some(event) = self.endpoint.handle_event(session.handle, event) {
                    session.handle(event);
                }
            }
            let is_current = self.current == Some(session.handle);
            match session.event(now) {
                Some(Event::Connected) if self.current.is_none() => {
                    self.current = Some(session.handle);
                    let others = self.sessions.iter_mut().enumerate().filter(|(other, _)| *other != index);
                    others.for_each(|(_, other)| other.close(now));
                    return Some(Event::Connected);
                }
                Some(event) if is_current => return Some(event),
                Some(_) => continue,
                None if session.is_drained && !is_current => drop(self.sessions.remove(index)),
                None => index += 1,
            }
        }
        None
    }

    fn next_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        if let Some((peer, answer)) = self.answers.pop_front() {
            buffer[..answer.len()].copy_from_slice(&answer);
            return Some(Transmit { port: self.port, peer, length: answer.len(), segment: None });
        }
        for session in self.sessions.iter_mut().filter(|session| session.has_output) {
            self.packets.clear();
            let segments = (MAX_BATCH / session.mtu()).clamp(1, MAX_SEGMENTS);
            if let Some(transmit) = session.transmit(now, segments, &mut self.packets) {
                let length = transmit.size;
                buffer[..length].copy_from_slice(&self.packets[..length]);
                let segment = transmit.segment_size.and_then(|segment| Segment::of(segment, length));
                return Some(Transmit {
                    port: self.port,
                    peer: peer_of(transmit.destination),
                    length,
                    segment,
                });
            }
        }
        None
    }

    fn has_output(&self) -> bool {
        !self.answers.is_empty() || self.sessions.iter().any(|session| session.has_output)
    }

    fn deadline(&mut self) -> Option<Instant> {
        let deadline = self.sessions.iter_mut().filter_map(Session::deadline).min()?;
        Some(deadline.max(self.earliest))
    }
}

/// Packets that are received even if the own packets are smaller: the default of `quinn-proto`.
const MIN_RECEIVED: u16 = 1472;

impl Endpoint for Node {
    type Command<'a> = Command<'a>;
    type Event = Event;
    type Refusal = Refusal;

    fn handle(&mut self, now: Instant, input: Input<'_, Command<'_>>) -> Result<(), Refusal> {
        match input {
            Input::Frame { port, peer, bytes, segment } if port == self.port => {
                Segment::frames(segment, bytes).for_each(|frame| self.receive(now, peer, frame));
            }
            Input::Frame { .. } => {}
            Input::Command(command) => return self.command(now, command),
            Input::Wake => {
                if self.deadline().is_some_and(|deadline| deadline <= now) {
                    self.sessions.iter_mut().for_each(|session| session.wake(now));
                    self.earliest = now + TICK;
                    self.is_active = true;
                }
            }
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Event> {
        if self.is_active {
            if let Some(event) = self.next_event(now) {
                return Output::Event(event);
            }
            if writable.has(self.port) {
                if let Some(transmit) = self.next_transmit(now, buffer) {
                    return Output::Transmit(transmit);
                }
                // Sending may have made room, which is an event.
                match self.next_event(now) {
                    Some(event) => return Output::Event(event),
                    None => self.is_active = self.has_output(),
                }
            }
        }
        let reason = match self.is_active && self.has_output() {
            true => Reason::Port(self.port),
            false => Reason::Input,
        };
        Output::Idle(Idle { deadline: self.deadline(), reason })
    }
}

/// Encodes a peer as an address that `quinn-proto` accepts: it only compares and returns it.
fn address_of(peer: Peer) -> SocketAddr {
    let mut bytes = [0; 24];
    let peer = peer.as_bytes();
    bytes[0] = 1 + peer.len() as u8;
    bytes[1..=peer.len()].copy_from_slice(peer);
    let (ip, rest) = bytes.split_first_chunk::<16>().expect("24 bytes");
    let word = |at: usize| u32::from_be_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
    SocketAddrV6::new(Ipv6Addr::from(*ip), 1, word(0), word(4)).into()
}

/// Decodes an address made by [`address_of`].
fn peer_of(address: SocketAddr) -> Peer {
    let SocketAddr::V6(address) = address else { return Peer::NONE };
    let words = [address.flowinfo().to_be_bytes(), address.scope_id().to_be_bytes()].concat();
    let bytes = [&address.ip().octets()[..], &words].concat();
    let length = usize::from(bytes[0]).saturating_sub(1).min(bytes.len() - 1);
    Peer::new(&bytes[1..=length])
}

#[cfg(test)]
mod tests {
    use trunkline_endpoint::Pair;
    use trunkline_endpoint::pair::PEER_B;
    use trunkline_units::Seed;

    use super::*;
    use crate::event::CloseReason;

    /// Runs both ends for a while; returns their events.
    fn run(pair: &mut Pair<Node, Node>) -> [Vec<Event>; 2] {
        pair.run(Span::from_ms(1));
        let events = [pair.take_events_a(), pair.take_events_b()];
        events.map(|events| events.into_iter().map(|(_, event)| event).collect())
    }

    /// Without an end of the stream a receiver would wait for ever.
    #[test]
    fn a_reset_stream_closes_the_connection() {
        let identity = Identity::fixed();
        let config = |role, seed| Config {
            port: Port(0),
            options: Options { streams: 2, ..Options::default() },
            role,
            randomness: Randomness::Fixed,
            seed: [seed; 32],
        };
        for is_begun in [false, true] {
            let client = Node::new(config(Role::Client { server: identity.fingerprint() }, 1));
            let server = Node::new(config(Role::Server { identity: identity.clone() }, 2));
            let mut pair = Pair::new(client, server, Seed(1));
            let read = |pair: &mut Pair<Node, Node>| {
                pair.command_b(Command::Receive { stream: 1, consume: &mut |_| {} }).unwrap();
            };
            pair.command_a(Command::Connect { peer: PEER_B }).unwrap();
            run(&mut pair);
            if is_begun {
                let (mut written, mut data) = (0, [Bytes::from_static(b"part of a message")]);
                let command = Command::Send { stream: 1, chunks: &mut data, written: &mut written };
                pair.command_a(command).unwrap();
                run(&mut pair);
                read(&mut pair);
            }
            pair.command_a(Command::Reset { stream: 1 }).unwrap();
            let [_, events] = run(&mut pair);
            assert!(events.contains(&Event::Readable { stream: 1 }), "{events:?}");
            read(&mut pair);
            let [of_client, of_server] = run(&mut pair);
            let reason = CloseReason::Failed("the peer reset a stream".into());
            assert_eq!(of_server, [Event::Closed(reason)], "begun: {is_begun}");
            assert!(of_client.contains(&Event::Closed(CloseReason::Completed)), "{of_client:?}");
            assert!(!pair.b().is_established() && !pair.b().has_received_all());
        }
    }

    #[test]
    fn every_peer_round_trips_through_an_address() {
        for length in 0..=23 {
            let peer = Peer::new(&[0xEF; 23][..length]);
            assert_eq!(peer_of(address_of(peer)), peer);
        }
        assert_ne!(address_of(Peer::NONE), address_of(Peer::new(&[0])));
    }
}
