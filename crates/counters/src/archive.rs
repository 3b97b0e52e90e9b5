//! An archive of counter readings: one SQLite file or one PostgreSQL database that stores every reading.
//!
//! | module | contents |
//! | --- | --- |
//! | [`writer`] | the writer: tables, responses, flushes, chunks, retention |
//! | [`reader`] | readers: views that keep peaks, raw points |
//! | [`pattern`] | patterns that select series: `sw1:port/*/in/octets` |
//! | [`export`] | points and views as rows: CSV and, with the feature `parquet`, Parquet |
//! | [`prometheus`] | the latest values as a page for Prometheus; metric names and labels |
//! | [`run_import`] | import of the time series of an experiment's record |
//! | [`recent`] | the last responses of a table for all of its series |
//! | [`location`] | location of an archive: a file or a database |
//! | [`name`] | names of series: part of a device, direction, quantity |
//! | [`summary`] | exact sums, lowest and highest values, coverage, events; buckets over time |
//! | [`chunk`] | about a thousand responses by column, and a summary of each column |
//! | [`row`] | a response with its status; encoding of flushed responses |
//! | `state` | the stored state of a table's trackers |
//! | `numbers` | encoding of a column of numbers |
//! | [`encoding`] | variable-length integers; parts with checksums |
//! | `storage` | the interface of the databases below |
//! | `open` | opens the storage of a location |
//! | `sqlite` | storage in an SQLite file |
//! | `postgres` | with the feature `postgres`: storage in a PostgreSQL database |
//! | `postgres_url` | with the feature `postgres`: addresses and passwords of databases |
//!
//! ```text
//!  response ──► TableTracker ──► row ──flush──► tail ──► chunk ──retention──► summary only ──► removed
//!                                                └──► view: growth between rows, or summaries ◄──┘
//! ```
//!
//! The archive always derives growth from raw rows by [`counter`](crate::counter). Rows give the same growth in a
//! tail and in a chunk, because a chunk stores the tracker state of each column at its beginning. A view uses the
//! summary of a chunk if the whole chunk falls into one bucket.

use std::time::Duration;

use crate::counter::{Column, OutOfOrder, Timestamp, ValueKind};

pub mod chunk;
pub mod encoding;
pub mod export;
pub mod location;
pub mod name;
mod numbers;
mod open;
pub mod pattern;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_url;
pub mod prometheus;
pub mod reader;
pub mod recent;
pub mod row;
pub mod run_import;
mod sqlite;
mod state;
mod storage;
pub mod summary;
pub mod writer;

pub use encoding::DecodeError;
pub use location::Location;
pub use name::{Direction, Object, SeriesName};
pub use pattern::Pattern;
pub use reader::{LatestAnswer, Point, Points, Reader, Responses, View};
pub use recent::Recent;
pub use row::Row;
pub use summary::{Buckets, Range, Summary};
pub use writer::{Layout, RemovalStats, Retention, Writer};

/// Maximum number of columns of a table.
pub const MAX_COLUMNS: usize = 16_384;
/// Maximum number of responses in a chunk.
pub const MAX_CHUNK_ROWS: usize = 4_096;
/// Maximum number of buckets of a view.
pub const MAX_BUCKETS: usize = 8_192;
/// Maximum number of points that one call returns.
pub const MAX_POINTS: usize = 100_000;
/// Maximum length of a text in octets; longer texts are truncated.
pub const MAX_TEXT_LENGTH: usize = 1_024;
/// Maximum number of texts of a device that one call returns.
pub const MAX_TEXTS: usize = 100_000;

/// Identifies a table within its archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableId(pub i64);

/// Identifies a series within its archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeriesId(pub i64);

/// Identifies a chunk within its archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChunkId(pub i64);

/// The definition of a table: the objects that one device is polled for in one request.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSpec {
    /// The device: a name or an address.
    pub device: String,
    /// The name, unique on the device.
    pub name: String,
    /// The polling period.
    pub period: Duration,
    /// The refresh period of the agent's cache; `None` to learn it.
    pub refresh: Option<Duration>,
    /// The columns.
    pub series: Vec<SeriesSpec>,
}

/// The definition of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesSpec {
    /// The name, unique in the table: usually a [`SeriesName`], such as `port/eth0/in/octets`.
    pub name: String,
    /// The type of its values, which cannot change.
    pub kind: ValueKind,
    /// The unit: `octets`, `cells`.
    pub unit: String,
    /// See [`Column::ceiling`].
    pub ceiling: Option<u64>,
    /// The name of the series in the same table that holds the discontinuity time.
    pub discontinuity: Option<String>,
}

/// A table of the archive.
#[derive(Clone, Debug, PartialEq)]
pub struct TableInfo {
    /// The identifier.
    pub id: TableId,
    /// See [`TableSpec`].
    pub device: String,
    /// See [`TableSpec`].
    pub name: String,
    /// See [`TableSpec`].
    pub period: Duration,
    /// See [`TableSpec`].
    pub refresh: Option<Duration>,
}

