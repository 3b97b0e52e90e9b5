//! An archive in a database: whose it is, who writes it, and what happens when the connection ends.
//!
//! Who writes holds an advisory lock for each device and, shared, one for the archive, which bringing its tables up to
//! date needs alone. The server frees them when the connection ends. After that a writer connects anew with the next
//! call, but not before a pause that doubles; it ends what the server still has of its last connection, so that nothing
//! of that can come after, and takes its locks again. What it had under way then is the caller's to find out. For a
//! minute it leaves devices to those who had them, whose connections will have ended as well.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use tokio_postgres::Config;
use tokio_postgres::error::SqlState;
use xxhash_rust::xxh3::xxh3_64;

use super::address;
use super::link::{Link, Trouble};
use crate::archive::Error;
use crate::archive::location::{Location, Url};

/// Each step from one version of the tables to the next. Never change one: add one.
const MIGRATIONS: [&str; 1] = [include_str!("tables.sql")];

/// Stands in the table `archive`, so that nobody else's is taken for one.
const KIND: &str = "trunkline counters";

/// Takes a lock that nobody else has, and waits for that.
const ALONE: &str = "SELECT pg_advisory_lock($1)";

/// Between tries to connect, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// After a connection was made anew, devices are left so long to who had them: what waits there would be lost if another
/// came first. The longest pause fits in, and the longest try.
const RETURN: Duration = Duration::from_secs(60);

/// Former connections of which the server may have something left.
const MOST_FORMER: usize = 16;

/// An open archive.
#[derive(Debug)]
pub(crate) struct Pg {
    location: Location,
    config: Config,
    writes: bool,
    link: RefCell<Option<Link>>,
    /// How often a connection was tried.
    number: Cell<u64>,
    /// The server's processes behind connections that have ended and may have held locks, the last [`MOST_FORMER`].
    former: RefCell<VecDeque<(i32, i64)>>,
    /// The devices whose locks are held, or were and are to be held again.
    held: RefCell<BTreeSet<String>>,
    /// The devices that were held until another took them, who that is, and which try found it out.
    taken: RefCell<BTreeMap<String, (String, u64)>>,
    rest: RefCell<Option<Rest>>,
    /// When a connection was made in the place of one that had ended.
    back: Cell<Option<Instant>>,
    /// Whether what is read is to be of one moment.
    at_once: Cell<bool>,
    /// What went wrong in the midst of that, where nobody could be told.
    untold: RefCell<Option<Error>>,
}

/// A pause between tries to connect.
#[derive(Debug)]
struct Rest {
    until: Instant,
    length: Duration,
    why: String,
}

/// What the database has.
enum Found {
    Nothing,
    Version(usize),
}

/// Whether the tables are up to date.
fn current(found: &Found) -> bool {
    matches!(found, Found::Version(v) if *v == MIGRATIONS.len())
}

impl Pg {
    /// Opens an archive; who writes makes it, where there is none.
    pub fn open(url: &Url, writes: bool) -> Result<Pg, Error> {
        let location = Location::Server(url.clone());
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let application = format!("trunkline@{}/{}", host.trim(), std::process::id());
        let config = address::config(url.secret(), &application)
            .map_err(|reason| Error::Address { archive: location.clone(), reason })?;
        let pg = Pg {
            location,
            config,
            writes,
            link: RefCell::default(),
            number: Cell::new(1),
            former: RefCell::default(),
            held: RefCell::default(),
            taken: RefCell::default(),
            rest: RefCell::default(),
            back: Cell::default(),
            at_once: Cell::default(),
            untold: RefCell::default(),
        };
        let link = pg.enter().map_err(|error| match error {
            Error::Lost { archive, reason } => Error::Open { archive, reason },
            error => error,
        })?;
        *pg.link.borrow_mut() = Some(link);
        Ok(pg)
    }

    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Makes sure that there is a connection, and which.
    pub fn ready(&self) -> Result<u64, Error> {
        self.connect()?;
        Ok(self.number.get())
    }

    /// How often a connection was tried.
    pub fn tries(&self) -> u64 {
        self.number.get()
    }

    /// The next try does not wait until the pause is over.
    pub fn press(&self) {
        self.rest.take();
    }

