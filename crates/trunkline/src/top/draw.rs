//! Drawing of the screen, for 80 by 24 characters or more; a smaller terminal shows a part.

use std::fmt::Display;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Sparkline};
use trunkline_capture::Monitor;
use trunkline_capture::decode;
use trunkline_capture::exchange::{Parties, Times};
use trunkline_capture::name::{Class, Station};
use trunkline_capture::packet::Packet;
use trunkline_capture::table::{Count, Table};

use super::app::{App, Page, Purpose};
use super::rank::{
    RankedRow, Sort, format_duration, format_time_of_day, group_digits, rank_row, rank_rows, with_prefix,
};
use super::session::Session;

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, app: &App, session: &Session) {
    let (area, monitor) = (frame.area(), app.monitor(session));
    let graph = match area.height {
        ..20 => 0,
        // The decoded packet needs the space.
        20..40 if app.trace => 0,
        20..40 => 4,
        _ => 8,
    };
    let [head, load, graphed, tabs, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(3),
        Constraint::Length(graph),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(header(app, session, head.width), head);
    frame.render_widget(Paragraph::new(figures(app, session)), load);
    graph_of(frame, app, monitor, graphed);
    frame.render_widget(tab_line(app), tabs);
    match (app.trace, app.page) {
        (true, _) => trace(frame, app, monitor, body),
        (_, Page::Overview) => {
            let [above, below] = Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).areas(body);
            table(frame, app, "station", monitor, monitor.stations(), above);
            table(frame, app, "service", monitor, monitor.services(), below);
        }
        (_, Page::Stations) => table(frame, app, "station", monitor, monitor.stations(), body),
        (_, Page::Services) => table(frame, app, "service", monitor, monitor.services(), body),
        (_, Page::Connections) => table(frame, app, "connection", monitor, monitor.connections(), body),
        (_, Page::Llc) => llc(frame, app, monitor, body),
    }
    frame.render_widget(footer(app), foot);
    if app.help {
        help(frame, area);
    }
}

fn header<'a>(app: &'a App, session: &'a Session, width: u16) -> Line<'a> {
    let mut left = format!("trunkline top  {}", session.name());
    let elapsed_s = app.monitor(session).load().elapsed_ns() / 1_000_000_000;
    left += &format!("  {}:{:02}:{:02}", elapsed_s / 3600, elapsed_s / 60 % 60, elapsed_s % 60);
    if session.ended {
        left += "  ended";
    }
    if let Some(note) = &session.note {
        left += &format!("  {note}");
    }
    let right = if app.frozen.is_some() { "PAUSED " } else { "" };
    let available = usize::from(width).saturating_sub(right.len());
    Line::from(format!("{left:<available$.available$}{right}"))
        .style(Style::new().add_modifier(Modifier::REVERSED))
}

fn figures<'a>(app: &App, session: &Session) -> Vec<Line<'a>> {
    let load = app.monitor(session).load();
    let (now, average, maximum) = (load.current(), load.average(), load.maximum());
    let row = |label: &str, unit: &str, [now, average, maximum]: [f64; 3], total: String| {
        Line::from(format!(
            "{label:<10} now {:>10}  average {:>10}  max {:>10}  total {total}",
            with_prefix(now, unit),
            with_prefix(average, unit),
            with_prefix(maximum, unit)
        ))
    };
    let filter = match app.filter.as_str() {
        "" => String::new(),
        text => {
            format!(
                "  filter `{text}`: {} of {}",
                group_digits(load.shown().packets),
                group_digits(load.total().packets)
            )
        }
    };
    let kernel =
        match session.kernel {
            Some((frames, dropped)) => {
                let dropped = Span::from(format!("dropped {}", group_digits(dropped)))
                    .style(if dropped > 0 { Style::new().red().bold() } else { Style::new() });
                vec![format!("kernel     frames {}  ", group_digits(frames)).into(), dropped, filter.into()]
            }
            None => vec![
                format!("file       packets {}", group_digits(load.total().packets)).into(),
                filter.into(),
            ],
        };
    vec![
        row("packets/s", "", [now.0, average.0, maximum.0], group_digits(load.shown().packets)),
        row("bits/s", "b", [now.1, average.1, maximum.1], with_prefix(load.shown().bytes as f64, "B")),
        Line::from(kernel),
    ]
}

