//! The archive of runs: the record of every run, in one SQLite file.
//!
//! The file uses a rollback journal instead of a write-ahead log: a log needs shared memory beside the file, which
//! read-only directories and network file systems do not provide, and a run writes the archive at most twice. Writes
//! are synchronous: a record survives a power failure once [`Archive::finish`] has returned.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, Statement, TransactionBehavior, named_params};
use trunkline_units::Seed;

use crate::schema::Record;
use crate::store::{ParseError, parse};

/// The `PRAGMA application_id` of the file: "TRKL".
const APPLICATION_ID: i32 = 0x54524B4C;

/// How long to wait for the lock of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Migrations from one schema version (`PRAGMA user_version`) to the next. Never change one; add one.
const MIGRATIONS: [&str; 1] = ["
    CREATE TABLE runs (
        id          INTEGER PRIMARY KEY AUTOINCREMENT,  -- ids are never reused
        started     TEXT    NOT NULL,                   -- UTC, RFC 3339
        name        TEXT    NOT NULL,
        hash        TEXT    NOT NULL,
        seed        TEXT    NOT NULL,                   -- an unsigned 64-bit number does not fit INTEGER
        backend     TEXT    NOT NULL,
        partial     INTEGER NOT NULL,
        program     TEXT    NOT NULL,                   -- version of the program that measured
        duration_s  REAL    NOT NULL,
        text        TEXT    NOT NULL,
        environment TEXT    NOT NULL,                   -- JSON
        record      TEXT    NOT NULL                    -- JSON, as in record.json
    );
    CREATE INDEX runs_by_name ON runs (name, id);
"];

/// The problem reported by the record of a run until [`Archive::finish`].
const UNFINISHED: &str = "the run has not ended: it is still running, or the program was stopped";

/// Identifies a run within its archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId(pub i64);

impl std::fmt::Display for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A run in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct RunEntry {
    /// The identifier.
    pub id: RunId,
    /// When the run began: UTC, RFC 3339.
    pub started: String,
    /// The name of the experiment.
    pub name: String,
    /// The hash of the plan.
    pub hash: String,
    /// The seed.
    pub seed: Seed,
    /// `live`, `sim` or `lab`.
    pub backend: String,
    /// Whether the run was aborted or has not ended.
    pub partial: bool,
    /// Version of the program that ran the experiment.
    pub program: String,
    /// Duration in seconds; 0 until the run has ended.
    pub duration_s: f64,
}

/// Which runs to list. The default is all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only experiments whose name contains this text.
    pub name: Option<String>,
    /// Only plans whose hash starts with this text.
    pub hash: Option<String>,
    /// Only this backend.
    pub backend: Option<String>,
    /// Only runs with this note (`run --note`).
    pub note: Option<String>,
    /// At most this number, the latest first.
    pub limit: Option<u32>,
}

/// An error of the archive, which every variant names first.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The file or its directory could not be created or opened.
    #[error("cannot open the archive {path}: {1}", path = .0.display())]
    Open(PathBuf, String),
    /// The file is not an archive of runs.
    #[error("{} is not an archive of Trunkline", .0.display())]
    NotAnArchive(PathBuf),
    /// The file is damaged.
    #[error("the archive {path} is damaged: {1}", path = .0.display())]
    Corrupt(PathBuf, String),
    /// A later version of the program created the archive, of which this is the version.
    #[error("the archive {path} has version {1}; this program reads up to version {own}", path = .0.display(), own = MIGRATIONS.len())]
    VersionTooNew(PathBuf, u64),
    /// The archive is read-only.
    #[error("the archive {} is read-only", .0.display())]
    ReadOnly(PathBuf),
    /// The disk is full.
    #[error("the disk is full: cannot write the archive {}", .0.display())]
    DiskFull(PathBuf),
    /// Another process holds the lock.
    #[error("another program is using the archive {}", .0.display())]
    Locked(PathBuf),
    /// The run does not exist.
    #[error("there is no run {1} in the archive {path}", path = .0.display())]
    RunNotFound(PathBuf, RunId),
    /// Another error of SQLite.
    #[error("the archive {path}: {1}", path = .0.display())]
    Sqlite(PathBuf, #[source] rusqlite::Error),
}

