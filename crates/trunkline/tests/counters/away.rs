//! Outages of databases, and what writers and readers do meanwhile.

#![allow(clippy::disallowed_methods, reason = "these tests watch programs that run in real time")]

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use super::postgres::server::{self, Server};
use super::*;
use crate::command::{Running, within};

const SOON: Duration = Duration::from_secs(100);

/// The archive writer of the poller.
#[cfg(feature = "snmp")]
mod archive_writer {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use trunkline_collector::poll::report::{DeviceText, Report, ReportSender, queue};
    use trunkline_collector::poll::{AnchoredClock, ArchiveWriter, WriteOptions};
    use trunkline_counters::archive::{Reader, SeriesSpec, TableId, TableSpec, TextSpec, Writer};
    use trunkline_counters::counter::{Answer, RawValue, Response, Timestamp, ValueKind};

    use super::*;

    /// An archive writer in a thread.
    struct WriterTest {
        sink: ReportSender,
        handled: &'static AtomicUsize,
        warnings: &'static Mutex<Vec<String>>,
    }

    impl WriterTest {
        fn put(&self, report: Report) {
            assert!(self.sink.send(report));
        }

        fn put_text(&self, text: &str, at: i64) {
            let words = vec![DeviceText { object: "port/1".into(), key: "state", text: text.into() }];
            self.put(Report::Texts { device: "sw1".into(), texts: words, at: Timestamp(at) });
        }

        /// Sends the response of a second, with the description of the table if it is new.
        fn poll(&self, second: u64, new: bool) {
            let spec = new.then(|| spec().into());
            self.put(Report::Polled { table: 0, spec, response: response(second * 1_000_000_000) });
        }

        /// Sends the response of a second of a table with an additional series.
        fn poll_wider(&self, second: u64, new: bool) {
            let mut wider = spec();
            wider.series.push(SeriesSpec { name: "y".into(), ..wider.series[0].clone() });
            let mut response = response(second * 1_000_000_000);
            response.answer.as_mut().unwrap().values.push(Some(RawValue(second)));
            self.put(Report::Polled { table: 0, spec: new.then(|| wider.into()), response });
        }

        fn wait_for_warning(&self, words: &str) {
            within(SOON, words, || self.warnings.lock().unwrap().iter().any(|line| line.contains(words)));
        }

        /// Waits until `count` reports were received; the last may not be stored yet.
        fn wait_for_reports(&self, count: usize) {
            within(SOON, "reports to be taken", || self.handled.load(Ordering::Relaxed) >= count);
        }
    }

    fn spec() -> TableSpec {
        let series = SeriesSpec {
            name: "x".into(),
            kind: ValueKind::Counter64,
            unit: "octets".into(),
            ceiling: None,
            discontinuity: None,
        };
        TableSpec {
            device: "sw1".into(),
            name: "flows".into(),
            period: Duration::from_secs(1),
            refresh: Some(Duration::ZERO),
            series: vec![series],
        }
    }

    fn response(ns: u64) -> Response {
        let at = Timestamp(ns as i64);
        let answer = Answer { answered_at: at, uptime: None, values: vec![Some(RawValue(ns))] };
        Response { due_at: at, requested_at: at, answer: Some(answer) }
    }

    /// Runs an archive writer with this flush interval until `work` is done; returns its warnings.
    fn run_writer(url: &str, flush: Duration, work: impl FnOnce(WriterTest)) -> Vec<String> {
        let (warnings, ended) = run_writer_to_end(url, flush, work);
        ended.unwrap();
        warnings
    }

    /// Also returns the result of the writer.
    fn run_writer_to_end(
        url: &str,
        flush: Duration,
        work: impl FnOnce(WriterTest),
    ) -> (Vec<String>, Result<(), trunkline_counters::archive::Error>) {
        let (sink, reports) = queue();
        let handled: &AtomicUsize = Box::leak(Box::default());
        let warnings: &Mutex<Vec<String>> = Box::leak(Box::default());
        let ended = thread::scope(|scope| {
            let running = scope.spawn(move || {
                let options = WriteOptions { flush, retention: Default::default() };
                let writer = ArchiveWriter::open(url, options, AnchoredClock::start()).unwrap();
                let observe = |_: &Report| {
                    handled.fetch_add(1, Ordering::Relaxed);
                };
                writer.run(&reports, observe, |line| warnings.lock().unwrap().push(line.into()))
            });
            work(WriterTest { sink, handled, warnings });
            running.join().unwrap()
        });
        (warnings.lock().unwrap().clone(), ended)
    }

