//! The language as data: texts with what they mean or what is wrong with them beside them. `BLESS=1` rewrites the
//! expectations; read the difference before keeping it.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use trunkline_experiment::{
    Plan, Severity, Source, apply_override, parse, parse_with, parse_with_recordings, plan_text, render,
};
use trunkline_traffic::{Recording, RecordingRequest};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Every `.ns` file of a folder, by name.
fn scripts(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of scripts");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|e| e == "ns"));
    files.sort();
    files
}

/// Compares with the file, or writes it. Returns whether they agree.
fn matches(file: &Path, actual: &str) -> bool {
    if std::env::var_os("BLESS").is_some() {
        fs::write(file, actual).expect("the expectation can be written");
        return true;
    }
    let expected = fs::read_to_string(file).unwrap_or_default();
    if expected != actual {
        eprintln!("=== {} expected:\n{expected}\n=== found:\n{actual}", file.display());
    }
    expected == actual
}

/// Recorded traffic of two messages; that of the command is tested there.
fn recording(request: &RecordingRequest) -> Result<Recording, String> {
    match request.path.as_str() {
        "missing.pcap" => Err("there is no such file".into()),
        "jumbo.pcap" => Ok(Recording::new(vec![(0, 70_000)]).unwrap()),
        _ => Ok(Recording::new(vec![(5, 144), (1_000_005, 200)]).unwrap()),
    }
}

fn check<'a>(text: &'a str, file: &'a Path) -> (Option<Plan>, String) {
    let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
    let source = Source { name, text, folder: file.parent() };
    let parsed = parse_with_recordings(&source, &recording);
    (parsed.plan, render(&source, &parsed.diagnostics, false))
}

