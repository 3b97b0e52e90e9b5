//! Rows of a CSV file as readings: the time of a row is the time of both request and answer.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use csv::{ByteRecord, Reader, ReaderBuilder};
use trunkline_counters::counter::{RawValue, Timestamp};

use super::time::parse_moment;
use crate::failure::Failure;
use crate::flags::monitor::CsvKind;

/// Names of a column of times.
const TIMES: [&str; 8] = ["time", "timestamp", "t_s", "time_s", "t", "date", "datetime", "start"];
/// Maximum length of a line, in bytes.
const MAX_LINE: usize = 1 << 22;

/// A selected column.
#[derive(Clone, Debug)]
pub struct CsvColumn {
    /// Its index in a row.
    index: usize,
    /// Its name.
    pub name: String,
    /// The kind of its values.
    pub kind: CsvKind,
    /// The series to import it as.
    pub series: String,
}

/// The time of a row, and one value per column.
pub type Row = (Timestamp, Vec<Option<RawValue>>);

/// A reader of the selected columns of a CSV file.
pub struct CsvRows {
    path: PathBuf,
    reader: Reader<LineLimit<File>>,
    record: ByteRecord,
    time: usize,
    last: Option<Timestamp>,
    /// The selected columns.
    pub columns: Vec<CsvColumn>,
}

/// Which columns to read, and how.
pub struct CsvOptions<'a> {
    /// The column of times.
    pub time: Option<&'a str>,
    /// The default kind.
    pub kind: CsvKind,
    /// Selected columns as `COLUMN[=[KIND:]SERIES]`; empty selects all.
    pub columns: &'a [String],
    /// The table in the default name of a series, `other/TABLE/COLUMN`.
    pub table: &'a str,
}

impl CsvRows {
    /// Opens a file and reads its header.
    pub fn open(path: &Path, options: &CsvOptions<'_>) -> Result<CsvRows, Failure> {
        CsvRows::read_header(path, options).map_err(|reason| input_error(path, &reason))
    }

    fn read_header(path: &Path, options: &CsvOptions<'_>) -> Result<CsvRows, String> {
        let open = || -> io::Result<_> {
            let mut head = vec![0; 4096];
            let length = File::open(path)?.read(&mut head)?;
            let head: Vec<u8> = head[..length].iter().copied().take_while(|b| *b != b'\n').collect();
            let separator = *[b',', b';', b'\t'].iter().find(|s| head.contains(s)).unwrap_or(&b',');
            Ok((separator, File::open(path)?))
        };
        let (separator, file) = open().map_err(|e| e.to_string())?;
        let lines = LineLimit { inner: BufReader::new(file), length: 0 };
        let mut reader = ReaderBuilder::new().delimiter(separator).comment(Some(b'#')).from_reader(lines);
        let names = reader.byte_headers().map_err(|e| describe_error(&e))?;
        let names: Vec<String> = names.iter().map(|n| String::from_utf8_lossy(n).trim().to_owned()).collect();
        let index_of =
            |name: &str| names.iter().position(|n| n == name).ok_or(format!("there is no column `{name}`"));
        let time = match options.time {
            Some(name) => index_of(name)?,
            None => time_column(&names).unwrap_or(0),
        };
        let column = |index: usize, rest: &str| {
            let (name, (kind, series)) = (&names[index], parse_kind_and_series(rest, options.kind));
            let series = series.unwrap_or_else(|| default_series(options, name));
            CsvColumn { index, name: name.clone(), kind, series }
        };
        let mut columns = Vec::new();
        for text in options.columns {
            let (name, rest) = text.split_once('=').unwrap_or((text, ""));
            columns.push(column(index_of(name)?, rest));
        }
        if options.columns.is_empty() {
            columns.extend((0..names.len()).filter(|index| *index != time).map(|index| column(index, "")));
        }
        match columns.is_empty() {
            true => Err("it has no column besides the times".into()),
            false => Ok(CsvRows {
                path: path.into(),
                reader,
                record: ByteRecord::new(),
                time,
                last: None,
                columns,
            }),
        }
    }

    /// Returns the next row; `None` at the end. Times must increase.
    pub fn row(&mut self) -> Result<Option<Row>, Failure> {
        self.read_row().map_err(|reason| input_error(&self.path, &reason))
    }

