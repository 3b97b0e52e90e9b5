//! The output of polling, as lines, a table or JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::{Value, json};
use trunkline_collector::poll::rates::Rate;
use trunkline_collector::poll::{Config, Rates, Report};
use trunkline_counters::archive::{Direction, Object, SeriesName};
use trunkline_counters::counter::{RawValue, Timestamp, ValueKind};

use crate::failure::{Failure, print};
use crate::flags::monitor::Poll;

/// Formats reports for standard output.
pub struct Output {
    json: bool,
    /// `None` prints only warnings, on standard error.
    rates: Option<Rates>,
    snapshot: Option<Snapshot>,
}

/// The latest readings of all devices, for `--once`.
#[derive(Default)]
struct Snapshot {
    /// All configured devices.
    devices: Vec<String>,
    values: BTreeMap<String, BTreeMap<String, (String, ValueKind, RawValue)>>,
    texts: BTreeMap<(String, String, &'static str), String>,
    failed: BTreeSet<String>,
}

impl Output {
    /// Creates the output that the flags select.
    pub fn new(config: &Config, is_stored: bool, flags: &Poll) -> Output {
        let names = config.devices.iter().map(|d| &d.name).chain(config.machines.iter().map(|m| &m.name));
        let mut devices: Vec<String> = Vec::new();
        for name in names.chain(config.pings.iter().map(|p| &p.name)) {
            if !devices.contains(name) {
                devices.push(name.clone());
            }
        }
        let snapshot = flags.once.then(|| Snapshot { devices, ..Snapshot::default() });
        let prints_rates = !flags.once && (flags.json || !is_stored);
        Output { json: flags.json, rates: prints_rates.then(Rates::default), snapshot }
    }

    /// Returns the text to print for a report, if any.
    pub fn render(&mut self, report: &Report) -> Option<String> {
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.update(report);
        }
        let rates = self.rates.as_mut()?.update(report);
        let text: String = if self.json {
            let all = rates.into_iter().filter_map(rate_json).chain(report_json(report));
            all.map(|value| format!("{value}\n")).collect()
        } else {
            lines(&rates)
        };
        (!text.is_empty()).then_some(text)
    }

    /// Prints the snapshot of `--once`; an error if a device did not answer every request.
    pub fn finish(self) -> Result<(), Failure> {
        let Some(snapshot) = self.snapshot else { return Ok(()) };
        print(&if self.json { snapshot.json() } else { snapshot.text() })?;
        let mut failed = snapshot.failed.iter();
        let subject = match (failed.next(), failed.len()) {
            (None, _) => return Ok(()),
            (Some(device), 0) => device.clone(),
            (Some(_), more) => format!("{} devices", more + 1),
        };
        Err(Failure::run(format!("{subject} did not answer every request")))
    }
}

// --- JSON

fn format_time(moment: Timestamp) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(moment.0))
        .map_or_else(|_| String::new(), |t| format!("{t:.3}"))
}

fn rate_json(rate: Rate) -> Option<Value> {
    if rate.value.is_none() && rate.events.is_empty() {
        return None; // no new value
    }
    let events: Vec<&str> = rate.events.iter().map(|e| e.name()).collect();
    let mut value = json!({ "at": format_time(rate.at), "device": rate.device, "series": rate.series, "unit": rate.unit });
    let key = if rate.counts { "rate" } else { "value" };
    value[key] = json!(rate.value);
    if let (true, Some((least, most))) = (rate.counts, rate.bounds) {
        value["least"] = json!(least);
        value["most"] = json!(most);
    }
    if !events.is_empty() {
        value["events"] = json!(events);
    }
    Some(value)
}

