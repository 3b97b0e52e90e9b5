//! A process that is killed while it writes the archive loses no earlier run.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use trunkline_record::archive::Filter;
use trunkline_record::schema::{Connection, Experiment};
use trunkline_record::{Archive, Record, RunId};

/// Environment variable with the path of the archive, for the child process.
const ARCHIVE_VARIABLE: &str = "TRUNKLINE_TEST_ARCHIVE";

fn planned_record() -> Record {
    let experiment = Experiment { name: "crash".into(), ..Experiment::default() };
    Record { backend: "live".into(), experiment, ..Record::default() }
}

/// A record large enough to span many pages.
fn measured_record() -> Record {
    let connection = Connection { name: "x".repeat(1 << 20), ..Connection::default() };
    Record { connections: vec![connection], ..planned_record() }
}

/// The child process of the test below; it writes until it is killed and prints each finished run.
#[test]
fn writer() {
    let Some(path) = std::env::var_os(ARCHIVE_VARIABLE) else { return };
    let archive = Archive::open(Path::new(&path)).unwrap();
    loop {
        let id = archive.begin(&planned_record()).unwrap();
        archive.finish(id, &measured_record()).unwrap();
        println!("\nfinished {id}");
    }
}

/// Starts a writer, kills it after `runs` finished runs, and returns the last identifier it printed.
fn kill_a_writer(path: &Path, runs: usize) -> RunId {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writer", "--nocapture"])
        .env(ARCHIVE_VARIABLE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let finished = lines.filter_map(|l| l.strip_prefix("finished ").and_then(|id| id.parse().ok()));
    let last = finished.take(runs).last().expect("the writer writes");
    child.kill().unwrap(); // SIGKILL, most likely in the midst of the next transaction
    child.wait().unwrap();
    RunId(last)
}

#[test]
fn a_killed_writer_loses_no_finished_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("archive.db");
    for runs in [1, 3, 5] {
        let last = kill_a_writer(&path, runs);
        let archive = Archive::open(&path).unwrap();
        let entries = archive.list(&Filter::default()).unwrap();
        let finished_runs: Vec<_> = entries.iter().filter(|e| e.id <= last).collect();
        assert_eq!(finished_runs.len() as i64, last.0, "every run is there");
        for entry in entries {
            // The interrupted run has a partial record; all others are complete.
            let want = if entry.partial { Vec::new() } else { measured_record().connections };
            assert_eq!(archive.get(entry.id).unwrap().connections, want, "run {}", entry.id);
        }
        // The archive still works.
        let id = archive.begin(&planned_record()).unwrap();
        archive.finish(id, &measured_record()).unwrap();
    }
}
