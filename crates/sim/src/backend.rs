//! The backend: says what it cannot simulate, runs the rest, and gathers the record.

use std::collections::BTreeMap;

use trunkline_endpoint::{Port, To};
use trunkline_experiment::plan::{self, Connection, NodeKind, Place, Plan, Protocol};
use trunkline_record::Record;
use trunkline_record::schema;
use trunkline_run::assemble::{self, Outcome};
use trunkline_run::backend::{blank, conclude, expected, too_small};
use trunkline_run::bundle::Label;
use trunkline_run::{Backend, Order, Refusal, Watch, bundle, describe, llc};
use trunkline_traffic::Pattern;
use trunkline_units::{Instant, Span};

use crate::bundles::{self, Bundles};
use crate::counts::Counts;
use crate::engine::Engine;
use crate::flow::{Birth, Flow};
use crate::network::Network;
use crate::network::topology::Topology;
use crate::schedule::{Schedule, Turn};
use crate::stations::{self, Stations};
use crate::trace::Tracer;

/// Steps after which whoever watches is told how far the run is, and a request to stop is seen.
const LOOK: u64 = 1 << 16;

/// The largest window that TCP can tell.
const LARGEST_WINDOW: u64 = 1 << 30;

/// The simulator.
#[derive(Clone, Debug, Default)]
pub struct Sim {
    /// Links and hosts of which a capture is written into the folder of the record, `NAME.pcapng`.
    pub trace: Vec<String>,
    /// Whether the record shall hold what ends of links sent against time.
    pub counts: bool,
}

impl Backend for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn refuse(&self, plan: &Plan) -> Vec<Refusal> {
        let Some(network) = &plan.network else {
            return vec![Refusal { place: Place::default(), text: lacks_network(plan) }];
        };
        let mut all: Vec<Refusal> = plan.connections.iter().filter_map(refuse_connection).collect();
        // The header of a message over LLC stands beside it.
        let is_llc = |c: &&Connection| matches!(c.protocol, Protocol::Llc { .. });
        all.extend(plan.connections.iter().filter(|c| !is_llc(c)).flat_map(too_small));
        all.extend(stations::refuse::refuse(plan, network));
        all.extend(bundles::refuse::refuse(plan, network));
        all.extend(plan.connections.iter().filter_map(|c| refuse_way(c, network)));
        for link in network.links.iter().filter(|l| l.credits.is_some()) {
            let text = format!("`sim` has no link-by-link credits yet: link {}", link.name);
            all.push(Refusal { place: link.place, text });
        }
        for name in &self.trace {
            if let Some(text) = refuse_trace(name, network) {
                all.push(Refusal { place: Place::default(), text });
            }
        }
        all
    }

    fn asked(&self, plan: &Plan, order: &Order) -> Record {
        blank("sim", plan, order, BTreeMap::new())
    }

    fn run(&mut self, plan: &Plan, order: &Order, watch: &mut dyn Watch) -> Record {
        let mut record = self.asked(plan, order);
        let Some(network) = &plan.network else {
            record.partial = true;
            record.trouble.push(lacks_network(plan));
            return record;
        };
        let topology = Topology::new(network);
        let network = Network::build(plan, &topology, order.seed);
        let mut run = Run {
            plan,
            order,
            topology: &topology,
            schedule: Schedule::new(&plan.schedule, Instant::ZERO),
            tickets: BTreeMap::new(),
            outcomes: vec![Vec::new(); plan.connections.len()],
            counts: self.counts.then(|| Counts::new(&network)),
            engine: Engine::new(network),
        };
        run.open_stations();
        if let Some(bundles) = Bundles::new(plan, &topology, run.engine.network()) {
            run.engine.bundle(bundles);
        }
        let mut trouble = Vec::new();
        if !self.trace.is_empty() {
            match Tracer::open(&self.trace, run.engine.network(), &topology, &order.out) {
                Ok(tracer) => run.engine.tracer = Some(Box::new(tracer)),
                Err(line) => trouble.push(line),
            }
        }
        run.play(watch);
        if let Some(Err(line)) = run.engine.tracer.take().map(|tracer| tracer.finish()) {
            trouble.push(line);
        }
        let Run { engine, outcomes, counts, .. } = run;
        // How long was waited in silence for what had been lost is of no interest.
        let end = engine.last_crossing();
        record.duration_s = end.as_s();
        let connections = plan.connections.iter().zip(&outcomes);
        record.connections = connections.map(|(c, o)| assemble::connection(c, o)).collect();
        record.links = links(engine.network(), end);
        if let Some(counts) = counts {
            counts.finish(engine.network(), end, &mut record.links);
        }
        record.hosts = hosts(&engine, end);
        let cells = plan.network.iter().flat_map(|n| &n.links);
        if cells.into_iter().any(|l| l.medium == trunkline_experiment::plan::Medium::Atm) {
            let how = if engine.network().trains { "in trains, exact here" } else { "each on its own" };
            record.environment.insert("cells".into(), how.into());
        }
        record.environment.extend([
            ("trace_hash".into(), format!("{:016x}", engine.hash())),
            ("steps".into(), engine.steps().to_string()),
        ]);
        conclude(&mut record, plan);
        record.partial |= !trouble.is_empty();
        record.trouble.extend(trouble);
        record
    }
}