fn report_json(report: &Report) -> Vec<Value> {
    match report {
        Report::Polled { .. } => Vec::new(),
        Report::Texts { device, texts: words, at: when } => {
            let to_json = |w: &trunkline_collector::poll::report::DeviceText| json!({ "at": format_time(*when), "device": &**device, "object": w.object, "key": w.key, "text": w.text });
            words.iter().map(to_json).collect()
        }
        Report::FaultChanged { device, table, fault, at: when } => {
            let (name, text) = (fault.as_ref().map(|f| f.name()), fault.as_ref().map(ToString::to_string));
            vec![
                json!({ "at": format_time(*when), "device": &**device, "table": table, "fault": name, "text": text }),
            ]
        }
    }
}

// --- lines

/// Formats one line per port, channel, host or other object with a new value.
fn lines(rates: &[Rate]) -> String {
    let mut parts: Vec<(Object, Vec<String>)> = Vec::new();
    for rate in rates {
        let Ok(place) = rate.series.parse::<SeriesName>() else { continue };
        let mut texts = Vec::new();
        let direction = match place.direction {
            Some(Direction::In) => "in ",
            Some(Direction::Out) => "out ",
            None => "",
        };
        let is_main = matches!(&*place.quantity, "octets" | "cells" | "delay" | "value" | "responding");
        let is_loss = |value: f64| {
            let is_counter = matches!(&*place.quantity, "discards" | "errors");
            rate.counts && rate.unit == "packets" && value > 0.0 && is_counter
        };
        if let Some(value) = rate.value.filter(|value| is_main || is_loss(*value)) {
            let text = format_value(&place.quantity, &rate.unit, value, rate.counts);
            texts.push(format!("{direction}{text}"));
        }
        if is_main {
            texts.extend(rate.events.iter().map(|event| format!("{direction}{}", event.name())));
        }
        match parts.iter_mut().find(|(object, _)| *object == place.object) {
            Some((_, all)) => all.extend(texts),
            None => parts.push((place.object, texts)),
        }
    }
    let mut text = String::new();
    let Some(first) = rates.first() else { return text };
    for (object, mut words) in parts {
        words.dedup();
        if !words.is_empty() {
            let line = format!("{}  {}  {object}  {}", format_time(first.at), first.device, words.join(", "));
            let _ = writeln!(text, "{}", trunkline_report::sanitize(&line));
        }
    }
    text
}

fn format_value(quantity: &str, unit: &str, value: f64, counts: bool) -> String {
    match (quantity, unit, counts) {
        ("octets", _, true) => format!("{}b/s", with_prefix(value * 8.0)),
        ("responding", ..) => if value > 0.0 { "responds" } else { "does not respond" }.into(),
        ("delay", ..) => format!("{:.3} ms", value / 1e6),
        (_, unit, true) => format!(
            "{}{unit}/s{}",
            with_prefix(value),
            if unit == "packets" { format!(" {quantity}") } else { String::new() }
        ),
        (_, unit, false) => format!("{value} {unit}"),
    }
}

/// Formats a number with three digits and a decimal prefix.
fn with_prefix(value: f64) -> String {
    let prefixes = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match prefixes.iter().find(|(of, _)| value >= *of) {
        Some((of, prefix)) => format!("{:.*} {prefix}", if value / of < 100.0 { 1 } else { 0 }, value / of),
        None => format!("{value:.0} "),
    }
}

// --- table

impl Snapshot {
    /// Stores the values and texts of a report.
    fn update(&mut self, report: &Report) {
        match report {
            Report::Polled { spec, response, .. } => {
                let (Some(spec), Some(answer)) = (spec, &response.answer) else { return };
                let values = self.values.entry(spec.device.clone()).or_default();
                for (series, value) in spec.series.iter().zip(&answer.values) {
                    if let Some(value) = value {
                        values.insert(series.name.clone(), (series.unit.clone(), series.kind, *value));
                    }
                }
            }
            Report::Texts { device, texts: words, .. } => {
                for text in words {
                    let key = (device.to_string(), text.object.clone(), text.key);
                    self.texts.insert(key, text.text.clone());
                }
            }
            Report::FaultChanged { fault: None, .. } => {}
            Report::FaultChanged { device, .. } => _ = self.failed.insert(device.to_string()),
        }
    }

