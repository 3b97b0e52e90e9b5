//! A CSV file as responses: a row is an answer, its time when it was asked and answered.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use csv::{ByteRecord, Reader, ReaderBuilder};
use trunkline_counters::counter::{Moment, Raw};

use super::time::moment;
use crate::flags::counters::CsvKind;

/// Names of a column of times.
const TIMES: [&str; 8] = ["time", "timestamp", "t_s", "time_s", "t", "date", "datetime", "start"];
/// Most octets of a line.
const LONGEST: usize = 1 << 22;

/// A column that is read.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Its place in a row.
    at: usize,
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: CsvKind,
    /// The series that it becomes.
    pub series: String,
}

/// The time of a row, and a value a column.
pub type Row = (Moment, Vec<Option<Raw>>);

/// An open file.
pub struct Rows {
    reader: Reader<Lines<File>>,
    record: ByteRecord,
    time: usize,
    last: Option<Moment>,
    /// What is read of each row.
    pub columns: Vec<Chosen>,
}

/// What was asked of the file.
pub struct Asked<'a> {
    /// The column of times.
    pub time: Option<&'a str>,
    /// What columns hold.
    pub kind: CsvKind,
    /// `COLUMN[=[KIND:]SERIES]`; empty: all.
    pub columns: &'a [String],
    /// Names of series of which nothing is said: `other/TABLE/COLUMN`.
    pub table: &'a str,
}

impl Rows {
    /// Opens it and reads its row of names. What is wrong is said in one line.
    pub fn open(path: &Path, asked: &Asked<'_>) -> Result<Rows, String> {
        let open = || -> io::Result<_> {
            let mut head = vec![0; 4096];
            let length = File::open(path)?.read(&mut head)?;
            let head: Vec<u8> = head[..length].iter().copied().take_while(|b| *b != b'\n').collect();
            let separator = *[b',', b';', b'\t'].iter().find(|s| head.contains(s)).unwrap_or(&b',');
            Ok((separator, File::open(path)?))
        };
        let (separator, file) = open().map_err(|e| e.to_string())?;
        let lines = Lines { inner: BufReader::new(file), length: 0 };
        let mut reader = ReaderBuilder::new().delimiter(separator).comment(Some(b'#')).from_reader(lines);
        let names = reader.byte_headers().map_err(|e| wrong(&e))?;
        let names: Vec<String> = names.iter().map(|n| String::from_utf8_lossy(n).trim().to_owned()).collect();
        let place =
            |name: &str| names.iter().position(|n| n == name).ok_or(format!("there is no column `{name}`"));
        let time = match asked.time {
            Some(name) => place(name)?,
            None => names.iter().position(|n| TIMES.contains(&n.to_lowercase().as_str())).unwrap_or(0),
        };
        let mut columns = Vec::new();
        for text in asked.columns {
            let (name, rest) = text.split_once('=').unwrap_or((text, ""));
            let (kind, series) = as_said(rest, asked.kind);
            let at = place(name)?;
            columns.push(Chosen {
                at,
                name: name.to_owned(),
                kind,
                series: series.unwrap_or_else(|| usual(asked, name)),
            });
        }
        if asked.columns.is_empty() {
            let rest = names.iter().enumerate().filter(|(at, _)| *at != time);
            columns.extend(rest.map(|(at, name)| Chosen {
                at,
                name: name.clone(),
                kind: asked.kind,
                series: usual(asked, name),
            }));
        }
        match columns.is_empty() {
            true => Err("it has no column beside that of times".into()),
            false => Ok(Rows { reader, record: ByteRecord::new(), time, last: None, columns }),
        }
    }

    /// The next row: its time, later than the one before, and a value a column.
    pub fn row(&mut self) -> Result<Option<Row>, String> {
        if !self.reader.read_byte_record(&mut self.record).map_err(|e| wrong(&e))? {
            return Ok(None);
        }
        let line = self.record.position().map_or(0, csv::Position::line);
        let cell = |at: usize| str::from_utf8(self.record.get(at).unwrap_or_default()).map(str::trim);
        let shown = |at: usize| {
            let text = String::from_utf8_lossy(self.record.get(at).unwrap_or_default());
            text.chars().take(40).collect::<String>()
        };
        let Some(at) = cell(self.time).ok().and_then(moment) else {
            let what = "is no time: seconds since 1970, or as 2026-01-31T12:00:00Z";
            return Err(format!("line {line}: `{}` {what}", shown(self.time)));
        };
        if self.last.is_some_and(|last| at <= last) {
            return Err(format!("line {line}: its time is not after that of the row before"));
        }
        self.last = Some(at);
        let mut values = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let value = cell(column.at).ok().and_then(|text| value(text, column.kind));
            values.push(value.ok_or_else(|| {
                format!(
                    "line {line}: `{}` in column `{}` is {}",
                    shown(column.at),
                    column.name,
                    wanted(column.kind)
                )
            })?);
        }
        Ok(Some((at, values)))
    }
}

fn usual(asked: &Asked<'_>, name: &str) -> String {
    use trunkline_counters::archive::{Object, Place};
    Place { object: Object::Other(asked.table.into()), direction: None, quantity: name.into() }.to_string()
}

/// `[KIND:]SERIES`.
fn as_said(text: &str, usual: CsvKind) -> (CsvKind, Option<String>) {
    use clap::ValueEnum;
    let (kind, series) = match text.split_once(':') {
        Some((word, rest)) => match CsvKind::from_str(word, false) {
            Ok(kind) => (kind, rest),
            Err(_) => (usual, text),
        },
        None => (usual, text),
    };
    (kind, (!series.is_empty()).then(|| series.to_owned()))
}

/// A cell's value; an empty one has none. None at all: it is something else.
fn value(text: &str, kind: CsvKind) -> Option<Option<Raw>> {
    if text.is_empty() {
        return Some(None);
    }
    let raw = match kind {
        CsvKind::Counter32 => Raw(text.parse::<u32>().ok()?.into()),
        CsvKind::Counter64 | CsvKind::Amount => Raw(text.parse().ok()?),
        CsvKind::Gauge => Raw::gauge(text.parse().ok()?),
        CsvKind::Real => Raw::real(text.parse().ok()?),
    };
    Some(Some(raw))
}

fn wanted(kind: CsvKind) -> &'static str {
    match kind {
        CsvKind::Counter32 => "no whole number below 2^32",
        CsvKind::Counter64 | CsvKind::Amount => "no whole number from 0 on",
        CsvKind::Gauge => "no whole number",
        CsvKind::Real => "no number",
    }
}

fn wrong(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { pos, expected_len, len } => {
            let line = pos.as_ref().map_or(0, csv::Position::line);
            format!("line {line} has {len} fields, the row of names {expected_len}")
        }
        csv::ErrorKind::Io(error) => error.to_string(),
        _ => error.to_string(),
    }
}

/// A file whose lines have an end: one without would fill the memory.
struct Lines<R> {
    inner: BufReader<R>,
    length: usize,
}

impl<R: Read> Read for Lines<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        self.length = match into[..count].iter().rposition(|b| *b == b'\n') {
            Some(at) => count - at,
            None => self.length + count,
        };
        if self.length > LONGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is longer than 4 MiB"));
        }
        Ok(count)
    }
}
