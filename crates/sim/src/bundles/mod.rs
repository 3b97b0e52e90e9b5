//! The bundle converters of a network, the interfaces of the hosts behind them, and the hosts before them.
//!
//! The machines are `trunkline_bundle`'s, byte for byte. Here they are set up as the plan says; their messages are those of
//! flows, with a header and zeros behind it, and their bundles are datagrams, cut where a line carries no longer packets.
//! What they send costs their station what any packet does.
//!
//! The wide area has a multicast group for each 32 message addresses. Bundles for hosts go to a group of all hosts of the
//! central converter, bundles for converters to their stations.
//!
//! | module | what |
//! | --- | --- |
//! | [`desk`] | one machine at its station |
//! | [`refuse`] | what is not simulated |

pub mod desk;
pub mod refuse;

use std::collections::BTreeMap;

use trunkline_bundle::Host;
use trunkline_bundle::central::Central;
use trunkline_bundle::host::Refusal;
use trunkline_bundle::level1::Level1;
use trunkline_bundle::wire::wide::packet_of;
use trunkline_endpoint::{Port, To};
use trunkline_experiment::converters::{Sides, number};
use trunkline_experiment::plan::{Network as Described, Node, NodeKind, Plan};
use trunkline_run::bundle::{self, Label, Works};
use trunkline_run::message::Header;
use trunkline_units::{Instant, Span};

use crate::flow::fragment::Cutter;
use crate::frame::{Kit, Packet};
use crate::network::Network;
use crate::network::topology::Topology;
use desk::{Desk, Line, What};

/// The flow of the packets of converters and host interfaces: none.
pub const FLOW: u32 = u32::MAX - 1;
/// How long what hosts want may take until all know of it, beside the delay of the lines.
const PATIENCE: Span = Span::from_s(1);

/// The machines of a plan, each at its station.
#[derive(Debug, Default)]
pub struct Bundles {
    /// Of each station, what stands there.
    desks: Vec<Option<Box<Desk>>>,
    /// The stations that have something.
    stations: Vec<u32>,
    /// The station of the central converter.
    central: u32,
    /// Hosts by their numbers, and what each wants.
    wants: Vec<(u16, u32)>,
    settles_within: Span,
    settled: bool,
}

/// What a machine says.
#[derive(Debug)]
pub enum Saying {
    /// Something waits to leave, or does no more.
    Leaving,
    /// A flow's message has come.
    Heard {
        /// Which flow's.
        flow: u32,
        /// It.
        header: Header,
    },
    /// The station becomes a member of a group, or none any more.
    Join {
        /// Which.
        group: u32,
        /// Whether it does.
        joins: bool,
    },
    /// From now on all know what is wanted.
    Settled,
    /// Nothing more now.
    Idle {
        /// When to wake it.
        deadline: Option<Instant>,
    },
}

impl Bundles {
    /// The machines of a plan; none, if no connection goes over bundles. Each still lacks its [place](Bundles::seat).
    pub fn new(plan: &Plan, topology: &Topology<'_>, network: &Network) -> Option<Bundles> {
        let sides = bundle::sides(plan)?;
        let central = network.station(&sides.central.first()?.name)?;
        let described = plan.network.as_ref()?;
        let works = bundle::works(plan)?;
        let builder = Builder { plan, described, works, topology, network, sides: &sides };
        let mut bundles =
            Bundles { central, settles_within: PATIENCE + network.longest_delay * 4, ..Bundles::default() };
        bundles.put(central, builder.central()?);
        for node in &sides.level1 {
            bundles.put(network.station(&node.name)?, builder.level1(node)?);
        }
        for (at, name) in (1u16..).zip(&sides.hosts) {
            bundles.put(network.station(name)?, builder.host(at, name)?);
            bundles.wants.extend(bundle::wanted(plan, name).into_iter().map(|address| (at, address)));
        }
        for (at, name) in sides.wide.iter().enumerate() {
            bundles.put(network.station(name)?, builder.wide(at, name)?);
        }
        for (host, address) in bundles.wants.clone() {
            let station = network.station(sides.hosts[usize::from(host) - 1])?;
            bundles.desk(station)?.join(address);
        }
        Some(bundles)
    }

    fn put(&mut self, station: u32, desk: Desk) {
        let desks = &mut self.desks;
        desks.resize_with(desks.len().max(station as usize + 1), || None);
        desks[station as usize] = Some(Box::new(desk));
        self.stations.push(station);
    }

    fn desk(&mut self, station: u32) -> Option<&mut Desk> {
        self.desks.get_mut(station as usize)?.as_deref_mut()
    }

    /// The stations that have something.
    pub fn stations(&self) -> &[u32] {
        &self.stations
    }

