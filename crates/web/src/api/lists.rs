//! Lists of devices, objects, series and texts.

use std::collections::BTreeMap;

use serde::Serialize;
use trunkline_counters::archive::{SeriesInfo, TableInfo, Text};

use super::{MAX_SERIES_LISTED, SeriesJson, device_tables, json, parse_name, table_of, tables_by_device};
use crate::query::{ApiError, Query};
use crate::readers::QueryContext;

/// Maximum number of texts in one response.
const MAX_TEXTS: usize = 10_000;

#[derive(Serialize)]
struct Devices {
    now_ns: i64,
    devices: Vec<String>,
}

/// Returns all devices.
pub fn devices(context: &QueryContext<'_>, _: &Query) -> Result<Vec<u8>, ApiError> {
    let devices = tables_by_device(context)?.into_keys().collect();
    json(&Devices { now_ns: context.now.0, devices })
}

#[derive(Serialize)]
struct Objects {
    objects: Vec<ObjectEntry>,
    /// Whether the list is truncated.
    more: bool,
}

#[derive(Serialize)]
struct ObjectEntry {
    object: String,
    class: &'static str,
    label: String,
    series: usize,
}

/// Returns the objects of a device: ports, paths, channels and so on.
pub fn objects(context: &QueryContext<'_>, query: &Query) -> Result<Vec<u8>, ApiError> {
    let (all, more) = device_series(context, query.required("device")?)?;
    let mut objects: BTreeMap<String, ObjectEntry> = BTreeMap::new();
    for (series, _) in &all {
        let parsed = parse_name(&series.name);
        let new = || ObjectEntry {
            object: parsed.object.clone(),
            class: parsed.class,
            label: parsed.label,
            series: 0,
        };
        objects.entry(parsed.object.clone()).or_insert_with(new).series += 1;
    }
    json(&Objects { objects: objects.into_values().collect(), more })
}

#[derive(Serialize)]
struct SeriesEntry {
    #[serde(flatten)]
    series: SeriesJson,
    begin_ns: Option<i64>,
    end_ns: Option<i64>,
}

#[derive(Serialize)]
struct SeriesList {
    series: Vec<SeriesEntry>,
}

/// Returns series by identifier, or of an object of a device, with the times of their first and last response.
pub fn series(context: &QueryContext<'_>, query: &Query) -> Result<Vec<u8>, ApiError> {
    let mut found: Vec<(SeriesInfo, TableInfo)> = Vec::new();
    if query.optional("series").is_some() {
        for id in query.series()? {
            let series = context.reader.series_by_id(id)?;
            let table = table_of(context, &series)?;
            found.push((series, table));
        }
    } else {
        let (device, object) = (query.required("device")?, query.required("object")?);
        found = device_series(context, device)?.0;
        found.retain(|(series, _)| parse_name(&series.name).object == object);
    }
    let mut extents = BTreeMap::new();
    let mut list = SeriesList { series: Vec::new() };
    for (series, table) in found {
        context.check_deadline()?;
        let extent = match extents.get(&table.id.0) {
            Some(extent) => *extent,
            None => {
                let extent = context.reader.time_range(table.id)?;
                extents.insert(table.id.0, extent);
                extent
            }
        };
        let (begin_ns, end_ns) = (extent.map(|e| e.0.0), extent.map(|e| e.1.0));
        list.series.push(SeriesEntry { series: SeriesJson::new(&series, &table), begin_ns, end_ns });
    }
    json(&list)
}

/// Reads the series of a device with their tables, at most [`MAX_SERIES_LISTED`], and whether there are more.
fn device_series(
    context: &QueryContext<'_>,
    device: &str,
) -> Result<(Vec<(SeriesInfo, TableInfo)>, bool), ApiError> {
    let mut all = Vec::new();
    for table in device_tables(context, device)? {
        context.check_deadline()?;
        all.extend(context.reader.series(table.id)?.into_iter().map(|series| (series, table.clone())));
        if all.len() > MAX_SERIES_LISTED {
            all.truncate(MAX_SERIES_LISTED);
            return Ok((all, true));
        }
    }
    Ok((all, false))
}

/// A text of a device.
#[derive(Serialize)]
struct TextEntry {
    object: String,
    key: String,
    text: String,
    since_ns: i64,
}

#[derive(Serialize)]
struct Texts {
    texts: Vec<TextEntry>,
    more: bool,
}

/// Returns the texts of a device, of all objects or of one.
pub fn texts(context: &QueryContext<'_>, query: &Query) -> Result<Vec<u8>, ApiError> {
    let object = query.optional("object");
    let mut texts = context.reader.texts(query.required("device")?)?;
    texts.retain(|text| object.is_none_or(|object| text.object == object));
    let more = texts.len() > MAX_TEXTS;
    texts.truncate(MAX_TEXTS);
    let entry = |Text { object, key, text, since }| TextEntry { object, key, text, since_ns: since.0 };
    json(&Texts { texts: texts.into_iter().map(entry).collect(), more })
}
