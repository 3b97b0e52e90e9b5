//! The tools of logical link control as a person meets them, over UDP on the loopback.

#![allow(clippy::disallowed_methods, reason = "these tests watch programs that run in real time")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use crate::command::{Ended, Running, TestDir, noise, signal, within};
use nix::sys::signal::Signal;
use serde_json::Value;
use trunkline_llc::socket::{Settings, StationSocket};
use trunkline_llc::{Address, Options};

const LONG: Duration = Duration::from_secs(60);

/// A separate network for a test.
struct TestNetwork {
    dir: TestDir,
    network: String,
}

impl TestNetwork {
    fn new() -> TestNetwork {
        static PORTS: AtomicU16 = AtomicU16::new(30_000);
        let port = PORTS.fetch_add(256, Ordering::Relaxed);
        TestNetwork { dir: TestDir::new(), network: format!("udp:239.77.9.0:{port}") }
    }

    fn command(&self, tool: &str, words: &[&str]) -> Command {
        let mut command = self.dir.trunkline(&[&["llc", tool], words].concat());
        command.env("LLC_NETWORK", &self.network).env_remove("LLC_STATION");
        command
    }

    fn run(&self, tool: &str, words: &[&str]) -> Ended {
        self.dir.end(self.command(tool, words))
    }

    /// Runs a tool that must succeed.
    fn well(&self, tool: &str, words: &[&str]) -> String {
        let ended = self.run(tool, words);
        assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{}", ended.out);
        ended.out
    }

    fn json(&self, tool: &str, words: &[&str]) -> Value {
        let out = self.well(tool, &[words, &["--json"]].concat());
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"))
    }

    /// One under way, and where it can be read what it says.
    fn read(&self, mut command: Command) -> (Running, PathBuf) {
        let told = tempfile::Builder::new().prefix("told").tempfile_in(self.dir.path("")).unwrap();
        let ((out, path), err) = (told.keep().unwrap(), tempfile::tempfile().unwrap());
        command.stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap());
        (Running::with(command, out, err), path)
    }

    /// A station that serves, once it does.
    fn serve(&self, words: &[&str]) -> Running {
        self.serves(self.command("serve", words))
    }

    /// It is not asked: what it answers too late would answer who asks next.
    fn serves(&self, command: Command) -> Running {
        let (running, told) = self.read(command);
        within(LONG, "the station", || fs::read_to_string(&told).unwrap().contains("serving station 2"));
        running
    }

    /// A station that dies of the octet of a file that is one too many: 5 MB, or 10 MB where blocks are of 1024.
    fn serve_until_it_dies(&self, words: &[&str]) -> Running {
        let inner = self.command("serve", words);
        let mut command = Command::new("sh");
        command.args(["-ec", "ulimit -c 0; ulimit -f 10000; exec \"$0\" \"$@\""]);
        command.arg(inner.get_program()).args(inner.get_args()).stdin(Stdio::null());
        command.current_dir(inner.get_current_dir().unwrap()).env("LLC_NETWORK", &self.network);
        command.env_remove("LLC_STATION");
        self.serves(command)
    }
}

#[test]
fn all_functions_of_a_station_work() {
    let place = TestNetwork::new();
    let told = place.well("test", &[]);
    assert_eq!(told.lines().filter(|line| line.starts_with("ok ")).count(), 21, "{told}");
    let ring = place.json("test", &["--ring"]);
    let functions = ring["functions"].as_array().unwrap();
    assert!(ring["ok"] == true && functions.len() == 21, "{ring}");
    // Another program is as good.
    let _serving = place.serve(&[]);
    assert_eq!(place.json("test", &["--with", "2"])["ok"], true);
}

