//! Ports of a device: their names, speeds and states, and the table `interfaces`.
//!
//! A port is identified by its name, because interface numbers change when a device restarts: `ifName`, else
//! `ifDescr`, else its number.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_snmp::{Oid, Value};
use trunkline_counters::archive::{Direction, Object, SeriesName, SeriesSpec, truncate};
use trunkline_counters::counter::{RawValue, ValueKind};

use super::report::{DeviceText, ReportSender};
use super::table::{PollTimes, TableBuffer};
use crate::snmp::mib::{LOOPBACK, if_entry, if_x_entry};
use crate::snmp::walk::Rows;

/// Largest length of a name (RFC 2863: `DisplayString (SIZE (0..255))`).
const MAX_NAME_OCTETS: usize = 255;
/// Smallest length of a packet: an IP header.
const MIN_PACKET_OCTETS: u64 = 20;
/// Tolerance of `ifHighSpeed` in bit/s: RFC 2863 rounds it to a megabit, and some agents truncate it.
const SPEED_TOLERANCE: u64 = 1_000_000;
/// Factor by which a port with 64-bit counters may exceed its reported speed. Many of these ports are virtual and
/// report a conventional speed; 32-bit counters need the true speed.
const SPEED_MARGIN: u64 = 10;

/// Columns that hold a counter, as indexes into the walk.
#[derive(Clone, Copy)]
enum CounterSource {
    /// A 64-bit column, and a 32-bit column for ports that lack it.
    Either(usize, usize),
    /// Only a 64-bit column.
    Only64(usize),
    /// Only a 32-bit column.
    Only32(usize),
}

impl CounterSource {
    /// Returns the column and the type of its values.
    fn column(self, with_32bit: bool) -> (usize, ValueKind) {
        match self {
            CounterSource::Either(_, at) if with_32bit => (at, ValueKind::Counter32),
            CounterSource::Either(at, _) | CounterSource::Only64(at) => (at, ValueKind::Counter64),
            CounterSource::Only32(at) => (at, ValueKind::Counter32),
        }
    }
}

// Columns of the walk, in order.
const IN_OCTETS: usize = 1;
const OUT_OCTETS: usize = 5;
const HIGH_SPEED: usize = 9;
const DISCONTINUITY: usize = 10;
const ADMIN: usize = 11;
const OPER: usize = 12;
const COLUMNS_64BIT: usize = 17;
const SPEED: usize = 17;

/// A counter of a port: direction, quantity, unit, columns.
type Quantity = (Direction, &'static str, &'static str, CounterSource);

const QUANTITIES: [Quantity; 10] = [
    (Direction::In, "octets", "octets", CounterSource::Either(1, 18)),
    (Direction::In, "multicast-packets", "packets", CounterSource::Only64(3)),
    (Direction::In, "broadcast-packets", "packets", CounterSource::Only64(4)),
    (Direction::In, "discards", "packets", CounterSource::Only32(13)),
    (Direction::In, "errors", "packets", CounterSource::Only32(14)),
    (Direction::Out, "octets", "octets", CounterSource::Either(5, 20)),
    (Direction::Out, "multicast-packets", "packets", CounterSource::Only64(7)),
    (Direction::Out, "broadcast-packets", "packets", CounterSource::Only64(8)),
    (Direction::Out, "discards", "packets", CounterSource::Only32(15)),
    (Direction::Out, "errors", "packets", CounterSource::Only32(16)),
];

/// Unicast counters have their own table: net-snmp restarts them from 0 when the agent restarts, while all other
/// counters continue. In one table, every series would lose its continuity.
const UNICAST: [Quantity; 2] = [
    (Direction::In, "unicast-packets", "packets", CounterSource::Either(2, 19)),
    (Direction::Out, "unicast-packets", "packets", CounterSource::Either(6, 21)),
];

/// The tables `interfaces` and `unicast` of a device.
#[derive(Debug)]
pub struct InterfaceTables {
    main: TableBuffer<PortProperties>,
    unicast: TableBuffer<PortProperties>,
}

impl InterfaceTables {
    /// Number of tables.
    pub const TABLE_COUNT: usize = 2;

