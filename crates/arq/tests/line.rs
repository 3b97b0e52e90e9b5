//! The test of the 1998 paper in simulated time: a line of 121.8 Mb/s is filled despite loss and delayed users.

use crate::support::line::{Line, Run, Stalls};
use trunkline_arq::{Congestion, Options};
use trunkline_units::Span;

/// An end does not get to run for so long, ten times a second.
const STALL: Stalls = Stalls { every: Span::from_ms(100), least: Span::from_ms(4), most: Span::from_ms(4) };

/// The whole window, which what may wait before the line has room for.
fn fixed() -> Options {
    Options { window: 64, congestion: Congestion::Fixed, ..Options::default() }
}

fn report(run: &Run) -> String {
    format!("{:?}, {} overflowed, {:?}", run.of_what_is_left(), run.overflowed, run.statistics)
}

// The headers leave 0.9906: 12 bytes of 1,472, and ten more where a message of 8 KiB ends.

#[test]
fn a_line_is_filled_whatever_it_loses() {
    for (loss, seed) in [(0.0, 1), (0.01, 2), (0.05, 3)] {
        for stalls in [[None; 2], [Some(STALL), None], [None, Some(STALL)]] {
            let line = Line { loss, stalls, seed, ..Line::default() };
            let run = line.run(&Options::default(), false, Span::from_s(1));
            assert!(run.of_what_is_left()[0] > 0.985, "{line:?}: {}", report(&run));
            assert_eq!(run.overflowed, 0, "{line:?}: {}", report(&run));
        }
    }
}

#[test]
fn both_ways_at_once_neither_end_repeats_itself_without_end() {
    for (seed, stalls) in [(1, [None; 2]), (2, [Some(STALL); 2])] {
        for options in [Options::default(), fixed()] {
            let line = Line { seed, stalls, ..Line::default() };
            let run = line.run(&options, true, Span::from_s(1));
            let ways = run.of_what_is_left();
            assert!(ways[0] + ways[1] > 1.93, "{line:?}: {}", report(&run));
            let doubles: u64 = run.statistics.iter().map(|end| end.duplicates).sum();
            let frames: u64 = run.statistics.iter().map(|end| end.frames_received).sum();
            assert!(doubles < frames / 50, "{line:?}: {}", report(&run));
        }
    }
}

#[test]
fn what_both_ends_lose_is_not_sent_again_without_end() {
    // Both begin with a round trip of 30 us, and find one of milliseconds.
    for seed in 1..4 {
        let line = Line { loss: 0.05, seed, ..Line::default() };
        let run = line.run(&Options::default(), true, Span::from_s(1));
        let ways = run.of_what_is_left();
        assert!(ways[0] + ways[1] > 1.7, "{line:?}: {}", report(&run));
        let doubles: u64 = run.statistics.iter().map(|end| end.duplicates).sum();
        let frames: u64 = run.statistics.iter().map(|end| end.frames_received).sum();
        assert!(doubles < frames / 100, "{line:?}: {}", report(&run));
    }
}
