//! The newest values of a device; all devices at a glance.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use trunkline_counters::archive::{Object, Place, Recent, Row, SeriesInfo, TableInfo, prometheus};
use trunkline_counters::counter::{Kind, Moment, Raw};

use super::lists::words;
use super::views::Grown;
use super::{MOST_LISTED, Value, events, json, kind, named, tables, tables_of};
use crate::pool::Asked;
use crate::query::{Query, Refused};

#[derive(Serialize)]
struct Latest {
    device: String,
    now_ns: i64,
    tables: Vec<TableTold>,
    texts: BTreeMap<String, Said>,
    objects: Vec<ObjectTold>,
    more: bool,
}

/// The last response of a table.
#[derive(Serialize)]
struct TableTold {
    name: String,
    period_ns: u64,
    asked_ns: Option<i64>,
    responding: Option<bool>,
    seen_ns: Option<i64>,
    uptime_s: Option<f64>,
    events: Vec<&'static str>,
}

#[derive(Serialize)]
struct Said {
    text: String,
    since_ns: i64,
}

#[derive(Serialize)]
struct ObjectTold {
    object: String,
    class: &'static str,
    label: String,
    texts: BTreeMap<String, Said>,
    series: Vec<Newest>,
}

/// The newest value of a series and the newest growth.
#[derive(Serialize)]
struct Newest {
    id: i64,
    direction: Option<String>,
    quantity: String,
    unit: String,
    kind: &'static str,
    ceiling: Option<u64>,
    value: Option<Value>,
    at_ns: Option<i64>,
    growth: Option<Grown>,
    grown_ns: Option<i64>,
    events: Vec<&'static str>,
}

/// What a device told last, part by part.
pub fn latest(asked: &Asked<'_>, query: &Query) -> Result<Vec<u8>, Refused> {
    let device = query.text("device")?;
    let mut objects: BTreeMap<String, ObjectTold> = BTreeMap::new();
    let (mut told, mut count, mut more) = (Vec::new(), 0, false);
    for table in tables_of(asked, device)? {
        asked.in_time()?;
        let recent = asked.reader.recent(table.id, |_| true)?;
        told.push(table_told(asked, &table, &recent.rows)?);
        for (at, (series, _)) in recent.series.iter().enumerate() {
            count += 1;
            more |= count > MOST_LISTED;
            if more {
                break;
            }
            let name = named(&series.name);
            let new = || ObjectTold {
                object: name.object.clone(),
                class: name.class,
                label: name.label,
                texts: BTreeMap::new(),
                series: Vec::new(),
            };
            let newest = newest(&recent, at, name.direction, name.quantity);
            objects.entry(name.object.clone()).or_insert_with(new).series.push(newest);
        }
    }
    let mut own = BTreeMap::new();
    for text in words(asked, device)? {
        let said = Said { text: text.text, since_ns: text.since.0 };
        // Who answers for the device speaks of the device.
        if text.object.is_empty() || text.object == "agent" {
            own.insert(text.key, said);
        } else if let Some(object) = objects.get_mut(&text.object) {
            object.texts.insert(text.key, said);
        }
    }
    let objects = objects.into_values().collect();
    json(&Latest { device: device.into(), now_ns: asked.now.0, tables: told, texts: own, objects, more })
}

fn table_told(asked: &Asked<'_>, table: &TableInfo, rows: &[Row]) -> Result<TableTold, Refused> {
    let last = rows.last();
    let answer = rows.iter().rev().find(|row| row.answered.is_some());
    let seen = match answer.and_then(|row| row.answered) {
        None if last.is_some() => last_answer(asked, table)?,
        seen => seen,
    };
    Ok(TableTold {
        name: table.name.clone(),
        period_ns: u64::try_from(table.period.as_nanos()).unwrap_or(u64::MAX),
        asked_ns: last.map(|row| row.asked.0),
        responding: last.map(|row| row.answered.is_some()),
        seen_ns: seen.map(|at| at.0),
        uptime_s: answer.and_then(|row| row.uptime).map(|hundredths| f64::from(hundredths) / 100.0),
        events: last.map_or(Vec::new(), |row| events(row.events)),
    })
}

/// When a table that has been silent for long was answered last, to a period: ever closer views of one of its series.
fn last_answer(asked: &Asked<'_>, table: &TableInfo) -> Result<Option<Moment>, Refused> {
    const BUCKETS: usize = 256;
    let series = asked.reader.series(table.id)?;
    let (Some(series), Some((mut from, mut to))) = (series.first(), asked.reader.extent(table.id)?) else {
        return Ok(None);
    };
    loop {
        asked.in_time()?;
        let told = asked.reader.view(series.id, from, to, BUCKETS)?.buckets;
        let Some(bucket) = told.buckets.iter().rposition(|summary| summary.samples > 0) else {
            return Ok(None);
        };
        (from, to) = (told.edge(bucket), told.edge(bucket + 1));
        if to.since(from) <= table.period {
            return Ok(Some(to));
        }
    }
}

fn newest(recent: &Recent, at: usize, direction: Option<String>, quantity: String) -> Newest {
    let (series, told) = &recent.series[at];
    let value = newest_value(recent, at);
    let grown = told.iter().rev().find_map(|(_, step)| step.growth);
    Newest {
        id: series.id.0,
        direction,
        quantity,
        unit: series.unit.clone(),
        kind: kind(series.column.kind),
        ceiling: series.column.ceiling,
        value: value.map(|(_, raw)| Value::new(raw, series.column.kind)),
        at_ns: value.map(|(row, _)| row.at().0),
        growth: grown.as_ref().map(Grown::new),
        grown_ns: grown.map(|growth| growth.to.latest.0),
        events: told.last().map_or(Vec::new(), |(_, step)| events(step.events)),
    }
}

