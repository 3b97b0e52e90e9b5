//! Bundle converters as programs of their hosts, beside the simulator.

use trunkline_record::Record;
use trunkline_sim::Sim;

use crate::backend::{lab, run};

/// Three hosts and two converters; the wide area is behind `c1`.
fn experiment(options: &str) -> String {
    format!(
        "experiment \"bundles\" {{
          network {{
            host h1, h2, far; converter c1 (role = level1, number = 1{options}); converter c2 (role = central{options});
            switch wan, lan;
            link far - wan (rate = 1 Mb/s, delay = 5 ms); link c1 - wan (rate = 10 Mb/s);
            link c1 - lan (rate = 10 Mb/s); link c2 - lan (rate = 10 Mb/s);
            link h1 - lan (rate = 10 Mb/s); link h2 - lan (rate = 10 Mb/s);
          }}
          parallel {{
            connection from_far {{ xmt = far; rcv = h1, h2; protocol = bundle (address = 5); test = cbr (messagesize = 100, period = 10 ms); messages = 100; }}
            connection to_far {{ xmt = h1; rcv = h2, far; protocol = bundle (address = 40); test = cbr (messagesize = 200, period = 10 ms); messages = 100; }}
          }}
        }}"
    )
}

/// Returns the frames that a node has sent into a link.
fn frames(record: &Record, link: &str, node: &str) -> u64 {
    let link = record.links.iter().find(|other| other.name == link).unwrap();
    link.ends.iter().find(|end| end.node == node).unwrap().counts.last().unwrap().2
}

/// All messages arrive at all receivers, as in the simulator, and those of the wide area cross its link one by one.
pub fn converters_carry_what_they_carry_in_the_simulator() {
    for options in ["", ", format = wide"] {
        let text = experiment(options);
        let folder = tempfile::tempdir().unwrap();
        let sim = run(&mut Sim { link_series: true, ..Sim::default() }, folder.path(), &text);
        let lab = run(&mut lab(), folder.path(), &text);
        assert_eq!(lab.problems, [""; 0], "{options}");
        for (s, l) in sim.connections.iter().zip(&lab.connections) {
            let counts = |c: &trunkline_record::schema::Connection| {
                (c.messages_sent, c.messages_received, c.lost, c.duplicated)
            };
            assert_eq!(counts(l), counts(s), "{options} {}", s.name);
            assert_eq!((l.messages_sent, l.messages_received, l.lost), (100, 200, 0), "{options} {}", s.name);
        }
        // A message of the wide area is a packet: in both, 100 in each direction.
        for (link, node) in [("far-wan", "far"), ("far-wan", "wan"), ("c1-wan", "c1")] {
            let frames = [&sim, &lab].map(|record| frames(record, link, node));
            assert_eq!(frames, [100; 2], "{options} {link} from {node}");
        }
    }
}
