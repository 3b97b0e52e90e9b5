//! Other objects of a device: one series each, of the type of the first value.

use std::slice;

use async_snmp::{Oid, Value};
use trunkline_counters::archive::{Object as Part, SeriesName, SeriesSpec};
use trunkline_counters::counter::{RawValue, Timestamp, ValueKind};

use super::config::Object;
use super::ports;
use super::table::TableBuffer;
use crate::snmp::Session;
use crate::snmp::session::QueryResult;
use crate::snmp::walk::Rows;

/// Queries all objects.
pub async fn query(
    session: &mut Session,
    objects: &[Object],
    max_rows: usize,
    until: Timestamp,
) -> QueryResult {
    let single: Vec<Oid> = objects.iter().filter(|o| !o.walk).map(|o| o.oid.clone()).collect();
    let mut result = session.get(&single, until).await;
    for object in objects.iter().filter(|o| o.walk) {
        if result.fault.is_some() {
            break;
        }
        let more = session.walk(slice::from_ref(&object.oid), max_rows, 0, until).await;
        result
            .rows
            .extend(more.rows.into_iter().map(|(index, row)| ([object.oid.arcs(), &index].concat(), row)));
        result.answered_at = more.answered_at.or(result.answered_at);
        result.uptime = more.uptime.or(result.uptime);
        result.fault = more.fault;
    }
    result
}

/// Stores a response in the table; rows are indexed by full object identifiers.
pub fn fill(table: &mut TableBuffer<ValueKind>, objects: &[Object], rows: &Rows) {
    for object in objects {
        let rows_of_object =
            rows.range(object.oid.arcs().to_vec()..).take_while(|(n, _)| n.starts_with(object.oid.arcs()));
        for (arcs, row) in rows_of_object {
            let index: Vec<String> = arcs[object.oid.len()..].iter().map(u32::to_string).collect();
            let name = match object.walk {
                true => format!("{}.{}", object.name, index.join(".")),
                false if index.is_empty() => object.name.clone(),
                false => continue,
            };
            if let Some(Some(value)) = row.first() {
                store(table, &name, object, value);
            }
        }
    }
}

fn store(table: &mut TableBuffer<ValueKind>, name: &str, requested: &Object, value: &Value) {
    let Some((found, raw)) = parse_value(value) else { return };
    // The type of the first value is the type of the series.
    let kind = table.properties(name).copied().unwrap_or(found);
    let object = Part::Other(name.into());
    let series_name = SeriesName { object, direction: None, quantity: "value".into() };
    let series = |kind: &ValueKind| {
        let series = SeriesSpec::new(series_name.to_string(), *kind, &requested.unit);
        vec![SeriesSpec { ceiling: requested.most, ..series }]
    };
    if let Some([slot]) = table.row(name, kind, series) {
        *slot = (found == kind).then_some(raw);
    }
}

/// Converts a value to a number; text that parses as a number becomes a real.
fn parse_value(value: &Value) -> Option<(ValueKind, RawValue)> {
    Some(match value {
        Value::Counter32(n) => (ValueKind::Counter32, RawValue(u64::from(*n))),
        Value::Counter64(n) => (ValueKind::Counter64, RawValue(*n)),
        Value::Integer(n) => (ValueKind::Gauge, RawValue::from_gauge(i64::from(*n))),
        Value::Gauge32(n) | Value::UInteger32(n) | Value::TimeTicks(n) => {
            (ValueKind::Gauge, RawValue::from_gauge(i64::from(*n)))
        }
        Value::OctetString(_) => {
            let number: f64 = ports::text_value(&Some(value.clone()), 64).trim().parse().ok()?;
            (ValueKind::Real, RawValue::from_real(number))
        }
        Value::Opaque(_) => {
            let number = value.as_opaque_double().or_else(|| value.as_opaque_float().map(f64::from))?;
            (ValueKind::Real, RawValue::from_real(number))
        }
        _ => return None,
    })
}
