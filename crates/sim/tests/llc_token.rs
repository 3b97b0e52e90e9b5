//! Stations that send only with the token: no message is later than the bound that was computed beforehand.

mod common;
mod token;

use common::{connection, experiment, plan, run};
use token::{COPIES, NASA, for_seconds, kept};
use trunkline_run::Backend as _;
use trunkline_sim::Sim;

fn refusals(text: &str) -> Vec<String> {
    Sim::default().refuse(&plan(text)).into_iter().map(|refusal| refusal.text).collect()
}

#[test]
fn nasas_requirement_is_held_by_as_many_stations_as_are_admitted() {
    let record = run(&for_seconds(NASA, 2));
    assert_eq!(record.connections.len(), 51);
    let share = kept(&record, 2);
    assert!(share > 0.8, "the bound is no wild guess: {share}");
}

#[test]
fn one_station_more_is_refused() {
    let more = NASA
        .replace("host s1,", "host s52, s1,")
        .replace("link s1 - bus;", "link s1 - bus; link s52 - bus;")
        .replace(
            "  parallel {\n",
            "  parallel {\n connection more { xmt = s52; rcv = s1; protocol = llc (priority = 6, token = on, limit = 10 ms);
               test = cbr (messagesize = 100, period = 10 ms); }\n",
        );
    assert_eq!(refusals(NASA), Vec::<String>::new());
    let said = refusals(&more);
    let sentence = "more: with so many stations a message may take ";
    assert!(
        said.len() == 1 && said[0].starts_with(sentence) && said[0].ends_with(", its limit is 10 ms"),
        "{said:?}"
    );
}

#[test]
fn copies_in_the_background_delay_nobody_beyond_the_bound() {
    let record = run(&for_seconds(COPIES, 3));
    let share = kept(&record, 3);
    assert!(share > 0.4, "{share}");
    for c in record.connections.iter().filter(|c| c.name.starts_with('f')) {
        assert!(c.messages_received > 10 && c.lost == 0 && c.duplicated == 0, "{c:?}");
        assert_eq!((c.counters["llc_unanswered"], c.counters["llc_tries_max"]), (0.0, 1.0));
    }
}

/// Over switches too, which hear a frame whole before they send it on; and with hosts that take their time.
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
            let (worst, bound) = (c.delay_us.as_ref().unwrap().max, c.counters["token_bound_us"]);
            assert!(worst <= bound && worst > 0.1 * bound, "{worst} of {bound}\n{text}");
            assert_eq!((c.lost, c.messages_sent), (0, 100));
            assert!(connection(&record, &format!("b{n}")).messages_received > 10);
        }
    }
}

/// Lines that lose: the token comes back, acknowledged messages come once, and no bound is told.
#[test]
fn a_lost_token_comes_back() {
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

/// A priority whose target the ring never meets sends nothing, and the run ends all the same.
#[test]
fn who_never_may_send_does_not_keep_a_run_from_ending() {
    let text = "experiment \"t\" { network { host a, b; link a - b (rate = 10 Mb/s, loss = 1); }
        connection x { xmt = a; rcv = b; protocol = llc (token = on); test = full; duration = 1 s; } }";
    let record = run(text);
    let x = connection(&record, "x");
    assert!(x.partial && x.trouble.as_deref() == Some("its stations formed no ring"), "{:?}", x.trouble);
}

/// Three stations on a line: one with a limit, and others beside it.
fn beside(limit: &str, others: &str) -> String {
    format!(
        "experiment \"t\" {{ network {{ host a, b, c; switch s; link a - s (rate = 10 Mb/s, mtu = 9000 B);
            link b - s (rate = 10 Mb/s, mtu = 9000 B); link c - s (rate = 10 Mb/s, mtu = 9000 B); }}
        parallel {{ {others} connection x {{ xmt = a; rcv = b; protocol = llc (priority = 6, token = on, limit = {limit});
            test = cbr (messagesize = 100, period = 20 ms); duration = 1 s; }} }} }}"
    )
}

/// Another connection, from `b` to `c`.
fn other(options: &str, test: &str) -> String {
    format!(
        "connection y {{ xmt = b; rcv = c; protocol = llc (sap = 8, token = on, {options}); test = {test}; duration = 1 s; }}"
    )
}

#[test]
fn a_limit_beside_what_promises_nothing_is_refused() {
    for (options, test) in [
        ("priority = 6", "full"),
        ("priority = 4", "poisson (rate = 10 /s)"),
        ("priority = 5, type = 3", "cbr (messagesize = 100, period = 20 ms)"),
        ("priority = 5", "cbr (messagesize = 100:1001, period = 20 s)"),
    ] {
        let said = refusals(&beside("10 us", &other(options, test)));
        let sentence = "x: no limit can be promised with y: ";
        assert!(said.len() == 1 && said[0].starts_with(sentence), "{options} {test}: {said:?}");
        assert_eq!(refusals(&beside("none", &other(options, test))), Vec::<String>::new());
    }
    assert_eq!(refusals(&beside("1 s", &other("priority = 3", "full"))), Vec::<String>::new());
}

/// Neither order nor what has no limit hides a limit that is not kept.
#[test]
fn a_limit_is_looked_at_whatever_else_is_not_kept() {
    let flood = other("priority = 6", "cbr (messagesize = 1400:20, period = 1 ms)");
    let said = refusals(&beside("10 us", &flood));
    assert!(
        said.len() == 1 && said[0].starts_with("x: with so many stations a message may take "),
        "{said:?}"
    );
    // Its own station's limit is not the flood's.
    assert_eq!(refusals(&beside("1 s", &flood)), Vec::<String>::new());
    let said = refusals(&beside("1 s", &flood.replace("token = on", "limit = 1 s, token = on")));
    assert_eq!(said, ["y: its station has more to send than tokens come"]);
    let never = other("priority = 6", "cbr (messagesize = 100, period = 0.1 ps)");
    let said = refusals(&beside("1 s", &never));
    assert_eq!(said, ["x: no limit can be promised with y: its messages are too long or its period is none"]);
}

#[test]
fn no_mtu_makes_a_frame_of_ethernet_longer() {
    for (crc, most) in [("off", 1497), ("on", 1493)] {
        let of = |size: u32| {
            let options = format!("priority = 6, crc = {crc}");
            refusals(&beside("1 s", &other(&options, &format!("cbr (messagesize = {size}, period = 20 ms)"))))
        };
        assert_eq!(of(most), Vec::<String>::new());
        let sentence = |size| {
            format!("y: a message of {size} B does not go into a frame: at most {most} B do, on Ethernet")
        };
        assert_eq!((of(most + 1), of(4000)), (vec![sentence(most + 1)], vec![sentence(4000)]));
    }
    // Draws are cut to it.
    let drawn = other("priority = 3", "cbr (messagesize = uniform(3000, 4000), period = 20 ms)");
    let record = run(&beside("1 s", &drawn));
    let y = connection(&record, "y");
    assert_eq!((y.messages_received, y.received_bps.round()), (50, 1497.0 * 8.0 / 0.02));
}
