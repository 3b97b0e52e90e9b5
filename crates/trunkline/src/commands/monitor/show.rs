//! What comes of polling, as lines, a table or JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::{Value, json};
use trunkline_collector::poll::rates::Rate;
use trunkline_collector::poll::{Config, Rates, Report};
use trunkline_counters::archive::{Direction, Object, Place};
use trunkline_counters::counter::{Kind, Moment, Raw};

use crate::failure::{Failure, say};
use crate::flags::monitor::Poll;

/// Shows reports.
pub struct Show {
    form: Form,
    once: Option<Once>,
}

enum Form {
    /// Nothing but what is wrong.
    Silent,
    Lines(Rates),
    Json(Rates),
}

/// What came, until everything was asked once.
#[derive(Default)]
struct Once {
    json: bool,
    /// All that were to be asked.
    devices: Vec<String>,
    values: BTreeMap<String, BTreeMap<String, (String, Kind, Raw)>>,
    words: BTreeMap<(String, String, &'static str), String>,
    silent: BTreeSet<String>,
}

impl Show {
    /// Shows what the flags ask for.
    pub fn new(config: &Config, is_kept: bool, flags: &Poll) -> Show {
        let names = config.devices.iter().map(|d| &d.name).chain(config.machines.iter().map(|m| &m.name));
        let mut devices: Vec<String> = Vec::new();
        for name in names.chain(config.pings.iter().map(|p| &p.name)) {
            if !devices.contains(name) {
                devices.push(name.clone());
            }
        }
        let once = flags.once.then(|| Once { json: flags.json, devices, ..Once::default() });
        let form = match (flags.json, is_kept) {
            _ if flags.once => Form::Silent,
            (true, _) => Form::Json(Rates::default()),
            (false, true) => Form::Silent,
            (false, false) => Form::Lines(Rates::default()),
        };
        Show { form, once }
    }

    /// What is to be printed of a report.
    pub fn see(&mut self, report: &Report) -> Option<String> {
        if let Some(once) = &mut self.once {
            once.see(report);
        }
        let text = match &mut self.form {
            Form::Silent => String::new(),
            Form::Lines(rates) => lines(&rates.take(report)),
            Form::Json(rates) => {
                let all = rates.take(report).into_iter().filter_map(rate).chain(told(report));
                all.map(|value| format!("{value}\n")).collect()
            }
        };
        (!text.is_empty()).then_some(text)
    }

    /// Prints what came once; an error if not everything answered.
    pub fn end(self) -> Result<(), Failure> {
        let Some(once) = self.once else { return Ok(()) };
        say(&once.text())?;
        match once.silent.iter().next() {
            None => Ok(()),
            Some(one) if once.silent.len() == 1 => Err(Failure::run(format!("{one} did not tell all"))),
            Some(_) => Err(Failure::run(format!("{} did not tell all", once.silent.len()))),
        }
    }
}

// --- JSON

fn at(moment: Moment) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(moment.0))
        .map_or_else(|_| String::new(), |t| format!("{t:.3}"))
}

fn rate(rate: Rate) -> Option<Value> {
    if rate.value.is_none() && rate.events.is_empty() {
        return None; // an answer that told nothing new
    }
    let events: Vec<&str> = rate.events.iter().map(|e| e.name()).collect();
    let mut value =
        json!({ "at": at(rate.at), "device": rate.device, "series": rate.series, "unit": rate.unit });
    let word = if rate.counts { "rate" } else { "value" };
    value[word] = json!(rate.value);
    if let (true, Some((least, most))) = (rate.counts, rate.bounds) {
        // Without bound there is none.
        value["least"] = json!(least);
        value["most"] = json!(most);
    }
    if !events.is_empty() {
        value["events"] = json!(events);
    }
    Some(value)
}

fn told(report: &Report) -> Vec<Value> {
    match report {
        Report::Polled { .. } => Vec::new(),
        Report::Words { device, words, at: when } => {
            let one = |w: &trunkline_collector::poll::report::Word| json!({ "at": at(*when), "device": &**device, "object": w.object, "key": w.key, "text": w.text });
            words.iter().map(one).collect()
        }
        Report::Trouble { device, table, fault, at: when } => {
            let (name, text) = (fault.as_ref().map(|f| f.name()), fault.as_ref().map(ToString::to_string));
            vec![json!({ "at": at(*when), "device": &**device, "table": table, "fault": name, "text": text })]
        }
    }
}

// --- lines

/// A line for each port, channel, host or other object that told something.
fn lines(rates: &[Rate]) -> String {
    let mut parts: Vec<(Object, Vec<String>)> = Vec::new();
    for rate in rates {
        let Ok(place) = rate.series.parse::<Place>() else { continue };
        let mut words = Vec::new();
        let way = match place.direction {
            Some(Direction::In) => "in ",
            Some(Direction::Out) => "out ",
            None => "",
        };
        let is_main = matches!(&*place.quantity, "octets" | "cells" | "delay" | "value" | "responding");
        match rate.value {
            Some(value)
                if is_main || rate.counts && rate.unit == "packets" && value > 0.0 && is_bad(&place) =>
            {
                words.push(format!("{way}{}", figure(&place.quantity, &rate.unit, value, rate.counts)));
            }
            _ => {}
        }
        if is_main {
            words.extend(rate.events.iter().map(|event| format!("{way}{}", event.name())));
        }
        match parts.iter_mut().find(|(object, _)| *object == place.object) {
            Some((_, all)) => all.extend(words),
            None => parts.push((place.object, words)),
        }
    }
    let mut text = String::new();
    let Some(first) = rates.first() else { return text };
    for (object, mut words) in parts {
        words.dedup();
        if !words.is_empty() {
            let line = format!("{}  {}  {object}  {}", at(first.at), first.device, words.join(", "));
            let _ = writeln!(text, "{}", trunkline_report::plain(&line));
        }
    }
    text
}

