//! Those who read the archive, beside the one who writes.

use std::collections::BTreeMap;

use super::bytes::Source;
use super::catalogue::{Catalogue, Entry};
use super::chunk::{Digest, Part, read_digest, read_part, read_rows, walk};
use super::row::{Row, read_tail};
use super::summary::Buckets;
use super::writer::{fresh, read_state};
use super::{
    ChunkId, Damage, Error, Location, MOST_BUCKETS, MOST_COLUMNS, MOST_POINTS, MOST_TEXTS, SeriesId,
    SeriesInfo, TableId, TableInfo, Text,
};
use crate::counter::track::Step;
use crate::counter::{Moment, Raw};

/// Chunks whose places are looked up at once.
const PAGE: usize = 4_096;

/// One who reads. What it sees is what was flushed before it asked.
#[derive(Debug)]
pub struct Reader {
    pub(super) db: Box<dyn Catalogue>,
}

/// A series over time.
#[derive(Debug)]
pub struct View {
    /// What it is of.
    pub series: SeriesInfo,
    /// The time asked for, in as many parts as asked for.
    pub buckets: Buckets,
    /// Chunks that could not be read: what they told is missing, or spread evenly where their summary was whole.
    pub damaged: Vec<Error>,
    /// Chunks of which the summary was enough.
    pub summaries: usize,
    /// Chunks that were decompressed: at most one an edge of a bucket, and one.
    pub bodies: usize,
}

/// A response and what it told of one series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// When, and what was found out about the table.
    pub row: Row,
    /// The value as it was read.
    pub value: Option<Raw>,
    /// What followed.
    pub step: Step,
}

/// Readings one by one.
#[derive(Debug, Default)]
pub struct Points {
    /// In order of time.
    pub points: Vec<Point>,
    /// Where to go on, if there are more than were asked for.
    pub next: Option<Moment>,
    /// Chunks whose readings were removed by age or size.
    pub gone: usize,
    /// Chunks that could not be read.
    pub damaged: Vec<Error>,
}

/// An answer without its judgement.
#[derive(Clone, Debug, PartialEq)]
pub struct Responded {
    /// When it came.
    pub answered: Moment,
    /// By position of the series.
    pub values: Vec<Option<Raw>>,
}

/// A response and its values, by position of the series.
pub type Values = (Row, Vec<Option<Raw>>);

/// Responses of a table, one by one, with the values of all its series.
#[derive(Clone, Debug, Default)]
pub struct Responses {
    /// In order of time; values by position of the series.
    pub responses: Vec<Values>,
    /// Whether there are more.
    pub more: bool,
}

impl Reader {
    /// Opens an archive to read.
    pub fn open(at: impl Into<Location>) -> Result<Reader, Error> {
        Ok(Reader { db: <dyn Catalogue>::read(&at.into())? })
    }

    /// Tables by number, those after `after`; at most 10,000 at once.
    pub fn tables(&self, after: TableId, most: usize) -> Result<Vec<TableInfo>, Error> {
        self.db.tables(after, most.min(10_000))
    }

    /// The series of a table.
    pub fn series(&self, table: TableId) -> Result<Vec<SeriesInfo>, Error> {
        self.db.series(table)
    }

    /// One series.
    pub fn one(&self, id: SeriesId) -> Result<SeriesInfo, Error> {
        let none = || Error::None { archive: self.db.location().clone(), what: format!("series {}", id.0) };
        self.db.one_series(id)?.ok_or_else(none)
    }

    /// Bytes that hold something: of the file, its log aside; of a database those of chunks and flushes.
    pub fn bytes(&self) -> Result<u64, Error> {
        self.db.bytes()
    }

    /// How far each table was sent on to `to`; none if the archive does not keep that, which a file is not asked to.
    pub fn sent(&self, to: &str) -> Result<Option<BTreeMap<TableId, Moment>>, Error> {
        self.db.sent(to)
    }

    /// Keeps how far tables were sent on to `to`, where [`Reader::sent`] tells it. It takes the right to write.
    pub fn put_sent(&self, to: &str, came: &BTreeMap<TableId, Moment>) -> Result<(), Error> {
        self.db.put_sent(to, came)
    }

    /// What came of a table after a moment, as far as it is kept: at least `most` responses, at most those and a chunk's.
    /// Chunks that cannot be read are left out.
    pub fn responses(&self, table: TableId, after: Moment, most: usize) -> Result<Responses, Error> {
        let columns = self.db.columns(table)?.len();
        let mut found = Responses::default();
        self.db.snapshot(|| {
            let from = Moment(after.0.saturating_add(1));
            self.each_chunk(table, from, Moment::LAST, |entry| {
                if entry.raw && entry.end > after {
                    let all = self.whole(entry.id, columns).unwrap_or_default();
                    found.responses.extend(all.into_iter().filter(|(row, _)| row.at() > after));
                }
                found.more = found.responses.len() >= most;
                !found.more
            })?;
            if !found.more {
                found.responses.extend(self.flushed(table)?.into_iter().filter(|(row, _)| row.at() > after));
            }
            Ok(found)
        })
    }

