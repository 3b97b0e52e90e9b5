//! Chunks: about a thousand responses of a table, stored by column.
//!
//! A chunk consists of two BLOBs in the same container format ([`bytes`](super::encoding)): a directory and parts with a
//! checksum each, so that one series can be read without the others.
//!
//! - The **body**: part 0 holds the times and the status of the responses, part 1 + *n* the column at position *n*
//!   with the state of its [`ColumnTracker`] at the start of the chunk.
//! - The **summary**: part *n* summarizes the column at position *n*.

use std::time::Duration;

use super::encoding::{
    ByteSource, DecodeError, Decoder, decode_part, encode_parts, part_count, put_varint, put_zigzag,
    put_zigzag128,
};
use super::row::Row;
use super::summary::{Range, Summary};
use super::{MAX_CHUNK_ROWS, numbers};
use crate::counter::column::Update;
use crate::counter::{Column, ColumnTracker, EventSet, RawValue, TimeWindow, Timestamp, ValueKind};

/// One column of a chunk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColumnData {
    /// The state of its tracker at the start of the chunk.
    pub tracker: ColumnTracker,
    /// One value per row.
    pub values: Vec<Option<RawValue>>,
}

/// The summary of a column over a chunk.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnSummary {
    /// Start of the summarized time, which may be before the chunk because of growth.
    pub begin: Timestamp,
    /// End of the summarized time.
    pub end: Timestamp,
    /// The summary.
    pub summary: Summary,
}

/// Replays a column: calls `each` with every row and its update. Returns the tracker at the end.
pub fn replay(
    column: &Column,
    part: &ColumnData,
    discontinuities: Option<&ColumnData>,
    rows: &[Row],
    mut on_row: impl FnMut(&Row, &Update),
) -> ColumnTracker {
    let mut tracker = part.tracker;
    for (at, row) in rows.iter().enumerate() {
        let value = part.values.get(at).copied().flatten();
        let discontinuity = discontinuities.and_then(|m| m.values.get(at).copied().flatten());
        on_row(row, &tracker.update(column, &row.status(), value, discontinuity));
    }
    tracker
}

#[derive(Debug)]
pub(crate) struct EncodedChunk {
    pub body: Vec<u8>,
    pub summary: Vec<u8>,
    /// The earliest start of any of its column summaries.
    pub reach: Timestamp,
}

/// Encodes at least one row with the columns, each with its tracker and values. Afterwards the trackers are in the
/// state after the last row.
pub(crate) fn encode_chunk(columns: &[Column], rows: &[Row], data: &mut [ColumnData]) -> EncodedChunk {
    let mut bodies = vec![encode_times(rows)];
    let mut digests = Vec::new();
    let mut reach = rows[0].time();
    let mut after = Vec::new();
    for (column, part) in columns.iter().zip(data.iter()) {
        let discontinuities = column.discontinuity.and_then(|at| data.get(at));
        let mut digest = ColumnSummary {
            begin: rows[0].time(),
            end: rows[rows.len() - 1].time(),
            summary: Summary::default(),
        };
        after.push(replay(column, part, discontinuities, rows, |row, step| {
            digest.begin = digest.begin.min(step.growth.map_or(row.time(), |g| g.from.latest));
            digest.summary.add(column.kind, step);
        }));
        reach = reach.min(digest.begin);
        bodies.push(encode_column(part, column.kind, rows[0].requested_at));
        digests.push(encode_summary(&digest));
    }
    data.iter_mut().zip(after).for_each(|(part, tracker)| part.tracker = tracker);
    EncodedChunk { body: encode_parts(&bodies), summary: encode_parts(&digests), reach }
}

fn encode_times(rows: &[Row]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, rows.len() as u64);
    let mut column = |of: &dyn Fn(&Row) -> i64| {
        let values: Vec<u64> = rows.iter().map(|row| of(row) as u64).collect();
        numbers::encode(&mut out, &values, ValueKind::Gauge);
    };
    column(&|row| row.due_at.0);
    column(&|row| row.requested_at.0.wrapping_sub(row.due_at.0));
    column(&|row| row.max_age.as_nanos() as i64);
    column(&|row| i64::from(row.flags()));
    let mut some = |of: &dyn Fn(&Row) -> Option<i64>| {
        let values: Vec<_> = rows.iter().map(|row| of(row).map(RawValue::from_gauge)).collect();
        numbers::encode_optional(&mut out, &values, ValueKind::Gauge);
    };
    some(&|row| row.answered_at.map(|answered| answered.0.wrapping_sub(row.requested_at.0)));
    some(&|row| row.uptime.map(i64::from));
    out
}

