//! Credits and admission on ATM links, as an experiment sees them.

use trunkline_experiment::plan::Plan;
use trunkline_run::Backend as _;
use trunkline_sim::Sim;

use crate::common::{connection, host, link, near, plan, run};

/// Two senders to one receiver over OC-3c; `options` are those of the links.
fn two_to_one(options: &str, connections: &str) -> String {
    format!(
        "experiment \"t\" {{ network {{ host a, b, c; switch s (buffer = 64 cells, latency = 4 us);
           link c - s (medium = atm, rate = 155 Mb/s, delay = 500 us, mtu = 9180 B{options});
           link b - s (medium = atm, rate = 155 Mb/s, mtu = 9180 B{options});
           link s - a (medium = atm, rate = 155 Mb/s, mtu = 9180 B{options}); }} {connections} }}"
    )
}

fn udp(name: &str, from: &str) -> String {
    format!(
        "connection {name} {{ xmt = {from}; rcv = a; protocol = udp; test = full (messagesize = 8192);
           duration = 50 ms; }}"
    )
}

#[test]
fn credits_keep_cells_from_being_lost() {
    let connections = udp("x", "b") + &udp("y", "c");
    let without = run(&two_to_one("", &connections));
    assert!(link(&without, "s-a").dropped_queue.unwrap() > 1_000, "the switch is overloaded");
    let record = run(&two_to_one(", credits = 319", &connections));
    for l in &record.links {
        assert_eq!((l.dropped, l.aal5_failed), (0, Some(0)), "{}", l.name);
        let credits = l.credits.as_ref().expect("a link with credits");
        assert!(credits.buffers_max <= 319 && credits.credit_cells > 0, "{}: {credits:?}", l.name);
    }
    let rates = ["x", "y"].map(|name| connection(&record, name).received_bps);
    near(rates[0], rates[1], 0.05);
    assert!(rates[0] + rates[1] > 125e6, "{rates:?}");
    assert_eq!(record.environment["cells"], "each on its own");
}

#[test]
fn udp_that_does_not_wait_loses_at_its_host() {
    let connections = "connection x { xmt = b; rcv = a; protocol = udp;
        test = burst (messagesize = 8192, period = 520 us); duration = 200 ms; }"
        .to_owned()
        + &udp("y", "c").replace("50 ms", "200 ms");
    let record = run(&two_to_one(", credits = 319", &connections));
    let x = connection(&record, "x");
    let offered = 200_000 / 520;
    assert!(x.messages_sent < offered * 3 / 4, "{} of {offered} sent", x.messages_sent);
    assert_eq!(x.messages_sent, x.messages_received, "nothing is lost in the network");
}

/// A packet of 192 cells crosses a buffer of 100 beside a flood if its channel gets every second cell of the line: then half
/// of it waits.
#[test]
fn round_robin_keeps_a_flood_from_another_channel() {
    let received = |scheduling: &str| {
        let connections = "connection x { xmt = b; rcv = a; protocol = udp;
            test = cbr (messagesize = 9100, period = 5 ms); duration = 200 ms; }"
            .to_owned()
            + &udp("y", "c").replace("50 ms", "210 ms");
        let text = two_to_one("", &connections)
            .replace("buffer = 64 cells", &format!("buffer = 100 cells, buffer_per = channel{scheduling}"));
        let record = run(&text);
        let x = connection(&record, "x");
        assert_eq!(x.messages_sent, 40);
        x.messages_received
    };
    assert_eq!(received(", scheduling = round-robin"), 40);
    assert!(received("") < 10, "with FIFO they wait behind the flood");
}

#[test]
fn sockets_of_an_overloaded_host_get_the_same() {
    let run_with = |options: &str, rcvbuf: &str| {
        let connections = (udp("x", "b") + &udp("y", "c")).replace("50 ms", "1 s");
        let connections = connections.replacen("rcv = a", &format!("rcv = a{rcvbuf}"), 1);
        let text = two_to_one(", credits = 319", &connections)
            .replace("host a, b, c;", &format!("host a ({options}); host b, c;"));
        run(&text)
    };
    let costs = "interrupt = 250 us, cpu_byte = 42 ns, rx_buffer = 16 packets";
    let record = run_with(&format!("{costs}, rx_buffer_per = channel"), "");
    let rates = ["x", "y"].map(|name| connection(&record, name).received_bps);
    near(rates[0], rates[1], 0.01);
    // Interrupts take 0.25 ms of each of the 2,053 packets in a second, and reading 42 ns a byte of those that are read.
    near(rates[0] + rates[1], (1.0 - 2_053.0 * 250e-6) / (8_220.0 * 42e-9) * 65_536.0, 0.02);
    let shared = run_with(costs, "");
    let rates = ["x", "y"].map(|name| connection(&shared, name).received_bps);
    assert!(rates[0].min(rates[1]) < 0.5 * rates[0].max(rates[1]), "with a shared buffer: {rates:?}");
    // One datagram of 8,220 bytes does not fit.
    let record = run_with(&format!("{costs}, rx_buffer_per = channel"), " (rcvbuf = 8000 B)");
    assert_eq!(connection(&record, "x").messages_received, 0);
    assert!(connection(&record, "y").messages_received > 0);
}

