//! The live backend: assigns addresses to hosts, refuses unsupported plans and assembles the record.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use trunkline_experiment::plan::{Connection, Protocol, SourceRange};
use trunkline_experiment::{Plan, message_sizes};
use trunkline_io::{Clock, usage};
use trunkline_record::Record;
use trunkline_record::schema::Host;
use trunkline_run::backend::{self, expected_duration, failed_record, finish_record};
use trunkline_run::{Backend, ProgressObserver, Refusal, RunOptions, assemble, bundle, llc};
use trunkline_stamp::packet::UNAUTHENTICATED;
use trunkline_traffic::{Pattern, Variable};
use trunkline_units::Instant;

use crate::agent::REPORT_CHECK_INTERVAL;
use crate::controller::{Controller, RunError};
use crate::environment;
use crate::interface_sampler::InterfaceSampler;
use crate::launch::{Admission, Launch};
use crate::station::MAX_PDU;

/// Maximum interval between progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// The live backend.
pub struct Live {
    launch: Box<dyn Launch + Send>,
    /// The addresses given by `--at`, or those in network namespaces, by host.
    assigned: BTreeMap<String, IpAddr>,
    /// The controllers of explicit rates that connections obey, by name.
    rate_controllers: BTreeMap<String, SocketAddr>,
    admission: Option<Arc<dyn Admission>>,
}

impl Live {
    /// Creates a backend. The hosts in `assigned` use these addresses, of their network namespaces if the agents have some, else
    /// of this machine; all others use the loopback interface.
    pub fn new(launch: Box<dyn Launch + Send>, assigned: BTreeMap<String, IpAddr>) -> Self {
        Live { launch, assigned, rate_controllers: BTreeMap::new(), admission: None }
    }

    /// Lets the senders of connections obey controllers of explicit rates at these addresses, by the name of the connection.
    #[must_use]
    pub fn with_rate_controllers(mut self, controllers: BTreeMap<String, SocketAddr>) -> Self {
        self.rate_controllers = controllers;
        self
    }

    /// Asks before a repetition of a connection starts.
    #[must_use]
    pub fn with_admission(mut self, admission: Option<Arc<dyn Admission>>) -> Self {
        self.admission = admission;
        self
    }

    /// Assigns an address to each host of this machine. Hosts on the loopback share its address, unless two of them must
    /// use the same port. If some hosts are on other machines, the loopback is of no use: these get their address later.
    fn assign_addresses(&self, plan: &Plan) -> Result<BTreeMap<String, IpAddr>, RunError> {
        for (name, address) in &self.assigned {
            if !self.launch.has_namespaces() && usage::interface_of(*address).is_none() {
                return Err(RunError::NotLocal(name.clone(), *address));
            }
        }
        let mut used_ports: BTreeMap<u16, &str> = BTreeMap::new();
        let mut next = 1;
        let mut addresses = self.assigned.clone();
        if plan.hosts.iter().any(|host| self.launch.is_remote(host)) {
            return Ok(addresses);
        }
        for host in plan.hosts.iter().filter(|h| !self.assigned.contains_key(*h)) {
            let ports = || {
                let stations = plan.connections.iter().flat_map(|c| &c.to);
                stations.filter(|s| s.host == *host).filter_map(|s| s.port)
            };
            let is_port_used = ports().any(|p| used_ports.contains_key(&p));
            next += u32::from(is_port_used);
            let number = if is_port_used { next } else { 1 };
            addresses.insert(host.clone(), IpAddr::V4(Ipv4Addr::from(0x7f00_0000 + number)));
            used_ports.extend(ports().map(|p| (p, host.as_str())));
        }
        Ok(addresses)
    }
}

impl Live {
    /// Refuses what the backend does not support of the plan's bundles.
    fn refuse_bundles(&self, plan: &Plan) -> Vec<Refusal> {
        let first = plan.connections.iter().find(|c| matches!(c.protocol, Protocol::Bundle { .. }));
        let (Some(first), sides) = (first, bundle::sides(plan)) else { return Vec::new() };
        let Some(sides) = sides else {
            let text = format!("{}: bundles need the converters of a `network`", first.name);
            return vec![Refusal { location: first.protocol_location, text }];
        };
        let has_address = |name: &&&str| self.assigned.contains_key(**name) || self.launch.is_remote(name);
        let refusal = |name: &&str| {
            let text =
                format!("--at {name}: `live` supports converters and their hosts only on the loopback");
            Refusal { location: Default::default(), text }
        };
        sides.hosts.iter().chain(&sides.wide).filter(has_address).map(refusal).collect()
    }
}

