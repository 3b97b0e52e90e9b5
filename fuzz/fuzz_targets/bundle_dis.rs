//! Reads arbitrary octets as a DIS datagram: PDUs follow each other without gaps, and the iteration ends.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run bundle_dis fuzz/corpus/bundle_dis fuzz/seeds/bundle_dis`

#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_bundle::wire::dis::{HEADER, MAX_PDU, Pdu};

fuzz_target!(|bytes: &[u8]| {
    let (mut offset, mut ended) = (0, false);
    for pdu in Pdu::all(bytes) {
        assert!(!ended, "what lies is the last");
        let Ok(pdu) = pdu else {
            ended = true;
            continue;
        };
        let octets = pdu.bytes();
        assert_eq!(octets, &bytes[offset..offset + octets.len()]);
        assert!((HEADER..=MAX_PDU).contains(&octets.len()));
        offset += octets.len();
        let _ = (
            pdu.version(),
            pdu.exercise(),
            pdu.kind(),
            pdu.family(),
            pdu.site(),
            pdu.entity(),
            pdu.location(),
        );
    }
    assert!(ended || offset == bytes.len());
});
