//! Queue disciplines, shapers, policers, traces and changes on ATM links in whole runs.

use trunkline_record::Record;
use trunkline_record::schema::LinkQueue;

use crate::common::{connection, link, near, run};

/// The queue of the switch before the bottleneck.
fn queue(record: &Record) -> &LinkQueue {
    link(record, "s-b").queues.iter().find(|queue| queue.name == "s").expect("an explicit queue")
}

/// Two hosts on OC-3c and a bottleneck whose cells have 10 Mb/s: 8.2 Mb/s of packets of 1,500 bytes. A round trip takes 40 ms.
fn bottleneck(options: &str, connections: &str) -> String {
    format!(
        "experiment \"t\" {{ network {{
            host a, a2, b; switch s (buffer = 12800 cells);
            link a - s (rate = 155 Mb/s, medium = atm); link a2 - s (rate = 155 Mb/s, medium = atm);
            link s - b (rate = 10 Mb/s, medium = atm, delay = 20 ms{options});
        }} parallel {{ {connections} }} }}"
    )
}

const BULK: &str = "connection x { xmt = a; rcv = b; protocol = tcp (window = 1 MB, timers = fine);
    test = full (messagesize = 8192); duration = 20 s; }";

#[test]
fn codel_holds_its_target_on_atm() {
    let p50 = |record: &Record| queue(record).sojourn_us.as_ref().expect("packets were sent").p50;
    let tail = run(&bottleneck(", queue = droptail", BULK));
    let codel = run(&bottleneck(", queue = codel", BULK));
    assert!(p50(&tail) > 100e3, "the median of tail drop is {} us", p50(&tail));
    assert!((1e3..10e3).contains(&p50(&codel)), "the median of CoDel is {} us", p50(&codel));
    assert!(queue(&codel).dropped_early > 10 && queue(&tail).dropped_early == 0);
    let received = connection(&codel, "x").received_bps;
    assert!(received > 0.75 * 8e6, "{received}");
    for record in [&codel, &tail] {
        // Packets of 1,500 bytes have 32 cells each, and none is lost in parts.
        let (queue, link) = (queue(record), link(record, "s-b"));
        assert_eq!(link.dropped_queue, Some(32 * (queue.dropped_early + queue.dropped_full)));
        assert_eq!((link.aal5_failed, link.lost_line), (Some(0), Some(0)));
    }
}

#[test]
fn the_dscp_selects_the_class_on_atm() {
    // Each offers 22 cells in 1 ms, 9.3 Mb/s.
    let both = crate::queues::flow("x", "a", "AF11") + &crate::queues::flow("y", "a2", "EF");
    let fifo = run(&bottleneck("", &both));
    assert!(connection(&fifo, "y").lost > 1000);
    let record = run(&bottleneck(", queue = priority", &both));
    assert_eq!(connection(&record, "y").lost, 0);
    assert!(connection(&record, "x").lost > 1000);
    assert!(connection(&record, "y").delay_us.as_ref().expect("messages").max < 25e3);
    let record = run(&bottleneck(", queue = drr (weights = EF (1) : AF11 (3))", &both));
    let received = |name: &str| connection(&record, name).messages_received as f64;
    // While both are backlogged; the begin and the end differ a little.
    near(received("x") / received("y"), 3.0, 0.15);
}

#[test]
fn a_shaper_and_a_policer_keep_their_rate_on_atm() {
    let cbr = "connection x { xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 972, period = 2 ms); duration = 10 s; }";
    // 4 Mb/s of packets of 1,000 bytes.
    let record = run(&bottleneck(", shape = 2 Mb/s : 10 kB", cbr));
    assert!(queue(&record).sojourn_us.as_ref().expect("packets").max > 100e3);
    near(connection(&record, "x").received_bps, 2e6 * 0.972, 0.02);
    let record = run(&bottleneck(", police = 2 Mb/s : 10 kB", cbr));
    let policed = queue(&record).policed;
    assert_eq!(policed, connection(&record, "x").lost);
    assert!((2485..=2495).contains(&policed), "{policed}");
    assert_eq!(link(&record, "s-b").dropped_queue, Some(22 * policed));
}

