//! Application models that wait for responses, over sockets.

use trunkline_record::schema::Connection;

use crate::support::run;

fn connection(protocol: &str, test: &str, seconds: u32) -> Connection {
    let text = format!(
        "experiment \"t\" {{ connection x {{ xmt = a; rcv = b; protocol = {protocol}; test = {test}; duration = {seconds} s; }} }}"
    );
    let mut record = run(&text);
    assert_eq!(record.problems, Vec::<String>::new());
    record.connections.remove(0)
}

/// 30 % of the requests wait, for up to 300 ms: a fifth for more than 100 ms, on every machine.
#[test]
fn a_stall_of_the_server_is_in_the_latency_of_an_open_loop() {
    for protocol in ["tcp", "udp"] {
        let test = "rpc (interarrival = 10 ms, stall = 300 ms, stallEvery = 1 s)";
        let x = connection(protocol, test, 3);
        let (open, closed) = (x.rtt_us.unwrap(), x.closed_loop_rtt_us.unwrap());
        let answered = x.counters["answers"];
        assert_eq!(open.count as f64, answered);
        assert_eq!(answered + x.requested.bursts_skipped as f64 + x.lost as f64, 300.0, "{protocol}");
        assert!(open.p90 > 150e3 && open.max > 250e3, "{protocol}: {open:?}");
        // A closed loop sends nothing meanwhile.
        assert!(closed.count < open.count && closed.mean < open.mean, "{protocol}: {closed:?} {open:?}");
    }
}

/// Requests and responses that fit into no buffer: a requester that only writes and a server that only writes would wait for each
/// other.
#[test]
fn long_requests_and_long_responses_pass_each_other() {
    let text = "experiment \"t\" { connection x { xmt = a; rcv = b; protocol = tcp (window = 64 kB); \
                test = rpc (interarrival = 2 ms, request = 4 MB, response = 4 MB, maxOutstanding = 8, \
                messagesize = 4 MB); messages = 6; } }";
    let record = run(text);
    assert_eq!(record.problems, Vec::<String>::new());
    let x = &record.connections[0];
    assert_eq!((x.messages_received, x.counters["answers"], x.counters["answer_bytes"]), (6, 6.0, 24e6));
}

/// Segments of 5 MB, far longer than a message of other tests.
#[test]
fn a_dash_client_receives_long_segments() {
    let test =
        "video (ladder = 4 Mb/s : 40 Mb/s, start = 40 Mb/s, segment = 1 s, maxBuffer = 2 s, startup = 1 s)";
    let x = connection("tcp", test, 3);
    let segments = x.counters["segments"];
    assert!(segments >= 1.0 && x.counters["answers"] == segments, "{:?}", x.counters);
    assert!(x.counters["answer_bytes"] / segments > 250e3, "{:?}", x.counters);
    assert!(x.series.iter().any(|point| point.extra.contains_key("bit_rate_bps")));
}

#[test]
fn a_webrtc_sender_receives_reports() {
    let x = connection("udp", "webrtc", 2);
    assert!(x.counters["reports"] >= 2.0, "{:?}", x.counters);
    assert!(x.counters["mean_bit_rate_bps"] >= 50e3 && x.closed_loop_rtt_us.is_none());
    // The reports have counts: without them all would look lost, and the rate would be the lowest.
    let first = x.series.iter().filter_map(|point| point.extra.get("bit_rate_bps")).nth(1);
    assert!(first.is_some_and(|rate| *rate > 250e3), "{first:?}");
}