fn lacks_network(plan: &Plan) -> String {
    let hosts = plan.hosts.join(", ");
    let links = plan.connections.first().map_or("a - b".into(), |c| {
        format!("{} - {}", c.from.host, c.to.first().map_or("b", |s| s.host.as_str()))
    });
    format!(
        "`sim` needs to know the network; add to the experiment: \
         network {{ host {hosts}; link {links} (rate = 100 Mb/s, delay = 1 ms); }}"
    )
}

fn refuse_connection(c: &Connection) -> Option<Refusal> {
    let test = describe::test_name(&c.test);
    let (place, text) = match (&c.protocol, &c.test) {
        (_, Pattern::Application { .. }) => {
            (c.asks.test, format!("`sim` does not play the application model `{test}` yet"))
        }
        (Protocol::Multicast { .. }, Pattern::Request { .. } | Pattern::File { .. }) => {
            (c.asks.test, format!("`sim` has no test `{test}` over multicast"))
        }
        (Protocol::Tcp { congestion: Some(name), .. }, _) if name != "reno" => {
            (c.asks.protocol, format!("`sim` has no `congestion = {name}`; it has reno, that of 4.3BSD"))
        }
        _ => return None,
    };
    Some(Refusal { place, text: format!("{}: {text}", c.name) })
}

/// Why nothing of that name can be captured.
fn refuse_trace(name: &str, network: &plan::Network) -> Option<String> {
    let node = |name: &str| network.nodes.iter().find(|n| n.name == name);
    let shared = |name: &str| {
        node(name).is_some_and(|n| matches!(n.kind, NodeKind::Hub { .. } | NodeKind::Ring { .. }))
    };
    match (node(name), network.links.iter().find(|l| l.name == name)) {
        (Some(n), _) if matches!(n.kind, NodeKind::Switch { .. }) => {
            Some(format!("--trace {name}: capture the links of a switch, or the hosts at them"))
        }
        (Some(_), _) => None,
        (None, Some(l)) if shared(&l.a) || shared(&l.b) => {
            let whole = if shared(&l.a) { &l.a } else { &l.b };
            Some(format!("--trace {name}: its stations share one wire; capture `{whole}`"))
        }
        (None, Some(_)) => None,
        (None, None) => {
            Some(format!("--trace {name}: the network has no link, host, hub or ring of that name"))
        }
    }
}

