//! Measurements of a sender: departures, and their delay after the due time.
//!
//! [`SenderMeter::record_send`] is the hot path, called once for each message, without allocation. At full speed messages
//! leave in batches ([`SenderMeter::record_batch`]), which have neither gaps nor lateness.

use trunkline_record::Histogram;
use trunkline_traffic::source::Message;
use trunkline_units::Instant;

use crate::series::Series;

/// Measures one sender.
#[derive(Clone, Debug)]
pub struct SenderMeter {
    start: Instant,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    last_departure: Option<Instant>,
    /// Gaps between departures.
    pub(crate) gap: Histogram,
    /// Delays of departures after their due time.
    pub(crate) lateness: Histogram,
    /// Bytes over time.
    pub(crate) series: Series,
}

impl SenderMeter {
    /// Creates a meter whose series begins at `start`.
    pub fn new(start: Instant) -> Self {
        SenderMeter {
            start,
            messages: 0,
            bytes: 0,
            last_departure: None,
            gap: Histogram::default(),
            lateness: Histogram::default(),
            series: Series::default(),
        }
    }

    /// Records a message handed to the transport at `now`. Does not allocate in the steady state.
    #[inline(always)]
    pub fn record_send(&mut self, message: &Message, now: Instant) {
        self.messages += 1;
        self.bytes += u64::from(message.size);
        if let Some(last) = self.last_departure.replace(now) {
            self.gap.record(now.since(last));
        }
        self.lateness.record(now.since(message.due));
        self.series.add(now.since(self.start), u64::from(message.size));
    }

    /// Records `count` messages of `size` bytes handed over in one call.
    #[inline]
    pub fn record_batch(&mut self, size: u32, count: u64, now: Instant) {
        let bytes = u64::from(size) * count;
        self.messages += count;
        self.bytes += bytes;
        self.last_departure = Some(now);
        self.series.add(now.since(self.start), bytes);
    }

    /// Returns the time of the last departure, or the start.
    pub(crate) fn last_departure(&self) -> Instant {
        self.last_departure.unwrap_or(self.start)
    }

    /// Returns the start of the connection.
    pub fn start(&self) -> Instant {
        self.start
    }
}
