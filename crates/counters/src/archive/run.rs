//! A run of an experiment in the archive: what its record counted over time, beside the counters of switches.
//!
//! The device is the run, `EXPERIMENT BACKEND STARTED`; each connection is a table of it, `connection/NAME/out/octets` what
//! was handed to the transport, `…/in/octets` what arrived, and what else the record says of each interval as it stands
//! there (`…/delay_us`). Of a live run the interfaces it was on are tables as well, `port/lo/in/octets`, of the run. Of a simulated run each node is a device of its own, `EXPERIMENT BACKEND STARTED NODE`, with
//! `port/LINK/out/octets` and so on. Simulated time counts from when the run was started.

use std::time::Duration;

use super::{Direction, Error, Layout, Object, Place, Reader, SeriesSpec, TableId, TableSpec, Writer};
use crate::counter::{Answer, Disorder, Kind, Moment, Raw, Response};
use trunkline_record::schema::{Connection, Interface, LinkEnd, Record};

/// Responses between two flushes: fewer than any table may let wait.
const FLUSH: usize = 64;
/// Responses that are looked at together.
const PAGE: usize = 4_096;

/// What was put into the archive and was not there before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Put {
    /// Tables.
    pub tables: usize,
    /// Responses.
    pub rows: usize,
}

/// The device of a run.
pub fn device(record: &Record) -> String {
    format!("{} {} {}", record.experiment.name, record.backend, record.started)
}

/// Puts a run that began at a moment into the archive; of one that is there in part, what is missing. One that is there
/// already, or another in its place, is [`Error::Disorder`].
pub fn put(writer: &mut Writer, record: &Record, began: Moment) -> Result<Put, Error> {
    let reader = Reader::open(writer.location().clone())?;
    let (mut there, mut rows, mut known) = (Vec::new(), 0, 0);
    each(record, began, &mut |spec, wanted| {
        let count = match writer.find(&spec)? {
            Some(table) => begun(&reader, table, &spec, &wanted)?,
            None => 0,
        };
        (rows, known) = (rows + wanted.len(), known + count);
        there.push(count);
        Ok(())
    })?;
    if rows > 0 && rows == known {
        return Err(Disorder.into());
    }
    let (mut put, mut there) = (Put::default(), there.into_iter());
    each(record, began, &mut |spec, mut rows| {
        rows.drain(..there.next().unwrap_or_default());
        table(writer, &spec, rows, &mut put)
    })?;
    writer.seal_all()?;
    Ok(put)
}

/// Calls `see` with each table of a run.
fn each(
    record: &Record,
    began: Moment,
    see: &mut dyn FnMut(TableSpec, Rows) -> Result<(), Error>,
) -> Result<(), Error> {
    let device = device(record);
    for connection in record.connections.iter().filter(|c| !c.series.is_empty()) {
        let (spec, rows) = flows(&device, connection, began);
        see(spec, rows)?;
    }
    for one in &record.interfaces {
        let (spec, rows) = interface(&device, one, began);
        see(spec, rows)?;
    }
    for link in &record.links {
        for end in link.ends.iter().filter(|end| !end.counts.is_empty()) {
            let (spec, rows) = port(&format!("{device} {}", end.node), &link.name, end, began);
            see(spec, rows)?;
        }
    }
    Ok(())
}

/// How many of a table's rows, from the first on, are in the archive, and nothing else is.
fn begun(reader: &Reader, table: TableId, spec: &TableSpec, rows: &Rows) -> Result<usize, Error> {
    let names: Vec<String> = reader.series(table)?.into_iter().map(|series| series.name).collect();
    let place = |series: &SeriesSpec| names.iter().position(|name| *name == series.name);
    let places: Option<Vec<usize>> = spec.series.iter().map(place).collect();
    let places = places.filter(|places| places.len() == names.len()).ok_or(Disorder)?;
    let (mut count, mut after) = (0, Moment::FIRST);
    loop {
        let found = reader.responses(table, after, PAGE)?;
        for (row, values) in &found.responses {
            let same = rows.get(count).is_some_and(|(at, wanted)| {
                let mut pairs = wanted.iter().zip(&places);
                row.answered == Some(*at)
                    && pairs.all(|(value, &place)| *value == values.get(place).copied().flatten())
            });
            if !same {
                return Err(Disorder.into());
            }
            (count, after) = (count + 1, row.at());
        }
        if !found.more {
            break;
        }
    }
    // Rows that only summaries are left of cannot be told from others.
    let last = reader.extent(table)?.map(|(_, last)| last);
    let ends = count.checked_sub(1).and_then(|at| rows.get(at)).map(|(at, _)| *at);
    if last == ends { Ok(count) } else { Err(Disorder.into()) }
}