    /// A question, with its answer. Who only reads asks a second time if the connection had ended meanwhile; who writes
    /// has to know that it is another one, and uses [`Pg::ready`].
    pub(super) fn ask<T>(
        &self,
        question: impl AsyncFn(&Link) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, Error> {
        let before = self.tries();
        match self.ask_once(&question) {
            Err(Error::Lost { .. }) if !self.writes && !self.at_once.get() && self.tries() == before => {
                self.ask_once(&question)
            }
            answer => answer,
        }
    }

    fn ask_once<T>(
        &self,
        question: &impl AsyncFn(&Link) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, Error> {
        if !self.writes {
            self.connect()?;
        }
        let link = self.link.borrow();
        let Some(open) = link.as_ref() else { return Err(self.lost("the connection ended".into())) };
        let answer = open.wait(question(open));
        let closed = open.is_closed();
        drop(link);
        answer.map_err(|trouble| {
            if closed || trouble.ends_it() {
                self.part();
                return self.lost(trouble.reason());
            }
            self.error(trouble)
        })
    }

    /// All that `work` writes, or nothing.
    pub(super) fn transaction<T>(
        &self,
        work: impl AsyncFn(&Link) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, Error> {
        self.ask(async |link| {
            link.batch("BEGIN").await?;
            match work(link).await {
                Ok(done) => link.batch("COMMIT").await.map(|()| done),
                Err(error) => {
                    // The first error is what matters.
                    let _ = link.batch("ROLLBACK").await;
                    Err(error)
                }
            }
        })
    }

    /// What is read from now on is of one moment.
    pub fn begin(&self) -> Result<(), Error> {
        self.untold.take();
        self.ask(async |link| link.batch("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY").await)?;
        self.at_once.set(true);
        Ok(())
    }

    pub fn end(&self) -> Result<(), Error> {
        let ended = self.ask(async |link| link.batch("COMMIT").await);
        self.at_once.set(false);
        self.untold.take().map_or(ended, Err)
    }

    /// Keeps what went wrong for [`Pg::end`].
    pub fn untold(&self, error: Error) {
        self.untold.borrow_mut().get_or_insert(error);
    }

    /// Makes sure that there is a connection.
    fn connect(&self) -> Result<(), Error> {
        if self.link.borrow().as_ref().is_some_and(|link| !link.is_closed()) {
            return Ok(());
        }
        self.part();
        if self.at_once.get() {
            return Err(self.lost("the connection ended".into()));
        }
        if let Some(rest) = self.rest.borrow().as_ref().filter(|rest| now() < rest.until) {
            return Err(self.lost(rest.why.clone()));
        }
        self.number.set(self.number.get() + 1);
        let entered = self.enter();
        // A try may take longer than the pause after it.
        let now = now();
        let mut rest = self.rest.borrow_mut();
        *rest = match &entered {
            Ok(_) => None,
            Err(error) => {
                let length = rest.as_ref().map_or(PAUSE.0, |last| (last.length * 2).min(PAUSE.1));
                let why = match error {
                    Error::Lost { reason, .. } => reason.clone(),
                    error => error.to_string(),
                };
                Some(Rest { until: now + length, length, why })
            }
        };
        *self.link.borrow_mut() = Some(entered?);
        self.back.set(Some(now));
        Ok(())
    }

    /// Gives up a connection that has ended.
    fn part(&self) {
        if let Some(link) = self.link.take() {
            self.remember(&link);
        }
    }

    /// Keeps in mind that the server may have something left of a connection.
    fn remember(&self, link: &Link) {
        let mut former = self.former.borrow_mut();
        former.push_back(link.process);
        if former.len() > MOST_FORMER {
            former.pop_front();
        }
    }

    /// Connects, sees whose database it is, and takes the locks.
    fn enter(&self) -> Result<Link, Error> {
        let link = Link::open(&self.config).map_err(|trouble| self.lost(trouble.reason()))?;
        let known = self.found(&link)?;
        if !self.writes {
            return match known {
                known if current(&known) => Ok(link),
                Found::Version(v) => Err(Error::Older { archive: self.location.clone(), found: v as u64 }),
                Found::Nothing => Err(Error::Foreign { archive: self.location.clone() }),
            };
        }
        if !current(&known) {
            self.prepare(&link)?;
        }
        let locked = self.lock(&link);
        if locked.is_err() {
            self.remember(&link);
        }
        locked.map(|()| link)
    }

    /// Takes the locks of who writes.
    fn lock(&self, link: &Link) -> Result<(), Error> {
        self.wait_for(link, "SELECT pg_advisory_lock_shared($1)", key("archive", ""))?;
        self.hold_again(link)
    }

    /// Waits for a lock that another is about to free: `lock_timeout` ends the wait.
    fn wait_for(&self, link: &Link, lock: &'static str, key: i64) -> Result<(), Error> {
        let locked = link.wait(async { link.execute(lock, &[&key]).await });
        locked.map(drop).map_err(|trouble| match trouble.code() {
            Some(&SqlState::LOCK_NOT_AVAILABLE) => Error::Busy { archive: self.location.clone() },
            _ => self.error(trouble),
        })
    }

    /// Version of the tables.
    fn found(&self, link: &Link) -> Result<Found, Error> {
        let foreign = || Error::Foreign { archive: self.location.clone() };
        let tables =
            "SELECT coalesce(bool_or(c.relname = 'archive'), false), count(c.oid) FROM pg_namespace n
            LEFT JOIN pg_class c ON c.relnamespace = n.oid WHERE n.nspname = 'trunkline'";
        let looked = link.wait(async {
            let rows = link.rows(tables, &[]).await?;
            let row = rows.first().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
            row.transpose().map(|row: Option<(bool, i64)>| row.unwrap_or_default())
        });
        match looked.map_err(|trouble| self.error(trouble))? {
            (_, 0) => return Ok(Found::Nothing),
            (false, _) => return Err(foreign()),
            (true, _) => {}
        }
        let version = link.wait(async {
            let rows = link.rows("SELECT kind::text, version::bigint FROM trunkline.archive", &[]).await?;
            rows.iter()
                .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
                .collect::<Result<Vec<(String, i64)>, _>>()
        });
        let version = version.map_err(|trouble| match trouble.code() {
            Some(code) if [SqlState::UNDEFINED_COLUMN, SqlState::UNDEFINED_TABLE].contains(code) => foreign(),
            _ => self.error(trouble),
        })?;
        match version.as_slice() {
            [(kind, version)] if kind == KIND => match usize::try_from(*version) {
                Ok(v) if v <= MIGRATIONS.len() => Ok(Found::Version(v)),
                _ => Err(Error::Newer { archive: self.location.clone(), found: version.unsigned_abs() }),
            },
            _ => Err(foreign()),
        }
    }

    /// Brings the tables up to date, one program at a time and while nobody writes.
    fn prepare(&self, link: &Link) -> Result<(), Error> {
        if link.encoding != "UTF8" {
            let reason = format!("it keeps texts in {}: an archive wants a database in UTF8", link.encoding);
            return Err(Error::Open { archive: self.location.clone(), reason });
        }
        // Who finds it done when its turn comes does not wait for those who write already.
        let (turn, alone) = (key("tables", ""), key("archive", ""));
        self.wait_for(link, ALONE, turn)?;
        let known = self.found(link)?;
        if !current(&known) {
            self.wait_for(link, ALONE, alone)?;
            self.migrate(link, &known)?;
            self.free(link, alone)?;
        }
        self.free(link, turn)
    }

    fn free(&self, link: &Link, key: i64) -> Result<(), Error> {
        let freed = link.wait(async { link.execute("SELECT pg_advisory_unlock($1)", &[&key]).await });
        freed.map(drop).map_err(|trouble| self.error(trouble))
    }

    fn migrate(&self, link: &Link, known: &Found) -> Result<(), Error> {
        let steps: String = match *known {
            Found::Version(v) => MIGRATIONS[v..].concat(),
            Found::Nothing => format!("{}{}", self.room(link)?, MIGRATIONS.concat()),
        };
        let done =
            format!("BEGIN; {steps}; UPDATE trunkline.archive SET version = {}; COMMIT", MIGRATIONS.len());
        let made = link.wait(async { link.batch(&done).await });
        if made.is_err() {
            let _ = link.wait(async { link.batch("ROLLBACK").await });
        }
        made.map_err(|trouble| self.error(trouble))
    }

    /// What makes the schema, unless somebody has made it for us, and the table that says what it is.
    fn room(&self, link: &Link) -> Result<String, Error> {
        let there = "SELECT count(*) > 0 FROM pg_namespace WHERE nspname = $1";
        let schema = if self.first(link, there, &"trunkline")? { "" } else { "CREATE SCHEMA trunkline;" };
        let table = "CREATE TABLE trunkline.archive (kind text NOT NULL, version bigint NOT NULL);";
        Ok(format!("{schema} {table} INSERT INTO trunkline.archive VALUES ('{KIND}', 0);"))
    }

    // --- who writes what

    /// Makes sure that nobody else writes a device.
    pub fn hold(&self, device: &str) -> Result<(), Error> {
        if self.held.borrow().contains(device) {
            return Ok(());
        }
        let key = key("device", device);
        let held = |who: String| {
            let (archive, device) = (self.location.clone(), device.to_owned());
            Err(Error::Held { archive, device, who })
        };
        let was_held = self.taken.borrow().get(device).is_some_and(|(_, tries)| *tries == self.tries());
        if !was_held && self.back.get().is_some_and(|back| now() < back + RETURN) {
            let who = self.ask(async |link| holder(link, key).await)?;
            return held(who.map_or_else(
                || "whoever did before the connection ended has a minute to come back".into(),
                |who| named(Some(who)),
            ));
        }
        let got = self.ask(async |link| {
            let row = link.row("SELECT pg_try_advisory_lock($1)", &[&key]).await?;
            row.map_or(Ok(false), |row| row.try_get(0))
        })?;
        if !got {
            let who = self.ask(async |link| holder(link, key).await)?;
            return held(named(who));
        }
        self.taken.borrow_mut().remove(device);
        self.held.borrow_mut().insert(device.to_owned());
        Ok(())
    }

    pub fn taken(&self, device: &str) -> Option<String> {
        self.taken.borrow().get(device).map(|(who, _)| who.clone())
    }

    /// Takes the locks of former connections again, but for those that somebody else has taken.
    fn hold_again(&self, link: &Link) -> Result<(), Error> {
        let former = self.former.borrow().clone();
        for (process, began) in &former {
            // The server may not have noticed that it has ended. Who may not do this waits until it has.
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1
                AND (extract(epoch FROM backend_start) * 1000000)::bigint = $2";
            let _ = link.wait(async { link.rows(end, &[process, began]).await });
        }
        let devices: Vec<String> = self.held.borrow().iter().cloned().collect();
        for device in devices {
            if let Some(who) = self.take(link, &device)? {
                self.held.borrow_mut().remove(&device);
                self.taken.borrow_mut().insert(device, (who, self.tries()));
            }
        }
        self.former.borrow_mut().clear();
        Ok(())
    }

    /// Takes the lock of a device, or says who has it.
    fn take(&self, link: &Link, device: &str) -> Result<Option<String>, Error> {
        let key = key("device", device);
        if self.first(link, "SELECT pg_try_advisory_lock($1)", &key)? {
            return Ok(None);
        }
        let who = link.wait(holder(link, key)).map_err(|trouble| self.error(trouble))?;
        let ends = |(_, process): &(String, i32)| self.former.borrow().iter().any(|f| f.0 == *process);
        // It is waited for only where it is about to be free.
        if who.as_ref().is_none_or(ends) {
            match self.wait_for(link, ALONE, key) {
                Err(Error::Busy { .. }) => {}
                done => return done.map(|()| None),
            }
        }
        Ok(Some(named(who)))
    }

    /// The one truth value that a statement answers with.
    fn first(
        &self,
        link: &Link,
        sql: &'static str,
        param: &(dyn tokio_postgres::types::ToSql + Sync),
    ) -> Result<bool, Error> {
        let answer = link.wait(async {
            let row = link.row(sql, &[param]).await?;
            row.map_or(Ok(false), |row| row.try_get(0))
        });
        answer.map_err(|trouble| self.error(trouble))
    }

    // --- errors

    fn lost(&self, reason: String) -> Error {
        Error::Lost { archive: self.location.clone(), reason }
    }

    /// What a server that answers has against it.
    fn error(&self, trouble: Trouble) -> Error {
        let (archive, reason) = (self.location.clone(), trouble.reason());
        if trouble.ends_it() {
            return self.lost(reason);
        }
        match trouble.code() {
            Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => Error::ReadOnly { archive },
            Some(&SqlState::DISK_FULL) => Error::Full { archive },
            Some(&(SqlState::INSUFFICIENT_PRIVILEGE | SqlState::INVALID_SCHEMA_NAME)) => {
                Error::Open { archive, reason }
            }
            Some(&(SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED)) => {
                Error::Corrupt { archive, reason }
            }
            Some(_) => Error::Other { archive, source: reason.into() },
            None => Error::Corrupt { archive, reason },
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a server that is gone is not asked all the time")]
fn now() -> Instant {
    Instant::now()
}

/// The lock of something of the archive. Locks belong to a database, as the archive does.
pub(super) fn key(what: &str, name: &str) -> i64 {
    xxh3_64(format!("trunkline {what} {name}").as_bytes()) as i64
}

/// Who holds a lock, in words.
fn named(who: Option<(String, i32)>) -> String {
    who.map_or("it has just ended".into(), |(name, process)| {
        format!("{name}, process {process} of the server")
    })
}

/// Who holds a lock: name and process.
async fn holder(link: &Link, key: i64) -> Result<Option<(String, i32)>, tokio_postgres::Error> {
    let sql = "SELECT coalesce(a.application_name, ''), a.pid FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND ((l.classid::bigint << 32) | l.objid::bigint) = $1
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) LIMIT 1";
    let row = link.row(sql, &[&key]).await?;
    row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).transpose()
}
