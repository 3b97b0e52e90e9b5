//! `trunkline schedule`: a controller that runs experiments, is stopped and is killed.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::command::{Running, TestDir, children, is_gone, noise, repository, signal, within};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(120);

const SHORT: &str = "experiment \"short\" { network { host a, b; link a - b (rate = 1 Mb/s); }
    connection s { xmt = a; rcv = b; protocol = udp; test = poisson (rate = 100 /s); duration = 1 s; } }";

const LONG: &str = "experiment \"long\" {
    connection t { xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 1000, period = 5 ms); duration = 1 h; } }";

/// A time some seconds from now.
fn soon(seconds: i64) -> String {
    (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds)).to_string()
}

/// A folder with both experiments and a schedule of one entry.
fn folder(experiment: &str, first: &str, more: &str) -> TestDir {
    let dir = TestDir::new();
    dir.write("short.ns", SHORT);
    dir.write("long.ns", LONG);
    dir.write("s.toml", entry("e", experiment, first, more));
    dir
}

fn entry(name: &str, experiment: &str, first: &str, more: &str) -> String {
    format!("[[entry]]\nname = \"{name}\"\nexperiment = \"{experiment}\"\nfirst = \"{first}\"\n{more}\n")
}

fn controller(dir: &TestDir) -> Running {
    Running::start(dir.trunkline(&["schedule", "run", "s.toml"]))
}

/// The decided runs, the first to be decided first.
fn decided(dir: &TestDir) -> Vec<Value> {
    let ended = dir.execute(&["schedule", "list", "--json", "--limit", "100000"]);
    let lines = ended.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut runs: Vec<Value> = lines.filter(|run| run["state"] != "planned").collect();
    runs.reverse();
    runs
}

/// Waits for a run in this state, and returns it.
fn wait_for(dir: &TestDir, state: &str) -> Value {
    let mut found = None;
    within(LIMIT, state, || {
        found = decided(dir).into_iter().find(|run| run["state"] == state);
        found.is_some()
    });
    found.unwrap()
}

fn name(run: &Value) -> String {
    format!("{}#{}", run["entry"].as_str().unwrap(), run["first"])
}

/// The process of the run of a controller, and its agents.
fn processes(controller: &Running) -> Vec<Pid> {
    let mut found = Vec::new();
    within(LIMIT, "the processes of a run", || {
        found = children(controller.id());
        found.extend(found.clone().into_iter().flat_map(children));
        found.len() == 3
    });
    found
}

#[test]
fn runs_start_at_their_times_with_their_steps_and_are_archived() {
    let steps = "steps = { option = \"rate\", values = [\"10 /s\", \"bad\"], every = \"1 s\" }";
    let more = |steps: &str| {
        format!("every = \"2 s\"\ncount = 20\non = \"sim\"\nset = {{ duration = \"500 ms\" }}\n{steps}")
    };
    let dir = folder("short.ns", &soon(1), &more(steps));
    dir.execute(&["schedule", "check", "s.toml"]).assert_line(2, "entry `e`: `rate=bad`");
    dir.write("s.toml", entry("e", "short.ns", &soon(1), &more(&steps.replace("bad", "20 /s"))));
    let running = controller(&dir);
    within(LIMIT, "two runs", || decided(&dir).iter().filter(|run| run["state"] == "done").count() >= 2);
    signal(running.id(), Signal::SIGTERM);
    let ended = running.end();
    assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{}", ended.out);
    for run in decided(&dir).iter().filter(|run| run["state"] == "done") {
        let record = dir.archived(run["records"][0].as_u64().unwrap() as u32);
        let number = run["first"].as_u64().unwrap();
        let rate = if number % 2 == 1 { "10" } else { "20" };
        assert_eq!(record["environment"]["set"], format!("duration=500 ms rate={rate} /s"));
        let note = record["environment"]["note"].as_str().unwrap();
        assert!(note.starts_with(&format!("e#{number}, planned ")), "{note}");
        let answer = dir.execute(&["schedule", "why", &name(run)]).out;
        assert!(
            answer.starts_with(&format!("e#{number} is done since ")) && answer.contains("; record "),
            "{answer}"
        );
        assert!(answer.contains("no controller is running"), "{answer}");
    }
    let last = dir.execute(&["schedule", "why", "e#40"]).out;
    assert!(last.starts_with("e#40 waits for its time, "), "{last}");
    dir.execute(&["schedule", "why", "e#41"]).assert_line(2, "the schedule has no run e#41");
}