    /// Gives what stands at a station its place on the agenda.
    pub fn seat(&mut self, station: u32, place: u32) {
        if let Some(desk) = self.desk(station) {
            desk.place = place;
        }
    }

    /// The place of what stands at a station.
    pub fn place(&self, station: u32) -> Option<u32> {
        Some(self.desks.get(station as usize)?.as_ref()?.place)
    }

    /// How long a flow has to wait until all know what is wanted, at the most; none: it has not to wait.
    pub fn settles_within(&self) -> Option<Span> {
        (!self.settled).then_some(self.settles_within)
    }

    /// Takes a flow's message to send.
    ///
    /// # Errors
    /// Why it is not sent.
    pub fn send(
        &mut self,
        now: Instant,
        station: u32,
        flow: u32,
        label: &Label,
        header: &Header,
    ) -> Result<(), Refusal> {
        self.desk(station).map_or(Ok(()), |desk| desk.send(now, flow, label, header))
    }

    /// Takes a packet that has come to a station; whether there may be something to say to that.
    pub fn arrive(&mut self, now: Instant, station: u32, packet: &Packet) -> bool {
        let Some(desk) = self.desk(station) else { return false };
        desk.arrive(now, packet);
        true
    }

    /// A machine's deadline may have come.
    pub fn wake(&mut self, now: Instant, station: u32) {
        if let Some(desk) = self.desk(station) {
            desk.wake(now);
        }
    }

    /// By which interface, into which medium, the next packet of a station wants to leave, if there is one.
    pub fn leaving(&self, station: u32) -> Option<(Port, (u32, Port))> {
        self.desks.get(station as usize)?.as_ref()?.leaving()
    }

    /// Takes it.
    pub fn take(&mut self, station: u32) -> Option<Packet> {
        self.desk(station)?.take()
    }

    /// The switches from which a station is reached by its interface to the wide area, and their ports.
    pub fn switches(&self, station: u32) -> &[(u32, Port)] {
        let desk = self.desks.get(station as usize).and_then(Option::as_deref);
        desk.map_or(&[], |desk| desk.switches())
    }

    /// What stands at a station has to say.
    pub fn poll(&mut self, now: Instant, station: u32, kit: &mut Kit) -> Saying {
        let Some(desk) = self.desk(station) else { return Saying::Idle { deadline: None } };
        let saying = desk.poll(now, kit);
        if !self.settled && matches!(saying, Saying::Idle { .. }) && self.has_settled() {
            self.settled = true;
            return Saying::Settled;
        }
        saying
    }

    /// Whether the central converter knows what all hosts want, and level 1 gets it.
    fn has_settled(&self) -> bool {
        let desks = || self.desks.iter().flatten();
        let Some(Desk { what: What::Central { machine, .. }, .. }) =
            self.desks.get(self.central as usize).and_then(Option::as_deref)
        else {
            return true;
        };
        let knows = |(host, address): &(u16, u32)| bundle::knows(machine, *host, *address);
        let gets = |at: u16| {
            desks().any(|desk| matches!(&desk.what, What::Level1 { joined, .. } if joined.contains(&at)))
        };
        self.wants.iter().all(|want| knows(want) && gets(packet_of(want.1)))
    }

    /// What stands at a station counted by now, by name.
    pub fn counts(&self, now: Instant, station: u32) -> BTreeMap<String, u64> {
        let desk = self.desks.get(station as usize).and_then(Option::as_deref);
        desk.map_or_else(BTreeMap::new, |desk| desk.counts(now))
    }
}

/// What machines are made from.
struct Builder<'b> {
    plan: &'b Plan,
    described: &'b Described,
    /// How the central converter works, and the hosts.
    works: Works,
    topology: &'b Topology<'b>,
    network: &'b Network,
    sides: &'b Sides<'b>,
}

/// The life of machines, which start once.
const LIFE: u32 = 1;

