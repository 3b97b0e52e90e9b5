//! Ports of a device: their names, speeds and states, and the table `interfaces`.
//!
//! A port is known by its name, since numbers change when a device starts anew: `ifName`, else `ifDescr`, else its number.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_snmp::{Oid, Value};
use trunkline_counters::archive::{Direction, Object, Place, SeriesSpec};
use trunkline_counters::counter::{Kind, Raw};

use super::report::{Sink, Word};
use super::sheet::{Sheet, When};
use crate::snmp::mib::{LOOPBACK, if_entry, if_x_entry};
use crate::snmp::walk::Rows;

/// Most octets of a name (RFC 2863: `DisplayString (SIZE (0..255))`).
const MOST_NAME: usize = 255;
/// Least octets of a packet: a header of IP.
const LEAST_PACKET: u64 = 20;
/// By how much `ifHighSpeed` may be off: RFC 2863 has it rounded to a megabit, and some cut it.
const MEGABIT: u64 = 1_000_000;
/// By how much a port may be faster than it says. Of those whose counters have 64 bits many are no real lines, and tell a
/// speed of convention; counters of 32 bits need a true one.
const BOAST: u64 = 10;

/// Which columns count something.
#[derive(Clone, Copy)]
enum Source {
    /// One of 64 bits, and one of 32 for ports that lack it.
    Both(usize, usize),
    /// Only with 64 bits.
    Wide(usize),
    /// Only with 32.
    Narrow(usize),
}

impl Source {
    /// The column, and what it holds.
    fn column(self, narrow: bool) -> (usize, Kind) {
        match self {
            Source::Both(_, at) if narrow => (at, Kind::Counter32),
            Source::Both(at, _) | Source::Wide(at) => (at, Kind::Counter64),
            Source::Narrow(at) => (at, Kind::Counter32),
        }
    }
}

// Columns of the walk, in its order.
const IN_OCTETS: usize = 1;
const OUT_OCTETS: usize = 5;
const HIGH_SPEED: usize = 9;
const MARK: usize = 10;
const ADMIN: usize = 11;
const OPER: usize = 12;
const WIDE: usize = 17;
const SPEED: usize = 17;

/// What is counted at a port: which way, what, in which unit.
type Quantity = (Direction, &'static str, &'static str, Source);

const QUANTITIES: [Quantity; 10] = [
    (Direction::In, "octets", "octets", Source::Both(1, 18)),
    (Direction::In, "multicast-packets", "packets", Source::Wide(3)),
    (Direction::In, "broadcast-packets", "packets", Source::Wide(4)),
    (Direction::In, "discards", "packets", Source::Narrow(13)),
    (Direction::In, "errors", "packets", Source::Narrow(14)),
    (Direction::Out, "octets", "octets", Source::Both(5, 20)),
    (Direction::Out, "multicast-packets", "packets", Source::Wide(7)),
    (Direction::Out, "broadcast-packets", "packets", Source::Wide(8)),
    (Direction::Out, "discards", "packets", Source::Narrow(15)),
    (Direction::Out, "errors", "packets", Source::Narrow(16)),
];

/// In a table of their own: net-snmp counts them from 0 when it begins anew, while all else goes on. In one table none would
/// be taken to have gone on.
const UNICAST: [Quantity; 2] = [
    (Direction::In, "unicast-packets", "packets", Source::Both(2, 19)),
    (Direction::Out, "unicast-packets", "packets", Source::Both(6, 21)),
];

/// The tables `interfaces` and `unicast` of a device.
#[derive(Debug)]
pub struct Sheets {
    main: Sheet<Traits>,
    unicast: Sheet<Traits>,
}

impl Sheets {
    /// How many tables these are.
    pub const TABLES: usize = 2;

    /// Empty ones, the collector's `number` and the next.
    pub fn new(number: usize, device: &str, every: (Duration, Option<Duration>)) -> Sheets {
        Sheets {
            main: Sheet::new(number, device, "interfaces", every, QUANTITIES.len() + 3),
            unicast: Sheet::new(number + 1, device, "unicast", every, UNICAST.len() + 1),
        }
    }

    /// As [`Sheet::send`].
    pub fn send(&mut self, when: When, sink: &Sink) -> usize {
        self.unicast.send(when, sink);
        self.main.send(when, sink)
    }
}

/// Columns of the table `interfaces`; `narrow`: also the counters of 32 bits.
pub fn columns(narrow: bool) -> Vec<Oid> {
    let x = [1, 6, 7, 8, 9, 10, 11, 12, 13, 15, 19].map(|c| Oid::from_slice(&if_x_entry(c)));
    let wide = [7, 8, 13, 14, 19, 20].map(|c| Oid::from_slice(&if_entry(c)));
    let extra = [5, 10, 11, 16, 17].map(|c| Oid::from_slice(&if_entry(c)));
    let all = x.into_iter().chain(wide).chain(extra);
    all.take(if narrow { WIDE + 5 } else { WIDE }).collect()
}

