//! `udp (control = credit)`: credits of datagrams from end to end.

#[path = "bodies/credit.rs"]
mod body;

use crate::common::{connection, link, run, run_with};

#[test]
fn nothing_is_lost_in_the_network() {
    body::check(&run(body::TEXT));
    let without = run(&body::TEXT.replace("control = credit (window = 20)", "flow = off"));
    assert!(link(&without, "s-c").dropped > 1_000, "{}", link(&without, "s-c").dropped);
}

#[test]
fn losses_never_stop_a_sender() {
    for seed in 0..10 {
        body::check_lossy(&run_with(&body::lossy(), seed));
    }
    // Out of order and duplicated, too.
    let text =
        body::TEXT.replace("rate = 8 Mb/s", "reorder = 0.2, duplicate = 0.1, loss = 0.1, rate = 8 Mb/s");
    for seed in 0..10 {
        let record = run_with(&text, seed);
        for name in ["full", "other", "paced"] {
            assert!(connection(&record, name).messages_received > 30, "seed {seed}: {name}");
        }
    }
}

#[test]
fn a_small_window_carries_a_window_a_round_trip() {
    let text = "experiment \"t\" { network { host a, b; link a - b (rate = 100 Mb/s, delay = 10 ms); }
         connection x { xmt = a; rcv = b; protocol = udp (control = credit (window = 8));
           test = full (messagesize = 1000); duration = 2 s; } }";
    let record = run(text);
    // Reports come after every four datagrams, so that a window returns in a round trip and a little more.
    let sent = connection(&record, "x").messages_sent as f64;
    assert!((760.0..=808.0).contains(&sent), "{sent}");
}
