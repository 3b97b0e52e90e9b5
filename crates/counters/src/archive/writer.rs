//! Writing of an archive: tables, responses, flushes, chunks, retention.

use std::collections::BTreeMap;
use std::mem::take;
use std::time::Duration;

use super::chunk::{ColumnData, encode_chunk};
use super::open::open;
use super::row::{Row, RowValues, decode_tail, encode_tail};
use super::state::{decode_state, encode_state, new_tracker};
use super::storage::{Storage, TailRow};
use super::{
    ChunkId, Error, Location, MAX_COLUMNS, MAX_TEXT_LENGTH, SeriesId, TableId, TableSpec, TextSpec, truncate,
};
use crate::counter::table::TableState;
use crate::counter::{Column, ColumnTracker, RefreshPeriod, Response, TableStatus, TableTracker, Timestamp};

/// Responses per chunk; fewer if the table has many columns.
const CHUNK_ROWS: usize = 1_024;
/// Maximum number of values per chunk; each takes 16 bytes while the chunk is made.
const CHUNK_VALUES: usize = 1 << 21;
/// Maximum number of buffered values of all tables; each takes 16 bytes.
pub const MAX_PENDING_VALUES: usize = 1 << 23;
/// Chunks per flush. Tables that started together then finish their chunks at different times.
const MAX_CHUNKS_PER_FLUSH: usize = 4;
/// Octets per transaction of a flush, so that a backlog passes a slow link in parts that each finish in time.
const TRANSACTION_BYTES: usize = 1 << 20;
/// Chunks that retention removes in one transaction.
const RETENTION_BATCH: usize = 64;
/// Pages returned to the file system at a time.
const SHRINK_PAGES: usize = 4_096;

/// Writes an archive, which it locks. It keeps, per table, the state needed for the next response and the responses since the last flush: at most one chunk per table, and
/// [`MAX_PENDING_VALUES`] values of all tables.
#[derive(Debug)]
pub struct Writer {
    storage: Box<dyn Storage>,
    tables: BTreeMap<TableId, Table>,
    /// Buffered values.
    pending_values: usize,
    /// Whether a transaction failed, so that it is unknown which buffered responses the archive contains.
    is_uncertain: bool,
    /// The number of the connection on which the contents were last known; on a later one another writer may have
    /// written in between.
    connection: u64,
    /// Results that an error has kept from being returned so far.
    unreported: FlushStats,
}

/// A table opened for writing.
#[derive(Debug)]
struct Table {
    device: String,
    name: String,
    columns: Vec<Column>,
    /// The column of each series of the last [`TableSpec`].
    order: Vec<usize>,
    tracker: TableTracker,
    pending: Vec<RowValues>,
    /// When the last response in the archive was requested.
    last_written: Option<Timestamp>,
    /// Rows that are flushed and in no chunk yet.
    flushed: usize,
    /// Whether the table has a chunk.
    has_chunk: bool,
}

/// The identifiers of an open table.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// The table.
    pub table: TableId,
    /// Its series in the order of the [`TableSpec`], which is the order of values in a response.
    pub series: Vec<SeriesId>,
}

/// The results of a flush and of earlier flushes that ended with an error.
#[derive(Debug, Default)]
pub struct FlushStats {
    /// Responses written.
    pub rows: usize,
    /// Chunks made.
    pub chunks: usize,
    /// Earlier flushes that could not be read back and are lost.
    pub damage: Vec<Error>,
}

/// The retention policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Maximum age of raw readings; older ones are reduced to summaries.
    pub raw: Option<Duration>,
    /// Maximum age of summaries.
    pub all: Option<Duration>,
    /// Maximum size in bytes as [`Writer::size_bytes`] returns it: the oldest raw readings are removed first, then
    /// the oldest summaries.
    pub bytes: Option<u64>,
}

/// Counts of data that retention removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovalStats {
    /// Chunks whose raw readings were removed.
    pub bodies: usize,
    /// Chunks removed completely.
    pub chunks: usize,
    /// Flushes that never became part of a chunk.
    pub tails: usize,
    /// Whether there is more to remove; call again.
    pub more: bool,
}

