//! The simulator backend: refuses plans that it cannot simulate, runs the others, and returns the record.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::{fs, io};

use trunkline_endpoint::{Destination, Port};
use trunkline_experiment::plan::{
    self, Connection, Plan, Protocol, QuicCongestion, SourceRange, TcpController,
};
use trunkline_record::Record;
use trunkline_record::schema;
use trunkline_run::assemble::{self, RepetitionOutcome};
use trunkline_run::backend::{
    expected_duration, finish_record, new_record, refuse_small_messages, refuse_test,
};
use trunkline_run::bundle::MessageOptions;
use trunkline_run::{Backend, ProgressObserver, Refusal, RunOptions, bundle, llc};
use trunkline_traffic::Pattern;
use trunkline_units::{Instant, Span};

use crate::admission::{AdmissionError, Admissions};
use crate::bundles::{self, BundleWorkers};
use crate::capture;
use crate::engine::Engine;
use crate::explicit_rates::ExplicitRates;
use crate::flow::{Flow, FlowConfig, FlowError, MAX_CHANNEL_FLOWS};
use crate::link_series::LinkSeries;
use crate::llc_stations::{self, LlcStations};
use crate::network::records::{link_records, switch_records};
use crate::network::topology::Topology;
use crate::network::{Host, Network};
use crate::schedule::{Schedule, ScheduledRun};
use crate::trace::Tracer;

/// Number of steps between progress reports and checks of the stop flag.
const PROGRESS_STEPS: u64 = 1 << 16;

/// The largest TCP window (RFC 1323), bytes.
const MAX_TCP_WINDOW: u64 = 1 << 30;

/// The simulator.
#[derive(Clone, Debug, Default)]
pub struct Sim {
    /// Names of links, their directions and hosts to capture as `NAME.pcapng` in the folder of the record.
    pub trace: Vec<String>,
    /// Whether to record the counters of link ends over time.
    pub link_series: bool,
}

