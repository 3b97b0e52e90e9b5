//! Simulated runs by the command: what it says, what it refuses, and that its captures are what they claim to be.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const ATM: &str = "experiment \"atm\" { network {
    host a, b; host silent; switch s (buffer = 256 cells, latency = 4 us);
    link a - s (medium = atm, rate = 155 Mb/s, mtu = 9180 B, delay = 1 ms);
    link s - b (medium = atm, rate = 100 Mb/s, mtu = 9180 B, delay = 1 ms); link silent - s (medium = atm, rate = 100 Mb/s);
  } connection x { xmt = a; rcv = b; protocol = tcp (window = 32 kB); test = full (messagesize = 8 kB); duration = 1 s; } }";

const ETHERNET: &str = "experiment \"eth\" { network {
    host a, b, c; hub h; switch s; link a - h; link b - h; link h - s; link c - s (rate = 10 Mb/s, loss = 0.02);
  } parallel {
    connection x { xmt = a; rcv = c; protocol = tcp (window = 16 kB); test = full (messagesize = 8 kB); duration = 2 s; }
    connection y { xmt = b; rcv = c; protocol = udp; test = cbr (messagesize = 4000, period = 50 ms); duration = 2 s; }
    connection z { xmt = b; rcv = a, c; protocol = multicast (group = 239.1.2.3); test = cbr (messagesize = 200, period = 50 ms); duration = 2 s; }
  } }";

fn trunkline(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trunkline"))
        .args(arguments)
        .current_dir(folder)
        .env("XDG_DATA_HOME", folder)
        .output()
        .expect("the command runs")
}

fn folder(experiment: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("x.ns"), experiment).expect("a file");
    folder
}

/// The fields that tshark reads from a capture, a packet a line.
fn tshark(file: &Path, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-Y", filter, "-T", "fields"]);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = command.output().expect("tshark runs; .ci/packages installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("tshark speaks UTF-8");
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

fn record(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a record")
}

#[test]
fn the_same_run_prints_the_same_record() {
    let folder = folder(ETHERNET);
    let mut told = Vec::new();
    for _ in 0..2 {
        let output = trunkline(folder.path(), &["run", "x.ns", "--on", "sim", "--json", "--no-archive"]);
        let mut record = record(&output);
        record["started"] = Value::Null;
        record["environment"]["simulated_in"] = Value::Null;
        told.push(record);
    }
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0]["backend"], "sim");
    assert_eq!(told[0]["partial"], false);
}

#[test]
fn captures_of_ethernet_are_sound() {
    let folder = folder(ETHERNET);
    let output = trunkline(
        folder.path(),
        &["run", "x.ns", "--on", "sim", "--json", "--out", "o", "--trace", "a,c-s,h", "--no-archive"],
    );
    let record = record(&output);
    for name in ["a", "c-s", "h"] {
        let file = folder.path().join(format!("o/sim/{name}.pcapng"));
        assert_eq!(
            tshark(&file, "_ws.malformed || _ws.expert.severity >= 8388608", &["frame.number"]),
            Vec::<Vec<String>>::new(),
            "{name}"
        );
        let stamps: Vec<f64> =
            tshark(&file, "frame", &["frame.time_epoch"]).iter().map(|l| l[0].parse().unwrap()).collect();
        assert!(stamps.len() > 100 && stamps.is_sorted(), "{name}: {}", stamps.len());
    }
    // Every segment that TCP says it sent stands in the capture of its host.
    let sent = record["connections"][0]["counters"]["packets_sent"].as_f64().unwrap();
    let host = folder.path().join("o/sim/a.pcapng");
    assert_eq!(tshark(&host, "tcp.srcport == 49152", &["frame.number"]).len() as f64, sent);
    // A message of 4000 bytes is three fragments, which belong together.
    let link = folder.path().join("o/sim/h.pcapng");
    let fragments = tshark(&link, "ip.dst == 10.0.0.3 && ip.proto == 17", &["ip.frag_offset", "ip.len"]);
    // Offsets count eight bytes.
    let of =
        |offset: &str, length: &str| fragments.iter().filter(|f| f[0] == offset && f[1] == length).count();
    let whole = record["connections"][1]["messages_sent"].as_u64().unwrap() as usize;
    assert_eq!(
        (of("0", "1500"), of("185", "1500"), of("370", "1068")),
        (whole, whole, whole),
        "{:?}",
        &fragments[..6]
    );
}