/// What of a connection's way there is no answer to.
fn refuse_way(c: &Connection, network: &plan::Network) -> Option<Refusal> {
    let place = |station: &plan::Station| station.place;
    if let Some(to) = c.to.iter().find(|to| to.host == c.from.host) {
        let text = format!("{}: from {} to itself nothing crosses the network", c.name, to.host);
        return Some(Refusal { place: place(to), text });
    }
    let links = network.links.iter().filter(|l| l.a == c.from.host || l.b == c.from.host).count();
    let is_bundled = matches!(c.protocol, Protocol::Bundle { .. });
    if c.to.len() > 1 && links > 1 && !is_bundled {
        let text = format!(
            "{}: `sim` sends a group's packets by one interface, and {} has {links}",
            c.name, c.from.host
        );
        return Some(Refusal { place: place(&c.from), text });
    }
    match &c.protocol {
        Protocol::Tcp { window: Some(window), .. } if window.as_bytes() > LARGEST_WINDOW => {
            let text = format!("{}: no window is larger than {} B (RFC 1323)", c.name, LARGEST_WINDOW);
            Some(Refusal { place: c.asks.protocol, text })
        }
        _ => None,
    }
}

/// A plan being worked through.
struct Run<'p> {
    plan: &'p Plan,
    order: &'p Order,
    topology: &'p Topology<'p>,
    schedule: Schedule<'p>,
    /// Of each flow under way, what the schedule gave it.
    tickets: BTreeMap<u32, usize>,
    outcomes: Vec<Vec<Outcome>>,
    counts: Option<Counts>,
    engine: Engine,
}

