//! Links that change and links from traces.

use proptest::prelude::*;
use trunkline_endpoint::{Bound, Port};
use trunkline_models::media::LineOptions;
use trunkline_models::media::queue::{
    DisciplineOptions, LinkChange, Opportunities, QueueOptions, RateSteps, TraceOptions,
};
use trunkline_units::{Instant, Rate, Seed, Span};

use super::super::common::Testbed;
use super::{arrivals, line, link, packet, queue_of};

fn at_ms(ms: u64) -> Instant {
    Instant::ZERO + Span::from_ms(ms)
}

/// Sends frames of 1,000 bytes at these times in milliseconds at 8 Mb/s, 1 ms each; returns when they arrive.
fn arrival_times_ms(changes: Vec<LinkChange>, sent_ms: &[u64]) -> Vec<f64> {
    let queue = QueueOptions { changes, ..queue_of(DisciplineOptions::DropTail) };
    let mut testbed = Testbed::with_early_wakes(link(line(8_000_000, Bound::NONE, queue)), Seed(1));
    for (id, at) in (0..).zip(sent_ms) {
        testbed.send(at_ms(*at), 0, packet(id, 1000, 0));
    }
    testbed.finish();
    let times: Vec<(u32, f64)> =
        arrivals(&testbed.outputs).map(|(at, packet)| (packet.id, at.as_s() * 1e3)).collect();
    assert!(times.iter().map(|(id, _)| *id).eq(0..sent_ms.len() as u32), "every frame, in order: {times:?}");
    times.into_iter().map(|(_, at)| at).collect()
}

#[test]
fn a_change_applies_to_transmissions_that_begin_later() {
    let change = |ms| LinkChange { at: at_ms(ms), ..LinkChange::default() };
    let (down, up) = (
        |ms| LinkChange { is_up: Some(false), ..change(ms) },
        |ms| LinkChange { is_up: Some(true), ..change(ms) },
    );
    let rate = |ms, bps| LinkChange { rate: Some(Rate::from_bps(bps)), ..change(ms) };
    let delay = |ms, of| LinkChange { delay: Some(Span::from_ms(of)), ..change(ms) };
    for (changes, sent, arrive) in [
        // The frame in transmission is completed, the next waits.
        (vec![down(1), up(10)], vec![0, 0, 0], vec![1.0, 11.0, 12.0]),
        (vec![down(0), down(3), up(5), up(6), down(7), up(9)], vec![0, 0, 0], vec![6.0, 7.0, 10.0]),
        // A change while the link is idle.
        (vec![down(2), up(4)], vec![0, 3, 20], vec![1.0, 5.0, 21.0]),
        (vec![rate(1, 4_000_000), rate(6, 16_000_000)], vec![0; 5], vec![1.0, 3.0, 5.0, 7.0, 7.5]),
        // A shorter delay overtakes nothing; a longer one begins with the next frame.
        (vec![delay(0, 10), delay(1, 2), delay(3, 5)], vec![0; 4], vec![11.0, 11.0, 11.0, 11.0]),
        (vec![delay(1, 2)], vec![0, 0], vec![1.0, 4.0]),
    ] {
        assert_eq!(arrival_times_ms(changes.clone(), &sent), arrive, "{changes:?}");
    }
}

#[test]
fn impairments_change_too() {
    let loss = |ms, of| LinkChange { at: at_ms(ms), loss: Some(of), ..LinkChange::default() };
    let queue = QueueOptions {
        changes: vec![loss(100, 1.0), loss(200, 0.0)],
        ..queue_of(DisciplineOptions::DropTail)
    };
    let mut testbed = Testbed::new(link(line(8_000_000, Bound::NONE, queue)));
    (0..300).for_each(|id| testbed.send(at_ms(u64::from(id)), 0, packet(id, 1000, 0)));
    testbed.finish();
    let arrived: Vec<u32> = arrivals(&testbed.outputs).map(|(_, packet)| packet.id).collect();
    assert!(arrived.iter().copied().eq((0..100).chain(200..300)), "{arrived:?}");
    assert_eq!(testbed.counters(0).other_losses, 100);
}

