//! The backend: places hosts, refuses what it cannot do, and gathers the record.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use trunkline_experiment::Plan;
use trunkline_experiment::plan::{Connection, Place, Protocol};
use trunkline_io::{Clock, usage};
use trunkline_record::Record;
use trunkline_record::schema::Host;
use trunkline_run::backend::{self, conclude, expected};
use trunkline_run::{Backend, Order, Refusal, Watch, assemble, bundle, describe, expect, llc};
use trunkline_traffic::{Pattern, Variable};
use trunkline_units::Instant;

use crate::controller::Controller;
use crate::environment;
use crate::launch::Launch;
use crate::looks::Looks;
use crate::station::PDU;

/// How often whoever watches is told how far the run is, at the least.
const WATCH: Duration = Duration::from_millis(250);

/// The live backend.
pub struct Live {
    launch: Box<dyn Launch + Send>,
    at: BTreeMap<String, IpAddr>,
}

impl Live {
    /// Hosts of `at` are at these addresses of this machine, all others on its loopback interface.
    pub fn new(launch: Box<dyn Launch + Send>, at: BTreeMap<String, IpAddr>) -> Self {
        Live { launch, at }
    }

    /// Where each host is. Hosts on loopback share its address, unless two of them must use the same port.
    fn place(&self, plan: &Plan) -> Result<BTreeMap<String, IpAddr>, String> {
        for (name, address) in &self.at {
            if usage::interface_of(*address).is_none() {
                return Err(format!(
                    "host {name} does not answer: {address} is not an address of this machine, and no agent serves it"
                ));
            }
        }
        let mut taken: BTreeMap<u16, &str> = BTreeMap::new();
        let mut next = 1;
        let mut places = self.at.clone();
        for host in plan.hosts.iter().filter(|h| !self.at.contains_key(*h)) {
            let ports = || {
                let stations = plan.connections.iter().flat_map(|c| &c.to);
                stations.filter(|s| s.host == *host).filter_map(|s| s.port)
            };
            let clash = ports().any(|p| taken.contains_key(&p));
            next += u32::from(clash);
            let number = if clash { next } else { 1 };
            places.insert(host.clone(), IpAddr::V4(Ipv4Addr::from(0x7f00_0000 + number)));
            taken.extend(ports().map(|p| (p, host.as_str())));
        }
        Ok(places)
    }
}

impl Live {
    /// What of a plan's bundles is not carried.
    fn refuse_bundles(&self, plan: &Plan) -> Vec<Refusal> {
        let first = plan.connections.iter().find(|c| matches!(c.protocol, Protocol::Bundle { .. }));
        let (Some(first), sides) = (first, bundle::sides(plan)) else { return Vec::new() };
        let Some(sides) = sides else {
            let text = format!("{}: bundles need the converters of a `network`", first.name);
            return vec![Refusal { place: first.asks.protocol, text }];
        };
        let placed = |name: &&&str| self.at.contains_key(**name);
        let refusal = |name: &&str| {
            let text = format!("--at {name}: `live` has its converters and their hosts on the loopback only");
            Refusal { place: Default::default(), text }
        };
        sides.hosts.iter().chain(&sides.wide).filter(placed).map(refusal).collect()
    }
}

impl Backend for Live {
    fn name(&self) -> &'static str {
        "live"
    }

    fn refuse(&self, plan: &Plan) -> Vec<Refusal> {
        let longest = bundle::works(plan).map_or(bundle::LONGEST, |works| works.longest());
        let mut all: Vec<Refusal> =
            plan.connections.iter().flat_map(|c| refuse_connection(c, longest)).collect();
        for name in self.at.keys().filter(|name| !plan.hosts.contains(name)) {
            let text = format!("--at {name}: the experiment has no host of that name");
            all.push(Refusal { place: Default::default(), text });
        }
        all.extend(llc::refuse_limits(plan));
        for name in llc::stations(plan).into_iter().filter(|name| self.at.contains_key(*name)) {
            let text = format!("--at {name}: `live` has its LLC stations on the loopback only");
            all.push(Refusal { place: Default::default(), text });
        }
        all.extend(self.refuse_bundles(plan));
        all
    }

    fn asked(&self, plan: &Plan, order: &Order) -> Record {
        blank(plan, order)
    }

    fn run(&mut self, plan: &Plan, order: &Order, watch: &mut dyn Watch) -> Record {
        let mut record = blank(plan, order);
        let clock = Clock::start();
        let places = match self.place(plan) {
            Ok(places) => places,
            Err(trouble) => return spoilt(record, plan, trouble),
        };
        let controller = match Controller::new(plan, order, &places, self.launch.as_ref(), clock) {
            Ok(controller) => controller,
            Err(trouble) => return spoilt(record, plan, trouble),
        };
        if let Err(trouble) = controller.settle() {
            return spoilt(record, plan, trouble);
        }
        let (expected, places) = (expected(plan), controller.addresses());
        let before = counters(&places);
        let mut looks = Looks::new(places.values(), clock.now());
        std::thread::scope(|scope| {
            let controller = &controller;
            let (running, ended) = mpsc::channel::<()>();
            scope.spawn(move || {
                controller.run();
                drop(running); // ends the watch at once
            });
            let wait = |looks: &Looks| WATCH.min(looks.wait(clock.now()).into());
            while ended.recv_timeout(wait(&looks)) == Err(RecvTimeoutError::Timeout) {
                let now = clock.now();
                looks.look(now);
                watch.progress(now.since(Instant::ZERO), expected);
            }
        });
        let outcomes: Vec<_> = controller.outcomes().collect();
        record.duration_s = clock.now().as_s();
        record.interfaces = looks.finish(clock.now());
        let used = controller.dismiss();
        record.connections =
            plan.connections.iter().zip(&outcomes).map(|(c, o)| assemble::connection(c, o)).collect();
        record.hosts = hosts(&places, (&used, &controller.counted()), &before, record.duration_s);
        conclude(&mut record, plan);
        record
    }
}

