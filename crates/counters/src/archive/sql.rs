//! All SQL of the archive, and its file.
//!
//! The file uses a write-ahead log, unlike that of [`archive`](crate::archive): it is written every few seconds and read
//! by others meanwhile, whom a rollback journal would lock out; and a flush costs no synchronous write. A killed program
//! loses nothing that was flushed, a power cut at most the last flushes, and neither damages the file. The price is that
//! it has to lie in a folder that can be written, on a file system of this machine.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row, params};

use super::bytes::{Damage, Source};
use super::catalogue::{Catalogue, Entry, TailRow, kind, kind_number, length, ns};
use super::location::Location;
use super::{ChunkId, Error, Said, SeriesId, SeriesInfo, SeriesSpec, TableId, TableInfo, Text};
use crate::counter::{Column, Moment};

/// Marks the file as ours (`PRAGMA application_id`): "TRKC".
const APPLICATION: i32 = 0x54524B43;

/// How often a lock is tried, and the pause between, two seconds in all: a process that is being started by this one has what
/// this one has open until it is another program, for which it wants a processor.
const LOCK: (u32, Duration) = (2_000, Duration::from_millis(1));
/// How long to wait for another program.
const PATIENCE: Duration = Duration::from_secs(10);

/// Each step from one version of the tables (`PRAGMA user_version`) to the next. Never change one: add one.
const MIGRATIONS: [&str; 2] = [
    "
    CREATE TABLE tables (
        id         INTEGER PRIMARY KEY,
        device     TEXT    NOT NULL,
        name       TEXT    NOT NULL,
        period_ns  INTEGER NOT NULL,
        refresh_ns INTEGER,                     -- as told; null if learned
        state      BLOB,                        -- what is known after the last chunk
        UNIQUE (device, name)
    );
    CREATE TABLE series (
        id       INTEGER PRIMARY KEY,
        table_id INTEGER NOT NULL REFERENCES tables,
        position INTEGER NOT NULL,              -- of the column in the table's chunks
        name     TEXT    NOT NULL,
        kind     INTEGER NOT NULL,              -- 0 Counter32, 1 Counter64, 2 gauge, 3 real
        unit     TEXT    NOT NULL,
        ceiling  INTEGER,                       -- 64 bits; those above 2^63 stand as negative
        mark     INTEGER,                       -- position of the discontinuity time
        UNIQUE (table_id, position),
        UNIQUE (table_id, name)
    );
    CREATE TABLE tails (                        -- what was flushed and is in no chunk yet
        id       INTEGER PRIMARY KEY AUTOINCREMENT,
        table_id INTEGER NOT NULL REFERENCES tables,
        rows     INTEGER NOT NULL,
        last     INTEGER NOT NULL,              -- when the last answer came, ns since 1970
        bytes    BLOB    NOT NULL
    );
    CREATE INDEX tails_by_table ON tails (table_id, id);
    CREATE TABLE chunks (
        id       INTEGER PRIMARY KEY AUTOINCREMENT,
        table_id INTEGER NOT NULL REFERENCES tables,
        reach    INTEGER NOT NULL,              -- begin of the earliest interval that ends in it
        begin    INTEGER NOT NULL,              -- first and last response
        end      INTEGER NOT NULL,
        rows     INTEGER NOT NULL,
        raw      INTEGER NOT NULL,              -- whether there is a body
        summary  BLOB    NOT NULL
    );
    CREATE INDEX chunks_by_end ON chunks (table_id, end, reach, begin, rows, raw);
    CREATE INDEX chunks_by_age ON chunks (raw, end);
    CREATE TABLE bodies (
        chunk INTEGER PRIMARY KEY REFERENCES chunks,
        bytes BLOB NOT NULL
    );
",
    "
    CREATE TABLE texts (                        -- what devices say of themselves in words, as it is now
        device TEXT    NOT NULL,
        object TEXT    NOT NULL,                -- as in names of series; empty: the device itself
        key    TEXT    NOT NULL,
        text   TEXT    NOT NULL,
        since  INTEGER NOT NULL,                -- when it was first seen to say so, ns since 1970
        PRIMARY KEY (device, object, key)
    ) WITHOUT ROWID;
",
];

/// Takes a lock, or gives up.
fn locked(lock: &File) -> Result<(), TryLockError> {
    for _ in 1..LOCK.0 {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => thread::park_timeout(LOCK.1),
            done => return done,
        }
    }
    lock.try_lock()
}

