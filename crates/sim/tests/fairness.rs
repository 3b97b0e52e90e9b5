//! The defaults of the guaranteed transport's crate beside TCP with CUBIC, over one bottleneck.

use trunkline_record::Record;

use crate::common::{link, run};

const MILLISECOND_US: f64 = 1e3;

/// `pairs` senders of each transport share 50 Mb/s with a round trip of 20 ms. With `is_mixed` unset all are TCP.
fn share(pairs: usize, queue: &str, buffer: u32, is_mixed: bool) -> Record {
    // As `arq::Options::default()`.
    let guaranteed = "guaranteed (mode = selective, window = 4096, frame = 1472 B, ack_every = 16, congestion = tcp-friendly)";
    let tcp = "tcp (congestion = cubic)";
    let (mut network, mut connections) =
        (format!("host r; switch w (buffer = {buffer} packets);"), String::new());
    for pair in 0..pairs {
        let first = if is_mixed { guaranteed } else { tcp };
        for (name, protocol) in [(format!("g{pair}"), first), (format!("t{pair}"), tcp)] {
            network += &format!("host {name}; link {name} - w (rate = 1 Gb/s);");
            connections += &format!(
                "connection {name} {{ xmt = {name} (xmtbuf = 1 MiB); rcv = r; protocol = {protocol};
                 test = full (messagesize = 8 KiB); duration = 30 s; }}"
            );
        }
    }
    network += &format!("link w - r (rate = 50 Mb/s, delay = 10 ms, queue = {queue});");
    run(&format!("experiment \"t\" {{ network {{ {network} }} parallel {{ {connections} }} }}"))
}

/// Jain's index of the rates.
fn jain(record: &Record) -> f64 {
    let rates = || record.connections.iter().map(|connection| connection.received_bps);
    rates().sum::<f64>().powi(2) / (rates().count() as f64 * rates().map(|rate| rate * rate).sum::<f64>())
}

/// The median time in the queue before the bottleneck, in microseconds.
fn sojourn_us(record: &Record) -> f64 {
    let queues = &link(record, "w-r").queues;
    let queue = queues.iter().find(|queue| queue.name == "w").expect("the switch queues");
    queue.sojourn_us.as_ref().expect("frames were sent").p50
}

fn assert_fair(pairs: usize, queue: &str, buffer: u32) -> Record {
    let record = share(pairs, queue, buffer, true);
    let rates: Vec<f64> =
        record.connections.iter().map(|connection| connection.received_bps * 1e-6).collect();
    assert!(jain(&record) >= 0.9, "{pairs} of each over {queue}: {} of {rates:?}", jain(&record));
    assert!(rates.iter().sum::<f64>() > 0.9 * 50.0, "{pairs} of each over {queue}: {rates:?}");
    record
}

/// A queue of a bandwidth-delay product: 83 packets.
#[test]
fn tail_drop_is_shared_with_cubic() {
    for pairs in [1, 2, 4] {
        assert_fair(pairs, "droptail", 83);
    }
}

#[test]
fn codel_is_shared_with_cubic_and_keeps_its_queue() {
    for pairs in [1, 2, 4] {
        let mixed = sojourn_us(&assert_fair(pairs, "codel", 2000));
        let tcp = sojourn_us(&share(pairs, "codel", 2000, false));
        assert!(mixed <= tcp + MILLISECOND_US, "{pairs} of each: {mixed} us, of TCP alone {tcp} us");
    }
}
