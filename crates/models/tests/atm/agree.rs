//! Packets as trains and packets cell by cell have the same outcome, to the picosecond.

use super::common;

use common::{Chain, Outcomes, Packet, RIGHT, adapter, config, mbps};
use proptest::prelude::*;
use trunkline_endpoint::{Bound, Capacity, Medium, MediumCounters};
use trunkline_models::atm::{Config, End, Impairments, Mode, Pacing, PacingUnit, aal5};
use trunkline_units::{Instant, Seed, Span};

/// The result of a run.
type Outcome = (Outcomes, Vec<MediumCounters>, aal5::ReassemblyCounters);

fn run(configs: &[Config], mode: Mode, latency: Span, packets: &[(Instant, Packet)]) -> Outcome {
    let configs: Vec<Config> = configs.iter().map(|config| Config { mode, ..*config }).collect();
    let mut chain = Chain::new(&configs, Seed(1996), latency);
    let outcomes = chain.run(packets);
    let counters = chain.links.iter().map(|link| link.counters(RIGHT).clone()).collect();
    (outcomes, counters, chain.links.last().unwrap().reassembly_counters(common::LEFT))
}

/// Runs in both modes, which must agree except for the number of steps.
fn both(configs: &[Config], latency: Span, packets: &[(Instant, Packet)]) -> (Outcomes, u64) {
    let cells = run(configs, Mode::Cells, latency, packets);
    let (mut outcomes, counters, aal5) = run(configs, Mode::Trains, latency, packets);
    let steps = std::mem::replace(&mut outcomes.steps, cells.0.steps);
    // A reassembly ends with its result, so both report the same maximum.
    assert_eq!(outcomes, cells.0, "what arrived, when, and what was lost");
    assert_eq!(counters, cells.1, "counters of the links");
    assert_eq!(aal5, cells.2, "counters of the last adapter");
    let (all, mut seen) = (packets.len(), outcomes.lost.clone());
    seen.extend(outcomes.arrived.iter().map(|(_, serial)| serial));
    seen.sort_unstable();
    assert_eq!(seen, (0..all as u32).collect::<Vec<_>>(), "every packet has one outcome");
    (outcomes, steps)
}

fn rates() -> impl Strategy<Value = f64> {
    prop::sample::select(vec![149.76, 149.76, 40.704, 100.0, 599.04, 149.760_001, 149.759_99, 77.777_777])
}

fn pacings() -> impl Strategy<Value = Pacing> {
    let rate = (1.0..200.0, any::<bool>()).prop_map(|(rate, payload)| Pacing::Rate {
        rate: mbps(rate),
        unit: if payload { PacingUnit::Payload } else { PacingUnit::Cells },
    });
    let slots = (1..8u32, 1..12u32).prop_map(|(send, of)| Pacing::Slots { send, of });
    prop_oneof![Just(Pacing::None), rate, slots]
}

fn bounds() -> impl Strategy<Value = Bound> {
    let capacity = prop_oneof![
        Just(Capacity::Unbounded),
        (1..600u64).prop_map(Capacity::Frames),
        (1..8u64).prop_map(Capacity::Frames),
        (53..30_000u64).prop_map(Capacity::Bytes),
    ];
    (capacity, any::<bool>()).prop_map(|(capacity, per_channel)| Bound { capacity, per_channel })
}

fn impairments() -> impl Strategy<Value = Impairments> {
    let some = (0..2u8, 0..2u8).prop_map(|(loss, corrupt)| Impairments {
        loss: f64::from(loss) * 0.01,
        corrupt: f64::from(corrupt) * 0.01,
        ..Impairments::default()
    });
    prop_oneof![3 => Just(Impairments::default()), 1 => some]
}

fn links() -> impl Strategy<Value = Vec<Config>> {
    let ends = (pacings(), bounds());
    let hops = prop::collection::vec((rates(), 0..20_000_000u64, bounds(), impairments()), 1..5);
    (ends, hops).prop_map(|((pacing, mut first), hops)| {
        // A packet that never fits at the source is not compared.
        if let Capacity::Bytes(bytes) = &mut first.capacity {
            *bytes += 20_000;
        }
        let last = hops.len() - 1;
        let end = |at: usize, queue: Bound| match at {
            0 => adapter(pacing, first),
            _ => End::SwitchPort { queue },
        };
        let hop = |(at, (rate, delay, queue, impairments)): (usize, (f64, u64, Bound, Impairments))| {
            let far = if at == last { End::ADAPTER } else { common::switch_port(1) };
            let perfect = config(rate, Span::from_ps(delay), [end(at, queue), far]);
            Config { impairments: [impairments, Impairments::default()], ..perfect }
        };
        hops.into_iter().enumerate().map(hop).collect()
    })
}

