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
    // One block every 25 ms of the host.
    assert!((390..=410).contains(&x.messages_sent), "{}", x.messages_sent);
    // A block is late when the next period has begun: what is sent is late by less than a period.
    let late = x.late_us.unwrap();
    assert!(late.max <= 10_000.0 * 1.01, "{late:?}");
}

#[test]
fn a_late_block_is_queued() {
    let x = slow("burstq");
    assert!((390..=410).contains(&x.messages_sent), "{}", x.messages_sent);
    // The blocks that are still queued when the duration has passed are not sent.
    assert_eq!(x.messages_sent + x.requested.bursts_skipped, 1_000);
    assert!(x.requested.bursts_late > 350, "{:?}", x.requested.bursts_late);
    // The 400th block is sent after 10 s, when it has waited for 6 s.
    let late = x.late_us.unwrap();
    assert!((5.8e6..6.2e6).contains(&late.max), "{late:?}");
}

/// A host that is busy for a while catches up with `burstq`, and has lost blocks with `burst`.
#[test]
fn after_a_stall_queued_blocks_are_sent_at_once() {
    for (kind, skipped) in [("burst", true), ("burstq", false)] {
        // 40 blocks every 1 ms need 2 ms each; the next 40 come every 4 ms.
        let record = run(&format!(
            "network {{ host a (cpu_packet = 2 ms); host b; link a - b (rate = 100 Mb/s, delay = 1 ms); }}
             cluster {{
                 test a {{ type = {kind} (blocksize = 1000, period = uniform(500, 5000), duration = 10); protocol = udp;
                          own = a:1; peer = b:2; }}
                 test b {{ type = sink (blocksize = 1000, duration = 10); protocol = udp; own = b:2; peer = a:1; }}
             }}"
        ));
        let x = connection(&record, "a-b");
        assert_eq!(x.requested.bursts_skipped > 0, skipped, "{kind}: {}", x.requested.bursts_skipped);
        assert!(x.late_us.as_ref().unwrap().max > 500.0);
    }
}
