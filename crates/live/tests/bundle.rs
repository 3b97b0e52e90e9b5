//! The bundle converter on the loopback: the same body as in the simulator.

#![allow(clippy::disallowed_methods, reason = "what is tested runs in real time")]

#[path = "../../sim/tests/bodies/bundle.rs"]
mod bodies;
mod support;

use std::collections::BTreeMap;
use std::io::Write;

use bodies::SEGMENTS;
use support::{plan, run, stopped_after};
use trunkline_live::{Live, Threads};
use trunkline_record::Record;
use trunkline_run::Backend;

/// A run that closes: a machine that has no time for a receiver loses what finds its buffer full, and counts it.
fn closed(text: &str) -> Record {
    let record = run(text);
    for c in &record.connections {
        let told = format!("{}: {:?}", c.name, c.counters);
        assert_eq!(c.messages_received + c.lost, c.messages_sent * c.to.len() as u64, "{told}");
        assert_eq!((c.duplicated, c.corrupted, c.partial), (0, 0, false), "{told}");
    }
    record
}

/// Datagrams that found a socket's buffer full, or were not sent: the machine had no time, and messages are lost by that.
fn is_starved(record: &Record) -> bool {
    let counts = record.hosts.iter().flat_map(|host| &host.interfaces);
    counts
        .filter(|(name, _)| ["bundle.overflow", "bundle.unsent"].contains(&name.as_str()))
        .any(|(_, n)| *n > 0)
}

/// Says it also where what tests print is kept.
fn skipped(what: &str) {
    let _ = writeln!(
        std::io::stderr(),
        "skipped: this machine had no time in each of three runs; {what} in none"
    );
}

/// The first of three that is good. None if the machine starved each of them: then there is nothing to be told from them.
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
    assert_eq!(starved, 3, "none of three runs is as it should be, and not all of them lacked time");
    None
}

#[test]
fn what_a_machine_without_time_loses_fails_no_test() {
    let of = |runs: [(bool, bool); 3]| {
        let left = std::cell::RefCell::new(runs.into_iter());
        one_of_three(|| left.borrow_mut().next().unwrap(), |run| run.0, |run| run.1)
    };
    let (good, starved, bad) = ((true, false), (false, true), (false, false));
    assert_eq!(of([bad, starved, good]), Some(good));
    assert_eq!(of([starved; 3]), None);
    assert!(std::panic::catch_unwind(|| of([starved, bad, starved])).is_err());
}

#[test]
fn who_wants_it_gets_it_and_nobody_hears_himself() {
    for (timers, is_wide) in [("classic", false), ("adaptive", false), ("adaptive", true)] {
        let network = SEGMENTS.replace("(role", &format!("(timers = {timers}, role"));
        let network = if is_wide { network.replace("(timers", "(format = wide, timers") } else { network };
        let text = bodies::text(&network, 2);
        let whole = |record: &Record| record.connections.iter().all(|c| c.lost == 0);
        match one_of_three(|| closed(&text), whole, is_starved) {
            Some(record) => bodies::check(&record, is_wide),
            None => skipped("all arrives"),
        }
    }
}

/// What the interface of a host did not take and what converters dropped is all that is lost, and none of it had priority.
#[test]
fn what_congestion_costs_is_counted() {
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
    let dropped = |record: &Record, way: &str| -> u64 {
        let counts = record.hosts.iter().flat_map(|host| &host.interfaces);
        counts
            .filter(|(name, _)| name.starts_with("bundle.dropped.") && name.ends_with(way))
            .map(|(_, n)| n)
            .sum()
    };
    // A machine that has no time loses datagrams too, or does not send as much as was asked.
    let is_of_converters = |record: &Record| {
        let [ordinary, urgent, local] = &record.connections[..] else { panic!("{:?}", record.connections) };
        let refused = local.counters["bundle_congested"] as u64;
        let by_converters = dropped(record, ".congestion") - refused;
        assert_eq!(dropped(record, ".priority"), 0);
        let is_congested = by_converters > 0 && refused > 0;
        is_congested && urgent.lost == 0 && ordinary.lost / 2 + local.lost == by_converters + refused
    };
    if one_of_three(|| closed(&text), is_of_converters, is_starved).is_none() {
        skipped("converters alone drop");
    }
}

#[test]
fn a_stop_ends_what_bundles() {
    let counted = |record: &Record, name: &str| {
        record.hosts.iter().any(|h| h.name == name && h.interfaces.contains_key("bundle.malformed"))
    };
    // On a machine that stands still not all may be at work when it is asked to stop: then later.
    let is_whole = [750, 6_000, 45_000].into_iter().any(|ms| {
        let record = stopped_after(ms, &bodies::text(SEGMENTS, 3_600));
        assert!(record.partial && record.duration_s < 600.0, "{:?}", record.trouble);
        ["c1a", "c1b", "c2", "h1", "h2", "h3"].into_iter().all(|name| counted(&record, name))
    });
    assert!(is_whole, "what was counted is kept");
}

#[test]
fn what_bundles_live_cannot_do_is_refused() {
    let connections = "parallel {
        connection x { xmt = router; rcv = h1; protocol = bundle (address = 0); test = full; }
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
            "x: `live` has no test `full` over bundle",
            "y: a message of 65501 B does not go into a bundle: at most 65500 B do",
            "z: a message of 31 B is too small: 32 B carry sequence number, send time and check",
            "--at h1: `live` has its converters and their hosts on the loopback only",
        ]
    );
    let text = format!("experiment {{ network {{ {} }} {connections} }}", bodies::wide(SEGMENTS));
    assert_eq!(
        texts(&text, BTreeMap::new())[1],
        "y: a message of 65501 B does not go into a bundle: at most 1404 B do"
    );
    let alone = "experiment { connection x { xmt = a; rcv = b; protocol = bundle (address = 0); test = cbr (messagesize = 100, period = 1 s); } }";
    assert_eq!(texts(alone, BTreeMap::new()), ["x: bundles need the converters of a `network`"]);
}
