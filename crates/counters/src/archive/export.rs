//! Export of the archive as rows: one row per reading, or per bucket of a view.
//!
//! Times are seconds since 1970 with nine decimal places. An unknown rate or time is an empty field, an unbounded one
//! `inf`. Rows are ordered by table, series and time. At most one page of readings is in memory.
//!
//! Readings have the columns [`READING_COLUMNS`], buckets [`BUCKET_COLUMNS`].

use std::io::Write;
use std::ops::ControlFlow;
use std::time::Duration;

use super::{Error, MAX_BUCKETS, Pattern, Point, Reader, SeriesInfo, Summary, TableInfo, View};
use crate::counter::{EventSet, RawValue, Timestamp, ValueKind};

/// Readings in memory.
const PAGE: usize = 20_000;
/// Maximum number of buckets of a series.
pub const MAX_BUCKET_ROWS: i128 = 100_000_000;

/// What to export.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportQuery {
    /// The series; all if empty.
    pub patterns: Vec<Pattern>,
    /// Start of the time range.
    pub from: Timestamp,
    /// End of the time range.
    pub to: Timestamp,
    /// The length of a bucket; `None` to export readings.
    pub bucket_length: Option<Duration>,
}

/// Counts of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportStats {
    /// Series with at least one row.
    pub series: u64,
    /// Rows.
    pub rows: u64,
    /// Chunks whose readings retention removed. Readings of them are missing; buckets use their summaries.
    pub removed: u64,
    /// Chunks that could not be read.
    pub damaged: u64,
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportRow<'a> {
    /// The table.
    pub table: &'a TableInfo,
    /// The series.
    pub series: &'a SeriesInfo,
    /// The reading or bucket.
    pub data: RowData,
}

/// The data of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum RowData {
    /// A reading and its growth.
    Reading(Point),
    /// A bucket: start, end and summary.
    Bucket(Timestamp, Timestamp, Summary),
}

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The archive could not be read.
    #[error(transparent)]
    Archive(#[from] Error),
    /// A row could not be written.
    #[error("cannot write: {0}")]
    Write(std::io::Error),
    /// The bucket length gives too many buckets.
    #[error("{0} buckets are too many: choose a longer length or a shorter time")]
    TooManyBuckets(i128),
}

