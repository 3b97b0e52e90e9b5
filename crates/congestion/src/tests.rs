use super::*;
use trunkline_units::{Seed, Stream};

/// Draws any value, usually small.
fn any(random: &mut Stream) -> u64 {
    random.bits() >> random.below(64)
}

fn any_instant(random: &mut Stream) -> Instant {
    Instant::from_ps(any(random))
}

/// Algorithms whose windows follow losses and marks.
const LOSS_BASED: [Algorithm; 6] = [
    Algorithm::Reno,
    Algorithm::CUBIC,
    Algorithm::Cubic { hystart: true, reno_friendly: true },
    Algorithm::LinuxCubic,
    Algorithm::Dctcp,
    Algorithm::Prague,
];

fn all(bounds: Bounds, ack_every: u32) -> Vec<(Box<dyn Controller>, u32)> {
    let mut all: Vec<(Box<dyn Controller>, u32)> =
        Algorithm::ALL.into_iter().map(|algorithm| (algorithm.controller(bounds), bounds.segment)).collect();
    for arithmetic in [Arithmetic::Net2, Arithmetic::Rfc2581] {
        all.push((Box::new(Net2::new(bounds, None, arithmetic)), bounds.segment.min(0xffff)));
    }
    all.push((Box::new(Fixed::new(bounds.max)), 1));
    all.push((Box::new(Paced::new(bounds.max, ack_every)), 1));
    all.push((Box::new(TcpFriendly::new(bounds.max, ack_every)), 1));
    all
}

fn any_since_sent(random: &mut Stream) -> SinceSent {
    let mut any = || any(random) as u32;
    SinceSent { delivered: any(), lost: any(), in_flight: any() }
}

fn any_ack(random: &mut Stream) -> Acknowledgement {
    let amount = any(random) as u32;
    Acknowledgement {
        now: any_instant(random),
        amount,
        bytes: any(random),
        marked: if random.chance(0.1) { any(random) as u32 } else { 0 },
        in_flight: any(random) as u32,
        round_trip: random.chance(0.9).then(|| Span::from_ps(any(random))),
        rate: random.chance(0.9).then(|| Rate::from_bps(any(random))),
        app_limited: random.chance(0.1),
        since_sent: any_since_sent(random),
        in_recovery: random.chance(0.1),
        peer_amount: any(random) as u32,
        sent_at: any_instant(random),
    }
}

#[test]
fn window_and_pace_are_within_their_bounds() {
    for seed in 0..300 {
        let mut random = Seed(seed).stream("anything");
        let max = (any(&mut random) as u32).max(1);
        let segment = (any(&mut random) as u32 % 70_000).clamp(1, max);
        let bounds = Bounds { segment, initial: any(&mut random) as u32, max };
        let ack_every = any(&mut random) as u32;
        for (mut controller, segment) in all(bounds, ack_every) {
            for _ in 0..200 {
                let now = any_instant(&mut random);
                let (amount, bytes) = (any(&mut random) as u32, any(&mut random));
                let (in_flight, sent_at) = (any(&mut random) as u32, any_instant(&mut random));
                let limits = (controller.window(), controller.pace());
                match random.below(12) {
                    0..=2 => {
                        controller.on_sent(&Transmission { now, amount, bytes, in_flight });
                        assert_eq!(limits, (controller.window(), controller.pace()), "{controller:?}");
                    }
                    3..=5 => {
                        let timeout = random.chance(0.1);
                        let since_sent = any_since_sent(&mut random);
                        controller.on_lost(&Loss {
                            now,
                            amount,
                            bytes,
                            sent_at,
                            in_flight,
                            timeout,
                            since_sent,
                        });
                    }
                    6 => controller.on_idle(now),
                    7 => controller.on_spurious(now),
                    _ => {
                        let may_change = controller.on_ack(&any_ack(&mut random));
                        let now = (controller.window(), controller.pace());
                        assert!(may_change || limits == now, "{controller:?}");
                    }
                }
                // Fast recovery of 4.3BSD inflates the window by three segments beyond any bound.
                let window = controller.window();
                let is_net2 = format!("{controller:?}").starts_with("Net2");
                assert!(
                    window >= segment && (window <= max || is_net2),
                    "seed {seed}: {window} of {controller:?}"
                );
                assert_ne!(controller.pace(), Some(Rate::from_bps(0)), "seed {seed}: {controller:?}");
                assert_ne!(controller.threshold(), Some(0), "seed {seed}: {controller:?}");
            }
        }
    }
}

/// A controller with a slow start threshold lets it be set, and slow start ends there.
#[test]
fn slow_start_ends_at_the_initial_threshold() {
    let bounds = Bounds::new(1_000, 1_000_000);
    for algorithm in LOSS_BASED {
        let mut controller = algorithm.controller(bounds);
        controller.set_threshold(40_000);
        assert_eq!(controller.threshold(), Some(40_000), "{algorithm:?}");
        for ms in 0..40 {
            let now = Instant::ZERO + Span::from_ms(ms);
            controller.on_ack(&full(&*controller, now, 1_000, Span::from_ms(100)));
        }
        assert!((40_000..43_000).contains(&controller.window()), "{}: {algorithm:?}", controller.window());
    }
}

