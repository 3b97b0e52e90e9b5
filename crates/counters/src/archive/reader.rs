//! Reading of an archive, concurrently with its writer.

use std::collections::BTreeMap;

use super::chunk::{ColumnData, ColumnSummary, decode_column, decode_rows, decode_summary, replay};
use super::open::open;
use super::row::{Row, RowValues, decode_tail};
use super::state::{decode_state, new_tracker};
use super::storage::{ChunkEntry, Storage};
use super::summary::Buckets;
use super::{
    ChunkId, DecodeError, Error, Location, MAX_BUCKETS, MAX_COLUMNS, MAX_POINTS, MAX_TEXTS, SeriesId,
    SeriesInfo, TableId, TableInfo, Text,
};
use crate::counter::column::Update;
use crate::counter::{ColumnTracker, RawValue, Timestamp};

/// Chunk index entries that are read in one query.
const PAGE: usize = 4_096;

/// Reads an archive. It sees all data that was flushed before the call.
#[derive(Debug)]
pub struct Reader {
    pub(super) storage: Box<dyn Storage>,
}

/// A series over time.
#[derive(Debug)]
pub struct View {
    /// The series.
    pub series: SeriesInfo,
    /// The requested time range in the requested number of buckets.
    pub buckets: Buckets,
    /// Errors of chunks that could not be read. Their data is missing, or spread evenly if the summary is intact.
    pub damaged: Vec<Error>,
    /// Number of chunks of which only the summary was read.
    pub summaries: usize,
    /// Number of chunks that were decompressed: at most one more than there are bucket edges.
    pub bodies: usize,
}

/// A response and its value for one series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The times and the status of the response.
    pub row: Row,
    /// The value.
    pub value: Option<RawValue>,
    /// The growth or level, and events.
    pub update: Update,
}

/// A page of readings.
#[derive(Debug, Default)]
pub struct Points {
    /// In order of time.
    pub points: Vec<Point>,
    /// The start of the next page, if there is one.
    pub next: Option<Timestamp>,
    /// Number of chunks whose readings retention removed.
    pub removed: usize,
    /// Errors of chunks that could not be read.
    pub damaged: Vec<Error>,
}

/// The latest answer of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct LatestAnswer {
    /// When it arrived.
    pub answered_at: Timestamp,
    /// Values by position of the series.
    pub values: Vec<Option<RawValue>>,
}

/// A page of responses with the values of all series of a table.
#[derive(Clone, Debug, Default)]
pub struct Responses {
    /// In order of time; values by position of the series.
    pub responses: Vec<RowValues>,
    /// Whether there are more.
    pub more: bool,
}

impl Reader {
    /// Opens an archive for reading.
    pub fn open(at: impl Into<Location>) -> Result<Reader, Error> {
        Ok(Reader { storage: open(&at.into(), false)? })
    }

    /// Returns tables after `after`, ordered by identifier; at most 10,000.
    pub fn tables(&self, after: TableId, limit: usize) -> Result<Vec<TableInfo>, Error> {
        self.storage.tables(after, limit.min(10_000))
    }

    /// Returns the series of a table.
    pub fn series(&self, table: TableId) -> Result<Vec<SeriesInfo>, Error> {
        self.storage.series(table)
    }

    /// Returns one series.
    pub fn series_by_id(&self, id: SeriesId) -> Result<SeriesInfo, Error> {
        let none = || Error::NotFound(self.storage.location().clone(), format!("series {}", id.0));
        self.storage.series_by_id(id)?.ok_or_else(none)
    }

    /// Returns the size in bytes: of a file without free pages and log, of a database the chunks and flushes.
    pub fn size_bytes(&self) -> Result<u64, Error> {
        self.storage.size_bytes()
    }

    /// Returns the last response of each table that was forwarded to `to`; `None` if the archive does not store this,
    /// as a file does not.
    pub fn forwarded(&self, to: &str) -> Result<Option<BTreeMap<TableId, Timestamp>>, Error> {
        self.storage.forwarded(to)
    }

