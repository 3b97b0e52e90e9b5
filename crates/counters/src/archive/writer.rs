//! The one who writes the archive.

use std::collections::BTreeMap;
use std::mem::take;
use std::time::Duration;

use super::bytes::{Damage, Input, Source, join, part, put, put_signed};
use super::catalogue::{Catalogue, TailRow};
use super::chunk::{Part, read_tracker, seal, write_tracker};
use super::row::{Row, Tail, read_tail};
use super::{ChunkId, Error, Location, MOST_COLUMNS, MOST_TEXT, Said, SeriesId, TableId, TableSpec};
use crate::counter::judge::{Hold, Last, State};
use crate::counter::{Column, Judge, Moment, Raw, Refresh, Response, Tracker, Verdict};

/// Responses in a chunk, unless its table is so wide that they would be too many values.
const CHUNK_ROWS: usize = 1_024;
/// Values in a chunk of a wide table; sixteen bytes each while it is made.
const CHUNK_VALUES: usize = 1 << 21;
/// Values of all tables that wait to be flushed; sixteen bytes each.
pub const MOST_WAITING: usize = 1 << 23;
/// Chunks made in a flush, so that tables that began together do not end their chunks together.
const SEALS: usize = 4;
/// Octets of a transaction of a flush: what piled up goes through a slow tunnel in parts, each in time.
const PART: usize = 1 << 20;
/// Chunks that retention touches in one transaction.
const BATCH: usize = 64;
/// Pages given back at a time.
const PAGES: usize = 4_096;

/// The one who writes the archive, or of an archive in PostgreSQL some of its devices. It remembers of each table only
/// what the next response is compared with, and what waits for the next flush: at most a chunk's responses, and
/// [`MOST_WAITING`] values of all tables.
#[derive(Debug)]
pub struct Writer {
    db: Box<dyn Catalogue>,
    open: BTreeMap<TableId, Table>,
    /// Values that wait.
    waiting: usize,
    /// Whether a transaction failed, so that nobody knows what is in the archive of what waits.
    in_doubt: bool,
    /// Which connection it was when that was last known: on another one somebody else may have written in between.
    connection: u64,
    /// What was done and found and is still to be told, because of an error after it.
    untold: Flushed,
}

/// A table that is written to.
#[derive(Debug)]
struct Table {
    device: String,
    name: String,
    /// Who took the device meanwhile: then nothing is taken until the table is made ready again.
    taken: Option<String>,
    columns: Vec<Column>,
    /// Where each series of the last [`TableSpec`] stands among the columns.
    order: Vec<usize>,
    judge: Judge,
    waiting: Tail,
    /// When the last response that is in the archive was asked.
    written: Option<Moment>,
    /// Rows that are flushed and in no chunk.
    flushed: usize,
    /// Whether it has a chunk.
    sealed: bool,
}

/// Where a table's responses go.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// The table.
    pub table: TableId,
    /// Its series, in the order of its [`TableSpec`], which is the order of values in a response.
    pub series: Vec<SeriesId>,
}

/// What a flush did, and those before it that ended with an error.
#[derive(Debug, Default)]
pub struct Flushed {
    /// Responses that are in the archive now and were not before.
    pub rows: usize,
    /// Chunks made.
    pub chunks: usize,
    /// What of earlier flushes could not be read again and is lost.
    pub damage: Vec<Error>,
}

/// How long what is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Raw readings; after that only summaries are left.
    pub raw: Option<Duration>,
    /// Everything.
    pub all: Option<Duration>,
    /// Most bytes of the file, its log aside, or of a database's chunks and flushes: the oldest raw readings go first,
    /// then the oldest summaries.
    pub bytes: Option<u64>,
}

/// What retention removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Chunks whose raw readings were removed.
    pub bodies: usize,
    /// Chunks removed altogether.
    pub chunks: usize,
    /// Flushes of tables that ended before they filled a chunk.
    pub tails: usize,
    /// Whether there is more to remove: call again.
    pub more: bool,
}

