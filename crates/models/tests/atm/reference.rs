//! The output queue of a cell switch against a reference with an explicit queue and exact fractions of time.

use super::common;

use std::collections::VecDeque;

use common::{LEFT, Packet, RIGHT, link, mbps};
use proptest::prelude::*;
use trunkline_endpoint::{Bound, Capacity, Medium, MediumInput, MediumOutput};
use trunkline_models::atm::{CellFrame, Config, End, Impairments, Mode};
use trunkline_units::{Instant, Span};

/// Picoseconds of a second, and bits of a cell.
const SECOND: u128 = 1_000_000_000_000;
const BITS: u128 = 424;

/// A straightforward queue. Times are counted in 1/rate picoseconds.
struct Reference {
    rate: u128,
    bound: Bound,
    /// When the last bit of a cell has left; its channel.
    queue: VecDeque<(u128, u16)>,
    free: u128,
    most: usize,
}

impl Reference {
    /// When the cell has left, in whole picoseconds rounded up.
    fn take(&mut self, now: u64, channel: u16) -> Option<u64> {
        let moment = u128::from(now) * self.rate;
        while self.queue.front().is_some_and(|(left, _)| *left <= moment) {
            self.queue.pop_front();
        }
        let same = self.queue.iter().filter(|(_, c)| !self.bound.per_channel || *c == channel).count() as u64;
        if !self.bound.fits(same, same * 53, 53) {
            return None;
        }
        // Moments are known to a picosecond; an arrival in the picosecond in which the line becomes idle follows
        // without a gap.
        let free = self.free.div_ceil(self.rate);
        let begin = if u128::from(now) > free { moment } else { self.free };
        self.free = begin + BITS * SECOND;
        self.queue.push_back((self.free, channel));
        self.most = self.most.max(self.queue.len());
        Some(self.free.div_ceil(self.rate) as u64)
    }
}

fn bounds() -> impl Strategy<Value = Bound> {
    let capacity = prop_oneof![
        Just(Capacity::Unbounded),
        (0..40u64).prop_map(Capacity::Frames),
        (0..4_000u64).prop_map(Capacity::Bytes),
    ];
    (capacity, any::<bool>()).prop_map(|(capacity, per_channel)| Bound { capacity, per_channel })
}

/// When cells come, in picoseconds, often exactly when another one leaves or a picosecond beside.
fn gaps() -> impl Strategy<Value = Vec<(u64, u16)>> {
    let gap = prop_oneof![
        Just(0u64),
        0..4u64,
        prop::sample::select(vec![2_831_196u64, 2_831_197, 2_831_198, 4_240_000, 10_416_667, 31_143_163]),
        0..6_000_000u64,
        Just(100_000_000),
    ];
    prop::collection::vec((gap, 0..3u16), 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn queue_and_reference_agree(
        rate in prop::sample::select(vec![149.76, 100.0, 40.704, 77.777_777]),
        bound in bounds(),
        gaps in gaps(),
        delay in 0..10_000_000u64,
    ) {
        let rate = mbps(rate);
        let config = Config {
            payload: rate,
            delay: Span::from_ps(delay),
            ends: [End::SwitchPort { queue: bound }; 2],
            impairments: [Impairments::default(); 2],
            mode: Mode::Cells,
        };
        let mut link_under_test = link(&config);
        let rate = u128::from(rate.as_bps());
        let mut reference = Reference { rate, bound, queue: VecDeque::new(), free: 0, most: 0 };
        let (mut now, mut expected, mut found, mut lost) = (0, Vec::new(), Vec::new(), Vec::new());
        for (serial, (gap, channel)) in gaps.iter().enumerate() {
            now += gap;
            drain_until(&mut link_under_test, now, &mut found);
            let room = link_under_test.has_room(Instant::from_ps(now), RIGHT, 53);
            let frame = Packet::new(serial as u32, 9_180, *channel).cell(0, 2);
            link_under_test.handle(Instant::from_ps(now), MediumInput::Frame { port: RIGHT, frame });
            match reference.take(now, *channel) {
                Some(left) => expected.push((left + delay, serial as u32)),
                None => {
                    prop_assert!(!room, "room was promised");
                    let output = link_under_test.poll(Instant::from_ps(now));
                    let is_it = |frame: &Packet| frame.serial == serial as u32;
                    let lost_it = matches!(&output, MediumOutput::Lost { frame, .. } if is_it(frame));
                    prop_assert!(lost_it);
                    lost.push(serial);
                }
            }
            // If channels share the queue, room is denied only if there is none.
            if !bound.per_channel && lost.last() != Some(&serial) {
                prop_assert!(room, "room was denied");
            }
        }
        drain_until(&mut link_under_test, u64::MAX, &mut found);
        prop_assert_eq!(&expected, &found);
        let counters = link_under_test.counters(RIGHT);
        prop_assert_eq!((counters.frames, counters.queue_drops), (expected.len() as u64, lost.len() as u64));
        prop_assert_eq!(counters.queue_max, reference.most as u64 * 53);
        let busy = expected.len() as u128 * BITS * SECOND / rate;
        prop_assert!(u128::from(counters.busy.as_ps()).abs_diff(busy) <= 1);
    }
}

/// Takes what arrives until `end`, woken at its deadlines.
fn drain_until(
    link_under_test: &mut trunkline_models::atm::CellLink<Packet>,
    end: u64,
    found: &mut Vec<(u64, u32)>,
) {
    let mut now = Instant::ZERO;
    loop {
        match link_under_test.poll(now) {
            MediumOutput::Transmit { port, frame } => {
                assert_eq!(port, LEFT);
                found.push((now.as_ps(), frame.serial));
            }
            MediumOutput::Idle { deadline: Some(at) } if at.as_ps() <= end => {
                now = at;
                link_under_test.handle(now, MediumInput::Wake);
            }
            MediumOutput::Idle { .. } => return,
            other => panic!("{other:?}"),
        }
    }
}
