//! The LLC stations of hosts and the token ring among them. Each host has one station for all its connections.
//!
//! The state machines are those of `trunkline_llc`, with the same bytes as on sockets; with a token they are wrapped in a
//! `token::Ring`. Messages come from flows, and frames are packets. A station gives its host one frame at a time, so
//! messages queue where priorities apply, and an urgent message waits for one packet at most.
//!
//! Payload is virtual: a station carries the 32 octets of a message's header, and the packet carries the length. Messages
//! may be shorter than their header, and longer than an Ethernet frame where the ring allows it.

pub mod line;
pub mod refuse;

use std::collections::BTreeMap;
use std::sync::Arc;

use trunkline_endpoint::{Destination, Endpoint as _, Input, Output, Peer, Port, Reason, Writable};
use trunkline_experiment::plan::{NodeKind, Plan, Protocol};
use trunkline_llc::admit;
use trunkline_llc::station::Config;
use trunkline_llc::token::{self, Ring};
use trunkline_llc::wire::{ALL, Address, Kind, MAX_PRIORITY, Pdu};
use trunkline_llc::{Command, Event, Station, Ticket};
use trunkline_run::llc;
use trunkline_run::message::{HEADER, Header};
use trunkline_run::reports::Metrics;
use trunkline_units::{Instant, Span};

use crate::flow::llc::{LlcMessage, LlcSendReport};
use crate::frame::{Content, Packet, PacketPool, VLAN_TAG};
use crate::network::topology::Topology;

/// Octets to which Ethernet pads a PDU.
const MIN_PDU: u32 = 46;
/// Number of windows per station to wait for the ring to form.
const WINDOWS_PER_STATION: u64 = 10;

/// The LLC stations of a plan's hosts.
#[derive(Debug, Default)]
pub struct LlcStations {
    /// The station of each host.
    stations: Vec<Option<Box<LlcStation>>>,
    /// The hosts of the stations; the first has station number 1.
    hosts: Vec<u32>,
    /// Maximum time until the ring forms; `None` if no flow has to wait.
    pub forms_within: Option<Span>,
    /// The delay bound of each connection that has one.
    bounds: BTreeMap<usize, Span>,
}

/// The port of a host's LLC station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StationPort {
    /// The interface of its host.
    pub port: Port,
    /// Whether the medium is Ethernet: frames have a VLAN tag and are padded.
    pub ethernet: bool,
}

/// Returns the port of the station of a host: the one that leads to the other end of its first connection over LLC.
pub fn station_port(plan: &Plan, topology: &Topology<'_>, name: &str) -> Option<StationPort> {
    let over_llc = plan.connections.iter().filter(|c| matches!(c.protocol, Protocol::Llc { .. }));
    let mut others = over_llc.filter_map(|c| {
        let (from, to) = (c.from.host.as_str(), c.to.first()?.host.as_str());
        if from == name { Some(to) } else { (to == name).then_some(from) }
    });
    let node = topology.node(name)?;
    let (_, port) = *topology.path(node, topology.node(others.next()?)?)?.first()?;
    let neighbor = topology.ports[node][usize::from(port)].neighbor;
    let ethernet = !matches!(topology.network.nodes[neighbor].kind, NodeKind::Ring { .. });
    Some(StationPort { port: Port(port), ethernet })
}

/// The interface and the node of a station.
#[derive(Clone, Copy, Debug)]
pub struct LlcInterface {
    /// The interface of its host.
    pub port: Port,
    /// Its node in the event queue.
    pub node_id: u32,
    /// Whether the medium is Ethernet: frames have a VLAN tag and are padded.
    pub ethernet: bool,
}

#[derive(Debug)]
struct LlcStation {
    number: u8,
    interface: LlcInterface,
    endpoint: LlcEndpoint,
    /// The (flow, side) of each message whose outcome is unknown.
    senders: BTreeMap<Ticket, (u32, u32)>,
    /// SAPs that have messages to read.
    readable: Vec<u8>,
    message: Vec<u8>,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are few stations")]
enum LlcEndpoint {
    WithoutToken(Station),
    Ring(Ring<Station>),
}

impl LlcEndpoint {
    fn station(&self) -> &Station {
        match self {
            LlcEndpoint::WithoutToken(station) => station,
            LlcEndpoint::Ring(ring) => ring.inner(),
        }
    }

