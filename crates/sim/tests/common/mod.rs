//! Runs experiments given as text.

use trunkline_experiment::{Source, parse};
use trunkline_record::Record;
use trunkline_record::schema::{Connection, Host, Link};
use trunkline_run::{Backend as _, Order, Stop, Unwatched};
use trunkline_sim::Sim;
use trunkline_units::Seed;

/// The plan of a text.
pub fn plan(text: &str) -> trunkline_experiment::Plan {
    let parsed = parse(&Source { name: "test", text, folder: None });
    parsed.plan.unwrap_or_else(|| panic!("{text}\n{:#?}", parsed.diagnostics))
}

/// Runs a text with a seed.
pub fn run_with(text: &str, seed: u64) -> Record {
    run_by(Sim::default(), ".".as_ref(), text, seed)
}

/// Runs a text with a simulator, whose captures go to a folder.
pub fn run_by(mut sim: Sim, out: &std::path::Path, text: &str, seed: u64) -> Record {
    let plan = plan(text);
    let order = Order {
        seed: Seed(seed),
        text: text.into(),
        started: String::new(),
        folder: ".".into(),
        out: out.into(),
        stop: Stop::default(),
    };
    assert_eq!(sim.refuse(&plan), []);
    sim.run(&plan, &order, &mut Unwatched)
}

/// Runs a text with the default seed.
#[allow(dead_code)]
pub fn run(text: &str) -> Record {
    run_with(text, 1996)
}

/// A network and one connection from `a` to `b` in it.
#[allow(dead_code)]
pub fn experiment(network: &str, connection: &str) -> String {
    format!(
        "experiment \"t\" {{ network {{ {network} }} connection x {{ xmt = a; rcv = b; {connection} }} }}"
    )
}

/// A connection of a record.
#[allow(dead_code)]
pub fn connection<'r>(record: &'r Record, name: &str) -> &'r Connection {
    record.connections.iter().find(|c| c.name == name).unwrap_or_else(|| panic!("no connection {name}"))
}

/// A link of a record.
#[allow(dead_code)]
pub fn link<'r>(record: &'r Record, name: &str) -> &'r Link {
    record.links.iter().find(|l| l.name == name).unwrap_or_else(|| panic!("no link {name}"))
}

/// A host of a record.
#[allow(dead_code)]
pub fn host<'r>(record: &'r Record, name: &str) -> &'r Host {
    record.hosts.iter().find(|h| h.name == name).unwrap_or_else(|| panic!("no host {name}"))
}

/// Whether two figures agree within a share.
#[allow(dead_code)]
#[track_caller]
pub fn near(ours: f64, theirs: f64, share: f64) {
    assert!((ours - theirs).abs() <= share * theirs.abs(), "{ours} is not within {share} of {theirs}");
}