/// Table 21 of the AAI report, a tenth of it: 88.7 Mb/s with credits, shared evenly, and 9.8 without.
#[test]
fn credits_raise_the_throughput_of_udp_ninefold() {
    let text = include_str!("../../../experiments/table-21.ns").replace("duration = 10 s", "duration = 1 s");
    let record = run(&text);
    let rate = |name: &str| connection(&record, name).received_bps;
    near(rate("C-A") + rate("B-A"), 88.7e6, 0.1);
    near(rate("C-A"), rate("B-A"), 0.01);
    near(rate("C-A-none") + rate("B-A-none"), 9.8e6, 0.2);
    let lost = |name: &str| link(&record, name).dropped_queue.unwrap();
    assert!(lost("a0-s0") > 100_000 && lost("a-s") == 0, "{} and {}", lost("a0-s0"), lost("a-s"));
}

#[test]
fn credits_work_beside_links_without() {
    // Cells enter without credits and may be lost there, but not where they have buffers.
    let text = "experiment \"t\" { network { host a, b, c; switch s, t (buffer = 64 cells);
           link b - s (medium = atm, rate = 155 Mb/s);
           link c - s (medium = atm, rate = 155 Mb/s);
           link s - t (medium = atm, rate = 155 Mb/s, credits = 40, loss = 1e-4);
           link t - a (medium = atm, rate = 45 Mb/s); }
         connection x { xmt = b; rcv = a; protocol = udp; test = full (messagesize = 400);
           duration = 50 ms; }
         connection y { xmt = c; rcv = a; protocol = udp; test = full (messagesize = 400);
           duration = 50 ms; } }";
    let record = run(text);
    assert!(link(&record, "s-t").dropped_queue.unwrap() > 0, "without credit, cells that enter are lost");
    assert_eq!(link(&record, "t-a").dropped_queue, Some(0));
    let received: f64 = ["x", "y"].iter().map(|name| connection(&record, name).received_bps).sum();
    assert!(received > 1e6, "{received}");
    assert!(host(&record, "a").interfaces["received"] > 0);
}

#[test]
fn a_sender_to_several_is_refused() {
    let text = two_to_one(
        ", credits = 9",
        "connection m { xmt = a; rcv = b, c; protocol = multicast (group = 239.1.1.1); test = full; }",
    );
    let refused = Sim::default().refuse(&plan(&text));
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].text.contains("m: credits are for channels from one host to one host"), "{refused:?}");
}

/// Returns a plan of this many declared sources on a DS3 line that admits by `method`.
fn sources(method: &str, count: usize) -> Plan {
    let connections: String = (0..count)
        .map(|n| {
            format!(
                "connection v{n} {{ xmt = a; rcv = b; protocol = udp; duration = 100 ms;
                   test = cbr (messagesize = 1250, period = 10 ms);
                   peak = 10 Mb/s; mean = 1 Mb/s; burst = 2 ms; }}"
            )
        })
        .collect();
    plan(&format!(
        "experiment \"t\" {{ network {{ host a, b; switch s (buffer = 1000 cells);
           link a - s (medium = atm, rate = 155 Mb/s);
           link s - b (medium = atm, rate = 45 Mb/s, admission = {method}); }} {connections} }}"
    ))
}

#[test]
fn a_link_refuses_what_does_not_fit_with_a_reason() {
    let run = |method: &str, count| {
        let options = trunkline_run::RunOptions {
            seed: trunkline_units::Seed(1),
            text: String::new(),
            started_at: String::new(),
            folder: ".".into(),
            out: ".".into(),
            stop: trunkline_run::StopFlag::default(),
        };
        Sim::default().run(&sources(method, count), &options, &mut trunkline_run::NoProgress)
    };
    let record = run("peak", 7);
    let errors: Vec<_> = record.connections.iter().map(|c| c.error.as_deref()).collect();
    assert_eq!(errors[..4], [None; 4]);
    assert_eq!(
        errors[4],
        Some(
            "link s-b refuses it: the peak rate of 5 connections would be 50 Mb/s; the line has 40.704 Mb/s"
        )
    );
    assert!(errors[5..].iter().all(Option::is_some), "{errors:?}");
    for method in ["equivalent", "measured"] {
        let record = run(method, 6);
        let admitted = record.connections.iter().filter(|c| c.error.is_none()).count();
        assert!(admitted >= if method == "equivalent" { 6 } else { 1 }, "{method}: {admitted}");
    }
    let record = crate::common::run(
        "experiment \"t\" { network { host a, b; link a - b (rate = 10 Mb/s, admission = peak); }
           serial { parallel { connection x { xmt = a; rcv = b; protocol = udp; test = full; duration = 10 ms; }
             connection y { xmt = a; rcv = b; protocol = udp; test = full; duration = 10 ms; } }
           connection z { xmt = a; rcv = b; protocol = udp; test = full; duration = 10 ms; } } }",
    );
    let refused: Vec<bool> = record.connections.iter().map(|c| c.error.is_some()).collect();
    assert_eq!(refused, [false, true, false], "what declares nothing needs the whole link, until it ends");
}
