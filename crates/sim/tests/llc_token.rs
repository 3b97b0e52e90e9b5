//! Stations with a token: no message exceeds its calculated delay bound.

use crate::common::{connection, experiment, plan, run};
use crate::token::{COPIES, NASA, check_promises, for_seconds};
use trunkline_run::Backend as _;
use trunkline_sim::Sim;

fn refusals(text: &str) -> Vec<String> {
    Sim::default().refuse(&plan(text)).into_iter().map(|refusal| refusal.text).collect()
}

#[test]
fn the_admitted_number_of_stations_meets_nasas_requirement() {
    let record = run(&for_seconds(NASA, 2));
    assert_eq!(record.connections.len(), 51);
    let share = check_promises(&record, 2);
    assert!(share > 0.8, "the bound is no wild guess: {share}");
}

#[test]
fn one_more_station_is_refused() {
    let more = NASA
        .replace("host s1,", "host s52, s1,")
        .replace("link s1 - bus;", "link s1 - bus; link s52 - bus;")
        .replace(
            "  parallel {\n",
            "  parallel {\n connection more { xmt = s52; rcv = s1; protocol = llc (priority = 6, token = on, limit = 10 ms);
               test = cbr (messagesize = 100, period = 10 ms); }\n",
        );
    assert_eq!(refusals(NASA), Vec::<String>::new());
    let messages = refusals(&more);
    let prefix = "more: with this many stations a message may take ";
    assert!(
        messages.len() == 1
            && messages[0].starts_with(prefix)
            && messages[0].ends_with(", its limit is 10 ms"),
        "{messages:?}"
    );
}

#[test]
fn background_copies_do_not_violate_the_bound() {
    let record = run(&for_seconds(COPIES, 3));
    let share = check_promises(&record, 3);
    assert!(share > 0.4, "{share}");
    for c in record.connections.iter().filter(|c| c.name.starts_with('f')) {
        assert!(c.messages_received > 10 && c.lost == 0 && c.duplicated == 0, "{c:?}");
        assert_eq!((c.counters["llc_unanswered"], c.counters["llc_tries_max"]), (0.0, 1.0));
    }
}

/// Also with store-and-forward switches, and with hosts that have processing costs.
#[test]
fn the_bound_holds_over_switches_and_with_costs() {
    let stations = |links: &str, host: &str, nodes: &str| {
        let connections: String = (0..6)
            .map(|n| {
                format!(
                    "connection c{n} {{ xmt = h{n}; rcv = h{}; protocol = llc (priority = 5, token = on);
                  test = cbr (messagesize = 300, period = 20 ms); duration = 2 s; }}
                connection b{n} {{ xmt = h{n}; rcv = h{}; protocol = llc (sap = 8, priority = 1, token = on);
                  test = full (messagesize = 1000); duration = 2 s; }} ",
                    (n + 1) % 6,
                    (n + 2) % 6
                )
            })
            .collect();
        let hosts: String = (0..6)
            .map(|n| format!("host h{n} {host}; link h{n} - {} {links}; ", if n < 3 { "s" } else { "t" }))
            .collect();
        format!("experiment \"t\" {{ network {{ {nodes} {hosts} }} parallel {{ {connections} }} }}")
    };
    let line = "(rate = 10 Mb/s, delay = 1 us)";
    let two = "switch s, t (latency = 2 us); link s - t (rate = 10 Mb/s, delay = 3 us);";
    let slow = "(cpu_packet = 30 us, cpu_byte = 20 ns, interrupt = 10 us)";
    for text in [
        stations(line, "", two),
        stations(line, slow, two),
        stations("", slow, "hub s (delay = 2 us); hub t; link u - t; host u;").replace(" - t ;", " - s;"),
    ] {
        let record = run(&text);
        for n in 0..6 {
            let c = connection(&record, &format!("c{n}"));
            let (max_delay, bound) = (c.delay_us.as_ref().unwrap().max, c.counters["token_bound_us"]);
            assert!(max_delay <= bound && max_delay > 0.1 * bound, "{max_delay} of {bound}\n{text}");
            assert_eq!((c.lost, c.messages_sent), (0, 100));
            assert!(connection(&record, &format!("b{n}")).messages_received > 10);
        }
    }
}

/// On lossy links the token is recovered, acknowledged messages arrive once, and no bound is reported.
#[test]
fn a_lost_token_is_recovered() {
    let network = "host a, b, c; switch s; link a - s (rate = 10 Mb/s, loss = 0.002); link b - s (rate = 10 Mb/s); link c - s (rate = 10 Mb/s);";
    let record = run(&experiment(
        network,
        "protocol = llc (type = 3, priority = 6, tries = 6, timeout = 30 ms, token = on); test = cbr (messagesize = 200, period = 10 ms); duration = 20 s;",
    ));
    let x = connection(&record, "x");
    assert!(!x.counters.contains_key("token_bound_us"));
    assert_eq!((x.messages_sent, x.duplicated, x.counters["llc_done"]), (2000, 0, 2000.0));
    assert_eq!(x.messages_received, 2000);
    let resent: u64 = record.hosts.iter().filter_map(|h| h.interfaces.get("token.resent")).sum();
    assert!(resent > 10, "{resent}");
}

