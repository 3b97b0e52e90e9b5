//! Explicit rates: controlling hosts, ERICA at the ports of switches, and the sources that obey them.
//!
//! The state machines are those of `trunkline_models::atm::abr`. The **agent** of a host has its sources, and the controllers
//! of the lines that it controls; it returns the cells that arrive from other sources. Resource-management cells cross the
//! links as packets of one cell, on channels of their own: they pass the data that waits at a host, and wait like other cells
//! at a switch, which may lose them.
//!
//! A rate is that of the cells from the sender to the receiver of a flow; acknowledgements and responses have none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trunkline_endpoint::{Destination, Port};
use trunkline_experiment::plan::ExplicitRate;
use trunkline_models::atm::abr::signalling::{COLLECT, LIFETIME, REPEAT};
use trunkline_models::atm::abr::{Controller, EricaPort, EricaSource, Request, Source};
use trunkline_run::rate_series::RateSeries;
use trunkline_run::reports::SenderReport;
use trunkline_units::{Instant, Rate, Span};

use crate::event_queue::NodeId;
use crate::flow::channel_of;
use crate::frame::{Content, Packet, RmCell};
use crate::network::Network;
use crate::network::topology::Topology;

/// Bytes of the packet of a resource-management cell: with the headers and the trailer of AAL5 it fills a cell at most.
const RM_LENGTH: u32 = 20;

/// The agents of all hosts, and the controlled lines.
#[derive(Debug, Default)]
pub struct ExplicitRates {
    lines: Vec<Line>,
    /// The line at each port of each medium.
    line_at: Vec<[Option<usize>; 2]>,
    /// Resource-management cells that were given to each medium.
    cells: Vec<u64>,
    /// By host.
    agents: Vec<Agent>,
    /// By flow.
    sources: BTreeMap<u32, FlowSource>,
}

/// One direction of a link.
#[derive(Debug)]
struct Line {
    medium: u32,
    port: Port,
    control: Control,
}

#[derive(Debug)]
enum Control {
    /// The controlling host, and when it answers the requests that it collects.
    Controller {
        host: u32,
        controller: Controller,
        answers_at: Instant,
    },
    Erica {
        port: EricaPort,
        interval: Span,
    },
}

#[derive(Debug, Default)]
struct Agent {
    node_id: NodeId,
    /// Cells to send, each with its interface.
    output: VecDeque<(Port, Packet)>,
    /// Flows from this host whose rate has changed.
    changed: VecDeque<u32>,
    /// Flows from this host by the deadlines of their sources.
    deadlines: BTreeSet<(Instant, u32)>,
    lines: Vec<usize>,
}

/// The source of a flow.
#[derive(Debug)]
struct FlowSource {
    host: u32,
    receiver: u32,
    /// The medium and port by which its cells leave.
    medium: (u32, Port),
    interfaces: Interfaces,
    starts_at: Instant,
    has_started: bool,
    /// Its deadline in [`Agent::deadlines`].
    deadline: Instant,
    /// The controllers on its path, in the order of `interfaces.controllers`.
    source: Source,
    erica: Option<EricaSource>,
    rate: Rate,
    demand: Rate,
    series: RateSeries,
    cells_sent: u64,
    cells_received: u64,
}

/// The interfaces by which the resource-management cells of a source leave.
#[derive(Clone, Debug)]
struct Interfaces {
    to_receiver: Port,
    from_receiver: Port,
    controllers: Vec<ControllerInterfaces>,
}

#[derive(Clone, Copy, Debug)]
struct ControllerInterfaces {
    line: usize,
    host: u32,
    to_controller: Port,
    from_controller: Port,
}

/// What the engine does for an agent.
#[derive(Debug)]
pub enum RateOutput {
    Send {
        port: Port,
        packet: Packet,
    },
    SetRate {
        medium: u32,
        port: Port,
        channel: u16,
        rate: Rate,
    },
    /// Nothing to do before the deadline. `blocked`: the host has no room at this interface.
    Idle {
        deadline: Instant,
        blocked: Option<Port>,
    },
}

