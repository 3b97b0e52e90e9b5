//! What an archive is made of, wherever it lies: tables and series, texts, flushes, chunks.
//!
//! Every call that writes does all or nothing. What it is to read of one moment stands between
//! [`begin`](Catalogue::begin) and [`end`](Catalogue::end).

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use super::bytes::{Damage, Source};
use super::chunk::Sealed;
use super::location::{Location, Url};
use super::sql::Db;
use super::{ChunkId, Error, Said, SeriesId, SeriesInfo, SeriesSpec, TableId, TableInfo, Text};
use crate::counter::{Column, Kind, Moment};

/// A chunk as the catalogue has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub id: ChunkId,
    pub begin: Moment,
    pub end: Moment,
    pub raw: bool,
}

/// What a flush leaves behind of one table.
pub(crate) struct TailRow {
    pub table: TableId,
    pub rows: usize,
    pub last: Moment,
    pub bytes: Vec<u8>,
}

/// The archive as a database has it.
pub(crate) trait Catalogue: Debug + Send {
    /// Which archive it is.
    fn location(&self) -> &Location;

    /// Makes sure, for who writes, that there is a connection; its number, which is another one after it was lost. Nothing
    /// else connects.
    fn ready(&self) -> Result<u64, Error>;
    /// How often a connection was tried.
    fn tries(&self) -> u64;
    /// The next try to connect waits for nothing.
    fn press(&self);
    /// Makes sure that nobody else writes a device.
    fn hold(&self, device: &str) -> Result<(), Error>;
    /// Who has a device now that was held on an earlier connection and could not be had again.
    fn taken(&self, device: &str) -> Option<String>;

    /// What is read from now on is of one moment.
    fn begin(&self) -> Result<(), Error>;
    fn end(&self) -> Result<(), Error>;

    fn find_table(&self, device: &str, name: &str) -> Result<Option<TableId>, Error>;
    /// Adds a table or tells it anew how it is polled; then adds and renews its series, each at its position.
    fn put_table(
        &self,
        id: Option<TableId>,
        device: &str,
        name: &str,
        polled: (Duration, Option<Duration>),
        series: &[(usize, &SeriesSpec, Option<usize>)],
    ) -> Result<(TableId, Vec<SeriesId>), Error>;
    /// Names and columns of a table, by position.
    fn columns(&self, table: TableId) -> Result<Vec<(String, Column)>, Error>;
    /// What is known of a table after its last chunk.
    fn state(&self, table: TableId) -> Result<Option<Vec<u8>>, Error>;
    fn tables(&self, after: TableId, most: usize) -> Result<Vec<TableInfo>, Error>;
    fn series(&self, table: TableId) -> Result<Vec<SeriesInfo>, Error>;
    fn one_series(&self, id: SeriesId) -> Result<Option<SeriesInfo>, Error>;

