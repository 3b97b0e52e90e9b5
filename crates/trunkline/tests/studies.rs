//! `trunkline study`, as a person runs it.

use std::process::{Command, Output};

use serde_json::Value;

fn trunkline(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trunkline")).args(words).output().expect("it runs")
}

#[test]
fn groups_are_studied_and_reported_in_three_formats() {
    let out = tempfile::tempdir().expect("a folder");
    let folder = out.path().to_str().expect("UTF-8");
    let said = trunkline(&["study", "multicast", "--runs", "1", "--seconds", "1", "--out", folder, "--json"]);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let json: Value = serde_json::from_slice(&said.stdout).expect("JSON and nothing else");
    let cells = json["multicast"]["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 42);
    let share = |joined: u64| {
        let of = cells.iter().filter(|cell| cell["share_percent"] == joined);
        of.map(|cell| cell["receiver_percent"][0].as_f64().expect("a number")).sum::<f64>()
    };
    assert!(share(100) > share(0), "who wants all has more to do than who wants nothing");
    assert!(json["multicast"]["join"][0]["join_us"].as_f64().expect("a number") > 0.0);
    let csv = std::fs::read_to_string(out.path().join("multicast.csv")).expect("a table");
    // A row for each cell and figure, and the head.
    assert_eq!(csv.lines().count(), 2 * 42 + 1);
    let page = std::fs::read_to_string(out.path().join("multicast.html")).expect("a page");
    assert!(page.contains("1 run") && page.contains("joined_percent"));
}

#[test]
fn conflicting_options_are_errors() {
    for words in [&["study", "host", "--runs", "3"][..], &["study", "host", "--out", "x"]] {
        let said = trunkline(words);
        assert_eq!(said.status.code(), Some(2));
        assert_eq!(String::from_utf8_lossy(&said.stderr).lines().count(), 1, "{said:?}");
    }
}