impl Backend for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn refuse(&self, plan: &Plan) -> Vec<Refusal> {
        let Some(network) = &plan.network else {
            return vec![Refusal { location: SourceRange::default(), text: missing_network(plan) }];
        };
        let mut all: Vec<Refusal> = plan.connections.iter().filter_map(refuse_connection).collect();
        // A message over LLC may be shorter than its header, which is carried separately.
        let is_llc = |c: &&Connection| matches!(c.protocol, Protocol::Llc { .. });
        all.extend(plan.connections.iter().filter(|c| !is_llc(c)).flat_map(refuse_small_messages));
        all.extend(llc_stations::refuse::refuse(plan, network));
        all.extend(bundles::refuse::refuse(plan, network));
        all.extend(plan.connections.iter().filter_map(|c| refuse_path(c, network)));
        all.extend(refuse_cell_control(plan, network));
        for name in &self.trace {
            if let Some(text) = capture::refuse(name, network) {
                all.push(Refusal { location: SourceRange::default(), text });
            }
        }
        all
    }

    fn planned_record(&self, plan: &Plan, options: &RunOptions) -> Record {
        let mut environment = BTreeMap::new();
        if !plan.measures.is_empty() {
            environment.insert("measure".into(), "ignored: a simulated host has no kernel".into());
        }
        new_record("sim", plan, options, environment)
    }

    fn run(&mut self, plan: &Plan, options: &RunOptions, observer: &mut dyn ProgressObserver) -> Record {
        let mut record = self.planned_record(plan, options);
        let Some(network) = &plan.network else {
            record.partial = true;
            record.problems.push(missing_network(plan));
            return record;
        };
        let topology = Topology::new(network);
        let network = Network::build(plan, &topology, options.seed);
        let mut run = SimulationRun {
            plan,
            options,
            topology: &topology,
            schedule: Schedule::new(&plan.schedule, Instant::ZERO),
            block_indexes: BTreeMap::new(),
            outcomes: vec![Vec::new(); plan.connections.len()],
            link_series: self.link_series.then(|| LinkSeries::new(&network)),
            admissions: Admissions::new(&topology, &network),
            engine: Engine::new(network),
        };
        let rates = ExplicitRates::new(&topology, run.engine.network());
        run.engine.set_explicit_rates(rates);
        run.start_llc_stations();
        if let Some(bundles) = BundleWorkers::new(plan, &topology, run.engine.network()) {
            run.engine.start_bundles(bundles);
        }
        let mut errors = Vec::new();
        if !self.trace.is_empty() {
            match Tracer::open(&self.trace, run.engine.network(), &topology, &options.out) {
                Ok(tracer) => run.engine.tracer = Some(Box::new(tracer)),
                Err(error) => errors.push(error.to_string()),
            }
        }
        run.run(observer);
        if let Some(Err(error)) = run.engine.tracer.take().map(|tracer| tracer.finish()) {
            errors.push(error.to_string());
        }
        let SimulationRun { engine, outcomes, link_series, .. } = run;
        // The silence at the end, spent waiting for lost messages, does not count.
        let end = engine.last_activity();
        record.duration_s = end.as_s();
        let connections = plan.connections.iter().zip(&outcomes);
        record.connections = connections.map(|(c, o)| assemble::connection(c, o)).collect();
        record.links = link_records(engine.network(), topology.network, end);
        for link in &mut record.links {
            link.rm_cells = engine.rm_cells(&link.name);
        }
        record.switches = switch_records(engine.network());
        if let Some(series) = link_series {
            series.finish(engine.network(), end, &mut record.links);
        }
        record.hosts = host_records(&engine, end);
        let cells = plan.network.iter().flat_map(|n| &n.links);
        if cells.into_iter().any(|l| l.medium == trunkline_experiment::plan::Medium::Atm) {
            let how = if engine.network().trains { "in trains, exact here" } else { "each on its own" };
            record.environment.insert("cells".into(), how.into());
        }
        record.environment.extend([
            ("trace_hash".into(), format!("{:016x}", engine.hash())),
            ("steps".into(), engine.steps().to_string()),
        ]);
        finish_record(&mut record, plan);
        record.partial |= !errors.is_empty();
        record.problems.extend(errors);
        record
    }
}

fn missing_network(plan: &Plan) -> String {
    let hosts = plan.hosts.join(", ");
    let links = plan.connections.first().map_or("a - b".into(), |c| {
        format!("{} - {}", c.from.host, c.to.first().map_or("b", |s| s.host.as_str()))
    });
    format!(
        "`sim` needs a network; add to the experiment: \
         network {{ host {hosts}; link {links} (rate = 100 Mb/s, delay = 1 ms); }}"
    )
}

fn refuse_connection(c: &Connection) -> Option<Refusal> {
    let (location, text) = match (&c.protocol, refuse_test("sim", c)) {
        (Protocol::Stamp, _) => (
            c.protocol_location,
            "`sim` has no protocol stamp: it measures real paths; `live` has it".to_owned(),
        ),
        (_, Some(text)) => (c.test_location, text),
        (Protocol::Tcp { congestion: Some(name), .. }, _) if TcpController::of(Some(name)).is_none() => {
            let names = TcpController::ALL.map(|(name, _)| name).join(", ");
            (c.protocol_location, format!("`sim` has no `congestion = {name}`; it has {names}"))
        }
        (Protocol::Quic { .. }, _) if !cfg!(feature = "quic") => {
            (c.protocol_location, trunkline_run::backend::NO_QUIC.to_owned())
        }
        (Protocol::Quic { congestion: QuicCongestion::Bbr, .. }, _) => (
            c.protocol_location,
            "`sim` has no `congestion = bbr`: it draws random numbers without a seed; `live` has it"
                .to_owned(),
        ),
        _ => return None,
    };
    Some(Refusal { location, text: format!("{}: {text}", c.name) })
}

