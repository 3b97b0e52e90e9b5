//! The event loop: handles deadlines of nodes in order and carries frames from one node to the next.
//!
//! A node is a medium, a host, or an endpoint of a host: an end of a flow, an LLC station or a bundle worker. Each has at
//! most one deadline.
//! The loop takes the earliest (time, node), handles it, and follows each frame that the node transmits until the frame
//! is queued again. Simultaneous events are therefore processed in the same order on every machine.
//!
//! | module | contents |
//! | --- | --- |
//! | `media` | frames from medium to medium, and media that have something to do |
//! | `hosts` | frames at hosts: processing, the queues of interfaces, and who waits for them |
//! | `endpoints` | packets to and from the endpoints of hosts |
//!
//! In these files `m` is the number of a medium, `h` that of a host, `side` the index of an end of a flow ([`FlowEnd`]), and
//! `input` the port at which a frame enters a medium.

use std::collections::VecDeque;

use trunkline_endpoint::Port;
use trunkline_run::reports::SenderReport;
use trunkline_units::{Instant, Rate};
use xxhash_rust::xxh3::xxh3_64;

use crate::bundles::BundleWorkers;
use crate::event_queue::{EventQueue, NodeId};
use crate::explicit_rates::ExplicitRates;
use crate::flow::{Flow, FlowEnd, channel_of};
use crate::frame::PacketPool;
use crate::llc_stations::{LlcInterface, LlcStations};
use crate::network::Network;
use crate::network::topology::Topology;
use crate::trace::Tracer;

mod endpoints;
mod hosts;
mod media;

use hosts::HostQueue;

/// What a deadline in the event queue belongs to.
#[derive(Clone, Copy, Debug)]
enum Node {
    Medium(u32),
    Host(u32),
    Endpoint(Endpoint),
}

/// What sends and receives packets at a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    /// An end of a flow.
    End { flow: u32, side: u32 },
    /// The LLC station of a host, by the host's number.
    LlcStation(u32),
    /// The bundle worker of a host, by the host's number.
    BundleWorker(u32),
    /// The agent of explicit rates of a host, by the host's number.
    RateAgent(u32),
}

impl Endpoint {
    /// Stands for the number of the flow in the trace hash when a packet is delivered.
    fn hash_tag(self) -> u32 {
        match self {
            Endpoint::End { flow, .. } => flow,
            Endpoint::LlcStation(_) => u32::MAX,
            Endpoint::BundleWorker(_) => u32::MAX - 1,
            Endpoint::RateAgent(_) => u32::MAX - 2,
        }
    }
}

/// A running simulation.
pub struct Engine {
    now: Instant,
    event_queue: EventQueue,
    nodes: Vec<Node>,
    /// The hash of each node's name. It depends on nothing else, so adding a node does not change the trace hash.
    node_hashes: Vec<u64>,
    network: Network,
    flows: Vec<Option<Box<Flow>>>,
    host_queues: Vec<HostQueue>,
    llc_stations: LlcStations,
    bundle_workers: BundleWorkers,
    explicit_rates: ExplicitRates,
    /// Endpoints that must be polled before the step ends.
    runnable: VecDeque<Endpoint>,
    finished: VecDeque<u32>,
    packet_pool: PacketPool,
    hash: u64,
    last_activity: Instant,
    steps: u64,
    /// Writes captures, if any are requested.
    pub tracer: Option<Box<Tracer>>,
}

impl Engine {
    /// Creates an engine for a network in which nothing has happened.
    pub fn new(network: Network) -> Engine {
        let mut engine = Engine {
            now: Instant::ZERO,
            event_queue: EventQueue::default(),
            nodes: Vec::new(),
            node_hashes: Vec::new(),
            flows: Vec::new(),
            host_queues: network
                .hosts
                .iter()
                .map(|host| HostQueue {
                    pending_frames: host.medium_ports.iter().map(|_| VecDeque::new()).collect(),
                    ..HostQueue::default()
                })
                .collect(),
            llc_stations: LlcStations::default(),
            bundle_workers: BundleWorkers::default(),
            explicit_rates: ExplicitRates::default(),
            runnable: VecDeque::new(),
            finished: VecDeque::new(),
            packet_pool: PacketPool::default(),
            hash: 0,
            last_activity: Instant::ZERO,
            steps: 0,
            tracer: None,
            network,
        };
        for m in 0..engine.network.media.len() {
            let hash = name_hash(&engine.network.media[m].name);
            engine.add_node(Node::Medium(m as u32), hash);
        }
        for h in 0..engine.network.hosts.len() {
            let hash = name_hash(&engine.network.hosts[h].name);
            engine.add_node(Node::Host(h as u32), hash);
        }
        engine
    }