impl Writer {
    /// Opens an archive to write; makes it, and the folder of a file, where there is none. A file has one writer at a
    /// time: another gets [`Error::Busy`]. A database has one a device: another gets [`Error::Held`] where it asks for a
    /// table of it.
    pub fn open(at: impl Into<Location>) -> Result<Writer, Error> {
        let db = <dyn Catalogue>::write(&at.into())?;
        let (open, untold, connection) = (BTreeMap::new(), Flushed::default(), db.ready()?);
        Ok(Writer { db, open, waiting: 0, in_doubt: false, connection, untold })
    }

    /// Where the archive is.
    pub fn location(&self) -> &Location {
        self.db.location()
    }

    /// The table of that device and name, if there is one.
    pub(crate) fn find(&self, spec: &TableSpec) -> Result<Option<TableId>, Error> {
        self.db.find_table(&spec.device, &spec.name)
    }

    /// Makes a table ready to be written to. Where there is one of that device and name it goes on: series are found
    /// by their names, new ones added behind; those that are not named any more have no values from now on. A ceiling
    /// that is told anew holds for raw readings of before as well, while summaries that were made stay as they are.
    pub fn table(&mut self, spec: &TableSpec) -> Result<Layout, Error> {
        self.twice(|writer| writer.make(spec))
    }

    /// Does what may fail the first time only because a connection had ended, which is made anew; once.
    fn twice<T>(&mut self, work: impl Fn(&mut Writer) -> Result<T, Error>) -> Result<T, Error> {
        let before = self.db.tries();
        match work(self) {
            Err(Error::Lost { .. }) if self.db.tries() == before => work(self),
            done => done,
        }
    }

    /// What comes next connects at once if it has to, whatever the pause: for who writes for the last time.
    pub fn press(&self) {
        self.db.press();
    }

    fn make(&mut self, spec: &TableSpec) -> Result<Layout, Error> {
        let wrong = |reason: String| Error::Spec { table: spec.name.clone(), reason };
        if spec.period.is_zero() {
            return Err(wrong("a period of 0".into()));
        }
        self.db.ready()?;
        self.db.hold(&spec.device)?;
        let found = self.db.find_table(&spec.device, &spec.name)?;
        let mut columns = found.map_or(Ok(Vec::new()), |id| self.db.columns(id))?;
        let mut places: BTreeMap<String, usize> =
            columns.iter().enumerate().map(|(at, (name, _))| (name.clone(), at)).collect();
        let mut order = Vec::new();
        for series in &spec.series {
            let at = *places.entry(series.name.clone()).or_insert(columns.len());
            match columns.get(at) {
                None => columns.push((series.name.clone(), Column::new(series.kind))),
                Some((_, column)) if column.kind != series.kind => {
                    return Err(wrong(format!("`{}` was of another kind until now", series.name)));
                }
                Some(_) if order.contains(&at) => {
                    return Err(wrong(format!("`{}` is there twice", series.name)));
                }
                Some(_) => {}
            }
            order.push(at);
        }
        if columns.len() > MOST_COLUMNS {
            return Err(wrong(format!("{} columns, which is more than {MOST_COLUMNS}", columns.len())));
        }
        for (series, &at) in spec.series.iter().zip(&order) {
            let mark = match &series.mark {
                None => None,
                Some(name) => Some(*places.get(name).ok_or_else(|| wrong(format!("there is no `{name}`")))?),
            };
            columns[at].1 = Column { kind: series.kind, ceiling: series.ceiling, mark };
        }
        let rows: Vec<_> =
            spec.series.iter().zip(&order).map(|(s, &at)| (at, s, columns[at].1.mark)).collect();
        let (table, series) =
            self.db.put_table(found, &spec.device, &spec.name, (spec.period, spec.refresh), &rows)?;
        let columns: Vec<Column> = columns.into_iter().map(|(_, column)| column).collect();
        let refresh = spec.refresh.map_or(Refresh::default(), Refresh::Told);
        if self.open.get(&table).is_some_and(|known| known.taken.is_some()) {
            self.open.remove(&table);
        }
        match self.open.get_mut(&table) {
            Some(known) => {
                (known.columns, known.order) = (columns, order);
                known.judge.tell(spec.period, refresh);
            }
            None => {
                let mut opened = Table {
                    device: spec.device.clone(),
                    name: spec.name.clone(),
                    taken: None,
                    columns,
                    order,
                    judge: Judge::new(spec.period, refresh),
                    waiting: Tail::default(),
                    written: None,
                    flushed: 0,
                    sealed: false,
                };
                opened.resume(&*self.db, &Kept::of(&*self.db, table)?)?;
                self.open.insert(table, opened);
            }
        }
        Ok(Layout { table, series })
    }