/// Draws the last samples, one per column.
fn graph_of(frame: &mut Frame<'_>, app: &App, monitor: &Monitor, area: Rect) {
    if area.height == 0 {
        return;
    }
    let load = monitor.load();
    let value = |count: Count| if app.bits { count.bytes } else { count.packets };
    let mut data: Vec<u64> =
        load.samples().rev().take(usize::from(area.width)).map(|s| value(s.shown)).collect();
    // The newest sample is at the right edge.
    data.resize(usize::from(area.width), 0);
    data.reverse();
    let largest = data.iter().copied().max().unwrap_or_default().max(1);
    let style = Style::new().fg(if app.bits { Color::Cyan } else { Color::Green });
    frame.render_widget(Sparkline::default().data(&data).max(largest).style(style), area);
}

fn tab_line(app: &App) -> Line<'static> {
    let mut spans = Vec::new();
    for (n, page) in Page::ALL.into_iter().enumerate() {
        let chosen = !app.trace && page == app.page;
        let style = if chosen { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        spans.push(Span::from(format!("{} {}", n + 1, page.name())).style(style));
        spans.push(" ".into());
    }
    let style = if app.trace { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
    spans.push(Span::from("t trace").style(style));
    spans.push("  ".into());
    for class in Class::ALL {
        spans.push(Span::from(class.name()).style(Style::new().fg(colour(class))));
        spans.push(" ".into());
    }
    Line::from(spans)
}

fn colour(class: Class) -> Color {
    match class {
        Class::Datagram => Color::Yellow,
        Class::Acknowledged => Color::LightRed,
        Class::Token => Color::Magenta,
        Class::Tcp => Color::Blue,
        Class::Udp => Color::Green,
        Class::Ip => Color::Cyan,
        Class::Other => Color::Gray,
    }
}

/// Width of the numeric columns after name and bar.
const FIGURES: usize = 10 + 1 + 10 + 1 + 9;
/// Minimum width of the bar next to a long name.
const MIN_BAR: usize = 12;

/// Draws a table with bars of the recent traffic of each key, by class.
fn table<K: Ord + Copy + Display>(
    frame: &mut Frame<'_>,
    app: &App,
    title: &str,
    monitor: &Monitor,
    table: &Table<K>,
    area: Rect,
) {
    let width = usize::from(area.width);
    let rows = rank_rows(table, app.sort);
    // Show the full name of a connection as long as the bar fits.
    let longest = rows.iter().map(|r| r.key.to_string().len()).max().unwrap_or_default();
    let most = width.saturating_sub(FIGURES + 3 + MIN_BAR).min(60);
    let name = (width.saturating_sub(FIGURES) * 3 / 5).min(60).max(longest.min(most)).max(10);
    let bar = width.saturating_sub(name + FIGURES + 3);
    let largest = rows.iter().map(|r| weight(app.sort, r.recent)).max().unwrap_or_default();
    let count = if rows.is_empty() { String::new() } else { format!(" ({})", rows.len()) };
    let head = format!(
        "{:<name$} {:<bar$} {:>10} {:>10} {:>9}",
        format!("{title}{count}"),
        "recent",
        "pkt/s",
        "bits/s",
        "total"
    );
    let mut lines = vec![Line::from(head).style(Style::new().bold())];
    let load = monitor.load();
    let line = |label: String, r: &RankedRow<'_, K>| {
        let (packets, bits) = load.rates(r.row.last);
        let mut spans = vec![Span::from(format!("{label:<name$.name$} "))];
        spans.extend(stacked(app.sort, &r.classes, largest, bar));
        spans.push(Span::from(format!(
            " {:>10} {:>10} {:>9}",
            with_prefix(packets, ""),
            with_prefix(bits, "b"),
            with_prefix(r.row.total.bytes as f64, "B")
        )));
        Line::from(spans)
    };
    let rows_left = usize::from(area.height).saturating_sub(1);
    lines.extend(rows.iter().skip(app.scroll).take(rows_left).map(|r| line(r.key.to_string(), r)));
    if table.others().total.packets > 0
        && lines.len() <= rows_left
        && let Some(first) = rows.first()
    {
        lines.push(line("others".into(), &rank_row(first.key, table.others())));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// Returns the quantity that the length of a bar shows.
fn weight(sort: Sort, count: Count) -> u64 {
    if sort == Sort::Packets { count.packets } else { count.bytes }
}

/// Returns a bar of at most `width` columns, stacked by class.
fn stacked(sort: Sort, classes: &[Count], largest: u64, width: usize) -> Vec<Span<'static>> {
    let column = |sum: u64| match largest {
        0 => 0,
        largest => (u128::from(sum) * width as u128).div_ceil(u128::from(largest)) as usize,
    };
    let (mut spans, mut sum, mut drawn) = (Vec::new(), 0, 0);
    for (class, count) in Class::ALL.into_iter().zip(classes) {
        sum += weight(sort, *count);
        let until = column(sum).min(width);
        spans.push(Span::from("█".repeat(until - drawn)).style(Style::new().fg(colour(class))));
        drawn = until;
    }
    spans.push(Span::from(" ".repeat(width - drawn)));
    spans
}

/// Draws the LLC page: priorities, token and exchanges.
fn llc(frame: &mut Frame<'_>, app: &App, monitor: &Monitor, area: Rect) {
    let exchanges = monitor.exchanges();
    let (total, ring) = (exchanges.total(), monitor.ring());
    let mut lines = vec![
        Line::from(format!(
            "messages {}  repeats {}, most tries {}  unanswered {}  late {}",
            group_digits(total.messages),
            group_digits(total.repeats),
            total.most_tries,
            group_digits(total.unanswered),
            group_digits(total.late),
        )),
        Line::from(format!("answers: {}", times(total.answers))),
        Line::from(format!(
            "token: {} stations  passes {}  repeats {}  replaced {}",
            ring.members().count(),
            group_digits(ring.passes()),
            group_digits(ring.repeats()),
            group_digits(ring.replaced())
        )),
        Line::from(format!("token rotation: {}", times(ring.rotation()))),
    ];
    let slowest = ring.rotations().max_by_key(|(_, times)| times.max_ns);
    if let Some((station, of)) = slowest.filter(|(_, of)| of.count > 0) {
        lines.push(Line::from(format!("  longest at station {station}: {}", times(of))));
    }
    let largest = exchanges.priorities().iter().map(|c| c.packets).max().unwrap_or_default();
    let width = usize::from(area.width).saturating_sub(40).max(1);
    for (priority, count) in exchanges.priorities().iter().enumerate().rev() {
        let bar = (u128::from(count.packets) * width as u128).div_ceil(u128::from(largest.max(1))) as usize;
        lines.push(Line::from(vec![
            format!(
                "priority {priority} {:>13} {:>9} ",
                group_digits(count.packets),
                with_prefix(count.bytes as f64, "B")
            )
            .into(),
            Span::from("█".repeat(bar.min(width))).style(Style::new().yellow()),
        ]));
    }
    let head = format!(
        "{:<34} {:>8} {:>7} {:>6} {:>5} {:>7} {:>7}",
        "from > to, priority", "messages", "repeats", "unansw", "late", "mean", "max"
    );
    lines.push(Line::from(head).style(Style::new().bold()));
    let mut all: Vec<_> = exchanges.tallies().collect();
    all.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.messages));
    for (parties, tally) in all.into_iter().skip(app.scroll).take(usize::from(area.height)) {
        let answers = tally.answers;
        lines.push(Line::from(format!(
            "{:<34.34} {:>8} {:>7} {:>6} {:>5} {:>7} {:>7}",
            format_parties(parties),
            tally.messages,
            tally.repeats,
            tally.unanswered,
            tally.late,
            format_duration(answers.mean_ns()),
            format_duration((answers.count > 0).then_some(answers.max_ns))
        )));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn format_parties(Parties { from, to, priority }: &Parties) -> String {
    let end = |(station, sap): (Station, u8)| match station {
        Station::Number(n) => format!("{n}.{sap}"),
        station => format!("{station}.{sap}"),
    };
    format!("{} > {}, {priority}", end(*from), end(*to))
}

fn times(times: Times) -> String {
    match times.count {
        0 => "none".into(),
        _ => format!(
            "last {}, mean {}, max {}",
            format_duration(Some(times.last_ns)),
            format_duration(times.mean_ns()),
            format_duration(Some(times.max_ns))
        ),
    }
}

/// Draws the list of packets, and the selected packet decoded and as octets.
fn trace(frame: &mut Frame<'_>, app: &App, monitor: &Monitor, area: Rect) {
    let [list, detail] = Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    let events = monitor.trace();
    let Some(chosen) =
        events.len().checked_sub(1 + app.selected_from_end.min(events.len().saturating_sub(1)))
    else {
        frame.render_widget(Paragraph::new("no packets yet"), area);
        return;
    };
    let port = monitor.config().llc_port;
    let rows = usize::from(list.height).saturating_sub(1);
    // Keep the selected packet in view, with the last packet at the bottom.
    let first = (chosen + 1).saturating_sub(rows.max(1)).min(events.len().saturating_sub(rows));
    let head =
        format!("{:>8} {:<15} {:<21} {:<21} {:<5} {:>5} info", "number", "time", "from", "to", "", "bytes");
    let mut lines = vec![Line::from(head).style(Style::new().bold())];
    for at in first..(first + rows).min(events.len()) {
        let Some(event) = events.get(at) else { break };
        let packet = Packet::read(&event.captured(), port);
        let line = decode::line(&packet);
        let text = format!(
            "{:>8} {:<15} {:<21.21} {:<21.21} {:<5.5} {:>5} {}",
            event.number,
            format_time_of_day(event.at_ns, 6),
            line.source,
            line.destination,
            line.protocol,
            packet.length,
            line.info
        );
        let style = if at == chosen { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        lines.push(Line::from(text).style(style));
    }
    frame.render_widget(Paragraph::new(lines), list);
    if let Some(event) = events.get(chosen) {
        let captured = event.captured();
        let words = decode::detail(&captured, &Packet::read(&captured, port));
        let most = words.len().saturating_sub(1);
        let lines: Vec<Line<'_>> = words.into_iter().skip(app.scroll.min(most)).map(Line::from).collect();
        frame.render_widget(Paragraph::new(lines), detail);
    }
}

fn footer(app: &App) -> Line<'_> {
    if let Some(input) = &app.input {
        let prompt = match input.purpose {
            Purpose::Filter => "filter",
            Purpose::Write => "write to",
        };
        let text = format!("{prompt}: {}_", input.text);
        return match app.message.as_str() {
            "" => Line::from(text),
            message => Line::from(vec![Span::from(message).red(), "  ".into(), text.into()]),
        };
    }
    if !app.message.is_empty() {
        return Line::from(app.message.as_str()).style(Style::new().yellow());
    }
    Line::from("q quit  ? help  f filter  t trace  p pause  s sort  b graph  w write  r reset  Tab page")
        .dim()
}

/// The key bindings.
const KEYS: [(&str, &str); 13] = [
    ("q", "quit"),
    ("f, /", "type a filter: tcp port 80, host 10.0.0.1, sap 4, priority 5, …"),
    ("t", "trace: the last packets, decoded"),
    ("p, space", "pause the display; counting continues"),
    ("s", "sort by bits/s, packets/s, total, name"),
    ("b", "graph of bits/s or packets/s"),
    ("w", "write the trace as pcapng"),
    ("r", "reset the counters"),
    ("1 … 5, Tab", "overview, stations, services, connections, llc"),
    ("up, down", "scroll; select a packet of the trace"),
    ("PgUp, PgDn", "scroll by ten"),
    ("left, right", "in the trace: scroll the decoded packet"),
    ("any key", "close this help"),
];

fn help(frame: &mut Frame<'_>, area: Rect) {
    let (width, height) = (78.min(area.width), (KEYS.len() as u16 + 2).min(area.height));
    let place = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
    let lines: Vec<Line<'_>> =
        KEYS.iter().map(|(key, what)| Line::from(format!(" {key:<12} {what}"))).collect();
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" keys ")), place);
}