    fn read_row(&mut self) -> Result<Option<Row>, String> {
        if !self.reader.read_byte_record(&mut self.record).map_err(|e| describe_error(&e))? {
            return Ok(None);
        }
        let line = self.record.position().map_or(0, csv::Position::line);
        let cell = |index: usize| str::from_utf8(self.record.get(index).unwrap_or_default()).map(str::trim);
        let excerpt = |index: usize| {
            let text = String::from_utf8_lossy(self.record.get(index).unwrap_or_default());
            text.chars().take(40).collect::<String>()
        };
        let Some(at) = cell(self.time).ok().and_then(parse_moment) else {
            let expected = "is not a time: seconds since 1970, or as 2026-01-31T12:00:00Z";
            return Err(format!("line {line}: `{}` {expected}", excerpt(self.time)));
        };
        if self.last.is_some_and(|last| at <= last) {
            return Err(format!("line {line}: its time is not after the time of the previous row"));
        }
        self.last = Some(at);
        let mut values = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let parse_value = cell(column.index).ok().and_then(|text| value(text, column.kind));
            values.push(parse_value.ok_or_else(|| {
                format!(
                    "line {line}: `{}` in column `{}` is {}",
                    excerpt(column.index),
                    column.name,
                    type_error(column.kind)
                )
            })?);
        }
        Ok(Some((at, values)))
    }
}

/// Returns an error of a file.
pub fn input_error(path: &Path, reason: &str) -> Failure {
    Failure::input(format!("{}: {reason}", path.display()))
}

/// Returns the first column whose name is one of a column of times.
pub fn time_column(names: &[String]) -> Option<usize> {
    names.iter().position(|n| TIMES.contains(&n.to_lowercase().as_str()))
}

fn default_series(options: &CsvOptions<'_>, name: &str) -> String {
    use trunkline_counters::archive::{Object, SeriesName};
    SeriesName { object: Object::Other(options.table.into()), direction: None, quantity: name.into() }
        .to_string()
}

/// Parses `[KIND:]SERIES`.
fn parse_kind_and_series(text: &str, default: CsvKind) -> (CsvKind, Option<String>) {
    use clap::ValueEnum;
    let (kind, series) = match text.split_once(':') {
        Some((word, rest)) => match CsvKind::from_str(word, false) {
            Ok(kind) => (kind, rest),
            Err(_) => (default, text),
        },
        None => (default, text),
    };
    (kind, (!series.is_empty()).then(|| series.to_owned()))
}

/// Parses a cell; an empty cell has no value. Returns `None` if the cell is invalid.
fn value(text: &str, kind: CsvKind) -> Option<Option<RawValue>> {
    if text.is_empty() {
        return Some(None);
    }
    let raw = match kind {
        CsvKind::Counter32 => RawValue(text.parse::<u32>().ok()?.into()),
        CsvKind::Counter64 | CsvKind::Amount => RawValue(text.parse().ok()?),
        CsvKind::Gauge => RawValue::from_gauge(text.parse().ok()?),
        CsvKind::Real => RawValue::from_real(text.parse().ok()?),
    };
    Some(Some(raw))
}

fn type_error(kind: CsvKind) -> &'static str {
    match kind {
        CsvKind::Counter32 => "not an integer from 0 to 2^32 - 1",
        CsvKind::Counter64 | CsvKind::Amount => "not an integer from 0 on",
        CsvKind::Gauge => "not an integer",
        CsvKind::Real => "not a number",
    }
}

fn describe_error(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { pos, expected_len, len } => {
            let line = pos.as_ref().map_or(0, csv::Position::line);
            format!("line {line} has {len} fields, the header has {expected_len}")
        }
        _ => error.to_string(),
    }
}

/// A reader that fails on lines longer than [`MAX_LINE`], which would exhaust the memory.
struct LineLimit<R> {
    inner: BufReader<R>,
    length: usize,
}

impl<R: Read> Read for LineLimit<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        self.length = match into[..count].iter().rposition(|b| *b == b'\n') {
            Some(at) => count - at,
            None => self.length + count,
        };
        if self.length > MAX_LINE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is longer than 4 MiB"));
        }
        Ok(count)
    }
}