impl Backend for Live {
    fn name(&self) -> &'static str {
        if self.launch.has_namespaces() { "lab" } else { "live" }
    }

    fn refuse(&self, plan: &Plan) -> Vec<Refusal> {
        let max_message =
            bundle::converter_config(plan).map_or(bundle::MAX_CLASSIC_MESSAGE, |config| config.max_message());
        let mut all: Vec<Refusal> =
            plan.connections.iter().flat_map(|c| refuse_connection(c, max_message)).collect();
        for name in self.assigned.keys().filter(|name| !plan.hosts.contains(name)) {
            let text = format!("--at {name}: the experiment has no host of that name");
            all.push(Refusal { location: Default::default(), text });
        }
        all.extend(llc::refuse_limits(plan));
        let is_elsewhere = |name: &&str| self.assigned.contains_key(*name) || self.launch.is_remote(name);
        for name in llc::stations(plan).into_iter().filter(is_elsewhere) {
            let text = format!("--at {name}: `live` supports LLC stations only on the loopback");
            all.push(Refusal { location: Default::default(), text });
        }
        all.extend(self.refuse_bundles(plan));
        all
    }

    fn planned_record(&self, plan: &Plan, options: &RunOptions) -> Record {
        let mut environment = environment::describe();
        if plan.network.is_some() && !self.launch.has_namespaces() {
            let mut network = "described in the experiment, not applied: live uses the real one".to_owned();
            if bundle::sides(plan).is_some() {
                network += "; its converters run on the loopback, at no cost but their own";
            }
            environment.insert("network".into(), network);
        }
        backend::new_record(self.name(), plan, options, environment)
    }

    fn run(&mut self, plan: &Plan, options: &RunOptions, observer: &mut dyn ProgressObserver) -> Record {
        let mut record = self.planned_record(plan, options);
        let clock = Clock::start();
        let addresses = match self.assign_addresses(plan) {
            Ok(addresses) => addresses,
            Err(error) => return failed_record(record, plan, error.to_string()),
        };
        let controller = match Controller::new(plan, options, &addresses, self.launch.as_ref(), clock) {
            Ok(controller) => controller
                .observe(observer.report_interval())
                .limit_rates(self.rate_controllers.clone())
                .admit(self.admission.clone()),
            Err(error) => return failed_record(record, plan, error.to_string()),
        };
        if let Err(error) = controller.await_subscriptions().and_then(|()| controller.check_limits()) {
            return failed_record(record, plan, error.to_string());
        }
        let (expected, addresses) = (expected_duration(plan), controller.addresses());
        let before = counters(&addresses);
        let mut sampler = InterfaceSampler::new(addresses.values(), clock.now());
        std::thread::scope(|scope| {
            let controller = &controller;
            let (running, ended) = mpsc::channel::<()>();
            scope.spawn(move || {
                controller.run();
                drop(running); // ends the loop below at once
            });
            let interval = observer.report_interval().map_or(PROGRESS_INTERVAL, |_| REPORT_CHECK_INTERVAL);
            let wait = |sampler: &InterfaceSampler| interval.min(sampler.time_to_next(clock.now()).into());
            while ended.recv_timeout(wait(&sampler)) == Err(RecvTimeoutError::Timeout) {
                let now = clock.now();
                sampler.sample(now);
                report(controller, observer);
                observer.progress(now.since(Instant::ZERO), expected);
            }
            report(controller, observer);
        });
        let outcomes: Vec<_> = controller.outcomes().collect();
        record.duration_s = clock.now().as_s();
        record.interfaces = sampler.finish(clock.now());
        let cpu_seconds = controller.shut_down();
        record.connections =
            plan.connections.iter().zip(&outcomes).map(|(c, o)| assemble::connection(c, o)).collect();
        let (mut measured, mut missing) = (controller.measured(), controller.missing());
        record.hosts = hosts(&addresses, (&cpu_seconds, &controller.counters()), &before, record.duration_s);
        for host in &mut record.hosts {
            host.measured = measured.remove(&host.name);
            host.missing = missing.remove(&host.name).unwrap_or_default();
        }
        finish_record(&mut record, plan);
        record
    }
}

/// Reports to the observer what is new.
fn report(controller: &Controller<'_>, observer: &mut dyn ProgressObserver) {
    for (connection, outcome) in controller.observation().take() {
        observer.report(connection, &outcome);
    }
}

