//! What every discipline has in common: every frame leaves once, and flows stay in order.

use std::collections::BTreeMap;

use proptest::prelude::*;
use trunkline_endpoint::{Destination, Ecn, LossCause, MediumOutput, Port};
use trunkline_models::media::queue::{
    CoDelOptions, DisciplineOptions, DrrOptions, DualPi2Options, FqCoDelOptions, LinkChange, Opportunities,
    PieOptions, QueueOptions, RateSteps, RedOptions, TokenRate, TraceOptions,
};
use trunkline_models::media::{LineOptions, Link};
use trunkline_units::{Instant, Rate, Seed, Span, Stream};

use super::super::common::{self, Testbed, draw_bound, load, run};

fn draw_discipline(stream: &mut Stream) -> DisciplineOptions {
    let ecn = stream.chance(0.5);
    let ce_threshold = ecn.then(|| Span::from_us(300));
    let codel = CoDelOptions { target: Span::from_us(100), interval: Span::from_ms(1), ecn, ce_threshold };
    match stream.below(9) {
        0 => DisciplineOptions::DropTail,
        1 => DisciplineOptions::Red(RedOptions { weight: 0.2, min: 1, max: 4, ecn, ..RedOptions::default() }),
        2 => DisciplineOptions::CoDel(codel),
        3 => DisciplineOptions::FqCoDel(FqCoDelOptions { codel, flows: 3, quantum: 300 }),
        4 => DisciplineOptions::Pie(PieOptions {
            target: Span::from_us(100),
            update: Span::from_us(100),
            alpha: 1000.0,
            beta: 10_000.0,
            burst: Span::from_ms(1),
            ecn,
            ..PieOptions::default()
        }),
        5 => DisciplineOptions::DualPi2(DualPi2Options {
            target: Span::from_us(100),
            update: Span::from_us(100),
            alpha: 100.0,
            beta: 1000.0,
            ..DualPi2Options::default()
        }),
        6 => DisciplineOptions::Priority,
        7 => DisciplineOptions::Drr(DrrOptions { quantum: 100, weights: Vec::new() }),
        _ => DisciplineOptions::Drr(DrrOptions { quantum: 500, weights: vec![(46, 3), (0, 1)] }),
    }
}

/// Draws changes of rate, delay and state; the link is up at the end.
fn draw_changes(stream: &mut Stream) -> Vec<LinkChange> {
    let mut changes: Vec<LinkChange> = (0..stream.below(8))
        .map(|_| LinkChange {
            at: Instant::from_ns(stream.below(200_000_000)),
            rate: stream.chance(0.5).then(|| Rate::from_bps(1_000_000 + stream.below(50_000_000))),
            delay: stream.chance(0.5).then(|| Span::from_us(stream.below(5_000))),
            is_up: stream.chance(0.5).then(|| stream.chance(0.5)),
            ..LinkChange::default()
        })
        .collect();
    changes.sort_by_key(|change| change.at);
    let at = Instant::from_ns(200_000_000);
    changes.push(LinkChange { at, is_up: Some(true), ..LinkChange::default() });
    changes
}

fn draw_trace(stream: &mut Stream) -> TraceOptions {
    let mut at = 0;
    let mut times = || {
        let mut time = || {
            at += stream.below(4);
            Span::from_ms(at)
        };
        let mut times: Vec<Span> = (0..20).map(|_| time()).collect();
        times.push(Span::from_ms(at + 1));
        times
    };
    let times = times();
    if stream.chance(0.5) {
        return TraceOptions::Opportunities(Opportunities::new(times).expect("times in order"));
    }
    let mut steps: Vec<(Span, Rate)> = times
        .into_iter()
        .map(|at| (at, Rate::from_bps(stream.below(2) * stream.below(30_000_000))))
        .collect();
    steps.dedup_by_key(|(at, _)| *at);
    if let Some((_, last)) = steps.last_mut() {
        *last = Rate::from_bps(5_000_000);
    }
    TraceOptions::Rate(RateSteps::new(steps).expect("times in order"))
}

