//! What the tools of logical link control put on the wire, read by Wireshark with and without our dissector; and frames
//! made by hand, answered as the standard says.

#![allow(clippy::disallowed_methods, reason = "these tests watch programs that run in real time")]

use std::path::Path;
use std::process::Command;

use crate::command::{TestDir, can, repository};

const DISSECTOR: &str = "wireshark/trunkline-llc.lua";
const FRAMES: &str = "crates/trunkline/tests/dissect/frames_llc.py";

/// Two interfaces `left` and `right`, the ends of one line, in a namespace of the script's; `serve` and `capture` end with it.
const LINE: &str = r#"
trunkline="$1"; shift
echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
ip link set lo up
ip link add left type veth peer name right
ip link set left up; ip link set right up
# What is sent before that is lost.
for try in $(seq 500); do [ $(ip link show up | grep -c 'state UP') = 2 ] && break; sleep 0.02; done
trap 'kill $jobs 2>/dev/null || true; wait' EXIT
jobs=
# Waits until a file says something.
says() { for _ in $(seq 1000); do grep -q "$2" "$1" 2>/dev/null && return; sleep 0.02; done; cat "$1"; exit 9; }
capture() { dumpcap -q -i "$1" -w "$2" 2>"$2.err" >/dev/null & capturing=$!; jobs="$jobs $!"; says "$2.err" File:; }
captured() { sleep 0.5; kill -INT $capturing; wait $capturing || true; }
serve() { "$trunkline" llc serve "$@" >serve.out 2>serve.err & jobs="$jobs $!"; says serve.out serving; }
"#;

/// Whether tests of this file can run here.
fn possible() -> bool {
    can(&["unshare", "-n", "true"]) && can(&["tshark", "--version"]) && can(&["dumpcap", "--version"])
}

/// What a script says that must go well.
fn scripted(dir: &TestDir, script: &str, words: &[&str]) -> String {
    let ended = dir.end(dir.unshared("-n", &format!("{LINE}{script}"), words));
    assert_eq!(ended.status, 0, "{}\n{}", ended.out, ended.err);
    ended.out
}