/// Refuses links with credits or explicit rates whose lines do not keep the order of their cells, and connections without a
/// virtual channel of their own in such a network.
fn refuse_cell_control(plan: &Plan, network: &plan::Network) -> Vec<Refusal> {
    let control = |link: &plan::Link| match (&link.credits, &link.explicit_rate) {
        (Some(_), _) => Some("credits"),
        (None, Some(_)) => Some("explicit rates"),
        (None, None) => None,
    };
    let Some((first, name)) = network.links.iter().find_map(|link| Some((link, control(link)?))) else {
        return Vec::new();
    };
    let has_rates = first.explicit_rate.is_some();
    let is_controlled =
        |link: &&plan::Link| control(link).is_some() || has_rates && link.medium == plan::Medium::Atm;
    let out_of_order = network.links.iter().filter(is_controlled).filter_map(|link| {
        let place = if has_rates { "beside explicit rates" } else { "on a link with credits" };
        let text = format!("`sim` has no `duplicate` or `reorder` {place}: link {}", link.name);
        (link.duplicate > 0.0 || link.reorder > 0.0).then_some(Refusal { location: link.location, text })
    });
    let changed = network.changes.iter().filter_map(|change| {
        let link = network.links.iter().find(|link| link.name == change.link).filter(is_controlled)?;
        let mut shares = [change.duplicate, change.reorder].into_iter().flatten();
        let text = format!(
            "`sim` has no `duplicate` or `reorder` where cells have credits or rates: link {}",
            link.name
        );
        shares.any(|share| share > 0.0).then_some(Refusal { location: change.location, text })
    });
    let shares_channel = |c: &&Connection| {
        matches!(c.protocol, Protocol::Multicast { .. } | Protocol::Bundle { .. } | Protocol::Llc { .. })
    };
    let shared = plan.connections.iter().filter(shares_channel).map(|c| Refusal {
        location: c.protocol_location,
        text: format!(
            "{}: {name} are for channels from one host to one host; link {} has {name}",
            c.name, first.name
        ),
    });
    let topology = Topology::new(network);
    let without_cells = plan.connections.iter().filter(|c| !shares_channel(c)).filter_map(|c| {
        let (from, to) = (topology.node(&c.from.host)?, topology.node(&c.to.first()?.host)?);
        let path = topology.path(from, to)?;
        let mut links = path.iter().map(|(node, port)| {
            &network.links[topology.ports[*node][usize::from(*port)].link]
        });
        let leaves_by_cells = links.next()?.medium == plan::Medium::Atm;
        let controlled = links.find(|link| link.explicit_rate.is_some()).filter(|_| !leaves_by_cells)?;
        let text = format!(
            "{}: a source that obeys explicit rates sends cells; link {} has explicit rates, and {} has no link of ATM there",
            c.name, controlled.name, c.from.host
        );
        Some(Refusal { location: c.from.location, text })
    });
    out_of_order.chain(changed).chain(shared).chain(without_cells).collect()
}

/// Returns why a capture of that name is refused.
/// Refuses connections whose path or window cannot be simulated.
fn refuse_path(c: &Connection, network: &plan::Network) -> Option<Refusal> {
    let location = |end: &plan::ConnectionEnd| end.location;
    if let Some(to) = c.to.iter().find(|to| to.host == c.from.host) {
        let text = format!("{}: the sender and the receiver are the same host, {}", c.name, to.host);
        return Some(Refusal { location: location(to), text });
    }
    let links = network.links.iter().filter(|l| l.a == c.from.host || l.b == c.from.host).count();
    let is_bundled = matches!(c.protocol, Protocol::Bundle { .. });
    if c.to.len() > 1 && links > 1 && !is_bundled {
        let text = format!(
            "{}: `sim` sends multicast packets on one interface, but {} has {links}",
            c.name, c.from.host
        );
        return Some(Refusal { location: location(&c.from), text });
    }
    match &c.protocol {
        Protocol::Tcp { window: Some(window), .. } if window.as_bytes() > MAX_TCP_WINDOW => {
            let text = format!("{}: no window is larger than {} B (RFC 1323)", c.name, MAX_TCP_WINDOW);
            Some(Refusal { location: c.protocol_location, text })
        }
        _ => None,
    }
}

