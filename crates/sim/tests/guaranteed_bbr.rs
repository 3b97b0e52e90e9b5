//! BBR in the guaranteed transport, over simulated paths.

use trunkline_record::Record;

use crate::common::{connection, experiment, link, run, run_with};

/// A sender at full speed in frames of 1,472 bytes, acknowledged in pairs.
fn full(congestion: &str, duration: u32) -> String {
    format!(
        "protocol = guaranteed (mode = selective, window = 4096, frame = 1472 B, congestion = {congestion}); \
         test = full; duration = {duration} s;"
    )
}

/// A line of 50 Mb/s with a round trip of 50 ms: a bandwidth-delay product of 208 frames.
fn path(options: &str, buffer: u32) -> String {
    format!(
        "host a, b; switch s (buffer = {buffer} packets); link a - s (rate = 1 Gb/s); \
         link s - b (rate = 50 Mb/s, delay = 25 ms{options});"
    )
}

fn utilization(record: &Record) -> f64 {
    link(record, "s-b").utilization
}

#[test]
fn random_loss_costs_bbr_little_and_cubic_most() {
    let network = path(", loss = 0.01", 200);
    let share = |congestion| {
        let record = run(&experiment(&network, &full(congestion, 12)));
        println!(
            "{congestion}, 1 % of random loss, 50 ms: {:.1} Mb/s, utilization {:.3}",
            connection(&record, "x").received_bps / 1e6,
            utilization(&record)
        );
        assert_eq!(connection(&record, "x").lost, 0);
        utilization(&record)
    };
    let [bbr, bbr3, cubic] = ["bbr", "bbr3", "cubic"].map(share);
    assert!(bbr >= 0.9, "{bbr}");
    assert!(bbr3 >= 0.7, "{bbr3}");
    assert!(cubic < 0.3, "{cubic}");
}

/// A loss-based controller fills any buffer. BBR keeps about a bandwidth-delay product in it at most.
#[test]
fn a_deep_buffer_stays_almost_empty() {
    let network = path(", queue = droptail", 4000);
    let sojourn_ms = |congestion| {
        let record = run(&experiment(&network, &full(congestion, 12)));
        let queue = link(&record, "s-b").queues.iter().find(|queue| queue.name == "s").unwrap();
        let sojourn = queue.sojourn_us.clone().unwrap();
        println!(
            "{congestion}, deep buffer: utilization {:.3}, sojourn p50 {:.1} ms, p90 {:.1} ms, max {:.1} ms",
            utilization(&record),
            sojourn.p50 / 1e3,
            sojourn.p90 / 1e3,
            sojourn.max / 1e3
        );
        assert!(utilization(&record) >= 0.9, "{congestion}: {}", utilization(&record));
        (sojourn.p50 / 1e3, sojourn.p90 / 1e3)
    };
    for version in ["bbr", "bbr3"] {
        let (p50, p90) = sojourn_ms(version);
        // Startup fills two products more for a moment.
        assert!(p50 < 15.0 && p90 < 50.0, "{version}: {p50} and {p90} ms");
    }
    assert!(sojourn_ms("cubic").0 > 100.0);
}

#[test]
fn two_flows_share_a_link() {
    for version in ["bbr", "bbr3"] {
        for (buffer, seed) in [(100, 1), (400, 2)] {
            let text = format!(
                "experiment \"t\" {{ network {{ host a, b, c; switch s (buffer = {buffer} packets); \
                 link a - s (rate = 1 Gb/s); link b - s (rate = 1 Gb/s); \
                 link s - c (rate = 50 Mb/s, delay = 20 ms); }} parallel {{ \
                 connection x {{ xmt = a; rcv = c; {0} }} connection y {{ xmt = b; rcv = c; delay = 1 s; {0} }} }} }}",
                full(version, 20)
            );
            let record = run_with(&text, seed);
            let rates = ["x", "y"].map(|name| connection(&record, name).received_bps);
            let share = rates[0].min(rates[1]) / (rates[0] + rates[1]);
            println!(
                "{version}, {buffer} packets, seed {seed}: {:.1} and {:.1} Mb/s",
                rates[0] / 1e6,
                rates[1] / 1e6
            );
            assert!(share > 0.2, "{version}: {rates:?} with {buffer} packets and seed {seed}");
            assert!(rates[0] + rates[1] > 44e6, "{version}: {rates:?} with {buffer} packets and seed {seed}");
        }
    }
}

#[test]
fn the_probes_follow_from_the_seed() {
    for version in ["bbr", "bbr3"] {
        let text = experiment(&path("", 200), &full(version, 5));
        let hash = |seed| run_with(&text, seed).environment["trace_hash"].clone();
        assert_eq!(hash(1), hash(1), "{version}");
        assert_ne!(hash(1), hash(2), "{version}");
    }
}
