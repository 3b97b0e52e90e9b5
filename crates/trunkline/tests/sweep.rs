//! `trunkline sweep` from outside: what it finds, that nothing but plan and seed matters, and what it refuses.

use std::fs;

use crate::command::{Ended, Running, TestDir, number, signal, within};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;
use trunkline_record::schema::Interval;

const WINDOW: &str = "experiment \"window\" {
    network { host a, b; link a - b (rate = 1 Gb/s, delay = 5 ms); }
    connection A {
        xmt = a; rcv = b; protocol = tcp (window = 64 kB, delayed_ack = off);
        test = full; duration = 4 s;
    }
}";

const LOSS: &str = "experiment \"loss\" {
    network { host a, b; switch s; link a - s (rate = 10 Mb/s, delay = 1 ms); link s - b (rate = 10 Mb/s); }
    connection U {
        xmt = a; rcv = b; protocol = udp;
        test = poisson (messagesize = 500, rate = 1000 /s); duration = 200 ms;
    }
}";

fn sweep(dir: &TestDir, experiment: &str, more: &[&str]) -> Ended {
    dir.write("experiment.ns", experiment);
    dir.execute(&[&["sweep", "experiment.ns", "--out", "out"], more].concat())
}

fn json(dir: &TestDir) -> Value {
    serde_json::from_slice(&fs::read(dir.path("out/sweep.json")).expect("a sweep")).expect("JSON")
}

/// The points of a sweep that must go well.
fn points(dir: &TestDir, experiment: &str, more: &[&str]) -> Vec<Value> {
    let ended = sweep(dir, experiment, more);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{}", ended.out);
    json(dir)["points"].as_array().expect("points").clone()
}

#[test]
fn a_window_over_a_path_of_ten_milliseconds_is_its_rate() {
    // Whole segments of 1460 bytes, each acknowledged at once: a window leaves every round trip of 10 ms.
    let dir = TestDir::new();
    let points = points(&dir, WINDOW, &["--vary", "A.window=7300,14600,29200", "--seeds", "1"]);
    assert_eq!(points.len(), 3);
    for point in &points {
        let window: f64 = point["values"][0].as_str().expect("a value").parse().expect("bytes");
        let found = number(&point["figures"][0]["mean"]);
        let want = window * 8.0 / 10e-3;
        assert!((found / want - 1.0).abs() < 0.02, "{window} B: {found} b/s, not {want}");
    }
}

#[test]
fn threads_change_nothing() {
    let files = ["sweep.json", "sweep.csv", "sweep.html"];
    let of = |threads: &str| {
        let dir = TestDir::new();
        let varied = [
            "--vary",
            "a-s.loss=1e-3..1e-1",
            "--log",
            "--points",
            "3",
            "--vary",
            "s.buffer=3packets,9packets",
        ];
        points(
            &dir,
            LOSS,
            &[&varied[..], &["--seeds", "2", "--show", "lost,a-s.utilization", "--threads", threads]]
                .concat(),
        );
        files.map(|file| fs::read(dir.path("out").join(file)).expect("a file"))
    };
    assert_eq!(of("1"), of("8"));
}

#[test]
fn intervals_are_students_and_seeds_are_those_of_run() {
    let dir = TestDir::new();
    let points =
        points(&dir, LOSS, &["--vary", "a-s.loss=0,0.1", "--seeds", "5", "--seed", "7", "--show", "U.lost"]);
    for point in &points {
        let spread = &point["figures"][0];
        let samples: Vec<f64> = spread["samples"].as_array().expect("samples").iter().map(number).collect();
        assert_eq!(samples.len(), 5);
        let mean = samples.iter().sum::<f64>() / 5.0;
        let sd = (samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 4.0).sqrt();
        // Student's t of four degrees of freedom, 97.5 %.
        let half = 2.776_445_105 * sd / 5_f64.sqrt();
        for (name, want) in [("mean", mean), ("sd", sd), ("low", mean - half), ("high", mean + half)] {
            assert!((number(&spread[name]) - want).abs() < 1e-6, "{name} of {spread}");
        }
    }
    assert_eq!(number(&points[0]["figures"][0]["max"]), 0.0, "nothing is lost without loss");
    assert!(number(&points[1]["figures"][0]["sd"]) > 0.0, "seeds differ");
    // The third seed of the second point, run by itself.
    let more = [
        "run",
        "experiment.ns",
        "--on",
        "sim",
        "--set",
        "a-s.loss=0.1",
        "--seed",
        "9",
        "--json",
        "--no-archive",
    ];
    let alone = dir.execute(&more);
    assert_eq!(alone.status, 0, "{}", alone.err);
    let record: Value = serde_json::from_str(&alone.out).expect("a record");
    assert_eq!(number(&record["connections"][0]["lost"]), number(&points[1]["figures"][0]["samples"][2]));
}