impl ExplicitRates {
    /// Creates the agents and lines of a network; none without explicit rates.
    pub fn new(topology: &Topology<'_>, network: &Network) -> ExplicitRates {
        let mut rates = ExplicitRates::default();
        for link in &topology.network.links {
            let Some(planned) = &link.explicit_rate else { continue };
            let Some(medium) = network.media.iter().position(|medium| medium.name == link.name) else {
                continue;
            };
            for (port, node) in [(0, &link.a), (1, &link.b)] {
                let is_switch = topology.node(node).is_some_and(|node| topology.is_cell_switch(node));
                let control = match planned {
                    ExplicitRate::Controller { host } => {
                        let Some(host) = network.host_number(host) else { continue };
                        let controller = Controller::new(link.payload, LIFETIME);
                        Control::Controller { host, controller, answers_at: Instant::MAX }
                    }
                    ExplicitRate::Erica { utilization, interval } if is_switch => Control::Erica {
                        port: EricaPort::new(link.payload, *utilization, *interval),
                        interval: *interval,
                    },
                    // A host does not compute rates for its own line.
                    ExplicitRate::Erica { .. } => continue,
                };
                rates.add_line(network, Line { medium: medium as u32, port: Port(port), control });
            }
        }
        rates
    }

    fn add_line(&mut self, network: &Network, line: Line) {
        if self.agents.is_empty() {
            self.line_at.resize(network.media.len(), [None; 2]);
            self.cells.resize(network.media.len(), 0);
            self.agents.resize_with(network.hosts.len(), Agent::default);
        }
        let number = self.lines.len();
        if let Control::Controller { host, .. } = line.control {
            self.agents[host as usize].lines.push(number);
        }
        self.line_at[line.medium as usize][usize::from(line.port.0)] = Some(number);
        self.lines.push(line);
    }

    /// Returns whether the network has explicit rates.
    #[inline]
    pub fn is_active(&self) -> bool {
        !self.lines.is_empty()
    }

    /// Sets the node of a host's agent in the event queue.
    pub fn set_node(&mut self, host: u32, node_id: NodeId) {
        self.agents[host as usize].node_id = node_id;
    }

    /// Returns the node of a host's agent.
    pub fn node(&self, host: u32) -> NodeId {
        self.agents[host as usize].node_id
    }

    /// Adds the source of a flow between two hosts that starts at `starts_at`, if it crosses a controlled line. `peak` is the
    /// rate that it declares.
    pub fn add_source(
        &mut self,
        topology: &Topology<'_>,
        network: &Network,
        (flow, from, to): (u32, u32, u32),
        starts_at: Instant,
        peak: Option<Rate>,
    ) {
        let path = network.media_between(topology, from, to);
        let Some(first) = path.first().copied() else { return };
        let interface = |from, to| network.path(topology, from, to).map_or(Port(0), |path| path.port);
        let (mut controllers, mut interval) = (Vec::new(), None);
        let lines = path.iter().filter_map(|(m, port)| self.line_at[*m as usize][usize::from(port.0)]);
        for line in lines {
            match &self.lines[line].control {
                Control::Controller { host, .. } => controllers.push(ControllerInterfaces {
                    line,
                    host: *host,
                    to_controller: interface(from, *host),
                    from_controller: interface(*host, from),
                }),
                Control::Erica { interval: shortest, .. } => {
                    interval = Some(interval.map_or(*shortest, |interval: Span| interval.min(*shortest)));
                }
            }
        }
        if controllers.is_empty() && interval.is_none() {
            return;
        }
        let line_rate = network.media[first.0 as usize].rate;
        let demand = peak.map_or(line_rate, |peak| peak.min(line_rate));
        let source = FlowSource {
            host: from,
            receiver: to,
            medium: first,
            source: Source::new(demand, controllers.len(), REPEAT),
            interfaces: Interfaces {
                to_receiver: interface(from, to),
                from_receiver: interface(to, from),
                controllers,
            },
            starts_at,
            has_started: false,
            deadline: starts_at,
            erica: interval.map(|interval| EricaSource::new(demand, interval)),
            rate: Rate::default(),
            demand,
            series: RateSeries::new(starts_at),
            cells_sent: 0,
            cells_received: 0,
        };
        self.agents[from as usize].deadlines.insert((starts_at, flow));
        // Until the network has answered, it sends nothing.
        self.agents[from as usize].changed.push_back(flow);
        self.sources.insert(flow, source);
    }

    /// Ends the source of a flow, and adds its measurements to the report. Returns its host.
    pub fn end_source(&mut self, now: Instant, flow: u32, report: Option<&mut SenderReport>) -> Option<u32> {
        let mut source = self.sources.remove(&flow)?;
        source.source.stop();
        self.send_requests(flow, &mut source);
        for line in &mut self.lines {
            if let Control::Erica { port, .. } = &mut line.control {
                port.remove(flow);
            }
        }
        if let Some(report) = report {
            report.samples.extend(source.series.points(now));
            for (name, count) in
                [("rm_cells_sent", source.cells_sent), ("rm_cells_received", source.cells_received)]
            {
                report.counters.insert(name.into(), count as f64);
            }
        }
        self.agents[source.host as usize].deadlines.remove(&(source.deadline, flow));
        Some(source.host)
    }

