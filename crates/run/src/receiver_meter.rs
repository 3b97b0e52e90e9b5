//! Measurements of a receiver: each arrival, with its delay and classified by sequence number.
//!
//! What the author of a new field must know:
//!
//! - [`ReceiverMeter::record`] is the hot path, called once for each message, without allocation. Messages in order take a
//!   shorter path that only marks the sequence number and does not look at the old mark.
//! - Corrupted messages have no sequence number: they are counted by [`ReceiverMeter::record_corrupted`] and are neither
//!   received, duplicated nor reordered.
//! - A gap in the sequence numbers becomes loss only at the end, in `assemble`, because late messages may fill it, and
//!   because only the sender knows how many messages follow the last one received.

use serde::{Deserialize, Serialize};
use trunkline_record::Histogram;
use trunkline_traffic::application::ReceivedItems;
use trunkline_units::{Instant, Span};

use crate::message::Header;
use crate::series::Series;

/// Size of the window, ending at the highest sequence number, in which duplicates are detected.
const SEQUENCE_WINDOW: u64 = 1 << 17;

/// Counts of arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// Messages that arrived, without duplicates.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// Repeated arrivals of a message.
    pub duplicated: u64,
    /// Arrivals after a message with a higher sequence number.
    pub reordered: u64,
    /// Arrivals with wrong bytes. They are in no other count.
    pub corrupted: u64,
    /// Datagrams of unknown senders or connections. In the record: the counter `strangers`.
    pub unknown_peers: u64,
    /// One more than the highest sequence number received; 0 before the first message.
    pub next_sequence: u64,
    /// Time of the first arrival.
    pub first: Option<Instant>,
    /// Time of the last arrival.
    pub last: Option<Instant>,
}

impl Arrivals {
    /// Whether all of `sent` messages have arrived, intact or corrupted.
    pub fn is_complete(&self, sent: u64) -> bool {
        self.messages + self.corrupted >= sent
    }
}

/// Measures one receiver.
#[derive(Debug)]
pub struct ReceiverMeter {
    start: Instant,
    arrivals: Arrivals,
    /// A bit for each sequence number of the window, at its remainder modulo the window's size: whether it was received.
    received_bits: Box<[u64]>,
    /// One-way delays.
    pub(crate) delay: Histogram,
    /// Gaps between arrivals.
    pub(crate) gap: Histogram,
    /// Bytes over time.
    pub(crate) series: Series,
    pub(crate) trend: Trend,
    /// Comparison with the laws of an application model.
    items: Option<Box<ReceivedItems>>,
}

/// Messages and the sum of their delays over time, from which mean delay and mean gap follow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trend {
    /// Messages that arrived.
    pub messages: Series,
    /// Sum of their one-way delays, ns.
    pub delay_ns: Series,
}

impl ReceiverMeter {
    /// Creates a meter whose series begins at `start`.
    pub fn new(start: Instant) -> Self {
        ReceiverMeter {
            start,
            arrivals: Arrivals::default(),
            received_bits: vec![0; (SEQUENCE_WINDOW / 64) as usize].into(),
            delay: Histogram::default(),
            gap: Histogram::default(),
            series: Series::default(),
            trend: Trend::default(),
            items: None,
        }
    }

    /// Compares what arrives with the laws of an application model.
    pub fn compare(&mut self, items: Option<ReceivedItems>) {
        self.items = items.map(Box::new);
    }

    /// Returns the comparison with the laws of an application model.
    pub(crate) fn items(&self) -> Option<&ReceivedItems> {
        self.items.as_deref()
    }

    /// Records a complete, intact message that arrived at `now`. Does not allocate in the steady state.
    #[inline(always)]
    pub fn record(&mut self, header: &Header, now: Instant) {
        if self.is_duplicate(header.sequence) {
            self.arrivals.duplicated += 1;
            return;
        }
        let a = &mut self.arrivals;
        a.messages += 1;
        a.bytes += u64::from(header.length);
        match a.last {
            Some(last) => self.gap.record(now.since(last)),
            None => a.first = Some(now),
        }
        a.last = Some(now);
        let delay = now.since(header.sent_at);
        self.delay.record(delay);
        let elapsed = now.since(self.start);
        let series = [&mut self.series, &mut self.trend.messages, &mut self.trend.delay_ns];
        Series::add_each(series, elapsed, [u64::from(header.length), 1, delay.as_ns()]);
        if let Some(items) = &mut self.items {
            items.record(header.sequence, header.length, now);
        }
    }