/// Fields that are asked for, and what each packet says in them: as Wireshark writes it, several with commas between.
struct Packets {
    names: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

/// Of each packet of a capture some fields, and always trouble: what is malformed, and what Wireshark warns of.
fn packets(file: &Path, script: bool, names: &[&'static str]) -> Packets {
    let names = [names, &["frame.number", "_ws.malformed", "_ws.lua.error", "_ws.expert.severity"]].concat();
    let mut command = Command::new("tshark");
    if script {
        command.args(["-X", &format!("lua_script:{}", repository(DISSECTOR).display())]);
    }
    // Without names of addresses, which it would look up.
    command.args(["-n", "-T", "fields", "-E", "separator=;", "-r"]).arg(file);
    command.args(names.iter().flat_map(|name| ["-e", name]));
    let output = command.output().expect(".ci/packages installs it");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // A field of our dissector's error may not be known before there is one.
    let own: Vec<&str> = said.lines().filter(|line| !line.contains("Running as user \"root\"")).collect();
    assert!(output.status.success() && own.is_empty(), "{command:?}: {said}");
    let text = String::from_utf8(output.stdout).expect("text");
    Packets { names, rows: text.lines().map(|line| line.split(';').map(str::to_owned).collect()).collect() }
}

/// Wireshark's severities: a warning, an error.
const WARNING: u64 = 6 << 20;

impl Packets {
    /// Returns the packets that satisfy a condition on their fields.
    fn count(&self, holds: impl Fn(&dyn Fn(&str) -> String) -> bool) -> usize {
        let value = |row: &[String], name: &str| {
            let at = self.names.iter().position(|other| *other == name);
            row[at.unwrap_or_else(|| panic!("{name} was not asked for"))].clone()
        };
        self.rows.iter().filter(|row| holds(&|name| value(row, name))).count()
    }

    fn with(&self, name: &str, one: &str) -> usize {
        self.count(|of| of(name) == one)
    }

    /// Those that Wireshark finds fault with.
    fn trouble(&self, among: impl Fn(&dyn Fn(&str) -> String) -> bool) -> usize {
        self.count(|of| {
            let severities = of("_ws.expert.severity");
            let warned =
                severities.split(',').filter_map(|one| one.parse().ok()).any(|one: u64| one >= WARNING);
            among(of) && (warned || !of("_ws.malformed").is_empty() || !of("_ws.lua.error").is_empty())
        })
    }
}

/// All tools, in a few seconds.
const TOOLS: &str = r#"
head -c 300000 /dev/urandom >file
serve --network eth:right --into got
at="--network eth:left"
"$trunkline" llc test $at --with 2
"$trunkline" llc ping $at 2 -c 3 -i 10ms
"$trunkline" llc ping $at 2:0x64 -c 3 -i 10ms --xid
"$trunkline" llc ping $at all:255 -c 1 -W 200ms
"$trunkline" llc load $at --with 2 --time 50ms --messages 2000 --plain
"$trunkline" llc load $at --with 2 --time 50ms --messages 2000 --plain --acknowledged --crc
"$trunkline" llc copy $at file 2
"$trunkline" llc wrap $at --second eth:right --messages 5
cmp file got/file
"#;

#[test]
fn wireshark_reads_all_that_the_tools_send() {
    if !possible() {
        return;
    }
    let dir = TestDir::new();
    scripted(&dir, &format!("capture left all.pcapng\n{TOOLS}\ncaptured"), &[]);
    let file = dir.path("all.pcapng");
    let type_1 = |of: &dyn Fn(&str) -> String| {
        let control =
            u8::from_str_radix(of("llc.control").trim_start_matches("0x"), 16).expect("a control octet");
        [0x03, 0xaf, 0xbf, 0xe3, 0xf3].contains(&control)
    };
    let plain = packets(&file, false, &["llc.control"]);
    assert_eq!(plain.with("llc.control", ""), 0, "every frame is a PDU");
    let own = plain.count(type_1);
    assert!(own > 1_000);
    assert_eq!(plain.trouble(type_1), 0);
    // All that it does not know is of type 3, and ours knows it.
    let names = [
        "llc.control",
        "llcac.response",
        "llcac.status.command",
        "llcac.status.response",
        "llcac.poll",
        "llcac.ssap",
    ];
    let packets = packets(&file, true, &names);
    assert_eq!((packets.rows.len(), packets.count(type_1)), (plain.rows.len(), own));
    assert_eq!(packets.trouble(|_| true), 0);
    let [commands, responses] = ["0", "1"].map(|one| packets.with("llcac.response", one));
    assert_eq!(own + commands + responses, plain.rows.len());
    assert!(commands >= responses && responses > 500, "{commands} {responses}");
    assert_eq!(packets.count(|of| !of("llcac.status.command").is_empty()), responses);
    // A command to a closed SAP; the sequence numbers were agreed on.
    assert!(packets.with("llcac.status.command", "1") > 0);
    let agreed = |of: &dyn Fn(&str) -> String| of("llcac.poll") == "1" && of("llcac.status.response") == "3";
    assert!(packets.count(agreed) > 5);
    assert!(packets.count(|of| of("llcac.response") == "1" && of("llcac.ssap") == "0x60") > 100);
}

#[test]
fn wireshark_reads_type_3_and_the_token_over_udp() {
    if !possible() {
        return;
    }
    let dir = TestDir::new();
    scripted(
        &dir,
        r#"
        capture lo all.pcapng
        "$trunkline" llc test
        # Its token goes round all the time.
        serve --ring
        "$trunkline" llc ping --ring 2 -c 5 -i 1ms
        "$trunkline" llc load --ring --with 2 --time 50ms --messages 100 --acknowledged --plain
        captured"#,
        &[],
    );
    let names = [
        "udp.port",
        "llcudp.priority",
        "llcudp.first",
        "llc.dsap",
        "llcac.status.command",
        "llctoken.kind",
        "llctoken.stations",
        "llctoken.member",
    ];
    let packets = packets(&dir.path("all.pcapng"), true, &names);
    // What every datagram is, is known.
    let ours = |of: &dyn Fn(&str) -> String| of("udp.port").ends_with("48200");
    let known =
        |of: &dyn Fn(&str) -> String| !of("llcudp.priority").is_empty() || !of("llctoken.kind").is_empty();
    assert_eq!(packets.count(|of| ours(of) && !known(of)), 0);
    assert_eq!(packets.trouble(ours), 0);
    assert!(packets.with("llcac.status.command", "0") > 100);
    assert!(packets.count(|of| of("llctoken.kind") == "1" && of("llctoken.member") == "1,2") > 100);
    assert!(packets.with("llctoken.kind", "2") > 0 && packets.with("llctoken.kind", "3") > 0);
    assert_eq!(
        packets.count(|of| of("llctoken.stations").is_empty() && !of("llctoken.member").is_empty()),
        0
    );
    // A message of the tests with the highest priority.
    assert!(packets.count(|of| of("llcudp.priority") == "7" && of("llc.dsap") == "0x64") > 0);
}

#[test]
fn wireshark_reads_the_token_on_ethernet() {
    if !possible() {
        return;
    }
    let dir = TestDir::new();
    let script = r#"
        capture left all.pcapng
        serve --ring --network eth:right
        "$trunkline" llc ping --ring --network eth:left 2 -c 5 -i 1ms
        captured"#;
    scripted(&dir, script, &[]);
    let names = ["llc.dsap", "vlan.priority", "llctoken.kind", "llctoken.stations"];
    let packets = packets(&dir.path("all.pcapng"), true, &names);
    let token = |of: &dyn Fn(&str) -> String| of("llctoken.kind") == "1" && of("llctoken.stations") == "2";
    assert!(packets.count(|of| token(of) && of("vlan.priority") == "7") > 10);
    assert!(packets.with("llctoken.kind", "3") > 0);
    assert_eq!(packets.count(|of| of("llc.dsap") == "0x54" && of("llctoken.kind").is_empty()), 0);
    assert_eq!(packets.trouble(|_| true), 0);
}

#[test]
fn crafted_frames_get_the_responses_of_the_standard() {
    if !possible() || !can(&["python3", "--version"]) {
        return;
    }
    let dir = TestDir::new();
    let frames = repository(FRAMES);
    let script = r#"serve --network eth:right; python3 -B "$1" left 2"#;
    let said = scripted(&dir, script, &[frames.to_str().expect("a plain path")]);
    assert_eq!(said.lines().filter(|line| line.starts_with("ok ")).count(), 10, "{said}");
}