/// A record of nothing yet.
fn blank(plan: &Plan, order: &Order) -> Record {
    let mut environment = environment::describe();
    if plan.network.is_some() {
        let mut said = "described in the experiment, not applied: live uses the real one".to_owned();
        if bundle::sides(plan).is_some() {
            said += "; its converters run on the loopback, at no cost but their own";
        }
        environment.insert("network".into(), said);
    }
    backend::blank("live", plan, order, environment)
}

/// A record of a run that could not begin.
fn spoilt(mut record: Record, plan: &Plan, trouble: String) -> Record {
    record.partial = true;
    record.connections = plan.connections.iter().map(|c| assemble::connection(c, &[])).collect();
    record.expectations = expect::judge(&plan.expectations, &record);
    record.trouble.push(trouble);
    record
}

type Counters = BTreeMap<String, u64>;

/// Counters of the interface that holds each address, by name: `lo.rx_bytes`.
fn counters(places: &BTreeMap<String, IpAddr>) -> BTreeMap<IpAddr, Counters> {
    let of = |address: IpAddr| -> Counters {
        let Some(interface) = usage::interface_of(address) else { return Counters::new() };
        let counters = usage::interface_counters(&interface);
        counters.into_iter().map(|(name, n)| (format!("{interface}.{name}"), n)).collect()
    };
    places.values().map(|address| (*address, of(*address))).collect()
}

fn hosts(
    places: &BTreeMap<String, IpAddr>,
    (used, counted): (&BTreeMap<String, f64>, &BTreeMap<String, Counters>),
    before: &BTreeMap<IpAddr, Counters>,
    duration_s: f64,
) -> Vec<Host> {
    let after = counters(places);
    let change = |address: &IpAddr| -> Counters {
        let (Some(before), Some(after)) = (before.get(address), after.get(address)) else {
            return Counters::new();
        };
        after.iter().map(|(k, n)| (k.clone(), n.wrapping_sub(before.get(k).copied().unwrap_or(*n)))).collect()
    };
    let host = |(name, address): (&String, &IpAddr)| Host {
        name: name.clone(),
        cpu_percent: used.get(name).copied().unwrap_or(0.0) / duration_s * 100.0,
        address: Some(address.to_string()),
        interfaces: change(address)
            .into_iter()
            .chain(counted.get(name).cloned().unwrap_or_default())
            .collect(),
    };
    places.iter().map(host).collect()
}

/// `longest` octets are the most of a message over bundles.
fn refuse_connection(c: &Connection, longest: u32) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let mut refuse = |place: Place, text: String| {
        refusals.push(Refusal { place, text: format!("{}: {text}", c.name) });
    };
    let test = describe::test_name(&c.test);
    match (&c.protocol, &c.test) {
        (_, Pattern::Application { .. }) => {
            refuse(c.asks.test, format!("`live` does not play the application model `{test}` yet"));
        }
        (Protocol::Bundle { .. }, _) => {
            if let Some(text) = bundle::refuse_test("live", c, longest) {
                refuse(c.asks.test, text);
            }
        }
        (Protocol::Multicast { .. }, Pattern::Request { .. } | Pattern::File { .. }) => {
            refuse(c.asks.test, format!("`live` has no test `{test}` over multicast"));
        }
        (Protocol::Llc { .. }, Pattern::File { .. }) => {
            refuse(c.asks.test, "`live` has no test `file` over llc yet".into());
        }
        (Protocol::Llc { .. }, _) => {
            let longest = llc::longest(&c.protocol, PDU);
            if let Some(size) = llc::largest_message(c).filter(|size| *size > longest) {
                let text = format!("a message of {size} B does not go into a frame: at most {longest} B do");
                refuse(c.asks.test, text);
            }
            if c.to.iter().any(|to| to.host == c.from.host) {
                refuse(c.from.place, "a station hears nothing from itself".into());
            }
        }
        (Protocol::Udp { .. }, Pattern::File { size_bytes, .. })
            if !matches!(size_bytes, Variable::Constant(_)) =>
        {
            let text = "a file over udp needs messages of one size, to know where each belongs";
            refuse(c.asks.test, text.into());
        }
        _ => {}
    }
    if let Protocol::Tcp { congestion: Some(name), .. } = &c.protocol {
        let offered = environment::congestion_controls();
        if !offered.is_empty() && !offered.contains(name) {
            let offered = offered.join(", ");
            let text = format!("this kernel does not offer `congestion = {name}`; it offers {offered}");
            refuse(c.asks.protocol, text);
        }
    }
    refusals.extend(backend::too_small(c));
    refusals
}
