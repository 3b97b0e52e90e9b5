//! The collector against agents that are good, bad and dead, into real archives.

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

use agent::{Agents, Manner, Objects, Value, grow, switch, wide};

/// Longer than anything here takes, however busy the machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A collector at work, and what it said so far.
struct Work {
    stop: Stop,
    thread: Option<thread::JoinHandle<()>>,
    reports: ReportReceiver,
    specs: BTreeMap<usize, Arc<TableSpec>>,
    time: AnchoredClock,
}

/// What one poll of a table said, by names of series.
type Polled = BTreeMap<String, Option<u64>>;

enum Said {
    Polled(String, Option<Polled>),
    Word(String, &'static str, String),
    Trouble(Option<Fault>),
}

impl Work {
    fn start(text: &str) -> Work {
        let config = Config::parse(text, std::path::Path::new("")).unwrap();
        let time = AnchoredClock::start();
        let (sink, reports) = queue();
        let (collector, stop) = Collector::new(config, time, sink);
        let thread = Some(thread::spawn(move || collector.run(false).unwrap()));
        Work { stop, thread, reports, specs: BTreeMap::new(), time }
    }

    fn next(&mut self) -> Vec<Said> {
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
                vec![Said::Polled(spec.name.clone(), values)]
            }
            Report::Texts { texts: words, .. } => {
                words.into_iter().map(|w| Said::Word(w.object, w.key, w.text)).collect()
            }
            Report::FaultChanged { fault, .. } => vec![Said::Trouble(fault)],
        }
    }

    /// Waits for something that is said.
    fn until<T>(&mut self, mut so: impl FnMut(Said) -> Option<T>) -> T {
        let began = self.time.now();
        while self.time.now().duration_since(began) < LIMIT {
            if let Some(found) = self.next().into_iter().find_map(&mut so) {
                return found;
            }
        }
        panic!("it was not said within {LIMIT:?}");
    }

    fn polled(&mut self, table: &str) -> Polled {
        self.until(|said| match said {
            Said::Polled(name, Some(values)) if name == table => Some(values),
            _ => None,
        })
    }

    fn fault(&mut self) -> Option<Fault> {
        self.until(|said| match said {
            Said::Trouble(fault) => Some(fault),
            _ => None,
        })
    }

    fn word(&mut self, object: &str, key: &str) -> String {
        self.until(|said| match said {
            Said::Word(of, what, text) if of == object && what == key => Some(text),
            _ => None,
        })
    }
}

