//! `burst` and `burstq` of NetSpec 3 when the sender is too slow: a late block is skipped, or queued.

use crate::common::{connection, run};

/// A host that needs 25 ms for a packet, and a block every 10 ms for 10 s.
fn slow(kind: &str) -> trunkline_record::schema::Connection {
    let record = run(&format!(
        "network {{ host a (cpu_packet = 25 ms); host b; link a - b (rate = 100 Mb/s, delay = 1 ms); }}
         cluster {{
             test a {{ type = {kind} (blocksize = 1000, period = 10000, duration = 10); protocol = udp; own = a:1; peer = b:2; }}
             test b {{ type = sink (blocksize = 1000, duration = 10); protocol = udp; own = b:2; peer = a:1; }}
         }}"
    ));
    connection(&record, "a-b").clone()
}

#[test]
fn a_late_block_is_skipped() {
    let x = slow("burst");
    assert_eq!(x.messages_sent + x.requested.bursts_skipped, 1_000);
    // One block every 25 ms of the host, and the 50 that its queue holds.
    assert!((445..=455).contains(&x.messages_sent), "{}", x.messages_sent);
    // A block is late when the next period has begun: what is sent is late by less than a period.
    let late = x.late_us.unwrap();
    assert!(late.max <= 10_000.0 * 1.01, "{late:?}");
}

#[test]
fn a_late_block_is_queued() {
    let x = slow("burstq");
    assert!((445..=455).contains(&x.messages_sent), "{}", x.messages_sent);
    // The blocks that are still queued when the duration has passed are not sent.
    assert_eq!(x.messages_sent + x.requested.bursts_skipped, 1_000);
    assert!(x.requested.bursts_late > 350, "{:?}", x.requested.bursts_late);
    // The 450th block is due after 4.5 s and enters the host's queue after 10 s.
    let late = x.late_us.unwrap();
    assert!((5.4e6..5.6e6).contains(&late.max), "{late:?}");
}

/// All blocks of `burstq` are sent in the end; `burst` sends as many, and skips others before.
#[test]
fn a_number_of_blocks_is_sent_with_and_without_a_queue() {
    for (kind, skipped) in [("burst", true), ("burstq", false)] {
        // The host needs 3 ms for a block, and blocks are 2.75 ms apart on average.
        let record = run(&format!(
            "network {{ host a (cpu_packet = 3 ms); host b; link a - b (rate = 100 Mb/s, delay = 1 ms); }}
             cluster {{
                 test a {{ type = {kind} (blocksize = 1000, period = uniform(500, 5000), repeats = 2000); protocol = udp;
                          own = a:1; peer = b:2; }}
                 test b {{ type = sink (blocksize = 1000, repeats = 2000); protocol = udp; own = b:2; peer = a:1; }}
             }}"
        ));
        let x = connection(&record, "a-b");
        assert_eq!((x.messages_sent, x.messages_received), (2_000, 2_000), "{kind}");
        assert_eq!(x.requested.bursts_skipped > 0, skipped, "{kind}: {}", x.requested.bursts_skipped);
    }
}