/// An open file.
#[derive(Debug)]
pub(crate) struct Db {
    connection: Connection,
    archive: Location,
    /// Held by the one who writes.
    _lock: Option<File>,
}

impl Db {
    pub fn write(path: &Path) -> Result<Db, Error> {
        let open = |reason: String| Error::Open { archive: path.into(), reason };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|e| open(e.to_string()))?;
        }
        let mut beside = path.as_os_str().to_owned();
        beside.push("-writer");
        let lock =
            File::options().create(true).append(true).open(&beside).map_err(|e| open(e.to_string()))?;
        locked(&lock).map_err(|error| match error {
            TryLockError::WouldBlock => Error::Busy { archive: path.into() },
            TryLockError::Error(e) => open(e.to_string()),
        })?;
        let connection = Connection::open(path).map_err(|e| open(e.to_string()))?;
        let db = Db { connection, archive: path.into(), _lock: Some(lock) };
        db.sql(|c| c.busy_timeout(PATIENCE))?;
        db.prepare()?;
        db.sql(|c| c.pragma_update(None, "journal_mode", "WAL"))?;
        db.sql(|c| c.pragma_update(None, "synchronous", "NORMAL"))?;
        db.sql(|c| c.pragma_update(None, "journal_size_limit", 64 << 20))?;
        Ok(db)
    }

    pub fn read(path: &Path) -> Result<Db, Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = |e: rusqlite::Error| Error::Open { archive: path.into(), reason: e.to_string() };
        let connection = Connection::open_with_flags(path, flags).map_err(open)?;
        let db = Db { connection, archive: path.into(), _lock: None };
        db.sql(|c| c.busy_timeout(PATIENCE))?;
        match db.version()? {
            Some(v) if v == MIGRATIONS.len() => Ok(db),
            Some(v) => Err(Error::Older { archive: path.into(), found: v as u64 }),
            None => Err(Error::Foreign { archive: path.into() }),
        }
    }

    /// Tells whose file it is and brings its tables up to date.
    fn prepare(&self) -> Result<(), Error> {
        let version = self.version()?;
        if version == Some(MIGRATIONS.len()) {
            return Ok(());
        }
        // These take effect in a file without tables only.
        self.sql(|c| c.pragma_update(None, "page_size", 8192))?;
        self.sql(|c| c.pragma_update(None, "auto_vacuum", "INCREMENTAL"))?;
        self.transaction(|c| {
            c.pragma_update(None, "application_id", APPLICATION)?;
            MIGRATIONS[version.unwrap_or(0)..].iter().try_for_each(|step| c.execute_batch(step))?;
            c.pragma_update(None, "user_version", MIGRATIONS.len() as i64)
        })
    }

    /// Version of the tables; none in an empty file.
    fn version(&self) -> Result<Option<usize>, Error> {
        let number = |pragma: &str| self.sql(|c| c.pragma_query_value(None, pragma, |r| r.get::<_, i64>(0)));
        let version = number("user_version")?;
        let archive = || self.archive.clone();
        if number("application_id")? != i64::from(APPLICATION) {
            let tables: i64 =
                self.sql(|c| c.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0)))?;
            return if (version, tables) == (0, 0) {
                Ok(None)
            } else {
                Err(Error::Foreign { archive: archive() })
            };
        }
        match usize::try_from(version) {
            Ok(v) if v <= MIGRATIONS.len() => Ok(Some(v)),
            _ => Err(Error::Newer { archive: archive(), found: version.unsigned_abs() }),
        }
    }

    fn sql<T>(&self, f: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        f(&self.connection).map_err(|e| self.error(e))
    }

    /// All that `f` writes, or nothing.
    fn transaction<T>(&self, f: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        self.sql(|c| {
            c.execute_batch("BEGIN IMMEDIATE")?;
            let done = f(c).and_then(|value| c.execute_batch("COMMIT").map(|()| value));
            if done.is_err() {
                // Where the error has rolled back already, this says so; the first error is what matters.
                let _ = c.execute_batch("ROLLBACK");
            }
            done
        })
    }

    fn error(&self, source: rusqlite::Error) -> Error {
        let archive = self.archive.clone();
        match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Error::Foreign { archive },
            Some(ErrorCode::DatabaseCorrupt) => Error::Corrupt { archive, reason: source.to_string() },
            Some(ErrorCode::CannotOpen) => Error::Open { archive, reason: source.to_string() },
            Some(ErrorCode::ReadOnly) => Error::ReadOnly { archive },
            Some(ErrorCode::DiskFull) => Error::Full { archive },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Busy { archive },
            _ => Error::Other { archive, source: source.into() },
        }
    }
}

