//! The report as one HTML file: it opens offline, in light and dark mode, prints, and needs no scripts except for plots.
//!
//! Plots are drawn by [`trunkline_chart`], embedded once (60 kB); the page loads nothing from the network.

pub(crate) mod plots;

use maud::{DOCTYPE, Markup, PreEscaped, html as page};
use trunkline_record::Record;
use trunkline_record::schema::{Connection, Distribution, Interval, LinkQueue};

use crate::compare::{Comparison, compare};
use crate::fits::{fit_rows, statement};
use crate::format::Unit;
use crate::stages::stages;
use crate::summary::{RATES, connection, distinct, have_one_time, names, summary};
use crate::terminal::{outcome_unit, problems, rate_line};
use crate::{labels, network_note, short_hash};
use plots::{PlotData, View};

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/plots.js");
/// How to use a plot.
pub(crate) const PLOTS_HELP: &str = "Drag across a plot to zoom in, double-click to reset it; \
                                     click a name below a plot to hide its line. Keys on a plot: ← → move the \
                                     cursor, + − zoom, Esc resets.";
pub(crate) const MADE_BY: &str = "Made by Trunkline; plots by uPlot.";

/// Returns the report of one record, or of several side by side, as one HTML file.
pub fn html(records: &[Record]) -> String {
    let labels = labels(records);
    let mut plots = Vec::new();
    let title = records.first().map_or("Trunkline", |r| &r.experiment.name);
    let views: Vec<Vec<View<'_>>> =
        names(records).into_iter().map(|name| views(name, records, &labels)).collect();
    let body = page! {
        header {
            h1 { (title) }
            @for (record, label) in records.iter().zip(&labels) { (heading(record, label)) }
        }
        @for (record, label) in records.iter().zip(&labels) { (banner(record, label)) }
        @if let Some(note) = network_note(records) { p.about { (note) } }
        main {
            (expectations(records, &labels))
            (overview(records, &labels, &mut plots))
            @for (index, views) in views.iter().enumerate() { (plot_section(index, views, &mut plots)) }
            (host_plots(records, &labels, &mut plots))
            (connections_table(records))
            @for (record, label) in records.iter().zip(&labels) {
                @if let Some(text) = statement(&fit_rows(record)) { p.about { (label) ": " (text) "." } }
            }
            @if records.len() > 1 { (comparison(&compare(records))) }
            @for views in &views { (table_section(views)) }
            (network(records, &labels))
            (texts(records))
            (facts(records, &labels))
        }
        footer {
            p { "Rates count message bytes only. " (PLOTS_HELP) }
            p { (MADE_BY) }
        }
    };
    document(title, &body, &plots).into_string()
}

/// Returns a complete page with this body.
pub(crate) fn document(title: &str, body: &Markup, plots: &[PlotData]) -> Markup {
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
                // The page loads nothing, even if texts of a record contained markup.
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
                title { (title) " – Trunkline" }
                style { (PreEscaped(trunkline_chart::STYLE)) (PreEscaped(STYLE)) }
            }
            body {
                (body)
                @if !plots.is_empty() {
                    script type="application/json" id="plots" { (PreEscaped(data)) }
                    script { (PreEscaped(trunkline_chart::SCRIPT)) }
                    script { (PreEscaped(SCRIPT)) }
                }
            }
        }
    }
}

/// Formats a number with its unit, with typographic spaces.
pub(crate) fn format_value(unit: Unit, value: f64) -> String {
    typeset(&unit.format(value), true)
}

/// Returns a line such as `live, 2026-01-02T03:04:05Z, 10 s, seed 1996`.
fn heading(record: &Record, label: &str) -> Markup {
    page! {
        p.about { strong { (label) } ", " (record.started) ", " (format_value(Unit::Seconds, record.duration_s)) ", seed " (record.seed) }
    }
}