impl Writer {
    /// Opens an archive for writing; creates it, and the directory of a file, if it does not exist. An archive has one
    /// writer at a time; another gets [`Error::Locked`].
    pub fn open(at: impl Into<Location>) -> Result<Writer, Error> {
        let mut writer = Writer::standby(at)?;
        writer.connection = writer.storage.connect()?;
        Ok(writer)
    }

    /// Opens an archive like [`Writer::open`]. While another process writes a database, every call that needs it
    /// returns [`Error::Locked`].
    pub fn standby(at: impl Into<Location>) -> Result<Writer, Error> {
        Ok(Writer {
            storage: open(&at.into(), true)?,
            tables: BTreeMap::new(),
            pending_values: 0,
            is_uncertain: false,
            connection: 0,
            unreported: FlushStats::default(),
        })
    }

    /// Returns the location of the archive.
    pub fn location(&self) -> &Location {
        self.storage.location()
    }

    /// Finds the table with this device and name.
    pub(crate) fn find_table(&self, spec: &TableSpec) -> Result<Option<TableId>, Error> {
        self.storage.find_table(&spec.device, &spec.name)
    }

    /// Opens a table for writing. An existing table with this device and name is continued: its series are matched by
    /// name, new ones are added at the end, and series that are no longer listed get no values from now on. A changed
    /// ceiling applies to earlier raw readings as well, but not to summaries that already exist.
    pub fn open_table(&mut self, spec: &TableSpec) -> Result<Layout, Error> {
        self.with_retry(|writer| writer.try_open_table(spec))
    }

    /// Repeats `work` once if it failed only because a connection had ended.
    fn with_retry<T>(&mut self, work: impl Fn(&mut Writer) -> Result<T, Error>) -> Result<T, Error> {
        let before = self.storage.connection_attempts();
        match work(self) {
            Err(Error::Disconnected { .. }) if self.storage.connection_attempts() == before => work(self),
            done => done,
        }
    }

    /// Lets the next call connect without waiting for the backoff, for the last write before exit.
    pub fn reset_backoff(&self) {
        self.storage.reset_backoff();
    }

    fn try_open_table(&mut self, spec: &TableSpec) -> Result<Layout, Error> {
        let wrong = |reason: String| Error::InvalidTable(spec.name.clone(), reason);
        if spec.period.is_zero() {
            return Err(wrong("the period is zero".into()));
        }
        let connection = self.storage.connect()?;
        if self.tables.is_empty() {
            self.connection = connection;
        }
        let found = self.storage.find_table(&spec.device, &spec.name)?;
        let known = found.map_or(Ok(Vec::new()), |id| self.storage.series(id))?;
        let mut columns: Vec<Column> = known.iter().map(|series| series.column.clone()).collect();
        let mut places: BTreeMap<String, usize> =
            known.into_iter().enumerate().map(|(at, series)| (series.name, at)).collect();
        let mut order = Vec::new();
        for series in &spec.series {
            let at = *places.entry(series.name.clone()).or_insert(columns.len());
            match columns.get(at) {
                None => columns.push(Column::new(series.kind)),
                Some(column) if column.kind != series.kind => {
                    return Err(wrong(format!("`{}` has another kind in the archive", series.name)));
                }
                Some(_) if order.contains(&at) => {
                    return Err(wrong(format!("`{}` is listed twice", series.name)));
                }
                Some(_) => {}
            }
            order.push(at);
        }
        if columns.len() > MAX_COLUMNS {
            return Err(wrong(format!("{} columns exceed the maximum of {MAX_COLUMNS}", columns.len())));
        }
        for (series, &at) in spec.series.iter().zip(&order) {
            let place =
                |name| places.get(name).copied().ok_or_else(|| wrong(format!("unknown series `{name}`")));
            let discontinuity = series.discontinuity.as_ref().map(place).transpose()?;
            columns[at] = Column { kind: series.kind, ceiling: series.ceiling, discontinuity };
        }
        let rows: Vec<_> =
            spec.series.iter().zip(&order).map(|(s, &at)| (at, s, columns[at].discontinuity)).collect();
        let (table, series) =
            self.storage.put_table(found, &spec.device, &spec.name, (spec.period, spec.refresh), &rows)?;
        let refresh = spec.refresh.map_or(RefreshPeriod::default(), RefreshPeriod::Configured);
        match self.tables.get_mut(&table) {
            Some(known) => {
                (known.columns, known.order) = (columns, order);
                known.tracker.set_polling(spec.period, refresh);
            }
            None => {
                let mut opened = Table {
                    device: spec.device.clone(),
                    name: spec.name.clone(),
                    columns,
                    order,
                    tracker: TableTracker::new(spec.period, refresh),
                    pending: Vec::new(),
                    last_written: None,
                    flushed: 0,
                    has_chunk: false,
                };
                opened.resume(&*self.storage, &StoredState::load(&*self.storage, table)?)?;
                self.tables.insert(table, opened);
            }
        }
        Ok(Layout { table, series })
    }

