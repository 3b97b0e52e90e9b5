//! What happened to each run, in one SQLite file, and the lock that admits one controller.
//!
//! Every decision is one transaction, written before it is carried out. A controller that is killed at any moment leaves
//! runs in the state `running`, which the next one marks as interrupted. Consecutive missed runs take one row.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params};

use crate::file::{Definition, ScheduleError};
use crate::planner::{Entry, MissedReason, RunName};

/// The `PRAGMA application_id` of the file: "TRKS".
const APPLICATION_ID: i32 = 0x54524B53;
/// The schema version, `PRAGMA user_version`.
const VERSION: i64 = 1;
/// How long to wait for the lock of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of a stored reason, in characters.
const MAX_REASON: usize = 500;

const SCHEMA: &str = "
    CREATE TABLE entries (
        name       TEXT PRIMARY KEY,
        definition TEXT NOT NULL,     -- JSON
        position   INTEGER            -- in the schedule file; NULL: the file has it no more
    );
    CREATE TABLE runs (
        entry   TEXT    NOT NULL,
        first   INTEGER NOT NULL,     -- number of the run; of consecutive missed runs, the first
        last    INTEGER NOT NULL,
        planned TEXT    NOT NULL,     -- of the first; UTC, RFC 3339
        state   TEXT    NOT NULL,
        started TEXT,
        ended   TEXT,
        reason  TEXT    NOT NULL DEFAULT '',
        records TEXT    NOT NULL DEFAULT ''  -- run numbers of the archive
    );
    CREATE UNIQUE INDEX runs_by_number ON runs (entry, first);
    CREATE INDEX runs_running ON runs (entry) WHERE state = 'running';
";

/// The state of a run that was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It runs.
    Running,
    /// It ended with success.
    Done,
    /// It failed, or an expectation did.
    Failed,
    /// It never started.
    Missed,
    /// The controller ended during the run.
    Interrupted,
}

impl RunState {
    const ALL: [RunState; 5] =
        [RunState::Running, RunState::Done, RunState::Failed, RunState::Missed, RunState::Interrupted];

    fn name(self) -> &'static str {
        match self {
            RunState::Running => "running",
            RunState::Done => "done",
            RunState::Failed => "failed",
            RunState::Missed => "missed",
            RunState::Interrupted => "interrupted",
        }
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The state; not `Running`.
    pub state: RunState,
    /// Why it is not `Done`; otherwise empty.
    pub reason: String,
    /// Its run numbers in the archive of runs, one per backend.
    pub records: Vec<i64>,
}

/// A run, or consecutive missed runs, of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRun {
    /// The entry.
    pub entry: String,
    /// The numbers; several only for missed runs.
    pub numbers: RangeInclusive<u64>,
    /// Planned time of the first.
    pub planned: Timestamp,
    /// The state.
    pub state: RunState,
    /// When it started.
    pub started: Option<Timestamp>,
    /// When it ended, or was marked as missed.
    pub ended: Option<Timestamp>,
    /// Why it is not `Done`.
    pub reason: String,
    /// Run numbers in the archive of runs.
    pub records: Vec<i64>,
}

/// A definition with what was found out about its experiment.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StoredEntry {
    /// The entry of the file.
    pub definition: Definition,
    /// Hosts that a run uses.
    pub hosts: Vec<String>,
    /// Expected duration of a run, in seconds.
    pub expected_s: u64,
}

impl StoredEntry {
    /// Returns the entry as the planner needs it.
    pub fn plan(&self) -> Result<Entry, ScheduleError> {
        Ok(Entry {
            name: self.definition.name.clone(),
            class: self.definition.class,
            hosts: self.hosts.iter().cloned().collect(),
            timetable: self.definition.timetable()?,
            late: self.definition.late()?,
            expected: SignedDuration::from_secs(self.expected_s.min(i32::MAX as u64) as i64),
        })
    }
}