#[test]
fn unmeasured_time_is_a_gap() {
    let dir = TestDir::new();
    let points =
        points(&dir, LOSS, &["--vary", "a-s.loss=0,1", "--seeds", "2", "--show", "delay_us.p50,rtt_us.p50"]);
    let mean = |point: usize, figure: usize| &points[point]["figures"][figure]["mean"];
    assert!(mean(0, 0).is_number(), "{points:?}");
    // Nothing arrives where all is lost, and a stream of datagrams has no round trip.
    assert!(mean(1, 0).is_null() && mean(0, 1).is_null(), "{points:?}");
}

#[test]
fn standard_output_is_the_requested_format() {
    let dir = TestDir::new();
    let short = ["--vary", "s.latency=0,1us", "--seeds", "1"];
    let text = sweep(&dir, LOSS, &short);
    assert!(
        text.out.contains("U.received_bps") && text.out.ends_with("Curves: out/sweep.html\n"),
        "{}",
        text.out
    );
    for (flag, file) in [("--json", "out/sweep.json"), ("--csv", "out/sweep.csv")] {
        let printed = sweep(&dir, LOSS, &[&short[..], &[flag]].concat());
        assert_eq!((printed.status, printed.err.as_str()), (0, ""));
        assert_eq!(printed.out, fs::read_to_string(dir.path(file)).expect("a file"));
    }
}

#[test]
fn what_cannot_be_swept_is_an_error_of_one_line() {
    for (more, words) in [
        (vec!["--vary", "U.messagesiz=100..200"], "did you mean `messagesize`?"),
        (vec!["--vary", "a-x.loss=0..1"], "nothing in this experiment is called `a-x`; did you mean `a-s`?"),
        (vec!["--vary", "a-s.loss=0..2"], "is no share"),
        (vec!["--vary", "a-s.delay=5ms..1ms"], "the first end must be below the second"),
        (vec!["--vary", "a-s.rate=0..1Mb/s"], "this is zero"),
        (
            vec!["--vary", "s.buffer=1000B..4kB"],
            "s.buffer=1000 B: link `a-s`: the buffer of `s` (1000 B) never holds",
        ),
        (vec!["--vary", "a-s.loss=0,0.1", "--set", "s.buffer=9B"], "never holds a packet"),
        (vec!["--vary", "a-s.loss=0,0.1", "--set", "duraton=1s"], "--set duraton=1s: no connection has"),
        (vec!["--vary", "a-s.loss=0,0.1", "--show", "U.rtt_us"], "`rtt_us` is several numbers"),
        (vec!["--vary", "a-s.loss=0,0.1", "--show", "nobody.lost"], "about nothing in this experiment"),
        (vec!["--vary", "a-s.loss=0,0.1", "--vary", "a-s.loss=0,1"], "names `a-s.loss` twice"),
        (vec!["--vary", "a-s.loss=0,1", "--vary", "b.cpus=1,2", "--vary", "a.cpus=1,2"], "at most 2"),
        (vec!["--vary", "a-s.loss=0..1", "--points", "10000", "--seeds", "1000"], "at most 1000000 runs"),
        (vec!["--vary", "a-s.loss=0..1", "--seed", "18446744073709551615"], "exceeds the largest seed"),
        (vec!["--vary", "a-s.delay=1ms..2ms", "--step", "1kB"], "`1kB` is no step"),
        (vec!["--vary", "a-s.loss=0,0.1", "--seeds", "3", "--until", "0.1"], "--until needs --seeds above 3"),
        (vec!["--vary", "a-s.loss=0,0.1", "--shard", "1/2", "--json"], "a shard has no results to print"),
    ] {
        let dir = TestDir::new();
        let ended = sweep(&dir, LOSS, &more);
        ended.assert_line(2, words);
        assert!(!dir.path("out").exists(), "{more:?} left something behind");
    }
    let dir = TestDir::new();
    let bare = "connection { xmt = a; rcv = b; protocol = udp; test = full; }";
    sweep(&dir, bare, &["--vary", "duration=1..2"]).assert_line(2, "needs a network");
}

