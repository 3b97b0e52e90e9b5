//! BBR over simulated paths.

use crate::common::{connection, experiment, link, run, run_with};

fn bbr(options: &str, duration: u32) -> String {
    format!("protocol = tcp (congestion = {options}); test = full; duration = {duration} s;")
}

/// CoDel keeps the queue at 5 ms; BBR fills the link over short and long round trips all the same.
#[test]
fn codel_queues_are_short_and_the_link_is_full() {
    for delay_ms in [5, 40] {
        let network = format!(
            "host a, b; switch s (buffer = 1000 packets); link a - s (rate = 1 Gb/s); \
             link s - b (rate = 50 Mb/s, delay = {delay_ms} ms, queue = codel);"
        );
        // Goodput of full segments on the link is 47.1 Mb/s.
        for (version, least) in [("bbr", 45e6), ("bbr3", 41e6)] {
            let record = run(&experiment(&network, &bbr(version, 30)));
            let x = connection(&record, "x");
            println!("{version} behind CoDel, {} ms: {:.1} Mb/s", 2 * delay_ms, x.received_bps / 1e6);
            assert!(x.received_bps > least, "{version} with {delay_ms} ms: {}", x.received_bps);
            let queue = link(&record, "s-b").queues.iter().find(|queue| queue.name == "s").unwrap();
            let p50 = queue.sojourn_us.as_ref().unwrap().p50;
            assert!(p50 < 12_000.0, "{version} with {delay_ms} ms: {p50} us");
        }
    }
}

/// Version 1 ignores losses that do not come from its own queue.
#[test]
fn random_loss_costs_version_1_little() {
    let network = "host a, b; switch s (buffer = 200 packets); link a - s (rate = 1 Gb/s); \
                   link s - b (rate = 50 Mb/s, delay = 25 ms, loss = 0.01);";
    for (version, least) in [("bbr", 0.9 * 47.1e6), ("bbr3", 0.7 * 47.1e6)] {
        let record = run(&experiment(network, &bbr(version, 30)));
        let x = connection(&record, "x");
        println!("{version}, 1 % of random loss, 50 ms: {:.1} Mb/s", x.received_bps / 1e6);
        assert!(x.received_bps > least, "{version}: {}", x.received_bps);
    }
}

#[test]
fn two_flows_share_a_link() {
    for version in ["bbr", "bbr3"] {
        for (buffer, seed) in [(100, 1), (100, 2), (400, 1), (400, 2)] {
            let text = format!(
                "experiment \"t\" {{ network {{ host a, b, c; switch s (buffer = {buffer} packets); \
                 link a - s (rate = 1 Gb/s); link b - s (rate = 1 Gb/s); \
                 link s - c (rate = 50 Mb/s, delay = 20 ms); }} parallel {{ \
                 connection x {{ xmt = a; rcv = c; {0} }} connection y {{ xmt = b; rcv = c; delay = 2 s; {0} }} }} }}",
                bbr(version, 40)
            );
            let record = run_with(&text, seed);
            let rates = ["x", "y"].map(|name| connection(&record, name).received_bps);
            let share = rates[0].min(rates[1]) / (rates[0] + rates[1]);
            assert!(share > 0.25, "{version}: {rates:?} with {buffer} packets and seed {seed}");
            assert!(rates[0] + rates[1] > 44e6, "{version}: {rates:?} with {buffer} packets and seed {seed}");
        }
    }
}

/// A sender with pauses does not slow down: a message after a pause takes no longer than the first that filled the path.
#[test]
fn pauses_do_not_slow_down() {
    let network = "host a, b; switch s (buffer = 400 packets); link a - s (rate = 1 Gb/s); \
                   link s - b (rate = 50 Mb/s, delay = 10 ms);";
    for version in ["bbr", "bbr3"] {
        let text = format!(
            "protocol = tcp (congestion = {version}); test = cbr (messagesize = 500000, period = 500 ms); duration = 40 s;"
        );
        let record = run(&experiment(network, &text));
        let delay = connection(&record, "x").delay_us.clone().unwrap();
        // 500 kB take 85 ms at the goodput of the link.
        assert!(delay.p50 < 100_000.0 && delay.p90 < 100_000.0, "{version}: {delay:?}");
    }
}
