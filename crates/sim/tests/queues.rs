//! Queue disciplines, shapers, changing links and links from traces in whole runs.

use trunkline_record::Record;
use trunkline_record::schema::LinkQueue;

use crate::common::{connection, experiment, link, near, run, run_with};

/// Returns the queue of a node at its end of a link.
fn queue<'r>(record: &'r Record, name: &str, node: &str) -> &'r LinkQueue {
    let queues = &link(record, name).queues;
    queues.iter().find(|queue| queue.name == node).unwrap_or_else(|| panic!("no queue of {node} at {name}"))
}

fn sojourn_p50_us(record: &Record) -> f64 {
    queue(record, "s-b", "s").sojourn_us.as_ref().expect("frames were sent").p50
}

/// Hosts that send through a bottleneck of 10 Mb/s with a round trip of 40 ms, with these options.
fn bottleneck(options: &str, connections: &str) -> String {
    format!(
        "experiment \"t\" {{ network {{
            host a, a2, a3, a4, b; switch s (buffer = 400 packets);
            link a - s (rate = 100 Mb/s); link a2 - s (rate = 100 Mb/s);
            link a3 - s (rate = 100 Mb/s); link a4 - s (rate = 100 Mb/s);
            link s - b (rate = 10 Mb/s, delay = 20 ms{options});
        }} parallel {{ {connections} }} }}"
    )
}

const BULK: &str = "connection x { xmt = a; rcv = b; protocol = tcp (window = 1 MB, timers = fine);
    test = full (messagesize = 8192); duration = 20 s; }";

#[test]
fn an_explicit_queue_runs_like_the_fast_path() {
    for extra in ["", ", loss = 0.01, reorder = 0.01"] {
        let fast = run(&bottleneck(extra, BULK));
        let explicit = run(&bottleneck(&format!("{extra}, queue = droptail"), BULK));
        assert_eq!(explicit.environment["trace_hash"], fast.environment["trace_hash"]);
        assert_eq!(connection(&explicit, "x").messages_received, connection(&fast, "x").messages_received);
        let (explicit, fast) = (link(&explicit, "s-b"), link(&fast, "s-b"));
        assert_eq!((explicit.dropped, explicit.queue_max), (fast.dropped, fast.queue_max));
        assert!(fast.queues.is_empty());
        assert_eq!(explicit.queues.iter().map(|q| &q.name[..]).collect::<Vec<_>>(), ["s", "b"]);
    }
}

#[test]
fn codel_keeps_the_queue_short_where_tail_drop_fills_it() {
    let tail = run(&bottleneck(", queue = droptail", BULK));
    let codel = run(&bottleneck(", queue = codel", BULK));
    let (full, short) = (sojourn_p50_us(&tail), sojourn_p50_us(&codel));
    assert!(full > 100e3, "the median of tail drop is {full} us");
    assert!(short < 10e3, "the median of CoDel is {short} us");
    let (dropped, tail_dropped) = (queue(&codel, "s-b", "s"), queue(&tail, "s-b", "s"));
    assert!(dropped.dropped_early > 10 && tail_dropped.dropped_early == 0, "{dropped:?}");
    assert_eq!(link(&codel, "s-b").dropped_queue, Some(dropped.dropped_early + dropped.dropped_full));
    // Reno with one flow and a queue below its round trip loses some throughput, not much.
    let (received, rate) = (connection(&codel, "x").received_bps, 9.2e6);
    assert!(received > 0.75 * rate, "{received}");
}

#[test]
fn fq_codel_separates_a_sparse_flow_from_bulk_flows() {
    let flows: String = (1..=4)
        .map(|n| {
            let host = ["a", "a2", "a3", "a4"][n - 1];
            // Each with another window, and so with another share of a common queue.
            format!(
                "connection x{n} {{ xmt = {host}; rcv = b; protocol = tcp (window = {n}00 kB, timers = fine);
                 test = full (messagesize = 8192); duration = 20 s; }} "
            )
        })
        .collect();
    let sparse = "connection call { xmt = a; rcv = b; protocol = udp;
        test = cbr (messagesize = 172, period = 20 ms); duration = 20 s; }";
    let all = format!("{flows}{sparse}");
    let fair = run(&bottleneck(", queue = fq-codel", &all));
    let shares: Vec<f64> = (1..=4).map(|n| connection(&fair, &format!("x{n}")).received_bps).collect();
    let jain = shares.iter().sum::<f64>().powi(2) / (4.0 * shares.iter().map(|x| x * x).sum::<f64>());
    assert!(jain >= 0.99, "{jain}: {shares:?}");
    let call = connection(&fair, "call");
    let delay = call.delay_us.as_ref().expect("messages");
    assert_eq!(call.lost, 0);
    // 20 ms of propagation, a frame or two before it; more if bulk flows that CoDel has emptied are new again.
    assert!(delay.p90 < 23e3 && delay.max < 27e3, "{} and {}", delay.p90, delay.max);
    let common = run(&bottleneck("", &all));
    assert!(connection(&common, "call").delay_us.as_ref().expect("messages").p50 > 100e3);
}