/// Returns the facts about the runs and the machine, one column for each record, folded.
fn facts(records: &[Record], labels: &[String]) -> Markup {
    let row = |title: &str, value: &dyn Fn(&Record) -> String| {
        page! {
            tr { th scope="row" { (title) } @for r in records { td { (value(r)) } } }
        }
    };
    let mut keys: Vec<&String> = records.iter().flat_map(|r| r.environment.keys()).collect();
    keys.sort();
    keys.dedup();
    page! {
        section {
            details {
                summary { "Run and machine" }
                div.scroll { table.facts {
                    @if records.len() > 1 {
                        thead { tr { th scope="col" { "run" } @for label in labels { th scope="col" { (label) } } } }
                    }
                    tbody {
                        @if records.len() == 1 { (row("backend", &|r| r.backend.clone())) }
                        (row("started", &|r| r.started.clone()))
                        (row("duration", &|r| format_value(Unit::Seconds, r.duration_s)))
                        (row("seed", &|r| r.seed.to_string()))
                        (row("plan", &|r| short_hash(&r.experiment.hash)))
                        @for key in keys { (row(key, &|r| r.environment.get(key).cloned().unwrap_or_default())) }
                    }
                } }
            }
        }
    }
}

/// Returns the problems of a record.
fn banner(record: &Record, label: &str) -> Markup {
    let problems = problems(record);
    page! {
        @if record.partial || !problems.is_empty() {
            aside.problems role="alert" {
                strong { (label) ": " @if record.partial { "this record is partial" } @else { "the run had problems" } }
                @if !problems.is_empty() { ul { @for line in problems { li { (line) } } } }
            }
        }
    }
}

/// Wraps a table so that it scrolls separately, also with the keyboard.
pub(crate) fn scroll(label: &str, table: &Markup) -> Markup {
    page! { div.scroll tabindex="0" role="region" aria-label=(label) { (table) } }
}

fn connections_table(records: &[Record]) -> Markup {
    let summary = summary(records);
    let table = page! {
        table .several[records.len() > 1] {
            thead { tr {
                @for column in &summary.columns { th scope="col" .number[column.is_number] { (column.title) } }
            } }
            tbody { @for (i, row) in summary.rows.iter().enumerate() {
                @let first = i == 0 || summary.rows[i - 1].connection != row.connection;
                tr .follows[!first] { @for (i, (cell, column)) in row.cells.iter().zip(&summary.columns).enumerate() {
                    @if i == 0 {
                        th scope="row" { @if first { a href=(format!("#c{}", row.connection)) { (cell.text) } } }
                    } @else {
                        td .number[column.is_number] .text[column.title == "test"] {
                            (typeset(&cell.text, column.is_number))
                            @if let Some(note) = &cell.note { " " small { (typeset(note, true)) } }
                        }
                    }
                } }
            } }
        }
    };
    page! {
        section { h2 { "Connections" }
            @if summary.rows.is_empty() { p { "No connection was measured." } } @else { (scroll("Connections", &table)) }
            @if !summary.rows.is_empty() && have_one_time(records) { p.about { (RATES) "." } }
        }
    }
}

/// Applies the typography of [`format_value`] to a formatted number; other texts stay unchanged.
pub(crate) fn typeset(text: &str, is_number: bool) -> String {
    if is_number { text.replace(" us", " µs").replace(' ', "\u{202f}") } else { text.to_owned() }
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
                th scope="col" { "expectation" }
                @if records.len() > 1 { th scope="col" { "backend" } }
                th.number scope="col" { "bound" } th.number scope="col" { "measured" } th scope="col" { "outcome" }
            } }
            tbody { @for (label, o) in outcomes() {
                @let unit = outcome_unit(o);
                tr {
                    th scope="row" { code { (o.text) } }
                    @if records.len() > 1 { td { (label) } }
                    td.number { (format_value(unit, o.expected)) }
                    td.number { (o.measured.map_or("no such metric".into(), |m| format_value(unit, m))) }
                    td { @if o.passed { span.pass { "✓ pass" } } @else { span.fail { "✗ fail" } } }
                }
            } }
        }
    };
    page! { section { h2 { "Expectations" } (scroll("Expectations", &table)) } }
}