/// An acknowledgement of one segment of a full window.
pub(crate) fn full(
    controller: &dyn Controller,
    now: Instant,
    amount: u32,
    round_trip: Span,
) -> Acknowledgement {
    Acknowledgement {
        now,
        amount,
        bytes: amount.into(),
        marked: 0,
        in_flight: controller.window(),
        round_trip: Some(round_trip),
        rate: None,
        app_limited: false,
        since_sent: SinceSent::default(),
        in_recovery: false,
        peer_amount: 0,
        sent_at: now - round_trip,
    }
}

/// Counting in bytes or in frames gives the same windows: growth below a unit accumulates, nothing is lost by rounding.
#[test]
fn bytes_and_frames_grow_alike() {
    let round_trip = Span::from_ms(50);
    for algorithm in LOSS_BASED {
        let mut frames = algorithm.controller(Bounds::new(1, 100_000));
        let mut bytes = algorithm.controller(Bounds::new(1_448, 1 << 30));
        let mut now = Instant::ZERO + round_trip;
        for n in 0..60_000u64 {
            now += Span::from_us(250);
            if n % 10_000 == 4_999 {
                let loss = Loss {
                    now,
                    amount: 1,
                    bytes: 1,
                    sent_at: now,
                    in_flight: frames.window(),
                    timeout: false,
                    since_sent: SinceSent::default(),
                };
                frames.on_lost(&loss);
                bytes.on_lost(&loss);
            }
            frames.on_ack(&full(&*frames, now, 1, round_trip));
            bytes.on_ack(&full(&*bytes, now, 1_448, round_trip));
            let (few, many) = (f64::from(frames.window()), f64::from(bytes.window()) / 1_448.0);
            assert!((few - many).abs() < 1.5 + few * 0.01, "{algorithm:?}: {few} and {many} after {n}");
        }
    }
}

#[test]
fn recovery_and_unused_windows_do_not_grow() {
    for algorithm in LOSS_BASED {
        let mut controller = algorithm.controller(Bounds::new(1, 1_000));
        for n in 1..1_000u64 {
            let now = Instant::ZERO + Span::from_ms(100 + n);
            let acked = full(&*controller, now, 1, Span::from_ms(10));
            controller.on_ack(&Acknowledgement { in_recovery: true, ..acked });
            controller.on_ack(&Acknowledgement { in_flight: 4, ..acked });
            assert_eq!(controller.window(), 10, "{algorithm:?}");
        }
    }
}

#[test]
fn marks_reduce_once_per_round_trip() {
    for (algorithm, expected) in [(Algorithm::Reno, 50), (Algorithm::CUBIC, 70), (Algorithm::Dctcp, 50)] {
        let mut controller = algorithm.controller(Bounds { segment: 1, initial: 100, max: 1_000 });
        let now = Instant::ZERO + Span::from_s(1);
        let marked = Acknowledgement { marked: 1, ..full(&*controller, now, 1, Span::from_ms(10)) };
        controller.on_ack(&marked);
        controller.on_ack(&marked);
        controller.on_ack(&Acknowledgement { now: now + Span::from_ms(9), ..marked });
        assert_eq!(controller.window(), expected, "{algorithm:?}");
        controller.on_ack(&Acknowledgement { now: now + Span::from_ms(10), sent_at: now, ..marked });
        assert!(controller.window() < expected, "{algorithm:?}");
    }
}

#[test]
fn idle_sender_starts_with_the_initial_window() {
    for algorithm in LOSS_BASED {
        let mut controller = algorithm.controller(Bounds::new(1, 1_000));
        let now = Instant::ZERO + Span::from_s(1);
        for _ in 0..90 {
            controller.on_ack(&full(&*controller, now, 1, Span::from_ms(10)));
        }
        assert!(controller.window() >= 40, "{algorithm:?}");
        controller.on_idle(now + Span::from_s(9));
        assert_eq!(controller.window(), 10, "{algorithm:?}");
    }
}

/// A mark of a window whose losses turn out to be none still counts.
#[test]
fn marks_are_not_undone() {
    for algorithm in LOSS_BASED {
        let mut controller = algorithm.controller(Bounds { segment: 1, initial: 100, max: 1_000 });
        let now = Instant::ZERO + Span::from_s(1);
        let acked = full(&*controller, now, 1, Span::from_ms(10));
        controller.on_ack(&Acknowledgement { marked: 1, ..acked });
        let window = controller.window();
        assert!(window < 100, "{algorithm:?}");
        controller.on_lost(&lost_at(now, acked.sent_at, 50, false));
        controller.on_spurious(now);
        assert_eq!(controller.window(), window, "{algorithm:?}");
    }
}

/// A loss of one segment.
fn lost_at(now: Instant, sent_at: Instant, in_flight: u32, timeout: bool) -> Loss {
    Loss { now, amount: 1, bytes: 1, sent_at, in_flight, timeout, since_sent: SinceSent::default() }
}

#[test]
fn spurious_losses_are_undone() {
    for algorithm in LOSS_BASED {
        for timeout in [false, true] {
            let mut controller = algorithm.controller(Bounds { segment: 1, initial: 100, max: 1_000 });
            let now = Instant::ZERO + Span::from_s(1);
            let loss = lost_at(now, now, 100, timeout);
            controller.on_lost(&loss);
            assert!(controller.window() < 100, "{algorithm:?}");
            controller.on_spurious(now);
            assert_eq!(controller.window(), 100, "{algorithm:?}");
        }
    }
}
