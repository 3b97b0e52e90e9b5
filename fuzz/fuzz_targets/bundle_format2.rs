//! Reads arbitrary octets as a format 2 bundle, also behind a valid header: a valid bundle encodes to the same octets
//! again, and a DIS reader reaches its end.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run bundle_format2 fuzz/corpus/bundle_format2 fuzz/seeds/bundle_format2`

#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_bundle::wire::dis::Pdu;
use trunkline_bundle::wire::format2::{Bundle, BundleBuilder, HEADER, Header, Role};

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // The rest may be entries, control items and messages of a matching header.
    let [count, control, rest @ ..] = bytes else { return };
    let index = HEADER + 24 * usize::from(count % 8) + 8 * usize::from(control % 40);
    let mut bundle = vec![0; HEADER];
    let header =
        Header { role: Role::Host, number: 1, receiver: 0, incarnation: 1, session: 1, sent_before: 0 };
    BundleBuilder::new(HEADER).finish(&header, &mut bundle);
    bundle[8..10].copy_from_slice(&(index as u16).to_be_bytes());
    bundle[15] = count % 8;
    bundle.extend_from_slice(rest);
    check(&bundle);
});

fn check(bytes: &[u8]) {
    let Ok(bundle) = Bundle::read(bytes) else { return };
    let mut builder = BundleBuilder::new(bytes.len());
    assert_eq!(bundle.messages().count(), bundle.count());
    assert!(bundle.control().all(|control| builder.push_control(&control)));
    assert!(bundle.messages().all(|message| builder.push(&message)));
    let mut written = vec![0; builder.octets()];
    builder.finish(&bundle.header(), &mut written);
    assert_eq!(written, bytes);
    assert!(Pdu::all(bytes).all(|pdu| pdu.is_ok()));
}
