//! Growth of counters that a device reports, derived from pairs of readings.
//!
//! | module | contents |
//! | --- | --- |
//! | [`table`] | table-level state: restarts, stale caches, late and missed polls, age of answers |
//! | [`mod@column`] | column-level state: growth, or the event that makes it unknown |
//!
//! A **table** is the set of objects that one device is polled for in one request; its columns share their
//! timestamps. Readings are stored, not rates. Two readings make a [`Growth`], whose rate lies between two bounds:
//! the agent sampled the counter at an unknown time between request and answer, and its cache may be old. Anything
//! that makes the growth unknown (a restart, a reset, an ambiguous wrap) is an [`Event`] instead of a spike.
//!
//! The module reads no clock: the same responses give the same growth.

use std::fmt;
use std::time::Duration;

pub mod column;
pub mod table;

pub use column::ColumnTracker;
pub use table::{RefreshPeriod, TableStatus, TableTracker};

/// A time in nanoseconds since 1970-01-01T00:00:00 UTC, up to the year 2262.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The earliest timestamp.
    pub const MIN: Timestamp = Timestamp(i64::MIN);
    /// The latest timestamp.
    pub const MAX: Timestamp = Timestamp(i64::MAX);

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    pub fn duration_since(self, earlier: Timestamp) -> Duration {
        let ns = i128::from(self.0) - i128::from(earlier.0);
        Duration::from_nanos(u64::try_from(ns.max(0)).expect("two timestamps are less than 2^64 ns apart"))
    }

    /// Adds a duration, up to [`Timestamp::MAX`].
    pub fn saturating_add(self, span: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)))
    }

    /// Subtracts a duration, down to [`Timestamp::MIN`].
    pub fn saturating_sub(self, span: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)))
    }
}

/// The type of a column. Archives store the position in [`ValueKind::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A counter that wraps at 2^32 (RFC 2578, section 7.1.6).
    Counter32,
    /// A counter that wraps at 2^64, which does not happen in practice (RFC 2578, section 7.1.10).
    Counter64,
    /// A signed integer that increases and decreases.
    Gauge,
    /// A floating-point number.
    Real,
}

impl ValueKind {
    /// All kinds, in the order of their stored numbers.
    pub const ALL: [ValueKind; 4] =
        [ValueKind::Counter32, ValueKind::Counter64, ValueKind::Gauge, ValueKind::Real];

    /// Returns whether two readings give a growth.
    pub fn is_counter(self) -> bool {
        matches!(self, ValueKind::Counter32 | ValueKind::Counter64)
    }
}

// A kind is stored as its discriminant.
const _: () = {
    let mut number = 0;
    while number < ValueKind::ALL.len() {
        assert!(ValueKind::ALL[number] as usize == number);
        number += 1;
    }
};

/// The 64 bits of a reading; the column's [`ValueKind`] gives their meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawValue(pub u64);

impl RawValue {
    /// Creates a value from a gauge.
    pub fn from_gauge(value: i64) -> RawValue {
        RawValue(value as u64)
    }

    /// Creates a value from a floating-point number and keeps its bits, including those of NaN.
    pub fn from_real(value: f64) -> RawValue {
        RawValue(value.to_bits())
    }

    /// Converts to a number for plots; integers beyond 2^53 are rounded.
    pub fn to_f64(self, kind: ValueKind) -> f64 {
        match kind {
            ValueKind::Counter32 | ValueKind::Counter64 => self.0 as f64,
            ValueKind::Gauge => self.0 as i64 as f64,
            ValueKind::Real => f64::from_bits(self.0),
        }
    }
}

/// The properties of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The type of its values.
    pub kind: ValueKind,
    /// The most that it can count per second: the line speed in the counter's unit. `None` if unknown. A value that
    /// is too low makes valid growth look like a reset.
    pub ceiling: Option<u64>,
    /// The position of the column that holds this object's discontinuity time (`ifCounterDiscontinuityTime`).
    pub discontinuity: Option<usize>,
}

impl Column {
    /// Creates a column without ceiling and discontinuity time.
    pub fn new(kind: ValueKind) -> Column {
        Column { kind, ceiling: None, discontinuity: None }
    }
}

/// One poll of a table and its answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Response {
    /// When the request was due.
    pub due_at: Timestamp,
    /// When the request was sent.
    pub requested_at: Timestamp,
    /// The answer; `None` if the request timed out.
    pub answer: Option<Answer>,
}

/// The answer to a poll.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// When it arrived.
    pub answered_at: Timestamp,
    /// The agent's uptime (`sysUpTime`) in hundredths of a second, modulo 2^32.
    pub uptime: Option<u32>,
    /// One value per column; `None` where the object was missing.
    pub values: Vec<Option<RawValue>>,
}