fn comparison(c: &Comparison) -> Markup {
    let differences = page! {
        table { thead { tr { th scope="col" { "" } @for l in &c.labels { th scope="col" { (l) } } } }
            tbody { @for d in &c.differences { tr { th scope="row" { (d.name) } @for v in &d.values { td { (v) } } } } }
        }
    };
    let metrics = page! {
        table {
            thead { tr { th scope="col" { "connection" } th scope="col" { "metric" }
                @for label in &c.labels { th.number scope="col" { (label) } } } }
            tbody { @for (i, row) in c.rows.iter().enumerate() {
                @let first = i == 0 || c.rows[i - 1].connection != row.connection;
                tr .follows[!first] {
                    th scope="row" { @if first { (row.connection) } }
                    td { (row.title) }
                    @for cell in &row.cells { td.number {
                        (typeset(&cell.text(row.unit), true))
                        @if let Some(deviation) = cell.deviation() { " " small { (typeset(&deviation, true)) } }
                    } }
                }
            } }
        }
    };
    page! {
        section { h2 { "Comparison" }
            details { summary { "All metrics" } (scroll("Metrics side by side", &metrics)) }
            @if !c.differences.is_empty() {
                details { summary { "Differences between the runs" } (scroll("Differences between the runs", &differences)) }
            }
        }
    }
}

/// Returns the element of a plot and appends its data to `plots`.
pub(crate) fn plot_element(plot: PlotData, class: &str, plots: &mut Vec<PlotData>) -> Markup {
    let label = format!("{}. {}", plot.title, plot.description);
    let element = page! {
        figure class=(class) {
            figcaption { (plot.title) }
            div.plot data-plot=(plots.len()) role="img" aria-label=(label) {}
            p.description { (plot.description) }
        }
    };
    plots.push(plot);
    element
}

fn overview(records: &[Record], labels: &[String], plots: &mut Vec<PlotData>) -> Markup {
    match plots::overview(records, labels) {
        Some(plot) => page! { section { h2 { "Throughput" } (plot_element(plot, "wide", plots)) } },
        None => page! {},
    }
}

/// Returns the records' views of the connection with this name.
fn views<'a>(name: &str, records: &'a [Record], labels: &'a [String]) -> Vec<View<'a>> {
    let view = |(index, record): (usize, &'a Record)| {
        let label = (records.len() > 1).then(|| labels[index].as_str());
        connection(record, name).map(|connection| View { index, label, connection })
    };
    records.iter().enumerate().filter_map(view).collect()
}

/// Returns the name of the connection of these views.
fn name<'a>(views: &[View<'a>]) -> &'a str {
    views.first().map_or("", |view| &view.connection.name)
}

