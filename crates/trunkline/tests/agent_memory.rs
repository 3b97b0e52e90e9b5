//! The memory limit of a run on an agent.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use crate::command::repository;

/// The default of `--max-memory` in bytes.
const DEFAULT: u64 = 2 << 30;

#[test]
fn the_process_of_a_run_has_the_limit_of_the_owner() {
    let memory = 300 << 20;
    let limits = format!(
        r#"{{"remote": {{"rate_bps": 1, "bytes": 1, "duration": 1, "ends": 1, "memory": {memory}, "groups": []}}}}"#
    );
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.args(["agent", "--stdio", "a", "--limits", &limits]).stdin(Stdio::from(OwnedFd::from(theirs)));
    let mut process = command.spawn().unwrap();
    drop(command);
    // The first sign of life comes after the limit is set.
    let mut line = String::new();
    BufReader::new(ours.try_clone().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "\"Alive\"\n");
    let file = std::fs::read_to_string(format!("/proc/{}/limits", process.id())).unwrap();
    let of_data = file.lines().find(|line| line.starts_with("Max data size")).unwrap();
    assert!(of_data.split_whitespace().filter(|word| *word == memory.to_string()).count() == 2, "{of_data}");
    ours.write_all(b"\"Shutdown\"\n").unwrap();
    assert!(process.wait().unwrap().success());
}

#[test]
fn the_unit_of_systemd_and_the_page_have_the_default_limit() {
    let read = |path: &str| std::fs::read_to_string(repository(path)).unwrap();
    let unit = read("packaging/trunkline-agent.service");
    assert!(unit.contains(&format!("\nMemoryMax={}G\n", DEFAULT >> 30)), "{unit}");
    let page = read("docs/reference/agents.md");
    let row = page.lines().find(|line| line.starts_with("| `--max-memory` |")).unwrap();
    assert!(row.ends_with(&format!("| {} GiB |", DEFAULT >> 30)), "{row}");
    assert!(
        read("docs/reference/cli.md")
            .contains(&format!("Memory of the process of a run [default: {}GiB]", DEFAULT >> 30))
    );
}