#[test]
fn captures_of_atm_are_sound() {
    let folder = folder(ATM);
    let output = trunkline(
        folder.path(),
        &["run", "x.ns", "--on", "sim", "--json", "--out", "o", "--trace", "a-s,b", "--no-archive"],
    );
    let record = record(&output);
    for name in ["a-s", "b"] {
        let file = folder.path().join(format!("o/sim/{name}.pcapng"));
        assert_eq!(
            tshark(&file, "_ws.malformed || _ws.expert.severity >= 8388608", &["frame.number"]),
            Vec::<Vec<String>>::new(),
            "{name}"
        );
        let data = tshark(&file, "tcp.len > 0", &["tcp.len", "frame.len", "atm.vci"]);
        let sent = record["connections"][0]["counters"]["data_segments_sent"].as_f64().unwrap();
        assert_eq!(data.len() as f64, sent, "{name}");
        // LLC/SNAP 8, IP and TCP 40.
        assert!(data.iter().all(|d| d[1].parse::<u32>().unwrap() == d[0].parse::<u32>().unwrap() + 48));
        assert!(data.iter().all(|d| d[2] == data[0][2]), "one channel");
    }
}

#[test]
fn what_cannot_be_simulated_is_refused_at_its_position() {
    let network = "network { host a, b; link a - b (rate = 1 Mb/s); }";
    let connection = |protocol: &str| {
        format!(
            "connection x {{ xmt = a; rcv = b; protocol = {protocol}; test = cbr (period = 1 s); duration = 1 s; }}"
        )
    };
    let cases = [
        (format!("experiment \"t\" {{ {} }}", connection("udp")), vec!["run", "x.ns", "--on", "sim"], "network {"),
        (format!("experiment \"t\" {{ {network} {} }}", connection("bundle (address = 21)")), vec!["run", "x.ns", "--on", "sim"], "need a central converter"),
        (format!("experiment \"t\" {{ {network} {} }}", connection("stamp")), vec!["run", "x.ns", "--on", "sim"], "`sim` has no protocol stamp"),
        (format!("experiment \"t\" {{ {network} {} }}", connection("tcp (congestion = vegas)")), vec!["run", "x.ns", "--on", "sim"], "no `congestion = vegas`"),
        (format!("experiment \"t\" {{ {network} {} }}", connection("udp")), vec!["run", "x.ns", "--on", "sim", "--trace", "nobody"], "nobody"),
        (format!("experiment \"t\" {{ {network} {} }}", connection("udp")), vec!["run", "x.ns", "--trace", "a"], "--on sim"),
        (
            "experiment \"t\" { network { host a, b; switch s, t; link a - s (rate = 1 Mb/s); link s - t (rate = 1 Mb/s);
               link t - b (rate = 1 Mb/s); link b - s (rate = 1 Mb/s); } connection x { xmt = a; rcv = b; protocol = udp; test = full; } }".into(),
            vec!["run", "x.ns", "--on", "sim"],
            "loop",
        ),
    ];
    for (text, arguments, expected) in cases {
        let folder = folder(&text);
        let output = trunkline(folder.path(), &arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{said}");
        assert!(!folder.path().join("trunkline-results").exists(), "nothing ran");
    }
}

#[test]
fn measured_and_predicted_stand_side_by_side() {
    let folder = folder(ETHERNET);
    let arguments = [
        "run",
        "x.ns",
        "--on",
        "live,sim",
        "--set",
        "duration=300ms",
        "--json",
        "--no-archive",
        "--out",
        "o",
    ];
    let both = record(&trunkline(folder.path(), &arguments));
    let backends: Vec<&str> =
        both.as_array().unwrap().iter().map(|r| r["backend"].as_str().unwrap()).collect();
    assert_eq!(backends, ["live", "sim"]);
    let names = |i: usize| {
        both[i]["connections"].as_array().unwrap().iter().map(|c| c["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(0), names(1));
    for file in ["o/live/record.json", "o/sim/record.json", "o/report.html"] {
        assert!(folder.path().join(file).exists(), "{file}");
    }
}
