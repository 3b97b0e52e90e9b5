//! What must be true of messages over bundles, simulated and live: one body for both.

use trunkline_record::Record;

/// Two segments joined by two converters of level 1.
pub const SEGMENTS: &str = "host h1, h2, h3, router, listener;
    converter c1a (role = level1, number = 1); converter c1b (role = level1, number = 2); converter c2 (role = central);
    switch wan; hub lan (rate = 100 Mb/s);
    link router - wan (rate = 100 Mb/s); link listener - wan (rate = 100 Mb/s);
    link c1a - wan (rate = 100 Mb/s); link c1b - wan (rate = 100 Mb/s);
    link c1a - lan; link c1b - lan; link c2 - lan; link h1 - lan; link h2 - lan; link h3 - lan;";

/// On the address that h2 and the listener want already: h2 hears `b`, and h1 hears h3 and not itself. `around` goes by the
/// wide area alone.
const FLOWS: [(&str, &str, &str, &str, u32); 5] = [
    ("wide", "router", "h1, h2", "address = 0", 200),
    ("a", "h1", "h2, listener", "address = 100", 120),
    ("b", "h3", "h1", "address = 100", 80),
    ("c", "h2", "h3", "address = 333, priority = high", 50),
    ("around", "router", "listener", "address = 2000", 50),
];

/// The network with converters of the wide format.
pub fn wide(network: &str) -> String {
    network.replace("(role", "(format = wide, role")
}

/// The experiment on a network with such hosts and converters, with messages for so many seconds.
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

/// What its record of two seconds must show if nothing is lost: who wants it gets it, once and in order, and nobody hears himself.
/// In the wide format who of level 1 is there first may get all that is wanted by then.
pub fn check(record: &Record, is_wide: bool) {
    assert!(!record.partial, "{:?}", record.trouble);
    for c in &record.connections {
        let to = c.to.len() as u64;
        assert_eq!((c.messages_received, c.lost), (c.messages_sent * to, 0), "{}", c.name);
        assert_eq!((c.duplicated, c.reordered, c.corrupted, c.partial), (0, 0, 0, false), "{}", c.name);
        let counter = |name: &str| c.counters[name];
        assert_eq!(
            (counter("bundle_congested"), counter("bundle_full"), counter("strangers")),
            (0.0, 0.0, 0.0)
        );
        assert!(c.delay_us.is_some() && c.asked.gap_samples > 0, "{}", c.name);
    }
    let sent = |name: &str| record.connections.iter().find(|c| c.name == name).unwrap().messages_sent;
    assert!(FLOWS.iter().all(|(name, .., rate)| sent(name) == u64::from(2 * rate)));
    let count = |name: &str, counter: &str| {
        let host = record.hosts.iter().find(|host| host.name == name).unwrap();
        let counted = host.interfaces.get(&format!("bundle.{counter}"));
        *counted.unwrap_or_else(|| panic!("{name} has no {counter}: {:?}", host.interfaces))
    };
    // Its own messages would be among these.
    assert_eq!(count("h1", "received"), sent("wide") + sent("b"));
    assert_eq!(count("h3", "received"), sent("c"));
    // Of `b`, for which it is not asked, it may lack what was under way when the run ended.
    let asked = sent("wide") + sent("a");
    assert!(
        (asked + 1..=asked + sent("b")).contains(&count("h2", "received")),
        "{}",
        count("h2", "received")
    );
    assert_eq!((count("h1", "sent"), count("h3", "sent")), (sent("a"), sent("b")));
    assert_eq!(count("c2", "from_level1"), sent("wide"));
    // What is wanted is told again now and then; in the wide format all that a host wants goes into one item.
    assert!(count("c2", "control") >= if is_wide { 3 } else { 5 });
    let out = sent("a") + sent("b") + sent("c");
    assert_eq!(count("c2", "from_hosts"), out);
    let level1 = |counter| count("c1a", counter) + count("c1b", counter);
    assert_eq!(level1("heard"), sent("wide"));
    // All goes out; what nobody waits for there may be under way when the run ends.
    assert!((sent("a")..=out).contains(&level1("sent")), "{} of {out}", level1("sent"));
    // The groups of 0, 100 and 333, shared out; taken over from who had no time to say that it is there.
    assert_eq!(level1("joined"), 3);
    assert!(level1("joins") >= 3);
    let most = count("c1a", "joined").max(count("c1b", "joined"));
    assert!(most == 2 || is_wide && most == 3, "{most}");
    for name in ["c1a", "c1b", "c2", "h1", "h2", "h3"] {
        assert_eq!(count(name, "malformed"), 0, "{name}");
        assert!(name.starts_with("c1") || count(name, "bundles_sent") > 10, "{name}");
    }
}
