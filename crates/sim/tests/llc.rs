//! LLC stations in the simulator compared with calculated values.

use crate::common::{connection, experiment, host, near, plan, run, run_with};
use trunkline_record::schema::Connection;
use trunkline_run::Backend as _;
use trunkline_sim::Sim;

const LINK: &str = "host a, b; link a - b (rate = 10 Mb/s, delay = 10 us);";
const HUB: &str = "host a, b, c; hub m (rate = 10 Mb/s, delay = 2 us); link a - m; link b - m; link c - m;";
const SWITCH: &str = "host a, b, c; switch m; link a - m (rate = 10 Mb/s, delay = 5 us); link b - m (rate = 10 Mb/s, delay = 5 us);
    link c - m (rate = 10 Mb/s);";
const RING: &str =
    "host a, b, c; ring m; link a - m (mtu = 2046 B); link b - m (mtu = 2046 B); link c - m (mtu = 2046 B);";

/// Returns the maximum delay of a connection, us.
fn max_delay(c: &Connection) -> f64 {
    c.delay_us.as_ref().unwrap_or_else(|| panic!("{c:?}")).max
}

/// Returns the time of an Ethernet frame at 10 Mb/s, us: 42 bytes of framing with tag and gap, and the padded PDU.
fn frame(message: f64) -> f64 {
    ((message + 3.0).max(46.0) + 42.0) * 0.8
}

fn refusals(text: &str) -> Vec<String> {
    Sim::default().refuse(&plan(text)).into_iter().map(|refusal| refusal.text).collect()
}

/// The same test body as for the live backend.
#[test]
fn messages_arrive_once_and_outcomes_are_reported() {
    for token in [false, true] {
        crate::bodies::llc::check(&run(&crate::bodies::llc::text(token)), token);
    }
}

#[test]
fn message_delay_is_as_calculated() {
    for (network, size, crc, expected) in [
        (LINK, 100.0, "off", frame(100.0) + 10.0),
        (LINK, 100.0, "on", frame(104.0) + 10.0),
        (LINK, 1497.0, "off", frame(1497.0) + 10.0),
        (LINK, 2.0, "off", frame(2.0) + 10.0),
        (SWITCH, 100.0, "off", 2.0 * frame(100.0) + 10.0),
        // The inter-frame gap follows the frame.
        (HUB, 100.0, "off", frame(100.0) - 12.0 * 0.8 + 2.0),
        (HUB, 1497.0, "off", frame(1497.0) - 12.0 * 0.8 + 2.0),
    ] {
        let connection_of = format!(
            "protocol = llc (crc = {crc}); test = cbr (messagesize = {size}, period = 10 ms); messages = 50;"
        );
        let record = run(&experiment(network, &connection_of));
        let x = connection(&record, "x");
        assert_eq!(
            (x.messages_sent, x.messages_received, x.lost, x.partial),
            (50, 50, 0, false),
            "{network}"
        );
        assert_eq!((x.counters["llc_done"], x.counters["llc_tries"]), (50.0, 50.0));
        near(max_delay(x), expected, 1e-3);
    }
}

#[test]
fn a_ring_carries_longer_frames_than_ethernet() {
    let test = "protocol = llc; test = cbr (messagesize = 2043, period = 10 ms); messages = 50;";
    let record = run(&experiment(RING, test));
    let x = connection(&record, "x");
    assert_eq!((x.messages_received, x.received_bps.round()), (50, (2043.0f64 * 8.0 / 0.01).round()));
    // 21 bytes of framing, and the time until the token arrives.
    let least = (2046.0 + 21.0) * 0.8;
    assert!((least..least + 10.0).contains(&max_delay(x)), "{}", max_delay(x));
    let longer = experiment(RING, &test.replace("2043", "2044"));
    assert_eq!(
        refusals(&longer),
        ["x: a message of 2044 B does not fit into a frame: the maximum is 2043 B where the mtu is 2046 B"]
    );
}

#[test]
fn full_speed_fills_the_link() {
    for network in [LINK, HUB, SWITCH] {
        let record =
            run(&experiment(network, "protocol = llc; test = full (messagesize = 1400); duration = 1 s;"));
        let x = connection(&record, "x");
        assert_eq!(x.lost, 0);
        near(x.received_bps, 10e6 * 1400.0 * 0.8 / frame(1400.0), 0.01);
    }
}

