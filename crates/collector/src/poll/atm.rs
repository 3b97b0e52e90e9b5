//! 32-bit counters of ATM virtual channels and paths: cells of both (ATM2-MIB, RFC 3606), and AAL5 errors of channels
//! (ATM-MIB, RFC 2515). The MIB counts neither PDUs nor octets of a channel.

use async_snmp::Oid;
use trunkline_counters::archive::{Direction, Object, SeriesName, SeriesSpec};
use trunkline_counters::counter::ValueKind;

use super::ports::{Ports, counter_value};
use super::table::TableBuffer;
use crate::snmp::mib::{aal5_vcc, vcl_stat, vpl_stat};
use crate::snmp::walk::Rows;

const CELL_BITS: u64 = 424;

/// A table that has a row for each channel or path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtmTable {
    /// `atmVclStatTable`.
    Channels,
    /// `atmVplStatTable`.
    Paths,
    /// `aal5VccTable`.
    Aal5,
}

/// Columns 1 to 7 of the cell tables.
const CELLS: [(Direction, &str); 7] = [
    (Direction::In, "cells"),
    (Direction::In, "clp0-cells"),
    (Direction::In, "discards"),
    (Direction::In, "clp0-discards"),
    (Direction::Out, "cells"),
    (Direction::Out, "clp0-cells"),
    (Direction::Out, "tagged-cells"),
];

/// Columns 3 to 5 of `aal5VccTable`: PDUs with a CRC error, with a reassembly timeout, and oversized ones.
const AAL5: [(Direction, &str); 3] =
    [(Direction::In, "crc-errors"), (Direction::In, "timeouts"), (Direction::In, "oversized")];

impl AtmTable {
    /// Returns the name of the table in the archive.
    pub fn name(self) -> &'static str {
        match self {
            AtmTable::Channels => "channels",
            AtmTable::Paths => "paths",
            AtmTable::Aal5 => "aal5",
        }
    }

    /// Returns the counters of a row.
    fn quantities(self) -> &'static [(Direction, &'static str)] {
        match self {
            AtmTable::Channels | AtmTable::Paths => &CELLS,
            AtmTable::Aal5 => &AAL5,
        }
    }

    fn unit(self) -> &'static str {
        match self {
            AtmTable::Channels | AtmTable::Paths => "cells",
            AtmTable::Aal5 => "PDUs",
        }
    }

    /// Returns the number of series of a row.
    pub fn width(self) -> usize {
        self.quantities().len()
    }

    /// Returns the columns to query, in the order of the series.
    pub fn columns(self) -> Vec<Oid> {
        match self {
            AtmTable::Channels => (1..=7).map(|c| Oid::from_slice(&vcl_stat(c))).collect(),
            AtmTable::Paths => (1..=7).map(|c| Oid::from_slice(&vpl_stat(c))).collect(),
            AtmTable::Aal5 => (3..=5).map(|c| Oid::from_slice(&aal5_vcc(c))).collect(),
        }
    }
}

/// Returns the interface number and the object of a row, indexed by port, VPI and VCI or by port and VPI.
fn object(index: &[u32], ports: &Ports) -> Option<(u32, Object)> {
    let port = || ports.name(index[0]).map_or_else(|| index[0].to_string(), str::to_owned);
    let small = |n: u32| u16::try_from(n).ok();
    match *index {
        [at, vpi] => Some((at, Object::Path { port: port(), vpi: small(vpi)? })),
        [at, vpi, vci] => Some((at, Object::Channel { port: port(), vpi: small(vpi)?, vci: small(vci)? })),
        _ => None,
    }
}

/// Returns whether the ports of all rows are known.
pub fn has_known_ports(rows: &Rows, ports: &Ports) -> bool {
    rows.keys().all(|index| index.first().is_none_or(|port| ports.name(*port).is_some()))
}

/// Stores a response in the table. The series of a row depend on the speed of its port.
pub fn fill(table: AtmTable, table_buffer: &mut TableBuffer<Option<u64>>, rows: &Rows, ports: &Ports) {
    for (index, row) in rows {
        let Some((port, object)) = object(index, ports) else { continue };
        let name = object.to_string();
        let Some(values) = table_buffer.row(&name, ports.speed(port), |speed| series(table, &object, *speed))
        else {
            continue;
        };
        for (value, cell) in values.iter_mut().zip(row) {
            *value = cell.as_ref().and_then(counter_value);
        }
    }
}

/// Every PDU takes at least one cell, so the cell rate bounds the PDU rate.
fn series(table: AtmTable, object: &Object, speed: Option<u64>) -> Vec<SeriesSpec> {
    let ceiling = speed.map(|bits| bits.div_ceil(CELL_BITS));
    let series = |(direction, quantity): &(Direction, &str)| {
        let (object, quantity) = (object.clone(), (*quantity).into());
        let name = SeriesName { object, direction: Some(*direction), quantity };
        SeriesSpec { ceiling, ..SeriesSpec::new(name.to_string(), ValueKind::Counter32, table.unit()) }
    };
    table.quantities().iter().map(series).collect()
}
