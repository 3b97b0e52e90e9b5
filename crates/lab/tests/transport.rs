//! Options of transports that the kernel must keep.

use crate::backend::{lab, run};

/// A window cannot carry more than itself in each round trip, however large the kernel makes its buffer. Without a limit the kernel
/// advertises more where packets are long.
pub fn a_window_limits_the_throughput() {
    let text = "experiment \"window\" {
        network { host a, b; link a - b (medium = atm, rate = 155 Mb/s, delay = 36 ms, mtu = 9180 B); }
        connection x { xmt = a; rcv = b; protocol = tcp (window = 262144); test = full; duration = 4 s; }
    }";
    let folder = tempfile::tempdir().unwrap();
    let record = run(&mut lab(), folder.path(), text);
    assert_eq!(record.problems, [""; 0]);
    let received_bps = record.connections[0].received_bps;
    let most = 262_144.0 * 8.0 / 0.072;
    assert!(received_bps > 0.0 && received_bps < 1.1 * most, "{received_bps} of {most} b/s");
}