/// Moments and values, in order.
type Rows = Vec<(Moment, Vec<Option<Raw>>)>;

fn table(writer: &mut Writer, spec: &TableSpec, rows: Rows, put: &mut Put) -> Result<(), Error> {
    let Layout { table, .. } = writer.table(spec)?;
    put.tables += usize::from(!rows.is_empty());
    for (count, (at, values)) in rows.into_iter().enumerate() {
        let answer = Answer { answered: at, uptime: None, values };
        writer.append(table, &Response { due: at, asked: at, answer: Some(answer) })?;
        put.rows += 1;
        if count % FLUSH == FLUSH - 1 {
            writer.flush()?;
        }
    }
    writer.flush()?;
    Ok(())
}

fn spec(device: &str, name: String, times: &[f64], series: Vec<SeriesSpec>) -> TableSpec {
    // All intervals are of one length but the last ones of runs and pauses between them.
    let mut gaps: Vec<f64> =
        times.windows(2).map(|pair| pair[1] - pair[0]).filter(|gap| *gap > 0.0).collect();
    gaps.sort_by(f64::total_cmp);
    let period = gaps.get(gaps.len() / 2).copied().unwrap_or(1.0);
    TableSpec {
        device: device.into(),
        name,
        period: Duration::from_nanos((period * 1e9) as u64).max(Duration::from_nanos(1)),
        refresh: Some(Duration::ZERO),
        series,
    }
}

fn series(place: Place, kind: Kind, unit: &str) -> SeriesSpec {
    SeriesSpec { name: place.to_string(), kind, unit: unit.into(), ceiling: None, mark: None }
}

fn flows(device: &str, connection: &Connection, began: Moment) -> (TableSpec, Rows) {
    let object = || Object::Connection(connection.name.clone());
    let place = |direction, quantity: &str| Place { object: object(), direction, quantity: quantity.into() };
    let more: std::collections::BTreeSet<&String> =
        connection.series.iter().flat_map(|p| p.more.keys()).collect();
    let mut columns = vec![
        series(place(Some(Direction::Out), "octets"), Kind::Counter64, "octets"),
        series(place(Some(Direction::In), "octets"), Kind::Counter64, "octets"),
    ];
    let unit = |name: &str| name.rsplit_once('_').map_or("", |(_, unit)| unit).to_owned();
    columns.extend(more.iter().map(|name| series(place(None, name), Kind::Real, &unit(name))));
    let start_s = connection.runs.first().map_or(0.0, |run| run.start_s);
    let empty =
        |out: f64, arrived: f64| vec![Some(Raw(out.round() as u64)), Some(Raw(arrived.round() as u64))];
    let mut rows: Rows = Vec::new();
    let mut push = |t_s: f64, values: Vec<Option<Raw>>| {
        let at = began.after(span(start_s + t_s));
        if rows.last().is_none_or(|(last, _)| *last < at) {
            rows.push((at, values));
        }
    };
    let (mut sent, mut received, mut last_s) = (0.0, 0.0, 0.0);
    push(0.0, [empty(0.0, 0.0), vec![None; more.len()]].concat());
    for point in &connection.series {
        let octets = (point.t_s - last_s).max(0.0) / 8.0;
        (sent, received) = (sent + point.sent_bps * octets, received + point.received_bps * octets);
        last_s = point.t_s.max(last_s);
        let figures = more.iter().map(|name| point.more.get(*name).copied().map(Raw::real));
        push(point.t_s, empty(sent, received).into_iter().chain(figures).collect());
    }
    let mut times: Vec<f64> = vec![0.0];
    times.extend(connection.series.iter().map(|p| p.t_s));
    (spec(device, format!("connection {}", connection.name), &times, columns), rows)
}

fn interface(device: &str, one: &Interface, began: Moment) -> (TableSpec, Rows) {
    let column = |direction| {
        move |quantity: &str| {
            let object = Object::Port(one.name.clone());
            let place = Place { object, direction: Some(direction), quantity: quantity.into() };
            series(place, Kind::Counter64, if quantity == "octets" { quantity } else { "packets" })
        }
    };
    let quantities = ["octets", "packets", "discards"];
    let columns = [Direction::In, Direction::Out].map(|direction| quantities.map(column(direction)));
    let times: Vec<f64> = one.counts.iter().map(|(t_s, _)| *t_s).collect();
    let row = |(t_s, counts): &(f64, [u64; 6])| {
        (began.after(span(*t_s)), counts.iter().map(|count| Some(Raw(*count))).collect())
    };
    let mut rows: Rows = one.counts.iter().map(row).collect();
    rows.dedup_by(|next, last| next.0 <= last.0);
    (spec(device, format!("port {}", one.name), &times, columns.into_iter().flatten().collect()), rows)
}

