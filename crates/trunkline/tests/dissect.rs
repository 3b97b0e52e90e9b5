//! Captures of the guaranteed transport, read by a second decoder (`dissect/decode_guaranteed.py`, written from
//! docs/wire.md alone) and by the Wireshark dissector: both must read every byte, agree, and find what the record says.

#![allow(clippy::disallowed_methods, reason = "one of these tests watches a program that runs in real time")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::command::{TestDir, can, connection, free_ports, number, repository, signal, within};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::{Value, json};

const DECODER: &str = "crates/trunkline/tests/dissect/decode_guaranteed.py";
const DISSECTOR: &str = "wireshark/trunkline-guaranteed.lua";
const WIRE: &str = "docs/wire.md";

/// What a program prints that must go well and complain of nothing but being root.
fn printed(command: &mut Command) -> String {
    let output = command.output().expect(".ci/packages installs it");
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    let own =
        complaints.lines().filter(|line| !line.contains("Running as user \"root\"")).collect::<Vec<_>>();
    assert!(output.status.success() && own.is_empty(), "{command:?}: {complaints}");
    String::from_utf8(output.stdout).expect("text")
}

/// What the decoder prints of some files, asked so.
fn decoder(arguments: &[&str], files: &[PathBuf]) -> String {
    printed(Command::new("python3").arg("-B").arg(repository(DECODER)).args(arguments).args(files))
}

