//! Explicit rates on ATM links, as an experiment sees them.

#[path = "bodies/explicit_rates.rs"]
mod body;

use trunkline_models::atm::abr::max_min_shares;
use trunkline_record::Record;
use trunkline_record::schema::Connection;
use trunkline_run::Backend as _;
use trunkline_sim::Sim;
use trunkline_units::Rate;

use crate::common::{connection, link, near, plan, run};

/// Cells of the DS3 line between the switches, and what a host can send.
const LINE: Rate = Rate::from_bps(40_704_000);
const HOST: Rate = Rate::from_bps(149_760_000);
/// Ten round trips from a source to the receiver and back.
const TEN_ROUND_TRIPS_S: f64 = 10.0 * 2.0 * 3.5e-3;
/// Time in which the slowest source sends the two packets that wait at its host when it ends.
const DRAIN_S: f64 = 2.0 * 8_300.0 * 8.0 / 4e6;

/// Three senders to one receiver over a slower line between two switches, with a controlling host beside the first.
fn three_to_one(explicit_rate: &str, connections: &str) -> String {
    format!(
        "experiment \"t\" {{ network {{ host a, b, c, d, k (send_queue = 2 packets);
           switch s, t (buffer = 4000 cells, latency = 4 us);
           link a - s (medium = atm, rate = 155 Mb/s, delay = 1 ms, mtu = 9180 B);
           link b - s (medium = atm, rate = 155 Mb/s, mtu = 9180 B);
           link c - s (medium = atm, rate = 155 Mb/s, delay = 500 us, mtu = 9180 B);
           link k - s (medium = atm, rate = 155 Mb/s, mtu = 9180 B);
           link s - t (medium = atm, rate = 45 Mb/s, delay = 2 ms, mtu = 9180 B{explicit_rate});
           link t - d (medium = atm, rate = 155 Mb/s, delay = 500 us, mtu = 9180 B); }} {connections} }}"
    )
}

/// `a` sends all the time, `b` from 0.2 to 0.8 s, and `c` at most 5 Mb/s from 0.4 to 0.6 s.
const JOIN_AND_LEAVE: &str = "
    connection a { xmt = a; rcv = d; protocol = udp; test = full (messagesize = 8192); duration = 1 s; }
    connection b { xmt = b; rcv = d; protocol = udp; test = full (messagesize = 8192); delay = 200 ms; duration = 600 ms; }
    connection c { xmt = c; rcv = d; protocol = udp; test = full (messagesize = 8192); delay = 400 ms; duration = 200 ms;
      peak = 5 Mb/s; }";
const CHANGES_S: [f64; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0];

/// Returns the intervals of a connection's series that lie between two times of the run, given its start.
fn allowed(c: &Connection, start_s: f64, from_s: f64, to_s: f64) -> Vec<f64> {
    let step = c.series[0].t_s;
    let is_inside = |end: f64| start_s + end - step >= from_s && start_s + end <= to_s;
    c.series
        .iter()
        .filter(|point| is_inside(point.t_s))
        .filter_map(|point| point.extra.get("allowed_bps").copied())
        .collect()
}

/// Compares the allowed rates with the max–min shares of the active sources, ten round trips after each change.
fn compare(record: &Record, line: Rate, tolerance: f64) {
    let sources = [("a", 0.0, 1.0, HOST), ("b", 0.2, 0.8, HOST), ("c", 0.4, 0.6, Rate::from_bps(5_000_000))];
    for period in CHANGES_S.windows(2) {
        let active: Vec<_> =
            sources.iter().filter(|(_, from, to, _)| *from <= period[0] && *to >= period[1]).collect();
        let flows: Vec<(Rate, Vec<usize>)> =
            active.iter().map(|(_, _, _, demand)| (*demand, vec![0])).collect();
        let shares = max_min_shares(&[line], &flows);
        for ((name, start, _, _), share) in active.iter().zip(shares) {
            let c = connection(record, name);
            let rates = allowed(c, *start, period[0] + DRAIN_S + TEN_ROUND_TRIPS_S, period[1]);
            assert!(rates.len() >= 2, "{name} {period:?}: {rates:?}, {:?}", c.series);
            for rate in rates {
                assert!(
                    (rate / share - 1.0).abs() <= tolerance,
                    "{name} {period:?}: {rate} instead of {share}"
                );
            }
        }
    }
}

#[test]
fn datagrams_and_guaranteed_messages_share_a_slow_line() {
    body::check(&run(body::TEXT));
}