#[test]
fn acknowledged_messages_arrive_once_and_outcomes_are_reported() {
    for loss in [0.0, 0.2] {
        let network = format!("host a, b; link a - b (rate = 10 Mb/s, delay = 10 us, loss = {loss});");
        let record = run(&experiment(
            &network,
            "protocol = llc (type = 3, tries = 4, timeout = 2 ms); test = cbr (messagesize = 100, period = 20 ms); messages = 2000;",
        ));
        let x = connection(&record, "x");
        let of = |name: &str| x.counters[name] as u64;
        assert_eq!((x.messages_sent, x.duplicated, x.reordered, x.partial), (2000, 0, 0, false));
        assert_eq!(of("llc_done") + of("llc_unanswered"), 2000);
        // Acknowledged messages have arrived once; others may have.
        assert!((of("llc_done")..=2000).contains(&x.messages_received), "{x:?}");
        if loss == 0.0 {
            assert_eq!((of("llc_done"), of("llc_tries"), x.lost), (2000, 2000, 0));
            // The response is a status octet in the shortest frame. The first message is preceded by a sequence number exchange.
            near(x.rtt_us.as_ref().unwrap().p50, frame(100.0) + frame(1.0) + 20.0, 0.01);
        } else {
            // Each of four attempts fails in 36 of 100 cases: 1.7 % in total, and as many sequence number exchanges.
            assert!((10..100).contains(&of("llc_unanswered")), "{x:?}");
            near(of("llc_tries") as f64 / 2000.0, 1.5, 0.1);
            assert_eq!(of("llc_tries_max"), 4);
        }
    }
}

/// Seven lower priorities send long messages at full speed from the same host; an urgent message is sent now and then.
#[test]
fn an_urgent_message_waits_for_at_most_one_packet() {
    for (network, hop) in [(LINK, 10.0), (HUB, 2.0), (SWITCH, 10.0), (RING, 10.0)] {
        let lower: String = (0..7)
            .map(|p| format!("connection l{p} {{ xmt = a; rcv = b; protocol = llc (priority = {p}); test = full (messagesize = 1400); duration = 2 s; }}"))
            .collect();
        let text = format!(
            "experiment \"t\" {{ network {{ {network} }} parallel {{ {lower}
               connection x {{ xmt = a; rcv = b; protocol = llc (priority = 7);
                 test = poisson (messagesize = 100, rate = 50 /s); duration = 2 s; }} }} }}"
        );
        let record = run(&text);
        let x = connection(&record, "x");
        assert!(x.messages_received > 60 && x.lost == 0, "{network}");
        // A Poisson process may also send several urgent messages in a row.
        // A store-and-forward switch first receives the packet before, then the message.
        let lines = if network == SWITCH { 2.0 } else { 1.0 };
        let bound = lines * frame(1400.0) + frame(100.0) + hop;
        let excess = max_delay(x) - bound;
        assert!(excess <= 3.0 * frame(100.0), "{network}: {} of {bound}", max_delay(x));
        let p90 = x.delay_us.as_ref().unwrap().p90;
        assert!(p90 <= bound && p90 > 0.5 * lines * frame(1400.0), "{network}: {p90} of {bound}");
        // The next lower priority gets the rest. The lowest sends its first message, and one when the others have ended.
        let received = |name: &str| connection(&record, name).messages_received;
        assert!(received("l6") > 1000 && received("l0") <= 2, "{} {}", received("l6"), received("l0"));
    }
}

/// The same with a periodic urgent message, so that only the packet before can delay it.
#[test]
fn the_bound_of_one_packet_is_exact() {
    let text = format!(
        "experiment \"t\" {{ network {{ {LINK} }} parallel {{
           connection low {{ xmt = a; rcv = b; protocol = llc (priority = 6); test = full (messagesize = 1400); duration = 2 s; }}
           connection x {{ xmt = a; rcv = b; protocol = llc (priority = 7); test = cbr (messagesize = 100, period = 3.1416 ms); duration = 2 s; }}
         }} }}"
    );
    let record = run(&text);
    let (x, bound) = (connection(&record, "x"), frame(1400.0) + frame(100.0) + 10.0);
    // The histogram has an error of 0.1 %.
    assert!(max_delay(x) <= 1.001 * bound && max_delay(x) > 0.98 * bound, "{} of {bound}", max_delay(x));
}

#[test]
fn processor_costs_are_as_calculated() {
    let network = "host a, b (cpu_packet = 1 ms, cpu_byte = 2 us); ring m; link a - m; link b - m;";
    let record =
        run(&experiment(network, "protocol = llc; test = full (messagesize = 500); duration = 5 s;"));
    let x = connection(&record, "x");
    // One packet at a time: the processor, then the ring, then the next packet.
    let (work, line) = (1e3 + 503.0 * 2.0, (503.0 + 21.0) * 0.8);
    near(x.received_bps, 500.0 * 8.0 / (work + line) * 1e6, 0.005);
    let delayed = "protocol = llc (type = 3, timeout = 1 s); test = cbr (messagesize = 500, period = 20 ms); messages = 50;";
    let x = run(&experiment(network, delayed));
    let x = connection(&x, "x");
    near(x.delay_us.as_ref().unwrap().p50, 2.0 * work + line, 0.005);
    let answer = 2.0 * (1e3 + 4.0 * 2.0) + 25.0 * 0.8;
    near(x.rtt_us.as_ref().unwrap().p50, 2.0 * work + line + answer, 0.005);
}

