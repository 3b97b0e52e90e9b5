//! Devices, their parts, their series, what they say in words.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use trunkline_counters::archive::{Error, SeriesInfo, TableInfo, Text};

use super::{MOST_LISTED, SeriesTold, json, named, tables, tables_of};
use crate::pool::Asked;
use crate::query::{Query, Refused};

/// Most texts that are told at once.
const MOST_TEXTS: usize = 10_000;

#[derive(Serialize)]
struct Devices {
    now_ns: i64,
    devices: BTreeSet<String>,
}

/// Everything that was asked for something.
pub fn devices(asked: &Asked<'_>, _: &Query) -> Result<Vec<u8>, Refused> {
    let devices = tables(asked)?.into_iter().map(|table| table.device).collect();
    json(&Devices { now_ns: asked.now.0, devices })
}

#[derive(Serialize)]
struct Objects {
    objects: Vec<Part>,
    /// Whether the device has more than could be told.
    more: bool,
}

#[derive(Serialize)]
struct Part {
    object: String,
    class: &'static str,
    label: String,
    series: usize,
}

/// The parts of a device: ports, paths, channels and so on.
pub fn objects(asked: &Asked<'_>, query: &Query) -> Result<Vec<u8>, Refused> {
    let (all, more) = series_of(asked, query.text("device")?)?;
    let mut objects: BTreeMap<String, Part> = BTreeMap::new();
    for (series, _) in &all {
        let named = named(&series.name);
        let new = || Part { object: named.object.clone(), class: named.class, label: named.label, series: 0 };
        objects.entry(named.object.clone()).or_insert_with(new).series += 1;
    }
    json(&Objects { objects: objects.into_values().collect(), more })
}

#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    series: SeriesTold,
    begin_ns: Option<i64>,
    end_ns: Option<i64>,
}

#[derive(Serialize)]
struct SeriesList {
    series: Vec<Listed>,
}

/// Series by their numbers, or of a part of a device; and from when to when there are readings.
pub fn series(asked: &Asked<'_>, query: &Query) -> Result<Vec<u8>, Refused> {
    let mut found: Vec<(SeriesInfo, TableInfo)> = Vec::new();
    if query.optional("series").is_some() {
        let tables: BTreeMap<i64, TableInfo> = tables(asked)?.into_iter().map(|t| (t.id.0, t)).collect();
        for id in query.series()? {
            let series = asked.reader.one(id)?;
            let none = || Refused::None(format!("there is no series {}", id.0));
            let table = tables.get(&series.table.0).cloned().ok_or_else(none)?;
            found.push((series, table));
        }
    } else {
        let (device, object) = (query.text("device")?, query.text("object")?);
        found = series_of(asked, device)?.0;
        found.retain(|(series, _)| named(&series.name).object == object);
    }
    let mut extents = BTreeMap::new();
    let mut list = SeriesList { series: Vec::new() };
    for (series, table) in found {
        asked.in_time()?;
        let extent = match extents.get(&table.id.0) {
            Some(extent) => *extent,
            None => {
                let extent = asked.reader.extent(table.id)?;
                extents.insert(table.id.0, extent);
                extent
            }
        };
        let (begin_ns, end_ns) = (extent.map(|e| e.0.0), extent.map(|e| e.1.0));
        list.series.push(Listed { series: SeriesTold::new(&series, &table), begin_ns, end_ns });
    }
    json(&list)
}

/// The series of a device with their tables, at most [`MOST_LISTED`]; and whether there are more.
fn series_of(asked: &Asked<'_>, device: &str) -> Result<(Vec<(SeriesInfo, TableInfo)>, bool), Refused> {
    let mut all = Vec::new();
    for table in tables_of(asked, device)? {
        asked.in_time()?;
        all.extend(asked.reader.series(table.id)?.into_iter().map(|series| (series, table.clone())));
        if all.len() > MOST_LISTED {
            all.truncate(MOST_LISTED);
            return Ok((all, true));
        }
    }
    Ok((all, false))
}

/// A text of a device.
#[derive(Serialize)]
pub struct Words {
    object: String,
    key: String,
    text: String,
    since_ns: i64,
}

impl From<Text> for Words {
    fn from(text: Text) -> Words {
        let Text { object, key, text, since } = text;
        Words { object, key, text, since_ns: since.0 }
    }
}

#[derive(Serialize)]
struct Texts {
    texts: Vec<Words>,
    more: bool,
}

/// What a device says in words, of all of its parts or of one.
pub fn texts(asked: &Asked<'_>, query: &Query) -> Result<Vec<u8>, Refused> {
    let object = query.optional("object");
    let mut texts = words(asked, query.text("device")?)?;
    texts.retain(|text| object.is_none_or(|object| text.object == object));
    let more = texts.len() > MOST_TEXTS;
    texts.truncate(MOST_TEXTS);
    json(&Texts { texts: texts.into_iter().map(Words::from).collect(), more })
}

/// What a device says in words. An archive of before there were texts has none.
pub fn words(asked: &Asked<'_>, device: &str) -> Result<Vec<Text>, Refused> {
    match asked.reader.texts(device) {
        Err(Error::None { .. }) => Ok(Vec::new()),
        texts => Ok(texts?),
    }
}