#[test]
fn sources_that_join_and_leave_get_their_max_min_shares() {
    let record = run(&three_to_one(", explicit_rate = controller (host = k)", JOIN_AND_LEAVE));
    compare(&record, LINE, 0.05);
    let dropped = link(&record, "s-t").dropped;
    let without = run(&three_to_one("", JOIN_AND_LEAVE));
    assert_eq!(
        (dropped, link(&without, "s-t").dropped > 10_000),
        (0, true),
        "nothing is lost, unlike without"
    );
    for c in &record.connections {
        assert_eq!((c.lost, c.messages_received), (0, c.messages_sent), "{}", c.name);
        assert!(c.counters["rm_cells_sent"] >= 2.0 && c.counters["rm_cells_received"] >= 1.0, "{c:?}");
    }
    // Requests and answers cross the links of their sources and of the controlling host, but not the line.
    let rm_cells = |name| link(&record, name).rm_cells.unwrap();
    assert!(rm_cells("a-s") > 0 && rm_cells("b-s") > 0);
    // The last requests may not have arrived.
    let sources = rm_cells("a-s") + rm_cells("b-s") + rm_cells("c-s");
    assert!(rm_cells("k-s") <= sources && sources <= rm_cells("k-s") + 3, "{sources}");
    assert_eq!(rm_cells("s-t"), 0);
}

#[test]
fn erica_in_the_switch_comes_near_its_share_of_the_line() {
    let rates = ", explicit_rate = erica (utilization = 0.9, interval = 1 ms)";
    let record = run(&three_to_one(rates, JOIN_AND_LEAVE));
    compare(&record, Rate::from_bps(LINE.as_bps() * 9 / 10), 0.15);
    assert!(link(&record, "s-t").rm_cells.unwrap() > 500, "its cells cross the line");
}

#[test]
fn a_slow_source_loses_at_its_host_and_delays_no_other() {
    // Two flows of one host: one with a rate of 2 Mb/s that offers 10, one that may use the rest of its link.
    let connections = "
        connection slow { xmt = a; rcv = d; protocol = udp; test = burst (messagesize = 1250, period = 1 ms);
          duration = 500 ms; peak = 2 Mb/s; }
        connection fast { xmt = a; rcv = d; protocol = udp; test = full (messagesize = 8192); duration = 500 ms; }";
    let record = run(&three_to_one(", explicit_rate = controller (host = k)", connections));
    let (slow, fast) = (connection(&record, "slow"), connection(&record, "fast"));
    assert!(slow.messages_sent < 150, "{} of 500", slow.messages_sent);
    assert_eq!((slow.lost, fast.lost), (0, 0));
    let cell_share = 48.0 / 53.0;
    near(fast.received_bps, (LINE.as_bps() as f64 - 2e6) * cell_share, 0.05);
}

#[test]
fn tcp_obeys_its_rate_and_loses_nothing() {
    let connections = "
        connection a { xmt = a; rcv = d; protocol = tcp (congestion = cubic); test = full (messagesize = 64 kB); duration = 1 s; }
        connection b { xmt = b; rcv = d; protocol = udp; test = full (messagesize = 8192); duration = 1 s; }";
    let record = run(&three_to_one(", explicit_rate = controller (host = k)", connections));
    let (a, b) = (connection(&record, "a"), connection(&record, "b"));
    assert_eq!((link(&record, "s-t").dropped, a.counters["retransmissions"]), (0, 0.0));
    // Later TCP sends what waits in its socket buffer.
    let received = |c: &Connection| -> f64 {
        let points = c.series.iter().filter(|point| (0.3..0.9).contains(&point.t_s));
        points.map(|point| point.received_bps).sum()
    };
    near(received(a), received(b), 0.05);
}

#[test]
fn what_cannot_obey_is_refused() {
    let refusals = |text: &str| -> Vec<String> {
        Sim::default().refuse(&plan(text)).into_iter().map(|refusal| refusal.text).collect()
    };
    let group =
        "connection m { xmt = a; rcv = b, c; protocol = multicast (group = 239.1.1.1); test = full; }";
    assert_eq!(
        refusals(&three_to_one(", explicit_rate = erica", group)),
        ["m: explicit rates are for channels from one host to one host; link s-t has explicit rates"]
    );
    let udp = "connection x { xmt = a; rcv = d; protocol = udp; test = full; duration = 1 ms; }";
    let text = three_to_one(", explicit_rate = erica", udp);
    let refused = refusals(&text.replace("link a - s (medium = atm", "link a - s (medium = ppp"));
    assert_eq!(
        refused,
        [
            "x: a source that obeys explicit rates sends cells; link s-t has explicit rates, and a has no link of ATM there"
        ]
    );
    let refused = refusals(&text.replace("delay = 1 ms", "reorder = 0.1"));
    assert_eq!(refused, ["`sim` has no `duplicate` or `reorder` beside explicit rates: link a-s"]);
}