    fn add_node(&mut self, node: Node, hash: u64) -> NodeId {
        self.nodes.push(node);
        self.node_hashes.push(hash);
        self.event_queue.add_node()
    }

    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the time of the last frame that crossed a medium. After it the network was idle.
    pub fn last_activity(&self) -> Instant {
        self.last_activity
    }

    /// Returns the number of deadlines handled.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the trace hash: a digest of all events and their times. The same plan and seed give the same hash.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the network, to read its counters.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Returns the resource-management cells that a link has carried; `None` without explicit rates.
    pub fn rm_cells(&self, link: &str) -> Option<u64> {
        let medium = self.network.media.iter().position(|medium_node| medium_node.name == link)?;
        self.explicit_rates.cells(medium)
    }

    /// Returns the number of the next flow.
    pub fn next_flow(&self) -> u32 {
        self.flows.len() as u32
    }

    /// Sets the receive buffer of a socket of the next flow, if its host has one for each channel.
    pub fn set_receive_buffer(&mut self, host: u32, bytes: u64) {
        let channel = channel_of(self.next_flow(), 0);
        self.network.hosts[host as usize].model.set_receive_buffer(channel, bytes);
    }

    /// Adds an end of the next flow to the event queue.
    pub fn add_end(&mut self, host: u32, port: Port, name: &str, side: u32) -> FlowEnd {
        let flow = self.next_flow();
        let medium_port = self.network.hosts[host as usize].medium_ports[port.0 as usize];
        FlowEnd {
            host,
            port,
            medium_port,
            node_id: self.add_node(Node::Endpoint(Endpoint::End { flow, side }), name_hash(name)),
        }
    }

    /// Adds the LLC station of a host to the event queue.
    pub fn add_llc_station(&mut self, host: u32, port: Port, name: &str, ethernet: bool) -> LlcInterface {
        let node_id = self.add_node(Node::Endpoint(Endpoint::LlcStation(host)), name_hash(name));
        LlcInterface { port, node_id, ethernet }
    }

    pub fn start_llc(&mut self, llc: LlcStations) {
        self.runnable.extend(llc.hosts().iter().map(|host| Endpoint::LlcStation(*host)));
        self.llc_stations = llc;
        self.poll_runnable();
    }

    pub fn start_bundles(&mut self, mut bundles: BundleWorkers) {
        for host in bundles.hosts().to_vec() {
            let name = format!("{} / bundles", self.network.hosts[host as usize].name);
            let node_id = self.add_node(Node::Endpoint(Endpoint::BundleWorker(host)), name_hash(&name));
            if let Some(worker) = bundles.worker_mut(host) {
                worker.node_id = node_id;
            }
            self.runnable.push_back(Endpoint::BundleWorker(host));
        }
        self.bundle_workers = bundles;
        self.poll_runnable();
    }

    /// Sets the explicit rates, which have no sources yet.
    pub fn set_explicit_rates(&mut self, mut rates: ExplicitRates) {
        if rates.is_active() {
            for host in 0..self.network.hosts.len() as u32 {
                let name = format!("{} / rates", self.network.hosts[host as usize].name);
                rates.set_node(
                    host,
                    self.add_node(Node::Endpoint(Endpoint::RateAgent(host)), name_hash(&name)),
                );
            }
        }
        self.explicit_rates = rates;
    }

    /// Makes the source of the next flow, which starts at `starts_at`, obey explicit rates, if its path has any.
    pub fn add_rate_source(
        &mut self,
        topology: &Topology<'_>,
        (from, to): (u32, u32),
        starts_at: Instant,
        peak: Option<Rate>,
    ) {
        if self.explicit_rates.is_active() {
            let flow = (self.next_flow(), from, to);
            self.explicit_rates.add_source(topology, &self.network, flow, starts_at, peak);
            self.drain_rate_agent(from);
        }
    }

    /// Ends the explicit rate of a flow, and adds its measurements to the report of its sender.
    pub fn end_rate_source(&mut self, flow: u32, report: Option<&mut SenderReport>) {
        if let Some(host) = self.explicit_rates.end_source(self.now, flow, report) {
            self.runnable.push_back(Endpoint::RateAgent(host));
            self.poll_runnable();
        }
    }

    /// Returns the bundle workers, to read their counters.
    pub fn bundle_workers(&self) -> &BundleWorkers {
        &self.bundle_workers
    }

    /// Returns the LLC stations, to read their counters.
    pub fn llc_stations(&self) -> &LlcStations {
        &self.llc_stations
    }

