//! A site and the wide area in virtual time, in either format.

use std::collections::{BTreeMap, BTreeSet};

use trunkline_bundle::Settings;
use trunkline_bundle::balance::REBALANCE_INTERVAL;
use trunkline_bundle::central::{self, Central, CentralConfig};
use trunkline_bundle::host::{self, Host, MessageInfo};
use trunkline_bundle::level::Medium;
use trunkline_bundle::level1::{self, Level1};
use trunkline_bundle::wire::classic::packet_address as classic_packet_address;
use trunkline_bundle::wire::format2::{self, packet_address};
use trunkline_endpoint::laws::Checked;
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Transmit, Writable};
use trunkline_units::{Instant, Seed, Span, Stream};

/// The least delay of a datagram.
pub const HOP: Span = Span::from_us(50);
/// More capacity than any test uses.
pub const ROOMY: Medium = Medium { capacity: 100_000_000, interval: Span::from_ms(5) };
/// The host at the remote site of the wide area.
pub const REMOTE_HOST: u32 = 9 << 16 | 1;

/// Joins an address.
pub fn join(address: u16) -> host::HostCommand<'static> {
    host::HostCommand::Join { first: address.into(), last: address.into() }
}

/// Leaves an address.
pub fn leave(address: u16) -> host::HostCommand<'static> {
    host::HostCommand::Drop { first: address.into(), last: address.into() }
}

/// A node of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    Central,
    /// Index from 0 on.
    Level1(usize),
    /// Index from 0 on.
    Host(usize),
}

/// Destination node, port, source and payload.
type Datagram = (Node, Port, Peer, Vec<u8>);

enum Machine {
    Central(Box<Checked<Central>>),
    Level1(Box<Checked<Level1>>),
    Host(Box<Checked<Host>>),
}

/// Impairments of the network, applied to the wide area, too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Impairments {
    pub loss: f64,
    pub duplication: f64,
    pub jitter: Span,
}

/// A medium shared by all hosts and the central converter: one frame at a time, with a short queue.
pub struct Shared {
    /// Capacity in octets per second, and the overhead per frame.
    pub rate: u64,
    pub overhead: u64,
    /// The longest queue in octets.
    pub queue: u64,
    free: Instant,
    /// Octets carried, and frames lost in the full queue.
    pub carried: u64,
    pub lost: u64,
}

impl Shared {
    pub fn new(rate: u64, queue: u64) -> Shared {
        // Preamble, gap and header of Ethernet, IPv4, UDP.
        Shared { rate, overhead: 66, queue, free: Instant::ZERO, carried: 0, lost: 0 }
    }

    /// Returns when a frame that arrives now has passed.
    fn pass(&mut self, now: Instant, octets: usize) -> Option<Instant> {
        let octets = octets as u64 + self.overhead;
        let time = |octets: u64| {
            Span::from_ps((u128::from(octets) * 1_000_000_000_000 / u128::from(self.rate)) as u64)
        };
        if self.free.since(now) > time(self.queue) {
            self.lost += 1;
            return None;
        }
        self.carried += octets;
        self.free = self.free.max(now) + time(octets);
        Some(self.free)
    }
}

pub struct Simulation {
    pub now: Instant,
    pub settings: Settings,
    pub impairments: Impairments,
    config: CentralConfig,
    /// Whether endpoints refresh soft state in format 1 (classic).
    refreshes: bool,
    machines: BTreeMap<Node, (Machine, Option<Instant>)>,
    in_flight: BTreeMap<(Instant, u64), Datagram>,
    number: u64,
    incarnation: u32,
    draw: Stream,
    /// The packet addresses joined by level-1 converters.
    pub joined: BTreeSet<(usize, u16)>,
    /// How often two converters had joined the same packet address.
    pub overlaps: u64,
    /// Messages sent to the wide area: addresses and bodies.
    pub out: Vec<(u32, Vec<u8>)>,
    /// Messages that hosts received.
    pub received: Vec<(usize, MessageInfo, Vec<u8>)>,
    /// Whether hosts read their inbox.
    pub receives: bool,
    /// When these messages were received, if recorded.
    pub arrived: Option<Vec<Instant>>,
    /// The medium between hosts and the central converter, if not an ideal one.
    pub shared: Option<Shared>,
    /// Octets that the central converter sent to each peer.
    pub octets_to: BTreeMap<(Port, Peer), usize>,
    /// The next sequence numbers of the remote host, by packet address and class.
    sequences: BTreeMap<(u16, bool), u32>,
    buffer: Vec<u8>,
}