    /// Puts what differs from what is there; of two of the same the later.
    fn put_texts(&self, device: &str, texts: &[Said<'_>], since: Moment) -> Result<(), Error>;
    fn texts(&self, device: &str, most: usize) -> Result<Vec<Text>, Error>;

    fn put_tails(&self, tails: &[TailRow]) -> Result<(), Error>;
    /// What was flushed of a table, each flush with its number, in order.
    fn tails(&self, table: TableId) -> Result<Vec<(i64, Vec<u8>)>, Error>;
    /// The last flushes of a table, at most `most`, in order.
    fn last_tails(&self, table: TableId, most: usize) -> Result<Vec<Vec<u8>>, Error>;

    /// Puts a chunk in the place of the tails up to `last`.
    fn put_chunk(
        &self,
        table: TableId,
        last: i64,
        extent: (Moment, Moment, usize),
        sealed: &Sealed,
        state: &[u8],
    ) -> Result<(), Error>;
    /// The chunks of a table that tell of the time from `from` to `to`, in order; at most `most`.
    fn chunks(&self, table: TableId, from: Moment, to: Moment, most: usize) -> Result<Vec<Entry>, Error>;
    /// When the first and the last response of a table in a chunk came.
    fn extent(&self, table: TableId) -> Result<Option<(Moment, Moment)>, Error>;
    /// A chunk's body, or its summary.
    fn blob(&self, chunk: ChunkId, body: bool) -> Result<Box<dyn Source + '_>, Damage>;

    /// Chunks that end before `before` and have, or have not, a body; the oldest first.
    fn old(&self, before: Moment, raw: Option<bool>, most: usize) -> Result<Vec<ChunkId>, Error>;
    /// Takes the bodies of chunks away, or the chunks altogether.
    fn remove(&self, chunks: &[ChunkId], whole: bool) -> Result<(), Error>;
    fn remove_tails(&self, before: Moment) -> Result<usize, Error>;
    /// Gives free pages back to the file system, at most so many.
    fn shrink(&self, pages: usize) -> Result<(), Error>;
    /// Bytes that hold something.
    fn bytes(&self) -> Result<u64, Error>;
    /// Moves a log into the file, as far as no reader needs it.
    fn checkpoint(&self) -> Result<(), Error>;

    /// How far each table was sent on to somebody, nothing of those that never were; none if that is kept elsewhere.
    fn sent(&self, to: &str) -> Result<Option<BTreeMap<TableId, Moment>>, Error>;
    /// Keeps how far tables were sent on, where [`Catalogue::sent`] tells it.
    fn put_sent(&self, to: &str, came: &BTreeMap<TableId, Moment>) -> Result<(), Error>;
}

impl dyn Catalogue {
    /// Opens an archive to write, and makes it where there is none.
    pub fn write(at: &Location) -> Result<Box<dyn Catalogue>, Error> {
        match at {
            Location::File(path) => Ok(Box::new(Db::write(path)?)),
            Location::Server(url) => server(url, true),
            Location::Elsewhere(_) => Err(elsewhere(at)),
        }
    }

    /// Opens an archive to read.
    pub fn read(at: &Location) -> Result<Box<dyn Catalogue>, Error> {
        match at {
            Location::File(path) => Ok(Box::new(Db::read(path)?)),
            Location::Server(url) => server(url, false),
            Location::Elsewhere(_) => Err(elsewhere(at)),
        }
    }
}

impl dyn Catalogue + '_ {
    /// Everything that `f` reads is of one moment.
    pub fn snapshot<T>(&self, f: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        self.begin()?;
        let done = f();
        self.end()?;
        done
    }

    pub fn corrupt(&self, what: &str, damage: Damage) -> Error {
        Error::Corrupt { archive: self.location().clone(), reason: format!("{what}: {damage}") }
    }
}

fn elsewhere(at: &Location) -> Error {
    let reason = "a database is written postgres://USER@HOST/NAME; a file of that name begins with ./".into();
    Error::Address { archive: at.clone(), reason }
}

#[cfg(feature = "postgres")]
fn server(url: &Url, writes: bool) -> Result<Box<dyn Catalogue>, Error> {
    Ok(Box::new(super::postgres::Pg::open(url, writes)?))
}

#[cfg(not(feature = "postgres"))]
fn server(url: &Url, _: bool) -> Result<Box<dyn Catalogue>, Error> {
    let reason = "this program was built without the feature `postgres`".into();
    Err(Error::Address { archive: Location::Server(url.clone()), reason })
}

/// A kind as it is kept.
pub(crate) fn kind_number(kind: Kind) -> i64 {
    match kind {
        Kind::Counter32 => 0,
        Kind::Counter64 => 1,
        Kind::Gauge => 2,
        Kind::Real => 3,
    }
}

/// What a number stands for.
pub(crate) fn kind(number: i64) -> Option<Kind> {
    [Kind::Counter32, Kind::Counter64, Kind::Gauge, Kind::Real].get(usize::try_from(number).ok()?).copied()
}

/// A length as it is kept, in nanoseconds.
pub(crate) fn ns(length: Duration) -> i64 {
    i64::try_from(length.as_nanos()).unwrap_or(i64::MAX)
}

/// What a kept length stands for.
pub(crate) fn length(ns: i64) -> Duration {
    Duration::from_nanos(ns.unsigned_abs())
}
