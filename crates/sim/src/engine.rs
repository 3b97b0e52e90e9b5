//! The event loop: handles deadlines of nodes in order and carries frames from one node to the next.
//!
//! A node is a medium, a host, or an endpoint of a host: an end of a flow, an LLC station or a bundle worker. Each has at
//! most one deadline.
//! The loop takes the earliest (time, node), handles it, and follows each frame that the node transmits until the frame
//! is queued again. Simultaneous events are therefore processed in the same order on every machine.
//!
//! In this file `m` is the number of a medium, `h` that of a host, `side` the index of an end of a flow ([`FlowEnd`]), and
//! `input` the port at which a frame enters a medium.

use std::collections::VecDeque;

use trunkline_endpoint::{Frame as _, Medium as _, MediumInput, MediumOutput, Port};
use trunkline_models::atm::CellFrame as _;
use trunkline_models::host::{HostLossCause, Output};
use trunkline_run::message::MessageKind;
use trunkline_units::Instant;
use xxhash_rust::xxh3::xxh3_64;

use crate::bundles::worker::BundleWorker;
use crate::bundles::{BundleOutput, BundleWorkers};
use crate::event_queue::{EventQueue, NodeId};
use crate::flow::llc::LlcFlow;
use crate::flow::{Flow, FlowEnd, FlowOutput};
use crate::frame::{Content, Frame, Packet, PacketPool};
use crate::llc_stations::{LlcInterface, LlcOutput, LlcStations};
use crate::medium::Medium;
use crate::network::{Attachment, Network};
use crate::trace::Tracer;

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
}

