//! Queue disciplines with the TCP of today: L4S in DualPI2 beside classic traffic (RFC 9332), and the targets of the others.

use trunkline_record::Record;
use trunkline_record::schema::LinkQueue;

use crate::common::{connection, experiment, link, near, run};

const TEXT: &str = include_str!("../../../experiments/dualpi2.ns");

/// Runs the first half of the experiment with changes of its text.
fn changed(changes: &[(&str, &str)]) -> Record {
    let mut text = TEXT.replace("duration = 30 s", "duration = 15 s");
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    run(&text)
}

fn rate(record: &Record, name: &str) -> f64 {
    connection(record, name).received_bps / 1e6
}

/// Returns how much longer than the path's 20 ms the round trips take: median and 99th percentile, in ms.
fn queueing_ms(record: &Record, name: &str) -> (f64, f64) {
    let rtt = connection(record, name).rtt_us.as_ref().expect("round trips");
    (rtt.p50 / 1e3 - 20.0, rtt.p99 / 1e3 - 20.0)
}

fn bottleneck(record: &Record) -> &LinkQueue {
    link(record, "s-t").queues.iter().find(|queue| queue.name == "s").expect("a queue")
}

/// The L4S queue keeps its delay near 1 ms beside a classic flow, which keeps its target of 15 ms and its share. Both fill the
/// line: of 40 Mb/s 37.7 Mb/s are payload. The coupling makes the shares: with a quarter of it the classic flow starves.
#[test]
fn dual_pi2_couples_prague_and_cubic() {
    for classic in ["congestion = cubic", "congestion = cubic, ecn = on"] {
        let record = changed(&[("congestion = cubic", classic)]);
        let (x, y) = (rate(&record, "x"), rate(&record, "y"));
        assert!(x + y > 36.5, "{x} and {y}");
        assert!((0.5..2.0).contains(&(x / y)), "{x} and {y}, {classic}");
        let (median, most) = queueing_ms(&record, "x");
        assert!(median < 1.5 && most < 3.0, "{median} ms and {most} ms, {classic}");
        let (median, _) = queueing_ms(&record, "y");
        assert!((9.0..22.0).contains(&median), "{median} ms, {classic}");
    }
    let record = changed(&[("queue = dualpi2", "queue = dualpi2 (coupling = 0.5)")]);
    let (x, y) = (rate(&record, "x"), rate(&record, "y"));
    assert!(x / y > 2.3, "{x} and {y}");
}

/// Flows of 5 ms and 20 ms have the same virtual round trip. DCTCP, which has none, is in the classic queue: it sends ECT(0).
#[test]
fn prague_shares_independently_of_short_round_trips() {
    let record = changed(&[("9.5 ms", "2 ms"), ("congestion = cubic", "congestion = prague")]);
    let (x, y) = (rate(&record, "x"), rate(&record, "y"));
    assert!((0.6..1.4).contains(&(x / y)) && x + y > 30.0, "{x} and {y}");
    let sojourn = bottleneck(&record).sojourn_us.as_ref().expect("packets");
    assert!(sojourn.p50 < 1_000.0 && sojourn.p99 < 2_000.0, "{sojourn:?}");
}

/// Without Accurate ECN at the peer, Prague is classic TCP: in the classic queue, as fast as the other flow.
#[test]
fn prague_without_its_feedback_is_classic() {
    let record = changed(&[("congestion = prague", "congestion = prague, ecn = on")]);
    let (median, _) = queueing_ms(&record, "x");
    assert!((9.0..22.0).contains(&median), "{median} ms");
    let (x, y) = (rate(&record, "x"), rate(&record, "y"));
    assert!((0.4..2.5).contains(&(x / y)), "{x} and {y}");
}

