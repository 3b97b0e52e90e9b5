//! Tables for the terminal.

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use trunkline_record::Record;
use trunkline_record::schema::{Asked, Connection, Fit, Outcome};

use crate::compare::{self, Comparison};
use crate::human::{Unit, plain};
use crate::labels;
use crate::stages::stages;
use crate::summary::{Summary, connection, names, summary};

/// What a run says on the terminal: a heading, the table of connections, where the time goes, how well the traffic matched what was
/// asked, expectations, trouble. Several records stand side by side, the first being what the others are measured
/// against.
///
/// The table is at most `width` columns wide where that can be: what matters less goes first. Without a width it
/// is as wide as it needs.
pub fn terminal(records: &[Record], width: Option<u16>) -> String {
    let mut text = String::new();
    let several = records.len() > 1;
    for (record, label) in records.iter().zip(labels(records)) {
        text += &heading(record, &label);
    }
    let table = summary(records);
    if !table.rows.is_empty() {
        text += &format!("\n{}\n", fit(&table, width));
    }
    text += &time(records, width);
    for (record, label) in records.iter().zip(labels(records)) {
        let title =
            |title: &str| if several { format!("{title}, {}", plain(&label)) } else { title.to_owned() };
        text += &block(
            &title("Asked against sent"),
            &record.connections.iter().flat_map(asked).collect::<Vec<_>>(),
        );
        text +=
            &block(&title("Expectations"), &record.expectations.iter().map(expectation).collect::<Vec<_>>());
        text += &block(&title("Network"), &network(record));
        text += &block(&title("Trouble"), &trouble(record));
    }
    text
}

/// Where the time of each connection's messages goes, where that was measured.
fn time(records: &[Record], width: Option<u16>) -> String {
    let labels = labels(records);
    let mut text = String::new();
    for name in names(records) {
        let views = records.iter().zip(&labels).filter_map(|(record, label)| {
            Some(((records.len() > 1).then_some(label.as_str()), connection(record, name)?))
        });
        let Some(stages) = stages(&views.collect::<Vec<_>>()) else { continue };
        let right = |text: &String| Cell::new(plain(text)).set_alignment(CellAlignment::Right);
        let mut table = table(width);
        table.set_header(std::iter::once(Cell::new("stage")).chain(stages.columns.iter().map(right)));
        for (title, cells) in &stages.rows {
            table.add_row(std::iter::once(Cell::new(title)).chain(cells.iter().map(right)));
        }
        text += &format!("\nWhere the time goes: {}\n\n{}\n\n", plain(name), show(table));
        text.extend(stages.lines.iter().map(|line| format!("  {}\n", plain(line))));
    }
    text
}

/// Links, and hosts whose processors did something, where the backend knows of links.
fn network(record: &Record) -> Vec<String> {
    let links = record.links.iter().map(|l| {
        let dropped = Unit::Number.show(l.dropped as f64);
        let waited = Unit::Bytes.show(l.queue_max as f64);
        let used = Unit::Share.show(l.utilization);
        format!("{}: {used} in use, {dropped} dropped, at most {waited} waiting", plain(&l.name))
    });
    let hosts = record.hosts.iter().filter_map(|h| {
        let mut said = Vec::new();
        if h.cpu_percent > 0.0 {
            said.push(format!("processor {} busy", Unit::Percent.show(h.cpu_percent)));
        }
        for (name, what) in [("dropped_full", "dropped for want of room"), ("dropped_damaged", "damaged")] {
            if let Some(count) = h.interfaces.get(name).filter(|count| **count > 0) {
                said.push(format!("{} {what}", Unit::Number.show(*count as f64)));
            }
        }
        (!said.is_empty()).then(|| format!("{}: {}", plain(&h.name), said.join(", ")))
    });
    if record.links.is_empty() { Vec::new() } else { links.chain(hosts).collect() }
}

/// A comparison on the terminal: what differs between the runs, then every figure.
pub fn comparison(comparison: &Comparison, width: Option<u16>) -> String {
    let differences: Vec<String> = comparison.differences.iter().map(|d| plain(&d.to_string())).collect();
    let mut text = block("The runs differ in", &differences);
    let mut table = table(width);
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let words = ["connection", "figure"].map(Cell::new).into_iter();
    table.set_header(words.chain(comparison.labels.iter().map(|label| right(plain(label)))));
    let mut previous = None;
    for row in &comparison.rows {
        let name = if previous == Some(&row.connection) { "" } else { row.connection.as_str() };
        previous = Some(&row.connection);
        let words = [plain(name), row.title.to_owned()].map(Cell::new);
        let number =
            |cell: &compare::Cell| Cell::new(cell.show(row.unit)).set_alignment(CellAlignment::Right);
        table.add_row(words.into_iter().chain(row.cells.iter().map(number)));
    }
    if !comparison.rows.is_empty() {
        text += &format!("\n{}\n", show(table));
    }
    text.trim_start_matches('\n').to_owned()
}

/// `quickstart  live  2026-01-02T03:04:05Z  10 s  seed 1996`
fn heading(record: &Record, label: &str) -> String {
    let name = plain(&record.experiment.name);
    let (label, started) = (plain(label), plain(&record.started));
    let partial = if record.partial { "  PARTIAL" } else { "" };
    format!(
        "{name}  {label}  {started}  {}  seed {}{partial}\n",
        Unit::Seconds.show(record.duration_s),
        record.seed
    )
}

/// A title and its lines, indented; nothing if there are none.
pub(crate) fn block(title: &str, lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    lines.iter().fold(format!("\n{title}\n"), |text, line| text + "  " + line + "\n")
}

