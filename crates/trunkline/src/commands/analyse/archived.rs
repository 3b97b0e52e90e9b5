//! Series from an archive of counters: the growth of counters in intervals of the period of their table.

use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::time::Duration;

use trunkline_counters::archive::export::{ExportError, ExportQuery};
use trunkline_counters::archive::{Location, Pattern, Reader, SeriesInfo, Summary};
use trunkline_counters::counter::{Timestamp, ValueKind};
use trunkline_traffic::series::LONGEST;

use super::column::{Column, Reading};
use crate::commands::monitor;
use crate::failure::Failure;

/// Whether the location is a database or an SQLite file.
pub fn is_archive(at: &Location) -> bool {
    let Some(path) = at.file() else { return true };
    let mut head = [0; 16];
    File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && &head == b"SQLite format 3\0"
}

/// Returns the selected series, else all series if together they do not exceed the maximum length of one.
pub fn columns(at: &Location, reading: &Reading<'_>) -> Result<Vec<Column>, Failure> {
    let reader = monitor::open_reader(at)?;
    let patterns: Vec<Pattern> = reading.column.map(Pattern::new).into_iter().collect();
    let wanted = ExportQuery { patterns, from: Timestamp::MIN, to: Timestamp::MAX, bucket_length: None };
    let mut found = Vec::new();
    let mut capacity = LONGEST;
    let outcome = reader.for_each_selected(&wanted.patterns, |table, chosen| {
        let every = reading.interval.map_or(table.period, Duration::from);
        for series in chosen {
            match column(&reader, &wanted, series, every, capacity) {
                Ok(Some((ns, values))) => {
                    capacity -= values.len();
                    let name = format!("{}:{}", table.device, series.name);
                    found.push(Column::of_intervals(name, ns, values));
                }
                Ok(None) => return Ok(ControlFlow::Break(ExportError::TooManyBuckets(LONGEST as i128))),
                Err(ExportError::Archive(error)) => return Err(error),
                Err(error) => return Ok(ControlFlow::Break(error)),
            }
        }
        Ok(ControlFlow::Continue(()))
    });
    match outcome? {
        ControlFlow::Continue(()) => Ok(found),
        ControlFlow::Break(ExportError::TooManyBuckets(_)) => {
            Err(Failure::input(format!("{at}: too many intervals: select one series with --column")))
        }
        ControlFlow::Break(error) => Err(Failure::run(error)),
    }
}

type Intervals = (Vec<i64>, Vec<Option<f64>>);

/// Returns every interval of a series; intervals that are not fully covered have no value. Returns `None` if there are more
/// than `capacity`.
fn column(
    reader: &Reader,
    wanted: &ExportQuery,
    series: &SeriesInfo,
    every: Duration,
    capacity: usize,
) -> Result<Option<Intervals>, ExportError> {
    let (mut ns, mut values) = (Vec::new(), Vec::new());
    let mut fits = true;
    reader.for_each_view(series, wanted, every, |view| {
        let buckets = &view.buckets;
        fits &= values.len() + buckets.buckets.len() <= capacity;
        if fits {
            ns.extend((0..buckets.buckets.len()).map(|at| buckets.edge(at).0));
            values.extend(buckets.buckets.iter().map(|summary| amount(summary, series.column.kind, every)));
        }
        Ok(())
    })?;
    Ok(fits.then_some((ns, values)))
}

/// Returns the growth of a counter if the whole interval is covered, or the mean of other values.
fn amount(summary: &Summary, kind: ValueKind, every: Duration) -> Option<f64> {
    if kind.is_counter() {
        return (summary.covered >= every).then_some(summary.sum as f64);
    }
    trunkline_counters::archive::export::mean(summary, kind)
}
