use super::*;
use crate::line::{FRAME, Flow, Line, LineResult, acked, at, lost};
use crate::{Acknowledgement, Algorithm, Controller, SinceSent};

const MAX_WINDOW: u32 = 1 << 20;

/// Both versions.
fn versions(seed: u64) -> [Algorithm; 2] {
    [Algorithm::Bbr { seed }, Algorithm::Bbr3 { seed }]
}

fn create(algorithm: Algorithm) -> Box<dyn Controller> {
    algorithm.controller(Bounds::new(1, MAX_WINDOW))
}

fn run_single(algorithm: Algorithm, line: &Line, seconds: f64) -> LineResult {
    line.run(seconds, vec![Flow::new(create(algorithm))])
}

#[test]
fn lines_are_filled() {
    for (rate, delay_us, queue) in [
        (100_000_000, 1_000, 1_000_000),
        (10_000_000, 40_000, 50_000),
        (10_000_000, 40_000, 200_000),
        (1_000_000_000, 10_000, 2_500_000),
        (1_000_000, 100_000, 30_000),
    ] {
        let line = Line { rate, delay_us, queue, ..Line::default() };
        for (algorithm, least, most_lost) in [(versions(1)[0], 0.99, 0.02), (versions(1)[1], 0.97, 0.002)] {
            let run = run_single(algorithm, &line, 10.0);
            let (utilization, overflow) = (run.utilization_second_half(), run.overflow_share());
            assert!(utilization > least, "{utilization} of {line:?} by {algorithm:?}");
            assert!(overflow < most_lost, "{overflow} of {line:?} by {algorithm:?}");
        }
    }
}

#[test]
fn round_trips_below_a_millisecond_are_filled() {
    for (rate, delay_us) in [(1_000_000_000, 200), (1_000_000_000, 25), (10_000_000_000, 50)] {
        let line = Line { rate, delay_us, queue: 1_000_000, ack_delay_us: 20, ..Line::default() };
        for algorithm in versions(2) {
            let run = run_single(algorithm, &line, 0.5);
            let utilization = run.utilization_second_half();
            assert!(utilization > 0.95, "{utilization} of {line:?} by {algorithm:?}");
        }
    }
}

/// Version 3 slows down a little in each round trip with losses until it probes again.
#[test]
fn random_loss_costs_little() {
    for (loss, algorithm, least) in
        [(0.01, versions(1)[0], 0.95), (0.05, versions(1)[0], 0.8), (0.01, versions(1)[1], 0.75)]
    {
        let line = Line { rate: 50_000_000, delay_us: 50_000, queue: 312_500, loss, ..Line::default() };
        let run = run_single(algorithm, &line, 30.0);
        assert!(run.utilization() > least, "{} at {loss} by {algorithm:?}", run.utilization());
    }
}

#[test]
fn flows_share_a_line() {
    for seed in 0..3 {
        for algorithm in versions(seed) {
            for (delay_us, queue) in [(10_000, 200_000), (40_000, 500_000), (40_000, 100_000)] {
                // In short queues flows of version 1 overrun each other.
                if queue < 200_000 && matches!(algorithm, Algorithm::Bbr { .. }) {
                    continue;
                }
                let line = Line { delay_us, queue, seed, ..Line::default() };
                let later = Instant::ZERO + Span::from_s(2);
                let flows = [Instant::ZERO, later].map(|at| Flow::starting(create(algorithm), at));
                let run = line.run(40.0, flows.into());
                let total: u64 = run.flows.iter().map(|flow| flow.second_half.delivered).sum();
                for flow in &run.flows {
                    let share = flow.second_half.delivered as f64 / total as f64;
                    assert!(share > 0.25, "{share} at {delay_us} us with {queue} bytes by {algorithm:?}");
                }
                assert!(run.utilization_second_half() > 0.95, "{algorithm:?}");
            }
        }
    }
}

#[test]
fn rate_changes_are_followed() {
    for algorithm in versions(1) {
        for (rate, changed) in [(20_000_000, 100_000_000), (100_000_000, 20_000_000)] {
            let rate_change = (5.0, changed);
            let line = Line { rate, delay_us: 20_000, queue: 500_000, rate_change, ..Line::default() };
            let run = run_single(algorithm, &line, 30.0);
            let utilization = run.utilization_second_half() * rate as f64 / changed as f64;
            assert!(utilization > 0.95, "{utilization} after {rate} became {changed} by {algorithm:?}");
        }
    }
}

/// An acknowledgement while a window of 100 Mb/s is in flight.
fn full(round: u64) -> Acknowledgement {
    Acknowledgement { in_flight: 60, ..acked(2_000 * round, 45, 100, false) }
}

/// Feeds acknowledgements of a window of 100 Mb/s until the cycle of probes has begun.
fn steady(algorithm: Algorithm) -> Box<dyn Controller> {
    let mut controller = create(algorithm);
    for round in 1..40 {
        controller.on_ack(&full(round));
    }
    controller
}