    /// Keeps what a device says in words, from `since` on where it is new; of two texts of the same the later. After an
    /// error some of it may be kept: to say it again does no harm.
    pub fn tell(&self, device: &str, texts: &[Said<'_>], since: Moment) -> Result<(), Error> {
        let kept: Vec<Said<'_>> = texts.iter().map(|said| Said { text: cut(said.text), ..*said }).collect();
        let put = || {
            self.db.ready()?;
            self.db.hold(device)?;
            let size = |said: &Said<'_>| said.object.len() + said.key.len() + said.text.len();
            parts(&kept, size).try_for_each(|part| self.db.put_texts(device, part, since))
        };
        let before = self.db.tries();
        match put() {
            Err(Error::Lost { .. }) if self.db.tries() == before => put(),
            done => done,
        }
    }

    /// Takes the next response of a table, to be written with the next flush. Values are in the order of the last
    /// [`TableSpec`]. While a connection was lost another program may have taken the table's device: then it is
    /// [`Error::Held`] until [`Writer::table`] has it again.
    pub fn append(&mut self, id: TableId, response: &Response) -> Result<Verdict, Error> {
        let none =
            || Error::None { archive: self.db.location().clone(), what: format!("open table {}", id.0) };
        let table = self.open.get_mut(&id).ok_or_else(none)?;
        if let Some(who) = &table.taken {
            let (archive, device) = (self.db.location().clone(), table.device.clone());
            return Err(Error::Held { archive, device, who: who.clone() });
        }
        let most = self.waiting + table.columns.len() > MOST_WAITING;
        if most || table.waiting.rows.len() >= table.chunk_rows() {
            return Err(Error::Unflushed { rows: table.waiting.rows.len() });
        }
        let mut response = response.clone();
        let mut values = vec![None; table.columns.len()];
        if let Some(answer) = &mut response.answer {
            if answer.values.len() != table.order.len() {
                let (columns, found) = (table.order.len(), answer.values.len());
                return Err(Error::Width { columns, found });
            }
            answer.values.iter().zip(&table.order).for_each(|(value, &at)| values[at] = *value);
            answer.values.clone_from(&values);
        }
        let verdict = table.judge.judge(&table.columns, &response)?;
        self.waiting += values.len();
        table.waiting.rows.push((Row::new(&response, &verdict), values));
        Ok(verdict)
    }

    /// Writes what was appended, about a megabyte in a transaction; then makes chunks of tables that have enough for
    /// one, each in a transaction of its own. After an error what is not written goes on waiting; what is in the archive
    /// of it, because only the answer was lost, is found out by the next flush.
    pub fn flush(&mut self) -> Result<Flushed, Error> {
        self.twice(Writer::write)?;
        Ok(take(&mut self.untold))
    }

    fn write(&mut self) -> Result<(), Error> {
        let connection = self.db.ready()?;
        if self.in_doubt || connection != self.connection {
            self.settle()?;
            (self.in_doubt, self.connection) = (false, connection);
        }
        let mut tails: Vec<TailRow> = Vec::new();
        for (&table, state) in &self.open {
            pieces(table, &state.waiting.rows, &mut tails);
        }
        for part in parts(&tails, |tail| tail.bytes.len()) {
            let put = self.db.put_tails(part);
            self.in_doubt = put.is_err();
            put?;
            self.wrote(part);
        }
        self.waiting = 0;
        for id in self.due() {
            self.seal(id)?;
        }
        Ok(())
    }

    /// What was written waits no more.
    fn wrote(&mut self, tails: &[TailRow]) {
        for tail in tails {
            let Some(table) = self.open.get_mut(&tail.table) else { continue };
            for (row, values) in table.waiting.rows.drain(..tail.rows) {
                self.waiting = self.waiting.saturating_sub(values.len());
                table.written = Some(row.asked);
            }
            table.flushed += tail.rows;
            self.untold.rows += tail.rows;
        }
    }

    /// Finds out what of that which waits is in the archive, and what else.
    fn settle(&mut self) -> Result<(), Error> {
        for (id, table) in self.open.iter_mut().filter(|(_, table)| table.taken.is_none()) {
            let kept = Kept::of(&*self.db, *id)?;
            let rows = &mut table.waiting.rows;
            let there = rows.iter().position(|(row, _)| Some(row.asked) == kept.last).map_or(0, |at| at + 1);
            if let Some(who) = self.db.taken(&table.device) {
                self.untold.rows += there;
                let (device, name, rows) = (table.device.clone(), table.name.clone(), rows.len() - there);
                self.untold.damage.push(Error::Overtaken { device, table: name, rows });
                (table.taken, table.waiting, table.flushed) = (Some(who), Tail::default(), 0);
                continue;
            }
            if there == 0 && kept.last != table.written {
                let columns = self.db.columns(*id)?;
                let (device, name) = (table.device.clone(), table.name.clone());
                self.untold.damage.push(Error::Overtaken { device, table: name, rows: rows.len() });
                rows.clear();
                table.columns = columns.into_iter().map(|(_, column)| column).collect();
                table.resume(&*self.db, &kept)?;
                continue;
            }
            rows.drain(..there);
            self.untold.rows += there;
            (table.written, table.flushed) = (kept.last, kept.rows);
            table.sealed |= kept.state.is_some();
        }
        self.waiting = self.open.values().map(|t| t.waiting.rows.len() * t.columns.len()).sum();
        Ok(())
    }

    /// The tables whose chunks are to be made now, the fullest first.
    fn due(&self) -> Vec<TableId> {
        let share = |id: &TableId, table: &Table| table.flushed * 1_000 / table.threshold(*id);
        let mut due: Vec<_> = self
            .open
            .iter()
            .map(|(id, t)| (share(id, t), *id))
            .filter(|(share, _)| *share >= 1_000)
            .collect();
        due.sort_by(|a, b| b.cmp(a));
        let pressing = due.iter().filter(|(share, _)| *share >= 2_000).count();
        due.into_iter().take(pressing.max(SEALS)).map(|(_, id)| id).collect()
    }

    /// Makes a chunk of each table's flushed responses, however few.
    pub fn seal_all(&mut self) -> Result<Flushed, Error> {
        self.twice(|writer| {
            writer.write()?;
            let flushed = writer.open.iter().filter(|(_, table)| table.flushed > 0);
            let ids: Vec<TableId> = flushed.map(|(id, _)| *id).collect();
            for id in ids {
                writer.seal(id)?;
            }
            Ok(())
        })?;
        Ok(take(&mut self.untold))
    }

    /// Makes a chunk of what was flushed of a table.
    fn seal(&mut self, id: TableId) -> Result<(), Error> {
        let Some(table) = self.open.get_mut(&id) else { return Ok(()) };
        let width = table.columns.len();
        let state = self.db.state(id)?;
        let trackers = match &state {
            None => Ok(Vec::new()),
            Some(bytes) => read_state(&bytes.as_slice(), width).map(|(_, trackers)| trackers),
        };
        let mut trackers = trackers.map_err(|d| self.db.corrupt("the state of a table", d))?;
        trackers.resize(width, fresh());
        let mut data: Vec<Part> =
            trackers.into_iter().map(|tracker| Part { tracker, values: Vec::new() }).collect();
        let (mut rows, mut last, mut damaged) = (Vec::new(), 0, Vec::new());
        for (number, bytes) in self.db.tails(id)? {
            last = number;
            match read_tail(&bytes, width) {
                Ok(tail) => tail.rows.into_iter().for_each(|(row, values)| {
                    rows.push(row);
                    data.iter_mut()
                        .enumerate()
                        .for_each(|(at, part)| part.values.push(values.get(at).copied().flatten()));
                }),
                Err(damage) => damaged.push(self.db.corrupt("a flush", damage)),
            }
        }
        let (Some(first), Some(end)) = (rows.first(), rows.last()) else {
            table.flushed = 0;
            self.untold.damage.append(&mut damaged);
            return Ok(());
        };
        let extent = (first.at(), end.at(), rows.len());
        let sealed = seal(&table.columns, &rows, &mut data);
        let trackers: Vec<Tracker> = data.into_iter().map(|part| part.tracker).collect();
        let state = write_state(&table.judge.state, &trackers);
        let put = self.db.put_chunk(id, last, extent, &sealed, &state);
        self.in_doubt |= put.is_err();
        // Where only the answer was lost, they are gone all the same.
        if matches!(put, Ok(()) | Err(Error::Lost { .. })) {
            self.untold.damage.append(&mut damaged);
        }
        put?;
        (table.flushed, table.sealed) = (0, true);
        self.untold.chunks += 1;
        Ok(())
    }

    /// Removes what is too old at `now` or too much, a little at a time and in small transactions, and gives the room
    /// back to the file system.
    pub fn retain(&self, retention: &Retention, now: Moment) -> Result<Removed, Error> {
        let mut removed = Removed::default();
        if let Some(age) = retention.all {
            let before = now.before(age);
            let old = self.db.old(before, None, BATCH)?;
            self.remove(&old, true, &mut removed)?;
            removed.tails = self.db.remove_tails(before)?;
        }
        if let Some(age) = retention.raw {
            let old = self.db.old(now.before(age), Some(true), BATCH)?;
            self.remove(&old, false, &mut removed)?;
        }
        if let Some(most) = retention.bytes {
            self.fit(most, &mut removed)?;
        }
        if removed != Removed::default() {
            self.db.shrink(PAGES)?;
            self.db.checkpoint()?;
        }
        Ok(removed)
    }

    /// Removes the oldest until the rest fits, at most a batch of chunks.
    fn fit(&self, most: u64, removed: &mut Removed) -> Result<(), Error> {
        for _ in 0..BATCH {
            if self.db.bytes()? <= most {
                return Ok(());
            }
            let raw = self.db.old(Moment::LAST, Some(true), 1)?;
            let whole = raw.is_empty();
            let oldest = if whole { self.db.old(Moment::LAST, None, 1)? } else { raw };
            if oldest.is_empty() {
                return Ok(()); // what is left waits for its chunk
            }
            self.remove(&oldest, whole, removed)?;
        }
        removed.more = true;
        Ok(())
    }

    fn remove(&self, chunks: &[ChunkId], whole: bool, removed: &mut Removed) -> Result<(), Error> {
        if !chunks.is_empty() {
            self.db.remove(chunks, whole)?;
        }
        *(if whole { &mut removed.chunks } else { &mut removed.bodies }) += chunks.len();
        removed.more |= chunks.len() == BATCH;
        Ok(())
    }

    /// As [`Reader::bytes`](super::Reader::bytes).
    pub fn bytes(&self) -> Result<u64, Error> {
        self.db.bytes()
    }

    /// Moves the log into the file, as far as no reader needs it.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.db.checkpoint()
    }

