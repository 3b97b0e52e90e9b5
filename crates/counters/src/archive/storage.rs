//! The storage interface of an archive: tables and series, texts, flushes and chunks.
//!
//! Every call that writes is a transaction. Reads between [`begin_snapshot`](Storage::begin_snapshot) and
//! [`end_snapshot`](Storage::end_snapshot) see one state.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use super::chunk::EncodedChunk;
use super::encoding::{ByteSource, DecodeError};
use super::{ChunkId, Error, Location, SeriesId, SeriesInfo, SeriesSpec, TableId, TableInfo, Text, TextSpec};
use crate::counter::{Timestamp, ValueKind};

/// The index entry of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkEntry {
    pub id: ChunkId,
    pub begin: Timestamp,
    pub end: Timestamp,
    pub raw: bool,
}

/// The flushed responses of one table.
pub(crate) struct TailRow {
    pub table: TableId,
    pub rows: usize,
    pub last: Timestamp,
    pub bytes: Vec<u8>,
}

/// A database that stores an archive.
pub(crate) trait Storage: Debug + Send {
    /// Returns the location of the archive.
    fn location(&self) -> &Location;

    /// Connects a writer and locks the archive for it, if necessary. Returns the number of the connection, which changes
    /// after every reconnection. No other method of a writer connects. A file needs no connection.
    fn connect(&self) -> Result<u64, Error> {
        Ok(0)
    }
    fn connection_attempts(&self) -> u64 {
        0
    }
    /// Lets the next connection attempt start at once.
    fn reset_backoff(&self) {}
    /// Starts a snapshot: all following reads see one state.
    fn begin_snapshot(&self) -> Result<(), Error>;
    fn end_snapshot(&self) -> Result<(), Error>;

    fn find_table(&self, device: &str, name: &str) -> Result<Option<TableId>, Error>;
    /// Adds a table or updates its polling period; then adds or updates its series, each at its position.
    fn put_table(
        &self,
        id: Option<TableId>,
        device: &str,
        name: &str,
        polled: (Duration, Option<Duration>),
        series: &[(usize, &SeriesSpec, Option<usize>)],
    ) -> Result<(TableId, Vec<SeriesId>), Error>;
    /// Returns the encoded tracker state after the last chunk of a table.
    fn state(&self, table: TableId) -> Result<Option<Vec<u8>>, Error>;
    fn tables(&self, after: TableId, limit: usize) -> Result<Vec<TableInfo>, Error>;
    fn series(&self, table: TableId) -> Result<Vec<SeriesInfo>, Error>;
    fn series_by_id(&self, id: SeriesId) -> Result<Option<SeriesInfo>, Error>;

    /// Stores changed texts; of two texts with the same key the later wins.
    fn put_texts(&self, device: &str, texts: &[TextSpec<'_>], since: Timestamp) -> Result<(), Error>;
    fn texts(&self, device: &str, limit: usize) -> Result<Vec<Text>, Error>;

    fn put_tails(&self, tails: &[TailRow]) -> Result<(), Error>;
    /// Returns the last flushes of a table that are in no chunk yet, at most `limit`, each with its number, in order.
    fn last_tails(&self, table: TableId, limit: usize) -> Result<Vec<(i64, Vec<u8>)>, Error>;

    /// Replaces the tails up to number `last` by a chunk.
    fn put_chunk(
        &self,
        table: TableId,
        last: i64,
        extent: (Timestamp, Timestamp, usize),
        sealed: &EncodedChunk,
        state: &[u8],
    ) -> Result<(), Error>;
    /// Returns the chunks of a table that overlap the time from `from` to `to`, in order; at most `most`.
    fn chunks(
        &self,
        table: TableId,
        from: Timestamp,
        to: Timestamp,
        limit: usize,
    ) -> Result<Vec<ChunkEntry>, Error>;
    /// Returns the times of the first and the last response in chunks of a table.
    fn time_range(&self, table: TableId) -> Result<Option<(Timestamp, Timestamp)>, Error>;
    /// Opens the body or the summary of a chunk.
    fn blob(&self, chunk: ChunkId, body: bool) -> Result<Box<dyn ByteSource + '_>, DecodeError>;

    /// Returns chunks with or without a body that end before `before`; the oldest first.
    fn chunks_before(&self, before: Timestamp, raw: bool, limit: usize) -> Result<Vec<ChunkId>, Error>;
    /// Removes the bodies of chunks, or the whole chunks.
    fn remove_chunks(&self, chunks: &[ChunkId], whole: bool) -> Result<(), Error>;
    fn remove_tails(&self, before: Timestamp) -> Result<usize, Error>;
    /// Returns at most `pages` free pages to the file system. A server reuses free pages itself.
    fn shrink(&self, _pages: usize) -> Result<(), Error> {
        Ok(())
    }
    /// Returns the number of bytes in use.
    fn size_bytes(&self) -> Result<u64, Error>;
    /// Copies the write-ahead log into the file as far as no reader needs it.
    fn checkpoint(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the last response of each table that was forwarded to `to`; tables that were never forwarded are
    /// missing. `None` if the archive does not store this: a forwarding process only reads a file.
    fn forwarded(&self, _to: &str) -> Result<Option<BTreeMap<TableId, Timestamp>>, Error> {
        Ok(None)
    }
    /// Stores the last forwarded responses for [`Storage::forwarded`].
    fn put_forwarded(&self, _to: &str, _last: &BTreeMap<TableId, Timestamp>) -> Result<(), Error> {
        Ok(())
    }
}

impl dyn Storage + '_ {
    /// Runs `f` in a snapshot.
    pub fn snapshot<T>(&self, f: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        self.begin_snapshot()?;
        let done = f();
        self.end_snapshot()?;
        done
    }

    /// Returns the flushes of a table that are in no chunk yet, each with its number, in order.
    pub fn tails(&self, table: TableId) -> Result<Vec<(i64, Vec<u8>)>, Error> {
        self.last_tails(table, usize::MAX)
    }

    /// Returns chunks that end before `before`: the oldest without a body, then the oldest with one.
    pub fn all_chunks_before(&self, before: Timestamp, limit: usize) -> Result<Vec<ChunkId>, Error> {
        let mut all = self.chunks_before(before, false, limit)?;
        all.extend(self.chunks_before(before, true, limit - all.len())?);
        Ok(all)
    }

    pub fn corrupt(&self, what: &str, damage: DecodeError) -> Error {
        Error::Corrupt(self.location().clone(), format!("{what}: {damage}"))
    }
}

/// Returns the stored number of a kind.
pub(crate) fn kind_number(kind: ValueKind) -> i64 {
    kind as i64
}

/// Returns the kind of a stored number.
pub(crate) fn kind_from_number(number: i64) -> Option<ValueKind> {
    ValueKind::ALL.get(usize::try_from(number).ok()?).copied()
}

/// Converts a duration to stored nanoseconds.
pub(crate) fn duration_to_ns(length: Duration) -> i64 {
    i64::try_from(length.as_nanos()).unwrap_or(i64::MAX)
}

/// Converts stored nanoseconds to a duration.
pub(crate) fn duration_from_ns(ns: i64) -> Duration {
    Duration::from_nanos(ns.unsigned_abs())
}
