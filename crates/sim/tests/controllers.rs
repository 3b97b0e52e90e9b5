//! Congestion controllers of simulated TCP, and the extensions that come with them.

use crate::common::{connection, experiment, plan, run};
use trunkline_run::Backend as _;

/// A path of 50 Mb/s and 50 ms whose buffer holds half a bandwidth-delay product.
fn path(loss: f64) -> String {
    format!(
        "host a, b; switch s (buffer = 100 packets); link a - s (rate = 1 Gb/s); \
         link s - b (rate = 50 Mb/s, delay = 25 ms, loss = {loss});"
    )
}

fn full(options: &str, duration: u32) -> String {
    format!("protocol = tcp ({options}); test = full; duration = {duration} s;")
}

#[test]
fn every_controller_fills_a_path_and_is_named_in_the_record() {
    for (options, name) in [
        ("", "reno (4.3BSD)"),
        ("congestion = reno", "reno (4.3BSD)"),
        ("congestion = newreno", "newreno"),
        ("congestion = newreno, sack = off", "newreno"),
        ("congestion = cubic", "cubic"),
        ("congestion = cubic, hystart = off", "cubic"),
        ("congestion = dctcp", "dctcp"),
        ("congestion = bbr", "bbr"),
        ("congestion = bbr3", "bbr3"),
        ("congestion = prague", "prague"),
        ("congestion = reno, sack = on, timestamps = on", "reno (4.3BSD)"),
    ] {
        let record = run(&experiment(&path(0.0), &full(options, 20)));
        let x = connection(&record, "x");
        assert_eq!(x.notes["congestion"], name, "{options}");
        assert_eq!((x.lost, x.messages_sent == x.messages_received), (0, true), "{options}");
        // One loss per round trip is repaired without SACK, of the hundreds that the first slow start costs.
        let is_slow = ["", "congestion = reno", "congestion = newreno, sack = off"].contains(&options);
        let least = if is_slow { 8e6 } else { 40e6 };
        assert!(x.received_bps > least, "{} with {options}", x.received_bps);
    }
}

/// Random loss of a thousandth: average windows of 38 segments in 50 ms are 8.8 Mb/s (Mathis and others 1997).
#[test]
fn rate_under_random_loss_is_that_of_the_law() {
    for options in ["congestion = newreno", "congestion = newreno, sack = off", "congestion = cubic"] {
        let record = run(&experiment(&path(1e-3), &full(options, 40)));
        let x = connection(&record, "x");
        assert!((6.5e6..12.5e6).contains(&x.received_bps), "{} with {options}", x.received_bps);
        assert!(x.counters["retransmissions"] > 20.0 && x.counters["timeouts"] <= 3.0, "{:?}", x.counters);
    }
}

/// Slow start overruns the buffer and loses hundreds of segments of a window. SACK repairs them in a few round trips, 4.3BSD
/// waits for its timer again and again.
#[test]
fn an_overrun_buffer_costs_little_today() {
    let rate = |options: &str| {
        let record = run(&experiment(&path(0.0), &full(options, 20)));
        connection(&record, "x").received_bps
    };
    let (bsd, cubic) = (rate(""), rate("congestion = cubic, hystart = off"));
    assert!(cubic > 3.0 * bsd, "{bsd} and {cubic}");
}

/// A message waits for the bytes before it in the send buffer: a few congestion windows, or 4 MiB.
#[test]
fn a_send_buffer_of_linux_grows_with_the_window() {
    let delay = |options: &str| {
        let record = run(&experiment(&path(0.0), &full(options, 20)));
        let x = connection(&record, "x");
        assert_eq!((x.lost, x.messages_sent), (0, x.messages_received), "{options}");
        x.delay_us.as_ref().unwrap().p50
    };
    let standard = delay("congestion = cubic");
    let linux = delay("congestion = cubic, variant = linux");
    // At least a round trip, as two windows wait.
    assert!((50e3..0.7 * standard).contains(&linux), "{linux} us and {standard} us");
    let buffer = delay("congestion = cubic, variant = linux, window = 4 MiB");
    assert!((0.9..1.1).contains(&(buffer / standard)), "{buffer} us and {standard} us");
}

/// As the kernel's: the smoothed estimate, sampled every 50 ms at most.
#[test]
fn round_trips_are_samples_of_the_estimate() {
    let record = run(&experiment(&path(0.0), &full("congestion = cubic", 10)));
    let rtt = connection(&record, "x").rtt_us.as_ref().unwrap();
    assert!((50..=210).contains(&rtt.count) && rtt.min >= 50e3, "{rtt:?}");
}

#[test]
fn options_of_today_can_be_set() {
    // 28 messages arrive at once, or over several round trips.
    let rate = |options: &str| {
        let network = "host a, b; link a - b (rate = 1 Gb/s, delay = 50 ms);";
        let text = format!("protocol = tcp ({options}); test = full (messagesize = 1448); bytes = 40000;");
        let record = run(&experiment(network, &text));
        let x = connection(&record, "x");
        assert_eq!(x.lost, 0);
        x.received_bps
    };
    let (few, many) =
        (rate("congestion = cubic, initial_window = 3"), rate("congestion = cubic, initial_window = 30"));
    assert!(many > 2.0 * few, "{few} and {many}");
}

#[test]
fn unknown_controllers_are_refused_with_the_list() {
    let text = experiment(&path(0.0), &full("congestion = vegas", 1));
    let refusals = trunkline_sim::Sim::default().refuse(&plan(&text));
    assert_eq!(refusals.len(), 1);
    assert_eq!(
        refusals[0].text,
        "x: `sim` has no `congestion = vegas`; it has reno, newreno, cubic, dctcp, prague, bbr, bbr3"
    );
}

/// The guaranteed transport has the same controllers, in frames.
#[test]
fn guaranteed_has_cubic_too() {
    let text = "protocol = guaranteed (mode = selective, window = 4096, frame = 1472 B, congestion = cubic);
        test = full (messagesize = 8192); duration = 20 s;";
    let record = run(&experiment(&path(0.0), text));
    let x = connection(&record, "x");
    assert_eq!(x.lost, 0);
    assert!(x.received_bps > 35e6, "{}", x.received_bps);
}

/// A queue that marks costs no packet, and the sender reduces its window as after a loss.
#[test]
fn marks_of_a_queue_reach_the_controller() {
    for controller in
        ["cubic, ecn = on", "cubic, ecn = accurate", "dctcp, ecn = on", "dctcp, ecn = accurate", "prague"]
    {
        let network = "host a, b; switch s (buffer = 1000 packets); link a - s (rate = 1 Gb/s); \
                       link s - b (rate = 50 Mb/s, delay = 10 ms, queue = codel (ecn = on));";
        let record = run(&experiment(network, &full(&format!("congestion = {controller}"), 10)));
        let x = connection(&record, "x");
        let link = record.links.iter().find(|link| link.name == "s-b").unwrap();
        let queue = link.queues.iter().find(|queue| queue.name == "s").unwrap();
        assert!(queue.marked > 0 && queue.dropped_early == 0, "{controller}: {queue:?}");
        assert!(x.counters["retransmissions"] == 0.0 && x.counters["marked_bytes"] > 0.0, "{controller}");
        assert!(x.received_bps > 40e6, "{controller}: {}", x.received_bps);
        let p50 = queue.sojourn_us.as_ref().unwrap().p50;
        assert!(p50 < 15_000.0, "{controller}: {p50}");
    }
}
