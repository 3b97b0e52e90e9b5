//! What `Options::linux` changes, each beside an end without it.

use crate::extensions::modern;
use crate::support::wire::{DataSegment, Outcome, Wire};
use trunkline_tcp::segment::PSH;
use trunkline_tcp::{Options, Timers};
use trunkline_units::{Rate, Span};

const MSS: u32 = 1_000;
/// What timestamps leave of a segment.
const DATA: u32 = MSS - 12;

fn options(linux: bool) -> Options {
    Options { linux, timestamps: true, ..modern() }
}

fn pass(_: &DataSegment) -> Outcome {
    Outcome::Pass
}

/// Returns how many segments each acknowledgement of a transfer without loss covers.
fn covered(linux: bool) -> Vec<u32> {
    let options = Options { initial_ssthresh: Some(20 * MSS), ..options(linux) };
    let mut wire = Wire::new(options, u64::from(3_000 * DATA), pass);
    assert!(wire.run(Span::from_s(60)));
    let acks: Vec<u32> = wire.answers.iter().map(|(header, _)| header.ack.0).collect();
    acks.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) / DATA).collect()
}

/// Each one while the window widens; then every second.
#[test]
fn the_first_segments_are_acknowledged_at_once() {
    let pairs = |acks: &[u32]| acks.iter().filter(|segments| **segments > 1).count();
    let (linux, standard) = (covered(true), covered(false));
    assert_eq!(pairs(&linux[..15]), 0, "{:?}", &linux[..16]);
    let last = &linux[linux.len() - 500..];
    assert!(pairs(last) > 250, "{last:?}");
    assert!(pairs(&standard[..16]) > 3, "{:?}", &standard[..16]);
}

/// A segment leaves every 10 ms. Two leave for each acknowledgement, and of an odd window the second is acknowledged with the
/// first of the next two.
#[test]
fn round_trips_are_those_of_the_first_segment() {
    let smoothed = [true, false].map(|linux| {
        let options = Options { receive_buffer: 21 * MSS, scaling: false, ..options(linux) };
        let mut wire = Wire::new(options, u64::from(1_000 * DATA), pass);
        wire.rate = Rate::from_bps(800_000);
        assert!(wire.run(Span::from_s(60)));
        wire.ends[0].gauges().smoothed_rtt
    });
    let longer = smoothed[0] - smoothed[1];
    assert!((Span::from_ms(5)..Span::from_ms(25)).contains(&longer), "{smoothed:?}");
}

/// Returns after how many segments of a transfer the window has grown since a loss.
fn grown_after(linux: bool) -> u32 {
    let window = |segments: u32| {
        let options = Options { initial_ssthresh: Some(10 * DATA), delayed_ack: false, ..options(linux) };
        let path = |segment: &DataSegment| {
            if segment.offset / DATA == 26 && !segment.again { Outcome::Drop } else { Outcome::Pass }
        };
        let mut wire = Wire::new(options, u64::from(segments * DATA), path);
        assert!(wire.run(Span::from_s(60)));
        assert_eq!(wire.ends[0].statistics().fast_retransmits, 1);
        wire.ends[0].gauges().cwnd
    };
    // Of twelve segments six remain.
    (30..100).find(|segments| window(*segments) > 6 * DATA).unwrap()
}

#[test]
fn the_acknowledgement_that_ends_a_recovery_lets_the_window_grow() {
    assert!(grown_after(true) < grown_after(false));
}

/// Loses these segments and their retransmissions so often; returns the number of recoveries, retransmissions, and segments of the
/// threshold.
fn recoveries(linux: bool, lost: &[(u32, u32)]) -> (u64, u64, u32) {
    let options = Options { initial_ssthresh: Some(20 * DATA), ..options(linux) };
    let mut left = lost.to_vec();
    let path = |segment: &DataSegment| {
        let entry = left.iter_mut().find(|(number, count)| *number == segment.offset / DATA && *count > 0);
        entry.map_or(Outcome::Pass, |(_, count)| {
            *count -= 1;
            Outcome::Drop
        })
    };
    let mut wire = Wire::new(options, u64::from(200 * DATA), path);
    assert!(wire.run(Span::from_s(60)));
    let statistics = wire.ends[0].statistics();
    let threshold = wire.ends[0].gauges().ssthresh / DATA;
    (statistics.fast_retransmits, statistics.retransmitted_segments, threshold)
}

#[test]
fn a_recovery_reduces_the_window_once() {
    let (linux, standard) = (recoveries(true, &[(60, 2)]), recoveries(false, &[(60, 2)]));
    assert!((linux.0, linux.1) == (1, 2) && linux.2 >= 10, "{linux:?}");
    assert!((standard.0, standard.1) == (1, 2) && standard.2 <= 6, "{standard:?}");
}

/// Segment 84 is sent in the recovery and lost, but repaired only after it.
#[test]
fn a_loss_that_outlasts_a_recovery_begins_another() {
    let linux = recoveries(true, &[(60, 2), (84, 1)]);
    assert!((linux.0, linux.1) == (2, 3) && linux.2 <= 6, "{linux:?}");
}

/// Returns the mean number of segments that leave at the same time.
fn burst(linux: bool, mbps: u64) -> f64 {
    let timers = Timers::Fine { floor: Span::from_ms(200) };
    let options = Options { timers, initial_ssthresh: Some(200 * MSS), ..options(linux) };
    let mut wire = Wire::new(options, u64::from(20_000 * DATA), pass);
    wire.rate = Rate::from_bps(mbps * 1_000_000);
    assert!(wire.run(Span::from_s(60)));
    let late = &wire.sent[10_000..19_000];
    let bursts = 1 + late.windows(2).filter(|pair| pair[0].at != pair[1].at).count();
    late.len() as f64 / bursts as f64
}

/// The last of several that leave together is acknowledged at once.
#[test]
fn the_last_of_a_burst_has_psh() {
    let options = Options { initial_ssthresh: Some(200 * MSS), ..options(true) };
    let mut wire = Wire::new(options, u64::from(20_000 * DATA), pass);
    wire.rate = Rate::from_bps(24_000_000);
    assert!(wire.run(Span::from_s(60)));
    let late = &wire.sent[10_000..19_000];
    let pushed = |count: usize| {
        let bursts = late.chunk_by(|a, b| a.at == b.at).skip(1).filter(|burst| burst.len() == count);
        bursts.map(|burst| burst.last().is_some_and(|last| last.header.has(PSH))).collect::<Vec<_>>()
    };
    assert!(pushed(3).len() > 500 && pushed(3).iter().all(|is_pushed| *is_pushed), "{}", pushed(3).len());
    // Three of a burst have two acknowledgements.
    let answers = wire.answers.len();
    assert!(answers > 20_000 * 6 / 10, "{answers}");
}

/// As many as leave in a millisecond, with 1.2 times the window in a round trip, but at least two.
#[test]
fn segments_leave_in_bursts() {
    let bursts = [(true, 20), (true, 80), (false, 80)].map(|(linux, mbps)| burst(linux, mbps));
    assert!((1.9..3.2).contains(&bursts[0]), "{bursts:?}");
    assert!((4.0..13.0).contains(&bursts[1]), "{bursts:?}");
    assert!((1.9..2.3).contains(&bursts[2]), "{bursts:?}");
}