    fn handle(&mut self, now: Instant, input: Input<'_, Command<'_>>) -> Result<(), trunkline_llc::Refusal> {
        match self {
            LlcEndpoint::WithoutToken(station) => station.handle(now, input),
            LlcEndpoint::Ring(ring) => ring.handle(
                now,
                match input {
                    Input::Frame { port, peer, bytes, segment } => {
                        Input::Frame { port, peer, bytes, segment }
                    }
                    Input::Command(command) => Input::Command(token::Command::Inner(command)),
                    Input::Wake => Input::Wake,
                },
            ),
        }
    }

    fn poll(&mut self, now: Instant, ports: Writable<'_>, buffer: &mut [u8]) -> Output<token::Event<Event>> {
        match self {
            LlcEndpoint::Ring(ring) => ring.poll(now, ports, buffer),
            LlcEndpoint::WithoutToken(station) => match station.poll(now, ports, buffer) {
                Output::Transmit(transmit) => Output::Transmit(transmit),
                Output::Event(event) => Output::Event(token::Event::Inner(event)),
                Output::Idle(idle) => Output::Idle(idle),
            },
        }
    }
}

/// The output of an LLC station.
#[derive(Debug)]
pub enum LlcOutput {
    /// Send this packet.
    Send(Packet),
    /// A message of a flow arrived.
    Received { flow: u32, header: Header },
    /// The outcome of a message of a flow from the end at `side` is known.
    Sent { flow: u32, side: u32, report: LlcSendReport },
    /// All stations are in one ring.
    RingFormed,
    /// Nothing to do before the deadline. `blocked`: it needs room to send.
    Idle { deadline: Option<Instant>, blocked: bool },
}

impl LlcStations {
    /// Creates the stations of a plan, in a ring if there is a token. `interfaces` are their hosts and interfaces, in the
    /// order of the station numbers.
    pub fn new(plan: &Plan, topology: &Topology<'_>, interfaces: &[(u32, LlcInterface)]) -> LlcStations {
        let mut stations = LlcStations::default();
        let network = line::ring_and_contracts(plan, topology);
        for ((number, name), &(host, interface)) in (1u8..).zip(llc::stations(plan)).zip(interfaces) {
            let mut station = Station::new(Config::new(Port(0), number));
            for (sap, options) in llc::saps(plan, name) {
                let opened =
                    station.handle(Instant::ZERO, Input::Command(Command::Open { sap, options: &options }));
                debug_assert_eq!(opened, Ok(()), "the language lets nothing else through");
            }
            let endpoint = match &network {
                None => LlcEndpoint::WithoutToken(station),
                Some((network, _)) => {
                    let mut ring = Ring::new(station, number, network.options.clone());
                    let joins = ring.handle(Instant::ZERO, Input::Command(token::Command::Join));
                    debug_assert_eq!(joins, Ok(()), "a ring refuses nothing");
                    LlcEndpoint::Ring(ring)
                }
            };
            let by_host = &mut stations.stations;
            by_host.resize_with(by_host.len().max(host as usize + 1), || None);
            by_host[host as usize] = Some(Box::new(LlcStation {
                number,
                interface,
                endpoint,
                senders: BTreeMap::new(),
                readable: Vec::new(),
                message: Vec::new(),
            }));
            stations.hosts.push(host);
        }
        if let Some((network, contracts)) = &network {
            let (options, count) = (&network.options, stations.hosts.len() as u64);
            let window = options.window_interval + options.window();
            stations.forms_within =
                Some(options.listen(u8::MAX) + window * (count + 2) * WINDOWS_PER_STATION);
            if line::is_lossless(plan)
                && let Ok(contracts) = contracts
                && let Ok(delays) = admit::delays(network, &contracts.contracts)
            {
                for (connection, delay) in contracts.connections.iter().zip(delays) {
                    let bound = stations.bounds.entry(*connection).or_default();
                    *bound = delay.max(*bound);
                }
            }
        }
        stations
    }