/// Returns the description and the plots of a connection.
fn plot_section(index: usize, views: &[View<'_>], plots: &mut Vec<PlotData>) -> Markup {
    let connection_plots = plots::connection(views);
    // One wide plot of throughput, the others in two columns.
    let class = |i: usize| if i == 0 { "wide" } else { "" };
    page! {
        section id=(format!("c{index}")) {
            h2 { (name(views)) }
            @for v in views { (about(v)) }
            @if !connection_plots.is_empty() {
                div.plots { @for (i, plot) in connection_plots.into_iter().enumerate() {
                    (plot_element(plot, class(i), plots))
                } }
            }
        }
    }
}

/// Returns the plots of what was measured of the hosts' kernels.
fn host_plots(records: &[Record], labels: &[String], plots: &mut Vec<PlotData>) -> Markup {
    let hosts = distinct(records.iter().flat_map(|r| &r.hosts).map(|host| host.name.as_str()));
    page! {
        @for name in hosts {
            @let of_host = plots::host(name, records, labels);
            @if !of_host.is_empty() {
                section {
                    h2 { "Host " (name) }
                    div.plots { @for plot in of_host { (plot_element(plot, "", plots)) } }
                }
            }
        }
    }
}

/// Returns the tables of a connection.
fn table_section(views: &[View<'_>]) -> Markup {
    page! {
        section {
            h2 { (name(views)) ": metrics" }
            (distributions(views))
            (stage_table(views))
            (repeats(views))
            (details(views))
        }
    }
}

/// Returns a line such as `live: tcp from b to a, full 64 kB. Requested vs. actual: rate -0.01 %. pacing spin`.
fn about(v: &View<'_>) -> Markup {
    let c = v.connection;
    let requested = rate_line(&c.requested).map(|line| format!(" Requested vs. actual: {line}."));
    page! {
        p.about {
            @if let Some(label) = v.label { strong { (label) } " " }
            (c.transport) " from " (c.from) " to " (c.to.join(", "))
            @if !c.test.is_empty() { ": " (c.test) } "."
            @if let Some(requested) = requested { (requested) }
            @for (key, value) in &c.notes { " " span.note { (key) " " (value) } }
        }
    }
}

/// Returns the table of percentiles.
fn distributions(views: &[View<'_>]) -> Markup {
    fn all(c: &Connection) -> Vec<(String, &Distribution)> {
        let of_connection: [(&str, &Option<Distribution>); 6] = [
            ("delay", &c.delay_us),
            ("round trip", &c.rtt_us),
            ("round trip, closed loop", &c.closed_loop_rtt_us),
            ("gap between arrivals", &c.gap_us),
            ("gap between departures", &c.sent_gap_us),
            ("lateness of sending", &c.late_us),
        ];
        let of_connection =
            of_connection.into_iter().filter_map(|(name, d)| Some((name.to_owned(), d.as_ref()?)));
        let of_receivers =
            c.receivers.iter().filter_map(|r| Some((format!("delay to {}", r.host), r.delay_us.as_ref()?)));
        of_connection.chain(of_receivers).collect()
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
                td.number { (format_value(Unit::Number, d.count as f64)) }
                @for value in [d.min, d.p50, d.p90, d.p99, d.p999, d.max, d.mean, d.sd] {
                    td.number { (format_value(Unit::Microseconds, value)) }
                }
            } } }
        }
    };
    page! { @if !rows.is_empty() { (scroll("Percentiles", &table)) } }
}

