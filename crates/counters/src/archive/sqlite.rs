//! The archive in an SQLite file.
//!
//! The file uses a write-ahead log, unlike that of [`trunkline_record::archive`]: a writer flushes every few seconds
//! while others read, and a rollback journal would block them. Flushes are not synchronous: a killed process loses
//! nothing that was flushed, a power failure at most the last flushes, and neither damages the file. In return, the
//! file must be on a local file system in a writable directory.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row, params};

use super::encoding::{ByteSource, DecodeError};
use super::location::Location;
use super::storage::{
    ChunkEntry, Storage, TailRow, duration_from_ns, duration_to_ns, kind_from_number, kind_number,
};
use super::{ChunkId, Error, SeriesId, SeriesInfo, SeriesSpec, TableId, TableInfo, Text, TextSpec};
use crate::counter::{Column, Timestamp};

/// The `PRAGMA application_id` of the file: "TRKC".
const APPLICATION_ID: i32 = 0x54524B43;

/// Attempts to take the lock and the pause between them, two seconds in total: a child process holds this process's
/// open files until it calls exec.
const LOCK_RETRIES: (u32, Duration) = (2_000, Duration::from_millis(1));
/// How long to wait for a lock of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Migrations from one schema version (`PRAGMA user_version`) to the next. Never change one; add one.
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

/// Takes the lock or gives up after [`LOCK_RETRIES`].
fn acquire_lock(lock: &File) -> Result<(), TryLockError> {
    for _ in 1..LOCK_RETRIES.0 {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => thread::park_timeout(LOCK_RETRIES.1),
            done => return done,
        }
    }
    lock.try_lock()
}

/// An open archive file.
#[derive(Debug)]
pub(crate) struct SqliteStorage {
    connection: Connection,
    archive: Location,
    /// The lock of the writer.
    _lock: Option<File>,
}

impl SqliteStorage {
    pub fn open_writer(path: &Path) -> Result<SqliteStorage, Error> {
        let open = |reason: String| Error::Open(path.into(), reason);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|e| open(e.to_string()))?;
        }
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push("-writer");
        let lock =
            File::options().create(true).append(true).open(&lock_path).map_err(|e| open(e.to_string()))?;
        acquire_lock(&lock).map_err(|error| match error {
            TryLockError::WouldBlock => Error::Locked(path.into(), None),
            TryLockError::Error(e) => open(e.to_string()),
        })?;
        let connection = Connection::open(path).map_err(|e| open(e.to_string()))?;
        let db = SqliteStorage { connection, archive: path.into(), _lock: Some(lock) };
        db.query(|c| c.busy_timeout(BUSY_TIMEOUT))?;
        db.migrate()?;
        db.query(|c| c.pragma_update(None, "journal_mode", "WAL"))?;
        db.query(|c| c.pragma_update(None, "synchronous", "NORMAL"))?;
        db.query(|c| c.pragma_update(None, "journal_size_limit", 64 << 20))?;
        Ok(db)
    }

    pub fn open_reader(path: &Path) -> Result<SqliteStorage, Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = |e: rusqlite::Error| Error::Open(path.into(), e.to_string());
        let connection = Connection::open_with_flags(path, flags).map_err(open)?;
        let db = SqliteStorage { connection, archive: path.into(), _lock: None };
        db.query(|c| c.busy_timeout(BUSY_TIMEOUT))?;
        match db.version()? {
            Some(v) if v == MIGRATIONS.len() => Ok(db),
            Some(v) => Err(Error::VersionTooOld(path.into(), v as u64)),
            None => Err(Error::NotAnArchive(path.into())),
        }
    }

    /// Marks a new file and applies missing migrations.
    fn migrate(&self) -> Result<(), Error> {
        let version = self.version()?;
        if version == Some(MIGRATIONS.len()) {
            return Ok(());
        }
        // These settings take effect only in an empty file.
        self.query(|c| c.pragma_update(None, "page_size", 8192))?;
        self.query(|c| c.pragma_update(None, "auto_vacuum", "INCREMENTAL"))?;
        self.transaction(|c| {
            c.pragma_update(None, "application_id", APPLICATION_ID)?;
            MIGRATIONS[version.unwrap_or(0)..].iter().try_for_each(|step| c.execute_batch(step))?;
            c.pragma_update(None, "user_version", MIGRATIONS.len() as i64)
        })
    }

    /// Returns the schema version; `None` for an empty file.
    fn version(&self) -> Result<Option<usize>, Error> {
        let version = self.pragma("user_version")?;
        if self.pragma("application_id")? != i64::from(APPLICATION_ID) {
            let tables: i64 =
                self.query(|c| c.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0)))?;
            let is_empty = (version, tables) == (0, 0);
            return if is_empty { Ok(None) } else { Err(Error::NotAnArchive(self.archive.clone())) };
        }
        match usize::try_from(version) {
            Ok(v) if v <= MIGRATIONS.len() => Ok(Some(v)),
            _ => Err(Error::VersionTooNew(self.archive.clone(), version.unsigned_abs())),
        }
    }

    fn query<T>(&self, f: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        f(&self.connection).map_err(|e| self.error(e))
    }

    fn pragma(&self, name: &str) -> Result<i64, Error> {
        self.query(|c| c.pragma_query_value(None, name, |r| r.get(0)))
    }

    /// Runs `f` in a transaction.
    fn transaction<T>(&self, f: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        self.query(|c| {
            c.execute_batch("BEGIN IMMEDIATE")?;
            let done = f(c).and_then(|value| c.execute_batch("COMMIT").map(|()| value));
            if done.is_err() {
                // If the error has already rolled back, ROLLBACK fails; report the first error.
                let _ = c.execute_batch("ROLLBACK");
            }
            done
        })
    }

    fn error(&self, source: rusqlite::Error) -> Error {
        let archive = self.archive.clone();
        match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Error::NotAnArchive(archive),
            Some(ErrorCode::DatabaseCorrupt) => Error::Corrupt(archive, source.to_string()),
            Some(ErrorCode::CannotOpen) => Error::Open(archive, source.to_string()),
            Some(ErrorCode::ReadOnly) => Error::ReadOnly(archive),
            Some(ErrorCode::DiskFull) => Error::DiskFull(archive),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Locked(archive, None),
            _ => Error::Database(archive, source.into()),
        }
    }
}

