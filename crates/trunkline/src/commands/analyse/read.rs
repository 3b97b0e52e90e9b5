//! Series from files: the columns of a CSV, the connections of records.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::rc::Rc;

use trunkline_counters::archive::Location;
use trunkline_record::Record;
use trunkline_traffic::Series;
use trunkline_traffic::series::LONGEST;
use trunkline_units::Span;

use super::archived;
use crate::archive;
use crate::failure::Failure;
use crate::flags::ArchivePlace;
use crate::flags::analyse::{Unit, Values};

/// Bytes of a CSV file that are read.
const LARGEST_FILE: u64 = 1 << 29;

/// Names of a column of times.
const TIMES: [&str; 8] = ["t_s", "time", "timestamp", "time_s", "t", "date", "datetime", "start"];

/// One column, and the times it shares with others.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    times: Option<Rc<Times>>,
    values: Vec<Option<f64>>,
    /// The first line that holds something else than a number.
    wrong: Option<u64>,
}

#[derive(Debug, Default)]
struct Times {
    ns: Vec<i64>,
    /// They are of the calendar, and count from 1970 on.
    calendar: bool,
    /// They say when an interval ends, as those of a run do, whose last is shorter.
    ends: bool,
}

/// A column as a series.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub name: String,
    /// Amounts of `unit`.
    pub series: Series,
    pub unit: Option<Unit>,
    /// Its times are of the calendar.
    pub calendar: bool,
    /// Values of a run that were left out: they stood for less than an interval.
    pub partial: usize,
}

/// What was said about how to read.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    pub time: Option<&'a str>,
    pub every: Option<Span>,
    pub values: Option<Values>,
    pub unit: Option<Unit>,
    /// Of an archive of counters, which series.
    pub column: Option<&'a str>,
    pub archive: &'a ArchivePlace,
}

/// Every column of a file or figure of a run.
pub fn columns(name: &str, reading: &Reading<'_>) -> Result<Vec<Column>, Failure> {
    let path = Path::new(name);
    let at = Location::from(name);
    let number = name.trim_start_matches('#').parse::<i64>().is_ok() && !path.exists();
    let record = number || path.is_dir() || path.extension().is_some_and(|e| e == "json");
    if record && at.file().is_some() {
        let records = archive::records(&[name.to_owned()], reading.archive)?;
        return Ok(of_records(&records));
    }
    if archived::is_archive(&at) {
        return archived::columns(&at, reading);
    }
    let fail = |why: String| Failure::input(format!("{name}: {why}"));
    match name {
        "-" => table(io::stdin().lock(), reading.time).map_err(fail),
        _ => {
            let file = File::open(path).map_err(|e| fail(e.to_string()))?;
            table(BufReader::new(file), reading.time).map_err(fail)
        }
    }
}

/// The column of this name, else the first of numbers.
pub fn choose<'a>(columns: &'a [Column], name: Option<&str>, from: &str) -> Result<&'a Column, Failure> {
    let found = match name {
        Some(name) => columns.iter().find(|c| c.name == name),
        None => columns.iter().find(|c| c.is_numbers()),
    };
    found.ok_or_else(|| {
        let names: Vec<&str> = columns.iter().take(20).map(|c| c.name.as_str()).collect();
        let has = if names.is_empty() { "none".into() } else { names.join(", ") };
        Failure::input(match name {
            Some(name) => format!("{from}: there is no column `{name}`; there are: {has}"),
            None => format!("{from}: no column holds numbers; there are: {has}"),
        })
    })
}

impl Column {
    /// Amounts of intervals that begin at these nanoseconds since 1970.
    pub(super) fn of_intervals(name: String, ns: Vec<i64>, values: Vec<Option<f64>>) -> Column {
        let times = Times { ns, calendar: true, ends: false };
        Column { name, times: Some(Rc::new(times)), values, wrong: None }
    }

    /// Numbers and nothing else, and at least one.
    pub fn is_numbers(&self) -> bool {
        self.wrong.is_none() && self.values.iter().any(Option::is_some)
    }

