//! What the tools of logical link control put on the wire, read by Wireshark with and without our dissector; and frames
//! made by hand, answered as the standard says.

#![allow(clippy::disallowed_methods, reason = "these tests watch programs that run in real time")]

mod command;

use std::path::Path;
use std::process::Command;

use command::{Desk, can, repository};

const DISSECTOR: &str = "wireshark/trunkline-llc.lua";
const FRAMES: &str = "crates/trunkline/tests/dissect/frames_llc.py";

/// Two interfaces `left` and `right`, the ends of one line, in a namespace of the script's; `serve` and `capture` end with it.
const LINE: &str = r#"
trunkline="$1"; shift
echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
ip link set lo up
ip link add left type veth peer name right
ip link set left up; ip link set right up
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
fn scripted(desk: &Desk, script: &str, words: &[&str]) -> String {
    let ended = desk.end(desk.unshared("-n", &format!("{LINE}{script}"), words));
    assert_eq!(ended.status, 0, "{}\n{}", ended.out, ended.err);
    ended.out
}

/// What tshark prints of a capture, or of the frames of it that `filter` names.
fn tshark(file: &Path, script: bool, filter: &str, more: &[&str]) -> String {
    let mut command = Command::new("tshark");
    if script {
        command.args(["-X", &format!("lua_script:{}", repository(DISSECTOR).display())]);
    }
    command.arg("-r").arg(file).args(["-Y", filter]).args(more);
    let output = command.output().expect(".ci/packages installs it");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let own: Vec<&str> = said.lines().filter(|line| !line.contains("Running as user \"root\"")).collect();
    assert!(output.status.success() && own.is_empty(), "{command:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

fn count(file: &Path, script: bool, filter: &str) -> usize {
    tshark(file, script, filter, &["-T", "fields", "-e", "frame.number"]).lines().count()
}

const TROUBLE: &str = "_ws.malformed || _ws.lua.error || _ws.expert.severity >= 6291456";

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
    let desk = Desk::new();
    scripted(&desk, &format!("capture left all.pcapng\n{TOOLS}\ncaptured"), &[]);
    let file = desk.path("all.pcapng");
    // Its own words for UI, XID and TEST.
    let type_1 = "llc.control.u_modifier_cmd == 0x00 || llc.control.u_modifier_cmd == 0xac || \
                  llc.control.u_modifier_resp == 0xac || llc.control.u_modifier_cmd == 0xe0 || \
                  llc.control.u_modifier_resp == 0xe0";
    assert!(count(&file, false, type_1) > 2_000);
    assert_eq!(count(&file, false, &format!("({type_1}) && ({TROUBLE})")), 0);
    // Every frame is a PDU.
    assert_eq!(count(&file, false, "!llc"), 0, "{}", tshark(&file, false, "!llc", &["-c", "5"]));
    // All that it does not know is of type 3, and ours knows it.
    let rest = count(&file, false, &format!("llc && !({type_1})"));
    assert!(rest > 2_000);
    assert_eq!(count(&file, true, "llcac"), rest);
    assert_eq!(count(&file, true, TROUBLE), 0, "{}", tshark(&file, true, TROUBLE, &["-c", "5"]));
    let [commands, responses] =
        ["llcac.response == 0", "llcac.response == 1"].map(|one| count(&file, true, one));
    assert_eq!(count(&file, true, "llcac.status"), responses);
    assert!(commands >= responses && responses > 1_000, "{commands} {responses}");
    // Somebody asked a SAP that is closed.
    assert!(count(&file, true, "llcac.status.command == 1") > 0);
    assert!(count(&file, true, "llcac.poll == 1 && llcac.response == 1 && llcac.status.response == 3") > 0);
}

#[test]
fn wireshark_reads_type_3_and_the_token_over_udp() {
    if !possible() {
        return;
    }
    let desk = Desk::new();
    scripted(
        &desk,
        r#"
        capture lo all.pcapng
        "$trunkline" llc test
        serve --ring
        "$trunkline" llc ping --ring 2 -c 5 -i 1ms
        "$trunkline" llc load --ring --with 2 --time 50ms --messages 100 --acknowledged --plain
        captured"#,
        &[],
    );
    let file = desk.path("all.pcapng");
    assert_eq!(count(&file, true, "udp && !llcudp && !icmp && !igmp"), 0);
    assert_eq!(count(&file, true, TROUBLE), 0, "{}", tshark(&file, true, TROUBLE, &["-c", "5"]));
    assert!(count(&file, true, "llcac.response == 1 && llcac.status.command == 0") > 100);
    assert!(count(&file, true, "llctoken.kind == 1 && llctoken.stations == 2") > 100);
    assert!(count(&file, true, "llctoken.kind == 2") > 0 && count(&file, true, "llctoken.kind == 3") > 0);
    assert_eq!(count(&file, true, "llcudp.first && !llctoken"), 0);
    // A message of the tests with the highest priority.
    assert!(count(&file, true, "llcudp.priority == 7 && llc.dsap == 0x64") > 0);
    let of = [
        "-T",
        "fields",
        "-e",
        "llctoken.generation",
        "-e",
        "llctoken.owner",
        "-e",
        "llctoken.member",
        "-c",
        "1",
    ];
    let token = tshark(&file, true, "llctoken.stations == 2", &of);
    assert!(token.ends_with("\t1,2\n"), "{token:?}");
}

#[test]
fn wireshark_reads_the_token_on_ethernet() {
    if !possible() {
        return;
    }
    let desk = Desk::new();
    let script = r#"
        capture left all.pcapng
        serve --ring --network eth:right
        "$trunkline" llc ping --ring --network eth:left 2 -c 5 -i 1ms
        captured"#;
    scripted(&desk, script, &[]);
    let file = desk.path("all.pcapng");
    assert!(count(&file, true, "llctoken.kind == 1 && llctoken.stations == 2 && vlan.priority == 7") > 10);
    assert!(count(&file, true, "llctoken.kind == 3 && llctoken.kind == 3") > 0);
    assert_eq!(count(&file, true, &format!("llc && ({TROUBLE})")), 0);
}

#[test]
fn frames_made_by_hand_are_answered_as_the_standard_says() {
    if !possible() || !can(&["python3", "--version"]) {
        return;
    }
    let desk = Desk::new();
    let frames = repository(FRAMES);
    let script = r#"serve --network eth:right; python3 -B "$1" left 2"#;
    let said = scripted(&desk, script, &[frames.to_str().expect("a plain path")]);
    assert_eq!(said.lines().filter(|line| line.starts_with("ok ")).count(), 10, "{said}");
}
