//! Export of records: CSV, JSON, and with the feature `parquet` Parquet.
//!
//! All formats except JSON export a [`Table`]: the connections with their scalar metrics ([`connections`]), or the
//! time series in long form ([`series`]).

#[cfg(feature = "parquet")]
pub mod parquet;

use std::collections::BTreeSet;
use std::io::{self, Write};

use crate::metric;
use crate::schema::{Connection, Record};

/// A table: columns of equal length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Names and values from left to right.
    pub columns: Vec<(String, Column)>,
}

/// A column.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Text.
    Text(Vec<String>),
    /// Numbers; `None` where unknown.
    Number(Vec<Option<f64>>),
}

impl Table {
    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, column)| match column {
            Column::Text(values) => values.len(),
            Column::Number(values) => values.len(),
        })
    }

    /// Writes the table as CSV (RFC 4180; lines end with LF) with a header; an unknown number is an empty field.
    pub fn write_csv(&self, out: impl Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(self.columns.iter().map(|(name, _)| name))?;
        for row in 0..self.rows() {
            csv.write_record(self.columns.iter().map(|(_, column)| column.field(row)))?;
        }
        csv.flush()
    }
}

impl Column {
    /// Returns the CSV field of a row.
    fn field(&self, row: usize) -> String {
        match self {
            Column::Text(values) => values[row].clone(),
            Column::Number(values) => values[row].map(|v| v.to_string()).unwrap_or_default(),
        }
    }
}

/// Writes records as JSON: one as an object, several as an array. [`load`](crate::store::load) reads both.
pub fn write_json(records: &[Record], mut out: impl Write) -> io::Result<()> {
    match records {
        [one] => serde_json::to_writer_pretty(&mut out, one)?,
        several => serde_json::to_writer_pretty(&mut out, several)?,
    }
    out.write_all(b"\n")
}

/// Metrics of a connection that are always exported, by their path in the record. The columns of [`DISTRIBUTIONS`] follow.
const METRICS: [&str; 19] = [
    "offered_bps",
    "sent_bps",
    "received_bps",
    "messages_sent",
    "messages_received",
    "lost",
    "duplicated",
    "reordered",
    "corrupted",
    "asked.rate_error",
    "asked.gap_distance",
    "asked.gap_p_value",
    "asked.gap_samples",
    "asked.bursts_skipped",
    "asked.bursts_late",
    "cpu.sender_user_s",
    "cpu.sender_system_s",
    "cpu.receiver_user_s",
    "cpu.receiver_system_s",
];

/// Distributions of a connection that are always exported.
const DISTRIBUTIONS: [&str; 5] = ["delay_us", "rtt_us", "gap_us", "sent_gap_us", "late_us"];

/// Exported numbers of a distribution.
const STATISTICS: [&str; 9] = ["count", "min", "p50", "p90", "p99", "p999", "max", "mean", "sd"];

/// Returns one row per connection: its run, its text fields, and every scalar metric, named by its path in the
/// record. Stages, counters, repeats and `closed_loop_rtt_us` are columns if any connection has them.
pub fn connections(records: &[Record]) -> Table {
    let rows = || records.iter().flat_map(|r| r.connections.iter().map(move |c| (r, c)));
    let text = |name: &str, get: &dyn Fn(&Record, &Connection) -> String| {
        (name.to_owned(), Column::Text(rows().map(|(r, c)| get(r, c)).collect()))
    };
    let mut columns = vec![
        text("experiment", &|r, _| r.experiment.name.clone()),
        text("hash", &|r, _| r.experiment.hash.clone()),
        text("backend", &|r, _| r.backend.clone()),
        text("seed", &|r, _| r.seed.to_string()),
        text("started", &|r, _| r.started.clone()),
        text("partial", &|r, c| (r.partial || c.partial).to_string()),
        text("connection", &|_, c| c.name.clone()),
        text("transport", &|_, c| c.transport.clone()),
        text("test", &|_, c| c.test.clone()),
        text("from", &|_, c| c.from.clone()),
        text("to", &|_, c| c.to.join(" ")),
    ];
    let entries: Vec<_> = rows().map(|(_, c)| metric::to_json(c)).collect();
    columns.extend(paths(rows().map(|(_, c)| c)).into_iter().map(|path| {
        let numbers = entries.iter().map(|entry| metric::lookup(entry, &path)?.as_f64()).collect();
        (path, Column::Number(numbers))
    }));
    Table { columns }
}

