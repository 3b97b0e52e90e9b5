//! Databases that are away for a while, and what those who write and read them do then.

#![allow(clippy::disallowed_methods, reason = "these tests watch programs that run in real time")]

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use super::command::{Running, within};
use super::postgres::server::{self, Server};
use super::*;

const SOON: Duration = Duration::from_secs(100);

/// What a poller keeps.
#[cfg(feature = "snmp")]
mod keeper {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use trunkline_collector::poll::report::{Report, Sink, Word, queue};
    use trunkline_collector::poll::{Keeper, Keeping, Time};
    use trunkline_counters::archive::{Reader, Said, SeriesSpec, TableId, TableSpec, Writer};
    use trunkline_counters::counter::{Answer, Kind, Moment, Raw, Response};

    use super::*;

    /// A keeper at work.
    struct Desk {
        sink: Sink,
        seen: &'static AtomicUsize,
        told: &'static Mutex<Vec<String>>,
    }

    impl Desk {
        fn put(&self, report: Report) {
            assert!(self.sink.put(report));
        }

        fn say(&self, text: &str, at: i64) {
            let words = vec![Word { object: "port/1".into(), key: "state", text: text.into() }];
            self.put(Report::Words { device: "sw1".into(), words, at: Moment(at) });
        }

        /// The response of a second, with the table's description if it is new.
        fn poll(&self, second: u64, new: bool) {
            let spec = new.then(|| spec().into());
            self.put(Report::Polled { table: 0, spec, response: response(second * 1_000_000_000) });
        }

        /// The response of a second of a table that has one more series from then on.
        fn poll_wider(&self, second: u64, new: bool) {
            let mut wider = spec();
            wider.series.push(SeriesSpec { name: "y".into(), ..wider.series[0].clone() });
            let mut response = response(second * 1_000_000_000);
            response.answer.as_mut().unwrap().values.push(Some(Raw(second)));
            self.put(Report::Polled { table: 0, spec: new.then(|| wider.into()), response });
        }

        fn until_told(&self, words: &str) {
            within(SOON, words, || self.told.lock().unwrap().iter().any(|line| line.contains(words)));
        }

        /// Until so many reports were taken, but perhaps for the last.
        fn until_seen(&self, count: usize) {
            within(SOON, "reports to be taken", || self.seen.load(Ordering::Relaxed) >= count);
        }
    }

