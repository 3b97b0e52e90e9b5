//! Stations of IEEE 802.2 over the media of a lab, beside the simulator.

use trunkline_record::Record;
use trunkline_sim::Sim;

use crate::backend::{lab, run};

/// Returns what each link has carried from each of its ends: node, octets, frames, drops.
fn carried(record: &Record) -> Vec<(&str, &str, u64, u64, u64)> {
    let ends = record.links.iter().flat_map(|link| link.ends.iter().map(|end| (link.name.as_str(), end)));
    let last = |(link, end): (_, &'_ trunkline_record::schema::LinkEnd)| {
        let &(_, octets, frames, dropped) = end.counts.last().unwrap();
        (link, octets, frames, dropped)
    };
    let nodes = record.links.iter().flat_map(|link| &link.ends).map(|end| end.node.as_str());
    ends.map(last)
        .zip(nodes)
        .map(|((link, octets, frames, dropped), node)| (link, node, octets, frames, dropped))
        .collect()
}

/// Over a link, a switch, a hub and a ring, the same frames cross the same links as in the simulator.
pub fn stations_exchange_what_they_exchange_in_the_simulator() {
    for network in [
        "link a - b (rate = 10 Mb/s, delay = 1 ms);",
        "switch s; link a - s (rate = 10 Mb/s); link s - b (rate = 10 Mb/s, delay = 1 ms);",
        "hub h (rate = 10 Mb/s); link a - h; link b - h;",
        "ring r (rate = 4 Mb/s); link a - r; link b - r;",
    ] {
        let text = format!(
            "experiment \"llc\" {{ network {{ host a, b; {network} }} serial {{
               connection plain {{ xmt = a; rcv = b; protocol = llc (priority = 5); test = cbr (messagesize = 300, period = 5 ms); messages = 100; }}
               connection short {{ xmt = b; rcv = a; protocol = llc; test = cbr (messagesize = 32, period = 5 ms); messages = 50; }}
               connection acknowledged {{ xmt = b; rcv = a; protocol = llc (type = 3, sap = 6, timeout = 2 s);
                 test = full (messagesize = 500); messages = 100; }}
               connection asked {{ xmt = a; rcv = b; protocol = llc (sap = 8);
                 test = request (request = 100, response = 200); messages = 50; }}
            }} }}"
        );
        let folder = tempfile::tempdir().unwrap();
        let [sim, lab] = [
            run(&mut Sim { link_series: true, ..Sim::default() }, folder.path(), &text),
            run(&mut lab(), folder.path(), &text),
        ];
        assert_eq!(lab.problems, [""; 0], "{network}");
        for (s, l) in sim.connections.iter().zip(&lab.connections) {
            let counts = |c: &trunkline_record::schema::Connection| {
                (c.messages_sent, c.messages_received, c.lost, c.duplicated)
            };
            assert_eq!(counts(l), counts(s), "{network} {}", s.name);
            assert_eq!((l.lost, l.messages_sent > 0), (0, true), "{network} {}", s.name);
        }
        assert_eq!(carried(&lab), carried(&sim), "{network}");
    }
}

/// Frames lost on the line are those of the simulator, and type 3 repeats them.
pub fn acknowledged_messages_survive_losses() {
    let text = "experiment \"llc\" { network { host a, b; link a - b (rate = 10 Mb/s, loss = 0.1); }
        connection x { xmt = a; rcv = b; protocol = llc (type = 3, timeout = 100 ms, tries = 20); test = full (messagesize = 200); messages = 100; } }";
    let folder = tempfile::tempdir().unwrap();
    let record = run(&mut lab(), folder.path(), text);
    assert_eq!(record.problems, [""; 0]);
    let c = &record.connections[0];
    assert_eq!((c.messages_sent, c.messages_received, c.lost), (100, 100, 0));
    assert!(c.counters["llc_tries"] > 100.0, "{:?}", c.counters);
}

/// Stations form a ring and pass the token.
pub fn a_token_goes_round() {
    let text = "experiment \"token\" { network { host a, b, c; switch s;
            link a - s (rate = 100 Mb/s); link b - s (rate = 100 Mb/s); link c - s (rate = 100 Mb/s); }
        parallel {
          connection x { xmt = a; rcv = b; protocol = llc (priority = 6, token = on); test = cbr (messagesize = 100, period = 20 ms); messages = 50; }
          connection y { xmt = c; rcv = a; protocol = llc (priority = 2, token = on); test = cbr (messagesize = 100, period = 20 ms); messages = 50; }
        } }";
    let folder = tempfile::tempdir().unwrap();
    let record = run(&mut lab(), folder.path(), text);
    assert_eq!(record.problems, [""; 0]);
    for c in &record.connections {
        assert_eq!((c.messages_sent, c.messages_received), (50, 50), "{}", c.name);
        assert!(c.counters["token_rotation_mean_us"] > 0.0, "{:?}", c.counters);
    }
}
