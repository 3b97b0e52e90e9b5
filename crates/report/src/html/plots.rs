//! The data of the plots that `plots.js` draws, each with a description.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::Serialize;
use trunkline_record::Record;
use trunkline_record::schema::{Connection, Distribution, Fit, SendAccuracy};

use super::{format_value, typeset};
use crate::fits::{distance, worst};
use crate::format::Unit;
use crate::measured::{Quantity, quantities, title_and_line};
use crate::summary::distinct;

#[derive(Debug, Serialize)]
pub(crate) struct PlotData {
    #[serde(skip)]
    pub(crate) title: String,
    /// Text below the plot; also its description for screen readers.
    #[serde(skip)]
    pub(crate) description: String,
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
    /// Labels at 0, 1, 2, … of an axis with categories instead of numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) categories: Vec<String>,
}

impl Axis {
    pub(crate) const fn new(label: &'static str, unit: &'static str, log: bool) -> Axis {
        Axis { label: Cow::Borrowed(label), unit, log, categories: Vec::new() }
    }
}

/// A line through points; NaN, which is null in JSON, is a gap in a line with a band.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Line {
    pub(crate) label: String,
    /// Index in the palette.
    pub(crate) color: usize,
    /// Whether the line is dashed: it belongs to a record other than the first.
    pub(crate) dash: bool,
    /// Whether the area below is filled.
    pub(crate) fill: bool,
    pub(crate) x: Vec<f64>,
    pub(crate) y: Vec<f64>,
    /// Shaded band; each point is marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) band: Option<Band>,
}

/// The ends of an interval for each point of a line; NaN if there is none.
#[derive(Debug, Serialize)]
pub(crate) struct Band {
    pub(crate) low: Vec<f64>,
    pub(crate) high: Vec<f64>,
}

impl Line {
    /// Retains the points that a logarithmic axis can show: those with a positive coordinate.
    fn retain_positive(&mut self, is_positive: impl Fn(&(f64, f64)) -> bool) {
        (self.x, self.y) = self.x.drain(..).zip(self.y.drain(..)).filter(is_positive).unzip();
    }
}

/// A connection of a record, with the label of the record if there are several.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    /// Index of the record.
    pub(super) index: usize,
    pub(super) label: Option<&'a str>,
    pub(super) connection: &'a Connection,
}

/// Returns a line of the record with this index and label; `None` with less than two points.
fn line(
    (index, label): (usize, Option<&str>),
    name: &str,
    color: usize,
    points: impl Iterator<Item = (f64, f64)>,
) -> Option<Line> {
    let (x, y): (Vec<f64>, Vec<f64>) = points.map(|(x, y)| (round(x), round(y))).unzip();
    let label = label.map_or(name.to_owned(), |l| format!("{name}, {l}"));
    (x.len() > 1).then_some(Line { label, color, dash: index > 0, x, y, ..Line::default() })
}

impl View<'_> {
    fn line(&self, name: &str, color: usize, points: impl Iterator<Item = (f64, f64)>) -> Option<Line> {
        line((self.index, self.label), name, color, points)
    }

    /// Prefixes a text with the label, if any: `live: 98.2 Mb/s`.
    fn labelled(&self, text: String) -> String {
        self.label.map_or(text.clone(), |label| format!("{label}: {text}"))
    }
}

