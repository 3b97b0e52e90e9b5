//! What the archive of counters costs: `cargo bench -p trunkline-record --bench series [-- --points N]`.
//!
//! Five days of responses every 10 s, 43,200 of them, of as many interfaces as make N points (default 4,320,000; the
//! issue's size is `--points 100000000`). The same points go to rrdtool and to Prometheus (`promtool tsdb
//! create-blocks-from openmetrics`), as far as these are installed; `--alone` leaves them out. With `--features postgres`
//! the archive is also made in a database, on a server of the bench's own. Bytes do not depend on the machine; times are
//! told as ratios of one run.

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
use trunkline_counters::counter::{Answer, Moment, Raw, Response};
use trunkline_units::Seed;

use traffic::{Interface, SERIES, Use};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Responses of five days, one in 10 s.
const RESPONSES: usize = 43_200;
const PERIOD: i64 = 10;
/// When they begin, seconds since 1970.
const BEGIN: i64 = 1_764_547_200;
/// Interfaces of a device.
const WIDTH: usize = 50;
/// Responses of a flush: a minute's.
const FLUSH: usize = 6;
/// Views that are timed, and into how many buckets.
const VIEWS: usize = 50;
const BUCKETS: usize = 1_000;

/// All points: interfaces in groups of a device's.
struct Points {
    interfaces: usize,
}

impl Points {
    fn count(&self) -> usize {
        self.interfaces * SERIES.len() * RESPONSES
    }

    /// The interfaces of each device, by number.
    fn devices(&self) -> Vec<std::ops::Range<usize>> {
        (0..self.interfaces.div_ceil(WIDTH))
            .map(|d| d * WIDTH..((d + 1) * WIDTH).min(self.interfaces))
            .collect()
    }

    /// Gives the values of each response of a device, with its number.
    fn each(
        &self,
        device: std::ops::Range<usize>,
        mut give: impl FnMut(usize, &[Raw]) -> Outcome<()>,
    ) -> Outcome<()> {
        let mut interfaces: Vec<Interface> = device.map(Interface::new).collect();
        let mut values = Vec::new();
        for at in 0..RESPONSES {
            values.clear();
            interfaces.iter_mut().for_each(|interface| values.extend(interface.next(PERIOD as f64)));
            give(at, &values)?;
        }
        Ok(())
    }
}

/// Seconds since 1970 of a response.
fn second(at: usize) -> i64 {
    BEGIN + at as i64 * PERIOD
}

/// What a store showed.
struct Shown {
    name: &'static str,
    bytes: u64,
    /// Time to take all points in.
    taken: Duration,
    /// Times of views over all five days.
    views: Vec<Duration>,
    note: &'static str,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    match bench(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("series: {why}");
            ExitCode::FAILURE
        }
    }
}

fn bench(words: &[String]) -> Outcome<()> {
    let mut wanted = 4_320_000usize;
    let mut alone = false;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--points" => wanted = words.next().ok_or("--points wants a number")?.parse()?,
            "--alone" => alone = true,
            other => return Err(format!("there is no {other}").into()),
        }
    }
    let points = Points { interfaces: wanted.div_ceil(SERIES.len() * RESPONSES).max(1) };
    let folder = tempfile::tempdir()?;
    println!(
        "{} points: five days of {} interfaces with {} series each, every {PERIOD} s\n",
        points.count(),
        points.interfaces,
        SERIES.len()
    );
    let mut shown = vec![ours(&points, &folder.path().join("counters.sqlite"))?];
    #[cfg(feature = "postgres")]
    match server::Server::start("on") {
        Some(server) => shown.push(in_postgres(&points, &server)?),
        None => println!("left out: PostgreSQL is not installed"),
    }
    if !alone {
        for peer in [peers::rrdtool, peers::prometheus] {
            match peer(&points, folder.path()) {
                Ok(one) => shown.push(one),
                Err(why) => println!("left out: {why}"),
            }
        }
    }
    print(&points, &shown);
    by_use(&points, &folder.path().join("kinds"))
}

fn print(points: &Points, shown: &[Shown]) {
    println!(
        "{:<12} {:>14} {:>8} {:>13} {:>8} {:>16} {:>16}",
        "store", "bytes a point", "times", "M points/s", "times", "view, median", "view, longest"
    );
    let count = points.count() as f64;
    let bytes = |s: &Shown| s.bytes as f64 / count;
    let rate = |s: &Shown| count / s.taken.as_secs_f64() / 1e6;
    for one in shown {
        let mut views: Vec<f64> = one.views.iter().map(|v| v.as_secs_f64() * 1e3).collect();
        views.sort_by(f64::total_cmp);
        let ms = |v: Option<&f64>| v.map_or("–".into(), |v| format!("{v:.2} ms"));
        println!(
            "{:<12} {:>14.3} {:>8.2} {:>13.3} {:>8.2} {:>16} {:>16}  {}",
            one.name,
            bytes(one),
            bytes(one) / bytes(&shown[0]),
            rate(one),
            rate(one) / rate(&shown[0]),
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
                mark: None,
            })
        });
        let spec = TableSpec {
            device: format!("switch-{number}"),
            name: "ifXTable".into(),
            period: Duration::from_secs(PERIOD as u64),
            refresh: None,
            series: series.collect(),
        };
        Ok(writer.table(&spec)?)
    };
    points.devices().into_iter().enumerate().map(table).collect()
}

