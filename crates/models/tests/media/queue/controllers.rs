//! RED, PIE and DualPI2: their probabilities, and the delays that they keep.

use trunkline_endpoint::{Bound, Ecn, Frame as _};
use trunkline_models::media::queue::dual_pi2::DualPi2;
use trunkline_models::media::queue::pie::Pie;
use trunkline_models::media::queue::red::Red;
use trunkline_models::media::queue::{
    Actions, Discipline, DisciplineOptions, DualPi2Options, PieOptions, RedOptions,
};
use trunkline_units::{Instant, Rate, Seed, Span};

use super::super::common::Packet;
use super::responsive::{self, percentile_ms};
use super::{line, link, packet, queue_of};

/// The mean number of frames from one mark to the next, if the n-th is marked with the probability p / (1 - n p).
fn expected_gap(p: f64) -> f64 {
    let (mut mean, mut unmarked, mut n) = (0.0, 1.0, 0.0);
    while unmarked > 1e-12 {
        n += 1.0;
        mean += unmarked;
        let rest = 1.0 - n * p;
        unmarked *= if rest <= p { 0.0 } else { 1.0 - p / rest };
    }
    mean
}

#[test]
fn red_marks_with_the_probability_of_its_formula() {
    let options = RedOptions { weight: 0.5, ecn: true, ..RedOptions::default() };
    for queue in [3, 6, 8, 10, 12, 14, 16, 20, 25] {
        let mut red = Red::new(options, Rate::from_bps(10_000_000), Seed(queue).stream("red"));
        (0..queue).for_each(|id| red.enqueue(Instant::ZERO, packet(id as u32, 1000, 0)));
        let mut actions = Actions::default();
        let arrivals = 200_000;
        for id in 0..arrivals {
            // The queue stands at this length, so that its average does as well.
            let mut frame = Packet { ecn: Ecn::Ect0, ..packet(id, 1000, 0) };
            assert!(red.admit(Instant::ZERO, &mut frame, &mut actions), "capable frames are marked");
            red.enqueue(Instant::ZERO, frame);
            red.dequeue(Instant::ZERO, &mut actions);
        }
        let share = actions.marked as f64 / f64::from(arrivals);
        let probability = options.probability(queue as f64);
        let expected = if probability > 0.0 { 1.0 / expected_gap(probability) } else { 0.0 };
        assert!((share - expected).abs() <= 0.02 * expected, "{queue} frames: {share}, not {expected}");
        // Where the probability is small, that is twice the probability.
        if probability < 0.1 {
            assert!((expected - 2.0 * probability).abs() < 0.01, "{expected} at {probability}");
        }
    }
}

#[test]
fn red_drops_what_it_cannot_mark_and_forgets_while_idle() {
    let options = RedOptions { weight: 0.5, ecn: true, ..RedOptions::default() };
    let mut red = Red::new(options, Rate::from_bps(8_000_000), Seed(1).stream("red"));
    let mut actions = Actions::default();
    let mut offer = |red: &mut Red<Packet>, now, ecn| {
        let mut frame = Packet { ecn, ..packet(0, 1000, 0) };
        let is_admitted = red.admit(now, &mut frame, &mut actions);
        if is_admitted {
            red.enqueue(now, frame.clone());
        }
        (is_admitted, frame.ecn())
    };
    (0..40).for_each(|_| red.enqueue(Instant::ZERO, packet(0, 1000, 0)));
    // Far above twice the maximum even capable frames are dropped.
    let last = (0..20).map(|_| offer(&mut red, Instant::ZERO, Ecn::Ect0)).last();
    assert_eq!(last, Some((false, Ecn::Ect0)));
    let mut none = Actions::default();
    while red.dequeue(Instant::ZERO, &mut none).is_some() {}
    // A typical frame takes 1 ms; after ten of them a thousandth of the average is left.
    assert_eq!(offer(&mut red, Instant::ZERO + Span::from_ms(10), Ecn::NotEct), (true, Ecn::NotEct));
}

#[test]
fn pie_keeps_its_target() {
    let discipline = DisciplineOptions::Pie(PieOptions::default());
    let link = link(line(20_000_000, Bound::frames(1000), queue_of(discipline)));
    let (rtt, warm_up) = (Span::from_ms(40), Span::from_s(10));
    let flows = responsive::run(link, &[Ecn::NotEct; 8], rtt, warm_up, Span::from_s(60));
    let mut all: Vec<Span> = flows.into_iter().flat_map(|(sojourns, _)| sojourns).collect();
    all.sort();
    let (median, most) = (percentile_ms(&all, 50), percentile_ms(&all, 95));
    assert!((11.0..=19.0).contains(&median), "the median is {median} ms");
    assert!(most < 35.0, "one in twenty waits {most} ms");
    // The line is full: 20 Mb/s for 50 s.
    assert!(all.len() as f64 > 0.95 * 50.0 * 20e6 / 12e3, "{}", all.len());
}

