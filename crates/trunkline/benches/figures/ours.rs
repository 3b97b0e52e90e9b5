//! Trunkline, through its binary and its record.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Outcome;
use crate::peers;

/// Runs one connection from `a` to `b` on this machine, and gives its part of the record.
///
/// `what` is the rest of the connection: protocol, test, how long. `before` are words before the command, such as
/// [`peers::PINNED`]; `flags` are more flags. A run that is partial is an error.
pub fn run(what: &str, port: u16, seed: usize, before: &[&str], flags: &[&str]) -> Outcome<Value> {
    let text = format!("experiment \"figures\" {{ connection c {{ xmt = a; rcv = b:{port}; {what} }} }}\n");
    Ok(record(&text, seed, before, flags)?["connections"][0].clone())
}

/// Runs an experiment on this machine, and gives its record. A run that is partial is an error.
pub fn experiment(text: &str, seed: usize, flags: &[&str]) -> Outcome<Value> {
    record(text, seed, &[], flags)
}

fn record(text: &str, seed: usize, before: &[&str], flags: &[&str]) -> Outcome<Value> {
    let mut words = before.to_vec();
    let seed = seed.to_string();
    words.extend([env!("CARGO_BIN_EXE_trunkline"), "run", "-", "--json", "--no-archive", "--seed", &seed]);
    words.extend(["--out", concat!(env!("CARGO_TARGET_TMPDIR"), "/figures")]);
    words.extend(flags);

    let mut child = peers::limited(&words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("trunkline: {e}"))?;
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(text.as_bytes()).map_err(|e| format!("trunkline: {e}"))?;
    drop(input);
    let output = child.wait_with_output().map_err(|e| format!("trunkline: {e}"))?;
    if !output.status.success() {
        return Err(format!("trunkline: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let record: Value = serde_json::from_slice(&output.stdout).map_err(|e| format!("trunkline: {e}"))?;
    if record["partial"] != false {
        return Err(format!("trunkline: a partial run: {}", record["trouble"]));
    }
    Ok(record)
}

/// A number of the record by its path, `gap_us/p50`.
pub fn number(connection: &Value, path: &str) -> Outcome<f64> {
    let value = connection.pointer(&format!("/{path}")).and_then(Value::as_f64);
    value.ok_or_else(|| format!("trunkline: the record has no {path}"))
}

/// Which Trunkline this is.
pub fn version() -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_trunkline")).arg("--version").output();
    output.map_or_else(|e| e.to_string(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
}
