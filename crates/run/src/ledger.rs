//! What a sender measures: when messages left, and how late.

use trunkline_record::Histogram;
use trunkline_traffic::source::Message;
use trunkline_units::Instant;

use crate::series::Series;

/// Measures one sending end.
#[derive(Clone, Debug)]
pub struct Ledger {
    start: Instant,
    messages: u64,
    bytes: u64,
    last: Option<Instant>,
    gap: Histogram,
    late: Histogram,
    series: Series,
}

impl Ledger {
    /// A ledger whose series begins at `start`.
    pub fn new(start: Instant) -> Self {
        Ledger {
            start,
            messages: 0,
            bytes: 0,
            last: None,
            gap: Histogram::default(),
            late: Histogram::default(),
            series: Series::default(),
        }
    }

    /// Counts a message handed to the transport at `now`. Allocates nothing in the steady state.
    #[inline(always)]
    pub fn depart(&mut self, message: &Message, now: Instant) {
        self.messages += 1;
        self.bytes += u64::from(message.size);
        if let Some(last) = self.last.replace(now) {
            self.gap.record(now.since(last));
        }
        self.late.record(now.since(message.due));
        self.series.add(now.since(self.start), u64::from(message.size));
    }

    /// Counts `count` equal messages handed over in one call.
    #[inline]
    pub fn depart_batch(&mut self, size: u32, count: u64, now: Instant) {
        let bytes = u64::from(size) * count;
        self.messages += count;
        self.bytes += bytes;
        self.last = Some(now);
        self.series.add(now.since(self.start), bytes);
    }

    /// Messages handed over.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When the last left; the start if none did.
    pub fn last(&self) -> Instant {
        self.last.unwrap_or(self.start)
    }

    /// When the connection began.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// Gaps between departures.
    pub fn gap(&self) -> &Histogram {
        &self.gap
    }

    /// Lateness.
    pub fn late(&self) -> &Histogram {
        &self.late
    }

    /// Bytes against time.
    pub fn series(&self) -> &Series {
        &self.series
    }
}