    /// Returns the number of responses of the only table.
    fn rows(url: &str) -> usize {
        let found = Reader::open(url).and_then(|reader| {
            let tables = reader.tables(TableId(0), 1)?;
            let table = tables.first().map(|table| reader.responses(table.id, Timestamp(0), 10_000));
            Ok(table.transpose()?.map_or(0, |found| found.responses.len()))
        });
        found.unwrap_or_default()
    }

    /// Waits for a text of a key with this start time, and returns it.
    fn wait_for_text(url: &str, key: &str, since: i64) -> String {
        let mut found = String::new();
        within(SOON, key, || {
            let texts = Reader::open(url).and_then(|reader| reader.texts("sw1")).unwrap_or_default();
            let text = texts.into_iter().find(|text| text.key == key && text.since == Timestamp(since));
            text.map(|text| found = text.text).is_some()
        });
        found
    }

    #[test]
    fn texts_from_an_outage_are_stored_afterwards() {
        let Some(server) = Server::own("off") else { return };
        let url = server.database();
        let warnings = run_writer(&url, Duration::from_millis(50), |test| {
            test.put_text("up", 1);
            assert_eq!(wait_for_text(&url, "state", 1), "up");
            server.stop();
            test.put_text("up again", 2);
            test.put_text("down", 3);
            let fault = Some(trunkline_collector::snmp::Fault::Silent);
            let device = "sw1".into();
            test.put(Report::FaultChanged { device, table: "interfaces", fault, at: Timestamp(4) });
            test.put(Report::Texts { device: "sw1".into(), texts: Vec::new(), at: Timestamp(5) });
            test.wait_for_reports(5);
            test.wait_for_warning("is out of reach");
            server.restart();
            assert_eq!(wait_for_text(&url, "state", 3), "down");
            assert_eq!(wait_for_text(&url, "trouble with interfaces", 4), "no answer");
        });
        assert!(warnings.iter().any(|line| line.contains("is written again")), "{warnings:?}");
    }

    #[test]
    fn tables_that_change_during_an_outage_are_complete() {
        let Some(server) = Server::own("off") else { return };
        let url = server.database();
        let warnings = run_writer(&url, Duration::from_millis(50), |test| {
            test.poll(1, true);
            within(SOON, "a response", || rows(&url) == 1);
            server.stop();
            test.poll(2, false);
            test.poll_wider(3, true);
            test.poll_wider(4, false);
            test.poll(5, true);
            test.poll_wider(6, true);
            test.wait_for_reports(6);
            test.wait_for_warning("is out of reach");
            server.restart();
            test.wait_for_warning("is written again; 0 responses are missing");
            test.poll_wider(7, false);
        });
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        let reader = Reader::open(&url).unwrap();
        let table = reader.tables(TableId(0), 1).unwrap()[0].id;
        let found = reader.responses(table, Timestamp(0), 100).unwrap().responses;
        let values: Vec<Option<u64>> =
            found.iter().map(|(_, values)| values.get(1).copied().flatten().map(|raw| raw.0)).collect();
        assert_eq!(values, [None, None, Some(3), Some(4), None, Some(6), Some(7)]);
    }

    /// More responses than the writer buffers for a table, and a second table after them.
    #[test]
    fn a_long_outage_is_stored_afterwards() {
        let Some(server) = Server::own("off") else { return };
        let url = server.database();
        let warnings = run_writer(&url, Duration::from_millis(50), |test| {
            test.poll(1, true);
            within(SOON, "a response", || rows(&url) == 1);
            server.stop();
            (2..=1_500).for_each(|second| test.poll(second, false));
            (1_501..=1_600).for_each(|second| test.poll_wider(second, second == 1_501));
            test.wait_for_reports(1_600);
            test.wait_for_warning("is out of reach");
            server.restart();
            test.wait_for_warning("is written again; 0 responses are missing");
        });
        // A server that is starting is out of reach for another reason.
        let [before @ .., last] = &warnings[..] else { panic!("no warnings") };
        assert!(before.iter().all(|warning| warning.contains("is out of reach")), "{warnings:?}");
        assert!(before.len() <= 2 && last.contains("is written again"), "{warnings:?}");
        assert_eq!(rows(&url), 1_600);
    }

