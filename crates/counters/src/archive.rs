//! The archive of the flow monitor: every reading of every counter, in one SQLite file or a database of PostgreSQL.
//!
//! | module | what |
//! | --- | --- |
//! | [`writer`] | the one who writes: tables, responses, flushes, chunks, retention |
//! | [`reader`] | those who read: views that lose no peak, raw points |
//! | [`choose`] | which series are meant: `sw1:port/*/in/octets` |
//! | [`flat`] | points and views as rows: CSV and, with the feature `parquet`, Parquet |
//! | [`prometheus`] | the newest values as a page that Prometheus reads; names and labels |
//! | [`run`] | what a run of an experiment counted over time, put into the archive |
//! | [`recent`] | what the last responses of a table told of all of its series |
//! | [`location`] | where an archive is |
//! | [`place`] | names of series: which port, channel, host or flow, which way, what is counted |
//! | [`summary`] | exact sums, least and most, coverage, events; buckets of them over time |
//! | [`chunk`] | about a thousand responses, column by column, and a summary of each column |
//! | [`row`] | a response with what was found out about it; how it waits for its chunk |
//! | `numbers` | a column of numbers as bytes |
//! | [`bytes`] | integers in few bytes; parts with checksums |
//! | `catalogue` | what an archive is made of, wherever it lies |
//! | `sql` | all SQL of the file |
//! | `postgres` | with the feature `postgres`: the same in a database of PostgreSQL |
//!
//! ```text
//!  response ──► Judge ──► row ──flush──► tail ──seal──► chunk ──retention──► summary alone ──► gone
//!                                         └──────► view: growth between rows, or summaries ◄──┘
//! ```
//!
//! What a series tells is always derived from raw rows by [`counter`](crate::counter), and the same rows give the same
//! growth whether they lie in a tail or a chunk: with each column of a chunk stands what its tracker knew when the chunk
//! began. A summary stands in for its chunk where the whole of it falls into one bucket of a view.

use std::time::Duration;

use crate::counter::{Column, Disorder, Kind, Moment};

pub mod bytes;
mod catalogue;
pub mod choose;
pub mod chunk;
pub mod flat;
pub mod location;
mod numbers;
pub mod place;
#[cfg(feature = "postgres")]
mod postgres;
pub mod prometheus;
pub mod reader;
pub mod recent;
pub mod row;
pub mod run;
mod sql;
pub mod summary;
pub mod writer;

pub use bytes::Damage;
pub use choose::Pattern;
pub use location::Location;
pub use place::{Direction, Object, Place};
pub use reader::{Point, Points, Reader, Responded, Responses, View};
pub use recent::Recent;
pub use row::Row;
pub use summary::{Buckets, Range, Summary};
pub use writer::{Layout, Removed, Retention, Writer};

/// Most columns of a table.
pub const MOST_COLUMNS: usize = 16_384;
/// Most buckets of a view.
pub const MOST_BUCKETS: usize = 8_192;
/// Most points that are given at once.
pub const MOST_POINTS: usize = 100_000;
/// Most octets of a text; longer ones are cut.
pub const MOST_TEXT: usize = 1_024;
/// Most texts of a device that are given at once.
pub const MOST_TEXTS: usize = 100_000;

/// Number of a table in its archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableId(pub i64);

/// Number of a series in its archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeriesId(pub i64);

/// Number of a chunk in its archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChunkId(pub i64);

/// A table as it shall be: what one device is asked in one go.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSpec {
    /// Whom: a name or an address.
    pub device: String,
    /// What: unique on its device.
    pub name: String,
    /// How often.
    pub period: Duration,
    /// How old the agent's answers may be; none if that is to be learned.
    pub refresh: Option<Duration>,
    /// Its columns.
    pub series: Vec<SeriesSpec>,
}

/// A series as it shall be.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesSpec {
    /// Unique in its table: mostly a [`Place`], such as `port/eth0/in/octets`.
    pub name: String,
    /// What it holds. A series keeps its kind.
    pub kind: Kind,
    /// What it counts: `octets`, `cells`.
    pub unit: String,
    /// As [`Column::ceiling`].
    pub ceiling: Option<u64>,
    /// Name of the series of the same table that holds its discontinuity time.
    pub mark: Option<String>,
}

/// A table as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct TableInfo {
    /// Its number.
    pub id: TableId,
    /// As in [`TableSpec`].
    pub device: String,
    /// As in [`TableSpec`].
    pub name: String,
    /// As in [`TableSpec`].
    pub period: Duration,
    /// As in [`TableSpec`].
    pub refresh: Option<Duration>,
}

