//! The explicit queue with tail drop against the line that computes departures when frames arrive.

use proptest::prelude::*;
use trunkline_endpoint::{Destination, Medium};
use trunkline_models::media::queue::DisciplineOptions;
use trunkline_models::media::{Framing, Impairments, LineOptions, Link};
use trunkline_units::{Rate, Seed, Span, Stream};

use super::super::common::{Testbed, draw_bound, load, run, send_when_room};
use super::{line, link, queue_of};

fn draw_options(stream: &mut Stream) -> LineOptions {
    let rate = [9_600, 10_000_000, 99_999_989][stream.below(3) as usize];
    let packet_time = 6_000 * 1_000_000_000_000 / rate;
    let mut share = |of: f64| if stream.chance(of) { stream.unit() / 2.0 } else { 0.0 };
    let (loss, corrupt, duplicate, reorder) = (share(0.3), share(0.3), share(0.3), share(0.3));
    let hold = Span::from_ps(stream.below(2 * packet_time));
    LineOptions {
        rate: Rate::from_bps(rate),
        framing: [Framing::ETHERNET, Framing::PPP, Framing::NONE][stream.below(3) as usize],
        delay: Span::from_ps(stream.below(3) * stream.below(3 * packet_time)),
        bound: draw_bound(stream),
        pacing: stream.chance(0.3).then(|| Rate::from_bps(rate / 3 + stream.below(rate))),
        impairments: Impairments { loss, corrupt, duplicate, reorder, hold },
        queue: None,
    }
}

proptest! {
    /// Same departures, losses and counters.
    #[test]
    fn an_explicit_queue_departs_like_the_fast_path(seed in any::<u64>()) {
        let seed = Seed(seed);
        let mut draw = seed.stream("scene");
        let options = [draw_options(&mut draw), draw_options(&mut draw)];
        let gap = Span::from_ps(6_000 * 1_000_000_000_000 / options[0].rate.as_bps() * (1 + draw.below(4)) / 4);
        let load = load(&mut draw, 300, 2, gap, |_| Destination::All);
        let streams = || [seed.stream("a"), seed.stream("b")];
        let explicit = options.clone().map(|options| LineOptions {
            queue: Some(Box::new(queue_of(DisciplineOptions::DropTail))),
            ..options
        });
        let fast = run(Testbed::new(Link::new(options, streams())), &load);
        let slow = run(Testbed::with_early_wakes(Link::new(explicit, streams()), seed), &load);
        prop_assert_eq!(slow.outputs, fast.outputs);
        for port in 0..2 {
            prop_assert_eq!(
                slow.medium.counters(trunkline_endpoint::Port(port)),
                fast.medium.counters(trunkline_endpoint::Port(port))
            );
        }
    }
}

#[test]
fn a_sender_that_waits_for_room_fills_the_line() {
    let options =
        line(8_000_000, trunkline_endpoint::Bound::frames(2), queue_of(DisciplineOptions::DropTail));
    let testbed = send_when_room(link(options), 2, 500, |_| Destination::All);
    assert_eq!(testbed.counters(0).queue_drops + testbed.counters(1).queue_drops, 0);
    assert_eq!(testbed.now.as_ns(), 500 * 1_000_000, "no gap in 500 frames of 1 ms");
    let queue = testbed.medium.queue_counters(trunkline_endpoint::Port(0)).expect("an explicit queue");
    // All but the first wait for the frame before.
    assert_eq!(queue.sojourn_ns.len(), 500);
    assert!((queue.sojourn_ns.max() as f64 / 1e6 - 1.0).abs() < 1e-3);
}
