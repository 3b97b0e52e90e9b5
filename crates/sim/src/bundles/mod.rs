//! Bundle workers: the bundle converters of a network, their hosts, and the hosts in the wide area.
//!
//! The state machines are those of `trunkline_bundle`, with the same bytes as on sockets. A worker connects one to the
//! simulated network: messages come from flows (a header followed by zeros), bundles are UDP datagrams that are
//! fragmented to the path MTU, and each packet has the usual costs of its host.
//!
//! The wide area has one multicast group for each 32 message addresses. Bundles for hosts go to the group of all hosts of
//! the central converter, bundles for converters go to their hosts by unicast.
//!
//! | module | contents |
//! | --- | --- |
//! | [`refuse`] | plans with bundles that the simulator refuses |
//! | [`worker`] | one state machine at its host |

pub mod refuse;
pub mod worker;

use std::collections::BTreeMap;

use trunkline_bundle::Host;
use trunkline_bundle::central::Central;
use trunkline_bundle::host::CommandError;
use trunkline_bundle::level1::Level1;
use trunkline_bundle::wire::format2::packet_address;
use trunkline_endpoint::{Destination, Port};
use trunkline_experiment::converters::{Sides, number};
use trunkline_experiment::plan::{Network as Described, Node, NodeKind, Plan};
use trunkline_run::bundle::{self, ConverterConfig, MessageOptions};
use trunkline_run::message::Header;
use trunkline_units::{Instant, Seed, Span};

use crate::flow::fragment::Fragmenter;
use crate::frame::{Packet, PacketPool};
use crate::network::Network;
use crate::network::topology::Topology;
use worker::{BundleWorker, EgressPath, WorkerRole};

/// Maximum time until all converters have the subscriptions, in addition to the delay of the links.
const SUBSCRIPTION_TIMEOUT: Span = Span::from_s(1);

/// The bundle workers of a plan, by host.
#[derive(Debug, Default)]
pub struct BundleWorkers {
    /// The worker of each host.
    workers: Vec<Option<Box<BundleWorker>>>,
    /// The hosts that have a worker.
    hosts: Vec<u32>,
    /// The host of the central converter.
    central: u32,
    /// Subscriptions: host number and message address.
    subscriptions: Vec<(u16, u32)>,
    ready_within: Span,
    is_ready: bool,
}

/// The output of a bundle worker.
#[derive(Debug)]
pub enum BundleOutput {
    /// Outgoing packets may have changed.
    Outgoing,
    /// A message of a flow arrived.
    Received {
        /// Number of the flow.
        flow: u32,
        /// Header of the message.
        header: Header,
    },
    /// The host joins or leaves a multicast group.
    Membership {
        /// The group.
        group: u32,
        /// Whether it joins.
        joins: bool,
    },
    /// All converters have the subscriptions.
    Ready,
    /// Nothing to do now.
    Idle {
        /// When to call [`BundleWorkers::handle_deadline`].
        deadline: Option<Instant>,
    },
}

impl BundleWorkers {
    /// Creates the workers of a plan, or `None` if no connection uses bundles. Each needs a
    /// [node](BundleWorkers::set_node_id) before it is used.
    pub fn new(plan: &Plan, topology: &Topology<'_>, network: &Network) -> Option<BundleWorkers> {
        let sides = bundle::sides(plan)?;
        let central = network.host_number(&sides.central.first()?.name)?;
        let network_plan = plan.network.as_ref()?;
        let config = bundle::converter_config(plan)?;
        let builder = WorkerBuilder { plan, network_plan, config, topology, network, sides: &sides };
        let mut bundles = BundleWorkers {
            central,
            ready_within: SUBSCRIPTION_TIMEOUT + network.longest_delay * 4,
            ..BundleWorkers::default()
        };
        bundles.insert(central, builder.central()?);
        for node in &sides.level1 {
            bundles.insert(network.host_number(&node.name)?, builder.level1(node)?);
        }
        for (at, name) in (1u16..).zip(&sides.hosts) {
            bundles.insert(network.host_number(name)?, builder.host(at, name)?);
            bundles
                .subscriptions
                .extend(bundle::subscriptions(plan, name).into_iter().map(|address| (at, address)));
        }
        for (at, name) in sides.wide.iter().enumerate() {
            bundles.insert(network.host_number(name)?, builder.wide_area_host(at, name)?);
        }
        for (host, address) in bundles.subscriptions.clone() {
            let host = network.host_number(sides.hosts[usize::from(host) - 1])?;
            bundles.worker_mut(host)?.subscribe(address);
        }
        Some(bundles)
    }

