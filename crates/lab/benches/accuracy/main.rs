//! How exactly a lab keeps rates, delays and losses, and what a packet costs:
//! `cargo bench -p trunkline-lab --bench accuracy -- [rates] [delays] [losses] [packets] [links] [starts] [interfaces]`.
//!
//! | module | contents |
//! | --- | --- |
//! | [`links`] | rates by iperf3, delays and losses by ping |
//! | [`many`] | lateness with many links at once; starts and ends of many hosts |
//! | [`packets`] | packets per second through a link, beside a bare veth pair |
//! | [`interfaces`] | what a packet costs at a TUN device, and at a veth pair with a packet socket |
//!
//! A figure that falls short is printed, and is no error.

#![allow(clippy::disallowed_methods, reason = "a bench measures in real time")]

mod interfaces;
mod links;
mod many;
mod packets;

use std::process::{Command, ExitCode, Output, Stdio};
use std::time::Duration;

use trunkline_experiment::plan::Plan;
use trunkline_experiment::{Source, parse};
use trunkline_lab::{Host, Lab, Report};
use trunkline_units::Seed;

/// Why there is no figure: one line.
type Outcome<T> = Result<T, String>;

/// Attempts to reach a server.
const ATTEMPTS: usize = 20;

/// A figure by its name.
type Figure = (&'static str, fn() -> Outcome<()>);

const FIGURES: [Figure; 7] = [
    ("rates", links::rates),
    ("delays", links::delays),
    ("losses", links::losses),
    ("packets", packets::packets),
    ("links", many::links),
    ("starts", many::starts),
    ("interfaces", interfaces::interfaces),
];

fn main() -> ExitCode {
    // Before there is a second thread.
    let entered = trunkline_lab::enter_user_namespace().map_err(|error| error.to_string());
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let unknown = wanted.iter().find(|word| FIGURES.iter().all(|(name, _)| name != word));
    let known = unknown.map_or(Ok(()), |word| Err(format!("there is no figure {word}")));
    let done = entered.and(known).and_then(|()| {
        let mut figures =
            FIGURES.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| w == name));
        figures.try_for_each(|(_, measure)| measure())
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("accuracy: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Starts a lab of the hosts `a` and `b`.
fn start(network: &str) -> Outcome<Lab> {
    Lab::start(&plan(network, "a", "b")?, Seed(1)).map_err(|error| error.to_string())
}

/// Returns the plan of a network with a connection between two of its hosts, which a plan must have.
fn plan(network: &str, from: &str, to: &str) -> Outcome<Plan> {
    let text = format!(
        "experiment \"accuracy\" {{ network {{ {network} }} connection {{ xmt = {from}; rcv = {to}; protocol = udp; test = full; duration = 1 s; }} }}"
    );
    let parsed = parse(&Source { name: "accuracy", text: &text, folder: None });
    parsed.plan.ok_or_else(|| format!("{:?} in {text}", parsed.diagnostics))
}

fn ends(lab: &Lab) -> Outcome<(&Host, &Host)> {
    lab.host("a").zip(lab.host("b")).ok_or_else(|| "the hosts are a and b".to_owned())
}

/// Runs a program and returns its output.
fn run(command: &mut Command) -> Outcome<String> {
    let Output { status, stdout, stderr } =
        command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&stdout).into_owned();
    match status.success() {
        true => Ok(text),
        false => Err(format!("{command:?}: {text}{}", String::from_utf8_lossy(&stderr))),
    }
}

/// Runs iperf3 from `a` to `b` and returns its JSON. `server` and `client` run programs on the two hosts.
fn iperf3(
    mut server: Command,
    client: &dyn Fn() -> Command,
    arguments: &[&str],
) -> Outcome<serde_json::Value> {
    let mut server = server
        .args(["-s", "-1"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| format!("iperf3: {error}"))?;
    // Until the server listens.
    let mut result = Err("iperf3 was not tried".to_owned());
    // Until the server listens.
    for _ in 0..ATTEMPTS {
        std::thread::sleep(Duration::from_millis(100));
        result = run(client().args(arguments).arg("-J"));
        if result.is_ok() {
            break;
        }
    }
    let _ = server.kill();
    let _ = server.wait();
    let text = result?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// Returns how late packets were delivered, as text.
fn lateness(report: &Report) -> String {
    let late = |quantile: f64| report.lateness_ns.value_at_quantile(quantile) as f64 / 1e3;
    format!("late by {:.0} us p50, {:.0} us p99, {:.0} us at most", late(0.5), late(0.99), late(1.0))
}
