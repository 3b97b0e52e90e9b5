//! A session with the database of an archive: ownership of the schema, the lock, reconnection.
//!
//! A writer holds the advisory lock of the archive; the server releases it when the connection ends. The writer then
//! reconnects with the next call, with exponential backoff. It terminates the server's backend of its last connection,
//! so that no statement of it takes effect later, and locks the archive again. The caller must find out what happened to
//! the statements in progress. For a minute after reconnecting, a standby leaves the lock to the previous writer, whose
//! connection has probably ended as well.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, Row};
use xxhash_rust::xxh3::xxh3_64;

use super::connection::{PgConnection, QueryError};
use crate::archive::Error;
use crate::archive::location::{Location, Url};
use crate::archive::postgres_url;

/// Migrations from one schema version to the next. Never change one; add one.
const MIGRATIONS: [&str; 1] = [include_str!("tables.sql")];

/// The marker in the table `archive` that identifies the schema.
const KIND: &str = "trunkline counters";

/// Locks the archive; waits at most `lock_timeout`. Advisory locks belong to a database, as the archive does.
const LOCK: &str = "SELECT pg_advisory_lock($1)";

/// Locks the archive if it is free.
const TRY_LOCK: &str = "SELECT pg_try_advisory_lock($1)";

/// First and longest pause between connection attempts.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// After reconnecting, the lock is reserved for the previous writer for this time; otherwise its buffered responses
/// would be lost. It covers the longest pause and the longest attempt.
const RECLAIM_PERIOD: Duration = Duration::from_secs(60);

/// Maximum number of former connections that are remembered.
const MAX_FORMER: usize = 16;

/// An open archive.
#[derive(Debug)]
pub(crate) struct PgStorage {
    pub(super) location: Location,
    config: Config,
    is_writer: bool,
    connection: RefCell<Option<PgConnection>>,
    /// Number of connection attempts.
    pub(super) attempts: Cell<u64>,
    /// Backend processes of ended connections that may still hold the lock, the last [`MAX_FORMER`].
    former: RefCell<VecDeque<(i32, i64)>>,
    /// Whether this connection holds the lock.
    is_locked: Cell<bool>,
    /// Whether this session was the last writer, as far as it knows.
    is_last_writer: Cell<bool>,
    /// Whether another process was the writer at the last attempt to lock. Later attempts do not wait.
    is_standby: Cell<bool>,
    pub(super) backoff: RefCell<Option<Backoff>>,
    /// When the session last reconnected.
    reconnected_at: Cell<Option<Instant>>,
    /// Whether a snapshot is open.
    pub(super) in_snapshot: Cell<bool>,
    /// The first error inside the snapshot, to be returned at its end.
    pub(super) deferred_error: RefCell<Option<Error>>,
}

/// A pause between connection attempts.
#[derive(Debug)]
pub(super) struct Backoff {
    until: Instant,
    length: Duration,
    reason: String,
}

impl PgStorage {
    /// Opens an archive; a writer creates it if it does not exist.
    pub fn open(url: &Url, writes: bool) -> Result<PgStorage, Error> {
        let location = Location::Server(url.clone());
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let application = format!("trunkline@{}/{}", host.trim(), std::process::id());
        let config = postgres_url::config(url.with_password(), &application)
            .map_err(|error| Error::InvalidAddress(location.clone(), error.to_string()))?;
        let pg = PgStorage {
            location,
            config,
            is_writer: writes,
            connection: RefCell::default(),
            attempts: Cell::new(1),
            former: RefCell::default(),
            is_locked: Cell::default(),
            is_last_writer: Cell::default(),
            is_standby: Cell::default(),
            backoff: RefCell::default(),
            reconnected_at: Cell::default(),
            in_snapshot: Cell::default(),
            deferred_error: RefCell::default(),
        };
        let connection = pg.open_session().map_err(|error| match error {
            Error::Disconnected(archive, reason) => Error::Open(archive, reason),
            error => error,
        })?;
        *pg.connection.borrow_mut() = Some(connection);
        Ok(pg)
    }