    /// Creates empty tables with the collector's numbers `number` and `number + 1`.
    pub fn new(number: usize, device: &str, every: (Duration, Option<Duration>)) -> InterfaceTables {
        InterfaceTables {
            main: TableBuffer::new(number, device, "interfaces", every, QUANTITIES.len() + 3),
            unicast: TableBuffer::new(number + 1, device, "unicast", every, UNICAST.len() + 1),
        }
    }

    /// Sends both tables, as [`TableBuffer::send`].
    pub fn send(&mut self, when: PollTimes, sink: &ReportSender) -> usize {
        self.unicast.send(when, sink);
        self.main.send(when, sink)
    }
}

/// Returns the columns of the table `interfaces`; with `with_32bit`, including the 32-bit counters.
pub fn counter_columns(with_32bit: bool) -> Vec<Oid> {
    let x = [1, 6, 7, 8, 9, 10, 11, 12, 13, 15, 19].map(|c| Oid::from_slice(&if_x_entry(c)));
    let counters = [7, 8, 13, 14, 19, 20].map(|c| Oid::from_slice(&if_entry(c)));
    let extra = [5, 10, 11, 16, 17].map(|c| Oid::from_slice(&if_entry(c)));
    let all = x.into_iter().chain(counters).chain(extra);
    all.take(if with_32bit { COLUMNS_64BIT + 5 } else { COLUMNS_64BIT }).collect()
}

/// Returns the columns of ports that hold text or change rarely.
pub fn text_columns() -> Vec<Oid> {
    let x = [1, 15, 18].map(|c| Oid::from_slice(&if_x_entry(c)));
    let plain = [2, 3, 5].map(|c| Oid::from_slice(&if_entry(c)));
    x.into_iter().chain(plain).collect()
}

/// Properties of a port that determine its series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortProperties {
    /// Octets and packets are 32-bit counters.
    uses_32bit: bool,
    /// Speed in bit/s, if meaningful.
    speed: Option<u64>,
}

/// The known ports of a device.
#[derive(Debug, Default)]
pub struct Ports {
    /// Ports by interface number.
    ports: BTreeMap<u32, Port>,
    /// Names in the last complete response.
    present: Option<BTreeSet<String>>,
    states: BTreeMap<String, &'static str>,
}

#[derive(Clone, Debug, Default)]
struct Port {
    name: String,
    description: String,
    alias: String,
    speed: Option<u64>,
    is_loopback: bool,
}

impl Ports {
    /// Returns the name of the port with this interface number.
    pub fn name(&self, index: u32) -> Option<&str> {
        self.ports.get(&index).map(|port| port.name.as_str())
    }

    /// Returns the speed of the port with this interface number, in bit/s.
    pub fn speed(&self, index: u32) -> Option<u64> {
        self.ports.get(&index).and_then(|port| port.speed)
    }

    /// Forgets all interface numbers, after a restart of the device.
    pub fn clear(&mut self) {
        self.ports.clear();
    }

    /// Replaces the known ports by the response to [`text_columns`]; returns their texts.
    pub fn update(&mut self, rows: &Rows) -> Vec<DeviceText> {
        self.ports.clear();
        for (index, row) in rows {
            let (&[index], [name, high, alias, description, kind, speed]) = (&index[..], &row[..]) else {
                continue;
            };
            let port = Port {
                name: text_value(name, MAX_NAME_OCTETS),
                description: text_value(description, 1_024),
                alias: text_value(alias, 1_024),
                speed: speed_bps(high.as_ref(), speed.as_ref()),
                is_loopback: kind.as_ref().and_then(Value::as_i32) == Some(LOOPBACK),
            };
            self.ports.insert(index, port);
        }
        self.assign_unique_names();
        let mut texts = Vec::new();
        for port in self.ports.values() {
            let object = Object::Port(port.name.clone()).to_string();
            let parts = [("description", &port.description), ("alias", &port.alias)];
            texts.extend(parts.map(|(key, text)| DeviceText {
                object: object.clone(),
                key,
                text: text.clone(),
            }));
        }
        texts
    }

    /// Gives every port a unique name.
    fn assign_unique_names(&mut self) {
        let mut used = BTreeSet::new();
        for (index, port) in &mut self.ports {
            if port.name.is_empty() {
                port.name = truncate(&port.description, MAX_NAME_OCTETS).to_owned();
            }
            if port.name.is_empty() {
                port.name = index.to_string();
            }
            if !used.insert(port.name.clone()) {
                port.name = format!("{}#{index}", port.name);
                used.insert(port.name.clone());
            }
        }
    }

