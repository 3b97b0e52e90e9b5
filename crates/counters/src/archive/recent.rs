//! The last responses of a table for all of its series, for live displays.

use super::chunk::{ColumnData, decode_column, decode_rows, replay};
use super::encoding::ByteSource;
use super::row::Row;
use super::state::new_tracker;
use super::{Error, Reader, SeriesInfo, TableId};
use crate::counter::column::Update;
use crate::counter::{RawValue, Timestamp};

/// Maximum number of responses returned.
pub const MAX_RECENT: usize = 64;
/// Flushes that are read.
const MAX_FLUSHES: usize = 16;

/// A value and its growth or level.
pub type Reading = (Option<RawValue>, Update);

/// The last responses of a table for all of its series, for live displays.
#[derive(Debug, Default)]
pub struct Recent {
    /// The responses in order of time, at most [`MAX_RECENT`].
    pub rows: Vec<Row>,
    /// Each selected series with one reading per response. The growth of the first reading may be missing, because
    /// the reading before it is not read.
    pub series: Vec<(SeriesInfo, Vec<Reading>)>,
    /// Errors of data that could not be read.
    pub damaged: Vec<Error>,
}

/// The body of a chunk and its rows.
type LastChunk<'a> = (Box<dyn ByteSource + 'a>, Vec<Row>);

impl Reader {
    /// The last responses of a table for all of its series, for live displays.
    pub fn recent(&self, table: TableId, select: impl Fn(&SeriesInfo) -> bool) -> Result<Recent, Error> {
        let mut recent = Recent::default();
        self.storage.snapshot(|| {
            let series: Vec<SeriesInfo> = self.storage.series(table)?.into_iter().filter(select).collect();
            let flushes = self.storage.last_tails(table, MAX_FLUSHES)?;
            let is_complete = flushes.len() < MAX_FLUSHES;
            let mut tail = Vec::new();
            self.decode_tails(flushes, &mut recent.damaged, |row, values| tail.push((row, values)));
            // Growth needs two answers, and a silent device gave none of late.
            let answers = tail.iter().filter(|(row, _)| row.answered_at.is_some()).count();
            let chunk = if is_complete && answers < 2 { self.last_chunk(table, &mut recent)? } else { None };
            let trackers = if is_complete { self.trackers(table, &mut recent.damaged)? } else { Vec::new() };
            let before = chunk.as_ref().map_or(&[][..], |(_, rows)| rows);
            let rows: Vec<Row> = before.iter().copied().chain(tail.iter().map(|(row, _)| *row)).collect();
            let skip = rows.len().saturating_sub(MAX_RECENT);
            let column = |at: usize| {
                let new_column = |tracker| ColumnData { tracker, values: vec![None; before.len()] };
                let mut data = match &chunk {
                    Some((blob, rows)) => {
                        decode_column(blob, rows, at).unwrap_or_else(|_| new_column(new_tracker()))
                    }
                    None => new_column(trackers.get(at).copied().unwrap_or(new_tracker())),
                };
                data.values.extend(tail.iter().map(|(_, values)| values.get(at).copied().flatten()));
                data
            };
            for series in series {
                let (data, discontinuities) =
                    (column(series.position), series.column.discontinuity.map(column));
                let mut readings = Vec::new();
                let mut values = data.values.iter();
                replay(&series.column, &data, discontinuities.as_ref(), &rows, |_, step| {
                    readings.push((values.next().copied().flatten(), *step));
                });
                recent.series.push((series, readings.split_off(skip)));
            }
            recent.rows = rows[skip..].to_vec();
            Ok(())
        })?;
        Ok(recent)
    }

    /// Returns the last chunk of a table and its rows, if it still has its readings.
    fn last_chunk(&self, table: TableId, recent: &mut Recent) -> Result<Option<LastChunk<'_>>, Error> {
        let Some((_, last)) = self.storage.time_range(table)? else { return Ok(None) };
        let entries = self.storage.chunks(table, last, Timestamp::MAX, 1)?;
        let Some(entry) = entries.first().filter(|entry| entry.raw) else { return Ok(None) };
        let read = self.storage.blob(entry.id, true).and_then(|blob| {
            let rows = decode_rows(&blob)?;
            Ok((blob, rows))
        });
        Ok(read.map_err(|damage| recent.damaged.push(self.chunk_error(entry.id, damage))).ok())
    }
}
