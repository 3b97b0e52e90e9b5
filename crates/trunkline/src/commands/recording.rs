//! Recorded traffic for the test `replay`: captures, and the columns of files, runs and archives that `analyse` reads.

use std::path::Path;

use trunkline_traffic::recording::{RecordedValues, RecordingError};
use trunkline_traffic::{Recording, RecordingRequest};

use super::analyse::capture::{is_capture, messages};
use super::analyse::column::{Column, Reading};
use super::analyse::read;
use crate::failure::Failure;
use crate::flags::RunArchive;
use crate::flags::analyse::Unit;

/// Reads the recording that an experiment in `folder` names. The error is a clause.
pub fn read_recording(folder: &Path, request: &RecordingRequest) -> Result<Recording, String> {
    let path = folder.join(&request.path);
    let about = path.metadata().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        _ => error.to_string(),
    })?;
    if !about.is_file() && !about.is_dir() {
        return Err("it is not a file".into());
    }
    if is_capture(&path) {
        if !request.column.is_empty() {
            return Err("a capture has no columns: select packets with `filter`".into());
        }
        let messages = messages(&path, &request.filter)?;
        return Recording::new(messages).map_err(|error| match error {
            RecordingError::Empty => {
                "it has no UDP or TCP packets with a payload that the filter selects".into()
            }
            error => error.to_string(),
        });
    }
    if !request.filter.is_empty() {
        return Err("only a capture has a `filter`".into());
    }
    let column = (!request.column.is_empty()).then_some(request.column.as_str());
    let archive = RunArchive { archive: None };
    let reading = Reading { time: None, interval: None, values: None, unit: None, column, archive: &archive };
    let name = path.to_str().ok_or("its name is not text")?;
    let clause = |failure: Failure| {
        let reason = failure.reason();
        reason.strip_prefix(&format!("{name}: ")).unwrap_or(reason).to_owned()
    };
    let columns = read::columns(name, &reading).map_err(clause)?;
    let column = read::choose(&columns, column.or_else(|| size_column(&columns)), name).map_err(clause)?;
    let recording = match request.values {
        RecordedValues::Sizes => Recording::new(sizes(column)?),
        RecordedValues::Amounts => {
            let loaded = column.load(&reading)?;
            let bytes = loaded.unit.unwrap_or(Unit::Bytes).bytes(request.message_bytes as u32);
            let amounts = loaded.series.values().iter().map(|amount| amount.unwrap_or(0.0) * bytes);
            Recording::of_amounts(amounts, loaded.series.grain(), request.message_bytes as u32)
        }
    };
    recording.map_err(|error| error.to_string())
}

/// The column of sizes, by its usual names.
fn size_column(columns: &[Column]) -> Option<&str> {
    let names = ["size", "length", "bytes", "frame.len", "udp.length"];
    names.into_iter().find(|name| columns.iter().any(|column| column.name == *name))
}

/// Returns the times and sizes of a column with one message a row.
fn sizes(column: &Column) -> Result<Vec<(i64, u32)>, String> {
    let mut messages = Vec::new();
    for (row, (at, size)) in column.points()?.enumerate() {
        // A row without a size is no message.
        let Some(size) = size else { continue };
        if size.fract() != 0.0 || !(1.0..=f64::from(u32::MAX)).contains(&size) {
            return Err(format!(
                "value {} of column `{}` is not a size in bytes: {size}",
                row + 1,
                column.name
            ));
        }
        messages.push((at, size as u32));
    }
    Ok(messages)
}