    /// The column as amounts in equal intervals.
    pub fn load(&self, reading: &Reading<'_>) -> Result<Loaded, String> {
        if let Some(line) = self.wrong {
            return Err(format!("line {line} of column `{}` is not a number", self.name));
        }
        let (start_ns, grain, mut values, partial) = match &self.times {
            None => {
                let grain =
                    reading.every.ok_or("there are no times: say how long an interval is, with --every")?;
                (0, grain, self.values.clone(), 0)
            }
            Some(times) => times.lay(&self.values, reading.every)?,
        };
        let (values_say, unit) = meaning(&self.name);
        if reading.values.unwrap_or(values_say) == Values::Rates {
            values.iter_mut().flatten().for_each(|v| *v *= grain.as_s());
        }
        let series = Series::new(start_ns, grain, values).map_err(|e| e.to_string())?;
        if series.known().next().is_none() {
            return Err(format!("column `{}` holds no number", self.name));
        }
        let calendar = self.times.as_ref().is_some_and(|t| t.calendar);
        Ok(Loaded { name: self.name.clone(), series, unit: reading.unit.or(unit), calendar, partial })
    }
}

/// What a name says of its values.
fn meaning(name: &str) -> (Values, Option<Unit>) {
    let name = name.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let rate = name.ends_with("bps") || name.ends_with("_per_s");
    let unit = match () {
        () if name.ends_with("bps") || has(&["bits"]) => Some(Unit::Bits),
        () if has(&["bytes", "octets"]) => Some(Unit::Bytes),
        () if has(&["cells"]) => Some(Unit::Cells),
        () if has(&["packets", "messages", "pkts", "pdus"]) => Some(Unit::Messages),
        () => None,
    };
    (if rate { Values::Rates } else { Values::Amounts }, unit)
}

// --- times to intervals

type Laid = (i64, Span, Vec<Option<f64>>, usize);

impl Times {
    /// Puts values in intervals: as said, else as long as most are apart.
    fn lay(&self, values: &[Option<f64>], every: Option<Span>) -> Result<Laid, String> {
        let mut points: Vec<(i64, Option<f64>)> =
            self.ns.iter().copied().zip(values.iter().copied()).collect();
        points.sort_by_key(|p| p.0);
        let apart = match every {
            Some(span) => span.as_ns() as i64,
            None => usual_step(&points).ok_or("times tell no interval: say how long one is, with --every")?,
        };
        let first = points.first().ok_or("it holds nothing")?.0;
        let mut slots: Vec<(i64, Option<f64>)> = Vec::with_capacity(points.len());
        let (mut partial, mut before, mut slot) = (0, first, 0);
        for (at, value) in points {
            let off = i128::from(at) - i128::from(if every.is_some() { first } else { before });
            let steps = (off as f64 / apart as f64).round();
            let uneven = (off as f64 / apart as f64 - steps).abs() > 0.05;
            if self.ends && uneven {
                partial += 1;
                continue;
            }
            let next = if every.is_some() { steps as i64 } else { slot + steps as i64 };
            if next >= LONGEST as i64 {
                return Err(format!("the times leave room for more than {LONGEST} intervals"));
            }
            if slots.last().is_some_and(|(last, _)| *last == next) {
                let at = at as f64 / 1e9;
                return Err(format!(
                    "two values are in the interval at {at} s: say how long one is, with --every"
                ));
            }
            slots.push((next, value));
            (before, slot) = (at, next);
        }
        let grain = every.map_or_else(|| even(apart, first, before, slot), |e| e.as_ns() as i64);
        let mut laid = vec![None; slot as usize + 1];
        slots.into_iter().for_each(|(slot, value)| laid[slot as usize] = value);
        let start = if self.ends { first.saturating_sub(grain) } else { first };
        Ok((start, Span::from_ns(grain as u64), laid, partial))
    }
}

/// The median step between times.
fn usual_step(points: &[(i64, Option<f64>)]) -> Option<i64> {
    let mut steps: Vec<i64> =
        points.windows(2).map(|p| p[1].0.saturating_sub(p[0].0)).filter(|s| *s > 0).collect();
    steps.sort_unstable();
    steps.get(steps.len() / 2).copied()
}

/// The mean step; rounded to two digits if that moves no value by half an interval: who polls every 15 s does so every
/// 15.003 s now and then.
fn even(usual: i64, first: i64, last: i64, steps: i64) -> i64 {
    if steps == 0 {
        return usual;
    }
    let mean = (last.saturating_sub(first)) as f64 / steps as f64;
    let digit = 10f64.powi(mean.log10().floor() as i32 - 1);
    let round = (mean / digit).round() * digit;
    let drift = (round - mean).abs() * steps as f64;
    (if drift < mean / 2.0 { round } else { mean }).round().max(1.0) as i64
}

