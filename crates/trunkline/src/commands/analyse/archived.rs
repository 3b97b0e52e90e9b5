//! Series from an archive of counters: what each grew by in intervals of its table's period.

use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::time::Duration;

use trunkline_counters::archive::flat::{FlatError, Wanted};
use trunkline_counters::archive::{Location, Pattern, Reader, SeriesInfo, Summary};
use trunkline_counters::counter::{Kind, Moment};
use trunkline_traffic::series::LONGEST;

use super::read::{Column, Reading};
use crate::commands::counters;
use crate::failure::Failure;

/// Whether it is a database, or a file of SQLite.
pub fn is_archive(at: &Location) -> bool {
    let Some(path) = at.file() else { return true };
    let mut head = [0; 16];
    File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && &head == b"SQLite format 3\0"
}

/// The series that is named, else all, together no longer than one may be.
pub fn columns(at: &Location, reading: &Reading<'_>) -> Result<Vec<Column>, Failure> {
    let reader = counters::existing(at)?;
    let patterns: Vec<Pattern> = reading.column.map(Pattern::new).into_iter().collect();
    let wanted = Wanted { patterns, from: Moment::FIRST, to: Moment::LAST, every: None };
    let mut found = Vec::new();
    let mut room = LONGEST;
    let done = reader.each_chosen(&wanted.patterns, |table, chosen| {
        let every = reading.every.map_or(table.period, |every| Duration::from_nanos(every.as_ns()));
        for series in chosen {
            match column(&reader, &wanted, series, every, room) {
                Ok(Some((ns, values))) => {
                    room -= values.len();
                    let name = format!("{}:{}", table.device, series.name);
                    found.push(Column::of_intervals(name, ns, values));
                }
                Ok(None) => return Ok(ControlFlow::Break(FlatError::Many(LONGEST as i128))),
                Err(FlatError::Archive(error)) => return Err(error),
                Err(error) => return Ok(ControlFlow::Break(error)),
            }
        }
        Ok(ControlFlow::Continue(()))
    });
    match done.map_err(counters::failed)? {
        ControlFlow::Continue(()) => Ok(found),
        ControlFlow::Break(FlatError::Many(_)) => {
            Err(Failure::input(format!("{at}: too many intervals: name one series with --column")))
        }
        ControlFlow::Break(error) => Err(Failure::run(error)),
    }
}

type Intervals = (Vec<i64>, Vec<Option<f64>>);

/// Every interval of a series, those that are not known whole without a value; none if there is no room for them.
fn column(
    reader: &Reader,
    wanted: &Wanted,
    series: &SeriesInfo,
    every: Duration,
    room: usize,
) -> Result<Option<Intervals>, FlatError> {
    let (mut ns, mut values) = (Vec::new(), Vec::new());
    let mut fits = true;
    reader.views(series, wanted, every, |view| {
        let buckets = &view.buckets;
        fits &= values.len() + buckets.buckets.len() <= room;
        if fits {
            ns.extend((0..buckets.buckets.len()).map(|at| buckets.edge(at).0));
            values.extend(buckets.buckets.iter().map(|summary| amount(summary, series.column.kind, every)));
        }
        Ok(())
    })?;
    Ok(fits.then_some((ns, values)))
}

/// What a counter grew by, if the whole interval is covered; the mean of other values.
fn amount(summary: &Summary, kind: Kind, every: Duration) -> Option<f64> {
    if kind.counts() {
        return (summary.covered >= every).then_some(summary.sum as f64);
    }
    trunkline_counters::archive::flat::mean(summary, kind)
}
