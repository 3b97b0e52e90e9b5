//! Counters told honestly: what follows from pairs of readings of somebody else's counters, and what does not.
//!
//! | module | what |
//! | --- | --- |
//! | [`judge`] | what a response says of the whole table: restart, stale cache, late, missed, how old it may be |
//! | [`track`] | what follows for one column: growth, or the event that forbids one |
//!
//! A **table** is what one device is asked in one go: its columns share their times. A reading is never turned into a
//! rate and thrown away; two readings make a [`Growth`], whose rate lies between two bounds, because nobody knows when
//! between question and answer the agent looked, nor how old its cache was. What would be a spike elsewhere is an
//! [`Event`] here.
//!
//! Time is an argument, and so is everything else: the same responses give the same growth.

use std::fmt;
use std::time::Duration;

pub mod judge;
pub mod track;

pub use judge::{Judge, Refresh, Verdict};
pub use track::Tracker;

/// A moment: nanoseconds since 1970-01-01T00:00:00 UTC, up to the year 2262.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub i64);

impl Moment {
    /// The earliest moment that can be told.
    pub const FIRST: Moment = Moment(i64::MIN);
    /// The latest.
    pub const LAST: Moment = Moment(i64::MAX);

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Moment) -> Duration {
        let ns = i128::from(self.0) - i128::from(earlier.0);
        Duration::from_nanos(u64::try_from(ns.max(0)).expect("two moments are less than 2^64 ns apart"))
    }

    /// So much later, at most [`Moment::LAST`].
    pub fn after(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)))
    }

    /// So much earlier, at least [`Moment::FIRST`].
    pub fn before(self, span: Duration) -> Moment {
        Moment(self.0.saturating_sub(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)))
    }
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Counts up and wraps at 2^32 (RFC 2578, section 7.1.6).
    Counter32,
    /// Counts up; 2^64 is beyond what is counted in a lifetime (RFC 2578, section 7.1.10).
    Counter64,
    /// A signed integer that goes up and down.
    Gauge,
    /// A number that is no integer.
    Real,
}

impl Kind {
    /// Whether readings make growth.
    pub fn counts(self) -> bool {
        matches!(self, Kind::Counter32 | Kind::Counter64)
    }
}

/// A value as it was read, 64 bits: which bits is the column's [`Kind`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Raw(pub u64);

impl Raw {
    /// Of a gauge.
    pub fn gauge(value: i64) -> Raw {
        Raw(value as u64)
    }

    /// Of a real number; any bits, also of what is no number, are kept.
    pub fn real(value: f64) -> Raw {
        Raw(value.to_bits())
    }

    /// As a number to plot: a gauge or counter beyond 2^53 is rounded.
    pub fn number(self, kind: Kind) -> f64 {
        match kind {
            Kind::Counter32 | Kind::Counter64 => self.0 as f64,
            Kind::Gauge => self.0 as i64 as f64,
            Kind::Real => f64::from_bits(self.0),
        }
    }
}

/// What there is to know of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// What it holds.
    pub kind: Kind,
    /// Most it can count in a second: the line's speed, in the counter's unit. None if unknown; better none than too
    /// little, for growth beyond it is refused.
    pub ceiling: Option<u64>,
    /// The column of the same table that says when this one last lost its count (`ifCounterDiscontinuityTime`).
    pub mark: Option<usize>,
}

impl Column {
    /// A column of which nothing else is known.
    pub fn new(kind: Kind) -> Column {
        Column { kind, ceiling: None, mark: None }
    }
}

/// One poll of a table and what came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Response {
    /// When it should have been asked.
    pub due: Moment,
    /// When the request left.
    pub asked: Moment,
    /// What came back; none if nothing did.
    pub answer: Option<Answer>,
}

/// What came back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// When.
    pub answered: Moment,
    /// How long the agent says it has run: `sysUpTime`, hundredths of a second modulo 2^32.
    pub uptime: Option<u32>,
    /// A value a column; none where the object was missing.
    pub values: Vec<Option<Raw>>,
}

