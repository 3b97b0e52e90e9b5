//! `trunkline records`: the archive of runs.

use trunkline_record::archive::{Filter, RunEntry};
use trunkline_record::{Record, RunId, export};

use super::report::{terminal_width, write_atomically};
use crate::archive::open_existing;
use crate::failure::{Failure, print};
use crate::flags::{Format, RecordsAction, RunArchive};

/// Runs a records command.
pub fn records(action: RecordsAction) -> Result<(), Failure> {
    match action {
        RecordsAction::List { name, backend, limit, json, archive } => {
            let filter = Filter { name, backend, limit: Some(limit), ..Filter::default() };
            let entries = open_existing(&archive)?.list(&filter).map_err(Failure::run)?;
            print(&if json { lines(&entries) } else { table(&entries) })
        }
        RecordsAction::Show { id, text, archive } => {
            let record = open_existing(&archive)?.get(RunId(id)).map_err(Failure::input)?;
            if text {
                print(&record.experiment.text)
            } else {
                print(&trunkline_report::terminal(&[record], terminal_width()))
            }
        }
        RecordsAction::Export { ids, format, series, output, archive } => {
            let records = get(&ids, &archive)?;
            let bytes = encode(&records, format, series)?;
            output.map_or_else(|| print(&bytes), |path| write_atomically(&path, &bytes))
        }
        RecordsAction::Delete { ids, archive } => {
            let ids: Vec<RunId> = ids.into_iter().map(RunId).collect();
            open_existing(&archive)?.delete(&ids).map_err(Failure::input)
        }
    }
}

fn get(ids: &[i64], archive: &RunArchive) -> Result<Vec<Record>, Failure> {
    let archive = open_existing(archive)?;
    ids.iter().map(|id| archive.get(RunId(*id)).map_err(Failure::input)).collect()
}

fn encode(records: &[Record], format: Format, series: bool) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::new();
    let table = || if series { export::series(records) } else { export::connections(records) };
    match format {
        Format::Json => export::write_json(records, &mut out)?,
        Format::Csv => table().write_csv(&mut out)?,
        #[cfg(feature = "parquet")]
        Format::Parquet => export::parquet::write(&table(), &mut out).map_err(Failure::run)?,
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => return Err(Failure::missing_feature("--format parquet", "parquet")),
    }
    Ok(out)
}

fn lines(entries: &[RunEntry]) -> String {
    let line = |e: &RunEntry| {
        let line = serde_json::json!({
            "id": e.id.0, "started": e.started, "name": e.name, "hash": e.hash, "backend": e.backend,
            "seed": e.seed.0, "partial": e.partial, "duration_s": e.duration_s,
        });
        format!("{line}\n")
    };
    entries.iter().map(line).collect()
}

fn table(entries: &[RunEntry]) -> String {
    if entries.is_empty() {
        return "no runs\n".into();
    }
    let mut text =
        format!("{:>6}  {:<20}  {:<8}  {:>9}  {:<8}  NAME\n", "ID", "STARTED", "BACKEND", "DURATION", "");
    for e in entries {
        let started = e.started.split('.').next().unwrap_or_default();
        text += &format!(
            "{:>6}  {:<20}  {:<8}  {:>7.1} s  {:<8}  {}\n",
            e.id.0,
            trunkline_report::sanitize(started),
            trunkline_report::sanitize(&e.backend),
            e.duration_s,
            if e.partial { "partial" } else { "" },
            trunkline_report::sanitize(&e.name)
        );
    }
    text
}
