//! `trunkline torture` and the curves of 1998, from outside.

use std::fs;
use std::time::Duration;

use crate::command::{Running, TestDir, number, signal, within};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;

/// Far longer than a program takes to start.
const LONG: Duration = Duration::from_secs(60);
const CLEAN: &str = "no message was lost, duplicated, reordered or corrupted";

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn everything_arrives_whatever_the_faults() {
    let dir = TestDir::new();
    let ended = dir.execute(&["torture", "--seeds", "20"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{}", ended.out);
    assert!(
        ended.out.contains("20 exchanges") && ended.out.ends_with(&format!("\n{CLEAN}\n")),
        "{}",
        ended.out
    );
}

#[test]
fn requested_faults_happen() {
    let dir = TestDir::new();
    let words =
        ["torture", "--seeds", "12", "--json", "--drop", "0.2", "--damage", "0.1", "--duplicate", "0"];
    let of = |more: &[&str]| {
        let ended = dir.execute(&[&words[..], more].concat());
        assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{}", ended.out);
        ended.out
    };
    let given = ["--reorder", "0.1", "--mode", "gobackn", "--messages", "20", "--size", "2000", "--threads"];
    let text = of(&[&given[..], &["1"]].concat());
    assert_eq!(text, of(&[&given[..], &["5"]].concat()), "threads change nothing");
    let whole = json(&text);
    assert_eq!((&whole["exchanges"], &whole["messages"]), (&12.into(), &(12 * 2 * 20).into()));
    let path = |name: &str| number(&whole["path"][name]);
    // Blackholes eat frames too.
    assert!(path("lost") > 0.15 * path("frames"), "{text}");
    assert!(path("damaged") > 0.05 * (path("frames") - path("lost")) && path("held_back") > 0.0, "{text}");
    assert_eq!(path("duplicated"), 0.0);
    assert!(number(&whole["counters"]["bad_checksums"]) > 0.0, "{text}");
    assert!(number(&whole["counters"]["frames_resent"]) > path("lost") / 2.0, "{text}");
}

#[test]
fn an_oracle_that_sees_nothing_would_not_see_this() {
    let dir = TestDir::new();
    let words = ["torture", "--check", "none", "--damage", "0.1", "--seeds", "20", "--json", "--half-duplex"];
    let ended = dir.execute(&words);
    assert_eq!(ended.status, 1, "{}", ended.out);
    let whole = json(&ended.out);
    let findings = whole["findings"].as_array().expect("a list");
    assert!(ended.err.contains(&format!("{} of 20 exchanges failed", findings.len())), "{}", ended.err);
    let first = &findings[0];
    // The command that it gives repeats it.
    let again = first["again"].as_str().expect("a command").strip_prefix("trunkline ").expect("ours");
    let once = dir.execute(&again.split(' ').chain(["--json"]).collect::<Vec<_>>());
    let once = json(&once.out);
    assert_eq!((once["exchanges"].as_u64(), &once["findings"][0]), (Some(1), first));
    // The simpler one fails as well, and is no simpler than it says.
    let simpler = first["simpler"].as_str().expect("a command").strip_prefix("trunkline ").expect("ours");
    let once = dir.execute(&simpler.split(' ').chain(["--json"]).collect::<Vec<_>>());
    assert_eq!(once.status, 1, "{simpler}");
    assert!(simpler.contains("--drop 0 ") && simpler.contains("--messages "), "{simpler}");
    assert_eq!(json(&once.out)["findings"][0]["simpler"], Value::Null, "{simpler}");
}

#[test]
fn ends_die_and_come_back() {
    let dir = TestDir::new();
    let words =
        ["torture", "--seeds", "40", "--deaths", "always", "--messages", "30", "--size", "2000", "--json"];
    let ended = dir.execute(&words);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{}", ended.out);
    let whole = json(&ended.out);
    assert_eq!(whole["messages"], 40 * 2 * 30, "in the end all came");
    assert!(number(&whole["deaths"]) > 10.0, "{whole}");
    let none = json(&dir.execute(&["torture", "--seeds", "9", "--deaths", "never", "--json"]).out);
    assert_eq!(none["deaths"], 0);
    let words = ["torture", "--on", "loopback", "--seeds", "3", "--deaths", "always", "--messages", "30"];
    let rest = ["--size", "2000", "--drop", "0", "--damage", "0", "--blackhole", "3600s:1us", "--json"];
    let ended = dir.execute(&[&words[..], &rest].concat());
    assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{}", ended.out);
}

#[test]
fn the_same_holds_on_sockets() {
    let dir = TestDir::new();
    let words = [
        "torture",
        "--on",
        "loopback",
        "--seeds",
        "3",
        "--drop",
        "0.05",
        "--damage",
        "0.05",
        "--messages",
        "9",
    ];
    let ended = dir.execute(&[&words[..], &["--size", "3000", "--full-duplex", "--json"]].concat());
    assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{}", ended.out);
    let whole = json(&ended.out);
    assert_eq!((&whole["on"], &whole["messages"]), (&"loopback".into(), &(3 * 2 * 9).into()));
}

/// Whether a program catches SIGINT.
fn listens(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & 1 << (Signal::SIGINT as u32 - 1) != 0)
}

#[test]
fn ctrl_c_ends_it_with_what_was_counted() {
    let dir = TestDir::new();
    for place in ["memory", "loopback"] {
        let command = dir.trunkline(&["torture", "--on", place, "--seeds", "1000000", "--json"]);
        let running = Running::start(command);
        within(LONG, "the program to listen for signals", || listens(running.id()));
        signal(running.id(), Signal::SIGINT);
        let ended = running.end();
        ended.assert_line(1, "stopped on request");
        let whole = json(&ended.out);
        assert!(whole["partial"] == true && number(&whole["exchanges"]) < 1e6, "{whole}");
        assert_eq!(whole["findings"], Value::Array(Vec::new()));
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let dir = TestDir::new();
    for (words, said) in [
        (&["--drop", "2"][..], "a fraction from 0 to 1"),
        (&["--delay", "5"], "a duration such as 20ms"),
        (&["--blackhole", "1s"], "PERIOD:LENGTH"),
        (&["--blackhole", "0s:1s"], "the period must be above 0s"),
        (&["--messages", "0"], "0 is not in"),
        (&["--half-duplex", "--full-duplex"], "cannot be used with"),
        (&["--seed", "18446744073709551615"], "exceeds the largest seed"),
    ] {
        let ended = dir.execute(&[&["torture"][..], words].concat());
        assert_eq!((ended.status, ended.out.as_str()), (2, ""), "{words:?}");
        assert!(ended.err.contains(said), "{}", ended.err);
    }
}

#[test]
fn a_curve_of_1998_is_drawn_again() {
    let dir = TestDir::new();
    let ended = dir.execute(&["reproduce", "1998", "figure-17", "--out", "out"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{}", ended.out);
    let file = |name: &str| fs::read_to_string(dir.path("out").join(name)).expect("a file");
    let whole = json(&file("curves.json"));
    let sweep = &whole["figures"][0]["sweep"];
    let mean = |transport: &str, window: &str| {
        let points = sweep["points"].as_array().expect("a list");
        let point = points.iter().find(|p| p["values"] == serde_json::json!([window, transport]));
        number(&point.unwrap_or_else(|| panic!("no {transport} {window}"))["figures"][0]["mean"])
    };
    for transport in ["of 1998", "of today"] {
        let [one, four, sixteen, most] = ["1", "4", "16", "32"].map(|window| mean(transport, window));
        assert!(one < four && four < sixteen * 1.01, "{transport}: {one} {four} {sixteen}");
        // As in the paper, sixteen frames are enough.
        assert!((most / sixteen - 1.0).abs() < 0.02, "{transport}: {sixteen} {most}");
    }
    assert_eq!(mean("of the paper's text", "16"), 119e6);
    let rows = file("curves.csv");
    assert_eq!(rows.lines().count(), 1 + 2 * 9 + 1, "{rows}");
    assert!(rows.lines().all(|row| row.split(',').count() == 13), "{rows}");
    let page = file("curves.html");
    assert!(page.contains("prints no values of its figures") && page.matches("<iframe").count() == 1);
}