    fn insert(&mut self, host: u32, worker: BundleWorker) {
        let workers = &mut self.workers;
        workers.resize_with(workers.len().max(host as usize + 1), || None);
        workers[host as usize] = Some(Box::new(worker));
        self.hosts.push(host);
    }

    fn worker_mut(&mut self, host: u32) -> Option<&mut BundleWorker> {
        self.workers.get_mut(host as usize)?.as_deref_mut()
    }

    /// Returns the hosts that have a worker.
    pub fn hosts(&self) -> &[u32] {
        &self.hosts
    }

    /// Sets the event queue's node of a worker.
    pub fn set_node_id(&mut self, host: u32, node_id: u32) {
        if let Some(worker) = self.worker_mut(host) {
            worker.node_id = node_id;
        }
    }

    /// Returns the event queue's node of a worker.
    pub fn node_id(&self, host: u32) -> Option<u32> {
        Some(self.workers.get(host as usize)?.as_ref()?.node_id)
    }

    /// Returns the maximum time until all subscriptions are known; `None` if they are known already.
    pub fn ready_within(&self) -> Option<Span> {
        (!self.is_ready).then_some(self.ready_within)
    }

    /// Sends a message of a flow.
    ///
    /// # Errors
    /// Returns the reason if the worker refuses the message.
    pub fn send(
        &mut self,
        now: Instant,
        host: u32,
        flow: u32,
        options: &MessageOptions,
        header: &Header,
    ) -> Result<(), CommandError> {
        self.worker_mut(host).map_or(Ok(()), |worker| worker.send(now, flow, options, header))
    }

    /// Handles a packet that arrived at a host. Returns whether its worker must be polled.
    pub fn receive(&mut self, now: Instant, host: u32, packet: &Packet) -> bool {
        let Some(worker) = self.worker_mut(host) else { return false };
        worker.receive(now, packet);
        true
    }

    /// Handles an expired deadline of a worker.
    pub fn handle_deadline(&mut self, now: Instant, host: u32) {
        if let Some(worker) = self.worker_mut(host) {
            worker.handle_deadline(now);
        }
    }

    /// Returns the interface, the medium and the medium's port for the next packet of a worker.
    pub fn next_egress(&self, host: u32) -> Option<(Port, (u32, Port))> {
        self.workers.get(host as usize)?.as_ref()?.next_egress()
    }

    /// Removes and returns the next packet of a worker.
    pub fn take_packet(&mut self, host: u32) -> Option<Packet> {
        self.worker_mut(host)?.take_packet()
    }

    /// Returns the switches that lead to a host's interface to the wide area, and their ports towards it.
    pub fn switches(&self, host: u32) -> &[(u32, Port)] {
        let worker = self.workers.get(host as usize).and_then(Option::as_deref);
        worker.map_or(&[], |worker| worker.switches())
    }

    /// Polls the worker of a host for output.
    pub fn poll(&mut self, now: Instant, host: u32, pool: &mut PacketPool) -> BundleOutput {
        let Some(worker) = self.worker_mut(host) else { return BundleOutput::Idle { deadline: None } };
        let output = worker.poll(now, pool);
        if !self.is_ready && matches!(output, BundleOutput::Idle { .. }) && self.has_all_subscriptions() {
            self.is_ready = true;
            return BundleOutput::Ready;
        }
        output
    }