impl Run<'_> {
    /// Gives every host that needs one its LLC station.
    fn open_stations(&mut self) {
        let mut spots = Vec::new();
        for name in llc::stations(self.plan) {
            let network = self.engine.network();
            let ends = |c: &Connection| Some([c.from.host.clone(), c.to.first()?.host.clone()]);
            let over_llc =
                self.plan.connections.iter().filter(|c| matches!(c.protocol, Protocol::Llc { .. }));
            let mut pairs = over_llc.filter_map(ends).filter(|ends| ends.iter().any(|end| end == name));
            let Some([from, to]) = pairs.next() else { continue };
            let other = if from == name { to } else { from };
            let (Some(host), Some(other)) = (network.station(name), network.station(&other)) else {
                continue;
            };
            let Some(way) = network.way(self.topology, host, other) else { continue };
            let node = network.stations[host as usize].node;
            let beyond = self.topology.ports[node][usize::from(way.port.0)].next;
            let ethernet = !matches!(self.topology.network.nodes[beyond].kind, NodeKind::Ring { .. });
            spots.push((host, self.engine.stand(host, way.port, &format!("{name} / station"), ethernet)));
        }
        if !spots.is_empty() {
            self.engine.open(Stations::new(self.plan, self.topology, &spots));
        }
    }

    fn play(&mut self, watch: &mut dyn Watch) {
        let length = expected(self.plan);
        let mut next_look = LOOK;
        loop {
            for turn in self.schedule.turns() {
                self.begin(turn);
            }
            while let Some((number, flow)) = self.engine.take_over() {
                self.end(number, *flow, None);
            }
            if self.schedule.is_done() {
                return;
            }
            if self.engine.has_over() || self.schedule.has_turns() {
                continue;
            }
            while !self.engine.has_over() {
                if !self.engine.step() {
                    return self.cut("nothing more can happen");
                }
                if let Some(counts) = &mut self.counts {
                    counts.look(self.engine.network(), self.engine.now());
                }
                if self.engine.steps() >= next_look {
                    next_look += LOOK;
                    watch.progress(self.engine.now().since(Instant::ZERO), length);
                    if self.order.stop.asked() {
                        return self.cut("stopped on request");
                    }
                }
            }
        }
    }

    /// Ends whatever is under way.
    fn cut(&mut self, why: &str) {
        while let Some((number, flow)) = self.engine.take_any() {
            self.end(number, *flow, Some(why.into()));
        }
    }

    fn end(&mut self, number: u32, flow: Flow, cut: Option<String>) {
        let is_cut = cut.is_some();
        let (connection, host) = (flow.connection, flow.sides[0].station);
        let is_llc = matches!(self.plan.connections[connection].protocol, Protocol::Llc { .. });
        let mut outcome = flow.outcome(cut);
        if let Some(sender) = outcome.sender.as_mut().filter(|_| is_llc) {
            sender.counters.extend(self.engine.llc().figures(connection, host));
        }
        self.outcomes[connection].push(outcome);
        if let Some(ticket) = self.tickets.remove(&number)
            && !is_cut
        {
            self.schedule.over(ticket, self.engine.now());
        }
    }

    fn begin(&mut self, turn: Turn) {
        match self.prepare(turn) {
            Ok(flow) => {
                self.tickets.insert(self.engine.next_flow(), turn.ticket);
                self.engine.begin(flow);
            }
            Err(trouble) => {
                let start = turn.origin;
                let outcome = Outcome { start, trouble: Some(trouble), ..Outcome::default() };
                self.outcomes[turn.connection].push(outcome);
                self.schedule.over(turn.ticket, self.engine.now());
            }
        }
    }

    fn prepare(&mut self, turn: Turn) -> Result<Flow, String> {
        let c = &self.plan.connections[turn.connection];
        let place = if turn.round == 1 { c.name.clone() } else { format!("{} / run {}", c.name, turn.round) };
        let network = self.engine.network();
        let station = |name: &str| network.station(name).ok_or(format!("the network has no host {name}"));
        let from = station(&c.from.host)?;
        let receivers = c.to.iter().map(|s| station(&s.host)).collect::<Result<Vec<u32>, _>>()?;
        let way = |from: u32, to: u32| {
            network
                .way(self.topology, from, to)
                .ok_or_else(|| format!("no links lead to and from {}", c.from.host))
        };
        if let Protocol::Bundle { .. } = c.protocol {
            return self.prepare_bundled(turn, place, from, &receivers);
        }
        let mut ports = vec![(from, way(from, *receivers.first().ok_or("it has no receiver")?)?.port)];
        let mut mtu = u32::MAX;
        for receiver in &receivers {
            let there = way(from, *receiver)?;
            mtu = mtu.min(if matches!(c.protocol, Protocol::Llc { .. }) { there.pdu } else { there.mtu });
            ports.push((*receiver, way(*receiver, from)?.port));
        }
        let to = match c.protocol {
            Protocol::Multicast { group, .. } => To::Group(network.groups[&group]),
            _ => To::Station(receivers[0]),
        };
        let phases = [from, receivers[0]].map(|s| {
            let phases = &network.stations[s as usize].phases;
            (phases.fast, phases.slow)
        });
        let disks = [from, receivers[0]].map(|s| network.stations[s as usize].disk);
        let file_bytes = match &c.test {
            Pattern::File { path, .. } => {
                let path = self.order.folder.join(path);
                let length =
                    std::fs::metadata(&path).map_err(|e| format!("opening {}: {e}", path.display()))?;
                Some(length.len())
            }
            _ => None,
        };
        let longest_delay = network.longest_delay;
        let sides = ports.iter().enumerate().map(|(side, (station, port))| {
            let name = format!("{place} / end {side}");
            self.engine.seat(*station, Port(port.0), &name, side as u32)
        });
        let sides = sides.collect();
        if let Some(tracer) = &mut self.engine.tracer {
            let group = match c.protocol {
                Protocol::Multicast { group: std::net::IpAddr::V4(group), ttl } => {
                    Some((group.octets(), ttl))
                }
                _ => None,
            };
            tracer.begin(from, to, group);
        }
        Flow::begin(Birth {
            plan: c,
            connection: turn.connection,
            flow: self.engine.next_flow(),
            now: self.engine.now(),
            place,
            origin: turn.origin,
            seed: self.order.seed,
            sides,
            to,
            back: To::Station(from),
            mtu,
            longest_delay,
            disks,
            phases,
            file_bytes,
            label: None,
        })
    }
}