/// A series of the archive.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesInfo {
    /// The identifier.
    pub id: SeriesId,
    /// The table.
    pub table: TableId,
    /// The position of its column in the table's chunks.
    pub position: usize,
    /// See [`SeriesSpec`].
    pub name: String,
    /// The properties of its column.
    pub column: Column,
    /// See [`SeriesSpec`].
    pub unit: String,
}

/// A text about a device, such as the description or the state of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextSpec<'a> {
    /// The [`Object`] as in names of series, or empty for the device itself.
    pub object: &'a str,
    /// The property: `description`, `alias`, `state`.
    pub key: &'a str,
    /// The text; at most [`MAX_TEXT_LENGTH`] octets are stored.
    pub text: &'a str,
}

/// A stored text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// See [`TextSpec`].
    pub object: String,
    /// See [`TextSpec`].
    pub key: String,
    /// See [`TextSpec`].
    pub text: String,
    /// When this text was first reported.
    pub since: Timestamp,
}

/// An error of an archive; the message names the archive.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file or its directory could not be created or opened, or the server could not be reached.
    #[error("cannot open the archive {archive}: {reason}")]
    Open {
        /// The archive.
        archive: Location,
        /// The reason given by the system.
        reason: String,
    },
    /// The file or database is not an archive of counters.
    #[error("{archive} is not an archive of counters")]
    NotAnArchive {
        /// The archive.
        archive: Location,
    },
    /// The archive is damaged beyond one chunk.
    #[error("the archive {archive} is damaged: {reason}")]
    Corrupt {
        /// The archive.
        archive: Location,
        /// The cause.
        reason: String,
    },
    /// A later version of the program created the archive.
    #[error("the archive {archive} has version {found}; this program is too old to read it")]
    VersionTooNew {
        /// The archive.
        archive: Location,
        /// Its version.
        found: u64,
    },
    /// An earlier version of the program created the archive, and no writer has migrated it yet.
    #[error("the archive {archive} has version {found}: open it for writing once to migrate it")]
    VersionTooOld {
        /// The archive.
        archive: Location,
        /// Its version.
        found: u64,
    },
    /// The archive is read-only.
    #[error("the archive {archive} is read-only")]
    ReadOnly {
        /// The archive.
        archive: Location,
    },
    /// The disk is full.
    #[error("the disk is full: cannot write the archive {archive}")]
    DiskFull {
        /// The archive.
        archive: Location,
    },
    /// Another process holds the lock of the archive.
    #[error("another program is writing the archive {archive}{}", holder.as_ref().map_or(String::new(), |h| format!(": {h}")))]
    Locked {
        /// The archive.
        archive: Location,
        /// The process, if a server knows it.
        holder: Option<String>,
    },
    /// The address of the database is invalid.
    #[error("the archive {archive}: {reason}")]
    InvalidAddress {
        /// The archive.
        archive: Location,
        /// The cause.
        reason: String,
    },
    /// The connection to the server is lost. Unwritten responses stay buffered.
    #[error("the archive {archive} is out of reach: {reason}")]
    Disconnected {
        /// The archive.
        archive: Location,
        /// The cause.
        reason: String,
    },
    /// Another process wrote the table while the connection was lost.
    #[error("another program wrote `{table}` of `{device}` in the meantime: {rows} responses are discarded")]
    WriteConflict {
        /// The device.
        device: String,
        /// The archive.
        table: String,
        /// The number of responses.
        rows: usize,
    },
    /// One chunk is damaged.
    #[error("the archive {archive}: chunk {}: {damage}", chunk.0)]
    ChunkDamaged {
        /// The archive.
        archive: Location,
        /// The chunk.
        chunk: ChunkId,
        /// The decoding error.
        damage: DecodeError,
    },
    /// The definition of a table is invalid.
    #[error("table `{table}`: {reason}")]
    InvalidTable {
        /// The name of the table.
        table: String,
        /// The cause.
        reason: String,
    },
    /// The table or series does not exist.
    #[error("the archive {archive} has no {what}")]
    NotFound {
        /// The archive.
        archive: Location,
        /// The cause.
        what: String,
    },
    /// A response is out of order.
    #[error(transparent)]
    OutOfOrder(#[from] OutOfOrder),
    /// The number of values differs from the number of columns.
    #[error("a response has {found} values, its table {columns} columns")]
    ValueCount {
        /// Number of columns.
        columns: usize,
        /// Number of values.
        found: usize,
    },
    /// Too many responses are buffered.
    #[error("{rows} responses of a table wait for a flush: the buffer is full")]
    BufferFull {
        /// The number of responses.
        rows: usize,
    },
    /// Another error of the database.
    #[error("the archive {archive}: {source}")]
    Database {
        /// The archive.
        archive: Location,
        /// The error of the database.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
