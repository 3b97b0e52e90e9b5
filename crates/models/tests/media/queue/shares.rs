//! Priority, deficit round robin, shapers and policers: who gets how much.

use std::collections::BTreeMap;

use proptest::prelude::*;
use trunkline_endpoint::{Bound, Port};
use trunkline_models::media::queue::{DisciplineOptions, DrrOptions, TokenRate};
use trunkline_units::{Instant, Rate, Seed, Span};

use super::super::common::{Packet, Testbed};
use super::{arrivals, jain, line, link, packet, queue_of};

/// Offers a line of 10 Mb/s three times as much for 5 s from these (flow, DSCP, length); returns the bytes of each that
/// arrived.
fn contend(discipline: DisciplineOptions, senders: &[(u64, u8, u32)]) -> BTreeMap<u64, f64> {
    let mut testbed = Testbed::new(link(line(10_000_000, Bound::frames(300), queue_of(discipline))));
    let (mut now, mut id) = (Instant::ZERO, 0);
    let mut credit = vec![0.0; senders.len()];
    while now < Instant::ZERO + Span::from_s(5) {
        for ((flow, dscp, length), credit) in senders.iter().zip(&mut credit) {
            *credit += 30e6 / 8.0 * 1e-3 / senders.len() as f64;
            while *credit >= f64::from(*length) {
                *credit -= f64::from(*length);
                testbed.send(now, 0, Packet { dscp: *dscp, ..packet(id, *length, *flow) });
                id += 1;
            }
        }
        now += Span::from_ms(1);
    }
    let mut bytes = BTreeMap::new();
    for (_, packet) in arrivals(&testbed.outputs) {
        *bytes.entry(packet.flow).or_default() += f64::from(packet.length);
    }
    bytes
}

#[test]
fn deficit_round_robin_shares_by_weight_whatever_the_lengths() {
    let options = DrrOptions { quantum: 500, weights: vec![(46, 4), (10, 2)] };
    let senders = [(1, 46, 1500), (2, 10, 300), (3, 0, 900)];
    let bytes = contend(DisciplineOptions::Drr(options), &senders);
    for (flow, weight) in [(1, 4.0), (2, 2.0), (3, 1.0)] {
        let share = bytes[&flow] / bytes.values().sum::<f64>() * 7.0 / weight;
        assert!((share - 1.0).abs() < 0.01, "flow {flow} has {share} of its share: {bytes:?}");
    }
    // Without weights each flow is a class.
    let senders: Vec<(u64, u8, u32)> = (0..6).map(|flow| (flow, 0, 200 + 250 * flow as u32)).collect();
    let bytes = contend(DisciplineOptions::Drr(DrrOptions::default()), &senders);
    let shares: Vec<f64> = bytes.values().copied().collect();
    assert_eq!(shares.len(), 6);
    assert!(jain(&shares) > 0.999, "{shares:?}");
}

#[test]
fn a_class_of_higher_priority_takes_what_it_offers() {
    // 10 Mb/s offered by each of three classes: the highest takes all that its own 10 Mb/s need.
    let bytes = contend(DisciplineOptions::Priority, &[(1, 1, 1000), (2, 0, 1000), (3, 46, 1000)]);
    assert!(bytes[&3] > 0.99 * 5.0 * 10e6 / 8.0, "{bytes:?}");
    // Lower effort is served last: it gets nothing as long as another class waits.
    let bytes = contend(DisciplineOptions::Priority, &[(1, 1, 1000), (2, 0, 1000)]);
    assert!(bytes.get(&1).copied().unwrap_or_default() < 0.01 * bytes[&2], "{bytes:?}");
}

proptest! {
    /// In any time t, a shaper passes at most rate · t + burst, and loses nothing; a policer as well, at once.
    #[test]
    fn token_buckets_never_pass_more(seed in any::<u64>(), is_shaper in any::<bool>()) {
        let mut draw = Seed(seed).stream("scene");
        let limits = TokenRate { rate: Rate::from_bps(500_000 + draw.below(8_000_000)), burst: 1500 + draw.below(20_000) };
        let mut queue = queue_of(DisciplineOptions::DropTail);
        match is_shaper {
            true => queue.shaper = Some(limits),
            false => queue.policer = Some(limits),
        }
        let bps = 10_000_000;
        let mut testbed = Testbed::new(link(line(bps, Bound::NONE, queue)));
        let (mut now, mut arrived) = (Instant::ZERO, BTreeMap::new());
        for id in 0..300 {
            if draw.chance(0.6) {
                now += Span::from_us(draw.below(4_000));
            }
            arrived.insert(id, now);
            testbed.send(now, 0, packet(id, 40 + draw.below(1461) as u32, 0));
        }
        testbed.finish();
        // The times that count: of a shaper the begin of a transmission, of a policer the arrival at the queue.
        let passed: Vec<(Instant, u64)> = arrivals(&testbed.outputs)
            .map(|(at, packet)| {
                let begin = at - Rate::from_bps(bps).time_for(trunkline_units::Size::from_bytes(packet.length.into()));
                (if is_shaper { begin } else { arrived[&packet.id] }, u64::from(packet.length))
            })
            .collect();
        let queue = testbed.medium.queue_counters(Port(0)).unwrap();
        prop_assert_eq!(passed.len() as u64 + queue.policed, 300);
        prop_assert!(!is_shaper || queue.policed == 0);
        for first in 0..passed.len() {
            let mut bytes = 0;
            for (at, length) in &passed[first..] {
                bytes += length;
                let time = at.since(passed[first].0);
                let most = limits.rate.as_bps() as f64 * time.as_s() / 8.0 + limits.burst as f64;
                prop_assert!(bytes as f64 <= most + 1e-3, "{} bytes in {}, at most {}", bytes, time, most);
            }
        }
    }
}
