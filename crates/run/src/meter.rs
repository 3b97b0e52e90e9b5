//! What a receiver measures: every arrival, classified by sequence number and timed.

use serde::{Deserialize, Serialize};
use trunkline_record::Histogram;
use trunkline_units::{Instant, Span};

use crate::message::Header;
use crate::series::Series;

/// How far behind the newest a message may arrive and still be told from a duplicate.
const WINDOW: u64 = 1 << 17;

/// Counts of arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// Messages that arrived, each once.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Arrivals of a message that had arrived before.
    pub duplicated: u64,
    /// Arrivals behind a later message.
    pub reordered: u64,
    /// Arrivals whose bytes were not those sent; they count as nothing else.
    pub corrupted: u64,
    /// Datagrams of somebody else.
    pub strangers: u64,
    /// One past the highest sequence number seen.
    pub next_sequence: u64,
    /// First arrival.
    pub first: Option<Instant>,
    /// Last arrival.
    pub last: Option<Instant>,
}

/// Measures one receiving end.
#[derive(Clone, Debug)]
pub struct Meter {
    start: Instant,
    arrivals: Arrivals,
    seen: Box<[u64]>,
    delay: Histogram,
    gap: Histogram,
    series: Series,
    trend: Trend,
}

/// Delay and gap against time: messages, and the sum of their delays in nanoseconds, by interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trend {
    /// Messages that arrived.
    pub messages: Series,
    /// Sum of their one-way delays.
    pub delay_ns: Series,
}

impl Meter {
    /// A meter whose series begins at `start`.
    pub fn new(start: Instant) -> Self {
        Meter {
            start,
            arrivals: Arrivals::default(),
            seen: vec![0; (WINDOW / 64) as usize].into(),
            delay: Histogram::default(),
            gap: Histogram::default(),
            series: Series::default(),
            trend: Trend::default(),
        }
    }

    /// Counts a whole, undamaged message that arrived at `now`. Allocates nothing in the steady state.
    #[inline(always)]
    pub fn arrive(&mut self, header: &Header, now: Instant) {
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
        let delay = now.since(header.sent);
        self.delay.record(delay);
        let since = now.since(self.start);
        let series = [&mut self.series, &mut self.trend.messages, &mut self.trend.delay_ns];
        Series::add_each(series, since, [u64::from(header.length), 1, delay.as_ns()]);
    }

    /// Counts a message that was damaged on the way.
    pub fn corrupted(&mut self) {
        self.arrivals.corrupted += 1;
    }

    /// Counts a datagram of another connection.
    pub fn stranger(&mut self) {
        self.arrivals.strangers += 1;
    }

    /// Marks a sequence number as seen; whether it had been. What lies a window behind is taken as new.
    #[inline(always)]
    fn is_duplicate(&mut self, sequence: u64) -> bool {
        let next = self.arrivals.next_sequence;
        let (word, bit) = ((sequence % WINDOW / 64) as usize, 1u64 << (sequence % 64));
        if sequence == next {
            // In order: whatever its mark said was of a window ago.
            self.arrivals.next_sequence = sequence + 1;
            self.seen[word] |= bit;
            return false;
        }
        if sequence > next {
            self.forget(next, sequence);
            self.arrivals.next_sequence = sequence + 1;
        } else if next - sequence > WINDOW {
            self.arrivals.reordered += 1;
            return false;
        }
        let seen = self.seen[word] & bit != 0;
        self.seen[word] |= bit;
        if sequence < next && !seen {
            self.arrivals.reordered += 1;
        }
        seen
    }

    /// Clears the marks of `from..=to`, which the window now covers anew.
    fn forget(&mut self, from: u64, to: u64) {
        if to - from >= WINDOW {
            self.seen.fill(0);
            return;
        }
        for sequence in from..=to {
            self.seen[(sequence % WINDOW / 64) as usize] &= !(1u64 << (sequence % 64));
        }
    }

    /// Counts so far.
    pub fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// One-way delays.
    pub fn delay(&self) -> &Histogram {
        &self.delay
    }

    /// Gaps between arrivals.
    pub fn gap(&self) -> &Histogram {
        &self.gap
    }

    /// Delay and gap against time.
    pub fn trend(&self) -> &Trend {
        &self.trend
    }

    /// Bytes against time.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// When the connection began.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// How long ago something last arrived; since the start if nothing has.
    pub fn quiet(&self, now: Instant) -> Span {
        now.since(self.arrivals.last.unwrap_or(self.start))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::message::Kind;

    fn header(sequence: u64) -> Header {
        Header { sequence, sent: Instant::ZERO, length: 100, response: 0, kind: Kind::Pattern }
    }

    fn meter(sequences: impl IntoIterator<Item = u64>) -> Arrivals {
        let mut m = Meter::new(Instant::ZERO);
        for (i, s) in sequences.into_iter().enumerate() {
            m.arrive(&header(s), Instant::from_ns(1000 * i as u64));
        }
        *m.arrivals()
    }

    #[test]
    fn loss_duplication_and_reordering_are_told_apart() {
        // 2 is lost, 3 comes twice, 4 comes behind 5.
        let a = meter([0, 1, 3, 3, 5, 4, 6]);
        assert_eq!((a.messages, a.duplicated, a.reordered, a.next_sequence), (6, 1, 1, 7));
        assert_eq!((a.bytes, a.first, a.last), (600, Some(Instant::ZERO), Some(Instant::from_ns(6000))));
    }

    #[test]
    fn a_jump_past_the_window_is_only_loss() {
        let a = meter([0, WINDOW * 5, WINDOW * 5 + 1, WINDOW * 5, 7]);
        assert_eq!((a.messages, a.duplicated, a.reordered), (4, 1, 1));
    }

    proptest! {
        #[test]
        fn counts_agree_with_a_set(sequences in proptest::collection::vec(0u64..300, 0..400)) {
            let unique: BTreeSet<_> = sequences.iter().copied().collect();
            let mut highest = None;
            let mut seen = BTreeSet::new();
            let mut behind = 0;
            for &s in &sequences {
                if seen.insert(s) && highest.is_some_and(|h| s < h) { behind += 1; }
                highest = highest.max(Some(s));
            }
            let a = meter(sequences.iter().copied());
            prop_assert_eq!(a.messages, unique.len() as u64);
            prop_assert_eq!(a.duplicated, (sequences.len() - unique.len()) as u64);
            prop_assert_eq!(a.reordered, behind);
        }
    }
}