#[test]
fn a_stopped_sweep_keeps_the_points_that_are_complete() {
    let dir = TestDir::new();
    dir.write("experiment.ns", LOSS);
    let more = ["--vary", "a-s.loss=0..1", "--points", "10000", "--seeds", "2", "--threads", "1"];
    let running =
        Running::start(dir.trunkline(&[&["sweep", "experiment.ns", "--out", "out"], &more[..]].concat()));
    // The folder is there before the first run. A second and a half of work is a few points, by far not all.
    within(std::time::Duration::from_secs(120), "a folder", || dir.path("out").exists());
    let before = worked(running.id());
    within(std::time::Duration::from_secs(120), "some points", || worked(running.id()) > before + 150);
    signal(running.id(), Signal::SIGINT);
    running.end().assert_line(1, "stopped on request");
    let sweep = json(&dir);
    let points = sweep["points"].as_array().expect("points");
    assert!(!points.is_empty() && points.len() < 10_000, "{} points", points.len());
    assert_eq!(sweep["partial"], true);
    assert!(points.iter().all(|p| p["figures"][0]["n"] == 2), "an incomplete point was kept");
    assert!(
        fs::read_to_string(dir.path("out/sweep.html")).expect("a page").contains("This sweep is partial")
    );
}

/// Hundredths of a second of processor time that a process took for itself.
fn worked(pid: Pid) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    behind.split_whitespace().nth(11).and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}

/// A sweep of 12 points with 3 seeds each.
const VARIED: [&str; 6] = ["--vary", "a-s.loss=0..0.2", "--points", "12", "--seeds", "3"];
const FILES: [&str; 3] = ["sweep.json", "sweep.csv", "sweep.html"];

fn bytes(dir: &TestDir, out: &str) -> [Vec<u8>; 3] {
    FILES.map(|file| fs::read(dir.path(out).join(file)).expect("a file"))
}

/// The complete lines of runs in all files below `out/runs`.
fn stored(dir: &TestDir) -> Vec<Value> {
    let Ok(files) = fs::read_dir(dir.path("out/runs")) else { return Vec::new() };
    let texts = files.map(|file| fs::read_to_string(file.expect("an entry").path()).expect("text"));
    let lines = |text: String| {
        let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
        complete.lines().skip(1).map(|line| serde_json::from_str(line).expect("JSON")).collect::<Vec<Value>>()
    };
    texts.flat_map(lines).collect()
}

/// Fails unless the files have each run once.
fn assert_each_once(dir: &TestDir, runs: usize) {
    let lines = stored(dir);
    let ids: std::collections::BTreeSet<_> = lines.iter().map(|line| line["id"].to_string()).collect();
    assert_eq!((lines.len(), ids.len()), (runs, runs));
}

#[test]
fn shards_in_any_order_and_number_give_the_bytes_of_one_process() {
    let dir = TestDir::new();
    points(&dir, LOSS, &VARIED);
    let all = bytes(&dir, "out");
    for count in [2, 5, 64] {
        fs::remove_dir_all(dir.path("out")).expect("removed");
        for index in (1..=count).rev() {
            let shard = format!("{index}/{count}");
            let ended = sweep(&dir, LOSS, &[&VARIED[..], &["--shard", &shard]].concat());
            let own = (36 + count - index) / count;
            let line = format!("Shard {index} of {count}: {own} of {own} runs are in out");
            assert!(ended.status == 0 && ended.out.starts_with(&line), "{} {}", ended.out, ended.err);
        }
        assert!(!dir.path("out/sweep.json").exists(), "a shard has no curves");
        let ended = dir.execute(&["sweep", "merge", "out", "--out", "merged"]);
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        assert!(bytes(&dir, "merged") == all, "{count} shards");
        assert_each_once(&dir, 36);
    }
}

