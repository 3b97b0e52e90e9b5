//! An hour of NASA's requirement (AirNET, 1990) at 10 Mb/s, with as many stations as can be admitted.
//! `cargo test --release -p trunkline-llc --features soak --test soak_token`
#![cfg(feature = "soak")]

mod support;

use support::bus::Bus;
use support::{contracts, nasa};
use trunkline_llc::admit::admit;
use trunkline_units::Span;

#[test]
fn an_hour() {
    let most = (1..=64).rev().find(|n| admit(&nasa(*n), &contracts(*n)).is_ok()).expect("some are admitted");
    let (network, contracts) = (nasa(most), contracts(most));
    let bounds = admit(&network, &contracts).unwrap();
    let mut bus = Bus::formed(network.line, &network.options, 1..=most);
    for contract in &contracts {
        let to = contract.station % most + 1;
        bus.flow(contract.station, to, contract.priority, contract.octets, contract.period, Span::ZERO);
    }
    bus.run(Span::from_s(3_600));
    for (flow, bound) in bus.flows.iter().zip(bounds) {
        assert!(flow.worst <= bound && flow.sent - flow.came <= 1, "{flow:?}, bound {bound}");
        assert!(flow.sent >= 360_000);
    }
    assert_eq!(bus.events, []);
}