    /// Whether the central converter has all subscriptions and level 1 has joined their groups.
    fn has_all_subscriptions(&self) -> bool {
        let workers = || self.workers.iter().flatten();
        let Some(BundleWorker { role: WorkerRole::Central { machine, .. }, .. }) =
            self.workers.get(self.central as usize).and_then(Option::as_deref)
        else {
            return true;
        };
        let is_subscribed = |(host, address): &(u16, u32)| machine.is_subscribed(*host, *address);
        let has_joined = |at: u16| {
            workers().any(
                |worker| matches!(&worker.role, WorkerRole::Level1 { joined, .. } if joined.contains(&at)),
            )
        };
        self.subscriptions
            .iter()
            .all(|subscription| is_subscribed(subscription) && has_joined(packet_address(subscription.1)))
    }

    /// Returns the counters of a worker by name.
    pub fn counts(&self, now: Instant, host: u32) -> BTreeMap<String, u64> {
        let worker = self.workers.get(host as usize).and_then(Option::as_deref);
        worker.map_or_else(BTreeMap::new, |worker| worker.counts(now))
    }
}

/// Builds the workers of a plan.
struct WorkerBuilder<'b> {
    plan: &'b Plan,
    network_plan: &'b Described,
    /// Configuration of the central converter and the hosts.
    config: ConverterConfig,
    topology: &'b Topology<'b>,
    network: &'b Network,
    sides: &'b Sides<'b>,
}

/// The incarnation number of all machines: they start once.
const INCARNATION: u32 = 1;

