use super::*;
use crate::congestion::line::{FRAME, Flow, Line, Run};
use trunkline_units::Seed;

const MOST: u32 = 1 << 20;

fn alone(line: &Line, seconds: f64) -> Run {
    line.run(seconds, vec![Flow::new(Box::new(Paced::new(MOST, 3)))])
}

/// The part of what the line's own loss leaves of its rate.
fn of_what_is_left(line: &Line, fill: f64) -> f64 {
    fill / (1.0 - line.loss)
}

#[test]
fn a_line_that_holds_nothing_is_filled_and_its_queue_is_not() {
    for loss in [0.0, 0.01, 0.05, 0.2] {
        let line = Line { rate: 121_800_000, delay_us: 25, queue: 150_000, loss, ..Line::default() };
        let run = alone(&line, 3.0);
        let fill = of_what_is_left(&line, run.fill());
        assert!(fill > 0.995, "{fill} at {loss}");
        assert_eq!(run.overflow(), 0.0, "at {loss}");
        assert!(run.mean_queue < 0.15 * 150_000.0, "{} bytes wait at {loss}", run.mean_queue);
    }
}

#[test]
fn a_receiver_that_stalls_leaves_no_gap() {
    for (burst, loss) in [(0, 0.0), (30_000, 0.0), (30_000, 0.05)] {
        let stalls_us = (50_000, 3_000);
        let (rate, queue) = (121_800_000, 150_000);
        let line = Line { rate, delay_us: 25, queue, burst, loss, stalls_us, ..Line::default() };
        let run = alone(&line, 5.0);
        let fill = of_what_is_left(&line, run.fill());
        assert!(fill > 0.995, "{fill} with a burst of {burst} at {loss}");
        assert_eq!(run.overflow(), 0.0, "with a burst of {burst} at {loss}");
    }
}

#[test]
fn random_loss_costs_what_it_loses() {
    for (loss, least) in [(0.0, 0.999), (0.01, 0.995), (0.05, 0.995), (0.1, 0.99), (0.2, 0.98)] {
        let line = Line { delay_us: 40_000, queue: 500_000, loss, ..Line::default() };
        let run = alone(&line, 10.0);
        let (whole, late) = (of_what_is_left(&line, run.fill()), of_what_is_left(&line, run.fill_late()));
        assert!(whole > 0.95, "{whole} at {loss}");
        assert!(late > least, "{late} at {loss}");
        assert!(run.overflow() < 0.003, "{} at {loss}", run.overflow());
    }
}

#[test]
fn short_queues_are_not_kept_full() {
    for (queue, loss) in [(10_000, 0.0), (50_000, 0.01), (200_000, 0.05)] {
        let line = Line { delay_us: 40_000, queue, loss, ..Line::default() };
        let run = alone(&line, 20.0);
        let fill = of_what_is_left(&line, run.fill_late());
        assert!(fill > 0.995, "{fill} with {queue} bytes at {loss}");
        assert!(run.overflow_late() < 0.003, "{} with {queue} bytes at {loss}", run.overflow_late());
    }
}

#[test]
fn lumps_of_acknowledgements_do_not_bind() {
    let batches = Line { rate: 10_000_000_000, delay_us: 25, batch: 44, ack_every: 44, ..Line::default() };
    let faster = Line { rate: 30_000_000_000, ..batches.clone() };
    let held_back = Line { delay_us: 50, ack_every: 1000, ack_delay_us: 200, ..batches.clone() };
    let lossy = Line { loss: 0.1, ack_every: 1, delay_us: 50, ..batches.clone() };
    let few = Line { ack_loss: 0.3, ack_every: 16, ..batches.clone() };
    for line in [batches, faster, held_back, lossy, few] {
        let run = alone(&line, 0.1);
        let fill = of_what_is_left(&line, run.fill_late());
        assert!(fill > 0.99, "{fill} of {line:?}");
        assert_eq!(run.overflow(), 0.0, "{line:?}");
    }
}

#[test]
fn any_line_is_filled() {
    for seed in 0..if cfg!(feature = "soak") { 400 } else { 16 } {
        let mut random = Seed(seed).stream("lines");
        let mut one_of = |choices: &[u64]| choices[random.below(choices.len() as u64) as usize];
        let rate = one_of(&[1, 3, 10, 100, 1_000, 10_000]) * 1_000_000;
        let delay_us = one_of(&[50, 200, 1_000, 5_000, 20_000, 100_000]);
        let loss = one_of(&[0, 1, 5, 20, 50, 100]) as f64 / 1000.0;
        let held = rate / 8 * delay_us / 1_000_000;
        let batch = if rate >= 1_000_000_000 { 44 } else { 1 };
        let ack_every = one_of(&[1, 3, 16]) as usize;
        let queue = held.max(40 * FRAME * u64::from(batch));
        let line = Line { rate, delay_us, queue, loss, batch, ack_every, seed, ..Line::default() };
        // Startup takes rounds; what the line carries in them bounds how many there can be.
        let frame_us = FRAME as f64 * 8e6 / rate as f64;
        let seconds = (300.0 * (delay_us as f64 + 16.0 * frame_us) / 1e6).min(1e5 * frame_us / 1e6);
        if seconds < 60.0 * delay_us as f64 / 1e6 {
            continue;
        }
        let run = alone(&line, seconds);
        let fill = of_what_is_left(&line, run.fill_late());
        assert!(fill > 0.97, "{fill} of {line:?}");
        assert!(run.overflow_late() < 0.003, "{} of {line:?}", run.overflow_late());
    }
}

