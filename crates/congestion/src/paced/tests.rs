use super::*;
use crate::line::{FRAME, Flow, Line, LineResult, acked, at, lost};
use trunkline_units::Seed;

const MAX_WINDOW: u32 = 1 << 20;

fn run_single(line: &Line, seconds: f64) -> LineResult {
    line.run(seconds, vec![Flow::new(Box::new(Paced::new(MAX_WINDOW, 3)))])
}

/// Returns the utilisation relative to the rate that remains after the loss of the line.
fn relative_to_loss(line: &Line, utilization: f64) -> f64 {
    utilization / (1.0 - line.loss)
}

#[test]
fn short_line_is_filled_with_a_short_queue() {
    for loss in [0.0, 0.01, 0.05, 0.2] {
        let line = Line { rate: 121_800_000, delay_us: 25, queue: 150_000, loss, ..Line::default() };
        let run = run_single(&line, 3.0);
        let utilization = relative_to_loss(&line, run.utilization());
        assert!(utilization > 0.995, "{utilization} at {loss}");
        assert_eq!(run.overflow_share(), 0.0, "at {loss}");
        assert!(run.mean_queue < 0.15 * 150_000.0, "{} bytes wait at {loss}", run.mean_queue);
    }
}

#[test]
fn receiver_stalls_leave_no_gap() {
    for (bucket, loss) in [(0, 0.0), (30_000, 0.0), (30_000, 0.05)] {
        let stalls_us = (50_000, 3_000);
        let (rate, queue) = (121_800_000, 150_000);
        let line = Line { rate, delay_us: 25, queue, bucket, loss, stalls_us, ..Line::default() };
        let run = run_single(&line, 5.0);
        let utilization = relative_to_loss(&line, run.utilization());
        assert!(utilization > 0.995, "{utilization} with a bucket of {bucket} at {loss}");
        assert_eq!(run.overflow_share(), 0.0, "with a bucket of {bucket} at {loss}");
    }
}

#[test]
fn random_loss_costs_only_its_share() {
    for (loss, min_utilization) in [(0.0, 0.999), (0.01, 0.995), (0.05, 0.995), (0.1, 0.99), (0.2, 0.98)] {
        let line = Line { delay_us: 40_000, queue: 500_000, loss, ..Line::default() };
        let run = run_single(&line, 10.0);
        let utilization = relative_to_loss(&line, run.utilization());
        assert!(utilization > 0.95, "{utilization} at {loss}");
        let utilization = relative_to_loss(&line, run.utilization_second_half());
        assert!(utilization > min_utilization, "{utilization} in the second half at {loss}");
        assert!(run.overflow_share() < 0.003, "{} at {loss}", run.overflow_share());
    }
}

#[test]
fn short_queues_do_not_overflow() {
    for (queue, loss) in [(10_000, 0.0), (50_000, 0.01), (200_000, 0.05)] {
        let line = Line { delay_us: 40_000, queue, loss, ..Line::default() };
        let run = run_single(&line, 20.0);
        let utilization = relative_to_loss(&line, run.utilization_second_half());
        assert!(utilization > 0.995, "{utilization} with {queue} bytes at {loss}");
        assert!(
            run.overflow_share_second_half() < 0.003,
            "{} with {queue} bytes at {loss}",
            run.overflow_share_second_half()
        );
    }
}

#[test]
fn ack_aggregation_does_not_limit() {
    let batches = Line { rate: 10_000_000_000, delay_us: 25, batch: 44, ack_every: 44, ..Line::default() };
    let faster = Line { rate: 30_000_000_000, ..batches.clone() };
    let delayed_acks = Line { delay_us: 50, ack_every: 1000, ack_delay_us: 200, ..batches.clone() };
    let lossy = Line { loss: 0.1, ack_every: 1, delay_us: 50, ..batches.clone() };
    let lost_acks = Line { ack_loss: 0.3, ack_every: 16, ..batches.clone() };
    for line in [batches, faster, delayed_acks, lossy, lost_acks] {
        let run = run_single(&line, 0.1);
        let utilization = relative_to_loss(&line, run.utilization_second_half());
        assert!(utilization > 0.99, "{utilization} of {line:?}");
        assert_eq!(run.overflow_share(), 0.0, "{line:?}");
    }
}