    /// Returns whether all ports of a response are known by the same names; if not, the text columns need a new
    /// query.
    pub fn has_all(&self, rows: &Rows) -> bool {
        rows.iter().all(|(index, row)| {
            let (&[index], Some(name)) = (&index[..], row.first()) else { return true };
            let name = text_value(name, MAX_NAME_OCTETS);
            self.ports.get(&index).is_some_and(|port| {
                let is_numbered =
                    port.name.strip_prefix(name.as_str()).is_some_and(|rest| rest == format!("#{index}"));
                name.is_empty() || port.name == name || is_numbered
            })
        })
    }

    /// Stores a response in the tables. `complete`: the response contains all ports. Returns whether a port needs
    /// 32-bit counters, and the changed texts.
    pub fn fill(
        &mut self,
        tables: &mut InterfaceTables,
        rows: &Rows,
        complete: bool,
    ) -> (bool, Vec<DeviceText>) {
        let (mut with_32bit, mut texts, mut present) = (false, Vec::new(), BTreeSet::new());
        for (index, row) in rows {
            let &[index] = &index[..] else { continue };
            let Some(port) = self.ports.get(&index) else { continue };
            let cell = |at: usize| row.get(at).and_then(Option::as_ref);
            let previous = tables.main.properties(&port.name).cloned();
            let properties = match previous {
                // A value missing in a partial response carries no information.
                _ if !complete => match previous {
                    Some(previous) => previous,
                    None => continue,
                },
                _ => {
                    let reported = speed_bps(cell(HIGH_SPEED), cell(SPEED)).or(port.speed);
                    // Without `ifSpeed`, the speed is in megabits; the known speed may be the same, and exact.
                    let is_same = |known: &u64| {
                        reported.is_some_and(|reported| reported.abs_diff(*known) < SPEED_TOLERANCE)
                    };
                    let speed =
                        port.speed.filter(|known| cell(SPEED).is_none() && is_same(known)).or(reported);
                    PortProperties {
                        uses_32bit: cell(IN_OCTETS).is_none() && cell(OUT_OCTETS).is_none(),
                        speed: speed.filter(|_| !port.is_loopback),
                    }
                }
            };
            with_32bit |= properties.uses_32bit;
            present.insert(port.name.clone());
            if properties.uses_32bit && row.len() == COLUMNS_64BIT {
                continue; // its counters were not requested; the next poll does
            }
            let (uses_32bit, speed) = (properties.uses_32bit, properties.speed);
            let read_counters = |quantities: &[Quantity], values: &mut [Option<RawValue>]| {
                for ((.., source), value) in quantities.iter().zip(values) {
                    *value = cell(source.column(uses_32bit).0).and_then(counter_value);
                }
            };
            let discontinuity =
                cell(DISCONTINUITY).and_then(Value::as_u32).map(|m| RawValue::from_gauge(m.into()));
            let name = &port.name;
            if let Some(values) = tables.unicast.row(name, properties.clone(), |t| unicast_series(name, t)) {
                read_counters(&UNICAST, values);
                values[UNICAST.len()] = discontinuity;
            }
            let Some(values) = tables.main.row(name, properties, |t| series(name, t)) else { continue };
            read_counters(&QUANTITIES, values);
            let [speed_value, state, discontinuity_value] = &mut values[QUANTITIES.len()..] else { continue };
            *speed_value = speed.map(|s| RawValue::from_gauge(i64::try_from(s).unwrap_or(i64::MAX)));
            *state = cell(OPER).and_then(|v| v.as_i32()).map(|s| RawValue::from_gauge(s.into()));
            *discontinuity_value = discontinuity;
            let new_state = state_name(cell(ADMIN), cell(OPER));
            if self.states.insert(port.name.clone(), new_state) != Some(new_state) {
                let object = Object::Port(port.name.clone()).to_string();
                texts.push(DeviceText { object, key: "state", text: new_state.into() });
            }
        }
        if complete {
            for missing in self.present.iter().flatten().filter(|name| !present.contains(*name)) {
                self.states.remove(missing);
                let object = Object::Port(missing.clone()).to_string();
                texts.push(DeviceText { object, key: "state", text: "gone".into() });
            }
            self.present = Some(present);
        }
        (with_32bit, texts)
    }
}

