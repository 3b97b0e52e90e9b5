//! The latest values of a device, and the status of all devices.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use trunkline_counters::archive::{Object, Recent, Row, SeriesInfo, SeriesName, TableInfo, prometheus};
use trunkline_counters::counter::{RawValue, Timestamp, ValueKind};

use super::views::GrowthJson;
use super::{MAX_SERIES_LISTED, Value, device_tables, event_names, json, parse_name, tables_by_device};
use crate::query::{ApiError, Query};
use crate::readers::QueryContext;

#[derive(Serialize)]
struct Latest {
    device: String,
    now_ns: i64,
    tables: Vec<TableJson>,
    texts: BTreeMap<String, TextJson>,
    objects: Vec<ObjectJson>,
    more: bool,
}

/// The status of a table.
#[derive(Serialize)]
struct TableJson {
    name: String,
    period_ns: u64,
    asked_ns: Option<i64>,
    responding: Option<bool>,
    seen_ns: Option<i64>,
    uptime_s: Option<f64>,
    events: Vec<&'static str>,
}

#[derive(Serialize)]
struct TextJson {
    text: String,
    since_ns: i64,
}

#[derive(Serialize)]
struct ObjectJson {
    object: String,
    class: &'static str,
    label: String,
    texts: BTreeMap<String, TextJson>,
    series: Vec<LatestValue>,
}

/// The latest value and growth of a series.
#[derive(Serialize)]
struct LatestValue {
    id: i64,
    direction: Option<String>,
    quantity: String,
    unit: String,
    kind: &'static str,
    ceiling: Option<u64>,
    value: Option<Value>,
    at_ns: Option<i64>,
    growth: Option<GrowthJson>,
    grown_ns: Option<i64>,
    events: Vec<&'static str>,
}

/// Returns the latest values of a device by object.
pub fn latest(context: &QueryContext<'_>, query: &Query) -> Result<Vec<u8>, ApiError> {
    let device = query.required("device")?;
    let mut objects: BTreeMap<String, ObjectJson> = BTreeMap::new();
    let (mut tables, mut count, mut more) = (Vec::new(), 0, false);
    for table in device_tables(context, device)? {
        context.check_deadline()?;
        let recent = context.reader.recent(table.id, |_| true)?;
        tables.push(table_status(context, &table, &recent.rows)?);
        for (at, (series, _)) in recent.series.iter().enumerate() {
            count += 1;
            more |= count > MAX_SERIES_LISTED;
            if more {
                break;
            }
            let name = parse_name(&series.name);
            let new = || ObjectJson {
                object: name.object.clone(),
                class: name.class,
                label: name.label,
                texts: BTreeMap::new(),
                series: Vec::new(),
            };
            let value = latest_of_series(&recent, at, name.direction, name.quantity);
            objects.entry(name.object.clone()).or_insert_with(new).series.push(value);
        }
    }
    let mut texts = BTreeMap::new();
    for text in context.reader.texts(device)? {
        let value = TextJson { text: text.text, since_ns: text.since.0 };
        // Texts of the agent describe the device.
        if text.object.is_empty() || text.object == "agent" {
            texts.insert(text.key, value);
        } else if let Some(object) = objects.get_mut(&text.object) {
            object.texts.insert(text.key, value);
        }
    }
    let objects = objects.into_values().collect();
    json(&Latest { device: device.into(), now_ns: context.now.0, tables, texts, objects, more })
}

fn table_status(context: &QueryContext<'_>, table: &TableInfo, rows: &[Row]) -> Result<TableJson, ApiError> {
    let last = rows.last();
    let answer = rows.iter().rev().find(|row| row.answered_at.is_some());
    let seen = match answer.and_then(|row| row.answered_at) {
        None if last.is_some() => find_last_answer(context, table)?,
        seen => seen,
    };
    Ok(TableJson {
        name: table.name.clone(),
        period_ns: u64::try_from(table.period.as_nanos()).unwrap_or(u64::MAX),
        asked_ns: last.map(|row| row.requested_at.0),
        responding: last.map(|row| row.answered_at.is_some()),
        seen_ns: seen.map(|at| at.0),
        uptime_s: answer.and_then(|row| row.uptime).map(|hundredths| f64::from(hundredths) / 100.0),
        events: last.map_or(Vec::new(), |row| event_names(row.events)),
    })
}

/// Finds the last answer of a table, with the precision of its period, by successively narrower views of one of its
/// series.
fn find_last_answer(context: &QueryContext<'_>, table: &TableInfo) -> Result<Option<Timestamp>, ApiError> {
    const BUCKETS: usize = 256;
    let series = context.reader.series(table.id)?;
    let (Some(series), Some((mut from, mut to))) = (series.first(), context.reader.time_range(table.id)?)
    else {
        return Ok(None);
    };
    loop {
        context.check_deadline()?;
        let view = context.reader.view(series.id, from, to, BUCKETS)?.buckets;
        let Some(bucket) = view.buckets.iter().rposition(|summary| summary.samples > 0) else {
            return Ok(None);
        };
        (from, to) = (view.edge(bucket), view.edge(bucket + 1));
        if to.duration_since(from) <= table.period {
            return Ok(Some(to));
        }
    }
}

