//! Writes reports into the archive, on the thread that calls [`ArchiveWriter::run`], apart from polling.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use trunkline_counters::archive::writer::{FlushStats, MAX_PENDING_VALUES, Retention};
use trunkline_counters::archive::{Error, Location, TableId, TableSpec, TextSpec, Writer};
use trunkline_counters::counter::Timestamp;

use super::AnchoredClock;
use super::report::{Closed, Report, ReportReceiver};
use super::retry::{RetryQueue, TableResponse};

/// Interval between two runs of the retention policy.
const RETENTION_INTERVAL: Duration = Duration::from_secs(60);
/// Largest number of distinct errors remembered in order to log each once.
const MAX_LOGGED_ERRORS: usize = 100;
/// Largest number of texts that wait for the archive.
const MAX_PENDING_TEXTS: usize = 1 << 18;
/// Largest number of values in the retry queue.
const MAX_QUEUED_VALUES: usize = MAX_PENDING_VALUES / 2;

/// How long a poller that lost the lock of the archive keeps its responses: the other process may be a short import.
const LOCK_GRACE: Duration = Duration::from_secs(300);

/// Options for writing an archive.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// Interval between two writes to the archive.
    pub flush: Duration,
    /// How long data is retained.
    pub retention: Retention,
}

/// Writes reports into an archive, or is a standby for another process that writes it.
///
/// Responses go to the writer's buffer. Those that it cannot take while the archive is unreachable, because their table is
/// new or the buffer is full, wait in one queue together with all later ones. Texts wait for the next flush.
#[derive(Debug)]
pub struct ArchiveWriter {
    writer: Writer,
    options: WriteOptions,
    clock: AnchoredClock,
    /// The latest specification of each table.
    specs: BTreeMap<usize, Arc<TableSpec>>,
    /// Tables open in the writer, with the specification that it has.
    tables: BTreeMap<usize, (TableId, Arc<TableSpec>)>,
    queue: RetryQueue,
    /// Texts to be written, the latest by device, object and key; at most [`MAX_PENDING_TEXTS`].
    texts: BTreeMap<(String, String, String), (Timestamp, String)>,
    /// Texts dropped since the last log message because there were too many.
    dropped_texts: u64,
    /// Whether this process wrote the archive last, as far as it knows.
    is_active: bool,
    /// When this process found that another one writes the archive, while it was active.
    displaced_at: Option<Timestamp>,
    /// Whether another process writes the archive. It also polls the devices, so responses are not kept here.
    is_standby: bool,
    last_flush: Timestamp,
    last_retention: Timestamp,
    /// Errors already logged; each is logged once.
    logged_errors: BTreeSet<String>,
    /// Lost reports already logged.
    logged_lost: u64,
    /// Responses lost since the last complete flush; `None` if that flush was the last access and succeeded.
    missing_responses: Option<u64>,
}

impl ArchiveWriter {
    /// Opens the archive, or creates it. If another process writes a database, this one is a standby.
    pub fn open(
        at: impl Into<Location>,
        options: WriteOptions,
        clock: AnchoredClock,
    ) -> Result<ArchiveWriter, Error> {
        Ok(ArchiveWriter {
            writer: Writer::standby(at)?,
            options,
            clock,
            specs: BTreeMap::new(),
            tables: BTreeMap::new(),
            queue: RetryQueue::new(MAX_QUEUED_VALUES),
            texts: BTreeMap::new(),
            dropped_texts: 0,
            is_active: false,
            displaced_at: None,
            is_standby: false,
            last_flush: clock.now(),
            last_retention: Timestamp::MIN,
            logged_errors: BTreeSet::new(),
            logged_lost: 0,
            missing_responses: None,
        })
    }

    /// Writes reports until all senders are gone, then flushes the archive. Calls `on_report` with each report before
    /// writing it, and `log` with one line per error and, at the end, with the number of lost responses.
    ///
    /// # Errors
    /// Returns an error if the last flush or the checkpoint fails.
    pub fn run(
        mut self,
        reports: &ReportReceiver,
        mut on_report: impl FnMut(&Report),
        mut log: impl FnMut(&str),
    ) -> Result<(), Error> {
        loop {
            let next = self.last_flush.saturating_add(self.options.flush);
            match reports.receive(next.duration_since(self.clock.now())) {
                Ok(Some(report)) => {
                    on_report(&report);
                    self.handle(report, &mut log);
                }
                Ok(None) => {}
                Err(Closed) => break,
            }
            if self.clock.now() >= next {
                self.flush(reports, &mut log);
            }
        }
        self.writer.reset_backoff();
        let written = self.write_all(&mut log);
        self.log_error(&written, &mut log);
        self.log_dropped(reports, &mut log);
        if self.is_standby {
            return Ok(());
        }
        let missing =
            self.missing_responses.unwrap_or(0) as usize + self.queue.len() + self.writer.pending_responses();
        if missing > 0 {
            log(&format!("{missing} responses are lost"));
        }
        if !self.texts.is_empty() {
            log(&format!("{} texts are lost", self.texts.len()));
        }
        written?;
        self.writer.checkpoint()
    }