impl Drop for Work {
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

/// Nothing but the next poll ends a poll, however long a thread is starved.
fn patient(agents: &Agents, more: &str) -> String {
    device(agents, more).replace("'100ms'", "'10s'")
}

#[test]
fn ports_are_read_by_name_and_told_in_words() {
    let agents = Agents::one(switch(50));
    let mut work = Work::start(&patient(&agents, ""));
    assert_eq!(work.word("", "name"), "sw");
    let first = work.polled("interfaces");
    assert_eq!(first.len(), 50 * 13);
    assert_eq!(first["port/eth7/in/octets"], Some(7_006));
    assert_eq!(first["port/eth50/out/errors"], Some(50_020));
    assert_eq!(first["port/eth50/speed"], Some(1_000_000_000));
    let spec = work.specs.values().find(|s| s.name == "interfaces").unwrap().clone();
    let octets = spec.series.iter().find(|s| s.name == "port/eth1/in/octets").unwrap();
    assert_eq!(octets.discontinuity.as_deref(), Some("port/eth1/discontinuity"));
    assert!(octets.ceiling.is_some_and(|most| most >= 125_000_000));
    // A later poll needs few requests: 50 ports of 17 columns, two ports a datagram, and the end.
    let before = agents.requests.load(std::sync::atomic::Ordering::Relaxed);
    work.polled("interfaces");
    let after = agents.requests.load(std::sync::atomic::Ordering::Relaxed);
    assert!(after - before < 60, "{}", after - before);
}

#[test]
fn a_port_without_counters_of_64_bits_has_those_of_32() {
    let mut objects = switch(2);
    objects.retain(|object, _| {
        !(object.starts_with(&wide(6, 2)[..10]) && object[10] < 14 && object[10] > 1 && object[11] == 2)
    });
    let agents = Agents::one(objects);
    let mut work = Work::start(&patient(&agents, ""));
    assert_eq!(work.polled("unicast")["port/eth2/out/unicast-packets"], Some(2_017));
    let polled = work.polled("interfaces");
    assert_eq!(polled["port/eth2/in/octets"], Some(2_010));
    assert_eq!(polled["port/eth2/in/multicast-packets"], None);
    assert_eq!(polled["port/eth1/in/octets"], Some(1_006));
    let spec = work.specs.values().find(|s| s.name == "interfaces").unwrap().clone();
    let series = |name: &str| spec.series.iter().find(|s| s.name == name).unwrap();
    assert_eq!(series("port/eth1/in/octets").kind, ValueKind::Counter64);
    // Of 32 bits: its speed is what bounds a wrap.
    let octets = series("port/eth2/in/octets");
    assert_eq!((octets.kind, octets.ceiling), (ValueKind::Counter32, Some(125_000_000)));
}

#[test]
fn a_speed_is_exact_also_where_only_megabits_are_asked_for() {
    let agents = Agents::one(atm());
    let mut work = Work::start(&patient(&agents, ""));
    // The first answer has counters of 32 bits and `ifSpeed`, later ones have neither.
    let speeds = [(); 3].map(|()| work.polled("interfaces")["port/eth1/speed"]);
    assert_eq!(speeds, [Some(155_520_000); 3]);
    agents.set(0, |state| state.objects.extend([(wide(15, 1), Value::Gauge(622))]));
    while work.polled("interfaces")["port/eth1/speed"] != Some(622_000_000) {}
}

#[test]
fn a_port_whose_number_moved_is_the_same_series_and_ports_come_and_go() {
    let agents = Agents::one(switch(3));
    let mut work = Work::start(&patient(&agents, ""));
    while work.polled("interfaces").len() != 39 {}
    agents.set(0, |state| {
        // It began anew without its second port: the third is now the second, and has another name's number.
        state.objects = switch(2);
        state.objects.insert(agent::UPTIME.to_vec(), Value::Ticks(5));
        state.objects.insert(wide(1, 2), Value::Text(b"eth3".to_vec()));
    });
    let moved = loop {
        let polled = work.polled("interfaces");
        if polled["port/eth2/in/octets"].is_none() {
            break polled;
        }
    };
    assert_eq!(moved["port/eth3/in/octets"], Some(2_006));
    assert_eq!(work.word("port/eth2", "state"), "gone");
    agents.set(0, |state| state.objects.extend(switch(4).into_iter().filter(|(o, _)| o.last() == Some(&4))));
    assert_eq!(work.word("port/eth4", "description"), "port number 4");
    while work.polled("interfaces").len() != 52 {}
}

#[test]
fn odd_names_are_kept_apart_and_bounded() {
    let mut objects = switch(6);
    for (port, name) in [(1, "a/b\n\x1b[31m%"), (2, ""), (3, "same"), (4, "same"), (5, "\u{202e}x")] {
        objects.insert(wide(1, port), Value::Text(name.as_bytes().to_vec()));
    }
    objects.insert(wide(1, 6), Value::Text([vec![0xff; 300], vec![b'y'; 40]].concat()));
    let agents = Agents::one(objects);
    let mut work = Work::start(&patient(&agents, ""));
    let polled = work.polled("interfaces");
    for name in ["a%2Fb%0A%1B[31m%25", "port number 2", "same", "same#4", "\u{202e}x"] {
        assert!(polled[&format!("port/{name}/in/octets")].is_some(), "{name}");
    }
    assert_eq!(polled.len(), 6 * 13);
    assert!(polled.keys().all(|name| name.len() < 300 && !name.chars().any(char::is_control)));
}

#[test]
fn what_agents_may_do_is_one_event_and_no_more() {
    let agents = Agents::one(switch(4));
    let mut work = Work::start(&device(&agents, "rows = 100"));
    work.polled("interfaces");
    for (manner, expected) in [
        (Manner::Dead, "silent"),
        (Manner::OtherNumber, "stray"),
        (Manner::Elsewhere, "stray"),
        (Manner::Garbage, "garbage"),
        (Manner::Circle, "order"),
        (Manner::Endless, "rows"),
        (Manner::Status(16), "status"),
        (Manner::TooBig(0), "too-big"),
        (Manner::Cut(1), "too-big"),
    ] {
        agents.set(0, |state| state.manner = manner);
        // A busy machine may make an answer late now and then; what is told in the end is this.
        while work.fault().is_none_or(|fault| fault.name() != expected) {}
        agents.set(0, |state| state.manner = Manner::Good);
        while work.fault().is_some() {}
    }
    // These are no faults: smaller requests, cut and late answers are part of the trade.
    for manner in [Manner::TooBig(9), Manner::Cut(9), Manner::Huge] {
        agents.set(0, |state| state.manner = manner);
        work.polled("interfaces");
        work.until(|said| match said {
            Said::Polled(name, Some(values)) if name == "interfaces" => {
                values["port/eth1/in/octets"].map(|_| ())
            }
            _ => None,
        });
        agents.set(0, |state| state.manner = Manner::Good);
    }
}

#[test]
fn damaged_answers_harm_nobody() {
    let agents = Agents::one(switch(4));
    let mut work = Work::start(&device(&agents, "rows = 100\nperiod = '100ms'"));
    work.polled("interfaces");
    agents.set(0, |state| state.manner = Manner::Damaged);
    requests(&agents, 100);
    agents.set(0, |state| state.manner = Manner::Good);
    work.until(|said| match said {
        Said::Polled(name, Some(values)) if name == "interfaces" => {
            let whole = (1..=4).all(|port| values[&format!("port/eth{port}/out/octets")].is_some());
            assert!(values.len() <= 13 * 1_260);
            whole.then_some(())
        }
        _ => None,
    });
}

/// What stands in an archive.
struct Kept {
    reader: Reader,
    series: BTreeMap<String, SeriesInfo>,
    tables: BTreeMap<String, TableId>,
}

/// Keeps what a configuration brings until `done`; the archive, to be read.
fn keep(text: &str, folder: &std::path::Path, done: impl FnOnce() + Send) -> Kept {
    let config = Config::parse(text, folder).unwrap();
    let path = folder.join("archive");
    let keeping = WriteOptions { flush: Duration::from_millis(100), retention: config.retention };
    let time = AnchoredClock::start();
    let keeper = ArchiveWriter::open(&path, keeping, time).unwrap();
    let (sink, reports) = queue();
    let (collector, stop) = Collector::new(config, time, sink);
    thread::scope(|scope| {
        scope.spawn(move || collector.run(false).unwrap());
        scope.spawn(move || {
            done();
            stop.stop();
        });
        keeper.run(&reports, |_| {}, |trouble| panic!("{trouble}")).unwrap();
    });
    let reader = Reader::open(&path).unwrap();
    let (mut series, mut tables) = (BTreeMap::new(), BTreeMap::new());
    for table in reader.tables(TableId(0), 100).unwrap() {
        series.extend(reader.series(table.id).unwrap().into_iter().map(|s| (s.name.clone(), s)));
        tables.insert(table.name, table.id);
    }
    Kept { reader, series, tables }
}

impl Kept {
    fn whole(&self, name: &str) -> (i128, EventSet) {
        let view = self.reader.view(self.series[name].id, Timestamp(0), Timestamp::MAX, 1).unwrap();
        (view.buckets.buckets[0].sum, view.buckets.buckets[0].events)
    }
}

/// Waits until so many requests more came.
fn requests(agents: &Agents, more: u64) {
    let count = || agents.requests.load(std::sync::atomic::Ordering::Relaxed);
    let goal = count() + more;
    for _ in 0..12_000 {
        if count() >= goal {
            return;
        }
        thread::park_timeout(Duration::from_millis(5));
    }
    panic!("nobody asks");
}

fn atm() -> Objects {
    let mut objects = switch(1);
    objects.insert(wide(15, 1), Value::Gauge(155));
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
fn cells_of_channels_and_paths_and_any_object_are_kept_and_a_wrap_is_its_event() {
    let agents = Agents::one(atm());
    let folder = tempfile::tempdir().unwrap();
    let more = "ask = ['channels', 'paths', 'aal5']\ncache = '0s'\nobject = [
        { name = 'load', oid = '1.3.6.1.4.1.9.1' }, { name = 'nothing', oid = '1.3.6.1.4.1.9.7.0' },
        { name = 'rows', oid = '1.3.6.1.4.1.9.2', walk = true, unit = 'things' },
        { name = 'bounded', oid = '1.3.6.1.4.1.9.3', walk = true, most = 20_000_000 } ]";
    let kept = keep(&patient(&agents, more), folder.path(), || {
        requests(&agents, 20);
        agents.set(0, |state| grow(&mut state.objects, 20, 2_000));
        requests(&agents, 12);
    });
    for name in ["vc/eth1/0.33/in/cells", "vc/eth1/0.40000/in/cells", "vp/eth1/7/in/cells"] {
        let (sum, events) = kept.whole(name);
        assert!(sum == 2_000 && events.contains(Event::Wrap), "{name}: {sum} {events:?}");
        assert_eq!(kept.series[name].column.ceiling, Some(155_520_000u64.div_ceil(424)));
    }
    let (sum, events) = kept.whole("vc/eth1/0.33/out/cells");
    assert!(sum == 2_000 && !events.contains(Event::Wrap), "{sum} {events:?}");
    for name in ["crc-errors", "timeouts", "oversized"].map(|what| format!("vc/eth1/0.33/in/{what}")) {
        assert_eq!(kept.whole(&name).0, 2_000, "{name}");
    }
    // Who says how fast it counts is told a wrap from a reset.
    let (sum, events) = kept.whole("other/bounded.7/value");
    assert!(sum == 2_000 && events.contains(Event::Wrap), "{sum} {events:?}");
    assert_eq!(kept.whole("other/rows.2/value").0, 2_000);
    assert!(kept.series.contains_key("other/rows.1/value") && kept.series.contains_key("other/load/value"));
    assert!(!kept.series.contains_key("other/nothing/value"));
    assert_eq!(kept.tables.len(), 4);
}

/// snmp2 shares no code with the library that the collector uses.
#[test]
fn another_library_writes_the_same_requests_and_reads_the_same_values() {
    let agents = Agents::one(atm());
    let mut work = Work::start(&patient(&agents, "ask = ['interfaces', 'channels']"));
    let mut polled = work.polled("interfaces");
    polled.extend(work.polled("channels"));
    // What the collector asked, taken apart and put together again by the other one.
    let heard = agents.states[0].lock().unwrap().heard.clone();
    let request = snmp2::Pdu::from_bytes(&heard).unwrap();
    assert_eq!(request.message_type, snmp2::MessageType::GetBulkRequest);
    assert_eq!((request.community, request.to_bytes().unwrap()), (&b"public"[..], heard.clone()));
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
        assert_eq!(read(&wide(column, 1)[..11], 1), [polled[&format!("port/eth1/{series}")]], "{series}");
    }
    let cells =
        ["in/cells", "in/clp0-cells", "in/discards", "in/clp0-discards", "out/cells", "out/clp0-cells"];
    for (column, series) in (1..).zip(cells) {
        let channels = [33, 40_000].map(|vci| polled[&format!("vc/eth1/0.{vci}/{series}")]);
        assert_eq!(read(&[1, 3, 6, 1, 2, 1, 37, 1, 14, 1, 11, 1, column], 2), channels, "{series}");
    }
}