impl Simulation {
    pub fn new(level1: u16, hosts: u16, settings: Settings, medium: Medium) -> Simulation {
        let config = CentralConfig {
            settings,
            level1: (1..=level1).collect(),
            hosts: hosts.min(16) as u8,
            local: medium,
            wide_area: medium,
        };
        let mut sim = Simulation {
            now: Instant::ZERO,
            settings,
            impairments: Impairments::default(),
            config,
            refreshes: false,
            machines: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            number: 0,
            incarnation: 0,
            draw: Seed(1).stream("world"),
            joined: BTreeSet::new(),
            overlaps: 0,
            out: Vec::new(),
            received: Vec::new(),
            receives: true,
            arrived: None,
            shared: None,
            octets_to: BTreeMap::new(),
            sequences: BTreeMap::new(),
            buffer: vec![0; MAX_BATCH],
        };
        sim.start(Node::Central);
        (0..usize::from(level1)).for_each(|at| sim.start(Node::Level1(at)));
        (0..usize::from(hosts)).for_each(|at| sim.start(Node::Host(at)));
        sim
    }

    pub fn seed(mut self, seed: u64) -> Simulation {
        self.draw = Seed(seed).stream("world");
        self
    }

    /// Restarts all endpoints with soft-state refresh, as in the daemons.
    pub fn with_refresh(mut self) -> Simulation {
        self.refreshes = true;
        let all: Vec<Node> = self.machines.keys().copied().collect();
        all.into_iter().for_each(|node| self.start(node));
        self
    }

    /// Passes a command to the central converter.
    pub fn command_central(&mut self, command: central::CentralCommand) {
        if let Some((Machine::Central(central), _)) = self.machines.get_mut(&Node::Central) {
            central.handle(self.now, Input::Command(command)).unwrap();
            self.drain(Node::Central);
        }
    }

    /// Starts a node without state.
    pub fn start(&mut self, node: Node) {
        self.stop(node);
        self.incarnation += 1;
        let (incarnation, settings) = (self.incarnation, self.settings);
        // The intervals of the daemons.
        let interval = |seconds| if self.refreshes { Span::from_s(seconds) } else { Span::ZERO };
        let machine = match node {
            Node::Central => {
                let central = Central::new(Seed(0), incarnation, self.config.clone());
                Machine::Central(Box::new(Checked::new(if self.refreshes {
                    central.with_refresh(interval(10)).with_rebalancing(REBALANCE_INTERVAL)
                } else {
                    central
                })))
            }
            Node::Level1(at) => {
                let level1 = Level1::new(at as u16 + 1, incarnation, settings);
                let call = self.now + interval(1);
                Machine::Level1(Box::new(Checked::new(if self.refreshes {
                    level1.with_query_at(call)
                } else {
                    level1
                })))
            }
            Node::Host(at) => {
                let host = Host::new(at as u16 + 1, incarnation, settings);
                Machine::Host(Box::new(Checked::new(if self.refreshes {
                    host.with_refresh(interval(1))
                } else {
                    host
                })))
            }
        };
        // The first wake is due at once.
        self.machines.insert(node, (machine, Some(self.now)));
    }

    /// Stops a node without notice.
    pub fn stop(&mut self, node: Node) {
        self.machines.remove(&node);
        if let Node::Level1(at) = node {
            self.joined.retain(|(other, _)| *other != at);
        }
    }