    /// Counts a cell that is given to a medium, and at a port with ERICA reads the rate that a resource-management cell carries.
    #[inline]
    pub fn pass_forward(
        &mut self,
        now: Instant,
        medium: u32,
        port: Port,
        channel: u16,
        cell: Option<RmCell>,
    ) {
        self.cells[medium as usize] += u64::from(cell.is_some());
        let Some(line) = self.line_at[medium as usize][usize::from(port.0)] else { return };
        let Control::Erica { port, .. } = &mut self.lines[line].control else { return };
        match cell {
            Some(RmCell::Forward { flow, rate }) => port.receive_forward(now, flow, rate),
            Some(_) => {}
            None => port.count_cell(now, channel),
        }
    }

    /// Returns the resource-management cells that a medium has carried; `None` without explicit rates.
    pub fn cells(&self, medium: usize) -> Option<u64> {
        self.cells.get(medium).copied()
    }

    /// Lowers the rate in a resource-management cell on the way back to its source, which arrives at a switch by the port by
    /// which the source's cells leave it.
    pub fn pass_backward(&mut self, now: Instant, medium: u32, port: Port, cell: &mut RmCell) {
        let Some(line) = self.line_at[medium as usize][usize::from(port.0)] else { return };
        if let (Control::Erica { port, .. }, RmCell::Backward { flow, rate }) =
            (&mut self.lines[line].control, cell)
        {
            *rate = port.receive_backward(now, *flow, *rate);
        }
    }

    /// Handles a resource-management cell that arrived at a host.
    pub fn receive(&mut self, now: Instant, host: u32, cell: RmCell) {
        match cell {
            RmCell::Request { flow, line, limit } => {
                self.request(now, line, flow, Request::Active { limit });
            }
            RmCell::Leave { flow, line } => self.request(now, line, flow, Request::Leave),
            RmCell::Answer { flow, line, rate } => self.update(now, flow, |source| {
                source.cells_received += 1;
                let controllers = &source.interfaces.controllers;
                if let Some(at) = controllers.iter().position(|other| other.line == line as usize) {
                    source.source.receive(at, rate);
                }
            }),
            RmCell::Forward { flow, .. } => {
                let Some(source) = self.sources.get(&flow) else { return };
                let cell = RmCell::Backward { flow, rate: source.demand };
                let packet = packet(cell, flow, 3, source.host);
                self.agents[host as usize].output.push_back((source.interfaces.from_receiver, packet));
            }
            RmCell::Backward { flow, rate } => self.update(now, flow, |source| {
                source.cells_received += 1;
                if let Some(erica) = &mut source.erica {
                    erica.receive(rate);
                }
            }),
        }
    }

    fn request(&mut self, now: Instant, line: u32, flow: u32, request: Request) {
        if let Some(Line { control: Control::Controller { controller, answers_at, .. }, .. }) =
            self.lines.get_mut(line as usize)
        {
            controller.receive(now, flow, request);
            *answers_at = (*answers_at).min(now + COLLECT);
        }
    }

    /// Handles an expired deadline of a host's agent.
    pub fn handle_deadline(&mut self, now: Instant, host: u32) {
        for at in 0..self.agents[host as usize].lines.len() {
            let line = self.agents[host as usize].lines[at];
            self.answer(now, line);
        }
        let due = self.agents[host as usize].deadlines.range(..=(now, u32::MAX));
        let mut due: Vec<u32> = due.map(|(_, flow)| *flow).collect();
        due.sort_unstable();
        for flow in due {
            self.update(now, flow, |source| {
                if !source.has_started && now >= source.starts_at {
                    source.has_started = true;
                    source.source.start(now);
                    source.erica.iter_mut().for_each(|erica| erica.start(now));
                }
                source.source.wake(now);
            });
            let due = self.sources.get_mut(&flow).and_then(|source| {
                let rate = source.erica.as_mut()?.poll(now)?;
                source.cells_sent += 1;
                Some((source.interfaces.to_receiver, source.receiver, rate))
            });
            if let Some((port, receiver, rate)) = due {
                let cell = packet(RmCell::Forward { flow, rate }, flow, 2, receiver);
                self.agents[host as usize].output.push_back((port, cell));
                self.reschedule(flow);
            }
        }
    }