#[test]
fn flows_share_a_line() {
    for (delay_us, queue) in [(25, 150_000), (10_000, 200_000), (40_000, 500_000), (40_000, 100_000)] {
        let line = Line { delay_us, queue, ..Line::default() };
        let second = Instant::ZERO + Span::from_s(2);
        let flows = [Instant::ZERO, second].map(|at| Flow::starting(Box::new(Paced::new(MOST, 3)), at));
        let run = line.run(20.0, flows.into());
        let all: u64 = run.flows.iter().map(|flow| flow.delivered_late).sum();
        for flow in &run.flows {
            let share = flow.delivered_late as f64 / all as f64;
            assert!(share > 0.25, "{share} at {delay_us} us with {queue} bytes");
        }
        assert!(run.fill_late() > 0.995, "{}", run.fill_late());
        // A fifth of what the path holds is too short a queue for two.
        let most = if queue == 100_000 { 0.05 } else { 0.005 };
        let overflow = run.overflow_late();
        assert!(overflow < most, "{overflow} at {delay_us} us with {queue} bytes");
    }
}

#[test]
fn a_line_that_changes_is_followed() {
    for loss in [0.0, 0.05] {
        // The second half has another rate; the fill is told of the first.
        let line = |rate, after| {
            let step = (10.0, after);
            Line { rate, step, delay_us: 10_000, queue: 200_000, loss, ..Line::default() }
        };
        let up = line(10_000_000, 100_000_000);
        let fill = of_what_is_left(&up, alone(&up, 20.0).fill_late());
        assert!(fill > 8.0, "tenfold rate, {fill} of it found at {loss}");
        let down = line(100_000_000, 10_000_000);
        let run = alone(&down, 20.0);
        let fill = of_what_is_left(&down, run.fill_late());
        assert!(fill > 0.095, "a tenth, {fill} of it kept at {loss}");
        assert!(run.overflow_late() < 0.1, "{} at {loss}", run.overflow_late());
    }
}

#[test]
fn a_path_that_dies_is_asked_little_and_comes_back() {
    let line = Line { delay_us: 20_000, dead: (2.0, 3.0), ..Line::default() };
    let run = alone(&line, 10.0);
    assert!(run.flows[0].timeouts > 2, "{}", run.flows[0].timeouts);
    assert_eq!(run.flows[0].windows.0, LEAST as u32);
    assert!(run.fill_late() > 0.995, "{}", run.fill_late());
}

fn at(us: u64) -> Instant {
    Instant::ZERO + Span::from_us(us)
}

/// An acknowledgement of frames sent a millisecond before.
fn acked(us: u64, frames: u32, mbps: u64, idle: bool) -> Acked {
    Acked {
        now: at(us),
        frames,
        bytes: u64::from(frames) * FRAME,
        in_flight: frames,
        round_trip: Some(Span::from_ms(1)),
        rate: Some(Rate::from_bps(mbps * 1_000_000)),
        idle,
        came: 0,
        sent_at: at(us - 1_000),
    }
}

fn lost(us: u64, frames: u32, timeout: bool) -> Lost {
    let bytes = u64::from(frames) * FRAME;
    Lost { now: at(us), frames, bytes, sent_at: at(us - 1_000), in_flight: frames, timeout }
}

#[test]
fn nothing_is_paced_before_anything_is_known() {
    let paced = Paced::new(MOST, 3);
    assert_eq!((paced.pace(), paced.window()), (None, 10));
}

#[test]
fn startup_ends_when_the_rate_stops_growing() {
    let mut paced = Paced::new(MOST, 3);
    for (round, mbps) in [10, 20, 40, 50, 50, 51].into_iter().enumerate() {
        paced.acknowledged(&acked(2_000 + 2_000 * round as u64, 40, mbps, false));
        assert!(matches!(paced.mode, Mode::Startup { .. }), "round {round}");
    }
    paced.acknowledged(&acked(20_000, 40, 51, false));
    assert!(!matches!(paced.mode, Mode::Startup { .. }));
    assert_eq!(paced.rate(), 51e6);
}

#[test]
fn a_round_that_lost_a_fifth_ends_startup_if_the_rate_did_not_grow() {
    for (frames, ends) in [(10, false), (20, true)] {
        let mut paced = Paced::new(MOST, 3);
        paced.acknowledged(&acked(2_000, 40, 50, false));
        paced.lost(&lost(3_000, frames, false));
        paced.acknowledged(&acked(4_000, 40, 60, false));
        assert_eq!(!matches!(paced.mode, Mode::Startup { .. }), ends, "{frames} of {} lost", frames + 40);
    }
}

