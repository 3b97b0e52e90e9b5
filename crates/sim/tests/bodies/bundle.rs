//! Test body for messages over bundles, shared by the simulator and the live backend.

use trunkline_record::Record;

/// Two segments connected by two level 1 converters.
pub const SEGMENTS: &str = "host h1, h2, h3, router, listener;
    converter c1a (role = level1, number = 1); converter c1b (role = level1, number = 2); converter c2 (role = central);
    switch wan; hub lan (rate = 100 Mb/s);
    link router - wan (rate = 100 Mb/s); link listener - wan (rate = 100 Mb/s);
    link c1a - wan (rate = 100 Mb/s); link c1b - wan (rate = 100 Mb/s);
    link c1a - lan; link c1b - lan; link c2 - lan; link h1 - lan; link h2 - lan; link h3 - lan;";

/// Connections: name, sender, receivers, options, messages per second. `a` and `b` share an address, so h2 also receives
/// `b`, and h1 receives h3's messages but not its own. `around` uses the wide area only.
const FLOWS: [(&str, &str, &str, &str, u32); 5] = [
    ("wide", "router", "h1, h2", "address = 0", 200),
    ("a", "h1", "h2, listener", "address = 100", 120),
    ("b", "h3", "h1", "address = 100", 80),
    ("c", "h2", "h3", "address = 333, priority = high", 50),
    ("around", "router", "listener", "address = 2000", 50),
];

/// Returns the network with converters of bundle format 2.
pub fn with_format2(network: &str) -> String {
    network.replace("(role", "(format = wide, role")
}

/// Returns the experiment on a network with these hosts and converters; messages are sent for `seconds`.
pub fn text(network: &str, seconds: u32) -> String {
    let flow = |(name, from, to, options, rate): (&str, &str, &str, &str, u32)| {
        format!(
            "connection {name} {{ xmt = {from}; rcv = {to}; protocol = bundle ({options});
               test = poisson (messagesize = uniform(40, 300), rate = {rate} /s); messages = {}; }}",
            rate * seconds
        )
    };
    let flows = FLOWS.map(flow).concat();
    format!("experiment \"bundles\" {{ network {{ {network} }} parallel {{ {flows} }} }}")
}

/// Checks the record of two seconds without loss: subscribers receive each message once and in order, senders do not
/// receive their own. In bundle format 2 the first level 1 converter may get all early subscriptions.
pub fn check(record: &Record, is_format2: bool) {
    assert!(!record.partial, "{:?}", record.problems);
    for c in &record.connections {
        let to = c.to.len() as u64;
        assert_eq!((c.messages_received, c.lost), (c.messages_sent * to, 0), "{}", c.name);
        assert_eq!((c.duplicated, c.reordered, c.corrupted, c.partial), (0, 0, 0, false), "{}", c.name);
        let counter = |name: &str| c.counters[name];
        assert_eq!(
            (counter("bundle_congested"), counter("bundle_full"), counter("strangers")),
            (0.0, 0.0, 0.0)
        );
        assert!(c.delay_us.is_some() && c.requested.gap_samples > 0, "{}", c.name);
    }
    let sent = |name: &str| record.connections.iter().find(|c| c.name == name).unwrap().messages_sent;
    assert!(FLOWS.iter().all(|(name, .., rate)| sent(name) == u64::from(2 * rate)));
    let count = |name: &str, counter: &str| {
        let host = record.hosts.iter().find(|host| host.name == name).unwrap();
        let counted = host.interfaces.get(&format!("bundle.{counter}"));
        *counted.unwrap_or_else(|| panic!("{name} has no {counter}: {:?}", host.interfaces))
    };
    // The host's own messages are not among these.
    assert_eq!(count("h1", "received"), sent("wide") + sent("b"));
    assert_eq!(count("h3", "received"), sent("c"));
    // Messages of `b` may still be in flight when the run ends.
    let subscribed = sent("wide") + sent("a");
    assert!(
        (subscribed + 1..=subscribed + sent("b")).contains(&count("h2", "received")),
        "{}",
        count("h2", "received")
    );
    assert_eq!((count("h1", "sent"), count("h3", "sent")), (sent("a"), sent("b")));
    assert_eq!(count("c2", "from_level1"), sent("wide"));
    // Subscriptions are refreshed periodically; bundle format 2 puts all of a host's subscriptions into one item.
    assert!(count("c2", "control") >= if is_format2 { 3 } else { 5 });
    let from_hosts = sent("a") + sent("b") + sent("c");
    assert_eq!(count("c2", "from_hosts"), from_hosts);
    let level1 = |counter| count("c1a", counter) + count("c1b", counter);
    assert_eq!(level1("heard"), sent("wide"));
    // Messages without a subscriber may still be in flight when the run ends.
    assert!((sent("a")..=from_hosts).contains(&level1("sent")), "{} of {from_hosts}", level1("sent"));
    // The groups of 0, 100 and 333 are distributed. A group may move if a converter announces itself late.
    assert_eq!(level1("joined"), 3);
    assert!(level1("joins") >= 3);
    let max_joined = count("c1a", "joined").max(count("c1b", "joined"));
    let is_simulated = record.backend == "sim";
    assert!(max_joined == 2 || max_joined == 3 && (is_format2 || !is_simulated), "{max_joined}");
    for name in ["c1a", "c1b", "c2", "h1", "h2", "h3"] {
        assert_eq!(count(name, "malformed"), 0, "{name}");
        assert!(name.starts_with("c1") || count(name, "bundles_sent") > 10, "{name}");
    }
}