// --- CSV

/// The columns of a CSV: comma, semicolon or tab, a first line of names unless it is numbers, `#` begins a comment.
fn table(mut input: impl BufRead, time: Option<&str>) -> Result<Vec<Column>, String> {
    let start = input.fill_buf().map_err(|e| e.to_string())?;
    // The first line that is no comment tells.
    let line = start.split(|b| *b == b'\n').find(|line| !line.trim_ascii().is_empty() && line[0] != b'#');
    let has = |d: &u8| line.is_some_and(|line| line.contains(d));
    let delimiter = [b';', b'\t'].into_iter().find(has).unwrap_or(b',');
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .comment(Some(b'#'))
        .delimiter(delimiter)
        .trim(csv::Trim::All)
        .from_reader(input.take(LARGEST_FILE));
    let mut rows = Rows::default();
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(|e| told(&e))? {
        rows.add(&record)?;
    }
    if reader.get_ref().limit() == 0 {
        return Err(format!("it is larger than {} MiB", LARGEST_FILE >> 20));
    }
    rows.columns(time)
}

/// In one line.
fn told(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::Io(e) => e.to_string(),
        csv::ErrorKind::Utf8 { pos: Some(pos), .. } => format!("line {} is not text", pos.line()),
        _ => "it is not CSV".into(),
    }
}

/// A table of text, column by column.
#[derive(Debug, Default)]
struct Rows {
    names: Option<Vec<String>>,
    cells: Vec<Vec<Cell>>,
    lines: Vec<u64>,
    count: usize,
}

#[derive(Clone, Debug)]
enum Cell {
    Number(f64),
    Missing,
    Text(Box<str>),
}

impl Rows {
    fn add(&mut self, record: &csv::StringRecord) -> Result<(), String> {
        let line = record.position().map_or(0, csv::Position::line);
        if self.names.is_none() {
            let numbers = record.iter().all(|f| f.parse::<f64>().is_ok());
            let name =
                |(i, field): (usize, &str)| if numbers { (i + 1).to_string() } else { field.to_owned() };
            self.names = Some(record.iter().enumerate().map(name).collect());
            self.cells = vec![Vec::new(); record.len()];
            if !numbers {
                return Ok(());
            }
        }
        if record.len() > self.cells.len() {
            return Err(format!("line {line} has more fields than the first"));
        }
        self.count += self.cells.len();
        if self.count > LONGEST {
            return Err(format!("it has more than {LONGEST} fields"));
        }
        for (i, column) in self.cells.iter_mut().enumerate() {
            column.push(match record.get(i).unwrap_or_default() {
                "" => Cell::Missing,
                field => match field.parse::<f64>() {
                    Ok(v) if v.is_finite() => Cell::Number(v),
                    Ok(_) => Cell::Missing,
                    Err(_) => Cell::Text(field.into()),
                },
            });
        }
        self.lines.push(line);
        Ok(())
    }

    fn columns(self, time: Option<&str>) -> Result<Vec<Column>, String> {
        let names = self.names.clone().ok_or("it holds nothing")?;
        let place = |name: &str| names.iter().position(|n| n == name);
        if let (Some(c), Some(t), Some(f), Some(v)) =
            (place("connection"), place("t_s"), place("figure"), place("value"))
        {
            return self.long(place("backend"), [c, t, f, v]);
        }
        let known = || {
            let named = |n: &String| TIMES.contains(&n.to_lowercase().as_str());
            names.iter().position(named).or((names.len() > 1).then_some(0))
        };
        let at = match time {
            Some(name) => Some(place(name).ok_or_else(|| format!("there is no column `{name}`"))?),
            None => known(),
        };
        let times = at.map(|at| self.times(at, &names[at])).transpose()?.map(Rc::new);
        let mut columns = Vec::new();
        for (i, cells) in self.cells.into_iter().enumerate().filter(|(i, _)| Some(*i) != at) {
            let text = cells.iter().position(|c| matches!(c, Cell::Text(_)));
            columns.push(Column {
                name: names[i].clone(),
                times: times.clone(),
                values: cells.iter().map(Cell::number).collect(),
                wrong: text.map(|row| self.lines[row]),
            });
        }
        Ok(columns)
    }