#[test]
fn a_killed_controller_ends_its_run_and_the_next_one_marks_it() {
    let other = entry("other", "long.ns", &soon(2), "every = \"1 s\"");
    let dir = folder("long.ns", &soon(1), "every = \"1 s\"\nclass = \"exclusive\"");
    dir.write("s.toml", std::fs::read_to_string(dir.path("s.toml")).unwrap() + &other);
    let first = controller(&dir);
    let run = name(&wait_for(&dir, "running"));
    let pids = processes(&first);
    // A second controller and the reasons of waiting runs.
    dir.execute(&["schedule", "run", "s.toml"]).assert_line(1, "another controller uses the state");
    let waiting = if run.starts_with('e') { "other#1" } else { "e#1" };
    let mut answer = String::new();
    within(LIMIT, "a waiting run", || {
        let next = dir.execute(&["schedule", "list", "--json"]).out;
        let next = next.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut next = next.filter(|next| {
            next["state"] == "planned" && waiting.starts_with(next["entry"].as_str().unwrap())
        });
        answer = dir.execute(&["schedule", "why", &name(&next.next().unwrap())]).out;
        answer.contains(" waits for ") && !answer.contains("its time")
    });
    assert!(
        answer.contains(&format!(" waits for {run} (one of them runs alone; expected to end at ")),
        "{answer}"
    );
    signal(first.id(), Signal::SIGKILL);
    first.end();
    within(LIMIT, "the run to be killed", || pids.iter().all(|pid| is_gone(*pid)));
    let before = decided(&dir);
    let answer = dir.execute(&["schedule", "why", &run]).out;
    assert!(answer.contains(" and its controller ended\nno controller is running"), "{answer}");

    let second = controller(&dir);
    let interrupted = wait_for(&dir, "interrupted");
    assert_eq!(
        (name(&interrupted), &interrupted["reason"]),
        (run, &"the controller ended before it stored the end of the run".into())
    );
    assert_eq!(interrupted["records"].as_array().unwrap().len(), 1, "the record of its start");
    let missed = wait_for(&dir, "missed");
    assert_eq!(missed["reason"], "the controller was not running");
    within(LIMIT, "a later run", || {
        decided(&dir).len() > before.len() && decided(&dir).iter().any(|run| run["state"] == "running")
    });
    processes(&second);
    signal(second.id(), Signal::SIGINT);
    assert_eq!(second.end().status, 0);
    let last = decided(&dir).into_iter().rfind(|run| run["reason"] == "the controller was stopped").unwrap();
    assert_eq!(last["state"], "interrupted");
    let record = dir.archived(last["records"][0].as_u64().unwrap() as u32);
    assert_eq!(record["partial"], true);
    assert!(decided(&dir).iter().all(|run| run["state"] != "running"));
}

/// Kills a controller again and again. Every run is decided once, and none ran twice.
#[test]
fn no_run_is_lost_or_repeated_by_kills() {
    let dir = folder("short.ns", &soon(0), "every = \"1 s\"\non = \"sim\"\nset = { duration = \"100 ms\" }");
    for pause in noise(8) {
        let running = controller(&dir);
        wait_for(&dir, "missed");
        #[expect(clippy::disallowed_methods, reason = "a random moment")]
        std::thread::sleep(Duration::from_millis(u64::from(pause) * 8));
        signal(running.id(), Signal::SIGKILL);
        running.end();
    }
    let before = decided(&dir).len();
    let running = controller(&dir);
    // A run of this controller, which stops on signals by then.
    within(LIMIT, "a run", || decided(&dir).iter().skip(before).any(|run| run["state"] == "done"));
    signal(running.id(), Signal::SIGTERM);
    assert_eq!(running.end().status, 0);
    let mut next = 1;
    for run in decided(&dir) {
        assert_eq!(run["first"], next, "{run}");
        assert!(["done", "missed", "interrupted"].contains(&run["state"].as_str().unwrap()), "{run}");
        next = run["last"].as_u64().unwrap() + 1;
    }
    // Each run that was started has a note with its number.
    let list = dir.execute(&["records", "list", "--json", "--limit", "10000"]).out;
    let mut notes = BTreeSet::new();
    for line in list.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let note = dir.archived(record["id"].as_u64().unwrap() as u32)["environment"]["note"].to_string();
        assert!(notes.insert(note.clone()), "{note} ran twice");
    }
    assert!(!notes.is_empty());
}

#[test]
fn failures_are_stored_with_their_line() {
    let dir = folder("short.ns", &soon(1), "every = \"1 s\"\non = \"sim\"");
    let failing = SHORT.replace("} }", "} expect s.lost > 5; }").replace("network {", "network {\n");
    dir.write("short.ns", failing);
    let running = controller(&dir);
    let failed = wait_for(&dir, "failed");
    assert_eq!(failed["reason"], "an expectation failed");
    // Experiments are read again at each run.
    for (text, reason) in [
        (Some("experiment {"), "the experiment has changed: ./short.ns:1:12: this `{` is never closed"),
        (None, "cannot read ./short.ns: No such file or directory (os error 2)"),
    ] {
        match text {
            Some(text) => dir.write("short.ns", text),
            None => std::fs::remove_file(dir.path("short.ns")).unwrap(),
        }
        within(LIMIT, reason, || decided(&dir).iter().any(|run| run["reason"] == reason));
    }
    drop(running);
    dir.write(
        "s.toml",
        entry("l", "long.ns", &soon(1), "every = \"1 min\"\nlimit = \"2 s\"\nlate = \"50 s\""),
    );
    let running = controller(&dir);
    let mut failed = None;
    within(LIMIT, "the time limit", || {
        failed = decided(&dir).into_iter().find(|run| run["entry"] == "l" && run["state"] == "failed");
        failed.is_some()
    });
    assert_eq!(failed.unwrap()["reason"], "stopped after its time limit of 2 s");
    drop(running);
}

