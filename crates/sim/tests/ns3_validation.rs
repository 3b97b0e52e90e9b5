//! ns-3's `tcp-validation`.

use crate::common::{connection, run};

const TEXT: &str = include_str!("../../../experiments/tcp-validation.ns");

fn rates(rtt_ms: u32, duration: u32) -> Vec<f64> {
    let text = TEXT
        .replace("delay = 25 ms", &format!("delay = {} ms", rtt_ms / 2))
        .replace("queue = codel", "queue = codel (ecn = on, ce_threshold = 1 ms)")
        .replace("congestion = cubic, hystart = off, reno_friendly = off", "congestion = dctcp")
        .replace("duration = 15 s", &format!("duration = {duration} s"));
    let record = run(&text);
    let x = connection(&record, "x");
    println!("{:?}", x.counters);
    x.series.chunks(4).map(|points| points.iter().map(|p| p.received_bps).sum::<f64>() / points.len() as f64 / 1e6).collect()
}

#[test]
fn try_dctcp() {
    for (rtt, d) in [(10, 10), (80, 35)] {
        for (n, r) in rates(rtt, d).iter().enumerate() { print!("{:.1}:{r:.2} ", 5.0 + 0.2 * (n + 1) as f64 + rtt as f64 / 1e3); }
        println!();
    }
}