impl Storage for SqliteStorage {
    fn location(&self) -> &Location {
        &self.archive
    }

    fn begin_snapshot(&self) -> Result<(), Error> {
        self.query(|c| c.execute_batch("BEGIN DEFERRED"))
    }

    fn end_snapshot(&self) -> Result<(), Error> {
        self.query(|c| c.execute_batch("COMMIT"))
    }

    // --- tables and series

    fn find_table(&self, device: &str, name: &str) -> Result<Option<TableId>, Error> {
        self.query(|c| {
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
                params![id.map(|t| t.0), device, name, duration_to_ns(period), refresh.map(duration_to_ns)],
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
            let ids = series.iter().map(|(position, spec, discontinuity)| {
                let ceiling = spec.ceiling.map(|c| c as i64);
                let kind = kind_number(spec.kind);
                let row = params![table, *position as i64, spec.name, kind, spec.unit, ceiling, discontinuity.map(|m| m as i64)];
                put.query_row(row, |r| r.get(0)).map(SeriesId)
            });
            Ok((TableId(table), ids.collect::<rusqlite::Result<_>>()?))
        })
    }

    fn state(&self, table: TableId) -> Result<Option<Vec<u8>>, Error> {
        self.query(|c| c.query_row("SELECT state FROM tables WHERE id = ?1", [table.0], |r| r.get(0)))
    }

    fn tables(&self, after: TableId, limit: usize) -> Result<Vec<TableInfo>, Error> {
        self.query(|c| {
            c.prepare(
                "SELECT id, device, name, period_ns, refresh_ns FROM tables WHERE id > ?1 ORDER BY id LIMIT ?2",
            )?
            .query_map(params![after.0, limit as i64], |row| {
                Ok(TableInfo {
                    id: TableId(row.get(0)?),
                    device: row.get(1)?,
                    name: row.get(2)?,
                    period: duration_from_ns(row.get(3)?),
                    refresh: row.get::<_, Option<i64>>(4)?.map(duration_from_ns),
                })
            })?
            .collect()
        })
    }

    fn series(&self, table: TableId) -> Result<Vec<SeriesInfo>, Error> {
        self.query(|c| {
            c.prepare(&format!("{SERIES} WHERE table_id = ?1 ORDER BY position"))?
                .query_map([table.0], series_info)?
                .collect()
        })
    }

    fn series_by_id(&self, id: SeriesId) -> Result<Option<SeriesInfo>, Error> {
        self.query(|c| {
            c.prepare(&format!("{SERIES} WHERE id = ?1"))?.query_row([id.0], series_info).optional()
        })
    }

    // --- texts