/// Returns the paths of all numeric columns.
fn paths<'a>(connections: impl Iterator<Item = &'a Connection>) -> Vec<String> {
    let statistics = DISTRIBUTIONS.iter().flat_map(|d| STATISTICS.iter().map(move |s| format!("{d}.{s}")));
    let mut paths: Vec<String> = METRICS.iter().map(|&path| path.to_owned()).chain(statistics).collect();
    let (mut counters, mut repeats, mut stages) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut closed_loop = Vec::new();
    for c in connections {
        if c.closed_loop_rtt_us.is_some() && closed_loop.is_empty() {
            closed_loop.extend(STATISTICS.map(|s| format!("closed_loop_rtt_us.{s}")));
        }
        counters.extend(c.counters.keys().map(|k| format!("counters.{k}")));
        let stage_columns = |stage| STATISTICS.map(|s| format!("stages_us.{stage}.{s}"));
        stages.extend(c.stages_us.keys().flat_map(stage_columns));
        let interval_columns =
            |metric| ["n", "mean", "sd", "low", "high"].map(|s| format!("repeats.{metric}.{s}"));
        repeats.extend(c.repeats.keys().flat_map(interval_columns));
    }
    paths.extend(closed_loop);
    paths.extend(stages);
    paths.extend(counters);
    paths.extend(repeats);
    paths
}