#[test]
fn impossible_options_are_errors_of_one_line() {
    let place = TestNetwork::new();
    place.run("test", &["--with", "7"]).assert_line(1, "station 7 does not answer");
    place.run("ping", &["9", "-c", "1", "-W", "50ms"]).assert_line(1, "station 9 does not answer");
    place.run("ping", &["0"]).assert_line(2, "`0` is not a station");
    place.run("ping", &["1:300"]).assert_line(2, "is not a station");
    place.run("ping", &["2", "--network", "eth:nosuch0"]).assert_line(2, "eth:nosuch0");
    place.run("copy", &["nothing", "2"]).assert_line(2, "nothing: No such file");
    place.run("copy", &["nothing", "all"]).assert_line(2, "one station");
    place.run("copy", &["2", "--force"]).assert_line(2, "expected one or more files");
    place.dir.write("file", "content");
    place.run("copy", &["file", "2", "--patience", "50ms"]).assert_line(1, "station 2 does not answer");
    let _serving = place.serve(&[]);
    let mut refused = None;
    within(LONG, "an acknowledgement", || {
        let ended = place.run("copy", &["file", "2", "--patience", "50ms"]);
        let is_silent = ended.err.contains("does not answer");
        refused = Some(ended);
        !is_silent
    });
    refused.unwrap().assert_line(1, "accepts no files");
    place.run("serve", &[]).assert_line(2, "station 2 is already in use");
    for words in [["--network", "nowhere"], ["--station", "255"], ["--size", "1498"]] {
        assert_eq!(place.run("ping", &[&["2"], &words[..]].concat()).status, 2);
    }
}

#[test]
fn ping_counts_answers() {
    let place = TestNetwork::new();
    let _serving = place.serve(&[]);
    let told = place.json("ping", &["2:0x64", "-c", "5", "-i", "1ms", "-s", "1497", "-W", "30s"]);
    assert_eq!((&told["sent"], &told["answered"], &told["damaged"]), (&5.into(), &5.into(), &0.into()));
    assert!(told["each"].as_array().unwrap().iter().all(|one| one["octets"] == 1497 && one["sap"] == 0x64));
    let told = place.json("ping", &["2", "-c", "1", "--xid", "-W", "30s"]);
    assert_eq!(told["each"][0]["types"], Value::from(vec![1, 3]));
    let mut size = 56;
    within(LONG, "an answer of every SAP", || {
        // What comes too late is not counted where another length is asked for.
        size += 1;
        let words = ["all:255", "-c", "1", "-W", "300ms", "--json", "-s", &size.to_string()];
        let ended = place.run("ping", &words);
        let all: Value = serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{e}: {ended:?}"));
        let answers = all["answers"].as_u64().unwrap();
        assert!(answers <= 5, "{all}");
        answers == 5 && all["answered"] == 1
    });
    // Ctrl-C ends it with what was measured.
    let (under_way, told) = place.read(place.command("ping", &["2", "-i", "50ms", "-W", "30s"]));
    within(LONG, "an answer", || fs::read_to_string(&told).unwrap().contains(" octets from station 2"));
    signal(under_way.id(), Signal::SIGINT);
    let ended = under_way.end();
    assert_eq!(ended.status, 0, "{}", ended.err);
    let (asked, _) = ended.out.split_once(" sent, ").expect("what was measured");
    assert!(asked.lines().last().unwrap().parse::<u64>().unwrap() >= 1, "{}", ended.out);
}

#[test]
fn an_answer_that_comes_late_answers_nothing() {
    let place = TestNetwork::new();
    let serving = place.serve(&[]);
    signal(serving.id(), Signal::SIGSTOP);
    let (pinging, told) = place.read(place.command("ping", &["2", "-i", "0s", "-W", "20ms"]));
    let tells = |what: &str| within(LONG, what, || fs::read_to_string(&told).unwrap().contains(what));
    tells("no answer to 9 within");
    signal(serving.id(), Signal::SIGCONT);
    tells("DAMAGED OR LATE");
    tells(" octets from station 2");
    signal(pinging.id(), Signal::SIGINT);
    let ended = pinging.end();
    assert_eq!(ended.status, 0);
    assert!(ended.out.contains(" answers were damaged or late"), "{}", ended.out);
}