/// What the decoder finds in each of some files.
fn found(arguments: &[&str], files: &[PathBuf]) -> Vec<Value> {
    decoder(arguments, files).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What the decoder finds in captures, which hold nothing that it cannot read and no message without an end.
fn decoded<const N: usize>(files: [PathBuf; N]) -> [Value; N] {
    let found = found(&[], &files);
    for (found, file) in found.iter().zip(&files) {
        assert_eq!((&found["wrong"], &found["unfinished"]), (&json!([]), &json!([])), "{}", file.display());
    }
    found.try_into().expect("one for each")
}

fn tshark(file: &Path, more: &[&str]) -> String {
    let script = format!("lua_script:{}", repository(DISSECTOR).display());
    printed(Command::new("tshark").args(["-X", &script, "-r"]).arg(file).args(more))
}

/// The names of the fields that `--fields` prints, in order.
fn fields() -> Vec<String> {
    let text = fs::read_to_string(repository(DECODER)).unwrap();
    let (_, rest) = text.split_once("FIELDS = \"\"\"").unwrap();
    let (names, _) = rest.split_once("\"\"\"").unwrap();
    names.split_whitespace().map(|name| format!("guaranteed.{name}")).collect()
}

/// What Wireshark shows where its dissector stumbles.
const TROUBLE: [&str; 3] = ["_ws.malformed", "_ws.lua.error", "guaranteed.odd"];

/// The fields that the dissector shows of each packet, as the decoder prints them.
fn shown(file: &Path, more: &[&str]) -> String {
    let mut arguments =
        [more, &["-T", "fields", "-E", "occurrence=a", "-E", "aggregator=,", "-e", "frame.number"]]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>();
    for field in fields().into_iter().chain(TROUBLE.map(str::to_owned)) {
        arguments.extend(["-e".to_owned(), field]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let told = tshark(file, &arguments);
    let untroubled = |line: &str| {
        let clean = line.strip_suffix(&"\t".repeat(TROUBLE.len()));
        clean.unwrap_or_else(|| panic!("{}: {line}", file.display())).to_owned() + "\n"
    };
    told.lines().map(untroubled).collect()
}

fn assert_both_read_the_same(file: &Path) {
    let (shown, read) = (shown(file, &[]), decoder(&["--fields"], &[file.to_owned()]));
    for (shown, read) in shown.lines().zip(read.lines()) {
        assert_eq!(shown, read, "{}", file.display());
    }
    assert!(!read.is_empty() && shown.len() == read.len());
}

/// The record of a simulated run that must go well, and the captures in the folder beside it.
fn simulated(dir: &TestDir, experiment: &str, trace: &str) -> (Value, impl Fn(&str) -> PathBuf) {
    let ended =
        dir.run(experiment, &["--on", "sim", "--seed", "7", "--json", "--no-archive", "--trace", trace]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{experiment}");
    let folder = dir.path("out/sim");
    (serde_json::from_str(&ended.out).unwrap(), move |name: &str| folder.join(format!("{name}.pcapng")))
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

/// What `names` of an object come to, those that are there.
fn sum(object: &Value, names: &[&str]) -> u64 {
    names.iter().map(|name| object[name].as_f64().unwrap_or_default() as u64).sum()
}

/// Bytes of messages that the record says were sent.
fn bytes_sent(connection: &Value) -> u64 {
    let run = &connection["runs"][0];
    (number(&run["sent_bps"]) * number(&run["duration_s"]) / 8.0).round() as u64
}

/// The messages that a decoder put together are those that the record counted.
fn assert_messages(c: &Value, found: &Value) {
    let (out, back) = (&found["out"]["channels"]["0"], &found["back"]["channels"]["0"]);
    let sent = count(&c["messages_sent"]);
    assert_eq!((&c["messages_received"], &c["lost"]), (&json!(sent), &json!(0)));
    assert_eq!((count(&out["messages"]), count(&out["test_messages"])), (sent, sent));
    assert_eq!(count(&out["bytes"]), bytes_sent(c));
    let sizes = out["sizes"].as_object().unwrap().iter();
    assert_eq!(sizes.map(|(size, n)| size.parse::<u64>().unwrap() * count(n)).sum::<u64>(), bytes_sent(c));
    let answers = sum(back, &["messages"]);
    assert_eq!((answers, sum(back, &["test_messages"])), (sum(&c["counters"], &["answers"]), answers));
    assert_eq!(sum(back, &["bytes"]), sum(&c["counters"], &["answer_bytes"]));
    assert!(found["out"]["finished"] == true && found["back"]["finished"] == true);
}

/// What left an end, as captured there, is what that end says it sent.
fn assert_sent(counters: &Value, side: &str, way: &Value, frames: &Value) {
    let of = |name: &str| sum(counters, &[&format!("{side}_{name}")]);
    let openings = match side {
        "sender" => sum(frames, &["damaged open"]),
        _ => sum(frames, &["damaged cookie", "damaged opened"]),
    };
    assert_eq!(sum(way, &["bad"]) + openings, of("checksums_altered"), "{side}");
    // Lost opening frames are not counted.
    if of("frames_eaten") == 0 {
        let sent = of("frames_sent") + of("acks_forced") + of("repairs_sent");
        assert_eq!(sum(way, &["frames", "acks", "bad", "repairs"]), sent, "{side}");
        assert_eq!(sum(way, &["bytes"]), of("bytes_sent"), "{side}");
    }
    // A damaged frame may have been one of these.
    if of("frames_eaten") + of("checksums_altered") == 0 {
        assert_eq!(sum(way, &["resent"]), of("frames_resent"), "{side}");
        assert_eq!(sum(way, &["acks_on_data"]), of("acks_piggybacked"), "{side}");
    }
}

/// The messages captured at an end equal those that the end reports.
fn assert_received(counters: &Value, side: &str, way: &Value) {
    let of = |name: &str| sum(counters, &[&format!("{side}_{name}")]);
    assert_eq!(sum(way, &["frames"]), of("frames_received") + of("doubles") + of("framing_errors"), "{side}");
    assert_eq!(sum(way, &["bad"]), of("bad_checksums"), "{side}");
    assert_eq!(sum(way, &["acks"]), of("acks_received_forced"), "{side}");
    assert_eq!(sum(way, &["acks_on_data"]), of("acks_received_piggybacked"), "{side}");
    assert_eq!(sum(way, &["repairs"]), of("repairs_received"), "{side}");
}

/// Runs one connection between two hosts, and holds the captures of both against the record; what was found at the
/// sender.
fn check(link: &str, to: &str, protocol: &str, test: &str) -> Value {
    let dir = TestDir::new();
    let experiment = format!(
        "experiment \"wire\" {{ network {{ host a, b; link a - b (rate = 20 Mb/s, delay = 2 ms{link}); }}
           connection c {{ xmt = a; rcv = {to}; protocol = guaranteed ({protocol}); test = {test}; }} }}"
    );
    let (record, capture) = simulated(&dir, &experiment, "a,b");
    let c = connection(&record, "c");
    let [at_a, at_b] = decoded(["a", "b"].map(&capture));
    let [a, b] = [&at_a, &at_b].map(|found| &found["connections"][0]);
    [a, b].into_iter().for_each(|found| assert_messages(c, found));
    assert_eq!(a["out"]["channels"], b["out"]["channels"]);
    assert_eq!(a["back"]["channels"], b["back"]["channels"]);
    assert_sent(&c["counters"], "sender", &a["out"], &at_a["frames"]);
    assert_sent(&c["counters"], "receiver", &b["back"], &at_b["frames"]);
    assert_received(&c["counters"], "sender", &a["back"]);
    assert_received(&c["counters"], "receiver", &b["out"]);
    assert_both_read_the_same(&capture("a"));
    a.clone()
}

const LOSS: &str = ", loss = 0.04";
const SIZES: &str = "cbr (messagesize = uniform(32, 6000), period = 5 ms); messages = 30";
const ASKS: &str = "request (request = 3000, response = 1000); messages = 12";

#[test]
fn selective_repeat_is_read() {
    let found = check(LOSS, "b", "mode = selective, frame = 1472 B, window = 64", SIZES);
    assert_eq!((&found["mode"], &found["check"]), (&json!("selective"), &json!(1)));
    assert!(sum(&found["back"], &["ranges"]) > 0 && sum(&found["out"], &["resent"]) > 0);
}

#[test]
fn what_was_rebuilt_is_rebuilt_by_the_decoder() {
    for (fec, checksum) in [("4", "crc32c"), ("10+3", "crc64"), ("1+1", "none")] {
        let protocol =
            format!("mode = selective, frame = 600 B, window = 64, checksum = {checksum}, fec = {fec}");
        let found = check(LOSS, "b", &protocol, SIZES);
        assert!(sum(&found["out"], &["repairs"]) > 0);
        // What is captured where it is sent is whole; what is dropped before that is not.
        assert_eq!(sum(&found["out"], &["rebuilt"]), 0);
        let found = check("", "b", &(protocol + ", drop = 0.05"), SIZES);
        assert!(sum(&found["out"], &["rebuilt"]) > 0, "{fec}");
    }
}

#[test]
fn go_back_n_is_read() {
    let found = check(LOSS, "b", "mode = gobackn, frame = 1472 B, checksum = crc64", SIZES);
    assert_eq!((&found["mode"], &found["check"]), (&json!("go-back-N"), &json!(2)));
    assert!(sum(&found["back"], &["nacks"]) > 0);
    let found = check(LOSS, "b", "mode = gobackn, frame = 1000 B, checksum = folded", ASKS);
    assert_eq!(found["check"], 3);
}

#[test]
fn stop_and_wait_is_read() {
    let found = check(LOSS, "b", "mode = stopandwait, frame = 1000 B, checksum = folded", ASKS);
    assert_eq!((&found["mode"], &found["check"]), (&json!("stop-and-wait"), &json!(3)));
}

#[test]
fn small_messages_share_frames() {
    let test = "full (messagesize = 40); messages = 600";
    let found =
        check(LOSS, "b", "mode = selective, frame = 1472 B, checksum = none, congestion = paced", test);
    let out = &found["out"];
    assert_eq!(found["check"], 0);
    assert!(sum(out, &["numbers"]) < 300, "{out}");
}

#[test]
fn every_check_detects_damage() {
    for (checksum, mode) in
        [("crc32c", "selective"), ("crc64", "gobackn"), ("folded", "selective"), ("none", "gobackn")]
    {
        let protocol = format!("mode = {mode}, frame = 1472 B, checksum = {checksum}, alter = 0.1");
        let found = check("", "b", &protocol, ASKS);
        assert!(sum(&found["out"], &["bad"]) > 0, "{checksum}");
    }
    let protocol = "mode = selective, frame = 1472 B, alter = 0.1, drop = 0.1, congestion = reno";
    assert!(sum(&check("", "b", protocol, ASKS)["back"], &["ranges"]) > 0);
}

#[test]
fn credit_is_granted_and_respected() {
    let protocol = "mode = selective, frame = 1472 B";
    let found = check("", "b (rcvbuf = 20 kB)", protocol, "full (messagesize = 4000); messages = 40");
    assert!(sum(&found["back"], &["frames"]) > 10, "the receiver grants again and again");
}

#[test]
fn a_quiet_peer_is_probed() {
    let test = "cbr (messagesize = 100, period = 12 s); messages = 3";
    let found = check("", "b", "mode = selective, checksum = crc64", test);
    assert!(sum(&found["out"], &["control_frames"]) > 0 && sum(&found["back"], &["control_frames"]) > 0);
}

#[test]
fn connections_of_one_path_are_distinguished() {
    // Simulated ones share addresses and ports: the words of their checks are all that differs.
    let dir = TestDir::new();
    let one = |name: &str, checksum: &str| {
        format!(
            "connection {name} {{ xmt = a; rcv = b; protocol = guaranteed (frame = 2000 B, checksum = {checksum});
               test = cbr (messagesize = 5000, period = 20 ms); messages = 20; }}"
        )
    };
    let link = "medium = atm, rate = 20 Mb/s, mtu = 9180 B, delay = 1 ms";
    let (x, y, z) = (one("x", "crc32c"), one("y", "none"), one("z", "crc32c"));
    let experiment = format!(
        "experiment \"wire\" {{ network {{ host a, b; link a - b ({link}, loss = 1e-4); }} parallel {{ {x} {y} {z} }} }}"
    );
    let (record, capture) = simulated(&dir, &experiment, "a-b");
    let [found] = decoded([capture("a-b")]);
    let found = found["connections"].as_array().unwrap();
    assert_eq!(found.len(), 3);
    for name in ["x", "y", "z"] {
        let c = connection(&record, name);
        assert!(found.iter().all(|found| found["out"]["channels"]["0"]["messages"] == c["messages_sent"]));
    }
    assert_both_read_the_same(&capture("a-b"));
}

#[test]
fn a_capture_without_its_opening_is_shown_on_request() {
    let dir = TestDir::new();
    let experiment = format!(
        "experiment \"wire\" {{ network {{ host a, b; link a - b (rate = 20 Mb/s, delay = 2 ms, loss = 0.05); }}
           connection c {{ xmt = a; rcv = b; protocol = guaranteed (frame = 1472 B); test = {ASKS}; }} }}"
    );
    let (_, capture) = simulated(&dir, &experiment, "a");
    let (whole, rest) = (capture("a"), dir.path("rest.pcapng"));
    printed(Command::new("tshark").arg("-r").arg(&whole).args(["-Y", "frame.number > 4", "-w"]).arg(&rest));
    let (_, read) = fields().into_iter().enumerate().find(|(_, name)| name == "guaranteed.status").unwrap();
    assert_eq!(tshark(&rest, &["-T", "fields", "-e", &read]).trim(), "");
    for named in [["-d", "udp.port==5001,guaranteed"], ["-o", "guaranteed.ports:4000,5001"]] {
        let (whole, rest) = (shown(&whole, &[]), shown(&rest, &named));
        let whole: Vec<&str> = whole.lines().skip(4).collect();
        assert_eq!(rest.lines().count(), whole.len());
        for (rest, whole) in rest.lines().zip(whole) {
            // Only the packet number differs, and the check is unverified.
            let words = |line: &str| line.split('\t').map(str::to_owned).collect::<Vec<_>>();
            let (rest, whole) = (words(rest), words(whole));
            assert_eq!(rest[1..rest.len() - 1], whole[1..whole.len() - 1]);
            assert_eq!((rest.last().unwrap().as_str(), whole.last().unwrap().as_str()), ("2", "1"));
        }
    }
}

