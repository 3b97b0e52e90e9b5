//! SNMP agents simulated by snmpsim, an independent implementation: the archive must match their data.
//!
//! Each object of an agent defines a [`Law`] of its series. Every reading in the archive is checked against its law, and every
//! series needs one.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use trunkline_counters::archive::{Point, Reader, SeriesInfo, TableId};
use trunkline_counters::counter::{Event, RawValue, Timestamp, ValueKind};
use trunkline_io::must::skip;

use super::{Ends, LIMIT, sh};
use crate::command::{Running, TestDir, can, signal, within};

/// Octets a second of the counter of 32 bits that wraps: all that its line carries.
const FULL: u64 = 125_000_000;
/// How far apart the clocks of the poller and of snmpsim may be.
const SLACK: i128 = 100_000_000;
/// Of both kinds of tables of cells, in the order of their columns.
const CELLS: [&str; 7] = [
    "in/cells",
    "in/clp0-cells",
    "in/discards",
    "in/clp0-discards",
    "out/cells",
    "out/clp0-cells",
    "out/tagged-cells",
];
/// Columns of `ifXTable` and `ifTable`.
const WIDE: [(&str, u32); 8] = [
    ("in/octets", 6),
    ("in/unicast-packets", 7),
    ("in/multicast-packets", 8),
    ("in/broadcast-packets", 9),
    ("out/octets", 10),
    ("out/unicast-packets", 11),
    ("out/multicast-packets", 12),
    ("out/broadcast-packets", 13),
];
const NARROW: [(&str, u32); 8] = [
    ("in/octets", 10),
    ("in/unicast-packets", 11),
    ("in/discards", 13),
    ("in/errors", 14),
    ("out/octets", 16),
    ("out/unicast-packets", 17),
    ("out/discards", 19),
    ("out/errors", 20),
];
const IF_TABLE: [u32; 9] = [1, 3, 6, 1, 2, 1, 2, 2, 1];
const IF_X_TABLE: [u32; 10] = [1, 3, 6, 1, 2, 1, 31, 1, 1, 1];
const ATM_MIB: [u32; 8] = [1, 3, 6, 1, 2, 1, 37, 1];

/// What the values of a series must be.
#[derive(Clone, Copy, Debug)]
enum Law {
    /// The agent has no such object.
    Missing,
    /// Always this.
    Is(u64),
    /// This, and from when the agent's data were changed that.
    Turns(u32, u32),
    /// `start` at the beginning of 1970 and so many a second since; with 32 bits it wraps.
    Runs { start: u64, rate: u64, narrow: bool },
}

/// An agent: its objects, before and after its data are changed, and what must come of them.
#[derive(Default)]
struct Agent {
    objects: BTreeMap<Vec<u32>, [String; 2]>,
    laws: BTreeMap<String, Law>,
}

impl Agent {
    /// Creates an agent with a name and an uptime.
    fn new(name: &str) -> Agent {
        let mut agent = Agent::default();
        let system = [1, 3, 6, 1, 2, 1, 1];
        for (scalar, text) in [(1, "an agent of snmpsim"), (4, "contact"), (5, name), (6, "somewhere")] {
            agent.set(&[&system[..], &[scalar, 0]].concat(), "4", text);
        }
        agent.set(&[&system[..], &[3, 0]].concat(), "67:numeric", "rate=100,initial=1000");
        agent
    }

    /// An object that no series comes of. `tag`: its type, as in BER, and which module of snmpsim varies it.
    fn set(&mut self, object: &[u32], tag: &str, value: impl Display) {
        let line = format!("{tag}|{value}");
        self.objects.insert(object.to_vec(), [line.clone(), line]);
    }

    /// A text, of any octets.
    fn text(&mut self, object: &[u32], octets: &[u8]) {
        let hex: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
        self.set(object, "4x", hex);
    }