    fn handle(&mut self, report: Report, log: &mut impl FnMut(&str)) {
        match report {
            Report::Polled { table, spec, response } => {
                if let Some(spec) = spec {
                    self.specs.insert(table, spec);
                }
                if let Some(spec) = self.specs.get(&table).filter(|_| !self.is_standby) {
                    self.take(TableResponse { table, spec: spec.clone(), response }, log);
                }
            }
            Report::Texts { device, texts, at } => {
                texts
                    .into_iter()
                    .for_each(|text| self.put_text(&device, text.object, text.key.into(), (at, text.text)));
            }
            Report::FaultChanged { device, table, fault, at } => {
                let text = fault.map_or_else(String::new, |fault| fault.to_string());
                self.put_text(&device, "agent".into(), format!("trouble with {table}"), (at, text));
            }
        }
    }

    /// Keeps a text for the next flush.
    fn put_text(&mut self, device: &str, object: String, key: String, text: (Timestamp, String)) {
        let id = (device.to_owned(), object, key);
        if self.texts.len() < MAX_PENDING_TEXTS || self.texts.contains_key(&id) {
            self.texts.insert(id, text);
        } else {
            self.dropped_texts += 1;
        }
    }

    /// Appends a response, or queues it behind those that wait already.
    fn take(&mut self, one: TableResponse, log: &mut impl FnMut(&str)) {
        let appended = if self.queue.len() > 0 { None } else { Some(self.append(&one, log)) };
        match appended {
            Some(Ok(())) => {}
            Some(Err(ref error)) if !is_unavailable(error) => {
                self.refuse(&one, &appended.unwrap_or(Ok(())), log)
            }
            None | Some(Err(_)) => {
                if !self.queue.push(one) {
                    self.count_missing(1);
                }
                self.log_error(&appended.unwrap_or(Ok(())), log);
            }
        }
    }

    /// Counts and logs a response that the archive refuses.
    fn refuse(&mut self, one: &TableResponse, refused: &Result<(), Error>, log: &mut impl FnMut(&str)) {
        match refused {
            Err(Error::OutOfOrder(_) | Error::ValueCount { .. }) => {}
            // It can never be stored.
            Err(Error::InvalidTable(..)) => drop(self.specs.remove(&one.table)),
            _ => self.count_missing(1),
        }
        self.log_error(refused, log);
    }

    /// Appends a response to its table, which is opened if necessary.
    fn append(&mut self, one: &TableResponse, log: &mut impl FnMut(&str)) -> Result<(), Error> {
        let open = self.tables.get(&one.table).filter(|(_, spec)| Arc::ptr_eq(spec, &one.spec));
        let id = match open {
            Some((id, _)) => *id,
            None => {
                self.tables.remove(&one.table);
                let id = self.writer.open_table(&one.spec)?.table;
                self.tables.insert(one.table, (id, one.spec.clone()));
                id
            }
        };
        match self.writer.append(id, &one.response) {
            Err(Error::BufferFull { .. }) => {
                log_damage(&self.writer.flush()?, log);
                self.writer.append(id, &one.response).map(drop)
            }
            appended => appended.map(drop),
        }
    }

    /// Counts lost responses; the next complete flush logs the count.
    fn count_missing(&mut self, count: u64) {
        *self.missing_responses.get_or_insert(0) += count;
    }