/// An open archive. Several processes may share one file.
#[derive(Debug)]
pub struct Archive {
    db: Connection,
    path: PathBuf,
}

impl Archive {
    /// Opens the archive at `path`; creates it and its directory if they do not exist.
    pub fn open(path: &Path) -> Result<Archive, ArchiveError> {
        let open_error = |reason: String| ArchiveError::Open(path.to_owned(), reason);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|e| open_error(e.to_string()))?;
        }
        let db = Connection::open(path).map_err(|e| open_error(e.to_string()))?;
        let mut archive = Archive { db, path: path.to_owned() };
        archive.migrate()?;
        Ok(archive)
    }

    /// Marks a new file and applies missing migrations.
    fn migrate(&mut self) -> Result<(), ArchiveError> {
        self.query(|db| db.busy_timeout(BUSY_TIMEOUT))?;
        if self.version()? == Some(MIGRATIONS.len()) {
            return Ok(()); // the usual case takes no lock, so it also works on a read-only file
        }
        // Takes effect only in an empty file. The space of deleted runs is returned to the file system.
        self.query(|db| db.pragma_update(None, "auto_vacuum", "FULL"))?;
        self.query(|db| db.execute_batch("BEGIN IMMEDIATE"))?;
        // Check again under the lock: another process may have migrated the file.
        let result = self.version().and_then(|version| {
            let steps = &MIGRATIONS[version.unwrap_or(0)..];
            self.query(|db| {
                db.pragma_update(None, "application_id", APPLICATION_ID)?;
                steps.iter().try_for_each(|step| db.execute_batch(step))?;
                db.pragma_update(None, "user_version", MIGRATIONS.len() as i64)
            })
        });
        self.query(|db| db.execute_batch(if result.is_ok() { "COMMIT" } else { "ROLLBACK" }))?;
        result
    }

    /// Returns the schema version; `None` for an empty file.
    fn version(&self) -> Result<Option<usize>, ArchiveError> {
        let number =
            |pragma: &str| self.query(|db| db.pragma_query_value(None, pragma, |r| r.get::<_, i64>(0)));
        let version = number("user_version")?;
        if number("application_id")? != i64::from(APPLICATION_ID) {
            let tables: i64 =
                self.query(|db| db.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0)))?;
            return match (version, tables) {
                (0, 0) => Ok(None),
                _ => Err(ArchiveError::NotAnArchive(self.path.clone())),
            };
        }
        match usize::try_from(version) {
            Ok(v) if v <= MIGRATIONS.len() => Ok(Some(v)),
            _ => Err(ArchiveError::VersionTooNew(self.path.clone(), version.unsigned_abs())),
        }
    }

    /// Stores a run at its start, so that it is listed even if the program crashes. `planned` holds what is known before
    /// the run: experiment, backend, seed, environment, start. The record is partial until [`finish`](Self::finish)
    /// replaces it.
    pub fn begin(&self, planned: &Record) -> Result<RunId, ArchiveError> {
        let mut record = planned.clone();
        record.partial = true;
        record.problems.push(UNFINISHED.into());
        self.query(|db| {
            db.prepare(
                "INSERT INTO runs
                        ( id,  started,  name,  hash,  seed,  backend,  partial,
                          program,  duration_s,  text,  environment,  record)
                 VALUES (:id, :started, :name, :hash, :seed, :backend, :partial,
                         :program, :duration_s, :text, :environment, :record)",
            )
            .and_then(|mut insert| execute(&mut insert, None, &record))
        })?;
        Ok(RunId(self.db.last_insert_rowid()))
    }

    /// Replaces the record of a run in one transaction.
    pub fn finish(&self, id: RunId, record: &Record) -> Result<(), ArchiveError> {
        let changed = self.query(|db| {
            db.prepare(
                "UPDATE runs SET started = :started, name = :name, hash = :hash, seed = :seed, backend = :backend,
                        partial = :partial, program = :program, duration_s = :duration_s, text = :text,
                        environment = :environment, record = :record
                 WHERE id = :id",
            )
            .and_then(|mut update| execute(&mut update, Some(id), record))
        })?;
        if changed == 0 { Err(self.run_not_found(id)) } else { Ok(()) }
    }

    /// Returns the runs that match the filter, the latest first.
    pub fn list(&self, filter: &Filter) -> Result<Vec<RunEntry>, ArchiveError> {
        self.query(|db| {
            db.prepare(
                "SELECT id, started, name, hash, seed, backend, partial, program, duration_s FROM runs
                 WHERE (:name IS NULL OR instr(name, :name) > 0)
                   AND (:hash IS NULL OR substr(hash, 1, length(:hash)) = :hash)
                   AND (:backend IS NULL OR backend = :backend)
                   AND (:note IS NULL OR json_extract(environment, '$.note') = :note)
                 ORDER BY id DESC LIMIT coalesce(:limit, -1)",
            )?
            .query_map(
                named_params! {
                    ":name": filter.name, ":hash": filter.hash, ":backend": filter.backend, ":note": filter.note,
                    ":limit": filter.limit,
                },
                run_entry,
            )?
            .collect()
        })
    }

    /// Returns the record of a run. If the run has not ended, this is the partial record stored by
    /// [`begin`](Self::begin).
    pub fn get(&self, id: RunId) -> Result<Record, ArchiveError> {
        let text: Option<String> = self.query(|db| {
            db.query_row("SELECT record FROM runs WHERE id = ?1", [id.0], |row| row.get(0)).optional()
        })?;
        let path = self.path.clone();
        match parse(&text.ok_or_else(|| self.run_not_found(id))?) {
            Ok(mut records) => Ok(records.remove(0)),
            Err(ParseError::VersionTooNew(found)) => Err(ArchiveError::VersionTooNew(path, found)),
            Err(ParseError::NotARecord(e)) => Err(ArchiveError::Corrupt(path, format!("run {id}: {e}"))),
        }
    }

    /// Deletes runs: all of them, or none if one does not exist.
    pub fn delete(&mut self, ids: &[RunId]) -> Result<(), ArchiveError> {
        let mut missing = None;
        let deleted =
            self.db.transaction_with_behavior(TransactionBehavior::Immediate).and_then(|transaction| {
                for &id in ids {
                    if transaction.execute("DELETE FROM runs WHERE id = ?1", [id.0])? == 0 {
                        missing = Some(id);
                        return transaction.rollback();
                    }
                }
                transaction.commit()
            });
        deleted.map_err(|e| self.error(e))?;
        missing.map_or(Ok(()), |id| Err(self.run_not_found(id)))
    }

    fn run_not_found(&self, id: RunId) -> ArchiveError {
        ArchiveError::RunNotFound(self.path.clone(), id)
    }

    /// Runs `f` on the database and names the archive in its error.
    fn query<T>(&self, f: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, ArchiveError> {
        f(&self.db).map_err(|e| self.error(e))
    }

    /// Classifies an error of SQLite.
    fn error(&self, source: rusqlite::Error) -> ArchiveError {
        let path = self.path.clone();
        match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => ArchiveError::NotAnArchive(path),
            Some(ErrorCode::DatabaseCorrupt) => ArchiveError::Corrupt(path, source.to_string()),
            Some(ErrorCode::CannotOpen) => ArchiveError::Open(path, source.to_string()),
            Some(ErrorCode::ReadOnly) => ArchiveError::ReadOnly(path),
            Some(ErrorCode::DiskFull) => ArchiveError::DiskFull(path),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => ArchiveError::Locked(path),
            _ => ArchiveError::Sqlite(path, source),
        }
    }
}

