//! QUIC in simulated time.

use crate::common::{connection, experiment, link, plan, run, run_by, run_with};
use trunkline_run::Backend as _;
use trunkline_sim::Sim;

/// A link of 20 Mb/s and 10 ms that loses 5 % of the packets and reorders as many.
const BAD: &str = "host a, b; link a - b (rate = 20 Mb/s, delay = 10 ms, loss = 0.05, reorder = 0.05);";
/// One that loses nothing.
const GOOD: &str = "host a, b; link a - b (rate = 10 Mb/s, delay = 5 ms);";

#[test]
fn everything_arrives_on_a_bad_link() {
    for seed in 0..5 {
        for (options, congestion) in [("", "cubic"), (", streams = 4", "reno")] {
            let protocol = format!("protocol = quic (congestion = {congestion}{options});");
            let test = "test = full (messagesize = 20 kB); messages = 60;";
            let record = run_with(&experiment(BAD, &format!("{protocol} {test}")), seed);
            let c = connection(&record, "x");
            assert_eq!(c.error, None, "seed {seed}");
            assert_eq!((c.messages_sent, c.messages_received, c.lost, c.corrupted), (60, 60, 0, 0), "{seed}");
            let counter = |name: &str| c.counters[name];
            assert!(counter("packets_lost") > 0.0 && counter("bytes_lost") > 0.0, "{:?}", c.counters);
            assert!(counter("congestion_events") > 0.0 && counter("handshake_us") > 20_000.0);
            if options.is_empty() {
                assert_eq!(c.reordered, 0, "seed {seed}");
            }
        }
    }
}

#[test]
fn the_link_limits_the_rate() {
    for congestion in ["cubic", "reno"] {
        let protocol = format!("protocol = quic (congestion = {congestion}, window = 100 kB);");
        let record = run(&experiment(GOOD, &format!("{protocol} test = full; duration = 10 s;")));
        let c = connection(&record, "x");
        // Of 1,480 bytes of IP, QUIC's packets carry about 1,420 bytes of the stream.
        let share = c.received_bps / 10e6;
        assert!((0.92..0.97).contains(&share), "{congestion}: {share}");
        assert_eq!((c.counters["packets_lost"], c.counters["congestion_events"]), (0.0, 0.0));
        assert_eq!((c.lost, link(&record, "a-b").dropped), (0, 0));
        assert_eq!((c.counters["quic_mtu_bytes"], c.counters["black_holes"]), (1452.0, 0.0));
        // 100 kB take 80 ms on the link.
        let rtt = c.rtt_us.clone().unwrap().p50;
        assert!((70_000.0..100_000.0).contains(&rtt), "{rtt}");
        let cwnd = c.series.iter().filter(|point| point.extra.contains_key("cwnd_bytes")).count();
        assert!(cwnd > 50, "{cwnd} samples");
    }
}

#[test]
fn paced_messages_arrive_when_they_are_sent() {
    let test = "protocol = quic; test = cbr (messagesize = 500 B, period = 10 ms); duration = 2 s;";
    let record = run(&experiment(GOOD, test));
    let c = connection(&record, "x");
    assert_eq!((c.messages_sent, c.messages_received), (200, 200));
    let delay = c.delay_us.clone().unwrap();
    assert!((5_000.0..6_500.0).contains(&delay.p50), "{delay:?}");
}

#[test]
fn requests_are_answered() {
    for options in ["", "(streams = 3)", "(datagrams = on)"] {
        let test = "test = request (request = 100 B, response = 1000 B); messages = 50;";
        let record = run(&experiment(GOOD, &format!("protocol = quic {options}; {test}")));
        let c = connection(&record, "x");
        assert_eq!((c.messages_sent, c.messages_received, c.lost), (50, 50, 0), "{options}");
        let rtt = c.rtt_us.clone().unwrap();
        assert!((10_000.0..13_000.0).contains(&rtt.p50), "{options}: {rtt:?}");
    }
}

#[test]
fn datagrams_may_be_lost() {
    let test =
        "protocol = quic (datagrams = on); test = cbr (messagesize = 1162, period = 2 ms); messages = 2000;";
    let record = run(&experiment(BAD, test));
    let c = connection(&record, "x");
    assert_eq!((c.messages_sent, c.messages_received + c.lost, c.error.as_deref()), (2000, 2000, None));
    assert!((60..140).contains(&c.lost), "{}", c.lost);
    let good = run(&experiment(GOOD, test));
    assert_eq!(connection(&good, "x").lost, 0);
}

#[test]
fn equal_seeds_give_equal_traces() {
    let text = experiment(BAD, "protocol = quic (streams = 2); test = full; duration = 1 s;");
    let [one, two, other] = [1, 1, 2].map(|seed| run_with(&text, seed));
    assert_eq!(one.environment["trace_hash"], two.environment["trace_hash"]);
    assert_eq!(one.connections, two.connections);
    assert_ne!(one.environment["trace_hash"], other.environment["trace_hash"]);
}

#[test]
fn captures_of_equal_runs_have_equal_bytes() {
    let text = experiment(BAD, "protocol = quic; test = full; duration = 100 ms;");
    let capture = || {
        let folder = tempfile::tempdir().unwrap();
        let sim = Sim { trace: vec!["a-b".into()], ..Sim::default() };
        let record = run_by(sim, folder.path(), &text, 1);
        assert!(!record.partial, "{:?}", record.problems);
        let file = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        std::fs::read(file).unwrap()
    };
    let one = capture();
    assert!(one.len() > 50_000 && one == capture());
}

#[test]
fn a_small_mtu_and_bbr_are_refused() {
    let small = "host a, b; link a - b (rate = 10 Mb/s, mtu = 1227 B);";
    let record = run(&experiment(small, "protocol = quic; test = full; duration = 1 s;"));
    let error = connection(&record, "x").error.clone().unwrap();
    assert!(error.contains("MTU of 1228 B"), "{error}");
    let exact = "host a, b; link a - b (rate = 10 Mb/s, mtu = 1228 B);";
    let record = run(&experiment(exact, "protocol = quic; test = full; duration = 1 s;"));
    let c = connection(&record, "x");
    assert_eq!((c.error.as_deref(), c.lost, c.counters["quic_mtu_bytes"]), (None, 0, 1200.0));
    assert!(c.counters["mtu_probes_lost"] > 0.0 && c.counters["packets_lost"] == 0.0, "{:?}", c.counters);
    let text = experiment(GOOD, "protocol = quic (congestion = bbr); test = full; duration = 1 s;");
    let refusals = Sim::default().refuse(&plan(&text));
    assert!(refusals.len() == 1 && refusals[0].text.contains("bbr"), "{refusals:?}");
}