impl Catalogue for Db {
    fn location(&self) -> &Location {
        &self.archive
    }

    /// A file is there.
    fn ready(&self) -> Result<u64, Error> {
        Ok(0)
    }

    fn tries(&self) -> u64 {
        0
    }

    fn press(&self) {}

    /// Who writes holds the whole file.
    fn hold(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn taken(&self, _: &str) -> Option<String> {
        None
    }

    fn begin(&self) -> Result<(), Error> {
        self.sql(|c| c.execute_batch("BEGIN DEFERRED"))
    }

    fn end(&self) -> Result<(), Error> {
        self.sql(|c| c.execute_batch("COMMIT"))
    }

    // --- tables and series

    fn find_table(&self, device: &str, name: &str) -> Result<Option<TableId>, Error> {
        self.sql(|c| {
            c.query_row("SELECT id FROM tables WHERE device = ?1 AND name = ?2", [device, name], |r| r.get(0))
                .optional()
        })
        .map(|id| id.map(TableId))
    }

    fn put_table(
        &self,
        id: Option<TableId>,
        device: &str,
        name: &str,
        (period, refresh): (Duration, Option<Duration>),
        series: &[(usize, &SeriesSpec, Option<usize>)],
    ) -> Result<(TableId, Vec<SeriesId>), Error> {
        self.transaction(|c| {
            c.execute(
                "INSERT INTO tables (id, device, name, period_ns, refresh_ns) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT DO UPDATE SET period_ns = excluded.period_ns, refresh_ns = excluded.refresh_ns",
                params![id.map(|t| t.0), device, name, ns(period), refresh.map(ns)],
            )?;
            let table: i64 = c.query_row(
                "SELECT id FROM tables WHERE device = ?1 AND name = ?2",
                [device, name],
                |r| r.get(0),
            )?;
            let mut put = c.prepare(
                "INSERT INTO series (table_id, position, name, kind, unit, ceiling, mark)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                 ON CONFLICT (table_id, position) DO UPDATE SET
                    kind = excluded.kind, unit = excluded.unit, ceiling = excluded.ceiling, mark = excluded.mark
                 RETURNING id",
            )?;
            let ids = series.iter().map(|(position, spec, mark)| {
                let ceiling = spec.ceiling.map(|c| c as i64);
                let kind = kind_number(spec.kind);
                let row = params![table, *position as i64, spec.name, kind, spec.unit, ceiling, mark.map(|m| m as i64)];
                put.query_row(row, |r| r.get(0)).map(SeriesId)
            });
            Ok((TableId(table), ids.collect::<rusqlite::Result<_>>()?))
        })
    }

    fn columns(&self, table: TableId) -> Result<Vec<(String, Column)>, Error> {
        self.sql(|c| {
            c.prepare("SELECT name, kind, ceiling, mark FROM series WHERE table_id = ?1 ORDER BY position")?
                .query_map([table.0], |row| Ok((row.get(0)?, column(row, 1)?)))?
                .collect()
        })
    }

    fn state(&self, table: TableId) -> Result<Option<Vec<u8>>, Error> {
        self.sql(|c| c.query_row("SELECT state FROM tables WHERE id = ?1", [table.0], |r| r.get(0)))
    }

    fn tables(&self, after: TableId, most: usize) -> Result<Vec<TableInfo>, Error> {
        self.sql(|c| {
            c.prepare(
                "SELECT id, device, name, period_ns, refresh_ns FROM tables WHERE id > ?1 ORDER BY id LIMIT ?2",
            )?
            .query_map(params![after.0, most as i64], |row| {
                Ok(TableInfo {
                    id: TableId(row.get(0)?),
                    device: row.get(1)?,
                    name: row.get(2)?,
                    period: length(row.get(3)?),
                    refresh: row.get::<_, Option<i64>>(4)?.map(length),
                })
            })?
            .collect()
        })
    }

    fn series(&self, table: TableId) -> Result<Vec<SeriesInfo>, Error> {
        self.sql(|c| {
            c.prepare(&format!("{SERIES} WHERE table_id = ?1 ORDER BY position"))?
                .query_map([table.0], info)?
                .collect()
        })
    }

    fn one_series(&self, id: SeriesId) -> Result<Option<SeriesInfo>, Error> {
        self.sql(|c| c.prepare(&format!("{SERIES} WHERE id = ?1"))?.query_row([id.0], info).optional())
    }

    // --- texts

    fn put_texts(&self, device: &str, texts: &[Said<'_>], since: Moment) -> Result<(), Error> {
        self.transaction(|c| {
            let mut put = c.prepare(
                "INSERT INTO texts (device, object, key, text, since) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT DO UPDATE SET text = excluded.text, since = excluded.since WHERE text <> excluded.text",
            )?;
            texts.iter().try_for_each(|said| {
                put.execute(params![device, said.object, said.key, said.text, since.0]).map(|_| ())
            })
        })
    }

    fn texts(&self, device: &str, most: usize) -> Result<Vec<Text>, Error> {
        self.sql(|c| {
            c.prepare(
                "SELECT object, key, text, since FROM texts WHERE device = ?1 ORDER BY object, key LIMIT ?2",
            )?
            .query_map(params![device, most as i64], |row| {
                Ok(Text {
                    object: row.get(0)?,
                    key: row.get(1)?,
                    text: row.get(2)?,
                    since: Moment(row.get(3)?),
                })
            })?
            .collect()
        })
    }

    // --- tails

    fn put_tails(&self, tails: &[TailRow]) -> Result<(), Error> {
        self.transaction(|c| {
            let mut put =
                c.prepare("INSERT INTO tails (table_id, rows, last, bytes) VALUES (?1, ?2, ?3, ?4)")?;
            tails.iter().try_for_each(|tail| {
                put.execute(params![tail.table.0, tail.rows as i64, tail.last.0, tail.bytes]).map(|_| ())
            })
        })
    }

    fn tails(&self, table: TableId) -> Result<Vec<(i64, Vec<u8>)>, Error> {
        self.sql(|c| {
            c.prepare("SELECT id, bytes FROM tails WHERE table_id = ?1 ORDER BY id")?
                .query_map([table.0], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })
    }

    fn last_tails(&self, table: TableId, most: usize) -> Result<Vec<Vec<u8>>, Error> {
        let mut last: Vec<Vec<u8>> = self.sql(|c| {
            c.prepare("SELECT bytes FROM tails WHERE table_id = ?1 ORDER BY id DESC LIMIT ?2")?
                .query_map(params![table.0, most as i64], |row| row.get(0))?
                .collect()
        })?;
        last.reverse();
        Ok(last)
    }

    // --- chunks

    fn put_chunk(
        &self,
        table: TableId,
        last: i64,
        (begin, end, rows): (Moment, Moment, usize),
        sealed: &super::chunk::Sealed,
        state: &[u8],
    ) -> Result<(), Error> {
        self.transaction(|c| {
            c.prepare(
                "INSERT INTO chunks (table_id, reach, begin, end, rows, raw, summary) VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6)",
            )?
            .execute(params![table.0, sealed.reach.0, begin.0, end.0, rows as i64, sealed.summary])?;
            let chunk = c.last_insert_rowid();
            c.prepare("INSERT INTO bodies (chunk, bytes) VALUES (?1, ?2)")?
                .execute(params![chunk, sealed.body])?;
            c.execute("DELETE FROM tails WHERE table_id = ?1 AND id <= ?2", [table.0, last])?;
            c.execute("UPDATE tables SET state = ?2 WHERE id = ?1", params![table.0, state])?;
            Ok(())
        })
    }

    fn chunks(&self, table: TableId, from: Moment, to: Moment, most: usize) -> Result<Vec<Entry>, Error> {
        self.sql(|c| {
            c.prepare(
                "SELECT id, begin, end, raw FROM chunks
                 WHERE table_id = ?1 AND end >= ?2 AND reach <= ?3 ORDER BY end LIMIT ?4",
            )?
            .query_map(params![table.0, from.0, to.0, most as i64], |row| {
                let moment = |at| row.get(at).map(Moment);
                Ok(Entry { id: ChunkId(row.get(0)?), begin: moment(1)?, end: moment(2)?, raw: row.get(3)? })
            })?
            .collect()
        })
    }

    fn extent(&self, table: TableId) -> Result<Option<(Moment, Moment)>, Error> {
        let ends: (Option<i64>, Option<i64>) = self.sql(|c| {
            c.query_row(
                "SELECT (SELECT begin FROM chunks WHERE table_id = ?1 ORDER BY end LIMIT 1),
                        (SELECT end FROM chunks WHERE table_id = ?1 ORDER BY end DESC LIMIT 1)",
                [table.0],
                |r| Ok((r.get(0)?, r.get(1)?)),
            )
        })?;
        Ok(ends.0.zip(ends.1).map(|(a, b)| (Moment(a), Moment(b))))
    }

    fn blob(&self, chunk: ChunkId, body: bool) -> Result<Box<dyn Source + '_>, Damage> {
        let (table, column) = if body { ("bodies", "bytes") } else { ("chunks", "summary") };
        let blob = self.connection.blob_open("main", table, column, chunk.0, true);
        Ok(Box::new(blob.map_err(|_| Damage::Short)?))
    }

    // --- retention

    fn old(&self, before: Moment, raw: Option<bool>, most: usize) -> Result<Vec<ChunkId>, Error> {
        let ids = |raw: bool| {
            self.sql(|c| {
                c.prepare("SELECT id FROM chunks WHERE raw = ?1 AND end < ?2 ORDER BY end LIMIT ?3")?
                    .query_map(params![raw, before.0, most as i64], |row| row.get(0).map(ChunkId))?
                    .collect::<rusqlite::Result<Vec<_>>>()
            })
        };
        match raw {
            Some(raw) => ids(raw),
            None => {
                let mut both = ids(false)?;
                both.extend(ids(true)?);
                both.truncate(most);
                Ok(both)
            }
        }
    }

    fn remove(&self, chunks: &[ChunkId], whole: bool) -> Result<(), Error> {
        self.transaction(|c| {
            let mut body = c.prepare("DELETE FROM bodies WHERE chunk = ?1")?;
            let mut rest = c.prepare(if whole {
                "DELETE FROM chunks WHERE id = ?1"
            } else {
                "UPDATE chunks SET raw = 0 WHERE id = ?1"
            })?;
            for chunk in chunks {
                body.execute([chunk.0])?;
                rest.execute([chunk.0])?;
            }
            Ok(())
        })
    }

    fn remove_tails(&self, before: Moment) -> Result<usize, Error> {
        self.transaction(|c| c.execute("DELETE FROM tails WHERE last < ?1", [before.0]))
    }

    fn shrink(&self, pages: usize) -> Result<(), Error> {
        self.sql(|c| {
            // The pragma answers with a row for each page.
            let mut give = c.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
            let mut rows = give.query([])?;
            while rows.next()?.is_some() {}
            Ok(())
        })
    }

    fn bytes(&self) -> Result<u64, Error> {
        let number = |pragma: &str| self.sql(|c| c.pragma_query_value(None, pragma, |r| r.get::<_, i64>(0)));
        let pages = number("page_count")? - number("freelist_count")?;
        Ok(pages.unsigned_abs() * number("page_size")?.unsigned_abs())
    }

    fn checkpoint(&self) -> Result<(), Error> {
        self.sql(|c| c.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())))
    }