/// Returns the table of processing stages.
fn stage_table(views: &[View<'_>]) -> Markup {
    let views: Vec<_> = views.iter().map(|v| (v.label, v.connection)).collect();
    let Some(stages) = stages(&views) else { return page! {} };
    let table = page! {
        table {
            thead { tr { th scope="col" { "where the time goes" }
                @for title in &stages.columns { th.number scope="col" { (title) } } } }
            tbody { @for (title, cells) in &stages.rows { tr {
                th scope="row" { (title) }
                @for cell in cells { td.number { (typeset(cell, true)) } }
            } } }
        }
    };
    page! {
        (scroll("Where the time goes", &table))
        @for line in &stages.lines { p.note { (line) } }
    }
}

/// Returns the table of confidence intervals over the repetitions.
fn repeats(views: &[View<'_>]) -> Markup {
    let rows: Vec<(&View<'_>, &String, &Interval)> =
        views.iter().flat_map(|v| v.connection.repeats.iter().map(move |(name, i)| (v, name, i))).collect();
    let several = views.iter().any(|v| v.label.is_some());
    let table = page! {
        table {
            thead { tr {
                th scope="col" { "over the repetitions" }
                @if several { th scope="col" { "backend" } }
                @for title in ["repetitions", "mean", "sd", "95 % from", "to"] { th.number scope="col" { (title) } }
            } }
            tbody { @for (v, name, i) in &rows { @let unit = Unit::of(name); tr {
                th scope="row" { code { (name) } }
                @if several { td { (v.label.unwrap_or_default()) } }
                td.number { (i.n) }
                @for value in [i.mean, i.sd, i.low, i.high] { td.number { (format_value(unit, value)) } }
            } } }
        }
    };
    page! { @if !rows.is_empty() { (scroll("Repetitions", &table)) } }
}

/// Returns the remaining counters, folded.
fn details(views: &[View<'_>]) -> Markup {
    fn counts(c: &Connection) -> Vec<(String, f64)> {
        let fields = [
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
        fields.into_iter().map(|(name, v)| (name.to_owned(), v)).chain(counters).collect()
    }
    let columns: Vec<_> = views.iter().map(|v| counts(v.connection)).collect();
    let names = distinct(columns.iter().flatten().map(|(name, _)| name.as_str()));
    let cell = |column: &Vec<(String, f64)>, name: &str| {
        let value = column.iter().find(|(n, _)| n == name).map(|&(_, v)| v);
        value.map_or("–".into(), |v| format_value(Unit::of(name), v))
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

/// The columns of numbers of the table of queues.
const QUEUE_TITLES: [&str; 7] =
    ["dropped full", "dropped early", "policed", "marked", "sojourn p50", "sojourn p99", "sojourn max"];

/// Returns the tables of links, their queues, and hosts, if there are any.
fn network(records: &[Record], labels: &[String]) -> Markup {
    let several = records.len() > 1;
    let links = || records.iter().zip(labels).flat_map(|(r, label)| r.links.iter().map(move |l| (label, l)));
    let hosts = || records.iter().zip(labels).flat_map(|(r, label)| r.hosts.iter().map(move |h| (label, h)));
    let queues =
        || links().flat_map(|(label, link)| link.queues.iter().map(move |queue| (label, link, queue)));
    let sojourn = |queue: &LinkQueue| {
        let times = queue.sojourn_us.as_ref();
        [times.map(|t| t.p50), times.map(|t| t.p99), times.map(|t| t.max)]
    };
    page! {
        @if links().next().is_some() {
            section { h2 { "Links" } (scroll("Links", &page! { table {
                thead { tr { th scope="col" { "link" } @if several { th scope="col" { "backend" } }
                    @for title in ["utilization", "dropped", "longest queue"] { th.number scope="col" { (title) } } } }
                tbody { @for (label, link) in links() { tr {
                    th scope="row" { (link.name) }
                    @if several { td { (label) } }
                    td.number { (format_value(Unit::Share, link.utilization)) }
                    td.number { (format_value(Unit::Number, link.dropped as f64)) }
                    td.number { (format_value(Unit::Bytes, link.queue_max as f64)) }
                } } }
            } })) }
        }
        @if queues().next().is_some() {
            section { h2 { "Queues" } (scroll("Queues", &page! { table {
                thead { tr { th scope="col" { "link" } @if several { th scope="col" { "backend" } }
                    th scope="col" { "queue of" } th scope="col" { "discipline" }
                    @for title in QUEUE_TITLES { th.number scope="col" { (title) } } } }
                tbody { @for (label, link, queue) in queues() { tr {
                    th scope="row" { (link.name) }
                    @if several { td { (label) } }
                    td { (queue.name) } td { (queue.discipline) }
                    @for count in [queue.dropped_full, queue.dropped_early, queue.policed, queue.marked] {
                        td.number { (format_value(Unit::Number, count as f64)) }
                    }
                    @for value in sojourn(queue) {
                        td.number { (value.map_or("–".into(), |us| format_value(Unit::Microseconds, us))) }
                    }
                } } }
            } })) }
        }
        @if hosts().next().is_some() {
            section { h2 { "Hosts" } (scroll("Hosts", &page! { table {
                thead { tr { th scope="col" { "host" } @if several { th scope="col" { "backend" } }
                    th scope="col" { "address" } th.number scope="col" { "processor" } } }
                tbody { @for (label, host) in hosts() { tr {
                    th scope="row" { (host.name) }
                    @if several { td { (label) } }
                    td { (host.address.as_deref().unwrap_or("–")) }
                    td.number { (format_value(Unit::Percent, host.cpu_percent)) }
                } } }
            } })) }
        }
    }
}

/// Returns the text of the experiment, once for all records with the same text.
fn texts(records: &[Record]) -> Markup {
    let mut texts: Vec<&str> = records.iter().map(|r| r.experiment.text.as_str()).collect();
    texts.retain(|text| !text.is_empty());
    texts.dedup();
    page! { @if !texts.is_empty() {
        section { h2 { "Experiment" } @for text in texts { pre tabindex="0" { code { (text) } } } }
    } }
}
