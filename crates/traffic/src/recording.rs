//! Recorded traffic: sizes and times of messages, never their contents.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use trunkline_units::Span;

use crate::source::SMALLEST_MESSAGE;

/// Maximum number of messages of a recording.
pub const MOST_MESSAGES: usize = 1 << 20;

/// A message of a recording: nanoseconds since the first message, and bytes.
pub type RecordedMessage = (u64, u32);

/// Messages in the order of their times. The first is at 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Recording {
    messages: Arc<[RecordedMessage]>,
}

/// What an experiment says of a recording. It determines the messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordingRequest {
    /// A capture, a CSV file, a run or an archive of counters, relative to the experiment's folder.
    pub path: String,
    /// The column or series; empty: the first that fits.
    pub column: String,
    /// The packets of a capture, as a filter of `trunkline top`; empty: all.
    pub filter: String,
    /// What a value of a column is.
    pub values: RecordedValues,
    /// Bytes of a message into which amounts are divided.
    pub message_bytes: f64,
}

/// What a value of a column is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedValues {
    /// The bytes of a message.
    Sizes,
    /// The amount of an interval.
    Amounts,
}

/// Why there is no recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// No message.
    #[error("it has no messages")]
    Empty,
    /// More messages than [`MOST_MESSAGES`].
    #[error("it has more than {MOST_MESSAGES} messages")]
    TooMany,
    /// An amount below 0 or not finite.
    #[error("an amount is below 0")]
    Amount,
}

impl Recording {
    /// Creates a recording of messages, each with its time in nanoseconds since any origin. Messages of equal times stay in their
    /// order.
    ///
    /// # Errors
    /// [`RecordingError::Empty`], [`RecordingError::TooMany`].
    pub fn new(mut messages: Vec<(i64, u32)>) -> Result<Recording, RecordingError> {
        if messages.len() > MOST_MESSAGES {
            return Err(RecordingError::TooMany);
        }
        messages.sort_by_key(|(at, _)| *at);
        let origin = messages.first().ok_or(RecordingError::Empty)?.0;
        let message = |(at, bytes): (i64, u32)| (at.abs_diff(origin), bytes);
        Ok(Recording { messages: messages.into_iter().map(message).collect() })
    }

    /// Creates a recording of the amounts of consecutive intervals, in bytes. An interval has as many messages as fit, evenly
    /// spaced; the rest is carried to the next, so the sum is exact to within a message. A gap counts as 0. Messages have
    /// `message_bytes`, at least [`SMALLEST_MESSAGE`]: shorter ones would be sent with that, and so with more than the amounts.
    ///
    /// # Errors
    /// [`RecordingError`].
    pub fn of_amounts(
        amounts_bytes: impl Iterator<Item = f64>,
        interval: Span,
        message_bytes: u32,
    ) -> Result<Recording, RecordingError> {
        let message_bytes = message_bytes.max(SMALLEST_MESSAGE);
        let size = f64::from(message_bytes);
        let length = interval.as_ns();
        let (mut credit, mut begin, mut messages) = (0.0, 0_u64, Vec::new());
        for amount in amounts_bytes {
            if !amount.is_finite() || amount < 0.0 {
                return Err(RecordingError::Amount);
            }
            credit += amount;
            let count = libm::floor(credit / size);
            if count + messages.len() as f64 > MOST_MESSAGES as f64 {
                return Err(RecordingError::TooMany);
            }
            credit -= count * size;
            let at =
                |i: u64| begin.saturating_add((u128::from(i) * u128::from(length) / count as u128) as u64);
            messages
                .extend((0..count as u64).map(|i| (i64::try_from(at(i)).unwrap_or(i64::MAX), message_bytes)));
            begin = begin.saturating_add(length);
        }
        Recording::new(messages)
    }

    /// Returns the messages.
    pub fn messages(&self) -> &[RecordedMessage] {
        &self.messages
    }

    /// Returns the bytes of the longest message; 0 without messages.
    pub fn largest(&self) -> u32 {
        self.messages.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0)
    }

    /// Returns the bytes of all messages.
    pub fn total(&self) -> u64 {
        self.messages.iter().map(|(_, bytes)| u64::from(*bytes)).sum()
    }

    /// Returns the time of the last message.
    pub fn duration(&self) -> Span {
        Span::from_ns(self.messages.last().map_or(0, |(at, _)| *at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_in_order_from_0() {
        let recording = Recording::new(vec![(-5, 1), (20, 2), (10, 3), (10, 4)]).unwrap();
        assert_eq!(recording.messages(), [(0, 1), (15, 3), (15, 4), (25, 2)]);
        assert_eq!((recording.largest(), recording.total()), (4, 10));
        assert_eq!(Recording::new(vec![]), Err(RecordingError::Empty));
        assert_eq!(Recording::new(vec![(0, 1); MOST_MESSAGES + 1]), Err(RecordingError::TooMany));
        let far = Recording::new(vec![(i64::MIN, 1), (i64::MAX, 1)]).unwrap();
        assert_eq!(far.messages()[1].0, u64::MAX);
    }

    #[test]
    fn amounts_are_sent_to_a_message() {
        let of = |amounts: &[f64]| Recording::of_amounts(amounts.iter().copied(), Span::from_s(1), 1_000);
        let s = 1_000_000_000;
        let recording = of(&[2_500.0, 0.0, 600.0, 1_000.0]).unwrap();
        assert_eq!(recording.messages(), [(0, 1_000), (s / 2, 1_000), (2 * s, 1_000), (3 * s, 1_000)]);
        assert_eq!(of(&[500.0]), Err(RecordingError::Empty));
        assert_eq!(of(&[-1.0]), Err(RecordingError::Amount));
        assert_eq!(of(&[f64::NAN]), Err(RecordingError::Amount));
        assert_eq!(of(&[1e300]), Err(RecordingError::TooMany));
        // As many bytes as the amount, not 32 for each 10.
        let short = Recording::of_amounts([320.0].into_iter(), Span::from_s(1), 10).unwrap();
        assert_eq!((short.messages().len(), short.total()), (10, 320));
    }
}