fn packets() -> impl Strategy<Value = Vec<(Instant, Packet)>> {
    let one = (prop_oneof![Just(9_180u32), Just(40), Just(1_500), 1..9_181u32], 0..2u16, 0..600u64);
    (prop::collection::vec(one, 1..40), 1..4u64).prop_map(|(all, slower)| {
        let mut now = Instant::ZERO;
        let packet = |(serial, (bytes, channel, gap)): (usize, (u32, u16, u64))| {
            now += Span::from_us(gap.saturating_sub(100)) * slower / 2;
            (now, Packet::new(serial as u32, bytes, channel))
        };
        all.into_iter().enumerate().map(packet).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn trains_and_cells_agree(configs in links(), packets in packets(), latency in 0..5_000_000u64) {
        both(&configs, Span::from_ps(latency), &packets);
    }
}

/// As many packets as that, one every so often.
fn regular(count: u32, every: Span) -> Vec<(Instant, Packet)> {
    let at = |serial| Instant::ZERO + every * u64::from(serial);
    (0..count).map(|serial| (at(serial), Packet::new(serial, 9_180, 0))).collect()
}

/// The path of table 17: 155 Mb/s, then 100 Mb/s behind a buffer of 256 cells, with and without pacing.
#[test]
fn pacing_saves_what_a_slower_link_would_lose() {
    let path = |pacing| {
        [
            config(149.76, Span::from_us(5), [adapter(pacing, Bound::NONE), common::switch_port(1)]),
            config(100.0, Span::from_us(5), [common::switch_port(256), End::ADAPTER]),
        ]
    };
    let packets = regular(300, Span::ZERO);
    let latency = Span::from_us(4);
    let (outcomes, steps) = both(&path(Pacing::None), latency, &packets);
    assert!(
        outcomes.lost.len() > 250,
        "cells are lost of nearly every packet, {} of 300",
        outcomes.lost.len()
    );
    assert!(steps < 300 * 5, "a train takes a few steps: {steps}");
    let paced = Pacing::Rate { rate: mbps(70.0), unit: PacingUnit::Payload };
    let (outcomes, _) = both(&path(paced), latency, &packets);
    assert!(outcomes.lost.is_empty());
    let took = outcomes.arrived[299].0.since(outcomes.arrived[0].0).as_s();
    let goodput = 299.0 * 9_140.0 * 8.0 / took / 1e6;
    assert!((goodput - 70.0 * 9_140.0 / (192.0 * 48.0)).abs() < 0.001, "{goodput} Mb/s");
}

/// OC-3c from end to end carries 134.51 Mb/s of TCP payload in packets of 9180 bytes.
#[test]
fn the_ceiling_of_oc_3c_is_reached() {
    let hop = |near| config(149.76, Span::from_ms(1), [near, common::switch_port(1)]);
    let last = config(149.76, Span::from_ms(1), [common::switch_port(100), End::ADAPTER]);
    let path = [hop(End::ADAPTER), hop(common::switch_port(100)), last];
    let (outcomes, _) = both(&path, Span::from_us(4), &regular(1_000, Span::ZERO));
    assert!(outcomes.lost.is_empty());
    let took = outcomes.arrived[999].0.since(outcomes.arrived[0].0);
    let goodput = 999.0 * 9_140.0 * 8.0 / took.as_s() / 1e6;
    assert!((goodput - 134.513).abs() < 0.001, "{goodput} Mb/s");
    // Not a picosecond is lost over 192,000 cells: their time is exact.
    let exact = (999u128 * 192 * 424 * 1_000_000_000_000) / 149_760_000;
    assert!((u128::from(took.as_ps())).abs_diff(exact) <= 1);
}

/// A line that duplicates or reorders carries the cells of a train one by one. Further on cells and trains mix, and
/// nothing vanishes.
#[test]
fn a_line_that_reorders_takes_trains_apart() {
    let bad = Impairments { duplicate: 1e-3, reorder: 1e-3, ..Impairments::default() };
    let first = config(149.76, Span::from_us(5), [End::ADAPTER, common::switch_port(1)]);
    let middle = config(149.76, Span::from_us(5), [common::switch_port(500), common::switch_port(1)]);
    let middle = Config { impairments: [bad, bad], ..middle };
    let last = config(149.76, Span::from_us(5), [common::switch_port(500), End::ADAPTER]);
    let packets = regular(300, Span::from_ms(1));
    let cells = run(&[first, middle, last], Mode::Cells, Span::ZERO, &packets);
    let trains = run(&[first, middle, last], Mode::Trains, Span::ZERO, &packets);
    assert_eq!(cells.0.arrived, trains.0.arrived);
    assert_eq!(cells.0.lost, trains.0.lost);
    assert_eq!((&cells.1, &cells.2), (&trains.1, &trains.2));
    let arrived = cells.0.arrived.len();
    assert!(cells.1[1].duplicated > 10 && cells.1[1].reordered > 10 && arrived > 100 && arrived < 290);
}
