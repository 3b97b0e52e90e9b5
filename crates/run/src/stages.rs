//! Delay of messages over the guaranteed transport by stage (figures 21 and 22 of Guaranteed ATM, 1998).
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
    sample_every: u32,
    timestamps: Vec<(u32, Instant)>,
    /// The highest frame number recorded.
    #[serde(skip)]
    highest: u32,
    /// Whether recording has stopped: the frame numbers have wrapped and are no longer unique, or the list is full.
    #[serde(skip)]
    is_closed: bool,
}

impl FrameTimestamps {
    /// Creates an empty set of timestamps for frames whose number is a multiple of `sample_every`.
    pub fn new(sample_every: u32) -> Self {
        FrameTimestamps { sample_every: sample_every.max(1), ..FrameTimestamps::default() }
    }

    /// Whether the frame with this number is sampled.
    #[inline]
    pub fn is_sampled(&self, number: u32) -> bool {
        number.is_multiple_of(self.sample_every) && !self.is_closed
    }

    /// Records that the sampled frame with this number passed at `at`.
    pub fn record(&mut self, number: u32, at: Instant) {
        self.is_closed = self.highest.saturating_sub(number) > HALF_NUMBER_SPACE;
        if self.is_closed {
            return;
        }
        self.highest = self.highest.max(number);
        self.timestamps.push((number, at));
        while self.timestamps.len() > MAX_TIMESTAMPS {
            // Retransmissions of one frame may fill the list: then stop recording.
            let (length_before, sample_every) = (self.timestamps.len(), self.sample_every.saturating_mul(2));
            self.timestamps.retain(|(number, _)| number.is_multiple_of(sample_every));
            self.sample_every = sample_every;
            self.is_closed = self.timestamps.len() == length_before;
            if self.is_closed {
                self.timestamps.pop();
            }
        }
    }

    /// Returns the frames that passed exactly once, by number.
    fn unambiguous(&self) -> BTreeMap<u32, Instant> {
        let mut frames: BTreeMap<u32, (Instant, u32)> = BTreeMap::new();
        for &(number, at) in &self.timestamps {
            frames.entry(number).or_insert((at, 0)).1 += 1;
        }
        let passed_once = frames.into_iter().filter(|(_, (_, count))| *count == 1);
        passed_once.map(|(number, (at, _))| (number, at)).collect()
    }

    /// Returns the delays of frames from this point to the point of `arrivals`. Retransmitted frames are excluded, because
    /// their copies are indistinguishable.
    pub fn delays_to(&self, arrivals: &FrameTimestamps) -> Histogram {
        let (mut delays, arrivals) = (Histogram::default(), arrivals.unambiguous());
        for (number, departure) in self.unambiguous() {
            if let Some(arrival) = arrivals.get(&number) {
                delays.record(arrival.since(departure));
            }
        }
        delays
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::Span;

    use super::*;

    /// Records frames at both ends. They are sent every microsecond and have a delay of two.
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
            let [departures, arrivals] = pass(0..count);
            assert!(
                departures.timestamps.len() <= MAX_TIMESTAMPS
                    && departures.timestamps.len() >= (count as usize / 8).min(MAX_TIMESTAMPS / 2)
            );
            let delays = departures.delays_to(&arrivals);
            assert_eq!(delays.count(), departures.timestamps.len() as u64);
            let mean = delays.distribution_us().map(|d| d.mean);
            assert!(mean.is_none_or(|mean| (mean - 2.0).abs() < 2e-3), "{mean:?}");
        }
    }

    #[test]
    fn retransmitted_and_lost_frames_are_excluded() {
        let [mut departures, mut arrivals] = pass(0..80);
        departures.record(16, Instant::MAX);
        arrivals.record(32, Instant::MAX);
        arrivals.timestamps.retain(|(number, _)| *number != 40);
        assert_eq!(departures.delays_to(&arrivals).count(), 10 - 3);
    }

    #[test]
    fn retransmissions_of_one_frame_are_bounded() {
        let [departures, arrivals] = pass(std::iter::repeat_n(1 << 20, 10 * MAX_TIMESTAMPS));
        assert!(departures.timestamps.len() <= MAX_TIMESTAMPS);
        assert_eq!(departures.delays_to(&arrivals).count(), 0);
        let [departures, _] = pass(std::iter::repeat_n(0, 10 * MAX_TIMESTAMPS));
        assert_eq!(departures.timestamps.len(), MAX_TIMESTAMPS);
    }

    #[test]
    fn recording_stops_when_numbers_wrap() {
        let last = (1 << 24) - 800;
        let [departures, arrivals] = pass((last..1 << 24).chain(0..1 << 20));
        assert_eq!((departures.timestamps.len(), departures.delays_to(&arrivals).count()), (100, 100));
    }
}
