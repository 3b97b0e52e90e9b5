use super::*;
use crate::tests::full;
use crate::{Reno, SinceSent};

fn at(seconds: f64) -> Instant {
    Instant::ZERO + Span::from_seconds(seconds)
}

fn acked(controller: &dyn Controller, now: Instant, amount: u32, round_trip: f64) -> Acknowledgement {
    full(controller, now, amount, Span::from_seconds(round_trip))
}

fn loss(now: Instant, timeout: bool) -> Loss {
    let since_sent = SinceSent::default();
    Loss { now, amount: 1, bytes: 1, sent_at: now, in_flight: 1, timeout, since_sent }
}

/// Deterministic loss (RFC 9438 section 5): one of every 1 / p segments is lost, and its reduction takes no time. Returns
/// the average window over 12 losses, after `before` others: CUBIC approaches its steady state by half a per cent a loss.
fn average_window(
    controller: &mut dyn Controller,
    segment: u32,
    p: f64,
    round_trip: f64,
    before: u32,
) -> f64 {
    let per_loss = (1.0 / p).round();
    let (mut seconds, mut segments, mut begin) = (round_trip, 0.0, 0.0);
    for cycle in 0..before + 12 {
        if cycle == before {
            (begin, segments) = (seconds, 0.0);
        }
        let mut remaining = per_loss;
        while remaining > 0.0 {
            let window = f64::from(controller.window()) / f64::from(segment);
            // Acknowledgements of large windows come in batches.
            let amount = (window / 12.0).floor().clamp(1.0, remaining);
            seconds += amount * round_trip / window;
            controller.on_ack(&acked(controller, at(seconds), amount as u32 * segment, round_trip));
            (remaining, segments) = (remaining - amount, segments + amount);
        }
        controller.on_lost(&loss(at(seconds), false));
    }
    segments * round_trip / (seconds - begin)
}

/// RFC 9438, tables 1 and 2: loss, and the average windows of Reno and of CUBIC with C = 0.4, with round trips of 100 ms and of
/// 10 ms.
const TABLES: [(f64, f64, [f64; 2]); 7] = [
    (1e-2, 12.0, [12.0, 12.0]),
    (1e-3, 38.0, [38.0, 38.0]),
    (1e-4, 120.0, [187.0, 120.0]),
    (1e-5, 379.0, [1_054.0, 379.0]),
    (1e-6, 1_200.0, [5_926.0, 1_200.0]),
    (1e-7, 3_795.0, [33_325.0, 5_926.0]),
    (1e-8, 12_000.0, [187_400.0, 33_325.0]),
];

