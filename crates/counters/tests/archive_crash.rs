//! A writer that is killed at any time loses at most the responses that it had not flushed, and the rest is intact.
//! `MOMENTS=100 cargo test -p trunkline-counters archive_crash::` sets the number of kills.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use trunkline_counters::archive::{Layout, Location, Reader, Retention, SeriesSpec, TableSpec, Writer};
use trunkline_counters::counter::{Answer, RawValue, Response, Timestamp, ValueKind};
use trunkline_units::{Seed, random::Stream};

#[cfg(feature = "postgres")]
use crate::support::server;
use crate::support::store;

/// Environment variable with the location of the archive, for the child process.
const LOCATION_VARIABLE: &str = "TRUNKLINE_TEST_SERIES";
const COLUMNS: usize = 40;
const TABLES: usize = 3;
const S: i64 = 1_000_000_000;

fn spec(device: usize) -> TableSpec {
    let series = |at: usize| SeriesSpec {
        name: format!("octets.{at}"),
        kind: ValueKind::Counter64,
        unit: "octets".into(),
        ceiling: None,
        discontinuity: None,
    };
    TableSpec {
        device: format!("device {device}"),
        name: "interfaces".into(),
        period: Duration::from_secs(1),
        refresh: Some(Duration::ZERO),
        series: (0..COLUMNS).map(series).collect(),
    }
}

/// Returns the value of a counter at a response; a function of its position, so that readings can be checked.
fn value(column: usize, at: i64) -> u64 {
    let noise = if column.is_multiple_of(3) { (at as u64).wrapping_mul(0x9e37_79b9) % 997 } else { 0 };
    at as u64 * 1_000 * (column as u64 + 1) + noise
}

fn response(at: i64) -> Response {
    let requested_at = Timestamp(at * S);
    let values = (0..COLUMNS).map(|column| Some(RawValue(value(column, at)))).collect();
    let answer =
        Answer { answered_at: Timestamp(requested_at.0 + 5_000_000), uptime: Some(at as u32 * 100), values };
    Response { due_at: requested_at, requested_at, answer: Some(answer) }
}

/// Opens an archive; its server may not have noticed yet that the last writer is dead.
fn open(at: &Location) -> (Writer, Vec<Layout>) {
    let mut writer = Writer::open(at).unwrap();
    let mut table = |device| {
        let mut layout = None;
        store::wait_until(|| writer.open_table(&spec(device)).map(|made| layout = Some(made)).is_ok());
        layout.unwrap()
    };
    let layouts = (0..TABLES).map(&mut table).collect();
    (writer, layouts)
}

/// Checks all responses of a table and returns their number.
fn checked(at: &Location, layout: &Layout) -> i64 {
    let reader = Reader::open(at).unwrap();
    let mut count = 0;
    for column in [0, 1, COLUMNS - 1] {
        let points =
            reader.points(layout.series[column], Timestamp::MIN, Timestamp::MAX, usize::MAX).unwrap();
        assert!(points.damaged.is_empty() && points.removed == 0, "{:?}", points.damaged);
        for (at, point) in (0..).zip(&points.points) {
            assert_eq!(
                (point.row.requested_at, point.value),
                (Timestamp(at * S), Some(RawValue(value(column, at))))
            );
        }
        count = points.points.len() as i64;
        let view = reader.view(layout.series[column], Timestamp(-S), Timestamp((count + 1) * S), 13).unwrap();
        let sum: i128 = view.buckets.buckets.iter().map(|b| b.sum).sum();
        let grown = if count == 0 { 0 } else { value(column, count - 1) - value(column, 0) };
        assert_eq!(sum, i128::from(grown), "views add up to what grew");
    }
    count
}

/// The child process of the tests below; it writes until it is killed.
#[test]
fn writer() {
    let Some(location) = std::env::var_os(LOCATION_VARIABLE) else { return };
    let at = Location::from(location);
    let (mut writer, layouts) = open(&at);
    let mut next: Vec<i64> = layouts.iter().map(|layout| checked(&at, layout)).collect();
    loop {
        for (layout, next) in layouts.iter().zip(&mut next) {
            for _ in 0..29 {
                writer.append(layout.table, &response(*next)).unwrap();
                *next += 1;
            }
        }
        let mut flush = || writer.flush().map(|done| assert!(done.damage.is_empty()));
        match at.file() {
            Some(_) => flush().unwrap(),
            // A stopped server is restarted.
            None => store::wait_until(|| flush().is_ok()),
        }
        let _ = writer.apply_retention(&Retention::default(), Timestamp(0));
        println!("\nflushed {}", next.iter().map(i64::to_string).collect::<Vec<_>>().join(" "));
    }
}