/// Decodes the rows of a body.
pub fn decode_rows(body: &impl ByteSource) -> Result<Vec<Row>, DecodeError> {
    let bytes = decode_part(body, 0)?.ok_or(DecodeError::Truncated)?;
    let input = &mut Decoder(&bytes);
    let count = input.count(MAX_CHUNK_ROWS)?;
    let mut rows = vec![Row::default(); count];
    let mut column = |set: &dyn Fn(&mut Row, u64)| -> Result<(), DecodeError> {
        let values = numbers::decode(input, count)?;
        rows.iter_mut().zip(values).for_each(|(row, value)| set(row, value));
        Ok(())
    };
    column(&|row, v| row.due_at = Timestamp(v as i64))?;
    column(&|row, v| row.requested_at = Timestamp(row.due_at.0.wrapping_add(v as i64)))?;
    column(&|row, v| row.max_age = Duration::from_nanos(v))?;
    column(&|row, v| row.set_flags(v as u16))?;
    let answered = numbers::decode_optional(input, count)?;
    let uptime = numbers::decode_optional(input, count)?;
    for (row, (answered, uptime)) in rows.iter_mut().zip(answered.into_iter().zip(uptime)) {
        row.answered_at = answered.map(|a| Timestamp(row.requested_at.0.wrapping_add(a.0 as i64)));
        row.uptime = uptime.map(|u| u.0 as u32);
    }
    Ok(rows)
}

const HAS_BASELINE: u8 = 1;
const HAS_DISCONTINUITY: u8 = 2;
const HAS_GAP: u8 = 4;

/// Encodes a tracker relative to a timestamp close to its own.
pub(crate) fn encode_tracker(out: &mut Vec<u8>, tracker: &ColumnTracker, base: Timestamp) {
    let flag = |is: bool, bit| if is { bit } else { 0 };
    out.push(
        flag(tracker.baseline.is_some(), HAS_BASELINE)
            | flag(tracker.discontinuity.is_some(), HAS_DISCONTINUITY)
            | flag(tracker.has_gap, HAS_GAP),
    );
    if let Some((window, value)) = tracker.baseline {
        put_zigzag(out, base.0.wrapping_sub(window.latest.0));
        put_zigzag(out, window.latest.0.wrapping_sub(window.earliest.0));
        put_varint(out, value.0);
    }
    if let Some(discontinuity) = tracker.discontinuity {
        put_varint(out, discontinuity.0);
    }
}

pub(crate) fn decode_tracker(input: &mut Decoder<'_>, base: Timestamp) -> Result<ColumnTracker, DecodeError> {
    let flags = input.byte()?;
    let mut tracker = ColumnTracker { has_gap: flags & HAS_GAP != 0, ..ColumnTracker::default() };
    if flags & HAS_BASELINE != 0 {
        let latest = Timestamp(base.0.wrapping_sub(input.zigzag()?));
        let earliest = Timestamp(latest.0.wrapping_sub(input.zigzag()?));
        tracker.baseline = Some((TimeWindow { earliest, latest }, RawValue(input.varint()?)));
    }
    if flags & HAS_DISCONTINUITY != 0 {
        tracker.discontinuity = Some(RawValue(input.varint()?));
    }
    Ok(tracker)
}

fn encode_column(part: &ColumnData, kind: ValueKind, base: Timestamp) -> Vec<u8> {
    let mut out = Vec::new();
    encode_tracker(&mut out, &part.tracker, base);
    numbers::encode_optional(&mut out, &part.values, kind);
    out
}

