//! Agents in namespaces of their own: a mesh of connections, many connections, and the death of every part. The checks of
//! all moments are run by `make soak` only (feature `soak`).

#![allow(clippy::disallowed_methods, reason = "these tests watch programs that run in real time")]

use std::process::Command;

use crate::command::{TestDir, can, repository};

const CHECK: &str = "crates/trunkline/tests/agents/check.py";

/// Namespaces that end with what runs in them.
const UNSHARED: [&str; 7] = ["unshare", "-n", "-m", "-p", "-f", "--kill-child", "--mount-proc"];

/// Runs a check; what it measured is printed.
fn check(name: &str) {
    if !can(&[&UNSHARED[..], &["python3", "--version"]].concat()) {
        return;
    }
    let mut command = Command::new(UNSHARED[0]);
    command.args(&UNSHARED[1..]).arg("python3").arg(repository(CHECK));
    command.arg(env!("CARGO_BIN_EXE_trunkline")).arg(name);
    let ended = TestDir::new().end(command);
    let measured = ended.out.strip_suffix(&format!("ok {name}\n"));
    assert!(ended.status == 0 && measured.is_some(), "{}{}", ended.out, ended.err);
    print!("{}", measured.unwrap_or_default());
}

#[test]
fn twelve_connections_of_four_agents_start_together() {
    check("mesh");
}

#[test]
fn two_agents_carry_many_connections() {
    check(if cfg!(feature = "soak") { "many" } else { "some" });
}

#[test]
#[cfg(not(feature = "soak"))]
fn whatever_dies_the_next_run_works() {
    check("kill_quick");
}

#[test]
#[cfg(feature = "soak")]
fn whatever_dies_at_any_moment_the_next_run_works() {
    check("kill");
}