/// A connection over UDP that sends 1,000 messages a second with a DSCP.
pub fn flow(name: &str, host: &str, dscp: &str) -> String {
    format!(
        "connection {name} {{ xmt = {host}; rcv = b; protocol = udp; dscp = {dscp};
         test = cbr (messagesize = 972, period = 1 ms); duration = 5 s; }} "
    )
}

#[test]
fn the_dscp_selects_the_class() {
    // Each offers 8.3 Mb/s.
    let both = flow("x", "a", "AF11") + &flow("y", "a2", "EF");
    let record = run(&bottleneck(", queue = priority", &both));
    assert_eq!(connection(&record, "y").lost, 0);
    assert!(connection(&record, "x").lost > 1000);
    assert!(connection(&record, "y").delay_us.as_ref().expect("messages").max < 25e3);
    let record = run(&bottleneck(", queue = drr (weights = EF (1) : AF11 (3))", &both));
    let received = |name: &str| connection(&record, name).messages_received as f64;
    // While both are backlogged; the begin and the end differ a little.
    near(received("x") / received("y"), 3.0, 0.15);
    // Marks of the connection are in the captures and in the record.
    assert_eq!(connection(&record, "x").notes["dscp"], "AF11");
}

#[test]
fn a_link_changes_at_the_given_times() {
    let text = |changes: &str| {
        format!(
            "experiment \"t\" {{ network {{ host a, b; link a - b (rate = 10 Mb/s, delay = 1 ms); }} {changes}
             connection x {{ xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 1000, period = 10 ms);
             duration = 10 s; }} }}"
        )
    };
    // The order of the text does not matter; of two at one time the later counts.
    let record = run(&text(
        "at 6 s set link b - a (loss = 0.5); at 2 s set link a - b (delay = 1 ms); at 2 s set link a - b (delay = 50 ms);
         at 4 s set link a - b (delay = 1 ms, rate = 1 Mb/s); at 8 s set link a - b (loss = 0, rate = 10 Mb/s);",
    ));
    let x = connection(&record, "x");
    assert!((80..120).contains(&x.lost), "{}", x.lost);
    assert_eq!((x.reordered, link(&record, "a-b").lost_line), (0, Some(x.lost)));
    let delay = x.delay_us.as_ref().expect("messages");
    assert!(delay.max > 50e3 && delay.max < 52e3 && delay.p50 < 11e3, "{delay:?}");

    // A link that is down keeps what fits the queue of the host, and the host waits.
    let record = run(&text("at 2 s set link a - b (down); at 4 s set link a - b (up);"));
    let x = connection(&record, "x");
    assert_eq!((x.lost, x.reordered, x.messages_received), (0, 0, 1000));
    near(x.delay_us.as_ref().expect("messages").max, 2e6, 0.01);
    // A change that comes to nothing changes nothing, and one after the end does not prolong the run.
    let same = run(&text("at 0 s set link a - b (up); at 1000 s set link a - b (down);"));
    let plain = run(&text(""));
    assert_eq!(same.environment["trace_hash"], plain.environment["trace_hash"]);
    assert_eq!(same.duration_s, plain.duration_s);
}

#[test]
fn a_shaper_and_a_policer_keep_their_rate() {
    let cbr = "protocol = udp; test = cbr (messagesize = 972, period = 1 ms); duration = 10 s;";
    let network = |options: &str| {
        format!(
            "host a, b; switch s (buffer = 10000 packets); link a - s (rate = 100 Mb/s); link s - b (rate = 100 Mb/s, {options});"
        )
    };
    // 8 Mb/s of packets of 1,000 bytes.
    let record = run(&experiment(&network("shape = 4 Mb/s : 10 kB"), cbr));
    assert_eq!(connection(&record, "x").lost, 0);
    near(record.duration_s, 20.0, 0.01);
    let record = run(&experiment(&network("police = 4 Mb/s : 10 kB"), cbr));
    let policed = queue(&record, "s-b", "s").policed;
    assert_eq!(policed, connection(&record, "x").lost);
    assert!((4985..=4995).contains(&policed), "{policed}");
}

#[test]
fn random_drops_depend_on_the_seed_only() {
    let bulk = BULK.replace("20 s", "5 s");
    for discipline in ["red", "codel", "fq-codel", "pie", "priority", "drr"] {
        let text = bottleneck(&format!(", queue = {discipline}"), &bulk);
        let hash = |seed| run_with(&text, seed).environment["trace_hash"].clone();
        assert_eq!(hash(1), hash(1), "{discipline}");
        let is_random = ["red", "pie"].contains(&discipline);
        assert_eq!(hash(1) != hash(2), is_random, "{discipline}");
    }
}
