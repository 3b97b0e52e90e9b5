//! Anything as a datagram of DIS: PDUs follow each other without a gap, and it comes to an end.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run bundle_dis fuzz/corpus/bundle_dis fuzz/seeds/bundle_dis`

#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_bundle::wire::dis::{HEADER, LONGEST, Pdu};

fuzz_target!(|bytes: &[u8]| {
    let (mut at, mut ended) = (0, false);
    for pdu in Pdu::all(bytes) {
        assert!(!ended, "what lies is the last");
        let Ok(pdu) = pdu else {
            ended = true;
            continue;
        };
        let octets = pdu.bytes();
        assert_eq!(octets, &bytes[at..at + octets.len()]);
        assert!((HEADER..=LONGEST).contains(&octets.len()));
        at += octets.len();
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
    assert!(ended || at == bytes.len());
});
