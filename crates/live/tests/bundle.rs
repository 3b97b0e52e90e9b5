//! Bundle converters on the loopback, with the same test body as in the simulator.

#[path = "../../sim/tests/bodies/bundle.rs"]
mod bodies;

use std::collections::BTreeMap;
use std::io::Write;

use crate::support::{plan, run, stopped_after};
use bodies::SEGMENTS;
use trunkline_live::{Live, Threads};
use trunkline_record::Record;
use trunkline_run::Backend;

/// Runs an experiment and checks that every message is accounted for. A receiver that does not get the processor loses
/// datagrams when its socket buffer is full; they are counted.
fn run_and_account(text: &str) -> Record {
    let record = run(text);
    for c in &record.connections {
        let context = format!("{}: {:?}", c.name, c.counters);
        assert_eq!(c.messages_received + c.lost, c.messages_sent * c.to.len() as u64, "{context}");
        assert_eq!((c.duplicated, c.corrupted, c.partial), (0, 0, false), "{context}");
    }
    record
}

/// Returns whether datagrams were dropped at a full socket buffer or not sent, because the machine was too busy.
fn is_starved(record: &Record) -> bool {
    let counts = record.hosts.iter().flat_map(|host| &host.interfaces);
    counts
        .filter(|(name, _)| ["bundle.overflow", "bundle.unsent"].contains(&name.as_str()))
        .any(|(_, n)| *n > 0)
}

/// Prints to the standard error stream, bypassing the capture of the test runner.
fn report_skipped(claim: &str) {
    let _ = writeln!(
        std::io::stderr(),
        "skipped: this machine was too busy in each of three runs; {claim} in none"
    );
}

/// Returns the first good run of three, or `None` if the machine was too busy in each of them.
fn one_of_three<T>(
    run: impl Fn() -> T,
    is_good: impl Fn(&T) -> bool,
    is_starved: impl Fn(&T) -> bool,
) -> Option<T> {
    let mut starved = 0;
    for _ in 0..3 {
        let record = run();
        if is_good(&record) {
            return Some(record);
        }
        starved += u32::from(is_starved(&record));
    }
    assert_eq!(starved, 3, "none of three runs is good, and the machine was not too busy in all of them");
    None
}

#[test]
fn losses_of_a_busy_machine_fail_no_test() {
    let first_good = |runs: [(bool, bool); 3]| {
        let remaining = std::cell::RefCell::new(runs.into_iter());
        one_of_three(|| remaining.borrow_mut().next().unwrap(), |run| run.0, |run| run.1)
    };
    let (good, starved, bad) = ((true, false), (false, true), (false, false));
    assert_eq!(first_good([bad, starved, good]), Some(good));
    assert_eq!(first_good([starved; 3]), None);
    assert!(std::panic::catch_unwind(|| first_good([starved, bad, starved])).is_err());
}

#[test]
fn subscribers_receive_messages_except_their_own() {
    for (timers, is_wide) in [("classic", false), ("adaptive", false), ("adaptive", true)] {
        let network = SEGMENTS.replace("(role", &format!("(timers = {timers}, role"));
        let network = if is_wide { network.replace("(timers", "(format = wide, timers") } else { network };
        let text = bodies::text(&network, 2);
        let is_complete = |record: &Record| record.connections.iter().all(|c| c.lost == 0);
        match one_of_three(|| run_and_account(&text), is_complete, is_starved) {
            Some(record) => bodies::check(&record, is_wide),
            None => report_skipped("all messages arrive"),
        }
    }
}