    /// Writes all responses and texts.
    fn write_all(&mut self, log: &mut impl FnMut(&str)) -> Result<(), Error> {
        while let Some(one) = self.queue.first().cloned() {
            let appended = self.append(&one, log);
            match appended {
                Ok(()) => {}
                Err(ref error) if is_unavailable(error) => return appended,
                refused => self.refuse(&one, &refused, log),
            }
            self.queue.pop();
        }
        log_damage(&self.writer.flush()?, log);
        (self.is_active, self.displaced_at) = (true, None);
        if std::mem::take(&mut self.is_standby) {
            log("the archive is free: this program writes it now");
            self.logged_errors.clear();
        }
        if let Some(missing) = self.missing_responses.take() {
            log(&format!("the archive is written again; {missing} responses are missing"));
            self.logged_errors.clear();
        }
        self.write_texts()
    }

    /// Writes the texts; those that a device refuses are kept.
    ///
    /// # Errors
    /// Returns the last error.
    fn write_texts(&mut self) -> Result<(), Error> {
        let mut batches: BTreeMap<(&str, Timestamp), Vec<TextSpec<'_>>> = BTreeMap::new();
        for ((device, object, key), (at, text)) in &self.texts {
            batches.entry((device, *at)).or_default().push(TextSpec { object, key, text });
        }
        let (mut result, mut done) = (Ok(()), BTreeSet::new());
        for ((device, at), texts) in batches {
            let put = self.writer.put_texts(device, &texts, at);
            if matches!(put, Ok(()) | Err(Error::InvalidTable(..))) {
                done.insert((device.to_owned(), at));
            }
            let is_unavailable = put.as_ref().is_err_and(is_unavailable);
            result = if put.is_err() { put } else { result };
            if is_unavailable {
                break;
            }
        }
        self.texts.retain(|(device, ..), (at, _)| !done.contains(&(device.clone(), *at)));
        result
    }

    fn flush(&mut self, reports: &ReportReceiver, log: &mut impl FnMut(&str)) {
        let written = self.write_all(log);
        self.last_flush = self.clock.now();
        self.log_error(&written, log);
        if !self.is_standby && self.last_flush.duration_since(self.last_retention) >= RETENTION_INTERVAL {
            let removed = self.writer.apply_retention(&self.options.retention, self.last_flush);
            // The next flush removes the rest.
            self.last_retention =
                if matches!(&removed, Ok(r) if r.more) { self.last_retention } else { self.last_flush };
            self.log_error(&removed.map(|_| ()), log);
        }
        self.log_dropped(reports, log);
    }

    /// Logs texts and reports that were dropped because there were too many.
    fn log_dropped(&mut self, reports: &ReportReceiver, log: &mut impl FnMut(&str)) {
        let dropped = std::mem::take(&mut self.dropped_texts);
        if dropped > 0 {
            log(&format!("{dropped} texts are lost: the queue of {MAX_PENDING_TEXTS} texts is full"));
        }
        let lost = reports.lost();
        if lost > self.logged_lost {
            log(&format!("{} reports are lost: the archive does not keep up", lost - self.logged_lost));
            self.logged_lost = lost;
        }
    }

    /// Logs an error once. If another process writes the archive, this one becomes its standby.
    fn log_error(&mut self, done: &Result<(), Error>, log: &mut impl FnMut(&str)) {
        let Err(error) = done else { return };
        let message = error.to_string();
        match error {
            Error::Disconnected { .. } => self.count_missing(0),
            error if is_unavailable(error) => {
                let now = self.clock.now();
                let displaced_at = *self.displaced_at.get_or_insert(now);
                if !self.is_active || now.duration_since(displaced_at) >= LOCK_GRACE {
                    self.become_standby(log);
                } else {
                    self.count_missing(0);
                }
            }
            _ => {}
        }
        if !self.logged_errors.contains(&message) {
            log(&message);
            if self.logged_errors.len() >= MAX_LOGGED_ERRORS {
                self.logged_errors.clear();
            }
            self.logged_errors.insert(message);
        }
    }

    /// Leaves the responses to the other process.
    fn become_standby(&mut self, log: &mut impl FnMut(&str)) {
        self.is_standby = true;
        self.tables.clear();
        let discarded = self.writer.close_tables() + self.queue.clear();
        if std::mem::take(&mut self.is_active) {
            log(&format!("another program took over the archive: {discarded} responses are discarded"));
        }
        self.missing_responses = None;
    }
}

/// Returns whether the archive takes nothing at all for now.
fn is_unavailable(error: &Error) -> bool {
    matches!(error, Error::Disconnected { .. } | Error::Locked(_, Some(_)))
}

/// Logs the damage that a flush found.
fn log_damage(stats: &FlushStats, log: &mut impl FnMut(&str)) {
    stats.damage.iter().for_each(|damage| log(&damage.to_string()));
}