    /// Runs a query. A reader repeats it once if the connection had ended; a writer must know about a new connection
    /// and calls [`Storage::connect`](crate::archive::storage::Storage::connect).
    pub(super) fn query<T>(
        &self,
        question: impl AsyncFn(&PgConnection) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, Error> {
        let before = self.attempts.get();
        match self.query_once(&question) {
            Err(Error::Disconnected { .. })
                if !self.is_writer && !self.in_snapshot.get() && self.attempts.get() == before =>
            {
                self.query_once(&question)
            }
            answer => answer,
        }
    }

    fn query_once<T>(
        &self,
        question: &impl AsyncFn(&PgConnection) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, Error> {
        if !self.is_writer {
            self.ensure_connected()?;
        } else if !self.is_locked.get() {
            return Err(self.disconnected("the connection ended".into()));
        }
        self.run(question)
    }

    /// Runs a query on the present connection.
    fn run<T>(
        &self,
        question: impl AsyncFn(&PgConnection) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, Error> {
        let connection = self.connection.borrow();
        let Some(open) = connection.as_ref() else {
            return Err(self.disconnected("the connection ended".into()));
        };
        let answer = open.wait(question(open));
        let closed = open.is_closed();
        drop(connection);
        answer.map_err(|error| {
            if closed || error.is_fatal() {
                self.drop_connection();
                return self.disconnected(error.reason());
            }
            self.error(error)
        })
    }

    /// Runs `work` in a transaction.
    pub(super) fn transaction<T>(
        &self,
        work: impl AsyncFn(&PgConnection) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, Error> {
        self.query(async |connection| {
            connection.batch("BEGIN").await?;
            match work(connection).await {
                Ok(done) => connection.batch("COMMIT").await.map(|()| done),
                Err(error) => {
                    // Report the first error.
                    let _ = connection.batch("ROLLBACK").await;
                    Err(error)
                }
            }
        })
    }

    /// Keeps an error for the end of the snapshot.
    pub fn defer_error(&self, error: Error) {
        self.deferred_error.borrow_mut().get_or_insert(error);
    }

    /// Connects if there is no connection.
    pub(super) fn ensure_connected(&self) -> Result<(), Error> {
        if self.connection.borrow().as_ref().is_some_and(|connection| !connection.is_closed()) {
            return Ok(());
        }
        self.drop_connection();
        if self.in_snapshot.get() {
            return Err(self.disconnected("the connection ended".into()));
        }
        if let Some(backoff) = self.backoff.borrow().as_ref().filter(|backoff| now() < backoff.until) {
            return Err(self.disconnected(backoff.reason.clone()));
        }
        self.attempts.set(self.attempts.get() + 1);
        let entered = self.open_session();
        // An attempt may take longer than the pause after it.
        let now = now();
        let mut backoff = self.backoff.borrow_mut();
        *backoff = match &entered {
            Ok(_) => None,
            Err(error) => {
                let length = backoff.as_ref().map_or(BACKOFF.0, |last| (last.length * 2).min(BACKOFF.1));
                let reason = match error {
                    Error::Disconnected(_, reason) => reason.clone(),
                    error => error.to_string(),
                };
                Some(Backoff { until: now + length, length, reason })
            }
        };
        *self.connection.borrow_mut() = Some(entered?);
        self.reconnected_at.set(Some(now));
        Ok(())
    }

    /// Drops a connection that has ended.
    fn drop_connection(&self) {
        self.is_locked.set(false);
        if let Some(connection) = self.connection.take() {
            let mut former = self.former.borrow_mut();
            former.push_back(connection.process);
            if former.len() > MAX_FORMER {
                former.pop_front();
            }
        }
    }

    /// Connects and checks the schema.
    fn open_session(&self) -> Result<PgConnection, Error> {
        let connection =
            PgConnection::open(&self.config).map_err(|error| self.disconnected(error.reason()))?;
        match self.version(&connection)? {
            _ if self.is_writer => Ok(connection),
            Some(v) if v == MIGRATIONS.len() => Ok(connection),
            Some(v) => Err(Error::VersionTooOld(self.location.clone(), v as u64)),
            None => Err(Error::NotAnArchive(self.location.clone())),
        }
    }

    /// Locks the archive for this connection, and migrates its schema if necessary.
    pub(super) fn lock(&self) -> Result<(), Error> {
        if self.is_locked.get() {
            return Ok(());
        }
        let former = self.former.borrow().clone();
        for (process, began) in &former {
            // The server may not have noticed the end of the connection.
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1
                AND (extract(epoch FROM backend_start) * 1000000)::bigint = $2";
            let _ = self.run(async |connection| connection.rows(end, &[process, began]).await);
        }
        let is_reserved = !self.is_last_writer.get()
            && self
                .reconnected_at
                .get()
                .is_some_and(|reconnected_at| now() < reconnected_at + RECLAIM_PERIOD);
        let key = xxh3_64(b"trunkline archive ") as i64;
        let refused = || Err(Error::Locked(self.location.clone(), None));
        let locked = match self.is_standby.get() {
            _ if is_reserved => refused(),
            true => {
                let free = self.run(async |connection| {
                    let row = connection.row(TRY_LOCK, &[&key]).await?;
                    row.map_or(Ok(false), |row| row.try_get(0))
                });
                free.and_then(|is_free| if is_free { Ok(()) } else { refused() })
            }
            false => self.run(async |connection| connection.execute(LOCK, &[&key]).await.map(drop)),
        };
        if let Err(Error::Locked(archive, _)) = locked {
            let holder = match self.run(async |connection| find_holder(connection, key).await)? {
                None if is_reserved => {
                    "its connection ended less than a minute ago, and it may come back".to_owned()
                }
                Some((name, process)) if former.iter().all(|former| former.0 != process) => {
                    format!("{name}, process {process} of the server")
                }
                _ => return Err(self.disconnected("the lock of the last connection is not free yet".into())),
            };
            self.is_standby.set(true);
            if self.is_last_writer.replace(false) {
                // The holder is not the previous writer, so the lock is not reserved for it.
                self.reconnected_at.set(None);
            }
            return Err(Error::Locked(archive, Some(holder)));
        }
        locked?;
        let connection = self.connection.borrow();
        let Some(connection) = connection.as_ref() else {
            return Err(self.disconnected("the connection ended".into()));
        };
        let version = self.version(connection)?;
        if version != Some(MIGRATIONS.len()) {
            self.migrate(connection, version)?;
        }
        self.former.borrow_mut().clear();
        self.is_standby.set(false);
        self.is_last_writer.set(true);
        self.is_locked.set(true);
        Ok(())
    }

    /// Returns the schema version; `None` if there is no schema.
    fn version(&self, connection: &PgConnection) -> Result<Option<usize>, Error> {
        let foreign = || Error::NotAnArchive(self.location.clone());
        let tables =
            "SELECT coalesce(bool_or(c.relname = 'archive'), false), count(c.oid) FROM pg_namespace n
            LEFT JOIN pg_class c ON c.relnamespace = n.oid WHERE n.nspname = 'trunkline'";
        let found = connection.wait(async {
            let row = connection.row(tables, &[]).await?;
            row.map_or(Ok((false, 0)), |row| Ok((row.try_get(0)?, row.try_get::<_, i64>(1)?)))
        });
        match found.map_err(|error| self.error(error))? {
            (_, 0) => return Ok(None),
            (false, _) => return Err(foreign()),
            (true, _) => {}
        }
        let version = connection.wait(async {
            let sql = "SELECT kind::text, version::bigint FROM trunkline.archive";
            let rows = connection.rows(sql, &[]).await?;
            let version = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?));
            rows.iter().map(version).collect::<Result<Vec<(String, i64)>, _>>()
        });
        let version = version.map_err(|error| match error.code() {
            Some(code) if [SqlState::UNDEFINED_COLUMN, SqlState::UNDEFINED_TABLE].contains(code) => foreign(),
            _ => self.error(error),
        })?;
        match version.as_slice() {
            [(kind, version)] if kind == KIND => match usize::try_from(*version) {
                Ok(v) if v <= MIGRATIONS.len() => Ok(Some(v)),
                _ => Err(Error::VersionTooNew(self.location.clone(), version.unsigned_abs())),
            },
            _ => Err(foreign()),
        }
    }

    /// Migrates the schema; the archive is locked.
    fn migrate(&self, connection: &PgConnection, version: Option<usize>) -> Result<(), Error> {
        if connection.encoding != "UTF8" {
            let reason =
                format!("the database has the encoding {}; an archive needs UTF8", connection.encoding);
            return Err(Error::Open(self.location.clone(), reason));
        }
        let create = if version.is_none() { self.create_schema(connection)? } else { String::new() };
        let steps = MIGRATIONS[version.unwrap_or(0)..].concat();
        let done = format!(
            "BEGIN; {create}{steps}; UPDATE trunkline.archive SET version = {}; COMMIT",
            MIGRATIONS.len()
        );
        let made = connection.wait(connection.batch(&done));
        if made.is_err() {
            let _ = connection.wait(connection.batch("ROLLBACK"));
        }
        made.map_err(|error| self.error(error))
    }

    /// Returns the SQL that creates the schema, if necessary, and its marker table.
    fn create_schema(&self, connection: &PgConnection) -> Result<String, Error> {
        let there = "SELECT 1 FROM pg_namespace WHERE nspname = 'trunkline'";
        let found = connection.wait(connection.row(there, &[])).map_err(|error| self.error(error))?;
        let schema = if found.is_some() { "" } else { "CREATE SCHEMA trunkline;" };
        let table = "CREATE TABLE trunkline.archive (kind text NOT NULL, version bigint NOT NULL);";
        Ok(format!("{schema} {table} INSERT INTO trunkline.archive VALUES ('{KIND}', 0);"))
    }

    // --- errors

    fn disconnected(&self, reason: String) -> Error {
        Error::Disconnected(self.location.clone(), reason)
    }

    /// Converts an error of a query.
    fn error(&self, error: QueryError) -> Error {
        let (archive, reason) = (self.location.clone(), error.reason());
        if error.is_fatal() {
            return self.disconnected(reason);
        }
        match error.code() {
            Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => Error::ReadOnly(archive),
            Some(&SqlState::LOCK_NOT_AVAILABLE) => Error::Locked(archive, None),
            Some(&SqlState::DISK_FULL) => Error::DiskFull(archive),
            Some(&(SqlState::INSUFFICIENT_PRIVILEGE | SqlState::INVALID_SCHEMA_NAME)) => {
                Error::Open(archive, reason)
            }
            Some(&(SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED)) => Error::Corrupt(archive, reason),
            Some(_) => Error::Database(archive, reason.into()),
            None => Error::Corrupt(archive, reason),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a server that is gone is not contacted all the time")]
fn now() -> Instant {
    Instant::now()
}

/// Finds the holder of a lock: application name and backend process.
async fn find_holder(
    connection: &PgConnection,
    key: i64,
) -> Result<Option<(String, i32)>, tokio_postgres::Error> {
    let sql = "SELECT coalesce(a.application_name, ''), a.pid FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND ((l.classid::bigint << 32) | l.objid::bigint) = $1
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) LIMIT 1";
    let row = connection.row(sql, &[&key]).await?;
    row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).transpose()
}