    fn times(&self, at: usize, name: &str) -> Result<Times, String> {
        let calendar = self.cells[at].iter().any(|c| matches!(c, Cell::Text(_)));
        let time = |(cell, line): (&Cell, &u64)| {
            cell.time_ns().ok_or_else(|| {
                format!("line {line} of column `{name}` is not a time: seconds, or as 2026-01-31T12:00:00Z")
            })
        };
        let ns = self.cells[at].iter().zip(&self.lines).map(time).collect::<Result<_, _>>()?;
        Ok(Times { ns, calendar, ends: name == "t_s" })
    }

    /// What `trunkline records export --series` writes: a row for each number.
    fn long(&self, backend: Option<usize>, [c, t, f, v]: [usize; 4]) -> Result<Vec<Column>, String> {
        let times = self.times(t, "t_s")?;
        let word = |column: usize, row: usize| match &self.cells[column][row] {
            Cell::Text(text) => text.to_string(),
            Cell::Number(number) => number.to_string(),
            Cell::Missing => String::new(),
        };
        let several = backend.is_some_and(|b| (1..self.lines.len()).any(|row| word(b, row) != word(b, 0)));
        let mut found: Vec<(String, Times, Vec<Option<f64>>)> = Vec::new();
        for (row, ns) in times.ns.into_iter().enumerate() {
            let before = backend.filter(|_| several).map_or_else(String::new, |b| word(b, row) + ".");
            let name = format!("{before}{}.{}", word(c, row), word(f, row));
            // Rows of one figure alternate with those of a few others.
            let at = found.iter().rposition(|(n, ..)| *n == name).unwrap_or_else(|| {
                found.push((name, Times { ends: true, ..Times::default() }, Vec::new()));
                found.len() - 1
            });
            found[at].1.ns.push(ns);
            found[at].2.push(self.cells[v][row].number());
        }
        let column =
            |(name, times, values)| Column { name, times: Some(Rc::new(times)), values, wrong: None };
        Ok(found.into_iter().map(column).collect())
    }
}

impl Cell {
    fn number(&self) -> Option<f64> {
        match self {
            Cell::Number(v) => Some(*v),
            Cell::Missing | Cell::Text(_) => None,
        }
    }

    /// Seconds, or a moment of the calendar.
    fn time_ns(&self) -> Option<i64> {
        match self {
            Cell::Number(s) => nanoseconds(*s),
            Cell::Text(text) => i64::try_from(text.parse::<jiff::Timestamp>().ok()?.as_nanosecond()).ok(),
            Cell::Missing => None,
        }
    }
}

fn nanoseconds(s: f64) -> Option<i64> {
    let ns = (s * 1e9).round();
    (-9.2e18..9.2e18).contains(&ns).then_some(ns as i64)
}

// --- records