// --- what no experiment sends

/// A capture that `craft_guaranteed.py` makes.
fn crafted(dir: &TestDir, what: &str) -> PathBuf {
    let file = dir.path(&format!("{what}.pcapng"));
    let script = repository(DECODER).with_file_name("craft_guaranteed.py");
    printed(Command::new("python3").arg("-B").arg(script).arg(what).arg(&file));
    file
}

#[test]
fn rare_frames_are_read() {
    let dir = TestDir::new();
    let file = crafted(&dir, "rare");
    let [found] = decoded([file.clone()]);
    let channels = found["connections"][0]["out"]["channels"].as_object().unwrap();
    let sizes = channels.iter().map(|(channel, found)| (channel.as_str(), found["sizes"].clone()));
    let expected = [
        ("0", json!({ "30": 1 })),
        ("65534", json!({ "0": 1, "3": 1, "127": 1, "200": 1 })),
        ("7", json!({ "0": 1, "1": 1, "3": 1, "4": 1 })),
        ("9", json!({ "0": 1, "100": 1 })),
    ];
    assert_eq!(sizes.collect::<Vec<_>>(), expected);
    assert_eq!(found["connections"][0]["out"]["rebuilt"], 2);
    for kind in ["repair", "refused", "unknown", "reset", "probe", "probe_reply"] {
        assert!(sum(&found["frames"], &[kind]) > 0, "{kind}");
    }
    assert_both_read_the_same(&file);
}