fn series_name(port: &str, direction: Option<Direction>, quantity: &str) -> String {
    SeriesName { object: Object::Port(port.into()), direction, quantity: quantity.into() }.to_string()
}

fn series(port: &str, properties: &PortProperties) -> Vec<SeriesSpec> {
    let discontinuity = series_name(port, None, "discontinuity");
    let mut all = counters(port, properties, &QUANTITIES, &discontinuity);
    all.push(SeriesSpec::new(series_name(port, None, "speed"), ValueKind::Gauge, "bit/s"));
    all.push(SeriesSpec::new(series_name(port, None, "state"), ValueKind::Gauge, ""));
    all.push(SeriesSpec::new(discontinuity, ValueKind::Gauge, "10 ms"));
    all
}

fn unicast_series(port: &str, properties: &PortProperties) -> Vec<SeriesSpec> {
    let discontinuity = series_name(port, None, "unicast-discontinuity");
    let mut all = counters(port, properties, &UNICAST, &discontinuity);
    all.push(SeriesSpec::new(discontinuity, ValueKind::Gauge, "10 ms"));
    all
}

fn counters(
    port: &str,
    properties: &PortProperties,
    quantities: &[Quantity],
    discontinuity: &str,
) -> Vec<SeriesSpec> {
    let max_bps =
        properties.speed.map(|s| if properties.uses_32bit { s } else { s.saturating_mul(SPEED_MARGIN) });
    let octets = max_bps.map(|s| s.div_ceil(8));
    let series = |(direction, quantity, unit, source): &Quantity| SeriesSpec {
        name: series_name(port, Some(*direction), quantity),
        kind: source.column(properties.uses_32bit).1,
        unit: (*unit).into(),
        ceiling: if *unit == "octets" { octets } else { octets.map(|o| o.div_ceil(MIN_PACKET_OCTETS)) },
        discontinuity: Some(discontinuity.into()),
    };
    quantities.iter().map(series).collect()
}

/// Returns the name of a state (RFC 2863: `ifAdminStatus`, `ifOperStatus`).
fn state_name(admin: Option<&Value>, oper: Option<&Value>) -> &'static str {
    match (admin.and_then(Value::as_i32), oper.and_then(Value::as_i32)) {
        (Some(2), _) => "shut",
        (_, Some(1)) => "up",
        (_, Some(2)) => "down",
        (_, Some(3)) => "testing",
        (_, Some(5)) => "dormant",
        (_, Some(6)) => "not present",
        (_, Some(7)) => "lower layer down",
        _ => "unknown",
    }
}

/// Returns the speed in bit/s from `ifHighSpeed` and `ifSpeed`; `None` if both are unknown.
fn speed_bps(high: Option<&Value>, speed: Option<&Value>) -> Option<u64> {
    let high = number(high).filter(|mbps| *mbps > 0).map(|mbps| mbps * 1_000_000);
    let plain = number(speed).filter(|s| (1..u64::from(u32::MAX)).contains(s));
    match high {
        // `ifSpeed` is more precise below its maximum.
        Some(high) if high < 1_000_000_000 => plain.or(Some(high)),
        Some(high) => Some(high),
        None => plain,
    }
}

fn number(value: Option<&Value>) -> Option<u64> {
    value.and_then(Value::as_u64)
}

/// Returns the value of a counter; `None` for any other type.
pub fn counter_value(value: &Value) -> Option<RawValue> {
    match value {
        Value::Counter32(n) => Some(RawValue(u64::from(*n))),
        Value::Counter64(n) => Some(RawValue(*n)),
        _ => None,
    }
}

/// Returns a text of an agent, truncated to `max_octets`. Invalid UTF-8 is replaced; control characters are escaped
/// where names are built from the text.
pub fn text_value(value: &Option<Value>, max_octets: usize) -> String {
    let octets = value.as_ref().and_then(Value::as_bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(&octets[..octets.len().min(4 * max_octets)]);
    truncate(text.trim_end_matches('\0'), max_octets).to_owned()
}
