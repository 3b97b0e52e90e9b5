//! Import of the time series of an experiment's record into the archive, beside the counters of switches.
//!
//! The device is the run, `EXPERIMENT BACKEND STARTED`. Each connection is a table: `connection/NAME/out/octets`
//! counts what was handed to the transport, `…/in/octets` what arrived; other figures of the record keep their names
//! (`…/delay_us`). The interfaces of a live run are tables of the run (`port/lo/in/octets`). Each node of a simulated
//! run is a separate device, `EXPERIMENT BACKEND STARTED NODE`, with `port/LINK/out/octets` and so on. Simulated
//! time starts at the start of the run.

use std::time::Duration;

use super::{Direction, Error, Layout, Object, Reader, SeriesName, SeriesSpec, TableId, TableSpec, Writer};
use crate::counter::{Answer, OutOfOrder, RawValue, Response, Timestamp, ValueKind};
use trunkline_record::schema::{Connection, Interface, LinkEnd, Record};

/// Responses per flush; less than the buffer limit of any table.
const FLUSH: usize = 64;
/// Responses that are compared at a time.
const PAGE: usize = 4_096;

/// Counts of imported data that the archive did not have before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportStats {
    /// Tables.
    pub tables: usize,
    /// Responses.
    pub rows: usize,
}

/// Returns the device name of a run.
pub fn device_name(record: &Record) -> String {
    format!("{} {} {}", record.experiment.name, record.backend, record.started)
}

/// Imports a run that began at a given time, or the missing rest of an incomplete import. Returns
/// [`Error::OutOfOrder`] if the run is already complete or if the archive holds different data under its name.
pub fn import(writer: &mut Writer, record: &Record, started_at: Timestamp) -> Result<ImportStats, Error> {
    let reader = Reader::open(writer.location().clone())?;
    let (mut there, mut rows, mut known) = (Vec::new(), 0, 0);
    for_each_table(record, started_at, &mut |spec, query| {
        let count = match writer.find_table(&spec)? {
            Some(table) => count_existing_rows(&reader, table, &spec, &query)?,
            None => 0,
        };
        (rows, known) = (rows + query.len(), known + count);
        there.push(count);
        Ok(())
    })?;
    if rows > 0 && rows == known {
        return Err(OutOfOrder.into());
    }
    let (mut put, mut there) = (ImportStats::default(), there.into_iter());
    for_each_table(record, started_at, &mut |spec, mut rows| {
        rows.drain(..there.next().unwrap_or_default());
        write_table(writer, &spec, rows, &mut put)
    })?;
    writer.make_all_chunks()?;
    Ok(put)
}

/// Calls `see` with each table of a run.
fn for_each_table(
    record: &Record,
    started_at: Timestamp,
    visit: &mut dyn FnMut(TableSpec, Rows) -> Result<(), Error>,
) -> Result<(), Error> {
    let device = device_name(record);
    for connection in record.connections.iter().filter(|c| !c.series.is_empty()) {
        let (spec, rows) = connection_table(&device, connection, started_at);
        visit(spec, rows)?;
    }
    for interface in &record.interfaces {
        let (spec, rows) = interface_table(&device, interface, started_at);
        visit(spec, rows)?;
    }
    for link in &record.links {
        for end in link.ends.iter().filter(|end| !end.counts.is_empty()) {
            let (spec, rows) = port_table(&format!("{device} {}", end.node), &link.name, end, started_at);
            visit(spec, rows)?;
        }
    }
    Ok(())
}

