//! Creates the medium or host of each node and link of a plan.

use std::collections::{BTreeMap, BTreeSet};

use trunkline_endpoint::{Bound, Capacity, Port};
use trunkline_experiment::plan::{
    Amount, CellMode, Encapsulation, HostCosts, Link, Medium as LinkMedium, Node, NodeKind, PacingCounts,
    Plan, Protocol,
};
use trunkline_models::atm::{
    self, CellFrame, CellLink, Config, CreditLink, CreditOptions, End, Mode, Pacing, PacingUnit, QueueUnit,
};
use trunkline_models::host::{Costs, Phases, Routes, Station};
use trunkline_models::media::queue::QueueOptions;
use trunkline_models::media::{
    Framing, Hub, HubOptions, Impairments, LineOptions, Ring, RingOptions, Switch, SwitchOptions,
};
use trunkline_run::{bundle, llc};
use trunkline_units::{Rate, Seed, Span, Stream};

use super::queue;
use super::topology::{Hop, Topology};
use super::{Attachment, Forwarder, Host, MediumNode, Network};
use crate::frame::VLAN_TAG;
use crate::medium::Medium;

/// Bytes of an ATM cell.
const CELL_BYTES: u64 = atm::cell::CELL as u64;
/// Maximum time that a reordered cell waits for a later cell to overtake it.
const CELL_HOLD: Span = Span::from_ms(1);
/// Rate from which a ring is an FDDI ring, b/s.
const FDDI_MIN_BPS: u64 = 100_000_000;

impl<F: CellFrame> Network<F> {
    /// Builds the network of a valid plan.
    pub fn build(plan: &Plan, topology: &Topology<'_>, seed: Seed) -> Network<F> {
        let trains = can_use_trains(plan, topology);
        let numbers = NodeNumbers::new(topology);
        let mut network = Network {
            media: Vec::new(),
            hosts: Vec::new(),
            all_hosts_group: 0,
            groups: groups(plan),
            group_members: BTreeMap::new(),
            longest_delay: Span::ZERO,
            trains,
            credit_inputs: Vec::new(),
        };
        network.all_hosts_group = network.groups.len() as u32 + 1;
        let llc_stations = llc::stations(plan).into_iter().collect();
        let members = members(plan, &network);
        let builder = Builder { topology, seed, numbers: &numbers, members: &members, llc_stations, trains };
        for (index, node) in topology.network.nodes.iter().enumerate() {
            match &node.kind {
                NodeKind::Host(costs) | NodeKind::Converter { costs, .. } => {
                    network.hosts.push(builder.host(index, costs));
                }
                _ => network.media.push(builder.medium_at(index)),
            }
            let number = numbers.nodes[index];
            let forwarder = match node.kind {
                NodeKind::Switch { latency, .. } => {
                    network.longest_delay += latency;
                    Forwarder::Switch(number)
                }
                _ if topology.is_router(index) => Forwarder::Router(number),
                _ => continue,
            };
            let counts = builder.members_behind_ports(index);
            network
                .group_members
                .extend(counts.into_iter().map(|(group, ports)| ((forwarder, group), ports)));
        }
        for (index, link) in topology.network.links.iter().enumerate() {
            let changes = topology.network.changes.iter().filter(|change| change.link == link.name);
            let delays = changes.filter_map(|change| change.delay).chain([link.delay]);
            network.longest_delay += delays.max().unwrap_or_default();
            if numbers.links[index].is_some() {
                network.media.push(builder.link(index, link));
            }
        }
        network
    }
}