#[test]
fn services_do_not_answer_each_other() {
    let place = TestNetwork::new();
    let _serving = place.serve(&[]);
    let station = StationSocket::to(&place.network.parse().unwrap(), 3, &Settings::default()).unwrap();
    let [person, service] = [0x78, 0x68].map(|sap| station.open(sap, &Options::default()).unwrap());
    let mut message = Vec::new();
    let echo = Address { sap: 0x64, station: 2 };
    // The echo of the second shows that the first has been processed.
    within(LONG, "an echo", || {
        service.send(echo, b"for ever").unwrap();
        person.send(echo, b"once").unwrap();
        person.receive_within(&mut message, Some(Duration::from_millis(200))).is_ok()
    });
    assert_eq!(message, b"once");
    assert!(service.try_receive(&mut message).is_err(), "{message:?}");
}

#[test]
fn files_arrive_whole_and_replace_nothing_unasked() {
    let place = TestNetwork::new();
    let bytes = noise(200_000);
    place.dir.write("one", &bytes);
    place.dir.write("empty", "");
    let serving = place.serve(&["--into", "kept", "--allow-force"]);
    let told = place.json("copy", &["one", "empty", "2"]);
    assert_eq!((&told["copied"][0]["octets"], &told["partial"]), (&200_000.into(), &false.into()));
    assert_eq!(fs::read(place.dir.path("kept/one")).unwrap(), bytes);
    assert_eq!(fs::read(place.dir.path("kept/empty")).unwrap(), b"");
    assert_eq!(fs::read_dir(place.dir.path("kept/.partial")).unwrap().count(), 0);
    // The same is there already; another of this name is not taken, unless it is to be.
    assert_eq!(place.json("copy", &["one", "2"])["copied"][0]["resumed_from"], 200_000);
    place.dir.write("one", "another");
    // A refusal holds up no other file, and flags may stand between.
    place.dir.write("two", "two");
    place
        .run("copy", &["one", "--priority", "3", "two", "2"])
        .assert_line(1, "another file of this name exists");
    assert_eq!(fs::read(place.dir.path("kept/two")).unwrap(), b"two");
    let told: Value = serde_json::from_str(&place.run("copy", &["one", "two", "2", "--json"]).out).unwrap();
    assert_eq!((&told["refused"][0]["name"], &told["copied"][0]["name"]), (&"one".into(), &"two".into()));
    assert_eq!(fs::read(place.dir.path("kept/one")).unwrap(), bytes);
    place.well("copy", &["one", "2:0x60", "--force"]);
    assert_eq!(fs::read(place.dir.path("kept/one")).unwrap(), b"another");
    signal(serving.id(), Signal::SIGTERM);
    let ended = serving.end();
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    assert!(ended.out.contains("kept one, 200000 octets, from station 1"), "{}", ended.out);
}

#[test]
fn a_copy_survives_the_death_of_either_end() {
    let place = TestNetwork::new();
    let bytes = noise(20_000_000);
    place.dir.write("large", &bytes);
    let partial = || {
        let parts = fs::read_dir(place.dir.path("kept/.partial")).into_iter().flatten().flatten();
        parts.filter_map(|part| part.metadata().ok()).map(|about| about.len()).max().unwrap_or_default()
    };
    let copy = |more: &[&str]| place.command("copy", &[&["large", "2", "--patience", "100s"], more].concat());
    // However late this test looks, not all is there.
    let serving = place.serve_until_it_dies(&["--into", "kept"]);
    // The sender is killed, and then resumes.
    let sending = Running::start(copy(&[]));
    within(LONG, "some octets", || partial() > 100_000);
    signal(sending.id(), Signal::SIGKILL);
    sending.end();
    let before = partial();
    assert!(before > 100_000 && before < 20_000_000, "{before}");
    // Who keeps dies under way and comes back.
    let sending = Running::start(copy(&["--json"]));
    assert_eq!(serving.end().status, -(Signal::SIGXFSZ as i32));
    assert!(partial() >= before && partial() < 20_000_000, "{before}, {}", partial());
    let _serving = place.serve_again(&["--into", "kept"]);
    let ended = sending.end();
    assert_eq!(ended.status, 0, "{}", ended.err);
    let told: Value = serde_json::from_str(&ended.out).unwrap();
    assert!(told["copied"][0]["resumed_from"].as_u64() >= Some(100_000), "{told}");
    assert_eq!(fs::read(place.dir.path("kept/large")).unwrap(), bytes);
}

