//! LLC on the loopback, over UDP: the same body as in the simulator.

#![allow(clippy::disallowed_methods, reason = "what is tested runs in real time")]

#[path = "../../sim/tests/bodies/llc.rs"]
mod bodies;

use std::collections::BTreeMap;
use std::path::PathBuf;

use trunkline_experiment::{Plan, Source, parse};
use trunkline_live::{Live, Threads};
use trunkline_run::{Backend, Order, Stop, Unwatched};
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
    let order = Order {
        seed: Seed(7),
        started: String::new(),
        text,
        folder: PathBuf::new(),
        out: std::env::temp_dir(),
        stop: Stop::default(),
    };
    bodies::check(&live.run(&plan, &order, &mut Unwatched), token);
}

#[test]
fn messages_come_once_and_what_became_of_them_is_told() {
    live(false);
}

#[test]
fn and_with_a_token() {
    live(true);
}

#[test]
fn what_a_station_cannot_carry_is_refused() {
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
            "x: a message of 1498 B does not go into a frame: at most 1497 B do",
            "z: `live` has no test `file` over llc yet",
            "--at a: `live` has its LLC stations on the loopback only",
        ]
    );
}

/// What a real line takes is not known before; that there is no bound whatever it takes, is.
#[test]
fn a_limit_beside_what_promises_nothing_is_refused() {
    let refusals = |full: &str| {
        let text = format!(
            "experiment {{ parallel {{
                connection x {{ xmt = a; rcv = b; protocol = llc (priority = 6, token = on, limit = 1 us); test = cbr (messagesize = 100, period = 10 ms); }}
                connection y {{ xmt = b; rcv = a; protocol = llc (sap = 6, token = on, priority = {full}); test = full; }}
            }} }}"
        );
        Live::new(Box::new(Threads), BTreeMap::new()).refuse(&plan(&text))
    };
    let said = refusals("6");
    assert!(said.len() == 1 && said[0].text.starts_with("x: no limit can be promised with y: "), "{said:?}");
    assert_eq!(refusals("3"), []);
}