#[test]
fn dual_pi2_keeps_the_low_latency_queue_near_a_millisecond() {
    let discipline = || queue_of(DisciplineOptions::DualPi2(DualPi2Options::default()));
    let (rtt, warm_up, length) = (Span::from_ms(20), Span::from_s(5), Span::from_s(30));
    // Alone, the ramp around 1 ms marks.
    let alone = link(line(40_000_000, Bound::frames(1000), discipline()));
    let flows = responsive::run(alone, &[Ecn::Ect1; 2], rtt, warm_up, length);
    let mut low: Vec<Span> = flows.iter().flat_map(|(sojourns, _)| sojourns.clone()).collect();
    low.sort();
    let (median, most) = (percentile_ms(&low, 50), percentile_ms(&low, 99));
    assert!((0.5..=1.3).contains(&median), "the median is {median} ms");
    assert!(most < 2.5, "one in a hundred waits {most} ms");
    assert!(flows.iter().all(|(_, marked)| *marked > 0.0));

    // Beside classic flows, which keep their own target and about the same rate.
    let coupled = link(line(40_000_000, Bound::frames(1000), discipline()));
    let kinds = [Ecn::Ect1, Ecn::Ect1, Ecn::NotEct, Ecn::NotEct];
    let flows = responsive::run(coupled, &kinds, rtt, warm_up, length);
    let merge = |range: std::ops::Range<usize>| {
        let mut all: Vec<Span> = flows[range].iter().flat_map(|(sojourns, _)| sojourns.clone()).collect();
        all.sort();
        all
    };
    let (low, classic) = (merge(0..2), merge(2..4));
    let median = percentile_ms(&low, 50);
    assert!(median < 1.2, "the median of the low-latency queue is {median} ms");
    let median = percentile_ms(&classic, 50);
    assert!((9.0..=20.0).contains(&median), "the median of the classic queue is {median} ms");
    let ratio = low.len() as f64 / classic.len() as f64;
    assert!((0.4..=2.5).contains(&ratio), "the shares are {ratio} to 1");
}

#[test]
fn pie_marks_up_to_its_highest_probability() {
    let options = PieOptions { ecn: true, ..PieOptions::default() };
    for (ecn, max_ecn) in [(Ecn::Ect0, 0.1), (Ecn::Ect0, 1.0), (Ecn::NotEct, 0.1)] {
        let mut pie = Pie::new(PieOptions { max_ecn, ..options }, Seed(1).stream("pie"));
        (0..10).for_each(|id| pie.enqueue(Instant::ZERO, packet(id, 1000, 0)));
        let (mut now, mut marked, mut dropped) = (Instant::ZERO, 0, 0);
        // Nothing leaves, so that the delay and the probability grow.
        while now < Instant::ZERO + Span::from_ms(600) {
            now += Span::from_us(100);
            let mut actions = Actions::default();
            let is_admitted = pie.admit(now, &mut Packet { ecn, ..packet(0, 1000, 0) }, &mut actions);
            assert!(actions.marked == 0 || is_admitted && dropped == 0, "a mark at {now} after a drop");
            (marked, dropped) = (marked + actions.marked, dropped + u64::from(!is_admitted));
        }
        let is_capable = ecn == Ecn::Ect0;
        assert_eq!(
            (marked > 10, dropped > 100),
            (is_capable, !is_capable || max_ecn < 1.0),
            "{ecn:?}, {max_ecn}"
        );
    }
}

#[test]
fn dual_pi2_drops_in_overload_only() {
    let options = DualPi2Options::default();
    let mut queue = DualPi2::new(options);
    for id in 0..20_000 {
        let ecn = [Ecn::Ect0, Ecn::Ect1][id as usize % 2];
        queue.enqueue(Instant::ZERO, Packet { ecn, ..packet(id, 1000, u64::from(id % 2)) });
    }
    // All frames are as old as the clock: the base probability grows to a half, where its double is 1.
    let (mut base, mut overload, mut previous) = (0.0, Instant::ZERO, 0.0);
    while base < 0.5 {
        overload += options.update;
        let delay = overload.as_s();
        base += options.alpha * (delay - options.target.as_s()) + options.beta * (delay - previous);
        previous = delay;
    }
    let (mut now, mut marked, mut dropped) = (Instant::ZERO, [0, 0], [0, 0]);
    // At a base probability of 1 nothing would be left.
    while now < overload + options.update * 4 {
        now += Span::from_us(30);
        let mut actions = Actions::default();
        let sent = queue.dequeue(now, &mut actions).expect("both queues stand").frame;
        actions.dropped.iter().for_each(|frame| dropped[frame.flow as usize] += 1);
        if sent.ecn == Ecn::Ce {
            marked[sent.flow as usize] += 1;
            assert!(sent.flow == 1 || now < overload, "a classic frame was marked at {now}");
        }
        assert!(now >= overload || dropped == [0, 0], "a drop at {now}");
    }
    assert!(marked.iter().chain(&dropped).all(|count| *count > 5), "{marked:?} marked, {dropped:?} dropped");
}
