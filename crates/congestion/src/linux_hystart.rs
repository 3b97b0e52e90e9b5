//! HyStart as Linux has it (Ha and Rhee, "Taming the elephants", 2011; `tcp_cubic.c` of Linux 6.18): slow start ends when the
//! acknowledgements of a round take half of a round-trip time, or when the round-trip time rises.

use trunkline_units::{Instant, Span};

use crate::Acknowledgement;

/// Window in segments from which it counts (`hystart_low_window`).
const MIN_WINDOW: u32 = 16;
/// Longest pause between acknowledgements of a train (`hystart_ack_delta_us`).
const MAX_PAUSE: Span = Span::from_ms(2);
/// What segments that leave in batches may add to the train of a round (`hystart_ack_delay`).
const BATCH_DELAY: Span = Span::from_ms(1);
/// Bounds of the rise in round-trip time, and its share of the round-trip time (`HYSTART_DELAY_THRESH`).
const MIN_RISE: Span = Span::from_ms(4);
const MAX_RISE: Span = Span::from_ms(16);
const RISE_DIVISOR: u64 = 8;
/// Samples of a round before its minimum counts (`HYSTART_MIN_SAMPLES`).
const SAMPLES: u32 = 8;

/// The state of slow start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinuxHyStart {
    /// Start of the round; it ends at the acknowledgement of data sent after it.
    round_started_at: Instant,
    /// Last acknowledgement of the train.
    train_at: Instant,
    /// Minimum round-trip time of the connection and of this round, and the samples of this round.
    min: Option<Span>,
    round_min: Option<Span>,
    samples: u32,
}

impl LinuxHyStart {
    /// Notes the round-trip time of an acknowledgement, in slow start or not.
    pub(crate) fn sample(&mut self, round_trip: Span) {
        self.min = Some(self.min.map_or(round_trip, |min| min.min(round_trip)));
    }

    /// Returns the minimum round-trip time; zero before the first sample.
    pub(crate) fn min(&self) -> Span {
        self.min.unwrap_or_default()
    }

    /// Begins a new round, after a timeout.
    pub(crate) fn restart(&mut self, now: Instant) {
        *self =
            LinuxHyStart { round_started_at: now, train_at: now, min: self.min, ..LinuxHyStart::default() };
    }

    /// Processes an acknowledgement in slow start with a window in segments; returns whether slow start is over.
    pub(crate) fn on_ack(&mut self, acked: &Acknowledgement, window: u32) -> bool {
        if acked.sent_at >= self.round_started_at {
            self.restart(acked.now);
        }
        let (Some(round_trip), Some(min)) = (acked.round_trip, self.min) else { return false };
        if window < MIN_WINDOW {
            return false;
        }
        if acked.now.since(self.train_at) <= MAX_PAUSE {
            self.train_at = acked.now;
            if acked.now.since(self.round_started_at) > (min + BATCH_DELAY) / 2 {
                return true;
            }
        }
        let round_min = self.round_min.map_or(round_trip, |min| min.min(round_trip));
        self.round_min = Some(round_min);
        if self.samples < SAMPLES {
            self.samples += 1;
            return false;
        }
        round_min > min + (min / RISE_DIVISOR).max(MIN_RISE).min(MAX_RISE)
    }
}