/// Times of a poll: microseconds of lateness, a millisecond or two to the answer.
fn response(at: usize, values: &[Raw], stream: &mut trunkline_units::Stream) -> Response {
    let due = Moment(second(at) * 1_000_000_000);
    let asked = Moment(due.0 + stream.below(800) as i64 * 1_000);
    let answered = Moment(asked.0 + (900 + stream.below(1_500) as i64) * 1_000);
    let uptime = Some((5_000_000 + at as u32 * 1_000).wrapping_add(stream.below(2) as u32));
    let values = values.iter().map(|v| Some(*v)).collect();
    Response { due, asked, answer: Some(Answer { answered, uptime, values }) }
}

/// Writes all points; what was timed is taking and flushing, not making them.
fn fill(points: &Points, at: &Location) -> Outcome<(Vec<Layout>, Duration)> {
    let mut writer = Writer::open(at)?;
    let layouts = open(points, &mut writer)?;
    let mut taken = Duration::ZERO;
    for (layout, device) in layouts.iter().zip(points.devices()) {
        let mut stream = Seed(1996).stream("polls");
        points.each(device, |at, values| {
            let response = response(at, values, &mut stream);
            let begun = Instant::now();
            writer.append(layout.table, &response)?;
            if at % FLUSH == FLUSH - 1 {
                writer.flush()?;
            }
            taken += begun.elapsed();
            Ok(())
        })?;
    }
    let begun = Instant::now();
    writer.seal_all()?;
    writer.checkpoint()?;
    Ok((layouts, taken + begun.elapsed()))
}

fn ours(points: &Points, path: &Path) -> Outcome<Shown> {
    let at = Location::from(path);
    let (layouts, taken) = fill(points, &at)?;
    let bytes = std::fs::metadata(path)?.len();
    let views = views(&at, &layouts)?;
    Ok(Shown { name: "trunkline", bytes, taken, views, note: "integers, four times a response" })
}

/// The same in a database: what its tables and indexes take on disk, without the room that removed flushes leave to
/// later ones, which is much as long as an archive is small.
#[cfg(feature = "postgres")]
fn in_postgres(points: &Points, server: &server::Server) -> Outcome<Shown> {
    let url = server.database();
    let at = Location::from(url.as_str());
    let (layouts, taken) = fill(points, &at)?;
    let client = server.client(server::name(&url));
    for table in ["tails", "chunks", "bodies", "tables"] {
        client.batch(&format!("VACUUM FULL trunkline.{table}"));
    }
    let bytes = client.number(
        "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = 'trunkline' AND c.relkind = 'r'",
    );
    let views = views(&at, &layouts)?;
    Ok(Shown {
        name: "postgresql",
        bytes: bytes.unsigned_abs(),
        taken,
        views,
        note: "the same archive, by a socket",
    })
}

/// Times of views over all five days.
fn views(at: &Location, layouts: &[Layout]) -> Outcome<Vec<Duration>> {
    let reader = Reader::open(at)?;
    let mut stream = Seed(1996).stream("views");
    let mut views = Vec::new();
    let (from, to) = (Moment(second(0) * 1_000_000_000), Moment(second(RESPONSES) * 1_000_000_000));
    for _ in 0..VIEWS {
        let layout = &layouts[stream.below(layouts.len() as u64) as usize];
        let series = layout.series[stream.below(layout.series.len() as u64) as usize];
        let begun = Instant::now();
        let view = reader.view(series, from, to, BUCKETS)?;
        views.push(begun.elapsed());
        if !view.damaged.is_empty() {
            return Err(format!("{:?}", view.damaged).into());
        }
    }
    Ok(views)
}

/// Bytes a point of each kind of interface alone.
fn by_use(points: &Points, folder: &Path) -> Outcome<()> {
    println!("\nbytes a point by use of the interface");
    for (name, used) in [("busy", Use::Busy), ("quiet", Use::Quiet), ("down", Use::Down)] {
        let numbers: Vec<usize> =
            (0..points.interfaces.min(WIDTH)).filter(|n| Interface::new(*n).used == used).collect();
        if numbers.is_empty() {
            continue;
        }
        let path = folder.join(name);
        let mut writer = Writer::open(&path)?;
        let alone = Points { interfaces: numbers.len() };
        let layout = open(&alone, &mut writer)?.remove(0);
        let mut interfaces: Vec<Interface> = numbers.iter().map(|n| Interface::new(*n)).collect();
        let mut stream = Seed(1996).stream("polls");
        for at in 0..RESPONSES / 5 {
            let values: Vec<Raw> = interfaces.iter_mut().flat_map(|i| i.next(PERIOD as f64)).collect();
            writer.append(layout.table, &response(at, &values, &mut stream))?;
            if at % 100 == 99 {
                writer.flush()?;
            }
        }
        writer.seal_all()?;
        let count = numbers.len() * SERIES.len() * (RESPONSES / 5);
        println!("  {name:<6} {:.3}", writer.bytes()? as f64 / count as f64);
    }
    Ok(())
}