impl Endpoint {
    /// Stands for the number of the flow in the trace hash when a packet is delivered.
    fn hash_tag(self) -> u32 {
        match self {
            Endpoint::End { flow, .. } => flow,
            Endpoint::LlcStation(_) => u32::MAX,
            Endpoint::BundleWorker(_) => u32::MAX - 1,
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

/// Frames and endpoints that wait for the interfaces of a host.
#[derive(Debug, Default)]
struct HostQueue {
    /// For each interface, the frames that its queue had no room for, in order. A host drops none of them.
    pending_frames: Vec<VecDeque<Frame>>,
    /// Endpoints that want to send, each with its interface, in FIFO order. The LLC station and the bundle worker come
    /// first: each sends for many flows.
    waiting_senders: VecDeque<(Endpoint, Port)>,
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

    /// Returns the number of the next flow.
    pub fn next_flow(&self) -> u32 {
        self.flows.len() as u32
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
    /// start.
    #[inline]
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

    /// Handles the deadline of a medium. The fast path forwards arrivals of links and switches, and lets a link continue with
    /// its next arrivals. If something else is due, the medium is woken and polled through the general interface.
    #[inline(always)]
    fn handle_medium_deadline(&mut self, m: u32) {
        while let Medium::Link(link) = &mut self.network.media[m as usize].medium
            && let Some((port, frame)) = link.take_arrival(self.now)
        {
            self.forward(m, port, frame);
            let Medium::Link(link) = &self.network.media[m as usize].medium else { return };
            let next = link.deadline();
            if next <= self.now {
                continue;
            }
            if next == Instant::MAX
                || next >= self.event_queue.earliest_except(m)
                || self.has_finished()
                || !self.runnable.is_empty()
            {
                return self.event_queue.set(m, next);
            }
            // No other node is due before the next arrival, so the event queue need not be searched.
            self.now = next;
            self.steps += 1;
        }
        while let Some(is_scheduled) = self.forward_arrival(m) {
            if is_scheduled {
                return;
            }
        }
        self.network.media[m as usize].medium.handle(self.now, MediumInput::Wake);
        self.drain_medium(m);
    }

    /// Forwards a frame that leaves a switch or a link of cells, if nothing else is due. Returns whether the medium has no
    /// more to do now.
    #[inline(never)]
    fn forward_arrival(&mut self, m: u32) -> Option<bool> {
        let ((port, frame), next) = match &mut self.network.media[m as usize].medium {
            Medium::Cells(link) => (link.take_arrival(self.now)?, link.deadline()),
            Medium::Switch(switch) => (switch.take_departure(self.now)?, switch.deadline()),
            _ => return None,
        };
        let is_scheduled = self.schedule_medium_at(m, next);
        self.forward(m, port, frame);
        Some(is_scheduled)
    }

    /// Schedules the next deadline of a medium if it has no more to do now. Returns whether that is so.
    #[inline(always)]
    fn schedule_medium(&mut self, m: u32) -> bool {
        let deadline = match &self.network.media[m as usize].medium {
            Medium::Link(link) => link.deadline(),
            Medium::Cells(link) => link.deadline(),
            Medium::Credits(link) => link.deadline(),
            Medium::Switch(switch) => switch.deadline(),
            Medium::Hub(_) | Medium::Ring(_) => self.now,
        };
        self.schedule_medium_at(m, deadline)
    }

    /// Like [`schedule_medium`](Self::schedule_medium), for a medium whose deadline is known.
    #[inline(always)]
    fn schedule_medium_at(&mut self, m: u32, deadline: Instant) -> bool {
        let is_scheduled = deadline > self.now;
        if is_scheduled {
            self.event_queue.set(m, deadline);
        }
        is_scheduled
    }

    fn drain_medium(&mut self, m: u32) {
        loop {
            match self.network.media[m as usize].medium.poll(self.now) {
                MediumOutput::Transmit { port, frame } => {
                    self.network.reserve_buffer(m, port, &frame);
                    self.forward_outlined(m, port, frame);
                }
                MediumOutput::Lost { frame, .. } => {
                    self.release_lost(m, &frame);
                    self.drop_frame(frame);
                }
                MediumOutput::Room { port } => {
                    if let Attachment::Host(h, port) =
                        self.network.media[m as usize].attachments[port.0 as usize]
                    {
                        self.on_interface_ready(h, port);
                    }
                }
                MediumOutput::Idle { deadline } => {
                    self.event_queue.set(m, deadline.unwrap_or(Instant::MAX));
                    return self.release_freed(m);
                }
            }
        }
    }

    /// Gives a frame to a link with credits.
    #[inline(never)]
    fn transmit_by_credits(&mut self, m: u32, port: Port, frame: Frame) {
        let is_reserved = self.network.has_buffer(m, port, &frame);
        let Medium::Credits(link) = &mut self.network.media[m as usize].medium else { return };
        match is_reserved {
            true => link.send_reserved(self.now, port, frame),
            false => link.handle(self.now, MediumInput::Frame { port, frame }),
        }
        self.drain_medium(m);
    }

    /// Frees the buffers of cells that have left a switch by a link, at the links by which they arrived.
    fn release_freed(&mut self, m: u32) {
        while let Medium::Credits(link) = &mut self.network.media[m as usize].medium
            && let Some((port, channel)) = link.take_freed()
        {
            if let Attachment::Medium(switch, _) =
                self.network.media[m as usize].attachments[usize::from(port.0)]
            {
                self.release_buffer(switch, channel);
            }
        }
    }

    /// Frees the buffer of a cell that a switch has lost.
    fn release_lost(&mut self, m: u32, frame: &Frame) {
        if frame.as_cell().is_some() && matches!(self.network.media[m as usize].medium, Medium::Switch(_)) {
            self.release_buffer(m, frame.channel());
        }
    }

    fn release_buffer(&mut self, switch: u32, channel: u16) {
        if let Some((link, deadline)) = self.network.release_buffer(self.now, switch, channel) {
            self.event_queue.set(link, deadline);
        }
    }

    /// Like [`forward`](Self::forward), but not inlined: keeps the fast path of links small.
    #[inline(never)]
    fn forward_outlined(&mut self, m: u32, port: Port, frame: Frame) {
        self.forward(m, port, frame);
    }

    /// Forwards a frame that leaves a medium at `port`, through switches without latency, to the node where it is queued next.
    #[inline(always)]
    fn forward(&mut self, mut m: u32, mut port: Port, frame: Frame) {
        self.last_activity = self.now;
        let mut medium_node = &mut self.network.media[m as usize];
        loop {
            if let Some(tracer) = &mut self.tracer {
                tracer.capture_medium(self.now, m, &frame);
            }
            let (next, input) = match medium_node.attachments[port.0 as usize] {
                Attachment::Medium(next, input) => (next, input),
                Attachment::Host(h, port) => return self.receive(h, port, frame),
                Attachment::Unconnected => return,
            };
            medium_node = &mut self.network.media[next as usize];
            if let Medium::Switch(switch) = &mut medium_node.medium
                && let Some(out) = switch.forward_at_once(input, &frame)
            {
                (m, port) = (next, out);
                continue;
            }
            if let Medium::Link(link) = &mut medium_node.medium {
                return match link.send(self.now, input, frame) {
                    Some(arrives) => self.event_queue.set_earlier(next, arrives),
                    None => self.schedule_or_drain(next),
                };
            }
            return self.transmit(next, input, frame);
        }
    }

    /// Gives a frame to a medium. It leaves a link or a switch later, unless the queue was full.
    #[inline(always)]
    fn transmit(&mut self, m: u32, port: Port, frame: Frame) {
        let now = self.now;
        match &mut self.network.media[m as usize].medium {
            Medium::Link(link) => {
                return match link.send(now, port, frame) {
                    Some(arrives) => self.event_queue.set_earlier(m, arrives),
                    None => self.schedule_or_drain(m),
                };
            }
            Medium::Cells(link) => link.send(now, port, frame),
            Medium::Switch(switch) => switch.send(now, port, frame),
            Medium::Credits(_) => return self.transmit_by_credits(m, port, frame),
            medium => medium.handle(now, MediumInput::Frame { port, frame }),
        }
        if !self.schedule_medium(m) {
            self.drain_medium(m);
        }
    }

    /// Schedules the next deadline of a medium, or polls it if it has more to do now.
    #[inline(never)]
    fn schedule_or_drain(&mut self, m: u32) {
        if !self.schedule_medium(m) {
            self.drain_medium(m);
        }
    }

    /// Gives a frame to a host.
    #[inline(always)]
    fn receive(&mut self, h: u32, port: Port, mut frame: Frame) {
        if let Some(tracer) = &mut self.tracer {
            tracer.capture_host(self.now, h, port, &frame);
        }
        let host = &mut self.network.hosts[h as usize].model;
        if host.has_no_costs() {
            if host.receive_without_costs(&frame) {
                self.deliver(h, frame);
            } else if frame.is_damaged() {
                self.drop_frame(frame);
            }
        } else {
            if let Some(times) = frame.times_mut() {
                times.arrived = self.now;
            }
            host.receive(self.now, port, frame);
            self.drain_host(h);
        }
    }

    fn drain_host(&mut self, h: u32) {
        loop {
            match self.network.hosts[h as usize].model.poll(self.now) {
                Output::Transmit { port, frame } => self.send_or_queue(h, port, frame),
                Output::Deliver { frame, .. } => self.deliver(h, frame),
                Output::Lost { cause: HostLossCause::Foreign, .. } => {}
                Output::Lost { frame, .. } => self.drop_frame(frame),
                Output::Room => self.poll_waiting(h),
                Output::Idle { deadline } => {
                    let node_id = self.network.media.len() as u32 + h;
                    return self.event_queue.set(node_id, deadline.unwrap_or(Instant::MAX));
                }
            }
        }
    }

    /// Transmits a frame on an interface, or queues it until there is room: a host never drops its own packets.
    #[inline]
    fn send_or_queue(&mut self, h: u32, port: Port, frame: Frame) {
        let (m, input) = self.network.hosts[h as usize].medium_ports[port.0 as usize];
        let medium = &mut self.network.media[m as usize].medium;
        let pending = &mut self.host_queues[h as usize].pending_frames[port.0 as usize];
        if !pending.is_empty() || !medium.has_room(self.now, input, frame.length()) {
            pending.push_back(frame);
            medium.handle(self.now, MediumInput::RequestRoom { port: input });
            return self.drain_medium(m);
        }
        self.send_now(h, port, frame);
    }

    /// Transmits a frame on an interface that has room.
    #[inline]
    fn send_now(&mut self, h: u32, port: Port, mut frame: Frame) {
        if let Some(times) = frame.times_mut() {
            times.sent = self.now;
        }
        if let Some(tracer) = &mut self.tracer {
            tracer.capture_host(self.now, h, port, &frame);
        }
        let (m, input) = self.network.hosts[h as usize].medium_ports[port.0 as usize];
        self.transmit(m, input, frame);
    }

    /// Transmits queued frames and polls waiting senders, because an interface has room again.
    fn on_interface_ready(&mut self, h: u32, port: Port) {
        let (m, input) = self.network.hosts[h as usize].medium_ports[port.0 as usize];
        while let Some(frame) = self.host_queues[h as usize].pending_frames[port.0 as usize].pop_front() {
            let medium = &mut self.network.media[m as usize].medium;
            if !medium.has_room(self.now, input, frame.length()) {
                self.host_queues[h as usize].pending_frames[port.0 as usize].push_front(frame);
                return medium.handle(self.now, MediumInput::RequestRoom { port: input });
            }
            self.send_now(h, port, frame);
        }
        self.poll_waiting(h);
    }

    /// Polls the endpoints that wait at a host in FIFO order, each once, while there is room. An endpoint without room keeps
    /// its place: otherwise one that always has a frame would send again before it.
    fn poll_waiting(&mut self, h: u32) {
        let mut index = 0;
        for _ in 0..self.host_queues[h as usize].waiting_senders.len() {
            let Some(&(endpoint, port)) = self.host_queues[h as usize].waiting_senders.get(index) else {
                return;
            };
            if !self.line_has_room(h, port) {
                self.request_room(h, port);
                index += 1;
            } else if !self.network.hosts[h as usize].model.has_room() {
                index += 1;
            } else {
                self.host_queues[h as usize].waiting_senders.remove(index);
                self.drain(endpoint);
            }
        }
    }

    /// Records the loss of a frame. Of the cells of a packet only the last carries the packet.
    fn drop_frame(&mut self, frame: Frame) {
        self.last_activity = self.now;
        let Some(packet) = frame.into_inner() else { return };
        if let Some(number) = packet.flow
            && let Some(flow) = &mut self.flows[number as usize]
        {
            flow.record_loss(&packet);
        }
        self.packet_pool.recycle(packet);
    }

    /// Delivers a frame from a host to one of its endpoints.
    #[inline(always)]
    fn deliver(&mut self, h: u32, frame: Frame) {
        self.last_activity = self.now;
        let Some(packet) = frame.into_inner() else { return };
        let Some(number) = packet.flow else { return self.deliver_to_shared_endpoint(h, packet) };
        let polled_side = self.receive_at_end(h, number, &packet);
        self.packet_pool.recycle(packet);
        let Some(side) = polled_side else { return };
        self.drain_end(number, side);
        // The sender may be waiting for its peer to finish.
        if side > 0 && self.flows[number as usize].as_ref().is_some_and(|f| f.is_finished()) {
            self.drain_end(number, 0);
        }
    }

    /// Delivers a packet to an endpoint that serves many flows.
    #[inline(never)]
    fn deliver_to_shared_endpoint(&mut self, h: u32, packet: Box<Packet>) {
        let (endpoint, has_endpoint) = match &packet.content {
            Content::Pdu { from, bytes, .. } => {
                self.llc_stations.receive(self.now, h, *from, bytes);
                (Endpoint::LlcStation(h), true)
            }
            _ => {
                let worker = self.bundle_workers.worker_mut(h);
                let received = worker.map(|worker| worker.receive(self.now, &packet));
                (Endpoint::BundleWorker(h), received.is_some())
            }
        };
        self.mix_hash(delivery(&packet, endpoint.hash_tag()));
        if has_endpoint {
            self.runnable.push_back(endpoint);
        }
        self.packet_pool.recycle(packet);
    }

    /// Delivers a packet to the end of its flow at a host. Returns the side of the flow if it must be polled.
    #[inline(always)]
    fn receive_at_end(&mut self, h: u32, number: u32, packet: &Packet) -> Option<u32> {
        // `None`: a late packet of a flow that has finished.
        let flow = self.flows.get_mut(number as usize)?.as_mut()?;
        let side = match packet.is_reverse {
            true => 0,
            false if flow.ends.len() == 2 && flow.ends[1].host == h => 1,
            false => flow.ends.iter().skip(1).position(|end| end.host == h)? + 1,
        };
        let event = delivery(packet, number);
        // The body of `mix_hash`: the borrow of the flow prevents the call.
        let word = self.hash.rotate_left(23) ^ self.now.as_ps() ^ event;
        self.hash = word.wrapping_mul(0x9e37_79b1_85eb_ca87);
        flow.receive(self.now, side, packet, &mut self.packet_pool.scratch).then_some(side as u32)
    }

    #[inline(never)]
    fn drain_end(&mut self, number: u32, side: u32) {
        while self.poll_end(number, side) {}
    }

    /// Polls an end once and handles its output. Returns whether there may be more.
    #[inline(always)]
    fn poll_end(&mut self, number: u32, side: u32) -> bool {
        let Some(flow) = &mut self.flows[number as usize] else { return false };
        let FlowEnd { host: h, port, node_id, medium_port: (m, input) } = flow.ends[side as usize];
        let host = &mut self.network.hosts[h as usize];
        let medium = &mut self.network.media[m as usize].medium;
        let now = self.now;
        let line_has_room = self.host_queues[h as usize].pending_frames[port.0 as usize].is_empty()
            && medium.has_room(now, input, 1);
        let room = line_has_room && host.model.has_room();
        match flow.poll(now, side as usize, room, &mut self.packet_pool) {
            FlowOutput::Send { frame, next_send } => {
                if host.model.has_no_costs() {
                    host.model.send_without_costs();
                    if let Some(tracer) = &mut self.tracer {
                        tracer.capture_host(now, h, port, &frame);
                    }
                    self.transmit(m, input, frame);
                } else {
                    let result = host.model.send(now, port, frame);
                    debug_assert!(result.is_ok(), "room was checked above");
                    self.drain_host(h);
                }
                if let Some(next_send) = next_send {
                    self.event_queue.set(node_id, next_send);
                }
                next_send.is_none()
            }
            FlowOutput::Llc(message) => {
                self.llc_stations.send(now, h, (number, side), &message);
                self.runnable.push_back(Endpoint::LlcStation(h));
                true
            }
            FlowOutput::Bundle { options, header } => {
                if let Some(worker) = self.bundle_workers.worker_mut(h)
                    && let Err(reason) = worker.send(now, number, &options, &header)
                    && let Some(bundle) = flow.bundle_mut()
                {
                    bundle.record_refusal(reason);
                }
                self.runnable.push_back(Endpoint::BundleWorker(h));
                true
            }
            FlowOutput::Idle { deadline, blocked } => {
                let is_finished = flow.is_finished();
                self.event_queue.set(node_id, deadline.unwrap_or(Instant::MAX));
                if blocked {
                    self.wait_for_room(h, port, Endpoint::End { flow: number, side }, line_has_room);
                }
                if is_finished && !self.finished.contains(&number) {
                    self.finished.push_back(number);
                }
                false
            }
        }
    }

    /// Returns whether an interface of a host has room for another frame.
    fn line_has_room(&mut self, h: u32, port: Port) -> bool {
        let (m, input) = self.network.hosts[h as usize].medium_ports[port.0 as usize];
        self.host_queues[h as usize].pending_frames[port.0 as usize].is_empty()
            && self.network.media[m as usize].medium.has_room(self.now, input, 1)
    }

    /// Polls the LLC station of a host until it is idle.
    fn drain_llc_station(&mut self, h: u32) {
        let Some(LlcInterface { port, node_id, .. }) = self.llc_stations.interface(h) else { return };
        let now = self.now;
        loop {
            let line_has_room = self.line_has_room(h, port);
            let room = line_has_room && self.network.hosts[h as usize].model.has_room();
            match self.llc_stations.poll(now, h, room, &mut self.packet_pool) {
                LlcOutput::Send(packet) => self.send_packet(h, port, packet),
                LlcOutput::Received { flow, header } => {
                    let side = u32::from(header.kind != MessageKind::Response);
                    self.update_llc_flow(flow, side, |flow| flow.receive(now, side as usize, &header));
                }
                LlcOutput::Sent { flow, side, report } => {
                    self.update_llc_flow(flow, side, |flow| flow.complete_send(now, side as usize, report));
                }
                LlcOutput::RingFormed => {
                    (0..self.next_flow())
                        .for_each(|flow| self.update_llc_flow(flow, 0, |flow| flow.start_source(now)));
                }
                LlcOutput::Idle { deadline, blocked } => {
                    self.event_queue.set(node_id, deadline.unwrap_or(Instant::MAX));
                    if blocked {
                        self.wait_for_room(h, port, Endpoint::LlcStation(h), line_has_room);
                    }
                    return;
                }
            }
        }
    }

    /// Polls the bundle worker of a host until it is idle.
    fn drain_bundle_worker(&mut self, h: u32) {
        let now = self.now;
        while let Some(worker) = self.bundle_workers.worker(h) {
            let node_id = worker.node_id;
            if let Some(port) = worker.next_egress() {
                let line_has_room = self.line_has_room(h, port);
                if line_has_room && self.network.hosts[h as usize].model.has_room() {
                    let packet = self.bundle_workers.worker_mut(h).and_then(BundleWorker::take_packet);
                    packet.into_iter().for_each(|packet| self.send_packet(h, port, packet));
                    continue;
                }
                self.wait_for_room(h, port, Endpoint::BundleWorker(h), line_has_room);
            }
            match self.bundle_workers.poll(now, h, &mut self.packet_pool) {
                BundleOutput::Outgoing => {}
                BundleOutput::Received { flow, header } => {
                    let Some(state) = self.flows.get_mut(flow as usize).and_then(Option::as_mut) else {
                        continue;
                    };
                    let receiver = state.ends.iter().skip(1).position(|end| end.host == h);
                    if let (Some(receiver), Some(bundle)) = (receiver, state.bundle_mut()) {
                        bundle.receive(now, receiver, &header);
                        if bundle.has_received_all() {
                            self.runnable.push_back(Endpoint::End { flow, side: 0 });
                        }
                    }
                }
                BundleOutput::Membership { group, joins } => {
                    let switches = self.bundle_workers.worker(h).map_or(&[][..], BundleWorker::switches);
                    self.network.set_membership(h, switches, group, joins);
                }
                BundleOutput::Ready => {
                    for flow in 0..self.next_flow() {
                        if let Some(bundle) =
                            self.flows[flow as usize].as_mut().and_then(|flow| flow.bundle_mut())
                        {
                            bundle.start_source(now);
                            self.runnable.push_back(Endpoint::End { flow, side: 0 });
                        }
                    }
                }
                BundleOutput::Idle { deadline } => {
                    return self.event_queue.set(node_id, deadline.unwrap_or(Instant::MAX));
                }
            }
        }
    }

    /// Updates a flow over LLC and schedules its ends for polling.
    fn update_llc_flow(&mut self, flow: u32, side: u32, update: impl FnOnce(&mut LlcFlow)) {
        // `None`: a late message of a flow that has finished.
        let Some(state) = self.flows.get_mut(flow as usize).and_then(|f| f.as_mut()?.llc_mut()) else {
            return;
        };
        update(state);
        self.runnable.push_back(Endpoint::End { flow, side });
        if side > 0 && state.messages.finished {
            self.runnable.push_back(Endpoint::End { flow, side: 0 });
        }
    }

    /// Gives a packet to a host that has room for it.
    fn send_packet(&mut self, h: u32, port: Port, packet: Packet) {
        let frame = self.packet_pool.new_frame(packet);
        let host = &mut self.network.hosts[h as usize].model;
        if host.has_no_costs() {
            host.send_without_costs();
            return self.send_now(h, port, frame);
        }
        let result = host.send(self.now, port, frame);
        debug_assert!(result.is_ok(), "room was checked above");
        self.drain_host(h);
    }

    /// Queues an endpoint until its host has room. `line_has_room` says whether only the processor is busy.
    #[cold]
    fn wait_for_room(&mut self, h: u32, port: Port, sender: Endpoint, line_has_room: bool) {
        let waiting = &mut self.host_queues[h as usize].waiting_senders;
        if waiting.iter().any(|(endpoint, _)| *endpoint == sender) {
            return;
        }
        match sender {
            Endpoint::LlcStation(_) | Endpoint::BundleWorker(_) => waiting.push_front((sender, port)),
            Endpoint::End { .. } => waiting.push_back((sender, port)),
        }
        // The medium reports room on the line; the host reports room at the processor.
        if !line_has_room {
            self.request_room(h, port);
        }
    }

    /// Has the medium at an interface report when it has room.
    fn request_room(&mut self, h: u32, port: Port) {
        let (m, input) = self.network.hosts[h as usize].medium_ports[port.0 as usize];
        self.network.media[m as usize].medium.handle(self.now, MediumInput::RequestRoom { port: input });
        self.drain_medium(m);
    }
}

/// Returns the event of a delivered packet for the trace hash.
#[inline(always)]
fn delivery(packet: &Packet, hash_tag: u32) -> u64 {
    u64::from(packet.length) << 32 | u64::from(hash_tag)
}

/// Returns the hash of a node's name.
fn name_hash(name: &str) -> u64 {
    xxh3_64(name.as_bytes())
}