    /// A counter (`tag`: 65 of 32 bits, 70 of 64) that a series comes of.
    fn counts(&mut self, object: &[u32], tag: u8, series: String, law: Law) {
        let lines = match law {
            Law::Missing => None,
            Law::Is(n) => Some([n; 2].map(|n| format!("{tag}|{n}"))),
            Law::Turns(a, b) => Some([a, b].map(|n| format!("{tag}|{n}"))),
            Law::Runs { start, rate, narrow } => {
                // `wrap` takes what is left of `max`, which for a Counter32 is 2^32.
                let wrap = if narrow { ",wrap=1,max=4294967296" } else { "" };
                Some([(); 2].map(|()| format!("{tag}:numeric|atime=1,rate={rate},initial={start}{wrap}")))
            }
        };
        if let Some(lines) = lines {
            self.objects.insert(object.to_vec(), lines);
        }
        self.laws.insert(series, law);
    }

    /// A port whose traffic goes by, called `name` where it has a row of `ifXTable`; `known` is what its series are called.
    fn port(&mut self, number: u32, name: Option<&[u8]>, known: &str, speed: u64, traffic: [Law; 2]) {
        let plain = |column: u32| [&IF_TABLE[..], &[column, number]].concat();
        let wide = |column: u32| [&IF_X_TABLE[..], &[column, number]].concat();
        let law = |series: &str, column: u32| match series {
            "in/octets" => traffic[0],
            "out/octets" => traffic[1],
            _ => Law::Is(u64::from(1_000 * number + column)),
        };
        self.text(&plain(2), format!("port number {number}").as_bytes());
        self.set(&plain(3), "2", 6);
        self.set(&plain(5), "66", speed);
        self.set(&plain(7), "2", 1);
        self.set(&plain(8), "2", 1);
        for (series, column) in NARROW {
            let nowhere_else = series.ends_with("discards") || series.ends_with("errors");
            if name.is_none() || nowhere_else {
                self.counts(&plain(column), 65, format!("port/{known}/{series}"), law(series, column));
            } else {
                self.set(&plain(column), "65", 7); // must be ignored
            }
        }
        for (series, column) in WIDE {
            let (law, series) = (law(series, column), format!("port/{known}/{series}"));
            if name.is_some() {
                self.counts(&wide(column), 70, series, law);
            } else {
                self.laws.entry(series).or_insert(Law::Missing);
            }
        }
        let since = if name.is_some() { Law::Is(0) } else { Law::Missing };
        self.laws.insert(format!("port/{known}/discontinuity"), since);
        self.laws.insert(format!("port/{known}/unicast-discontinuity"), since);
        self.laws.insert(format!("port/{known}/speed"), Law::Is(speed));
        self.laws.insert(format!("port/{known}/state"), Law::Is(1));
        if let Some(name) = name {
            self.text(&wide(1), name);
            self.set(&wide(15), "66", speed / 1_000_000);
            self.text(&wide(18), b"");
            self.set(&wide(19), "67", 0);
        }
    }

    /// Rows of the tables of cells or of AAL5: `table` below the ATM MIB, columns from `first` on.
    fn atm(&mut self, table: &[u32], first: u32, series: &[&str], index: &[u32], object: &str) {
        for (column, series) in (first..).zip(series) {
            let number = [&ATM_MIB[..], table, &[1, column], index].concat();
            // The first column of all wraps.
            let from = if column == 1 { u32::MAX - 1_000 } else { 100 * column };
            let law = Law::Turns(from, from.wrapping_add(2_000 + index[index.len() - 1]));
            self.counts(&number, 65, format!("{object}/{series}"), law);
        }
    }