/// A stream of packets over a link that changes: between hosts, behind a switch with a queue for all, with credits, and with
/// explicit rates.
#[test]
fn an_atm_link_changes_whatever_controls_it() {
    let text = |network: &str, changes: &str| {
        format!(
            "experiment \"t\" {{ network {{ host a, b; {network} }} {changes}
             connection x {{ xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 1000, period = 10 ms);
             duration = 10 s; }} }}"
        )
    };
    let switched = |options: &str| {
        format!(
            "switch s (buffer = 10000 cells); link a - s (rate = 155 Mb/s, medium = atm{options});
             link s - b (rate = 10 Mb/s, medium = atm, delay = 1 ms{options});"
        )
    };
    let direct = "link a - b (rate = 10 Mb/s, medium = atm, delay = 1 ms);".to_owned();
    let [fifo, credits, rates] = ["", ", credits = 300", ", explicit_rate = erica"].map(switched);
    let trains = fifo.replace("medium = atm", "medium = atm, cells = trains");
    for (network, ends, name) in [
        (&direct, "a - b", "a-b"),
        (&fifo, "s - b", "s-b"),
        (&trains, "s - b", "s-b"),
        (&credits, "s - b", "s-b"),
        (&rates, "s - b", "s-b"),
    ] {
        // What a link that is down keeps is late, and nothing is lost.
        let record =
            run(&text(network, &format!("at 2 s set link {ends} (down); at 4 s set link {ends} (up);")));
        let x = connection(&record, "x");
        assert_eq!((x.lost, x.reordered, x.messages_received), (0, 0, 1000), "{network}");
        near(x.delay_us.as_ref().expect("messages").max, 2e6, 0.02);

        // A packet has 22 cells: it survives a share of 0.03 in 51 of 100 cases.
        let record = run(&text(
            network,
            &format!("at 2 s set link {ends} (loss = 0.03); at 6 s set link {ends} (loss = 0);"),
        ));
        let x = connection(&record, "x");
        assert!((160..240).contains(&x.lost), "{network}: {}", x.lost);
        assert!(link(&record, name).lost_line > Some(200), "{network}");

        let slower =
            format!("at 4 s set link {ends} (delay = 50 ms); at 8 s set link {ends} (delay = 1 ms);");
        let record = run(&text(network, &slower));
        let delay = connection(&record, "x").delay_us.as_ref().expect("messages").clone();
        assert!(delay.max > 50e3 && delay.max < 52.5e3 && delay.p50 < 4e3, "{network}: {delay:?}");
        assert_eq!(connection(&record, "x").reordered, 0);
    }
    for (network, ends) in [(&direct, "a - b"), (&fifo, "s - b"), (&credits, "s - b")] {
        // A cell takes 424 us at 1 Mb/s, and 42.4 us at 10 Mb/s; the first one reaches the switch after 3 us.
        let record = run(&text(network, &format!("at 4 s set link {ends} (rate = 1 Mb/s);")));
        let delay = connection(&record, "x").delay_us.as_ref().expect("messages").clone();
        // Of a link with credits a check cell may precede the packet.
        near(delay.max, 22.0 * 424.0 + 1000.0, 0.05);
        near(delay.p90, 22.0 * 424.0 + 1000.0, 2e-3);
        near(delay.min, 22.0 * 42.4 + 1000.0, 2e-3);
    }
}

#[test]
fn the_rate_of_sonet_leaves_its_payload_after_a_change_too() {
    let text = "experiment \"t\" { network { host a, b; link a - b (rate = 45 Mb/s, medium = atm); at 0 s set link a - b (rate = 155 Mb/s); }
        connection x { xmt = a; rcv = b; protocol = udp; test = full (messagesize = 8000); duration = 1 s; } }";
    let record = run(text);
    let fast =
        run(&text.replace("45 Mb/s", "155 Mb/s").replace("at 0 s set link a - b (rate = 155 Mb/s);", ""));
    assert_eq!(connection(&record, "x").messages_received, connection(&fast, "x").messages_received);
}