/// A writer in a child process.
struct WriterProcess {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl WriterProcess {
    fn start(location: &str) -> WriterProcess {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "archive_crash::writer", "--nocapture"])
            .env(LOCATION_VARIABLE, location)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        WriterProcess { child, out }
    }

    /// Returns the flushed responses that the writer reports.
    fn reports(&mut self) -> impl Iterator<Item = Vec<i64>> {
        let numbers = |line: String| -> Option<Vec<i64>> {
            line.strip_prefix("flushed ")?.split(' ').map(|word| word.parse().ok()).collect()
        };
        self.out.by_ref().lines().map_while(Result::ok).filter_map(numbers)
    }

    /// Waits for a number of flushes and a time, and returns the last report.
    fn wait(&mut self, flushes: usize, after: Duration) -> Vec<i64> {
        let report = self.reports().take(flushes).last().expect("the writer writes");
        #[allow(clippy::disallowed_methods, reason = "the time of the kill is random")]
        std::thread::sleep(after);
        report
    }

    /// Kills the writer with SIGKILL and returns its last report.
    fn kill(mut self, report: Vec<i64>) -> Vec<i64> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.reports().last().unwrap_or(report)
    }
}

/// Checks that at most the last flush is missing, and that the archive is still writable.
fn check_recovery(at: &Location, report: &[i64], kill: usize) {
    let (mut writer, layouts) = open(at);
    for (layout, report) in layouts.iter().zip(report) {
        let there = checked(at, layout);
        assert!(
            *report <= there && there <= report + 29,
            "{there} responses, {report} were flushed (kill {kill})"
        );
        writer.append(layout.table, &response(there)).unwrap();
    }
    writer.flush().unwrap();
    layouts.iter().zip(report).for_each(|(layout, report)| assert!(checked(at, layout) > *report));
}

/// Draws the time of a kill: a number of flushes and a delay.
fn random_kill_time(stream: &mut Stream) -> (usize, Duration) {
    (1 + stream.below(12) as usize, Duration::from_micros(stream.below(30_000)))
}

fn kill_count() -> usize {
    std::env::var("MOMENTS").ok().and_then(|n| n.parse().ok()).unwrap_or(12)
}

#[test]
fn a_killed_writer_loses_only_unflushed_responses() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream: Stream = Seed(1996).stream("kills");
    let (mut path, mut kills) = (dir.path().join("0.sqlite"), 0);
    for kill in 0..kill_count() {
        // Use a new archive now and then to test its creation as well.
        if kills == 6 {
            (path, kills) = (dir.path().join(format!("{kill}.sqlite")), 0);
        }
        kills += 1;
        let (flushes, after) = random_kill_time(&mut stream);
        let mut writer = WriterProcess::start(path.to_str().unwrap());
        let report = writer.wait(flushes, after);
        check_recovery(&Location::from(&path), &writer.kill(report), kill);
    }
}

/// The same in a database. The server is also stopped while the writer runs, which must lose nothing.
#[cfg(feature = "postgres")]
#[test]
fn a_killed_writer_or_server_loses_only_unflushed_responses() {
    let Some(server) = server::Server::own("on") else { return };
    let url = server.database();
    let at = Location::from(url.as_str());
    let mut stream: Stream = Seed(1996).stream("kills on a server");
    for kill in 0..kill_count() / 3 {
        let mut writer = WriterProcess::start(&url);
        let (flushes, after) = random_kill_time(&mut stream);
        let mut report = writer.wait(flushes, after);
        if kill % 2 == 1 {
            server.stop();
            server.restart();
            report = writer.wait(2, Duration::ZERO);
        }
        check_recovery(&at, &writer.kill(report), kill);
    }
}