    /// As a file of snmpsim, before or after the change.
    fn data(&self, after: usize) -> String {
        let line = |(object, lines): (&Vec<u32>, &[String; 2])| {
            let number: Vec<String> = object.iter().map(u32::to_string).collect();
            format!("{}|{}\n", number.join("."), lines[after])
        };
        self.objects.iter().map(line).collect()
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Agents by community or context.
fn agents() -> BTreeMap<&'static str, Agent> {
    let runs = |start, rate| Law::Runs { start, rate, narrow: false };
    let mut switch = Agent::new("switch");
    switch.port(1, Some(b"ge0"), "ge0", 1_000_000_000, [runs(0, 12_345_678), runs(1 << 60, 1_000)]);
    switch.port(7, Some(b"ge1"), "ge1", 2_500_000_000, [runs(5, 300_000_000), Law::Is(u64::MAX - 1)]);
    // Counters of 32 bits alone: one wraps eight seconds from now.
    let mut old = Agent::new("old");
    let start = (1u64 << 32) - FULL * (now() + 8) % (1 << 32);
    let full = Law::Runs { start, rate: FULL, narrow: true };
    old.port(1, None, "port number 1", 1_000_000_000, [full, Law::Is(0)]);
    let mut atm = Agent::new("atm");
    atm.port(3, Some(b"atm0"), "atm0", 155_520_000, [runs(0, 1_000_000), Law::Is(1)]);
    for (vpi, vci) in [(0, 33), (0, 40_000), (4_000, 5)] {
        let object = format!("vc/atm0/{vpi}.{vci}");
        atm.atm(&[14, 1, 11], 1, &CELLS, &[3, vpi, vci], &object);
        atm.atm(&[12], 3, &["in/crc-errors", "in/timeouts", "in/oversized"], &[3, vpi, vci], &object);
    }
    atm.atm(&[14, 1, 9], 1, &CELLS, &[3, 7], "vp/atm0/7");
    let mut odd = Agent::new("odd");
    let names: [(&[u8], &str); 6] = [
        (b"a/b\n\x1b[31m%|", "a%2Fb%0A%1B[31m%25|"),
        (b"same", "same"),
        (b"same", "same#3"),
        ("\u{202e}x".as_bytes(), "\u{202e}x"),
        (b"\xffy", "\u{fffd}y"),
        (b"", "port number 6"),
    ];
    for (number, (name, known)) in (1..).zip(names) {
        odd.port(number, Some(name), known, 10_000_000, [Law::Is(u64::from(number)), Law::Is(0)]);
    }
    [("switch", switch), ("old", old), ("atm", atm), ("odd", odd)].into()
}

/// The configuration of the poller: all agents have one address; one uses SNMPv3.
const POLL: &str = "period = '2s'
timeout = '10s'
flush = '200ms'
[[credentials]]
name = 'v3'
user = 'watcher'
auth = 'sha256'
auth-password = 'authpassword'
context = 'odd'
[[device]]
name = 'odd'
address = '127.0.0.1:1161'
credentials = 'v3'
cache = '0s'
";

fn poll() -> String {
    let community = |name: &str| {
        format!(
            "[[credentials]]\nname = '{name}'\ncommunity = '{name}'
            [[device]]\nname = '{name}'\naddress = '127.0.0.1:1161'\ncredentials = '{name}'\ncache = '0s'\n"
        )
    };
    let all = ["switch", "old", "atm"].map(community).concat();
    format!("{POLL}{all}ask = ['interfaces', 'channels', 'paths', 'aal5']\n")
}

/// Where `make test` puts it.
fn simulator() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let simulator = target.join("snmpsim");
    if !simulator.join("installed").exists() {
        skip("no snmpsim in the target folder: `make deps` has it from PyPI");
        return None;
    }
    Some(simulator)
}

#[test]
fn the_archive_matches_the_data_of_snmpsim() {
    let Some(simulator) = simulator() else { return };
    if !can(&["unshare", "-n", "true"]) {
        return;
    }
    let run = move || {
        if let Err(e) = unshare(CloneFlags::CLONE_NEWNET) {
            return skip(e);
        }
        sh("ip link set lo up");
        played(&simulator);
    };
    thread::spawn(run).join().unwrap();
}