#[test]
fn random_lines_are_filled() {
    for seed in 0..if cfg!(feature = "soak") { 400 } else { 16 } {
        let mut random = Seed(seed).stream("lines");
        let mut one_of = |choices: &[u64]| choices[random.below(choices.len() as u64) as usize];
        let rate = one_of(&[1, 3, 10, 100, 1_000, 10_000]) * 1_000_000;
        let delay_us = one_of(&[50, 200, 1_000, 5_000, 20_000, 100_000]);
        let loss = one_of(&[0, 1, 5, 20, 50, 100]) as f64 / 1000.0;
        let bdp_bytes = rate / 8 * delay_us / 1_000_000;
        let batch = if rate >= 1_000_000_000 { 44 } else { 1 };
        let ack_every = one_of(&[1, 3, 16]) as usize;
        let queue = bdp_bytes.max(40 * FRAME * u64::from(batch));
        let line = Line { rate, delay_us, queue, loss, batch, ack_every, seed, ..Line::default() };
        // Startup takes several round trips; the number of frames bounds the length of the run.
        let frame_us = FRAME as f64 * 8e6 / rate as f64;
        let seconds = (300.0 * (delay_us as f64 + 16.0 * frame_us) / 1e6).min(1e5 * frame_us / 1e6);
        if seconds < 60.0 * delay_us as f64 / 1e6 {
            continue;
        }
        let run = run_single(&line, seconds);
        let utilization = relative_to_loss(&line, run.utilization_second_half());
        assert!(utilization > 0.97, "{utilization} of {line:?}");
        assert!(run.overflow_share_second_half() < 0.003, "{} of {line:?}", run.overflow_share_second_half());
    }
}

#[test]
fn flows_share_a_line() {
    for (delay_us, queue) in [(25, 150_000), (10_000, 200_000), (40_000, 500_000), (40_000, 100_000)] {
        let line = Line { delay_us, queue, ..Line::default() };
        let later = Instant::ZERO + Span::from_s(2);
        let flows = [Instant::ZERO, later].map(|at| Flow::starting(Box::new(Paced::new(MAX_WINDOW, 3)), at));
        let run = line.run(20.0, flows.into());
        let total: u64 = run.flows.iter().map(|flow| flow.second_half.delivered).sum();
        for flow in &run.flows {
            let share = flow.second_half.delivered as f64 / total as f64;
            assert!(share > 0.25, "{share} at {delay_us} us with {queue} bytes");
        }
        assert!(run.utilization_second_half() > 0.995, "{}", run.utilization_second_half());
        // A queue of a fifth of the bandwidth-delay product is too short for two flows.
        let max_overflow = if queue == 100_000 { 0.05 } else { 0.005 };
        let overflow = run.overflow_share_second_half();
        assert!(overflow < max_overflow, "{overflow} at {delay_us} us with {queue} bytes");
    }
}

#[test]
fn rate_changes_are_followed() {
    for loss in [0.0, 0.05] {
        // The rate changes in the second half; the utilization is relative to the first rate.
        let line = |rate, new_rate| {
            let rate_change = (10.0, new_rate);
            Line { rate, rate_change, delay_us: 10_000, queue: 200_000, loss, ..Line::default() }
        };
        let up = line(10_000_000, 100_000_000);
        let utilization = relative_to_loss(&up, run_single(&up, 20.0).utilization_second_half());
        assert!(utilization > 8.0, "tenfold rate: {utilization} at {loss}");
        let down = line(100_000_000, 10_000_000);
        let run = run_single(&down, 20.0);
        let utilization = relative_to_loss(&down, run.utilization_second_half());
        assert!(utilization > 0.095, "a tenth of the rate: {utilization} at {loss}");
        assert!(run.overflow_share_second_half() < 0.1, "{} at {loss}", run.overflow_share_second_half());
    }
}

#[test]
fn outage_reduces_the_window_and_is_recovered() {
    let line = Line { delay_us: 20_000, outage: (2.0, 3.0), ..Line::default() };
    let run = run_single(&line, 10.0);
    assert!(run.flows[0].timeouts > 2, "{}", run.flows[0].timeouts);
    assert_eq!(run.flows[0].min_window, MIN_WINDOW as u32);
    assert!(run.utilization_second_half() > 0.995, "{}", run.utilization_second_half());
}

#[test]
fn no_pacing_before_the_first_sample() {
    let paced = Paced::new(MAX_WINDOW, 3);
    assert_eq!((paced.pace(), paced.window()), (None, 10));
}

#[test]
fn startup_ends_when_the_rate_stops_growing() {
    let mut paced = Paced::new(MAX_WINDOW, 3);
    for (round, mbps) in [10, 20, 40, 50, 50, 51].into_iter().enumerate() {
        paced.on_ack(&acked(2_000 + 2_000 * round as u64, 40, mbps, false));
        assert!(matches!(paced.mode, PacedMode::Startup { .. }), "round {round}");
    }
    paced.on_ack(&acked(20_000, 40, 51, false));
    assert!(!matches!(paced.mode, PacedMode::Startup { .. }));
    assert_eq!(paced.rate(), 51e6);
}

#[test]
fn high_loss_without_growth_ends_startup() {
    for (frames, has_ended) in [(10, false), (20, true)] {
        let mut paced = Paced::new(MAX_WINDOW, 3);
        paced.on_ack(&acked(2_000, 40, 50, false));
        paced.on_lost(&lost(3_000, frames, false));
        paced.on_ack(&acked(4_000, 40, 60, false));
        assert_eq!(
            !matches!(paced.mode, PacedMode::Startup { .. }),
            has_ended,
            "{frames} of {} lost",
            frames + 40
        );
    }
}

