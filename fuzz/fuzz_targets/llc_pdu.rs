//! Anything as a PDU: what is read is written again octet for octet, and a station makes something of it or counts it.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run llc_pdu fuzz/corpus/llc_pdu fuzz/seeds/llc_pdu`

#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_endpoint::{Endpoint, Input, Peer, Port};
use trunkline_llc::{Command, Config, Options, Pdu, Station};
use trunkline_units::Instant;

fuzz_target!(|bytes: &[u8]| {
    let [_, pdu @ ..] = bytes else { return };
    if let Ok(read) = Pdu::read(pdu) {
        let mut into = vec![0; read.length()];
        assert_eq!((read.write(&mut into), &into[..]), (pdu.len(), pdu));
    }
    let mut station = Station::new(Config::new(Port(0), 1));
    for (sap, crc) in [(2, false), (4, true)] {
        let options = Options { crc, groups: vec![0x41], ..Options::default() };
        station
            .handle(Instant::ZERO, Input::Command(Command::Open { sap, options: &options }))
            .expect("it opens");
    }
    let frame = Input::Frame { port: Port(0), peer: Peer::new(&[9]), bytes, segment: None };
    station.handle(Instant::ZERO, frame).expect("only commands are refused");
    let counted = station.statistics();
    // A response whose information makes no sense is both.
    assert!(counted.received.total() == 1 || counted.malformed + counted.foreign == 1);
});
