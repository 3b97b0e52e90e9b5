//! `trunkline test`: one-off tests without a file.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::command::{Running, TestDir, assert_accounted, number, signal};

/// Returns the lines of intervals: those with times.
fn interval_lines(out: &str) -> Vec<&str> {
    out.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit())).collect()
}

#[test]
fn each_protocol_runs_and_is_stored() {
    for (number_of_run, (more, transport, connections)) in [
        (&[][..], "tcp", 1),
        (&["-b", "20M", "-l", "10K", "-R"], "tcp", 1),
        (&["-u", "-b", "10M", "--bidir"], "udp", 2),
        (&["-u", "-b", "0", "--dscp", "cs1"], "udp", 1),
        (&["--guaranteed", "-P", "2", "-C", "paced"], "guaranteed", 2),
    ]
    .into_iter()
    .enumerate()
    {
        let dir = TestDir::new();
        let mut arguments = vec!["test", "local", "-t", "1", "-i", "0.5"];
        arguments.extend(more);
        let ended = dir.execute(&arguments);
        assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{more:?}: {}", ended.out);
        let record = dir.archived(1);
        let all = record["connections"].as_array().unwrap();
        assert_eq!(all.len(), connections, "{number_of_run}");
        for c in all {
            assert_eq!(c["transport"], transport);
            assert_accounted(c);
        }
        assert_shows(&ended.out, all, connections);
    }
}

/// The lines and the result have what the record has.
fn assert_shows(out: &str, connections: &[Value], count: usize) {
    let lines = interval_lines(out);
    let is_sum = |line: &&&str| line.contains(" sum ");
    assert!(lines.iter().filter(|line| !is_sum(line)).count() >= 2 * count, "{out}");
    let one_direction = connections.iter().all(|c| c["from"] == connections[0]["from"]);
    assert_eq!(lines.iter().any(|line| is_sum(&line)), count > 1 && one_direction, "{out}");
    let lost: f64 = connections.iter().map(|c| number(&c["lost"])).sum();
    assert!(lost > 0.0 || out.contains("receiver ") && out.contains(" 0 of "), "{out}");
    for words in [" sender ", "one-way delay: min ", "jitter", "processor: sender ", "Stored as run 1"] {
        assert!(out.contains(words), "{words} in {out}");
    }
    let result = out.lines().skip_while(|line| !line.is_empty()).filter(|line| !line.is_empty()).count();
    assert!(result <= 10, "{result} lines: {out}");
}

#[test]
fn the_printed_text_is_an_experiment_that_runs() {
    let dir = TestDir::new();
    let printed = dir.execute(&["test", "local", "--print", "-u", "-n", "20K", "--dscp", "EF", "-P", "2"]);
    assert_eq!((printed.status, printed.err.as_str()), (0, ""));
    assert!(!dir.path("archive.sqlite").exists(), "nothing is run");
    let record = dir.record(&printed.out, &[]);
    let all = record["connections"].as_array().unwrap();
    assert_eq!(all.len(), 2);
    for c in all {
        assert_eq!((&c["notes"]["dscp"], c["messages_sent"].as_u64()), (&"EF".into(), Some(15)));
    }
}

#[test]
fn json_is_the_record_alone() {
    let dir = TestDir::new();
    let ended = dir.execute(&["test", "127.0.0.1", "-t", "200ms", "--json", "--no-archive"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    let json: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(json["connections"][0]["name"], "forward");
    assert!(!dir.path("archive.sqlite").exists());
}

#[test]
fn an_interrupt_keeps_the_partial_result() {
    let dir = TestDir::new();
    let running =
        Running::start(dir.trunkline(&["test", "local", "-t", "1h", "-u", "-b", "10M", "-i", "100ms"]));
    running.agents_with_results(["here", "there"]);
    signal(running.id(), Signal::SIGINT);
    let ended = running.end();
    ended.assert_line(1, "stopped on request; the partial results are stored");
    assert!(
        !interval_lines(&ended.out).is_empty() && ended.out.contains("forward receiver"),
        "{}",
        ended.out
    );
    let record = dir.archived(1);
    assert_eq!(record["partial"], true);
    assert_accounted(&record["connections"][0]);
}

#[test]
fn wrong_usage_is_one_line() {
    let dir = TestDir::new();
    for (arguments, words) in [
        (&["elsewhere"][..], "the key store has no agent `elsewhere`: add it with `trunkline keys add`"),
        (&["192.0.2.7"], "host 192.0.2.7: this is no address of this machine"),
        (&["local", "-C", "nonesuch"], "nonesuch"),
        (&["local", "--guaranteed", "-C", "vegas"], "`vegas` is not possible here"),
        (&["local", "-u", "-l", "70000"], "70000"),
    ] {
        let ended = dir.execute(&[&["test"], arguments].concat());
        ended.assert_line(2, words);
        assert_eq!(ended.out, "", "{arguments:?}");
    }
    for arguments in [
        &["-b", "fast"][..],
        &["-t", "0"],
        &["-l", "31"],
        &["--dscp", "64"],
        &["-u", "--guaranteed"],
        &["-i", "1ms"],
    ] {
        let ended = dir.execute(&[&["test", "local"], arguments].concat());
        assert!(ended.status == 2 && ended.err.starts_with("error: ") && ended.out.is_empty(), "{ended:?}");
    }
    assert!(!dir.path("archive.sqlite").exists());
}
