//! Files that earlier versions wrote keep their meaning: experiments, records, captures, counters, C headers.
//!
//! `compatibility/` was written by the last commit before the project's names changed (version 0.1.0): `before.ns`, an
//! archive with a simulated and a live run of it, the capture of the simulated run, an archive of counters, the C headers,
//! and the hashes of every experiment in `experiments/` that runs in the simulator, over 200 ms.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::command::{TestDir, repository};
use serde_json::Value;
use sha2::{Digest, Sha256};

fn fixture(name: &str) -> PathBuf {
    repository("crates/trunkline/tests/compatibility").join(name)
}

/// Copies a fixture into the test's own folder, because reading an archive may create files beside it.
fn copy(dir: &TestDir, name: &str) -> String {
    fs::copy(fixture(name), dir.path(name)).unwrap();
    dir.path(name).to_str().unwrap().to_owned()
}

fn output(dir: &TestDir, args: &[&str]) -> String {
    let ended = dir.execute(args);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{args:?}");
    ended.out
}

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a run measured, without what depends on when and where it ran.
fn measured(mut record: Value) -> Value {
    for field in ["started", "duration_s", "environment"] {
        record.as_object_mut().unwrap().remove(field);
    }
    record
}

/// Removes the fields that were added to records since.
fn without_new_fields(mut record: Value) -> Value {
    fn remove(entry: &mut Value, fields: &[&str]) {
        fields
            .iter()
            .for_each(|field| assert!(entry.as_object_mut().unwrap().remove(*field).is_some(), "{field}"));
    }
    remove(&mut record, &["switches"]);
    for link in record["links"].as_array_mut().unwrap() {
        remove(link, &["dropped_queue", "lost_line", "damaged"]);
    }
    for host in record["hosts"].as_array_mut().unwrap() {
        remove(&mut host["interfaces"], &["sent"]);
    }
    for connection in record["connections"].as_array_mut().unwrap() {
        remove(connection, &["sent_until_last_bps"]);
        for repetition in connection["runs"].as_array_mut().unwrap() {
            remove(repetition, &["sent_until_last_bps"]);
        }
        for variable in connection["asked"]["variables"].as_array_mut().unwrap() {
            assert_eq!(variable["verdict"].take().is_null(), variable["p_value"].is_null(), "{variable}");
        }
    }
    record
}

/// Trace hashes that a correction changed since: experiment, hash of the fixture, hash now.
///
/// `guaranteed-1998`: senders that wait at a host send in turn. The first frames of four guaranteed connections wait at `a`
/// together with `raw`, which was always first before.
const CORRECTED: [(&str, &str, &str); 1] = [("guaranteed-1998", "f5d37dd242c8087b", "36d9b8af22eccaa6")];

#[test]
fn simulations_give_the_same_traces_and_plans() {
    let hashes = fs::read_to_string(fixture("hashes.txt")).unwrap();
    for line in hashes.lines() {
        let [name, trace, plan] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let file = repository("experiments").join(name).with_extension("ns");
        let dir = TestDir::new();
        let args = ["run", file.to_str().unwrap(), "--on", "sim", "--set", "duration=200ms", "--json"];
        let ended = dir.execute(&args);
        let record: Value = serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{name}: {e}"));
        let corrected =
            CORRECTED.iter().find(|(experiment, before, _)| (*experiment, *before) == (name, trace));
        let trace = corrected.map_or(trace, |(.., now)| now);
        assert_eq!(record["environment"]["trace_hash"], trace, "{name}");
        assert_eq!(record["experiment"]["hash"], plan, "{name}");
    }
}

#[test]
fn a_record_is_read_and_its_experiment_gives_the_same_figures() {
    let dir = TestDir::new();
    let archive = copy(&dir, "archive.sqlite");
    let export =
        |id, format| output(&dir, &["records", "export", id, "--format", format, "--archive", &archive]);
    let old: Value = serde_json::from_str(&export("1", "json")).unwrap();
    let experiment = fixture("before.ns");
    let new = output(&dir, &["run", experiment.to_str().unwrap(), "--on", "sim", "--json", "--no-archive"]);
    let new: Value = serde_json::from_str(&new).unwrap();
    assert_eq!(new["environment"]["trace_hash"], old["environment"]["trace_hash"]);
    // Not `assert_eq`, which would print both records whole.
    assert!(without_new_fields(measured(new)) == measured(old), "the figures differ");

    let live: Value = serde_json::from_str(&export("2", "json")).unwrap();
    assert_eq!(live["backend"], "live");
    let csv = output(&dir, &["records", "export", "1", "2", "--format", "csv", "--archive", &archive]);
    assert_eq!(sha256(&csv), "80b65bfb1cbc215a4a0072e3099851ff4b9775baf4a5c0bb3e4d4d1a2bc77c3e");
    for command in [&["report", "1"][..], &["compare", "1", "2"], &["records", "show", "2"]] {
        let shown = output(&dir, &[command, &["--archive", &archive]].concat());
        assert!(shown.contains("urgent"), "{command:?}: {shown}");
    }
}

#[test]
fn a_capture_of_a_simulated_run_is_read() {
    let dir = TestDir::new();
    let capture = fixture("before.pcapng");
    let totals = output(&dir, &["top", capture.to_str().unwrap(), "--json"]);
    let totals = totals.replace(capture.to_str().unwrap(), "");
    assert_eq!(sha256(&totals), "ecdbae4f6e04f20543010ef9704c77de2d79d0b4f2e3e37a5d5c523b8373fed5");
}

#[test]
fn an_archive_of_counters_is_read() {
    let dir = TestDir::new();
    let archive = copy(&dir, "counters.sqlite");
    let csv = output(&dir, &["monitor", "export", &archive, "--csv", "-"]);
    assert_eq!(sha256(&csv), "0f4f0f456325d3b6386f5513acb136d38e12455b5c264cbcce6b92cc388e5145");
}

#[test]
fn c_headers_declare_what_they_declared() {
    for name in ["llcio.h", "bundle.h"] {
        let declarations = |path: PathBuf| {
            let mut compiler = Command::new("cc");
            compiler.args(["-fpreprocessed", "-dD", "-E", "-P", "-x", "c"]).arg(path);
            let out = compiler.output().unwrap_or_else(|e| panic!("cc: {e} (.ci/packages installs it)"));
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            String::from_utf8(out.stdout).unwrap()
        };
        let (old, new) = (declarations(fixture(name)), declarations(repository("bindings/c").join(name)));
        assert!(old.len() > 500, "{old}");
        assert_eq!(new, old, "{name}");
    }
}