/// A series as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesInfo {
    /// Its number.
    pub id: SeriesId,
    /// Its table.
    pub table: TableId,
    /// Of its column in the table's chunks.
    pub position: usize,
    /// As in [`SeriesSpec`].
    pub name: String,
    /// What there is to know of its readings.
    pub column: Column,
    /// As in [`SeriesSpec`].
    pub unit: String,
}

/// A text to be kept beside the numbers: the description of a port, its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said<'a> {
    /// Of what: an [`Object`] as it stands in names of series, or empty for the device itself.
    pub object: &'a str,
    /// What is said: `description`, `alias`, `state`.
    pub key: &'a str,
    /// In which words; at most [`MOST_TEXT`] octets are kept.
    pub text: &'a str,
}

/// A text as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// As in [`Said`].
    pub object: String,
    /// As in [`Said`].
    pub key: String,
    /// As in [`Said`].
    pub text: String,
    /// Since when.
    pub since: Moment,
}

/// Why the archive could not be used. Each says which archive.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file or its folder could not be made or opened, the server not be reached.
    #[error("cannot open the archive {archive}: {reason}")]
    Open {
        /// Which.
        archive: Location,
        /// The system's reason.
        reason: String,
    },
    /// It is something else.
    #[error("{archive} is not an archive of counters")]
    Foreign {
        /// Which.
        archive: Location,
    },
    /// It is damaged beyond one chunk.
    #[error("the archive {archive} is damaged: {reason}")]
    Corrupt {
        /// Which.
        archive: Location,
        /// What is wrong.
        reason: String,
    },
    /// A later program made it.
    #[error("the archive {archive} is of version {found}, which this program is too old for")]
    Newer {
        /// Which.
        archive: Location,
        /// Its version.
        found: u64,
    },
    /// An earlier program made it and nobody has written since.
    #[error("the archive {archive} is of version {found}: write to it once to bring it up to date")]
    Older {
        /// Which.
        archive: Location,
        /// Its version.
        found: u64,
    },
    /// It may be read only.
    #[error("the archive {archive} may not be written")]
    ReadOnly {
        /// Which.
        archive: Location,
    },
    /// No room is left.
    #[error("the disk is full: cannot write the archive {archive}")]
    Full {
        /// Which.
        archive: Location,
    },
    /// Another program writes it.
    #[error("another program holds the archive {archive}")]
    Busy {
        /// Which.
        archive: Location,
    },
    /// The address of a database says what cannot be.
    #[error("the archive {archive}: {reason}")]
    Address {
        /// Which.
        archive: Location,
        /// What.
        reason: String,
    },
    /// Another program writes this device.
    #[error("another program writes `{device}` in the archive {archive}: {who}")]
    Held {
        /// Which.
        archive: Location,
        /// The device.
        device: String,
        /// Who it is.
        who: String,
    },
    /// The server of the archive is gone for now. What waited to be written goes on waiting.
    #[error("the archive {archive} is out of reach: {reason}")]
    Lost {
        /// Which.
        archive: Location,
        /// Why.
        reason: String,
    },
    /// While the server was gone another program wrote a table.
    #[error("another program wrote `{table}` of `{device}` meanwhile: {rows} responses are left out")]
    Overtaken {
        /// Of which device.
        device: String,
        /// Which.
        table: String,
        /// How many.
        rows: usize,
    },
    /// A chunk is damaged. Others are not.
    #[error("the archive {archive}: chunk {}: {damage}", chunk.0)]
    Damaged {
        /// Which.
        archive: Location,
        /// The chunk.
        chunk: ChunkId,
        /// What is wrong with it.
        damage: Damage,
    },
    /// A table cannot be as asked.
    #[error("table `{table}`: {reason}")]
    Spec {
        /// Its name.
        table: String,
        /// Why.
        reason: String,
    },
    /// There is no such table or series.
    #[error("the archive {archive} has no {what}")]
    None {
        /// Which.
        archive: Location,
        /// What.
        what: String,
    },
    /// A response is not of its time.
    #[error(transparent)]
    Disorder(#[from] Disorder),
    /// A response has not one value a column.
    #[error("a response has {found} values, its table {columns} columns")]
    Width {
        /// Columns.
        columns: usize,
        /// Values.
        found: usize,
    },
    /// So much waits to be flushed that no more is taken.
    #[error("{rows} responses of a table wait to be flushed: no more is taken")]
    Unflushed {
        /// How many.
        rows: usize,
    },
    /// Something else went wrong below.
    #[error("the archive {archive}: {source}")]
    Other {
        /// Which.
        archive: Location,
        /// The database's reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