fn played(simulator: &Path) {
    let dir = TestDir::new();
    let agents = agents();
    for folder in ["data", "cache"] {
        fs::create_dir(dir.path(folder)).unwrap();
    }
    for (name, agent) in &agents {
        dir.write(&format!("data/{name}.snmprec"), agent.data(0));
    }
    let mut plays = start(simulator, &dir);
    let log = || fs::read_to_string(dir.path("snmpsim.log")).unwrap_or_default();
    within(LIMIT, "snmpsim to listen", || {
        assert!(plays.0.try_wait().unwrap().is_none(), "it ended: {}", log());
        fs::read_to_string("/proc/thread-self/net/udp").unwrap().contains(":0489 ")
    });
    dir.write("poll.toml", poll());
    let poller = Running::start(dir.trunkline(&["monitor", "poll", "poll.toml", "--archive", "counters"]));
    let archive = dir.path("counters");
    let last =
        ["vc/atm0/4000.5/out/tagged-cells", "vc/atm0/4000.5/in/oversized", "vp/atm0/7/out/tagged-cells"];
    let ports = [("switch", "ge0"), ("old", "port number 1"), ("atm", "atm0"), ("odd", "same")];
    let count = |device: &str, series: &str, so: &dyn Fn(&Point) -> bool| {
        readings(&archive, device, series).iter().filter(|p| so(p)).count()
    };
    let told = |times: usize| {
        let told = |(device, port): &(&str, &str)| {
            count(device, &format!("port/{port}/speed"), &|p| p.value.is_some()) >= times
        };
        ports.iter().all(told)
    };
    settle("values of all agents", || {
        told(2) && last.iter().all(|series| count("atm", series, &|p| p.value.is_some()) >= 2)
    });
    change(&dir, &agents["atm"]);
    settle("what the data say now, and a wrap", || {
        // Twice: in the first poll some columns may have been asked before the change.
        let turned = |series: &&str| {
            let Law::Turns(_, to) = agents["atm"].laws[*series] else { unreachable!("it was changed") };
            count("atm", series, &|p| p.value == Some(RawValue(to.into()))) >= 2
        };
        let wraps = count("old", "port/port number 1/in/octets", &|p| p.update.events.contains(Event::Wrap));
        wraps > 0 && told(4) && last.iter().all(turned)
    });
    signal(poller.id(), Signal::SIGTERM);
    let ended = poller.end();
    assert_eq!(ended.status, 0, "{}\n{}", ended.err, log());
    for (name, agent) in &agents {
        hold(&archive, name, &agent.laws);
        let texts = Reader::open(&archive).unwrap().texts(name).unwrap();
        let said = texts.iter().find(|text| text.object.is_empty() && text.key == "name");
        assert_eq!(said.map(|text| &text.text[..]), Some(*name));
    }
}

fn start(simulator: &Path, dir: &TestDir) -> Ends {
    let mut command = Command::new("python3");
    command.args(["-m", "snmpsim.commands.responder"]).env("PYTHONPATH", simulator);
    command.args(["--data-dir=data", "--cache-dir=cache", "--log-level=error", "--max-var-binds=200"]);
    command.args(["--agent-udpv4-endpoint=127.0.0.1:1161", "--v3-user=watcher"]);
    command.args(["--v3-auth-proto=SHA256", "--v3-auth-key=authpassword"]);
    // Another user could not read the folder. The agent is unreachable from outside this network namespace.
    command.env("SNMPSIM_ALLOW_ROOT", "true").env("HOME", dir.path(""));
    let log = File::create(dir.path("snmpsim.log")).unwrap();
    command.current_dir(dir.path("")).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    Ends(command.spawn().unwrap())
}

/// As `within`, of what takes a look at the archive.
fn settle(what: &str, mut condition: impl FnMut() -> bool) {
    within(LIMIT, what, || {
        thread::sleep(Duration::from_millis(200));
        condition()
    });
}

/// Changes an agent's data at once. It looks at the whole seconds of the file's time.
fn change(dir: &TestDir, agent: &Agent) {
    dir.write("data/new", agent.data(1));
    let later = SystemTime::now() + Duration::from_secs(10);
    File::options().write(true).open(dir.path("data/new")).unwrap().set_modified(later).unwrap();
    fs::rename(dir.path("data/new"), dir.path("data/atm.snmprec")).unwrap();
}

