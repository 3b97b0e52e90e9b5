//! Figures of forward error correction: message delay and goodput against loss, at three round-trip times.

use super::{Figure, Transport};

/// The name that selects these figures.
pub const ALL: &str = "fec";

/// One link, with a connection that sends at full speed and one that sends a message every 5 ms on average.
const BASE: &str = r#"experiment "fec" {
  network { host a, b; link a - b (rate = 20 Mb/s); }
  connection full {
    xmt = a (xmtbuf = 64 MB); rcv = b (rcvbuf = 64 MB);
    protocol = guaranteed (mode = selective, frame = 1472 B, window = 8192, ack_every = 8, congestion = paced);
    test = full (messagesize = 16 KiB); duration = 20 s;
  }
  connection sparse {
    xmt = a; rcv = b;
    protocol = guaranteed (mode = selective, frame = 1472 B, window = 8192, ack_every = 8, congestion = fixed);
    test = poisson (messagesize = 1000, rate = 200 /s); duration = 30 s;
  }
}"#;

const TRANSPORTS: &[Transport] = &[
    ("without", &[]),
    ("20+1", &[("fec", "20+1")]),
    ("10+1", &[("fec", "10+1")]),
    ("10+2", &[("fec", "10+2")]),
];

const LOSSES: &[&str] = &["0", "1e-3", "3e-3", "1e-2", "2e-2", "5e-2"];

const SHORT: &[(&str, &str)] = &[("a-b.delay", "0.5 ms")];
const MIDDLE: &[(&str, &str)] = &[("a-b.delay", "20 ms")];
const LONG: &[(&str, &str)] = &[("a-b.delay", "300 ms")];

const DELAY: &str = "A message of 1,000 bytes every 5 ms on average (Poisson), for 30 s. Messages are delivered in order, so a lost \
                     one delays those after it.";
const GOODPUT: &str = "Full speed over a link of 20 Mb/s, paced, for 20 s including startup.";

const fn of(
    name: &'static str,
    title: &'static str,
    connection: &'static [&'static str],
    figure: &'static str,
    set: &'static [(&'static str, &'static str)],
    note: &'static str,
) -> Figure {
    Figure {
        name,
        title,
        base: BASE,
        transports: TRANSPORTS,
        connections: connection,
        figure,
        keys: &["a-b.loss"],
        axis: "share lost, each way",
        unit: "",
        values: LOSSES,
        set,
        seeds: 3,
        paper: None,
        note,
    }
}

const SPARSE: &[&str] = &["sparse"];
const FULL: &[&str] = &["full"];
const MEDIAN: &str = "delay_us.p50";
const TAIL: &str = "delay_us.p99";
const RATE: &str = "received_bps";

/// The figures, by round-trip time.
pub const FIGURES: &[Figure] = &[
    of("fec-1ms-median", "Median delay at a round trip of 1 ms", SPARSE, MEDIAN, SHORT, DELAY),
    of("fec-1ms-p99", "99th percentile of the delay at a round trip of 1 ms", SPARSE, TAIL, SHORT, DELAY),
    of("fec-1ms-goodput", "Goodput at a round trip of 1 ms", FULL, RATE, SHORT, GOODPUT),
    of("fec-40ms-median", "Median delay at a round trip of 40 ms", SPARSE, MEDIAN, MIDDLE, DELAY),
    of("fec-40ms-p99", "99th percentile of the delay at a round trip of 40 ms", SPARSE, TAIL, MIDDLE, DELAY),
    of("fec-40ms-goodput", "Goodput at a round trip of 40 ms", FULL, RATE, MIDDLE, GOODPUT),
    of("fec-600ms-median", "Median delay at a round trip of 600 ms", SPARSE, MEDIAN, LONG, DELAY),
    of("fec-600ms-p99", "99th percentile of the delay at a round trip of 600 ms", SPARSE, TAIL, LONG, DELAY),
    of("fec-600ms-goodput", "Goodput at a round trip of 600 ms", FULL, RATE, LONG, GOODPUT),
];