/// An empty table, at most so wide.
pub(crate) fn table(width: Option<u16>) -> Table {
    let rule = LineStyle::none().fill('─').junction('─');
    let mut table = Table::new();
    table.load_style(TableStyle::new().header_separator(rule));
    match width {
        Some(width) => table.set_width(width).set_content_arrangement(ContentArrangement::Dynamic),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    table
}

/// Columns two blanks apart, none before the first or after the last.
pub(crate) fn show(mut table: Table) -> String {
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    table.trim_fmt()
}

/// The table with as many columns as fit.
fn fit(summary: &Summary, width: Option<u16>) -> String {
    let mut columns: Vec<usize> = (0..summary.columns.len()).collect();
    loop {
        let natural = draw(summary, &columns, None);
        let widest = natural.lines().map(|l| l.chars().count()).max().unwrap_or(0);
        if width.is_none_or(|w| widest <= usize::from(w)) {
            return natural;
        }
        let first_to_go = columns.iter().copied().max_by_key(|&c| summary.columns[c].dispensable);
        match first_to_go.filter(|&c| summary.columns[c].dispensable > 0) {
            Some(column) => columns.retain(|&c| c != column),
            None => return draw(summary, &columns, width),
        }
    }
}

fn draw(summary: &Summary, columns: &[usize], width: Option<u16>) -> String {
    let align = |cell: Cell, column: usize| match summary.columns[column].number {
        true => cell.set_alignment(CellAlignment::Right),
        false => cell,
    };
    let mut table = table(width);
    table.set_header(columns.iter().map(|&c| align(Cell::new(summary.columns[c].title), c)));
    let mut previous = None;
    for row in &summary.rows {
        let repeated = previous.replace(row.connection) == Some(row.connection);
        table.add_row(columns.iter().map(|&c| {
            let cell = &row.cells[c];
            let text = if c == 0 && repeated { String::new() } else { plain(&cell.text) };
            align(Cell::new(cell.note.iter().fold(text, |text, note| format!("{text} ({note})"))), c)
        }));
    }
    show(table)
}

/// How well a connection's traffic matched what was asked, one line a law.
fn asked(c: &Connection) -> Vec<String> {
    let name = plain(&c.name);
    let mut lines: Vec<String> =
        rate_line(&c.asked).into_iter().map(|line| format!("{name}: {line}")).collect();
    lines.extend(c.asked.variables.iter().map(|fit| format!("{name}: {}", law_line(fit))));
    lines
}

/// `rate -0.012 %, gaps off by 0.0103 (p 0.43), 3 bursts late`
pub(crate) fn rate_line(asked: &Asked) -> Option<String> {
    let number = |v: f64| Unit::Number.show(v);
    let mut parts = Vec::new();
    parts.extend(asked.rate_error.map(|e| format!("rate {}", signed(e))));
    parts.extend(asked.gap_distance.map(|d| match asked.gap_p_value {
        Some(p) => format!("gaps off by {} (p {})", number(d), number(p)),
        None => format!("gaps off by {}", number(d)),
    }));
    let bursts = |n: u64, what: &str| (n > 0).then(|| format!("{} bursts {what}", number(n as f64)));
    parts.extend(bursts(asked.bursts_late, "late"));
    parts.extend(bursts(asked.bursts_skipped, "skipped"));
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// `gap exponential(1 ms): mean 1.01 ms of 1 ms asked, distance 0.0103 (p 0.43) over 9,999`
fn law_line(fit: &Fit) -> String {
    let unit = Unit::of(&format!("_{}", fit.unit));
    let asked = fit.asked_mean.map(|m| format!(" of {} asked", unit.show(m))).unwrap_or_default();
    let p = fit.p_value.map(|p| format!(" (p {})", Unit::Number.show(p))).unwrap_or_default();
    // One run in a hundred that kept the law gets such a mark.
    let verdict = if fit.p_value.is_some_and(|p| p < 0.01) { ": the law was not kept" } else { "" };
    let (mean, distance) = (unit.show(fit.sent_mean), Unit::Number.show(fit.distance));
    let samples = Unit::Number.show(fit.samples as f64);
    format!(
        "{} {}: mean {mean}{asked}, distance {distance}{p} over {samples}{verdict}",
        plain(&fit.name),
        plain(&fit.law)
    )
}

fn signed(share: f64) -> String {
    let text = Unit::Share.show(share);
    if share > 0.0 { format!("+{text}") } else { text }
}

/// `held    B-A.received_bps > 30 Mb/s: measured 36.9 Mb/s`; a failed one names both values.
fn expectation(outcome: &Outcome) -> String {
    let (unit, text) = (outcome_unit(outcome), plain(&outcome.text));
    let measured = outcome.measured.map_or("nothing by that name".into(), |m| unit.show(m));
    match outcome.held {
        true => format!("held    {text}: measured {measured}"),
        false => format!("FAILED  {text}: measured {measured}, expected {}", unit.show(outcome.expected)),
    }
}

/// The unit of the figure an expectation is about, which is the first word of its text.
pub(crate) fn outcome_unit(outcome: &Outcome) -> Unit {
    Unit::of(outcome.text.split(['<', '>', '=', '!']).next().unwrap_or_default().trim())
}

/// The record's trouble and its connections', without what is said twice.
pub(crate) fn trouble(record: &Record) -> Vec<String> {
    let own = record.connections.iter().filter_map(|c| {
        let trouble =
            c.trouble.as_ref().filter(|t| !record.trouble.iter().any(|said| said.contains(t.as_str())))?;
        Some(plain(&format!("{}: {trouble}", c.name)))
    });
    record.trouble.iter().map(|t| plain(t)).chain(own).collect()
}