fn of_records(records: &[Record]) -> Vec<Column> {
    let mut columns = Vec::new();
    for record in records {
        let backend = if records.len() > 1 { format!("{}.", record.backend) } else { String::new() };
        for c in &record.connections {
            let ns = c.series.iter().map(|p| nanoseconds(p.t_s).unwrap_or(0)).collect();
            let times = Rc::new(Times { ns, calendar: false, ends: true });
            let mut add = |name: &str, values: Vec<Option<f64>>| {
                let name = format!("{backend}{}.{name}", c.name);
                columns.push(Column { name, times: Some(times.clone()), values, wrong: None });
            };
            add("received_bps", c.series.iter().map(|p| Some(p.received_bps)).collect());
            add("sent_bps", c.series.iter().map(|p| Some(p.sent_bps)).collect());
            let more: std::collections::BTreeSet<&String> =
                c.series.iter().flat_map(|p| p.more.keys()).collect();
            for name in more {
                add(name, c.series.iter().map(|p| p.more.get(name).copied()).collect());
            }
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Column>, String> {
        table(text.as_bytes(), None)
    }

    fn load(text: &str, name: &str, every: Option<Span>) -> Result<Loaded, String> {
        let columns = read(text)?;
        let archive = ArchivePlace { archive: None };
        let reading =
            Reading { time: None, every, values: None, unit: None, column: None, archive: &archive };
        columns.iter().find(|c| c.name == name).expect("the column").load(&reading)
    }

    #[test]
    fn columns_are_read() {
        let found = load("time,bytes\n0,10\n15,\n30,30\n60,50\n75,7\n", "bytes", None).unwrap();
        assert_eq!(found.series.grain(), Span::from_s(15));
        assert_eq!(found.series.values(), [Some(10.0), None, Some(30.0), None, Some(50.0), Some(7.0)]);
        assert_eq!((found.unit, found.calendar, found.series.start_ns()), (Some(Unit::Bytes), false, 0));
        // Another separator, comments, times of the calendar, a rate.
        let text = "# a poller\ntimestamp;in_bps\n1995-12-04T14:48:34Z;800\n1995-12-04T14:48:49Z;1600\n";
        let found = load(text, "in_bps", None).unwrap();
        assert_eq!(found.series.values(), [Some(12_000.0), Some(24_000.0)]);
        assert_eq!((found.unit, found.calendar), (Some(Unit::Bits), true));
        assert_eq!(found.series.start_ns(), 818_088_514_000_000_000);
        // Numbers alone.
        let found = load("3\n4\n5\n", "1", Some(Span::from_s(1))).unwrap();
        assert_eq!(found.series.values(), [Some(3.0), Some(4.0), Some(5.0)]);
    }

    #[test]
    fn polls_that_come_a_little_late_keep_their_interval() {
        let mut text = String::from("time,cells\n");
        for i in 0..2000 {
            let late = f64::from(i % 7) * 0.2 + 0.003;
            text += &format!("{},{i}\n", f64::from(i) * 15.0 + late);
        }
        let found = load(&text, "cells", None).unwrap();
        assert_eq!((found.series.grain(), found.series.values().len()), (Span::from_s(15), 2000));
        assert_eq!(found.series.gaps(), 0);
        // A grain that is not round stays as it is.
        let text: String = (0..300).map(|i| format!("{},1\n", f64::from(i) / 15.0)).collect();
        let grain = load(&text, "2", None).unwrap().series.grain();
        assert_eq!(grain, Span::from_ns(66_666_667));
    }

    #[test]
    fn a_run_leaves_its_last_part_of_an_interval_out() {
        let text = "backend,connection,t_s,figure,value\nsim,a,0.1,sent_bps,80\nsim,a,0.1,received_bps,8\n\
                    sim,a,0.2,sent_bps,160\nsim,a,0.2,received_bps,8\nsim,a,0.23,sent_bps,1e6\n";
        let columns = read(text).unwrap();
        assert_eq!(
            columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(),
            ["a.sent_bps", "a.received_bps"]
        );
        let found = load(text, "a.sent_bps", None).unwrap();
        assert_eq!((found.partial, found.series.start_ns()), (1, 0));
        assert_eq!(found.series.values(), [Some(8.0), Some(16.0)]);
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        let wrong = |text: &str, name: &str, what: &str| {
            let why = load(text, name, None).unwrap_err();
            assert!(why.contains(what) && !why.contains('\n'), "{why}");
        };
        wrong("time,bytes\n0,10\n1,ten\n", "bytes", "line 3 of column `bytes` is not a number");
        wrong("time,bytes\n0,10\nlater,1\n", "bytes", "line 3 of column `time` is not a time");
        wrong("time,bytes\n0,10\n1,2\n1,2\n2,2\n", "bytes", "two values are in the interval at 1 s");
        wrong("time,bytes\n5,10\n", "bytes", "--every");
        wrong("bytes\n5\n", "bytes", "--every");
        wrong("time,bytes\n0,\n1,\n", "bytes", "holds no number");
        wrong("time,bytes\n0,1\n1,1\n2,1\n900000000,1\n", "bytes", "more than 16777216 intervals");
        wrong("time,bytes\n0,1\n1e300,1\n", "bytes", "not a time");
        assert_eq!(read("").unwrap_err(), "it holds nothing");
        assert!(read("a,b\n1,2,3\n").unwrap_err().contains("line 2 has more fields"));
        assert!(table(&b"a,b\n\xff,1\n"[..], None).unwrap_err().contains("line 2 is not text"));
        assert!(table(&b"a,b\n1,1\n"[..], Some("c")).unwrap_err().contains("no column `c`"));
    }
}
