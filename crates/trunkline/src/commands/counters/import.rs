//! `trunkline monitor import`.

use std::path::Path;
use std::time::Duration;

use trunkline_counters::archive::{Error, Layout, Reader, SeriesSpec, TableSpec, Writer, run};
use trunkline_counters::counter::{Answer, Moment, Raw, Response};
use trunkline_record::Record;
use trunkline_record::store;

use super::csv::{Asked, Row, Rows};
use super::{failed, time, writer};
use crate::failure::{Failure, say};
use crate::flags::counters::{CsvKind, Import};

/// Responses between two flushes: fewer than any table may let wait.
const FLUSH: u64 = 64;
/// Responses that are looked at together.
const PAGE: usize = 4_096;

/// Reads a file, or runs.
pub fn import(flags: &Import) -> Result<(), Failure> {
    let is_run = flags.file.is_dir() || flags.file.extension().is_some_and(|e| e == "json");
    if !is_run {
        return csv(flags);
    }
    let said = [flags.device.is_some(), flags.table.is_some(), flags.time.is_some(), flags.period.is_some()];
    if said.contains(&true) || !flags.columns.is_empty() {
        return Err(Failure::input(
            "a run says itself what it is of: only CSV files are told --device and the like",
        ));
    }
    let records = store::load(&flags.file).map_err(Failure::input)?;
    for record in &records {
        // The devices of a run are free when it is in the archive.
        let put = run(&mut writer(&flags.archive)?, record)?;
        say(&format!("{}: {} tables, {} rows\n", run::device(record), put.tables, put.rows))?;
    }
    Ok(())
}

/// Puts a run into an archive.
pub fn run(writer: &mut Writer, record: &Record) -> Result<run::Put, Failure> {
    let began = time::moment(&record.started).ok_or_else(|| {
        Failure::input(format!("`{}` is no time at which a run was started", record.started))
    })?;
    run::put(writer, record, began).map_err(|error| match error {
        Error::Disorder(_) => {
            Failure::input(format!("the archive has the run `{}` already", run::device(record)))
        }
        error => failed(error),
    })
}

fn csv(flags: &Import) -> Result<(), Failure> {
    let wrong = |why: String| Failure::input(format!("{}: {why}", flags.file.display()));
    let Some(device) = &flags.device else {
        return Err(Failure::input("say of which device the file is, with --device NAME"));
    };
    let stem = || flags.file.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    let table = flags.table.clone().unwrap_or_else(stem);
    let asked =
        Asked { time: flags.time.as_deref(), kind: flags.kind, columns: &flags.columns, table: &table };
    // Read twice: a file that is wrong anywhere leaves nothing behind.
    let (first, second) = checked(&flags.file, &asked).map_err(wrong)?;
    let period = match (flags.period, second) {
        (Some(period), _) => Duration::from_nanos(period.as_ns()),
        (None, Some(second)) => second.since(first),
        (None, None) => return Err(wrong("one row tells no period: say it with --period".into())),
    };
    let mut rows = Rows::open(&flags.file, &asked).map_err(wrong)?;
    let spec = TableSpec {
        device: device.clone(),
        name: table.clone(),
        period,
        refresh: Some(Duration::ZERO),
        series: rows.columns.iter().map(|c| series(&c.series, c.kind)).collect(),
    };
    let mut writer = writer(&flags.archive)?;
    let layout = writer.table(&spec).map_err(failed)?;
    let refused = |trouble| match trouble {
        Trouble::File(why) => wrong(why),
        Trouble::Archive(error) => failed(error),
    };
    let reader = Reader::open(&flags.archive).map_err(failed)?;
    let mut past = Past::of(&reader, &layout).map_err(failed)?;
    let mut next = None;
    if let Some(last) = past.last.filter(|last| first <= *last) {
        // A file that was put in part is completed.
        let begun = past.begun(&reader, &layout, &mut rows, (first, period)).map_err(refused)?;
        next = if begun { rows.row().map_err(wrong)? } else { None };
        if next.is_none() {
            let last = time::written(last);
            return Err(wrong(format!(
                "the archive has `{device}` `{table}` up to {last} already, and the file begins before"
            )));
        }
    }
    let count = put(&mut writer, &layout, (next, rows), past, first.before(period)).map_err(refused)?;
    say(&format!("{count} rows of {} series: {}\n", layout.series.len(), flags.archive))
}

fn series(name: &str, kind: CsvKind) -> SeriesSpec {
    let unit = name.rsplit('/').next().unwrap_or_default();
    SeriesSpec { name: name.into(), kind: kind.kind(), unit: unit.into(), ceiling: None, mark: None }
}