    fn spec() -> TableSpec {
        let series = SeriesSpec {
            name: "x".into(),
            kind: Kind::Counter64,
            unit: "octets".into(),
            ceiling: None,
            mark: None,
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
        let at = Moment(ns as i64);
        let answer = Answer { answered: at, uptime: None, values: vec![Some(Raw(ns))] };
        Response { due: at, asked: at, answer: Some(answer) }
    }

    /// What is told of a keeper that flushes so often, until `work` is done and it has ended well.
    fn keep(url: &str, flush: Duration, work: impl FnOnce(Desk)) -> Vec<String> {
        let (told, ended) = kept(url, flush, work);
        ended.unwrap();
        told
    }

    /// How it ends as well.
    fn kept(
        url: &str,
        flush: Duration,
        work: impl FnOnce(Desk),
    ) -> (Vec<String>, Result<(), trunkline_counters::archive::Error>) {
        let (sink, reports) = queue();
        let seen: &AtomicUsize = Box::leak(Box::default());
        let told: &Mutex<Vec<String>> = Box::leak(Box::default());
        let ended = thread::scope(|scope| {
            let running = scope.spawn(move || {
                let keeping = Keeping { flush, retention: Default::default() };
                let keeper = Keeper::open(url, keeping, Time::start()).unwrap();
                let see = |_: &Report| {
                    seen.fetch_add(1, Ordering::Relaxed);
                };
                keeper.run(&reports, see, |line| told.lock().unwrap().push(line.into()))
            });
            work(Desk { sink, seen, told });
            running.join().unwrap()
        });
        (told.lock().unwrap().clone(), ended)
    }

    /// How many responses there are of the table, which is the only one.
    fn rows(url: &str) -> usize {
        let found = Reader::open(url).and_then(|reader| {
            let tables = reader.tables(TableId(0), 1)?;
            let table = tables.first().map(|table| reader.responses(table.id, Moment(0), 10_000));
            Ok(table.transpose()?.map_or(0, |found| found.responses.len()))
        });
        found.unwrap_or_default()
    }

    /// The text of a key and since when, as soon as there is one of that moment.
    fn until_said(url: &str, key: &str, since: i64) -> String {
        let mut found = String::new();
        within(SOON, key, || {
            let texts = Reader::open(url).and_then(|reader| reader.texts("sw1")).unwrap_or_default();
            let text = texts.into_iter().find(|text| text.key == key && text.since == Moment(since));
            text.map(|text| found = text.text).is_some()
        });
        found
    }

    #[test]
    fn words_that_came_while_it_was_away_are_there_afterwards() {
        if server::server().is_none() {
            return;
        }
        let server = Server::start("off").unwrap();
        let url = server.database();
        let told = keep(&url, Duration::from_millis(50), |desk| {
            desk.say("up", 1);
            assert_eq!(until_said(&url, "state", 1), "up");
            server.stop();
            desk.say("up again", 2);
            desk.say("down", 3);
            let fault = Some(trunkline_collector::snmp::Fault::Silent);
            let device = "sw1".into();
            desk.put(Report::Trouble { device, table: "interfaces", fault, at: Moment(4) });
            desk.put(Report::Words { device: "sw1".into(), words: Vec::new(), at: Moment(5) });
            desk.until_seen(5);
            desk.until_told("is out of reach");
            server.restart();
            assert_eq!(until_said(&url, "state", 3), "down");
            assert_eq!(until_said(&url, "trouble with interfaces", 4), "no answer");
        });
        assert!(told.iter().any(|line| line.contains("is written again")), "{told:?}");
    }

    #[test]
    fn a_table_that_changes_while_it_was_away_has_all_afterwards() {
        if server::server().is_none() {
            return;
        }
        let server = Server::start("off").unwrap();
        let url = server.database();
        let told = keep(&url, Duration::from_millis(50), |desk| {
            desk.poll(1, true);
            within(SOON, "a response", || rows(&url) == 1);
            server.stop();
            desk.poll(2, false);
            desk.poll_wider(3, true);
            desk.poll_wider(4, false);
            desk.poll(5, true);
            desk.poll_wider(6, true);
            desk.until_seen(6);
            desk.until_told("is out of reach");
            server.restart();
            desk.until_told("is written again; 0 responses are missing");
            desk.poll_wider(7, false);
        });
        assert_eq!(told.len(), 2, "{told:?}");
        let reader = Reader::open(&url).unwrap();
        let table = reader.tables(TableId(0), 1).unwrap()[0].id;
        let found = reader.responses(table, Moment(0), 100).unwrap().responses;
        let values: Vec<Option<u64>> =
            found.iter().map(|(_, values)| values.get(1).copied().flatten().map(|raw| raw.0)).collect();
        assert_eq!(values, [None, None, Some(3), Some(4), None, Some(6), Some(7)]);
    }

    #[test]
    fn how_much_is_lost_is_told_at_the_end() {
        if server::server().is_none() {
            return;
        }
        let server = Server::start("off").unwrap();
        let url = server.database();
        let (told, ended) = kept(&url, Duration::from_millis(50), |desk| {
            desk.poll(1, true);
            within(SOON, "a response", || rows(&url) == 1);
            server.stop();
            desk.poll(2, false);
            desk.poll(3, false);
            desk.poll_wider(4, true);
            desk.say("down", 5);
        });
        assert!(ended.unwrap_err().to_string().contains("is out of reach"));
        assert_eq!(told[told.len() - 2..], ["3 responses are lost", "1 texts are lost"], "{told:?}");
    }

    /// However many devices a poller stands by for.
    #[test]
    fn who_writes_many_devices_is_told_in_few_lines() {
        let Some(server) = server::server() else { return };
        let url = server.database();
        let first = Writer::open(&url).unwrap();
        let name = |at: usize| format!("d{at}");
        let texts = [Said { object: "", key: "state", text: "up" }];
        (0..40).for_each(|at| first.tell(&name(at), &texts, Moment(1)).unwrap());
        let told = keep(&url, Duration::from_secs(3_600), |desk| {
            for round in 0..3 {
                for at in 0..40 {
                    let words = vec![Word { object: String::new(), key: "state", text: "down".into() }];
                    let (device, at) = (name(at).as_str().into(), Moment(2 + round));
                    desk.put(Report::Words { device, words, at });
                }
            }
        });
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("another program writes `d0` in the archive"), "{told:?}");
        assert!(told[1].starts_with("another program writes 40 devices, `d0` and others: "), "{told:?}");
    }

