//! Every test over every protocol: `check` accepts what a backend runs, and only that.

use std::collections::BTreeMap;
use std::path::Path;

use trunkline_experiment::{Parsed, Plan, Source, parse_with_recordings, render, support};
use trunkline_live::{Live, Threads};
use trunkline_run::{Backend, NoProgress, RunOptions, StopFlag};
use trunkline_sim::Sim;
use trunkline_traffic::application::MODELS;
use trunkline_traffic::{Pattern, Recording, RecordingRequest};
use trunkline_units::Seed;

const TESTS: &[&str] = &[
    "full (messagesize = 200)",
    "cbr (messagesize = 200, period = 10 ms)",
    "burst (messagesize = 200, period = 10 ms)",
    "random (messagesize = 200, minPeriod = 5 ms, maxPeriod = 10 ms)",
    "poisson (messagesize = 200, rate = 100 /s)",
    "stairs (messagesize = 200, rates = 100 kb/s : 200 kb/s, hold = 100 ms)",
    "request (request = 100, response = 200)",
    "file (path = \"data.bin\", messagesize = 200)",
    "replay (path = \"recorded.csv\")",
];
const PROTOCOLS: &[&str] = &[
    "tcp",
    "udp",
    "multicast (group = 239.1.1.1)",
    "llc",
    "llc (type = 3)",
    "guaranteed",
    "bundle (address = 2)",
    "stamp",
    "quic",
    "quic (datagrams = on)",
];
const NETWORK: &str = "host a, b; link a - b (rate = 10 Mb/s, delay = 1 ms);";
const CONVERTERS: &str = "host b; host a (wide_area = on); hub lan (rate = 100 Mb/s);
    converter c1 (role = level1, number = 1); converter c2 (role = central);
    link a - lan; link c1 - lan; link c2 - lan; link b - lan;";

fn tests() -> Vec<String> {
    let models = MODELS.iter().map(|model| match model.name {
        // Its packets must fit into a message.
        "webrtc" => "webrtc (packet = 200, messagesize = 200)".to_owned(),
        name => format!("{name} (messagesize = 200)"),
    });
    TESTS.iter().map(|test| (*test).to_owned()).chain(models).collect()
}

fn protocols() -> impl Iterator<Item = &'static str> {
    PROTOCOLS.iter().copied().filter(|protocol| cfg!(feature = "quic") || !protocol.starts_with("quic"))
}

fn text(protocol: &str, test: &str) -> String {
    let network = if protocol.starts_with("bundle") { CONVERTERS } else { NETWORK };
    let stop = if test.starts_with("file") { "messages = 20" } else { "duration = 100 ms" };
    format!(
        "experiment \"t\" {{ network {{ {network} }}
         connection x {{ xmt = a; rcv = b; protocol = {protocol}; test = {test}; {stop}; }} }}"
    )
}

fn recording(_: &RecordingRequest) -> Result<Recording, String> {
    Ok(Recording::new((0..20).map(|i| (i * 10_000_000, 200)).collect()).unwrap())
}

fn check(text: &str) -> Parsed {
    parse_with_recordings(&Source { name: "test.ns", text, folder: None }, &recording)
}

fn plan(protocol: &str, test: &str) -> Plan {
    let text = text(protocol, test);
    let parsed = check(&text);
    parsed.plan.unwrap_or_else(|| panic!("{text}\n{:#?}", parsed.diagnostics))
}

/// Runs a plan in the simulator for its 100 ms; returns what went wrong.
fn simulate(plan: &Plan, folder: &Path) -> Vec<String> {
    let options = RunOptions {
        seed: Seed(1),
        text: String::new(),
        started_at: String::new(),
        folder: folder.into(),
        out: folder.into(),
        stop: StopFlag::default(),
    };
    Sim::default().run(plan, &options, &mut NoProgress).problems
}

#[test]
fn check_accepts_what_a_backend_runs() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data.bin"), [7; 1000]).unwrap();
    let patterns: Vec<(String, Pattern)> = tests()
        .into_iter()
        // Every test runs over TCP.
        .map(|test| (test.clone(), plan("tcp", &test).connections.remove(0).test))
        .collect();
    let mut accepted = 0;
    for protocol in protocols() {
        let mut of_protocol = plan(protocol, TESTS[1]);
        for (test, pattern) in &patterns {
            of_protocol.connections[0].test = pattern.clone();
            let name = format!("{test} over {protocol}");
            let live = Live::new(Box::new(Threads), BTreeMap::new()).refuse(&of_protocol);
            let sim = Sim::default().refuse(&of_protocol);
            let runs = support(pattern, &of_protocol.connections[0].protocol);
            assert_eq!((live.is_empty(), sim.is_empty()), (runs.live, runs.sim), "{name}: {live:?} {sim:?}");
            let text = text(protocol, test);
            let parsed = check(&text);
            let errors = render(&Source { name: "", text: &text, folder: None }, &parsed.diagnostics, false);
            match parsed.plan {
                Some(plan) => {
                    assert!(runs.live || runs.sim, "{name}");
                    let problems = if runs.sim { simulate(&plan, folder.path()) } else { Vec::new() };
                    assert_eq!(problems, Vec::<String>::new(), "{name}");
                    accepted += 1;
                }
                None => {
                    assert!(!runs.live && !runs.sim, "{name}: {errors}");
                    // It marks the word of the test, or its option.
                    let at = parsed.diagnostics[0].location;
                    assert!(text[at.start..at.end].starts_with(|c: char| c.is_alphabetic()), "{errors}");
                    assert!(text[..at.end].contains("test = "), "{errors}");
                }
            }
        }
    }
    assert!(accepted > 100, "{accepted}");
}

#[test]
fn the_page_has_the_table() {
    let page = include_str!("../../../docs/language.md");
    assert!(
        page.contains(&trunkline_experiment::support::table()),
        "{}",
        trunkline_experiment::support::table()
    );
}