type Counters = BTreeMap<String, u64>;

/// Returns the counters of the interface that has each address, by name: `lo.rx_bytes`.
fn counters(addresses: &BTreeMap<String, IpAddr>) -> BTreeMap<IpAddr, Counters> {
    let interface_counters = |address: IpAddr| -> Counters {
        let Some(interface) = usage::interface_of(address) else { return Counters::new() };
        let counters = usage::interface_counters(&interface);
        counters.into_iter().map(|(name, n)| (format!("{interface}.{name}"), n)).collect()
    };
    addresses.values().map(|address| (*address, interface_counters(*address))).collect()
}

/// Returns the record's entries of the hosts. `before` has the counters of their interfaces at the start.
fn hosts(
    addresses: &BTreeMap<String, IpAddr>,
    (cpu_seconds, converter_counters): (&BTreeMap<String, f64>, &BTreeMap<String, Counters>),
    before: &BTreeMap<IpAddr, Counters>,
    duration_s: f64,
) -> Vec<Host> {
    let after = counters(addresses);
    let growth = |address: &IpAddr| -> Counters {
        let (Some(before), Some(after)) = (before.get(address), after.get(address)) else {
            return Counters::new();
        };
        after.iter().map(|(k, n)| (k.clone(), n.wrapping_sub(before.get(k).copied().unwrap_or(*n)))).collect()
    };
    let host = |(name, address): (&String, &IpAddr)| Host {
        name: name.clone(),
        cpu_percent: cpu_seconds.get(name).copied().unwrap_or(0.0) / duration_s * 100.0,
        address: Some(address.to_string()),
        interfaces: growth(address)
            .into_iter()
            .chain(converter_counters.get(name).cloned().unwrap_or_default())
            .collect(),
        measured: None,
        missing: Vec::new(),
    };
    addresses.iter().map(host).collect()
}

/// Refuses what the backend does not support of a connection. `max_message` is the longest message over bundles, in
/// bytes.
fn refuse_connection(c: &Connection, max_message: u32) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let mut refuse = |location: SourceRange, text: String| {
        refusals.push(Refusal { location, text: format!("{}: {text}", c.name) });
    };
    if let Some(text) = backend::refuse_test("live", c) {
        refuse(c.test_location, text);
        return refusals;
    }
    match (&c.protocol, &c.test) {
        (Protocol::Quic { .. }, _) if !cfg!(feature = "quic") => {
            refuse(c.protocol_location, backend::NO_QUIC.into());
        }
        (Protocol::Bundle { .. }, _) => {
            if let Some(text) = bundle::refuse_size(c, max_message) {
                refuse(c.test_location, text);
            }
        }
        (Protocol::Stamp, _) => {
            let constant = |(_, size)| if let &Variable::Constant(size) = size { Some(size) } else { None };
            let mut sizes = message_sizes(&c.test).into_iter().filter_map(constant);
            if let Some(size) = sizes.find(|size| *size < UNAUTHENTICATED as f64) {
                let text = format!("a packet of {size} B is too small: STAMP needs {UNAUTHENTICATED} B");
                refuse(c.test_location, text);
            }
        }
        (Protocol::Llc { .. }, _) => {
            let max_message = llc::max_message(&c.protocol, MAX_PDU);
            if let Some(size) = llc::max_constant_message(c).filter(|size| *size > max_message) {
                let text = format!(
                    "a message of {size} B does not fit into a frame: the maximum is {max_message} B"
                );
                refuse(c.test_location, text);
            }
            if c.to.iter().any(|to| to.host == c.from.host) {
                refuse(c.from.location, "the sender and the receiver are the same host".into());
            }
        }
        (Protocol::Udp { .. } | Protocol::Multicast { .. }, Pattern::File { size_bytes, .. })
            if !matches!(size_bytes, Variable::Constant(_)) =>
        {
            let text = format!("a file over {} needs messages of one size", c.protocol.name());
            refuse(c.test_location, text);
        }
        _ => {}
    }
    if let Protocol::Tcp { congestion: Some(name), .. } = &c.protocol {
        let available = environment::congestion_controls();
        if !available.is_empty() && !available.contains(name) {
            let available = available.join(", ");
            let text = format!("this kernel does not offer `congestion = {name}`; it offers {available}");
            refuse(c.protocol_location, text);
        }
    }
    refusals.extend(backend::refuse_small_messages(c));
    refusals
}