    /// The last answer of a table, and whether the last request had none.
    pub fn newest(&self, table: TableId) -> Result<(Option<Responded>, bool), Error> {
        self.db.snapshot(|| {
            let mut flushed = self.flushed(table)?;
            let silent = flushed.last().is_some_and(|(row, _)| row.answered.is_none());
            if let Some(at) = flushed.iter().rposition(|(row, _)| row.answered.is_some()) {
                let (row, values) = flushed.swap_remove(at);
                return Ok((row.answered.map(|answered| Responded { answered, values }), silent));
            }
            let Some(state) = self.db.state(table)? else { return Ok((None, silent)) };
            let read = read_state(&state.as_slice(), MOST_COLUMNS);
            let state = read.map_err(|damage| self.db.corrupt("the state of a table", damage))?.0;
            let answered = state.last.as_ref().map(|last| last.asked);
            let unanswered = state.polled.map(|(_, asked)| asked) != answered;
            let last = state.last.map(|last| Responded { answered: last.answered, values: last.values });
            Ok((last, silent || flushed.is_empty() && unanswered))
        })
    }

    /// All of a chunk.
    fn whole(&self, chunk: ChunkId, columns: usize) -> Result<Vec<Values>, Damage> {
        let blob = self.blob(chunk, true)?;
        let mut rows: Vec<_> =
            read_rows(&blob)?.into_iter().map(|row| (row, Vec::with_capacity(columns))).collect();
        let times: Vec<Row> = rows.iter().map(|(row, _)| *row).collect();
        for position in 0..columns {
            let part = read_part(&blob, &times, position)?;
            rows.iter_mut().zip(part.values).for_each(|((_, values), value)| values.push(value));
        }
        Ok(rows)
    }

    /// All that was flushed and is in no chunk.
    fn flushed(&self, table: TableId) -> Result<Vec<Values>, Error> {
        let mut rows = Vec::new();
        for (_, bytes) in self.db.tails(table)? {
            rows.extend(read_tail(&bytes, MOST_COLUMNS).unwrap_or_default().rows);
        }
        Ok(rows)
    }

    /// What a device says in words, by object and key; at most [`MOST_TEXTS`].
    pub fn texts(&self, device: &str) -> Result<Vec<Text>, Error> {
        self.db.texts(device, MOST_TEXTS)
    }

    /// When the first and the last response of a table came, whatever its series; none without a response.
    pub fn extent(&self, table: TableId) -> Result<Option<(Moment, Moment)>, Error> {
        self.db.snapshot(|| {
            let tail = self.tail(table, None, &mut Vec::new())?;
            let ends = [tail.rows.first(), tail.rows.last()].map(|row| row.map(Row::at));
            let chunks = self.db.extent(table)?;
            Ok(match (chunks, ends) {
                (Some((first, _)), [_, Some(last)]) => Some((first, last)),
                (None, [Some(first), Some(last)]) => Some((first, last)),
                (chunks, _) => chunks,
            })
        })
    }

    /// A series from `from` to `to` in `count` buckets, at least one and at most [`MOST_BUCKETS`]. What it costs grows
    /// with the chunks in that time by a look at each summary, and with the buckets by a chunk each at most.
    pub fn view(&self, id: SeriesId, from: Moment, to: Moment, count: usize) -> Result<View, Error> {
        let series = self.one(id)?;
        let buckets = Buckets::new(from, to, count.min(MOST_BUCKETS));
        let mut view = View { series, buckets, damaged: Vec::new(), summaries: 0, bodies: 0 };
        self.db.snapshot(|| {
            self.each_chunk(view.series.table, from, to, |entry| {
                self.show(entry, &mut view);
                true
            })?;
            let series = view.series.clone();
            let tail = self.tail(series.table, Some(&series), &mut view.damaged)?;
            tail.walk(&series, |row, _, step| view.buckets.add(series.column.kind, row.at(), step));
            Ok(view)
        })
    }

    /// Calls `see` for each chunk of a table that tells of a time, until it says false.
    fn each_chunk(
        &self,
        table: TableId,
        from: Moment,
        to: Moment,
        mut see: impl FnMut(&Entry) -> bool,
    ) -> Result<(), Error> {
        let mut begin = from;
        loop {
            let page = self.db.chunks(table, begin, to, PAGE)?;
            if !page.iter().all(&mut see) || page.len() < PAGE {
                return Ok(());
            }
            begin = Moment(page[PAGE - 1].end.0.saturating_add(1));
        }
    }