impl Run<'_> {
    /// A connection over bundles: its ends talk to what bundles beside them, and to nobody else.
    fn prepare_bundled(
        &mut self,
        turn: Turn,
        place: String,
        from: u32,
        receivers: &[u32],
    ) -> Result<Flow, String> {
        let ends = std::iter::once(&from).chain(receivers).enumerate();
        let sides = ends.map(|(side, station)| {
            let name = format!("{place} / end {side}");
            self.engine.seat(*station, Port(0), &name, side as u32)
        });
        let sides = sides.collect();
        if let Some(tracer) = &mut self.engine.tracer {
            tracer.begin(from, To::All, None);
        }
        let protocol = &self.plan.connections[turn.connection].protocol;
        let label = bundle::works(self.plan)
            .and_then(|works| Some((Label::of(protocol, works.format)?, works.longest())));
        Flow::begin(Birth {
            plan: &self.plan.connections[turn.connection],
            connection: turn.connection,
            flow: self.engine.next_flow(),
            now: self.engine.now(),
            place,
            origin: turn.origin,
            seed: self.order.seed,
            sides,
            to: To::All,
            back: To::Station(from),
            mtu: u32::MAX,
            longest_delay: self.engine.network().longest_delay,
            disks: [None, None],
            phases: Default::default(),
            file_bytes: None,
            label,
        })
    }
}

/// The links of the record: point-to-point links, and hubs and rings as one each.
fn links(network: &Network, end: Instant) -> Vec<schema::Link> {
    let duration = end.since(Instant::ZERO).as_s();
    let mut all = Vec::new();
    for seat in network.lines() {
        let ports = (0..seat.wires.len() as u16).map(|p| seat.medium.counters(Port(p)));
        let shared = !matches!(seat.medium, crate::medium::Medium::Link(_) | crate::medium::Medium::Cells(_));
        let (mut utilization, mut dropped, mut queue_max) = (0.0, 0, 0);
        for c in ports {
            let busy = if duration > 0.0 { c.busy.as_s() / duration } else { 0.0 };
            utilization = if shared { utilization + busy } else { f64::max(utilization, busy) };
            dropped += c.full + c.lost;
            queue_max = queue_max.max(c.queue_max);
        }
        // What still left after the last thing that anybody heard is not of the run.
        let utilization = utilization.min(1.0);
        all.push(schema::Link { name: seat.name.clone(), utilization, dropped, queue_max, ends: Vec::new() });
    }
    all
}

fn hosts(engine: &Engine, end: Instant) -> Vec<schema::Host> {
    let network = engine.network();
    let duration = end.since(Instant::ZERO);
    let share = |busy: Span| if duration.is_zero() { 0.0 } else { busy.as_s() / duration.as_s() * 100.0 };
    let host = |(number, h): (u32, &crate::network::Host)| {
        let mut interfaces = engine.llc().counts(number);
        interfaces.extend(engine.bundles().counts(end, number));
        for (n, (medium, port)) in h.down.iter().enumerate() {
            let c = network.media[*medium as usize].medium.counters(*port);
            let counts = [("tx_frames", c.frames), ("tx_bytes", c.bytes), ("tx_dropped", c.full)];
            interfaces.extend(counts.map(|(name, count)| (format!("if{n}.{name}"), count)));
        }
        let c = h.station.counters();
        let counts = [
            ("received", c.received),
            ("delivered", c.delivered),
            ("dropped_full", c.full),
            ("dropped_damaged", c.damaged),
            ("unwanted", c.unwanted),
            ("interrupts", c.interrupts),
        ];
        interfaces.extend(counts.map(|(name, count)| (name.to_string(), count)));
        schema::Host { name: h.name.clone(), cpu_percent: share(h.station.busy()), address: None, interfaces }
    };
    (0..).zip(&network.stations).map(host).collect()
}
