//! Hosts that forward packets between their links.

use trunkline_run::Backend as _;
use trunkline_sim::Sim;

use crate::common::{connection, experiment, host, link, near, plan, run};

/// Two hosts with a node between them, and a bottleneck behind it.
fn through(node: &str, connection: &str) -> String {
    let network = format!(
        "host a, b; {node}; link a - m (rate = 100 Mb/s, delay = 1 ms);
         link m - b (rate = 10 Mb/s, delay = 5 ms);"
    );
    experiment(&network, connection)
}

const OVERLOAD: &str = "protocol = udp; test = cbr (messagesize = 1000, period = 500 us); duration = 5 s;";

#[test]
fn a_router_without_costs_delays_and_loses_as_a_switch_does() {
    let switch = run(&through("switch m (buffer = 50 packets)", OVERLOAD));
    let router = run(&through("host m (forward, send_queue = 50 packets)", OVERLOAD));
    let [s, r] = [&switch, &router].map(|record| connection(record, "x"));
    assert!(s.lost > 3_000, "{}", s.lost);
    assert_eq!((r.messages_received, r.lost), (s.messages_received, s.lost));
    assert_eq!(r.delay_us, s.delay_us);
    assert_eq!(link(&router, "m-b").dropped_queue, link(&switch, "m-b").dropped_queue);
    let [received, forwarded] = ["received", "forwarded"].map(|name| host(&router, "m").interfaces[name]);
    assert_eq!((received, forwarded), (r.messages_sent, r.messages_sent));
}

#[test]
fn the_processor_of_a_router_limits_it() {
    let text = through("host m (forward, cpu_packet = 2 ms, rx_buffer = 20 packets)", OVERLOAD);
    let record = run(&text);
    let x = connection(&record, "x");
    near(x.messages_received as f64, 5.0 * 500.0, 0.01);
    let m = host(&record, "m");
    assert_eq!(m.interfaces["dropped_full"], x.lost);
    near(m.cpu_percent, 100.0, 0.01);
    // 20 packets wait and one is served; then the link and its delays.
    near(x.delay_us.as_ref().unwrap().max, 21.0 * 2e3 + 6e3 + 0.9e3, 0.03);
}

#[test]
fn a_router_sends_and_receives_itself() {
    let record = run("experiment \"t\" { network {
            host a, b; host r (forward, cpu_packet = 10 us);
            link a - r (rate = 100 Mb/s); link r - b (rate = 100 Mb/s);
        } parallel {
            connection in { xmt = a; rcv = r; protocol = guaranteed; test = full (messagesize = 5000); messages = 200; }
            connection out { xmt = r; rcv = b; protocol = tcp; test = full (messagesize = 5000); messages = 200; }
            connection past { xmt = b; rcv = a; protocol = tcp; test = full (messagesize = 5000); messages = 200; }
        } }");
    for name in ["in", "out", "past"] {
        assert_eq!(connection(&record, name).messages_received, 200, "{name}: {:?}", record.problems);
    }
}

#[test]
fn a_router_on_a_hub_forwards_only_what_leaves_the_hub() {
    let record = run("experiment \"t\" { network {
            host a, b, c; host r, q (forward); hub h;
            link a - h; link b - h; link r - h; link q - h; link r - c (rate = 10 Mb/s);
        } parallel {
            connection near { xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 100, period = 10 ms); messages = 100; }
            connection far { xmt = a; rcv = c; protocol = udp; test = cbr (messagesize = 100, period = 10 ms); messages = 100; }
        } }");
    for name in ["near", "far"] {
        let c = connection(&record, name);
        assert_eq!((c.messages_received, c.duplicated), (100, 0), "{name}");
    }
    assert_eq!(["r", "q"].map(|name| host(&record, name).interfaces["forwarded"]), [100, 0]);
}

#[test]
fn routers_forward_to_groups_once_on_each_link() {
    for costs in ["", ", cpu_packet = 1 us"] {
        let record = run(&format!(
            "experiment \"t\" {{ network {{
                host a, b, c, d, e; host r, q (forward{costs});
                link a - r (rate = 10 Mb/s); link r - b (rate = 10 Mb/s); link r - q (rate = 10 Mb/s);
                link q - c (rate = 10 Mb/s); link q - d (rate = 10 Mb/s); link q - e (rate = 10 Mb/s);
            }}
            connection x {{ xmt = a; rcv = b, q, c, d; protocol = multicast (group = 239.1.1.1);
                test = cbr (messagesize = 100, period = 10 ms); messages = 100; }} }}"
        ));
        let x = connection(&record, "x");
        assert_eq!((x.messages_received, x.lost, x.duplicated), (400, 0, 0));
        assert_eq!(host(&record, "r").interfaces["forwarded"], 200);
        assert_eq!(host(&record, "q").interfaces["forwarded"], 200);
        assert_eq!(link(&record, "q-e").utilization, 0.0);
    }
}

#[test]
fn the_queue_of_a_link_applies_at_a_router() {
    let network = "host a, b; host m (forward, send_queue = 400 packets);
        link a - m (rate = 100 Mb/s); link m - b (rate = 10 Mb/s, delay = 20 ms, queue = codel);";
    let record = run(&experiment(
        network,
        "protocol = tcp (congestion = cubic); test = full (messagesize = 8192); duration = 10 s;",
    ));
    let queues = &link(&record, "m-b").queues;
    let [router, receiver] = &queues[..] else { panic!("{queues:?}") };
    assert_eq!((&router.discipline[..], &receiver.discipline[..]), ("codel", "droptail"));
    assert!(router.dropped_early > 3, "{router:?}");
    assert!(router.sojourn_us.as_ref().unwrap().p50 < 10e3, "{router:?}");
}

#[test]
fn frames_of_llc_do_not_pass_a_router() {
    let text = through(
        "host m (forward)",
        "protocol = llc; test = cbr (messagesize = 100, period = 100 ms); messages = 5;",
    );
    let refusals = Sim::default().refuse(&plan(&text));
    assert!(refusals[0].text.contains("`m` is a router"), "{refusals:?}");
}