#[test]
fn missing_shards_are_counted_and_their_points_missing() {
    let dir = TestDir::new();
    sweep(&dir, LOSS, &[&VARIED[..], &["--shard", "2/3"]].concat());
    let ended = dir.execute(&["sweep", "merge", "out", "--out", "merged"]);
    ended.assert_line(1, "24 of 36 runs are missing");
    // A shard has a seed of each point here, so no point is complete.
    let merged: Value =
        serde_json::from_slice(&fs::read(dir.path("merged/sweep.json")).expect("a file")).expect("JSON");
    assert_eq!((&merged["partial"], merged["points"].as_array().map(Vec::len)), (&true.into(), Some(0)));
}

#[test]
fn parts_of_different_sweeps_are_not_merged() {
    let dir = TestDir::new();
    sweep(&dir, LOSS, &[&VARIED[..], &["--shard", "1/2"]].concat());
    sweep(&dir, LOSS, &[&VARIED[..], &["--seed", "7", "--shard", "2/2"]].concat());
    dir.execute(&["sweep", "merge", "out"]).assert_line(2, "are of different sweeps");
    dir.execute(&["sweep", "merge", "nowhere"]).assert_line(2, "cannot read nowhere");
    let refused = "has no results of this version's sweeps";
    dir.write("forged", "{\"program\":\"trunkline\"}\n");
    dir.execute(&["sweep", "merge", "forged"]).assert_line(2, refused);
    let file =
        fs::read_dir(dir.path("out/runs")).expect("a folder").next().expect("a file").expect("an entry");
    let text = fs::read_to_string(file.path()).expect("text");
    for (from, to) in [
        ("\"program\":\"trunkline ", "\"program\":\"trunkline 0."),
        ("\"at\":[11]", "\"at\":[12]"),
        ("\"at\":[11]", "\"at\":[]"),
        ("\"vary\":[{", "\"vary\":[],\"x\":[{"),
        ("\"count\":3", "\"count\":18446744073709551615"),
        ("\"numbers\":[", "\"numbers\":[1.0,"),
    ] {
        let (other, version) = (text.replacen(from, to, 1), from.contains("program"));
        assert_ne!(text, other, "{from}");
        dir.write("forged", &other);
        let own = file.path();
        let words = ["sweep", "merge", "forged", own.to_str().expect("text")];
        let expected = if version { "are of different sweeps" } else { refused };
        dir.execute(&words).assert_line(2, expected);
    }
}

