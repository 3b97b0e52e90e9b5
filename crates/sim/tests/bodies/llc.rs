//! Test body for messages over LLC, shared by the simulator and the live backend.

use trunkline_record::Record;

/// Three stations with datagrams, acknowledged messages and requests, several priorities, with and without checksum.
/// `TOKEN` is a placeholder for an option.
const TEXT: &str = r#"experiment "llc" {
  network { host a, b, c; switch s; link a - s (rate = 100 Mb/s); link b - s (rate = 100 Mb/s); link c - s (rate = 100 Mb/s); }
  parallel {
    connection paced  { xmt = a; rcv = b; protocol = llc (priority = 7 TOKEN); test = cbr (messagesize = 100:3, period = 5 ms); messages = 90; }
    connection below  { xmt = a; rcv = b; protocol = llc (priority = 5 TOKEN); test = poisson (messagesize = uniform(40, 900), rate = 200 /s); messages = 60; }
    connection sure   { xmt = b; rcv = c; protocol = llc (type = 3, sap = 6, priority = 4, timeout = 300 ms, crc = on TOKEN); test = full (messagesize = 1400); messages = 100; }
    connection asked  { xmt = c; rcv = a; protocol = llc (type = 3, sap = 8, priority = 6, timeout = 300 ms TOKEN); test = request (request = 64, response = 1000); messages = 40; }
    connection asks   { xmt = b; rcv = a; protocol = llc (sap = 10, priority = 6 TOKEN); test = request (request = 64, response = 200); messages = 40; }
  }
}"#;

/// Returns the experiment, with or without a token.
pub fn text(token: bool) -> String {
    TEXT.replace(" TOKEN", if token { ", token = on" } else { "" })
}

/// Checks the record.
pub fn check(record: &Record, token: bool) {
    assert!(!record.partial, "{:?}", record.problems);
    for (name, messages) in [("paced", 90), ("below", 60), ("sure", 100), ("asked", 40), ("asks", 40)] {
        let c = record.connections.iter().find(|c| c.name == name).unwrap();
        let of = |figure: &str| c.counters[figure];
        let details = format!("{name}: {:?}", c.counters);
        assert_eq!((c.messages_sent, c.messages_received, c.lost), (messages, messages, 0), "{details}");
        assert_eq!((c.duplicated, c.corrupted), (0, 0), "{details}");
        // Each message arrives once, and its outcome is known.
        assert_eq!(
            (of("llc_done"), of("llc_unanswered"), of("llc_refused")),
            (messages as f64, 0.0, 0.0),
            "{details}"
        );
        assert!(of("llc_tries") >= messages as f64 && of("llc_late") == 0.0, "{details}");
        assert!(c.delay_us.is_some(), "{details}");
        if name.starts_with("ask") {
            assert_eq!(of("answers"), 40.0, "{details}");
        }
        assert_eq!(c.rtt_us.is_some(), ["sure", "asked", "asks"].contains(&name), "{details}");
        assert_eq!(c.counters.contains_key("token_rotation_max_us"), token, "{details}");
        assert!(!token || of("token_rotation_mean_us") > 0.0, "{details}");
    }
    let priorities = ["paced", "below", "sure"]
        .map(|name| record.connections.iter().find(|c| c.name == name).unwrap().counters["llc_priority"]);
    assert_eq!(priorities, [7.0, 5.0, 4.0]);
}
