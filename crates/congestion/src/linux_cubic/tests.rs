use std::collections::VecDeque;

use super::*;
use crate::Cubic;
use crate::tests::full;

const BOUNDS: Bounds = Bounds { segment: 1_000, initial: 10_000, max: u32::MAX };

fn at(seconds: f64) -> Instant {
    Instant::ZERO + Span::from_seconds(seconds)
}

fn acked(controller: &dyn Controller, seconds: f64, segments: u32, round_trip: f64) -> Acknowledgement {
    full(controller, at(seconds), segments * BOUNDS.segment, Span::from_seconds(round_trip))
}

fn loss(seconds: f64, timeout: bool) -> Loss {
    Loss {
        now: at(seconds),
        amount: 1,
        bytes: 1,
        sent_at: at(seconds),
        in_flight: 1,
        timeout,
        since_sent: crate::SinceSent::default(),
    }
}

/// Acknowledges the segments of a window as a line of `rate` segments a second does, after a round trip without queue; returns
/// the window at which slow start ends, in segments.
fn end_of_slow_start(controller: &mut dyn Controller, rate: f64, round_trip: f64) -> f64 {
    let (mut seconds, mut free_at) = (0.0, 0.0f64);
    let (mut arrivals, mut in_flight) = (VecDeque::new(), 0);
    let unlimited = controller.threshold();
    while controller.threshold() == unlimited && controller.window() < 10_000_000 {
        while in_flight < controller.window() {
            free_at = free_at.max(seconds) + 1.0 / rate;
            arrivals.push_back((seconds, free_at + round_trip));
            in_flight += BOUNDS.segment;
        }
        let (sent, arrives) = arrivals.pop_front().expect("something is in flight");
        seconds = arrives;
        let ack = acked(controller, seconds, 1, arrives - sent);
        controller.on_ack(&Acknowledgement { sent_at: at(sent), in_flight, ..ack });
        in_flight -= BOUNDS.segment;
    }
    f64::from(controller.window() / BOUNDS.segment)
}

/// The train of a round is half a round trip long before the queue is long; where pauses break the train, the rising
/// round-trip time ends slow start.
#[test]
fn slow_start_ends_by_train_or_by_delay() {
    for (rate, round_trip) in [(8_000.0, 0.1), (4_000.0, 0.04), (1_600.0, 0.1)] {
        let product = rate * round_trip;
        let window = end_of_slow_start(&mut LinuxCubic::new(BOUNDS), rate, round_trip);
        assert!((0.5 * product..1.6 * product).contains(&window), "{window} of {product}");
        let without = end_of_slow_start(&mut Cubic::new(BOUNDS), rate, round_trip);
        assert!(without > 2.0 * product, "{without} of {product}");
    }
    // Acknowledgements 3 ms apart are no train. The product is 13 segments, and 5 ms are a queue of 2.
    let window = end_of_slow_start(&mut LinuxCubic::new(BOUNDS), 1.0 / 0.003, 0.04);
    assert!((16.0..64.0).contains(&window), "{window}");
}

/// A controller in congestion avoidance with a window of so many segments.
fn avoiding(window: u32) -> LinuxCubic {
    let mut controller = LinuxCubic::new(BOUNDS);
    (controller.state.window, controller.state.threshold) = (window, window);
    controller
}

/// Acknowledges a window in a round trip that begins at `seconds`; returns the growth in segments.
fn round(controller: &mut LinuxCubic, seconds: f64, round_trip: f64) -> u32 {
    let before = controller.state.window;
    for index in 0..before {
        let seconds = seconds + round_trip * f64::from(index) / f64::from(before);
        controller.on_ack(&acked(controller, seconds, 1, round_trip));
    }
    controller.state.window - before
}

/// Before the first loss and after a timeout the window grows by 5 % in a round trip; after a loss it does not.
#[test]
fn growth_before_the_first_loss() {
    let mut controller = avoiding(1_000);
    assert_eq!(round(&mut controller, 0.0, 0.01), 50);
    controller.on_lost(&loss(0.02, false));
    let window = controller.state.window;
    assert_eq!(window, 735, "1,050 times 717 / 1,024, rounded down");
    assert!(round(&mut controller, 0.03, 0.01) < window / 50);
    controller.on_lost(&loss(0.1, true));
    assert_eq!((controller.window(), controller.state.last_max), (BOUNDS.segment, 0));
}

/// A reduction leaves whole segments: of 9 there remain 6, of 3 and 2 the minimum.
#[test]
fn reductions_round_down() {
    for (before, after) in [(20, 14), (9, 6), (3, 2), (2, 2)] {
        let mut controller = avoiding(before);
        controller.on_lost(&loss(1.0, false));
        assert_eq!(controller.window(), after * BOUNDS.segment, "{before}");
        // A loss of the same window changes nothing.
        controller.on_lost(&Loss { sent_at: at(0.5), ..loss(1.1, false) });
        assert_eq!(controller.window(), after * BOUNDS.segment, "{before}");
    }
}

/// On short paths the window grows as Reno's with a factor of 0.53, later than it: by at most a round trip and 1/32 s. The cubic
/// function, rounded up, makes it one segment larger at the start.
#[test]
fn friendly_growth_lags() {
    let mut controller = avoiding(20);
    controller.on_lost(&loss(0.0, false));
    let (start, round_trip) = (controller.state.window, 0.01);
    for turn in 1..=20u32 {
        round(&mut controller, f64::from(turn) * round_trip, round_trip);
        let grown = f64::from(controller.state.window - start);
        let (least, most) = (0.53 * (f64::from(turn) - 5.2), 0.54 * f64::from(turn) + 1.0);
        assert!((least..=most).contains(&grown), "{grown} after {turn} round trips");
    }
}

/// Far from the last loss the window follows the cubic function: it reaches the previous maximum after K.
#[test]
fn window_returns_after_k() {
    let mut controller = avoiding(1_000);
    controller.on_lost(&loss(0.0, false));
    let k = libm::cbrt((1_000.0 - 700.0) / C);
    let (mut seconds, round_trip) = (0.1, 0.1);
    while controller.state.window < 990 {
        round(&mut controller, seconds, round_trip);
        seconds += round_trip;
    }
    // The function is flat there: 10 segments below the maximum are 2.9 s before K.
    assert!((k - 3.5..k + 0.5).contains(&seconds), "{seconds} instead of {k}");
}

#[test]
fn a_spurious_loss_is_undone() {
    let mut controller = avoiding(100);
    controller.on_lost(&loss(1.0, false));
    controller.on_spurious(at(1.1));
    assert_eq!(controller.state.window, 100);
    controller.on_spurious(at(1.2));
    assert_eq!(controller.state.window, 100);
}

/// Of a window of four segments Reno's needs more than seven for the next one, not 7.56; and before the origin the function is
/// rounded up: a segment ahead at once.
#[test]
fn small_windows_grow_by_whole_segments() {
    let mut state = avoiding(4).state;
    let mut epoch = Epoch::new(at(1.0), &state);
    for _ in 0..8 {
        epoch.updated_for = 0;
        epoch.update(at(1.0), 1.0, 4, Span::ZERO, false);
    }
    assert_eq!((epoch.estimate, epoch.estimate_credit), (5.0, 1.0));
    state.last_max = 5;
    let mut epoch = Epoch::new(at(1.0), &state);
    // The function is 0.8 segments below its origin.
    epoch.update(at(1.1), 1.0, 4, Span::ZERO, false);
    assert_eq!(epoch.acks_per_growth, 4.0);
}
