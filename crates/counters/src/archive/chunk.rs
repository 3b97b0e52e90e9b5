//! Chunks: about a thousand responses of a table, column by column.
//!
//! A chunk is two BLOBs of the same build ([`bytes`](super::bytes)), a directory and parts with a checksum each, so that
//! one series is read without the rest:
//!
//! - the **body**: part 0 has the times of the responses and what was found out about the table, part 1 + *n* the
//!   column at position *n*, with what its [`Tracker`] knew when the chunk began;
//! - the **summary**: part *n* sums up the column at position *n*.

use std::time::Duration;

use super::bytes::{Damage, Input, Source, join, part, parts, put, put_signed, put_wide};
use super::numbers;
use super::row::Row;
use super::summary::{Range, Summary};
use crate::counter::track::Step;
use crate::counter::{Column, Events, Kind, Moment, Raw, Tracker, Window};

/// Most responses in a chunk; no chunk says that it has more.
pub const MOST_ROWS: usize = 4_096;

/// One column of a chunk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// What its tracker knew when the chunk began.
    pub tracker: Tracker,
    /// A value for each row.
    pub values: Vec<Option<Raw>>,
}

/// A column's summary over a chunk.
#[derive(Clone, Debug, PartialEq)]
pub struct Digest {
    /// Where what it sums up begins: growth may have begun before the chunk.
    pub begin: Moment,
    /// Where it ends.
    pub end: Moment,
    /// The sums.
    pub summary: Summary,
}

/// Walks through a column: `each` is given every row and what followed from it. Returns the tracker at the end.
pub fn walk(
    column: &Column,
    part: &Part,
    marks: Option<&Part>,
    rows: &[Row],
    mut each: impl FnMut(&Row, &Step),
) -> Tracker {
    let mut tracker = part.tracker;
    for (at, row) in rows.iter().enumerate() {
        let value = part.values.get(at).copied().flatten();
        let mark = marks.and_then(|m| m.values.get(at).copied().flatten());
        each(row, &tracker.step(column, &row.verdict(), value, mark));
    }
    tracker
}

/// A chunk as it is stored.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub body: Vec<u8>,
    pub summary: Vec<u8>,
    /// The earliest begin of any of its digests.
    pub reach: Moment,
}

/// Seals rows, of which there must be at least one, and columns: for each what its tracker knows, and its values.
/// The trackers are left as they are after the last row.
pub(crate) fn seal(columns: &[Column], rows: &[Row], data: &mut [Part]) -> Sealed {
    let mut bodies = vec![times(rows)];
    let mut digests = Vec::new();
    let mut reach = rows[0].at();
    let mut after = Vec::new();
    for (column, part) in columns.iter().zip(data.iter()) {
        let marks = column.mark.and_then(|at| data.get(at));
        let mut digest =
            Digest { begin: rows[0].at(), end: rows[rows.len() - 1].at(), summary: Summary::default() };
        after.push(walk(column, part, marks, rows, |row, step| {
            digest.begin = digest.begin.min(step.growth.map_or(row.at(), |g| g.from.latest));
            digest.summary.add(column.kind, step);
        }));
        reach = reach.min(digest.begin);
        bodies.push(write_part(part, column.kind, rows[0].asked));
        digests.push(write_digest(&digest));
    }
    data.iter_mut().zip(after).for_each(|(part, tracker)| part.tracker = tracker);
    Sealed { body: join(&bodies), summary: join(&digests), reach }
}

fn times(rows: &[Row]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, rows.len() as u64);
    let mut column = |of: &dyn Fn(&Row) -> i64| {
        let values: Vec<u64> = rows.iter().map(|row| of(row) as u64).collect();
        numbers::write(&mut out, &values, Kind::Gauge);
    };
    column(&|row| row.due.0);
    column(&|row| row.asked.0.wrapping_sub(row.due.0));
    column(&|row| row.age.as_nanos() as i64);
    column(&|row| i64::from(row.flags()));
    let mut some = |of: &dyn Fn(&Row) -> Option<i64>| {
        let values: Vec<_> = rows.iter().map(|row| of(row).map(Raw::gauge)).collect();
        numbers::write_some(&mut out, &values, Kind::Gauge);
    };
    some(&|row| row.answered.map(|answered| answered.0.wrapping_sub(row.asked.0)));
    some(&|row| row.uptime.map(i64::from));
    out
}

/// The rows of a body.
pub fn read_rows(body: &impl Source) -> Result<Vec<Row>, Damage> {
    let bytes = part(body, 0)?.ok_or(Damage::Short)?;
    let input = &mut Input(&bytes);
    let count = input.count(MOST_ROWS)?;
    let mut rows = vec![Row::default(); count];
    let mut column = |set: &dyn Fn(&mut Row, u64)| -> Result<(), Damage> {
        let values = numbers::read(input, count)?;
        rows.iter_mut().zip(values).for_each(|(row, value)| set(row, value));
        Ok(())
    };
    column(&|row, v| row.due = Moment(v as i64))?;
    column(&|row, v| row.asked = Moment(row.due.0.wrapping_add(v as i64)))?;
    column(&|row, v| row.age = Duration::from_nanos(v))?;
    column(&|row, v| row.set_flags(v as u16))?;
    let answered = numbers::read_some(input, count)?;
    let uptime = numbers::read_some(input, count)?;
    for (row, (answered, uptime)) in rows.iter_mut().zip(answered.into_iter().zip(uptime)) {
        row.answered = answered.map(|a| Moment(row.asked.0.wrapping_add(a.0 as i64)));
        row.uptime = uptime.map(|u| u.0 as u32);
    }
    Ok(rows)
}