#[test]
fn parts_are_read() {
    let dir = TestDir::new();
    let file = crafted(&dir, "parts");
    let [found] = decoded([file.clone()]);
    let out = &found["connections"][0]["out"];
    assert_eq!((out["channels"]["7"]["sizes"].clone(), sum(out, &["parts"])), (json!({ "40": 1 }), 3));
    assert_both_read_the_same(&file);
    let told = ["fec_frames", "fec_repairs", "takes_parts"].map(|name| format!("guaranteed.{name}"));
    let [a, b, c] = &told;
    let told = tshark(&file, &["-T", "fields", "-e", a, "-e", b, "-e", c]);
    assert_eq!(told.lines().next(), Some("4\t2\t1"));
}

#[test]
fn numbers_that_run_over_keep_their_checks() {
    let dir = TestDir::new();
    let status = tshark(&crafted(&dir, "epochs"), &["-T", "fields", "-e", "guaranteed.status"]);
    assert!(status.lines().count() > 10 && status.lines().all(|status| status == "1"), "{status}");
}

#[test]
fn encrypted_frames_are_read_as_far_as_they_can_be() {
    let dir = TestDir::new();
    let file = crafted(&dir, "sealed");
    let [found] = decoded([file.clone()]);
    let connection = &found["connections"][0];
    assert_eq!(connection["check"], 4);
    assert_eq!(sum(&connection["out"], &["frames"]), 3);
    assert_eq!((sum(&connection["out"], &["repairs"]), sum(&connection["out"], &["parts"])), (1, 1));
    assert_eq!(sum(&connection["back"], &["acks", "control_frames"]), 3);
    assert_both_read_the_same(&file);
    let told = tshark(&file, &["-T", "fields", "-e", "guaranteed.count", "-e", "guaranteed.status"]);
    let told: Vec<&str> = told.lines().collect();
    assert_eq!(told[..4], ["\t1"; 4], "the opening is checked");
    assert_eq!(told[4..8], ["0\t2", "1\t2", "0\t2", "1\t2"], "the rest is not");
}