/// Two ways to write a value give two points with one plan.
#[test]
fn points_with_one_plan_are_all_stored() {
    let dir = TestDir::new();
    let varied = ["--vary", "a-s.loss=0.1,0.10", "--seeds", "2"];
    points(&dir, LOSS, &varied);
    let all = bytes(&dir, "out");
    let ended = dir.execute(&["sweep", "merge", "out", "--out", "merged"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    assert!(bytes(&dir, "merged") == all);
}

#[test]
fn a_second_call_runs_only_what_is_missing() {
    let dir = TestDir::new();
    points(&dir, LOSS, &VARIED);
    let (all, file) = (bytes(&dir, "out"), fs::read_dir(dir.path("out/runs")).expect("a folder"));
    let file = file.map(|entry| entry.expect("an entry").path()).next().expect("a file");
    let before = fs::read_to_string(&file).expect("text");
    // Without five runs in the middle, with the last line cut, as after a power failure.
    let stored = before.lines().enumerate().filter(|(line, _)| !(10..15).contains(line));
    let mut text: String = stored.map(|(_, line)| line.to_owned() + "\n").collect();
    text.truncate(text.len() - 9);
    fs::write(&file, text).expect("written");
    points(&dir, LOSS, &VARIED);
    assert!(bytes(&dir, "out") == all);
    let mut after: Vec<_> = fs::read_to_string(&file).expect("text").lines().map(String::from).collect();
    let mut before: Vec<_> = before.lines().map(String::from).collect();
    assert!(after[after.len() - 6..].iter().all(|line| before.contains(line)), "six runs at the end");
    after.sort();
    before.sort();
    assert!(after == before, "each run once, with the same figures");
    // More points run only the new ones: 0 and 0.2 are known.
    points(&dir, LOSS, &["--vary", "a-s.loss=0,0.1,0.2", "--seeds", "3"]);
    assert_each_once(&dir, 36 + 3);
    points(&dir, LOSS, &[&VARIED[..], &["--fresh"]].concat());
    assert!(bytes(&dir, "out") == all);
    assert_each_once(&dir, 36 + 3);
}

#[test]
fn a_sweep_survives_being_killed_at_any_moment() {
    let kills = if cfg!(feature = "soak") { 100 } else { 10 };
    let dir = TestDir::new();
    dir.write("experiment.ns", LOSS);
    let varied = ["sweep", "experiment.ns", "--vary", "a-s.loss=0..0.9", "--points", "40", "--seeds", "5"];
    let of = |out| [&varied[..], &["--out", out]].concat();
    assert_eq!(dir.execute(&of("all")).status, 0);
    let mut known = 0;
    for kill in 0..kills {
        let running = Running::start(dir.trunkline(&of("out")));
        // Different moments: before the first run, and after some.
        let enough = known + kill % 7;
        let is_enough = || stored(&dir).len() >= enough || dir.path("out/sweep.json").exists();
        within(std::time::Duration::from_secs(120), "some runs", is_enough);
        signal(running.id(), Signal::SIGKILL);
        running.end();
        let lines = stored(&dir).len();
        assert!(lines >= known, "runs were lost");
        known = lines;
    }
    assert_eq!(dir.execute(&of("out")).status, 0);
    assert_each_once(&dir, 200);
    assert!(bytes(&dir, "out") == bytes(&dir, "all"));
}

#[test]
fn two_processes_do_not_share_a_file() {
    let dir = TestDir::new();
    points(&dir, LOSS, &VARIED);
    let file =
        fs::read_dir(dir.path("out/runs")).expect("a folder").next().expect("a file").expect("an entry");
    let open = fs::File::open(file.path()).expect("open");
    open.lock().expect("locked");
    sweep(&dir, LOSS, &VARIED).assert_line(1, "another process appends to out/runs/");
}

#[test]
fn seeds_end_when_the_interval_is_narrow_whatever_ends_first() {
    let dir = TestDir::new();
    let varied = ["--vary", "a-s.loss=0,0.3", "--seeds", "60", "--until", "0.05"];
    let found = points(&dir, LOSS, &[&varied[..], &["--threads", "1"]].concat());
    let one = bytes(&dir, "out");
    for point in &found {
        let spread = &point["figures"][0];
        let (n, mean) = (number(&spread["n"]), number(&spread["mean"]));
        let half = number(&spread["high"]) - mean;
        assert!((3.0..60.0).contains(&n) && half <= 0.05 * mean, "{spread}");
        // One seed less was not enough.
        let samples: Vec<f64> = spread["samples"].as_array().expect("samples").iter().map(number).collect();
        let less = Interval::from_samples(&samples[..samples.len() - 1]).expect("an interval");
        assert!(n == 3.0 || less.high - less.mean > 0.05 * less.mean, "{spread}");
    }
    assert!(number(&found[1]["figures"][0]["n"]) > 3.0, "with loss, three seeds are not enough: {found:?}");
    fs::remove_dir_all(dir.path("out")).expect("removed");
    points(&dir, LOSS, &[&varied[..], &["--threads", "7"]].concat());
    assert!(bytes(&dir, "out") == one, "threads decide");
    fs::remove_dir_all(dir.path("out")).expect("removed");
    for shard in ["2/2", "1/2"] {
        assert_eq!(sweep(&dir, LOSS, &[&varied[..], &["--shard", shard]].concat()).status, 0);
    }
    assert_eq!(dir.execute(&["sweep", "merge", "out", "--out", "out"]).status, 0);
    assert!(bytes(&dir, "out") == one, "shards decide");
}