    #[test]
    fn words_of_a_device_that_is_taken_wait_until_it_is_free() {
        let Some(server) = server::server() else { return };
        let url = server.database();
        let first = Writer::open(&url).unwrap();
        first.tell("sw1", &[Said { object: "port/1", key: "state", text: "up" }], Moment(1)).unwrap();
        keep(&url, Duration::from_millis(50), |desk| {
            desk.say("down", 2);
            desk.until_told("another program writes `sw1`");
            drop(first);
            assert_eq!(until_said(&url, "state", 2), "down");
            // What was said of it before does not come back.
            desk.say("up", 3);
            assert_eq!(until_said(&url, "state", 3), "up");
        });
        assert_eq!(until_said(&url, "state", 3), "up");
    }

    #[test]
    fn a_table_that_is_refused_is_tried_again() {
        let Some(server) = server::server() else { return };
        let url = server.database();
        drop(Writer::open(&url).unwrap());
        let client = server.client(server::name(&url));
        client.batch("ALTER TABLE trunkline.tables ADD CONSTRAINT no CHECK (name <> 'flows')");
        keep(&url, Duration::from_millis(50), |desk| {
            desk.poll(1, true);
            desk.until_told("violates check constraint");
            client.batch("ALTER TABLE trunkline.tables DROP CONSTRAINT no");
            desk.poll(2, false);
        });
        let reader = Reader::open(&url).unwrap();
        let tables = reader.tables(TableId(0), 10).unwrap();
        assert_eq!(tables.len(), 1);
        assert_eq!(reader.responses(tables[0].id, Moment(0), 10).unwrap().responses.len(), 1);
    }

    /// Whichever flush finds out.
    #[test]
    fn what_is_left_out_because_of_another_writer_is_told() {
        let Some(server) = server::server() else { return };
        for count in [3, 1_025] {
            let url = server.database();
            let told = keep(&url, Duration::from_secs(3_600), |desk| {
                desk.poll(1, true);
                within(SOON, "the table", || {
                    let tables = Reader::open(&url).and_then(|reader| reader.tables(TableId(0), 1));
                    tables.is_ok_and(|tables| !tables.is_empty())
                });
                desk.poll(2, false);
                desk.put(Report::Words { device: "sw2".into(), words: Vec::new(), at: Moment(0) });
                desk.until_seen(3);
                let mut second = Writer::open(&url).unwrap();
                within(SOON, "the device", || {
                    server.client(server::name(&url)).batch(
                        "SELECT pg_terminate_backend(l.pid, 60000) FROM pg_locks l
                         JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
                         WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ExclusiveLock'",
                    );
                    second.table(&spec()).is_ok()
                });
                let layout = second.table(&spec()).unwrap();
                second.append(layout.table, &response(2_500_000_000)).unwrap();
                second.flush().unwrap();
                drop(second);
                (3..count).for_each(|second| desk.poll(second, false));
                if count > 1_000 {
                    desk.poll(count, false);
                    desk.until_told("are left out");
                }
            });
            let lines = told.iter().filter(|line| line.contains("`flows` of `sw1`")).count();
            assert_eq!(lines, 1, "{told:?}");
        }
    }
}

/// A capture of a packet a second through a pipe.
struct Feed {
    pipe: File,
    sent: u32,
}

impl Feed {
    fn open(path: &std::path::Path) -> Feed {
        let mut pipe = None;
        // Nobody waits for a program that has ended.
        within(SOON, "somebody who reads", || {
            let opened = OpenOptions::new().write(true).custom_flags(nix::libc::O_NONBLOCK).open(path);
            opened.map(|opened| pipe = Some(opened)).is_ok()
        });
        let mut feed = Feed { pipe: pipe.unwrap(), sent: 0 };
        let words = [0xa1b2_c3d4u32, 2 | 4 << 16, 0, 0, 65_535, 1];
        feed.write(&words.map(u32::to_le_bytes).concat());
        feed
    }

