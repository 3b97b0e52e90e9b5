//! Series from files, runs and archives.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use std::rc::Rc;

use trunkline_counters::archive::Location;
use trunkline_record::Record;

use super::column::{Column, Reading, Times, nanoseconds};
use super::table::table;
use super::{archived, capture};
use crate::archive;
use crate::failure::Failure;

/// Returns every column of a file, figure of a run, or series of an archive.
pub fn columns(name: &str, reading: &Reading<'_>) -> Result<Vec<Column>, Failure> {
    let path = Path::new(name);
    let at = Location::from(name);
    let is_number = name.trim_start_matches('#').parse::<i64>().is_ok() && !path.exists();
    let is_record = is_number || path.is_dir() || path.extension().is_some_and(|e| e == "json");
    if is_record && at.file().is_some() {
        let records = archive::records(&[name.to_owned()], reading.archive)?;
        return Ok(columns_of_records(&records));
    }
    if archived::is_archive(&at) {
        return archived::columns(&at, reading);
    }
    let fail = |reason: String| Failure::input(format!("{name}: {reason}"));
    if capture::is_capture(path) {
        let messages = capture::messages(path, "").map_err(fail)?;
        return Ok(capture::columns(messages, reading.interval));
    }
    match name {
        "-" => table(io::stdin().lock(), reading.time).map_err(fail),
        _ => {
            let file = File::open(path).map_err(|e| fail(e.to_string()))?;
            table(BufReader::new(file), reading.time).map_err(fail)
        }
    }
}

/// Selects the column of this name, else the first with numbers.
pub fn choose<'a>(columns: &'a [Column], name: Option<&str>, from: &str) -> Result<&'a Column, Failure> {
    let found = match name {
        Some(name) => columns.iter().find(|c| c.name == name),
        None => columns.iter().find(|c| c.is_numbers()),
    };
    found.ok_or_else(|| {
        let names: Vec<&str> = columns.iter().take(20).map(|c| c.name.as_str()).collect();
        let list = if names.is_empty() { "none".into() } else { names.join(", ") };
        Failure::input(match name {
            Some(name) => format!("{from}: there is no column `{name}`; the columns are: {list}"),
            None => format!("{from}: no column holds numbers; the columns are: {list}"),
        })
    })
}

fn columns_of_records(records: &[Record]) -> Vec<Column> {
    let mut columns = Vec::new();
    for record in records {
        let backend = if records.len() > 1 { format!("{}.", record.backend) } else { String::new() };
        for c in &record.connections {
            let ns = c.series.iter().map(|p| nanoseconds(p.t_s).unwrap_or(0)).collect();
            let times = Rc::new(Times { ns, calendar: false, ends: true });
            let mut add = |name: &str, values: Vec<Option<f64>>| {
                let name = format!("{backend}{}.{name}", c.name);
                columns.push(Column { name, times: Some(times.clone()), values, invalid_line: None });
            };
            add("received_bps", c.series.iter().map(|p| Some(p.received_bps)).collect());
            add("sent_bps", c.series.iter().map(|p| Some(p.sent_bps)).collect());
            let more: std::collections::BTreeSet<&String> =
                c.series.iter().flat_map(|p| p.extra.keys()).collect();
            for name in more {
                add(name, c.series.iter().map(|p| p.extra.get(name).copied()).collect());
            }
        }
    }
    columns
}
