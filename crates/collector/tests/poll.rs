//! Runs the collector against well-behaved, faulty and silent agents, and reads the archives.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use trunkline_collector::poll::report::{Closed, Report, ReportReceiver, queue};
use trunkline_collector::poll::{AnchoredClock, ArchiveWriter, Collector, Config, Stop, WriteOptions};
use trunkline_collector::snmp::Fault;
use trunkline_counters::archive::{Reader, SeriesInfo, TableId, TableSpec};
use trunkline_counters::counter::{Event, EventSet, Timestamp, ValueKind};

mod agent;

use agent::{Agents, Behavior, Objects, Value, grow, if_x_column, switch};

/// Longer than any wait in these tests, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A collector on its own thread, and its reports.
struct RunningCollector {
    stop: Stop,
    thread: Option<thread::JoinHandle<()>>,
    reports: ReportReceiver,
    specs: BTreeMap<usize, Arc<TableSpec>>,
    time: AnchoredClock,
}

/// The values of one poll of a table, by series name.
type Polled = BTreeMap<String, Option<u64>>;

enum Item {
    Polled(String, Option<Polled>),
    Text(String, &'static str, String),
    Fault(Option<Fault>),
}

impl RunningCollector {
    fn start(text: &str) -> RunningCollector {
        let config = Config::parse(text, std::path::Path::new("")).unwrap();
        let time = AnchoredClock::start();
        let (sink, reports) = queue();
        let (collector, stop) = Collector::new(config, time, sink);
        let thread = Some(thread::spawn(move || collector.run(false).unwrap()));
        RunningCollector { stop, thread, reports, specs: BTreeMap::new(), time }
    }

    fn next(&mut self) -> Vec<Item> {
        let report = self.reports.receive(LIMIT).unwrap().expect("a report in time");
        match report {
            Report::Polled { table, spec, response } => {
                if let Some(spec) = spec {
                    self.specs.insert(table, spec);
                }
                let spec = &self.specs[&table];
                let values = response.answer.map(|answer| {
                    assert!(
                        answer.answered_at >= response.requested_at
                            && response.requested_at >= response.due_at
                    );
                    assert_eq!(answer.values.len(), spec.series.len());
                    let named = spec.series.iter().zip(answer.values);
                    named.map(|(s, v)| (s.name.clone(), v.map(|v| v.0))).collect()
                });
                vec![Item::Polled(spec.name.clone(), values)]
            }
            Report::Texts { texts, .. } => {
                texts.into_iter().map(|t| Item::Text(t.object, t.key, t.text)).collect()
            }
            Report::FaultChanged { fault, .. } => vec![Item::Fault(fault)],
        }
    }

    /// Waits for an item that `select` accepts.
    fn until<T>(&mut self, mut select: impl FnMut(Item) -> Option<T>) -> T {
        let started_at = self.time.now();
        while self.time.now().duration_since(started_at) < LIMIT {
            if let Some(found) = self.next().into_iter().find_map(&mut select) {
                return found;
            }
        }
        panic!("no matching report within {LIMIT:?}");
    }

    fn polled(&mut self, table: &str) -> Polled {
        self.until(|item| match item {
            Item::Polled(name, Some(values)) if name == table => Some(values),
            _ => None,
        })
    }

    fn fault(&mut self) -> Option<Fault> {
        self.until(|item| match item {
            Item::Fault(fault) => Some(fault),
            _ => None,
        })
    }