#[test]
fn requests_are_answered_and_late_messages_dropped() {
    for kind in [1, 3] {
        let record = run(&experiment(
            HUB,
            &format!(
                "protocol = llc (type = {kind}); test = request (request = 64, response = 512); messages = 50;"
            ),
        ));
        let x = connection(&record, "x");
        assert_eq!((x.messages_received, x.counters["answers"]), (50, 50.0));
        let least = frame(64.0) + frame(512.0) - 2.0 * 9.6 + 4.0;
        let p50 = x.rtt_us.as_ref().unwrap().p50;
        assert!(p50 >= 0.999 * least && p50 < least + 4.0 * frame(1.0), "{p50}, {least}");
    }
    // Ten messages at once, of which four are sent within the limit.
    let record = run(&experiment(
        LINK,
        "protocol = llc (limit = 400 us); test = cbr (messagesize = 100:10, period = 10 ms); messages = 100;",
    ));
    let x = connection(&record, "x");
    assert_eq!((x.counters["llc_done"], x.counters["llc_late"]), (40.0, 60.0));
    assert_eq!((x.messages_received, x.lost), (40, 60));
}

#[test]
fn a_run_is_reproducible_and_stations_count() {
    let text = format!(
        "experiment \"t\" {{ network {{ {HUB} }} parallel {{
           connection x {{ xmt = a; rcv = b; protocol = llc (type = 3, priority = 5); test = poisson (messagesize = uniform(1, 1400), rate = 200 /s); duration = 2 s; }}
           connection y {{ xmt = b; rcv = c; protocol = llc (sap = 6, priority = 2); test = poisson (messagesize = 900, rate = 300 /s); duration = 2 s; }}
           connection u {{ xmt = c; rcv = a; protocol = udp; test = poisson (messagesize = 400, rate = 300 /s); duration = 2 s; }}
         }} }}"
    );
    let (one, two, other) = (run(&text), run(&text), run_with(&text, 7));
    assert_eq!(one.connections, two.connections);
    assert_eq!(one.hosts, two.hosts);
    assert_ne!(one.environment["trace_hash"], other.environment["trace_hash"]);
    let of = |name: &str, count: &str| host(&one, name).interfaces[count];
    let (x, y) = (connection(&one, "x"), connection(&one, "y"));
    assert_eq!(of("a", "llc.5.sent"), of("b", "llc.5.received"));
    assert_eq!(of("b", "llc.2.sent"), y.messages_sent);
    assert!(of("a", "llc.sent_ac") > x.messages_sent, "one of them agrees on a number");
    assert_eq!((x.messages_received, connection(&one, "u").lost), (x.messages_sent, 0));
}

#[test]
fn unsupported_plans_are_refused() {
    let atm = "host a, b; link a - b (rate = 155 Mb/s, medium = atm);";
    let cbr = |options: &str| {
        format!("protocol = llc ({options}); test = cbr (messagesize = 100, period = 10 ms);")
    };
    let messages = |network: &str, options: &str| refusals(&experiment(network, &cbr(options))).join("\n");
    assert_eq!(messages(atm, "sap = 4"), "x: llc needs Ethernet or rings; link a-b is neither");
    assert_eq!(messages(RING, "token = on"), "x: `m` is a token ring already; `token = on` is for Ethernet");
    assert_eq!(messages(RING, "sap = 4"), "");
    assert!(
        messages(HUB, "token = on, priority = 6, limit = 100 us")
            .starts_with("x: with this many stations a message may take ")
    );
    assert_eq!(messages(HUB, "token = on, priority = 6, limit = 10 ms"), "");
    let apart = "experiment \"t\" { network { host a, b, c, d; link a - b (rate = 1 Mb/s); link c - d (rate = 1 Mb/s); } parallel {
        connection x { xmt = a; rcv = b; protocol = llc (token = on); test = full; }
        connection y { xmt = c; rcv = d; protocol = llc (token = on); test = full; } } }";
    assert_eq!(refusals(apart), ["x: a and c are in separate networks; a token needs one network"]);
    assert_eq!(refusals(&apart.replace(" (token = on)", "")), Vec::<String>::new());
    let middle = "experiment \"t\" { network { host a, b, c; link a - b (rate = 1 Mb/s); link b - c (rate = 1 Mb/s); } parallel {
        connection x { xmt = a; rcv = b; protocol = llc; test = full; }
        connection y { xmt = b; rcv = c; protocol = llc; test = full; } } }";
    assert_eq!(refusals(middle), ["y: a host has one LLC station, but b would need two interfaces"]);
}