#[test]
fn invalid_texts_have_the_expected_diagnostics() {
    let files = scripts(&folder("bad"));
    assert!(files.len() >= 50, "{} bad texts", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a text");
        let (plan, rendered) = check(&text, &file);
        assert!(plan.is_none(), "{} has a plan", file.display());
        assert!(rendered.contains("error: "), "{} has no error", file.display());
        if !matches(&file.with_extension("txt"), &rendered) {
            wrong.push(file);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn good_texts_mean_their_plan() {
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut files = scripts(&folder("good"));
    files.extend(scripts(&experiments));
    assert!(files.iter().any(|f| f.ends_with("figure-08-blast.ns")));
    let mut wrong = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a text");
        let (plan, rendered) = check(&text, &file);
        let plan = plan.unwrap_or_else(|| panic!("{} has no plan:\n{rendered}", file.display()));
        let printed = plan_text(&plan);
        let stem = file.file_stem().and_then(|stem| stem.to_str()).expect("a name");
        if !matches(&folder("good").join(format!("{stem}.txt")), &format!("{rendered}{printed}")) {
            wrong.push(file.clone());
        }
        let (again, trouble) = check(&printed, &file);
        let again = again.unwrap_or_else(|| panic!("the printed plan of {stem} has no plan:\n{trouble}"));
        assert_eq!(plan_text(&again), printed, "{stem}");
        assert_eq!(again.hash(), plan.hash(), "the printed plan of {stem} means something else");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn plan(text: &str) -> Plan {
    let source = Source { name: "test.ns", text, folder: None };
    let parsed = parse(&source);
    parsed.plan.unwrap_or_else(|| panic!("{}", render(&source, &parsed.diagnostics, false)))
}

const FIGURE_9: &str = include_str!("../../../experiments/figure-09-cbr.ns");

#[test]
fn the_hash_is_of_the_meaning() {
    let hash = plan(FIGURE_9).hash();
    assert_eq!(hash.len(), 64);
    let comments = FIGURE_9.replace(';', "; # more\n /* and */ // more\n").replace('=', " = ");
    assert_eq!(plan(&comments).hash(), hash);
    assert_eq!(plan(&FIGURE_9.replace("period=20000", "period = 20ms")).hash(), hash);
    assert_eq!(plan(&FIGURE_9.replace("100 s", "100")).hash(), hash);
    assert_eq!(plan(&FIGURE_9.replace("xmcntl", "xmtcntl")).hash(), hash);
    assert_ne!(plan(&FIGURE_9.replace("100 s", "101 s")).hash(), hash);
    assert_ne!(plan(&FIGURE_9.replace("18432:5", "18432:6")).hash(), hash);
    let expecting = |spelled: &str| {
        let text = format!(
            "experiment {{ connection A {{ xmt = a; rcv = b; protocol = tcp; test = full; }} {spelled} }}"
        );
        plan(&text)
    };
    let wide = expecting("expect A.delay_us.p99 < 300 us;");
    let narrow = expecting("expect A.delay_us.p99<300us;");
    assert_eq!(wide.expectations[0].value, 300.0);
    assert_eq!(wide.expectations[0].text, "A.delay_us.p99 < 300 us");
    assert_eq!(wide, Plan { expectations: wide.expectations.clone(), ..narrow.clone() });
    assert_eq!(wide.hash(), narrow.hash());
    assert_ne!(wide.hash(), expecting("expect A.delay_us.p99 <= 300us;").hash());
}

/// Every option of the simulator: spelled out, its default changes nothing; anything else is another plan.
#[test]
fn what_is_simulated_is_part_of_the_meaning() {
    let text = "experiment {
        network {
            host a (cpus = 1); host b, c, d; switch s (latency = 0); hub h (rate = 10 Mb/s); ring r (frame = 2 kB);
            link a - s (rate = 155 Mb/s, medium = atm); link b - s (rate = 1 Gb/s);
            link c - h; link d - r; link h - s; link r - s;
        }
        connection { xmt = a; rcv = b; protocol = tcp (window = auto); test = full; }
        connection { xmt = b; rcv = a; protocol = tcp (congestion = cubic); test = full; }
    }";
    let base = plan(text).hash();
    for (beside, option, default, other) in [
        ("cpus = 1", "send_queue", "50 packets", "51 packets"),
        ("latency = 0", "buffer_per", "port", "channel"),
        ("rate = 10 Mb/s", "delay", "2.5 us", "2 us"),
        ("frame = 2 kB", "token_loss", "0", "1e-6"),
        ("medium = atm", "cells", "trains", "each"),
        ("medium = atm", "encapsulation", "llc", "null"),
        ("medium = atm", "pacing", "none", "3:8"),
        ("rate = 1 Gb/s", "queue", "none", "droptail"),
        ("rate = 1 Gb/s", "queue", "none", "drr (weights = EF (4) : 7 (2))"),
        ("rate = 1 Gb/s", "shape", "none", "5 Mb/s : 1500 B"),
        ("rate = 1 Gb/s", "police", "none", "5 Mb/s : 9 kB"),
        ("window = auto", "timers", "bsd", "fine"),
        ("window = auto", "delayed_ack", "on", "off"),
        ("window = auto", "sack", "auto", "on"),
        ("window = auto", "timestamps", "auto", "off"),
        ("window = auto", "ecn", "auto", "on"),
        ("window = auto", "ecn", "auto", "accurate"),
        ("window = auto", "initial_ssthresh", "auto", "64 kB"),
        ("congestion = cubic", "reno_friendly", "auto", "off"),
        ("congestion = cubic", "hystart", "auto", "off"),
        ("congestion = cubic", "initial_window", "auto", "3"),
        ("congestion = cubic", "min_rto", "auto", "20 ms"),
        ("congestion = cubic", "ack_delay", "auto", "1 ms"),
        ("window = auto", "congestion", "auto", "cubic"),
    ] {
        let with = |value: &str| plan(&text.replace(beside, &format!("{beside}, {option} = {value}")));
        assert_eq!(with(default).hash(), base, "{option} = {default}");
        let changed = with(other);
        assert_ne!(changed.hash(), base, "{option} = {other}");
        assert_eq!(plan(&plan_text(&changed)).hash(), changed.hash(), "{option} = {other}, printed");
    }
}

/// A congestion controller of today has exact timers unless others are asked for, in the text and by overrides.
#[test]
fn controllers_of_today_have_exact_timers() {
    let with = |options: &str| {
        plan(&format!(
            "experiment {{ connection {{ xmt = a; rcv = b; protocol = tcp ({options}); test = full; }} }}"
        ))
    };
    for (options, timers) in [
        ("congestion = auto", "bsd"),
        ("congestion = reno", "bsd"),
        ("congestion = vegas", "bsd"),
        ("congestion = newreno", "fine"),
        ("congestion = cubic", "fine"),
        ("congestion = dctcp", "fine"),
        ("congestion = bbr", "fine"),
        ("congestion = bbr3", "fine"),
        ("congestion = prague", "fine"),
        ("timers = bsd, congestion = cubic", "bsd"),
    ] {
        let plan_of = with(options);
        let printed = plan_text(&plan_of);
        assert!(printed.contains(&format!("timers = {timers}")), "{options}: {printed}");
        assert_eq!(plan(&printed).hash(), plan_of.hash(), "{options}");
    }
    let mut changed = with("congestion = auto");
    apply_override(&mut changed, "congestion", "cubic").unwrap();
    assert_eq!(changed.hash(), with("congestion = cubic").hash());
    apply_override(&mut changed, "timers", "bsd").unwrap();
    assert_eq!(changed.hash(), with("timers = bsd, congestion = cubic").hash());
}

#[test]
fn overrides_reach_every_connection() {
    let text = "experiment {
        connection A { xmt = a; rcv = b; protocol = tcp; test = full; }
        connection B { xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 100, period = 5 ms); }
        connection C { xmt = a; rcv = b; protocol = tcp; test = stairs (rates = 1 Mb/s : 2 Mb/s, hold = 5); }
    }";
    let set = |option: &str, value: &str| {
        let mut plan = plan(text);
        apply_override(&mut plan, option, value).map(|()| plan_text(&plan)).map_err(|error| error.to_string())
    };
    let count = |found: Result<String, String>, what: &str| found.expect("fits").matches(what).count();
    assert_eq!(count(set("duration", "2s"), "duration = 2 s;"), 3);
    assert_eq!(count(set("bytes", "10 MB"), "bytes = 10 MB;"), 3);
    assert_eq!(count(set("delay", "exponential(1 s)"), "delay = exponential(1 s);"), 3);
    assert_eq!(count(set("xmtbuf", "64kB"), "xmtbuf = 64 kB"), 3);
    assert_eq!(count(set("window", "1 MiB"), "window = 1048576 B"), 2);
    assert_eq!(count(set("messagesize", "uniform(200, 300)"), "messagesize = uniform(200 B, 300 B)"), 3);
    assert_eq!(count(set("period", "2000"), "period = 2 ms"), 1);
    assert_eq!(count(set("hold", "7 s"), "duration = 14 s;"), 1);
    assert_eq!(count(set("flow", "off"), "flow = off"), 1);
    let refused = |option: &str, value: &str| set(option, value).expect_err("refused");
    assert_eq!(refused("duraton", "2s"), "no connection has an option `duraton`; did you mean `duration`?");
    assert_eq!(refused("group", "239.1.1.1"), "no connection of this experiment has the option `group`");
    assert!(refused("duration", "2 kB").contains("expected a duration"), "{}", refused("duration", "2 kB"));
    assert!(refused("duration", "").contains("expected a value"));
    assert!(refused("duration", "2s 3").contains("the end"));
    assert!(refused("messagesize", "70000").contains("65507"));
    assert!(refused("period", "empirical(\"f\")").contains("command line"));
}

#[test]
fn a_text_too_large_is_refused() {
    let text = " ".repeat((4 << 20) + 1);
    let parsed = parse(&Source { name: "large.ns", text: &text, folder: None });
    assert!(parsed.plan.is_none());
    assert_eq!(parsed.diagnostics.len(), 1);
}

#[test]
fn a_plan_survives_json() {
    let whole = plan(FIGURE_9);
    let json = serde_json::to_string(&whole).expect("a plan is plain data");
    let again: Plan = serde_json::from_str(&json).expect("and is read back");
    assert_eq!(again.hash(), whole.hash());
}

/// Parses, renders and prints; a plan must be there exactly when no error is, and must print as itself.
fn survives(text: &str) {
    let source = Source { name: "any.ns", text, folder: None };
    let files = |_: &str| Ok("1\n2\n".to_owned());
    let parsed = parse_with(&source, &files);
    let rendered = render(&source, &parsed.diagnostics, false);
    let wrong = parsed.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    assert_eq!(parsed.plan.is_none(), wrong, "{text}\n{rendered}");
    if let Some(plan) = parsed.plan {
        let printed = plan_text(&plan);
        let again = parse_with(&Source { text: &printed, ..source }, &files).plan;
        assert_eq!(again.map(|again| again.hash()), Some(plan.hash()), "{text}\n{printed}");
    }
}

/// Words, signs and whole phrases, so that soups of them get past the first door.
const SOUP: &[&str] = &[
    "experiment",
    "network",
    "connection",
    "serial",
    "parallel",
    "cluster",
    "repeat",
    "every",
    "test",
    "expect",
    "{",
    "}",
    "(",
    ")",
    ";",
    ",",
    ":",
    "-",
    "=",
    "<",
    "xmt = a;",
    "rcv = b, c;",
    "rcv = b;",
    "protocol = udp;",
    "protocol = tcp (window = 1 kB);",
    "test = full;",
    "test = cbr (period = 5);",
    "duration = 5 s;",
    "uniform(1, 2)",
    "exponential(",
    "\"text\"",
    "\"",
    "3",
    "10 Mb/s",
    "5min",
    "1e999",
    "-0",
    "/*",
    "*/",
    "#",
    "\n",
    "host a, b;",
    "link a - b (rate = 1 Mb/s);",
    "link a - b (trace = \"t\", queue = codel (ecn));",
    "queue = drr (weights = EF (2) : 0 (1))",
    "at 1 s set link a - b (down);",
    "at",
    "set",
    "switch s;",
    "a",
    "b",
    "::1",
    "[::1]",
    "a-b.lost",
    "empirical(\"f\")",
    "type = full;",
    "type = sink;",
    "peer = a:1;",
    "peer = b;",
    "own = b:1;",
    "é",
    "“",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_survived(text in "\\PC*") {
        survives(&text);
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        survives(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_soup_is_survived(words in proptest::collection::vec(proptest::sample::select(SOUP), 0..60)) {
        survives(&words.join(" "));
        survives(&words.concat());
    }

    #[test]
    fn any_damage_is_survived(from in 0usize..5000, length in 0usize..40, word in proptest::sample::select(SOUP)) {
        let text = include_str!("good/everything.ns");
        let inside = |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let (from, to) = (inside(from), inside(from + length));
        survives(&format!("{}{word}{}", &text[..from], &text[to..]));
    }

    #[test]
    fn blanks_do_not_change_the_hash(blanks in proptest::collection::vec("[ \t\n]|#x\n|/\\* y \\*/|//z\n", 1..8)) {
        // Between any two words of the text stands a blank; any other does as well.
        let spaced: Vec<&str> = FIGURE_9.split_whitespace().collect();
        let text: String = spaced.iter().zip(blanks.iter().cycle()).flat_map(|(w, b)| [*w, " ", b, " "]).collect();
        prop_assert_eq!(plan(&text).hash(), plan(FIGURE_9).hash());
    }
}
