//! What the last responses of a table told of all of its series at once: for those who watch it.

use super::bytes::Source;
use super::chunk::{Part, read_part, read_rows, walk};
use super::row::{Row, read_tail};
use super::writer::{fresh, read_state};
use super::{Error, MOST_COLUMNS, Reader, SeriesInfo, TableId};
use crate::counter::track::Step;
use crate::counter::{Moment, Raw, Tracker};

/// Most responses that are given.
pub const MOST_RECENT: usize = 64;
/// Flushes that are looked at.
const FLUSHES: usize = 16;

/// A value as it was read, and what followed.
pub type Told = (Option<Raw>, Step);

/// What the last responses of a table told.
#[derive(Debug, Default)]
pub struct Recent {
    /// The responses, in order of time, at most [`MOST_RECENT`].
    pub rows: Vec<Row>,
    /// Each series asked for, and what each of the responses told of it. What the first of them told may be missing,
    /// because nobody looked at the reading before it.
    pub series: Vec<(SeriesInfo, Vec<Told>)>,
    /// What could not be read.
    pub damaged: Vec<Error>,
}

/// Values of a row, by the position of their column.
type Values = Vec<Option<Raw>>;
/// A chunk's body and its rows.
type LastChunk<'a> = (Box<dyn Source + 'a>, Vec<Row>);

impl Reader {
    /// What the last responses of a table told of those series that `keep` says. The cost does not grow with the table's
    /// past: the last flushes, or the last chunk where they were just put into it.
    pub fn recent(&self, table: TableId, keep: impl Fn(&SeriesInfo) -> bool) -> Result<Recent, Error> {
        let mut recent = Recent::default();
        self.db.snapshot(|| {
            let series: Vec<SeriesInfo> = self.db.series(table)?.into_iter().filter(keep).collect();
            let flushes = self.db.last_tails(table, FLUSHES)?;
            let whole = flushes.len() < FLUSHES;
            let mut tail: Vec<(Row, Values)> = Vec::new();
            for bytes in flushes {
                match read_tail(&bytes, MOST_COLUMNS) {
                    Ok(flush) => tail.extend(flush.rows),
                    Err(damage) => recent.damaged.push(self.db.corrupt("a flush", damage)),
                }
            }
            // Two readings are the least that growth follows from.
            let chunk = if whole && tail.len() < 2 { self.last_chunk(table, &mut recent)? } else { None };
            let trackers = if whole { self.trackers(table, &mut recent)? } else { Vec::new() };
            let before = chunk.as_ref().map_or(&[][..], |(_, rows)| rows);
            let rows: Vec<Row> = before.iter().copied().chain(tail.iter().map(|(row, _)| *row)).collect();
            let skip = rows.len().saturating_sub(MOST_RECENT);
            let column = |at: usize| {
                let start = |tracker| Part { tracker, values: vec![None; before.len()] };
                let mut part = match &chunk {
                    Some((blob, rows)) => read_part(blob, rows, at).unwrap_or_else(|_| start(fresh())),
                    None => start(trackers.get(at).copied().unwrap_or(fresh())),
                };
                part.values.extend(tail.iter().map(|(_, values)| values.get(at).copied().flatten()));
                part
            };
            for series in series {
                let (part, marks) = (column(series.position), series.column.mark.map(column));
                let mut told = Vec::new();
                let mut values = part.values.iter();
                walk(&series.column, &part, marks.as_ref(), &rows, |_, step| {
                    told.push((values.next().copied().flatten(), *step));
                });
                recent.series.push((series, told.split_off(skip)));
            }
            recent.rows = rows[skip..].to_vec();
            Ok(())
        })?;
        Ok(recent)
    }

    /// The last chunk of a table if it still has its readings, and its responses.
    fn last_chunk(&self, table: TableId, recent: &mut Recent) -> Result<Option<LastChunk<'_>>, Error> {
        let Some((_, last)) = self.db.extent(table)? else { return Ok(None) };
        let entries = self.db.chunks(table, last, Moment::LAST, 1)?;
        let Some(entry) = entries.first().filter(|entry| entry.raw) else { return Ok(None) };
        let read = self.blob(entry.id, true).and_then(|blob| {
            let rows = read_rows(&blob)?;
            Ok((blob, rows))
        });
        Ok(read.map_err(|damage| recent.damaged.push(self.damaged(entry.id, damage))).ok())
    }

    /// What the trackers of a table's columns know behind its last chunk.
    fn trackers(&self, table: TableId, recent: &mut Recent) -> Result<Vec<Tracker>, Error> {
        let Some(bytes) = self.db.state(table)? else { return Ok(Vec::new()) };
        match read_state(&bytes.as_slice(), MOST_COLUMNS) {
            Ok((_, trackers)) => Ok(trackers),
            Err(damage) => {
                recent.damaged.push(self.db.corrupt("the state of a table", damage));
                Ok(Vec::new())
            }
        }
    }
}
