//! Recorded traffic for the test `replay`: captures, and the columns of files, runs and archives that `analyse` reads.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use trunkline_capture::Filter;
use trunkline_capture::packet::Packet;
use trunkline_capture::source::CaptureFile;
use trunkline_traffic::recording::{MOST_MESSAGES, RecordedValues, RecordingError};
use trunkline_traffic::{Recording, RecordingRequest};

use super::analyse::column::{Column, Reading};
use super::analyse::read;
use crate::failure::Failure;
use crate::flags::RunArchive;
use crate::flags::analyse::Unit;

/// How captures begin: pcap with micro- and nanoseconds in both orders of bytes, and pcapng.
const CAPTURES: [[u8; 4]; 5] = [
    [0xA1, 0xB2, 0xC3, 0xD4],
    [0xD4, 0xC3, 0xB2, 0xA1],
    [0xA1, 0xB2, 0x3C, 0x4D],
    [0x4D, 0x3C, 0xB2, 0xA1],
    [0x0A, 0x0D, 0x0D, 0x0A],
];

/// Whether a file is a capture.
pub fn is_capture(path: &Path) -> bool {
    let mut head = [0; 4];
    // Opening a pipe or a device could wait.
    path.is_file()
        && File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok()
        && CAPTURES.contains(&head)
}

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

/// Reads times, in nanoseconds since 1970, and payloads of UDP and TCP of the packets that a filter selects.
pub fn messages(path: &Path, filter: &str) -> Result<Vec<(i64, u32)>, String> {
    let filter = match filter {
        "" => None,
        words => Some(words.parse::<Filter>().map_err(|error| format!("`filter`: {error}"))?),
    };
    let mut capture = CaptureFile::open(path).map_err(|error| error.to_string())?;
    let (mut messages, mut packets) = (Vec::new(), 0_u64);
    loop {
        let next = capture.next_packet(|captured| {
            packets += 1;
            let packet = Packet::read(captured, None);
            let is_selected = filter.as_ref().is_none_or(|filter| filter.matches(&packet));
            if let Some(bytes) = packet.payload.filter(|bytes| *bytes > 0 && is_selected) {
                messages.push((i64::try_from(packet.at_ns).unwrap_or(i64::MAX), bytes));
            }
        });
        match next {
            Ok(true) if messages.len() > MOST_MESSAGES => {
                return Err(format!(
                    "more than {MOST_MESSAGES} packets are selected: select fewer with `filter`"
                ));
            }
            Ok(true) => {}
            Ok(false) => return Ok(messages),
            Err(error) => return Err(format!("after packet {packets}: {error}")),
        }
    }
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