    fn write(&mut self, bytes: &[u8]) {
        within(SOON, "room in the pipe", || match self.pipe.write(bytes) {
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

/// Longer than samples can wait.
#[test]
fn a_capture_outlives_its_server() {
    if server::server().is_none() {
        return;
    }
    let server = Server::start("off").unwrap();
    let url = server.database();
    drop(trunkline_counters::archive::Writer::open(&url).unwrap());
    let desk = Desk::new();
    let pipe = desk.path("wire.pcap");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let capture = ["monitor", "capture", "wire.pcap", "--archive", &url, "--every", "1s", "--device", "d"];
    let running = Running::start(desk.trunkline(&capture));
    let mut feed = Feed::open(&pipe);
    let responses = |server: &Server| {
        let sum = "SELECT (coalesce((SELECT sum(rows) FROM trunkline.tails), 0)
            + coalesce((SELECT sum(rows) FROM trunkline.chunks), 0))::bigint";
        server.client(server::name(&url)).number(sum)
    };
    (0..5).for_each(|_| feed.packet());
    within(SOON, "samples", || responses(&server) >= 4);
    server.stop();
    // At most two times 64 KiB of this wait on the way, which are 2,260 packets.
    (0..5_000).for_each(|_| feed.packet());
    server.restart();
    within(SOON, "samples of the time that it was away", || {
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
    let text = well(&desk, &[&["monitor", "export", &url, "--csv", "-"], &series[..]].concat());
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let rows: Vec<BTreeMap<String, String>> = reader.deserialize().map(|row| row.unwrap()).collect();
    assert_eq!(sum(&rows, "grew"), u64::from(sent), "flows count on");
}

/// Ends the connection of a capture while nothing comes, and writes its table.
#[test]
fn what_a_capture_loses_to_another_writer_is_told() {
    use trunkline_counters::archive::{SeriesSpec, TableSpec, Writer};
    use trunkline_counters::counter::{Answer, Kind, Moment, Raw, Response};
    let Some(server) = server::server() else { return };
    let url = server.database();
    drop(Writer::open(&url).unwrap());
    let desk = Desk::new();
    let pipe = desk.path("wire.pcap");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let capture = ["monitor", "capture", "wire.pcap", "--archive", &url, "--every", "1s", "--device", "d"];
    let running = Running::start(desk.trunkline(&capture));
    let mut feed = Feed::open(&pipe);
    let client = server.client(server::name(&url));
    let rows = || client.number("SELECT coalesce(sum(rows), 0)::bigint FROM trunkline.tails");
    (0..5).for_each(|_| feed.packet());
    // A reading of 0 for the capture and one for the flow, and four samples.
    within(SOON, "samples", || rows() >= 6);
    let series = SeriesSpec {
        name: "flow/other/octets".into(),
        kind: Kind::Counter64,
        unit: "octets".into(),
        ceiling: None,
        mark: None,
    };
    let spec = TableSpec {
        device: "d".into(),
        name: "flows wire.pcap".into(),
        period: Duration::from_secs(1),
        refresh: Some(Duration::ZERO),
        series: vec![series],
    };
    let mut second = Writer::open(&url).unwrap();
    client.batch(
        "SELECT pg_terminate_backend(l.pid, 60000) FROM pg_locks l
         JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
         WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ExclusiveLock'",
    );
    let table = second.table(&spec).unwrap().table;
    let at = Moment(1_700_000_004_500_000_000);
    let answer = Answer { answered: at, uptime: None, values: vec![Some(Raw(0))] };
    second.append(table, &Response { due: at, asked: at, answer: Some(answer) }).unwrap();
    second.flush().unwrap();
    drop(second);
    let free = "SELECT count(*) FROM pg_locks
        WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    within(SOON, "the device to be free", || client.number(free) == 0);
    (0..5).for_each(|_| feed.packet());
    drop(feed);
    let ended = running.end();
    assert_eq!(ended.status, 0, "{}", ended.err);
    let lines: Vec<&str> = ended.err.lines().filter(|line| line.contains("are left out")).collect();
    assert!(matches!(lines[..], [line] if line.contains("`flows wire.pcap` of `d`")), "{}", ended.err);
}