#[test]
fn a_device_that_dies_and_returns_loses_nothing_and_delays_nobody() {
    let states = (0..2).map(|_| agent::State { objects: switch(2), ..agent::State::default() });
    let states = states.map(|state| Arc::new(std::sync::Mutex::new(state))).collect();
    let agents = Agents::start(&["127.0.0.1:0".into(), "127.0.0.1:0".into()], states);
    let folder = tempfile::tempdir().unwrap();
    let second =
        format!("[[device]]\nname = 'b'\naddress = '{}'\ncredentials = 'c'\ncache = '0s'", agents.at[1]);
    let text = device(&agents, &format!("cache = '0s'\n{second}"));
    // When a device was asked and whether it answered, as far as is kept; `None` before anything is.
    let polls = |reader: &Reader, device: &str| -> Option<Vec<(Timestamp, bool)>> {
        let tables = reader.tables(TableId(0), 10).ok()?;
        let table = tables.iter().find(|t| t.device == device && t.name == "interfaces")?.id;
        let series = reader.series(table).ok()?;
        let octets = series.iter().find(|s| s.name == "port/eth1/in/octets")?;
        let points = reader.points(octets.id, Timestamp(0), Timestamp::MAX, 10_000).ok()?.points;
        Some(points.iter().map(|p| (p.row.requested_at, p.value.is_some())).collect())
    };
    let trouble = |reader: &Reader| {
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
    let kept = keep(&text, folder.path(), || {
        wait("both answer", &|reader| {
            Some(answers(&polls(reader, "sw")?) > 1 && answers(&polls(reader, "b")?) > 1)
        });
        agents.set(0, |state| state.manner = Manner::Dead);
        wait("the one is silent for long, the other answers meanwhile", &|reader| {
            let sick = polls(reader, "sw")?;
            let last = sick.iter().rev().find(|(_, answered)| *answered)?.0;
            let silent = sick.iter().filter(|(at, _)| *at > last).count();
            let meanwhile = polls(reader, "b")?.into_iter().filter(|(at, answered)| *at > last && *answered);
            Some(silent > 4 && meanwhile.count() > 4)
        });
        agents.set(0, |state| {
            grow(&mut state.objects, 0, 500);
            state.manner = Manner::Good;
        });
        wait("it is over", &|reader| {
            Some(polls(reader, "sw")?.last()?.1 && trouble(reader).is_some_and(|text| text.is_empty()))
        });
    });
    let tables = kept.reader.tables(TableId(0), 10).unwrap();
    let table = tables.iter().find(|t| t.device == "sw" && t.name == "interfaces").unwrap().id;
    let series = kept.reader.series(table).unwrap();
    let octets = series.iter().find(|s| s.name == "port/eth1/in/octets").unwrap();
    let view = kept.reader.view(octets.id, Timestamp(0), Timestamp::MAX, 1).unwrap();
    let whole = &view.buckets.buckets[0];
    assert!(whole.events.contains(Event::Silent) && whole.sum == 500, "{whole:?}");
}

#[test]
fn this_machine_and_hosts_are_polled() {
    let folder = tempfile::tempdir().unwrap();
    let config = "period = '100ms'\n[[machine]]\nname = 'here'\ninterfaces = ['lo']
        [[ping]]\nname = 'here'\naddress = '127.0.0.1'\ntimeout = '100ms'
        [[ping]]\nname = 'nobody'\naddress = '255.255.255.255'\ntimeout = '50ms'";
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
            && last(reader, "nobody", "host/responding").is_some()
    };
    let path = folder.path().join("archive");
    let kept = keep(config, folder.path(), || {
        let time = AnchoredClock::start();
        let began = time.now();
        while time.now().duration_since(began) < LIMIT
            && !Reader::open(&path).is_ok_and(|reader| are_there(&reader))
        {
            thread::park_timeout(Duration::from_millis(50));
        }
    });
    assert!(are_there(&kept.reader), "they are polled within {LIMIT:?}");
    let nobody = |name: &str| last(&kept.reader, "nobody", name);
    assert_eq!((nobody("host/responding"), nobody("host/seen")), (Some(0), None));
}

#[test]
fn the_end_comes_when_it_is_asked_for() {
    let agents = Agents::one(switch(1));
    agents.set(0, |state| state.manner = Manner::Dead);
    let mut work = Work::start(&patient(&agents, ""));
    requests(&agents, 1);
    work.stop.stop();
    let _ = work.thread.take().map(thread::JoinHandle::join);
    let asked = work.time.now();
    while !matches!(work.reports.receive(Duration::ZERO), Err(Closed)) {}
    assert!(work.time.now() >= asked);
}
