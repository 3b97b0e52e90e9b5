//! Loss detection by RACK (RFC 8985) on paths that reorder.

use crate::extensions::modern;
use crate::support::wire::{DataSegment, Outcome, Wire};
use trunkline_tcp::{Algorithm, Options, Statistics, Timers};
use trunkline_units::{Rate, Seed, Span};

const BYTES: u64 = 2_000_000;

fn cubic() -> Options {
    let congestion = Some(Algorithm::Cubic { hystart: true, reno_friendly: true });
    Options { congestion, timestamps: true, receive_buffer: 100_000, ..modern() }
}

/// Sends over a path of 10 Mb/s, whose round trip takes 50 ms.
fn transfer(options: Options, outcome: impl FnMut(&DataSegment) -> Outcome) -> Statistics {
    let mut wire = Wire::new(options, BYTES, outcome);
    wire.rate = Rate::from_bps(10_000_000);
    assert!(wire.run(Span::from_s(120)));
    *wire.ends[0].statistics()
}

/// Returns a path on which every fiftieth segment is late by so much.
fn late(ms: u64) -> impl FnMut(&DataSegment) -> Outcome {
    move |segment| match segment.number % 50 {
        49 => Outcome::Late(Span::from_ms(ms)),
        _ => Outcome::Pass,
    }
}

/// Segments that are late by less than a quarter of a round trip are not lost: only the first is taken for lost, because nothing
/// showed before that the path reorders. Its repetition can make the receiver drop another late one, whose timestamp is older
/// (RFC 7323 section 5). Three duplicates take each late segment for lost.
#[test]
fn reordering_within_the_window_costs_little() {
    for ms in [3, 8, 11] {
        let statistics = transfer(cubic(), late(ms));
        let Statistics { fast_retransmits, retransmitted_segments, spurious_recoveries, .. } = statistics;
        assert_eq!((spurious_recoveries, statistics.timeouts), (1, 0), "{ms} ms: {statistics:?}");
        assert!(fast_retransmits <= 2 && retransmitted_segments <= 3, "{ms} ms: {statistics:?}");
        let duplicates = transfer(Options { congestion: None, ..cubic() }, late(ms));
        assert!(duplicates.fast_retransmits > 10, "{ms} ms: {duplicates:?}");
    }
}

/// The window becomes wider after recoveries that were not needed, up to a round trip.
#[test]
fn window_widens_after_spurious_recoveries() {
    let statistics = transfer(cubic(), late(30));
    assert!(statistics.spurious_recoveries >= 1 && statistics.fast_retransmits <= 6, "{statistics:?}");
}

/// Losses on a path that reorders are found when the window has passed, without a timeout.
#[test]
fn losses_among_reordered_segments_are_repaired() {
    for seed in 0..10 {
        let (mut stream, mut dropped) = (Seed(seed).stream("losses"), 0);
        let mut reorder = late(8);
        let statistics = transfer(cubic(), |segment| {
            let is_lost = segment.number > 200 && stream.chance(0.005);
            dropped += u64::from(is_lost);
            if is_lost { Outcome::Drop } else { reorder(segment) }
        });
        assert!(dropped > 2);
        assert_eq!(statistics.timeouts, 0, "seed {seed}: {statistics:?}");
        // In a recovery that is not needed, some late segments are sent again too.
        let most = dropped + 8 * statistics.spurious_recoveries + statistics.tail_loss_probes;
        let again = statistics.retransmitted_segments;
        assert!((dropped..=most).contains(&again), "seed {seed}: {again} for {dropped} lost");
    }
}

/// A single segment behind the loss shows it a quarter of a round trip later, before three duplicates could.
#[test]
fn two_segments_behind_a_loss_are_enough() {
    let options = Options { timers: Timers::Fine { floor: Span::from_s(1) }, nagle: false, ..cubic() };
    let last = BYTES as u32 / 988;
    for behind in [1, 2] {
        let statistics = transfer(options, |segment| {
            let is_lost = segment.offset / 988 == last - behind && !segment.again;
            if is_lost { Outcome::Drop } else { Outcome::Pass }
        });
        let Statistics { timeouts, tail_loss_probes, retransmitted_segments, .. } = statistics;
        assert_eq!(
            (timeouts, tail_loss_probes, retransmitted_segments),
            (0, 0, 1),
            "{behind}: {statistics:?}"
        );
    }
}

/// On a path that keeps the order and loses, no recovery is spurious, whatever is retransmitted when another begins.
#[test]
fn random_losses_are_not_taken_for_reordering() {
    for congestion in Algorithm::ALL {
        for (seed, sack) in [(0, true), (1, true), (2, true), (3, false)] {
            let (mut stream, mut dropped) = (Seed(seed).stream("losses"), 0);
            let statistics = transfer(Options { congestion: Some(congestion), sack, ..cubic() }, |_| {
                let is_lost = stream.chance(0.02);
                dropped += u64::from(is_lost);
                if is_lost { Outcome::Drop } else { Outcome::Pass }
            });
            // A timeout can be spurious.
            let spurious = statistics.spurious_recoveries;
            assert!(spurious <= statistics.timeouts, "{congestion:?}, seed {seed}: {statistics:?}");
            if sack {
                let most = dropped + statistics.tail_loss_probes + 20 * statistics.timeouts;
                let again = statistics.retransmitted_segments;
                assert!(
                    (dropped..=most).contains(&again),
                    "{congestion:?}, seed {seed}: {again} for {dropped}"
                );
            }
        }
    }
}
