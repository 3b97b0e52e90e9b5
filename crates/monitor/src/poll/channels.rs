//! Cells of ATM virtual channels and paths: ATM2-MIB (RFC 3606), counters of 32 bits.

use async_snmp::Oid;
use trunkline_record::counter::Kind;
use trunkline_record::series::{Direction, Object, Place, SeriesSpec};

use super::ports::{Ports, count};
use super::sheet::Sheet;
use crate::snmp::mib::{vcl_stat, vpl_stat};
use crate::snmp::walk::Rows;

/// Bits of a cell.
const CELL: u64 = 424;

/// What is counted: columns 1 to 7 of both tables.
const QUANTITIES: [(Direction, &str); 7] = [
    (Direction::In, "cells"),
    (Direction::In, "clp0-cells"),
    (Direction::In, "discards"),
    (Direction::In, "clp0-discards"),
    (Direction::Out, "cells"),
    (Direction::Out, "clp0-cells"),
    (Direction::Out, "tagged-cells"),
];

/// Series of a channel or path.
pub const WIDTH: usize = QUANTITIES.len();

/// Columns of `atmVclStatTable`, or with `paths` of `atmVplStatTable`.
pub fn columns(paths: bool) -> Vec<Oid> {
    let column = |c| if paths { Oid::from_slice(&vpl_stat(c)) } else { Oid::from_slice(&vcl_stat(c)) };
    (1..=7).map(column).collect()
}

/// The port's number and what a row is of: numbered by port, VPI and VCI or by port and VPI.
fn object(index: &[u32], ports: &Ports) -> Option<(u32, Object)> {
    let port = || ports.name(index[0]).map_or_else(|| index[0].to_string(), str::to_owned);
    let small = |n: u32| u16::try_from(n).ok();
    match *index {
        [at, vpi] => Some((at, Object::Path { port: port(), vpi: small(vpi)? })),
        [at, vpi, vci] => Some((at, Object::Channel { port: port(), vpi: small(vpi)?, vci: small(vci)? })),
        _ => None,
    }
}

/// Whether the ports of all rows are known.
pub fn known(rows: &Rows, ports: &Ports) -> bool {
    rows.keys().all(|index| index.first().is_none_or(|port| ports.name(*port).is_some()))
}

/// Puts an answer into the table. A row depends on the speed of its port.
pub fn fill(sheet: &mut Sheet<Option<u64>>, rows: &Rows, ports: &Ports) {
    for (index, row) in rows {
        let Some((port, object)) = object(index, ports) else { continue };
        let name = object.to_string();
        let Some(values) = sheet.row(&name, ports.speed(port), |speed| series(&object, *speed)) else {
            continue;
        };
        for (value, cell) in values.iter_mut().zip(row) {
            *value = cell.as_ref().and_then(count);
        }
    }
}

fn series(object: &Object, speed: Option<u64>) -> Vec<SeriesSpec> {
    let one = |(direction, quantity): (Direction, &str)| SeriesSpec {
        name: Place { object: object.clone(), direction: Some(direction), quantity: quantity.into() }
            .to_string(),
        kind: Kind::Counter32,
        unit: "cells".into(),
        ceiling: speed.map(|bits| bits.div_ceil(CELL)),
        mark: None,
    };
    QUANTITIES.into_iter().map(one).collect()
}
