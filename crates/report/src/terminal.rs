//! Reports for the terminal.

use std::ops::Range;

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use trunkline_record::Record;
use trunkline_record::schema::{Connection, Link, LinkQueue, Outcome, SendAccuracy};

use crate::applications::applications;
use crate::compare::{self, Comparison};
use crate::fits::{FitRow, distance, fit_rows, statement};
use crate::format::{Unit, sanitize};
use crate::stages::{COLUMNS_PER_RECORD, stages};
use crate::summary::{RATES, SummaryTable, connection, have_one_time, names, summary};
use crate::{labels, measured, network_note};

/// Returns the report of records as text: a heading for each record, expectations, the table of connections,
/// processing stages, requested and actual traffic, the network, the hosts' kernels and problems. Several records are shown side by side
/// and compared to the first.
///
/// Tables are at most `width` columns wide: less important columns are dropped first, and tables of several records are
/// split. Without a width they have all columns.
pub fn terminal(records: &[Record], width: Option<u16>) -> String {
    let mut text = String::new();
    let labels = labels(records);
    let title = |title: &str, label: &str| match records.len() {
        0 | 1 => title.to_owned(),
        _ => format!("{title}, {}", sanitize(label)),
    };
    for (record, label) in records.iter().zip(&labels) {
        text += &heading(record, label);
    }
    text += &network_note(records).map(|note| format!("\n{}\n", sanitize(&note))).unwrap_or_default();
    for (record, label) in records.iter().zip(&labels) {
        let lines: Vec<String> = record.expectations.iter().map(expectation).collect();
        text += &block(&title("Expectations", label), &lines);
    }
    let table = summary(records);
    if !table.rows.is_empty() {
        text += &format!("\n{}\n", fit_summary(&table, width));
        text += &if have_one_time(records) { format!("\n  {RATES}\n") } else { String::new() };
    }
    text += &stage_tables(records, width);
    for (record, label) in records.iter().zip(&labels) {
        let requested = requested(record);
        let of_applications = record.connections.iter().flat_map(application_lines);
        text += &block(&title("Applications", label), &of_applications.collect::<Vec<_>>());
        text += &block(&title("Requested vs. actual", label), &requested);
        text += &block(&title("Network", label), &network(record));
        let measured: Vec<String> = record.hosts.iter().filter_map(measured::line).collect();
        text += &block(&title("Measured of the hosts' kernels", label), &measured);
        text += &block(&title("Problems", label), &problems(record));
    }
    text
}

/// Returns the lines about the application of a connection.
fn application_lines(c: &Connection) -> impl Iterator<Item = String> {
    let name = sanitize(&c.name);
    applications(c).into_iter().map(move |line| format!("{name}: {line}"))
}

/// Returns the processing stages of each connection that has any.
fn stage_tables(records: &[Record], width: Option<u16>) -> String {
    let labels = labels(records);
    let mut text = String::new();
    for name in names(records) {
        let views = records.iter().zip(&labels).filter_map(|(record, label)| {
            Some(((records.len() > 1).then_some(label.as_str()), connection(record, name)?))
        });
        let Some(stages) = stages(&views.collect::<Vec<_>>()) else { continue };
        let draw = |columns: Range<usize>, width: Option<u16>| {
            let mut table = table(width);
            let header = stages.columns[columns.clone()].iter().map(|text| right(sanitize(text)));
            table.set_header(std::iter::once(Cell::new("stage")).chain(header));
            for (title, cells) in &stages.rows {
                let cells = cells[columns.clone()].iter().map(|text| right(sanitize(text)));
                table.add_row(std::iter::once(Cell::new(title)).chain(cells));
            }
            render(table)
        };
        let tables = split(stages.columns.len(), COLUMNS_PER_RECORD, width, draw);
        text += &format!("\nWhere the time goes: {}\n\n{tables}\n\n", sanitize(name));
        text.extend(stages.lines.iter().map(|line| format!("  {}\n", sanitize(line))));
    }
    text
}