    /// Updates the deadline of a flow's source.
    fn reschedule(&mut self, flow: u32) {
        let Some(source) = self.sources.get_mut(&flow) else { return };
        let deadlines = &mut self.agents[source.host as usize].deadlines;
        deadlines.remove(&(source.deadline, flow));
        source.deadline = source.next_deadline();
        deadlines.insert((source.deadline, flow));
    }

    /// Sends the answers of a controller, if it has collected requests for long enough.
    fn answer(&mut self, now: Instant, line: usize) {
        let Control::Controller { host, controller, answers_at } = &mut self.lines[line].control else {
            return;
        };
        if *answers_at > now {
            return;
        }
        *answers_at = Instant::MAX;
        let output = &mut self.agents[*host as usize].output;
        while let Some((flow, rate)) = controller.poll() {
            let Some(source) = self.sources.get(&flow) else { continue };
            let interfaces = source.interfaces.controllers.iter().find(|other| other.line == line);
            if let Some(ControllerInterfaces { from_controller, .. }) = interfaces {
                let cell = RmCell::Answer { flow, line: line as u32, rate };
                output.push_back((*from_controller, packet(cell, flow, 3, source.host)));
            }
        }
    }

    /// Changes the source of a flow, sends the requests that follow, and notes a new rate.
    fn update(&mut self, now: Instant, flow: u32, change: impl FnOnce(&mut FlowSource)) {
        let Some(mut source) = self.sources.remove(&flow) else { return };
        change(&mut source);
        self.send_requests(flow, &mut source);
        let rate = source.allowed();
        if rate != source.rate {
            source.rate = rate;
            source.series.record(now, rate);
            self.agents[source.host as usize].changed.push_back(flow);
        }
        self.sources.insert(flow, source);
        self.reschedule(flow);
    }

    fn send_requests(&mut self, flow: u32, source: &mut FlowSource) {
        while let Some((at, request)) = source.source.poll() {
            let ControllerInterfaces { line, host, to_controller, .. } = source.interfaces.controllers[at];
            let line = line as u32;
            let cell = match request {
                Request::Active { limit } => RmCell::Request { flow, line, limit },
                Request::Leave => RmCell::Leave { flow, line },
            };
            source.cells_sent += 1;
            self.agents[source.host as usize].output.push_back((to_controller, packet(cell, flow, 2, host)));
        }
    }

    /// Polls the agent of a host. It sends only if the host has `room`.
    pub fn poll(&mut self, host: u32, room: bool) -> RateOutput {
        let agent = &mut self.agents[host as usize];
        while let Some(flow) = agent.changed.pop_front() {
            if let Some(FlowSource { medium: (medium, port), rate, .. }) = self.sources.get(&flow) {
                let (medium, port, channel) = (*medium, *port, channel_of(flow, 0));
                return RateOutput::SetRate { medium, port, channel, rate: *rate };
            }
        }
        if room && let Some((port, packet)) = agent.output.pop_front() {
            return RateOutput::Send { port, packet };
        }
        let lines = agent.lines.iter().map(|line| match &self.lines[*line].control {
            Control::Controller { answers_at, .. } => *answers_at,
            Control::Erica { .. } => Instant::MAX,
        });
        let source = agent.deadlines.first().map(|(at, _)| *at);
        let deadline = lines.chain(source).min().unwrap_or(Instant::MAX);
        RateOutput::Idle { deadline, blocked: agent.output.front().map(|(port, _)| *port) }
    }
}

impl FlowSource {
    /// Returns when it has something to do.
    fn next_deadline(&self) -> Instant {
        if !self.has_started {
            return self.starts_at;
        }
        let erica = self.erica.as_ref().map_or(Instant::MAX, EricaSource::deadline);
        self.source.deadline().min(erica)
    }

    /// Returns the least of the rates that the controllers and the switches on its path allow.
    fn allowed(&self) -> Rate {
        let by_switches = self.erica.as_ref().map_or(self.demand, EricaSource::rate);
        match self.interfaces.controllers.is_empty() {
            true => by_switches,
            false => by_switches.min(self.source.rate()),
        }
    }
}

/// Returns the packet of a resource-management cell on its channel: 2 from the source of the flow, 3 to it.
fn packet(cell: RmCell, flow: u32, direction: u16, to: u32) -> Packet {
    let (content, channel) = (Content::Rm(cell), channel_of(flow, direction));
    Packet::without_flow(content, RM_LENGTH, channel, Destination::Station(to))
}
