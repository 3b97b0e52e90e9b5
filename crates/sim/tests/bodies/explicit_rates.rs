//! Test body for explicit rates over a slow link, shared by the simulator and the lab.

use trunkline_record::Record;

/// Over 8 Mb/s: `udp` sends all the time, `guaranteed` in the middle.
pub const TEXT: &str = "experiment \"rates\" { network { host a, b, c, k; switch s (buffer = 4000 packets);
       link a - s (medium = atm, rate = 155 Mb/s, delay = 1 ms); link b - s (medium = atm, rate = 155 Mb/s);
       link k - s (medium = atm, rate = 155 Mb/s);
       link s - c (medium = atm, rate = 8 Mb/s, delay = 2 ms, explicit_rate = controller (host = k)); }
     connection udp { xmt = a; rcv = c; protocol = udp (flow = off); test = full (messagesize = 1000);
       duration = 1500 ms; }
     connection guaranteed { xmt = b; rcv = c; protocol = guaranteed (mode = selective, window = 64, frame = 1400 B);
       test = full (messagesize = 1000); delay = 500 ms; duration = 500 ms; } }";

/// Checks what holds on any machine: nothing is lost, and a source is only ever allowed all of the line or half of it.
pub fn check(record: &Record) {
    let link = record.links.iter().find(|link| link.name == "s-c").unwrap();
    assert_eq!(link.dropped, 0, "{link:?}");
    for (name, shares) in [("udp", &[8e6, 4e6][..]), ("guaranteed", &[4e6])] {
        let c = record.connections.iter().find(|c| c.name == name).unwrap();
        assert_eq!(c.error, None, "{name}");
        assert_eq!((c.lost, c.messages_received), (0, c.messages_sent), "{name}: {:?}", c.counters);
        // Of 250 and more; a busy machine sends fewer.
        assert!(c.messages_sent > 10, "{name} stopped after {}", c.messages_sent);
        let allowed: Vec<f64> =
            c.series.iter().filter_map(|point| point.extra.get("allowed_bps").copied()).collect();
        for share in shares {
            assert!(allowed.contains(share), "{name}: {share} is not among {allowed:?}");
        }
        assert!(allowed.iter().all(|rate| [0.0, 4e6, 8e6].contains(rate)), "{name}: {allowed:?}");
    }
}
