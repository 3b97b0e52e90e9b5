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
//! | `open` | opens the storage of a location |
//! | `storage` | the interface of the databases below |
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

impl SeriesSpec {
    /// Creates a series without ceiling and discontinuity time.
    pub fn new(name: impl Into<String>, kind: ValueKind, unit: &str) -> SeriesSpec {
        SeriesSpec { name: name.into(), kind, unit: unit.into(), ceiling: None, discontinuity: None }
    }
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

/// Truncates a text to `max_octets` at the end of a character.
pub fn truncate(text: &str, max_octets: usize) -> &str {
    let end = (0..=max_octets.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

/// An error of an archive, which most variants name first.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file or its directory could not be created or opened, or the server could not be reached.
    #[error("cannot open the archive {0}: {1}")]
    Open(Location, String),
    /// The file or database is not an archive of counters.
    #[error("{0} is not an archive of counters")]
    NotAnArchive(Location),
    /// The archive is damaged beyond one chunk.
    #[error("the archive {0} is damaged: {1}")]
    Corrupt(Location, String),
    /// A later version of the program created the archive, of which this is the version.
    #[error("the archive {0} has version {1}; this program is too old to read it")]
    VersionTooNew(Location, u64),
    /// An earlier version of the program created the archive, and no writer has migrated it yet.
    #[error("the archive {0} has version {1}: open it for writing once to migrate it")]
    VersionTooOld(Location, u64),
    /// The archive is read-only.
    #[error("the archive {0} is read-only")]
    ReadOnly(Location),
    /// The disk is full.
    #[error("the disk is full: cannot write the archive {0}")]
    DiskFull(Location),
    /// Another process holds the lock of the archive; a server may know which.
    #[error("another program is writing the archive {0}{holder}", holder = .1.as_ref().map_or(String::new(), |h| format!(": {h}")))]
    Locked(Location, Option<String>),
    /// The address of the database is invalid.
    #[error("the archive {0}: {1}")]
    InvalidAddress(Location, String),
    /// The connection to the server is lost. Unwritten responses stay buffered.
    #[error("the archive {0} is out of reach: {1}")]
    Disconnected(Location, String),
    /// Another process wrote this table of this device while the connection was lost; so many responses are discarded.
    #[error("another program wrote `{1}` of `{0}` in the meantime: {2} responses are discarded")]
    WriteConflict(String, String, usize),
    /// One chunk is damaged.
    #[error("the archive {0}: chunk {chunk}: {2}", chunk = .1.0)]
    ChunkDamaged(Location, ChunkId, DecodeError),
    /// The definition of a table of this name is invalid.
    #[error("table `{0}`: {1}")]
    InvalidTable(String, String),
    /// The table or series does not exist.
    #[error("the archive {0} has no {1}")]
    NotFound(Location, String),
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
    /// So many responses of a table are buffered that it takes no more.
    #[error("{0} responses of a table wait for a flush: the buffer is full")]
    BufferFull(usize),
    /// Another error of the database.
    #[error("the archive {0}: {1}")]
    Database(Location, #[source] Box<dyn std::error::Error + Send + Sync>),
}
