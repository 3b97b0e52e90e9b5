//! `trunkline scenario`: the configurations of 1996 run as written.

use crate::command::{TestDir, assert_accounted};
use serde_json::Value;

fn connections(record: &Value) -> usize {
    record["connections"].as_array().unwrap().len()
}

#[test]
fn a_mesh_of_four_hosts_has_twelve_connections_and_runs() {
    let dir = TestDir::new();
    let ended = dir.execute(&[
        "scenario",
        "mesh",
        "a",
        "b",
        "c",
        "192.0.2.1",
        "-o",
        "mesh.ns",
        "--duration",
        "200ms",
    ]);
    assert_eq!((ended.status, ended.out.as_str(), ended.err.as_str()), (0, "", ""));
    let text = std::fs::read_to_string(dir.path("mesh.ns")).unwrap();
    let record = dir.record(&text, &["--set", "messagesize=1 kB"]);
    assert_eq!((connections(&record), &record["experiment"]["name"]), (12, &"mesh".into()));
    record["connections"].as_array().unwrap().iter().for_each(assert_accounted);
}

#[test]
fn every_configuration_is_an_experiment() {
    let dir = TestDir::new();
    let six = ["a", "b", "c", "d", "e", "f"];
    for (configuration, hosts, count) in
        [("pairs", 3, 6), ("three-pairs", 6, 6), ("switch", 4, 6), ("one-to-all", 5, 8), ("mesh", 6, 30)]
    {
        let test = ["--protocol", "udp", "--test", "cbr (messagesize = 1 kB, period = 1 ms)"];
        let arguments = [&["scenario", configuration], &six[..hosts], &test].concat();
        let ended = dir.execute(&arguments);
        assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{configuration}");
        dir.write("x.ns", &ended.out);
        let plan = dir.execute(&["check", "x.ns"]);
        assert_eq!((plan.status, plan.err.as_str()), (0, ""), "{configuration}");
        assert_eq!(plan.out.matches("  connection ").count(), count, "{}", plan.out);
    }
}

#[test]
fn wrong_hosts_and_options_are_one_line() {
    let dir = TestDir::new();
    let refuse = |arguments: &[&str], words: &str| {
        dir.execute(&[&["scenario"], arguments].concat()).assert_line(2, words);
    };
    refuse(&["three-pairs", "a", "b"], "`three-pairs` needs 6 hosts, not 2");
    refuse(&["mesh", "a"], "`mesh` needs at least 2 hosts, not 1");
    refuse(&["mesh", "a", "a"], "the host `a` is given twice");
    refuse(&["mesh", "a", "x\ny"], "cannot be the name of a host");
    refuse(&["mesh", "a", "b", "--protocol", "tpc"], "did you mean `tcp`");
    refuse(&["mesh", "a", "b", "--duration", "1 s; } evil {"], "trunkline: ");
}
