//! `trunkline monitor import`.

use std::path::Path;
use std::time::Duration;

use trunkline_counters::archive::{
    Error, Layout, Location, Reader, SeriesSpec, TableSpec, Writer, run_import,
};
use trunkline_counters::counter::{Answer, RawValue, Response, Timestamp};
use trunkline_record::Record;
use trunkline_record::store;

use super::csv::{CsvOptions, CsvRows, Row, input_error};
use super::time;
use crate::archive::counters_archive;
use crate::failure::{Failure, print};
use crate::flags::monitor::{CsvKind, Import};

/// Responses between two flushes; fewer than a table may buffer.
const FLUSH: u64 = 64;
/// Responses that are read at a time.
const PAGE: usize = 4_096;

/// Imports a CSV file or runs.
pub fn import(flags: &Import) -> Result<(), Failure> {
    let archive = counters_archive(&flags.archive, flags.positional.as_ref())?;
    let is_run = flags.file.is_dir() || flags.file.extension().is_some_and(|e| e == "json");
    if !is_run {
        return import_csv(flags, &archive);
    }
    let csv_flags =
        [flags.device.is_some(), flags.table.is_some(), flags.time.is_some(), flags.interval.is_some()];
    if csv_flags.contains(&true) || !flags.columns.is_empty() {
        return Err(Failure::input(
            "--device, --table, --time, --interval and --column apply to CSV files only",
        ));
    }
    let records = store::load(&flags.file).map_err(Failure::input)?;
    for record in &records {
        // A new writer per run releases the locks of the devices of the run.
        let stored = import_run(&mut Writer::open(&archive)?, record)?;
        print(&format!(
            "{}: {} tables, {} rows\n",
            run_import::device_name(record),
            stored.tables,
            stored.rows
        ))?;
    }
    Ok(())
}

/// Imports a run into an archive.
pub fn import_run(writer: &mut Writer, record: &Record) -> Result<run_import::ImportStats, Failure> {
    let began = time::parse_moment(&record.started)
        .ok_or_else(|| Failure::input(format!("`{}` is not the start time of a run", record.started)))?;
    run_import::import(writer, record, began).map_err(|error| match error {
        Error::OutOfOrder(_) => {
            Failure::input(format!("the archive already has the run `{}`", run_import::device_name(record)))
        }
        error => error.into(),
    })
}

fn import_csv(flags: &Import, archive: &Location) -> Result<(), Failure> {
    let Some(device) = &flags.device else {
        return Err(Failure::input("a CSV file needs --device NAME"));
    };
    let stem = || flags.file.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    let table = flags.table.clone().unwrap_or_else(stem);
    let options =
        CsvOptions { time: flags.time.as_deref(), kind: flags.kind, columns: &flags.columns, table: &table };
    // Read the file twice, so that a file with an error is not imported in part.
    let (first, second) = validate(&flags.file, &options)?;
    let period = match (flags.interval, second) {
        (Some(period), _) => period.into(),
        (None, Some(second)) => second.duration_since(first),
        (None, None) => return Err(input_error(&flags.file, "one row has no interval: give --interval")),
    };
    let mut rows = CsvRows::open(&flags.file, &options)?;
    let spec = TableSpec {
        device: device.clone(),
        name: table.clone(),
        period,
        refresh: Some(Duration::ZERO),
        series: rows.columns.iter().map(|c| series_spec(&c.series, c.kind)).collect(),
    };
    let mut writer = Writer::open(archive)?;
    let layout = writer.open_table(&spec)?;
    let reader = Reader::open(archive)?;
    let mut existing = ExistingTable::of(&reader, &layout)?;
    let mut next = None;
    if let Some(last) = existing.last.filter(|last| first <= *last) {
        // Complete a file that was imported in part.
        let matches_start = existing.matches_start(&reader, &layout, &mut rows, (first, period))?;
        next = if matches_start { rows.row()? } else { None };
        if next.is_none() {
            let last = time::format_moment(last);
            let reason = format!(
                "the archive already has `{device}` `{table}` up to {last}, and the file begins before"
            );
            return Err(input_error(&flags.file, &reason));
        }
    }
    let count = append_rows(&mut writer, &layout, (next, rows), existing, first.saturating_sub(period))?;
    print(&format!("{count} rows of {} series: {}\n", layout.series.len(), archive))
}

fn series_spec(name: &str, kind: CsvKind) -> SeriesSpec {
    let unit = name.rsplit('/').next().unwrap_or_default();
    SeriesSpec { name: name.into(), kind: kind.kind(), unit: unit.into(), ceiling: None, discontinuity: None }
}

/// Reads a whole file and returns the times of its first two rows.
fn validate(path: &Path, options: &CsvOptions<'_>) -> Result<(Timestamp, Option<Timestamp>), Failure> {
    let mut rows = CsvRows::open(path, options)?;
    let (first, _) = rows.row()?.ok_or_else(|| input_error(path, "it has no rows after the header"))?;
    let second = rows.row()?.map(|(at, _)| at);
    while rows.row()?.is_some() {}
    Ok((first, second))
}