/// A third program seals the frames of the document anew and opens them.
#[test]
fn the_encrypted_frames_in_the_document_are_right() {
    let script = repository(DECODER).with_file_name("sealed_guaranteed.py");
    let check = |file: &Path| {
        let output = Command::new("python3").arg("-B").arg(&script).arg(file).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(check(&repository(WIRE)), (true, "\n".to_owned()));
    let dir = TestDir::new();
    let text = fs::read_to_string(repository(WIRE)).unwrap();
    for (right, wrong, what) in [
        ("ack    = 80000001", "ack    = 80000002", "ack\nack, sealed anew\n"),
        ("piece  = 23000000 04", "piece  = 23000000 14", "piece\npiece, sealed anew\n"),
        ("open   = 0101", "open   = 0100", "the proof of open\n"),
    ] {
        assert!(text.contains(right));
        dir.write("wrong.md", text.replace(right, wrong));
        assert_eq!(check(&dir.path("wrong.md")), (false, what.to_owned()));
    }
}

#[test]
fn noise_has_no_effect() {
    let dir = TestDir::new();
    let file = crafted(&dir, "noise");
    let fields = ["-T", "fields", "-e", "_ws.malformed", "-e", "_ws.lua.error"];
    let told = tshark(&file, &[&["-o", "guaranteed.ports:5001"], &fields[..]].concat());
    assert!(told.lines().count() > 1000 && told.trim().is_empty(), "{told}");
    let [found] = &found(&[], &[file])[..] else { panic!("one file") };
    assert!(!found["wrong"].as_array().unwrap().is_empty());
}

// --- the document

/// The text of the only block of docs/wire.md that is marked `language` below the heading of the example.
fn example(language: &str) -> String {
    let text = fs::read_to_string(repository(WIRE)).unwrap();
    let (_, below) = text.split_once("### An exchange\n").expect("the example's heading");
    let (_, block) = below.split_once(&format!("```{language}\n")).expect("the example's block");
    block.split_once("```").expect("its end").0.to_owned()
}

#[test]
fn the_exchange_in_the_document_is_a_capture() {
    let dir = TestDir::new();
    dir.write("wire.ns", example("ns"));
    let command = example("sh");
    let words: Vec<&str> =
        command.split_whitespace().skip(1).chain(["--no-archive", "--out", "out"]).collect();
    let ended = dir.execute(&words);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    let file = dir.path("out/sim/a.pcapng");
    let (written, captured) = (example("frames"), decoder(&["--explain"], std::slice::from_ref(&file)));
    if written != captured && std::env::var_os("BLESS").is_some() {
        let text = fs::read_to_string(repository(WIRE)).unwrap();
        fs::write(repository(WIRE), text.replace(&written, &captured)).unwrap();
    } else {
        assert!(
            written == captured,
            "BLESS=1 cargo test -p trunkline --test main dissect:: updates it:\n{captured}"
        );
    }
    // Read from the page it says the same as read from the capture, and is whole.
    dir.write("frames.txt", &captured);
    let read = found(&["--read"], &[dir.path("frames.txt")]).remove(0);
    assert_eq!([&read], decoded([file.clone()]).each_ref());
    assert_eq!(read["connections"][0]["out"]["channels"]["0"]["sizes"], json!({ "200": 2 }));
    assert_both_read_the_same(&file);
}

#[test]
fn a_digit_that_is_wrong_is_found() {
    let dir = TestDir::new();
    let right = example("frames");
    let lines: Vec<&str> = right.lines().collect();
    let mut files = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let digit = if line.starts_with('1') { "2" } else { "1" };
        let wrong = format!("{digit}{}", &line[1..]);
        let text: Vec<&str> = [&lines[..at], &[wrong.as_str()], &lines[at + 1..]].concat();
        dir.write(&format!("{at}.txt"), text.join("\n"));
        files.push(dir.path(&format!("{at}.txt")));
    }
    assert!(files.len() > 50, "{}", files.len());
    for (found, file) in found(&["--read"], &files).iter().zip(&files) {
        let damaged = found["frames"].as_object().unwrap().keys().any(|kind| kind.starts_with("damaged"));
        assert!(damaged || found["wrong"] != json!([]), "line {}", file.display());
    }
}