/// Columns of ports that say something in words, or change seldom.
pub fn words() -> Vec<Oid> {
    let x = [1, 15, 18].map(|c| Oid::from_slice(&if_x_entry(c)));
    let plain = [2, 3, 5].map(|c| Oid::from_slice(&if_entry(c)));
    x.into_iter().chain(plain).collect()
}

/// What the series of a port depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Its octets and packets are counted with 32 bits.
    narrow: bool,
    /// Bits a second, if that means anything.
    speed: Option<u64>,
}

/// What is known of a device's ports.
#[derive(Debug, Default)]
pub struct Ports {
    /// By their numbers.
    known: BTreeMap<u32, Port>,
    /// Names in the last complete answer.
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
    /// The name of the port with a number.
    pub fn name(&self, index: u32) -> Option<&str> {
        self.known.get(&index).map(|port| port.name.as_str())
    }

    /// The speed of the port with a number, bits a second.
    pub fn speed(&self, index: u32) -> Option<u64> {
        self.known.get(&index).and_then(|port| port.speed)
    }

    /// Forgets numbers: the device began anew.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    /// Takes what [`words`] asked for, and what there is to tell.
    pub fn learn(&mut self, rows: &Rows) -> Vec<Word> {
        self.known.clear();
        for (index, row) in rows {
            let (&[index], [name, high, alias, description, kind, speed]) = (&index[..], &row[..]) else {
                continue;
            };
            let port = Port {
                name: text(name, MOST_NAME),
                description: text(description, 1_024),
                alias: text(alias, 1_024),
                speed: bits(high.as_ref(), speed.as_ref()),
                is_loopback: kind.as_ref().and_then(Value::as_i32) == Some(LOOPBACK),
            };
            self.known.insert(index, port);
        }
        self.rename();
        let mut said = Vec::new();
        for port in self.known.values() {
            let object = Object::Port(port.name.clone()).to_string();
            let parts = [("description", &port.description), ("alias", &port.alias)];
            said.extend(parts.map(|(key, text)| Word { object: object.clone(), key, text: text.clone() }));
        }
        said
    }

    /// Gives every port one name of its own.
    fn rename(&mut self) {
        let mut taken = BTreeSet::new();
        for (index, port) in &mut self.known {
            if port.name.is_empty() {
                port.name = cut(&port.description, MOST_NAME).to_owned();
            }
            if port.name.is_empty() {
                port.name = index.to_string();
            }
            if !taken.insert(port.name.clone()) {
                port.name = format!("{}#{index}", port.name);
                taken.insert(port.name.clone());
            }
        }
    }

    /// Whether all ports of an answer are known by the names that stand in it; if not, [`words`] has to be asked.
    pub fn knows(&self, rows: &Rows) -> bool {
        rows.iter().all(|(index, row)| {
            let (&[index], Some(name)) = (&index[..], row.first()) else { return true };
            let name = text(name, MOST_NAME);
            self.known.get(&index).is_some_and(|port| {
                let twice =
                    port.name.strip_prefix(name.as_str()).is_some_and(|rest| rest == format!("#{index}"));
                name.is_empty() || port.name == name || twice
            })
        })
    }

    /// Puts an answer into the table; whether some port needs counters of 32 bits, and what there is to tell.
    /// `complete`: the answer lacks no port.
    pub fn fill(&mut self, sheets: &mut Sheets, rows: &Rows, complete: bool) -> (bool, Vec<Word>) {
        let (mut narrow, mut words, mut present) = (false, Vec::new(), BTreeSet::new());
        for (index, row) in rows {
            let &[index] = &index[..] else { continue };
            let Some(port) = self.known.get(&index) else { continue };
            let cell = |at: usize| row.get(at).and_then(Option::as_ref);
            let usual = sheets.main.traits(&port.name).cloned();
            let traits = match usual {
                // What is missing in a part of an answer says nothing.
                _ if !complete => match usual {
                    Some(usual) => usual,
                    None => continue,
                },
                _ => {
                    let told = bits(cell(HIGH_SPEED), cell(SPEED)).or(port.speed);
                    // Without the plain one it is in megabits; the one that is known may be the same, and exact.
                    let same = |known: &u64| told.is_some_and(|told| told.abs_diff(*known) < MEGABIT);
                    let speed = port.speed.filter(|known| cell(SPEED).is_none() && same(known)).or(told);
                    Traits {
                        narrow: cell(IN_OCTETS).is_none() && cell(OUT_OCTETS).is_none(),
                        speed: speed.filter(|_| !port.is_loopback),
                    }
                }
            };
            narrow |= traits.narrow;
            present.insert(port.name.clone());
            if traits.narrow && row.len() == WIDE {
                continue; // its counters were not asked for: next time
            }
            let (is_narrow, speed) = (traits.narrow, traits.speed);
            let counts = |quantities: &[Quantity], values: &mut [Option<Raw>]| {
                for ((.., source), value) in quantities.iter().zip(values) {
                    *value = cell(source.column(is_narrow).0).and_then(count);
                }
            };
            let since = cell(MARK).and_then(Value::as_u32).map(|m| Raw::gauge(m.into()));
            let name = &port.name;
            if let Some(values) = sheets.unicast.row(name, traits.clone(), |t| unicast_series(name, t)) {
                counts(&UNICAST, values);
                values[UNICAST.len()] = since;
            }
            let Some(values) = sheets.main.row(name, traits, |t| series(name, t)) else { continue };
            counts(&QUANTITIES, values);
            let [speed_value, state, mark] = &mut values[QUANTITIES.len()..] else { continue };
            *speed_value = speed.map(|s| Raw::gauge(i64::try_from(s).unwrap_or(i64::MAX)));
            *state = cell(OPER).and_then(|v| v.as_i32()).map(|s| Raw::gauge(s.into()));
            *mark = since;
            let now = state_of(cell(ADMIN), cell(OPER));
            if self.states.insert(port.name.clone(), now) != Some(now) {
                let object = Object::Port(port.name.clone()).to_string();
                words.push(Word { object, key: "state", text: now.into() });
            }
        }
        if complete {
            for gone in self.present.iter().flatten().filter(|name| !present.contains(*name)) {
                self.states.remove(gone);
                let object = Object::Port(gone.clone()).to_string();
                words.push(Word { object, key: "state", text: "gone".into() });
            }
            self.present = Some(present);
        }
        (narrow, words)
    }
}

