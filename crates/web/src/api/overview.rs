//! The overview: the busiest interfaces, recent events and silent devices.

use std::collections::BTreeMap;

use serde::Serialize;
use trunkline_counters::archive::{Recent, SeriesInfo};
use trunkline_counters::counter::{Event, EventSet, Timestamp};

use super::latest::{HostJson, host};
use super::{json, parse_name, tables_by_device};
use crate::query::{ApiError, Query};
use crate::readers::QueryContext;

/// Maximum number of interfaces, events and silent devices in the response.
const MAX_INTERFACES: usize = 6;
const MAX_EVENTS: usize = 20;
const MAX_SILENT: usize = 20;

/// Bits of an octet, and of an ATM cell (ITU-T I.361).
const OCTET_BITS: f64 = 8.0;
const CELL_BITS: f64 = 424.0;

/// A device counts as silent only if it is still polled: within this time, or five periods.
const POLLED_WITHIN_NS: i64 = 60_000_000_000;

#[derive(Serialize)]
struct Overview {
    now_ns: i64,
    devices: usize,
    responding: usize,
    interfaces: Vec<InterfaceJson>,
    events: Vec<EventJson>,
    silent: Vec<SilentJson>,
}

/// A port and its traffic over the last responses.
#[derive(Serialize)]
struct InterfaceJson {
    device: String,
    object: String,
    label: String,
    /// The mean rate of both directions.
    rate_bps: f64,
    /// The latest reading.
    at_ns: i64,
    series: Vec<i64>,
}

/// Consecutive events of one kind.
#[derive(Serialize)]
struct EventJson {
    device: String,
    name: &'static str,
    first_ns: i64,
    last_ns: i64,
    count: u64,
}

#[derive(Serialize)]
struct SilentJson {
    device: String,
    seen_ns: Option<i64>,
    asked_ns: Option<i64>,
}

/// Returns the busiest interfaces, recent events and silent devices.
pub fn overview(context: &QueryContext<'_>, _: &Query) -> Result<Vec<u8>, ApiError> {
    let tables = tables_by_device(context)?;
    let (devices, mut responding) = (tables.len(), 0);
    let (mut interfaces, mut events, mut silent) = (Vec::new(), Vec::new(), Vec::new());
    for (device, tables) in tables {
        context.check_deadline()?;
        for table in &tables {
            let recent = context.reader.recent(table.id, is_traffic)?;
            interfaces.extend(interfaces_of(&device, &recent));
            events.extend(events_of(&device, &recent));
        }
        let status = host(context, device, &tables)?;
        let is_polled = is_polled(&status, context.now);
        responding += usize::from(is_polled && status.responding == Some(true));
        if is_polled && status.responding == Some(false) {
            let HostJson { device, seen_ns, asked_ns, .. } = status;
            silent.push(SilentJson { device, seen_ns, asked_ns });
        }
    }
    interfaces.sort_by(|a, b| b.rate_bps.total_cmp(&a.rate_bps));
    interfaces.truncate(MAX_INTERFACES);
    events.sort_by_key(|event: &EventJson| std::cmp::Reverse(event.last_ns));
    events.truncate(MAX_EVENTS);
    silent.sort_by_key(|one: &SilentJson| std::cmp::Reverse(one.seen_ns));
    silent.truncate(MAX_SILENT);
    json(&Overview { now_ns: context.now.0, devices, responding, interfaces, events, silent })
}

/// Returns whether the last request is recent enough for a statement about the device.
fn is_polled(status: &HostJson, now: Timestamp) -> bool {
    let limit = i64::try_from(status.period_ns).unwrap_or(i64::MAX).saturating_mul(5).max(POLLED_WITHIN_NS);
    status.asked_ns.is_some_and(|asked| now.0.saturating_sub(asked) <= limit)
}

/// Returns whether a series counts the traffic of a port.
fn is_traffic(series: &SeriesInfo) -> bool {
    let name = parse_name(&series.name);
    series.column.kind.is_counter()
        && name.class == "port"
        && name.direction.is_some()
        && bits(&name.quantity).is_some()
}

/// Returns the bits of a counted unit.
fn bits(quantity: &str) -> Option<f64> {
    match quantity {
        "octets" => Some(OCTET_BITS),
        "cells" => Some(CELL_BITS),
        _ => None,
    }
}

/// Returns the ports of a table with their mean rates over the last responses.
fn interfaces_of(device: &str, recent: &Recent) -> Vec<InterfaceJson> {
    let mut ports: BTreeMap<String, InterfaceJson> = BTreeMap::new();
    for (series, readings) in &recent.series {
        let name = parse_name(&series.name);
        let growths = || readings.iter().filter_map(|(_, update)| update.growth);
        let seconds: f64 = growths().map(|growth| growth.duration().as_secs_f64()).sum();
        let Some(last) = growths().next_back() else { continue };
        let amount: f64 = growths().map(|growth| growth.amount as f64).sum();
        let rate = if seconds > 0.0 { amount / seconds * bits(&name.quantity).unwrap_or(0.0) } else { 0.0 };
        let port = ports.entry(name.object.clone()).or_insert_with(|| InterfaceJson {
            device: device.to_owned(),
            object: name.object,
            label: name.label,
            rate_bps: 0.0,
            at_ns: last.to.latest.0,
            series: Vec::new(),
        });
        port.rate_bps += rate;
        port.at_ns = port.at_ns.max(last.to.latest.0);
        port.series.push(series.id.0);
    }
    ports.into_values().collect()
}

/// Returns the events of a table in the last responses. Details of polling (stale caches, late requests) are omitted.
fn events_of(device: &str, recent: &Recent) -> Vec<EventJson> {
    let mut all: Vec<EventJson> = Vec::new();
    let mut open = [None; Event::ALL.len()];
    for (at, row) in recent.rows.iter().enumerate() {
        let mut events = row.events;
        for (_, readings) in &recent.series {
            events.extend(readings.get(at).map_or(EventSet::EMPTY, |(_, update)| update.events));
        }
        for (event, open) in Event::ALL.into_iter().zip(&mut open) {
            if !events.contains(event) || matches!(event, Event::Stale | Event::Late) {
                *open = None;
                continue;
            }
            let time = row.time().0;
            if let Some(index) = *open {
                let known: &mut EventJson = &mut all[index];
                (known.last_ns, known.count) = (time, known.count + 1);
            } else {
                *open = Some(all.len());
                let (device, name) = (device.to_owned(), event.name());
                all.push(EventJson { device, name, first_ns: time, last_ns: time, count: 1 });
            }
        }
    }
    all
}