    /// Records a corrupted message. Its sequence number is unknown, so it is in no other count.
    pub fn record_corrupted(&mut self) {
        self.arrivals.corrupted += 1;
    }

    /// Records a datagram of an unknown sender or connection.
    pub fn record_unknown_peer(&mut self) {
        self.arrivals.unknown_peers += 1;
    }

    /// Marks a sequence number as received, and counts it if it is reordered. Returns whether it was received before.
    /// Numbers below the window count as new and reordered.
    #[inline(always)]
    fn is_duplicate(&mut self, sequence: u64) -> bool {
        let next = self.arrivals.next_sequence;
        let (word, bit) = ((sequence % SEQUENCE_WINDOW / 64) as usize, 1u64 << (sequence % 64));
        if sequence == next {
            // In order, so it is new: the old bit belongs to the sequence number that leaves the window.
            self.arrivals.next_sequence = sequence + 1;
            self.received_bits[word] |= bit;
            return false;
        }
        if sequence > next {
            self.clear_bits(next, sequence);
            self.arrivals.next_sequence = sequence + 1;
        } else if next - sequence > SEQUENCE_WINDOW {
            self.arrivals.reordered += 1;
            return false;
        }
        let is_duplicate = self.received_bits[word] & bit != 0;
        self.received_bits[word] |= bit;
        if sequence < next && !is_duplicate {
            self.arrivals.reordered += 1;
        }
        is_duplicate
    }

    /// Clears the bits of `from..=to`, which enter the window.
    fn clear_bits(&mut self, from: u64, to: u64) {
        if to - from >= SEQUENCE_WINDOW {
            self.received_bits.fill(0);
            return;
        }
        for sequence in from..=to {
            self.received_bits[(sequence % SEQUENCE_WINDOW / 64) as usize] &= !(1u64 << (sequence % 64));
        }
    }

    /// Returns the counts of arrivals.
    pub fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// Returns the time since the last arrival, or since the start.
    pub fn idle_time(&self, now: Instant) -> Span {
        now.since(self.arrivals.last.unwrap_or(self.start))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn header(sequence: u64) -> Header {
        Header::pattern(sequence, Instant::ZERO, 100)
    }

    fn arrivals(sequences: impl IntoIterator<Item = u64>) -> Arrivals {
        let mut meter = ReceiverMeter::new(Instant::ZERO);
        for (i, sequence) in sequences.into_iter().enumerate() {
            meter.record(&header(sequence), Instant::from_ns(1000 * i as u64));
        }
        *meter.arrivals()
    }

    #[test]
    fn distinguishes_loss_duplication_and_reordering() {
        // 2 is lost, 3 arrives twice, 4 arrives after 5.
        let a = arrivals([0, 1, 3, 3, 5, 4, 6]);
        assert_eq!((a.messages, a.duplicated, a.reordered, a.next_sequence), (6, 1, 1, 7));
        assert_eq!((a.bytes, a.first, a.last), (600, Some(Instant::ZERO), Some(Instant::from_ns(6000))));
    }

    #[test]
    fn a_jump_beyond_the_window_is_only_loss() {
        let a = arrivals([0, SEQUENCE_WINDOW * 5, SEQUENCE_WINDOW * 5 + 1, SEQUENCE_WINDOW * 5, 7]);
        assert_eq!((a.messages, a.duplicated, a.reordered), (4, 1, 1));
    }

    proptest! {
        #[test]
        fn counts_agree_with_a_set(sequences in proptest::collection::vec(0u64..300, 0..400)) {
            let unique: BTreeSet<_> = sequences.iter().copied().collect();
            let mut highest = None;
            let mut seen = BTreeSet::new();
            let mut reordered = 0;
            for &sequence in &sequences {
                if seen.insert(sequence) && highest.is_some_and(|h| sequence < h) { reordered += 1; }
                highest = highest.max(Some(sequence));
            }
            let a = arrivals(sequences.iter().copied());
            prop_assert_eq!(a.messages, unique.len() as u64);
            prop_assert_eq!(a.duplicated, (sequences.len() - unique.len()) as u64);
            prop_assert_eq!(a.reordered, reordered);
        }
    }
}
