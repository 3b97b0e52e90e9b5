//! `trunkline monitor poll`: its output and errors, and the archive against the counters of the kernel through net-snmp.

#![cfg(feature = "snmp")]
#![allow(clippy::disallowed_methods, reason = "these tests watch programs that run in real time")]

mod snmpsim;

use std::env;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::command::{Running, TestDir, can, signal, within};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use trunkline_counters::archive::{Reader, TableId};
use trunkline_counters::counter::{Event, Timestamp};
use trunkline_io::must::skip;

/// Limit of every wait.
const LIMIT: Duration = Duration::from_secs(120);

const SNMPD: &str = "agentAddress udp:127.0.0.1:1161
rocommunity public 127.0.0.1
createUser watcher SHA-256 \"authpassword\" AES \"privpassword\"
rouser watcher priv
sysName under-test
";

const POLL: &str = "period = '500ms'
timeout = '5s'
flush = '200ms'
[[credentials]]
name = 'plain'
community = { file = 'community' }
[[credentials]]
name = 'secure'
user = 'watcher'
auth = 'sha256'
auth-password = { env = 'TEST_AUTH' }
priv = 'aes128'
priv-password = 'privpassword'
[[device]]
name = 'v2'
address = '127.0.0.1:1161'
credentials = 'plain'
[[device]]
name = 'v3'
address = '127.0.0.1:1161'
credentials = 'secure'
[[machine]]
name = 'here'
";

