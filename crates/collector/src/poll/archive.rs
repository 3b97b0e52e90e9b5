//! Who writes what comes into the archive: the one writer, on a thread of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use trunkline_counters::archive::writer::{FlushStats, Retention};
use trunkline_counters::archive::{Error, Layout, Location, TableSpec, TextSpec, Writer};
use trunkline_counters::counter::{Response, Timestamp};

use super::AnchoredClock;
use super::pending::PendingResponses;
use super::report::{Closed, Report, ReportReceiver};

/// How often what is too old or too much is looked for.
const RETAIN: Duration = Duration::from_secs(60);
/// Most kinds of trouble that are remembered.
const MOST_TROUBLES: usize = 100;
/// Most texts that wait for an archive that is out of reach or a device that is free.
const MOST_UNSAID: usize = 1 << 18;

/// Most values that wait for tables that cannot be made while the archive is out of reach.
const MOST_LATE: usize = 1 << 22;

/// How the archive is written.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// How often what came is written.
    pub flush: Duration,
    /// How long what is kept.
    pub retention: Retention,
}

/// Writes reports into an archive.
#[derive(Debug)]
pub struct ArchiveWriter {
    writer: Writer,
    keeping: WriteOptions,
    clock: AnchoredClock,
    tables: BTreeMap<usize, (Layout, Arc<TableSpec>)>,
    /// Tables that could not be made yet: the archive was out of reach or full, somebody else writes their device.
    unmade: BTreeMap<usize, Arc<TableSpec>>,
    /// What came for those while the archive was out of reach.
    late: PendingResponses,
    /// Devices that somebody else writes, and who.
    held: BTreeMap<String, String>,
    /// Those, and of how many devices each that was told.
    holders: BTreeMap<String, usize>,
    /// Texts that could not be written yet, the last of each, by device, object and key; at most [`MOST_UNSAID`].
    unsaid: BTreeMap<(String, String, String), (Timestamp, String)>,
    /// Texts for which there was no room any more.
    dropped: u64,
    flushed: Timestamp,
    retained: Timestamp,
    /// What could not be written and was told, so that it is told once.
    troubles: BTreeSet<String>,
    lost: u64,
    /// Whether the archive was out of reach, and how many responses could not be kept meanwhile.
    away: Option<u64>,
}

impl ArchiveWriter {
    /// Opens or makes the archive.
    pub fn open(
        at: impl Into<Location>,
        keeping: WriteOptions,
        clock: AnchoredClock,
    ) -> Result<ArchiveWriter, Error> {
        let writer = Writer::open(at)?;
        let (flushed, retained) = (clock.now(), Timestamp::MIN);
        Ok(ArchiveWriter {
            writer,
            keeping,
            clock,
            tables: BTreeMap::new(),
            unmade: BTreeMap::new(),
            late: PendingResponses::new(MOST_LATE),
            held: BTreeMap::new(),
            holders: BTreeMap::new(),
            unsaid: BTreeMap::new(),
            dropped: 0,
            flushed,
            retained,
            troubles: BTreeSet::new(),
            lost: 0,
            away: None,
        })
    }

    /// Writes until nobody polls any more; then everything is in the file. Each report is shown to `see` first, and
    /// what goes wrong is told to `tell`, a line each; at last how much is lost.
    ///
    /// # Errors
    /// What waited at the end and could not be written.
    pub fn run(
        mut self,
        reports: &ReportReceiver,
        mut see: impl FnMut(&Report),
        mut tell: impl FnMut(&str),
    ) -> Result<(), Error> {
        loop {
            let next = self.flushed.saturating_add(self.keeping.flush);
            match reports.receive(next.duration_since(self.clock.now())) {
                Ok(Some(report)) => {
                    see(&report);
                    let taken = self.take(&report, &mut tell);
                    self.judge(taken, &mut tell);
                }
                Ok(None) => {}
                Err(Closed) => break,
            }
            if self.clock.now() >= next {
                self.flush(reports, &mut tell);
            }
        }
        self.writer.reset_backoff();
        let written = self.write(&mut tell);
        if written.is_ok() {
            let said = self.say_again();
            self.judge(said, &mut tell);
        }
        self.take_leave(reports, &mut tell);
        written?;
        self.writer.checkpoint()
    }

