//! Responses with their verdicts, and how they wait to be put into a chunk.

use std::time::Duration;

use super::MOST_COLUMNS;
use super::bytes::{Damage, Input, part, put, put_signed};
use super::chunk::MOST_ROWS;
use crate::counter::{Events, Moment, Raw, Response, Verdict, Window};

/// A response but for its values, and what was found out about it when it came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// When it should have been asked.
    pub due: Moment,
    /// When the request left.
    pub asked: Moment,
    /// When the answer came, if one did.
    pub answered: Option<Moment>,
    /// The agent's uptime, hundredths of a second modulo 2^32.
    pub uptime: Option<u32>,
    /// How long before `asked` its values may have been true.
    pub age: Duration,
    /// Nothing follows from it: see [`Verdict::held`].
    pub held: bool,
    /// What happened to the table.
    pub events: Events,
}

/// Bit of a row's flags beside its events.
const HELD: u16 = 1 << 15;

impl Row {
    pub(crate) fn new(response: &Response, verdict: &Verdict) -> Row {
        let answer = response.answer.as_ref();
        Row {
            due: response.due,
            asked: response.asked,
            answered: answer.map(|a| a.answered),
            uptime: answer.and_then(|a| a.uptime),
            age: verdict.window.map_or(Duration::ZERO, |w| response.asked.since(w.earliest)),
            held: verdict.held,
            events: verdict.events,
        }
    }

    /// The verdict that was given over it.
    pub fn verdict(&self) -> Verdict {
        let window = self.answered.map(|latest| Window { earliest: self.asked.before(self.age), latest });
        Verdict { window, held: self.held, events: self.events }
    }

    /// When it was answered, or asked.
    pub fn at(&self) -> Moment {
        self.answered.unwrap_or(self.asked)
    }

    pub(crate) fn flags(&self) -> u16 {
        self.events.bits() | if self.held { HELD } else { 0 }
    }

    pub(crate) fn set_flags(&mut self, flags: u16) {
        (self.held, self.events) = (flags & HELD != 0, Events::from_bits(flags));
    }
}

/// Rows and their values, one after the other: what a flush leaves behind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tail {
    pub rows: Vec<(Row, Vec<Option<Raw>>)>,
}

impl Tail {
    /// Rows as bytes, each number as its difference to the row before.
    pub fn write(rows: &[(Row, Vec<Option<Raw>>)]) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, rows.len() as u64);
        let (mut before, mut last) = (Row::default(), Vec::new());
        for (row, values) in rows {
            put_signed(&mut out, row.due.0.wrapping_sub(before.due.0));
            put_signed(&mut out, row.asked.0.wrapping_sub(row.due.0));
            put(&mut out, u64::from(row.answered.is_some()) | u64::from(row.uptime.is_some()) << 1);
            if let Some(answered) = row.answered {
                put_signed(&mut out, answered.0.wrapping_sub(row.asked.0));
            }
            if let Some(uptime) = row.uptime {
                put(&mut out, u64::from(uptime));
            }
            put(&mut out, row.age.as_nanos() as u64);
            put(&mut out, u64::from(row.flags()));
            put(&mut out, values.len() as u64);
            last.resize(values.len(), 0);
            for (value, last) in values.iter().zip(&mut last) {
                let Some(Raw(value)) = value else {
                    out.push(0);
                    continue;
                };
                let step = value.wrapping_sub(*last) as i64;
                // One byte for the usual small steps: 0 is a missing value, 1 a long one.
                match u8::try_from(step) {
                    Ok(step) if step < 0xfe => out.push(step + 2),
                    _ => {
                        out.push(1);
                        put_signed(&mut out, step);
                    }
                }
                *last = *value;
            }
            before = *row;
        }
        out
    }

    /// From what [`Tail::write`] gave; at most `most` rows.
    pub fn read(bytes: &[u8], most: usize, columns: usize) -> Result<Tail, Damage> {
        let input = &mut Input(bytes);
        let count = input.count(most)?;
        let mut tail = Tail::default();
        let (mut due, mut last) = (0i64, Vec::new());
        for _ in 0..count {
            let mut row = Row::default();
            due = due.wrapping_add(input.signed()?);
            row.due = Moment(due);
            row.asked = Moment(due.wrapping_add(input.signed()?));
            let has = input.take()?;
            if has & 1 != 0 {
                row.answered = Some(Moment(row.asked.0.wrapping_add(input.signed()?)));
            }
            if has & 2 != 0 {
                row.uptime = Some(input.take()? as u32);
            }
            row.age = Duration::from_nanos(input.take()?);
            row.set_flags(input.take()? as u16);
            let width = input.count(columns)?;
            last.resize(width, 0u64);
            let mut values = Vec::with_capacity(width);
            for last in &mut last {
                let step = match input.byte()? {
                    0 => {
                        values.push(None);
                        continue;
                    }
                    1 => input.signed()?,
                    small => i64::from(small - 2),
                };
                *last = last.wrapping_add(step as u64);
                values.push(Some(Raw(*last)));
            }
            tail.rows.push((row, values));
        }
        Ok(tail)
    }
}

/// A flush.
pub(crate) fn read_tail(bytes: &[u8], columns: usize) -> Result<Tail, Damage> {
    let bytes = part(&bytes, 0)?.ok_or(Damage::Short)?;
    Tail::read(&bytes, MOST_ROWS, columns)
}

/// Reads all of a flush, as a fuzzer or a check does; how many rows it has.
pub fn check(bytes: &[u8]) -> Result<usize, Damage> {
    read_tail(bytes, MOST_COLUMNS).map(|tail| tail.rows.len())
}