/// Every series of a device that has a name, and its readings.
fn series(archive: &Path, device: &str, wanted: impl Fn(&str) -> bool) -> Vec<(SeriesInfo, Vec<Point>)> {
    let Ok(reader) = Reader::open(archive) else { return Vec::new() };
    let tables = reader.tables(TableId(0), 100).unwrap().into_iter().filter(|t| t.device == device);
    let all = tables.flat_map(|table| reader.series(table.id).unwrap()).filter(|s| wanted(&s.name));
    let with = |info: SeriesInfo| {
        let points = reader.points(info.id, Timestamp(0), Timestamp::MAX, 100_000).unwrap().points;
        (info, points)
    };
    all.map(with).collect()
}

fn readings(archive: &Path, device: &str, name: &str) -> Vec<Point> {
    series(archive, device, |series| series == name).pop().map_or(Vec::new(), |(_, points)| points)
}

/// Checks all series of a device against the laws, and that every law has a series.
fn hold(archive: &Path, device: &str, laws: &BTreeMap<String, Law>) {
    let all = series(archive, device, |_| true);
    let found: Vec<&String> = {
        let mut names: Vec<&String> = all.iter().map(|(info, _)| &info.name).collect();
        names.sort();
        names
    };
    assert_eq!(found, laws.keys().collect::<Vec<_>>(), "{device}");
    for (info, points) in &all {
        let what = format!("{device}: {}", info.name);
        check_values(laws[&info.name], points, &what);
        match info.column.kind {
            ValueKind::Counter32 => grew(points, 1 << 32, &what),
            ValueKind::Counter64 => grew(points, 1 << 64, &what),
            ValueKind::Gauge | ValueKind::Real => {}
        }
    }
}

/// Checks values against a law.
fn check_values(law: Law, points: &[Point], what: &str) {
    let mut values: Vec<u64> = points.iter().filter_map(|p| p.value).map(|raw| raw.0).collect();
    let count = values.len();
    match law {
        Law::Missing => return assert_eq!(count, 0, "{what}: {values:?}"),
        Law::Is(n) => assert!(values.iter().all(|v| *v == n), "{what}: {values:?} are not {n}"),
        Law::Turns(from, to) => {
            values.dedup();
            assert_eq!(values, [u64::from(from), u64::from(to)], "{what}");
        }
        Law::Runs { start, rate, narrow } => {
            let size = if narrow { 1i128 << 32 } else { 1 << 64 };
            for point in points {
                let (Some(RawValue(value)), Some(answered)) = (point.value, point.row.answered_at) else {
                    continue;
                };
                let at = |ns: i128| i128::from(start) + i128::from(rate) * ns / 1_000_000_000;
                let least = at(i128::from(point.row.requested_at.0) - SLACK);
                let most = at(i128::from(answered.0) + SLACK);
                let beyond = (i128::from(value) - least).rem_euclid(size);
                // Its arithmetic has 53 bits.
                let rounded = 1 + most / (1 << 52);
                assert!(
                    (beyond + rounded) % size <= most - least + 2 * rounded,
                    "{what}: {value} is not from {least} to {most}"
                );
            }
        }
    }
    assert!(count >= 3, "{what}: {count} values");
}

/// What the archive counted is what lies between the values, of a counter that wraps at `size`; a value below the one before is
/// a wrap, and nothing else happened.
fn grew(points: &[Point], size: i128, what: &str) {
    let values: Vec<u64> = points.iter().filter_map(|p| p.value).map(|raw| raw.0).collect();
    let grown = |pair: &[u64]| (i128::from(pair[1]) - i128::from(pair[0])).rem_euclid(size);
    let between: i128 = values.windows(2).map(grown).sum();
    let steps = || points.iter().map(|p| &p.update);
    let counted: i128 = steps().filter_map(|s| s.growth).map(|growth| i128::from(growth.amount)).sum();
    assert_eq!(counted, between, "{what}: {values:?}");
    let wraps = steps().filter(|s| s.events.contains(Event::Wrap)).count();
    assert_eq!(wraps, values.windows(2).filter(|w| w[1] < w[0]).count(), "{what}: {values:?}");
    for event in [
        Event::Ambiguous,
        Event::Restart,
        Event::ResetByRestart,
        Event::Discontinuity,
        Event::UnannouncedReset,
    ] {
        assert!(!steps().any(|s| s.events.contains(event)), "{what}: {event:?}, {values:?}");
    }
}
