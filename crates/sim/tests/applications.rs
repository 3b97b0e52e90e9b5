//! Application models that wait for responses, compared with calculated values.

use crate::common::{connection, experiment, link, near, run};
use trunkline_record::Record;
use trunkline_record::schema::Connection;

/// Returns the chosen bit rates from a time on.
fn bit_rates(c: &Connection, from_s: f64, to_s: f64) -> Vec<f64> {
    let points = c.series.iter().filter(|point| (from_s..to_s).contains(&point.t_s));
    points.filter_map(|point| point.extra.get("bit_rate_bps").copied()).collect()
}

fn rpc(protocol: &str, options: &str) -> Record {
    run(&experiment(
        "host a, b; link a - b (rate = 1 Gb/s, delay = 100 us);",
        &format!(
            "protocol = {protocol}; duration = 100 s;
             test = rpc (interarrival = 1 ms, request = 64, response = 64, {options});"
        ),
    ))
}

/// A request is due every millisecond; the server stalls for 1 s every 10 s. So 10 % of the requests wait for the rest of a
/// stall, uniformly up to 1 s, and a share 0.1 · (1 − x) of all waits for longer than x seconds.
#[test]
fn the_latency_of_a_stalled_server_is_that_of_an_open_loop() {
    for (protocol, options, tolerance) in [
        ("tcp", "stall = 1 s", 2e-3),
        ("udp", "stall = 1 s", 2e-3),
        // Most requests leave after the stall, 10 at a time; that does not hide it.
        ("tcp", "stall = 1 s, maxOutstanding = 10", 3e-2),
    ] {
        let record = rpc(protocol, options);
        let x = connection(&record, "x");
        // What is still due when the time is over does not leave, and is counted.
        let due = x.counters["answers"] + x.requested.bursts_skipped as f64;
        assert_eq!((x.lost, due), (0, 100_000.0), "{protocol} {options}");
        let open = x.rtt_us.as_ref().unwrap();
        near(open.p99, 0.9e6, tolerance);
        near(open.p999, 0.99e6, tolerance);
        near(open.max, 1e6, tolerance);
        // 0.1 · 0.5 s, and the round trip of all.
        near(open.mean, 0.1 * 0.5e6 + open.p50, tolerance);
        // Two frames on the line, one of them 64 + 78 octets, and two delays.
        near(open.p50, 2.0 * (142.0 * 8.0 / 1e3 + 100.0), 0.15);
        // One request in flight: it meets each stall once.
        let closed = x.closed_loop_rtt_us.as_ref().unwrap();
        near(closed.count as f64, 90_000.0, 1e-2);
        near(closed.p99, open.p50, 0.05);
        near(closed.p999, open.p50, 0.05);
        near(closed.max, 1e6, tolerance);
    }
}

#[test]
fn without_a_stall_both_loops_agree() {
    let record = rpc("udp", "stall = 0 s");
    let x = connection(&record, "x");
    let (open, closed) = (x.rtt_us.as_ref().unwrap(), x.closed_loop_rtt_us.as_ref().unwrap());
    assert_eq!((open.count, closed.count), (100_000, 100_000));
    assert_eq!((open.p999, open.max), (closed.p999, closed.max));
}

/// 1,460 of 1,538 octets on the line are payload, and 0.9 of the throughput is used.
#[test]
fn a_dash_client_chooses_the_highest_rate_below_the_usable_throughput() {
    for (link_mbps, rate_mbps) in [(6.0, 4.3), (3.0, 2.35), (1.0, 0.75), (0.2, 0.235)] {
        let network = format!("host a, b; link a - b (rate = {link_mbps} Mb/s, delay = 10 ms);");
        let record = run(&experiment(&network, "protocol = tcp; test = video; duration = 600 s;"));
        let x = connection(&record, "x");
        let settled = bit_rates(x, 60.0, 600.0);
        assert!(settled.len() > 100 && settled.iter().all(|rate| *rate == rate_mbps * 1e6), "{settled:?}");
        let is_below_ladder = link_mbps < 0.235;
        assert_eq!(x.counters["stalls"] > 0.0, is_below_ladder, "{:?}", x.counters);
        if is_below_ladder {
            // 4 s of video take 4 s · 235 / (200 · 1,460 / 1,538), and a little more.
            let playing = 200.0 / 235.0 * 1_460.0 / 1_538.0;
            near(x.counters["stall_time_us"] / 1e6, 600.0 * (1.0 - playing), 0.1);
        }
    }
}