/// Draws a table with as many groups of `size` columns side by side as fit, and the other groups below.
fn split(
    columns: usize,
    size: usize,
    width: Option<u16>,
    draw: impl Fn(Range<usize>, Option<u16>) -> String,
) -> String {
    let mut tables = Vec::new();
    let mut start = 0;
    while start < columns {
        let mut end = columns;
        while end - start > size && !fits(&draw(start..end, None), width) {
            end -= size;
        }
        let table = draw(start..end, None);
        tables.push(if fits(&table, width) { table } else { draw(start..end, width) });
        start = end;
    }
    tables.join("\n\n")
}

/// Returns whether no line is wider than `width`.
pub(crate) fn fits(text: &str, width: Option<u16>) -> bool {
    width.is_none_or(|width| text.lines().all(|line| line.chars().count() <= usize::from(width)))
}

/// Returns a right-aligned cell.
fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// Returns a line for each link, for each switch that dropped frames, and for each host that used its processors or
/// dropped packets, if the backend has links.
fn network(record: &Record) -> Vec<String> {
    let links = record.links.iter().map(|l| {
        let queue = Unit::Bytes.format(l.queue_max as f64);
        let utilization = Unit::Share.format(l.utilization);
        let line =
            format!("{}: utilization {utilization}, {}, longest queue {queue}", sanitize(&l.name), losses(l));
        [line].into_iter().chain(l.queues.iter().map(|queue| link_queue(l, queue))).collect::<Vec<_>>()
    });
    let links = links.flatten();
    let switches = record.switches.iter().filter_map(|s| {
        let facts = counts([
            (s.dropped_full, "dropped: too many frames inside"),
            (s.dropped_damaged, "dropped as corrupt"),
            (s.dropped_no_route, "dropped without a route"),
        ]);
        (!facts.is_empty()).then(|| format!("{}: {}", sanitize(&s.name), facts.join(", ")))
    });
    let hosts = record.hosts.iter().filter_map(|h| {
        let count = |name| h.interfaces.get(name).copied().unwrap_or(0);
        let processor =
            (h.cpu_percent > 0.0).then(|| format!("processor {}", Unit::Percent.format(h.cpu_percent)));
        // The simulator's interfaces (`if0`, …) drop what their links count.
        let unsent = h.interfaces.iter().filter(|(name, _)| !name.starts_with("if"));
        let unsent = unsent.filter(|(name, _)| name.ends_with(".tx_dropped")).map(|(_, count)| count).sum();
        let dropped = counts([
            (unsent, "dropped at the full queue of an interface"),
            (count("udp.receive_buffer_errors"), "dropped at the full buffer of a socket"),
            (count("dropped_full"), "dropped at a full buffer"),
            (count("dropped_damaged"), "dropped as corrupt"),
        ]);
        let facts: Vec<String> = processor.into_iter().chain(dropped).collect();
        (!facts.is_empty()).then(|| format!("{}: {}", sanitize(&h.name), facts.join(", ")))
    });
    if record.links.is_empty() { Vec::new() } else { links.chain(switches).chain(hosts).collect() }
}

/// Returns the line of the queue at one end of a link.
fn link_queue(link: &Link, queue: &LinkQueue) -> String {
    let mut facts = counts([
        (queue.dropped_full, "dropped at the full queue"),
        (queue.dropped_early, "dropped early"),
        (queue.policed, "dropped by the policer"),
        (queue.marked, "marked"),
    ]);
    if let Some(sojourn) = &queue.sojourn_us {
        let us = |value| Unit::Microseconds.format(value);
        facts.push(format!(
            "sojourn p50 {}, p99 {}, max {}",
            us(sojourn.p50),
            us(sojourn.p99),
            us(sojourn.max)
        ));
    }
    if facts.is_empty() {
        facts.push("no frames".to_owned());
    }
    let (link, node, discipline) = (sanitize(&link.name), sanitize(&queue.name), sanitize(&queue.discipline));
    format!("{link}, queue of {node} ({discipline}): {}", facts.join(", "))
}

/// Formats the counts that are not 0, each with what it counts.
fn counts<const N: usize>(all: [(u64, &str); N]) -> Vec<String> {
    let known = all.into_iter().filter(|(count, _)| *count > 0);
    known.map(|(count, what)| format!("{} {what}", Unit::Number.format(count as f64))).collect()
}