fn mbps(controller: &dyn Controller) -> f64 {
    controller.pace().map_or(0.0, |pace| pace.as_bps() as f64 / 1e6)
}

#[test]
fn application_limited_samples_do_not_reduce_the_rate() {
    for algorithm in versions(1) {
        let mut controller = steady(algorithm);
        for round in 40..1_000 {
            controller.on_ack(&acked(2_000 * round, 1, 1, true));
            assert!(mbps(&*controller) > 70.0, "{algorithm:?}: {}", mbps(&*controller));
        }
        // The same samples without the mark are the rate of the path.
        for round in 1_000..7_000 {
            controller.on_ack(&acked(2_000 * round, 1, 1, false));
        }
        assert!(mbps(&*controller) < 70.0, "{algorithm:?}: {}", mbps(&*controller));
    }
}

#[test]
fn startup_waits_for_something_to_send() {
    for algorithm in versions(1) {
        let mut controller = create(algorithm);
        for round in 1..100 {
            controller.on_ack(&acked(2_000 * round, 1, 1, true));
        }
        // In startup the pace only grows with the bandwidth, and its gain is more than twice the bandwidth.
        assert!(mbps(&*controller) > 2.0, "{algorithm:?}: {}", mbps(&*controller));
    }
}

/// Without a sample as low as the minimum, little is in flight after 10 s (version 1) or half after 5 s (version 3).
#[test]
fn minimum_round_trip_is_measured_again() {
    for (algorithm, after_s) in [(versions(1)[0], 10), (versions(1)[1], 5)] {
        let mut controller = steady(algorithm);
        let longer = |round: u64| Acknowledgement {
            round_trip: Some(Span::from_us(1_500)),
            in_flight: 12,
            ..acked(2_000 * round, 10, 100, false)
        };
        let mut reduced_at = None;
        for round in 40..7_000 {
            controller.on_ack(&longer(round));
            if controller.window() <= 4 {
                reduced_at = Some(round * 2_000 / 1_000_000);
                break;
            }
        }
        assert_eq!(reduced_at, Some(after_s), "{algorithm:?}");
        // 200 ms later the window is back.
        let end = after_s * 500 + 200;
        (after_s * 500 + 40..end).for_each(|round| {
            controller.on_ack(&Acknowledgement { in_flight: 4, ..longer(round) });
        });
        assert!(controller.window() > 10, "{algorithm:?}: {}", controller.window());
    }
}

#[test]
fn timeout_leaves_one_segment_until_the_next_ack() {
    for algorithm in versions(1) {
        let mut controller = steady(algorithm);
        let window = controller.window();
        controller.on_lost(&lost(80_100, 12, true));
        assert_eq!(controller.window(), 1, "{algorithm:?}");
        for round in 41..50 {
            controller.on_ack(&acked(2_000 * round, 4, 100, false));
        }
        assert!(controller.window() >= window.min(8), "{algorithm:?}: {}", controller.window());
    }
}

/// The same seed gives the same controller; seeds differ in when they probe.
#[test]
fn seed_determines_the_probes() {
    for version in 0..2 {
        let paces = |seed: u64| -> Vec<u64> {
            let mut controller = steady(versions(seed)[version]);
            let pace = |round: u64| {
                controller.on_ack(&full(round));
                (mbps(&*controller) * 10.0) as u64
            };
            (40..3_000).map(pace).collect()
        };
        let all: Vec<_> = (0..8).map(paces).collect();
        assert_eq!(all[3], paces(3));
        assert!(all.iter().any(|other| *other != all[0]), "version {version}");
    }
}

/// More than 2 % lost while probing bounds the amount in flight; less does not.
#[test]
fn losses_of_a_probe_bound_the_amount_in_flight() {
    let since = |lost: u32| SinceSent { delivered: 100, lost, in_flight: 100 };
    let window_after = |share: u32| {
        let mut controller = create(versions(1)[1]);
        let mut most = 0;
        for round in 1..20_000 {
            let now = 2_000 * round;
            let acked = acked(now, 10, 1_000, false);
            controller.on_sent(&crate::Transmission {
                now: at(now - 1_000),
                amount: 10,
                bytes: 10 * FRAME,
                in_flight: controller.window(),
            });
            controller.on_ack(&Acknowledgement { in_flight: 100, since_sent: since(share), ..acked });
            if share > 0 {
                let lost = lost(now, share, false);
                controller.on_lost(&crate::Loss { since_sent: since(share), in_flight: 100, ..lost });
            }
            most = if round > 10_000 { most.max(controller.window()) } else { 0 };
        }
        most
    };
    // Twice the 85 frames of the bandwidth-delay product, in the end about 100 frames.
    let (free, bound) = (window_after(0), window_after(5));
    assert!(free > 150 && bound < 130, "{free} and {bound}");
}