    /// Whoever sends only reads the file.
    fn sent(&self, _: &str) -> Result<Option<BTreeMap<TableId, Moment>>, Error> {
        Ok(None)
    }

    fn put_sent(&self, _: &str, _: &BTreeMap<TableId, Moment>) -> Result<(), Error> {
        Ok(())
    }
}

const SERIES: &str = "SELECT id, table_id, position, name, kind, ceiling, mark, unit FROM series";

fn info(row: &Row<'_>) -> rusqlite::Result<SeriesInfo> {
    Ok(SeriesInfo {
        id: SeriesId(row.get(0)?),
        table: TableId(row.get(1)?),
        position: row.get::<_, u32>(2)? as usize,
        name: row.get(3)?,
        column: column(row, 4)?,
        unit: row.get(7)?,
    })
}

/// A column from `kind`, `ceiling` and `mark`, which begin at `at`.
fn column(row: &Row<'_>, at: usize) -> rusqlite::Result<Column> {
    let number = row.get(at)?;
    let kind = kind(number).ok_or(rusqlite::Error::IntegralValueOutOfRange(at, number))?;
    let ceiling = row.get::<_, Option<i64>>(at + 1)?.map(|c| c as u64);
    let mark = row.get::<_, Option<u32>>(at + 2)?.map(|m| m as usize);
    Ok(Column { kind, ceiling, mark })
}