    /// Stores texts of a device; changed ones are valid from `since`. Of two texts with the same key the later wins.
    /// After an error some may be stored; storing them again is harmless.
    pub fn put_texts(&self, device: &str, texts: &[TextSpec<'_>], since: Timestamp) -> Result<(), Error> {
        let stored: Vec<TextSpec<'_>> = texts
            .iter()
            .map(|text| TextSpec { text: truncate(text.text, MAX_TEXT_LENGTH), ..*text })
            .collect();
        let put = || {
            self.storage.connect()?;
            let size = |text: &TextSpec<'_>| text.object.len() + text.key.len() + text.text.len();
            batches(&stored, size).try_for_each(|part| self.storage.put_texts(device, part, since))
        };
        let before = self.storage.connection_attempts();
        match put() {
            Err(Error::Disconnected { .. }) if self.storage.connection_attempts() == before => put(),
            done => done,
        }
    }

    /// Buffers the next response of a table for the next flush. Values are in the order of the last [`TableSpec`].
    pub fn append(&mut self, id: TableId, response: &Response) -> Result<TableStatus, Error> {
        let none = || Error::NotFound(self.storage.location().clone(), format!("open table {}", id.0));
        let table = self.tables.get_mut(&id).ok_or_else(none)?;
        let max_bytes = self.pending_values + table.columns.len() > MAX_PENDING_VALUES;
        if max_bytes || table.pending.len() >= table.chunk_rows() {
            return Err(Error::BufferFull(table.pending.len()));
        }
        let mut response = response.clone();
        let mut values = vec![None; table.columns.len()];
        if let Some(answer) = &mut response.answer {
            if answer.values.len() != table.order.len() {
                let (columns, found) = (table.order.len(), answer.values.len());
                return Err(Error::ValueCount { columns, found });
            }
            answer.values.iter().zip(&table.order).for_each(|(value, &at)| values[at] = *value);
            answer.values.clone_from(&values);
        }
        let status = table.tracker.update(&table.columns, &response)?;
        self.pending_values += values.len();
        table.pending.push((Row::new(&response, &status), values));
        Ok(status)
    }

    /// Writes the buffered responses, about a megabyte per transaction, then makes chunks of tables with enough
    /// responses, each in its own transaction. After an error unwritten responses stay buffered; the next flush finds
    /// out which of them the archive contains.
    pub fn flush(&mut self) -> Result<FlushStats, Error> {
        self.with_retry(Writer::write_pending)?;
        Ok(take(&mut self.unreported))
    }

    fn write_pending(&mut self) -> Result<(), Error> {
        let connection = self.storage.connect()?;
        if self.is_uncertain || connection != self.connection {
            self.reconcile()?;
            (self.is_uncertain, self.connection) = (false, connection);
        }
        let mut tails: Vec<TailRow> = Vec::new();
        for (&table, state) in &self.tables {
            split_tail(table, &state.pending, &mut tails);
        }
        for part in batches(&tails, |tail| tail.bytes.len()) {
            let put = self.storage.put_tails(part);
            self.is_uncertain = put.is_err();
            put?;
            self.mark_written(part);
        }
        self.pending_values = 0;
        for id in self.tables_due() {
            self.make_chunk(id)?;
        }
        Ok(())
    }

    /// Removes written responses from the buffer.
    fn mark_written(&mut self, tails: &[TailRow]) {
        for tail in tails {
            let Some(table) = self.tables.get_mut(&tail.table) else { continue };
            for (row, values) in table.pending.drain(..tail.rows) {
                self.pending_values = self.pending_values.saturating_sub(values.len());
                table.last_written = Some(row.requested_at);
            }
            table.flushed += tail.rows;
            self.unreported.rows += tail.rows;
        }
    }

    /// Finds out which buffered responses the archive contains, and whether another process wrote the table.
    fn reconcile(&mut self) -> Result<(), Error> {
        for (id, table) in &mut self.tables {
            let stored = StoredState::load(&*self.storage, *id)?;
            let rows = &mut table.pending;
            let written =
                rows.iter().position(|(row, _)| Some(row.requested_at) == stored.last).map_or(0, |at| at + 1);
            if written == 0 && stored.last != table.last_written {
                let (device, name) = (table.device.clone(), table.name.clone());
                self.unreported.damage.push(Error::WriteConflict(device, name, rows.len()));
                rows.clear();
                table.columns = self.storage.series(*id)?.into_iter().map(|series| series.column).collect();
                table.resume(&*self.storage, &stored)?;
                continue;
            }
            rows.drain(..written);
            self.unreported.rows += written;
            (table.last_written, table.flushed) = (stored.last, stored.rows);
            table.has_chunk |= stored.state.is_some();
        }
        self.pending_values = self.tables.values().map(|t| t.pending.len() * t.columns.len()).sum();
        Ok(())
    }

    /// Returns the tables of which chunks are to be made now, the fullest first.
    fn tables_due(&self) -> Vec<TableId> {
        let share = |id: &TableId, table: &Table| table.flushed * 1_000 / table.threshold(*id);
        let mut due: Vec<_> = self
            .tables
            .iter()
            .map(|(id, t)| (share(id, t), *id))
            .filter(|(share, _)| *share >= 1_000)
            .collect();
        due.sort_by(|a, b| b.cmp(a));
        let pressing = due.iter().filter(|(share, _)| *share >= 2_000).count();
        due.into_iter().take(pressing.max(MAX_CHUNKS_PER_FLUSH)).map(|(_, id)| id).collect()
    }

    /// Makes a chunk of each table's flushed responses, even if they are few.
    pub fn make_all_chunks(&mut self) -> Result<FlushStats, Error> {
        self.with_retry(|writer| {
            writer.write_pending()?;
            let flushed = writer.tables.iter().filter(|(_, table)| table.flushed > 0);
            let ids: Vec<TableId> = flushed.map(|(id, _)| *id).collect();
            for id in ids {
                writer.make_chunk(id)?;
            }
            Ok(())
        })?;
        Ok(take(&mut self.unreported))
    }

    /// Makes a chunk of the flushed responses of a table.
    fn make_chunk(&mut self, id: TableId) -> Result<(), Error> {
        let Some(table) = self.tables.get_mut(&id) else { return Ok(()) };
        let width = table.columns.len();
        let state = self.storage.state(id)?;
        let trackers = match &state {
            None => Ok(Vec::new()),
            Some(bytes) => decode_state(&bytes.as_slice(), width).map(|(_, trackers)| trackers),
        };
        let mut trackers = trackers.map_err(|d| self.storage.corrupt("the state of a table", d))?;
        trackers.resize(width, new_tracker());
        let mut data: Vec<ColumnData> =
            trackers.into_iter().map(|tracker| ColumnData { tracker, values: Vec::new() }).collect();
        let (mut rows, mut last, mut damaged) = (Vec::new(), 0, Vec::new());
        for (number, bytes) in self.storage.tails(id)? {
            last = number;
            match decode_tail(&bytes, width) {
                Ok(flush) => flush.into_iter().for_each(|(row, values)| {
                    rows.push(row);
                    data.iter_mut()
                        .enumerate()
                        .for_each(|(at, part)| part.values.push(values.get(at).copied().flatten()));
                }),
                Err(damage) => damaged.push(self.storage.corrupt("a flush", damage)),
            }
        }
        let (Some(first), Some(end)) = (rows.first(), rows.last()) else {
            table.flushed = 0;
            self.unreported.damage.append(&mut damaged);
            return Ok(());
        };
        let extent = (first.time(), end.time(), rows.len());
        let sealed = encode_chunk(&table.columns, &rows, &mut data);
        let trackers: Vec<ColumnTracker> = data.into_iter().map(|part| part.tracker).collect();
        let state = encode_state(&table.tracker.state, &trackers);
        let put = self.storage.put_chunk(id, last, extent, &sealed, &state);
        self.is_uncertain |= put.is_err();
        // If only the answer was lost, the flushes are gone as well.
        if matches!(put, Ok(()) | Err(Error::Disconnected { .. })) {
            self.unreported.damage.append(&mut damaged);
        }
        put?;
        (table.flushed, table.has_chunk) = (0, true);
        self.unreported.chunks += 1;
        Ok(())
    }

    /// Removes what exceeds the retention policy at `now`, in small transactions and at most one batch per call, and
    /// returns free pages to the file system.
    pub fn apply_retention(&self, retention: &Retention, now: Timestamp) -> Result<RemovalStats, Error> {
        let mut removed = RemovalStats::default();
        if let Some(age) = retention.all {
            let before = now.saturating_sub(age);
            let old = self.storage.all_chunks_before(before, RETENTION_BATCH)?;
            self.remove_chunks(&old, true, &mut removed)?;
            removed.tails = self.storage.remove_tails(before)?;
        }
        if let Some(age) = retention.raw {
            let old = self.storage.chunks_before(now.saturating_sub(age), true, RETENTION_BATCH)?;
            self.remove_chunks(&old, false, &mut removed)?;
        }
        if let Some(max_bytes) = retention.bytes {
            self.shrink_to(max_bytes, &mut removed)?;
        }
        if removed != RemovalStats::default() {
            self.storage.shrink(SHRINK_PAGES)?;
            self.storage.checkpoint()?;
        }
        Ok(removed)
    }

    /// Removes the oldest data until the rest fits, at most one batch of chunks.
    fn shrink_to(&self, max_bytes: u64, removed: &mut RemovalStats) -> Result<(), Error> {
        for _ in 0..RETENTION_BATCH {
            if self.storage.size_bytes()? <= max_bytes {
                return Ok(());
            }
            let raw = self.storage.chunks_before(Timestamp::MAX, true, 1)?;
            let whole = raw.is_empty();
            let oldest = if whole { self.storage.all_chunks_before(Timestamp::MAX, 1)? } else { raw };
            if oldest.is_empty() {
                return Ok(()); // what is left waits for its chunk
            }
            self.remove_chunks(&oldest, whole, removed)?;
        }
        removed.more = true;
        Ok(())
    }

    fn remove_chunks(
        &self,
        chunks: &[ChunkId],
        whole: bool,
        removed: &mut RemovalStats,
    ) -> Result<(), Error> {
        if !chunks.is_empty() {
            self.storage.remove_chunks(chunks, whole)?;
        }
        *(if whole { &mut removed.chunks } else { &mut removed.bodies }) += chunks.len();
        removed.more |= chunks.len() == RETENTION_BATCH;
        Ok(())
    }

    /// See [`Reader::size_bytes`](super::Reader::size_bytes).
    pub fn size_bytes(&self) -> Result<u64, Error> {
        self.storage.size_bytes()
    }

    /// Copies the write-ahead log into the file as far as no reader needs it.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.storage.checkpoint()
    }

