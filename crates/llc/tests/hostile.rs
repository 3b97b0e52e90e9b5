//! Whatever comes, and whatever is asked: no panic, no law broken, bounded memory.

#[allow(dead_code, reason = "others need the rest")]
#[path = "support/life.rs"]
mod life;

use proptest::prelude::*;
use trunkline_endpoint::{Endpoint, Input, Peer, Port};
use trunkline_llc::{Command, Config, Options, Station};
use trunkline_units::Instant;

proptest! {
    #[test]
    fn anything_may_happen(says in proptest::collection::vec(any::<u8>(), 0..3_000)) {
        life::live(&says);
    }
}

#[test]
fn a_flood_fills_no_memory() {
    let mut station = Station::new(Config::new(Port(0), 1));
    for sap in (2..=254).step_by(2) {
        let options = Options { queue: 4, ..Options::default() };
        station.handle(Instant::ZERO, Input::Command(Command::Open { sap, options: &options })).unwrap();
    }
    let mut frame = vec![0xFF; 1501];
    let mut flood = |station: &mut Station| {
        for number in 0..30_000u32 {
            let [.., a, b, c] = number.wrapping_mul(2_654_435_761).to_be_bytes();
            frame[..4].copy_from_slice(&[a % 8, b & 0xFE, c, [0x03, 0xE3, 0x67, 0xE7][usize::from(b % 4)]]);
            let mut give = |bytes: &[u8]| {
                let input = Input::Frame { port: Port(0), peer: Peer::new(&[a]), bytes, segment: None };
                station.handle(Instant::ZERO, input).unwrap();
            };
            give(&frame);
            // A number to agree on, which takes no room in a SAP; and to all.
            give(&[a % 8, b & 0xFE, c, 0x77]);
            frame[1] = 0xFF;
            give(&frame);
        }
    };
    let first = allocation_counter::measure(|| flood(&mut station));
    // 127 SAPs with 4 messages each, 128 answers; the rest is small.
    assert!(first.bytes_current < (127 * 4 + 128) * 1_600 + 200_000, "{} bytes", first.bytes_current);
    let second = allocation_counter::measure(|| flood(&mut station));
    assert!(second.bytes_current < 10_000, "{} bytes more", second.bytes_current);
    assert_eq!(station.sequences(), (0, 1024));
}