    /// Stores the last forwarded responses for [`Reader::forwarded`]. Requires write permission.
    pub fn put_forwarded(&self, to: &str, last: &BTreeMap<TableId, Timestamp>) -> Result<(), Error> {
        self.storage.put_forwarded(to, last)
    }

    /// Returns stored responses of a table after a time: at least `most` if there are as many, and at most one chunk
    /// more. Skips chunks that cannot be read.
    pub fn responses(&self, table: TableId, after: Timestamp, limit: usize) -> Result<Responses, Error> {
        let columns = self.storage.series(table)?.len();
        let mut found = Responses::default();
        self.storage.snapshot(|| {
            let from = Timestamp(after.0.saturating_add(1));
            self.for_each_chunk(table, from, Timestamp::MAX, |entry| {
                if entry.raw && entry.end > after {
                    let all = self.read_chunk(entry.id, columns).unwrap_or_default();
                    found.responses.extend(all.into_iter().filter(|(row, _)| row.time() > after));
                }
                found.more = found.responses.len() >= limit;
                !found.more
            })?;
            if !found.more {
                found
                    .responses
                    .extend(self.read_tails(table)?.into_iter().filter(|(row, _)| row.time() > after));
            }
            Ok(found)
        })
    }

    /// Returns the latest answer of a table, and whether the last request had no answer.
    pub fn latest_answer(&self, table: TableId) -> Result<(Option<LatestAnswer>, bool), Error> {
        self.storage.snapshot(|| {
            let mut flushed = self.read_tails(table)?;
            let silent = flushed.last().is_some_and(|(row, _)| row.answered_at.is_none());
            if let Some(at) = flushed.iter().rposition(|(row, _)| row.answered_at.is_some()) {
                let (row, values) = flushed.swap_remove(at);
                return Ok((row.answered_at.map(|answered_at| LatestAnswer { answered_at, values }), silent));
            }
            let Some(state) = self.storage.state(table)? else { return Ok((None, silent)) };
            let read = decode_state(&state.as_slice(), MAX_COLUMNS);
            let state = read.map_err(|damage| self.storage.corrupt("the state of a table", damage))?.0;
            let answered_request = state.last_answer.as_ref().map(|last| last.requested_at);
            let unanswered = state.last_poll.map(|(_, requested_at)| requested_at) != answered_request;
            let last = state
                .last_answer
                .map(|last| LatestAnswer { answered_at: last.answered_at, values: last.values });
            Ok((last, silent || flushed.is_empty() && unanswered))
        })
    }

    fn read_chunk(&self, chunk: ChunkId, columns: usize) -> Result<Vec<RowValues>, DecodeError> {
        let blob = self.storage.blob(chunk, true)?;
        let mut rows: Vec<_> =
            decode_rows(&blob)?.into_iter().map(|row| (row, Vec::with_capacity(columns))).collect();
        let times: Vec<Row> = rows.iter().map(|(row, _)| *row).collect();
        for position in 0..columns {
            let part = decode_column(&blob, &times, position)?;
            rows.iter_mut().zip(part.values).for_each(|((_, values), value)| values.push(value));
        }
        Ok(rows)
    }

    /// Reads the responses that were flushed and are in no chunk yet, as far as they can be read.
    fn read_tails(&self, table: TableId) -> Result<Vec<RowValues>, Error> {
        let mut rows = Vec::new();
        self.decode_tails(self.storage.tails(table)?, &mut Vec::new(), |row, values| {
            rows.push((row, values))
        });
        Ok(rows)
    }

    /// Returns the texts of a device, ordered by object and key; at most [`MAX_TEXTS`].
    pub fn texts(&self, device: &str) -> Result<Vec<Text>, Error> {
        self.storage.texts(device, MAX_TEXTS)
    }