/// RFC 8289 section 3.3: in a queue that stays overloaded the n-th drop comes `interval`/√n after the one before.
#[test]
fn codel_drops_more_and_more_often_in_overload() {
    let network = "host a, b; switch s (buffer = 20000 packets); link a - s (rate = 100 Mb/s); \
                   link s - b (rate = 10 Mb/s, medium = ppp, queue = codel);";
    // 20.2 Mb/s of packets for 8 s. The first is dropped when the delay was above 5 ms for 100 ms.
    let record = run(&experiment(
        network,
        "protocol = udp; test = cbr (messagesize = 1232, period = 500 us); duration = 8 s;",
    ));
    let dropped = link(&record, "s-b").queues.iter().map(|queue| queue.dropped_early).sum::<u64>();
    // Until the queue is empty it stays overloaded: 1,260 bytes take 1.01 ms.
    let (mut at, mut expected, mut queued) = (0.11, 0u64, 0.0);
    while at < 16.0 && queued >= 0.0 {
        expected += 1;
        at += 0.1 / (expected as f64).sqrt();
        let sent = at / (1268.0 * 8.0 / 10e6);
        queued = (at / 500e-6).min(16_000.0) - sent - expected as f64;
    }
    near(dropped as f64, expected as f64, 0.02);
}

/// FQ-CoDel: flows of other round trips, controllers and packet lengths get the same rate.
#[test]
fn fq_codel_is_fair_to_round_trips_and_packet_lengths() {
    let flows = [(5, 1500, "cubic"), (40, 1500, "newreno"), (10, 576, "cubic"), (20, 576, "newreno")];
    let (mut network, mut connections) = (String::new(), String::new());
    for (n, (delay, mtu, congestion)) in flows.iter().enumerate() {
        network += &format!(
            "host a{n}, b{n}; link a{n} - s (rate = 100 Mb/s, delay = {delay} ms, mtu = {mtu} B); \
             link t - b{n} (rate = 100 Mb/s, mtu = {mtu} B); "
        );
        connections += &format!(
            "connection x{n} {{ xmt = a{n}; rcv = b{n}; protocol = tcp (congestion = {congestion}); \
             test = full (messagesize = 1024); duration = 20 s; }} "
        );
    }
    let shares = |queue: &str| {
        let record = run(&format!(
            "experiment \"t\" {{ network {{ switch s (buffer = 1000 packets); switch t; {network} \
             link s - t (rate = 20 Mb/s, queue = {queue}); }} parallel {{ {connections} }} }}"
        ));
        let shares: Vec<f64> = (0..flows.len()).map(|n| rate(&record, &format!("x{n}"))).collect();
        let jain = shares.iter().sum::<f64>().powi(2) / (4.0 * shares.iter().map(|x| x * x).sum::<f64>());
        (jain, shares)
    };
    let ((fair, fair_shares), (common, shares)) = (shares("fq-codel"), shares("codel"));
    assert!(fair >= 0.98, "{fair}: {fair_shares:?}");
    assert!(common < 0.95, "{common}: {shares:?}");
}

/// The delay of PIE is its target; the average queue of RED is between its thresholds.
#[test]
fn pie_and_red_keep_their_targets() {
    let both =
        [("congestion = prague", "congestion = cubic"), ("congestion = cubic", "congestion = newreno")];
    for target in [10, 20] {
        let queue = format!("queue = pie (target = {target} ms)");
        let record = changed(&[both[0], both[1], ("queue = dualpi2", &queue)]);
        let sojourn = bottleneck(&record).sojourn_us.as_ref().expect("packets");
        near(sojourn.p50 / 1e3, f64::from(target), 0.35);
        assert!(rate(&record, "x") + rate(&record, "y") > 36.0);
    }
    let queue = "queue = red (min = 30 packets, max = 90 packets, probability = 0.002)";
    let record = changed(&[both[0], both[1], ("queue = dualpi2", queue)]);
    let sojourn = bottleneck(&record).sojourn_us.as_ref().expect("packets");
    let packets = sojourn.mean / (1538.0 * 8.0 / 40.0);
    assert!((30.0..90.0).contains(&packets), "{packets}");
    assert!(bottleneck(&record).dropped_early > 20 && bottleneck(&record).dropped_full == 0);
}