#[test]
fn average_windows_are_those_of_the_rfc() {
    let mut wrong = Vec::new();
    for (p, reno, cubics) in TABLES {
        for (round_trip, cubic) in [0.1, 0.01].into_iter().zip(cubics) {
            // In bytes, as TCP counts: the average is of the window, without rounding to segments.
            let segment = 1_448;
            let bounds = Bounds::new(segment, u32::MAX);
            let mut controller = Cubic::new(bounds);
            let measured = average_window(&mut controller, segment, p, round_trip, 300);
            let mut other = Reno::new(bounds);
            let measured_reno = average_window(&mut other, segment, p, round_trip, 30);
            let (ratio, ratio_reno) = (measured / cubic, measured_reno / reno);
            println!(
                "{round_trip} {p:e}: CUBIC {measured:.1} {ratio:.3}, Reno {measured_reno:.1} {ratio_reno:.3}"
            );
            if !(0.95..=1.05).contains(&ratio) || !(0.95..=1.05).contains(&ratio_reno) {
                wrong.push((round_trip, p, ratio, ratio_reno));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

const MS: f64 = 1e-3;

/// Returns a controller in segments that was reduced at 1 s from this window.
fn reduced(window: u32) -> Cubic {
    let mut cubic = Cubic::new(Bounds { segment: 1, initial: window, max: 1 << 24 });
    cubic.on_lost(&loss(at(1.0), false));
    cubic
}

/// Acknowledges segments evenly over some seconds, with full windows; returns the window.
fn run(cubic: &mut Cubic, from: f64, to: f64, round_trip: f64) -> f64 {
    let mut seconds = from;
    loop {
        seconds += round_trip / cubic.window;
        if seconds > to {
            return cubic.window;
        }
        cubic.on_ack(&acked(cubic, at(seconds), 1, round_trip));
    }
}

/// Section 4.2: after K seconds the window is the one before the reduction, and after 2 K it has grown by the reduction.
#[test]
fn window_follows_the_cubic_function() {
    for window in [200, 2_000, 20_000] {
        let mut cubic = reduced(window);
        let origin = f64::from(window);
        assert_eq!(cubic.window, origin * BETA);
        let k = (origin * (1.0 - BETA) / C).cbrt();
        let round_trip = 0.1;
        run(&mut cubic, 1.0, 1.0 + k - round_trip, round_trip);
        let plateau = run(&mut cubic, 1.0 + k - round_trip, 1.0 + k + round_trip, round_trip);
        assert!((plateau / origin - 1.0).abs() < 0.01, "{plateau} of {origin} after {k} s");
        let grown = run(&mut cubic, 1.0 + k + round_trip, 1.0 + 2.0 * k, round_trip);
        assert!((grown / (origin * (2.0 - BETA)) - 1.0).abs() < 0.02, "{grown} of {origin} after {k} s");
    }
}

/// An integer cube root with a table, as in Linux until 2008, was off by several per cent for small arguments.
#[test]
fn cube_root_is_exact() {
    for segments in 1..100_000u32 {
        let epoch = Epoch::new(0.0, segments.into(), 1.0);
        let error = C * epoch.k * epoch.k * epoch.k / f64::from(segments) - 1.0;
        assert!(error.abs() < 1e-12, "{error} at {segments}");
        assert!(epoch.value(0.0, 1.0).abs() < 1e-6, "{segments}");
    }
}

/// The defect of Linux before 2015: after an idle period the time since the reduction made the window jump.
#[test]
fn idle_time_does_not_count() {
    let (mut busy, mut idle) = (reduced(1_000), reduced(1_000));
    let before = run(&mut busy, 1.0, 3.0, 0.02);
    assert_eq!(run(&mut idle, 1.0, 3.0, 0.02), before);
    let later = at(600.0);
    idle.on_sent(&Transmission { now: later, amount: 1, bytes: 1, in_flight: 1 });
    let (busy, idle) = (run(&mut busy, 3.0, 4.0, 0.02), run(&mut idle, 600.0, 601.0, 0.02));
    assert!((idle / busy - 1.0).abs() < 0.005, "{idle} and {busy}");
}

#[test]
fn time_of_an_unused_window_does_not_count() {
    let mut cubic = reduced(1_000);
    let before = run(&mut cubic, 1.0, 3.0, 0.02);
    for ms in 0..60_000 {
        let few = Acknowledgement { in_flight: 5, ..acked(&cubic, at(3.0 + f64::from(ms) * MS), 1, 0.02) };
        cubic.on_ack(&few);
    }
    assert_eq!(cubic.window, before);
    let after = run(&mut cubic, 63.0, 63.2, 0.02);
    assert!(after < before * 1.05, "{after} after {before}");
}

/// Round trips far below a millisecond: each acknowledgement adds less than a thousandth of a segment, and all of it counts.
/// The window is Reno's.
#[test]
fn short_round_trips_grow_as_reno() {
    for round_trip in [20e-6, 100e-6, 500e-6] {
        let mut cubic = reduced(100);
        let rounds = 20.0;
        let window = run(&mut cubic, 1.0, 1.0 + rounds * round_trip, round_trip);
        let expected = 70.0 + rounds * ALPHA;
        assert!((window - expected).abs() < 1.0, "{window} instead of {expected} at {round_trip}");
    }
}

/// Section 4.3: from the window before the reduction on, the Reno-friendly window grows by a segment per round trip.
#[test]
fn friendly_window_grows_by_a_segment_beyond_the_last() {
    let mut cubic = reduced(10);
    let round_trip = 100e-6;
    let mut seconds = 1.0;
    while cubic.window < 10.0 {
        seconds += round_trip;
        run(&mut cubic, seconds - round_trip, seconds, round_trip);
    }
    let before = cubic.window;
    let after = run(&mut cubic, seconds, seconds + 10.0 * round_trip, round_trip);
    assert!((8.5..=10.5).contains(&(after - before)), "{before} to {after}");
}

/// Section 4.7: a flow that is reduced below its last maximum releases capacity.
#[test]
fn fast_convergence_lowers_the_plateau() {
    let mut cubic = reduced(1_000);
    run(&mut cubic, 1.0, 1.5, 0.05);
    let window = cubic.window;
    cubic.on_lost(&loss(at(1.5), false));
    assert_eq!((cubic.origin, cubic.prior), (window * (1.0 + BETA) / 2.0, window));
}

/// Section 4.8: after a timeout the function starts where slow start ends.
#[test]
fn timeout_starts_anew() {
    let mut cubic = reduced(1_000);
    run(&mut cubic, 1.0, 1.5, 0.05);
    let window = cubic.window;
    cubic.on_lost(&loss(at(2.0), true));
    assert_eq!((cubic.window(), cubic.threshold), (1, window * BETA));
    cubic.on_lost(&loss(at(4.0), true));
    assert_eq!(cubic.threshold, window * BETA, "the first timeout's threshold stays");
    run(&mut cubic, 4.0, 6.0, 0.05);
    let epoch = cubic.epoch.expect("congestion avoidance");
    assert_eq!(epoch.k, 0.0);
    assert!((epoch.origin / (window * BETA) - 1.0).abs() < 0.01, "{epoch:?}");
}

/// Section 4.9.
#[test]
fn spurious_loss_is_undone() {
    let mut cubic = reduced(1_000);
    let before = run(&mut cubic, 1.0, 3.0, 0.05);
    let k = cubic.epoch.map(|epoch| epoch.k);
    cubic.on_lost(&loss(at(3.0), false));
    cubic.on_spurious(at(3.1));
    assert_eq!((cubic.window, cubic.epoch.map(|epoch| epoch.k), cubic.origin), (before, k, 1_000.0));
    cubic.on_spurious(at(3.2));
    assert_eq!(cubic.window, before, "once");
}

/// HyStart++: a queue that builds up ends slow start before a loss; a constant delay does not.
#[test]
fn rising_delay_ends_slow_start() {
    for (rise, ends) in [(0.0, false), (0.02, true)] {
        let mut cubic = Cubic::with_hystart(Bounds::new(1, 1 << 20));
        let (mut seconds, base) = (1.0, 0.1);
        for _ in 0..14 {
            let window = cubic.window();
            let round_trip = base + rise * (f64::from(window) / 320.0).min(3.0);
            let sent = at(seconds);
            for n in 0..window {
                let now = seconds + round_trip + round_trip * f64::from(n) / f64::from(window) * 0.9;
                cubic.on_ack(&Acknowledgement { sent_at: sent, ..acked(&cubic, at(now), 1, round_trip) });
            }
            seconds += round_trip * 2.0;
        }
        let window = cubic.window();
        assert_eq!(window < 20_000, ends, "{window} with a rise of {rise}");
        assert_eq!(cubic.threshold < f64::from(1 << 20), ends, "{cubic:?}");
    }
}
