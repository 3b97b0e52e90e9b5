//! Application models over simulated networks.

use crate::common::{connection, experiment, near, run};
use trunkline_record::schema::{Connection, FitOutcome};

const NETWORK: &str = "host a, b; link a - b (rate = 100 Mb/s, delay = 2 ms);";

/// Checks that everything that left, and everything that arrived, follows its law. A correct run fails once in a thousand laws.
fn follows(c: &Connection, names: &[&str]) {
    for fits in [&c.requested.variables, &c.requested.received] {
        for fit in fits {
            assert!(
                fit.p_value.is_none_or(|p| p > 1e-3),
                "{}: {} {}: {:?}",
                c.name,
                fit.name,
                fit.law,
                fit.p_value
            );
            assert_eq!(fit.outcome.is_some(), fit.p_value.is_some(), "{}", fit.name);
        }
        assert!(fits.iter().map(|fit| fit.name.as_str()).eq(names.iter().copied()), "{}: {fits:?}", c.name);
    }
}

#[test]
fn what_leaves_and_what_arrives_follows_the_model() {
    for protocol in ["udp", "tcp", "guaranteed"] {
        let test = "voice (talk = exponential(100 ms), silence = weibull(50 ms, 0.9), \
                    frame = truncated(lognormal(90 B, 30 B), 40 B, 200 B)); duration = 200 s;";
        let record = run(&experiment(NETWORK, &format!("protocol = {protocol}; test = {test}")));
        let x = connection(&record, "x");
        follows(x, &["talk", "silence", "frame", "period"]);
        assert_eq!((x.lost, x.counters["items_differing"]), (0, 0.0), "{protocol}");
        assert!(x.requested.variables.iter().all(|fit| fit.samples > 1_000), "{:?}", x.requested.variables);
    }
}

#[test]
fn frames_games_and_sensors_follow_their_models() {
    for (test, names) in [
        ("mpeg (sceneLength = 2)", &["iFrame", "pFrame", "bFrame"][..]),
        ("videoconference (model = dar, correlation = 0.5)", &["frame"]),
        ("game (profile = tgaxDown)", &["size", "interarrival"]),
        ("xr (frame = truncated(normal(2 kB, 200 B), 1 kB, 3 kB))", &["frame", "jitter"]),
        ("sensor (arrivals = beta, period = 12 s, sources = 200)", &["jitter"]),
    ] {
        for protocol in ["udp", "tcp"] {
            let record = run(&experiment(
                NETWORK,
                &format!("protocol = {protocol}; test = {test}; duration = 120 s;"),
            ));
            let x = connection(&record, "x");
            follows(x, names);
            assert_eq!((x.lost, x.counters["items_differing"]), (0, 0.0), "{test}");
            assert!(x.requested.received.iter().all(|fit| fit.samples > 140), "{test}");
        }
    }
}

#[test]
fn a_receiver_that_misses_messages_still_judges_the_others() {
    let network = "host a, b; link a - b (rate = 100 Mb/s, delay = 2 ms, loss = 0.02);";
    let test = "telnet (sessionInterarrival = exponential(500 ms), itemInterarrival = exponential(100 ms), \
                nOfItems = exponential(20), itemSize = exponential(60 B)); duration = 300 s;";
    let record = run(&experiment(network, &format!("protocol = udp; test = {test}")));
    let x = connection(&record, "x");
    let received = &x.requested.received;
    assert!(x.lost > 100 && x.counters["items_differing"] == 0.0);
    assert!(received.iter().all(|fit| fit.outcome == Some(FitOutcome::Follows)), "{received:?}");
    // A loss hides the item and the times that it ends or begins.
    let samples = |fits: &[trunkline_record::schema::Fit], name: &str| {
        fits.iter().find(|fit| fit.name == name).map_or(0, |fit| fit.samples)
    };
    let sent = samples(&x.requested.variables, "itemInterarrival") as f64;
    near(samples(received, "itemInterarrival") as f64 / sent, 0.98 * 0.98, 0.01);
}

#[test]
fn long_items_are_split_and_compared_as_a_whole() {
    let test = "ftp (itemSize = truncated(pareto(0.9, 10 kB), 10 kB, 1 MB), itemGap = 1 s, nOfItems = 2, \
                sessionInterarrival = 5 s, messagesize = 1400); duration = 500 s;";
    for protocol in ["udp", "tcp"] {
        let record = run(&experiment(NETWORK, &format!("protocol = {protocol}; test = {test}")));
        let x = connection(&record, "x");
        follows(x, &["sessionInterarrival", "itemSize", "itemGap"]);
        assert_eq!((x.lost, x.counters["items_differing"], x.counters["sessions"]), (0, 0.0, 101.0));
        let [sent, received] = [&x.requested.variables, &x.requested.received]
            .map(|fits| fits.iter().find(|fit| fit.name == "itemSize").unwrap());
        assert_eq!((sent.samples, received.samples), (200, 200));
        assert_eq!(sent.sent_mean, received.sent_mean, "every byte of every item");
        let messages = 200.0 * sent.sent_mean / 1_400.0;
        assert!((messages..messages + 200.0).contains(&(x.messages_sent as f64)), "{}", x.messages_sent);
        // The messages of an item leave back to back.
        assert_eq!(x.sent_gap_us.as_ref().unwrap().p50, 0.0);
    }
}

#[test]
fn sessions_beyond_the_limit_are_counted() {
    let test = "ftp (maxSessions = 2, nOfItems = 5, itemGap = 1 s, itemSize = 100 B, \
                sessionInterarrival = 1 s); duration = 100 s;";
    let record = run(&experiment(NETWORK, &format!("protocol = udp; test = {test}")));
    let counters = &connection(&record, "x").counters;
    assert!(counters["sessions_refused"] > 40.0 && counters["sessions"] > 30.0, "{counters:?}");
}

#[test]
fn the_time_of_a_web_page_is_as_calculated() {
    // One main object of 100 kB, three embedded ones of 20 kB, one after the other. A segment of 1460 bytes is 1538 on the wire.
    for (rate_mbps, tolerance) in [(1.0, 0.02), (10.0, 0.02), (100.0, 0.05)] {
        let network = format!("host a, b; link a - b (rate = {rate_mbps} Mb/s, delay = 10 us);");
        let test = "www (main = 100 kB, embedded = 20 kB, objects = 3, objectGap = 0 s, reading = 100 ms); duration = 60 s;";
        let protocol = "tcp (delayed_ack = off, window = 256 kB)";
        let record = run(&experiment(&network, &format!("protocol = {protocol}; test = {test}")));
        let x = connection(&record, "x");
        let page_us = x.counters["page_time_us"] / x.counters["pages"];
        let bytes = (100e3 + 3.0 * 20e3) * 1538.0 / 1460.0 + 4.0 * (350.0 + 78.0);
        let expected = bytes * 8.0 / rate_mbps + 4.0 * 2.0 * 10.0;
        near(page_us, expected, tolerance);
        assert!(x.counters["pages"] > 20.0 && x.rtt_us.is_some());
        // What arrived at the requester.
        assert_eq!(x.counters["answer_bytes"], x.counters["pages"] * 160e3 + partial_page(x));
    }
}

/// Bytes of the page that the end of the test cut.
fn partial_page(c: &Connection) -> f64 {
    let objects = c.counters["answers"] - 4.0 * c.counters["pages"];
    if objects > 0.0 { 100e3 + (objects - 1.0) * 20e3 } else { 0.0 }
}