    /// Puts a chunk into a view, by its summary if that will do.
    fn show(&self, entry: &Entry, view: &mut View) {
        let (id, kind) = (entry.id, view.series.column.kind);
        let digest = self.blob(id, false).and_then(|blob| read_digest(&blob, view.series.position));
        match &digest {
            Ok(None) => return, // the series is younger
            Ok(Some(Digest { begin, end, summary })) => {
                if let Some(bucket) = view.buckets.only(*begin, *end) {
                    view.summaries += 1;
                    return view.buckets.put(bucket, summary);
                }
            }
            Err(damage) => view.damaged.push(self.damaged(id, *damage)),
        }
        if entry.raw {
            match self.stretch(id, &view.series) {
                Ok(stretch) => {
                    view.bodies += 1;
                    let column = &view.series.column;
                    let marks = stretch.marks.as_ref();
                    walk(column, &stretch.part, marks, &stretch.rows, |row, step| {
                        view.buckets.add(kind, row.at(), step);
                    });
                    return;
                }
                Err(damage) => view.damaged.push(self.damaged(id, damage)),
            }
        }
        if let Ok(Some(Digest { begin, end, summary })) = digest {
            view.summaries += 1;
            view.buckets.smear(begin, end, &summary);
        }
    }

    /// The readings of a series from `from` to `to`, at most `most` and [`MOST_POINTS`].
    pub fn points(&self, id: SeriesId, from: Moment, to: Moment, most: usize) -> Result<Points, Error> {
        let series = self.one(id)?;
        let most = most.min(MOST_POINTS);
        let mut points = Points::default();
        let take = |points: &mut Points, stretch: &Stretch| {
            stretch.walk(&series, |row, value, step| {
                if !(from..=to).contains(&row.at()) || points.next.is_some() {
                } else if points.points.len() == most {
                    points.next = Some(row.at());
                } else {
                    points.points.push(Point { row: *row, value, step: *step });
                }
            });
        };
        self.db.snapshot(|| {
            self.each_chunk(series.table, from, to, |entry| {
                match self.stretch(entry.id, &series) {
                    _ if entry.begin > to => {}
                    _ if !entry.raw => points.gone += 1,
                    Ok(stretch) => take(&mut points, &stretch),
                    Err(damage) => points.damaged.push(self.damaged(entry.id, damage)),
                }
                points.next.is_none()
            })?;
            if points.next.is_none() {
                let tail = self.tail(series.table, Some(&series), &mut points.damaged)?;
                take(&mut points, &tail);
            }
            Ok(points)
        })
    }

    pub(super) fn blob(&self, chunk: ChunkId, body: bool) -> Result<Box<dyn Source + '_>, Damage> {
        self.db.blob(chunk, body)
    }

    /// Reads of a chunk what one series needs.
    fn stretch(&self, chunk: ChunkId, series: &SeriesInfo) -> Result<Stretch, Damage> {
        let blob = self.blob(chunk, true)?;
        let rows = read_rows(&blob)?;
        let part = read_part(&blob, &rows, series.position)?;
        let marks = series.column.mark.map(|at| read_part(&blob, &rows, at)).transpose()?;
        Ok(Stretch { rows, part, marks })
    }

    /// What was flushed of a table and is in no chunk; of one series or without values.
    fn tail(
        &self,
        table: TableId,
        series: Option<&SeriesInfo>,
        damaged: &mut Vec<Error>,
    ) -> Result<Stretch, Error> {
        let mut trackers = Vec::new();
        if let Some(bytes) = self.db.state(table)? {
            match read_state(&bytes.as_slice(), MOST_COLUMNS) {
                Ok((_, read)) => trackers = read,
                Err(damage) => damaged.push(self.db.corrupt("the state of a table", damage)),
            }
        }
        let start =
            |at: usize| Part { tracker: trackers.get(at).copied().unwrap_or(fresh()), values: Vec::new() };
        let mut stretch = Stretch {
            rows: Vec::new(),
            part: start(series.map_or(usize::MAX, |s| s.position)),
            marks: series.and_then(|s| s.column.mark).map(start),
        };
        for (_, bytes) in self.db.tails(table)? {
            match read_tail(&bytes, MOST_COLUMNS) {
                Ok(tail) => tail.rows.into_iter().for_each(|(row, values)| {
                    let value = |at: usize| values.get(at).copied().flatten();
                    stretch.rows.push(row);
                    if let Some(series) = series {
                        stretch.part.values.push(value(series.position));
                        if let (Some(marks), Some(at)) = (&mut stretch.marks, series.column.mark) {
                            marks.values.push(value(at));
                        }
                    }
                }),
                Err(damage) => damaged.push(self.db.corrupt("a flush", damage)),
            }
        }
        Ok(stretch)
    }

    pub(super) fn damaged(&self, chunk: ChunkId, damage: Damage) -> Error {
        Error::Damaged { archive: self.db.location().clone(), chunk, damage }
    }
}

/// Rows one after the other and what one series has in them.
struct Stretch {
    rows: Vec<Row>,
    part: Part,
    marks: Option<Part>,
}

impl Stretch {
    fn walk(&self, series: &SeriesInfo, mut each: impl FnMut(&Row, Option<Raw>, &Step)) {
        let mut values = self.part.values.iter();
        walk(&series.column, &self.part, self.marks.as_ref(), &self.rows, |row, step| {
            each(row, values.next().copied().flatten(), step);
        });
    }
}
