//! `test = replay`: recorded traffic of captures, CSV files and archives.

use std::fs;

use crate::analyse::udp_capture;
use crate::command::{Ended, TestDir, connection, free_ports, number, repository};
use serde_json::Value;

/// Payloads, and times in microseconds: with messages of one time, of one packet and longer.
const PACKETS: [(u64, u16); 7] = [
    (5_000_000, 144),
    (5_000_000, 40),
    (5_001_000, 1_400),
    (5_003_500, 33),
    (5_040_000, 600),
    (5_040_001, 144),
    (5_050_000, 32),
];

fn experiment(to: &str, test: &str) -> String {
    format!(
        "experiment \"replayed\" {{ network {{ host a, b; link a - b (rate = 1 Gb/s, delay = 1 ms); }}
           connection x {{ xmt = a; rcv = {to}; protocol = udp; test = replay ({test}); }} }}"
    )
}

/// The input is wrong, and the message has these words.
fn assert_words(ended: &Ended, words: &str) {
    assert!(ended.status == 2 && ended.err.contains(words), "{words}: {ended:#?}");
}

/// Runs in the simulator and returns the connection and the UDP payloads that arrived, with times in nanoseconds.
fn simulated(dir: &TestDir, test: &str) -> (Value, Vec<(u64, u32)>) {
    let ended = dir.run(&experiment("b", test), &["--on", "sim", "--trace", "b"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{}", ended.out);
    let record: Value =
        serde_json::from_slice(&fs::read(dir.path("out/sim/record.json")).unwrap()).expect("a record");
    let mut capture = trunkline_capture::source::CaptureFile::open(&dir.path("out/sim/b.pcapng")).unwrap();
    let mut arrived = Vec::new();
    let add = |arrived: &mut Vec<(u64, u32)>, captured: &trunkline_capture::packet::Captured<'_>| {
        let packet = trunkline_capture::packet::Packet::read(captured, None);
        arrived.extend(packet.payload.map(|bytes| (packet.at_ns, bytes)));
    };
    while capture.next_packet(|captured| add(&mut arrived, captured)).unwrap() {}
    (connection(&record, "x").clone(), arrived)
}

#[test]
fn sizes_and_times_of_a_capture_are_exact() {
    let dir = TestDir::new();
    dir.write("flow.pcap", udp_capture(&PACKETS));
    for scale in [1, 10] {
        let (x, arrived) = simulated(&dir, &format!("path = \"flow.pcap\", scale = {scale}"));
        let sizes: Vec<u32> = arrived.iter().map(|(_, bytes)| *bytes).collect();
        assert_eq!(sizes, PACKETS.map(|(_, bytes)| u32::from(bytes)));
        // Arrivals are later by the delay and the time on the line, which depends on the size.
        let line = |bytes: u32| 1_000_000 + u64::from(bytes + 28 + 38) * 8;
        for ((at, bytes), (us, _)) in arrived.iter().zip(PACKETS) {
            let due = arrived[0].0 - line(arrived[0].1) + (us - PACKETS[0].0) * 1_000 / scale;
            let error = at.abs_diff(due + line(*bytes));
            // Messages of one time wait for each other.
            assert!(error < 13_000, "{us}: {error} ns");
        }
        assert_eq!((number(&x["messages_sent"]), number(&x["lost"])), (7.0, 0.0));
        assert!(number(&x["asked"]["gap_distance"]) < 1e-9, "{x}");
    }
    // A part of it, and one that ends earlier.
    let (x, _) = simulated(&dir, "path = \"flow.pcap\", filter = \"udp port 3000\"");
    assert_eq!(number(&x["messages_sent"]), 7.0);
    let ended = dir.run(&experiment("b", "path = \"flow.pcap\", filter = \"udp port 9\""), &["--on", "sim"]);
    assert_words(&ended, "cannot replay `flow.pcap`: it has no UDP or TCP packets");
}

#[test]
fn csv_has_messages_or_amounts() {
    let dir = TestDir::new();
    dir.write("flow.csv", "time,host,size\n10.5,x,100\n10.25,x,64\n11,x,200\n");
    let (_, arrived) = simulated(&dir, "path = \"flow.csv\"");
    assert_eq!(arrived.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(), [64, 100, 200]);
    dir.write("day.csv", "time,out_bps\n0,8000\n1,0\n2,4000\n3,16000\n");
    let test = "path = \"day.csv\", column = out_bps, values = amounts, messagesize = 500, scale = 100";
    let (x, arrived) = simulated(&dir, test);
    assert_eq!(arrived.len(), 7);
    assert!(arrived.iter().all(|(_, bytes)| *bytes == 500));
    // 2 messages in the first second, 1 in the third, 4 in the fourth: the last is due at 3.75 s.
    let duration = arrived[6].0 - arrived[0].0;
    assert!(duration.abs_diff(37_500_000) < 1_000, "{duration}");
    assert_eq!(number(&x["messages_received"]), 7.0);
}

#[test]
fn a_series_of_an_archive_is_replayed() {
    let dir = TestDir::new();
    dir.write("flow.pcap", udp_capture(&PACKETS));
    let (_, first) = simulated(&dir, "path = \"flow.pcap\"");
    // The series of the run before.
    fs::rename(dir.path("out"), dir.path("before")).unwrap();
    let test =
        "path = \"before/sim/record.json\", column = \"x.sent_bps\", values = amounts, messagesize = 64";
    let ended = dir.run(&experiment("b", test), &["--on", "sim"]);
    let total: u32 = first.iter().map(|(_, bytes)| bytes).sum();
    assert!(total > 0);
    // A run of 50 ms has no complete interval, so its series says so.
    assert!(ended.status == 0 || ended.err.contains("cannot replay"), "{}", ended.err);
}

#[test]
fn what_cannot_be_replayed_is_one_line_in_the_text() {
    let dir = TestDir::new();
    let mut cut = udp_capture(&PACKETS);
    cut.truncate(cut.len() - 3);
    dir.write("cut.pcap", cut);
    dir.write("short.pcap", [0xd4, 0xc3, 0xb2, 0xa1, 0]);
    dir.write("flow.pcap", udp_capture(&PACKETS));
    dir.write("bad.csv", "time,size\n0,100\n1,-5\n");
    dir.write("words.csv", "time,size\n0,100\n1,many\n");
    dir.write("empty.csv", "");
    for (test, words) in [
        ("path = \"missing.pcap\"", "there is no such file"),
        ("path = \"cut.pcap\"", "after packet 6: "),
        ("path = \"short.pcap\"", "neither pcap nor pcapng"),
        ("path = \"flow.pcap\", filter = \"udp pord 3\"", "`filter`: "),
        ("path = \"flow.pcap\", column = size", "a capture has no columns"),
        ("path = \"bad.csv\"", "value 2 of column `size` is not a size in bytes: -5"),
        ("path = \"words.csv\"", "line 3 of column `size` is not a number"),
        ("path = \"bad.csv\", values = amounts", "an amount is below 0"),
        ("path = \"bad.csv\", filter = udp", "only a capture has a `filter`"),
        ("path = \"empty.csv\"", "it holds nothing"),
        ("path = \"/dev/null\"", "it is not a file"),
    ] {
        let ended = dir.run(&experiment("b", test), &["--on", "sim"]);
        assert_words(&ended, "error: cannot replay `");
        assert_words(&ended, words);
        assert_words(&ended, "experiment.ns:2:");
    }
}

/// Live, every message in its order; times belong to benchmarks.
#[test]
fn a_live_replay_arrives_whole_and_in_order() {
    let dir = TestDir::new();
    dir.write("flow.pcap", udp_capture(&PACKETS));
    let [port] = free_ports();
    let text = format!(
        "connection x {{ xmt = a; rcv = b:{port}; protocol = udp; test = replay (path = \"flow.pcap\"); }}"
    );
    let record = dir.record(&text, &["--on", "live"]);
    let x = connection(&record, "x");
    assert_eq!((number(&x["messages_sent"]), number(&x["messages_received"])), (7.0, 7.0));
    assert_eq!(["lost", "reordered", "corrupted"].map(|name| number(&x[name])), [0.0; 3]);
}

/// The recording of DIS, if it lies beside the project.
#[test]
fn recorded_dis_is_replayed_exactly() {
    let path = repository("../shared/data/dis/ground-vehicles.pcap");
    if !path.exists() {
        eprintln!("skipped: no {}", path.display());
        return;
    }
    let dir = TestDir::new();
    for scale in [1, 10] {
        let (x, arrived) = simulated(&dir, &format!("path = \"{}\", scale = {scale}", path.display()));
        assert_eq!((arrived.len(), number(&x["lost"])), (1_222, 0.0));
        assert!(number(&x["asked"]["gap_distance"]) < 1e-6, "{x}");
    }
}