/// Returns how many of a table's rows, from the first on, are in the archive. Fails if the archive holds anything
/// else.
fn count_existing_rows(
    reader: &Reader,
    table: TableId,
    spec: &TableSpec,
    rows: &Rows,
) -> Result<usize, Error> {
    let names: Vec<String> = reader.series(table)?.into_iter().map(|series| series.name).collect();
    let position = |series: &SeriesSpec| names.iter().position(|name| *name == series.name);
    let positions: Option<Vec<usize>> = spec.series.iter().map(position).collect();
    let positions = positions.filter(|positions| positions.len() == names.len()).ok_or(OutOfOrder)?;
    let (mut count, mut after) = (0, Timestamp::MIN);
    loop {
        let found = reader.responses(table, after, PAGE)?;
        for (row, values) in &found.responses {
            let same = rows.get(count).is_some_and(|(at, query)| {
                let mut pairs = query.iter().zip(&positions);
                row.answered_at == Some(*at)
                    && pairs.all(|(value, &name)| *value == values.get(name).copied().flatten())
            });
            if !same {
                return Err(OutOfOrder.into());
            }
            (count, after) = (count + 1, row.time());
        }
        if !found.more {
            break;
        }
    }
    // Rows of which only summaries remain cannot be compared.
    let last = reader.time_range(table)?.map(|(_, last)| last);
    let ends = count.checked_sub(1).and_then(|at| rows.get(at)).map(|(at, _)| *at);
    if last == ends { Ok(count) } else { Err(OutOfOrder.into()) }
}

/// Times and values in order.
type Rows = Vec<(Timestamp, Vec<Option<RawValue>>)>;

fn write_table(
    writer: &mut Writer,
    spec: &TableSpec,
    rows: Rows,
    put: &mut ImportStats,
) -> Result<(), Error> {
    let Layout { table, .. } = writer.open_table(spec)?;
    put.tables += usize::from(!rows.is_empty());
    for (count, (at, values)) in rows.into_iter().enumerate() {
        let answer = Answer { answered_at: at, uptime: None, values };
        writer.append(table, &Response { due_at: at, requested_at: at, answer: Some(answer) })?;
        put.rows += 1;
        if count % FLUSH == FLUSH - 1 {
            writer.flush()?;
        }
    }
    writer.flush()?;
    Ok(())
}

/// Returns a table and its rows without those that are not later than the one before.
fn table(
    device: &str,
    name: String,
    times: &[f64],
    series: Vec<SeriesSpec>,
    mut rows: Rows,
) -> (TableSpec, Rows) {
    rows.dedup_by(|next, last| next.0 <= last.0);
    // All intervals have the same length, except the last ones of runs and the pauses between runs.
    let mut gaps: Vec<f64> =
        times.windows(2).map(|pair| pair[1] - pair[0]).filter(|gap| *gap > 0.0).collect();
    gaps.sort_by(f64::total_cmp);
    let period = gaps.get(gaps.len() / 2).copied().unwrap_or(1.0);
    let period = Duration::from_nanos((period * 1e9) as u64).max(Duration::from_nanos(1));
    (TableSpec { device: device.into(), name, period, refresh: Some(Duration::ZERO), series }, rows)
}

/// Returns a series of a part of a run.
fn series(
    object: Object,
    direction: Option<Direction>,
    quantity: &str,
    kind: ValueKind,
    unit: &str,
) -> SeriesSpec {
    let name = SeriesName { object, direction, quantity: quantity.into() };
    SeriesSpec::new(name.to_string(), kind, unit)
}

fn connection_table(device: &str, connection: &Connection, started_at: Timestamp) -> (TableSpec, Rows) {
    let object = || Object::Connection(connection.name.clone());
    let more: std::collections::BTreeSet<&String> =
        connection.series.iter().flat_map(|p| p.extra.keys()).collect();
    let mut columns = vec![
        series(object(), Some(Direction::Out), "octets", ValueKind::Counter64, "octets"),
        series(object(), Some(Direction::In), "octets", ValueKind::Counter64, "octets"),
    ];
    columns.extend(more.iter().map(|name| {
        let unit = name.rsplit_once('_').map_or("", |(_, unit)| unit);
        series(object(), None, name, ValueKind::Real, unit)
    }));
    let start_s = connection.repetitions.first().map_or(0.0, |repetition| repetition.start_s);
    let empty = |out: f64, arrived: f64| {
        vec![Some(RawValue(out.round() as u64)), Some(RawValue(arrived.round() as u64))]
    };
    let mut rows: Rows = Vec::new();
    let mut push = |t_s: f64, values: Vec<Option<RawValue>>| {
        rows.push((started_at.saturating_add(seconds(start_s + t_s)), values));
    };
    let (mut sent, mut received, mut last_s) = (0.0, 0.0, 0.0);
    push(0.0, [empty(0.0, 0.0), vec![None; more.len()]].concat());
    for point in &connection.series {
        let octets = (point.t_s - last_s).max(0.0) / 8.0;
        (sent, received) = (sent + point.sent_bps * octets, received + point.received_bps * octets);
        last_s = point.t_s.max(last_s);
        let figures = more.iter().map(|name| point.extra.get(*name).copied().map(RawValue::from_real));
        push(point.t_s, empty(sent, received).into_iter().chain(figures).collect());
    }
    let mut times: Vec<f64> = vec![0.0];
    times.extend(connection.series.iter().map(|p| p.t_s));
    table(device, format!("connection {}", connection.name), &times, columns, rows)
}

