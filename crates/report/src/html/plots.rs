//! What the plots of the page show: plain data for `plots.js`, each with its meaning in words.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::Serialize;
use trunkline_record::Record;
use trunkline_record::schema::{Connection, Distribution, Fit};

use super::show;
use crate::human::Unit;

/// One plot.
#[derive(Debug, Serialize)]
pub(crate) struct Plot {
    #[serde(skip)]
    pub(crate) title: String,
    /// What it shows, for those who cannot see it.
    #[serde(skip)]
    pub(crate) summary: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) lines: Vec<Line>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Axis {
    pub(crate) label: Cow<'static, str>,
    /// `bps`, `us`, `s`, `bytes`, `share`, `nines` or `` (a plain number).
    pub(crate) unit: &'static str,
    pub(crate) log: bool,
    /// What to write at 0, 1, 2, … where the axis has words instead of numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) words: Vec<String>,
}

impl Axis {
    pub(crate) const fn new(label: &'static str, unit: &'static str, log: bool) -> Axis {
        Axis { label: Cow::Borrowed(label), unit, log, words: Vec::new() }
    }
}

/// A line, drawn through its points; NaN, which JSON has as null, is a gap in a line with a band.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Line {
    pub(crate) label: String,
    /// Place in the palette.
    pub(crate) color: usize,
    /// Dashed: of another record than the first.
    pub(crate) dash: bool,
    /// Filled below.
    pub(crate) fill: bool,
    pub(crate) x: Vec<f64>,
    pub(crate) y: Vec<f64>,
    /// Shaded between these, and each point marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) band: Option<Band>,
}

/// The ends of an interval for each point of a line; NaN where there is none.
#[derive(Debug, Serialize)]
pub(crate) struct Band {
    pub(crate) low: Vec<f64>,
    pub(crate) high: Vec<f64>,
}

impl Line {
    /// The points that a logarithmic axis can show, for it has no zero.
    fn positive(mut self, is_positive: impl Fn(&(f64, f64)) -> bool) -> Line {
        (self.x, self.y) = self.x.into_iter().zip(self.y).filter(is_positive).unzip();
        self
    }
}

/// A record's view of one connection, with what to call the record if there are several.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) index: usize,
    pub(super) label: Option<&'a str>,
    pub(super) connection: &'a Connection,
}

impl View<'_> {
    fn line(&self, name: &str, color: usize, points: impl Iterator<Item = (f64, f64)>) -> Option<Line> {
        let (x, y): (Vec<f64>, Vec<f64>) = points.map(|(x, y)| (short(x), short(y))).unzip();
        let label = self.label.map_or(name.to_owned(), |l| format!("{name}, {l}"));
        (x.len() > 1).then_some(Line { label, color, dash: self.index > 0, x, y, ..Line::default() })
    }

    /// `98.2 Mb/s`, `live: 98.2 Mb/s`.
    fn say(&self, text: String) -> String {
        self.label.map_or(text.clone(), |label| format!("{label}: {text}"))
    }
}

