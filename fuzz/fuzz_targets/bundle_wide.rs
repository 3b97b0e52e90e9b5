//! Anything as a wide bundle, and anything in a header that is right: what is whole is written again octet for octet, and a
//! reader of DIS comes to its end.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run bundle_wide fuzz/corpus/bundle_wide fuzz/seeds/bundle_wide`

#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_bundle::wire::dis::Pdu;
use trunkline_bundle::wire::wide::{Builder, Bundle, HEADER, Header, Role};

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // What follows may be entries, control and messages of a header that fits.
    let [count, control, rest @ ..] = bytes else { return };
    let index = HEADER + 24 * usize::from(count % 8) + 8 * usize::from(control % 40);
    let mut bundle = vec![0; HEADER];
    let header = Header { role: Role::Host, number: 1, to: 0, life: 1, session: 1, before: 0 };
    Builder::new(HEADER).finish(&header, &mut bundle);
    bundle[8..10].copy_from_slice(&(index as u16).to_be_bytes());
    bundle[15] = count % 8;
    bundle.extend_from_slice(rest);
    check(&bundle);
});

fn check(bytes: &[u8]) {
    let Ok(bundle) = Bundle::read(bytes) else { return };
    let mut builder = Builder::new(bytes.len());
    assert_eq!(bundle.messages().count(), bundle.count());
    assert!(bundle.control().all(|control| builder.tell(&control)));
    assert!(bundle.messages().all(|message| builder.push(&message)));
    let mut into = vec![0; builder.octets()];
    builder.finish(&bundle.header(), &mut into);
    assert_eq!(into, bytes);
    assert!(Pdu::all(bytes).all(|pdu| pdu.is_ok()));
}
