//! Responses with their status, and the encoding of flushed responses.

use std::time::Duration;

use super::encoding::{DecodeError, Decoder, decode_part, encode_parts, put_varint, put_zigzag};
use super::{MAX_CHUNK_ROWS, MAX_COLUMNS};
use crate::counter::{EventSet, RawValue, Response, TableStatus, TimeWindow, Timestamp};

/// A response without its values, with the status of its table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// When the request was due.
    pub due_at: Timestamp,
    /// When the request was sent.
    pub requested_at: Timestamp,
    /// When the answer arrived, if any.
    pub answered_at: Option<Timestamp>,
    /// The agent's uptime in hundredths of a second, modulo 2^32.
    pub uptime: Option<u32>,
    /// The maximum age of the values at the time of the request.
    pub max_age: Duration,
    /// See [`TableStatus::is_repeat`].
    pub is_repeat: bool,
    /// The events of the table.
    pub events: EventSet,
}

/// Bit of the flags beside the events.
const REPEAT: u16 = 1 << 15;

impl Row {
    pub(crate) fn new(response: &Response, status: &TableStatus) -> Row {
        let answer = response.answer.as_ref();
        Row {
            due_at: response.due_at,
            requested_at: response.requested_at,
            answered_at: answer.map(|a| a.answered_at),
            uptime: answer.and_then(|a| a.uptime),
            max_age: status
                .window
                .map_or(Duration::ZERO, |w| response.requested_at.duration_since(w.earliest)),
            is_repeat: status.is_repeat,
            events: status.events,
        }
    }

    /// Returns the status of the table.
    pub fn status(&self) -> TableStatus {
        let window = self
            .answered_at
            .map(|latest| TimeWindow { earliest: self.requested_at.saturating_sub(self.max_age), latest });
        TableStatus { window, is_repeat: self.is_repeat, events: self.events }
    }

    /// Returns when the answer arrived, or when the request was sent if there is none.
    pub fn time(&self) -> Timestamp {
        self.answered_at.unwrap_or(self.requested_at)
    }

    pub(crate) fn flags(&self) -> u16 {
        self.events.bits() | if self.is_repeat { REPEAT } else { 0 }
    }

    pub(crate) fn set_flags(&mut self, flags: u16) {
        (self.is_repeat, self.events) = (flags & REPEAT != 0, EventSet::from_bits(flags));
    }
}

/// A response and its values by position of the series.
pub type RowValues = (Row, Vec<Option<RawValue>>);

/// Encodes a flush; each number is stored as the difference from the row before.
pub(crate) fn encode_tail(rows: &[RowValues]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, rows.len() as u64);
    let (mut before, mut last) = (Row::default(), Vec::new());
    for (row, values) in rows {
        put_zigzag(&mut out, row.due_at.0.wrapping_sub(before.due_at.0));
        put_zigzag(&mut out, row.requested_at.0.wrapping_sub(row.due_at.0));
        put_varint(&mut out, u64::from(row.answered_at.is_some()) | u64::from(row.uptime.is_some()) << 1);
        if let Some(answered) = row.answered_at {
            put_zigzag(&mut out, answered.0.wrapping_sub(row.requested_at.0));
        }
        if let Some(uptime) = row.uptime {
            put_varint(&mut out, u64::from(uptime));
        }
        put_varint(&mut out, row.max_age.as_nanos() as u64);
        put_varint(&mut out, u64::from(row.flags()));
        put_varint(&mut out, values.len() as u64);
        last.resize(values.len(), 0);
        for (value, last) in values.iter().zip(&mut last) {
            let Some(RawValue(value)) = value else {
                out.push(0);
                continue;
            };
            let step = value.wrapping_sub(*last) as i64;
            // Small steps take one byte; 0 marks a missing value, 1 a long step.
            match u8::try_from(step) {
                Ok(step) if step < 0xfe => out.push(step + 2),
                _ => {
                    out.push(1);
                    put_zigzag(&mut out, step);
                }
            }
            *last = *value;
        }
        before = *row;
    }
    encode_parts(&[out])
}

/// Decodes a flush of rows with at most `columns` values.
pub(crate) fn decode_tail(bytes: &[u8], columns: usize) -> Result<Vec<RowValues>, DecodeError> {
    let bytes = decode_part(&bytes, 0)?.ok_or(DecodeError::Truncated)?;
    let input = &mut Decoder(&bytes);
    let count = input.count(MAX_CHUNK_ROWS)?;
    let (mut rows, mut due, mut last) = (Vec::new(), 0i64, Vec::new());
    for _ in 0..count {
        let mut row = Row::default();
        due = due.wrapping_add(input.zigzag()?);
        row.due_at = Timestamp(due);
        row.requested_at = Timestamp(due.wrapping_add(input.zigzag()?));
        let has = input.varint()?;
        if has & 1 != 0 {
            row.answered_at = Some(Timestamp(row.requested_at.0.wrapping_add(input.zigzag()?)));
        }
        if has & 2 != 0 {
            row.uptime = Some(input.varint()? as u32);
        }
        row.max_age = Duration::from_nanos(input.varint()?);
        row.set_flags(input.varint()? as u16);
        let width = input.count(columns)?;
        last.resize(width, 0u64);
        let mut values = Vec::with_capacity(width);
        for last in &mut last {
            let step = match input.byte()? {
                0 => {
                    values.push(None);
                    continue;
                }
                1 => input.zigzag()?,
                small => i64::from(small - 2),
            };
            *last = last.wrapping_add(step as u64);
            values.push(Some(RawValue(*last)));
        }
        rows.push((row, values));
    }
    Ok(rows)
}

/// Decodes a whole flush and returns its number of rows. For fuzzing and checks.
pub fn validate_tail(bytes: &[u8]) -> Result<usize, DecodeError> {
    decode_tail(bytes, MAX_COLUMNS).map(|rows| rows.len())
}