    /// Responses that wait to be flushed.
    pub fn waiting(&self) -> usize {
        self.open.values().map(|table| table.waiting.rows.len()).sum()
    }

    /// How old the answers of a table's agent may be, as far as that is known.
    pub fn refresh(&self, table: TableId) -> Option<Duration> {
        self.open.get(&table).map(|table| table.judge.refresh())
    }
}

/// What the archive has of a table beside its chunks.
struct Kept {
    state: Option<Vec<u8>>,
    tails: Vec<Vec<u8>>,
    /// Responses in `tails`.
    rows: usize,
    /// When the last response of all was asked.
    last: Option<Moment>,
}

impl Kept {
    fn of(db: &dyn Catalogue, id: TableId) -> Result<Kept, Error> {
        let state = db.state(id)?;
        let tails: Vec<Vec<u8>> = db.tails(id)?.into_iter().map(|(_, bytes)| bytes).collect();
        // What is damaged is told when its chunk is made.
        let flushed = tails.iter().flat_map(|bytes| read_tail(bytes, MOST_COLUMNS).unwrap_or_default().rows);
        let (mut rows, mut last) = (0, None);
        flushed.for_each(|(row, _)| (rows, last) = (rows + 1, Some(row.asked)));
        if last.is_none()
            && let Some(Ok((known, _))) = state.as_ref().map(|s| read_state(&s.as_slice(), MOST_COLUMNS))
        {
            last = known.polled.map(|(_, asked)| asked);
        }
        Ok(Kept { state, tails, rows, last })
    }
}