#[test]
fn bad_schedules_are_one_line() {
    let dir = folder("none.ns", &soon(60), "");
    let check = || dir.execute(&["schedule", "check", "s.toml"]);
    check().assert_line(2, "entry `e`: cannot read ./none.ns: No such file");
    for (text, words) in [
        (entry("e", "short.ns", "now", ""), "s.toml: entry `e`: `now` is no time"),
        (entry("e", "short.ns", &soon(1), "on = \"moon\""), "entry `e`: there is no backend `moon`"),
        (
            entry("e", "short.ns", &soon(1), "on = \"sim\"\nat = { a = \"127.0.0.1\" }"),
            "--at needs a live run",
        ),
        (entry("e", "short.ns", &soon(1), "set = { x = \"1\" }"), "no connection has an option `x`"),
        (entry("e", "short.ns", &soon(1), "set = { \"\" = \"1\" }"), "invalid value '=1'"),
        ("x".into(), "s.toml: line 1: "),
    ] {
        dir.write("s.toml", text);
        check().assert_line(2, words);
        dir.execute(&["schedule", "run", "s.toml"]).assert_line(2, words);
    }
    dir.write("s.toml", [0xff]);
    check().assert_line(2, "s.toml: cannot read the file: ");
    dir.write("s.toml", entry("e", "short.ns", "2020-01-01T00:00:00Z", "every = \"1 d\"\ncount = 3"));
    let over = check();
    let want = "trunkline: entry `e`: its last run is over; set `first`, now 2020-01-01T00:00:00Z, to a later time\n";
    assert_eq!((over.status, over.err.as_str()), (0, want));
    dir.execute(&["schedule", "list"]).assert_line(2, "there is no state of a schedule at ");
    dir.execute(&["schedule", "list", "--state", "short.ns"])
        .assert_line(2, "is not the state of a schedule");
    dir.execute(&["schedule", "list", "--state", "."]).assert_line(1, "the state ");
}

#[test]
fn the_runs_of_a_week_are_previewed_with_their_conflicts() {
    let first = "2026-12-04T14:00:00Z";
    let dir = folder(
        "short.ns",
        first,
        "every = \"1 s\"\ncount = 1000000\nset = { duration = \"60 s\" }\nlate = \"40 s\"",
    );
    let second = entry("alone", "long.ns", "2026-12-04T14:00:30Z", "class = \"exclusive\"\nevery = \"1 d\"");
    dir.write("s.toml", std::fs::read_to_string(dir.path("s.toml")).unwrap() + &second);
    let check = |more: &[&str]| {
        let ended = dir.execute(&[&["schedule", "check", "s.toml", "--from", first], more].concat());
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        ended.out
    };
    let out = check(&[]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 102, "{out}");
    assert_eq!(lines[1], "2026-12-04T14:00:00Z  e#1                       normal      duration=60 s");
    assert!(
        lines[2].contains("e#2 ") && lines[2].contains("missed: waited for e#1 (an earlier run of the entry"),
        "{out}"
    );
    assert!(
        out.contains("2026-12-04T14:00:30Z  alone#1                   exclusive   starts 90 s late\n"),
        "{out}"
    );
    assert_eq!(lines[101], "… more runs follow until 2026-12-11T14:00:00Z; `--limit` shows more");
    let none =
        dir.execute(&["schedule", "check", "s.toml", "--from", "2026-11-01T00:00:00Z", "--days", "3"]).out;
    assert_eq!(none, "no runs until 2026-11-04T00:00:00Z\n");
}

#[test]
fn the_schedule_of_the_documents_is_the_file() {
    let file = std::fs::read_to_string(repository("experiments/sc95.toml")).unwrap();
    let page = std::fs::read_to_string(repository("docs/how-to/schedules.md")).unwrap();
    assert!(
        page.contains(&format!("```toml\n{file}```\n")),
        "docs/how-to/schedules.md has another experiments/sc95.toml"
    );
    let path = repository("experiments/sc95.toml");
    let check =
        ["schedule", "check", path.to_str().unwrap(), "--from", "2026-12-04T21:44:00Z", "--limit", "14"];
    let ended = TestDir::new().execute(&check);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    assert!(page.contains(&ended.out), "docs/how-to/schedules.md has another output than:\n{}", ended.out);
}