impl TestNetwork {
    /// One whose station number may be free only in a moment, and which is not asked anything.
    fn serve_again(&self, words: &[&str]) -> Running {
        Running::start(self.command("serve", words))
    }
}

#[test]
fn delay_and_load_are_reported_by_size_and_class() {
    let place = TestNetwork::new();
    let told = place.json("wrap", &["--messages", "3", "--size", "0,100", "--priority", "0,7"]);
    let rows = told["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4 * 2 * 2);
    for row in rows {
        let counted = row["delay_us"]["count"].as_u64().expect("some came");
        assert_eq!(counted + row["lost"].as_u64().unwrap(), 3, "{row}");
    }
    assert!(told["effects"]["same_station"]["delay_us"]["p50"].as_f64() > Some(0.0), "{told}");
    let told =
        place.json("load", &["--messages", "200", "--size", "2,1024", "--time", "10s", "--acknowledged"]);
    let rows = told["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows.iter().chain([&told["effects"]["completed"]]) {
        assert_eq!(
            (&row["sent"], &row["received"], &row["failed"]),
            (&200.into(), &200.into(), &0.into()),
            "{row}"
        );
    }
    for how in [&["--batch", "16"][..], &["--rate", "2000"], &["--crc"]] {
        let words = [&["--messages", "64", "--size", "100", "--time", "10s", "--plain"], how].concat();
        let told = place.json("load", &words);
        let row = &told["rows"][0];
        assert_eq!(row["sent"], 64);
        assert!((1..=64).contains(&row["received"].as_u64().unwrap()), "{told}");
        assert!(told.get("effects").is_some_and(Value::is_null), "{told}");
    }
    let text = place.well("load", &["--messages", "50", "--size", "100", "--ring"]);
    assert!(text.contains("same station") && text.contains("polled"), "{text}");
}

#[test]
fn rings_keep_their_promises_or_refuse_them() {
    let place = TestNetwork::new();
    let nasa = ["--promise", "all:7:100:10ms", "--invited", "1", "--stations"];
    let told = place.json("admit", &[&nasa[..], &["51"]].concat());
    let streams = told["streams"].as_array().unwrap();
    assert!(told["admitted"] == true && streams.len() == 51, "{told}");
    assert!(streams.iter().all(|stream| stream["delay_us"] == 9873.2), "{told}");
    let text = place.well("admit", &[&nasa[..], &["51"]].concat());
    assert!(text.contains("   1-51        7     100"), "{text}");
    place.run("admit", &[&nasa[..], &["52"]].concat()).assert_line(1, "refused: station 1, priority 7");
    let refused = place.run("admit", &[&nasa[..], &["52", "--json"]].concat());
    let told: Value = serde_json::from_str(&refused.out).unwrap();
    assert!(
        refused.status == 1 && told["admitted"] == false && told["streams"] == Value::Array(vec![]),
        "{told}"
    );
    place.run("admit", &["--stations", "3", "--promise", "9:7:100:10ms"]).assert_line(1, "not in the ring");
    for wrong in [["3", "all:8:100:10ms"], ["0", "all:7:100:10ms"], ["1,1", "all:7:100:10ms"], ["3", "7"]] {
        assert_eq!(place.run("admit", &["--stations", wrong[0], "--promise", wrong[1]]).status, 2);
    }
}