/// Rounds to six significant digits: more than a screen shows, in half the bytes.
pub(crate) fn round(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

const TIME: Axis = Axis::new("time", "s", false);

/// Returns a plot with a description of these texts; `None` without lines.
fn plot(title: &str, x: Axis, y: Axis, lines: Vec<Line>, texts: Vec<String>) -> Option<PlotData> {
    let (title, description) = (title.to_owned(), texts.join("; "));
    (!lines.is_empty()).then_some(PlotData { title, description, x, y, lines })
}

/// Returns the plot of the goodput of every connection over the time of the experiment.
pub(super) fn overview(records: &[Record], labels: &[String]) -> Option<PlotData> {
    let names = crate::summary::names(records);
    if names.len() < 2 {
        return None;
    }
    let mut lines = Vec::new();
    for (index, record) in records.iter().enumerate() {
        let label = (records.len() > 1).then_some(labels[index].as_str());
        for c in &record.connections {
            let start_s = c.repetitions.first().map_or(0.0, |r| r.start_s);
            let color = names.iter().position(|n| *n == c.name).unwrap_or(0);
            let points = c.series.iter().map(|p| (p.t_s + start_s, p.received_bps));
            lines.extend(View { index, label, connection: c }.line(&c.name, color, points));
        }
    }
    // A linear axis would flatten a slow connection next to a fast one.
    let rates =
        || records.iter().flat_map(|r| &r.connections).map(|c| c.received_bps).filter(|&bps| bps > 0.0);
    let log = rates().fold(0.0, f64::max) > 30.0 * rates().fold(f64::INFINITY, f64::min);
    if log {
        lines.iter_mut().for_each(|line| line.retain_positive(|&(_, y)| y > 0.0));
    }
    let y = Axis::new("received", "bps", log);
    plot("All connections", TIME, y, lines, vec!["Received goodput of every connection over time".into()])
}

pub(super) fn connection(views: &[View<'_>]) -> Vec<PlotData> {
    let mut plots: Vec<PlotData> =
        [throughput(views), delay(views), gaps(views)].into_iter().flatten().collect();
    plots.extend(fits(views));
    plots.extend(transport_metrics(views));
    plots
}

fn throughput(views: &[View<'_>]) -> Option<PlotData> {
    let mut lines = Vec::new();
    for v in views {
        let series = &v.connection.series;
        lines.extend(v.line("received", 0, series.iter().map(|p| (p.t_s, p.received_bps))));
        lines.extend(v.line("sent", 1, series.iter().map(|p| (p.t_s, p.sent_bps))));
    }
    if let Some(first) = lines.first_mut() {
        first.fill = true;
    }
    let texts = views.iter().map(|v| {
        let bps = |rate| format_value(Unit::BitsPerSecond, rate);
        v.labelled(format!(
            "sent {}, received {}",
            bps(v.connection.sent_bps),
            bps(v.connection.received_bps)
        ))
    });
    plot("Throughput", TIME, Axis::new("goodput", "bps", false), lines, texts.collect())
}

/// Returns the plot of one-way delay and round-trip time on an axis of nines: the distance from 90 % to 99 % equals the
/// distance from 99 % to 99.9 %.
fn delay(views: &[View<'_>]) -> Option<PlotData> {
    let (mut lines, mut texts, mut distributions) = (Vec::new(), Vec::new(), Vec::new());
    for v in views {
        let c = v.connection;
        let distributions_of = [
            ("one way", 0, &c.delay_us),
            ("round trip", 2, &c.rtt_us),
            ("round trip, closed loop", 3, &c.closed_loop_rtt_us),
        ];
        for (name, color, d) in distributions_of {
            let Some(d) = d else { continue };
            lines.extend(v.line(name, color, d.curve.iter().map(|&(share, us)| (nines(share, d.count), us))));
            texts.push(v.labelled(format!("{name} {}", percentiles(d))));
            distributions.push(d);
        }
    }
    let x = Axis::new("percentile", "nines", false);
    let log = is_skewed(&distributions) && distributions.iter().all(|d| d.min > 0.0);
    plot("Delay", x, Axis::new("delay", "us", log), lines, texts)
}

/// Returns -log₁₀(1 - share). The largest of `count` values is placed where half a value remains above.
fn nines(share: f64, count: u64) -> f64 {
    let beyond = 0.5 / count.max(1) as f64;
    -(1.0 - share).max(beyond).log10()
}

fn gaps(views: &[View<'_>]) -> Option<PlotData> {
    let (mut lines, mut texts, mut distributions) = (Vec::new(), Vec::new(), Vec::new());
    for v in views {
        let c = v.connection;
        for (name, color, d) in [("arrivals", 0, &c.gap_us), ("departures", 1, &c.sent_gap_us)] {
            let Some(d) = d else { continue };
            lines.extend(v.line(name, color, d.curve.iter().map(|&(share, us)| (us, share))));
            texts.push(v.labelled(format!("between {name} {}", percentiles(d))));
            distributions.push(d);
        }
    }
    let log = is_skewed(&distributions);
    if log {
        lines.iter_mut().for_each(|line| line.retain_positive(|&(x, _)| x > 0.0));
    }
    let x = Axis::new("gap", "us", log);
    plot("Gaps", x, Axis::new("share at or below", "share", false), lines, texts)
}

/// Returns whether a linear axis would compress the body of these distributions.
fn is_skewed(distributions: &[&Distribution]) -> bool {
    let largest = distributions.iter().map(|d| d.max).fold(0.0, f64::max);
    let body = distributions.iter().map(|d| d.p50).fold(f64::INFINITY, f64::min);
    body > 0.0 && largest / body > 4.0
}

fn percentiles(d: &Distribution) -> String {
    let us = |v| format_value(Unit::Microseconds, v);
    format!("median {}, 99 % at or below {}, largest {}", us(d.p50), us(d.p99), us(d.max))
}

/// Returns a plot for each random variable of the traffic: requested and actual distribution, at the sender and, for
/// application models, at the receiver.
fn fits(views: &[View<'_>]) -> Vec<PlotData> {
    let sent = fits_of(views, "Requested vs. actual", |requested| &requested.variables);
    let received = fits_of(views, "Requested vs. received", |requested| &requested.received);
    sent.into_iter().chain(received).collect()
}

fn fits_of(views: &[View<'_>], title: &str, variables: fn(&SendAccuracy) -> &[Fit]) -> Vec<PlotData> {
    let fits =
        || views.iter().flat_map(|v| variables(&v.connection.requested).iter().map(move |fit| (v, fit)));
    let names = distinct(fits().map(|(_, fit)| fit.name.as_str()));
    let plot = |name| fit(title, name, &fits().filter(|(_, fit)| fit.name == name).collect::<Vec<_>>());
    names.into_iter().filter_map(plot).collect()
}

/// Returns the plot of one random variable.
fn fit(title: &str, name: &str, fits: &[(&View<'_>, &Fit)]) -> Option<PlotData> {
    let (_, first) = fits.first()?;
    let mut lines = Vec::new();
    for (i, (v, fit)) in fits.iter().enumerate() {
        if i == 0 {
            let without_label = View { label: None, ..**v };
            lines.extend(without_label.line(
                "requested",
                3,
                fit.curve.iter().map(|&(value, requested, _)| (value, requested)),
            ));
        }
        lines.extend(v.line("actual", 0, fit.curve.iter().map(|&(value, _, sent)| (value, sent))));
    }
    let texts = fits.iter().map(|(v, fit)| {
        let worst = worst(fit).map(|text| format!(", {text}"));
        let distance = typeset(&distance(fit.distance, fit.p_value), true);
        v.labelled(format!("{distance} over {} values{}", fit.samples, worst.unwrap_or_default()))
    });
    let x = Axis::new("value", known_unit(&first.unit), false);
    let title = format!("{title}: {name} {}", first.law);
    plot(&title, x, Axis::new("share at or below", "share", false), lines, texts.collect())
}

/// Returns the plots of the transport's metrics: one for each that any series has.
fn transport_metrics(views: &[View<'_>]) -> Vec<PlotData> {
    let points = || views.iter().flat_map(|v| &v.connection.series);
    let keys: BTreeSet<&str> = points().flat_map(|p| p.extra.keys().map(String::as_str)).collect();
    let metric_plot = |key: &str| {
        let (title, label) = title_and_label(key);
        let line = |v: &View<'_>| {
            let points = v.connection.series.iter().filter_map(|p| Some((p.t_s, *p.extra.get(key)?)));
            v.line(label.unwrap_or(key), 4, points)
        };
        let lines: Vec<Line> = views.iter().filter_map(line).collect();
        let unit = Unit::of(key);
        let texts = lines.iter().map(|l| {
            let largest = l.y.iter().copied().fold(f64::MIN, f64::max);
            format!("{} at most {}", l.label, format_value(unit, largest))
        });
        let texts = texts.collect();
        let y = Axis::new(label.unwrap_or("value"), axis_unit(unit), false);
        plot(title.unwrap_or(key), TIME, y, lines, texts)
    };
    keys.into_iter().filter_map(metric_plot).collect()
}

/// A quantity that was measured of a host's kernel, with its plot and its line.
struct HostLine<'a> {
    title: String,
    name: String,
    /// Index of the record.
    index: usize,
    quantity: Quantity<'a>,
}

/// Returns the plots of what was measured of the kernel of the host with this name: one for each quantity that has changed,
/// with both directions.
pub(super) fn host(name: &str, records: &[Record], labels: &[String]) -> Vec<PlotData> {
    let mut all = Vec::new();
    for (index, record) in records.iter().enumerate() {
        for quantity in record.hosts.iter().filter(|h| h.name == name).flat_map(quantities) {
            let (title, name) = title_and_line(quantity.name);
            all.push(HostLine { title, name, index, quantity });
        }
    }
    let host_plot = |title: &str| {
        let shown: Vec<&HostLine<'_>> = all.iter().filter(|line| line.title == title).collect();
        let names = distinct(shown.iter().map(|line| line.name.as_str()));
        let (mut lines, mut texts) = (Vec::new(), Vec::new());
        for HostLine { name, index, quantity, .. } in &shown {
            let label = (records.len() > 1).then(|| labels[*index].as_str());
            let color = names.iter().position(|known| known == name).unwrap_or(0);
            let Some(line) = line((*index, label), name, color, quantity.points.iter().copied()) else {
                continue;
            };
            let largest = format_value(quantity.point_unit, line.y.iter().copied().fold(f64::MIN, f64::max));
            let sum = quantity.growth.map(|sum| format!("{} in all, ", format_value(quantity.unit, sum)));
            texts.push(format!("{}: {}at most {largest}", line.label, sum.unwrap_or_default()));
            lines.push(line);
        }
        let Quantity { point_unit, growth, .. } = shown.first()?.quantity;
        let label = match (growth, point_unit) {
            (None, _) => "value",
            (_, Unit::Number) => "per second",
            (_, Unit::Percent) => "% of a processor",
            _ => "rate",
        };
        let y = Axis::new(label, axis_unit(point_unit), false);
        plot(&format!("{name}: {title}"), TIME, y, lines, texts)
    };
    distinct(all.iter().map(|line| line.title.as_str())).into_iter().filter_map(host_plot).collect()
}

/// Returns title and label of a metric, if it is known.
fn title_and_label(key: &str) -> (Option<&'static str>, Option<&'static str>) {
    let (title, label) = match key {
        "allowed_bps" => ("Rate that the network allows", "allowed"),
        "cwnd_bytes" => ("Congestion window", "window"),
        "delay_us" => ("Delay over time", "delay"),
        "gap_us" => ("Gaps over time", "gap"),
        "rtt_us" => ("Round-trip time, estimate of the transport", "round trip"),
        "retransmissions" => ("Retransmissions", "segments"),
        "packets_lost" => ("Lost packets", "packets"),
        "bit_rate_bps" => ("Bit rate of the video", "bit rate"),
        "playback_buffer_s" => ("Playback buffer", "buffer"),
        _ => return (None, None),
    };
    (Some(title), Some(label))
}

/// Returns a unit of the record or of the language if `plots.js` has it, else that of plain numbers.
pub(crate) fn known_unit(unit: &str) -> &'static str {
    ["us", "bps", "bytes", "s"].into_iter().find(|known| *known == unit).unwrap_or("")
}

/// Returns the unit of an axis by its name in `plots.js`.
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
    fn nines_are_evenly_spaced() {
        for (share, want) in [(0.0, 0.0), (0.9, 1.0), (0.99, 2.0), (0.999, 3.0)] {
            assert!((nines(share, 1_000_000) - want).abs() < 1e-9);
        }
        // The largest of 5,000 is at 1 - 1/10,000.
        assert!((nines(1.0, 5000) - 4.0).abs() < 1e-9);
        assert!(nines(1.0, 0).is_finite());
    }

    #[test]
    fn numbers_are_rounded() {
        assert_eq!(round(36_864_123.456), 36_864_100.0);
        assert_eq!(round(0.0), 0.0);
        assert_eq!(round(1.0 / 3.0), 0.333333);
    }
}
