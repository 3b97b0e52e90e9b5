//! CoDel: the spacing of its drops, and what it leaves alone.

use trunkline_endpoint::{Bound, Ecn};
use trunkline_models::media::queue::codel::CoDel;
use trunkline_models::media::queue::{Actions, CoDelOptions, Discipline, DisciplineOptions};
use trunkline_units::{Instant, Span};

use super::super::common::{Packet, Testbed};
use super::{line, link, packet, queue_of};

const SLOT: Span = Span::from_us(100);

/// Times of the drops or marks of a queue that stands for `slots` transmission times of 100 µs.
fn selections(options: CoDelOptions, slots: u32, ecn: Ecn) -> (Vec<Instant>, u64) {
    let mut queue = CoDel::new(options);
    let (mut now, mut times, mut marked) = (Instant::ZERO, Vec::new(), 0);
    for id in 0..4_000 {
        queue.enqueue(now, Packet { ecn, ..packet(id, 1000, 0) });
    }
    for id in 0..slots {
        let mut actions = Actions::default();
        assert!(queue.dequeue(now, &mut actions).is_some(), "the queue stands");
        let selected = actions.dropped.len() as u64 + actions.marked;
        times.extend((0..selected).map(|_| now));
        marked += actions.marked;
        now += SLOT;
        (0..2).for_each(|n| queue.enqueue(now, Packet { ecn, ..packet(4_000 + 2 * id + n, 1000, 0) }));
    }
    (times, marked)
}

#[test]
fn the_nth_drop_follows_after_the_interval_over_the_root_of_n() {
    let options = CoDelOptions::default();
    for (ecn, options) in [(Ecn::NotEct, options), (Ecn::Ect0, CoDelOptions { ecn: true, ..options })] {
        let (times, marked) = selections(options, 30_000, ecn);
        assert!(times.len() > 150, "only {} drops", times.len());
        assert_eq!(marked, if options.ecn { times.len() as u64 } else { 0 });
        // The delay reaches 5 ms after 5 ms, and has been above it for an interval 100 ms later.
        let mut due = Instant::ZERO + options.target + options.interval;
        for (n, at) in (1..).zip(&times) {
            assert!(*at >= due && at.since(due) <= SLOT * 2, "drop {n} at {at}, due at {due}");
            due += Span::from_ps((options.interval.as_ps() as f64 / libm::sqrt(f64::from(n))) as u64);
        }
    }
}

/// The threshold marks by the sojourn time alone, without an interval, and drops nothing.
#[test]
fn above_the_threshold_every_capable_frame_is_marked() {
    let options = CoDelOptions { ce_threshold: Some(Span::from_ms(1)), ..CoDelOptions::default() };
    for (ecn, expected) in [(Ecn::NotEct, 0), (Ecn::Ect0, 19), (Ecn::Ect1, 19), (Ecn::Ce, 0)] {
        let mut queue = CoDel::new(options);
        (0..30).for_each(|id| queue.enqueue(Instant::ZERO, Packet { ecn, ..packet(id, 1000, 0) }));
        let mut actions = Actions::default();
        for n in 0..30u64 {
            let now = Instant::ZERO + SLOT * n;
            let frame = queue.dequeue(now, &mut actions).expect("it is queued").frame;
            // At 1 ms it is not above it yet.
            let is_marked = ecn == Ecn::Ce || ecn != Ecn::NotEct && n > 10;
            assert_eq!(frame.ecn == Ecn::Ce, is_marked, "{n} of {ecn:?}");
        }
        assert_eq!((actions.marked, actions.dropped.len()), (expected, 0), "{ecn:?}");
    }
}

#[test]
fn a_burst_shorter_than_the_interval_passes() {
    let mut testbed = Testbed::new(link(line(
        12_000_000,
        Bound::NONE,
        queue_of(DisciplineOptions::CoDel(CoDelOptions::default())),
    )));
    // 100 frames of 1 ms wait up to 99 ms.
    (0..100).for_each(|id| testbed.send(Instant::ZERO, 0, packet(id, 1500, 0)));
    testbed.finish();
    assert_eq!(testbed.counters(0).queue_drops, 0);
    // The same burst again and again is a standing queue.
    (0..5_000).for_each(|id| testbed.send(testbed.now + Span::from_us(900), 0, packet(id, 1500, 0)));
    testbed.finish();
    assert!(testbed.counters(0).queue_drops > 20);
}

#[test]
fn a_queue_of_one_frame_never_stands() {
    // Each frame takes 120 ms, which is above the target, but at most one waits.
    let options = line(100_000, Bound::NONE, queue_of(DisciplineOptions::CoDel(CoDelOptions::default())));
    let mut testbed = Testbed::new(link(options));
    for id in 0..100 {
        testbed.send(Instant::ZERO + Span::from_ms(119) * u64::from(id), 0, packet(id, 1500, 0));
    }
    testbed.finish();
    assert_eq!(testbed.counters(0).queue_drops, 0);
}
