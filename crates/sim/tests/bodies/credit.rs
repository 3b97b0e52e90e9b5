//! Test body for `udp (control = credit)` over a slow link, shared by the simulator and the lab.

use trunkline_record::Record;

/// Two senders at full speed and one that offers more than its share at fixed times, over 8 Mb/s. The queue of the switch
/// holds the windows of all, so it never overflows.
pub const TEXT: &str = "experiment \"credit\" { network { host a, b, c; switch s (buffer = 100 packets);
       link a - s (rate = 100 Mb/s, delay = 1 ms); link b - s (rate = 100 Mb/s, delay = 1 ms);
       link s - c (rate = 8 Mb/s, delay = 2 ms); }
     connection full { xmt = a; rcv = c; protocol = udp (control = credit (window = 20));
       test = full (messagesize = 1000); duration = 600 ms; }
     connection other { xmt = b; rcv = c; protocol = udp (control = credit (window = 20));
       test = full (messagesize = 1000); duration = 600 ms; }
     connection paced { xmt = b; rcv = c; protocol = udp (control = credit (window = 4));
       test = burst (messagesize = 1000, period = 1 ms); duration = 600 ms; } }";

/// Checks what holds on any machine: nothing is lost in the network, and the sources hold what does not fit.
pub fn check(record: &Record) {
    let offered = 600;
    for c in &record.connections {
        assert_eq!(c.error, None);
        assert_eq!((c.lost, c.messages_received), (0, c.messages_sent), "{}: {:?}", c.name, c.counters);
        assert!(c.messages_sent > 20, "{} stopped after {}", c.name, c.messages_sent);
        assert!(c.counters["credit_reports"] > 1.0, "{}: {:?}", c.name, c.counters);
        // In 600 ms and what waits then, the line carries 600 kB.
        assert!(c.messages_sent < 700, "{} sent {}", c.name, c.messages_sent);
    }
    let link = record.links.iter().find(|link| link.name == "s-c").unwrap();
    assert_eq!((link.dropped, link.dropped_queue), (0, Some(0)));
    let paced = record.connections.iter().find(|c| c.name == "paced").unwrap();
    assert!(paced.messages_sent < offered / 2, "{} of {offered} sent", paced.messages_sent);
}

/// The same with a line that loses a tenth of all datagrams, reports and checks.
pub fn lossy() -> String {
    TEXT.replace("rate = 8 Mb/s", "loss = 0.1, rate = 8 Mb/s")
}

/// Checks that losses never stop a sender.
pub fn check_lossy(record: &Record) {
    for c in &record.connections {
        assert!(
            c.lost > 0 && c.messages_received > 30,
            "{}: {} of {}",
            c.name,
            c.messages_received,
            c.messages_sent
        );
        assert_eq!(c.lost + c.messages_received, c.messages_sent, "{}", c.name);
    }
}