/// The interval in which the agent sampled a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeWindow {
    /// When the request was sent, minus the age that the agent's cache may have.
    pub earliest: Timestamp,
    /// When the answer arrived.
    pub latest: Timestamp,
}

/// The growth of a counter between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The number of units counted.
    pub amount: u64,
    /// When the first value was sampled.
    pub from: TimeWindow,
    /// When the second value was sampled.
    pub to: TimeWindow,
    /// Whether answers or the object were missing between the two readings.
    pub over_gap: bool,
}

impl Growth {
    /// Returns the lowest possible rate per second.
    pub fn min_rate(&self) -> f64 {
        rate(self.amount, self.to.latest.duration_since(self.from.earliest))
    }

    /// Returns the highest possible rate per second; infinite if both values may be of the same time.
    pub fn max_rate(&self) -> f64 {
        rate(self.amount, self.to.earliest.duration_since(self.from.latest))
    }

    /// Returns the time from the first answer to the second.
    pub fn duration(&self) -> Duration {
        self.to.latest.duration_since(self.from.latest)
    }
}

fn rate(by: u64, over: Duration) -> f64 {
    match (by, over.as_nanos()) {
        (0, _) => 0.0,
        (_, 0) => f64::INFINITY,
        (by, ns) => by as f64 * 1e9 / ns as f64,
    }
}

/// An event that explains or prevents a growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Event {
    /// A 32-bit counter wrapped, and can have done so only once: its growth is known.
    Wrap,
    /// The counter may have wrapped several times: no growth.
    Ambiguous,
    /// The agent restarted and its counters kept their values: their growth is known.
    Restart,
    /// The agent and its counters restarted: no growth.
    ResetByRestart,
    /// The discontinuity time of the object changed: no growth.
    Discontinuity,
    /// A counter decreased, or grew by more than its line carries, and the agent reports no reset: no growth.
    UnannouncedReset,
    /// The poll had no answer. Reported for every such poll.
    Silent,
    /// The answer lacked the object. Reported for the first such answer.
    Absent,
    /// The agent answered from its cache while the table was changing: a later reading shows the growth.
    Stale,
    /// The request was sent later than due by more than a tenth of the period.
    Late,
    /// Polls before this one were not sent.
    Missed,
}

impl Event {
    /// All events, in the order of their bits.
    pub const ALL: [Event; 11] = [
        Event::Wrap,
        Event::Ambiguous,
        Event::Restart,
        Event::ResetByRestart,
        Event::Discontinuity,
        Event::UnannouncedReset,
        Event::Silent,
        Event::Absent,
        Event::Stale,
        Event::Late,
        Event::Missed,
    ];

    /// Returns the name used in tables and exports.
    pub fn name(self) -> &'static str {
        match self {
            Event::Wrap => "wrap",
            Event::Ambiguous => "ambiguous",
            Event::Restart => "restart",
            Event::ResetByRestart => "reset-restart",
            Event::Discontinuity => "discontinuity",
            Event::UnannouncedReset => "reset-unsaid",
            Event::Silent => "silent",
            Event::Absent => "absent",
            Event::Stale => "stale",
            Event::Late => "late",
            Event::Missed => "missed",
        }
    }
}

/// A set of events.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct EventSet(u16);

impl EventSet {
    /// The empty set.
    pub const EMPTY: EventSet = EventSet(0);

    /// Adds an event.
    pub fn insert(&mut self, event: Event) {
        self.0 |= 1 << event as u8;
    }

    /// Adds all events of another set.
    pub fn extend(&mut self, other: EventSet) {
        self.0 |= other.0;
    }

    /// Returns whether the set contains `event`.
    pub fn contains(self, event: Event) -> bool {
        self.0 & (1 << event as u8) != 0
    }

    /// Returns whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the events in the set.
    pub fn iter(self) -> impl Iterator<Item = Event> {
        Event::ALL.into_iter().filter(move |e| self.contains(*e))
    }

    /// Returns the set as bits; bit 0 is the first of [`Event::ALL`].
    pub fn bits(self) -> u16 {
        self.0
    }

    /// Creates a set from bits and ignores unknown ones.
    pub fn from_bits(bits: u16) -> EventSet {
        EventSet(bits & ((1 << Event::ALL.len()) - 1))
    }
}

impl FromIterator<Event> for EventSet {
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> EventSet {
        let mut set = EventSet::EMPTY;
        events.into_iter().for_each(|e| set.insert(e));
        set
    }
}

impl fmt::Debug for EventSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The response was sent before the previous answer arrived, or answered before it was sent. The poller needs a
/// monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the responses of a table are out of order")]
pub struct OutOfOrder;
