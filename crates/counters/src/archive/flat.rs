//! The archive as rows: each reading of a series, or each bucket of a view.
//!
//! Times are seconds since 1970, with all nine digits behind the point; a rate or time that is not known is an empty field,
//! one without bound `inf`. A series comes whole before the next. What is in memory at a time is a page of readings.
//!
//! | row | columns |
//! | --- | --- |
//! | reading | `device, table, series, kind, unit, asked_s, answered_s, uptime, value, grew, least_per_s, most_per_s, events` |
//! | bucket | `device, table, series, kind, unit, time, end_s, sum, mean, samples, covered_s, low, high, most, events` |

use std::io::Write;
use std::ops::ControlFlow;
use std::time::Duration;

use super::{Error, MOST_BUCKETS, Pattern, Point, Reader, SeriesInfo, Summary, TableInfo, View};
use crate::counter::{Events, Kind, Moment, Raw};

/// Readings in memory at a time.
const PAGE: usize = 20_000;
/// Most buckets of a series.
pub const MOST_ROWS: i128 = 100_000_000;

/// What is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Which series; all if empty.
    pub patterns: Vec<Pattern>,
    /// From when on.
    pub from: Moment,
    /// Until when.
    pub to: Moment,
    /// Buckets of this length instead of readings.
    pub every: Option<Duration>,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Series of which there was something.
    pub series: u64,
    /// Rows.
    pub rows: u64,
    /// Chunks whose readings are there no more; they are missing, or only their summaries are told.
    pub gone: u64,
    /// Chunks that could not be read.
    pub damaged: u64,
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct Line<'a> {
    /// Of which table.
    pub table: &'a TableInfo,
    /// Of which series.
    pub series: &'a SeriesInfo,
    /// What it says.
    pub said: Cell,
}

/// What a row says.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A reading and what followed.
    Reading(Point),
    /// A bucket, from when to when.
    Bucket(Moment, Moment, Summary),
}

