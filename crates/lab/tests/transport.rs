//! Options of transports that the kernel must keep.

use crate::backend::{lab, run};

/// A window of 64 kB cannot carry more than itself in each round trip of 50 ms, however large the kernel makes its buffer.
pub fn a_window_limits_the_throughput() {
    for mtu in [1500, 9180] {
        let text = format!(
            "experiment \"window\" {{
                network {{ host a, b; link a - b (rate = 100 Mb/s, delay = 25 ms, mtu = {mtu} B); }}
                connection x {{ xmt = a; rcv = b; protocol = tcp (window = 64 kB); test = full; duration = 2 s; }}
            }}"
        );
        let folder = tempfile::tempdir().unwrap();
        let record = run(&mut lab(), folder.path(), &text);
        assert_eq!(record.problems, [""; 0]);
        let received_bps = record.connections[0].received_bps;
        let most = 64e3 * 8.0 / 0.05;
        // The first messages are not preceded by a window.
        assert!(received_bps > 0.0 && received_bps < 1.1 * most, "{received_bps} of {most} b/s, MTU {mtu}");
    }
}