/// A value was true at some moment from `earliest` to `latest`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// When the request left, less the age that the agent's cache may have.
    pub earliest: Moment,
    /// When the answer came.
    pub latest: Moment,
}

/// What a counter grew by between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// By so many.
    pub by: u64,
    /// When the first value was true.
    pub from: Window,
    /// When the second was.
    pub to: Window,
    /// Whether answers or the object were missing in between.
    pub over_gap: bool,
}

impl Growth {
    /// Least the rate can have been, a second.
    pub fn least(&self) -> f64 {
        rate(self.by, self.to.latest.since(self.from.earliest))
    }

    /// Most it can have been; infinite if both values may be of one moment.
    pub fn most(&self) -> f64 {
        rate(self.by, self.to.earliest.since(self.from.latest))
    }

    /// How long it took, taken from answer to answer.
    pub fn length(&self) -> Duration {
        self.to.latest.since(self.from.latest)
    }
}

fn rate(by: u64, over: Duration) -> f64 {
    match (by, over.as_nanos()) {
        (0, _) => 0.0,
        (_, 0) => f64::INFINITY,
        (by, ns) => by as f64 * 1e9 / ns as f64,
    }
}

/// What happened, instead of a spike or a lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Event {
    /// A 32-bit counter passed 2^32, and can have done so only once: its growth is known.
    Wrap,
    /// It may have passed 2^32 more often than can be told: no growth.
    Ambiguous,
    /// The agent began anew and the counters went on: their growth is counted.
    Restart,
    /// The agent began anew and with it the counters: no growth.
    ResetByRestart,
    /// The agent says that this object lost its count: no growth.
    Discontinuity,
    /// A counter went back, or grew by more than its line carries, and the agent says nothing: no growth.
    Unsaid,
    /// No answer came. Told of each poll without one.
    Silent,
    /// The answer lacked the object. Told when it begins.
    Absent,
    /// The agent's cache answered, of a busy table: what grew is told by a later reading.
    Stale,
    /// The request left later than due by more than a tenth of the period.
    Late,
    /// Polls that were due before this one never left.
    Missed,
}

impl Event {
    /// All of them.
    pub const ALL: [Event; 11] = [
        Event::Wrap,
        Event::Ambiguous,
        Event::Restart,
        Event::ResetByRestart,
        Event::Discontinuity,
        Event::Unsaid,
        Event::Silent,
        Event::Absent,
        Event::Stale,
        Event::Late,
        Event::Missed,
    ];

    /// Its name in tables and exports.
    pub fn name(self) -> &'static str {
        match self {
            Event::Wrap => "wrap",
            Event::Ambiguous => "ambiguous",
            Event::Restart => "restart",
            Event::ResetByRestart => "reset-restart",
            Event::Discontinuity => "discontinuity",
            Event::Unsaid => "reset-unsaid",
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
pub struct Events(u16);

impl Events {
    /// None.
    pub const NONE: Events = Events(0);

    /// Puts one in.
    pub fn add(&mut self, event: Event) {
        self.0 |= 1 << event as u8;
    }

    /// Puts all of another in.
    pub fn join(&mut self, other: Events) {
        self.0 |= other.0;
    }

    /// Whether it holds `event`.
    pub fn has(self, event: Event) -> bool {
        self.0 & (1 << event as u8) != 0
    }

    /// Whether it holds none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those in it.
    pub fn iter(self) -> impl Iterator<Item = Event> {
        Event::ALL.into_iter().filter(move |e| self.has(*e))
    }

    /// As bits, bit 0 the first of [`Event::ALL`].
    pub fn bits(self) -> u16 {
        self.0
    }

    /// From bits; those that mean nothing are left out.
    pub fn from_bits(bits: u16) -> Events {
        Events(bits & ((1 << Event::ALL.len()) - 1))
    }
}

impl FromIterator<Event> for Events {
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> Events {
        let mut set = Events::NONE;
        events.into_iter().for_each(|e| set.add(e));
        set
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The response was not asked after the one before it was answered, or answered before it was asked. Who polls needs a
/// clock that never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the responses of a table are not in order of time")]
pub struct Disorder;
