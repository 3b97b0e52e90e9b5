//! Helpers that run experiments given as text.

use trunkline_experiment::{Source, parse};
use trunkline_record::Record;
use trunkline_record::schema::{Connection, Host, Link};
use trunkline_run::{Backend as _, NoProgress, RunOptions, StopFlag};
use trunkline_sim::Sim;
use trunkline_units::Seed;

/// Parses a plan.
pub fn plan(text: &str) -> trunkline_experiment::Plan {
    let parsed = parse(&Source { name: "test", text, folder: None });
    parsed.plan.unwrap_or_else(|| panic!("{text}\n{:#?}", parsed.diagnostics))
}

/// Runs an experiment with a seed.
pub fn run_with(text: &str, seed: u64) -> Record {
    run_by(Sim::default(), ".".as_ref(), text, seed)
}

/// Runs an experiment with a configured simulator; captures go to the folder `out`.
pub fn run_by(mut sim: Sim, out: &std::path::Path, text: &str, seed: u64) -> Record {
    let plan = plan(text);
    let options = RunOptions {
        seed: Seed(seed),
        text: text.into(),
        started_at: String::new(),
        folder: ".".into(),
        out: out.into(),
        stop: StopFlag::default(),
    };
    assert_eq!(sim.refuse(&plan), []);
    sim.run(&plan, &options, &mut NoProgress)
}

/// Runs an experiment with the default seed.
pub fn run(text: &str) -> Record {
    run_with(text, 1996)
}

/// Returns an experiment with a network and one connection from `a` to `b`.
pub fn experiment(network: &str, connection: &str) -> String {
    format!(
        "experiment \"t\" {{ network {{ {network} }} connection x {{ xmt = a; rcv = b; {connection} }} }}"
    )
}

/// Returns a connection of a record.
pub fn connection<'r>(record: &'r Record, name: &str) -> &'r Connection {
    record.connections.iter().find(|c| c.name == name).unwrap_or_else(|| panic!("no connection {name}"))
}

/// Returns a link of a record.
pub fn link<'r>(record: &'r Record, name: &str) -> &'r Link {
    record.links.iter().find(|l| l.name == name).unwrap_or_else(|| panic!("no link {name}"))
}

/// Returns a host of a record.
pub fn host<'r>(record: &'r Record, name: &str) -> &'r Host {
    record.hosts.iter().find(|h| h.name == name).unwrap_or_else(|| panic!("no host {name}"))
}

/// Asserts that two figures agree within a relative tolerance.
#[track_caller]
pub fn near(actual: f64, expected: f64, tolerance: f64) {
    assert!(
        (actual - expected).abs() <= tolerance * expected.abs(),
        "{actual} is not within {tolerance} of {expected}"
    );
}