/// Returns the losses of a link: `12 dropped`; with losses on the line `12 dropped (7 at a full queue, 5 on the line)`.
/// Damaged frames and failed packets follow if there are any.
fn losses(link: &Link) -> String {
    let number = |count: u64| Unit::Number.format(count as f64);
    let mut text = format!("{} dropped", number(link.dropped));
    if let (Some(queue), Some(line)) = (link.dropped_queue, link.lost_line)
        && line > 0
    {
        let at = if link.queues.is_empty() { "a full queue" } else { "its queues" };
        text += &format!(" ({} at {at}, {} on the line)", number(queue), number(line));
    }
    let (damaged, failed) = (link.damaged.unwrap_or(0), link.aal5_failed.unwrap_or(0));
    let others = counts([(damaged, "damaged"), (failed, "packets not reassembled")]);
    others.into_iter().fold(text, |text, other| text + ", " + &other)
}

/// Returns a comparison as text: every metric, then what differs between the runs.
pub fn comparison(comparison: &Comparison, width: Option<u16>) -> String {
    let mut text = comparison.note.iter().map(|note| format!("\n{}\n", sanitize(note))).collect::<String>();
    if !comparison.rows.is_empty() {
        let draw = |columns, width| metrics_table(comparison, &comparison.rows, true, columns, width);
        let records = comparison.labels.len();
        let table = draw(0..records, None);
        text += &match fits(&table, width) {
            true => format!("\n{table}\n"),
            // Too wide: a table for each connection.
            false => connection_tables(comparison, width),
        };
    }
    let differences: Vec<String> = comparison.differences.iter().map(|d| sanitize(&d.to_string())).collect();
    text += &block("The runs differ in", &differences);
    text.trim_start_matches('\n').to_owned()
}

/// Draws a table for each connection.
fn connection_tables(comparison: &Comparison, width: Option<u16>) -> String {
    let tables = comparison.rows.chunk_by(|a, b| a.connection == b.connection).map(|rows| {
        let draw = |columns, width| metrics_table(comparison, rows, false, columns, width);
        let table = split(comparison.labels.len(), 1, width, draw);
        format!("\n{}\n\n{table}\n", sanitize(&rows[0].connection))
    });
    tables.collect()
}

/// Draws the metrics of these records, with the names of connections or without.
fn metrics_table(
    comparison: &Comparison,
    rows: &[compare::Row],
    with_names: bool,
    records: Range<usize>,
    width: Option<u16>,
) -> String {
    let mut table = table(width);
    let titles = ["connection", "metric"].into_iter().skip(usize::from(!with_names)).map(Cell::new);
    let labels = comparison.labels[records.clone()].iter().map(|label| right(sanitize(label)));
    table.set_header(titles.chain(labels));
    let mut previous = None;
    for row in rows {
        let name = if previous == Some(&row.connection) { "" } else { row.connection.as_str() };
        previous = Some(&row.connection);
        let titles = [sanitize(name), row.title.to_owned()].map(Cell::new);
        let numbers = row.cells[records.clone()].iter().map(|cell| right(cell.text_with_deviation(row.unit)));
        table.add_row(titles.into_iter().skip(usize::from(!with_names)).chain(numbers));
    }
    render(table)
}

/// Returns a line such as `quickstart  live  2026-01-02T03:04:05Z  10 s  seed 1996`.
fn heading(record: &Record, label: &str) -> String {
    let name = sanitize(&record.experiment.name);
    let (label, started) = (sanitize(label), sanitize(&record.started));
    let partial = if record.partial { "  PARTIAL" } else { "" };
    format!(
        "{name}  {label}  {started}  {}  seed {}{partial}\n",
        Unit::Seconds.format(record.duration_s),
        record.seed
    )
}

/// Returns a title and its lines, indented; an empty text if there are no lines.
pub(crate) fn block(title: &str, lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    lines.iter().fold(format!("\n{title}\n"), |text, line| text + "  " + line + "\n")
}

/// Returns an empty table that is at most `width` columns wide.
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

/// Renders a table: two blanks between columns, none before the first or after the last.
pub(crate) fn render(mut table: Table) -> String {
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    table.trim_fmt()
}

