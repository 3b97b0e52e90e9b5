//! Reads arbitrary octets as a classic bundle: a valid one encodes to the same octets again, and every endpoint
//! handles or counts it.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run bundle_classic fuzz/corpus/bundle_classic fuzz/seeds/bundle_classic`

#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_bundle::central::CentralConfig;
use trunkline_bundle::level::Medium;
use trunkline_bundle::wire::classic::{ClassicBuilder, ClassicBundle, MAX_BUNDLE};
use trunkline_bundle::{Central, Host, Level1, Settings};
use trunkline_endpoint::{Endpoint, Input, Output, Peer, Port, Writable};
use trunkline_units::{Instant, Seed};

fuzz_target!(|bytes: &[u8]| {
    if bytes.len() > MAX_BUNDLE {
        return;
    }
    if let Ok((source, bundle)) = ClassicBundle::read_with_mask(bytes) {
        let mut builder = ClassicBuilder::new(Some(source), MAX_BUNDLE);
        assert!(bundle.messages().all(|message| builder.push(message.address, message.body)));
        assert_same(builder, bytes);
    }
    if let Ok(bundle) = ClassicBundle::read(bytes) {
        let mut builder = ClassicBuilder::new(None, MAX_BUNDLE);
        assert!(bundle.messages().all(|message| builder.push(message.address, message.body)));
        assert_same(builder, bytes);
    }
    let settings = Settings::default();
    let medium = Medium::default();
    let config = CentralConfig { settings, level1: vec![1, 2], hosts: 16, local: medium, wide_area: medium };
    deliver(Central::new(Seed(0), 0, config), bytes);
    deliver(Level1::new(1, 0, settings), bytes);
    deliver(Host::new(3, 0, settings), bytes);
});

fn assert_same(mut builder: ClassicBuilder, bytes: &[u8]) {
    let mut written = vec![0; builder.octets()];
    builder.finish(&mut written);
    assert_eq!(written, bytes);
}

/// Delivers the octets to both ports and drains all outputs.
fn deliver<E: Endpoint>(mut machine: E, bytes: &[u8]) {
    let mut buffer = vec![0; MAX_BUNDLE];
    for port in [Port(0), Port(1)] {
        let frame = Input::Frame { port, peer: Peer::NONE, bytes, segment: None };
        machine.handle(Instant::ZERO, frame).expect("a frame is never refused");
        while !matches!(machine.poll(Instant::ZERO, Writable::ALL, &mut buffer), Output::Idle(_)) {}
    }
}
