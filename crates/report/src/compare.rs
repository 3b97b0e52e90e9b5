//! Comparison of records.

use std::collections::BTreeSet;
use std::fmt;

use trunkline_record::Record;
use trunkline_record::metric::metric;

use crate::format::{Unit, deviation};
use crate::summary::{connection, names};
use crate::{are_comparable, labels, network_note, short_hash};

/// The compared metrics: title and path in the record.
const METRICS: [(&str, &str); 16] = [
    ("sent, over the sending time", "sent_bps"),
    ("received", "received_bps"),
    ("messages received", "messages_received"),
    ("lost", "lost"),
    ("reordered", "reordered"),
    ("corrupted", "corrupted"),
    ("delay p50", "delay_us.p50"),
    ("delay p99", "delay_us.p99"),
    ("round trip p50", "rtt_us.p50"),
    ("round trip p99", "rtt_us.p99"),
    ("gap p50", "gap_us.p50"),
    ("gap p99", "gap_us.p99"),
    ("rate error", "asked.rate_error"),
    ("gap distance", "asked.gap_distance"),
    ("retransmissions", "counters.retransmissions"),
    ("sender's system time", "cpu.sender_system_s"),
];

/// Records side by side, with connections matched by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Labels of the records: the backend, with a number where several records share one.
    pub labels: Vec<String>,
    /// Why ratios are missing, if the records measure different networks.
    pub note: Option<String>,
    /// Differences between the runs that may explain differences of the metrics.
    pub differences: Vec<Difference>,
    /// The metrics of each connection that any record has.
    pub rows: Vec<Row>,
}

/// A property that is not equal in all runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// `plan`, `seed`, `complete`, or a key of the environment.
    pub name: String,
    /// Its value in each record.
    pub values: Vec<String>,
}

/// Formats as `seed: 1996 | 7`.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.values.join(" | "))
    }
}

/// One metric of one connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The connection.
    pub connection: String,
    /// Title of the metric.
    pub title: &'static str,
    /// Its path in the record.
    pub path: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Its value in each record.
    pub cells: Vec<Cell>,
}

/// A metric in one record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell {
    /// The record has no such connection.
    Absent,
    /// The record does not have the metric.
    Unknown,
    /// A number.
    Value {
        /// In the unit of the metric.
        value: f64,
        /// Ratio to the value of the first record; `None` for the first record, if the first value is missing or 0,
        /// or if the records are not comparable.
        ratio: Option<f64>,
    },
}

impl Cell {
    /// Formats the value with its deviation: `36.9 Mb/s (+1.2 %)`.
    pub(crate) fn text_with_deviation(&self, unit: Unit) -> String {
        match self.deviation() {
            Some(deviation) => format!("{} ({deviation})", self.text(unit)),
            None => self.text(unit),
        }
    }

    /// Formats the value.
    pub(crate) fn text(&self, unit: Unit) -> String {
        match *self {
            Cell::Absent => "no such connection".into(),
            Cell::Unknown => "–".into(),
            Cell::Value { value, .. } => unit.format(value),
        }
    }

    /// Formats the deviation from the first record.
    pub(crate) fn deviation(&self) -> Option<String> {
        match *self {
            Cell::Value { ratio: Some(ratio), .. } => deviation(ratio, 1.0),
            _ => None,
        }
    }
}

/// Compares records to the first one.
pub fn compare(records: &[Record]) -> Comparison {
    let rows = names(records).into_iter().flat_map(|name| {
        let row = move |(title, path)| row(records, name, title, path);
        METRICS.into_iter().filter_map(row)
    });
    Comparison {
        labels: labels(records),
        note: network_note(records),
        differences: differences(records),
        rows: rows.collect(),
    }
}

/// Returns one metric of every record; `None` if no record has it, or if it is 0 in all.
fn row(records: &[Record], name: &str, title: &'static str, path: &'static str) -> Option<Row> {
    let value = |r: &Record| connection(r, name).and_then(|_| metric(r, name, path));
    if !records.iter().filter_map(value).any(|v| v != 0.0) && path != "received_bps" {
        return None;
    }
    let first = records.first().and_then(value).filter(|&v| v != 0.0);
    let cell = |(i, r): (usize, &Record)| match (connection(r, name), value(r)) {
        (None, _) => Cell::Absent,
        (_, None) => Cell::Unknown,
        (_, Some(value)) => {
            let first = first.filter(|_| i > 0 && are_comparable(&records[0], r));
            Cell::Value { value, ratio: first.map(|first| value / first) }
        }
    };
    let cells = records.iter().enumerate().map(cell).collect();
    Some(Row { connection: name.to_owned(), title, path, unit: Unit::of(path), cells })
}