    #[test]
    fn losses_are_reported_at_the_end() {
        let Some(server) = Server::own("off") else { return };
        let url = server.database();
        let (warnings, ended) = run_writer_to_end(&url, Duration::from_millis(50), |test| {
            test.poll(1, true);
            within(SOON, "a response", || rows(&url) == 1);
            server.stop();
            test.poll(2, false);
            test.poll(3, false);
            test.poll_wider(4, true);
            test.put_text("down", 5);
        });
        assert!(ended.unwrap_err().to_string().contains("is out of reach"));
        assert_eq!(
            warnings[warnings.len() - 2..],
            ["3 responses are lost", "1 texts are lost"],
            "{warnings:?}"
        );
    }

    /// Independent of the number of devices, and no failure.
    #[test]
    fn another_writer_is_reported_in_one_line() {
        let Some(server) = server::server() else { return };
        let url = server.database();
        let first = Writer::open(&url).unwrap();
        let warnings = run_writer(&url, Duration::from_millis(50), |test| {
            for round in 0..3 {
                test.poll(1 + round, round == 0);
                for at in 0..40 {
                    let words = vec![DeviceText { object: String::new(), key: "state", text: "down".into() }];
                    let (device, at) = (format!("d{at}").as_str().into(), Timestamp(2 + round as i64));
                    test.put(Report::Texts { device, texts: words, at });
                }
            }
            test.wait_for_warning("is writing the archive");
        });
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(
            warnings[0].starts_with("another program is writing the archive postgres://"),
            "{warnings:?}"
        );
        assert!(first.pending_responses() == 0 && rows(&url) == 0);
    }

    #[test]
    fn a_standby_takes_over_with_the_latest_texts() {
        let Some(server) = server::server() else { return };
        let url = server.database();
        let first = Writer::open(&url).unwrap();
        first
            .put_texts("sw1", &[TextSpec { object: "port/1", key: "state", text: "up" }], Timestamp(1))
            .unwrap();
        run_writer(&url, Duration::from_millis(50), |test| {
            test.put_text("down", 2);
            test.poll(1, true);
            test.wait_for_warning("is writing the archive");
            drop(first);
            test.wait_for_warning("the archive is free: this program writes it now");
            test.poll(2, false);
            within(SOON, "a response", || rows(&url) == 1);
            assert_eq!(wait_for_text(&url, "state", 2), "down");
            // The earlier text does not reappear.
            test.put_text("up", 3);
            assert_eq!(wait_for_text(&url, "state", 3), "up");
        });
        assert_eq!(wait_for_text(&url, "state", 3), "up");
    }