#[test]
fn the_figures_in_the_document_are_those_of_the_decoder() {
    let script = "import decode_guaranteed as d; key = d.key_of(1, 2)
print(*['%016x' % n for n in (key, d.word(key, True, 0), d.word(key, False, 0), d.word(key, True, 1))])
print(*['%02x' % d.weight(*at) for at in ((1, 0), (1, 1), (7, 10))])
print('%X' % d.Check(1).sum(b'123456789'), '%X' % d.Check(2).sum(b'123456789'))";
    let folder = repository(DECODER).parent().unwrap().to_owned();
    let text = fs::read_to_string(repository(WIRE)).unwrap();
    let told = printed(Command::new("python3").args(["-B", "-c", script]).env("PYTHONPATH", folder));
    assert_eq!(told.split_whitespace().count(), 9);
    for figure in told.split_whitespace() {
        assert!(text.contains(&format!("`{figure}`")), "docs/wire.md does not say {figure}");
    }
}

// --- live

/// The record of a live run between these ports and its capture; none if the capture lacks packets, as that of a busy
/// machine may.
fn captured(dir: &TestDir, [small, large]: [u16; 2]) -> Option<(Value, PathBuf)> {
    let (file, said) = (dir.path("capture.pcapng"), dir.path("dumpcap.err"));
    let mut dumpcap = Command::new("dumpcap");
    let filter = format!("udp port {small} or udp port {large}");
    dumpcap.args(["-B", "32", "-i", "lo", "-f", &filter, "-w"]).arg(&file);
    dumpcap.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&said).unwrap());
    let mut dumpcap = dumpcap.spawn().unwrap();
    let says = || fs::read_to_string(&said).unwrap();
    within(Duration::from_secs(60), "the capture to begin", || says().contains("File: "));
    let record = dir.record(
        &format!(
            "parallel {{
               connection small {{ xmt = a; rcv = b:{small}; test = full (messagesize = uniform(32, 700)); messages = 300;
                 protocol = guaranteed (mode = selective, frame = 1472 B, window = 64, drop = 0.02); }}
               connection large {{ xmt = a; rcv = b:{large}; test = full (messagesize = 20000); messages = 10;
                 protocol = guaranteed (mode = gobackn, frame = 1472 B, checksum = none); }} }}"
        ),
        &[],
    );
    // What was captured comes late; both ends' last words are the last of it.
    let has_ended = || {
        let output = Command::new("python3").arg("-B").arg(repository(DECODER)).arg(&file).output().unwrap();
        let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let ended = |c: &Value| c["out"]["finished"] == true && c["back"]["finished"] == true;
        found["connections"].as_array().is_some_and(|all| all.len() == 2 && all.iter().all(ended))
    };
    for _ in 0..20 {
        if has_ended() {
            break;
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    signal(Pid::from_raw(dumpcap.id() as i32), Signal::SIGINT);
    assert!(dumpcap.wait().unwrap().success());
    let said = says();
    let counts = said.lines().find(|line| line.starts_with("Packets received/dropped")).expect(&said);
    counts.contains("/0 (").then_some((record, file))
}

#[test]
fn frames_on_the_loopback_are_read() {
    if !can(&["dumpcap", "-q", "-i", "lo", "-a", "duration:0", "-w", "/dev/null"]) {
        return;
    }
    let desks = [(); 3].map(|()| TestDir::new());
    let whole = desks.iter().find_map(|dir| captured(dir, free_ports()));
    let (record, file) = whole.expect("a capture without holes");
    let [found] = decoded([file.clone()]);
    let found = found["connections"].as_array().unwrap();
    for (name, mode) in [("small", "selective"), ("large", "go-back-N")] {
        let c = connection(&record, name);
        assert_messages(c, found.iter().find(|found| found["mode"] == mode).unwrap());
    }
    let packs = |c: &&Value| sum(&c["out"]["channels"]["0"], &["packs"]) > 0;
    assert_eq!(found.iter().filter(packs).count(), 1, "small messages travel in packs");
    assert_both_read_the_same(&file);
}
