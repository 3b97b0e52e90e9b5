//! Records side by side.

use std::collections::BTreeSet;
use std::fmt;

use trunkline_record::Record;
use trunkline_record::figure::figure;

use crate::human::{Unit, deviation};
use crate::labels;
use crate::summary::{connection, names};

/// The figures that are compared: how they are called, and their path in the record.
const FIGURES: [(&str, &str); 16] = [
    ("sent", "sent_bps"),
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

/// Records side by side, connections matched by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// What each record is called: its backend, with its place where several share one.
    pub labels: Vec<String>,
    /// What the runs do not have in common, so that nobody takes it for the network's doing.
    pub differences: Vec<Difference>,
    /// Each connection's figures that any record knows.
    pub rows: Vec<Row>,
}

/// Something the runs do not have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// `plan`, `seed`, or a word of the environment.
    pub what: String,
    /// Its value in each record.
    pub values: Vec<String>,
}

/// `seed: 1996 | 7`
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.values.join(" | "))
    }
}

/// One figure of one connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The connection.
    pub connection: String,
    /// The figure in words.
    pub title: &'static str,
    /// Its path in the record.
    pub path: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Its value in each record.
    pub cells: Vec<Cell>,
}

/// A figure in one record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell {
    /// The record has no such connection.
    Absent,
    /// The record does not know it.
    Unknown,
    /// A number.
    Value {
        /// In the figure's unit.
        value: f64,
        /// To that of the first record; none for the first, and where either has none or the first is 0.
        ratio: Option<f64>,
    },
}

impl Cell {
    /// `36.9 Mb/s (+1.2 %)`
    pub(crate) fn show(&self, unit: Unit) -> String {
        match self.note() {
            Some(note) => format!("{} ({note})", self.text(unit)),
            None => self.text(unit),
        }
    }

    /// The value alone.
    pub(crate) fn text(&self, unit: Unit) -> String {
        match *self {
            Cell::Absent => "no such connection".into(),
            Cell::Unknown => "–".into(),
            Cell::Value { value, .. } => unit.show(value),
        }
    }

    /// Its deviation from the first record.
    pub(crate) fn note(&self) -> Option<String> {
        match *self {
            Cell::Value { ratio: Some(ratio), .. } => deviation(ratio, 1.0),
            _ => None,
        }
    }
}

/// Puts records side by side. Of no records it says nothing.
pub fn compare(records: &[Record]) -> Comparison {
    let rows = names(records).into_iter().flat_map(|name| {
        let row = move |(title, path)| row(records, name, title, path);
        FIGURES.into_iter().filter_map(row)
    });
    Comparison { labels: labels(records), differences: differences(records), rows: rows.collect() }
}

/// One figure in every record; none if no record knows it, or if it is 0 in all.
fn row(records: &[Record], name: &str, title: &'static str, path: &'static str) -> Option<Row> {
    let value = |r: &Record| connection(r, name).and_then(|_| figure(r, name, path));
    if !records.iter().filter_map(value).any(|v| v != 0.0) && path != "received_bps" {
        return None;
    }
    let first = records.first().and_then(value).filter(|&v| v != 0.0);
    let cell = |(i, r): (usize, &Record)| match (connection(r, name), value(r)) {
        (None, _) => Cell::Absent,
        (_, None) => Cell::Unknown,
        (_, Some(value)) => Cell::Value { value, ratio: first.filter(|_| i > 0).map(|first| value / first) },
    };
    let cells = records.iter().enumerate().map(cell).collect();
    Some(Row { connection: name.to_owned(), title, path, unit: Unit::of(path), cells })
}

/// Plan, seed and environment where they are not the same in all.
fn differences(records: &[Record]) -> Vec<Difference> {
    let difference = |what: &str, value: &dyn Fn(&Record) -> String| {
        let values: Vec<String> = records.iter().map(value).collect();
        let differ = values.windows(2).any(|w| w[0] != w[1]);
        differ.then(|| Difference { what: what.to_owned(), values })
    };
    let short = |hash: &str| hash.chars().take(12).collect::<String>();
    let words: BTreeSet<&String> = records.iter().flat_map(|r| r.environment.keys()).collect();
    let environment = words.into_iter().filter_map(|word| {
        difference(word, &|r| r.environment.get(word).cloned().unwrap_or_else(|| "–".into()))
    });
    let plan = difference("plan", &|r| short(&r.experiment.hash));
    let seed = difference("seed", &|r| r.seed.to_string());
    let partial = difference("whole", &|r| if r.partial { "partial" } else { "whole" }.into());
    [plan, seed, partial].into_iter().flatten().chain(environment).collect()
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
        assert!(!c.rows.iter().any(|r| r.path == "rtt_us.p50"), "nobody knows it");
        assert_eq!(value(3.3e7, Some(1.1)).show(Unit::BitsPerSecond), "33 Mb/s (+10 %)");
    }

    #[test]
    fn what_differs_is_said() {
        let mut a = record("live", &[]);
        a.experiment.hash = "aabbccddeeff0011".into();
        a.environment = [("kernel".into(), "6.1".into()), ("program".into(), "0.1.0".into())].into();
        let mut b = a.clone();
        assert_eq!(compare(&[a.clone(), b.clone()]).differences, []);
        b.experiment.hash = "00".into();
        b.seed = Seed(7);
        b.environment.remove("kernel");
        let said: Vec<String> = compare(&[a, b]).differences.iter().map(Difference::to_string).collect();
        assert_eq!(said, ["plan: aabbccddeeff | 00", "seed: 1996 | 7", "kernel: 6.1 | –"]);
    }

    #[test]
    fn nothing_compares_to_nothing() {
        assert_eq!(compare(&[]), Comparison { labels: vec![], differences: vec![], rows: vec![] });
        assert_eq!(compare(&[Record::default()]).rows, []);
    }
}
