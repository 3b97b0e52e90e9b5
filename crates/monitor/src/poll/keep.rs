//! Who writes what comes into the archive: the one writer, on a thread of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use trunkline_record::counter::Moment;
use trunkline_record::series::writer::Retention;
use trunkline_record::series::{Error, Layout, Said, Writer};

use super::Time;
use super::report::{Over, Report, Reports};

/// How often what is too old or too much is looked for.
const RETAIN: Duration = Duration::from_secs(60);
/// Most kinds of trouble that are remembered.
const MOST_TROUBLES: usize = 100;

/// How the archive is written.
#[derive(Clone, Copy, Debug)]
pub struct Keeping {
    /// How often what came is written.
    pub flush: Duration,
    /// How long what is kept.
    pub retention: Retention,
}

/// Writes reports into an archive.
#[derive(Debug)]
pub struct Keeper {
    writer: Writer,
    keeping: Keeping,
    time: Time,
    tables: BTreeMap<usize, Layout>,
    flushed: Moment,
    retained: Moment,
    /// What could not be written and was told, so that it is told once.
    troubles: BTreeSet<String>,
    lost: u64,
}

impl Keeper {
    /// Opens or makes the archive.
    pub fn open(path: &Path, keeping: Keeping, time: Time) -> Result<Keeper, Error> {
        let writer = Writer::open(path)?;
        let (flushed, retained) = (time.now(), Moment::FIRST);
        let (tables, troubles, lost) = (BTreeMap::new(), BTreeSet::new(), 0);
        Ok(Keeper { writer, keeping, time, tables, flushed, retained, troubles, lost })
    }

    /// Writes until nobody polls any more; then everything is in the file. Each report is shown to `see` first, and
    /// what goes wrong is told to `tell`, a line each.
    ///
    /// # Errors
    /// What waited at the end and could not be written.
    pub fn run(
        mut self,
        reports: &Reports,
        mut see: impl FnMut(&Report),
        mut tell: impl FnMut(&str),
    ) -> Result<(), Error> {
        loop {
            let next = self.flushed.after(self.keeping.flush);
            match reports.next(next.since(self.time.now())) {
                Ok(Some(report)) => {
                    see(&report);
                    let taken = self.take(&report);
                    self.judge(taken, &mut tell);
                }
                Ok(None) => {}
                Err(Over) => break,
            }
            if self.time.now() >= next {
                self.flush(reports, &mut tell);
            }
        }
        self.writer.flush()?;
        self.writer.checkpoint()
    }

    fn take(&mut self, report: &Report) -> Result<(), Error> {
        match report {
            Report::Polled { table, spec, response } => {
                if let Some(spec) = spec {
                    // If it cannot be as it shall be, nothing is taken until it can.
                    self.tables.remove(table);
                    self.tables.insert(*table, self.writer.table(spec)?);
                }
                let Some(layout) = self.tables.get(table) else { return Ok(()) };
                match self.writer.append(layout.table, response) {
                    Err(Error::Unflushed { .. }) => {
                        self.writer.flush()?;
                        self.writer.append(layout.table, response).map(|_| ())
                    }
                    appended => appended.map(|_| ()),
                }
            }
            Report::Words { device, words, at } => {
                let said: Vec<Said<'_>> =
                    words.iter().map(|w| Said { object: &w.object, key: w.key, text: &w.text }).collect();
                self.writer.tell(device, &said, *at)
            }
            Report::Trouble { device, table, fault, at } => {
                let text = fault.as_ref().map_or_else(String::new, ToString::to_string);
                let key = format!("trouble with {table}");
                self.writer.tell(device, &[Said { object: "agent", key: &key, text: &text }], *at)
            }
        }
    }

    fn flush(&mut self, reports: &Reports, tell: &mut impl FnMut(&str)) {
        let flushed = self.writer.flush();
        self.flushed = self.time.now();
        if let Ok(flushed) = &flushed {
            flushed.damage.iter().for_each(|damage| tell(&damage.to_string()));
        }
        self.judge(flushed.map(|_| ()), tell);
        if self.flushed.since(self.retained) >= RETAIN {
            let removed = self.writer.retain(&self.keeping.retention, self.flushed);
            // What is more goes with the next flush.
            self.retained = if matches!(&removed, Ok(r) if r.more) { self.retained } else { self.flushed };
            self.judge(removed.map(|_| ()), tell);
        }
        let lost = reports.lost();
        if lost > self.lost {
            tell(&format!("{} reports are lost: the archive does not keep up", lost - self.lost));
            self.lost = lost;
        }
    }

    /// Tells what goes wrong, each once.
    fn judge(&mut self, done: Result<(), Error>, tell: &mut impl FnMut(&str)) {
        let Err(error) = done else { return };
        let why = error.to_string();
        if !self.troubles.contains(&why) {
            tell(&why);
            if self.troubles.len() >= MOST_TROUBLES {
                self.troubles.clear();
            }
            self.troubles.insert(why);
        }
    }
}