/// Six significant digits: more than a screen shows, half the bytes.
pub(crate) fn short(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

const TIME: Axis = Axis::new("time", "s", false);

fn plot(title: &str, x: Axis, y: Axis, lines: Vec<Line>, says: Vec<String>) -> Option<Plot> {
    (!lines.is_empty()).then(|| Plot { title: title.to_owned(), summary: says.join("; "), x, y, lines })
}

/// What every connection received, against the time of the whole experiment.
pub(super) fn overview(records: &[Record], labels: &[String]) -> Option<Plot> {
    let names = crate::summary::names(records);
    if names.len() < 2 {
        return None;
    }
    let mut lines = Vec::new();
    for (index, record) in records.iter().enumerate() {
        let label = (records.len() > 1).then_some(labels[index].as_str());
        for c in &record.connections {
            let start = c.runs.first().map_or(0.0, |r| r.start_s);
            let color = names.iter().position(|n| *n == c.name).unwrap_or(0);
            let points = c.series.iter().map(|p| (p.t_s + start, p.received_bps));
            lines.extend(View { index, label, connection: c }.line(&c.name, color, points));
        }
    }
    // A slow connection beside a fast one would lie on the floor of a linear axis.
    let rates =
        || records.iter().flat_map(|r| &r.connections).map(|c| c.received_bps).filter(|&bps| bps > 0.0);
    let log = rates().fold(0.0, f64::max) > 30.0 * rates().fold(f64::INFINITY, f64::min);
    let lines =
        lines.into_iter().map(|line| if log { line.positive(|&(_, y)| y > 0.0) } else { line }).collect();
    let y = Axis::new("received", "bps", log);
    plot("All connections", TIME, y, lines, vec!["Received goodput of every connection against time".into()])
}

/// Every plot of one connection that there is something to show in.
pub(super) fn connection(views: &[View<'_>]) -> Vec<Plot> {
    let mut plots: Vec<Plot> = [throughput(views), delay(views), gaps(views)].into_iter().flatten().collect();
    plots.extend(laws(views));
    plots.extend(more(views));
    plots
}

fn throughput(views: &[View<'_>]) -> Option<Plot> {
    let mut lines = Vec::new();
    for v in views {
        let series = &v.connection.series;
        lines.extend(v.line("received", 0, series.iter().map(|p| (p.t_s, p.received_bps))));
        lines.extend(v.line("sent", 1, series.iter().map(|p| (p.t_s, p.sent_bps))));
    }
    if let Some(first) = lines.first_mut() {
        first.fill = true;
    }
    let says = views.iter().map(|v| {
        let bps = |rate| show(Unit::BitsPerSecond, rate);
        v.say(format!("sent {}, received {}", bps(v.connection.sent_bps), bps(v.connection.received_bps)))
    });
    plot("Throughput", TIME, Axis::new("goodput", "bps", false), lines, says.collect())
}

/// One way and round trip on an axis of nines: as far from 90 % to 99 % as from 99 % to 99.9 %.
fn delay(views: &[View<'_>]) -> Option<Plot> {
    let (mut lines, mut says, mut seen) = (Vec::new(), Vec::new(), Vec::new());
    for v in views {
        let c = v.connection;
        for (name, color, d) in [("one way", 0, &c.delay_us), ("round trip", 2, &c.rtt_us)] {
            let Some(d) = d else { continue };
            lines.extend(v.line(name, color, d.curve.iter().map(|&(share, us)| (nines(share, d.count), us))));
            says.push(v.say(format!("{name} {}", percentiles(d))));
            seen.push(d);
        }
    }
    let x = Axis::new("percentile", "nines", false);
    plot("Delay", x, Axis::new("delay", "us", wide(&seen)), lines, says)
}

/// -log₁₀(1 - share). Of `count` values the largest stands where half a value is left above.
fn nines(share: f64, count: u64) -> f64 {
    let beyond = 0.5 / count.max(1) as f64;
    -(1.0 - share).max(beyond).log10()
}

fn gaps(views: &[View<'_>]) -> Option<Plot> {
    let (mut lines, mut says, mut seen) = (Vec::new(), Vec::new(), Vec::new());
    for v in views {
        let c = v.connection;
        for (name, color, d) in [("arrivals", 0, &c.gap_us), ("departures", 1, &c.sent_gap_us)] {
            let Some(d) = d else { continue };
            lines.extend(v.line(name, color, d.curve.iter().map(|&(share, us)| (us, share))));
            says.push(v.say(format!("between {name} {}", percentiles(d))));
            seen.push(d);
        }
    }
    let log = wide(&seen);
    let lines =
        lines.into_iter().map(|line| if log { line.positive(|&(x, _)| x > 0.0) } else { line }).collect();
    let x = Axis::new("gap", "us", log);
    plot("Gaps", x, Axis::new("share at or below", "share", false), lines, says)
}

/// Whether a linear axis would squeeze the body of these distributions against its edge.
fn wide(distributions: &[&Distribution]) -> bool {
    let largest = distributions.iter().map(|d| d.max).fold(0.0, f64::max);
    let body = distributions.iter().map(|d| d.p50).fold(f64::INFINITY, f64::min);
    body > 0.0 && distributions.iter().all(|d| d.min > 0.0) && largest / body > 4.0
}

fn percentiles(d: &Distribution) -> String {
    let us = |v| show(Unit::Microseconds, v);
    format!("median {}, 99 % at or below {}, largest {}", us(d.p50), us(d.p99), us(d.max))
}

/// Each law of the traffic: what was asked, and what left.
fn laws(views: &[View<'_>]) -> Vec<Plot> {
    let fits = || views.iter().flat_map(|v| v.connection.asked.variables.iter().map(move |fit| (v, fit)));
    let mut names: Vec<&str> = Vec::new();
    fits().for_each(|(_, fit)| {
        if !names.contains(&fit.name.as_str()) {
            names.push(&fit.name);
        }
    });
    let law = |name: &&str| law(name, &fits().filter(|(_, fit)| fit.name == *name).collect::<Vec<_>>());
    names.iter().filter_map(law).collect()
}

fn law(name: &str, fits: &[(&View<'_>, &Fit)]) -> Option<Plot> {
    let (_, first) = fits.first()?;
    let mut lines = Vec::new();
    for (i, (v, fit)) in fits.iter().enumerate() {
        if i == 0 {
            let unnamed = View { label: None, ..**v };
            lines.extend(unnamed.line("asked", 3, fit.curve.iter().map(|&(value, asked, _)| (value, asked))));
        }
        lines.extend(v.line("sent", 0, fit.curve.iter().map(|&(value, _, sent)| (value, sent))));
    }
    let says = fits.iter().map(|(v, fit)| {
        let p = fit.p_value.map(|p| format!(", p {}", show(Unit::Number, p))).unwrap_or_default();
        v.say(format!("distance {} over {} values{p}", show(Unit::Number, fit.distance), fit.samples))
    });
    let unit = match first.unit.as_str() {
        "us" => "us",
        "bps" => "bps",
        "bytes" => "bytes",
        "s" => "s",
        _ => "",
    };
    let x = Axis::new("value", unit, false);
    let title = format!("Asked and sent: {name} {}", first.law);
    plot(&title, x, Axis::new("share at or below", "share", false), lines, says.collect())
}

/// The transport's own figures: a plot for each that any series has.
fn more(views: &[View<'_>]) -> Vec<Plot> {
    let points = || views.iter().flat_map(|v| &v.connection.series);
    let keys: BTreeSet<&str> = points().flat_map(|p| p.more.keys().map(String::as_str)).collect();
    let one = |key: &str| {
        let (title, label) = known(key);
        let line = |v: &View<'_>| {
            let points = v.connection.series.iter().filter_map(|p| Some((p.t_s, *p.more.get(key)?)));
            v.line(label.unwrap_or(key), 4, points)
        };
        let lines: Vec<Line> = views.iter().filter_map(line).collect();
        let unit = Unit::of(key);
        let says = lines.iter().map(|l| {
            let largest = l.y.iter().copied().fold(f64::MIN, f64::max);
            format!("{} at most {}", l.label, show(unit, largest))
        });
        let says = says.collect();
        let y = Axis::new(label.unwrap_or("value"), axis_unit(unit), false);
        plot(title.unwrap_or(key), TIME, y, lines, says)
    };
    keys.into_iter().filter_map(one).collect()
}

/// Title and name of the figures that transports are known to give.
fn known(key: &str) -> (Option<&'static str>, Option<&'static str>) {
    let (title, label) = match key {
        "cwnd_bytes" => ("Congestion window", "window"),
        "rtt_us" => ("Round trip, the kernel's estimate", "round trip"),
        "retransmissions" => ("Retransmissions", "segments"),
        _ => return (None, None),
    };
    (Some(title), Some(label))
}

pub(crate) fn axis_unit(unit: Unit) -> &'static str {
    match unit {
        Unit::BitsPerSecond => "bps",
        Unit::Microseconds => "us",
        Unit::Seconds => "s",
        Unit::Bytes => "bytes",
        Unit::Share => "share",
        Unit::Percent | Unit::Number => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nines_are_evenly_apart() {
        for (share, want) in [(0.0, 0.0), (0.9, 1.0), (0.99, 2.0), (0.999, 3.0)] {
            assert!((nines(share, 1_000_000) - want).abs() < 1e-9);
        }
        // The largest of 5,000 stands at 1 - 1/10,000.
        assert!((nines(1.0, 5000) - 4.0).abs() < 1e-9);
        assert!(nines(1.0, 0).is_finite());
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(short(36_864_123.456), 36_864_100.0);
        assert_eq!(short(0.0), 0.0);
        assert_eq!(short(1.0 / 3.0), 0.333333);
    }
}
