//! Delay of messages over the guaranteed transport by stage (figures 21 and 22 of the 1998 paper).
//!
//! Each end reports its own stages, and timestamps of sampled frames. Both ends sample the same frames, so the delay of
//! the network follows from the timestamps. docs/reference/guaranteed.md defines the stages.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trunkline_record::Histogram;
use trunkline_record::histogram::Counts;
use trunkline_units::Instant;

/// All stages in the order in which a message passes them.
pub const STAGES: [&str; 11] = [
    "copy_in", "queued", "frame", "seal", "send", "network", "waiting", "receive", "open", "join", "copy_out",
];

/// Durations of each stage, by name.
pub type Stages = BTreeMap<String, Counts>;

/// Maximum number of timestamps.
const MAX_TIMESTAMPS: usize = 2048;
/// Half of the frame number space: frame numbers on the wire have 24 bits.
const HALF_NUMBER_SPACE: u32 = 1 << 23;

/// Timestamps of sampled frames at one point, by frame number. Both ends sample the numbers that are multiples of
/// `sample_every`. With more than 2,048 timestamps every second one is dropped and `sample_every` doubles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameTimestamps {
    #[serde(rename = "every")]
    sample_every: u32,
    #[serde(rename = "noted")]
    timestamps: Vec<(u32, Instant)>,
    #[serde(skip)]
    highest: u32,
    /// The frame numbers have wrapped, so they are no longer unique: recording has stopped.
    #[serde(skip)]
    closed: bool,
}

impl FrameTimestamps {
    /// Creates an empty set of timestamps for frames whose number is a multiple of `every`.
    pub fn new(every: u32) -> Self {
        FrameTimestamps { sample_every: every.max(1), ..FrameTimestamps::default() }
    }

    /// Whether the frame with this number is sampled.
    #[inline]
    pub fn is_sampled(&self, number: u32) -> bool {
        number.is_multiple_of(self.sample_every) && !self.closed
    }

    /// Records that the sampled frame with this number passed at `at`.
    pub fn record(&mut self, number: u32, at: Instant) {
        self.closed = self.highest.saturating_sub(number) > HALF_NUMBER_SPACE;
        if self.closed {
            return;
        }
        self.highest = self.highest.max(number);
        self.timestamps.push((number, at));
        while self.timestamps.len() > MAX_TIMESTAMPS {
            // Retransmissions of one frame could fill the list: then stop recording.
            let (before, every) = (self.timestamps.len(), self.sample_every.saturating_mul(2));
            self.timestamps.retain(|(number, _)| number.is_multiple_of(every));
            self.sample_every = every;
            self.closed = self.timestamps.len() == before;
            if self.closed {
                self.timestamps.pop();
            }
        }
    }

    /// Returns the frames that passed exactly once.
    fn unambiguous(&self) -> BTreeMap<u32, Instant> {
        let mut times: BTreeMap<u32, (Instant, u32)> = BTreeMap::new();
        for &(number, at) in &self.timestamps {
            times.entry(number).or_insert((at, 0)).1 += 1;
        }
        times.into_iter().filter(|(_, (_, n))| *n == 1).map(|(number, (at, _))| (number, at)).collect()
    }

    /// Returns the delays of frames from this point to `there`. Retransmitted frames are excluded, because their copies are
    /// indistinguishable.
    pub fn delays_to(&self, there: &FrameTimestamps) -> Histogram {
        let (mut spans, arrived) = (Histogram::default(), there.unambiguous());
        for (number, departed) in self.unambiguous() {
            if let Some(at) = arrived.get(&number) {
                spans.record(at.since(departed));
            }
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::Span;

    use super::*;

    /// Frames are sent every microsecond and take two.
    fn pass(numbers: impl Iterator<Item = u32>) -> [FrameTimestamps; 2] {
        let mut ends = [FrameTimestamps::new(8), FrameTimestamps::new(8)];
        for (i, number) in numbers.enumerate() {
            for (end, us) in ends.iter_mut().zip([0, 2]) {
                if end.is_sampled(number) {
                    end.record(number, Instant::ZERO + Span::from_us(i as u64 + us));
                }
            }
        }
        ends
    }

    #[test]
    fn both_ends_sample_the_same_frames() {
        for count in [0, 7, 100, 10_000, 1_000_000] {
            let [departed, arrived] = pass(0..count);
            assert!(
                departed.timestamps.len() <= MAX_TIMESTAMPS
                    && departed.timestamps.len() >= (count as usize / 8).min(MAX_TIMESTAMPS / 2)
            );
            let spans = departed.delays_to(&arrived);
            assert_eq!(spans.count(), departed.timestamps.len() as u64);
            let mean = spans.distribution_us().map(|d| d.mean);
            assert!(mean.is_none_or(|mean| (mean - 2.0).abs() < 2e-3), "{mean:?}");
        }
    }

    #[test]
    fn retransmitted_and_lost_frames_are_excluded() {
        let [mut departed, mut arrived] = pass(0..80);
        departed.record(16, Instant::MAX);
        arrived.record(32, Instant::MAX);
        arrived.timestamps.retain(|(number, _)| *number != 40);
        assert_eq!(departed.delays_to(&arrived).count(), 10 - 3);
    }

    #[test]
    fn retransmissions_of_one_frame_are_bounded() {
        let [departed, arrived] = pass(std::iter::repeat_n(1 << 20, 10 * MAX_TIMESTAMPS));
        assert!(departed.timestamps.len() <= MAX_TIMESTAMPS);
        assert_eq!(departed.delays_to(&arrived).count(), 0);
        let [departed, _] = pass(std::iter::repeat_n(0, 10 * MAX_TIMESTAMPS));
        assert_eq!(departed.timestamps.len(), MAX_TIMESTAMPS);
    }

    #[test]
    fn recording_stops_when_numbers_wrap() {
        let last = (1 << 24) - 800;
        let [departed, arrived] = pass((last..1 << 24).chain(0..1 << 20));
        assert_eq!((departed.timestamps.len(), departed.delays_to(&arrived).count()), (100, 100));
    }
}