/// The readings of a table that the archive already has.
struct ExistingTable {
    /// Time of the last response.
    last: Option<Timestamp>,
    /// Position of the series of each column in the table.
    positions: Vec<usize>,
    /// Accumulated total of each column.
    totals: Vec<u64>,
}

impl ExistingTable {
    fn of(reader: &Reader, layout: &Layout) -> Result<ExistingTable, Error> {
        let last = reader.time_range(layout.table)?.map(|(_, last)| last);
        let positions = layout.series.iter().map(|id| Ok(reader.series_by_id(*id)?.position));
        let mut existing =
            ExistingTable { last, positions: positions.collect::<Result<_, Error>>()?, totals: Vec::new() };
        existing.set_totals(&reader.latest_answer(layout.table)?.0.map(|n| n.values).unwrap_or_default());
        Ok(existing)
    }

    fn value(values: &[Option<RawValue>], position: usize) -> Option<RawValue> {
        values.get(position).copied().flatten()
    }

    fn set_totals(&mut self, values: &[Option<RawValue>]) {
        let count = |&position: &usize| ExistingTable::value(values, position).map_or(0, |raw| raw.0);
        self.totals = self.positions.iter().map(count).collect();
    }

    /// Replaces amounts by their running totals.
    fn accumulate(&mut self, rows: &CsvRows, values: &mut [Option<RawValue>]) {
        for ((value, total), column) in values.iter_mut().zip(&mut self.totals).zip(&rows.columns) {
            if let (Some(raw), CsvKind::Amount) = (value, column.kind) {
                *total = total.wrapping_add(raw.0);
                *raw = RawValue(*total);
            }
        }
    }

    /// Whether the readings that the archive has from the first row of the file on equal the start of the file. Reads these
    /// rows and accumulates them onto the earlier totals.
    fn matches_start(
        &mut self,
        reader: &Reader,
        layout: &Layout,
        rows: &mut CsvRows,
        (first, period): (Timestamp, Duration),
    ) -> Result<bool, Failure> {
        let mut after = time_before_first(reader, layout, first, period)?;
        self.set_totals(&[]);
        let mut last = None;
        loop {
            let found = reader.responses(layout.table, after, PAGE)?;
            for (row, values) in &found.responses {
                after = row.time();
                if after < first {
                    if row.answered_at.is_some() {
                        self.set_totals(values);
                    }
                    continue;
                }
                let Some((at, mut wanted)) = rows.row()? else { return Ok(false) };
                self.accumulate(rows, &mut wanted);
                let mut pairs = wanted.iter().zip(&self.positions);
                let same = pairs.all(|(value, &position)| *value == ExistingTable::value(values, position));
                if row.answered_at != Some(at) || !same {
                    return Ok(false);
                }
                last = Some(at);
            }
            if !found.more {
                // Rows that have been reduced to summaries cannot be compared.
                return Ok(last == self.last);
            }
        }
    }
}

/// Returns a time shortly before the last response before `first`.
fn time_before_first(
    reader: &Reader,
    layout: &Layout,
    first: Timestamp,
    period: Duration,
) -> Result<Timestamp, Error> {
    let begin = reader.time_range(layout.table)?.map_or(first, |(begin, _)| begin);
    let mut span = period.saturating_mul(2);
    while begin <= first.saturating_sub(span) {
        let found = reader.responses(layout.table, first.saturating_sub(span), 1)?;
        if found.responses.first().is_some_and(|(row, _)| row.time() < first) {
            break;
        }
        span = span.saturating_mul(2);
    }
    Ok(first.saturating_sub(span))
}

/// Appends all rows to a table. Amounts are accumulated onto the existing totals; in an empty table from 0 at `before`.
fn append_rows(
    writer: &mut Writer,
    layout: &Layout,
    (mut next, mut rows): (Option<Row>, CsvRows),
    mut existing: ExistingTable,
    before: Timestamp,
) -> Result<u64, Failure> {
    let answer = |at: Timestamp, values| Response {
        due_at: at,
        requested_at: at,
        answer: Some(Answer { answered_at: at, uptime: None, values }),
    };
    let amounts = || rows.columns.iter().map(|column| column.kind == CsvKind::Amount);
    if existing.last.is_none() && amounts().any(|is| is) {
        let values = amounts().map(|is| is.then_some(RawValue(0))).collect();
        writer.append(layout.table, &answer(before, values))?;
    }
    let mut count = 0;
    while let Some((at, mut values)) = match next.take() {
        None => rows.row()?,
        next => next,
    } {
        existing.accumulate(&rows, &mut values);
        writer.append(layout.table, &answer(at, values))?;
        count += 1;
        if count % FLUSH == FLUSH - 1 {
            writer.flush()?;
        }
    }
    writer.make_all_chunks()?;
    Ok(count)
}