    /// Another program takes the lock while the poller is disconnected, and writes other tables.
    #[test]
    fn a_short_writer_costs_the_poller_nothing() {
        let Some(server) = server::server() else { return };
        let url = server.database();
        let warnings = run_writer(&url, Duration::from_millis(50), |test| {
            test.poll(1, true);
            within(SOON, "a response", || rows(&url) == 1);
            let client = server.client(server::name(&url));
            let second = thread::scope(|scope| {
                let waiting = scope.spawn(|| {
                    let mut second = None;
                    within(SOON, "the lock", || {
                        second = Writer::open(&url).ok();
                        second.is_some()
                    });
                    second
                });
                within(SOON, "the lock to change hands", || {
                    client.batch(
                        "SELECT pg_terminate_backend(l.pid, 60000) FROM pg_locks l
                         WHERE l.locktype = 'advisory' AND l.granted AND EXISTS (SELECT FROM pg_locks w
                         WHERE w.locktype = 'advisory' AND NOT w.granted AND w.database = l.database)
                         AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())",
                    );
                    waiting.is_finished()
                });
                waiting.join().unwrap()
            });
            test.poll(2, false);
            test.poll_wider(3, true);
            test.wait_for_warning("is writing the archive");
            test.poll_wider(4, false);
            test.wait_for_reports(4);
            drop(second);
            test.wait_for_warning("is written again; 0 responses are missing");
        });
        assert_eq!((warnings.len(), rows(&url)), (2, 4), "{warnings:?}");
    }

    #[test]
    fn a_rejected_table_is_retried() {
        let Some(server) = server::server() else { return };
        let url = server.database();
        drop(Writer::open(&url).unwrap());
        let client = server.client(server::name(&url));
        client.batch("ALTER TABLE trunkline.tables ADD CONSTRAINT no CHECK (name <> 'flows')");
        run_writer(&url, Duration::from_millis(50), |test| {
            test.poll(1, true);
            test.wait_for_warning("violates check constraint");
            client.batch("ALTER TABLE trunkline.tables DROP CONSTRAINT no");
            test.poll(2, false);
        });
        let reader = Reader::open(&url).unwrap();
        let tables = reader.tables(TableId(0), 10).unwrap();
        assert_eq!(tables.len(), 1);
        assert_eq!(reader.responses(tables[0].id, Timestamp(0), 10).unwrap().responses.len(), 1);
    }

    /// Independent of the flush that detects the other writer.
    #[test]
    fn readings_left_out_because_of_another_writer_are_reported() {
        let Some(server) = server::server() else { return };
        for count in [3, 1_025] {
            let url = server.database();
            let warnings = run_writer(&url, Duration::from_secs(3_600), |test| {
                test.poll(1, true);
                within(SOON, "the table", || {
                    let tables = Reader::open(&url).and_then(|reader| reader.tables(TableId(0), 1));
                    tables.is_ok_and(|tables| !tables.is_empty())
                });
                test.poll(2, false);
                test.put(Report::Texts { device: "sw2".into(), texts: Vec::new(), at: Timestamp(0) });
                test.wait_for_reports(3);
                let mut second = Writer::standby(&url).unwrap();
                within(SOON, "the lock", || {
                    server.client(server::name(&url)).batch(
                        "SELECT pg_terminate_backend(l.pid, 60000) FROM pg_locks l
                         JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
                         WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ExclusiveLock'",
                    );
                    second.open_table(&spec()).is_ok()
                });
                let layout = second.open_table(&spec()).unwrap();
                second.append(layout.table, &response(2_500_000_000)).unwrap();
                second.flush().unwrap();
                drop(second);
                wait_for_free_archive(server, &url);
                (3..count).for_each(|second| test.poll(second, false));
                if count > 1_000 {
                    test.poll(count, false);
                    test.wait_for_warning("are discarded");
                }
            });
            let lines = warnings.iter().filter(|line| line.contains("`flows` of `sw1`")).count();
            assert_eq!(lines, 1, "{warnings:?}");
        }
    }
}

fn wait_for_free_archive(server: &Server, url: &str) {
    let client = server.client(server::name(url));
    let locks = "SELECT count(*) FROM pg_locks
        WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    within(SOON, "the archive to be free", || client.number(locks) == 0);
}

/// A capture with one packet per second, written to a pipe.
struct Feed {
    pipe: File,
    sent: u32,
}

impl Feed {
    fn open(path: &std::path::Path) -> Feed {
        let mut pipe = None;
        // Opening without a reader fails instead of blocking.
        within(SOON, "a reader of the pipe", || {
            let opened = OpenOptions::new().write(true).custom_flags(nix::libc::O_NONBLOCK).open(path);
            opened.map(|opened| pipe = Some(opened)).is_ok()
        });
        let mut feed = Feed { pipe: pipe.unwrap(), sent: 0 };
        let words = [0xa1b2_c3d4u32, 2 | 4 << 16, 0, 0, 65_535, 1];
        feed.write(&words.map(u32::to_le_bytes).concat());
        feed
    }

    fn write(&mut self, bytes: &[u8]) {
        within(SOON, "space in the pipe", || match self.pipe.write(bytes) {
            Ok(written) => {
                assert_eq!(written, bytes.len());
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                false
            }
        });
    }

    fn packet(&mut self) {
        let head = [1_700_000_000 + self.sent, 0, 42, 42].map(u32::to_le_bytes).concat();
        let ethernet = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        let ip = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let udp = [3, 232, 7, 208, 0, 8, 0, 0];
        self.write(&[&head[..], &ethernet, &ip, &udp].concat());
        self.sent += 1;
    }
}

