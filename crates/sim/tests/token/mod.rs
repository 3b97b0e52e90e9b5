//! Helpers of the token tests: checks that promises are kept.

use trunkline_record::Record;

/// NASA's requirement with the maximum admitted number of stations.
pub const NASA: &str = include_str!("../../../../experiments/llc-nasa.ns");
/// Sixteen stations with the same requirement and background copies.
pub const COPIES: &str = include_str!("../../../../experiments/llc-copies.ns");

/// Returns the text with another duration.
pub fn for_seconds(text: &str, seconds: u64) -> String {
    text.replace("duration = 10 s", &format!("duration = {seconds} s"))
}

/// Checks that every promised message arrived within its bound. Returns the maximum delay as a fraction of the bound.
pub fn check_promises(record: &Record, seconds: u64) -> f64 {
    assert!(!record.partial, "{:?}", record.problems);
    let mut share = 0f64;
    for c in record.connections.iter().filter(|c| c.counters["llc_priority"] == 6.0) {
        assert_eq!((c.messages_sent, c.lost, c.counters["llc_late"]), (seconds * 100, 0, 0.0), "{}", c.name);
        let (max_delay, bound) = (c.delay_us.as_ref().unwrap().max, c.counters["token_bound_us"]);
        assert!(bound <= 10_000.0 && max_delay <= bound, "{}: {max_delay} of {bound}", c.name);
        share = share.max(max_delay / bound);
    }
    for host in &record.hosts {
        let count = |name: &str| host.interfaces[name];
        assert_eq!((count("token.claimed"), count("token.died"), count("token.doubled")), (0, 0, 0));
        assert_eq!(count("token.stations"), record.hosts.len() as u64);
    }
    share
}
