//! What is answered, as JSON. Times are whole nanoseconds since 1970, values whole where they were read as such.
//!
//! | module | what |
//! | --- | --- |
//! | [`lists`] | devices, their parts, their series, what they say in words |
//! | [`views`] | series over time in buckets; readings one by one |
//! | [`latest`] | the newest values of a device; all devices at a glance |
//! | [`path`] | from host to host, hop by hop |

pub mod latest;
pub mod lists;
pub mod path;
pub mod views;

use serde::Serialize;
use trunkline_counters::archive::{Object, Place, SeriesInfo, TableId, TableInfo};
use trunkline_counters::counter::{Events, Kind, Raw};

use super::pool::Asked;
use super::query::{Query, Refused};

/// Most series that are told of at once.
pub const MOST_LISTED: usize = 20_000;

/// How a question is answered.
pub type Answer = fn(&Asked<'_>, &Query) -> Result<Vec<u8>, Refused>;

/// The media type of most answers.
const JSON: &str = "application/json";

/// Every question: its path, its parameters, the media type of its answer, and who gives it. Beside them stand `/api/live` and `/api/openapi.json`.
pub const QUESTIONS: &[(&str, &[&str], &str, Answer)] = &[
    ("/api/devices", &[], JSON, lists::devices),
    ("/api/objects", &["device"], JSON, lists::objects),
    ("/api/series", &["device", "object", "series"], JSON, lists::series),
    ("/api/texts", &["device", "object"], JSON, lists::texts),
    ("/api/view", &["series", "from_ns", "to_ns", "buckets"], JSON, views::view),
    ("/api/points", &["series", "from_ns", "to_ns", "most"], JSON, views::points),
    ("/api/latest", &["device"], JSON, latest::latest),
    ("/api/hosts", &[], JSON, latest::hosts),
    ("/api/path", &["from", "to"], JSON, path::path),
    ("/metrics", &[], "text/plain; version=0.0.4", latest::metrics),
];

/// As JSON.
fn json(value: &impl Serialize) -> Result<Vec<u8>, Refused> {
    serde_json::to_vec(value).map_err(|_| Refused::Lost)
}

/// A value as it was read.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A counter.
    Counter(u64),
    /// A gauge.
    Gauge(i64),
    /// A real number; `null` where it is none.
    Real(f64),
    /// A sum of whole numbers.
    Sum(i128),
}

impl Value {
    pub fn new(raw: Raw, kind: Kind) -> Value {
        match kind {
            Kind::Counter32 | Kind::Counter64 => Value::Counter(raw.0),
            Kind::Gauge => Value::Gauge(raw.0 as i64),
            Kind::Real => Value::Real(f64::from_bits(raw.0)),
        }
    }
}

/// A series as it is told of.
#[derive(Debug, Serialize)]
pub struct SeriesTold {
    id: i64,
    device: String,
    table: String,
    period_ns: u64,
    name: String,
    object: String,
    direction: Option<String>,
    quantity: String,
    unit: String,
    kind: &'static str,
    ceiling: Option<u64>,
}

impl SeriesTold {
    pub fn new(series: &SeriesInfo, table: &TableInfo) -> SeriesTold {
        let named = named(&series.name);
        SeriesTold {
            id: series.id.0,
            device: table.device.clone(),
            table: table.name.clone(),
            period_ns: u64::try_from(table.period.as_nanos()).unwrap_or(u64::MAX),
            name: series.name.clone(),
            object: named.object,
            direction: named.direction,
            quantity: named.quantity,
            unit: series.unit.clone(),
            kind: kind(series.column.kind),
            ceiling: series.column.ceiling,
        }
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter32 => "counter32",
        Kind::Counter64 => "counter64",
        Kind::Gauge => "gauge",
        Kind::Real => "real",
    }
}

/// Names of what happened.
fn events(events: Events) -> Vec<&'static str> {
    events.iter().map(|event| event.name()).collect()
}

/// What the name of a series says. One that is no [`Place`] is of an object of its own.
pub struct Named {
    pub object: String,
    pub class: &'static str,
    pub label: String,
    pub direction: Option<String>,
    pub quantity: String,
}

pub fn named(name: &str) -> Named {
    match name.parse::<Place>() {
        Ok(place) => Named {
            object: place.object.to_string(),
            class: class(&place.object),
            label: label(&place.object),
            direction: place.direction.map(|direction| direction.to_string()),
            quantity: place.quantity,
        },
        Err(_) => Named {
            object: name.to_owned(),
            class: "other",
            label: name.to_owned(),
            direction: None,
            quantity: "value".into(),
        },
    }
}

fn class(object: &Object) -> &'static str {
    match object {
        Object::Agent => "agent",
        Object::Host => "host",
        Object::Port(_) => "port",
        Object::Path { .. } => "path",
        Object::Channel { .. } => "channel",
        Object::Flow(_) => "flow",
        Object::Connection(_) => "connection",
        Object::Other(_) => "other",
    }
}

/// For people: the name without its class.
fn label(object: &Object) -> String {
    match object {
        Object::Agent => "agent".into(),
        Object::Host => "host".into(),
        Object::Path { port, vpi } => format!("{port} VP {vpi}"),
        Object::Channel { port, vpi, vci } => format!("{port} VC {vpi}.{vci}"),
        Object::Port(name) | Object::Flow(name) | Object::Connection(name) | Object::Other(name) => {
            name.clone()
        }
    }
}

/// All tables, a page at a time.
fn tables(asked: &Asked<'_>) -> Result<Vec<TableInfo>, Refused> {
    const PAGE: usize = 10_000;
    let mut all: Vec<TableInfo> = Vec::new();
    loop {
        asked.in_time()?;
        let page = asked.reader.tables(all.last().map_or(TableId(i64::MIN), |table| table.id), PAGE)?;
        let last = page.len() < PAGE;
        all.extend(page);
        if last {
            return Ok(all);
        }
    }
}

/// The tables of a device, of which there must be one.
fn tables_of(asked: &Asked<'_>, device: &str) -> Result<Vec<TableInfo>, Refused> {
    let mut tables = tables(asked)?;
    tables.retain(|table| table.device == device);
    if tables.is_empty() { Err(Refused::None("there is no such device".into())) } else { Ok(tables) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_question_is_described_and_nothing_else() {
        let text = include_str!("openapi.json");
        let described: serde_json::Value = serde_json::from_str(text).expect("JSON");
        let paths = described["paths"].as_object().expect("an object");
        let parameters = |path: &str| -> BTreeSet<String> {
            let list = paths[path]["get"]["parameters"].as_array().expect("a list");
            list.iter().map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
        };
        for (path, known, ..) in QUESTIONS {
            assert_eq!(parameters(path), known.iter().map(|name| (*name).to_owned()).collect(), "{path}");
        }
        assert_eq!(paths.len(), QUESTIONS.len() + 2, "these, /api/live and /api/openapi.json");
        let events = &described["components"]["schemas"]["Event"]["enum"];
        let names = trunkline_counters::counter::Event::ALL.map(trunkline_counters::counter::Event::name);
        assert_eq!(*events, serde_json::json!(names));
    }
}
