//! Bundle workers: the bundle converters of a network, their hosts, and the hosts in the wide area.
//!
//! The state machines are those of `trunkline_bundle`, with the same bytes as on sockets. A worker connects one to the
//! simulated network: messages come from flows (a header followed by zeros), bundles are UDP datagrams that are
//! fragmented to the path MTU, and each packet has the usual costs of its host.
//!
//! The wide area has one multicast group for each 32 message addresses. Bundles for hosts go to the group of all hosts of
//! the central converter, bundles for converters go to their hosts by unicast.

pub mod refuse;
pub mod worker;

use std::collections::BTreeMap;

use trunkline_bundle::Host;
use trunkline_bundle::central::Central;
use trunkline_bundle::level1::Level1;
use trunkline_bundle::wire::format2::packet_address;
use trunkline_endpoint::{Destination, Port};
use trunkline_experiment::converters::{Sides, number};
use trunkline_experiment::plan::{Network as Described, Node, Plan};
use trunkline_run::bundle::{self, ConverterConfig};
use trunkline_run::message::Header;
use trunkline_units::{Instant, Seed, Span};

use crate::frame::PacketPool;
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
    hosts: Vec<u32>,
    /// The host of the central converter.
    central: u32,
    /// Subscriptions: host number and message address.
    subscriptions: Vec<(u16, u32)>,
    /// Maximum time until all subscriptions are known; `None` when they are.
    pub ready_within: Option<Span>,
}

/// The output of a bundle worker.
#[derive(Debug)]
pub enum BundleOutput {
    /// Outgoing packets may have changed.
    Outgoing,
    /// A message of a flow arrived.
    Received { flow: u32, header: Header },
    /// The host joins or leaves a multicast group.
    Membership { group: u32, joins: bool },
    /// All converters have the subscriptions.
    Ready,
    /// Nothing to do before the deadline.
    Idle { deadline: Option<Instant> },
}

impl BundleWorkers {
    /// Creates the workers of a plan, or `None` if no connection uses bundles. Each needs a node in the event queue
    /// before it is used.
    pub fn new(plan: &Plan, topology: &Topology<'_>, network: &Network) -> Option<BundleWorkers> {
        let sides = bundle::sides(plan)?;
        let network_plan = plan.network.as_ref()?;
        let config = bundle::converter_config(plan)?;
        let builder = WorkerBuilder { plan, network_plan, config, topology, network, sides: &sides };
        let central = builder.central()?;
        let mut bundles = BundleWorkers {
            central: central.host,
            ready_within: Some(SUBSCRIPTION_TIMEOUT + network.longest_delay * 4),
            ..BundleWorkers::default()
        };
        bundles.insert(central);
        for node in &sides.level1 {
            bundles.insert(builder.level1(node)?);
        }
        for (at, name) in (1u16..).zip(&sides.hosts) {
            let mut worker = builder.host(at, name)?;
            for address in bundle::subscriptions(plan, name) {
                worker.subscribe(address);
                bundles.subscriptions.push((at, address));
            }
            bundles.insert(worker);
        }
        for (at, name) in sides.wide.iter().enumerate() {
            bundles.insert(builder.wide_area_host(at, name)?);
        }
        Some(bundles)
    }

    fn insert(&mut self, worker: BundleWorker) {
        let (host, workers) = (worker.host as usize, &mut self.workers);
        self.hosts.push(worker.host);
        workers.resize_with(workers.len().max(host + 1), || None);
        workers[host] = Some(Box::new(worker));
    }

    /// Returns the worker of a host.
    pub fn worker(&self, host: u32) -> Option<&BundleWorker> {
        self.workers.get(host as usize)?.as_deref()
    }

    /// Returns the worker of a host.
    pub fn worker_mut(&mut self, host: u32) -> Option<&mut BundleWorker> {
        self.workers.get_mut(host as usize)?.as_deref_mut()
    }

    pub fn hosts(&self) -> &[u32] {
        &self.hosts
    }

    /// Polls the worker of a host for output.
    pub fn poll(&mut self, now: Instant, host: u32, pool: &mut PacketPool) -> BundleOutput {
        let Some(worker) = self.worker_mut(host) else { return BundleOutput::Idle { deadline: None } };
        let output = worker.poll(now, pool);
        if self.ready_within.is_some()
            && matches!(output, BundleOutput::Idle { .. })
            && self.has_all_subscriptions()
        {
            self.ready_within = None;
            return BundleOutput::Ready;
        }
        output
    }