/// Error of a flow that cannot start.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("the network has no host {0}")]
    UnknownHost(String),
    /// No path leads from this host to a receiver and back.
    #[error("no links lead to and from {0}")]
    NoPath(String),
    #[error("it has no receiver")]
    NoReceiver,
    #[error(
        "no virtual channel is left: a run with ATM or buffers per channel starts at most {MAX_CHANNEL_FLOWS} connections"
    )]
    NoChannel,
    #[error("opening {}: {}", .0.display(), .1)]
    File(PathBuf, io::Error),
    #[error(transparent)]
    Flow(#[from] FlowError),
    #[error(transparent)]
    Admission(#[from] AdmissionError),
}

/// Returns whether the virtual channels of flows matter in a network.
fn uses_channels(network: &plan::Network) -> bool {
    network.links.iter().any(|link| link.medium == plan::Medium::Atm)
        || network.nodes.iter().any(|node| match &node.kind {
            plan::NodeKind::Host(costs) | plan::NodeKind::Converter { costs, .. } => costs.rx_each_channel,
            plan::NodeKind::Switch { each_channel, .. } => *each_channel,
            plan::NodeKind::Hub { .. } | plan::NodeKind::Ring { .. } => false,
        })
}

/// A running plan.
struct SimulationRun<'p> {
    plan: &'p Plan,
    options: &'p RunOptions,
    topology: &'p Topology<'p>,
    schedule: Schedule<'p>,
    /// The schedule's block of each active flow.
    block_indexes: BTreeMap<u32, usize>,
    outcomes: Vec<Vec<RepetitionOutcome>>,
    link_series: Option<LinkSeries>,
    admissions: Admissions,
    engine: Engine,
}