/// Returns plan, seed and environment where they differ.
fn differences(records: &[Record]) -> Vec<Difference> {
    let difference = |name: &str, value: &dyn Fn(&Record) -> String| {
        let values: Vec<String> = records.iter().map(value).collect();
        let differ = values.windows(2).any(|w| w[0] != w[1]);
        differ.then(|| Difference { name: name.to_owned(), values })
    };
    let keys: BTreeSet<&String> = records.iter().flat_map(|r| r.environment.keys()).collect();
    let environment = keys.into_iter().filter_map(|key| {
        difference(key, &|r| r.environment.get(key).cloned().unwrap_or_else(|| "–".into()))
    });
    let plan = difference("plan", &|r| short_hash(&r.experiment.hash));
    let seed = difference("seed", &|r| r.seed.to_string());
    let complete = difference("complete", &|r| if r.partial { "no" } else { "yes" }.into());
    [plan, seed, complete].into_iter().flatten().chain(environment).collect()
}

#[cfg(test)]
mod tests {
    use trunkline_record::schema::{Connection, Distribution};
    use trunkline_units::Seed;

    use super::*;

    fn record(backend: &str, connections: &[(&str, f64, Option<f64>)]) -> Record {
        let connection = |&(name, received_bps, p50): &(&str, f64, Option<f64>)| Connection {
            name: name.into(),
            received_bps,
            delay_us: p50.map(|p50| Distribution { p50, ..Distribution::default() }),
            ..Connection::default()
        };
        let connections = connections.iter().map(connection).collect();
        Record { backend: backend.into(), connections, ..Record::default() }
    }

    fn cells<'a>(c: &'a Comparison, connection: &str, path: &str) -> &'a [Cell] {
        &c.rows.iter().find(|r| r.connection == connection && r.path == path).unwrap().cells
    }

    #[test]
    fn connections_are_matched_by_name() {
        let live = record("live", &[("B-A", 3e7, Some(70.0)), ("C-A", 1e7, None)]);
        let sim = record("sim", &[("D-A", 1e6, None), ("B-A", 3.3e7, None)]);
        let c = compare(&[live, sim]);
        assert_eq!(c.labels, ["live", "sim"]);
        let value = |value, ratio| Cell::Value { value, ratio };
        assert_eq!(cells(&c, "B-A", "received_bps"), [value(3e7, None), value(3.3e7, Some(1.1))]);
        assert_eq!(cells(&c, "B-A", "delay_us.p50"), [value(70.0, None), Cell::Unknown]);
        assert_eq!(cells(&c, "C-A", "received_bps"), [value(1e7, None), Cell::Absent]);
        assert_eq!(cells(&c, "D-A", "received_bps"), [Cell::Absent, value(1e6, None)]);
        assert!(!c.rows.iter().any(|r| r.path == "rtt_us.p50"), "no record has it");
        assert_eq!(value(3.3e7, Some(1.1)).text_with_deviation(Unit::BitsPerSecond), "33 Mb/s (+10 %)");
    }

    #[test]
    fn differences_are_listed() {
        let mut a = record("live", &[]);
        a.experiment.hash = "aabbccddeeff0011".into();
        a.environment = [("kernel".into(), "6.1".into()), ("program".into(), "0.1.0".into())].into();
        let mut b = a.clone();
        assert_eq!(compare(&[a.clone(), b.clone()]).differences, []);
        b.experiment.hash = "00".into();
        b.seed = Seed(7);
        b.partial = true;
        b.environment.remove("kernel");
        let lines: Vec<String> = compare(&[a, b]).differences.iter().map(Difference::to_string).collect();
        assert_eq!(
            lines,
            ["plan: aabbccddeeff | 00", "seed: 1996 | 7", "complete: yes | no", "kernel: 6.1 | –"]
        );
    }

    #[test]
    fn no_records_give_an_empty_comparison() {
        assert_eq!(
            compare(&[]),
            Comparison { labels: vec![], note: None, differences: vec![], rows: vec![] }
        );
        assert_eq!(compare(&[Record::default()]).rows, []);
    }
}