/// Executes a statement with the fields of a record; without an identifier SQLite assigns the next.
fn execute(statement: &mut Statement<'_>, id: Option<RunId>, record: &Record) -> rusqlite::Result<usize> {
    let json = |text: serde_json::Result<String>| text.expect("the schema has text keys only");
    statement.execute(named_params! {
        ":id": id.map(|id| id.0),
        ":started": record.started,
        ":name": record.experiment.name,
        ":hash": record.experiment.hash,
        ":seed": record.seed.to_string(),
        ":backend": record.backend,
        ":partial": record.partial,
        ":program": record.environment.get("program").map_or("", String::as_str),
        ":duration_s": record.duration_s,
        ":text": record.experiment.text,
        ":environment": json(serde_json::to_string(&record.environment)),
        ":record": json(serde_json::to_string(record)),
    })
}

fn run_entry(row: &Row<'_>) -> rusqlite::Result<RunEntry> {
    let seed: String = row.get("seed")?;
    let seed =
        seed.parse().map_err(|_| rusqlite::Error::InvalidColumnType(4, seed, rusqlite::types::Type::Text))?;
    Ok(RunEntry {
        id: RunId(row.get("id")?),
        started: row.get("started")?,
        name: row.get("name")?,
        hash: row.get("hash")?,
        seed: Seed(seed),
        backend: row.get("backend")?,
        partial: row.get("partial")?,
        program: row.get("program")?,
        duration_s: row.get("duration_s")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{self, Experiment};

    fn planned_record(name: &str, backend: &str) -> Record {
        Record {
            backend: backend.into(),
            seed: Seed(u64::MAX),
            started: "2026-01-02T03:04:05Z".into(),
            environment: [("program".to_owned(), "0.1.0".to_owned())].into(),
            experiment: Experiment {
                name: name.into(),
                hash: format!("{name}00ff"),
                text: "experiment {}".into(),
            },
            ..Record::default()
        }
    }

    fn measured_record(name: &str, backend: &str) -> Record {
        let connection = schema::Connection {
            name: "B-A".into(),
            received_bps: 1e6 / 3.0,
            ..schema::Connection::default()
        };
        Record { duration_s: 2.5, connections: vec![connection], ..planned_record(name, backend) }
    }

    fn archive() -> (tempfile::TempDir, Archive) {
        let dir = tempfile::tempdir().unwrap();
        let archive = Archive::open(&dir.path().join("new folder/archive.db")).unwrap();
        (dir, archive)
    }

    fn ids(archive: &Archive, filter: Filter) -> Vec<i64> {
        archive.list(&filter).unwrap().into_iter().map(|e| e.id.0).collect()
    }

    #[test]
    fn a_run_is_stored_before_it_ends_and_its_record_after() {
        let (_dir, archive) = archive();
        let id = archive.begin(&planned_record("quick", "live")).unwrap();
        let unfinished = archive.get(id).unwrap();
        assert!(unfinished.partial);
        assert_eq!(
            (unfinished.problems, unfinished.experiment.name),
            (vec![UNFINISHED.to_owned()], "quick".to_owned())
        );

        archive.finish(id, &measured_record("quick", "live")).unwrap();
        assert_eq!(archive.get(id).unwrap(), measured_record("quick", "live"));
        let entry = archive.list(&Filter::default()).unwrap().remove(0);
        let want = RunEntry {
            id,
            started: "2026-01-02T03:04:05Z".into(),
            name: "quick".into(),
            hash: "quick00ff".into(),
            seed: Seed(u64::MAX),
            backend: "live".into(),
            partial: false,
            program: "0.1.0".into(),
            duration_s: 2.5,
        };
        assert_eq!(entry, want);
    }

    #[test]
    fn runs_are_listed_latest_first_and_deleted_all_or_none() {
        let (_dir, mut archive) = archive();
        for (name, backend) in [("one", "live"), ("two", "sim"), ("o%e", "sim"), ("one", "sim")] {
            archive.begin(&planned_record(name, backend)).unwrap();
        }
        let some = |s: &str| Some(s.to_owned());
        assert_eq!(ids(&archive, Filter::default()), [4, 3, 2, 1]);
        assert_eq!(ids(&archive, Filter { limit: Some(2), ..Filter::default() }), [4, 3]);
        assert_eq!(ids(&archive, Filter { name: some("one"), ..Filter::default() }), [4, 1]);
        assert_eq!(ids(&archive, Filter { name: some("%"), ..Filter::default() }), [3]);
        let mut noted = planned_record("noted", "sim");
        noted.environment.insert("note".into(), "a\"b".into());
        archive.begin(&noted).unwrap();
        assert_eq!(ids(&archive, Filter { note: some("a\"b"), ..Filter::default() }), [5]);
        archive.delete(&[RunId(5)]).unwrap();
        assert_eq!(ids(&archive, Filter { hash: some("two0"), ..Filter::default() }), [2]);
        assert_eq!(
            ids(&archive, Filter { name: some("one"), backend: some("sim"), ..Filter::default() }),
            [4]
        );

        let error = archive.delete(&[RunId(1), RunId(9)]).unwrap_err().to_string();
        assert!(error.starts_with("there is no run 9 in the archive /"), "{error}");
        assert_eq!(ids(&archive, Filter::default()), [4, 3, 2, 1]);
        archive.delete(&[RunId(4), RunId(1)]).unwrap();
        assert_eq!(ids(&archive, Filter::default()), [3, 2]);
        // Identifiers are never reused.
        assert_eq!(archive.begin(&planned_record("new", "live")).unwrap(), RunId(6));
        assert!(matches!(archive.get(RunId(4)), Err(ArchiveError::RunNotFound(_, RunId(4)))));
        assert!(matches!(
            archive.finish(RunId(4), &planned_record("x", "sim")),
            Err(ArchiveError::RunNotFound(..))
        ));
    }

    #[test]
    fn two_programs_share_one_archive() {
        let (_dir, first) = archive();
        let second = Archive::open(&first.path).unwrap();
        let (a, b) = (
            first.begin(&planned_record("a", "live")).unwrap(),
            second.begin(&planned_record("b", "live")).unwrap(),
        );
        first.finish(a, &measured_record("a", "live")).unwrap();
        second.finish(b, &measured_record("b", "live")).unwrap();
        assert_eq!(first.get(b).unwrap(), second.get(b).unwrap());

        second.db.busy_timeout(Duration::ZERO).unwrap();
        first.db.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(matches!(second.begin(&planned_record("c", "live")), Err(ArchiveError::Locked(..))));
        assert_eq!(second.get(a).unwrap(), measured_record("a", "live"), "reading continues beside a writer");
    }

    #[test]
    fn other_files_are_refused_and_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(
            &path,
            "not a database, but long enough to hold the header of one, which is 100 bytes".repeat(3),
        )
        .unwrap();
        assert!(matches!(Archive::open(&path), Err(ArchiveError::NotAnArchive(..))));

        fs::remove_file(&path).unwrap();
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE mine (x)").unwrap();
        let before = fs::read(&path).unwrap();
        let error = Archive::open(&path).unwrap_err().to_string();
        assert_eq!(error, format!("{} is not an archive of Trunkline", path.display()));
        assert_eq!(fs::read(&path).unwrap(), before);

        assert!(matches!(Archive::open(dir.path()), Err(ArchiveError::Open(..))));
    }

    #[test]
    fn a_later_archive_is_refused() {
        let (_dir, archive) = archive();
        archive.db.pragma_update(None, "user_version", 7).unwrap();
        let error = Archive::open(&archive.path).unwrap_err().to_string();
        let path = archive.path.display();
        assert_eq!(error, format!("the archive {path} has version 7; this program reads up to version 1"));
    }

    #[test]
    fn a_damaged_archive_is_an_error() {
        let (_dir, archive) = archive();
        for _ in 0..50 {
            archive.begin(&measured_record("quick", "live")).unwrap();
        }
        let Archive { db, path } = archive;
        drop(db);
        let mut bytes = fs::read(&path).unwrap();
        bytes[4096..].fill(0x55); // every page but the first
        fs::write(&path, bytes).unwrap();
        let error = Archive::open(&path).and_then(|a| a.list(&Filter::default())).unwrap_err();
        assert!(matches!(error, ArchiveError::Corrupt(..)), "{error}");
    }

    #[test]
    fn a_full_disk_and_a_read_only_file_are_distinct_errors_and_lose_nothing() {
        let (_dir, archive) = archive();
        let id = archive.begin(&planned_record("quick", "live")).unwrap();
        let mut large = measured_record("quick", "live");
        large.experiment.text = "x".repeat(1 << 20);
        let pages: i64 = archive.db.pragma_query_value(None, "page_count", |r| r.get(0)).unwrap();
        archive.db.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(())).unwrap();
        assert!(matches!(archive.finish(id, &large), Err(ArchiveError::DiskFull(..))));
        assert!(archive.get(id).unwrap().partial);

        archive.db.pragma_update(None, "query_only", true).unwrap();
        assert!(matches!(archive.begin(&planned_record("quick", "live")), Err(ArchiveError::ReadOnly(..))));
        assert_eq!(ids(&archive, Filter::default()), [id.0]);
    }
}