fn draw_queue(stream: &mut Stream, seed: Seed) -> QueueOptions {
    let token_rate = |stream: &mut Stream| TokenRate {
        rate: Rate::from_bps(2_000_000 + stream.below(10_000_000)),
        burst: 1500 + stream.below(10_000),
    };
    QueueOptions {
        discipline: draw_discipline(stream),
        shaper: stream.chance(0.3).then(|| token_rate(stream)),
        policer: stream.chance(0.3).then(|| token_rate(stream)),
        trace: stream.chance(0.3).then(|| draw_trace(stream)),
        changes: if stream.chance(0.5) { draw_changes(stream) } else { Vec::new() },
        stream: seed.stream("queue"),
    }
}

proptest! {
    #[test]
    fn every_frame_leaves_once_and_flows_stay_in_order(seed in any::<u64>()) {
        let seed = Seed(seed);
        let mut draw = seed.stream("scene");
        let options = [0, 1].map(|_| LineOptions {
            bound: draw_bound(&mut draw),
            queue: Some(Box::new(draw_queue(&mut draw, seed))),
            ..LineOptions::default()
        });
        let disciplines = [0, 1].map(|at: usize| options[at].queue.as_ref().unwrap().discipline.clone());
        let mut load = load(&mut draw, 400, 2, Span::from_us(400), |_| Destination::All);
        for (_, _, packet) in &mut load {
            // A flow has one code point and one kind of transport.
            packet.flow = draw.below(5);
            packet.dscp = [0, 46, 10, 1, 63][packet.flow as usize];
            packet.ecn = [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce, Ecn::Ect1][packet.flow as usize];
        }
        let link = || Link::new(options.clone(), [seed.stream("a"), seed.stream("b")]);
        let testbed = common::run_twice(seed, link, &load);
        let outcomes = common::outcomes(&testbed.outputs);
        let mut queue_drops = [0, 0];
        for (_, from, packet) in &load {
            let outcome = outcomes.get(&packet.id).cloned().unwrap_or_default();
            prop_assert_eq!(outcome.lost.len() + outcome.received.len(), 1, "{:?}", packet);
            prop_assert!(outcome.received.iter().all(|to| to != from));
            for (port, cause) in &outcome.lost {
                prop_assert!(matches!(cause, LossCause::QueueFull | LossCause::EarlyDrop | LossCause::Policed));
                queue_drops[usize::from(*port)] += 1;
            }
        }
        let mut last: BTreeMap<(u16, u64), u32> = BTreeMap::new();
        for (_, output) in &testbed.outputs {
            let MediumOutput::Transmit { port, frame } = output else { continue };
            let id = last.entry((port.0, frame.flow)).or_default();
            prop_assert!(*id <= frame.id, "{:?}: a frame overtook one of its flow", disciplines);
            *id = frame.id;
        }
        for port in 0..2 {
            let (counters, at) = (testbed.counters(port), usize::from(port));
            let queue = testbed.medium.queue_counters(Port(port)).unwrap();
            prop_assert_eq!(counters.queue_drops, queue_drops[at], "{:?}", disciplines);
            prop_assert_eq!(queue.dropped_full + queue.dropped_early + queue.policed, queue_drops[at]);
            prop_assert_eq!(queue.sojourn_ns.len(), counters.frames);
            let sent = load.iter().filter(|(_, from, _)| *from == port).count() as u64;
            prop_assert_eq!(counters.frames + counters.queue_drops, sent);
        }
    }
}

#[test]
fn without_room_every_discipline_drops_what_arrives() {
    for seed in 0..200 {
        let mut draw = Seed(seed).stream("scene");
        let options = LineOptions {
            bound: trunkline_endpoint::Bound::frames(0),
            queue: Some(Box::new(draw_queue(&mut draw, Seed(seed)))),
            ..LineOptions::default()
        };
        let load = load(&mut draw, 50, 2, Span::from_us(400), |_| Destination::All);
        let testbed = run(Testbed::new(super::link(options)), &load);
        assert_eq!(testbed.counters(0).queue_drops + testbed.counters(1).queue_drops, 50, "seed {seed}");
    }
}