/// Decodes the column at `position` of a body with these rows. A column that was added to the table later has no
/// values.
pub fn decode_column(
    body: &impl ByteSource,
    rows: &[Row],
    position: usize,
) -> Result<ColumnData, DecodeError> {
    let Some(bytes) = decode_part(body, position + 1)? else {
        return Ok(ColumnData { tracker: ColumnTracker::default(), values: vec![None; rows.len()] });
    };
    let input = &mut Decoder(&bytes);
    let tracker = decode_tracker(input, rows.first().map_or(Timestamp(0), |row| row.requested_at))?;
    Ok(ColumnData { tracker, values: numbers::decode_optional(input, rows.len())? })
}

const HAS_RANGE: u8 = 1;
const RANGE_IS_ZERO: u8 = 2;
const HAS_REAL_SUM: u8 = 4;
/// Exceeds every possible sum of readings.
const MAX_SUM: u128 = 1 << 100;

fn encode_summary(digest: &ColumnSummary) -> Vec<u8> {
    let mut out = Vec::new();
    let Summary { sum, real_sum: real, samples, covered, range, events } = &digest.summary;
    let zero = *range == Some(Range::default());
    let mut flags = 0;
    flags |= if range.is_some() { HAS_RANGE } else { 0 };
    flags |= if zero { RANGE_IS_ZERO } else { 0 };
    flags |= if real.to_bits() != 0 { HAS_REAL_SUM } else { 0 };
    out.push(flags);
    put_zigzag(&mut out, digest.begin.0);
    put_varint(&mut out, digest.end.0.wrapping_sub(digest.begin.0) as u64);
    put_zigzag128(&mut out, *sum);
    put_varint(&mut out, *samples);
    put_zigzag(
        &mut out,
        (digest.end.duration_since(digest.begin).as_nanos() as i64).wrapping_sub(covered.as_nanos() as i64),
    );
    put_varint(&mut out, u64::from(events.bits()));
    if let Some(Range { low, high, upper_bound: most }) = range.filter(|_| !zero) {
        [low, high, most].iter().for_each(|v| out.extend(v.to_le_bytes()));
    }
    if flags & HAS_REAL_SUM != 0 {
        out.extend(real.to_le_bytes());
    }
    out
}

/// Decodes the summary of the column at `position`; `None` if the column was added to the table later.
pub fn decode_summary(
    summary: &impl ByteSource,
    position: usize,
) -> Result<Option<ColumnSummary>, DecodeError> {
    let Some(bytes) = decode_part(summary, position)? else { return Ok(None) };
    let input = &mut Decoder(&bytes);
    let flags = input.byte()?;
    let begin = Timestamp(input.zigzag()?);
    let end = Timestamp(begin.0.wrapping_add(input.varint()? as i64));
    let sum = input.zigzag128()?;
    if sum.unsigned_abs() > MAX_SUM {
        return Err(DecodeError::Invalid("a sum"));
    }
    let samples = input.varint()?;
    let uncovered = input.zigzag()?;
    let covered = (end.duration_since(begin).as_nanos() as i64).wrapping_sub(uncovered);
    let covered = u64::try_from(covered).map_err(|_| DecodeError::Invalid("a negative coverage"))?;
    let events = EventSet::from_bits(input.varint()? as u16);
    let range = match flags & (HAS_RANGE | RANGE_IS_ZERO) {
        HAS_RANGE => Some(Range { low: input.float()?, high: input.float()?, upper_bound: input.float()? }),
        0 => None,
        _ => Some(Range::default()),
    };
    let real = if flags & HAS_REAL_SUM != 0 { input.float()? } else { 0.0 };
    let covered = Duration::from_nanos(covered);
    Ok(Some(ColumnSummary {
        begin,
        end,
        summary: Summary { sum, real_sum: real, samples, covered, range, events },
    }))
}

/// Decodes a whole body or summary and returns its number of columns. For fuzzing and checks.
pub fn validate_chunk(bytes: &[u8]) -> Result<usize, DecodeError> {
    let parts = part_count(&bytes)?;
    let rows = decode_rows(&bytes)?;
    for position in 0..parts.saturating_sub(1) {
        let part = decode_column(&bytes, &rows, position)?;
        for kind in [ValueKind::Counter32, ValueKind::Counter64, ValueKind::Gauge] {
            let mut summary = Summary::default();
            replay(&Column::new(kind), &part, Some(&part), &rows, |_, step| summary.add(kind, step));
        }
    }
    Ok(parts.saturating_sub(1))
}
