//! One HTML file: it opens offline, in light and dark, on paper and without scripts.
//!
//! Plots are drawn by [uPlot], embedded once (50 kB); the page loads nothing from anywhere.
//!
//! [uPlot]: https://github.com/leeoniya/uPlot

pub(crate) mod plots;

use maud::{DOCTYPE, Markup, PreEscaped, html as page};
use trunkline_record::Record;
use trunkline_record::schema::{Connection, Distribution, Interval};

use crate::compare::{Comparison, compare};
use crate::human::Unit;
use crate::labels;
use crate::stages::stages;
use crate::summary::{connection, names, summary};
use crate::terminal::{outcome_unit, rate_line, trouble};
use plots::{Plot, View};

const UPLOT_JS: &str = include_str!("../assets/uplot/uPlot.iife.min.js");
const UPLOT_CSS: &str = include_str!("../assets/uplot/uPlot.min.css");
const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/plots.js");
/// What a plot does when somebody touches it.
pub(crate) const PLOTS_HELP: &str = "Drag across a plot to zoom in, double-click to see all of it again; \
                                     click a name below a plot to hide its line.";
pub(crate) const MADE_BY: &str = "Made by Trunkline; plots by uPlot.";

/// The report of one record, or of several side by side, as one HTML file.
pub fn html(records: &[Record]) -> String {
    let labels = labels(records);
    let mut plots = Vec::new();
    let title = records.first().map_or("Trunkline", |r| &r.experiment.name);
    let body = page! {
        header { h1 { (title) } (runs(records, &labels)) }
        @for (record, label) in records.iter().zip(&labels) { (banner(record, label)) }
        main {
            (connections_table(records))
            (expectations(records, &labels))
            @if records.len() > 1 { (comparison(&compare(records))) }
            (overview(records, &labels, &mut plots))
            @for (index, name) in names(records).into_iter().enumerate() {
                (section(index, name, records, &labels, &mut plots))
            }
            (network(records, &labels))
            (texts(records))
        }
        footer {
            p { "Rates count message bytes only. " (PLOTS_HELP) }
            p { (MADE_BY) }
        }
    };
    document(title, &body, &plots).into_string()
}

/// A whole page around its body.
pub(crate) fn document(title: &str, body: &Markup, plots: &[Plot]) -> Markup {
    let data = serde_json::to_string(plots).expect("plots have text keys only");
    // Inside a script `</script>` would end it, and `<!--` would start a comment.
    let data = data.replace('<', "\\u003c");
    page! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                // Whatever a record says, nothing is loaded from anywhere.
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
                title { (title) " – Trunkline" }
                style { (PreEscaped(UPLOT_CSS)) (PreEscaped(STYLE)) }
            }
            body {
                (body)
                @if !plots.is_empty() {
                    script type="application/json" id="plots" { (PreEscaped(data)) }
                    script { (PreEscaped(UPLOT_JS)) }
                    script { (PreEscaped(SCRIPT)) }
                }
            }
        }
    }
}

/// A number with its unit, as print has it.
pub(crate) fn show(unit: Unit, value: f64) -> String {
    unit.show(value).replace(" us", " µs").replace(' ', "\u{202f}")
}

/// What was run: one column a record.
fn runs(records: &[Record], labels: &[String]) -> Markup {
    let row = |title: &str, value: &dyn Fn(&Record) -> String| {
        page! {
            tr { th scope="row" { (title) } @for r in records { td { (value(r)) } } }
        }
    };
    let short = |hash: &str| hash.chars().take(12).collect::<String>();
    let mut words: Vec<&String> = records.iter().flat_map(|r| r.environment.keys()).collect();
    words.sort();
    words.dedup();
    page! {
        div.scroll {
            table.facts {
                @if records.len() > 1 {
                    thead { tr { th scope="col" { "run" } @for label in labels { th scope="col" { (label) } } } }
                }
                tbody {
                    @if records.len() == 1 { (row("backend", &|r| r.backend.clone())) }
                    (row("started", &|r| r.started.clone()))
                    (row("took", &|r| show(Unit::Seconds, r.duration_s)))
                    (row("seed", &|r| r.seed.to_string()))
                    (row("plan", &|r| short(&r.experiment.hash)))
                    @for word in words { (row(word, &|r| r.environment.get(word).cloned().unwrap_or_default())) }
                }
            }
        }
    }
}

/// What went wrong, before anything else.
fn banner(record: &Record, label: &str) -> Markup {
    let trouble = trouble(record);
    page! {
        @if record.partial || !trouble.is_empty() {
            aside.trouble role="alert" {
                strong { (label) ": " @if record.partial { "this record is partial" } @else { "not all went well" } }
                @if !trouble.is_empty() { ul { @for line in trouble { li { (line) } } } }
            }
        }
    }
}