/// Whether cells are computed in trains: neither the text nor credits, explicit rates, round-robin scheduling or explicit queues
/// demand single cells, and cells of two packets never interleave.
fn can_use_trains(plan: &Plan, topology: &Topology<'_>) -> bool {
    let demands_cells = topology.network.links.iter().any(|l| {
        let is_controlled = l.credits.is_some() || l.explicit_rate.is_some();
        let is_queued = queue::needs_cells(l, &topology.network.changes);
        is_controlled || is_queued || l.medium == LinkMedium::Atm && l.cells == CellMode::Each
    });
    let takes_turns = |node: &Node| matches!(node.kind, NodeKind::Switch { round_robin: true, .. });
    let demands_cells = demands_cells || topology.network.nodes.iter().any(takes_turns);
    let mut pairs = Vec::new();
    for c in &plan.connections {
        for to in &c.to {
            if let (Some(from), Some(to)) = (topology.node(&c.from.host), topology.node(&to.host)) {
                pairs.extend([(from, to), (to, from)]);
            }
        }
    }
    !demands_cells && topology.cells_never_mix(&pairs)
}

/// Numbers the multicast groups in the order of their addresses.
fn groups(plan: &Plan) -> BTreeMap<std::net::IpAddr, u32> {
    let named: BTreeSet<_> = plan.connections.iter().filter_map(|c| group_of(&c.protocol)).collect();
    named.into_iter().zip(1..).collect()
}

/// Returns the multicast group of a connection's unbundled messages.
fn group_of(protocol: &Protocol) -> Option<std::net::IpAddr> {
    match *protocol {
        Protocol::Multicast { group, .. } => Some(group),
        Protocol::Bundle { address, .. } => Some(bundle::group_of_address(address).into()),
        _ => None,
    }
}

/// Returns the permanent members of each group: receivers of `multicast`, hosts of the wide area for `bundle`, and all
/// other bundle hosts for the group of bundles to hosts.
fn members<'p, F>(plan: &'p Plan, network: &Network<F>) -> BTreeMap<u32, BTreeSet<&'p str>> {
    let sides = bundle::sides(plan);
    let mut members: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for c in &plan.connections {
        let Some(group) = group_of(&c.protocol) else { continue };
        let receives_unbundled = |host: &str| match (&c.protocol, &sides) {
            (Protocol::Bundle { .. }, Some(sides)) => sides.wide.contains(&host),
            _ => true,
        };
        let to = c.to.iter().map(|station| station.host.as_str()).filter(|host| receives_unbundled(host));
        members.entry(network.groups[&group]).or_default().extend(to);
    }
    let hosts = sides.iter().flat_map(|sides| &sides.hosts).copied();
    members.entry(network.all_hosts_group).or_default().extend(hosts);
    members
}

/// Numbers of the media and hosts that the nodes and links of a plan become.
struct NodeNumbers {
    /// For each node, its number among the hosts or among the media.
    nodes: Vec<u32>,
    /// For each link, its number among the media; `None` if it is a port of a hub or ring.
    links: Vec<Option<u32>>,
}

impl NodeNumbers {
    fn new(topology: &Topology<'_>) -> Self {
        let (mut hosts, mut media) = (0, 0);
        let mut count = |is_host: bool| {
            let number = if is_host { &mut hosts } else { &mut media };
            *number += 1;
            *number - 1
        };
        let nodes = (0..topology.network.nodes.len()).map(|node| count(topology.is_host(node))).collect();
        let is_port = |l: &Link| {
            [&l.a, &l.b].into_iter().filter_map(|n| topology.node(n)).any(|n| topology.is_shared(n))
        };
        let links = topology.network.links.iter().map(|l| (!is_port(l)).then(|| count(false))).collect();
        NodeNumbers { nodes, links }
    }
}

struct Builder<'b> {
    topology: &'b Topology<'b>,
    seed: Seed,
    numbers: &'b NodeNumbers,
    members: &'b BTreeMap<u32, BTreeSet<&'b str>>,
    /// Hosts that are LLC stations.
    llc_stations: BTreeSet<&'b str>,
    trains: bool,
}