/// Reads all of a file, and gives the times of its first two rows.
fn checked(path: &Path, asked: &Asked<'_>) -> Result<(Moment, Option<Moment>), String> {
    let mut rows = Rows::open(path, asked)?;
    let (first, _) = rows.row()?.ok_or("it has no row but that of names")?;
    let second = rows.row()?.map(|(at, _)| at);
    while rows.row()?.is_some() {}
    Ok((first, second))
}

/// What the archive has of a table.
struct Past {
    /// When its last response came.
    last: Option<Moment>,
    /// Of each column of the file where its series stands in the table.
    places: Vec<usize>,
    /// What each column came to.
    counted: Vec<u64>,
}

impl Past {
    fn of(reader: &Reader, layout: &Layout) -> Result<Past, Error> {
        let last = reader.extent(layout.table)?.map(|(_, last)| last);
        let places = layout.series.iter().map(|id| Ok(reader.one(*id)?.position));
        let mut past = Past { last, places: places.collect::<Result<_, Error>>()?, counted: Vec::new() };
        past.came_to(&reader.newest(layout.table)?.0.map(|n| n.values).unwrap_or_default());
        Ok(past)
    }

    fn value(values: &[Option<Raw>], place: usize) -> Option<Raw> {
        values.get(place).copied().flatten()
    }

    fn came_to(&mut self, values: &[Option<Raw>]) {
        let count = |&place: &usize| Past::value(values, place).map_or(0, |raw| raw.0);
        self.counted = self.places.iter().map(count).collect();
    }

    /// Counts amounts up.
    fn count_up(&mut self, rows: &Rows, values: &mut [Option<Raw>]) {
        for ((value, counted), column) in values.iter_mut().zip(&mut self.counted).zip(&rows.columns) {
            if let (Some(raw), CsvKind::Amount) = (value, column.kind) {
                *counted = counted.wrapping_add(raw.0);
                *raw = Raw(*counted);
            }
        }
    }

    /// Whether all that the archive has from the first row of a file on is how the file begins; that much of it is
    /// read, and counted from what there was before.
    fn begun(
        &mut self,
        reader: &Reader,
        layout: &Layout,
        rows: &mut Rows,
        (first, period): (Moment, Duration),
    ) -> Result<bool, Trouble> {
        let mut after = before(reader, layout, first, period)?;
        self.came_to(&[]);
        let mut last = None;
        loop {
            let found = reader.responses(layout.table, after, PAGE)?;
            for (row, values) in &found.responses {
                after = row.at();
                if after < first {
                    if row.answered.is_some() {
                        self.came_to(values);
                    }
                    continue;
                }
                let Some((at, mut wanted)) = rows.row().map_err(Trouble::File)? else { return Ok(false) };
                self.count_up(rows, &mut wanted);
                let mut pairs = wanted.iter().zip(&self.places);
                let same = pairs.all(|(value, &place)| *value == Past::value(values, place));
                if row.answered != Some(at) || !same {
                    return Ok(false);
                }
                last = Some(at);
            }
            if !found.more {
                // Rows that only summaries are left of cannot be told from others.
                return Ok(last == self.last);
            }
        }
    }
}

/// A moment before the last response before `first`, though not long before, unless there is none.
fn before(reader: &Reader, layout: &Layout, first: Moment, period: Duration) -> Result<Moment, Error> {
    let begin = reader.extent(layout.table)?.map_or(first, |(begin, _)| begin);
    let mut span = period.saturating_mul(2);
    while begin <= first.before(span) {
        let found = reader.responses(layout.table, first.before(span), 1)?;
        if found.responses.first().is_some_and(|(row, _)| row.at() < first) {
            break;
        }
        span = span.saturating_mul(2);
    }
    Ok(first.before(span))
}

enum Trouble {
    File(String),
    Archive(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Archive(error)
    }
}

/// Puts all rows into a table. Amounts are counted up, from what was counted until now; without a past from 0 at `before`.
fn put(
    writer: &mut Writer,
    layout: &Layout,
    (mut next, mut rows): (Option<Row>, Rows),
    mut past: Past,
    before: Moment,
) -> Result<u64, Trouble> {
    let answer = |at: Moment, values| Response {
        due: at,
        asked: at,
        answer: Some(Answer { answered: at, uptime: None, values }),
    };
    let amounts = || rows.columns.iter().map(|column| column.kind == CsvKind::Amount);
    if past.last.is_none() && amounts().any(|is| is) {
        let values = amounts().map(|is| is.then_some(Raw(0))).collect();
        writer.append(layout.table, &answer(before, values))?;
    }
    let mut count = 0;
    while let Some((at, mut values)) = match next.take() {
        None => rows.row().map_err(Trouble::File)?,
        next => next,
    } {
        past.count_up(&rows, &mut values);
        writer.append(layout.table, &answer(at, values))?;
        count += 1;
        if count % FLUSH == FLUSH - 1 {
            writer.flush()?;
        }
    }
    writer.seal_all()?;
    Ok(count)
}
