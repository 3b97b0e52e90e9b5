//! Tests of the estimator: rules, simulated clocks and paths, and hostile exchanges.

use proptest::prelude::*;

use super::*;

mod simulation;

use simulation::{Options, Simulation, Totals};

fn us(us: u64) -> Instant {
    Instant::from_ns(us * 1_000)
}

/// Returns an exchange in which both directions take 100 µs. All arguments are in microseconds.
fn exchange(sent: u64, offset: i64) -> Exchange {
    delayed(sent, offset, 100, 100)
}

fn delayed(sent: u64, offset: i64, request: u64, reply: u64) -> Exchange {
    let remote = us((sent + request).checked_add_signed(offset).expect("the remote reading is positive"));
    Exchange {
        sent: us(sent),
        received_remote: remote,
        replied_remote: remote,
        received: us(sent + request + reply),
    }
}

#[test]
fn an_exchange_bounds_the_offset_by_half_its_round_trip() {
    let mut clock = ClockOffset::new(0);
    assert_eq!(clock.estimate(us(1_000)), None);
    clock.record(delayed(1_000, 5_000, 30, 170)).unwrap();
    let estimate = clock.estimate(us(1_200)).unwrap();
    // The request was faster than the reply, so the centre is off by 70 µs; the bound covers it.
    assert_eq!(estimate.offset_ps, 4_930_000_000);
    assert_eq!(estimate.bound, Span::from_us(100) + Span::from_ns(2));
}

#[test]
fn the_best_request_and_the_best_reply_may_be_of_different_exchanges() {
    let mut clock = ClockOffset::new(0);
    clock.record(delayed(1_000, -500, 40, 9_000)).unwrap();
    clock.record(delayed(20_000, -500, 7_000, 60)).unwrap();
    let estimate = clock.estimate(us(30_000)).unwrap();
    assert_eq!(estimate.bound, Span::from_us(50) + Span::from_ns(2));
    assert_eq!(estimate.offset_ps, -510_000_000);
}

#[test]
fn the_bound_grows_with_the_drift_in_both_directions_of_time() {
    let mut clock = ClockOffset::new(100_000);
    clock.record(exchange(0, 0)).unwrap();
    clock.record(exchange(1_000_000, 0)).unwrap();
    let bound = |at| clock.estimate(us(at)).unwrap().bound.as_ns();
    // 100 ppm of the time to the nearest message: 499.9 ms, 500 ms on average, and 100 µs.
    assert_eq!(bound(500_100), 100_000 + 49_990 + 2);
    assert_eq!(bound(1_500_100), 100_000 + 50_000 + 2);
    assert_eq!(bound(1_000_100), 100_000 + 10 + 2);
}

#[test]
fn impossible_exchanges_are_refused() {
    let mut clock = ClockOffset::default();
    let good = exchange(1_000_000, 0);
    let received_before_sent = Exchange { received: us(999_999), ..good };
    assert_eq!(clock.record(received_before_sent), Err(Rejected::ReceivedBeforeSent));
    let replied_before_received = Exchange { replied_remote: us(1_000_099), ..good };
    assert_eq!(clock.record(replied_before_received), Err(Rejected::RepliedBeforeReceived));
    let longer = Exchange { replied_remote: us(1_000_301), ..good };
    assert_eq!(clock.record(longer), Err(Rejected::LongerThanRoundTrip));
    assert_eq!(clock.record(delayed(1_000_000, 0, 8_000_001, 8_000_000)), Err(Rejected::SentTooEarly));
    assert_eq!(clock.estimate(us(1_000_000)), None);
    assert_eq!(clock.record(exchange(20_000_000, 0)), Ok(()));
    assert_eq!(clock.record(good), Err(Rejected::SentTooEarly));
}

#[test]
fn a_step_discards_everything_that_was_sent_before_it_was_found() {
    let mut clock = ClockOffset::default();
    clock.record(exchange(0, 0)).unwrap();
    clock.record(exchange(10_000, 0)).unwrap();
    clock.record(exchange(20_000, 1_000)).unwrap();
    // The step may be between the request and the reply of the last exchange.
    assert_eq!((clock.steps(), clock.estimate(us(20_200))), (1, None));
    assert_eq!(clock.record(exchange(20_100, 1_000)), Err(Rejected::SentTooEarly));
    clock.record(exchange(30_000, 1_000)).unwrap();
    let estimate = clock.estimate(us(30_200)).unwrap();
    assert_eq!((estimate.offset_ps / 1_000_000, estimate.steps), (1_000, 1));
    assert_eq!(clock.estimate(us(29_999)), None);
}