    fn put_texts(&self, device: &str, texts: &[TextSpec<'_>], since: Timestamp) -> Result<(), Error> {
        self.transaction(|c| {
            let mut put = c.prepare(
                "INSERT INTO texts (device, object, key, text, since) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT DO UPDATE SET text = excluded.text, since = excluded.since WHERE text <> excluded.text",
            )?;
            texts.iter().try_for_each(|text| {
                put.execute(params![device, text.object, text.key, text.text, since.0]).map(|_| ())
            })
        })
    }

    fn texts(&self, device: &str, limit: usize) -> Result<Vec<Text>, Error> {
        self.query(|c| {
            c.prepare(
                "SELECT object, key, text, since FROM texts WHERE device = ?1 ORDER BY object, key LIMIT ?2",
            )?
            .query_map(params![device, limit as i64], |row| {
                Ok(Text {
                    object: row.get(0)?,
                    key: row.get(1)?,
                    text: row.get(2)?,
                    since: Timestamp(row.get(3)?),
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

    fn last_tails(&self, table: TableId, limit: usize) -> Result<Vec<(i64, Vec<u8>)>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut last: Vec<_> = self.query(|c| {
            c.prepare("SELECT id, bytes FROM tails WHERE table_id = ?1 ORDER BY id DESC LIMIT ?2")?
                .query_map([table.0, limit], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<rusqlite::Result<_>>()
        })?;
        last.reverse();
        Ok(last)
    }

    // --- chunks

    fn put_chunk(
        &self,
        table: TableId,
        last: i64,
        (begin, end, rows): (Timestamp, Timestamp, usize),
        sealed: &super::chunk::EncodedChunk,
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

    fn chunks(
        &self,
        table: TableId,
        from: Timestamp,
        to: Timestamp,
        limit: usize,
    ) -> Result<Vec<ChunkEntry>, Error> {
        self.query(|c| {
            c.prepare(
                "SELECT id, begin, end, raw FROM chunks
                 WHERE table_id = ?1 AND end >= ?2 AND reach <= ?3 ORDER BY end LIMIT ?4",
            )?
            .query_map(params![table.0, from.0, to.0, limit as i64], |row| {
                let timestamp = |at| row.get(at).map(Timestamp);
                Ok(ChunkEntry {
                    id: ChunkId(row.get(0)?),
                    begin: timestamp(1)?,
                    end: timestamp(2)?,
                    raw: row.get(3)?,
                })
            })?
            .collect()
        })
    }

    fn time_range(&self, table: TableId) -> Result<Option<(Timestamp, Timestamp)>, Error> {
        let ends: (Option<i64>, Option<i64>) = self.query(|c| {
            c.query_row(
                "SELECT (SELECT begin FROM chunks WHERE table_id = ?1 ORDER BY end LIMIT 1),
                        (SELECT end FROM chunks WHERE table_id = ?1 ORDER BY end DESC LIMIT 1)",
                [table.0],
                |r| Ok((r.get(0)?, r.get(1)?)),
            )
        })?;
        Ok(ends.0.zip(ends.1).map(|(a, b)| (Timestamp(a), Timestamp(b))))
    }

    fn blob(&self, chunk: ChunkId, body: bool) -> Result<Box<dyn ByteSource + '_>, DecodeError> {
        let (table, column) = if body { ("bodies", "bytes") } else { ("chunks", "summary") };
        let blob = self.connection.blob_open("main", table, column, chunk.0, true);
        Ok(Box::new(blob.map_err(|_| DecodeError::Truncated)?))
    }

    // --- retention

    fn chunks_before(&self, before: Timestamp, raw: bool, limit: usize) -> Result<Vec<ChunkId>, Error> {
        self.query(|c| {
            c.prepare("SELECT id FROM chunks WHERE raw = ?1 AND end < ?2 ORDER BY end LIMIT ?3")?
                .query_map(params![raw, before.0, limit as i64], |row| row.get(0).map(ChunkId))?
                .collect()
        })
    }

    fn remove_chunks(&self, chunks: &[ChunkId], whole: bool) -> Result<(), Error> {
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

    fn remove_tails(&self, before: Timestamp) -> Result<usize, Error> {
        self.transaction(|c| c.execute("DELETE FROM tails WHERE last < ?1", [before.0]))
    }

    fn shrink(&self, pages: usize) -> Result<(), Error> {
        self.query(|c| {
            // The pragma returns a row for each page.
            let mut give = c.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
            let mut rows = give.query([])?;
            while rows.next()?.is_some() {}
            Ok(())
        })
    }

    fn size_bytes(&self) -> Result<u64, Error> {
        let pages = self.pragma("page_count")? - self.pragma("freelist_count")?;
        Ok(pages.unsigned_abs() * self.pragma("page_size")?.unsigned_abs())
    }

    fn checkpoint(&self) -> Result<(), Error> {
        self.query(|c| c.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())))
    }
}

const SERIES: &str = "SELECT id, table_id, position, name, kind, ceiling, mark, unit FROM series";

fn series_info(row: &Row<'_>) -> rusqlite::Result<SeriesInfo> {
    let number = row.get(4)?;
    let kind = kind_from_number(number).ok_or(rusqlite::Error::IntegralValueOutOfRange(4, number))?;
    let ceiling = row.get::<_, Option<i64>>(5)?.map(|c| c as u64);
    let discontinuity = row.get::<_, Option<u32>>(6)?.map(|m| m as usize);
    Ok(SeriesInfo {
        id: SeriesId(row.get(0)?),
        table: TableId(row.get(1)?),
        position: row.get::<_, u32>(2)? as usize,
        name: row.get(3)?,
        column: Column { kind, ceiling, discontinuity },
        unit: row.get(7)?,
    })
}