impl Table {
    /// Goes on where the archive's past of it ends.
    fn resume(&mut self, db: &dyn Catalogue, kept: &Kept) -> Result<(), Error> {
        self.judge.state = match &kept.state {
            None => State::default(),
            Some(state) => {
                let read = read_state(&state.as_slice(), self.columns.len());
                read.map_err(|damage| db.corrupt("the state of a table", damage))?.0
            }
        };
        for bytes in &kept.tails {
            for (row, values) in read_tail(bytes, self.columns.len()).unwrap_or_default().rows {
                let answer = row.answered.map(|answered| crate::counter::Answer {
                    answered,
                    uptime: row.uptime,
                    values,
                });
                let _ = self.judge.judge(&self.columns, &Response { due: row.due, asked: row.asked, answer });
            }
        }
        (self.flushed, self.written, self.sealed) = (kept.rows, kept.last, kept.state.is_some());
        Ok(())
    }

    fn chunk_rows(&self) -> usize {
        (CHUNK_VALUES / self.columns.len().max(1)).clamp(64, CHUNK_ROWS)
    }

    /// Rows from which on a chunk is made: the first chunk is shorter, by the table's number, so that chunks of many
    /// tables end at different times.
    fn threshold(&self, id: TableId) -> usize {
        let rows = self.chunk_rows();
        let part = (id.0.unsigned_abs() % 64) as usize;
        if self.sealed { rows } else { rows / 2 + rows / 2 * part / 64 }
    }
}

