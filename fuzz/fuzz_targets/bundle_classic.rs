//! Anything as a classic bundle: what is whole is written again octet for octet, and every machine makes something of it or
//! counts it.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run bundle_classic fuzz/corpus/bundle_classic fuzz/seeds/bundle_classic`

#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_bundle::central::Config;
use trunkline_bundle::level::Medium;
use trunkline_bundle::wire::classic::{Builder, Bundle, LONGEST};
use trunkline_bundle::{Central, Host, Level1, Settings};
use trunkline_endpoint::{Endpoint, Input, Output, Peer, Port, Writable};
use trunkline_units::Instant;

fuzz_target!(|bytes: &[u8]| {
    if bytes.len() > LONGEST {
        return;
    }
    if let Ok((source, bundle)) = Bundle::read_with_mask(bytes) {
        let mut builder = Builder::new(Some(source), LONGEST);
        assert!(bundle.messages().all(|message| builder.push(message.address, message.body)));
        same(builder, bytes);
    }
    if let Ok(bundle) = Bundle::read(bytes) {
        let mut builder = Builder::new(None, LONGEST);
        assert!(bundle.messages().all(|message| builder.push(message.address, message.body)));
        same(builder, bytes);
    }
    let settings = Settings::default();
    let medium = Medium::default();
    let config = Config { settings, level1: vec![1, 2], hosts: 16, local: medium, wide: medium };
    give(Central::new(config), bytes);
    give(Level1::new(1, settings), bytes);
    give(Host::new(3, settings), bytes);
});

fn same(mut builder: Builder, bytes: &[u8]) {
    let mut into = vec![0; builder.octets()];
    builder.finish(&mut into);
    assert_eq!(into, bytes);
}

/// To both ports, and then all that it says.
fn give<E: Endpoint>(mut machine: E, bytes: &[u8]) {
    let mut buffer = vec![0; LONGEST];
    for port in [Port(0), Port(1)] {
        let frame = Input::Frame { port, peer: Peer::NONE, bytes, segment: None };
        machine.handle(Instant::ZERO, frame).expect("a frame is never refused");
        while !matches!(machine.poll(Instant::ZERO, Writable::ALL, &mut buffer), Output::Idle(_)) {}
    }
}