/// Draws the table with as many columns as fit.
fn fit_summary(summary: &SummaryTable, width: Option<u16>) -> String {
    let mut columns: Vec<usize> = (0..summary.columns.len()).collect();
    loop {
        let table = draw_summary(summary, &columns, None);
        if fits(&table, width) {
            return table;
        }
        let first_to_drop = columns.iter().copied().max_by_key(|&c| summary.columns[c].drop_order);
        match first_to_drop.filter(|&c| summary.columns[c].drop_order > 0) {
            Some(column) => columns.retain(|&c| c != column),
            None => return draw_summary(summary, &columns, width),
        }
    }
}

fn draw_summary(summary: &SummaryTable, columns: &[usize], width: Option<u16>) -> String {
    let align = |cell: Cell, column: usize| match summary.columns[column].is_number {
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
            let text = if c == 0 && repeated { String::new() } else { sanitize(&cell.text) };
            align(Cell::new(cell.note.iter().fold(text, |text, note| format!("{text} ({note})"))), c)
        }));
    }
    render(table)
}

/// Returns how well the traffic of all connections matches the request: a line for the rate and gaps of each, one for each random
/// variable, and one about all of these.
fn requested(record: &Record) -> Vec<String> {
    let rows = fit_rows(record);
    let of_connection = |c: &Connection| {
        let rate = rate_line(&c.requested).map(|line| format!("{}: {line}", sanitize(&c.name)));
        let rows = rows.iter().filter(|row| std::ptr::eq(row.connection, c));
        rate.into_iter().chain(rows.map(FitRow::line)).collect::<Vec<_>>()
    };
    record.connections.iter().flat_map(of_connection).chain(statement(&rows)).collect()
}

/// Returns a line such as `rate -0.012 %, gap KS distance 1.03 % (p 0.43), 3 late bursts`. The rate of an application model is
/// compared with the bytes that were due: a short run need not have the mean rate.
pub(crate) fn rate_line(requested: &SendAccuracy) -> Option<String> {
    let number = |v: f64| Unit::Number.format(v);
    let mut parts = Vec::new();
    match requested.due_error {
        Some(error) => parts.push(format!("rate {} of the bytes due", signed(error))),
        None => parts.extend(requested.rate_error.map(|error| format!("rate {}", signed(error)))),
    }
    parts.extend(requested.gap_distance.map(|d| format!("gap {}", distance(d, requested.gap_p_value))));
    let bursts =
        |count: u64, kind: &str| (count > 0).then(|| format!("{} {kind} bursts", number(count as f64)));
    parts.extend(bursts(requested.bursts_late, "late"));
    parts.extend(bursts(requested.bursts_skipped, "skipped"));
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Formats a share with its sign.
fn signed(share: f64) -> String {
    let text = Unit::Share.format(share);
    if share > 0.0 { format!("+{text}") } else { text }
}

/// Returns a line such as `pass  B-A.received_bps > 30 Mb/s: measured 36.9 Mb/s`; a failed one has both values.
fn expectation(outcome: &Outcome) -> String {
    let (unit, text) = (outcome_unit(outcome), sanitize(&outcome.text));
    let measured =
        outcome.measured.map_or("no such metric".into(), |m| format!("measured {}", unit.format(m)));
    match outcome.passed {
        true => format!("pass  {text}: {measured}"),
        false => format!("fail  {text}: {measured}, expected {}", unit.format(outcome.expected)),
    }
}

/// Returns the unit of the metric in an expectation: its text begins with the path.
pub(crate) fn outcome_unit(outcome: &Outcome) -> Unit {
    Unit::of(outcome.text.split(['<', '>', '=', '!']).next().unwrap_or_default().trim())
}

/// Returns the problems of a record and of its connections without duplicates.
pub(crate) fn problems(record: &Record) -> Vec<String> {
    let of_connections = record.connections.iter().filter_map(|c| {
        let is_new = |error: &&String| !record.problems.iter().any(|known| known.contains(error.as_str()));
        let error = c.error.as_ref().filter(is_new)?;
        Some(sanitize(&format!("{}: {error}", c.name)))
    });
    record.problems.iter().map(|problem| sanitize(problem)).chain(of_connections).collect()
}