/// All losses are refusals of a host's interface and drops of the converters, and none has priority.
#[test]
fn congestion_losses_are_counted() {
    let capacity = "capacity = 400 kb/s, role = central";
    let network = SEGMENTS.replace("role = central", capacity);
    let flow = |name: &str, from: &str, to: &str, address: u32, rate: u32| {
        format!(
            "connection {name} {{ xmt = {from}; rcv = {to}; protocol = bundle (address = {address});
               test = cbr (messagesize = 150, period = {} ms); duration = 2 s; }}",
            1_000 / rate
        )
    };
    let flows = [
        flow("ordinary", "router", "h1, h2", 0, 500),
        flow("urgent", "router", "h1, h2", 65, 20),
        flow("local", "h3", "h1", 128, 100),
    ];
    let text = format!("experiment \"t\" {{ network {{ {network} }} parallel {{ {} }} }}", flows.concat());
    let dropped = |record: &Record, cause: &str| -> u64 {
        let counts = record.hosts.iter().flat_map(|host| &host.interfaces);
        counts
            .filter(|(name, _)| name.starts_with("bundle.dropped.") && name.ends_with(cause))
            .map(|(_, n)| n)
            .sum()
    };
    // A busy machine loses datagrams too, or sends less than requested.
    let is_due_to_converters = |record: &Record| {
        let [ordinary, urgent, local] = &record.connections[..] else { panic!("{:?}", record.connections) };
        let refused = local.counters["bundle_congested"] as u64;
        let by_converters = dropped(record, ".congestion") - refused;
        assert_eq!(dropped(record, ".priority"), 0);
        let is_congested = by_converters > 0 && refused > 0;
        is_congested && urgent.lost == 0 && ordinary.lost / 2 + local.lost == by_converters + refused
    };
    if one_of_three(|| run_and_account(&text), is_due_to_converters, is_starved).is_none() {
        report_skipped("only converters drop messages");
    }
}

#[test]
fn a_stop_ends_the_converters() {
    let has_counters = |record: &Record, name: &str| {
        record.hosts.iter().any(|h| h.name == name && h.interfaces.contains_key("bundle.malformed"))
    };
    // On a busy machine not all may have started before the stop: retry with a later one.
    let has_all_counters = [750, 6_000, 45_000].into_iter().any(|ms| {
        let record = stopped_after(ms, &bodies::text(SEGMENTS, 3_600));
        assert!(record.partial && record.duration_s < 600.0, "{:?}", record.problems);
        ["c1a", "c1b", "c2", "h1", "h2", "h3"].into_iter().all(|name| has_counters(&record, name))
    });
    assert!(has_all_counters, "the counters of all are in the record");
}

#[test]
fn unsupported_bundle_plans_are_refused() {
    let connections = "parallel {
        connection y { xmt = router; rcv = h1; protocol = bundle (address = 2); test = poisson (messagesize = 65501, rate = 1 /s); }
        connection z { xmt = router; rcv = h1; protocol = bundle (address = 4); test = cbr (messagesize = 31, period = 1 s); }
    }";
    let network = SEGMENTS;
    let at = BTreeMap::from([("h1".to_owned(), "127.0.0.1".parse().unwrap())]);
    let texts = |text: &str, at: BTreeMap<_, _>| -> Vec<String> {
        let refusals = Live::new(Box::new(Threads), at).refuse(&plan(text));
        refusals.into_iter().map(|refusal| refusal.text).collect()
    };
    assert_eq!(
        texts(&format!("experiment {{ network {{ {network} }} {connections} }}"), at),
        [
            "y: a message of 65501 B does not fit into a bundle: the maximum is 65500 B",
            "z: a message of 31 B is too small: 32 B carry sequence number, send time and check",
            "--at h1: `live` supports converters and their hosts only on the loopback",
        ]
    );
    let text = format!("experiment {{ network {{ {} }} {connections} }}", bodies::with_format2(SEGMENTS));
    assert_eq!(
        texts(&text, BTreeMap::new())[0],
        "y: a message of 65501 B does not fit into a bundle: the maximum is 1404 B"
    );
    let without_network = "experiment { connection x { xmt = a; rcv = b; protocol = bundle (address = 0); test = cbr (messagesize = 100, period = 1 s); } }";
    assert_eq!(texts(without_network, BTreeMap::new()), ["x: bundles need the converters of a `network`"]);
}