impl Builder<'_> {
    fn kind(&self, node: usize) -> &NodeKind {
        &self.topology.network.nodes[node].kind
    }

    /// Returns `port` of `node` as the attachment of the medium there.
    fn attachment(&self, node: usize, port: u16) -> Attachment {
        let number = self.numbers.nodes[node];
        if self.topology.is_host(node) {
            Attachment::Host(number, Port(port))
        } else {
            Attachment::Medium(number, Port(port))
        }
    }

    /// Returns the medium that `port` of `node` sends to, and the port of the medium.
    fn medium_port(&self, node: usize, port: u16) -> (u32, Port) {
        let hop = self.topology.ports[node][usize::from(port)];
        match self.numbers.links[hop.link] {
            Some(link) => (link, Port(hop.end)),
            // The link is a port of a hub or ring.
            None => (self.numbers.nodes[hop.neighbor], Port(self.topology.port_of(hop.neighbor, hop.link))),
        }
    }

    /// Creates a host or a converter.
    fn host<F: CellFrame>(&self, node: usize, costs: &HostCosts) -> Host<F> {
        let name = self.topology.network.nodes[node].name.clone();
        let address = self.numbers.nodes[node];
        let ports = &self.topology.ports[node];
        let links = ports.iter().map(|hop| &self.topology.network.links[hop.link]);
        let interfaces: Vec<_> = links
            .map(|link| (link.medium == LinkMedium::Atm).then(|| encapsulation(link.encapsulation)))
            .collect();
        let mut model = Station::new(
            address,
            Costs {
                cpu_packet: costs.cpu_packet,
                cpu_byte: costs.cpu_byte,
                interrupt: costs.interrupt,
                dma_byte: costs.dma_byte,
                crc_byte: costs.crc_byte,
                sar_cell: costs.sar_cell,
                cpus: costs.cpus,
                rx_buffer: Bound {
                    per_channel: costs.rx_each_channel,
                    ..costs.rx_buffer.map_or(Bound::NONE, |amount| bound(amount, false, false))
                },
                mcast_filter: costs.mcast_filter,
                send_queue: self.send_queue(node, costs),
            },
            &interfaces,
        );
        let joined = self.members.iter().filter(|(_, hosts)| hosts.contains(name.as_str()));
        joined.for_each(|(group, _)| model.join(*group));
        if costs.forward {
            model.set_routes(self.routes(node));
        }
        Host {
            timer_phases: Phases::draw(&mut self.seed.stream(&format!("{name} / ticks"))),
            medium_ports: (0..ports.len() as u16).map(|port| self.medium_port(node, port)).collect(),
            model,
            disk: costs.disk,
            name,
            plan_node: node,
        }
    }

    fn routes(&self, router: usize) -> Routes {
        let mut routes = Routes::default();
        self.stations_behind_ports(router).for_each(|(station, port)| routes.add_station(station, port));
        for (group, counts) in self.members_behind_ports(router) {
            routes.set_group(group, &counts.into_keys().map(Port).collect::<Vec<Port>>());
        }
        routes
    }

    fn medium_at<F: CellFrame>(&self, node: usize) -> MediumNode<F> {
        let ports = &self.topology.ports[node];
        let name = self.topology.network.nodes[node].name.clone();
        let numbers = 0..ports.len() as u16;
        let backoff =
            |port| self.seed.stream(&format!("{name} / backoff {}", self.neighbor_name(node, port)));
        match self.kind(node) {
            NodeKind::Switch { latency, .. } => {
                let ports = numbers.map(|port| self.medium_port(node, port));
                MediumNode {
                    attachments: ports.map(|(medium, port)| Attachment::Medium(medium, port)).collect(),
                    medium: Medium::Switch(self.switch(node, *latency)),
                    rate: Default::default(),
                    name,
                }
            }
            NodeKind::Hub { rate, delay } => MediumNode {
                attachments: pad_to_two(self.attachments_of(node), Attachment::Unconnected),
                medium: Medium::Hub(Hub::new(
                    HubOptions { rate: *rate, delay: *delay, max_length: self.max_packet(node) },
                    &pad_to_two(self.bounds_of(node), Bound::NONE),
                    // A silent station draws nothing from its stream.
                    pad_to_two(numbers.map(backoff).collect(), self.seed.stream("nobody")),
                )),
                rate: *rate,
                name,
            },
            NodeKind::Ring { rate, frame, token_loss } => MediumNode {
                attachments: pad_to_two(self.attachments_of(node), Attachment::Unconnected),
                medium: Medium::Ring(self.ring(node, *rate, frame.as_bytes() as u32, *token_loss)),
                rate: *rate,
                name,
            },
            NodeKind::Host(_) | NodeKind::Converter { .. } => unreachable!("{name} is no medium"),
        }
    }

    fn ring<F: CellFrame>(&self, node: usize, rate: Rate, max_length: u32, token_loss: f64) -> Ring<F> {
        let name = &self.topology.network.nodes[node].name;
        let options =
            if rate.as_bps() >= FDDI_MIN_BPS { RingOptions::fddi() } else { RingOptions::default() };
        let options = RingOptions { rate, max_length, token_loss, ..options };
        let stream = self.seed.stream(&format!("{name} / token"));
        let mut ring = Ring::new(options, &pad_to_two(self.bounds_of(node), Bound::NONE), stream);
        for (station, port) in self.stations_behind_ports(node) {
            ring.add_station(station, port);
        }
        ring
    }

    /// Returns the hosts behind each port of a node.
    fn stations_behind_ports(&self, node: usize) -> impl Iterator<Item = (u32, Port)> {
        (0..self.topology.ports[node].len()).flat_map(move |port| {
            let nodes = self.topology.nodes_behind(node, port).into_iter();
            let hosts = nodes.filter(|node| self.topology.is_host(*node));
            hosts.map(move |host| (self.numbers.nodes[host], Port(port as u16)))
        })
    }

    /// Returns the largest packet of any station on a shared medium, bytes.
    fn max_packet(&self, shared: usize) -> u32 {
        let mtus = self.topology.ports[shared].iter().map(|hop| self.topology.network.links[hop.link].mtu);
        let tag = if self.llc_stations.is_empty() { 0 } else { VLAN_TAG };
        mtus.map(|mtu| mtu.as_bytes() as u32).max().unwrap_or(1500) + tag
    }

    /// Returns the name of the neighbor at a port.
    fn neighbor_name(&self, node: usize, port: u16) -> &str {
        &self.topology.network.nodes[self.topology.ports[node][usize::from(port)].neighbor].name
    }

    fn attachments_of(&self, shared: usize) -> Vec<Attachment> {
        let ports = self.topology.ports[shared].iter();
        ports
            .map(|hop| self.attachment(hop.neighbor, self.topology.port_of(hop.neighbor, hop.link)))
            .collect()
    }

    fn bounds_of(&self, shared: usize) -> Vec<Bound> {
        self.topology.ports[shared].iter().map(|hop| self.queue_bound_at(hop.neighbor, false, 1)).collect()
    }

    /// Returns the queue bound of a port, which depends on its node. `cells` is the size of a packet, if the medium counts
    /// cells.
    fn queue_bound_at(&self, node: usize, counts_cells: bool, cells: u64) -> Bound {
        match self.kind(node) {
            NodeKind::Switch { buffer, each_channel, .. } => {
                let buffer = match *buffer {
                    Amount::Packets(n) if counts_cells => Amount::Cells(n.saturating_mul(cells)),
                    other => other,
                };
                bound(buffer, *each_channel, counts_cells)
            }
            NodeKind::Host(costs) | NodeKind::Converter { costs, .. } => {
                Bound::frames(self.send_queue(node, costs))
            }
            _ => Bound::NONE,
        }
    }

    /// Returns the length of a host's transmit queue in packets. For an LLC station it is one, as in AirNET
    /// (docs/internals/reproduction.md), so that all other messages queue where priorities apply.
    fn send_queue(&self, node: usize, costs: &HostCosts) -> u64 {
        let is_llc_station = self.llc_stations.contains(self.topology.network.nodes[node].name.as_str());
        if is_llc_station { 1 } else { costs.send_queue }
    }

    fn switch<F: CellFrame>(&self, node: usize, latency: Span) -> Switch<F> {
        let ports = self.topology.ports[node].len();
        // A packet switch drops damaged packets; a cell switch checks cell headers only.
        let options = SwitchOptions {
            latency,
            drops_damaged: !self.topology.is_cell_switch(node),
            ..SwitchOptions::default()
        };
        let mut switch = Switch::new(ports as u16, options);
        for (station, port) in self.stations_behind_ports(node) {
            switch.add_station(station, port);
        }
        for (group, counts) in self.members_behind_ports(node) {
            switch.set_group(group, &counts.into_keys().map(Port).collect::<Vec<Port>>());
        }
        switch
    }

    /// Returns the number of members of each group behind each port of a node; ports without members are absent.
    fn members_behind_ports(&self, node: usize) -> BTreeMap<u32, BTreeMap<u16, u32>> {
        let mut counts: BTreeMap<u32, BTreeMap<u16, u32>> = BTreeMap::new();
        for port in 0..self.topology.ports[node].len() {
            for behind in self.topology.nodes_behind(node, port) {
                let name = &self.topology.network.nodes[behind].name;
                for (group, _) in self.members.iter().filter(|(_, hosts)| hosts.contains(name.as_str())) {
                    *counts.entry(*group).or_default().entry(port as u16).or_default() += 1;
                }
            }
        }
        counts
    }

    fn link<F: CellFrame>(&self, index: usize, link: &Link) -> MediumNode<F> {
        let ends = [&link.a, &link.b]
            .map(|n| self.topology.node(n).expect("the language checks that links name nodes"));
        let attachments = ends.map(|node| self.attachment(node, self.topology.port_of(node, index))).to_vec();
        let streams =
            [0, 1].map(|end| self.seed.stream(&format!("{} / from {}", link.name, [&link.a, &link.b][end])));
        let medium = match link.medium {
            LinkMedium::Atm if self.has_explicit_rates() => {
                let mut medium = CreditLink::new(&self.cell_config(link, ends), None, streams);
                for (port, node) in ends.iter().enumerate() {
                    if let NodeKind::Host(costs) = self.kind(*node) {
                        medium.limit_channels(Port(port as u16), self.send_queue(*node, costs) as usize);
                    }
                }
                medium.set_changes(&queue::changes_of(link, &self.topology.network.changes));
                Medium::Credits(medium)
            }
            LinkMedium::Atm
                if link.credits.is_some() || ends.iter().any(|node| self.queues_by_channel(*node)) =>
            {
                let round_trip = link.delay * 2;
                let options = link.credits.map(|window| CreditOptions::new(window, round_trip));
                let mut medium = CreditLink::new(&self.cell_config(link, ends), options, streams);
                medium.set_changes(&queue::changes_of(link, &self.topology.network.changes));
                Medium::Credits(medium)
            }
            LinkMedium::Atm => Medium::Cells(self.cell_link(link, ends, streams)),
            _ => {
                let framing = if link.medium == LinkMedium::Ppp { Framing::PPP } else { Framing::ETHERNET };
                let line = |node: usize| LineOptions {
                    rate: link.payload,
                    framing,
                    delay: link.delay,
                    bound: self.queue_bound_at(node, false, 1),
                    pacing: link.pacing.filter(|_| self.topology.is_host(node)),
                    impairments: impairments(link, Impairments::default().hold),
                    queue: None,
                };
                let mut lines = ends.map(line);
                for (line, options) in lines.iter_mut().zip(self.queue_options(link, ends)) {
                    line.queue = options.map(Box::new);
                }
                Medium::Link(trunkline_models::media::Link::new(lines, streams))
            }
        };
        MediumNode { name: link.name.clone(), medium, attachments, rate: link.payload }
    }

    /// Creates a link of cells without credits or explicit rates.
    fn cell_link<F: CellFrame>(&self, link: &Link, ends: [usize; 2], streams: [Stream; 2]) -> CellLink<F> {
        let config = self.cell_config(link, ends);
        let mut medium = CellLink::new(&config, streams);
        let unit = match link.queues_packets() {
            true => QueueUnit::Packets(encapsulation(link.encapsulation)),
            false => QueueUnit::Cells,
        };
        for (port, options) in self.queue_options(link, ends).into_iter().enumerate() {
            if let Some(options) = options {
                medium.set_queue(&config, Port(port as u16), unit, options);
            }
        }
        medium
    }

    /// Returns the options of the explicit queues at both ends of a link.
    fn queue_options(&self, link: &Link, ends: [usize; 2]) -> [Option<QueueOptions>; 2] {
        [(&link.a, ends[0]), (&link.b, ends[1])].map(|(end, node)| {
            let stream = self.seed.stream(&format!("{} / queue from {end}", link.name));
            queue::options(link, self.topology.forwards(node), &self.topology.network.changes, stream)
        })
    }

    fn has_explicit_rates(&self) -> bool {
        self.topology.network.links.iter().any(|link| link.explicit_rate.is_some())
    }

    /// Whether a node is a cell switch that serves its channels in turn: by its scheduling, or because one of its links has
    /// credits, so that a cell that leaves it may free a buffer.
    fn queues_by_channel(&self, node: usize) -> bool {
        let has_credits = |hop: &Hop| self.topology.network.links[hop.link].credits.is_some();
        let takes_turns = matches!(self.kind(node), NodeKind::Switch { round_robin: true, .. });
        self.topology.is_cell_switch(node)
            && (takes_turns || self.topology.ports[node].iter().any(has_credits))
    }

    fn cell_config(&self, link: &Link, ends: [usize; 2]) -> Config {
        let encapsulation = encapsulation(link.encapsulation);
        let cells = u64::from(atm::cells_of(link.mtu.as_bytes() as u32, encapsulation));
        let end = |node: usize| {
            if self.topology.is_cell_switch(node) {
                return End::SwitchPort { queue: self.queue_bound_at(node, true, cells) };
            }
            let unit = match link.pacing_counts {
                PacingCounts::Cells => PacingUnit::Cells,
                PacingCounts::Payload => PacingUnit::Payload,
            };
            let pacing = match (link.pacing, link.pacing_slots) {
                (Some(rate), _) if self.topology.is_host(node) => Pacing::Rate { rate, unit },
                (None, Some((send, of))) if self.topology.is_host(node) => {
                    Pacing::Slots { send: send.into(), of: of.into() }
                }
                _ => Pacing::None,
            };
            // With explicit rates each channel has a separate send queue.
            let queue = match self.topology.is_host(node) && self.has_explicit_rates() {
                true => Bound::NONE,
                false => self.queue_bound_at(node, false, cells),
            };
            End::Adapter { pacing, queue, encapsulation }
        };
        Config {
            payload: link.payload,
            delay: link.delay,
            ends: ends.map(end),
            impairments: [impairments(link, CELL_HOLD); 2],
            mode: if self.trains { Mode::Trains } else { Mode::Cells },
        }
    }
}

