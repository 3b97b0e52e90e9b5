//! How the connections of a host share its send queue.

use crate::common::{connection, near, run};
use trunkline_record::Record;

/// The time of a full packet of 1500 bytes and its Ethernet framing at 10 Mb/s, us.
const PACKET_US: f64 = 1538.0 * 8.0 / 10.0;
/// Packets in the send queue of a host.
const SEND_QUEUE: f64 = 50.0;

/// Runs `bulk` TCP connections whose windows exceed the send queue of their host, beside 150 paced messages of that host.
fn paced_beside(bulk: usize, network: &str, protocol: &str) -> Record {
    let bulk: String = (0..bulk)
        .map(|i| {
            format!(
                "connection bulk{i} {{ xmt = a; rcv = b; protocol = tcp (window = 256 KiB); test = full (messagesize = 64 KiB);
                    duration = 3 s; }} "
            )
        })
        .collect();
    run(&format!(
        "experiment \"t\" {{ network {{ {network} }} parallel {{ {bulk}
           connection paced {{ xmt = a; rcv = b; protocol = {protocol}; test = cbr (messagesize = 200, period = 20 ms); duration = 3 s; }}
         }} }}"
    ))
}

/// A paced sender waits until each bulk connection before it has sent one packet; then its message waits for the packets
/// in the queue.
#[test]
fn a_paced_sender_waits_one_turn_of_each_bulk_connection() {
    for bulk in [1, 3] {
        let record = paced_beside(bulk, "host a, b; link a - b (rate = 10 Mb/s);", "udp");
        let paced = connection(&record, "paced");
        assert_eq!((paced.messages_sent, paced.messages_received), (150, 150), "{bulk}");
        let (late, delay) = (paced.late_us.as_ref().unwrap(), paced.delay_us.as_ref().unwrap());
        // A histogram has three digits.
        assert!(late.max <= (bulk + 1) as f64 * PACKET_US * 1.001, "{bulk}: {late:?}");
        assert!(delay.max <= SEND_QUEUE * PACKET_US * 1.001, "{bulk}: {delay:?}");
        // The windows open in the first seconds.
        near(delay.p50, (SEND_QUEUE - 1.0) * PACKET_US, 0.05);
    }
}

#[test]
fn bulk_connections_have_equal_shares() {
    let record = paced_beside(3, "host a, b; link a - b (rate = 10 Mb/s);", "udp");
    let share = |i| connection(&record, &format!("bulk{i}")).received_bps;
    for i in 1..3 {
        near(share(i), share(0), 0.05);
    }
}

/// The send path of a host with costs is full, not its line.
#[test]
fn a_busy_processor_serves_senders_in_turn() {
    let network = "host a (cpu_packet = 1200 us); host b; link a - b (rate = 100 Mb/s, delay = 1 ms);";
    let record = paced_beside(1, network, "udp");
    let paced = connection(&record, "paced");
    assert_eq!((paced.messages_sent, paced.messages_received), (150, 150));
    // Arriving acknowledgements use the processor, too.
    let late = paced.late_us.as_ref().unwrap();
    assert!(late.max <= 5.0 * 1_200.0, "{late:?}");
}

#[test]
fn other_transports_wait_one_turn_too() {
    for protocol in ["tcp", "guaranteed"] {
        let record = paced_beside(1, "host a, b; link a - b (rate = 10 Mb/s);", protocol);
        let paced = connection(&record, "paced");
        assert_eq!((paced.messages_sent, paced.messages_received), (150, 150), "{protocol}");
        // Both wait for acknowledgements of their first packets.
        let delay = paced.delay_us.as_ref().unwrap();
        assert!(delay.p99 <= 2.0 * SEND_QUEUE * PACKET_US, "{protocol}: {delay:?}");
    }
}

/// A full queue of one interface does not hold back a sender on another.
#[test]
fn interfaces_do_not_wait_for_each_other() {
    let connection_to = |name: &str, peer: &str, test: &str| {
        format!("connection {name} {{ xmt = a; rcv = {peer}; {test}; duration = 3 s; }} ")
    };
    let bulk = "protocol = tcp (window = 256 KiB); test = full (messagesize = 64 KiB)";
    let record = run(&format!(
        "experiment \"t\" {{ network {{ host a, b, c; link a - b (rate = 1 Mb/s); link a - c (rate = 10 Mb/s); }}
           parallel {{ {} {} {} }} }}",
        connection_to("slow", "b", bulk),
        connection_to("fast", "c", bulk),
        connection_to("paced", "c", "protocol = udp; test = cbr (messagesize = 200, period = 20 ms)"),
    ));
    assert_eq!(connection(&record, "paced").messages_received, 150);
    near(connection(&record, "slow").received_bps, 1e6 * 1460.0 / 1538.0, 0.05);
    // The paced messages take 2 % of the line.
    near(connection(&record, "fast").received_bps, 0.98 * 1e7 * 1460.0 / 1538.0, 0.05);
}