    fn take(&mut self, report: &Report, tell: &mut impl FnMut(&str)) -> Result<(), Error> {
        match report {
            Report::Polled { table, spec, response } => {
                if let Some(spec) = spec {
                    // If it cannot be as it shall be, nothing is taken until it can.
                    self.tables.remove(table);
                    self.unmade.insert(*table, spec.clone());
                }
                if let Err(error) = self.ready(*table, tell) {
                    if let (Error::Disconnected { .. }, Some(spec)) = (&error, self.unmade.get(table))
                        && !self.late.push(*table, (spec.clone(), response.clone()))
                    {
                        self.miss(1);
                    }
                    return Err(error);
                }
                let appended = self.append(*table, response, tell);
                match &appended {
                    Ok(())
                    | Err(Error::DeviceLocked { .. } | Error::OutOfOrder(_) | Error::ValueCount { .. }) => {}
                    Err(_) => self.miss(1),
                }
                appended
            }
            Report::Texts { device, texts: words, at } => {
                let said: Vec<TextSpec<'_>> =
                    words.iter().map(|w| TextSpec { object: &w.object, key: w.key, text: &w.text }).collect();
                self.say(device, &said, *at)
            }
            Report::FaultChanged { device, table, fault, at } => {
                let text = fault.as_ref().map_or_else(String::new, ToString::to_string);
                let key = format!("trouble with {table}");
                self.say(device, &[TextSpec { object: "agent", key: &key, text: &text }], *at)
            }
        }
    }

    fn append(
        &mut self,
        table: usize,
        response: &Response,
        tell: &mut impl FnMut(&str),
    ) -> Result<(), Error> {
        let Some((layout, spec)) = self.tables.get(&table) else { return Ok(()) };
        let id = layout.table;
        let appended = match self.writer.append(id, response) {
            Err(Error::BufferFull { .. }) => {
                told(&self.writer.flush()?, tell);
                self.writer.append(id, response)
            }
            appended => appended,
        };
        if let Err(Error::DeviceLocked { .. }) = &appended {
            self.unmade.entry(table).or_insert(spec.clone());
            self.tables.remove(&table);
        }
        appended.map(drop)
    }

    /// So many responses are not kept; that is told when the archive is written again.
    fn miss(&mut self, count: u64) {
        *self.away.get_or_insert(0) += count;
    }