fn impairments(link: &Link, hold: Span) -> Impairments {
    let Link { loss, corrupt, duplicate, reorder, .. } = *link;
    Impairments { loss, corrupt, duplicate, reorder, hold }
}

/// Pads a list to two entries: a hub or ring with fewer stations gets silent ones.
fn pad_to_two<T: Clone>(mut list: Vec<T>, with: T) -> Vec<T> {
    let length = list.len().max(2);
    list.resize(length, with);
    list
}

fn encapsulation(encapsulation: Encapsulation) -> atm::Encapsulation {
    match encapsulation {
        Encapsulation::Llc => atm::Encapsulation::LlcSnap,
        Encapsulation::Null => atm::Encapsulation::VcMux,
    }
}

/// Returns the bound of a buffer in the units of the medium.
fn bound(amount: Amount, per_channel: bool, counts_cells: bool) -> Bound {
    let capacity = match amount {
        Amount::Bytes(bytes) if counts_cells => Capacity::Frames(bytes / CELL_BYTES),
        Amount::Cells(cells) if counts_cells => Capacity::Frames(cells),
        Amount::Bytes(bytes) => Capacity::Bytes(bytes),
        Amount::Cells(cells) => Capacity::Bytes(cells.saturating_mul(CELL_BYTES)),
        Amount::Packets(packets) => Capacity::Frames(packets),
    };
    Bound { capacity, per_channel }
}