fn interface_table(device: &str, interface: &Interface, started_at: Timestamp) -> (TableSpec, Rows) {
    let column = |direction| {
        move |quantity: &str| {
            let object = Object::Port(interface.name.clone());
            let unit = if quantity == "octets" { quantity } else { "packets" };
            series(object, Some(direction), quantity, ValueKind::Counter64, unit)
        }
    };
    let quantities = ["octets", "packets", "discards"];
    let columns = [Direction::In, Direction::Out].map(|direction| quantities.map(column(direction)));
    let times: Vec<f64> = interface.counts.iter().map(|(t_s, _)| *t_s).collect();
    let row = |(t_s, counts): &(f64, [u64; 6])| {
        (
            started_at.saturating_add(seconds(*t_s)),
            counts.iter().map(|count| Some(RawValue(*count))).collect(),
        )
    };
    let (columns, rows) =
        (columns.into_iter().flatten().collect(), interface.counts.iter().map(row).collect());
    table(device, format!("port {}", interface.name), &times, columns, rows)
}

fn port_table(device: &str, link: &str, end: &LinkEnd, started_at: Timestamp) -> (TableSpec, Rows) {
    let column = |quantity: &str| {
        series(Object::Port(link.into()), Some(Direction::Out), quantity, ValueKind::Counter64, quantity)
    };
    let columns = ["octets", &end.unit, "discards"].map(column).into();
    let row = |(t_s, octets, frames, dropped): &(f64, u64, u64, u64)| {
        (
            started_at.saturating_add(seconds(*t_s)),
            [octets, frames, dropped].map(|count| Some(RawValue(*count))).into(),
        )
    };
    let times: Vec<f64> = end.counts.iter().map(|(t_s, ..)| *t_s).collect();
    table(device, format!("port {link}"), &times, columns, end.counts.iter().map(row).collect())
}