#[test]
fn an_idle_sender_learns_nothing_bad() {
    let mut paced = Paced::new(MOST, 3);
    for round in 1..200 {
        paced.acknowledged(&acked(2_000 * round, 1, 1, true));
    }
    assert!(matches!(paced.mode, Mode::Startup { .. }), "startup waits for something to send");
    for round in 200..210 {
        paced.acknowledged(&acked(2_000 * round, 40, 100, false));
    }
    assert!(matches!(paced.mode, Mode::Cycle { .. }), "{:?}", paced.mode);
    for round in 210..2_000 {
        paced.acknowledged(&acked(2_000 * round, 1, 1, true));
    }
    assert_eq!(paced.rate(), 100e6);
    // Twice the 8.5 frames that the path holds, and 3 whose acknowledgement may be late.
    assert_eq!(paced.window(), 20);
}

#[test]
fn what_changes_nothing_is_known_without_being_looked_through() {
    let mut stayed = 0;
    for seed in 0..10 {
        let mut random = Seed(seed).stream("question and answer");
        let [mut brief, mut whole] = [(); 2].map(|()| Paced::new(MOST, 3));
        // Half of them leave startup sometime.
        let always_idle = seed.is_multiple_of(2);
        let mut us = 2_000;
        for _ in 0..3_000 {
            us += if random.chance(0.001) { 3_000_000 } else { 20 + random.below(400) };
            let frames = if random.chance(0.005) { 1 + random.below(40) as u32 } else { 1 };
            let idle = always_idle || !random.chance(0.01);
            let round_trip = random.chance(0.99).then_some(Span::from_us(15 + random.below(10)));
            let plain = acked(us, frames, FRAME * 8 / (15 + random.below(10)), idle);
            let came = random.below(2) as u32;
            let acked = Acked { round_trip, came, sent_at: at(us - 15), ..plain };
            let lost = random.chance(0.001).then(|| lost(us, 1, random.chance(0.5)));
            stayed += u32::from(brief.clone().stays(&acked));
            // This one looks through all of them.
            whole.usual.until = Instant::ZERO;
            for paced in [&mut brief, &mut whole] {
                paced.sent(&Sent { now: at(us - 15), frames, bytes: FRAME, in_flight: frames });
                lost.iter().for_each(|lost| paced.lost(lost));
                paced.acknowledged(&acked);
            }
            // In startup nobody asks whether the peer sends.
            (whole.usual, whole.basis.peer_sends) = (brief.usual, brief.basis.peer_sends);
            assert_eq!(format!("{brief:?}"), format!("{whole:?}"), "seed {seed}");
        }
    }
    assert!(stayed > 1000, "{stayed}");
}

#[test]
fn a_peer_that_sends_too_may_hold_acknowledgements_up() {
    let mut paced = Paced::new(MOST, 3);
    let mut windows = Vec::new();
    // The peer begins after a while, and ends: some hundred frames tell.
    for (rounds, came) in [(1..1_000, 0), (1_000..2_000, 1), (2_000..3_000, 0)] {
        for round in rounds {
            paced.acknowledged(&Acked { came, ..acked(2_000 * round, 1, 100, false) });
        }
        windows.push(paced.window());
    }
    assert_eq!(windows, [20, 112, 20]);
}

#[test]
fn a_timeout_means_four_frames_until_something_is_acknowledged() {
    let mut paced = Paced::new(MOST, 3);
    (1..20).for_each(|round| paced.acknowledged(&acked(2_000 * round, 40, 100, false)));
    let window = paced.window();
    assert!(window > 16, "{window}");
    paced.lost(&lost(50_000, 5, false));
    assert!(paced.window() >= window, "single losses do not slow it down");
    paced.lost(&lost(60_000, 5, true));
    assert_eq!(paced.window(), 4);
    paced.acknowledged(&acked(70_000, 1, 100, true));
    assert!(paced.window() > 16);
}

#[test]
fn the_least_round_trip_is_looked_for_when_it_has_not_been_seen() {
    let mut paced = Paced::new(MOST, 3);
    let mut halved = Vec::new();
    for round in 1..15_000 {
        // Others keep the queue filled from 1 s on, except while this sender looks.
        let us = 2_000 * round;
        let looks = matches!(paced.mode, Mode::Empty { .. });
        let waits = us > 1_000_000 && !looks;
        let round_trip = Some(Span::from_us(if waits { 1_500 } else { 1_000 }));
        paced.acknowledged(&Acked { round_trip, ..acked(us, 40, 100, false) });
        if looks {
            halved.push(us);
        }
    }
    assert!(halved.len() >= 2, "{halved:?}");
    assert!(halved.len() < 12, "it costs next to nothing: {halved:?}");
    assert_eq!(paced.least.get(), Some(Span::from_ms(1)), "so what others queue is not taken for the path");
}
