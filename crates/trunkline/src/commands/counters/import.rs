//! `trunkline monitor import`.

use std::path::Path;
use std::time::Duration;

use trunkline_record::Record;
use trunkline_record::counter::{Answer, Moment, Raw, Response};
use trunkline_record::series::{Error, Layout, Location, Reader, SeriesSpec, TableSpec, Writer, run};
use trunkline_record::store;

use super::csv::{Asked, Rows};
use super::{failed, time, writer};
use crate::failure::{Failure, say};
use crate::flags::counters::{CsvKind, Import};

/// Responses between two flushes: fewer than any table may let wait.
const FLUSH: u64 = 64;

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
    let mut writer = writer(&flags.archive)?;
    for record in &records {
        let put = run(&mut writer, record)?;
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
    let rows = Rows::open(&flags.file, &asked).map_err(wrong)?;
    let spec = TableSpec {
        device: device.clone(),
        name: table.clone(),
        period,
        refresh: Some(Duration::ZERO),
        series: rows.columns.iter().map(|c| series(&c.series, c.kind)).collect(),
    };
    let mut writer = writer(&flags.archive)?;
    let layout = writer.table(&spec).map_err(failed)?;
    let past = past(&flags.archive, &layout).map_err(failed)?;
    if past.last.is_some_and(|last| first <= last) {
        let last = past.last.map(time::written).unwrap_or_default();
        return Err(wrong(format!(
            "the archive has `{device}` `{table}` up to {last} already, and the file begins before"
        )));
    }
    let count = put(&mut writer, &layout, rows, past, first.before(period)).map_err(|error| match error {
        Trouble::File(why) => wrong(why),
        Trouble::Archive(error) => failed(error),
    })?;
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
    /// Its last values, a column of the file.
    values: Vec<Option<Raw>>,
}

fn past(archive: &Location, layout: &Layout) -> Result<Past, Error> {
    let reader = Reader::open(archive)?;
    let last = reader.extent(layout.table)?.map(|(_, last)| last);
    let newest = reader.newest(layout.table)?.0.map(|n| n.values).unwrap_or_default();
    let value = |id: &_| Ok(newest.get(reader.one(*id)?.position).copied().flatten());
    Ok(Past { last, values: layout.series.iter().map(value).collect::<Result<_, Error>>()? })
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
    mut rows: Rows,
    past: Past,
    before: Moment,
) -> Result<u64, Trouble> {
    let amounts: Vec<bool> = rows.columns.iter().map(|c| c.kind == CsvKind::Amount).collect();
    let mut counted: Vec<u64> = past.values.iter().map(|value| value.map_or(0, |raw| raw.0)).collect();
    let answer = |at: Moment, values| Response {
        due: at,
        asked: at,
        answer: Some(Answer { answered: at, uptime: None, values }),
    };
    if past.last.is_none() && amounts.contains(&true) {
        let values = amounts.iter().map(|is| is.then_some(Raw(0))).collect();
        writer.append(layout.table, &answer(before, values))?;
    }
    let mut count = 0;
    while let Some((at, mut values)) = rows.row().map_err(Trouble::File)? {
        let columns = values.iter_mut().zip(&mut counted).zip(&amounts);
        for ((value, counted), _) in columns.filter(|(_, is)| **is) {
            if let Some(raw) = value {
                *counted = counted.wrapping_add(raw.0);
                *raw = Raw(*counted);
            }
        }
        writer.append(layout.table, &answer(at, values))?;
        count += 1;
        if count % FLUSH == FLUSH - 1 {
            writer.flush()?;
        }
    }
    writer.seal_all()?;
    Ok(count)
}
