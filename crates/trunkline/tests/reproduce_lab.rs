//! `trunkline reproduce lab`: experiments in the simulator and in a lab. No test asserts a delay: the machine may be busy.

use serde_json::Value;

use crate::command::{TestDir, can, number};

/// Runs an experiment in both and returns its rows.
fn rows(experiment: &str) -> Option<Vec<Value>> {
    if !can(&["unshare", "--net", "test", "-w", "/dev/net/tun"]) {
        return None;
    }
    let dir = TestDir::new();
    let ended = dir.execute(&["reproduce", "lab", experiment, "--json", "--out", "out"]);
    let document: Value = serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("{ended:?}"));
    assert_eq!(std::fs::read_to_string(dir.path("out/lab.json")).unwrap(), ended.out);
    let table = std::fs::read_to_string(dir.path("out/lab.txt")).unwrap();
    let experiments = document["experiments"].as_array().unwrap();
    assert_eq!((experiments.len(), &experiments[0]["experiment"]), (1, &experiment.into()));
    let rows = experiments[0]["rows"].as_array().unwrap().clone();
    let outside = rows.iter().filter(|row| row["within"] == false).count();
    assert_eq!(ended.status, i32::from(outside > 0), "{}", ended.err);
    assert_eq!(table.matches("NO").count(), outside, "{table}");
    Some(rows)
}

#[test]
fn four_receivers_of_a_group_receive_in_both() {
    let Some(rows) = rows("multicast") else { return };
    let names: Vec<&str> = rows.iter().map(|row| row["connection"].as_str().unwrap()).collect();
    assert_eq!(names, ["video to r1", "video to r2", "video to r3", "video to r4"]);
    for row in &rows {
        assert_eq!(row["lost"]["sim"], row["lost"]["lab"], "{row}");
        for backend in ["sim", "lab"] {
            assert!(number(&row["received_bps"][backend]) > 0.0, "{row}");
        }
    }
    // Only the last line loses packets: 2 % of 3,000.
    let lost: Vec<f64> = rows.iter().map(|row| number(&row["lost"]["lab"])).collect();
    assert_eq!(lost[..3], [0.0; 3]);
    assert!(lost[3] > 20.0, "{lost:?}");
}

#[test]
fn what_is_lost_is_equal_and_recovered_in_both() {
    let Some(rows) = rows("loss") else { return };
    assert_eq!(rows[0]["connection"], "recovered");
    assert_eq!(rows[0]["lost"], serde_json::json!({ "sim": 0, "lab": 0 }));
    assert_eq!((&rows[1]["connection"], &rows[1]["lost"]["sim"]), (&"plain".into(), &rows[1]["lost"]["lab"]));
    assert!(number(&rows[1]["lost"]["sim"]) > 10.0, "{}", rows[1]);
}

#[test]
fn an_unknown_experiment_is_a_wrong_input() {
    let dir = TestDir::new();
    dir.execute(&["reproduce", "lab", "office"]).assert_line(2, "unknown experiment `office` of lab");
    dir.execute(&["reproduce", "lab", "web", "--seeds", "3"]).assert_line(2, "--seeds");
}