/// A process that is killed on drop.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn snmpd(dir: &TestDir) -> Ends {
    dir.write("snmpd.conf", SNMPD);
    let mut command = Command::new("snmpd");
    command.args(["-f", "-Lf", "snmpd.log", "-I", "-smux"]);
    // It reads no other configuration, and stores its engine ID.
    let here = dir.path("").display().to_string();
    command.env("SNMPCONFPATH", format!("{here}:{here}/snmp"));
    command.current_dir(dir.path("")).env("SNMP_PERSISTENT_DIR", dir.path("snmp"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ends(command.spawn().unwrap())
}

fn sh(line: &str) {
    let output = Command::new("sh").args(["-ec", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What the kernel has counted of an interface in this thread's network: octets in and out.
fn kernel(interface: &str) -> [u64; 2] {
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{interface}:"))).unwrap();
    let counts: Vec<u64> = line.split_whitespace().map(|n| n.parse().unwrap()).collect();
    [counts[0], counts[8]]
}

/// The last values of octets in and out of a device's interface, and its sums and events over all time.
struct Octets {
    last: [Option<u64>; 2],
    sums: [i128; 2],
    events: Vec<&'static str>,
    /// Changes of the values, printed on failure.
    steps: Vec<String>,
}

fn octets(archive: &Path, device: &str, interface: &str) -> Option<Octets> {
    let reader = Reader::open(archive).ok()?;
    let table = reader
        .tables(TableId(0), 100)
        .ok()?
        .into_iter()
        .find(|t| t.device == device && t.name == "interfaces")?;
    let all = reader.series(table.id).ok()?;
    let mut found = Octets { last: [None; 2], sums: [0; 2], events: Vec::new(), steps: Vec::new() };
    for (at, way) in ["in", "out"].into_iter().enumerate() {
        let series = all.iter().find(|s| s.name == format!("port/{interface}/{way}/octets"))?;
        let points = reader.points(series.id, Timestamp(0), Timestamp::MAX, 100_000).ok()?.points;
        for pair in points
            .windows(2)
            .filter(|p| p[0].value != p[1].value || p[1].update.growth.is_some_and(|g| g.amount > 0))
        {
            let (row, step) = (&pair[1].row, &pair[1].update);
            let grown = step.growth.map(|g| g.amount);
            let uptime = row.uptime;
            found.steps.push(format!(
                "{way} {:?} {:?} grown {grown:?} {:?} {uptime:?}",
                row.requested_at, pair[1].value, step.events
            ));
        }
        found.last[at] = points.iter().rev().find_map(|p| p.value).map(|raw| raw.0);
        let view = reader.view(series.id, Timestamp(0), Timestamp::MAX, 1).ok()?;
        found.sums[at] = view.buckets.buckets[0].sum;
        found.events.extend(view.buckets.buckets[0].events.iter().map(Event::name));
    }
    Some(found)
}

/// Waits until the archive matches the kernel for all devices.
fn settled(archive: &Path) -> [u64; 2] {
    let mut now = [0; 2];
    within(LIMIT, "the archive to match the kernel", || {
        now = kernel("left");
        thread::sleep(Duration::from_millis(200));
        ["v2", "v3", "here"]
            .iter()
            .all(|device| octets(archive, device, "left").is_some_and(|found| found.last == now.map(Some)))
    });
    now
}

#[test]
fn the_archive_matches_the_kernel_across_a_restart_of_the_agent() {
    if !can(&["unshare", "-n", "ip", "link", "add", "type", "veth"]) || !can(&["snmpd", "-v"]) {
        return;
    }
    let run = || {
        if let Err(e) = unshare(CloneFlags::CLONE_NEWNET) {
            return skip(e);
        }
        counted();
    };
    thread::spawn(run).join().unwrap();
}

fn counted() {
    sh(
        "ip link set lo up; ip link add left type veth peer name right; ip addr add 10.9.0.1/24 dev left; ip link set left up",
    );
    let mut far = Command::new("unshare");
    far.args(["-n", "sleep", "10000"]);
    let far = Ends(far.spawn().unwrap());
    let id = far.0.id();
    within(LIMIT, "another network", || {
        let net = |of: &str| fs::read_link(format!("/proc/{of}/ns/net")).ok();
        net(&id.to_string()).is_some_and(|there| Some(there) != net("thread-self"))
    });
    // No IPv6 at either end and static neighbours, so that there is no background traffic.
    sh(&format!(
        "ip link set right netns {id}; nsenter -t {id} -n sh -ec 'echo 1 > /proc/sys/net/ipv6/conf/right/disable_ipv6 || true; ip link set right address 02:00:00:00:00:02 up; ip addr add 10.9.0.2/24 dev right'
         ip neigh replace 10.9.0.2 lladdr 02:00:00:00:00:02 dev left nud permanent; echo 1 > /proc/sys/net/ipv6/conf/left/disable_ipv6 || true"
    ));
    let dir = TestDir::new();
    let mut agent = snmpd(&dir);
    dir.write("poll.toml", POLL);
    dir.write("community", "public\n");
    let mut command = dir.trunkline(&["monitor", "poll", "poll.toml", "--archive", "counters"]);
    command.env("TEST_AUTH", "authpassword");
    let poller = Running::start(command);
    let archive = dir.path("counters");

    let before = settled(&archive);
    let base: Vec<_> =
        ["v2", "v3", "here"].iter().map(|d| octets(&archive, d, "left").unwrap().sums).collect();
    let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
    send(&socket, traffic() / 2);
    // A clean shutdown, so that it stores its engine ID and boot count.
    signal(Pid::from_raw(agent.0.id() as i32), Signal::SIGTERM);
    within(LIMIT, "the agent to end", || agent.0.try_wait().unwrap().is_some());
    let agent = snmpd(&dir);
    send(&socket, traffic() / 2);
    let after = settled(&archive);
    within(LIMIT, "the archive to show the restart of the agent", || {
        let texts = Reader::open(&archive).and_then(|reader| reader.texts("v3")).unwrap_or_default();
        texts.iter().any(|t| t.object == "agent" && t.key == "engine boots" && t.text == "2")
    });
    let log = fs::read_to_string(dir.path("snmpd.log")).unwrap_or_default();
    drop(agent);
    signal(poller.id(), Signal::SIGTERM);
    let ended = poller.end();
    assert_eq!(ended.status, 0, "{}\n{log}", ended.err);
    assert!(after[1] - before[1] > 1_000_000, "there was traffic");
    for (device, base) in ["v2", "v3", "here"].iter().zip(base) {
        let found = octets(&archive, device, "left").unwrap();
        for way in 0..2 {
            let (sum, counted) = (found.sums[way] - base[way], i128::from(after[way] - before[way]));
            println!("{device}: {sum} octets in the archive, {counted} counted by the kernel");
            assert!(
                (sum - counted).abs() * 1_000 <= counted,
                "{device}: {sum} of {counted}: {:#?}",
                found.steps
            );
        }
        let restarts = found.events.iter().filter(|e| **e == "restart").count();
        assert_eq!(restarts, if *device == "here" { 0 } else { 2 }, "{device}: {:?}", found.events);
    }
    let reader = Reader::open(&archive).unwrap();
    let texts = reader.texts("v3").unwrap();
    let said =
        |object: &str, key: &str| texts.iter().find(|t| t.object == object && t.key == key).map(|t| &*t.text);
    assert_eq!(said("", "name"), Some("under-test"));
    assert_eq!(said("port/left", "state"), Some("up"));
    assert_eq!(said("agent", "engine boots"), Some("2"));
}

/// How long traffic lasts: 12 s, ten minutes with the feature `soak`, or what `SOAK_SECONDS` says.
fn traffic() -> Duration {
    let told = env::var("SOAK_SECONDS").ok().map(|text| text.parse().expect("SOAK_SECONDS is a number"));
    Duration::from_secs(told.unwrap_or(if cfg!(feature = "soak") { 600 } else { 12 }))
}

/// Sends traffic for `time`.
fn send(socket: &UdpSocket, time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        for _ in 0..20 {
            let _ = socket.send_to(&[7; 1_200], "10.9.0.2:9");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn once_prints_a_table_and_reports_silent_devices() {
    let dir = TestDir::new();
    dir.write(
        "poll.toml",
        "timeout = '200ms'\nretries = 0\n[[machine]]\nname = 'here'\ninterfaces = ['lo']
        [[credentials]]\nname = 'c'\ncommunity = 'public'
        [[device]]\nname = 'silent'\naddress = '127.0.0.1:9'\ncredentials = 'c'",
    );
    let ended = dir.execute(&["monitor", "poll", "poll.toml", "--once"]);
    assert_eq!(ended.status, 1, "{}", ended.err);
    assert!(ended.err.contains("silent: interfaces: no answer"), "{}", ended.err);
    let line =
        ended.out.lines().find(|line| line.starts_with("  lo ")).unwrap_or_else(|| panic!("{}", ended.out));
    assert!(line.split_whitespace().nth(3).unwrap().parse::<u64>().is_ok(), "{line}");
    assert!(ended.out.contains("silent  127.0.0.1:9\n  no readings\n"), "{}", ended.out);
    dir.write("poll.toml", "[[machine]]\nname = 'here'\ninterfaces = ['lo']");
    let ended = dir.execute(&["monitor", "poll", "poll.toml", "--once", "--json"]);
    assert_eq!(ended.status, 0, "{}", ended.err);
    for line in ended.out.lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).unwrap()["device"] == "here");
    }
    assert!(ended.out.contains("port/lo/in/octets"));
}

#[test]
fn errors_are_one_line() {
    let dir = TestDir::new();
    for (text, words) in [
        ("period 3", "poll.toml: line 1: "),
        ("period = '1s'", "there is nothing to poll"),
        ("[[machine]]\nname = 'a'\n[[machine]]\nname = 'a'", "duplicate name `a`"),
    ] {
        dir.write("poll.toml", text);
        dir.execute(&["monitor", "poll", "poll.toml"]).assert_line(2, words);
    }
    dir.execute(&["monitor", "poll", "not-there.toml"]).assert_line(2, "not-there.toml: ");
    dir.write("poll.toml", "[[machine]]\nname = 'a'");
    dir.write("counters", "this is something else");
    dir.execute(&["monitor", "poll", "poll.toml", "--archive", "counters"])
        .assert_line(2, "is not an archive of counters");
}

#[test]
fn rates_are_printed_as_lines_and_as_json() {
    let dir = TestDir::new();
    dir.write("poll.toml", "period = '100ms'\n[[machine]]\nname = 'here'\ninterfaces = ['lo']");
    for json in [false, true] {
        let mut args = vec!["monitor", "poll", "poll.toml", "--no-archive"];
        args.extend(json.then_some("--json"));
        let mut command = dir.trunkline(&args);
        let [out, err] =
            ["out", "err"].map(|name| fs::File::create_new(dir.path(&format!("{name}-{json}"))).unwrap());
        command.stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap());
        let running = Running::with(command, out, err);
        let said = || fs::read_to_string(dir.path(&format!("out-{json}"))).unwrap();
        within(LIMIT, "rates", || said().lines().any(|line| line.contains("port/lo") && line.contains("in")));
        signal(running.id(), Signal::SIGINT);
        let said = said();
        assert_eq!(running.end().status, 0);
        for line in said.lines().take(5) {
            match json {
                true => {
                    assert_eq!(serde_json::from_str::<serde_json::Value>(line).unwrap()["device"], "here")
                }
                false => assert!(line.contains("  here  port/lo  in "), "{line}"),
            }
        }
    }
}

#[test]
fn readings_go_to_the_default_archive() {
    let dir = TestDir::new();
    dir.write(
        "poll.toml",
        "period = '100ms'\nflush = '100ms'\n[[machine]]\nname = 'here'\ninterfaces = ['lo']",
    );
    let running = Running::start(dir.trunkline(&["monitor", "poll", "poll.toml"]));
    let archive = dir.path(".local/share/trunkline/counters.sqlite");
    within(LIMIT, "readings", || octets(&archive, "here", "lo").is_some_and(|found| found.last[0].is_some()));
    signal(running.id(), Signal::SIGTERM);
    let ended = running.end();
    assert_eq!((ended.status, ended.out.as_str()), (0, ""), "{}", ended.err);
    let line =
        format!("trunkline: storing readings in {}; --no-archive prints rates instead\n", archive.display());
    assert_eq!(ended.err, line);
    // `--once` stores nothing unless an archive is named.
    let other = TestDir::new();
    other.write("poll.toml", "[[machine]]\nname = 'here'\ninterfaces = ['lo']");
    let ended = other.execute(&["monitor", "poll", "poll.toml", "--once"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    assert!(!other.path(".local").exists());
}