/// An error of the state; the message names the file.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another controller uses the state.
    #[error("another controller uses the state {}", .0.display())]
    Controlled(PathBuf),
    /// There is no state.
    #[error("there is no state of a schedule at {}", .0.display())]
    NotFound(PathBuf),
    /// The file is no state of a schedule, or a later version wrote it.
    #[error("{} is not the state of a schedule that this program can read", .0.display())]
    NotAState(PathBuf),
    /// The times of an entry have changed.
    #[error(
        "entry `{entry}`: its times have changed, and the state {} has runs of it; give the entry another name",
        path.display()
    )]
    TimetableChanged {
        /// The entry.
        entry: String,
        /// The file.
        path: PathBuf,
    },
    /// The file or its folder cannot be created or opened.
    #[error("cannot open the state {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// An error of SQLite.
    #[error("the state {}: {source}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
}

/// An open state.
#[derive(Debug)]
pub struct State {
    db: Connection,
    path: PathBuf,
    /// Locked as long as the controller lives; the system unlocks it when the process ends.
    _lock: Option<File>,
}

fn lock_path(path: &Path) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

impl State {
    /// Opens the state for a controller; creates it and its folder if they do not exist. Every run that was running is
    /// still in the state `running`.
    pub fn control(path: &Path) -> Result<State, StateError> {
        let io = |source| StateError::Io { path: path.into(), source };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(io)?;
        }
        let lock =
            File::options().create(true).truncate(false).write(true).open(lock_path(path)).map_err(io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StateError::Controlled(path.into())),
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        let sqlite = |source| StateError::Sqlite { path: path.into(), source };
        let db = Connection::open(path).map_err(sqlite)?;
        State { db, path: path.into(), _lock: Some(lock) }.prepare()
    }

    /// A state that is lost with the value.
    #[cfg(test)]
    pub(crate) fn in_memory() -> State {
        let db = Connection::open_in_memory().unwrap();
        State { db, path: "memory".into(), _lock: None }.prepare().unwrap()
    }

    /// Opens an existing state to read it beside a controller.
    pub fn read(path: &Path) -> Result<State, StateError> {
        if !path.exists() {
            return Err(StateError::NotFound(path.into()));
        }
        let sqlite = |source| StateError::Sqlite { path: path.into(), source };
        // A rollback after a crash needs write permission.
        let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(sqlite)?;
        let state = State { db, path: path.into(), _lock: None };
        state.query(|db| db.busy_timeout(BUSY_TIMEOUT))?;
        if state.is_current()? { Ok(state) } else { Err(StateError::NotAState(path.into())) }
    }

    /// Whether a controller uses the state. While this is checked, no controller can begin.
    pub fn has_controller(path: &Path) -> bool {
        let lock = File::open(lock_path(path));
        lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Creates the tables of a new file.
    fn prepare(self) -> Result<State, StateError> {
        self.query(|db| db.busy_timeout(BUSY_TIMEOUT))?;
        let tables: i64 =
            self.query(|db| db.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0)))?;
        if tables == 0 {
            let script = format!(
                "BEGIN IMMEDIATE; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; {SCHEMA} COMMIT;"
            );
            self.query(|db| db.execute_batch(&script))?;
        }
        if self.is_current()? { Ok(self) } else { Err(StateError::NotAState(self.path)) }
    }

    fn is_current(&self) -> Result<bool, StateError> {
        let number =
            |pragma: &str| self.query(|db| db.pragma_query_value(None, pragma, |r| r.get::<_, i64>(0)));
        Ok(number("application_id")? == i64::from(APPLICATION_ID) && number("user_version")? == VERSION)
    }

    fn query<T>(&self, f: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StateError> {
        f(&self.db).map_err(|source| match source.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => StateError::NotAState(self.path.clone()),
            _ => StateError::Sqlite { path: self.path.clone(), source },
        })
    }

    /// Replaces the entries with those of the schedule file. An entry keeps its runs, so its times must be the same.
    pub fn replace_entries(&self, entries: &[StoredEntry]) -> Result<(), StateError> {
        for (old, next) in self.all_entries()? {
            let Some(new) = entries.iter().find(|new| new.definition.name == old.definition.name) else {
                continue;
            };
            let agree = match (old.definition.timetable(), new.definition.timetable()) {
                (Ok(old), Ok(new)) => old.agrees_with(&new),
                _ => false,
            };
            if next > 1 && !agree {
                let entry = old.definition.name;
                return Err(StateError::TimetableChanged { entry, path: self.path.clone() });
            }
        }
        self.query(|db| {
            let transaction = db.unchecked_transaction()?;
            transaction.execute("UPDATE entries SET position = NULL", [])?;
            for (position, entry) in entries.iter().enumerate() {
                let json = serde_json::to_string(entry).expect("an entry has text keys only");
                transaction.execute(
                    "INSERT OR REPLACE INTO entries (name, definition, position) VALUES (?1, ?2, ?3)",
                    params![entry.definition.name, json, position as i64],
                )?;
            }
            transaction.commit()
        })
    }

    /// Returns the entries of the schedule file in its order, each with the number of its first undecided run.
    pub fn entries(&self) -> Result<Vec<(StoredEntry, u64)>, StateError> {
        self.select_entries("WHERE position IS NOT NULL")
    }

    fn all_entries(&self) -> Result<Vec<(StoredEntry, u64)>, StateError> {
        self.select_entries("")
    }

    fn select_entries(&self, condition: &str) -> Result<Vec<(StoredEntry, u64)>, StateError> {
        // The row with the greatest `first` also has the greatest `last`.
        let select = format!(
            "SELECT definition, coalesce((SELECT last FROM runs WHERE entry = name ORDER BY first DESC LIMIT 1), 0) + 1
             FROM entries {condition} ORDER BY position"
        );
        let rows = self.query(|db| {
            let mut select = db.prepare(&select)?;
            let rows = select.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        let entry = |(json, next): (String, i64)| {
            let entry = serde_json::from_str(&json).map_err(|_| StateError::NotAState(self.path.clone()))?;
            Ok((entry, next as u64))
        };
        rows.into_iter().map(entry).collect()
    }

    /// Stores that a run starts. To be called before it does.
    pub fn start(&self, run: &RunName, planned: Timestamp, now: Timestamp) -> Result<(), StateError> {
        self.query(|db| {
            db.execute(
                "INSERT INTO runs (entry, first, last, planned, state, started) VALUES (?1, ?2, ?2, ?3, 'running', ?4)",
                params![run.entry, run.number as i64, planned.to_string(), now.to_string()],
            )
        })
        .map(drop)
    }

    /// Stores how a running run ended.
    pub fn finish(&self, run: &RunName, outcome: &Outcome, now: Timestamp) -> Result<(), StateError> {
        let reason: String = outcome.reason.chars().take(MAX_REASON).collect();
        let records: Vec<String> = outcome.records.iter().map(i64::to_string).collect();
        self.query(|db| {
            db.execute(
                "UPDATE runs SET state = ?3, ended = ?4, reason = ?5, records = ?6
                 WHERE entry = ?1 AND first = ?2 AND state = 'running'",
                params![
                    run.entry,
                    run.number as i64,
                    outcome.state.name(),
                    now.to_string(),
                    reason,
                    records.join(" ")
                ],
            )
        })
        .map(drop)
    }

    /// Stores that runs were missed.
    pub fn miss(
        &self,
        entry: &str,
        numbers: &RangeInclusive<u64>,
        planned: Timestamp,
        reason: &MissedReason,
        now: Timestamp,
    ) -> Result<(), StateError> {
        self.query(|db| {
            db.execute(
                "INSERT INTO runs (entry, first, last, planned, state, ended, reason)
                 VALUES (?1, ?2, ?3, ?4, 'missed', ?5, ?6)",
                params![
                    entry,
                    *numbers.start() as i64,
                    *numbers.end() as i64,
                    planned.to_string(),
                    now.to_string(),
                    reason.to_string()
                ],
            )
        })
        .map(drop)
    }

    /// Returns the running runs.
    pub fn running(&self) -> Result<Vec<StoredRun>, StateError> {
        self.select("WHERE state = 'running' ORDER BY entry", [])
    }

    /// Returns a decided run.
    pub fn find(&self, run: &RunName) -> Result<Option<StoredRun>, StateError> {
        let number = i64::try_from(run.number).unwrap_or(i64::MAX);
        let found = self.query(|db| {
            db.query_row(
                &format!("{SELECT} WHERE entry = ?1 AND first <= ?2 ORDER BY first DESC LIMIT 1"),
                params![run.entry, number],
                stored_run,
            )
            .optional()
        })?;
        Ok(found.filter(|found| found.numbers.contains(&run.number)))
    }

    /// Returns the runs that were decided last, the latest first; of one entry, or of all.
    pub fn list(&self, entry: Option<&str>, limit: u32) -> Result<Vec<StoredRun>, StateError> {
        self.select("WHERE ?1 IS NULL OR entry = ?1 ORDER BY rowid DESC LIMIT ?2", params![entry, limit])
    }

    fn select(&self, rest: &str, parameters: impl rusqlite::Params) -> Result<Vec<StoredRun>, StateError> {
        self.query(|db| db.prepare(&format!("{SELECT} {rest}"))?.query_map(parameters, stored_run)?.collect())
    }
}

const SELECT: &str = "SELECT entry, first, last, planned, state, started, ended, reason, records FROM runs";

fn stored_run(row: &Row<'_>) -> rusqlite::Result<StoredRun> {
    let invalid = |column, text: &str| {
        rusqlite::Error::InvalidColumnType(column, text.into(), rusqlite::types::Type::Text)
    };
    let time = |column: usize| -> rusqlite::Result<Option<Timestamp>> {
        let text: Option<String> = row.get(column)?;
        text.map(|text| text.parse().map_err(|_| invalid(column, &text))).transpose()
    };
    let state: String = row.get(4)?;
    let records: String = row.get(8)?;
    Ok(StoredRun {
        entry: row.get(0)?,
        numbers: row.get::<_, i64>(1)? as u64..=row.get::<_, i64>(2)? as u64,
        planned: time(3)?.ok_or_else(|| invalid(3, ""))?,
        state: RunState::ALL
            .into_iter()
            .find(|known| known.name() == state)
            .ok_or_else(|| invalid(4, &state))?,
        started: time(5)?,
        ended: time(6)?,
        reason: row.get(7)?,
        records: records.split(' ').filter_map(|id| id.parse().ok()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file;

    const START: &str = "2026-12-04T14:00:00Z";

    fn at(seconds: i64) -> Timestamp {
        START.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
    }

    fn entry(name: &str, every: &str) -> StoredEntry {
        let text = format!(
            "[[entry]]\nname = \"{name}\"\nexperiment = \"x.ns\"\nfirst = \"{START}\"\nevery = \"{every}\""
        );
        StoredEntry {
            definition: file::parse(&text).unwrap().remove(0),
            hosts: vec!["a".into()],
            expected_s: 60,
        }
    }

    fn run(number: u64) -> RunName {
        RunName { entry: "x".into(), number }
    }

    #[test]
    fn a_run_is_stored_before_it_starts_and_survives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/schedule.sqlite");
        assert!(matches!(State::read(&path), Err(StateError::NotFound(_))) && !State::has_controller(&path));
        let state = State::control(&path).unwrap();
        state.replace_entries(&[entry("x", "1 min")]).unwrap();
        state.miss("x", &(1..=3), at(0), &MissedReason::NoController, at(200)).unwrap();
        state.start(&run(4), at(180), at(200)).unwrap();
        drop(state);

        let state = State::control(&path).unwrap();
        let [running] = &state.running().unwrap()[..] else { panic!("one run") };
        assert_eq!((&running.numbers, running.started), (&(4..=4), Some(at(200))));
        assert_eq!(state.entries().unwrap(), [(entry("x", "1 min"), 5)]);
        let outcome = Outcome { state: RunState::Failed, reason: "é".repeat(1000), records: vec![7, 8] };
        state.finish(&run(4), &outcome, at(260)).unwrap();
        let stored = state.find(&run(4)).unwrap().unwrap();
        assert_eq!(
            (stored.state, stored.ended, &stored.records[..]),
            (RunState::Failed, Some(at(260)), &[7, 8][..])
        );
        assert_eq!(stored.reason, "é".repeat(MAX_REASON));
        // The end of a run that has ended changes nothing, and no run is stored twice.
        let other = Outcome { state: RunState::Done, ..outcome };
        state.finish(&run(4), &other, at(300)).unwrap();
        assert_eq!(state.find(&run(4)).unwrap().unwrap(), stored);
        assert!(state.start(&run(4), at(180), at(300)).is_err());

        let missed = state.find(&run(2)).unwrap().unwrap();
        assert_eq!(
            (missed.state, missed.reason.as_str()),
            (RunState::Missed, "the controller was not running")
        );
        assert_eq!(state.find(&run(5)).unwrap(), None);
        assert_eq!(state.find(&run(u64::MAX)).unwrap(), None);
        assert_eq!(state.list(None, 10).unwrap(), [stored.clone(), missed]);
        assert_eq!(state.list(Some("x"), 1).unwrap(), [stored]);
        assert_eq!(state.list(Some("y"), 10).unwrap(), []);
    }

    #[test]
    fn a_second_controller_is_refused_and_readers_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("schedule.sqlite");
        let state = State::control(&path).unwrap();
        let error = State::control(&path).unwrap_err().to_string();
        assert_eq!(error, format!("another controller uses the state {}", path.display()));
        assert!(State::has_controller(&path));
        assert_eq!(State::read(&path).unwrap().list(None, 1).unwrap(), []);
        drop(state);
        assert!(!State::has_controller(&path));
        State::control(&path).unwrap();
    }

    #[test]
    fn an_entry_with_runs_keeps_its_times() {
        let state = State::in_memory();
        state.replace_entries(&[entry("x", "1 min"), entry("y", "1 min")]).unwrap();
        state.replace_entries(&[entry("x", "2 min")]).unwrap();
        state.start(&run(1), at(0), at(0)).unwrap();
        let error = state.replace_entries(&[entry("x", "1 min")]).unwrap_err().to_string();
        assert!(error.starts_with("entry `x`: its times have changed"), "{error}");
        let mut ended = entry("x", "2 min");
        ended.definition.count = Some(5);
        ended.definition.late = Some("10 min".into());
        state.replace_entries(&[entry("y", "3 min"), ended.clone()]).unwrap();
        assert_eq!(state.entries().unwrap(), [(entry("y", "3 min"), 1), (ended, 2)]);
        // An entry that the file had before still has its times.
        state.replace_entries(&[entry("y", "3 min")]).unwrap();
        assert!(state.replace_entries(&[entry("x", "1 min")]).is_err());
    }

    #[test]
    fn other_files_are_refused_and_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(
            &path,
            "not a database, but long enough for the header of one, which is 100 bytes".repeat(3),
        )
        .unwrap();
        let before = fs::read(&path).unwrap();
        assert!(matches!(State::control(&path), Err(StateError::NotAState(_))));
        assert!(matches!(State::read(&path), Err(StateError::NotAState(_))));
        assert_eq!(fs::read(&path).unwrap(), before);
        fs::remove_file(&path).unwrap();
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE mine (x)").unwrap();
        assert!(matches!(State::control(&path), Err(StateError::NotAState(_))));
        assert!(matches!(State::control(folder.path()), Err(StateError::Sqlite { .. })));
    }
}