/// A wide table scrolls by itself, also from the keyboard.
pub(crate) fn scroll(label: &str, table: &Markup) -> Markup {
    page! { div.scroll tabindex="0" role="region" aria-label=(label) { (table) } }
}

fn connections_table(records: &[Record]) -> Markup {
    let summary = summary(records);
    let table = page! {
        table .several[records.len() > 1] {
            thead { tr {
                @for column in &summary.columns { th scope="col" .number[column.number] { (column.title) } }
            } }
            tbody { @for (i, row) in summary.rows.iter().enumerate() {
                @let first = i == 0 || summary.rows[i - 1].connection != row.connection;
                tr .follows[!first] { @for (i, (cell, column)) in row.cells.iter().zip(&summary.columns).enumerate() {
                    @if i == 0 {
                        th scope="row" { @if first { a href=(format!("#c{}", row.connection)) { (cell.text) } } }
                    } @else {
                        td .number[column.number] .words[column.title == "test"] {
                            (printed(&cell.text, column.number))
                            @if let Some(note) = &cell.note { " " small { (printed(note, true)) } }
                        }
                    }
                } }
            } }
        }
    };
    page! {
        section { h2 { "Connections" }
            @if summary.rows.is_empty() { p { "No connection was measured." } } @else { (scroll("Connections", &table)) }
        }
    }
}

/// The typography of [`show`] for a text that has its unit already.
pub(crate) fn printed(text: &str, number: bool) -> String {
    if number { text.replace(" us", " µs").replace(' ', "\u{202f}") } else { text.to_owned() }
}

fn expectations(records: &[Record], labels: &[String]) -> Markup {
    let outcomes =
        || records.iter().zip(labels).flat_map(|(r, l)| r.expectations.iter().map(move |o| (l, o)));
    if outcomes().next().is_none() {
        return page! {};
    }
    let table = page! {
        table {
            thead { tr {
                th scope="col" { "expected" }
                @if records.len() > 1 { th scope="col" { "backend" } }
                th.number scope="col" { "bound" } th.number scope="col" { "measured" } th scope="col" { "outcome" }
            } }
            tbody { @for (label, o) in outcomes() {
                @let unit = outcome_unit(o);
                tr {
                    th scope="row" { code { (o.text) } }
                    @if records.len() > 1 { td { (label) } }
                    td.number { (show(unit, o.expected)) }
                    td.number { (o.measured.map_or("no such figure".into(), |m| show(unit, m))) }
                    td { @if o.held { span.held { "✓ held" } } @else { span.failed { "✗ failed" } } }
                }
            } }
        }
    };
    page! { section { h2 { "Expectations" } (scroll("Expectations", &table)) } }
}

fn comparison(c: &Comparison) -> Markup {
    let differences = page! {
        table { thead { tr { th scope="col" { "" } @for l in &c.labels { th scope="col" { (l) } } } }
            tbody { @for d in &c.differences { tr { th scope="row" { (d.what) } @for v in &d.values { td { (v) } } } } }
        }
    };
    let figures = page! {
        table {
            thead { tr { th scope="col" { "connection" } th scope="col" { "figure" }
                @for label in &c.labels { th.number scope="col" { (label) } } } }
            tbody { @for (i, row) in c.rows.iter().enumerate() {
                @let first = i == 0 || c.rows[i - 1].connection != row.connection;
                tr .follows[!first] {
                    th scope="row" { @if first { (row.connection) } }
                    td { (row.title) }
                    @for cell in &row.cells { td.number {
                        (printed(&cell.text(row.unit), true))
                        @if let Some(note) = cell.note() { " " small { (printed(&note, true)) } }
                    } }
                }
            } }
        }
    };
    page! {
        section { h2 { "Side by side" }
            @if !c.differences.is_empty() {
                p { "The runs do not have all in common:" } (scroll("Differences between the runs", &differences))
            }
            details { summary { "Every figure" } (scroll("Figures side by side", &figures)) }
        }
    }
}

/// A plot's place in the page, its data going to the end.
pub(crate) fn figure(plot: Plot, class: &str, plots: &mut Vec<Plot>) -> Markup {
    let markup = page! {
        figure class=(class) {
            figcaption { (plot.title) }
            div.plot data-plot=(plots.len()) role="img" aria-label=(format!("{}. {}", plot.title, plot.summary)) {}
            p.says { (plot.summary) }
        }
    };
    plots.push(plot);
    markup
}

fn overview(records: &[Record], labels: &[String], plots: &mut Vec<Plot>) -> Markup {
    match plots::overview(records, labels) {
        Some(plot) => page! { section { h2 { "Throughput" } (figure(plot, "wide", plots)) } },
        None => page! {},
    }
}