    /// Closes all tables and returns the number of buffered responses, which are discarded.
    pub fn close_tables(&mut self) -> usize {
        let discarded = self.pending_responses();
        self.tables.clear();
        self.pending_values = 0;
        discarded
    }

    /// Returns the number of buffered responses.
    pub fn pending_responses(&self) -> usize {
        self.tables.values().map(|table| table.pending.len()).sum()
    }
}

/// The stored state of a table, without its chunks.
struct StoredState {
    state: Option<Vec<u8>>,
    tails: Vec<Vec<u8>>,
    /// Responses in `tails`.
    rows: usize,
    /// When the last response was requested.
    last: Option<Timestamp>,
}

impl StoredState {
    fn load(storage: &dyn Storage, id: TableId) -> Result<StoredState, Error> {
        let state = storage.state(id)?;
        let tails: Vec<Vec<u8>> = storage.tails(id)?.into_iter().map(|(_, bytes)| bytes).collect();
        // Damage is reported when the chunk is made.
        let flushed = tails.iter().flat_map(|bytes| decode_tail(bytes, MAX_COLUMNS).unwrap_or_default());
        let (mut rows, mut last) = (0, None);
        flushed.for_each(|(row, _)| (rows, last) = (rows + 1, Some(row.requested_at)));
        if last.is_none()
            && let Some(Ok((known, _))) = state.as_ref().map(|s| decode_state(&s.as_slice(), MAX_COLUMNS))
        {
            last = known.last_poll.map(|(_, requested_at)| requested_at);
        }
        Ok(StoredState { state, tails, rows, last })
    }
}