#[test]
fn a_delay_can_be_added() {
    let mut link = link(line(8_000_000, Bound::NONE, queue_of(DisciplineOptions::DropTail)));
    link.add_delay(Port(0), Span::from_ms(5));
    let mut testbed = Testbed::with_early_wakes(link, Seed(1));
    (0..3).for_each(|id| testbed.send(at_ms(0), 0, packet(id, 1000, 0)));
    testbed.finish();
    let times: Vec<Instant> = arrivals(&testbed.outputs).map(|(at, _)| at).collect();
    assert_eq!(times, [6, 7, 8].map(at_ms));
}

/// A link that replays a trace, and a queue that never runs empty.
fn saturated(
    trace: TraceOptions,
    lengths: impl Fn(u32) -> u32,
    until: Span,
) -> Testbed<super::Link<super::Packet>> {
    let queue = QueueOptions { trace: Some(trace), ..queue_of(DisciplineOptions::DropTail) };
    let mut testbed = Testbed::new(link(LineOptions { ..line(1_000_000, Bound::NONE, queue) }));
    (0..2_000).for_each(|id| testbed.send(Instant::ZERO, 0, packet(id, lengths(id), 0)));
    testbed.until(Instant::ZERO + until);
    testbed
}

proptest! {
    #[test]
    fn a_trace_of_opportunities_delivers_exactly_its_bytes(seed in any::<u64>()) {
        let mut draw = Seed(seed).stream("trace");
        let mut at = 0;
        let mut times: Vec<u64> = (0..1 + draw.below(30)).map(|_| { at += draw.below(5); at }).collect();
        times.push(at + 1 + draw.below(5));
        let period = times[times.len() - 1];
        let trace = || {
            let times: Vec<Span> = times.iter().map(|ms| Span::from_ms(*ms)).collect();
            TraceOptions::Opportunities(Opportunities::new(times).unwrap())
        };
        // Over two periods and a half, opportunities repeat.
        let until = Span::from_ms(period * 5 / 2);
        let within = |cycle: u64| times.iter().map(move |ms| ms + cycle * period);
        let due: Vec<u64> = (0..3).flat_map(within).filter(|ms| Span::from_ms(*ms) <= until).collect();
        // Packets of 1,500 bytes take one opportunity each.
        let testbed = saturated(trace(), |_| 1500, until);
        let arrived: Vec<u64> = arrivals(&testbed.outputs).map(|(at, _)| at.as_ns() / 1_000_000).collect();
        prop_assert_eq!(arrived, due.clone());
        // Others share opportunities and span them; each has 4 bytes of the TUN device.
        let lengths: Vec<u32> = (0..2_000).map(|_| 40 + draw.below(1461) as u32).collect();
        let testbed = saturated(trace(), |id| lengths[id as usize], until);
        let (mut bytes, mut arrived) = (0, arrivals(&testbed.outputs).peekable());
        for (n, ms) in (1..).zip(&due) {
            while let Some((_, packet)) = arrived.next_if(|(at, _)| at.as_ns() / 1_000_000 <= *ms) {
                bytes += u64::from(packet.length) + 4;
            }
            if due.get(n as usize) == Some(ms) {
                continue;
            }
            // Less than the packet whose rest waits is missing.
            prop_assert!(bytes <= n * 1504 && n * 1504 - bytes < 1504, "{} of {} bytes at {} ms", bytes, n * 1504, ms);
        }
    }

    #[test]
    fn a_trace_of_rates_delivers_its_integral(seed in any::<u64>()) {
        let mut draw = Seed(seed).stream("trace");
        let mut at = 0;
        let mut steps = Vec::new();
        for _ in 0..8 {
            steps.push((Span::from_ms(at), Rate::from_bps(draw.below(3) * draw.below(4_000_000))));
            at += 1 + draw.below(400);
        }
        steps.push((Span::from_ms(at), Rate::from_bps(2_000_000)));
        let trace = TraceOptions::Rate(RateSteps::new(steps.clone()).unwrap());
        let testbed = saturated(trace, |_| 1000, Span::from_ms(at));
        let bits: f64 = steps.windows(2).map(|p| p[0].1.as_bps() as f64 * (p[1].0 - p[0].0).as_s()).sum();
        let arrived = arrivals(&testbed.outputs).count() as f64 * 8_000.0;
        prop_assert!(arrived <= bits + 1e-3 && bits - arrived < 8_000.001, "{} of {} bits", arrived, bits);
    }
}