fn section<'a>(
    index: usize,
    name: &str,
    records: &'a [Record],
    labels: &'a [String],
    plots: &mut Vec<Plot>,
) -> Markup {
    let view = |(index, record): (usize, &'a Record)| {
        let label = (records.len() > 1).then(|| labels[index].as_str());
        connection(record, name).map(|connection| View { index, label, connection })
    };
    let views: Vec<View<'_>> = records.iter().enumerate().filter_map(view).collect();
    let drawn = plots::connection(&views);
    // One wide plot of throughput, the others two abreast.
    let class = |i: usize| if i == 0 { "wide" } else { "" };
    page! {
        section id=(format!("c{index}")) {
            h2 { (name) }
            @for v in &views { (about(v)) }
            @if !drawn.is_empty() {
                div.plots { @for (i, plot) in drawn.into_iter().enumerate() { (figure(plot, class(i), plots)) } }
            }
            (distributions(&views))
            (time(&views))
            (repeats(&views))
            (details(&views))
        }
    }
}

/// `live: tcp from b to a, full 64 kB. Rate -0.01 %. pacing: spin; offload: none`
fn about(v: &View<'_>) -> Markup {
    let c = v.connection;
    let asked = rate_line(&c.asked).map(|line| format!(" Asked against sent: {line}."));
    page! {
        p.about {
            @if let Some(label) = v.label { strong { (label) } " " }
            (c.transport) " from " (c.from) " to " (c.to.join(", "))
            @if !c.test.is_empty() { ": " (c.test) } "."
            @if let Some(asked) = asked { (asked) }
            @for (key, value) in &c.notes { " " span.note { (key) " " (value) } }
        }
    }
}