    /// Writes texts, now or later: who says them does so once.
    fn say(&mut self, device: &str, texts: &[TextSpec<'_>], at: Timestamp) -> Result<(), Error> {
        let said = self.writer.put_texts(device, texts, at);
        for text in texts {
            let place = (device.to_owned(), text.object.to_owned(), text.key.to_owned());
            match &said {
                Err(error) if passes(error) => {
                    if self.unsaid.len() < MOST_UNSAID || self.unsaid.contains_key(&place) {
                        self.unsaid.insert(place, (at, text.text.to_owned()));
                    } else {
                        self.dropped += 1;
                    }
                }
                // What was said before of the same must not come after.
                _ => drop(self.unsaid.remove(&place)),
            }
        }
        if said.is_ok() {
            self.held.remove(device);
        }
        said
    }

    /// Writes the texts that wait; of a device that still takes none they go on waiting.
    ///
    /// # Errors
    /// The last of them.
    fn say_again(&mut self) -> Result<(), Error> {
        let mut waiting: BTreeMap<(&str, Timestamp), Vec<TextSpec<'_>>> = BTreeMap::new();
        for ((device, object, key), (at, text)) in &self.unsaid {
            waiting.entry((device, *at)).or_default().push(TextSpec { object, key, text });
        }
        let (mut done, mut taken, mut refused) = (Ok(()), BTreeSet::new(), None);
        for ((device, at), texts) in waiting {
            if refused == Some(device) {
                continue;
            }
            match self.writer.put_texts(device, &texts, at) {
                Ok(()) => {
                    self.held.remove(device);
                    taken.insert((device.to_owned(), at));
                }
                Err(error) => {
                    let lost = matches!(error, Error::Disconnected { .. });
                    (done, refused) = (Err(error), Some(device));
                    if lost {
                        break;
                    }
                }
            }
        }
        self.unsaid.retain(|(device, ..), (at, _)| !taken.contains(&(device.clone(), *at)));
        done
    }

    /// Makes a table that could not be made yet, and gives it what came meanwhile.
    fn ready(&mut self, table: usize, tell: &mut impl FnMut(&str)) -> Result<(), Error> {
        let Some(spec) = self.unmade.get(&table).cloned() else { return Ok(()) };
        if let Err(error) = self.catch_up(table, tell) {
            if !matches!(error, Error::Disconnected { .. }) {
                match self.late.discard(table) {
                    0 => {}
                    missing => self.miss(missing),
                }
            }
            return Err(error);
        }
        let made = self.make(table, &spec);
        if made.as_ref().err().is_none_or(|error| !passes(error)) {
            self.unmade.remove(&table);
        }
        made
    }

    /// Gives a table what waits for it, each in the table that it came for.
    fn catch_up(&mut self, table: usize, tell: &mut impl FnMut(&str)) -> Result<(), Error> {
        while let Some(one) = self.late.pop(table) {
            let taken = self.make(table, &one.0).and_then(|()| self.append(table, &one.1, tell));
            match taken {
                Ok(()) => {}
                // Somebody else wrote meanwhile.
                Err(error @ Error::OutOfOrder(_)) => {
                    self.miss(1);
                    self.judge(Err(error), tell);
                }
                Err(error) => {
                    self.late.push_front(table, one);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn make(&mut self, table: usize, spec: &Arc<TableSpec>) -> Result<(), Error> {
        if self.tables.get(&table).is_some_and(|(_, made)| Arc::ptr_eq(made, spec)) {
            return Ok(());
        }
        self.tables.remove(&table);
        let layout = self.writer.open_table(spec)?;
        self.held.remove(&spec.device);
        self.tables.insert(table, (layout, spec.clone()));
        Ok(())
    }

    /// Writes all responses that wait.
    fn write(&mut self, tell: &mut impl FnMut(&str)) -> Result<(), Error> {
        for table in self.late.tables() {
            match self.ready(table, tell) {
                Err(error @ Error::Disconnected { .. }) => return Err(error),
                done => self.judge(done, tell),
            }
        }
        told(&self.writer.flush()?, tell);
        if let Some(missing) = self.away.take() {
            tell(&format!("the archive is written again; {missing} responses are missing"));
            self.troubles.clear();
        }
        Ok(())
    }

    fn flush(&mut self, reports: &ReportReceiver, tell: &mut impl FnMut(&str)) {
        let written = self.write(tell);
        self.flushed = self.clock.now();
        let done = written.and_then(|()| self.say_again());
        self.judge(done, tell);
        let now_and_then = self.flushed.duration_since(self.retained) >= RETAIN;
        self.tell_holders(now_and_then, tell);
        if now_and_then {
            let removed = self.writer.apply_retention(&self.keeping.retention, self.flushed);
            // What is more goes with the next flush.
            self.retained = if matches!(&removed, Ok(r) if r.more) { self.retained } else { self.flushed };
            self.judge(removed.map(|_| ()), tell);
        }
        self.tell_lost(reports, tell);
    }

    /// Tells what there was no room for.
    fn tell_lost(&mut self, reports: &ReportReceiver, tell: &mut impl FnMut(&str)) {
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            tell(&format!("{dropped} texts are lost: {MOST_UNSAID} wait to be written"));
        }
        let lost = reports.lost();
        if lost > self.lost {
            tell(&format!("{} reports are lost: the archive does not keep up", lost - self.lost));
            self.lost = lost;
        }
    }

    /// Tells at the end what never came into the archive; what others write is theirs.
    fn take_leave(&mut self, reports: &ReportReceiver, tell: &mut impl FnMut(&str)) {
        self.tell_holders(true, tell);
        self.tell_lost(reports, tell);
        let missing = self.away.unwrap_or(0) + self.late.count() + self.writer.pending_responses() as u64;
        if missing > 0 {
            tell(&format!("{missing} responses are lost"));
        }
        let unsaid = self.unsaid.keys().filter(|(device, ..)| !self.held.contains_key(device)).count();
        if unsaid > 0 {
            tell(&format!("{unsaid} texts are lost"));
        }
    }

    /// Tells who writes how many devices: when they have doubled, or with `all` when they are more.
    fn tell_holders(&mut self, all: bool, tell: &mut impl FnMut(&str)) {
        let mut holders: BTreeMap<&String, (usize, &String)> = BTreeMap::new();
        for (device, who) in &self.held {
            holders.entry(who).or_insert((0, device)).0 += 1;
        }
        self.holders.retain(|who, _| holders.contains_key(who));
        for (who, (count, device)) in holders {
            let told = self.holders.entry(who.clone()).or_default();
            if count > *told && (all || count >= 2 * *told) {
                tell(&format!("another program writes {count} devices, `{device}` and others: {who}"));
                *told = count;
            }
            *told = count.min(*told);
        }
    }

    /// Tells what goes wrong, each once; of devices that somebody else writes the first, others are counted.
    fn judge(&mut self, done: Result<(), Error>, tell: &mut impl FnMut(&str)) {
        let Err(error) = done else { return };
        let why = error.to_string();
        match &error {
            Error::Disconnected { .. } => self.miss(0),
            Error::DeviceLocked { device, holder: who, .. } => {
                self.held.insert(device.clone(), who.clone());
                if !self.holders.contains_key(who) {
                    tell(&why);
                    self.holders.insert(who.clone(), 1);
                }
                return;
            }
            _ => {}
        }
        if !self.troubles.contains(&why) {
            tell(&why);
            if self.troubles.len() >= MOST_TROUBLES {
                self.troubles.clear();
            }
            self.troubles.insert(why);
        }
    }
}

/// Tells what a flush has lost.
fn told(flushed: &FlushStats, tell: &mut impl FnMut(&str)) {
    flushed.damage.iter().for_each(|damage| tell(&damage.to_string()));
}

/// Whether the same may be taken later.
fn passes(error: &Error) -> bool {
    !matches!(error, Error::InvalidTable { .. })
}