fn is_bad(place: &Place) -> bool {
    matches!(&*place.quantity, "discards" | "errors")
}

fn figure(quantity: &str, unit: &str, value: f64, counts: bool) -> String {
    match (quantity, unit, counts) {
        ("octets", _, true) => format!("{}b/s", scaled(value * 8.0)),
        ("responding", ..) => if value > 0.0 { "responds" } else { "does not respond" }.into(),
        ("delay", ..) => format!("{:.3} ms", value / 1e6),
        (_, unit, true) => format!(
            "{}{unit}/s{}",
            scaled(value),
            if unit == "packets" { format!(" {quantity}") } else { String::new() }
        ),
        (_, unit, false) => format!("{value} {unit}"),
    }
}

/// With a prefix, three digits.
fn scaled(value: f64) -> String {
    let prefixes = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match prefixes.iter().find(|(of, _)| value >= *of) {
        Some((of, prefix)) => format!("{:.*} {prefix}", if value / of < 100.0 { 1 } else { 0 }, value / of),
        None => format!("{value:.0} "),
    }
}

// --- once

impl Once {
    fn see(&mut self, report: &Report) {
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
            Report::Words { device, words, .. } => {
                for word in words {
                    let key = (device.to_string(), word.object.clone(), word.key);
                    self.words.insert(key, word.text.clone());
                }
            }
            Report::Trouble { device, fault, .. } => {
                if fault.is_some() {
                    self.silent.insert(device.to_string());
                }
            }
        }
    }

    fn text(&self) -> String {
        if self.json {
            return self.json_text();
        }
        self.devices.iter().map(|device| self.device(device)).collect::<Vec<_>>().join("\n")
    }

    fn json_text(&self) -> String {
        let mut text = String::new();
        for (device, values) in &self.values {
            for (series, (unit, kind, raw)) in values {
                let value = match kind {
                    Kind::Counter32 | Kind::Counter64 => json!(raw.0),
                    Kind::Gauge => json!(raw.0 as i64),
                    Kind::Real => json!(raw.number(*kind)),
                };
                let _ = writeln!(
                    text,
                    "{}",
                    json!({ "device": device, "series": series, "unit": unit, "value": value })
                );
            }
        }
        for ((device, object, key), said) in &self.words {
            let _ =
                writeln!(text, "{}", json!({ "device": device, "object": object, "key": key, "text": said }));
        }
        text
    }

    fn word(&self, device: &str, object: &str, key: &'static str) -> &str {
        self.words.get(&(device.to_owned(), object.to_owned(), key)).map_or("", String::as_str)
    }

    fn device(&self, device: &str) -> String {
        let mut text = trunkline_report::plain(device);
        for key in ["address", "name", "description"] {
            let said = self.word(device, "", key);
            if !said.is_empty() {
                let _ = write!(text, "  {}", trunkline_report::plain(said));
            }
        }
        text.push('\n');
        let empty = BTreeMap::new();
        let values = self.values.get(device).unwrap_or(&empty);
        if values.is_empty() {
            text.push_str("  told nothing\n");
        }
        let mut ports: Vec<(String, Object)> = Vec::new();
        for name in values.keys() {
            match name.parse::<Place>().map(|place| place.object) {
                Ok(object @ Object::Port(_)) => {
                    let key = object.to_string();
                    if ports.last().is_none_or(|(last, _)| *last != key) {
                        ports.push((key, object));
                    }
                }
                _ => {
                    let (unit, kind, raw) = &values[name];
                    let line = format!("  {name}  {} {unit}", raw.number(*kind));
                    let _ = writeln!(text, "{}", trunkline_report::plain(line.trim_end()));
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
        values: &BTreeMap<String, (String, Kind, Raw)>,
        ports: &[(String, Object)],
    ) -> String {
        let mut rows = vec![
            ["port", "state", "speed", "in octets", "out octets", "errors", "description"].map(String::from),
        ];
        for (key, object) in ports {
            let raw = |what: &str| values.get(&format!("{key}/{what}")).map(|(.., raw)| raw.0);
            let shown = |what: &str| raw(what).map_or("–".into(), |n| n.to_string());
            let errors = raw("in/errors").zip(raw("out/errors")).map(|(a, b)| a.saturating_add(b));
            let said = [self.word(device, key, "alias"), self.word(device, key, "description")];
            rows.push([
                trunkline_report::plain(object.port().unwrap_or_default()),
                trunkline_report::plain(self.word(device, key, "state")),
                raw("speed").map_or("–".into(), |s| format!("{}b/s", scaled(s as f64))),
                shown("in/octets"),
                shown("out/octets"),
                errors.map_or("–".into(), |n| n.to_string()),
                trunkline_report::plain(said.into_iter().find(|s| !s.is_empty()).unwrap_or_default()),
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