impl SimulationRun<'_> {
    /// Creates and starts the LLC stations of the hosts that need one.
    fn start_llc_stations(&mut self) {
        let mut interfaces = Vec::new();
        for name in llc::stations(self.plan) {
            let host = self.engine.network().host_number(name);
            let Some((host, at)) = host.zip(llc_stations::station_port(self.plan, self.topology, name))
            else {
                continue;
            };
            let station = format!("{name} / station");
            interfaces.push((host, self.engine.add_llc_station(host, at.port, &station, at.ethernet)));
        }
        if !interfaces.is_empty() {
            self.engine.start_llc(LlcStations::new(self.plan, self.topology, &interfaces));
        }
    }

    fn run(&mut self, observer: &mut dyn ProgressObserver) {
        let length = expected_duration(self.plan);
        let mut next_report = PROGRESS_STEPS;
        loop {
            for run in self.schedule.take_ready() {
                self.start_flow(run);
            }
            while let Some((number, flow)) = self.engine.take_finished() {
                self.finish_flow(number, *flow, None);
            }
            if self.schedule.is_done() {
                return;
            }
            if self.engine.has_finished() || self.schedule.has_ready() {
                continue;
            }
            while !self.engine.has_finished() {
                if !self.engine.step() {
                    return self.abort("no event is left");
                }
                if let Some(series) = &mut self.link_series {
                    series.sample_if_due(self.engine.network(), self.engine.now());
                }
                if self.engine.steps() >= next_report {
                    next_report += PROGRESS_STEPS;
                    observer.progress(self.engine.now().since(Instant::ZERO), length);
                    if self.options.stop.is_requested() {
                        return self.abort("stopped on request");
                    }
                }
            }
        }
    }

    /// Ends all active flows.
    fn abort(&mut self, reason: &str) {
        while let Some((number, flow)) = self.engine.take_unfinished() {
            self.finish_flow(number, *flow, Some(reason.into()));
        }
    }

    fn finish_flow(&mut self, number: u32, flow: Flow, abort_reason: Option<String>) {
        let is_aborted = abort_reason.is_some();
        self.admissions.release(number);
        let (connection, host) = (flow.connection, flow.ends[0].host);
        let is_llc = matches!(self.plan.connections[connection].protocol, Protocol::Llc { .. });
        let mut outcome = flow.into_outcome(abort_reason);
        if let Some(sender) = outcome.sender.as_mut().filter(|_| is_llc) {
            sender.counters.extend(self.engine.llc_stations().token_metrics(connection, host));
        }
        self.engine.end_rate_source(number, outcome.sender.as_mut());
        self.outcomes[connection].push(outcome);
        if let Some(block_index) = self.block_indexes.remove(&number)
            && !is_aborted
        {
            self.schedule.finish(block_index, self.engine.now());
        }
    }

    fn start_flow(&mut self, run: ScheduledRun) {
        match self.build_flow(run) {
            Ok(flow) => {
                self.block_indexes.insert(self.engine.next_flow(), run.block_index);
                let ends = [0, 1].map(|side| flow.ends.get(side).map(|end| end.host));
                if let [Some(from), Some(to)] = ends {
                    let declared = self.plan.connections[run.connection].declared;
                    let peak = declared.map(|declared| declared.peak);
                    self.engine.add_rate_source(self.topology, (from, to), flow.start(), peak);
                }
                self.engine.start_flow(flow);
            }
            Err(error) => {
                let (start, error) = (run.origin, Some(error.to_string()));
                let outcome = RepetitionOutcome { start, error, ..RepetitionOutcome::default() };
                self.outcomes[run.connection].push(outcome);
                self.schedule.finish(run.block_index, self.engine.now());
            }
        }
    }

    fn build_flow(&mut self, run: ScheduledRun) -> Result<Flow, StartError> {
        let c = &self.plan.connections[run.connection];
        let stream_name =
            if run.run_number == 1 { c.name.clone() } else { format!("{} / run {}", c.name, run.run_number) };
        let network = self.engine.network();
        let host = |name: &str| network.host_number(name).ok_or_else(|| StartError::UnknownHost(name.into()));
        let from = host(&c.from.host)?;
        let receivers = c.to.iter().map(|s| host(&s.host)).collect::<Result<Vec<u32>, _>>()?;
        let path = |from: u32, to: u32| {
            network.path(self.topology, from, to).ok_or_else(|| StartError::NoPath(c.from.host.clone()))
        };
        let (now, flow) = (self.engine.now(), self.engine.next_flow());
        if flow >= MAX_CHANNEL_FLOWS && uses_channels(self.topology.network) {
            return Err(StartError::NoChannel);
        }
        for receiver in &receivers {
            let media = network.media_between(self.topology, from, *receiver);
            let sent = |medium: u32, port| network.media[medium as usize].medium.counters(port).bytes;
            if let Err(error) = self.admissions.request(now, flow, &media, c.declared, sent) {
                self.admissions.release(flow);
                return Err(error.into());
            }
        }
        let is_bundle = matches!(c.protocol, Protocol::Bundle { .. });
        let first = *receivers.first().ok_or(StartError::NoReceiver)?;
        let (mut ports, mut mtu) = (Vec::new(), u32::MAX);
        if is_bundle {
            // The ends use the bundle workers of their hosts.
            ports.extend(std::iter::once(from).chain(receivers).map(|host| (host, Port(0))));
        } else {
            ports.push((from, path(from, first)?.port));
            for receiver in receivers {
                let there = path(from, receiver)?;
                let is_llc = matches!(c.protocol, Protocol::Llc { .. });
                mtu = mtu.min(if is_llc { there.max_pdu } else { there.mtu });
                ports.push((receiver, path(receiver, from)?.port));
            }
        }
        let (to, group_ttl) = match c.protocol {
            Protocol::Multicast { group, ttl } => (Destination::Group(network.groups[&group]), ttl),
            Protocol::Bundle { .. } => (Destination::All, 1),
            _ => (Destination::Station(first), 1),
        };
        let bundle_options = bundle::converter_config(self.plan).and_then(|config| {
            Some((MessageOptions::from_protocol(&c.protocol, config.format)?, config.max_message()))
        });
        let hosts = [from, first].map(|host| &network.hosts[host as usize]);
        let (disks, timer_phases) = (hosts.map(|host| host.disk), hosts.map(|host| host.timer_phases));
        let file_bytes = match &c.test {
            Pattern::File { path, .. } => {
                let path = self.options.folder.join(path);
                Some(fs::metadata(&path).map_err(|cause| StartError::File(path, cause))?.len())
            }
            _ => None,
        };
        let longest_delay = network.longest_delay;
        if matches!(c.protocol, Protocol::Udp { .. } | Protocol::Multicast { .. }) {
            for (to, (host, _)) in c.to.iter().zip(&ports[1..]) {
                to.buffer.iter().for_each(|buffer| self.engine.set_receive_buffer(*host, buffer.as_bytes()));
            }
        }
        let ends = ports.into_iter().enumerate().map(|(side, (host, port))| {
            self.engine.add_end(host, port, &format!("{stream_name} / end {side}"), side as u32)
        });
        let ends = ends.collect();
        if let Some(tracer) = &mut self.engine.tracer {
            tracer.add_flow(from, to, group_ttl);
        }
        Ok(Flow::new(FlowConfig {
            plan: c,
            connection: run.connection,
            flow: self.engine.next_flow(),
            now: self.engine.now(),
            stream_name,
            origin: run.origin,
            seed: self.options.seed,
            ends,
            to,
            reverse_to: Destination::Station(from),
            mtu,
            longest_delay,
            disks,
            timer_phases,
            file_bytes,
            bundle_options,
        })?)
    }
}

