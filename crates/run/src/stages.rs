//! Where the time goes: the stages of a message's way over the guaranteed transport (figures 21 and 22 of the 1998
//! paper).
//!
//! An end reports what it measured of the stages that are its own, and when the frames that both ends pick passed it;
//! from these follows how long the network took. docs/guaranteed.md says what each stage is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trunkline_record::Histogram;
use trunkline_record::histogram::Counts;
use trunkline_units::Instant;

/// All stages, in the order in which a message passes them.
pub const STAGES: [&str; 11] = [
    "copy_in", "queued", "frame", "seal", "send", "network", "waiting", "receive", "open", "join", "copy_out",
];

/// What was measured of each stage, by its name.
pub type Stages = BTreeMap<String, Counts>;

/// Frames whose passage is noted at the most.
const NOTED: usize = 2048;
/// Numbers of frames on the wire have 24 bits.
const HALF: u32 = 1 << 23;

/// When frames passed a point, by their number on the wire. Both ends note the same frames: those whose number is a
/// multiple of `every`. Of more than 2,048 every other one is forgotten, and `every` doubles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passages {
    every: u32,
    noted: Vec<(u32, Instant)>,
    #[serde(skip)]
    highest: u32,
    /// The numbers have run over: from now on one would mean several frames.
    #[serde(skip)]
    closed: bool,
}

impl Passages {
    /// For every `every`-th frame.
    pub fn new(every: u32) -> Self {
        Passages { every: every.max(1), ..Passages::default() }
    }

    /// Whether the frame of this number is to be noted.
    #[inline]
    pub fn picks(&self, number: u32) -> bool {
        number.is_multiple_of(self.every) && !self.closed
    }

    /// The frame of this number, which it picks, passed at `at`.
    pub fn note(&mut self, number: u32, at: Instant) {
        self.closed = self.highest.saturating_sub(number) > HALF;
        if self.closed {
            return;
        }
        self.highest = self.highest.max(number);
        self.noted.push((number, at));
        while self.noted.len() > NOTED {
            // Sent again and again, one frame could fill it; then it is full.
            let (before, every) = (self.noted.len(), self.every.saturating_mul(2));
            self.noted.retain(|(number, _)| number.is_multiple_of(every));
            self.every = every;
            self.closed = self.noted.len() == before;
            if self.closed {
                self.noted.pop();
            }
        }
    }

    /// The frames that passed once.
    fn once(&self) -> BTreeMap<u32, Instant> {
        let mut times: BTreeMap<u32, (Instant, u32)> = BTreeMap::new();
        for &(number, at) in &self.noted {
            times.entry(number).or_insert((at, 0)).1 += 1;
        }
        times.into_iter().filter(|(_, (_, n))| *n == 1).map(|(number, (at, _))| (number, at)).collect()
    }

    /// How long frames took from here to there, of those that passed both points, and either once: of what was sent
    /// again nobody knows which came.
    pub fn to(&self, there: &Passages) -> Histogram {
        let (mut spans, came) = (Histogram::default(), there.once());
        for (number, left) in self.once() {
            if let Some(at) = came.get(&number) {
                spans.record(at.since(left));
            }
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::Span;

    use super::*;

    /// Frames leave a microsecond apart, and take two.
    fn pass(numbers: impl Iterator<Item = u32>) -> [Passages; 2] {
        let mut ends = [Passages::new(8), Passages::new(8)];
        for (i, number) in numbers.enumerate() {
            for (end, us) in ends.iter_mut().zip([0, 2]) {
                if end.picks(number) {
                    end.note(number, Instant::ZERO + Span::from_us(i as u64 + us));
                }
            }
        }
        ends
    }

    #[test]
    fn both_ends_note_the_same_frames_however_many() {
        for count in [0, 7, 100, 10_000, 1_000_000] {
            let [left, came] = pass(0..count);
            assert!(left.noted.len() <= NOTED && left.noted.len() >= (count as usize / 8).min(NOTED / 2));
            let spans = left.to(&came);
            assert_eq!(spans.count(), left.noted.len() as u64);
            let mean = spans.distribution_us().map(|d| d.mean);
            assert!(mean.is_none_or(|mean| (mean - 2.0).abs() < 2e-3), "{mean:?}");
        }
    }

    #[test]
    fn what_passed_twice_or_not_at_all_tells_nothing() {
        let [mut left, mut came] = pass(0..80);
        left.note(16, Instant::MAX);
        came.note(32, Instant::MAX);
        came.noted.retain(|(number, _)| *number != 40);
        assert_eq!(left.to(&came).count(), 10 - 3);
    }

    #[test]
    fn one_frame_again_and_again_fills_nothing() {
        let [left, came] = pass(std::iter::repeat_n(1 << 20, 10 * NOTED));
        assert!(left.noted.len() <= NOTED);
        assert_eq!(left.to(&came).count(), 0);
        let [left, _] = pass(std::iter::repeat_n(0, 10 * NOTED));
        assert_eq!(left.noted.len(), NOTED);
    }

    #[test]
    fn numbers_that_run_over_are_noted_once() {
        let last = (1 << 24) - 800;
        let [left, came] = pass((last..1 << 24).chain(0..1 << 20));
        assert_eq!((left.noted.len(), left.to(&came).count()), (100, 100));
    }
}
