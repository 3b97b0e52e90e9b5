//! FQ-CoDel: bulk flows share fairly, and a sparse flow does not wait for them.

use std::collections::BTreeMap;

use trunkline_endpoint::Bound;
use trunkline_models::media::queue::{DisciplineOptions, FqCoDelOptions};
use trunkline_units::{Instant, Seed, Span};

use super::super::common::Testbed;
use super::{arrivals, jain, line, link, packet, queue_of};

const FLOWS: u64 = 8;
const SPARSE: u64 = 99;

#[test]
fn bulk_flows_share_fairly_and_a_sparse_flow_does_not_wait() {
    let discipline = DisciplineOptions::FqCoDel(FqCoDelOptions::default());
    let mut testbed = Testbed::new(link(line(10_000_000, Bound::frames(1000), queue_of(discipline))));
    let mut stream = Seed(3).stream("load");
    // Flow n sends n + 1 times as much as flow 0, which alone would already exceed its share. One frame in 200 is sparse.
    let (mut sent_at, mut now) = (BTreeMap::new(), Instant::ZERO);
    let weights: u64 = (1..=FLOWS).sum();
    for id in 0..60_000 {
        now += Span::from_us(60);
        let mut draw = stream.below(weights);
        let flow = (0..FLOWS).find(|flow| match draw.checked_sub(flow + 1) {
            Some(rest) => {
                draw = rest;
                false
            }
            None => true,
        });
        let flow = if id % 200 == 0 { SPARSE } else { flow.unwrap() };
        let length = if flow == SPARSE { 200 } else { 500 + 125 * flow as u32 };
        sent_at.insert(id, now);
        testbed.send(now, 0, packet(id, length, flow));
    }
    testbed.until(now);
    let mut bytes: BTreeMap<u64, f64> = BTreeMap::new();
    let mut delays = Vec::new();
    for (at, packet) in arrivals(&testbed.outputs) {
        if packet.flow == SPARSE {
            delays.push(at.since(sent_at[&packet.id]));
        } else if at > Instant::ZERO + Span::from_s(1) {
            *bytes.entry(packet.flow).or_default() += f64::from(packet.length);
        }
    }
    let shares: Vec<f64> = bytes.values().copied().collect();
    assert_eq!(shares.len(), FLOWS as usize);
    assert!(jain(&shares) >= 0.99, "{}: {shares:?}", jain(&shares));
    // Most wait for the frame in transmission at most, of up to 1,375 bytes, and take 200 bytes themselves. A bulk flow that
    // CoDel has emptied is new again, and may then send its quantum and one frame first.
    delays.sort();
    let (most, longest) = (delays[delays.len() * 95 / 100], delays[delays.len() - 1]);
    assert!(most <= Span::from_us(1_575 * 8 / 10), "a sparse frame in twenty took {most} or more");
    assert!(longest <= Span::from_ms(4), "a sparse frame took {longest}");
    let lost_sparse = testbed.outputs.iter().any(|(_, output)| {
        matches!(output, trunkline_endpoint::MediumOutput::Lost { frame, .. } if frame.flow == SPARSE)
    });
    assert!(!lost_sparse, "a sparse frame was dropped");
    assert!(testbed.medium.queue_counters(trunkline_endpoint::Port(0)).unwrap().dropped_full > 0);
}