/// Why rows did not come out.
#[derive(Debug, thiserror::Error)]
pub enum FlatError {
    /// The archive could not be read.
    #[error(transparent)]
    Archive(#[from] Error),
    /// They could not be written.
    #[error("cannot write: {0}")]
    Write(std::io::Error),
    /// So many buckets are no use.
    #[error("{0} of that length are too many: choose longer ones, or less time")]
    Many(i128),
}

impl Reader {
    /// Calls `each` for every row that is wanted, in order of tables, series and time.
    pub fn flat(
        &self,
        wanted: &Wanted,
        mut each: impl FnMut(&Line<'_>) -> std::io::Result<()>,
    ) -> Result<Written, FlatError> {
        let mut written = Written::default();
        let done = self.each_chosen(&wanted.patterns, |table, chosen| {
            for series in chosen {
                let before = written.rows;
                let mut count = |said: Cell| {
                    written.rows += 1;
                    each(&Line { table, series, said })
                };
                let told = match wanted.every {
                    None => self.readings(series, wanted, &mut count),
                    Some(every) => self.buckets(series, wanted, every, &mut count),
                };
                match told {
                    Ok((gone, damaged)) => {
                        written.gone += gone;
                        written.damaged += damaged;
                    }
                    Err(FlatError::Archive(error)) => return Err(error),
                    Err(error) => return Ok(ControlFlow::Break(error)),
                }
                written.series += u64::from(written.rows > before);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        match done {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(written),
        }
    }

    fn readings(
        &self,
        series: &SeriesInfo,
        wanted: &Wanted,
        each: &mut impl FnMut(Cell) -> std::io::Result<()>,
    ) -> Result<(u64, u64), FlatError> {
        let (mut from, mut last) = (wanted.from, Moment::FIRST);
        let (mut gone, mut damaged) = (0, 0);
        loop {
            let page = self.points(series.id, from, wanted.to, PAGE)?;
            // Two responses may be of one moment: where a page ends between them the first comes again.
            for point in page.points {
                if point.row.asked <= last {
                    continue;
                }
                last = point.row.asked;
                each(Cell::Reading(point)).map_err(FlatError::Write)?;
            }
            (gone, damaged) = (gone.max(page.gone as u64), damaged.max(page.damaged.len() as u64));
            match page.next {
                Some(next) => from = next,
                None => return Ok((gone, damaged)),
            }
        }
    }

    fn buckets(
        &self,
        series: &SeriesInfo,
        wanted: &Wanted,
        every: Duration,
        each: &mut impl FnMut(Cell) -> std::io::Result<()>,
    ) -> Result<(u64, u64), FlatError> {
        let mut damaged = 0;
        self.views(series, wanted, every, |view| {
            damaged += view.damaged.len() as u64;
            let buckets = view.buckets.buckets.iter().enumerate();
            for (at, summary) in
                buckets.filter(|(_, s)| s.samples > 0 || !s.events.is_empty() || !s.covered.is_zero())
            {
                each(Cell::Bucket(view.buckets.edge(at), view.buckets.edge(at + 1), *summary))
                    .map_err(FlatError::Write)?;
            }
            Ok(())
        })?;
        Ok((0, damaged))
    }

    /// A series over the time wanted in buckets whose edges are multiples of their length since 1970, as many views as
    /// that takes. Time in which the table has nothing is left out at both ends.
    pub fn views(
        &self,
        series: &SeriesInfo,
        wanted: &Wanted,
        every: Duration,
        mut each: impl FnMut(&View) -> Result<(), FlatError>,
    ) -> Result<(), FlatError> {
        let Some((first, last)) = self.extent(series.table)? else { return Ok(()) };
        let length = i128::try_from(every.as_nanos()).unwrap_or(i128::MAX).clamp(1, i128::from(i64::MAX));
        let begin = i128::from(wanted.from.max(first).0).div_euclid(length);
        let end = (i128::from(wanted.to.min(last).0) + length - 1).div_euclid(length);
        if end - begin > MOST_ROWS {
            return Err(FlatError::Many(end - begin));
        }
        let edge = |at: i128| Moment((at * length).clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64);
        let mut at = begin;
        while at < end {
            let count = (end - at).min(MOST_BUCKETS as i128);
            each(&self.view(series.id, edge(at), edge(at + count), count as usize)?)?;
            at += count;
        }
        Ok(())
    }
}

/// Names of the columns of readings.
pub const READING: [&str; 13] = [
    "device",
    "table",
    "series",
    "kind",
    "unit",
    "asked_s",
    "answered_s",
    "uptime",
    "value",
    "grew",
    "least_per_s",
    "most_per_s",
    "events",
];

/// Names of the columns of buckets.
pub const BUCKET: [&str; 15] = [
    "device",
    "table",
    "series",
    "kind",
    "unit",
    "time",
    "end_s",
    "sum",
    "mean",
    "samples",
    "covered_s",
    "low",
    "high",
    "most",
    "events",
];

impl Kind {
    /// Its name in exports and imports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter32 => "counter32",
            Kind::Counter64 => "counter64",
            Kind::Gauge => "gauge",
            Kind::Real => "real",
        }
    }

    /// The kind of a name.
    pub fn named(name: &str) -> Option<Kind> {
        [Kind::Counter32, Kind::Counter64, Kind::Gauge, Kind::Real]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// Rows as CSV (RFC 4180, lines end in LF).
pub struct Csv<W: Write>(csv::Writer<W>);

impl<W: Write> Csv<W> {
    /// Writes the names of the columns, of readings or buckets.
    pub fn new(out: W, buckets: bool) -> std::io::Result<Csv<W>> {
        let mut csv = csv::Writer::from_writer(out);
        if buckets { csv.write_record(BUCKET) } else { csv.write_record(READING) }?;
        Ok(Csv(csv))
    }

    /// Writes a row.
    pub fn row(&mut self, line: &Line<'_>) -> std::io::Result<()> {
        let Line { table, series, said } = line;
        let kind = series.column.kind;
        let mut fields = vec![
            table.device.clone(),
            table.name.clone(),
            series.name.clone(),
            kind.name().to_owned(),
            series.unit.clone(),
        ];
        match said {
            Cell::Reading(point) => {
                let growth = point.step.growth;
                fields.extend([
                    seconds(point.row.asked),
                    point.row.answered.map(seconds).unwrap_or_default(),
                    point.row.uptime.map(|u| u.to_string()).unwrap_or_default(),
                    point.value.map(|raw| written(raw, kind)).unwrap_or_default(),
                    growth.map(|g| g.by.to_string()).unwrap_or_default(),
                    growth.map(|g| g.least().to_string()).unwrap_or_default(),
                    growth.map(|g| g.most().to_string()).unwrap_or_default(),
                    names(point.step.events),
                ]);
            }
            Cell::Bucket(from, to, summary) => {
                let range = summary.range;
                let of = |pick: fn(&super::Range) -> f64| {
                    range.as_ref().map(|r| pick(r).to_string()).unwrap_or_default()
                };
                fields.extend([
                    seconds(*from),
                    seconds(*to),
                    if kind == Kind::Real { summary.real.to_string() } else { summary.sum.to_string() },
                    mean(summary, kind).map(|m| m.to_string()).unwrap_or_default(),
                    summary.samples.to_string(),
                    nine(summary.covered.as_nanos() as i128),
                    of(|r| r.low),
                    of(|r| r.high),
                    of(|r| r.most),
                    names(summary.events),
                ]);
            }
        }
        Ok(self.0.write_record(fields)?)
    }

    /// Ends the file.
    pub fn finish(mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Of a counter the rate, a second, over the time that is covered; of others the mean of the values.
pub fn mean(summary: &Summary, kind: Kind) -> Option<f64> {
    let over = if kind.counts() { summary.covered.as_secs_f64() } else { summary.samples as f64 };
    let sum = if kind == Kind::Real { summary.real } else { summary.sum as f64 };
    (over > 0.0).then(|| sum / over)
}

/// A value as it was read.
pub(crate) fn written(raw: Raw, kind: Kind) -> String {
    match kind {
        Kind::Counter32 | Kind::Counter64 => raw.0.to_string(),
        Kind::Gauge => (raw.0 as i64).to_string(),
        Kind::Real => f64::from_bits(raw.0).to_string(),
    }
}

/// Names of events with `;` between them.
pub(crate) fn names(events: Events) -> String {
    events.iter().map(|event| event.name()).collect::<Vec<_>>().join(";")
}

fn seconds(moment: Moment) -> String {
    nine(moment.0.into())
}

/// Nanoseconds as seconds with nine digits behind the point.
pub fn nine(ns: i128) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    format!("{sign}{}.{:09}", ns.unsigned_abs() / 1_000_000_000, ns.unsigned_abs() % 1_000_000_000)
}

#[cfg(feature = "parquet")]
pub mod parquet;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{SeriesSpec, TableSpec, Writer};
    use crate::counter::{Answer, Response};

    const S: i64 = 1_000_000_000;

    /// A counter of 7 a second, a gauge and a real number, polled once a second; every tenth answer is missing, and the
    /// agent begins anew at 500 s. A part of it lies in chunks.
    pub(super) fn archive(polls: i64) -> (tempfile::TempDir, Reader) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("counters.sqlite");
        let mut writer = Writer::open(&path).unwrap();
        let kinds = [("in", Kind::Counter64), ("level", Kind::Gauge), ("delay", Kind::Real)];
        let series = kinds.map(|(name, kind)| SeriesSpec {
            name: name.into(),
            kind,
            unit: "x".into(),
            ceiling: None,
            mark: None,
        });
        let spec = TableSpec {
            device: "a,b".into(),
            name: "t".into(),
            period: Duration::from_secs(1),
            refresh: Some(Duration::ZERO),
            series: series.into(),
        };
        let table = writer.table(&spec).unwrap().table;
        for at in 0..polls {
            let count = if at < 500 { 10_000 + 7 * at } else { 7 * (at - 500) } as u64;
            let uptime = if at < 500 { 100_000 + 100 * at } else { 100 * (at - 500) } as u32;
            let values = vec![Some(Raw(count)), Some(Raw::gauge(-at)), Some(Raw::real(at as f64 / 4.0))];
            let answer = Answer { answered: Moment(at * S + 1), uptime: Some(uptime), values };
            let answer = (at % 10 != 9).then_some(answer);
            let response = Response { due: Moment(at * S), asked: Moment(at * S), answer };
            writer.append(table, &response).unwrap();
            if at % 50 == 49 {
                writer.flush().unwrap();
            }
        }
        writer.flush().unwrap();
        (dir, Reader::open(&path).unwrap())
    }

    pub(super) fn wanted(pattern: &str, every: Option<u64>) -> Wanted {
        Wanted {
            patterns: vec![Pattern::new(pattern)],
            from: Moment::FIRST,
            to: Moment::LAST,
            every: every.map(Duration::from_secs),
        }
    }

    fn csv(reader: &Reader, wanted: &Wanted) -> (Written, Vec<String>) {
        let mut text = Vec::new();
        let mut csv = Csv::new(&mut text, wanted.every.is_some()).unwrap();
        let written = reader.flat(wanted, |line| csv.row(line)).unwrap();
        csv.finish().unwrap();
        (written, String::from_utf8(text).unwrap().lines().map(str::to_owned).collect())
    }

    #[test]
    fn readings_are_told_as_they_came() {
        let (_dir, reader) = archive(12);
        let (written, lines) = csv(&reader, &wanted("a,b:in", None));
        assert_eq!((written.series, written.rows, written.gone, written.damaged), (1, 12, 0, 0));
        assert_eq!(lines[0], READING.join(","));
        let common = "\"a,b\",t,in,counter64,x";
        assert_eq!(lines[1], format!("{common},0.000000000,0.000000001,100000,10000,,,,"));
        assert!(lines[2].starts_with(&format!("{common},1.000000000,1.000000001,100100,10007,7,6.99999999")));
        assert_eq!(lines[10], format!("{common},9.000000000,,,,,,,silent"));
        assert!(lines[11].contains(",10070,14,"), "over the gap: {}", lines[11]);
        let (_, lines) = csv(&reader, &wanted("a,b:delay", None));
        assert!(lines[2].contains(",delay,real,x,1.000000000,1.000000001,100100,0.25,,,,"));
        let (_, lines) = csv(&reader, &wanted("a,b:level", None));
        assert!(lines[2].contains(",-1,,,,"));
    }

    #[test]
    fn buckets_add_up_to_what_grew() {
        let (_dir, reader) = archive(3_000);
        let sum = |lines: &[String], at: usize| -> u64 {
            lines[1..].iter().map(|l| l.split(',').nth(at + 1).unwrap().parse().unwrap_or(0u64)).sum()
        };
        let (_, readings) = csv(&reader, &wanted("*:in", None));
        // But for what was lost with the restart: from 498 s, since 499 s had no answer, to 500 s.
        assert_eq!(sum(&readings, 9), 7 * (2_998 - 2));
        assert!(readings[501].ends_with(",reset-restart"), "{}", readings[501]);
        for every in [1, 60, 7_000] {
            let (written, buckets) = csv(&reader, &wanted("*:in", Some(every)));
            assert_eq!(sum(&buckets, 7), 7 * (2_998 - 2), "{every}");
            assert!(written.rows <= 3_000 / every + 1);
        }
        // Several views, and a time in between.
        let part = Wanted { from: Moment(1_000 * S), to: Moment(1_100 * S), ..wanted("*", None) };
        assert_eq!(csv(&reader, &part).0.rows, 3 * 100);
        let many = Wanted { every: Some(Duration::from_millis(100)), ..wanted("*:in", None) };
        assert!(csv(&reader, &many).0.rows > MOST_BUCKETS as u64);
        let refused = Wanted { every: Some(Duration::from_nanos(1)), ..wanted("*:in", None) };
        assert!(matches!(reader.flat(&refused, |_| Ok(())), Err(FlatError::Many(_))));
    }

    #[test]
    fn responses_come_once_however_they_are_asked_for() {
        let (_dir, reader) = archive(2_500);
        let table = reader.tables(crate::archive::TableId(0), 1).unwrap()[0].id;
        let (mut after, mut asked) = (Moment::FIRST, Vec::new());
        loop {
            let found = reader.responses(table, after, 100).unwrap();
            let Some((last, _)) = found.responses.last() else { break };
            after = last.at();
            asked.extend(found.responses.iter().map(|(row, _)| row.asked.0 / S));
            for (row, values) in &found.responses {
                let level = row.answered.map(|_| Raw::gauge(-(row.asked.0 / S)));
                assert_eq!((values.len(), values[1]), (3, level));
            }
        }
        assert_eq!(asked, (0..2_500).collect::<Vec<i64>>());
    }
}