impl Table {
    /// Continues from the stored state.
    fn resume(&mut self, storage: &dyn Storage, stored: &StoredState) -> Result<(), Error> {
        self.tracker.state = match &stored.state {
            None => TableState::default(),
            Some(state) => {
                let read = decode_state(&state.as_slice(), self.columns.len());
                read.map_err(|damage| storage.corrupt("the state of a table", damage))?.0
            }
        };
        for bytes in &stored.tails {
            for (row, values) in decode_tail(bytes, self.columns.len()).unwrap_or_default() {
                let answer = row.answered_at.map(|answered| crate::counter::Answer {
                    answered_at: answered,
                    uptime: row.uptime,
                    values,
                });
                let _ = self.tracker.update(
                    &self.columns,
                    &Response { due_at: row.due_at, requested_at: row.requested_at, answer },
                );
            }
        }
        (self.flushed, self.last_written, self.has_chunk) =
            (stored.rows, stored.last, stored.state.is_some());
        Ok(())
    }

    fn chunk_rows(&self) -> usize {
        (CHUNK_VALUES / self.columns.len().max(1)).clamp(64, CHUNK_ROWS)
    }

    /// Returns the number of rows that make a chunk. The first chunk is shorter, depending on the table's identifier,
    /// so that chunks of many tables end at different times.
    fn threshold(&self, id: TableId) -> usize {
        let rows = self.chunk_rows();
        let part = (id.0.unsigned_abs() % 64) as usize;
        if self.has_chunk { rows } else { rows / 2 + rows / 2 * part / 64 }
    }
}

/// Encodes the buffered rows of a table: as one tail, or as several if it would exceed [`TRANSACTION_BYTES`].
fn split_tail(table: TableId, rows: &[RowValues], into: &mut Vec<TailRow>) {
    let Some((row, _)) = rows.last() else { return };
    let bytes = encode_tail(rows);
    if bytes.len() > TRANSACTION_BYTES && rows.len() > 1 {
        let (first, rest) = rows.split_at(rows.len() / 2);
        split_tail(table, first, into);
        split_tail(table, rest, into);
        return;
    }
    into.push(TailRow { table, rows: rows.len(), last: row.time(), bytes });
}

/// Splits a slice into batches of about [`TRANSACTION_BYTES`], each with at least one element.
fn batches<T>(things: &[T], size: impl Fn(&T) -> usize) -> impl Iterator<Item = &[T]> {
    let mut rest = things;
    std::iter::from_fn(move || {
        let mut octets = 0;
        let fits = |thing: &&T| {
            octets += size(thing);
            octets <= TRANSACTION_BYTES
        };
        let count = rest.iter().take_while(fits).count().max(1);
        let (part, more) = rest.split_at_checked(count)?;
        rest = more;
        Some(part)
    })
}