/// Returns the hosts of the record, with the counters of their interfaces and protocols.
fn host_records(engine: &Engine, end: Instant) -> Vec<schema::Host> {
    let network = engine.network();
    let duration = end.since(Instant::ZERO);
    let share = |busy: Span| if duration.is_zero() { 0.0 } else { busy.as_s() / duration.as_s() * 100.0 };
    let host = |(number, h): (u32, &Host)| {
        let mut interfaces = engine.llc_stations().counts(number);
        interfaces.extend(
            engine.bundle_workers().worker(number).map(|worker| worker.counts(end)).unwrap_or_default(),
        );
        for (n, (medium, port)) in h.medium_ports.iter().enumerate() {
            let counters = network.media[*medium as usize].medium.counters(*port);
            let counts = [
                ("tx_frames", counters.frames),
                ("tx_bytes", counters.bytes),
                ("tx_dropped", counters.queue_drops),
            ];
            interfaces.extend(counts.map(|(name, count)| (format!("if{n}.{name}"), count)));
        }
        let counters = h.model.counters();
        let counts = [
            ("sent", counters.sent),
            ("received", counters.received),
            ("delivered", counters.delivered),
            ("dropped_full", counters.dropped_full),
            ("dropped_damaged", counters.dropped_damaged),
            ("unwanted", counters.unwanted),
            ("interrupts", counters.interrupts),
        ];
        interfaces.extend(counts.map(|(name, count)| (name.to_string(), count)));
        interfaces.extend(h.model.is_router().then(|| ("forwarded".to_owned(), counters.forwarded)));
        schema::Host {
            name: h.name.clone(),
            cpu_percent: share(h.model.busy()),
            address: None,
            interfaces,
            measured: None,
            missing: Vec::new(),
        }
    };
    (0..).zip(&network.hosts).map(host).collect()
}