#[test]
fn application_limited_samples_do_not_reduce_the_rate() {
    let mut paced = Paced::new(MAX_WINDOW, 3);
    for round in 1..200 {
        paced.on_ack(&acked(2_000 * round, 1, 1, true));
    }
    assert!(matches!(paced.mode, PacedMode::Startup { .. }), "startup waits for something to send");
    for round in 200..210 {
        paced.on_ack(&acked(2_000 * round, 40, 100, false));
    }
    assert!(matches!(paced.mode, PacedMode::ProbeBandwidth { .. }), "{:?}", paced.mode);
    for round in 210..2_000 {
        paced.on_ack(&acked(2_000 * round, 1, 1, true));
    }
    assert_eq!(paced.rate(), 100e6);
    // Twice the 8.5 frames of the bandwidth-delay product, and 3 frames of delayed acknowledgement.
    assert_eq!(paced.window(), 20);
}

#[test]
fn common_acks_match_full_processing() {
    let mut common = 0;
    for seed in 0..10 {
        let mut random = Seed(seed).stream("question and answer");
        let [mut fast, mut full] = [(); 2].map(|()| Paced::new(MAX_WINDOW, 3));
        // Half of the runs leave startup at some time.
        let always_app_limited = seed.is_multiple_of(2);
        let mut us = 2_000;
        for _ in 0..3_000 {
            us += if random.chance(0.001) { 3_000_000 } else { 20 + random.below(400) };
            let frames = if random.chance(0.005) { 1 + random.below(40) as u32 } else { 1 };
            let app_limited = always_app_limited || !random.chance(0.01);
            let round_trip = random.chance(0.99).then_some(Span::from_us(15 + random.below(10)));
            let defaults = acked(us, frames, FRAME * 8 / (15 + random.below(10)), app_limited);
            let peer_amount = random.below(2) as u32;
            let acked = Acknowledgement { round_trip, peer_amount, sent_at: at(us - 15), ..defaults };
            let lost = random.chance(0.001).then(|| lost(us, 1, random.chance(0.5)));
            common += u32::from(fast.clone().handle_common_ack(&acked));
            // This instance processes all acknowledgements in full.
            full.common_ack.valid_until = Instant::ZERO;
            for paced in [&mut fast, &mut full] {
                paced.on_sent(&Transmission {
                    now: at(us - 15),
                    amount: frames,
                    bytes: FRAME,
                    in_flight: frames,
                });
                lost.iter().for_each(|lost| paced.on_lost(lost));
                paced.on_ack(&acked);
            }
            // Startup does not depend on whether the peer sends.
            (full.common_ack, full.inputs.peer_sends) = (fast.common_ack, fast.inputs.peer_sends);
            assert_eq!(format!("{fast:?}"), format!("{full:?}"), "seed {seed}");
        }
    }
    assert!(common > 1000, "{common}");
}

#[test]
fn window_grows_while_the_peer_sends() {
    let mut paced = Paced::new(MAX_WINDOW, 3);
    let mut windows = Vec::new();
    // The peer starts to send after a while and stops; the controller follows within some hundred frames.
    for (rounds, peer_amount) in [(1..1_000, 0), (1_000..2_000, 1), (2_000..3_000, 0)] {
        for round in rounds {
            paced.on_ack(&Acknowledgement { peer_amount, ..acked(2_000 * round, 1, 100, false) });
        }
        windows.push(paced.window());
    }
    assert_eq!(windows, [20, 112, 20]);
}

#[test]
fn timeout_reduces_the_window_until_the_next_ack() {
    let mut paced = Paced::new(MAX_WINDOW, 3);
    for round in 1..20 {
        paced.on_ack(&acked(2_000 * round, 40, 100, false));
    }
    let window = paced.window();
    assert!(window > 16, "{window}");
    paced.on_lost(&lost(50_000, 5, false));
    assert!(paced.window() >= window, "single losses do not slow it down");
    paced.on_lost(&lost(60_000, 5, true));
    assert_eq!(paced.window(), 4);
    paced.on_ack(&acked(70_000, 1, 100, true));
    assert!(paced.window() > 16);
}

#[test]
fn min_rtt_is_probed_when_not_confirmed() {
    let mut paced = Paced::new(MAX_WINDOW, 3);
    let mut probes = Vec::new();
    for round in 1..15_000 {
        // Other traffic fills the queue from 1 s on, except while this sender measures.
        let us = 2_000 * round;
        let is_probing = matches!(paced.mode, PacedMode::ProbeRtt { .. });
        let is_queue_full = us > 1_000_000 && !is_probing;
        let round_trip = Some(Span::from_us(if is_queue_full { 1_500 } else { 1_000 }));
        paced.on_ack(&Acknowledgement { round_trip, ..acked(us, 40, 100, false) });
        if is_probing {
            probes.push(us);
        }
    }
    assert!(probes.len() >= 2, "{probes:?}");
    assert!(probes.len() < 12, "probes cost next to nothing: {probes:?}");
    assert_eq!(
        paced.min_rtt.get(),
        Some(Span::from_ms(1)),
        "the queue of other traffic is not part of the path"
    );
}