fn distributions(views: &[View<'_>]) -> Markup {
    fn all(c: &Connection) -> Vec<(String, &Distribution)> {
        let own: [(&str, &Option<Distribution>); 5] = [
            ("delay", &c.delay_us),
            ("round trip", &c.rtt_us),
            ("gap between arrivals", &c.gap_us),
            ("gap between departures", &c.sent_gap_us),
            ("lateness of sending", &c.late_us),
        ];
        let own = own.into_iter().filter_map(|(name, d)| Some((name.to_owned(), d.as_ref()?)));
        let theirs =
            c.receivers.iter().filter_map(|r| Some((format!("delay to {}", r.host), r.delay_us.as_ref()?)));
        own.chain(theirs).collect()
    }
    let rows: Vec<_> =
        views.iter().flat_map(|v| all(v.connection).into_iter().map(move |(n, d)| (v, n, d))).collect();
    let several = views.iter().any(|v| v.label.is_some());
    let table = page! {
        table {
            thead { tr {
                th scope="col" { "time" }
                @if several { th scope="col" { "backend" } }
                @for title in ["values", "min", "p50", "p90", "p99", "p99.9", "max", "mean", "sd"] {
                    th.number scope="col" { (title) }
                }
            } }
            tbody { @for (v, name, d) in &rows { tr {
                th scope="row" { (name) }
                @if several { td { (v.label.unwrap_or_default()) } }
                td.number { (show(Unit::Number, d.count as f64)) }
                @for value in [d.min, d.p50, d.p90, d.p99, d.p999, d.max, d.mean, d.sd] {
                    td.number { (show(Unit::Microseconds, value)) }
                }
            } } }
        }
    };
    page! { @if !rows.is_empty() { (scroll("Percentiles", &table)) } }
}

/// Where the time of a message goes.
fn time(views: &[View<'_>]) -> Markup {
    let views: Vec<_> = views.iter().map(|v| (v.label, v.connection)).collect();
    let Some(stages) = stages(&views) else { return page! {} };
    let table = page! {
        table {
            thead { tr { th scope="col" { "where the time goes" }
                @for title in &stages.columns { th.number scope="col" { (title) } } } }
            tbody { @for (title, cells) in &stages.rows { tr {
                th scope="row" { (title) }
                @for cell in cells { td.number { (printed(cell, true)) } }
            } } }
        }
    };
    page! {
        (scroll("Where the time goes", &table))
        @for line in &stages.lines { p.note { (line) } }
    }
}

fn repeats(views: &[View<'_>]) -> Markup {
    let rows: Vec<(&View<'_>, &String, &Interval)> =
        views.iter().flat_map(|v| v.connection.repeats.iter().map(move |(name, i)| (v, name, i))).collect();
    let several = views.iter().any(|v| v.label.is_some());
    let table = page! {
        table {
            thead { tr {
                th scope="col" { "over the runs" }
                @if several { th scope="col" { "backend" } }
                @for title in ["runs", "mean", "sd", "95 % from", "to"] { th.number scope="col" { (title) } }
            } }
            tbody { @for (v, name, i) in &rows { @let unit = Unit::of(name); tr {
                th scope="row" { code { (name) } }
                @if several { td { (v.label.unwrap_or_default()) } }
                td.number { (i.n) }
                @for value in [i.mean, i.sd, i.low, i.high] { td.number { (show(unit, value)) } }
            } } }
        }
    };
    page! { @if !rows.is_empty() { (scroll("Repeated runs", &table)) } }
}

/// Everything else that was counted, folded away.
fn details(views: &[View<'_>]) -> Markup {
    fn counts(c: &Connection) -> Vec<(String, f64)> {
        let own = [
            ("messages_sent", c.messages_sent as f64),
            ("messages_received", c.messages_received as f64),
            ("lost", c.lost as f64),
            ("duplicated", c.duplicated as f64),
            ("reordered", c.reordered as f64),
            ("corrupted", c.corrupted as f64),
            ("cpu.sender_user_s", c.cpu.sender_user_s),
            ("cpu.sender_system_s", c.cpu.sender_system_s),
            ("cpu.receiver_user_s", c.cpu.receiver_user_s),
            ("cpu.receiver_system_s", c.cpu.receiver_system_s),
        ];
        let counters = c.counters.iter().map(|(name, &v)| (format!("counters.{name}"), v));
        own.into_iter().map(|(name, v)| (name.to_owned(), v)).chain(counters).collect()
    }
    let columns: Vec<_> = views.iter().map(|v| counts(v.connection)).collect();
    let mut names: Vec<&String> = Vec::new();
    columns.iter().flatten().for_each(|(name, _)| {
        if !names.contains(&name) {
            names.push(name);
        }
    });
    let cell = |column: &Vec<(String, f64)>, name: &str| {
        let value = column.iter().find(|(n, _)| n == name).map(|&(_, v)| v);
        value.map_or("–".into(), |v| show(Unit::of(name), v))
    };
    page! {
        details { summary { "Counters and processor time" }
            div.scroll { table {
                @if views.iter().any(|v| v.label.is_some()) {
                    thead { tr { th scope="col" { "" }
                        @for v in views { th.number scope="col" { (v.label.unwrap_or_default()) } } } }
                }
                tbody { @for name in names { tr {
                    th scope="row" { code { (name) } }
                    @for column in &columns { td.number { (cell(column, name)) } }
                } } }
            } }
        }
    }
}

/// Links and hosts, where there are any.
fn network(records: &[Record], labels: &[String]) -> Markup {
    let several = records.len() > 1;
    let links = || records.iter().zip(labels).flat_map(|(r, label)| r.links.iter().map(move |l| (label, l)));
    let hosts = || records.iter().zip(labels).flat_map(|(r, label)| r.hosts.iter().map(move |h| (label, h)));
    page! {
        @if links().next().is_some() {
            section { h2 { "Links" } (scroll("Links", &page! { table {
                thead { tr { th scope="col" { "link" } @if several { th scope="col" { "backend" } }
                    @for title in ["in use", "dropped", "longest queue"] { th.number scope="col" { (title) } } } }
                tbody { @for (label, link) in links() { tr {
                    th scope="row" { (link.name) }
                    @if several { td { (label) } }
                    td.number { (show(Unit::Share, link.utilization)) }
                    td.number { (show(Unit::Number, link.dropped as f64)) }
                    td.number { (show(Unit::Bytes, link.queue_max as f64)) }
                } } }
            } })) }
        }
        @if hosts().next().is_some() {
            section { h2 { "Hosts" } (scroll("Hosts", &page! { table {
                thead { tr { th scope="col" { "host" } @if several { th scope="col" { "backend" } }
                    th scope="col" { "address" } th.number scope="col" { "processor in use" } } }
                tbody { @for (label, host) in hosts() { tr {
                    th scope="row" { (host.name) }
                    @if several { td { (label) } }
                    td { (host.address.as_deref().unwrap_or("–")) }
                    td.number { (show(Unit::Percent, host.cpu_percent)) }
                } } }
            } })) }
        }
    }
}

/// The experiment as it was run: once for all records that ran the same.
fn texts(records: &[Record]) -> Markup {
    let mut texts: Vec<&str> = records.iter().map(|r| r.experiment.text.as_str()).collect();
    texts.retain(|text| !text.is_empty());
    texts.dedup();
    page! { @if !texts.is_empty() {
        section { h2 { "Experiment" } @for text in texts { pre tabindex="0" { code { (text) } } } }
    } }
}
