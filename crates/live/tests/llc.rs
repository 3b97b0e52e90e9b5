//! LLC over UDP on the loopback, with the same test body as in the simulator.

#[path = "../../sim/tests/bodies/llc.rs"]
mod bodies;

use std::collections::BTreeMap;
use std::path::PathBuf;

use trunkline_experiment::{Plan, Source, parse};
use trunkline_live::{Live, Threads};
use trunkline_run::{Backend, NoProgress, RunOptions, StopFlag};
use trunkline_units::Seed;

fn plan(text: &str) -> Plan {
    let parsed = parse(&Source { name: "test.ns", text, folder: None });
    parsed.plan.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics))
}

fn live(token: bool) {
    let text = bodies::text(token);
    let mut live = Live::new(Box::new(Threads), BTreeMap::new());
    let plan = plan(&text);
    assert_eq!(live.refuse(&plan), []);
    let options = RunOptions {
        seed: Seed(7),
        started_at: String::new(),
        text,
        folder: PathBuf::new(),
        out: std::env::temp_dir(),
        stop: StopFlag::default(),
    };
    bodies::check(&live.run(&plan, &options, &mut NoProgress), token);
}

#[test]
fn messages_arrive_once_and_outcomes_are_reported() {
    live(false);
}

#[test]
fn messages_arrive_once_with_a_token() {
    live(true);
}

#[test]
fn unsupported_llc_plans_are_refused() {
    let at = BTreeMap::from([("a".to_owned(), "127.0.0.1".parse().unwrap())]);
    let refusals = Live::new(Box::new(Threads), at).refuse(&plan(
        "experiment { parallel {
            connection x { xmt = a; rcv = b; protocol = llc; test = full (messagesize = 1498); }
            connection y { xmt = a; rcv = b; protocol = llc (sap = 6, crc = on); test = full (messagesize = 1493); }
            connection z { xmt = a; rcv = b; protocol = llc (sap = 8); test = file (path = \"x\"); }
        } }",
    ));
    let texts: Vec<&str> = refusals.iter().map(|r| r.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "x: a message of 1498 B does not fit into a frame: the maximum is 1497 B",
            "z: `live` has no test `file` over llc",
            "--at a: `live` supports LLC stations only on the loopback",
        ]
    );
}

/// The delay of a real link is unknown in advance, but it is known that no bound exists.
#[test]
fn a_limit_without_a_bound_is_refused() {
    let refusals = |full: &str| {
        let text = format!(
            "experiment {{ parallel {{
                connection x {{ xmt = a; rcv = b; protocol = llc (priority = 6, token = on, limit = 1 us); test = cbr (messagesize = 100, period = 10 ms); }}
                connection y {{ xmt = b; rcv = a; protocol = llc (sap = 6, token = on, priority = {full}); test = full; }}
            }} }}"
        );
        Live::new(Box::new(Threads), BTreeMap::new()).refuse(&plan(&text))
    };
    let refused = refusals("6");
    assert!(
        refused.len() == 1 && refused[0].text.starts_with("x: no limit can be promised with y: "),
        "{refused:?}"
    );
    assert_eq!(refusals("3"), []);
}