/// What waits of a table, as it is flushed: in one piece, or in several where that would be more than [`PART`].
fn pieces(table: TableId, rows: &[(Row, Vec<Option<Raw>>)], into: &mut Vec<TailRow>) {
    let Some((row, _)) = rows.last() else { return };
    let bytes = join(&[Tail::write(rows)]);
    if bytes.len() > PART && rows.len() > 1 {
        let (first, rest) = rows.split_at(rows.len() / 2);
        pieces(table, first, into);
        pieces(table, rest, into);
        return;
    }
    into.push(TailRow { table, rows: rows.len(), last: row.at(), bytes });
}

/// Parts of about [`PART`] octets, each with one thing at least.
fn parts<T>(things: &[T], size: impl Fn(&T) -> usize) -> impl Iterator<Item = &[T]> {
    let mut rest = things;
    std::iter::from_fn(move || {
        let mut octets = 0;
        let fits = |thing: &&T| {
            octets += size(thing);
            octets <= PART
        };
        let count = rest.iter().take_while(fits).count().max(1);
        let (part, more) = rest.split_at_checked(count)?;
        rest = more;
        Some(part)
    })
}

/// At most [`MOST_TEXT`] octets of a text.
fn cut(text: &str) -> &str {
    let end = (0..=MOST_TEXT.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

/// Of a column of which nothing has been read: that it is missing is no news.
pub(crate) fn fresh() -> Tracker {
    Tracker { gap: true, ..Tracker::default() }
}

// --- what is known after the last chunk: part 0 of the table, part 1 of its columns

pub(crate) fn write_state(state: &State, trackers: &[Tracker]) -> Vec<u8> {
    let mut table = Vec::new();
    let out = &mut table;
    let moment = |out: &mut Vec<u8>, moment: Moment| put_signed(out, moment.0);
    let span = |out: &mut Vec<u8>, span: Duration| put(out, span.as_nanos() as u64);
    out.push(
        u8::from(state.polled.is_some())
            | u8::from(state.last.is_some()) << 1
            | u8::from(state.hold.is_some()) << 2
            | u8::from(state.busy) << 3,
    );
    if let Some((due, asked)) = state.polled {
        [due, asked].into_iter().for_each(|m| moment(out, m));
    }
    if let Some(last) = &state.last {
        [last.asked, last.answered].into_iter().for_each(|m| moment(out, m));
        put(out, last.uptime.map_or(0, |u| u64::from(u) + 1));
        put(out, last.values.len() as u64);
        for value in &last.values {
            out.push(u8::from(value.is_some()));
            put(out, value.map_or(0, |v| v.0));
        }
    }
    moment(out, state.settled);
    if let Some(hold) = state.hold {
        [hold.before_asked, hold.first_answered, hold.last_asked].into_iter().for_each(|m| moment(out, m));
    }
    put(out, state.lessons.len() as u64);
    for (least, most) in &state.lessons {
        span(out, *least);
        span(out, *most);
    }
    let mut columns = Vec::new();
    put(&mut columns, trackers.len() as u64);
    trackers.iter().for_each(|tracker| write_tracker(&mut columns, tracker, state.settled));
    join(&[table, columns])
}

pub(crate) fn read_state(bytes: &impl Source, columns: usize) -> Result<(State, Vec<Tracker>), Damage> {
    let table = part(bytes, 0)?.ok_or(Damage::Short)?;
    let input = &mut Input(&table);
    let flags = input.byte()?;
    let mut state = State { busy: flags & 8 != 0, ..State::default() };
    if flags & 1 != 0 {
        state.polled = Some((Moment(input.signed()?), Moment(input.signed()?)));
    }
    if flags & 2 != 0 {
        let (asked, answered) = (Moment(input.signed()?), Moment(input.signed()?));
        let uptime = input.take()?.checked_sub(1).map(|u| u as u32);
        let width = input.count(columns)?;
        let mut values = Vec::with_capacity(width);
        for _ in 0..width {
            let there = input.byte()? != 0;
            let value = Raw(input.take()?);
            values.push(there.then_some(value));
        }
        state.last = Some(Last { asked, answered, uptime, values });
    }
    state.settled = Moment(input.signed()?);
    if flags & 4 != 0 {
        state.hold = Some(Hold {
            before_asked: Moment(input.signed()?),
            first_answered: Moment(input.signed()?),
            last_asked: Moment(input.signed()?),
        });
    }
    for _ in 0..input.count(64)? {
        let span = |ns| Duration::from_nanos(ns);
        state.lessons.push_back((span(input.take()?), span(input.take()?)));
    }
    let bytes = part(bytes, 1)?.ok_or(Damage::Short)?;
    let input = &mut Input(&bytes);
    let count = input.count(columns)?;
    let trackers = (0..count).map(|_| read_tracker(input, state.settled)).collect::<Result<_, _>>()?;
    Ok((state, trackers))
}
