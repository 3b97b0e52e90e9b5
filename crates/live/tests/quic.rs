//! QUIC between agents in threads of this process.

use crate::support::{run, stopped_after};

#[test]
fn every_test_runs_over_streams_and_datagrams() {
    let record = run(
        "experiment { serial {
            connection full { xmt = a; rcv = b; protocol = quic; test = full (messagesize = 100 kB); bytes = 14 MB; }
            connection many { xmt = a; rcv = b; protocol = quic (streams = 5, window = 64 kB, congestion = bbr);
                              test = full (messagesize = 3 kB); messages = 500; }
            connection cbr { xmt = a; rcv = b; protocol = quic; test = cbr (messagesize = 500:3, period = 5 ms); messages = 90; }
            connection poisson { xmt = a; rcv = b; protocol = quic (congestion = reno); test = poisson (rate = 2000 /s); messages = 400; }
            connection request { xmt = a; rcv = b; protocol = quic (streams = 3); test = request (request = 100, response = 100 kB); messages = 50; }
            connection datagrams { xmt = a; rcv = b; protocol = quic (datagrams = on);
                                   test = cbr (messagesize = 1162, period = 1 ms); messages = 200; }
            connection ask { xmt = a; rcv = b; protocol = quic (datagrams = on); test = request (request = 100, response = 1000); messages = 50; }
        } }",
    );
    assert!(!record.partial, "{:?}", record.problems);
    for c in &record.connections {
        assert_eq!((c.error.as_deref(), c.corrupted), (None, 0), "{}", c.name);
        assert_eq!(c.messages_received + c.lost, c.messages_sent, "{}", c.name);
        if c.name != "datagrams" && c.name != "ask" {
            assert_eq!(c.lost, 0, "{}", c.name);
        }
        assert!(c.counters["handshake_us"] > 0.0 && c.counters["packets_sent"] > 0.0, "{:?}", c.counters);
        assert!(c.counters["receiver_packets_received"] > 0.0 && c.rtt_us.is_some(), "{}", c.name);
    }
    let messages: Vec<u64> = record.connections.iter().map(|c| c.messages_sent).collect();
    assert_eq!(messages, [140, 500, 90, 400, 50, 200, 50]);
    let full = &record.connections[0];
    assert!(full.series.iter().any(|point| point.extra.contains_key("cwnd_bytes")));
    assert_eq!(record.connections[5].counters["datagrams_sent"], 200.0);
}

#[test]
fn a_file_arrives_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..3_000_007u32).map(|at| ((at * 31) >> 8) as u8).collect();
    let path = folder.path().join("data.bin");
    std::fs::write(&path, &bytes).unwrap();
    let name = format!("f{}", std::process::id());
    let text = format!(
        "experiment {{ connection {name} {{ xmt = a; rcv = b; protocol = quic; test = file (path = {:?}); }} }}",
        path.to_str().unwrap()
    );
    let record = run(&text);
    let c = &record.connections[0];
    assert_eq!((c.error.as_deref(), c.lost, c.corrupted), (None, 0, 0));
    assert_eq!(c.counters["file_bytes"], bytes.len() as f64);
    let received = std::env::temp_dir().join("files").join(name);
    assert!(std::fs::read(received.join("b").join("data.bin")).unwrap() == bytes);
    std::fs::remove_dir_all(received).unwrap();
}

#[test]
fn a_stop_ends_both_ends() {
    let text =
        "experiment { connection x { xmt = a; rcv = b; protocol = quic; test = full; duration = 1 h; } }";
    let stopped = |ms| stopped_after(ms, text);
    let mut records = [750, 6_000, 45_000].into_iter().map(stopped);
    let record = records.find(|record| record.connections[0].messages_received > 0);
    let record = record.expect("measurements are retained");
    let c = &record.connections[0];
    assert!(c.partial && c.error.as_deref() == Some("stopped on request"), "{:?}", c.error);
}