/// The outage is longer than samples can be buffered.
#[test]
fn a_capture_survives_an_outage_of_the_server() {
    let Some(server) = Server::own("off") else { return };
    let url = server.database();
    drop(trunkline_counters::archive::Writer::open(&url).unwrap());
    let dir = TestDir::new();
    let pipe = dir.path("wire.pcap");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let capture = ["monitor", "capture", "wire.pcap", "--archive", &url, "--interval", "1s", "--device", "d"];
    let running = Running::start(dir.trunkline(&capture));
    let mut feed = Feed::open(&pipe);
    let responses = |server: &Server| {
        let sum = "SELECT (coalesce((SELECT sum(rows) FROM trunkline.tails), 0)
            + coalesce((SELECT sum(rows) FROM trunkline.chunks), 0))::bigint";
        server.client(server::name(&url)).number(sum)
    };
    (0..5).for_each(|_| feed.packet());
    within(SOON, "samples", || responses(&server) >= 4);
    server.stop();
    // Pipes buffer at most twice 64 KiB of this, which are 2,260 packets.
    (0..5_000).for_each(|_| feed.packet());
    server.restart();
    within(SOON, "samples of the outage", || {
        feed.packet();
        responses(&server) > 1_000
    });
    let sent = feed.sent;
    drop(feed);
    let ended = running.end();
    assert_eq!((ended.status, ended.err.lines().count()), (0, 1), "{}", ended.err);
    assert!(ended.err.contains("is out of reach"), "{}", ended.err);
    assert!(ended.out.starts_with(&format!("{sent} packets, ")), "{}", ended.out);
    let series = ["--series", "d:flow/*/out/packets"];
    let text = well(&dir, &[&["monitor", "export", "--archive", &url], &series[..]].concat());
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let rows: Vec<BTreeMap<String, String>> = reader.deserialize().map(|row| row.unwrap()).collect();
    assert_eq!(sum(&rows, "grew"), u64::from(sent), "flows continue");
}

/// Closes the connection of an idle capture and writes to its table.
#[test]
fn readings_that_a_capture_loses_to_another_writer_are_reported() {
    use trunkline_counters::archive::{SeriesSpec, TableSpec, Writer};
    use trunkline_counters::counter::{Answer, RawValue, Response, Timestamp, ValueKind};
    let Some(server) = server::server() else { return };
    let url = server.database();
    drop(Writer::open(&url).unwrap());
    let dir = TestDir::new();
    let pipe = dir.path("wire.pcap");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let capture = ["monitor", "capture", "wire.pcap", "--archive", &url, "--interval", "1s", "--device", "d"];
    let running = Running::start(dir.trunkline(&capture));
    let mut feed = Feed::open(&pipe);
    let client = server.client(server::name(&url));
    let rows = || client.number("SELECT coalesce(sum(rows), 0)::bigint FROM trunkline.tails");
    (0..5).for_each(|_| feed.packet());
    // A reading of 0 for the capture and one for the flow, and four samples.
    within(SOON, "samples", || rows() >= 6);
    let series = SeriesSpec {
        name: "flow/other/octets".into(),
        kind: ValueKind::Counter64,
        unit: "octets".into(),
        ceiling: None,
        discontinuity: None,
    };
    let spec = TableSpec {
        device: "d".into(),
        name: "flows wire.pcap".into(),
        period: Duration::from_secs(1),
        refresh: Some(Duration::ZERO),
        series: vec![series],
    };
    let mut second = Writer::standby(&url).unwrap();
    client.batch(
        "SELECT pg_terminate_backend(l.pid, 60000) FROM pg_locks l
         JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
         WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ExclusiveLock'",
    );
    let table = second.open_table(&spec).unwrap().table;
    let at = Timestamp(1_700_000_004_500_000_000);
    let answer = Answer { answered_at: at, uptime: None, values: vec![Some(RawValue(0))] };
    second.append(table, &Response { due_at: at, requested_at: at, answer: Some(answer) }).unwrap();
    second.flush().unwrap();
    drop(second);
    wait_for_free_archive(server, &url);
    (0..5).for_each(|_| feed.packet());
    drop(feed);
    let ended = running.end();
    assert_eq!(ended.status, 0, "{}", ended.err);
    let lines: Vec<&str> = ended.err.lines().filter(|line| line.contains("are discarded")).collect();
    assert!(matches!(lines[..], [line] if line.contains("`flows wire.pcap` of `d`")), "{}", ended.err);
}