    /// Returns the times of the first and the last response of a table; `None` without responses.
    pub fn time_range(&self, table: TableId) -> Result<Option<(Timestamp, Timestamp)>, Error> {
        self.storage.snapshot(|| {
            let mut tail = Vec::new();
            self.decode_tails(self.storage.tails(table)?, &mut Vec::new(), |row, _| tail.push(row.time()));
            let ends = [tail.first().copied(), tail.last().copied()];
            let chunks = self.storage.time_range(table)?;
            Ok(match (chunks, ends) {
                (Some((first, _)), [_, Some(last)]) => Some((first, last)),
                (None, [Some(first), Some(last)]) => Some((first, last)),
                (chunks, _) => chunks,
            })
        })
    }

    /// Returns a series from `from` to `to` in `count` buckets, at least one and at most [`MAX_BUCKETS`]. The cost is
    /// one summary per chunk in that time, and at most one decompressed chunk per bucket.
    pub fn view(&self, id: SeriesId, from: Timestamp, to: Timestamp, count: usize) -> Result<View, Error> {
        let series = self.series_by_id(id)?;
        let buckets = Buckets::new(from, to, count.min(MAX_BUCKETS));
        let mut view = View { series, buckets, damaged: Vec::new(), summaries: 0, bodies: 0 };
        self.storage.snapshot(|| {
            self.for_each_chunk(view.series.table, from, to, |entry| {
                self.add_chunk(entry, &mut view);
                true
            })?;
            let series = view.series.clone();
            let tail = self.read_series_tail(&series, &mut view.damaged)?;
            tail.replay(&series, |row, _, step| view.buckets.add(series.column.kind, row.time(), step));
            Ok(view)
        })
    }

    /// Calls `see` for each chunk of a table that overlaps the time range until it returns false.
    fn for_each_chunk(
        &self,
        table: TableId,
        from: Timestamp,
        to: Timestamp,
        mut visit: impl FnMut(&ChunkEntry) -> bool,
    ) -> Result<(), Error> {
        let mut begin = from;
        loop {
            let page = self.storage.chunks(table, begin, to, PAGE)?;
            if !page.iter().all(&mut visit) || page.len() < PAGE {
                return Ok(());
            }
            begin = Timestamp(page[PAGE - 1].end.0.saturating_add(1));
        }
    }

    /// Adds a chunk to a view, by its summary if it falls into one bucket.
    fn add_chunk(&self, entry: &ChunkEntry, view: &mut View) {
        let (id, kind) = (entry.id, view.series.column.kind);
        let digest =
            self.storage.blob(id, false).and_then(|blob| decode_summary(&blob, view.series.position));
        match &digest {
            Ok(None) => return, // the series is younger
            Ok(Some(ColumnSummary { begin, end, summary })) => {
                if let Some(bucket) = view.buckets.single_bucket(*begin, *end) {
                    view.summaries += 1;
                    return view.buckets.buckets[bucket].merge(summary);
                }
            }
            Err(damage) => view.damaged.push(self.chunk_error(id, *damage)),
        }
        if entry.raw {
            match self.read_series_rows(id, &view.series) {
                Ok(rows) => {
                    view.bodies += 1;
                    let series = &view.series;
                    rows.replay(series, |row, _, step| view.buckets.add(kind, row.time(), step));
                    return;
                }
                Err(damage) => view.damaged.push(self.chunk_error(id, damage)),
            }
        }
        if let Ok(Some(ColumnSummary { begin, end, summary })) = digest {
            view.summaries += 1;
            view.buckets.spread_evenly(begin, end, &summary);
        }
    }

    /// Returns readings of a series from `from` to `to`, at most `most` and [`MAX_POINTS`].
    pub fn points(
        &self,
        id: SeriesId,
        from: Timestamp,
        to: Timestamp,
        limit: usize,
    ) -> Result<Points, Error> {
        let series = self.series_by_id(id)?;
        let limit = limit.min(MAX_POINTS);
        let mut points = Points::default();
        let take = |points: &mut Points, rows: &SeriesRows| {
            rows.replay(&series, |row, value, step| {
                if !(from..=to).contains(&row.time()) || points.next.is_some() {
                } else if points.points.len() == limit {
                    points.next = Some(row.time());
                } else {
                    points.points.push(Point { row: *row, value, update: *step });
                }
            });
        };
        self.storage.snapshot(|| {
            self.for_each_chunk(series.table, from, to, |entry| {
                match self.read_series_rows(entry.id, &series) {
                    _ if entry.begin > to => {}
                    _ if !entry.raw => points.removed += 1,
                    Ok(rows) => take(&mut points, &rows),
                    Err(damage) => points.damaged.push(self.chunk_error(entry.id, damage)),
                }
                points.next.is_none()
            })?;
            if points.next.is_none() {
                let tail = self.read_series_tail(&series, &mut points.damaged)?;
                take(&mut points, &tail);
            }
            Ok(points)
        })
    }

