//! `trunkline study` from outside.

use crate::command::TestDir;
use serde_json::Value;

/// An experiment around the line that is printed to be pasted.
fn with(line: &str) -> String {
    format!(
        "experiment {{ network {{ {line} host b; link this - b (rate = 1 Gb/s); }}
         connection {{ xmt = this; rcv = b; protocol = udp; test = full; duration = 1 s; }} }}"
    )
}

#[test]
fn the_printed_host_can_be_pasted() {
    let dir = TestDir::new();
    let ended = dir.execute(&["study", "host", "--seconds", "0.05"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    let line = ended.out.lines().last().expect("a line to paste");
    assert!(line.starts_with("host this (cpu_packet = "), "{}", ended.out);
    dir.write("pasted.ns", with(line));
    let checked = dir.execute(&["check", "pasted.ns"]);
    assert_eq!((checked.status, checked.err.as_str()), (0, ""), "{line}");
    assert!(
        checked.out.contains("host this (cpu_packet = ")
            && !checked.out.contains("host this (cpu_packet = 0 s")
    );
}

#[test]
fn the_study_as_json_is_whole() {
    let ended = TestDir::new().execute(&["study", "host", "--seconds", "0.05", "--json"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    let json: Value = serde_json::from_str(&ended.out).expect("JSON and nothing else");
    let host = &json["host"];
    let mean = |what: &str| {
        let of = |side: &str| crate::command::number(&host[side][what]);
        (of("send") + of("receive")) / 2.0
    };
    for what in ["packet_ns", "byte_ns"] {
        let figure = crate::command::number(&host[what]);
        assert!(figure > 0.0 && (figure - mean(what)).abs() < 1e-6 * figure, "{host}");
    }
    assert!(host["points"].as_array().expect("a list").len() >= 5, "{host}");
    assert!(json["line"].as_str().expect("a line").contains(&format!("cpus = {}", host["cpus"])));
    assert!(json["environment"]["kernel"].is_string() && json["left_out"].is_array());
}

#[test]
fn a_budget_that_is_none_is_refused() {
    for seconds in ["0", "-1", "nan", "601", "soon"] {
        let ended = TestDir::new().execute(&["study", "host", &format!("--seconds={seconds}")]);
        assert_eq!(ended.status, 2, "{seconds}: {}", ended.err);
        assert!(ended.err.contains("expected a duration above 0s, at most 10min"), "{}", ended.err);
    }
}