    fn text(&self) -> String {
        self.devices.iter().map(|device| self.device(device)).collect::<Vec<_>>().join("\n")
    }

    fn json(&self) -> String {
        let values = self.values.iter().flat_map(|(device, values)| {
            values.iter().map(move |(series, (unit, kind, raw))| {
                let value = match kind {
                    ValueKind::Counter32 | ValueKind::Counter64 => json!(raw.0),
                    ValueKind::Gauge => json!(raw.0 as i64),
                    ValueKind::Real => json!(raw.to_f64(*kind)),
                };
                json!({ "device": device, "series": series, "unit": unit, "value": value })
            })
        });
        let text = |((device, object, key), text): (&(String, String, &str), &String)| json!({ "device": device, "object": object, "key": key, "text": text });
        values.chain(self.texts.iter().map(text)).map(|line| format!("{line}\n")).collect()
    }

    fn text_of(&self, device: &str, object: &str, key: &'static str) -> &str {
        self.texts.get(&(device.to_owned(), object.to_owned(), key)).map_or("", String::as_str)
    }

    fn device(&self, device: &str) -> String {
        let mut text = trunkline_report::sanitize(device);
        for key in ["address", "name", "description"] {
            let value = self.text_of(device, "", key);
            if !value.is_empty() {
                let _ = write!(text, "  {}", trunkline_report::sanitize(value));
            }
        }
        text.push('\n');
        let empty = BTreeMap::new();
        let values = self.values.get(device).unwrap_or(&empty);
        if values.is_empty() {
            text.push_str("  no readings\n");
        }
        let mut ports: Vec<(String, Object)> = Vec::new();
        for name in values.keys() {
            match name.parse::<SeriesName>().map(|place| place.object) {
                Ok(object @ Object::Port(_)) => {
                    let key = object.to_string();
                    if ports.last().is_none_or(|(last, _)| *last != key) {
                        ports.push((key, object));
                    }
                }
                _ => {
                    let (unit, kind, raw) = &values[name];
                    let line = format!("  {name}  {} {unit}", raw.to_f64(*kind));
                    let _ = writeln!(text, "{}", trunkline_report::sanitize(line.trim_end()));
                }
            }
        }
        ports.sort();
        ports.dedup();
        if !ports.is_empty() {
            text.push_str(&self.ports(device, values, &ports));
        }
        text
    }

    fn ports(
        &self,
        device: &str,
        values: &BTreeMap<String, (String, ValueKind, RawValue)>,
        ports: &[(String, Object)],
    ) -> String {
        let mut rows = vec![
            ["port", "state", "speed", "in octets", "out octets", "errors", "description"].map(String::from),
        ];
        for (key, object) in ports {
            let raw = |quantity: &str| values.get(&format!("{key}/{quantity}")).map(|(.., raw)| raw.0);
            let count = |quantity: &str| raw(quantity).map_or("–".into(), |n| n.to_string());
            let errors = raw("in/errors").zip(raw("out/errors")).map(|(a, b)| a.saturating_add(b));
            let names = [self.text_of(device, key, "alias"), self.text_of(device, key, "description")];
            rows.push([
                trunkline_report::sanitize(object.port().unwrap_or_default()),
                trunkline_report::sanitize(self.text_of(device, key, "state")),
                raw("speed").map_or("–".into(), |s| format!("{}b/s", with_prefix(s as f64))),
                count("in/octets"),
                count("out/octets"),
                errors.map_or("–".into(), |n| n.to_string()),
                trunkline_report::sanitize(names.into_iter().find(|s| !s.is_empty()).unwrap_or_default()),
            ]);
        }
        let width =
            |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).min(40);
        let widths: Vec<usize> = (0..7).map(width).collect();
        let mut text = String::new();
        for row in &rows {
            let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, &width))| match at {
                2..=5 => format!("{cell:>width$}"),
                _ => format!("{cell:<width$}"),
            });
            let line = cells.collect::<Vec<_>>().join("  ");
            let _ = writeln!(text, "  {}", line.trim_end());
        }
        text
    }
}