    /// Whether the central converter has all subscriptions and level 1 has joined their groups.
    fn has_all_subscriptions(&self) -> bool {
        let workers = || self.workers.iter().flatten();
        let Some(BundleWorker { role: WorkerRole::Central { machine, .. }, .. }) = self.worker(self.central)
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

/// Returns the port of a level-1 converter to the wide area, given that to its central converter.
pub fn wide_area_port(topology: &Topology<'_>, node: usize, to_central: Port) -> Port {
    let mut ports = (0..topology.ports[node].len() as u16).map(Port);
    ports.find(|port| *port != to_central).unwrap_or(to_central)
}

/// The incarnation number of all machines: they start once.
const INCARNATION: u32 = 1;

impl WorkerBuilder<'_> {
    /// Returns the host of the central converter.
    fn central_name(&self) -> Option<&str> {
        Some(&self.sides.central.first()?.name)
    }

    fn station(&self, name: &str) -> Option<Destination> {
        Some(Destination::Station(self.network.host_number(name)?))
    }

    fn worker(&self, name: &str, role: WorkerRole) -> Option<BundleWorker> {
        Some(BundleWorker::new(self.network.host_number(name)?, role))
    }

    fn central(&self) -> Option<BundleWorker> {
        let name = self.central_name()?;
        let central_config = bundle::CentralConfig::from_plan(self.network_plan, self.sides)?;
        let mut level1 = BTreeMap::new();
        for (number, other) in central_config.level1.iter().zip(&self.sides.level1) {
            level1.insert(*number, (self.station(&other.name)?, self.egress(name, &[&other.name])?));
        }
        // Format 1 sends once per interface with hosts; format 2 sends to each host.
        let mut hosts: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
        let mut host_paths = BTreeMap::new();
        for host in &self.sides.hosts {
            let egress = self.egress(name, &[*host])?;
            hosts.entry(egress.port.0).or_default().push(*host);
            host_paths.insert(self.network.host_number(host)?, egress);
        }
        let egresses = hosts.values().map(|hosts| self.egress(name, hosts)).collect::<Option<_>>()?;
        let level1_hosts = self.sides.level1.iter().filter_map(|node| self.network.host_number(&node.name));
        let role = WorkerRole::Central {
            machine: Box::new(Central::new(Seed(0), INCARNATION, central_config.to_state_machine_config())),
            level1_hosts: level1_hosts.collect(),
            level1,
            hosts: (Destination::Group(self.network.all_hosts_group), egresses),
            host_paths,
        };
        self.worker(name, role)
    }

    fn level1(&self, node: &Node) -> Option<BundleWorker> {
        let central = self.central_name()?;
        let central_egress = self.egress(&node.name, &[central])?;
        let at = self.topology.node(&node.name)?;
        let wide_area_port = wide_area_port(self.topology, at, central_egress.port).0;
        let role = WorkerRole::Level1 {
            machine: Box::new(Level1::new(
                number(node) as u16,
                INCARNATION,
                ConverterConfig::from_node(self.network_plan, node).settings(),
            )),
            groups: self.groups(),
            joined: Default::default(),
            central: (self.station(central)?, central_egress),
            forwarders: self.network.forwarders_behind(self.topology, (at, Port(wide_area_port))),
            wide_area: self.wide_area_egress(at, wide_area_port)?,
        };
        self.worker(&node.name, role)
    }

    fn host(&self, number: u16, name: &str) -> Option<BundleWorker> {
        let central = self.central_name()?;
        let (to, egress) = (self.station(central)?, self.egress(name, &[central])?);
        let machine = Box::new(Host::new(number, INCARNATION, self.config.settings()));
        self.worker(name, WorkerRole::Host { machine, to, egress })
    }

    fn wide_area_host(&self, index: usize, name: &str) -> Option<BundleWorker> {
        let reached = self.sides.level1.iter().find_map(|other| self.egress(name, &[&other.name]))?;
        let egress = self.wide_area_egress(self.topology.node(name)?, reached.port.0)?;
        let sender = self.config.wide_area_sender(index).map(Box::new);
        self.worker(name, WorkerRole::WideAreaHost { sender, groups: self.groups(), egress })
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
        Some(EgressPath::new(port, mtu))
    }

    /// Returns the egress of a node to the wide area, with the smallest MTU of the paths to all nodes there.
    fn wide_area_egress(&self, node: usize, port: u16) -> Option<EgressPath> {
        let nodes = self.topology.nodes_behind(node, usize::from(port));
        let destinations = nodes.into_iter().filter(|other| *other != node && self.topology.is_host(*other));
        let paths = destinations.filter_map(|other| self.topology.mtu(&self.topology.path(node, other)?));
        let own = self.topology.mtu(&[(node, port)])?;
        Some(EgressPath::new(port, paths.fold(own, u32::min)))
    }
}