/// Stations that never form a ring send nothing, and the run ends.
#[test]
fn a_run_ends_without_a_ring() {
    let text = "experiment \"t\" { network { host a, b; link a - b (rate = 10 Mb/s, loss = 1); }
        connection x { xmt = a; rcv = b; protocol = llc (token = on); test = full; duration = 1 s; } }";
    let record = run(text);
    let x = connection(&record, "x");
    assert!(x.partial && x.error.as_deref() == Some("the stations formed no token ring"), "{:?}", x.error);
}

/// Returns an experiment with three stations: one connection with a limit, and others.
fn with_limit(limit: &str, others: &str) -> String {
    format!(
        "experiment \"t\" {{ network {{ host a, b, c; switch s; link a - s (rate = 10 Mb/s, mtu = 9000 B);
            link b - s (rate = 10 Mb/s, mtu = 9000 B); link c - s (rate = 10 Mb/s, mtu = 9000 B); }}
        parallel {{ {others} connection x {{ xmt = a; rcv = b; protocol = llc (priority = 6, token = on, limit = {limit});
            test = cbr (messagesize = 100, period = 20 ms); duration = 1 s; }} }} }}"
    )
}

/// Returns another connection, from `b` to `c`.
fn other(options: &str, test: &str) -> String {
    format!(
        "connection y {{ xmt = b; rcv = c; protocol = llc (sap = 8, token = on, {options}); test = {test}; duration = 1 s; }}"
    )
}

#[test]
fn a_limit_is_refused_if_another_connection_promises_nothing() {
    for (options, test) in [
        ("priority = 6", "full"),
        ("priority = 4", "poisson (rate = 10 /s)"),
        ("priority = 5, type = 3", "cbr (messagesize = 100, period = 20 ms)"),
        ("priority = 5", "cbr (messagesize = 100:1001, period = 20 s)"),
    ] {
        let messages = refusals(&with_limit("10 us", &other(options, test)));
        let prefix = "x: no limit can be promised with y: ";
        assert!(messages.len() == 1 && messages[0].starts_with(prefix), "{options} {test}: {messages:?}");
        assert_eq!(refusals(&with_limit("none", &other(options, test))), Vec::<String>::new());
    }
    assert_eq!(refusals(&with_limit("1 s", &other("priority = 3", "full"))), Vec::<String>::new());
}

/// Neither the order nor a connection without a limit hides a limit that cannot be kept.
#[test]
fn limits_are_checked_in_any_order() {
    let flood = other("priority = 6", "cbr (messagesize = 1400:20, period = 1 ms)");
    let messages = refusals(&with_limit("10 us", &flood));
    assert!(
        messages.len() == 1 && messages[0].starts_with("x: with this many stations a message may take "),
        "{messages:?}"
    );
    // The flood is at another station and has no limit.
    assert_eq!(refusals(&with_limit("1 s", &flood)), Vec::<String>::new());
    let messages = refusals(&with_limit("1 s", &flood.replace("token = on", "limit = 1 s, token = on")));
    assert_eq!(messages, ["y: its station offers more traffic than the token allows"]);
    let never = other("priority = 6", "cbr (messagesize = 100, period = 0.1 ps)");
    let messages = refusals(&with_limit("1 s", &never));
    assert_eq!(
        messages,
        ["x: no limit can be promised with y: its messages are too long or its period is zero"]
    );
}

#[test]
fn the_mtu_does_not_extend_ethernet_frames() {
    for (crc, most) in [("off", 1497), ("on", 1493)] {
        let of = |size: u32| {
            let options = format!("priority = 6, crc = {crc}");
            refusals(&with_limit(
                "1 s",
                &other(&options, &format!("cbr (messagesize = {size}, period = 20 ms)")),
            ))
        };
        assert_eq!(of(most), Vec::<String>::new());
        let prefix = |size| {
            format!("y: a message of {size} B does not fit into a frame: the maximum is {most} B on Ethernet")
        };
        assert_eq!((of(most + 1), of(4000)), (vec![prefix(most + 1)], vec![prefix(4000)]));
    }
    // Random sizes are limited to the maximum.
    let drawn = other("priority = 3", "cbr (messagesize = uniform(3000, 4000), period = 20 ms)");
    let record = run(&with_limit("1 s", &drawn));
    let y = connection(&record, "y");
    assert_eq!((y.messages_received, y.received_bps.round()), (50, 1497.0 * 8.0 / 0.02));
}
