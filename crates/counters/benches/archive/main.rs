//! Size and speed of the archive: `cargo bench -p trunkline-counters --bench archive [-- --points N]`.
//!
//! The data is five days of responses every 10 s (43,200 responses) of as many interfaces as give N points (default
//! 4,320,000; the full size is `--points 100000000`). The same points are stored with rrdtool and Prometheus
//! (`promtool tsdb create-blocks-from openmetrics`) if these are installed; `--alone` skips them. With `--features
//! postgres` the archive is also created in a temporary PostgreSQL server. Sizes do not depend on the machine; times
//! are reported as ratios within one run.

#![allow(clippy::disallowed_methods, reason = "a bench measures in real time")]

mod peers;
#[cfg(feature = "postgres")]
#[path = "../../tests/support/server.rs"]
mod server;
mod traffic;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use trunkline_counters::archive::{Layout, Location, Reader, SeriesSpec, TableSpec, Writer};
use trunkline_counters::counter::{Answer, RawValue, Response, Timestamp};
use trunkline_units::Seed;

use traffic::{Interface, Load, SERIES};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Responses in five days, one every 10 s.
const RESPONSES: usize = 43_200;
const PERIOD: i64 = 10;
/// Time of the first response in seconds since 1970.
const BEGIN: i64 = 1_764_547_200;
/// Interfaces per device.
const WIDTH: usize = 50;
/// Responses per flush: one minute.
const FLUSH: usize = 6;
/// Number of timed views and their buckets.
const VIEWS: usize = 50;
const BUCKETS: usize = 1_000;

/// All points: interfaces in groups of [`WIDTH`] per device.
struct Points {
    interfaces: usize,
}

impl Points {
    fn count(&self) -> usize {
        self.interfaces * SERIES.len() * RESPONSES
    }

    /// Returns the interface numbers of each device.
    fn devices(&self) -> Vec<std::ops::Range<usize>> {
        (0..self.interfaces.div_ceil(WIDTH))
            .map(|d| d * WIDTH..((d + 1) * WIDTH).min(self.interfaces))
            .collect()
    }

    /// Calls `visit` with the number and values of each response of a device.
    fn for_each_response(
        &self,
        device: std::ops::Range<usize>,
        mut visit: impl FnMut(usize, &[RawValue]) -> Outcome<()>,
    ) -> Outcome<()> {
        let mut interfaces: Vec<Interface> = device.map(Interface::new).collect();
        let mut values = Vec::new();
        for at in 0..RESPONSES {
            values.clear();
            interfaces.iter_mut().for_each(|interface| values.extend(interface.next(PERIOD as f64)));
            visit(at, &values)?;
        }
        Ok(())
    }
}

/// Returns the time of a response in seconds since 1970.
fn second(at: usize) -> i64 {
    BEGIN + at as i64 * PERIOD
}

/// The results of a store.
struct StoreResult {
    name: &'static str,
    bytes: u64,
    /// Time to write all points.
    write_time: Duration,
    /// Times of views over all five days.
    views: Vec<Duration>,
    note: &'static str,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    match bench(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("archive: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(words: &[String]) -> Outcome<()> {
    let mut point_count = 4_320_000usize;
    let mut skip_peers = false;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--points" => point_count = words.next().ok_or("--points needs a number")?.parse()?,
            "--alone" => skip_peers = true,
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    let points = Points { interfaces: point_count.div_ceil(SERIES.len() * RESPONSES).max(1) };
    let folder = tempfile::tempdir()?;
    println!(
        "{} points: five days of {} interfaces with {} series each, every {PERIOD} s\n",
        points.count(),
        points.interfaces,
        SERIES.len()
    );
    let mut results = vec![archive_file(&points, &folder.path().join("counters.sqlite"))?];
    #[cfg(feature = "postgres")]
    match server::Server::start("on") {
        Some(server) => results.push(archive_in_postgres(&points, &server)?),
        None => println!("skipped: PostgreSQL is not installed"),
    }
    if !skip_peers {
        for peer in [peers::rrdtool, peers::prometheus] {
            match peer(&points, folder.path()) {
                Ok(one) => results.push(one),
                Err(error) => println!("skipped: {error}"),
            }
        }
    }
    print(&points, &results);
    by_load(&points, &folder.path().join("kinds"))
}

fn print(points: &Points, results: &[StoreResult]) {
    println!(
        "{:<12} {:>14} {:>8} {:>13} {:>8} {:>16} {:>16}",
        "store", "bytes per point", "times", "M points/s", "times", "view, median", "view, longest"
    );
    let count = points.count() as f64;
    let bytes = |s: &StoreResult| s.bytes as f64 / count;
    let rate = |s: &StoreResult| count / s.write_time.as_secs_f64() / 1e6;
    for one in results {
        let mut views: Vec<f64> = one.views.iter().map(|v| v.as_secs_f64() * 1e3).collect();
        views.sort_by(f64::total_cmp);
        let ms = |v: Option<&f64>| v.map_or("–".into(), |v| format!("{v:.2} ms"));
        println!(
            "{:<12} {:>14.3} {:>8.2} {:>13.3} {:>8.2} {:>16} {:>16}  {}",
            one.name,
            bytes(one),
            bytes(one) / bytes(&results[0]),
            rate(one),
            rate(one) / rate(&results[0]),
            ms(views.get(views.len() / 2)),
            ms(views.last()),
            one.note
        );
    }
}