fn port(device: &str, link: &str, end: &LinkEnd, began: Moment) -> (TableSpec, Rows) {
    let place = |quantity: &str| Place {
        object: Object::Port(link.into()),
        direction: Some(Direction::Out),
        quantity: quantity.into(),
    };
    let columns = ["octets", &end.unit, "discards"];
    let columns = columns.map(|quantity| series(place(quantity), Kind::Counter64, quantity)).into();
    let row = |(t_s, octets, frames, dropped): &(f64, u64, u64, u64)| {
        (began.after(span(*t_s)), [octets, frames, dropped].map(|count| Some(Raw(*count))).into())
    };
    let times: Vec<f64> = end.counts.iter().map(|(t_s, ..)| *t_s).collect();
    let mut rows: Rows = end.counts.iter().map(row).collect();
    rows.dedup_by(|next, last| next.0 <= last.0);
    (spec(device, format!("port {link}"), &times, columns), rows)
}

/// So many seconds; none if they are no time.
fn span(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{Pattern, Reader, flat::Wanted};
    use trunkline_record::schema::{Experiment, Interface, Link, Point, Run};

    fn record() -> Record {
        let point = |t_s: f64, sent_bps: f64, more: &[(&str, f64)]| Point {
            t_s,
            sent_bps,
            received_bps: sent_bps / 2.0,
            more: more.iter().map(|(name, v)| ((*name).to_owned(), *v)).collect(),
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
            runs: vec![Run { start_s: 2.0, ..Run::default() }],
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
    fn a_run_that_was_cut_off_is_completed_and_another_is_refused() {
        let began = Moment(1_000 * 1_000_000_000);
        let dir = tempfile::tempdir().unwrap();
        let all = |record: &Record| {
            let mut all = Vec::new();
            each(record, began, &mut |spec, rows| {
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
                table(&mut writer, &spec, rows, &mut Put::default()).unwrap();
                if left == 0 {
                    break;
                }
            }
            if cut % 2 == 0 {
                writer.seal_all().unwrap();
            }
            drop(writer);
            let mut writer = Writer::open(&path).unwrap();
            if cut > 5 {
                let mut other = record();
                other.interfaces[0].counts[0].1[0] = 1;
                assert!(matches!(put(&mut writer, &other, began), Err(Error::Disorder(_))), "{cut}");
            }
            assert_eq!(put(&mut writer, &record(), began).unwrap().rows, 10 - cut);
            assert!(matches!(put(&mut writer, &record(), began), Err(Error::Disorder(_))));
            let reader = Reader::open(&path).unwrap();
            for (spec, rows) in all(&record()) {
                let id = writer.find(&spec).unwrap().unwrap();
                let found = reader.responses(id, Moment::FIRST, 100).unwrap().responses;
                let found: Rows = found.into_iter().map(|(row, values)| (row.at(), values)).collect();
                assert_eq!(found, rows);
            }
        }
    }

    #[test]
    fn a_run_is_told_on_the_axis_of_the_counters_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("counters.sqlite");
        let mut writer = Writer::open(&path).unwrap();
        let began = Moment(1_000 * 1_000_000_000);
        assert_eq!(put(&mut writer, &record(), began).unwrap(), Put { tables: 3, rows: 5 + 2 + 3 });
        assert!(matches!(put(&mut writer, &record(), began), Err(Error::Disorder(_))));
        let reader = Reader::open(&path).unwrap();
        let values = |pattern: &str| {
            let mut found = Vec::new();
            let patterns = vec![Pattern::new(pattern)];
            let wanted = Wanted { patterns, from: Moment::FIRST, to: Moment::LAST, every: None };
            let told = reader.flat(&wanted, |line| {
                let crate::archive::flat::Cell::Reading(point) = &line.said else { return Ok(()) };
                let at_ms = (point.row.asked.0 - began.0) / 1_000_000;
                found.extend(point.value.map(|raw| (at_ms, raw.number(line.series.column.kind))));
                Ok(())
            });
            told.unwrap();
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