/// Converts seconds; returns zero for invalid values.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{Pattern, Reader, export::ExportQuery};
    use trunkline_record::schema::{Experiment, Interface, Link, Point, Repetition};

    fn record() -> Record {
        let point = |t_s: f64, sent_bps: f64, more: &[(&str, f64)]| Point {
            t_s,
            sent_bps,
            received_bps: sent_bps / 2.0,
            extra: more.iter().map(|(name, v)| ((*name).to_owned(), *v)).collect(),
        };
        // Two runs with a pause between them.
        let series = vec![
            point(0.1, 8e5, &[("delay_us", 70.5)]),
            point(0.2, 1.6e6, &[]),
            point(9.0, 0.0, &[]),
            point(9.1, 8e5, &[]),
        ];
        let connection = Connection {
            name: "a/b".into(),
            repetitions: vec![Repetition { start_s: 2.0, ..Repetition::default() }],
            series,
            ..Connection::default()
        };
        let end = LinkEnd {
            node: "s".into(),
            unit: "cells".into(),
            counts: vec![(0.0, 0, 0, 0), (0.1, 530, 10, 0), (0.2, 1060, 20, 3)],
        };
        Record {
            backend: "sim".into(),
            started: "T".into(),
            experiment: Experiment { name: "n".into(), ..Experiment::default() },
            connections: vec![connection, Connection::default()],
            interfaces: vec![Interface {
                name: "lo".into(),
                counts: vec![(0.0, [0; 6]), (0.1, [70, 7, 0, 50, 5, 1])],
            }],
            links: vec![Link { name: "a-s".into(), ends: vec![end], ..Link::default() }],
            ..Record::default()
        }
    }

    #[test]
    fn an_incomplete_import_is_completed_and_another_run_is_refused() {
        let started_at = Timestamp(1_000 * 1_000_000_000);
        let dir = tempfile::tempdir().unwrap();
        let all = |record: &Record| {
            let mut all = Vec::new();
            for_each_table(record, started_at, &mut |spec, rows| {
                all.push((spec, rows));
                Ok(())
            })
            .unwrap();
            all
        };
        // The first table and some rows of the second.
        for cut in 0..10 {
            let path = dir.path().join(format!("{cut}.sqlite"));
            let mut writer = Writer::open(&path).unwrap();
            let mut left = cut;
            for (spec, mut rows) in all(&record()) {
                rows.truncate(left);
                left -= rows.len();
                write_table(&mut writer, &spec, rows, &mut ImportStats::default()).unwrap();
                if left == 0 {
                    break;
                }
            }
            if cut % 2 == 0 {
                writer.make_all_chunks().unwrap();
            }
            drop(writer);
            let mut writer = Writer::open(&path).unwrap();
            if cut > 5 {
                let mut other = record();
                other.interfaces[0].counts[0].1[0] = 1;
                assert!(
                    matches!(import(&mut writer, &other, started_at), Err(Error::OutOfOrder(_))),
                    "{cut}"
                );
            }
            assert_eq!(import(&mut writer, &record(), started_at).unwrap().rows, 10 - cut);
            assert!(matches!(import(&mut writer, &record(), started_at), Err(Error::OutOfOrder(_))));
            let reader = Reader::open(&path).unwrap();
            for (spec, rows) in all(&record()) {
                let id = writer.find_table(&spec).unwrap().unwrap();
                let found = reader.responses(id, Timestamp::MIN, 100).unwrap().responses;
                let found: Rows = found.into_iter().map(|(row, values)| (row.time(), values)).collect();
                assert_eq!(found, rows);
            }
        }
    }

    #[test]
    fn a_run_is_imported_once_on_the_time_axis_of_the_counters() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("counters.sqlite");
        let mut writer = Writer::open(&path).unwrap();
        let started_at = Timestamp(1_000 * 1_000_000_000);
        assert_eq!(
            import(&mut writer, &record(), started_at).unwrap(),
            ImportStats { tables: 3, rows: 5 + 2 + 3 }
        );
        assert!(matches!(import(&mut writer, &record(), started_at), Err(Error::OutOfOrder(_))));
        let reader = Reader::open(&path).unwrap();
        let values = |pattern: &str| {
            let mut found = Vec::new();
            let patterns = vec![Pattern::new(pattern)];
            let query =
                ExportQuery { patterns, from: Timestamp::MIN, to: Timestamp::MAX, bucket_length: None };
            let result = reader.export(&query, |line| {
                let crate::archive::export::RowData::Reading(point) = &line.data else { return Ok(()) };
                let at_ms = (point.row.requested_at.0 - started_at.0) / 1_000_000;
                found.extend(point.value.map(|raw| (at_ms, raw.to_f64(line.series.column.kind))));
                Ok(())
            });
            result.unwrap();
            found
        };
        let out = [(2_000, 0.0), (2_100, 1e4), (2_200, 3e4), (11_000, 3e4), (11_100, 4e4)];
        assert_eq!(values("n sim T:connection/a%2Fb/out/octets"), out);
        assert_eq!(values("n sim T:connection/a%2Fb/in/octets"), out.map(|(at, v)| (at, v / 2.0)));
        assert_eq!(values("n sim T:connection/a%2Fb/delay_us"), [(2_100, 70.5)]);
        assert_eq!(values("n sim T s:port/a-s/out/cells"), [(0, 0.0), (100, 10.0), (200, 20.0)]);
        assert_eq!(values("n sim T:port/lo/in/packets"), [(0, 0.0), (100, 7.0)]);
        assert_eq!(values("n sim T:port/lo/out/discards"), [(0, 0.0), (100, 1.0)]);
        assert_eq!(values("n sim T s:port/a-s/out/discards"), [(0, 0.0), (100, 0.0), (200, 3.0)]);
    }
}