    pub fn central(&self) -> &Central {
        match self.machines.get(&Node::Central) {
            Some((Machine::Central(central), _)) => central.inner(),
            _ => panic!("it is not there"),
        }
    }

    pub fn level1(&self, at: usize) -> &Level1 {
        match self.machines.get(&Node::Level1(at)) {
            Some((Machine::Level1(level1), _)) => level1.inner(),
            _ => panic!("it is not there"),
        }
    }

    pub fn host(&self, at: usize) -> &Host {
        match self.machines.get(&Node::Host(at)) {
            Some((Machine::Host(host), _)) => host.inner(),
            _ => panic!("it is not there"),
        }
    }

    /// Sends between a host and the central converter, or from the latter to all hosts.
    fn send_local_datagram(&mut self, to: &[Node], port: Port, from: Peer, bytes: &[u8]) {
        let now = self.now;
        if let Some(shared) = &mut self.shared {
            let Some(passed) = shared.pass(now, bytes.len()) else { return };
            for to in to {
                self.number += 1;
                self.in_flight.insert((passed, self.number), (*to, port, from, bytes.to_vec()));
            }
            return;
        }
        to.iter().for_each(|to| self.send_datagram(*to, port, from, bytes));
    }

    fn send_datagram(&mut self, to: Node, port: Port, from: Peer, bytes: &[u8]) {
        let copies = 1 + u32::from(self.draw.chance(self.impairments.duplication));
        for _ in 0..copies {
            if !self.draw.chance(self.impairments.loss) {
                let jitter = Span::from_ps(self.draw.below(self.impairments.jitter.as_ps().max(1)));
                self.number += 1;
                self.in_flight
                    .insert((self.now + HOP + jitter, self.number), (to, port, from, bytes.to_vec()));
            }
        }
    }

    fn handle(&mut self, node: Node, input: Input<'_, ()>) {
        let now = self.now;
        fn with<C>(input: Input<'_, ()>) -> Option<Input<'_, C>> {
            match input {
                Input::Frame { port, peer, bytes, segment } => {
                    Some(Input::Frame { port, peer, bytes, segment })
                }
                Input::Wake => Some(Input::Wake),
                Input::Command(()) => None,
            }
        }
        match self.machines.get_mut(&node) {
            Some((Machine::Central(central), _)) => {
                if let Some(input) = with::<central::CentralCommand>(input) {
                    central.handle(now, input).unwrap();
                }
            }
            Some((Machine::Level1(level1), _)) => {
                if let Some(input) = with::<std::convert::Infallible>(input) {
                    level1.handle(now, input).unwrap();
                }
            }
            Some((Machine::Host(host), _)) => {
                if let Some(input) = with::<host::HostCommand<'_>>(input) {
                    host.handle(now, input).unwrap();
                }
            }
            None => return,
        }
        self.drain(node);
    }