fn newest_value(recent: &Recent, at: usize) -> Option<(Row, Raw)> {
    let told = recent.series[at].1.iter().map(|(value, _)| *value);
    recent.rows.iter().zip(told).rev().find_map(|(row, value)| Some((*row, value?)))
}

#[derive(Serialize)]
struct Hosts {
    now_ns: i64,
    hosts: Vec<HostTold>,
}

/// A device at a glance.
#[derive(Serialize)]
struct HostTold {
    device: String,
    name: Option<String>,
    /// Whether the last response came; of a host that is pinged its answer to that.
    responding: Option<bool>,
    pinged: bool,
    seen_ns: Option<i64>,
    asked_ns: Option<i64>,
    period_ns: u64,
    delay: Option<Delay>,
    uptime_s: Option<f64>,
    ports: usize,
    active: usize,
    paths: usize,
    channels: usize,
    events: Vec<&'static str>,
}

#[derive(Serialize)]
struct Delay {
    id: i64,
    value: Value,
    unit: String,
}

/// The newest value of every series as Prometheus reads it.
pub fn metrics(asked: &Asked<'_>, _: &Query) -> Result<Vec<u8>, Refused> {
    Ok(prometheus::page(asked.reader)?.into_bytes())
}

/// Every device: whether it answers, how far it is, when it was seen last.
pub fn hosts(asked: &Asked<'_>, _: &Query) -> Result<Vec<u8>, Refused> {
    let mut devices: BTreeMap<String, Vec<TableInfo>> = BTreeMap::new();
    for table in tables(asked)? {
        devices.entry(table.device.clone()).or_default().push(table);
    }
    let mut hosts = Vec::new();
    for (device, tables) in devices {
        asked.in_time()?;
        hosts.push(host(asked, device, &tables)?);
    }
    json(&Hosts { now_ns: asked.now.0, hosts })
}

fn host(asked: &Asked<'_>, device: String, tables: &[TableInfo]) -> Result<HostTold, Refused> {
    let mut told = HostTold {
        device,
        name: None,
        responding: None,
        pinged: false,
        seen_ns: None,
        asked_ns: None,
        period_ns: 0,
        delay: None,
        uptime_s: None,
        ports: 0,
        active: 0,
        paths: 0,
        channels: 0,
        events: Vec::new(),
    };
    let mut objects = BTreeSet::new();
    for table in tables {
        let mut pings = false;
        let of_host = |series: &SeriesInfo| {
            let place = series.name.parse::<Place>().ok();
            let object = place.map(|place| place.object);
            let host = object == Some(Object::Host);
            (object, host)
        };
        // What is counted is the parts; what is read is a ping.
        for series in asked.reader.series(table.id)? {
            let (object, host) = of_host(&series);
            pings |= host;
            objects.extend(object);
        }
        let recent = asked.reader.recent(table.id, |series| of_host(series).1)?;
        let rows = table_told(asked, table, &recent.rows)?;
        told.uptime_s = told.uptime_s.or(rows.uptime_s);
        // A ping speaks for its host; else who asked last.
        let speaks = if pings != told.pinged { pings } else { rows.asked_ns >= told.asked_ns };
        if speaks {
            (told.responding, told.asked_ns, told.period_ns) =
                (rows.responding, rows.asked_ns, rows.period_ns);
            (told.seen_ns, told.events) = (rows.seen_ns, rows.events);
        }
        if pings {
            told.pinged = true;
            ping(&recent, &mut told);
        }
    }
    for text in words(asked, &told.device)? {
        let port = text.object.starts_with("port/");
        told.active += usize::from(port && text.key == "state" && text.text == "up");
        if text.object.is_empty() && text.key == "name" {
            told.name = Some(text.text);
        }
    }
    told.ports = objects.iter().filter(|object| matches!(object, Object::Port(_))).count();
    told.paths = objects.iter().filter(|object| matches!(object, Object::Path { .. })).count();
    told.channels = objects.iter().filter(|object| matches!(object, Object::Channel { .. })).count();
    Ok(told)
}

/// What a ping told: its delay, and whether the host responds where that is counted. Whoever pings may tell of a ping
/// without an answer as of a response that lacks the delay, or as of none.
fn ping(recent: &Recent, told: &mut HostTold) {
    let answered = recent.rows.last().is_some_and(|row| row.answered.is_some());
    for (at, (series, values)) in recent.series.iter().enumerate() {
        let last = values.last().and_then(|(value, _)| *value);
        let newest = newest_value(recent, at);
        match named(&series.name).quantity.as_str() {
            "delay" => {
                let new = |(_, raw)| Delay {
                    id: series.id.0,
                    value: Value::new(raw, series.column.kind),
                    unit: series.unit.clone(),
                };
                told.delay = newest.map(new);
                if last.is_none() {
                    told.responding = recent.rows.last().map(|_| false);
                }
                let seen = newest.map(|(row, _)| row.at().0);
                told.seen_ns = seen.or(told.seen_ns.filter(|_| !answered));
            }
            "responding" if series.column.kind == Kind::Gauge => {
                told.responding = last.map(|raw| raw.0 != 0).or(told.responding);
            }
            // There however long ago it was.
            "seen" if series.unit == "ms since 1970" => {
                let seen = newest.map(|(_, raw)| (raw.0 as i64).saturating_mul(1_000_000));
                told.seen_ns = seen.or(told.seen_ns);
            }
            _ => {}
        }
    }
}
