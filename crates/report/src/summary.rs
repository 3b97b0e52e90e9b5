//! The table of connections: a row for each, or one for each record of it.

use trunkline_record::Record;
use trunkline_record::schema::{Connection, Distribution};

use crate::human::{Unit, deviation};
use crate::labels;

/// A table ready to be shown. Texts are as the record has them: whoever shows them makes them safe.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    /// Numbers stand to the right.
    pub(crate) number: bool,
    /// What goes first where there is no room for all: the highest. 0 never goes.
    pub(crate) dispensable: u8,
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Place of the connection among all connections.
    pub(crate) connection: usize,
    pub(crate) cells: Vec<Cell>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// Beside the value: deviation from the first record, or a share.
    pub(crate) note: Option<String>,
}

struct Figure {
    title: &'static str,
    unit: Unit,
    dispensable: u8,
    get: fn(&Connection) -> Option<f64>,
}

const FIGURES: [Figure; 8] = [
    Figure { title: "offered", unit: Unit::BitsPerSecond, dispensable: 4, get: |c| c.offered_bps },
    Figure { title: "sent", unit: Unit::BitsPerSecond, dispensable: 2, get: |c| Some(c.sent_bps) },
    Figure { title: "received", unit: Unit::BitsPerSecond, dispensable: 0, get: |c| Some(c.received_bps) },
    Figure { title: "lost", unit: Unit::Number, dispensable: 0, get: |c| Some(c.lost as f64) },
    Figure { title: "delay p50", unit: Unit::Microseconds, dispensable: 1, get: |c| p50(&c.delay_us) },
    Figure { title: "delay p99", unit: Unit::Microseconds, dispensable: 3, get: |c| p99(&c.delay_us) },
    Figure { title: "gap p50", unit: Unit::Microseconds, dispensable: 5, get: |c| p50(&c.gap_us) },
    Figure { title: "rtt p50", unit: Unit::Microseconds, dispensable: 1, get: |c| p50(&c.rtt_us) },
];

fn p50(d: &Option<Distribution>) -> Option<f64> {
    d.as_ref().map(|d| d.p50)
}

fn p99(d: &Option<Distribution>) -> Option<f64> {
    d.as_ref().map(|d| d.p99)
}

/// The names of all connections of all records, in order of first mention.
pub(crate) fn names(records: &[Record]) -> Vec<&str> {
    let mut names = Vec::new();
    for c in records.iter().flat_map(|r| &r.connections) {
        if !names.contains(&c.name.as_str()) {
            names.push(c.name.as_str());
        }
    }
    names
}

/// A record's connection of that name.
pub(crate) fn connection<'a>(record: &'a Record, name: &str) -> Option<&'a Connection> {
    record.connections.iter().find(|c| c.name == name)
}

/// The summary of one record, or of several side by side. Columns in which nothing is known are left out.
pub(crate) fn summary(records: &[Record]) -> Summary {
    let several = records.len() > 1;
    let known = |f: &&Figure| records.iter().flat_map(|r| &r.connections).any(|c| (f.get)(c).is_some());
    let figures: Vec<&Figure> = FIGURES.iter().filter(known).collect();
    let word = |title, dispensable| Column { title, number: false, dispensable };
    let mut columns = vec![word("connection", 0)];
    columns.extend(several.then(|| word("backend", 0)));
    columns.extend([word("transport", 6), word("test", 7)]);
    columns.extend(figures.iter().map(|f| Column {
        title: f.title,
        number: true,
        dispensable: f.dispensable,
    }));

    let labels = labels(records);
    let mut rows = Vec::new();
    for (index, name) in names(records).into_iter().enumerate() {
        let base = connection(&records[0], name);
        for (record, label) in records.iter().zip(&labels) {
            let here = connection(record, name);
            let text = |text: &str| Cell { text: text.to_owned(), note: None };
            let mut cells = vec![text(name)];
            cells.extend(several.then(|| text(label)));
            let base = base.filter(|b| !here.is_some_and(|h| std::ptr::eq(*b, h)));
            // What the first record has said already is not said again.
            let word = |get: fn(&Connection) -> &str| match (here.map(get), base.map(get)) {
                (here, base) if here.is_some() && here == base => text(""),
                (here, _) => text(here.unwrap_or("–")),
            };
            cells.extend([word(|c| &c.transport), word(|c| &c.test)]);
            cells.extend(figures.iter().map(|f| cell(f, here, base)));
            rows.push(Row { connection: index, cells });
        }
    }
    Summary { columns, rows }
}

/// A figure of a connection, with its deviation from another record's.
fn cell(figure: &Figure, here: Option<&Connection>, base: Option<&Connection>) -> Cell {
    let Some((c, value)) = here.and_then(|c| Some((c, (figure.get)(c)?))) else {
        return Cell { text: "–".into(), note: None };
    };
    let from_base = || deviation(value, (figure.get)(base?)?);
    let note = match figure.title {
        "lost" if c.lost > 0 && c.messages_sent > 0 => {
            Some(Unit::Share.show(value / c.messages_sent as f64 / c.to.len().max(1) as f64))
        }
        "lost" | "offered" => None,
        _ => from_base(),
    };
    Cell { text: figure.unit.show(value), note }
}
