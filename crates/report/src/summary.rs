//! The table of connections: a row for each connection and record.

use trunkline_record::Record;
use trunkline_record::schema::{Connection, Distribution};

use crate::format::{Unit, deviation};
use crate::{are_comparable, labels};

/// The table of connections. Its texts come from the records: the caller sanitizes them.
#[derive(Clone, Debug)]
pub(crate) struct SummaryTable {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<SummaryRow>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    /// Whether it holds numbers, which are aligned to the right.
    pub(crate) is_number: bool,
    /// If not all columns fit, that with the highest order is dropped first; 0 is never dropped.
    pub(crate) drop_order: u8,
}

#[derive(Clone, Debug)]
pub(crate) struct SummaryRow {
    /// Index of the connection among all connections.
    pub(crate) connection: usize,
    pub(crate) cells: Vec<SummaryCell>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SummaryCell {
    pub(crate) text: String,
    /// Deviation from the first record, or a share, shown after the value.
    pub(crate) note: Option<String>,
}

/// A numeric column. Add a new field of the record to [`METRICS`].
struct Metric {
    title: &'static str,
    unit: Unit,
    drop_order: u8,
    get: fn(&Connection) -> Option<f64>,
}

const METRICS: [Metric; 9] = [
    Metric { title: "offered", unit: Unit::BitsPerSecond, drop_order: 4, get: |c| c.offered_bps },
    Metric { title: "sent", unit: Unit::BitsPerSecond, drop_order: 2, get: |c| Some(sent_bps(c)) },
    Metric { title: "received", unit: Unit::BitsPerSecond, drop_order: 0, get: |c| Some(c.received_bps) },
    Metric { title: "lost", unit: Unit::Number, drop_order: 0, get: |c| Some(c.lost as f64) },
    Metric { title: "delay p50", unit: Unit::Microseconds, drop_order: 1, get: |c| p50(&c.delay_us) },
    Metric { title: "delay p99", unit: Unit::Microseconds, drop_order: 3, get: |c| p99(&c.delay_us) },
    Metric { title: "delay ±", unit: Unit::Microseconds, drop_order: 3, get: |c| c.delay_uncertainty_us },
    Metric { title: "gap p50", unit: Unit::Microseconds, drop_order: 5, get: |c| p50(&c.gap_us) },
    Metric { title: "rtt p50", unit: Unit::Microseconds, drop_order: 1, get: |c| p50(&c.rtt_us) },
];

/// What the rates of the table are, below it.
pub(crate) const RATES: &str = "sent, received: over the time until the last arrival";

/// Returns the rate sent over the time of that received: over one time, no connection sends more than its line carries.
fn sent_bps(c: &Connection) -> f64 {
    c.sent_until_last_bps.unwrap_or(c.sent_bps)
}

/// Returns whether the rates of all connections are those that [`RATES`] says; records of earlier versions have others.
pub(crate) fn have_one_time(records: &[Record]) -> bool {
    records.iter().flat_map(|r| &r.connections).all(|c| c.sent_until_last_bps.is_some())
}

fn p50(d: &Option<Distribution>) -> Option<f64> {
    d.as_ref().map(|d| d.p50)
}

fn p99(d: &Option<Distribution>) -> Option<f64> {
    d.as_ref().map(|d| d.p99)
}

/// Returns the names of all connections of all records, in order of first occurrence.
pub(crate) fn names(records: &[Record]) -> Vec<&str> {
    distinct(records.iter().flat_map(|r| &r.connections).map(|c| c.name.as_str()))
}

/// Returns each name once, in order of first occurrence.
pub(crate) fn distinct<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names = Vec::new();
    for name in all {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

pub(crate) fn connection<'a>(record: &'a Record, name: &str) -> Option<&'a Connection> {
    record.connections.iter().find(|c| c.name == name)
}

/// Returns the table of one record, or of several side by side. Columns without values are omitted.
pub(crate) fn summary(records: &[Record]) -> SummaryTable {
    let several = records.len() > 1;
    let is_known = |m: &&Metric| records.iter().flat_map(|r| &r.connections).any(|c| (m.get)(c).is_some());
    let metrics: Vec<&Metric> = METRICS.iter().filter(is_known).collect();
    let text_column = |title, drop_order| Column { title, is_number: false, drop_order };
    let mut columns = vec![text_column("connection", 0)];
    columns.extend(several.then(|| text_column("backend", 0)));
    columns.extend([text_column("transport", 6), text_column("test", 7)]);
    columns.extend(metrics.iter().map(|m| Column {
        title: m.title,
        is_number: true,
        drop_order: m.drop_order,
    }));

    let labels = labels(records);
    let mut rows = Vec::new();
    for (index, name) in names(records).into_iter().enumerate() {
        for (record, label) in records.iter().zip(&labels) {
            let current = connection(record, name);
            let first = connection(&records[0], name);
            // `None` in the row of the first record itself.
            let first = first.filter(|f| !current.is_some_and(|c| std::ptr::eq(*f, c)));
            let base = first.filter(|_| are_comparable(&records[0], record));
            let plain_cell = |text: &str| SummaryCell { text: text.to_owned(), note: None };
            let mut cells = vec![plain_cell(name)];
            cells.extend(several.then(|| plain_cell(label)));
            // Do not repeat the text of the first record.
            let text_cell = |get: fn(&Connection) -> &str| match (current.map(get), first.map(get)) {
                (current, first) if current.is_some() && current == first => plain_cell(""),
                (current, _) => plain_cell(current.unwrap_or("–")),
            };
            cells.extend([text_cell(|c| &c.transport), text_cell(|c| &c.test)]);
            cells.extend(metrics.iter().map(|m| number_cell(m, current, base)));
            rows.push(SummaryRow { connection: index, cells });
        }
    }
    SummaryTable { columns, rows }
}

/// Returns a metric of a connection, with its deviation from `base`.
fn number_cell(metric: &Metric, current: Option<&Connection>, base: Option<&Connection>) -> SummaryCell {
    let Some((c, value)) = current.and_then(|c| Some((c, (metric.get)(c)?))) else {
        return SummaryCell { text: "–".into(), note: None };
    };
    let note = match metric.title {
        "lost" if c.lost > 0 && c.messages_sent > 0 => {
            Some(Unit::Share.format(value / c.messages_sent as f64 / c.to.len().max(1) as f64))
        }
        "lost" | "offered" => None,
        _ => base.and_then(|base| deviation(value, (metric.get)(base)?)),
    };
    SummaryCell { text: metric.unit.format(value), note }
}