    fn text(&mut self, object: &str, key: &str) -> String {
        self.until(|item| match item {
            Item::Text(of, text_key, text) if of == object && text_key == key => Some(text),
            _ => None,
        })
    }
}

impl Drop for RunningCollector {
    fn drop(&mut self) {
        self.stop.stop();
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

fn device(agents: &Agents, more: &str) -> String {
    format!(
        "period = '200ms'\ntimeout = '100ms'\nretries = 1\n[[credentials]]\nname = 'c'\ncommunity = 'public'
        [[device]]\nname = 'sw'\naddress = '{}'\ncredentials = 'c'\n{more}\n",
        agents.at[0]
    )
}

/// A device with a timeout so long that only the next poll ends a poll, even if a thread is starved.
fn device_with_long_timeout(agents: &Agents, more: &str) -> String {
    device(agents, more).replace("'100ms'", "'10s'")
}

#[test]
fn ports_are_identified_by_name_and_described_by_texts() {
    let agents = Agents::one(switch(50));
    let mut work = RunningCollector::start(&device_with_long_timeout(&agents, ""));
    assert_eq!(work.text("", "name"), "sw");
    let first = work.polled("interfaces");
    assert_eq!(first.len(), 50 * 13);
    assert_eq!(first["port/eth7/in/octets"], Some(7_006));
    assert_eq!(first["port/eth50/out/errors"], Some(50_020));
    assert_eq!(first["port/eth50/speed"], Some(1_000_000_000));
    let spec = work.specs.values().find(|s| s.name == "interfaces").unwrap().clone();
    let octets = spec.series.iter().find(|s| s.name == "port/eth1/in/octets").unwrap();
    assert_eq!(octets.discontinuity.as_deref(), Some("port/eth1/discontinuity"));
    assert!(octets.ceiling.is_some_and(|most| most >= 125_000_000));
    // A later poll needs few requests: 50 ports of 17 columns, two ports per datagram, and the end.
    let before = agents.requests.load(std::sync::atomic::Ordering::Relaxed);
    work.polled("interfaces");
    let after = agents.requests.load(std::sync::atomic::Ordering::Relaxed);
    assert!(after - before < 60, "{}", after - before);
}

#[test]
fn a_port_without_64_bit_counters_uses_32_bit_counters() {
    let mut objects = switch(2);
    objects.retain(|object, _| {
        !(object.starts_with(&if_x_column(6, 2)[..10])
            && object[10] < 14
            && object[10] > 1
            && object[11] == 2)
    });
    let agents = Agents::one(objects);
    let mut work = RunningCollector::start(&device_with_long_timeout(&agents, ""));
    assert_eq!(work.polled("unicast")["port/eth2/out/unicast-packets"], Some(2_017));
    let polled = work.polled("interfaces");
    assert_eq!(polled["port/eth2/in/octets"], Some(2_010));
    assert_eq!(polled["port/eth2/in/multicast-packets"], None);
    assert_eq!(polled["port/eth1/in/octets"], Some(1_006));
    let spec = work.specs.values().find(|s| s.name == "interfaces").unwrap().clone();
    let series = |name: &str| spec.series.iter().find(|s| s.name == name).unwrap();
    assert_eq!(series("port/eth1/in/octets").kind, ValueKind::Counter64);
    // The speed bounds the increase of a 32-bit counter between two polls.
    let octets = series("port/eth2/in/octets");
    assert_eq!((octets.kind, octets.ceiling), (ValueKind::Counter32, Some(125_000_000)));
}

#[test]
fn a_known_exact_speed_survives_answers_in_megabits() {
    let agents = Agents::one(atm());
    let mut work = RunningCollector::start(&device_with_long_timeout(&agents, ""));
    // The first answer has 32-bit counters and `ifSpeed`; later ones have neither.
    let speeds = [(); 3].map(|()| work.polled("interfaces")["port/eth1/speed"]);
    assert_eq!(speeds, [Some(155_520_000); 3]);
    agents.set(0, |state| state.objects.extend([(if_x_column(15, 1), Value::Gauge(622))]));
    while work.polled("interfaces")["port/eth1/speed"] != Some(622_000_000) {}
}

#[test]
fn a_renumbered_port_keeps_its_series_and_ports_appear_and_disappear() {
    let agents = Agents::one(switch(3));
    let mut work = RunningCollector::start(&device_with_long_timeout(&agents, ""));
    while work.polled("interfaces").len() != 39 {}
    agents.set(0, |state| {
        // The device restarts without its second port, so the third port takes its number.
        state.objects = switch(2);
        state.objects.insert(agent::UPTIME.to_vec(), Value::Ticks(5));
        state.objects.insert(if_x_column(1, 2), Value::Text(b"eth3".to_vec()));
    });
    let moved = loop {
        let polled = work.polled("interfaces");
        if polled["port/eth2/in/octets"].is_none() {
            break polled;
        }
    };
    assert_eq!(moved["port/eth3/in/octets"], Some(2_006));
    assert_eq!(work.text("port/eth2", "state"), "gone");
    agents.set(0, |state| state.objects.extend(switch(4).into_iter().filter(|(o, _)| o.last() == Some(&4))));
    assert_eq!(work.text("port/eth4", "description"), "port number 4");
    while work.polled("interfaces").len() != 52 {}
}

#[test]
fn unusual_names_are_distinct_and_limited() {
    let mut objects = switch(6);
    for (port, name) in [(1, "a/b\n\x1b[31m%"), (2, ""), (3, "same"), (4, "same"), (5, "\u{202e}x")] {
        objects.insert(if_x_column(1, port), Value::Text(name.as_bytes().to_vec()));
    }
    objects.insert(if_x_column(1, 6), Value::Text([vec![0xff; 300], vec![b'y'; 40]].concat()));
    let agents = Agents::one(objects);
    let mut work = RunningCollector::start(&device_with_long_timeout(&agents, ""));
    let polled = work.polled("interfaces");
    for name in ["a%2Fb%0A%1B[31m%25", "port number 2", "same", "same#4", "\u{202e}x"] {
        assert!(polled[&format!("port/{name}/in/octets")].is_some(), "{name}");
    }
    assert_eq!(polled.len(), 6 * 13);
    assert!(polled.keys().all(|name| name.len() < 300 && !name.chars().any(char::is_control)));
}

#[test]
fn each_misbehavior_is_one_fault() {
    let agents = Agents::one(switch(4));
    let mut work = RunningCollector::start(&device(&agents, "rows = 100"));
    work.polled("interfaces");
    for (behavior, expected) in [
        (Behavior::Dead, "silent"),
        (Behavior::OtherNumber, "stray"),
        (Behavior::Elsewhere, "stray"),
        (Behavior::Garbage, "garbage"),
        (Behavior::Circle, "order"),
        (Behavior::Endless, "rows"),
        (Behavior::Status(16), "status"),
        (Behavior::TooBig(0), "too-big"),
        (Behavior::Cut(1), "too-big"),
    ] {
        agents.set(0, |state| state.behavior = behavior);
        // On a busy machine, a late answer can cause another fault first.
        while work.fault().is_none_or(|fault| fault.name() != expected) {}
        agents.set(0, |state| state.behavior = Behavior::Good);
        while work.fault().is_some() {}
    }
    // Smaller requests, truncated and fragmented answers are no faults.
    for behavior in [Behavior::TooBig(9), Behavior::Cut(9), Behavior::Huge] {
        agents.set(0, |state| state.behavior = behavior);
        work.polled("interfaces");
        work.until(|item| match item {
            Item::Polled(name, Some(values)) if name == "interfaces" => {
                values["port/eth1/in/octets"].map(|_| ())
            }
            _ => None,
        });
        agents.set(0, |state| state.behavior = Behavior::Good);
    }
}

#[test]
fn damaged_answers_do_no_harm() {
    let agents = Agents::one(switch(4));
    let mut work = RunningCollector::start(&device(&agents, "rows = 100\nperiod = '100ms'"));
    work.polled("interfaces");
    agents.set(0, |state| state.behavior = Behavior::Damaged);
    wait_for_requests(&agents, 100);
    agents.set(0, |state| state.behavior = Behavior::Good);
    work.until(|item| match item {
        Item::Polled(name, Some(values)) if name == "interfaces" => {
            let whole = (1..=4).all(|port| values[&format!("port/eth{port}/out/octets")].is_some());
            assert!(values.len() <= 13 * 1_260);
            whole.then_some(())
        }
        _ => None,
    });
}

/// An archive opened for reading.
struct StoredArchive {
    reader: Reader,
    series: BTreeMap<String, SeriesInfo>,
    tables: BTreeMap<String, TableId>,
}

/// Records a configuration into an archive until `done` returns.
fn record(text: &str, folder: &std::path::Path, done: impl FnOnce() + Send) -> StoredArchive {
    let config = Config::parse(text, folder).unwrap();
    let path = folder.join("archive");
    let options = WriteOptions { flush: Duration::from_millis(100), retention: config.retention };
    let time = AnchoredClock::start();
    let writer = ArchiveWriter::open(&path, options, time).unwrap();
    let (sink, reports) = queue();
    let (collector, stop) = Collector::new(config, time, sink);
    thread::scope(|scope| {
        scope.spawn(move || collector.run(false).unwrap());
        scope.spawn(move || {
            done();
            stop.stop();
        });
        writer.run(&reports, |_| {}, |fault_text| panic!("{fault_text}")).unwrap();
    });
    let reader = Reader::open(&path).unwrap();
    let (mut series, mut tables) = (BTreeMap::new(), BTreeMap::new());
    for table in reader.tables(TableId(0), 100).unwrap() {
        series.extend(reader.series(table.id).unwrap().into_iter().map(|s| (s.name.clone(), s)));
        tables.insert(table.name, table.id);
    }
    StoredArchive { reader, series, tables }
}

impl StoredArchive {
    fn total(&self, name: &str) -> (i128, EventSet) {
        let view = self.reader.view(self.series[name].id, Timestamp(0), Timestamp::MAX, 1).unwrap();
        (view.buckets.buckets[0].sum, view.buckets.buckets[0].events)
    }
}

/// Waits until `more` further requests have arrived.
fn wait_for_requests(agents: &Agents, more: u64) {
    let count = || agents.requests.load(std::sync::atomic::Ordering::Relaxed);
    let goal = count() + more;
    for _ in 0..12_000 {
        if count() >= goal {
            return;
        }
        thread::park_timeout(Duration::from_millis(5));
    }
    panic!("no requests arrive");
}

fn atm() -> Objects {
    let mut objects = switch(1);
    objects.insert(if_x_column(15, 1), Value::Gauge(155));
    objects.insert(vec![1, 3, 6, 1, 2, 1, 2, 2, 1, 5, 1], Value::Gauge(155_520_000));
    for column in 1..=7 {
        let start = if column == 1 { u32::MAX - 1_000 } else { column };
        for vci in [33, 40_000] {
            let vcl = vec![1, 3, 6, 1, 2, 1, 37, 1, 14, 1, 11, 1, column, 1, 0, vci];
            objects.insert(vcl, Value::Counter32(start));
        }
        objects.insert(vec![1, 3, 6, 1, 2, 1, 37, 1, 14, 1, 9, 1, column, 1, 7], Value::Counter32(start));
    }
    for column in 3..=5 {
        objects.insert(vec![1, 3, 6, 1, 2, 1, 37, 1, 12, 1, column, 1, 0, 33], Value::Counter32(column));
    }
    objects.insert(vec![1, 3, 6, 1, 4, 1, 9, 3, 7], Value::Counter32(u32::MAX - 1_000));
    objects.insert(vec![1, 3, 6, 1, 4, 1, 9, 1], Value::Gauge(41));
    objects.insert(vec![1, 3, 6, 1, 4, 1, 9, 2, 1], Value::Text(b" 0.25".to_vec()));
    objects.insert(vec![1, 3, 6, 1, 4, 1, 9, 2, 2], Value::Counter64(5));
    objects
}

#[test]
fn cells_and_other_objects_are_stored_and_wraps_are_events() {
    let agents = Agents::one(atm());
    let folder = tempfile::tempdir().unwrap();
    let more = "ask = ['channels', 'paths', 'aal5']\ncache = '0s'\nobject = [
        { name = 'load', oid = '1.3.6.1.4.1.9.1' }, { name = 'nothing', oid = '1.3.6.1.4.1.9.7.0' },
        { name = 'rows', oid = '1.3.6.1.4.1.9.2', walk = true, unit = 'things' },
        { name = 'bounded', oid = '1.3.6.1.4.1.9.3', walk = true, most = 20_000_000 } ]";
    let stored = record(&device_with_long_timeout(&agents, more), folder.path(), || {
        wait_for_requests(&agents, 20);
        agents.set(0, |state| grow(&mut state.objects, 20, 2_000));
        wait_for_requests(&agents, 12);
    });
    for name in ["vc/eth1/0.33/in/cells", "vc/eth1/0.40000/in/cells", "vp/eth1/7/in/cells"] {
        let (sum, events) = stored.total(name);
        assert!(sum == 2_000 && events.contains(Event::Wrap), "{name}: {sum} {events:?}");
        assert_eq!(stored.series[name].column.ceiling, Some(155_520_000u64.div_ceil(424)));
    }
    let (sum, events) = stored.total("vc/eth1/0.33/out/cells");
    assert!(sum == 2_000 && !events.contains(Event::Wrap), "{sum} {events:?}");
    for name in ["crc-errors", "timeouts", "oversized"].map(|what| format!("vc/eth1/0.33/in/{what}")) {
        assert_eq!(stored.total(&name).0, 2_000, "{name}");
    }
    // A configured maximum rate distinguishes a wrap from a reset.
    let (sum, events) = stored.total("other/bounded.7/value");
    assert!(sum == 2_000 && events.contains(Event::Wrap), "{sum} {events:?}");
    assert_eq!(stored.total("other/rows.2/value").0, 2_000);
    assert!(
        stored.series.contains_key("other/rows.1/value") && stored.series.contains_key("other/load/value")
    );
    assert!(!stored.series.contains_key("other/nothing/value"));
    assert_eq!(stored.tables.len(), 4);
}

/// Compares with snmp2, which shares no code with the library of the collector.
#[test]
fn another_library_encodes_the_same_requests_and_decodes_the_same_values() {
    let agents = Agents::one(atm());
    let mut work =
        RunningCollector::start(&device_with_long_timeout(&agents, "ask = ['interfaces', 'channels']"));
    let mut polled = work.polled("interfaces");
    polled.extend(work.polled("channels"));
    // snmp2 decodes and encodes a request of the collector.
    let last_request = agents.states[0].lock().unwrap().last_request.clone();
    let request = snmp2::Pdu::from_bytes(&last_request).unwrap();
    assert_eq!(request.message_type, snmp2::MessageType::GetBulkRequest);
    assert_eq!((request.community, request.to_bytes().unwrap()), (&b"public"[..], last_request.clone()));
    let mut other = snmp2::SyncSession::new_v2c(agents.at[0], b"public", Some(LIMIT), 1).unwrap();
    let mut read = |column: &[u32], rows: u32| -> Vec<Option<u64>> {
        let column: Vec<u64> = column.iter().map(|arc| u64::from(*arc)).collect();
        let answer = other.getbulk(&[&snmp2::Oid::from(&column).unwrap()], 0, rows).unwrap();
        let number = |value| match value {
            snmp2::Value::Counter32(n) => Some(u64::from(n)),
            snmp2::Value::Counter64(n) => Some(n),
            other => panic!("{other:?}"),
        };
        answer.varbinds.map(|(_, value)| number(value)).collect()
    };
    let octets =
        [("in/octets", 6), ("in/multicast-packets", 8), ("out/octets", 10), ("out/broadcast-packets", 13)];
    for (series, column) in octets {
        assert_eq!(
            read(&if_x_column(column, 1)[..11], 1),
            [polled[&format!("port/eth1/{series}")]],
            "{series}"
        );
    }
    let cells =
        ["in/cells", "in/clp0-cells", "in/discards", "in/clp0-discards", "out/cells", "out/clp0-cells"];
    for (column, series) in (1..).zip(cells) {
        let channels = [33, 40_000].map(|vci| polled[&format!("vc/eth1/0.{vci}/{series}")]);
        assert_eq!(read(&[1, 3, 6, 1, 2, 1, 37, 1, 14, 1, 11, 1, column], 2), channels, "{series}");
    }
}

#[test]
fn a_silent_device_loses_no_counts_and_delays_no_other_device() {
    let states = (0..2).map(|_| agent::State { objects: switch(2), ..agent::State::default() });
    let states = states.map(|state| Arc::new(std::sync::Mutex::new(state))).collect();
    let agents = Agents::start(&["127.0.0.1:0".into(), "127.0.0.1:0".into()], states);
    let folder = tempfile::tempdir().unwrap();
    let second =
        format!("[[device]]\nname = 'b'\naddress = '{}'\ncredentials = 'c'\ncache = '0s'", agents.at[1]);
    let text = device(&agents, &format!("cache = '0s'\n{second}"));
    // When a device was asked and whether it answered, as far as is stored; `None` before anything is.
    let polls = |reader: &Reader, device: &str| -> Option<Vec<(Timestamp, bool)>> {
        let tables = reader.tables(TableId(0), 10).ok()?;
        let table = tables.iter().find(|t| t.device == device && t.name == "interfaces")?.id;
        let series = reader.series(table).ok()?;
        let octets = series.iter().find(|s| s.name == "port/eth1/in/octets")?;
        let points = reader.points(octets.id, Timestamp(0), Timestamp::MAX, 10_000).ok()?.points;
        Some(points.iter().map(|p| (p.row.requested_at, p.value.is_some())).collect())
    };
    let fault_text = |reader: &Reader| {
        let texts = reader.texts("sw").ok()?;
        texts.into_iter().find(|t| t.key == "trouble with interfaces").map(|t| t.text)
    };
    let path = folder.path().join("archive");
    let wait = |what: &str, seen: &dyn Fn(&Reader) -> Option<bool>| {
        let over = (0..12_000).any(|_| {
            let is_so = Reader::open(&path).ok().and_then(|reader| seen(&reader)) == Some(true);
            is_so || {
                thread::park_timeout(Duration::from_millis(5));
                false
            }
        });
        assert!(over, "{what}");
    };
    let answers = |polls: &[(Timestamp, bool)]| polls.iter().filter(|(_, answered)| *answered).count();
    let stored = record(&text, folder.path(), || {
        wait("both answer", &|reader| {
            Some(answers(&polls(reader, "sw")?) > 1 && answers(&polls(reader, "b")?) > 1)
        });
        agents.set(0, |state| state.behavior = Behavior::Dead);
        wait("one device is silent and the other answers", &|reader| {
            let silent_polls = polls(reader, "sw")?;
            let last = silent_polls.iter().rev().find(|(_, answered)| *answered)?.0;
            let silent = silent_polls.iter().filter(|(at, _)| *at > last).count();
            let meanwhile = polls(reader, "b")?.into_iter().filter(|(at, answered)| *at > last && *answered);
            Some(silent > 4 && meanwhile.count() > 4)
        });
        agents.set(0, |state| {
            grow(&mut state.objects, 0, 500);
            state.behavior = Behavior::Good;
        });
        wait("the fault ends", &|reader| {
            Some(polls(reader, "sw")?.last()?.1 && fault_text(reader).is_some_and(|text| text.is_empty()))
        });
    });
    let tables = stored.reader.tables(TableId(0), 10).unwrap();
    let table = tables.iter().find(|t| t.device == "sw" && t.name == "interfaces").unwrap().id;
    let series = stored.reader.series(table).unwrap();
    let octets = series.iter().find(|s| s.name == "port/eth1/in/octets").unwrap();
    let view = stored.reader.view(octets.id, Timestamp(0), Timestamp::MAX, 1).unwrap();
    let whole = &view.buckets.buckets[0];
    assert!(whole.events.contains(Event::Silent) && whole.sum == 500, "{whole:?}");
}

#[test]
fn this_machine_and_hosts_are_polled() {
    let folder = tempfile::tempdir().unwrap();
    let config = "period = '100ms'\n[[machine]]\nname = 'here'\ninterfaces = ['lo']
        [[ping]]\nname = 'here'\naddress = '127.0.0.1'\ntimeout = '100ms'
        [[ping]]\nname = 'unreachable'\naddress = '255.255.255.255'\ntimeout = '50ms'";
    if trunkline_io::icmp::open(false).is_err() {
        return trunkline_io::must::skip("no socket to ping with");
    }
    let last = |reader: &Reader, device: &str, name: &str| {
        let tables = reader.tables(TableId(0), 10).ok()?;
        let found = tables.iter().filter(|t| t.device == device);
        let series = found.flat_map(|t| reader.series(t.id).unwrap_or_default()).find(|s| s.name == name)?;
        let points = reader.points(series.id, Timestamp(0), Timestamp::MAX, 10_000).ok()?.points;
        points.into_iter().rev().find_map(|p| p.value).map(|raw| raw.0)
    };
    let are_there = |reader: &Reader| {
        let of_here = ["port/lo/in/octets", "host/delay", "host/seen"];
        of_here.iter().all(|name| last(reader, "here", name).is_some_and(|value| value > 0))
            && last(reader, "unreachable", "host/responding").is_some()
    };
    let path = folder.path().join("archive");
    let stored = record(config, folder.path(), || {
        let time = AnchoredClock::start();
        let started_at = time.now();
        while time.now().duration_since(started_at) < LIMIT
            && !Reader::open(&path).is_ok_and(|reader| are_there(&reader))
        {
            thread::park_timeout(Duration::from_millis(50));
        }
    });
    assert!(are_there(&stored.reader), "all series have values within {LIMIT:?}");
    let unreachable = |name: &str| last(&stored.reader, "unreachable", name);
    assert_eq!((unreachable("host/responding"), unreachable("host/seen")), (Some(0), None));
}

#[test]
fn stop_ends_the_collector_during_a_request() {
    let agents = Agents::one(switch(1));
    agents.set(0, |state| state.behavior = Behavior::Dead);
    let mut work = RunningCollector::start(&device_with_long_timeout(&agents, ""));
    wait_for_requests(&agents, 1);
    work.stop.stop();
    let _ = work.thread.take().map(thread::JoinHandle::join);
    let stopped_at = work.time.now();
    while !matches!(work.reports.receive(Duration::ZERO), Err(Closed)) {}
    assert!(work.time.now() >= stopped_at);
}