impl WorkerBuilder<'_> {
    fn central(&self) -> Option<BundleWorker> {
        let node = self.sides.central.first()?;
        let central_config = bundle::CentralConfig::from_plan(self.network_plan, self.sides)?;
        let mut level1 = BTreeMap::new();
        for (number, other) in central_config.level1.iter().zip(&self.sides.level1) {
            let egress = self.egress(&node.name, &[other.name.as_str()])?;
            level1.insert(*number, (Destination::Station(self.network.host_number(&other.name)?), egress));
        }
        // Format 1 sends once per interface with hosts; format 2 sends to each host.
        let mut hosts: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
        let mut host_paths = BTreeMap::new();
        for name in &self.sides.hosts {
            let egress = self.egress(&node.name, &[*name])?;
            hosts.entry(egress.port.0).or_default().push(*name);
            host_paths.insert(self.network.host_number(name)?, egress);
        }
        let egresses = hosts
            .values()
            .map(|names| self.egress(&node.name, names))
            .collect::<Option<Vec<EgressPath>>>()?;
        let level1_hosts = self.sides.level1.iter().filter_map(|node| self.network.host_number(&node.name));
        let role = WorkerRole::Central {
            machine: Box::new(Central::new(Seed(0), INCARNATION, central_config.to_state_machine_config())),
            level1_hosts: level1_hosts.collect(),
            level1,
            hosts: (Destination::Group(self.network.all_hosts_group), egresses),
            host_paths,
        };
        Some(BundleWorker::new(self.network.host_number(&node.name)?, role))
    }

    fn level1(&self, node: &Node) -> Option<BundleWorker> {
        let central = self.sides.central.first()?;
        let host = self.network.host_number(&node.name)?;
        let central_egress = self.egress(&node.name, &[central.name.as_str()])?;
        let at = self.topology.node(&node.name)?;
        let ports = 0..self.topology.ports[at].len() as u16;
        let wide_area_port =
            ports.clone().find(|port| *port != central_egress.port.0).unwrap_or(central_egress.port.0);
        let wide_area = self.wide_area_egress(at, wide_area_port)?;
        let role = WorkerRole::Level1 {
            machine: Box::new(Level1::new(
                number(node) as u16,
                INCARNATION,
                ConverterConfig::from_node(self.network_plan, node).settings(),
            )),
            groups: self.groups(),
            joined: Default::default(),
            central: (Destination::Station(self.network.host_number(&central.name)?), central_egress),
            switches: self.switches(at, wide_area_port),
            wide_area,
        };
        Some(BundleWorker::new(host, role))
    }

    fn host(&self, number: u16, name: &str) -> Option<BundleWorker> {
        let central = self.sides.central.first()?;
        let to = Destination::Station(self.network.host_number(&central.name)?);
        let egress = self.egress(name, &[central.name.as_str()])?;
        let machine = Box::new(Host::new(number, INCARNATION, self.config.settings()));
        Some(BundleWorker::new(self.network.host_number(name)?, WorkerRole::Host { machine, to, egress }))
    }

    fn wide_area_host(&self, index: usize, name: &str) -> Option<BundleWorker> {
        let at = self.topology.node(name)?;
        let reached = self.sides.level1.iter().find_map(|other| self.egress(name, &[other.name.as_str()]))?;
        let egress = self.wide_area_egress(at, reached.port.0)?;
        let sender = self.config.wide_area_sender(index).map(Box::new);
        Some(BundleWorker::new(
            self.network.host_number(name)?,
            WorkerRole::WideAreaHost { sender, groups: self.groups(), egress },
        ))
    }

    /// Returns the multicast group of each packet address in the plan.
    fn groups(&self) -> BTreeMap<u16, u32> {
        let packets = bundle::addresses(self.plan).into_iter().map(packet_address);
        packets
            .filter_map(|at| Some((at, *self.network.groups.get(&bundle::group_of_packet(at).into())?)))
            .collect()
    }

    /// Returns the egress from a node to nodes behind one of its ports, with the smallest MTU of all paths.
    fn egress(&self, from: &str, to: &[&str]) -> Option<EgressPath> {
        let node = self.topology.node(from)?;
        let paths = to.iter().map(|to| self.topology.path(node, self.topology.node(to)?));
        let paths = paths.collect::<Option<Vec<_>>>()?;
        let port = paths.first()?.first()?.1;
        let mtu = paths.iter().filter_map(|path| self.topology.mtu(path)).min()?;
        Some(self.egress_at(node, port, mtu))
    }

    /// Returns the egress of a node to the wide area, with the smallest MTU of the paths to all nodes there.
    fn wide_area_egress(&self, node: usize, port: u16) -> Option<EgressPath> {
        let nodes = self.topology.nodes_behind(node, usize::from(port));
        let destinations =
            nodes.into_iter().filter(|other| *other != node && !self.topology.forwards(*other));
        let paths = destinations.filter_map(|other| self.topology.mtu(&self.topology.path(node, other)?));
        let own = self.topology.mtu(&[(node, port)])?;
        Some(self.egress_at(node, port, paths.fold(own, u32::min)))
    }

    fn egress_at(&self, node: usize, port: u16, mtu: u32) -> EgressPath {
        let host = self.network.hosts.iter().find(|host| host.plan_node == node);
        let medium_port = host.map_or((0, Port(0)), |host| host.medium_ports[usize::from(port)]);
        EgressPath { port: Port(port), medium_port, fragmenter: Fragmenter::new(mtu) }
    }

    /// Returns the switches in the segment behind a port of a node, and their ports towards the node.
    fn switches(&self, node: usize, port: u16) -> Vec<(u32, Port)> {
        let nodes = self.topology.nodes_behind(node, usize::from(port));
        let switches = nodes
            .into_iter()
            .filter(|at| matches!(self.topology.network.nodes[*at].kind, NodeKind::Switch { .. }));
        let towards = |at: usize| {
            let port = self.topology.path(at, node)?.first()?.1;
            let name = &self.topology.network.nodes[at].name;
            let medium = self.network.media.iter().position(|medium_node| medium_node.name == *name)?;
            Some((medium as u32, Port(port)))
        };
        switches.filter_map(towards).collect()
    }
}
