//! Any other objects of a device: a series each, of the kind that the agent first answers with.

use std::slice;

use async_snmp::{Oid, Value};
use trunkline_counters::archive::{Object as Part, Place, SeriesSpec};
use trunkline_counters::counter::{Kind, Moment, Raw};

use super::config::Object;
use super::ports;
use super::sheet::Sheet;
use crate::snmp::Session;
use crate::snmp::session::Told;
use crate::snmp::walk::Rows;

/// Asks for all of them.
pub async fn ask(session: &mut Session, objects: &[Object], most: usize, until: Moment) -> Told {
    let single: Vec<Oid> = objects.iter().filter(|o| !o.walk).map(|o| o.oid.clone()).collect();
    let mut told = session.get(&single, until).await;
    for object in objects.iter().filter(|o| o.walk) {
        if told.fault.is_some() {
            break;
        }
        let more = session.walk(slice::from_ref(&object.oid), most, 0, until).await;
        told.rows
            .extend(more.rows.into_iter().map(|(index, row)| ([object.oid.arcs(), &index].concat(), row)));
        told.answered = more.answered.or(told.answered);
        told.uptime = more.uptime.or(told.uptime);
        told.fault = more.fault;
    }
    told
}

/// Puts an answer into the table: rows have the whole number of an object.
pub fn fill(sheet: &mut Sheet<Kind>, objects: &[Object], rows: &Rows) {
    for object in objects {
        let below =
            rows.range(object.oid.arcs().to_vec()..).take_while(|(n, _)| n.starts_with(object.oid.arcs()));
        for (number, row) in below {
            let index: Vec<String> = number[object.oid.len()..].iter().map(u32::to_string).collect();
            let name = match object.walk {
                true => format!("{}.{}", object.name, index.join(".")),
                false if index.is_empty() => object.name.clone(),
                false => continue,
            };
            if let Some(Some(value)) = row.first() {
                put(sheet, &name, object, value);
            }
        }
    }
}

fn put(sheet: &mut Sheet<Kind>, name: &str, asked: &Object, value: &Value) {
    let Some((kind, raw)) = read(value) else { return };
    // The kind that it was first is the kind that it has.
    let kind = sheet.traits(name).copied().unwrap_or(kind);
    let object = Part::Other(name.into());
    let place = Place { object, direction: None, quantity: "value".into() };
    let series = |kind: &Kind| {
        vec![SeriesSpec {
            name: place.to_string(),
            kind: *kind,
            unit: asked.unit.clone(),
            ceiling: asked.most,
            mark: None,
        }]
    };
    let same = read(value).is_some_and(|(now, _)| now == kind);
    if let Some([to]) = sheet.row(name, kind, series) {
        *to = same.then_some(raw);
    }
}

/// What a value is as a number; a text that is one is a real number.
fn read(value: &Value) -> Option<(Kind, Raw)> {
    Some(match value {
        Value::Counter32(n) => (Kind::Counter32, Raw(u64::from(*n))),
        Value::Counter64(n) => (Kind::Counter64, Raw(*n)),
        Value::Integer(n) => (Kind::Gauge, Raw::gauge(i64::from(*n))),
        Value::Gauge32(n) | Value::UInteger32(n) | Value::TimeTicks(n) => {
            (Kind::Gauge, Raw::gauge(i64::from(*n)))
        }
        Value::OctetString(_) => {
            let number: f64 = ports::text(&Some(value.clone()), 64).trim().parse().ok()?;
            (Kind::Real, Raw::real(number))
        }
        Value::Opaque(_) => {
            let number = value.as_opaque_double().or_else(|| value.as_opaque_float().map(f64::from))?;
            (Kind::Real, Raw::real(number))
        }
        _ => return None,
    })
}