#[test]
fn a_step_below_the_uncertainty_is_not_found_but_leaves_the_window() {
    let mut clock = ClockOffset::new(0);
    clock.record(exchange(0, 0)).unwrap();
    // 150 µs are less than the round trip. Unequal queues would look the same.
    clock.record(exchange(10_000, 150)).unwrap();
    assert_eq!(clock.steps(), 0);
    let covers = |clock: &ClockOffset, at, offset_us: i128| {
        let estimate = clock.estimate(us(at)).unwrap();
        (offset_us * 1_000_000 - estimate.offset_ps).unsigned_abs() <= u128::from(estimate.bound.as_ps())
    };
    assert!(!covers(&clock, 10_200, 150));
    assert!(covers(&clock, 16_000_001, 150));
}

#[test]
fn memory_is_bounded() {
    let mut clock = ClockOffset::default();
    for sent in 0..3_000 {
        clock.record(exchange(sent * 1_000, 0)).unwrap();
    }
    assert_eq!(clock.exchanges.len(), CAPACITY);
    assert!(clock.estimate(us(3_000_000)).is_some());
}

#[test]
fn the_bound_of_an_idle_path_stays_small_for_ten_minutes() {
    let mut simulation = Simulation::new(1996, Options::idle());
    let totals = simulation.run();
    println!("{totals:?}");
    assert_eq!(totals.wrong, 0);
    assert!(totals.exchanges > 15_000, "{totals:?}");
    let excess = totals.largest_bound.since_half_round_trip();
    assert!(excess <= 20_000_000, "the bound is {excess} ps above half the minimum round trip");
}

#[test]
fn the_bound_is_true_in_500_simulated_runs() {
    check_seeds(0..500);
}

#[cfg(feature = "soak")]
#[test]
fn soak_the_bound_is_true_in_10000_simulated_runs() {
    check_seeds(0..10_000);
}

fn check_seeds(seeds: std::ops::Range<u64>) {
    let runs = seeds.end - seeds.start;
    let mut totals = Totals::default();
    for seed in seeds {
        let run = Simulation::new(seed, Options::random(seed)).run();
        assert_eq!(run.wrong, 0, "seed {seed}: a stated interval does not contain the truth: {run:?}");
        assert_eq!(
            run.missed, 0,
            "seed {seed}: an exchange that contradicts another reveals no step: {run:?}"
        );
        assert_eq!(run.false_steps, 0, "seed {seed}: a step is found that did not happen: {run:?}");
        totals.add(&run);
    }
    println!("{totals:?}");
    // The simulation covers what it is meant to cover.
    assert!(totals.checks > 300 * runs, "{totals:?}");
    assert!(totals.unanswered < totals.checks / 20, "{totals:?}");
    assert!(totals.exposed > 0 && totals.exposed < totals.checks / 5, "{totals:?}");
    assert!(totals.found > runs / 4 && totals.found < totals.steps, "{totals:?}");
    assert!(totals.evident > runs / 4 && totals.lost > runs, "{totals:?}");
}

/// Timestamps near the ends of the range, near each other, and anywhere.
fn timestamp() -> impl Strategy<Value = Instant> {
    prop_oneof![
        any::<u64>(),
        0u64..3,
        (0u64..3).prop_map(|below| u64::MAX - below),
        (0u64..40).prop_map(|s| s * 1_000_000_000_000),
        0u64..1_000_000_000,
    ]
    .prop_map(Instant::from_ps)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_exchange_causes_a_panic(
        max_drift_ppb: u32,
        exchanges in prop::collection::vec([timestamp(), timestamp(), timestamp(), timestamp(), timestamp()], 1..80),
    ) {
        let mut clock = ClockOffset::new(max_drift_ppb);
        for [sent, received_remote, replied_remote, received, now] in exchanges {
            let _ = clock.record(Exchange { sent, received_remote, replied_remote, received });
            prop_assert!(clock.exchanges.len() <= CAPACITY);
            let _ = clock.estimate(now);
        }
    }

    /// The local timestamps are our own. A peer that invents its readings must not stop the estimator.
    #[test]
    fn a_hostile_peer_causes_no_panic(
        readings in prop::collection::vec((timestamp(), timestamp(), 0u64..100_000_000, 0u64..60_000_000), 1..200),
    ) {
        let mut clock = ClockOffset::default();
        let mut now = us(1);
        let mut steps = 0;
        for (a, b, round_trip_ns, pause_ns) in readings {
            let sent = now;
            now += Span::from_ns(round_trip_ns);
            let (received_remote, replied_remote) = (a.min(b), a.max(b));
            // With equal readings, the round trip is never too short.
            let replied_remote = if round_trip_ns % 2 == 0 { received_remote } else { replied_remote };
            let outcome = clock.record(Exchange { sent, received_remote, replied_remote, received: now });
            prop_assert!(outcome.is_ok() || outcome == Err(Rejected::LongerThanRoundTrip));
            // An accepted exchange gives an estimate or reveals a step.
            prop_assert!(outcome.is_err() || clock.steps() == steps + 1 || clock.estimate(now).is_some());
            steps = clock.steps();
            now += Span::from_ns(pause_ns);
        }
    }
}
