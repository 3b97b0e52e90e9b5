//! Real programs, unchanged, on the hosts of a lab: the experiments of `experiments/lab`, as this user and, as root, also as an
//! ordinary one.
//!
//! What a transfer may have taken is compared with the octets that the links counted: no test asserts a time of this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use nix::unistd::geteuid;
use serde_json::Value;
use trunkline_io::must::skip;

use crate::command::{Ended, TestDir, can, noise, number, repository};

/// Octets that `data` has, which is transferred.
const DATA: usize = 2_000_000;
/// Octets of Ethernet that are no part of a packet.
const FRAMING: f64 = 38.0;
/// An ordinary user. Where only root may open the TUN device, this process alone sees one that all may open; and where only root
/// may read the program, a place where all may.
const ORDINARY: &str = r#"
mount -t tmpfs none /dev/net && mknod -m 666 /dev/net/tun c 10 200
mount --bind "$1" trunkline
shift
exec setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all ./trunkline "$@"
"#;

/// Runs `check` on the results of an experiment of `experiments/lab`, once for each user. Skips it if a command does not work.
fn run(experiment: &str, needs: &[&[&str]], check: impl Fn(&TestDir, &Value)) {
    if !can(&["unshare", "--net", "test", "-w", "/dev/net/tun"]) || !needs.iter().all(|command| can(command))
    {
        return;
    }
    check_as("this user", experiment, &check, |dir, arguments| dir.trunkline(arguments));
    if geteuid().is_root() {
        check_as("an ordinary user", experiment, &check, |dir, arguments| {
            let mut command = dir.unshared("--mount", ORDINARY, arguments);
            command.env("PATH", format!("{}:{}", dir.path("").display(), std::env::var("PATH").unwrap()));
            command
        });
    }
}

fn check_as(
    user: &str,
    experiment: &str,
    check: impl Fn(&TestDir, &Value),
    command: impl Fn(&TestDir, &[&str]) -> Command,
) {
    let dir = TestDir::new();
    for file in fs::read_dir(repository("experiments/lab")).unwrap() {
        let file = file.unwrap().path();
        fs::copy(&file, dir.path(&file.file_name().unwrap().to_string_lossy())).unwrap();
    }
    dir.write("data", noise(DATA));
    dir.write("trunkline", "");
    fs::set_permissions(dir.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    let name = format!("{experiment}.ns");
    let mut command = command(&dir, &["run", &name, "--on", "lab", "--out", "out", "--no-archive"]);
    // `trunkline`, which is also a program of hosts, for this user.
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_trunkline")).parent().unwrap();
    let before = command.get_envs().find_map(|(key, value)| (key == "PATH").then_some(value?.to_owned()));
    let before = before.unwrap_or_else(|| std::env::var_os("PATH").unwrap());
    command.env("PATH", format!("{}:{}", before.display(), program.display()));
    command.env("XDG_RUNTIME_DIR", dir.path(""));
    let ended = dir.end(command);
    if ended.err.contains("may not create network namespaces") {
        return skip(ended.err);
    }
    assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{user}: {}", outputs(&dir, &ended));
    let record = fs::read(dir.path("out/lab/record.json")).unwrap();
    println!("{experiment} as {user}");
    check(&dir, &serde_json::from_slice(&record).unwrap());
}

/// What the command and the programs have written.
fn outputs(dir: &TestDir, ended: &Ended) -> String {
    let files = fs::read_dir(dir.path("out/lab")).into_iter().flatten().flatten();
    let texts = files.filter(|file| file.path().extension().is_some_and(|extension| extension == "txt"));
    let texts = texts
        .map(|file| format!("\n{}:\n{}", file.path().display(), fs::read_to_string(file.path()).unwrap()));
    ended.out.clone() + &texts.collect::<String>()
}

fn link<'a>(record: &'a Value, name: &str) -> &'a Value {
    let links = record["links"].as_array().unwrap();
    links.iter().find(|link| link["name"] == name).unwrap_or_else(|| panic!("no link {name}"))
}

/// The octets and frames that a node has sent into a link.
fn sent(record: &Value, name: &str, node: &str) -> [f64; 2] {
    let ends = link(record, name)["ends"].as_array().unwrap();
    let end = ends.iter().find(|end| end["node"] == node).unwrap_or_else(|| panic!("no end {node}"));
    let counts = end["counts"].as_array().unwrap().last().unwrap();
    [1, 2].map(|at| number(&counts[at]))
}

/// Asserts that `payload` octets went from `node` through a link of `rate` bits per second at no more than its rate: the link was
/// busy as long as its octets take, and `received_bps`, which a program has measured, is no higher.
fn assert_rate(record: &Value, name: &str, node: &str, rate: f64, payload: f64, received_bps: f64) {
    let [octets, frames] = sent(record, name, node);
    assert!(payload < octets && octets < 1.3 * payload, "{octets} octets for {payload}");
    assert!(octets <= 1500.0 * frames, "{octets} octets in {frames} frames");
    let busy = number(&link(record, name)["utilization"]) * number(&record["duration_s"]);
    let line = (octets + FRAMING * frames) * 8.0 / rate;
    assert!((busy / line - 1.0).abs() < 0.01, "busy for {busy} s with what takes {line} s");
    // Nothing of it was in a queue behind the link when the measurement began.
    let highest = rate * 1460.0 / 1538.0;
    assert!(received_bps <= highest * 1.001, "{received_bps} bit/s of payload, at most {highest}");
    println!("{octets} octets in {frames} frames, {received_bps} bit/s of at most {highest}");
}