fn latest_of_series(recent: &Recent, at: usize, direction: Option<String>, quantity: String) -> LatestValue {
    let (series, readings) = &recent.series[at];
    let value = latest_value(recent, at);
    let growth = readings.iter().rev().find_map(|(_, step)| step.growth);
    LatestValue {
        id: series.id.0,
        direction,
        quantity,
        unit: series.unit.clone(),
        kind: series.column.kind.name(),
        ceiling: series.column.ceiling,
        value: value.map(|(_, raw)| Value::new(raw, series.column.kind)),
        at_ns: value.map(|(row, _)| row.time().0),
        growth: growth.as_ref().map(GrowthJson::new),
        grown_ns: growth.map(|growth| growth.to.latest.0),
        events: readings.last().map_or(Vec::new(), |(_, step)| event_names(step.events)),
    }
}

fn latest_value(recent: &Recent, at: usize) -> Option<(Row, RawValue)> {
    let values = recent.series[at].1.iter().map(|(value, _)| *value);
    recent.rows.iter().zip(values).rev().find_map(|(row, value)| Some((*row, value?)))
}

#[derive(Serialize)]
struct Hosts {
    now_ns: i64,
    hosts: Vec<HostJson>,
}

/// The status of a device.
#[derive(Default, Serialize)]
pub(super) struct HostJson {
    pub device: String,
    name: Option<String>,
    /// Whether the last request was answered; for a pinged host, the last ping.
    pub responding: Option<bool>,
    pinged: bool,
    pub seen_ns: Option<i64>,
    pub asked_ns: Option<i64>,
    pub period_ns: u64,
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

/// Returns the latest value of every series for Prometheus.
pub fn metrics(context: &QueryContext<'_>, _: &Query) -> Result<Vec<u8>, ApiError> {
    Ok(prometheus::render(context.reader)?.into_bytes())
}

/// Returns all devices with reachability, delay and the time of the last answer.
pub fn hosts(context: &QueryContext<'_>, _: &Query) -> Result<Vec<u8>, ApiError> {
    let mut hosts = Vec::new();
    for (device, tables) in tables_by_device(context)? {
        context.check_deadline()?;
        hosts.push(host(context, device, &tables)?);
    }
    json(&Hosts { now_ns: context.now.0, hosts })
}

/// Reads the status of a device.
pub(super) fn host(
    context: &QueryContext<'_>,
    device: String,
    tables: &[TableInfo],
) -> Result<HostJson, ApiError> {
    let mut status = HostJson { device, ..HostJson::default() };
    let mut objects = BTreeSet::new();
    for table in tables {
        let mut is_ping = false;
        let object = |series: &SeriesInfo| Some(series.name.parse::<SeriesName>().ok()?.object);
        // All objects are counted, but only values of a ping are read.
        for series in context.reader.series(table.id)? {
            let object = object(&series);
            is_ping |= object == Some(Object::Host);
            objects.extend(object);
        }
        let recent = context.reader.recent(table.id, |series| object(series) == Some(Object::Host))?;
        let rows = table_status(context, table, &recent.rows)?;
        status.uptime_s = status.uptime_s.or(rows.uptime_s);
        // A ping decides the status of its host; otherwise the latest request does.
        let is_authoritative =
            if is_ping != status.pinged { is_ping } else { rows.asked_ns >= status.asked_ns };
        if is_authoritative {
            (status.responding, status.asked_ns, status.period_ns) =
                (rows.responding, rows.asked_ns, rows.period_ns);
            (status.seen_ns, status.events) = (rows.seen_ns, rows.events);
        }
        if is_ping {
            status.pinged = true;
            ping(&recent, &mut status);
        }
    }
    for text in context.reader.texts(&status.device)? {
        let port = text.object.starts_with("port/");
        status.active += usize::from(port && text.key == "state" && text.text == "up");
        if text.object.is_empty() && text.key == "name" {
            status.name = Some(text.text);
        }
    }
    status.ports = objects.iter().filter(|object| matches!(object, Object::Port(_))).count();
    status.paths = objects.iter().filter(|object| matches!(object, Object::Path { .. })).count();
    status.channels = objects.iter().filter(|object| matches!(object, Object::Channel { .. })).count();
    Ok(status)
}

/// Adds the results of a ping: the delay, and whether the host responds if that is recorded. A ping without an answer
/// may be stored as a response without delay, or as no response.
fn ping(recent: &Recent, status: &mut HostJson) {
    let answered = recent.rows.last().is_some_and(|row| row.answered_at.is_some());
    for (at, (series, values)) in recent.series.iter().enumerate() {
        let last = values.last().and_then(|(value, _)| *value);
        let newest = latest_value(recent, at);
        match parse_name(&series.name).quantity.as_str() {
            "delay" => {
                let new = |(_, raw)| Delay {
                    id: series.id.0,
                    value: Value::new(raw, series.column.kind),
                    unit: series.unit.clone(),
                };
                status.delay = newest.map(new);
                if last.is_none() {
                    status.responding = recent.rows.last().map(|_| false);
                }
                let seen = newest.map(|(row, _)| row.time().0);
                status.seen_ns = seen.or(status.seen_ns.filter(|_| !answered));
            }
            "responding" if series.column.kind == ValueKind::Gauge => {
                status.responding = last.map(|raw| raw.0 != 0).or(status.responding);
            }
            // Valid regardless of its age.
            "seen" if series.unit == "ms since 1970" => {
                let seen = newest.map(|(_, raw)| (raw.0 as i64).saturating_mul(1_000_000));
                status.seen_ns = seen.or(status.seen_ns);
            }
            _ => {}
        }
    }
}
