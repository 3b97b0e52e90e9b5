//! Writes reports into the archive, on the thread that calls [`ArchiveWriter::run`], apart from polling.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use trunkline_counters::archive::writer::{FlushStats, Retention};
use trunkline_counters::archive::{Error, Layout, Location, TableSpec, TextSpec, Writer};
use trunkline_counters::counter::{Response, Timestamp};

use super::AnchoredClock;
use super::pending::PendingResponses;
use super::report::{Closed, Report, ReportReceiver};

/// Interval between two runs of the retention policy.
const RETENTION_INTERVAL: Duration = Duration::from_secs(60);
/// Largest number of distinct errors remembered in order to log each once.
const MAX_LOGGED_ERRORS: usize = 100;
/// Largest number of texts queued while the archive is unreachable or another process writes their device.
const MAX_PENDING_TEXTS: usize = 1 << 18;
/// Largest number of values queued for tables that cannot be created while the archive is unreachable.
const MAX_PENDING_VALUES: usize = 1 << 22;

/// Options for writing an archive.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// Interval between two writes to the archive.
    pub flush: Duration,
    /// How long data is retained.
    pub retention: Retention,
}

/// Writes reports into an archive.
#[derive(Debug)]
pub struct ArchiveWriter {
    writer: Writer,
    options: WriteOptions,
    clock: AnchoredClock,
    tables: BTreeMap<usize, (Layout, Arc<TableSpec>)>,
    /// Tables to be created. Creation fails while the archive is unreachable or full, or while another process writes
    /// the device.
    pending_tables: BTreeMap<usize, Arc<TableSpec>>,
    /// Responses for [`Self::pending_tables`] that arrived while the archive was unreachable.
    pending_responses: PendingResponses,
    /// Devices that another process writes, with the holder of the lock.
    locked_devices: BTreeMap<String, String>,
    /// Lock holders, with the number of devices last logged for each.
    logged_holders: BTreeMap<String, usize>,
    /// Texts to be written, the latest by device, object and key; at most [`MAX_PENDING_TEXTS`].
    pending_texts: BTreeMap<(String, String, String), (Timestamp, String)>,
    /// Texts dropped since the last log message because the queue was full.
    dropped_texts: u64,
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
    /// Opens the archive, or creates it.
    pub fn open(
        at: impl Into<Location>,
        options: WriteOptions,
        clock: AnchoredClock,
    ) -> Result<ArchiveWriter, Error> {
        let writer = Writer::open(at)?;
        let (last_flush, last_retention) = (clock.now(), Timestamp::MIN);
        Ok(ArchiveWriter {
            writer,
            options,
            clock,
            tables: BTreeMap::new(),
            pending_tables: BTreeMap::new(),
            pending_responses: PendingResponses::new(MAX_PENDING_VALUES),
            locked_devices: BTreeMap::new(),
            logged_holders: BTreeMap::new(),
            pending_texts: BTreeMap::new(),
            dropped_texts: 0,
            last_flush,
            last_retention,
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
                    let result = self.handle(&report, &mut log);
                    self.log_error(result, &mut log);
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
        if written.is_ok() {
            let result = self.write_pending_texts();
            self.log_error(result, &mut log);
        }
        self.log_losses(reports, &mut log);
        written?;
        self.writer.checkpoint()
    }

    fn handle(&mut self, report: &Report, log: &mut impl FnMut(&str)) -> Result<(), Error> {
        match report {
            Report::Polled { table, spec, response } => {
                if let Some(spec) = spec {
                    // Responses are not written until the table has its new specification.
                    self.tables.remove(table);
                    self.pending_tables.insert(*table, spec.clone());
                }
                if let Err(error) = self.ensure_table(*table, log) {
                    if let (Error::Disconnected { .. }, Some(spec)) = (&error, self.pending_tables.get(table))
                        && !self.pending_responses.push(*table, (spec.clone(), response.clone()))
                    {
                        self.count_missing(1);
                    }
                    return Err(error);
                }
                let appended = self.append(*table, response, log);
                match &appended {
                    Ok(())
                    | Err(Error::DeviceLocked { .. } | Error::OutOfOrder(_) | Error::ValueCount { .. }) => {}
                    Err(_) => self.count_missing(1),
                }
                appended
            }
            Report::Texts { device, texts, at } => {
                let specs: Vec<TextSpec<'_>> =
                    texts.iter().map(|t| TextSpec { object: &t.object, key: t.key, text: &t.text }).collect();
                self.write_texts(device, &specs, *at)
            }
            Report::FaultChanged { device, table, fault, at } => {
                let text = fault.as_ref().map_or_else(String::new, ToString::to_string);
                let key = format!("trouble with {table}");
                self.write_texts(device, &[TextSpec { object: "agent", key: &key, text: &text }], *at)
            }
        }
    }

    fn append(&mut self, table: usize, response: &Response, log: &mut impl FnMut(&str)) -> Result<(), Error> {
        let Some((layout, spec)) = self.tables.get(&table) else { return Ok(()) };
        let id = layout.table;
        let appended = match self.writer.append(id, response) {
            Err(Error::BufferFull { .. }) => {
                log_damage(&self.writer.flush()?, log);
                self.writer.append(id, response)
            }
            appended => appended,
        };
        if let Err(Error::DeviceLocked { .. }) = &appended {
            self.pending_tables.entry(table).or_insert(spec.clone());
            self.tables.remove(&table);
        }
        appended.map(drop)
    }

    /// Counts lost responses; the next complete flush logs the count.
    fn count_missing(&mut self, count: u64) {
        *self.missing_responses.get_or_insert(0) += count;
    }

    /// Writes texts, or queues them if the error is temporary: senders do not repeat a text.
    fn write_texts(&mut self, device: &str, texts: &[TextSpec<'_>], at: Timestamp) -> Result<(), Error> {
        let result = self.writer.put_texts(device, texts, at);
        for text in texts {
            let id = (device.to_owned(), text.object.to_owned(), text.key.to_owned());
            match &result {
                Err(error) if is_temporary(error) => {
                    if self.pending_texts.len() < MAX_PENDING_TEXTS || self.pending_texts.contains_key(&id) {
                        self.pending_texts.insert(id, (at, text.text.to_owned()));
                    } else {
                        self.dropped_texts += 1;
                    }
                }
                // An older queued text must not overwrite the new one.
                _ => drop(self.pending_texts.remove(&id)),
            }
        }
        if result.is_ok() {
            self.locked_devices.remove(device);
        }
        result
    }

    /// Writes the queued texts; the texts of a device that still refuses them stay queued.
    ///
    /// # Errors
    /// Returns the last error.
    fn write_pending_texts(&mut self) -> Result<(), Error> {
        let mut waiting: BTreeMap<(&str, Timestamp), Vec<TextSpec<'_>>> = BTreeMap::new();
        for ((device, object, key), (at, text)) in &self.pending_texts {
            waiting.entry((device, *at)).or_default().push(TextSpec { object, key, text });
        }
        let (mut result, mut written, mut refusing_device) = (Ok(()), BTreeSet::new(), None);
        for ((device, at), texts) in waiting {
            if refusing_device == Some(device) {
                continue;
            }
            match self.writer.put_texts(device, &texts, at) {
                Ok(()) => {
                    self.locked_devices.remove(device);
                    written.insert((device.to_owned(), at));
                }
                Err(error) => {
                    let lost = matches!(error, Error::Disconnected { .. });
                    (result, refusing_device) = (Err(error), Some(device));
                    if lost {
                        break;
                    }
                }
            }
        }
        self.pending_texts.retain(|(device, ..), (at, _)| !written.contains(&(device.clone(), *at)));
        result
    }

    /// Creates a table whose creation failed before, and writes its queued responses.
    fn ensure_table(&mut self, table: usize, log: &mut impl FnMut(&str)) -> Result<(), Error> {
        let Some(spec) = self.pending_tables.get(&table).cloned() else { return Ok(()) };
        if let Err(error) = self.write_pending_responses(table, log) {
            if !matches!(error, Error::Disconnected { .. }) {
                match self.pending_responses.discard(table) {
                    0 => {}
                    missing => self.count_missing(missing),
                }
            }
            return Err(error);
        }
        let opened = self.open_table(table, &spec);
        if opened.as_ref().err().is_none_or(|error| !is_temporary(error)) {
            self.pending_tables.remove(&table);
        }
        opened
    }

    /// Writes the queued responses of a table, each with the specification it was received for.
    fn write_pending_responses(&mut self, table: usize, log: &mut impl FnMut(&str)) -> Result<(), Error> {
        while let Some(one) = self.pending_responses.pop(table) {
            let taken = self.open_table(table, &one.0).and_then(|()| self.append(table, &one.1, log));
            match taken {
                Ok(()) => {}
                // Another process wrote newer responses.
                Err(error @ Error::OutOfOrder(_)) => {
                    self.count_missing(1);
                    self.log_error(Err(error), log);
                }
                Err(error) => {
                    self.pending_responses.push_front(table, one);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn open_table(&mut self, table: usize, spec: &Arc<TableSpec>) -> Result<(), Error> {
        if self.tables.get(&table).is_some_and(|(_, current)| Arc::ptr_eq(current, spec)) {
            return Ok(());
        }
        self.tables.remove(&table);
        let layout = self.writer.open_table(spec)?;
        self.locked_devices.remove(&spec.device);
        self.tables.insert(table, (layout, spec.clone()));
        Ok(())
    }

    /// Writes all queued responses.
    fn write_all(&mut self, log: &mut impl FnMut(&str)) -> Result<(), Error> {
        for table in self.pending_responses.tables() {
            match self.ensure_table(table, log) {
                Err(error @ Error::Disconnected { .. }) => return Err(error),
                done => self.log_error(done, log),
            }
        }
        log_damage(&self.writer.flush()?, log);
        if let Some(missing) = self.missing_responses.take() {
            log(&format!("the archive is written again; {missing} responses are missing"));
            self.logged_errors.clear();
        }
        Ok(())
    }

    fn flush(&mut self, reports: &ReportReceiver, log: &mut impl FnMut(&str)) {
        let written = self.write_all(log);
        self.last_flush = self.clock.now();
        let done = written.and_then(|()| self.write_pending_texts());
        self.log_error(done, log);
        let is_retention_due = self.last_flush.duration_since(self.last_retention) >= RETENTION_INTERVAL;
        self.log_lock_holders(is_retention_due, log);
        if is_retention_due {
            let removed = self.writer.apply_retention(&self.options.retention, self.last_flush);
            // The next flush removes the rest.
            self.last_retention =
                if matches!(&removed, Ok(r) if r.more) { self.last_retention } else { self.last_flush };
            self.log_error(removed.map(|_| ()), log);
        }
        self.log_dropped(reports, log);
    }

    /// Logs texts and reports that were dropped because a queue was full.
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

    /// Logs the final losses. Devices that another process writes do not count.
    fn log_losses(&mut self, reports: &ReportReceiver, log: &mut impl FnMut(&str)) {
        self.log_lock_holders(true, log);
        self.log_dropped(reports, log);
        let missing = self.missing_responses.unwrap_or(0)
            + self.pending_responses.count()
            + self.writer.pending_responses() as u64;
        if missing > 0 {
            log(&format!("{missing} responses are lost"));
        }
        let unsaid = self
            .pending_texts
            .keys()
            .filter(|(device, ..)| !self.locked_devices.contains_key(device))
            .count();
        if unsaid > 0 {
            log(&format!("{unsaid} texts are lost"));
        }
    }

    /// Logs how many devices each other process writes: when the number has doubled, or with `all` when it has grown.
    fn log_lock_holders(&mut self, all: bool, log: &mut impl FnMut(&str)) {
        let mut holders: BTreeMap<&String, (usize, &String)> = BTreeMap::new();
        for (device, who) in &self.locked_devices {
            holders.entry(who).or_insert((0, device)).0 += 1;
        }
        self.logged_holders.retain(|who, _| holders.contains_key(who));
        for (who, (count, device)) in holders {
            let logged = self.logged_holders.entry(who.clone()).or_default();
            if count > *logged && (all || count >= 2 * *logged) {
                log(&format!("another program writes {count} devices, `{device}` and others: {who}"));
                *logged = count;
            }
            *logged = count.min(*logged);
        }
    }

    /// Logs an error once. For devices that another process writes, logs the first device and counts the others.
    fn log_error(&mut self, done: Result<(), Error>, log: &mut impl FnMut(&str)) {
        let Err(error) = done else { return };
        let message = error.to_string();
        match &error {
            Error::Disconnected { .. } => self.count_missing(0),
            Error::DeviceLocked { device, holder: who, .. } => {
                self.locked_devices.insert(device.clone(), who.clone());
                if !self.logged_holders.contains_key(who) {
                    log(&message);
                    self.logged_holders.insert(who.clone(), 1);
                }
                return;
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
}

/// Logs the damage that a flush found.
fn log_damage(stats: &FlushStats, log: &mut impl FnMut(&str)) {
    stats.damage.iter().for_each(|damage| log(&damage.to_string()));
}

/// Returns whether the same operation can succeed later.
fn is_temporary(error: &Error) -> bool {
    !matches!(error, Error::InvalidTable { .. })
}