    /// Handles all outputs of a node.
    fn drain(&mut self, node: Node) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let Some((mut machine, _)) = self.machines.remove(&node) else { return };
        let deadline = loop {
            let (transmit, deadline) = match &mut machine {
                Machine::Central(central) => match central.poll(self.now, Writable::ALL, &mut buffer) {
                    Output::Transmit(transmit) => (Some(transmit), None),
                    Output::Event(never) => match never {},
                    Output::Idle(idle) => (None, Some(idle.deadline)),
                },
                Machine::Level1(level1) => match level1.poll(self.now, Writable::ALL, &mut buffer) {
                    Output::Transmit(transmit) => (Some(transmit), None),
                    Output::Event(event) => {
                        self.change(node, event);
                        (None, None)
                    }
                    Output::Idle(idle) => (None, Some(idle.deadline)),
                },
                Machine::Host(host) => match host.poll(self.now, Writable::ALL, &mut buffer) {
                    Output::Transmit(transmit) => (Some(transmit), None),
                    Output::Event(host::HostEvent::Readable) => {
                        self.take(node, host);
                        (None, None)
                    }
                    Output::Event(host::HostEvent::Level(_)) => (None, None),
                    Output::Idle(idle) => (None, Some(idle.deadline)),
                },
            };
            if let Some(transmit) = transmit {
                self.transmit(node, &transmit, &buffer);
            }
            if let Some(deadline) = deadline {
                break deadline;
            }
        };
        self.machines.insert(node, (machine, deadline));
        self.buffer = buffer;
    }

    /// Makes a host read its inbox again.
    pub fn resume_receiving(&mut self, host: usize) {
        self.receives = true;
        let node = Node::Host(host);
        let Some((mut machine, deadline)) = self.machines.remove(&node) else { return };
        if let Machine::Host(host) = &mut machine {
            self.take(node, host);
        }
        self.machines.insert(node, (machine, deadline));
        self.drain(node);
    }

    fn change(&mut self, node: Node, event: level1::MembershipEvent) {
        let Node::Level1(at) = node else { return };
        match event {
            level1::MembershipEvent::Join(packet) => {
                self.overlaps += u64::from(self.joined.iter().any(|(_, other)| *other == packet));
                assert!(self.joined.insert((at, packet)), "joined twice");
            }
            level1::MembershipEvent::Leave(packet) => {
                assert!(self.joined.remove(&(at, packet)), "never joined")
            }
        }
    }

    fn take(&mut self, node: Node, host: &mut Checked<Host>) {
        let Node::Host(at) = node else { return };
        while self.receives {
            let (mut into, mut from) = (Vec::new(), None);
            let receive = host::HostCommand::Receive { into: &mut into, from: &mut from };
            host.handle(self.now, Input::Command(receive)).unwrap();
            let Some(from) = from else { return };
            self.received.push((at, from, into));
            if let Some(arrived) = &mut self.arrived {
                arrived.push(self.now);
            }
        }
    }

    fn transmit(&mut self, node: Node, transmit: &Transmit, buffer: &[u8]) {
        let bytes = &buffer[..transmit.length];
        if let Some(format2) = self.settings.format2() {
            assert!(bytes.len() <= format2.max_datagram_octets(), "longer than the path carries");
        }
        let number = transmit.peer.as_bytes();
        if node == Node::Central {
            *self.octets_to.entry((transmit.port, transmit.peer)).or_default() += bytes.len();
        }
        match (node, transmit.port) {
            (Node::Host(at), _) => {
                self.send_local_datagram(&[Node::Central], Central::HOSTS, Peer::new(&[at as u8]), bytes);
            }
            (Node::Central, Central::HOSTS) if number.is_empty() => {
                let all = self.machines.keys().copied();
                let hosts: Vec<Node> = all.filter(|node| matches!(node, Node::Host(_))).collect();
                self.send_local_datagram(&hosts, Host::CENTRAL, Peer::NONE, bytes);
            }
            (Node::Central, Central::HOSTS) => {
                self.send_local_datagram(&[Node::Host(number[0].into())], Host::CENTRAL, Peer::NONE, bytes);
            }
            // The peer has no node.
            (Node::Central, _) if number.is_empty() => {}
            (Node::Central, _) => {
                self.send_datagram(
                    Node::Level1(usize::from(number[1]) - 1),
                    Level1::CENTRAL,
                    Peer::NONE,
                    bytes,
                );
            }
            (Node::Level1(at), Level1::CENTRAL) => {
                let number = at as u16 + 1;
                self.send_datagram(Node::Central, Central::LEVEL1, Peer::new(&number.to_be_bytes()), bytes)
            }
            (Node::Level1(_), _) => {
                let (address, body) = self.read_wide_area(bytes);
                assert_eq!(number, packet_address(address).to_be_bytes());
                self.out.push((address, body));
                // The wide area delivers it to all owners of its packet address, including this site. In format 1
                // (classic) the driver filters out the sender.
                self.cast(packet_address(address), bytes, self.settings.format2().is_none().then_some(node));
            }
        }
    }

    /// Reads a datagram of the wide area.
    fn read_wide_area(&self, bytes: &[u8]) -> (u32, Vec<u8>) {
        if self.settings.format2().is_none() {
            return (u16::from_be_bytes([bytes[0], bytes[1]]).into(), bytes[2..].to_vec());
        }
        let bundle = format2::Bundle::read(bytes).expect("a bundle");
        assert_eq!((bundle.count(), bundle.control().count()), (1, 0));
        bundle.messages().next().map(|message| (message.address, message.body.to_vec())).expect("a message")
    }

    fn cast(&mut self, packet: u16, bytes: &[u8], but: Option<Node>) {
        let owners = self.joined.iter().filter(|(_, at)| *at == packet).map(|(at, _)| Node::Level1(*at));
        let owners: Vec<Node> = owners.filter(|at| Some(*at) != but).collect();
        for at in owners {
            self.send_datagram(at, Level1::WIDE_AREA, Peer::NONE, bytes);
        }
    }

    /// Sends a message from the wide area.
    pub fn inject(&mut self, address: u32, priority: bool, body: &[u8]) {
        if self.settings.format2().is_none() {
            let address = address as u16;
            let bytes = [&address.to_be_bytes()[..], body].concat();
            return self.cast(classic_packet_address(address), &bytes, None);
        }
        let to = packet_address(address);
        let next = self.sequences.entry((to, priority)).or_default();
        let sequence = *next;
        *next += 1;
        let (incarnation, max_wait_10us) = (1, format2::NO_LIMIT);
        let message = format2::Message {
            address,
            source: REMOTE_HOST,
            incarnation,
            sequence,
            max_wait_10us,
            priority,
            reliable: None,
            body,
        };
        let mut builder = format2::BundleBuilder::new(MAX_BATCH);
        assert!(builder.push(&message));
        let header = format2::Header {
            role: format2::Role::Level1,
            number: 1,
            receiver: to,
            incarnation,
            session: 0,
            sent_before: 0,
        };
        let mut bytes = vec![0; builder.octets()];
        builder.finish(&header, &mut bytes);
        self.cast(to, &bytes, None);
    }

    pub fn command(&mut self, at: usize, command: host::HostCommand<'_>) -> Result<(), host::CommandError> {
        let Some((Machine::Host(host), _)) = self.machines.get_mut(&Node::Host(at)) else { return Ok(()) };
        let done = host.handle(self.now, Input::Command(command));
        self.drain(Node::Host(at));
        done
    }

    /// Delivers a datagram of an unknown peer.
    pub fn deliver(&mut self, node: Node, port: Port, bytes: &[u8]) {
        self.deliver_from(node, port, Peer::NONE, bytes);
    }

    /// Delivers a datagram of a peer.
    pub fn deliver_from(&mut self, node: Node, port: Port, peer: Peer, bytes: &[u8]) {
        self.handle(node, Input::Frame { port, peer, bytes, segment: None });
    }

    /// Runs for a time.
    pub fn run(&mut self, span: Span) {
        let until = self.now + span;
        loop {
            let due = self.machines.iter().filter_map(|(node, (_, due))| Some(((*due)?, *node))).min();
            let arrives = self.in_flight.first_key_value().map(|((at, _), _)| *at);
            match (due, arrives) {
                (Some((at, node)), arrives) if at <= until && arrives.is_none_or(|arrives| at <= arrives) => {
                    self.now = self.now.max(at);
                    self.handle(node, Input::Wake);
                }
                (_, Some(at)) if at <= until => {
                    self.now = at;
                    let Some((_, (node, port, peer, bytes))) = self.in_flight.pop_first() else { return };
                    self.handle(node, Input::Frame { port, peer, bytes: &bytes, segment: None });
                }
                _ => return self.now = until,
            }
        }
    }
}