impl Builder<'_> {
    fn central(&self) -> Option<Desk> {
        let node = self.sides.central.first()?;
        let said = bundle::Central::of(self.described, self.sides)?;
        let mut level1 = BTreeMap::new();
        for (number, other) in said.level1.iter().zip(&self.sides.level1) {
            let line = self.line(&node.name, &[other.name.as_str()])?;
            level1.insert(*number, (To::Station(self.network.station(&other.name)?), line));
        }
        // By each interface behind which there are hosts; in the wide format each by itself.
        let mut hosts: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
        let mut each = BTreeMap::new();
        for name in &self.sides.hosts {
            let line = self.line(&node.name, &[*name])?;
            hosts.entry(line.port.0).or_default().push(*name);
            each.insert(self.network.station(name)?, line);
        }
        let lines =
            hosts.values().map(|names| self.line(&node.name, names)).collect::<Option<Vec<Line>>>()?;
        let stations = self.sides.level1.iter().filter_map(|node| self.network.station(&node.name));
        let what = What::Central {
            machine: Box::new(Central::with_life(LIFE, said.config())),
            of_level1: stations.collect(),
            level1,
            hosts: (To::Group(self.network.everybody), lines),
            each,
        };
        Some(Desk::new(self.network.station(&node.name)?, what))
    }

    fn level1(&self, node: &Node) -> Option<Desk> {
        let central = self.sides.central.first()?;
        let station = self.network.station(&node.name)?;
        let inner = self.line(&node.name, &[central.name.as_str()])?;
        let at = self.topology.node(&node.name)?;
        let ports = 0..self.topology.ports[at].len() as u16;
        let outer = ports.clone().find(|port| *port != inner.port.0).unwrap_or(inner.port.0);
        let wide = self.wide_line(at, outer)?;
        let what = What::Level1 {
            machine: Box::new(Level1::with_life(
                number(node) as u16,
                LIFE,
                Works::of(self.described, node).settings(),
            )),
            groups: self.groups(),
            joined: Default::default(),
            central: (To::Station(self.network.station(&central.name)?), inner),
            switches: self.switches(at, outer),
            wide,
        };
        Some(Desk::new(station, what))
    }

    fn host(&self, number: u16, name: &str) -> Option<Desk> {
        let central = self.sides.central.first()?;
        let to = To::Station(self.network.station(&central.name)?);
        let line = self.line(name, &[central.name.as_str()])?;
        let machine = Box::new(Host::with_life(number, LIFE, self.works.settings()));
        Some(Desk::new(self.network.station(name)?, What::Host { machine, to, line }))
    }

    fn wide(&self, place: usize, name: &str) -> Option<Desk> {
        let at = self.topology.node(name)?;
        let reached = self.sides.level1.iter().find_map(|other| self.line(name, &[other.name.as_str()]))?;
        let line = self.wide_line(at, reached.port.0)?;
        let caster = self.works.caster(place).map(Box::new);
        Some(Desk::new(self.network.station(name)?, What::Wide { caster, groups: self.groups(), line }))
    }

    /// The group of each packet address that the plan has.
    fn groups(&self) -> BTreeMap<u16, u32> {
        let packets = bundle::addresses(self.plan).into_iter().map(packet_of);
        packets.filter_map(|at| Some((at, *self.network.groups.get(&bundle::group(at).into())?))).collect()
    }

    /// The line from a node to others beyond one of its ports: the smallest MTU of all ways counts.
    fn line(&self, from: &str, to: &[&str]) -> Option<Line> {
        let node = self.topology.node(from)?;
        let ways = to.iter().map(|to| self.topology.way(node, self.topology.node(to)?));
        let ways = ways.collect::<Option<Vec<_>>>()?;
        let port = ways.first()?.first()?.1;
        let mtu = ways.iter().filter_map(|way| self.topology.mtu(way)).min()?;
        Some(self.at(node, port, mtu))
    }

    /// The line of a node into the wide area by one of its ports: the smallest MTU on the ways to all who are there.
    fn wide_line(&self, node: usize, port: u16) -> Option<Line> {
        let beyond = self.topology.beyond(node, usize::from(port));
        let parties = beyond.into_iter().filter(|other| *other != node && !self.topology.forwards(*other));
        let ways = parties.filter_map(|other| self.topology.mtu(&self.topology.way(node, other)?));
        let own = self.topology.mtu(&[(node, port)])?;
        Some(self.at(node, port, ways.fold(own, u32::min)))
    }

    fn at(&self, node: usize, port: u16, mtu: u32) -> Line {
        let station = self.network.stations.iter().find(|station| station.node == node);
        let down = station.map_or((0, Port(0)), |station| station.down[usize::from(port)]);
        Line { port: Port(port), down, cutter: Cutter::new(mtu) }
    }

    /// The switches in the segment behind a port of a node, and their ports towards it.
    fn switches(&self, node: usize, port: u16) -> Vec<(u32, Port)> {
        let beyond = self.topology.beyond(node, usize::from(port));
        let switches = beyond
            .into_iter()
            .filter(|at| matches!(self.topology.network.nodes[*at].kind, NodeKind::Switch { .. }));
        let towards = |at: usize| {
            let port = self.topology.way(at, node)?.first()?.1;
            let name = &self.topology.network.nodes[at].name;
            let medium = self.network.media.iter().position(|seat| seat.name == *name)?;
            Some((medium as u32, Port(port)))
        };
        switches.filter_map(towards).collect()
    }
}