fn open(points: &Points, writer: &mut Writer) -> Outcome<Vec<Layout>> {
    let table = |(number, device): (usize, std::ops::Range<usize>)| {
        let series = device.flat_map(|interface| {
            SERIES.iter().map(move |(name, kind)| SeriesSpec {
                name: format!("{name}.{interface}"),
                kind: *kind,
                unit: String::new(),
                ceiling: None,
                discontinuity: None,
            })
        });
        let spec = TableSpec {
            device: format!("switch-{number}"),
            name: "ifXTable".into(),
            period: Duration::from_secs(PERIOD as u64),
            refresh: None,
            series: series.collect(),
        };
        Ok(writer.open_table(&spec)?)
    };
    points.devices().into_iter().enumerate().map(table).collect()
}

/// Creates a response that is microseconds late and answered after a millisecond or two.
fn response(at: usize, values: &[RawValue], stream: &mut trunkline_units::Stream) -> Response {
    let due = Timestamp(second(at) * 1_000_000_000);
    let requested_at = Timestamp(due.0 + stream.below(800) as i64 * 1_000);
    let answered = Timestamp(requested_at.0 + (900 + stream.below(1_500) as i64) * 1_000);
    let uptime = Some((5_000_000 + at as u32 * 1_000).wrapping_add(stream.below(2) as u32));
    let values = values.iter().map(|v| Some(*v)).collect();
    Response { due_at: due, requested_at, answer: Some(Answer { answered_at: answered, uptime, values }) }
}

/// Writes all points and measures the time of appending and flushing, without generating them.
fn fill(points: &Points, at: &Location) -> Outcome<(Vec<Layout>, Duration)> {
    let mut writer = Writer::open(at)?;
    let layouts = open(points, &mut writer)?;
    let mut write_time = Duration::ZERO;
    for (layout, device) in layouts.iter().zip(points.devices()) {
        let mut stream = Seed(1996).stream("polls");
        points.for_each_response(device, |at, values| {
            let response = response(at, values, &mut stream);
            let started_at = Instant::now();
            writer.append(layout.table, &response)?;
            if at % FLUSH == FLUSH - 1 {
                writer.flush()?;
            }
            write_time += started_at.elapsed();
            Ok(())
        })?;
    }
    let started_at = Instant::now();
    writer.make_all_chunks()?;
    writer.checkpoint()?;
    Ok((layouts, write_time + started_at.elapsed()))
}

fn archive_file(points: &Points, path: &Path) -> Outcome<StoreResult> {
    let at = Location::from(path);
    let (layouts, write_time) = fill(points, &at)?;
    let bytes = std::fs::metadata(path)?.len();
    let views = views(&at, &layouts)?;
    Ok(StoreResult {
        name: "trunkline",
        bytes,
        write_time,
        views,
        note: "integers, four timestamps per response",
    })
}

/// Creates the archive in a database and measures the disk space of its tables and indexes, without the space of
/// removed flushes, which is significant only in a small archive.
#[cfg(feature = "postgres")]
fn archive_in_postgres(points: &Points, server: &server::Server) -> Outcome<StoreResult> {
    let url = server.database();
    let at = Location::from(url.as_str());
    let (layouts, write_time) = fill(points, &at)?;
    let client = server.client(server::name(&url));
    for table in ["tails", "chunks", "bodies", "tables"] {
        client.batch(&format!("VACUUM FULL trunkline.{table}"));
    }
    let bytes = client.number(
        "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = 'trunkline' AND c.relkind = 'r'",
    );
    let views = views(&at, &layouts)?;
    Ok(StoreResult {
        name: "postgresql",
        bytes: bytes.unsigned_abs(),
        write_time,
        views,
        note: "the same archive over a Unix socket",
    })
}

/// Times of views over all five days.
fn views(at: &Location, layouts: &[Layout]) -> Outcome<Vec<Duration>> {
    let reader = Reader::open(at)?;
    let mut stream = Seed(1996).stream("views");
    let mut views = Vec::new();
    let (from, to) = (Timestamp(second(0) * 1_000_000_000), Timestamp(second(RESPONSES) * 1_000_000_000));
    for _ in 0..VIEWS {
        let layout = &layouts[stream.below(layouts.len() as u64) as usize];
        let series = layout.series[stream.below(layout.series.len() as u64) as usize];
        let started_at = Instant::now();
        let view = reader.view(series, from, to, BUCKETS)?;
        views.push(started_at.elapsed());
        if !view.damaged.is_empty() {
            return Err(format!("{:?}", view.damaged).into());
        }
    }
    Ok(views)
}

/// Prints the bytes per point for each kind of interface.
fn by_load(points: &Points, folder: &Path) -> Outcome<()> {
    println!("\nbytes per point by load of the interface");
    for (name, load) in [("busy", Load::Busy), ("quiet", Load::Quiet), ("down", Load::Down)] {
        let numbers: Vec<usize> =
            (0..points.interfaces.min(WIDTH)).filter(|n| Interface::new(*n).load == load).collect();
        if numbers.is_empty() {
            continue;
        }
        let path = folder.join(name);
        let mut writer = Writer::open(&path)?;
        let skip_peers = Points { interfaces: numbers.len() };
        let layout = open(&skip_peers, &mut writer)?.remove(0);
        let mut interfaces: Vec<Interface> = numbers.iter().map(|n| Interface::new(*n)).collect();
        let mut stream = Seed(1996).stream("polls");
        for at in 0..RESPONSES / 5 {
            let values: Vec<RawValue> = interfaces.iter_mut().flat_map(|i| i.next(PERIOD as f64)).collect();
            writer.append(layout.table, &response(at, &values, &mut stream))?;
            if at % 100 == 99 {
                writer.flush()?;
            }
        }
        writer.make_all_chunks()?;
        let count = numbers.len() * SERIES.len() * (RESPONSES / 5);
        println!("  {name:<6} {:.3}", writer.size_bytes()? as f64 / count as f64);
    }
    Ok(())
}
