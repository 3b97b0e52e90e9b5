//! The JSON interface. Times are integers in nanoseconds since 1970; values are integers if they were read as such.
//!
//! | module | contents |
//! | --- | --- |
//! | [`lists`] | lists of devices, objects, series and texts |
//! | [`views`] | series over time in buckets; single readings |
//! | [`latest`] | latest values of a device; status of all devices |
//! | [`overview`] | busiest interfaces, recent events, silent devices |
//! | [`path`] | routes between hosts along ATM channels |

pub mod latest;
pub mod lists;
pub mod overview;
pub mod path;
pub mod views;

use std::collections::BTreeMap;

use serde::Serialize;
use trunkline_counters::archive::{Object, SeriesInfo, SeriesName, TableId, TableInfo};
use trunkline_counters::counter::{EventSet, RawValue, ValueKind};

use super::query::{ApiError, Query};
use super::readers::QueryContext;

/// Maximum number of series in one response.
pub const MAX_SERIES_LISTED: usize = 20_000;

/// A handler of a route.
pub type Handler = fn(&QueryContext<'_>, &Query) -> Result<Vec<u8>, ApiError>;

/// The media type of most responses.
const JSON: &str = "application/json";

/// All routes: path, parameters, media type and handler. `/api/live` and `/api/openapi.json` are handled by the
/// server.
pub const ROUTES: &[(&str, &[&str], &str, Handler)] = &[
    ("/api/devices", &[], JSON, lists::devices),
    ("/api/objects", &["device"], JSON, lists::objects),
    ("/api/series", &["device", "object", "series"], JSON, lists::series),
    ("/api/texts", &["device", "object"], JSON, lists::texts),
    ("/api/view", &["series", "from_ns", "to_ns", "buckets"], JSON, views::view),
    ("/api/points", &["series", "from_ns", "to_ns", "most"], JSON, views::points),
    ("/api/latest", &["device"], JSON, latest::latest),
    ("/api/hosts", &[], JSON, latest::hosts),
    ("/api/overview", &[], JSON, overview::overview),
    ("/api/path", &["from", "to"], JSON, path::path),
    ("/metrics", &[], "text/plain; version=0.0.4", latest::metrics),
];

/// Serializes as JSON.
fn json(value: &impl Serialize) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(value).map_err(|_| ApiError::Internal)
}

/// A value.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A counter.
    Counter(u64),
    /// A gauge.
    Gauge(i64),
    /// A floating-point number; `null` if not finite.
    Real(f64),
    /// A sum of integers.
    Sum(i128),
}

impl Value {
    pub fn new(raw: RawValue, kind: ValueKind) -> Value {
        match kind {
            ValueKind::Counter32 | ValueKind::Counter64 => Value::Counter(raw.0),
            ValueKind::Gauge => Value::Gauge(raw.0 as i64),
            ValueKind::Real => Value::Real(f64::from_bits(raw.0)),
        }
    }
}

/// A series in a response.
#[derive(Debug, Serialize)]
pub struct SeriesJson {
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

impl SeriesJson {
    pub fn new(series: &SeriesInfo, table: &TableInfo) -> SeriesJson {
        let parsed = parse_name(&series.name);
        SeriesJson {
            id: series.id.0,
            device: table.device.clone(),
            table: table.name.clone(),
            period_ns: u64::try_from(table.period.as_nanos()).unwrap_or(u64::MAX),
            name: series.name.clone(),
            object: parsed.object,
            direction: parsed.direction,
            quantity: parsed.quantity,
            unit: series.unit.clone(),
            kind: series.column.kind.name(),
            ceiling: series.column.ceiling,
        }
    }
}

fn event_names(events: EventSet) -> Vec<&'static str> {
    events.iter().map(|event| event.name()).collect()
}

/// The parts of a series name. A name that is not a [`SeriesName`] is itself the object.
pub struct ParsedName {
    pub object: String,
    pub class: &'static str,
    pub label: String,
    pub direction: Option<String>,
    pub quantity: String,
}

pub fn parse_name(name: &str) -> ParsedName {
    match name.parse::<SeriesName>() {
        Ok(place) => ParsedName {
            object: place.object.to_string(),
            class: class(&place.object),
            label: label(&place.object),
            direction: place.direction.map(|direction| direction.to_string()),
            quantity: place.quantity,
        },
        Err(_) => ParsedName {
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

/// Returns the name of an object without its class, for display.
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

/// Reads all tables by device, a page at a time.
fn tables_by_device(context: &QueryContext<'_>) -> Result<BTreeMap<String, Vec<TableInfo>>, ApiError> {
    const PAGE: usize = 10_000;
    let mut devices: BTreeMap<String, Vec<TableInfo>> = BTreeMap::new();
    let mut after = TableId(i64::MIN);
    loop {
        context.check_deadline()?;
        let page = context.reader.tables(after, PAGE)?;
        let is_last = page.len() < PAGE;
        for table in page {
            after = table.id;
            devices.entry(table.device.clone()).or_default().push(table);
        }
        if is_last {
            return Ok(devices);
        }
    }
}

/// Reads the table of a series.
fn table_of(context: &QueryContext<'_>, series: &SeriesInfo) -> Result<TableInfo, ApiError> {
    context.check_deadline()?;
    let found = context.reader.tables(TableId(series.table.0.saturating_sub(1)), 1)?;
    let table = found.into_iter().find(|table| table.id == series.table);
    table.ok_or_else(|| ApiError::NotFound(format!("unknown series {}", series.id.0)))
}

/// Reads the tables of a device; fails if there are none.
fn device_tables(context: &QueryContext<'_>, device: &str) -> Result<Vec<TableInfo>, ApiError> {
    let tables = tables_by_device(context)?.remove(device);
    tables.ok_or_else(|| ApiError::NotFound("unknown device".into()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn openapi_describes_exactly_the_routes() {
        let text = include_str!("openapi.json");
        let described: serde_json::Value = serde_json::from_str(text).expect("JSON");
        let paths = described["paths"].as_object().expect("an object");
        let parameters = |path: &str| -> BTreeSet<String> {
            let list = paths[path]["get"]["parameters"].as_array().expect("a list");
            list.iter().map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
        };
        for (path, known, ..) in ROUTES {
            assert_eq!(parameters(path), known.iter().map(|name| (*name).to_owned()).collect(), "{path}");
        }
        assert_eq!(paths.len(), ROUTES.len() + 2, "these, /api/live and /api/openapi.json");
        let events = &described["components"]["schemas"]["Event"]["enum"];
        let names = trunkline_counters::counter::Event::ALL.map(trunkline_counters::counter::Event::name);
        assert_eq!(*events, serde_json::json!(names));
    }
}