/// A number after a key in the output of a program, for example in JSON.
fn after(text: &str, key: &str) -> f64 {
    let rest = text.split(key).nth(1).unwrap_or_else(|| panic!("no {key} in {text}"));
    let rest = rest.trim_start_matches([':', ' ', '\t', '"']);
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().unwrap_or_else(|error| panic!("{key}: {error}: {rest}"))
}

#[test]
fn iperf3_gets_no_more_than_the_rate_of_the_line() {
    run("iperf3", &[&["iperf3", "--version"]], |dir, record| {
        let client = fs::read_to_string(dir.path("iperf3.json")).unwrap();
        let received = client.split("\"sum_received\"").nth(1).expect("iperf3 prints a sum");
        let bytes = after(received, "\"bytes\"");
        assert_eq!(after(client.split("\"sum_sent\"").nth(1).unwrap(), "\"bytes\""), 2_097_152.0);
        assert!(bytes > 1e6, "{bytes}");
        let rate = after(received, "\"bits_per_second\"");
        assert_rate(record, "r-server", "r", 20e6, bytes, rate);
    });
}

#[test]
fn curl_gets_the_file_of_nginx() {
    let needs: [&[&str]; 2] = [&["nginx", "-v"], &["curl", "--version"]];
    run("nginx", &needs, |dir, record| {
        let client = fs::read_to_string(dir.path("out/lab/client.txt")).unwrap();
        // Other lines are attempts before the server listens.
        let results: Vec<&str> = client.lines().filter(|line| line.starts_with('{')).collect();
        assert_eq!(results.len(), 2, "{client}");
        for (result, (family, address)) in results.into_iter().zip([("4", "10.0.0.2"), ("6", "fd00::2")]) {
            assert!(fs::read(dir.path(&format!("received-{family}"))).unwrap() == noise(DATA), "{result}");
            assert!(result.contains(&format!("\"remote_ip\":\"{address}\"")), "{result}");
            let rate = after(result, "\"speed_download\"") * 8.0;
            assert_rate(record, "r-server", "server", 20e6, 2.0 * DATA as f64, rate);
        }
        // The line loses packets, and TCP repairs it.
        assert!(number(&link(record, "r-server")["lost_line"]) > 0.0);
    });
}

#[test]
fn scp_copies_a_file() {
    let needs: [&[&str]; 2] = [&["ssh", "-V"], &["sh", "-c", "PATH=$PATH:/usr/sbin command -v sshd"]];
    run("ssh", &needs, |dir, record| {
        assert!(fs::read(dir.path("received")).unwrap() == noise(DATA), "the file was changed");
        let server = fs::read_to_string(dir.path("out/lab/server.txt")).unwrap();
        assert!(server.contains("Accepted publickey for daemon from "), "{server}");
        assert_rate(record, "r-server", "r", 20e6, DATA as f64, 0.0);
    });
}

/// Every PDU arrives, both ways, and bundles need fewer packets than there are PDUs.
#[test]
fn programs_exchange_dis_through_the_converter() {
    run("dis", &[&["python3", "--version"], &["getent", "ahostsv4", "localhost"]], |dir, record| {
        for (host, central, level1) in [("a", "central-a", "level1-a"), ("b", "central-b", "level1-b")] {
            let output = fs::read_to_string(dir.path(&format!("out/lab/{host}.txt"))).unwrap();
            assert!(output.contains("1000 sent, 1000 received\n"), "{output}");
            let [_, bundles] = sent(record, &format!("{host}-{central}"), host);
            let [_, messages] = sent(record, &format!("{level1}-wide-{host}"), level1);
            println!("{bundles} packets from {host}, {messages} of {level1}");
            assert!(bundles < 500.0, "{bundles} packets for 1,000 PDUs");
            assert!(messages >= 1000.0, "{messages} messages for 1,000 PDUs");
        }
    });
}

/// What the monitor has read of the device is what its link has carried.
#[test]
#[cfg(feature = "snmp")]
fn the_monitor_counts_what_the_link_carries() {
    use trunkline_counters::archive::{Reader, TableId};
    use trunkline_counters::counter::Timestamp;

    run("snmp", &[&["snmpd", "-v"], &["iperf3", "--version"]], |dir, record| {
        let reader = Reader::open(dir.path("counters.sqlite")).unwrap();
        let tables = reader.tables(TableId(0), 100).unwrap();
        let table = tables.iter().find(|table| table.name == "interfaces").unwrap();
        let series = reader.series(table.id).unwrap();
        for (way, node) in [("out", "device"), ("in", "sink")] {
            let name = format!("port/eth1/{way}/octets");
            let id = series.iter().find(|one| one.name == name).unwrap_or_else(|| panic!("no {name}")).id;
            let points = reader.points(id, Timestamp(0), Timestamp::MAX, 10_000).unwrap().points;
            let last = points.iter().rev().find_map(|point| point.value).unwrap().0 as f64;
            let [octets, frames] = sent(record, "device-sink", node);
            assert_eq!(last, octets, "{way}, {frames} frames");
            assert!(frames > 100.0, "{way}: {frames} frames");
            println!("{way}: {octets} octets");
        }
        let [_, answers] = sent(record, "station-device", "device");
        assert!(answers > 2.0, "{answers} answers");
    });
}