impl Reader {
    /// Calls `each` for every row of a query, ordered by table, series and time.
    pub fn export(
        &self,
        query: &ExportQuery,
        mut each: impl FnMut(&ExportRow<'_>) -> std::io::Result<()>,
    ) -> Result<ExportStats, ExportError> {
        let mut written = ExportStats::default();
        let done = self.for_each_selected(&query.patterns, |table, chosen| {
            for series in chosen {
                let before = written.rows;
                let mut count = |data: RowData| {
                    written.rows += 1;
                    each(&ExportRow { table, series, data })
                };
                let result = match query.bucket_length {
                    None => self.export_readings(series, query, &mut count),
                    Some(every) => self.export_buckets(series, query, every, &mut count),
                };
                match result {
                    Ok((gone, damaged)) => {
                        written.removed += gone;
                        written.damaged += damaged;
                    }
                    Err(ExportError::Archive(error)) => return Err(error),
                    Err(error) => return Ok(ControlFlow::Break(error)),
                }
                written.series += u64::from(written.rows > before);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        done.break_value().map_or(Ok(written), Err)
    }

    fn export_readings(
        &self,
        series: &SeriesInfo,
        query: &ExportQuery,
        each: &mut impl FnMut(RowData) -> std::io::Result<()>,
    ) -> Result<(u64, u64), ExportError> {
        let (mut from, mut last) = (query.from, Timestamp::MIN);
        let (mut gone, mut damaged) = (0, 0);
        loop {
            let page = self.points(series.id, from, query.to, PAGE)?;
            // Two responses may have the same time. If a page ends between them, the next page repeats the first.
            for point in page.points {
                if point.row.requested_at <= last {
                    continue;
                }
                last = point.row.requested_at;
                each(RowData::Reading(point)).map_err(ExportError::Write)?;
            }
            (gone, damaged) = (gone.max(page.removed as u64), damaged.max(page.damaged.len() as u64));
            match page.next {
                Some(next) => from = next,
                None => return Ok((gone, damaged)),
            }
        }
    }

    fn export_buckets(
        &self,
        series: &SeriesInfo,
        query: &ExportQuery,
        every: Duration,
        each: &mut impl FnMut(RowData) -> std::io::Result<()>,
    ) -> Result<(u64, u64), ExportError> {
        let mut damaged = 0;
        self.for_each_view(series, query, every, |view| {
            damaged += view.damaged.len() as u64;
            let buckets = view.buckets.buckets.iter().enumerate();
            for (at, summary) in
                buckets.filter(|(_, s)| s.samples > 0 || !s.events.is_empty() || !s.covered.is_zero())
            {
                each(RowData::Bucket(view.buckets.edge(at), view.buckets.edge(at + 1), *summary))
                    .map_err(ExportError::Write)?;
            }
            Ok(())
        })?;
        Ok((0, damaged))
    }

    /// Calls `each` with views of a series over the time range, in buckets whose edges are multiples of their length
    /// since 1970. Skips the time before the first and after the last response of the table.
    pub fn for_each_view(
        &self,
        series: &SeriesInfo,
        query: &ExportQuery,
        every: Duration,
        mut each: impl FnMut(&View) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        let Some((first, last)) = self.time_range(series.table)? else { return Ok(()) };
        let length = i128::try_from(every.as_nanos()).unwrap_or(i128::MAX).clamp(1, i128::from(i64::MAX));
        let begin = i128::from(query.from.max(first).0).div_euclid(length);
        let end = (i128::from(query.to.min(last).0) + length - 1).div_euclid(length);
        if end - begin > MAX_BUCKET_ROWS {
            return Err(ExportError::TooManyBuckets(end - begin));
        }
        let edge =
            |at: i128| Timestamp((at * length).clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64);
        let mut at = begin;
        while at < end {
            let count = (end - at).min(MAX_BUCKETS as i128);
            each(&self.view(series.id, edge(at), edge(at + count), count as usize)?)?;
            at += count;
        }
        Ok(())
    }
}

/// Column names of readings: the first line of a CSV file.
pub const READING_COLUMNS: &str =
    "device,table,series,kind,unit,asked_s,answered_s,uptime,value,grew,least_per_s,most_per_s,events";

/// Column names of buckets: the first line of a CSV file.
pub const BUCKET_COLUMNS: &str =
    "device,table,series,kind,unit,time,end_s,sum,mean,samples,covered_s,low,high,most,events";

impl ValueKind {
    /// Returns the name used in exports and imports.
    pub fn name(self) -> &'static str {
        match self {
            ValueKind::Counter32 => "counter32",
            ValueKind::Counter64 => "counter64",
            ValueKind::Gauge => "gauge",
            ValueKind::Real => "real",
        }
    }
}

/// Writes rows as CSV (RFC 4180; lines end with LF).
pub struct CsvWriter<W: Write>(csv::Writer<W>);

impl<W: Write> CsvWriter<W> {
    /// Creates a writer and writes the column names of readings or buckets.
    pub fn new(out: W, buckets: bool) -> std::io::Result<CsvWriter<W>> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(if buckets { BUCKET_COLUMNS } else { READING_COLUMNS }.split(','))?;
        Ok(CsvWriter(csv))
    }

    /// Writes a row.
    pub fn write_row(&mut self, line: &ExportRow<'_>) -> std::io::Result<()> {
        let ExportRow { table, series, data } = line;
        let kind = series.column.kind;
        let mut fields = vec![
            table.device.clone(),
            table.name.clone(),
            series.name.clone(),
            kind.name().to_owned(),
            series.unit.clone(),
        ];
        match data {
            RowData::Reading(point) => {
                let growth = point.update.growth;
                fields.extend([
                    format_timestamp(point.row.requested_at),
                    optional(point.row.answered_at.map(format_timestamp)),
                    optional(point.row.uptime),
                    optional(point.value.map(|raw| format_value(raw, kind))),
                    optional(growth.map(|g| g.amount)),
                    optional(growth.map(|g| g.min_rate())),
                    optional(growth.map(|g| g.max_rate())),
                    event_names(point.update.events),
                ]);
            }
            RowData::Bucket(from, to, summary) => {
                let (range, is_real) = (summary.range, kind == ValueKind::Real);
                fields.extend([
                    format_timestamp(*from),
                    format_timestamp(*to),
                    if is_real { summary.real_sum.to_string() } else { summary.sum.to_string() },
                    optional(mean(summary, kind)),
                    summary.samples.to_string(),
                    format_seconds(summary.covered.as_nanos() as i128),
                    optional(range.map(|r| r.low)),
                    optional(range.map(|r| r.high)),
                    optional(range.map(|r| r.upper_bound)),
                    event_names(summary.events),
                ]);
            }
        }
        Ok(self.0.write_record(fields)?)
    }

    /// Flushes the output.
    pub fn finish(mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Formats a field that may be empty.
fn optional(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Returns the mean rate per second of a counter over the covered time, or the mean of the values of other kinds.
pub fn mean(summary: &Summary, kind: ValueKind) -> Option<f64> {
    let over = if kind.is_counter() { summary.covered.as_secs_f64() } else { summary.samples as f64 };
    let sum = if kind == ValueKind::Real { summary.real_sum } else { summary.sum as f64 };
    (over > 0.0).then(|| sum / over)
}

/// Formats a value without rounding.
pub(crate) fn format_value(raw: RawValue, kind: ValueKind) -> String {
    match kind {
        ValueKind::Counter32 | ValueKind::Counter64 => raw.0.to_string(),
        ValueKind::Gauge => (raw.0 as i64).to_string(),
        ValueKind::Real => f64::from_bits(raw.0).to_string(),
    }
}

/// Joins the names of events with `;`.
pub(crate) fn event_names(events: EventSet) -> String {
    events.iter().map(|event| event.name()).collect::<Vec<_>>().join(";")
}

fn format_timestamp(time: Timestamp) -> String {
    format_seconds(time.0.into())
}

/// Formats nanoseconds as seconds with nine decimal places.
pub fn format_seconds(ns: i128) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    format!("{sign}{}.{:09}", ns.unsigned_abs() / 1_000_000_000, ns.unsigned_abs() % 1_000_000_000)
}

#[cfg(feature = "parquet")]
pub mod parquet;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{SeriesSpec, TableSpec, Writer};
    use crate::counter::{Answer, Response};

    const S: i64 = 1_000_000_000;

    /// A counter of 7 a second, a gauge and a real number, polled once a second; every tenth answer is missing, and the
    /// agent begins anew at 500 s. A part of it lies in chunks.
    pub(super) fn archive(polls: i64) -> (tempfile::TempDir, Reader) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("counters.sqlite");
        let mut writer = Writer::open(&path).unwrap();
        let kinds = [("in", ValueKind::Counter64), ("level", ValueKind::Gauge), ("delay", ValueKind::Real)];
        let series = kinds.map(|(name, kind)| SeriesSpec::new(name, kind, "x"));
        let spec = TableSpec {
            device: "a,b".into(),
            name: "t".into(),
            period: Duration::from_secs(1),
            refresh: Some(Duration::ZERO),
            series: series.into(),
        };
        let table = writer.open_table(&spec).unwrap().table;
        for at in 0..polls {
            let count = if at < 500 { 10_000 + 7 * at } else { 7 * (at - 500) } as u64;
            let uptime = if at < 500 { 100_000 + 100 * at } else { 100 * (at - 500) } as u32;
            let values = vec![
                Some(RawValue(count)),
                Some(RawValue::from_gauge(-at)),
                Some(RawValue::from_real(at as f64 / 4.0)),
            ];
            let answer = Answer { answered_at: Timestamp(at * S + 1), uptime: Some(uptime), values };
            let answer = (at % 10 != 9).then_some(answer);
            let response = Response { due_at: Timestamp(at * S), requested_at: Timestamp(at * S), answer };
            writer.append(table, &response).unwrap();
            if at % 50 == 49 {
                writer.flush().unwrap();
            }
        }
        writer.flush().unwrap();
        (dir, Reader::open(&path).unwrap())
    }

    pub(super) fn query(pattern: &str, every: Option<u64>) -> ExportQuery {
        ExportQuery {
            patterns: vec![Pattern::new(pattern)],
            from: Timestamp::MIN,
            to: Timestamp::MAX,
            bucket_length: every.map(Duration::from_secs),
        }
    }

    fn csv(reader: &Reader, query: &ExportQuery) -> (ExportStats, Vec<String>) {
        let mut text = Vec::new();
        let mut csv = CsvWriter::new(&mut text, query.bucket_length.is_some()).unwrap();
        let written = reader.export(query, |line| csv.write_row(line)).unwrap();
        csv.finish().unwrap();
        (written, String::from_utf8(text).unwrap().lines().map(str::to_owned).collect())
    }

    #[test]
    fn readings_are_exported_in_order() {
        let (_dir, reader) = archive(12);
        let (written, lines) = csv(&reader, &query("a,b:in", None));
        assert_eq!((written.series, written.rows, written.removed, written.damaged), (1, 12, 0, 0));
        assert_eq!(lines[0], READING_COLUMNS);
        let common = "\"a,b\",t,in,counter64,x";
        assert_eq!(lines[1], format!("{common},0.000000000,0.000000001,100000,10000,,,,"));
        assert!(lines[2].starts_with(&format!("{common},1.000000000,1.000000001,100100,10007,7,6.99999999")));
        assert_eq!(lines[10], format!("{common},9.000000000,,,,,,,silent"));
        assert!(lines[11].contains(",10070,14,"), "over the gap: {}", lines[11]);
        let (_, lines) = csv(&reader, &query("a,b:delay", None));
        assert!(lines[2].contains(",delay,real,x,1.000000000,1.000000001,100100,0.25,,,,"));
        let (_, lines) = csv(&reader, &query("a,b:level", None));
        assert!(lines[2].contains(",-1,,,,"));
    }

    #[test]
    fn buckets_add_up_to_what_grew() {
        let (_dir, reader) = archive(3_000);
        let sum = |lines: &[String], at: usize| -> u64 {
            lines[1..].iter().map(|l| l.split(',').nth(at + 1).unwrap().parse().unwrap_or(0u64)).sum()
        };
        let (_, readings) = csv(&reader, &query("*:in", None));
        // But for what was lost with the restart: from 498 s, since 499 s had no answer, to 500 s.
        assert_eq!(sum(&readings, 9), 7 * (2_998 - 2));
        assert!(readings[501].ends_with(",reset-restart"), "{}", readings[501]);
        for every in [1, 60, 7_000] {
            let (written, buckets) = csv(&reader, &query("*:in", Some(every)));
            assert_eq!(sum(&buckets, 7), 7 * (2_998 - 2), "{every}");
            assert!(written.rows <= 3_000 / every + 1);
        }
        // Several views, and a time in between.
        let part = ExportQuery { from: Timestamp(1_000 * S), to: Timestamp(1_100 * S), ..query("*", None) };
        assert_eq!(csv(&reader, &part).0.rows, 3 * 100);
        let many = ExportQuery { bucket_length: Some(Duration::from_millis(100)), ..query("*:in", None) };
        assert!(csv(&reader, &many).0.rows > MAX_BUCKETS as u64);
        let refused = ExportQuery { bucket_length: Some(Duration::from_nanos(1)), ..query("*:in", None) };
        assert!(matches!(reader.export(&refused, |_| Ok(())), Err(ExportError::TooManyBuckets(_))));
    }

    #[test]
    fn paged_responses_are_complete_without_duplicates() {
        let (_dir, reader) = archive(2_500);
        let table = reader.tables(crate::archive::TableId(0), 1).unwrap()[0].id;
        let (mut after, mut asked) = (Timestamp::MIN, Vec::new());
        loop {
            let found = reader.responses(table, after, 100).unwrap();
            let Some((last, _)) = found.responses.last() else { break };
            after = last.time();
            asked.extend(found.responses.iter().map(|(row, _)| row.requested_at.0 / S));
            for (row, values) in &found.responses {
                let level = row.answered_at.map(|_| RawValue::from_gauge(-(row.requested_at.0 / S)));
                assert_eq!((values.len(), values[1]), (3, level));
            }
        }
        assert_eq!(asked, (0..2_500).collect::<Vec<i64>>());
    }
}
