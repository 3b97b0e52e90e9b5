//! The columns of a CSV file.

use std::io::BufRead;
use std::rc::Rc;

use trunkline_traffic::series::LONGEST;

use super::column::{Column, Times, nanoseconds};
use crate::commands::monitor::csv::time_column;

/// Maximum size of a CSV file, in bytes.
const MAX_FILE: u64 = 1 << 29;

/// Reads the columns of a CSV file: separated by comma, semicolon or tab, with a header unless the first line is numbers, `#`
/// starts a comment.
pub fn table(mut input: impl BufRead, time: Option<&str>) -> Result<Vec<Column>, String> {
    let start = input.fill_buf().map_err(|e| e.to_string())?;
    // The first line that is not a comment determines the separator.
    let line = start.split(|b| *b == b'\n').find(|line| !line.trim_ascii().is_empty() && line[0] != b'#');
    let has = |d: &u8| line.is_some_and(|line| line.contains(d));
    let delimiter = [b';', b'\t'].into_iter().find(has).unwrap_or(b',');
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .comment(Some(b'#'))
        .delimiter(delimiter)
        .trim(csv::Trim::All)
        .from_reader(input.take(MAX_FILE));
    let mut rows = Rows::default();
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(|e| describe_error(&e))? {
        rows.add(&record)?;
    }
    if reader.get_ref().limit() == 0 {
        return Err(format!("it is larger than {} MiB", MAX_FILE >> 20));
    }
    rows.columns(time)
}

/// Describes an error in one line.
fn describe_error(error: &csv::Error) -> String {
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
        let index_of = |name: &str| names.iter().position(|n| n == name);
        if let (Some(c), Some(t), Some(f), Some(v)) =
            (index_of("connection"), index_of("t_s"), index_of("figure"), index_of("value"))
        {
            return self.long(index_of("backend"), [c, t, f, v]);
        }
        let default = || time_column(&names).or((names.len() > 1).then_some(0));
        let at = match time {
            Some(name) => Some(index_of(name).ok_or_else(|| format!("there is no column `{name}`"))?),
            None => default(),
        };
        let times = at.map(|at| self.times(at, &names[at])).transpose()?.map(Rc::new);
        let mut columns = Vec::new();
        for (i, cells) in self.cells.into_iter().enumerate().filter(|(i, _)| Some(*i) != at) {
            let text = cells.iter().position(|c| matches!(c, Cell::Text(_)));
            columns.push(Column {
                name: names[i].clone(),
                times: times.clone(),
                values: cells.iter().map(Cell::number).collect(),
                invalid_line: text.map(|row| self.lines[row]),
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

    /// Reads the output of `trunkline records export --series`, with one row per value.
    fn long(&self, backend: Option<usize>, [c, t, f, v]: [usize; 4]) -> Result<Vec<Column>, String> {
        let times = self.times(t, "t_s")?;
        let word = |column: usize, row: usize| match &self.cells[column][row] {
            Cell::Text(text) => text.to_string(),
            Cell::Number(number) => number.to_string(),
            Cell::Missing => String::new(),
        };
        let has_backends =
            backend.is_some_and(|b| (1..self.lines.len()).any(|row| word(b, row) != word(b, 0)));
        let mut found: Vec<(String, Times, Vec<Option<f64>>)> = Vec::new();
        for (row, ns) in times.ns.into_iter().enumerate() {
            let before = backend.filter(|_| has_backends).map_or_else(String::new, |b| word(b, row) + ".");
            let name = format!("{before}{}.{}", word(c, row), word(f, row));
            // Rows of one figure alternate with rows of a few others, so search from the end.
            let at = found.iter().rposition(|(n, ..)| *n == name).unwrap_or_else(|| {
                found.push((name, Times { ends: true, ..Times::default() }, Vec::new()));
                found.len() - 1
            });
            found[at].1.ns.push(ns);
            found[at].2.push(self.cells[v][row].number());
        }
        let column =
            |(name, times, values)| Column { name, times: Some(Rc::new(times)), values, invalid_line: None };
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

    /// Returns a time in nanoseconds, from seconds or a date.
    fn time_ns(&self) -> Option<i64> {
        match self {
            Cell::Number(s) => nanoseconds(*s),
            Cell::Text(text) => i64::try_from(text.parse::<jiff::Timestamp>().ok()?.as_nanosecond()).ok(),
            Cell::Missing => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::Span;

    use super::super::column::{Loaded, Reading};
    use super::*;
    use crate::flags::RunArchive;
    use crate::flags::analyse::Unit;

    fn read(text: &str) -> Result<Vec<Column>, String> {
        table(text.as_bytes(), None)
    }

    fn load(text: &str, name: &str, interval: Option<Span>) -> Result<Loaded, String> {
        let columns = read(text)?;
        let archive = RunArchive { archive: None };
        let reading =
            Reading { time: None, interval, values: None, unit: None, column: None, archive: &archive };
        columns.iter().find(|c| c.name == name).expect("the column").load(&reading)
    }

    #[test]
    fn columns_are_parsed() {
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
        // Numbers without a header.
        let found = load("3\n4\n5\n", "1", Some(Span::from_s(1))).unwrap();
        assert_eq!(found.series.values(), [Some(3.0), Some(4.0), Some(5.0)]);
    }

    #[test]
    fn slightly_late_polls_keep_their_interval() {
        let mut text = String::from("time,cells\n");
        for i in 0..2000 {
            let lateness = f64::from(i % 7) * 0.2 + 0.003;
            text += &format!("{},{i}\n", f64::from(i) * 15.0 + lateness);
        }
        let found = load(&text, "cells", None).unwrap();
        assert_eq!((found.series.grain(), found.series.values().len()), (Span::from_s(15), 2000));
        assert_eq!(found.series.gaps(), 0);
        // An interval that is not round is not rounded.
        let text: String = (0..300).map(|i| format!("{},1\n", f64::from(i) / 15.0)).collect();
        let grain = load(&text, "2", None).unwrap().series.grain();
        assert_eq!(grain, Span::from_ns(66_666_667));
    }

    #[test]
    fn the_last_partial_interval_of_a_run_is_left_out() {
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
    fn errors_are_one_line() {
        let assert_error = |text: &str, name: &str, expected: &str| {
            let error = load(text, name, None).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        };
        assert_error("time,bytes\n0,10\n1,ten\n", "bytes", "line 3 of column `bytes` is not a number");
        assert_error("time,bytes\n0,10\nlater,1\n", "bytes", "line 3 of column `time` is not a time");
        assert_error("time,bytes\n0,10\n1,2\n1,2\n2,2\n", "bytes", "two values are in the interval at 1 s");
        assert_error("time,bytes\n5,10\n", "bytes", "--interval");
        assert_error("bytes\n5\n", "bytes", "--interval");
        assert_error("time,bytes\n0,\n1,\n", "bytes", "holds no number");
        assert_error("time,bytes\n0,1\n1,1\n2,1\n900000000,1\n", "bytes", "more than 16777216 intervals");
        assert_error("time,bytes\n0,1\n1e300,1\n", "bytes", "not a time");
        assert_eq!(read("").unwrap_err(), "it holds nothing");
        assert!(read("a,b\n1,2,3\n").unwrap_err().contains("line 2 has more fields"));
        assert!(table(&b"a,b\n\xff,1\n"[..], None).unwrap_err().contains("line 2 is not text"));
        assert!(table(&b"a,b\n1,1\n"[..], Some("c")).unwrap_err().contains("no column `c`"));
    }
}