/// Returns the time series in long form, one row per number: `backend, connection, t_s, figure, value`. The column
/// `figure` has the name of the metric.
pub fn series(records: &[Record]) -> Table {
    let (mut backends, mut connections, mut metrics) = (Vec::new(), Vec::new(), Vec::new());
    let (mut times, mut values) = (Vec::new(), Vec::new());
    for (record, c) in records.iter().flat_map(|r| r.connections.iter().map(move |c| (r, c))) {
        for point in &c.series {
            let extra = point.extra.iter().map(|(name, &value)| (name.as_str(), value));
            let rates = [("sent_bps", point.sent_bps), ("received_bps", point.received_bps)];
            for (name, value) in rates.into_iter().chain(extra) {
                backends.push(record.backend.clone());
                connections.push(c.name.clone());
                times.push(Some(point.t_s));
                metrics.push(name.to_owned());
                values.push(Some(value));
            }
        }
    }
    let columns = [
        ("backend", Column::Text(backends)),
        ("connection", Column::Text(connections)),
        ("t_s", Column::Number(times)),
        ("figure", Column::Text(metrics)),
        ("value", Column::Number(values)),
    ];
    Table { columns: columns.map(|(name, column)| (name.to_owned(), column)).into() }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::schema::{Distribution, Interval, Point};

    const HOSTILE: &str = "=cmd(\"a\",\r\n'b');";

    /// Two connections, the first with fields of every kind.
    pub(crate) fn record() -> Record {
        let full = Connection {
            name: HOSTILE.into(),
            to: vec!["a".into(), "c".into()],
            offered_bps: Some(1e8),
            received_bps: 1e8 / 3.0,
            delay_us: Some(Distribution { p50: 71.25, ..Distribution::default() }),
            counters: [("retransmissions".to_owned(), 3.0)].into(),
            repeats: [("delay_us.p50".to_owned(), Interval { mean: 70.5, ..Interval::default() })].into(),
            series: vec![Point {
                t_s: 0.1,
                sent_bps: 5e7,
                received_bps: 4e7,
                extra: BTreeMap::from([("rtt_us".into(), 80.0)]),
            }],
            ..Connection::default()
        };
        let bare = Connection { name: "bare".into(), ..Connection::default() };
        Record { backend: "live".into(), connections: vec![full, bare], ..Record::default() }
    }

    fn read(table: &Table) -> (Vec<String>, Vec<Vec<String>>) {
        let mut text = Vec::new();
        table.write_csv(&mut text).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_slice());
        let header = reader.headers().unwrap().iter().map(str::to_owned).collect();
        let rows = reader.records().map(|r| r.unwrap().iter().map(str::to_owned).collect());
        (header, rows.collect())
    }

    #[test]
    fn a_row_has_every_metric_of_a_connection() {
        let (header, rows) = read(&connections(&[record()]));
        let field =
            |row: usize, column: &str| rows[row][header.iter().position(|h| h == column).unwrap()].as_str();
        assert_eq!(rows.len(), 2);
        assert_eq!((field(0, "connection"), field(1, "connection")), (HOSTILE, "bare"));
        assert_eq!((field(0, "to"), field(0, "backend"), field(0, "partial")), ("a c", "live", "false"));
        assert_eq!(field(0, "received_bps").parse(), Ok(1e8 / 3.0));
        assert_eq!((field(0, "delay_us.p50"), field(1, "delay_us.p50")), ("71.25", ""));
        assert_eq!((field(0, "counters.retransmissions"), field(1, "counters.retransmissions")), ("3", ""));
        assert_eq!(field(0, "repeats.delay_us.p50.mean"), "70.5");
        assert_eq!((field(0, "offered_bps"), field(1, "offered_bps")), ("100000000", ""));
    }

    #[test]
    fn hostile_names_are_quoted() {
        let mut text = Vec::new();
        series(&[record()]).write_csv(&mut text).unwrap();
        let want = "backend,connection,t_s,figure,value\n\
                    live,\"=cmd(\"\"a\"\",\r\n'b');\",0.1,sent_bps,50000000\n\
                    live,\"=cmd(\"\"a\"\",\r\n'b');\",0.1,received_bps,40000000\n\
                    live,\"=cmd(\"\"a\"\",\r\n'b');\",0.1,rtt_us,80\n";
        assert_eq!(String::from_utf8(text).unwrap(), want);
    }

    /// Collects the paths of all numbers of a connection outside arrays.
    fn numbers(value: &serde_json::Value, path: &str, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => {
                let under = |k: &String| if path.is_empty() { k.clone() } else { format!("{path}.{k}") };
                map.iter().for_each(|(k, v)| numbers(v, &under(k), found));
            }
            serde_json::Value::Number(_) => found.push(path.to_owned()),
            _ => {}
        }
    }

    #[test]
    fn every_scalar_metric_is_exported() {
        let mut full = record().connections.remove(0);
        let d = || Some(Distribution::default());
        (full.delay_us, full.rtt_us, full.gap_us, full.sent_gap_us, full.late_us) = (d(), d(), d(), d(), d());
        full.closed_loop_rtt_us = d();
        (full.requested.rate_error, full.requested.gap_distance, full.requested.gap_p_value) =
            (Some(0.0), Some(0.0), Some(0.0));
        full.stages_us = [("seal".to_owned(), d())].into();
        let mut found = Vec::new();
        numbers(&metric::to_json(&full), "", &mut found);
        let mut columns = paths([&full].into_iter());
        found.sort();
        columns.sort();
        assert_eq!(columns, found);
    }

    #[test]
    fn json_is_an_object_or_an_array() {
        let parsed = |records: &[Record]| {
            let mut text = Vec::new();
            write_json(records, &mut text).unwrap();
            crate::store::parse(std::str::from_utf8(&text).unwrap()).unwrap()
        };
        assert_eq!(parsed(&[record()]), [record()]);
        assert_eq!(parsed(&[record(), Record::default()]), [record(), Record::default()]);
    }

    #[test]
    fn no_records_make_an_empty_table() {
        assert_eq!(connections(&[]).rows(), 0);
        assert_eq!(read(&series(&[])).1.len(), 0);
    }
}