const ANCHORED: u8 = 1;
const MARKED: u8 = 2;
const GAP: u8 = 4;

/// A tracker's state, relative to a moment and a value close to its own.
pub(crate) fn write_tracker(out: &mut Vec<u8>, tracker: &Tracker, base: Moment) {
    let flag = |is: bool, bit| if is { bit } else { 0 };
    out.push(
        flag(tracker.anchor.is_some(), ANCHORED)
            | flag(tracker.mark.is_some(), MARKED)
            | flag(tracker.gap, GAP),
    );
    if let Some((window, value)) = tracker.anchor {
        put_signed(out, base.0.wrapping_sub(window.latest.0));
        put_signed(out, window.latest.0.wrapping_sub(window.earliest.0));
        put(out, value.0);
    }
    if let Some(mark) = tracker.mark {
        put(out, mark.0);
    }
}

pub(crate) fn read_tracker(input: &mut Input<'_>, base: Moment) -> Result<Tracker, Damage> {
    let flags = input.byte()?;
    let mut tracker = Tracker { gap: flags & GAP != 0, ..Tracker::default() };
    if flags & ANCHORED != 0 {
        let latest = Moment(base.0.wrapping_sub(input.signed()?));
        let earliest = Moment(latest.0.wrapping_sub(input.signed()?));
        tracker.anchor = Some((Window { earliest, latest }, Raw(input.take()?)));
    }
    if flags & MARKED != 0 {
        tracker.mark = Some(Raw(input.take()?));
    }
    Ok(tracker)
}

fn write_part(part: &Part, kind: Kind, base: Moment) -> Vec<u8> {
    let mut out = Vec::new();
    write_tracker(&mut out, &part.tracker, base);
    numbers::write_some(&mut out, &part.values, kind);
    out
}

/// The column at `position` of a body with these rows; a column that came to the table later has no values in it.
pub fn read_part(body: &impl Source, rows: &[Row], position: usize) -> Result<Part, Damage> {
    let Some(bytes) = part(body, position + 1)? else {
        return Ok(Part { tracker: Tracker::default(), values: vec![None; rows.len()] });
    };
    let input = &mut Input(&bytes);
    let tracker = read_tracker(input, rows.first().map_or(Moment(0), |row| row.asked))?;
    Ok(Part { tracker, values: numbers::read_some(input, rows.len())? })
}

const RANGE: u8 = 1;
const ALL_ZERO: u8 = 2;
const REAL: u8 = 4;
/// Beyond any sum of readings.
const MOST_SUM: u128 = 1 << 100;

fn write_digest(digest: &Digest) -> Vec<u8> {
    let mut out = Vec::new();
    let Summary { sum, real, samples, covered, range, events } = &digest.summary;
    let zero = *range == Some(Range::default());
    let mut flags = 0;
    flags |= if range.is_some() { RANGE } else { 0 };
    flags |= if zero { ALL_ZERO } else { 0 };
    flags |= if real.to_bits() != 0 { REAL } else { 0 };
    out.push(flags);
    put_signed(&mut out, digest.begin.0);
    put(&mut out, digest.end.0.wrapping_sub(digest.begin.0) as u64);
    put_wide(&mut out, *sum);
    put(&mut out, *samples);
    put_signed(
        &mut out,
        (digest.end.since(digest.begin).as_nanos() as i64).wrapping_sub(covered.as_nanos() as i64),
    );
    put(&mut out, u64::from(events.bits()));
    if let Some(Range { low, high, most }) = range.filter(|_| !zero) {
        [low, high, most].iter().for_each(|v| out.extend(v.to_le_bytes()));
    }
    if flags & REAL != 0 {
        out.extend(real.to_le_bytes());
    }
    out
}

/// The digest of the column at `position`; none if the column came to the table later.
pub fn read_digest(summary: &impl Source, position: usize) -> Result<Option<Digest>, Damage> {
    let Some(bytes) = part(summary, position)? else { return Ok(None) };
    let input = &mut Input(&bytes);
    let flags = input.byte()?;
    let begin = Moment(input.signed()?);
    let end = Moment(begin.0.wrapping_add(input.take()? as i64));
    let sum = input.wide()?;
    if sum.unsigned_abs() > MOST_SUM {
        return Err(Damage::Nonsense("a sum"));
    }
    let samples = input.take()?;
    let uncovered = input.signed()?;
    let covered = (end.since(begin).as_nanos() as i64).wrapping_sub(uncovered);
    let covered = u64::try_from(covered).map_err(|_| Damage::Nonsense("a coverage below nothing"))?;
    let events = Events::from_bits(input.take()? as u16);
    let range = match flags & (RANGE | ALL_ZERO) {
        RANGE => Some(Range { low: input.real()?, high: input.real()?, most: input.real()? }),
        0 => None,
        _ => Some(Range::default()),
    };
    let real = if flags & REAL != 0 { input.real()? } else { 0.0 };
    let covered = Duration::from_nanos(covered);
    Ok(Some(Digest { begin, end, summary: Summary { sum, real, samples, covered, range, events } }))
}

/// Reads everything that a body or a summary says, as a fuzzer or a check does; how many columns it has.
pub fn check(bytes: &[u8]) -> Result<usize, Damage> {
    let parts = parts(&bytes)?;
    let rows = read_rows(&bytes)?;
    for position in 0..parts.saturating_sub(1) {
        let part = read_part(&bytes, &rows, position)?;
        for kind in [Kind::Counter32, Kind::Counter64, Kind::Gauge] {
            let mut summary = Summary::default();
            walk(&Column::new(kind), &part, Some(&part), &rows, |_, step| summary.add(kind, step));
        }
    }
    Ok(parts.saturating_sub(1))
}