    /// Returns the hosts that have a station.
    pub fn hosts(&self) -> &[u32] {
        &self.hosts
    }

    /// Returns the interface of a host's station.
    pub fn interface(&self, host: u32) -> Option<LlcInterface> {
        self.station(host).map(|station| station.interface)
    }

    fn station(&self, host: u32) -> Option<&LlcStation> {
        self.stations.get(host as usize)?.as_deref()
    }

    fn station_mut(&mut self, host: u32) -> Option<&mut LlcStation> {
        self.stations.get_mut(host as usize)?.as_deref_mut()
    }

    /// Sends a message of a flow.
    pub fn send(&mut self, now: Instant, host: u32, (flow, side): (u32, u32), message: &LlcMessage) {
        let destination =
            self.hosts.iter().position(|other| *other == message.to).map_or(0, |at| at as u8 + 1);
        let Some(station) = self.station_mut(host) else { return };
        let mut bytes = [0; HEADER];
        message.header.encode(flow, &mut bytes);
        let mut ticket = Ticket::default();
        let sent = station.endpoint.handle(
            now,
            Input::Command(Command::Send {
                sap: message.sap,
                to: Address { sap: message.sap, station: destination },
                bytes: &bytes,
                priority: Some(message.priority),
                ticket: &mut ticket,
            }),
        );
        debug_assert_eq!(sent, Ok(()), "the station has a place for each connection's messages");
        if sent.is_ok() {
            station.senders.insert(ticket, (flow, side));
        }
    }

    /// Handles a frame that arrived at a host.
    pub fn receive(&mut self, now: Instant, host: u32, from: u8, bytes: &[u8]) {
        let Some(station) = self.station_mut(host) else { return };
        let frame = Input::Frame { port: Port(0), peer: Peer::new(&[from]), bytes, segment: None };
        // Only a command can be refused.
        let _ = station.endpoint.handle(now, frame);
    }

    /// Handles an expired deadline of a station.
    pub fn handle_deadline(&mut self, now: Instant, host: u32) {
        if let Some(station) = self.station_mut(host) {
            let _ = station.endpoint.handle(now, Input::Wake);
        }
    }

    /// Polls the station of a host for output. It sends only if its host has `room`.
    pub fn poll(&mut self, now: Instant, host: u32, room: bool, pool: &mut PacketPool) -> LlcOutput {
        let count = self.hosts.len();
        loop {
            let Some(station) = self.station_mut(host) else {
                return LlcOutput::Idle { deadline: None, blocked: false };
            };
            if let Some((flow, header)) = station.take_message(now) {
                return LlcOutput::Received { flow, header };
            }
            let ports = if room { Writable::ALL } else { Writable::NONE };
            match station.endpoint.poll(now, ports, &mut pool.scratch) {
                Output::Transmit(transmit) => {
                    let bytes = Arc::from(&pool.scratch[..transmit.length]);
                    let (number, ethernet) = (station.number, station.interface.ethernet);
                    let to = transmit.peer.as_bytes().first().copied().unwrap_or(ALL);
                    return LlcOutput::Send(self.packet((number, to), ethernet, bytes));
                }
                Output::Event(token::Event::Inner(Event::Sent { ticket, outcome, tries, took, .. })) => {
                    let Some((flow, side)) = station.senders.remove(&ticket) else { continue };
                    let report = LlcSendReport { outcome, attempts: tries, elapsed: took };
                    return LlcOutput::Sent { flow, side, report };
                }
                Output::Event(token::Event::Inner(Event::Readable { sap })) => station.readable.push(sap),
                Output::Event(token::Event::Joined { stations })
                    if usize::from(stations) == count && self.forms_within.is_some() =>
                {
                    self.forms_within = None;
                    return LlcOutput::RingFormed;
                }
                Output::Event(_) => {}
                Output::Idle(idle) => {
                    let blocked = matches!(idle.reason, Reason::Port(_));
                    return LlcOutput::Idle { deadline: idle.deadline, blocked };
                }
            }
        }
    }

