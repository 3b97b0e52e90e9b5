//! What `Options::linux` changes, each beside an end without it.

use crate::extensions::modern;
use crate::support::wire::{DataSegment, Outcome, Wire};
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
    assert!(pairs(last) > 400, "{last:?}");
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

/// Returns after how many segments the window has grown again since a loss.
fn grown_after(linux: bool) -> u32 {
    let window = |segments: u32| {
        let options = Options { initial_ssthresh: Some(20 * DATA), delayed_ack: false, ..options(linux) };
        let path = |segment: &DataSegment| {
            if segment.offset / DATA == 60 && !segment.again { Outcome::Drop } else { Outcome::Pass }
        };
        let mut wire = Wire::new(options, u64::from(segments * DATA), path);
        assert!(wire.run(Span::from_s(60)));
        assert_eq!(wire.ends[0].statistics().fast_retransmits, 1);
        wire.ends[0].gauges().cwnd
    };
    let first = window(100);
    (100..200).find(|segments| window(*segments) > first).unwrap()
}

#[test]
fn the_acknowledgement_that_ends_a_recovery_lets_the_window_grow() {
    assert_eq!(grown_after(true) + 1, grown_after(false));
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

/// As many as leave in a millisecond, with 1.2 times the window in a round trip, but at least two.
#[test]
fn segments_leave_in_bursts() {
    let bursts = [(true, 20), (true, 80), (false, 80)].map(|(linux, mbps)| burst(linux, mbps));
    assert!((1.9..3.2).contains(&bursts[0]), "{bursts:?}");
    assert!((4.0..13.0).contains(&bursts[1]), "{bursts:?}");
    assert!((1.9..2.3).contains(&bursts[2]), "{bursts:?}");
}
