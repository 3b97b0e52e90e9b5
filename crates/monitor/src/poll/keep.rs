//! Who writes what comes into the archive: the one writer, on a thread of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use trunkline_record::counter::Moment;
use trunkline_record::series::writer::{Flushed, Retention};
use trunkline_record::series::{Error, Layout, Location, Said, TableSpec, Writer};

use super::Time;
use super::report::{Over, Report, Reports};

/// How often what is too old or too much is looked for.
const RETAIN: Duration = Duration::from_secs(60);
/// Most kinds of trouble that are remembered.
const MOST_TROUBLES: usize = 100;
/// Most texts that wait for an archive that is out of reach or a device that is free.
const MOST_UNSAID: usize = 1 << 18;

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
    tables: BTreeMap<usize, (Layout, Arc<TableSpec>)>,
    /// Tables that could not be made yet: the archive was out of reach or full, somebody else writes their device.
    unmade: BTreeMap<usize, Arc<TableSpec>>,
    /// Texts that could not be written yet, the last of each, by device, object and key; at most [`MOST_UNSAID`].
    unsaid: BTreeMap<(String, String, String), (Moment, String)>,
    /// Texts for which there was no room any more.
    dropped: u64,
    flushed: Moment,
    retained: Moment,
    /// What could not be written and was told, so that it is told once.
    troubles: BTreeSet<String>,
    lost: u64,
    /// Whether the archive was out of reach, and how many responses could not be kept meanwhile.
    away: Option<u64>,
}

impl Keeper {
    /// Opens or makes the archive.
    pub fn open(at: impl Into<Location>, keeping: Keeping, time: Time) -> Result<Keeper, Error> {
        let writer = Writer::open(at)?;
        let (flushed, retained) = (time.now(), Moment::FIRST);
        Ok(Keeper {
            writer,
            keeping,
            time,
            tables: BTreeMap::new(),
            unmade: BTreeMap::new(),
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
                    let taken = self.take(&report, &mut tell);
                    self.judge(taken, &mut tell);
                }
                Ok(None) => {}
                Err(Over) => break,
            }
            if self.time.now() >= next {
                self.flush(reports, &mut tell);
            }
        }
        self.writer.press();
        told(&self.writer.flush()?, &mut tell);
        let said = self.say_again();
        self.judge(said, &mut tell);
        self.writer.checkpoint()
    }

    fn take(&mut self, report: &Report, tell: &mut impl FnMut(&str)) -> Result<(), Error> {
        match report {
            Report::Polled { table, spec, response } => {
                if let Some(spec) = spec {
                    // If it cannot be as it shall be, nothing is taken until it can.
                    self.tables.remove(table);
                    self.unmade.remove(table);
                    self.make(*table, spec)?;
                } else if let Some(spec) = self.unmade.remove(table) {
                    self.make(*table, &spec)?;
                }
                let Some((layout, spec)) = self.tables.get(table) else { return Ok(()) };
                match self.writer.append(layout.table, response) {
                    Err(Error::Unflushed { .. }) => {
                        match self.writer.flush() {
                            Ok(flushed) => told(&flushed, tell),
                            Err(error) => {
                                *self.away.get_or_insert(0) += 1;
                                return Err(error);
                            }
                        }
                        self.writer.append(layout.table, response).map(|_| ())
                    }
                    Err(error @ Error::Held { .. }) => {
                        self.unmade.insert(*table, spec.clone());
                        self.tables.remove(table);
                        Err(error)
                    }
                    appended => appended.map(|_| ()),
                }
            }
            Report::Words { device, words, at } => {
                let said: Vec<Said<'_>> =
                    words.iter().map(|w| Said { object: &w.object, key: w.key, text: &w.text }).collect();
                self.say(device, &said, *at)
            }
            Report::Trouble { device, table, fault, at } => {
                let text = fault.as_ref().map_or_else(String::new, ToString::to_string);
                let key = format!("trouble with {table}");
                self.say(device, &[Said { object: "agent", key: &key, text: &text }], *at)
            }
        }
    }

    /// Writes texts, now or later: who says them does so once.
    fn say(&mut self, device: &str, texts: &[Said<'_>], at: Moment) -> Result<(), Error> {
        let said = self.writer.tell(device, texts, at);
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
        said
    }

    /// Writes the texts that wait; of a device that still takes none they go on waiting.
    ///
    /// # Errors
    /// The last of them.
    fn say_again(&mut self) -> Result<(), Error> {
        let mut waiting: BTreeMap<(&str, Moment), Vec<Said<'_>>> = BTreeMap::new();
        for ((device, object, key), (at, text)) in &self.unsaid {
            waiting.entry((device, *at)).or_default().push(Said { object, key, text });
        }
        let (mut done, mut taken, mut refused) = (Ok(()), BTreeSet::new(), None);
        for ((device, at), texts) in waiting {
            if refused == Some(device) {
                continue;
            }
            match self.writer.tell(device, &texts, at) {
                Ok(()) => drop(taken.insert((device.to_owned(), at))),
                Err(error) => {
                    let lost = matches!(error, Error::Lost { .. });
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

    /// Makes a table, now or later.
    fn make(&mut self, table: usize, spec: &Arc<TableSpec>) -> Result<(), Error> {
        match self.writer.table(spec) {
            Ok(layout) => drop(self.tables.insert(table, (layout, spec.clone()))),
            Err(error) => {
                if passes(&error) {
                    self.unmade.insert(table, spec.clone());
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn flush(&mut self, reports: &Reports, tell: &mut impl FnMut(&str)) {
        let flushed = self.writer.flush();
        self.flushed = self.time.now();
        match &flushed {
            Ok(flushed) => {
                told(flushed, tell);
                if let Some(missing) = self.away.take() {
                    tell(&format!("the archive is written again; {missing} responses are missing"));
                    self.troubles.clear();
                }
            }
            Err(Error::Lost { .. }) => drop(self.away.get_or_insert(0)),
            Err(_) => {}
        }
        let done = flushed.and_then(|_| self.say_again());
        self.judge(done, tell);
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            tell(&format!("{dropped} texts are lost: {MOST_UNSAID} wait to be written"));
        }
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

/// Tells what a flush has lost.
fn told(flushed: &Flushed, tell: &mut impl FnMut(&str)) {
    flushed.damage.iter().for_each(|damage| tell(&damage.to_string()));
}

/// Whether the same may be taken later.
fn passes(error: &Error) -> bool {
    !matches!(error, Error::Spec { .. })
}