    /// Starts a flow.
    pub fn start_flow(&mut self, mut flow: Flow) {
        if self.next_flow() == 0 && self.tracer.is_none() {
            self.network.fold_switch_latency();
        }
        let (number, ends) = (self.next_flow(), flow.ends.len());
        if let Some(llc) = flow.llc_mut() {
            match self.llc_stations.forms_within {
                Some(timeout) => llc.wait_for_ring(self.now + timeout),
                None => llc.start_source(self.now),
            }
        }
        if let Some(bundle) = flow.bundle_mut() {
            match self.bundle_workers.ready_within {
                Some(timeout) => bundle.wait_for_subscriptions(self.now + timeout),
                None => bundle.start_source(self.now),
            }
        }
        self.flows.push(Some(Box::new(flow)));
        (0..ends as u32).for_each(|side| self.drain_end(number, side));
        self.poll_runnable();
    }

    /// Removes and returns a flow that has finished, with its number.
    pub fn take_finished(&mut self) -> Option<(u32, Box<Flow>)> {
        let number = self.finished.pop_front()?;
        self.remove_flow(number)
    }

    /// Removes and returns a flow that has not finished, with its number.
    pub fn take_unfinished(&mut self) -> Option<(u32, Box<Flow>)> {
        let number = self.flows.iter().position(Option::is_some)?;
        self.remove_flow(number as u32)
    }

    fn remove_flow(&mut self, number: u32) -> Option<(u32, Box<Flow>)> {
        let flow = self.flows[number as usize].take()?;
        for end in &flow.ends {
            self.event_queue.set(end.node_id, Instant::MAX);
            self.host_queues[end.host as usize]
                .waiting_senders
                .retain(|waiting| !matches!(waiting, (Endpoint::End { flow, .. }, _) if *flow == number));
        }
        Some((number, flow))
    }

    /// Handles the earliest deadline. Returns `false` if there is none. Stops early when a flow finishes, so that the next can
    /// start. Inlined into the loop of a run: a call for each event costs some 20 instructions.
    #[inline(always)]
    pub fn step(&mut self) -> bool {
        let Some((at, node_id)) = self.event_queue.first() else { return false };
        self.now = at;
        self.steps += 1;
        match self.nodes[node_id as usize] {
            Node::Medium(m) => self.handle_medium_deadline(m),
            Node::Host(h) => {
                self.mix_hash(self.node_hashes[node_id as usize]);
                self.network.hosts[h as usize].model.wake(at);
                self.drain_host(h);
            }
            Node::Endpoint(endpoint) => {
                self.mix_hash(self.node_hashes[node_id as usize]);
                match endpoint {
                    Endpoint::End { flow, side } => {
                        if let Some(f) = &mut self.flows[flow as usize] {
                            f.handle_deadline(at, side as usize);
                        }
                    }
                    Endpoint::LlcStation(h) => self.llc_stations.handle_deadline(at, h),
                    Endpoint::RateAgent(h) => self.explicit_rates.handle_deadline(at, h),
                    Endpoint::BundleWorker(h) => {
                        if let Some(worker) = self.bundle_workers.worker_mut(h) {
                            worker.handle_deadline(at);
                        }
                    }
                }
                self.drain(endpoint);
            }
        }
        self.poll_runnable();
        true
    }

    /// Polls the endpoints that must be polled, until there are none.
    #[inline(always)]
    fn poll_runnable(&mut self) {
        if !self.runnable.is_empty() {
            self.poll_all_runnable();
        }
    }

    #[inline(never)]
    fn poll_all_runnable(&mut self) {
        while let Some(endpoint) = self.runnable.pop_front() {
            self.drain(endpoint);
        }
    }

    /// Polls an endpoint until it is idle.
    #[inline(always)]
    fn drain(&mut self, endpoint: Endpoint) {
        match endpoint {
            Endpoint::End { flow, side } => self.drain_end(flow, side),
            Endpoint::LlcStation(h) => self.drain_llc_station(h),
            Endpoint::BundleWorker(h) => self.drain_bundle_worker(h),
            Endpoint::RateAgent(h) => self.drain_rate_agent(h),
        }
    }

    /// Adds an event at the current time to the trace hash. Frames delivered to ends are hashed, steps of media are not:
    /// their number depends on how the media are computed.
    #[inline(always)]
    fn mix_hash(&mut self, event: u64) {
        // An odd constant of xxHash; any that mixes well will do.
        let word = self.hash.rotate_left(23) ^ self.now.as_ps() ^ event;
        self.hash = word.wrapping_mul(0x9e37_79b1_85eb_ca87);
    }

    /// Whether a flow has finished and waits for [`take_finished`](Self::take_finished).
    #[inline]
    pub fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }
}

/// Returns the hash of a node's name.
fn name_hash(name: &str) -> u64 {
    xxh3_64(name.as_bytes())
}