/// From 300 s on, another connection takes half of the link. The window of the client keeps the queue below its buffer.
#[test]
fn a_dash_client_on_a_link_that_halves_settles_at_a_rung() {
    for (adaptation, before, after) in [
        ("throughput", &[4.3e6][..], &[2.35e6][..]),
        ("buffer", &[4.3e6, 5.8e6], &[1.75e6, 2.35e6, 3e6, 4.3e6]),
    ] {
        let text = format!(
            "experiment \"t\" {{
               network {{
                 host a, b, c; switch s (buffer = 1 MB);
                 link a - s (rate = 6 Mb/s, delay = 10 ms); link b - s (rate = 100 Mb/s); link c - s (rate = 100 Mb/s);
               }}
               connection x {{
                 xmt = a; rcv = b; protocol = tcp (window = 64 KiB); duration = 1000 s;
                 test = video (adaptation = {adaptation});
               }}
               connection other {{
                 xmt = c; rcv = a; protocol = udp; delay = 500 s; duration = 500 s;
                 test = cbr (messagesize = 1434, period = 4 ms);
               }}
             }}"
        );
        let record = run(&text);
        let x = connection(&record, "x");
        assert_eq!(connection(&record, "other").lost, 0);
        let (first, second) = (bit_rates(x, 300.0, 500.0), bit_rates(x, 700.0, 1000.0));
        assert!(first.len() > 30 && first.iter().all(|rate| before.contains(rate)), "{first:?}");
        assert!(second.len() > 50 && second.iter().all(|rate| after.contains(rate)), "{second:?}");
        assert_eq!(x.counters["stalls"], 0.0);
    }
}

/// Packets of at most 1,200 octets with 66 of headers.
#[test]
fn a_webrtc_sender_settles_below_the_rate_of_its_link() {
    for (link_mbps, loss) in [(0.5, 0.0), (1.0, 0.0), (2.0, 0.0), (1.0, 0.01)] {
        let network =
            format!("host a, b; link a - b (rate = {link_mbps} Mb/s, delay = 20 ms, loss = {loss});");
        let record = run(&experiment(&network, "protocol = udp; test = webrtc; duration = 300 s;"));
        let x = connection(&record, "x");
        let rates = bit_rates(x, 60.0, 300.0);
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let usable = link_mbps * 1e6 * 1_200.0 / 1_266.0;
        assert!((0.8..1.0).contains(&(mean / usable)), "{mean} of {usable} on {link_mbps} Mb/s");
        // Each decrease is to 0.85 of what arrived.
        assert!(rates.iter().all(|rate| (0.6..1.2).contains(&(rate / usable))), "{rates:?}");
        // What is lost is lost on the line.
        assert_eq!(link(&record, "a-b").dropped_queue, Some(0));
        assert_eq!(x.lost > 0, loss > 0.0);
        assert!(x.rtt_us.as_ref().unwrap().p50 < 100e3, "{:?}", x.rtt_us);
    }
}

/// A page is a main object and 9 embedded ones, each requested when the one before has arrived. On a connection whose window
/// has grown, an object takes a round trip, the request on the line, and the segments of the object on the line.
#[test]
fn the_time_of_a_web_page_is_as_calculated() {
    const OBJECT: f64 = 30_000.0;
    const SEGMENT_HEADERS: f64 = 78.0;
    let segments = (OBJECT / 1_460.0_f64).ceil();
    let octets = 350.0 + SEGMENT_HEADERS + OBJECT + segments * SEGMENT_HEADERS;
    for mbps in [1.0, 10.0, 100.0] {
        let network = format!("host a, b; link a - b (rate = {mbps} Mb/s, delay = 10 ms);");
        let test = "www (request = 350, main = 30 kB, embedded = 30 kB, objects = 9, parse = 0, objectGap = 0, reading = 100 ms)";
        let record =
            run(&experiment(&network, &format!("protocol = tcp; test = {test}; duration = 1000 s;")));
        let x = connection(&record, "x");
        let page_s = x.counters["page_time_us"] / x.counters["pages"] / 1e6;
        let expected = 10.0 * (0.02 + octets * 8.0 / (mbps * 1e6));
        near(page_s, expected, 0.01);
        near(x.counters["pages"], 1000.0 / (expected + 0.1), 0.02);
    }
}