    fn read_series_rows(&self, chunk: ChunkId, series: &SeriesInfo) -> Result<SeriesRows, DecodeError> {
        let blob = self.storage.blob(chunk, true)?;
        let rows = decode_rows(&blob)?;
        let column = decode_column(&blob, &rows, series.position)?;
        let discontinuities =
            series.column.discontinuity.map(|at| decode_column(&blob, &rows, at)).transpose()?;
        Ok(SeriesRows { rows, column, discontinuities })
    }

    /// Reads the flushed responses of one series that are in no chunk.
    fn read_series_tail(&self, series: &SeriesInfo, damaged: &mut Vec<Error>) -> Result<SeriesRows, Error> {
        let trackers = self.trackers(series.table, damaged)?;
        let column = |at: usize| ColumnData {
            tracker: trackers.get(at).copied().unwrap_or(new_tracker()),
            values: Vec::new(),
        };
        let (mut rows, mut data) = (Vec::new(), column(series.position));
        let mut discontinuities = series.column.discontinuity.map(|at| (at, column(at)));
        self.decode_tails(self.storage.tails(series.table)?, damaged, |row, values| {
            let value = |at: usize| values.get(at).copied().flatten();
            rows.push(row);
            data.values.push(value(series.position));
            if let Some((at, data)) = &mut discontinuities {
                data.values.push(value(*at));
            }
        });
        Ok(SeriesRows { rows, column: data, discontinuities: discontinuities.map(|(_, data)| data) })
    }

    /// Returns the trackers of a table's columns after its last chunk.
    pub(super) fn trackers(
        &self,
        table: TableId,
        damaged: &mut Vec<Error>,
    ) -> Result<Vec<ColumnTracker>, Error> {
        let Some(bytes) = self.storage.state(table)? else { return Ok(Vec::new()) };
        let state = decode_state(&bytes.as_slice(), MAX_COLUMNS);
        let damage = |damage| damaged.push(self.storage.corrupt("the state of a table", damage));
        Ok(state.map_err(damage).map_or(Vec::new(), |(_, trackers)| trackers))
    }

    /// Calls `each` for every row of flushes with its values, in order.
    pub(super) fn decode_tails(
        &self,
        flushes: Vec<(i64, Vec<u8>)>,
        damaged: &mut Vec<Error>,
        mut each: impl FnMut(Row, Vec<Option<RawValue>>),
    ) {
        for (_, bytes) in flushes {
            match decode_tail(&bytes, MAX_COLUMNS) {
                Ok(rows) => rows.into_iter().for_each(|(row, values)| each(row, values)),
                Err(damage) => damaged.push(self.storage.corrupt("a flush", damage)),
            }
        }
    }

    pub(super) fn chunk_error(&self, chunk: ChunkId, damage: DecodeError) -> Error {
        Error::ChunkDamaged(self.storage.location().clone(), chunk, damage)
    }
}

/// Consecutive rows with the values of one series.
struct SeriesRows {
    rows: Vec<Row>,
    column: ColumnData,
    discontinuities: Option<ColumnData>,
}

impl SeriesRows {
    fn replay(&self, series: &SeriesInfo, mut each: impl FnMut(&Row, Option<RawValue>, &Update)) {
        let mut values = self.column.values.iter();
        replay(&series.column, &self.column, self.discontinuities.as_ref(), &self.rows, |row, step| {
            each(row, values.next().copied().flatten(), step);
        });
    }
}