fn named(port: &str, direction: Option<Direction>, quantity: &str) -> String {
    Place { object: Object::Port(port.into()), direction, quantity: quantity.into() }.to_string()
}

fn gauge(name: String, unit: &str) -> SeriesSpec {
    SeriesSpec { name, kind: Kind::Gauge, unit: unit.into(), ceiling: None, mark: None }
}

fn series(port: &str, traits: &Traits) -> Vec<SeriesSpec> {
    let mark = named(port, None, "discontinuity");
    let mut all = counters(port, traits, &QUANTITIES, &mark);
    all.push(gauge(named(port, None, "speed"), "bit/s"));
    all.push(gauge(named(port, None, "state"), ""));
    all.push(gauge(mark, "10 ms"));
    all
}

fn unicast_series(port: &str, traits: &Traits) -> Vec<SeriesSpec> {
    let mark = named(port, None, "unicast-discontinuity");
    let mut all = counters(port, traits, &UNICAST, &mark);
    all.push(gauge(mark, "10 ms"));
    all
}

fn counters(port: &str, traits: &Traits, quantities: &[Quantity], mark: &str) -> Vec<SeriesSpec> {
    let fastest = traits.speed.map(|s| if traits.narrow { s } else { s.saturating_mul(BOAST) });
    let octets = fastest.map(|s| s.div_ceil(8));
    let one = |(direction, quantity, unit, source): &Quantity| SeriesSpec {
        name: named(port, Some(*direction), quantity),
        kind: source.column(traits.narrow).1,
        unit: (*unit).into(),
        ceiling: if *unit == "octets" { octets } else { octets.map(|o| o.div_ceil(LEAST_PACKET)) },
        mark: Some(mark.into()),
    };
    quantities.iter().map(one).collect()
}

/// A state in words (RFC 2863: `ifAdminStatus`, `ifOperStatus`).
fn state_of(admin: Option<&Value>, oper: Option<&Value>) -> &'static str {
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

/// Bits a second of `ifHighSpeed` and `ifSpeed`; none if they do not know.
fn bits(high: Option<&Value>, speed: Option<&Value>) -> Option<u64> {
    let high = number(high).filter(|mega| *mega > 0).map(|mega| mega * 1_000_000);
    let plain = number(speed).filter(|s| (1..u64::from(u32::MAX)).contains(s));
    match high {
        // The plain one is more exact below its end.
        Some(high) if high < 1_000_000_000 => plain.or(Some(high)),
        Some(high) => Some(high),
        None => plain,
    }
}

fn number(value: Option<&Value>) -> Option<u64> {
    value.and_then(Value::as_u64)
}

/// A counter; a value of another kind is none.
pub fn count(value: &Value) -> Option<Raw> {
    match value {
        Value::Counter32(n) => Some(Raw(u64::from(*n))),
        Value::Counter64(n) => Some(Raw(*n)),
        _ => None,
    }
}

/// A text of an agent, at most so many octets of it. What is no UTF-8 is replaced; control characters are escaped where
/// names are made of it.
pub fn text(value: &Option<Value>, most: usize) -> String {
    let octets = value.as_ref().and_then(Value::as_bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(&octets[..octets.len().min(4 * most)]);
    cut(text.trim_end_matches('\0'), most).to_owned()
}

fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}