    fn packet(&self, (from, to): (u8, u8), ethernet: bool, bytes: Arc<[u8]>) -> Packet {
        let pdu = pdu_length(&bytes);
        let length = if ethernet { pdu.max(MIN_PDU) + VLAN_TAG } else { pdu };
        let host = match to.checked_sub(1).and_then(|at| self.hosts.get(usize::from(at))) {
            Some(host) if to != ALL => Destination::Station(*host),
            _ => Destination::All,
        };
        Packet::without_flow(Content::Pdu { from, to, bytes }, length, 0, host)
    }

    /// Returns token metrics for a connection's sender: the rotation time at its station and the delay bound, if there is
    /// one, both in us.
    pub fn token_metrics(&self, connection: usize, host: u32) -> Metrics {
        let mut metrics = Metrics::new();
        if let Some(LlcStation { endpoint: LlcEndpoint::Ring(ring), .. }) = self.station(host) {
            let statistics = ring.statistics();
            let mean = statistics.rotation_sum.as_s() * 1e6 / statistics.rotations.max(1) as f64;
            metrics.insert("token_rotation_mean_us".into(), mean);
            metrics.insert("token_rotation_max_us".into(), statistics.rotation_max.as_s() * 1e6);
        }
        if let Some(bound) = self.bounds.get(&connection) {
            metrics.insert("token_bound_us".into(), bound.as_s() * 1e6);
        }
        metrics
    }

    /// Returns the counters of a station by name.
    pub fn counts(&self, host: u32) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        let Some(station) = self.station(host) else { return counts };
        let statistics = station.endpoint.station().statistics();
        counts.extend(statistics.named().map(|(name, count)| (format!("llc.{name}"), count)));
        for (priority, level) in statistics.levels.iter().enumerate() {
            counts.insert(format!("llc.{priority}.sent"), level.sent);
            counts.insert(format!("llc.{priority}.received"), level.received);
        }
        if let LlcEndpoint::Ring(ring) = &station.endpoint {
            let ring = ring.statistics();
            let named = [
                ("stations", u64::from(ring.stations)),
                ("received", ring.tokens),
                ("frames", ring.frames),
                ("withheld", ring.withheld),
                ("resent", ring.resent),
                ("claimed", ring.claimed),
                ("doubled", ring.doubled),
                ("died", ring.died),
                ("windows", ring.windows),
                ("admitted", ring.admitted),
            ];
            counts.extend(named.map(|(name, count)| (format!("token.{name}"), count)));
        }
        counts
    }
}

impl LlcStation {
    /// Returns the next received message.
    fn take_message(&mut self, now: Instant) -> Option<(u32, Header)> {
        while let Some(sap) = self.readable.last().copied() {
            let mut taken = None;
            let take = Command::Take { sap, into: &mut self.message, taken: &mut taken };
            // Refused only by a closed SAP; none is closed.
            let _ = self.endpoint.handle(now, Input::Command(take));
            match taken.and_then(|_| Header::peek(&self.message)) {
                Some(message) => return Some(message),
                None => self.readable.pop(),
            };
        }
        None
    }
}

/// Returns the length of the PDU in a station's frame, including its virtual payload.
pub fn pdu_length(frame: &[u8]) -> u32 {
    let length = frame.len().saturating_sub(1) as u32;
    let Some((0..=MAX_PRIORITY, pdu)) = frame.split_first() else { return length };
    match Pdu::read(pdu) {
        Ok(Pdu { kind: Kind::Ui | Kind::Ac(_), response: false, information, .. }) => {
            Header::peek(information).map_or(length, |(_, header)| length + header.length - HEADER as u32)
        }
        _ => length,
    }
}
