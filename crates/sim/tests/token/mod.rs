//! What the tests of the token share: promises that are kept.

use trunkline_record::Record;

/// NASA's requirement with as many stations as are admitted.
pub const NASA: &str = include_str!("../../../../experiments/llc-nasa.ns");
/// Sixteen stations with the same, and copies in the background.
pub const COPIES: &str = include_str!("../../../../experiments/llc-copies.ns");

/// The text with another duration.
pub fn for_seconds(text: &str, seconds: u64) -> String {
    text.replace("duration = 10 s", &format!("duration = {seconds} s"))
}

/// Every promised message came, within the bound; the longest delay, as a share of it.
pub fn kept(record: &Record, seconds: u64) -> f64 {
    assert!(!record.partial, "{:?}", record.trouble);
    let mut share = 0f64;
    for c in record.connections.iter().filter(|c| c.counters["llc_priority"] == 6.0) {
        assert_eq!((c.messages_sent, c.lost, c.counters["llc_late"]), (seconds * 100, 0, 0.0), "{}", c.name);
        let (worst, bound) = (c.delay_us.as_ref().unwrap().max, c.counters["token_bound_us"]);
        assert!(bound <= 10_000.0 && worst <= bound, "{}: {worst} of {bound}", c.name);
        share = share.max(worst / bound);
    }
    for host in &record.hosts {
        let count = |name: &str| host.interfaces[name];
        assert_eq!((count("token.claimed"), count("token.died"), count("token.doubled")), (0, 0, 0));
        assert_eq!(count("token.stations"), record.hosts.len() as u64);
    }
    share
}
