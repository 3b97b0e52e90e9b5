//! C programs of `bindings/c`: built against the library, and run for a bounded time.

#![allow(dead_code, reason = "not every test uses all of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Seconds that a program may run: for none that works to be stopped on a busy machine.
const LIMIT: &str = "240";

/// `bindings/c`.
pub fn bindings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Where the library was built: beside the tests, or above them.
pub fn libraries() -> PathBuf {
    let exe = std::env::current_exe().expect("a test has a path");
    let mut above = exe.ancestors().skip(1);
    let found =
        above.find(|folder| folder.join("libllcio.so").exists() && folder.join("libllcio.a").exists());
    found.expect("the library is built with its tests").to_owned()
}

/// How a program is linked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Linked {
    Shared,
    Static,
}

/// Builds a program of `bindings/c` as `name`, with `flags` for the compiler, and says where it is.
pub fn build(compiler: &str, source: &str, name: &str, flags: &[&str], linked: Linked) -> PathBuf {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let libraries = libraries();
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-g", "-I"]).arg(bindings()).args(flags);
    command.arg(bindings().join(source)).arg("-o").arg(&out);
    match linked {
        Linked::Shared => {
            command.arg("-L").arg(&libraries).arg("-lllcio");
            command.arg(format!("-Wl,-rpath,{}", libraries.display()));
        }
        Linked::Static => {
            command.arg("-x").arg("none").arg(libraries.join("libllcio.a"));
            command.args(["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"]);
        }
    }
    command.arg("-lpthread");
    let made = command.output().unwrap_or_else(|e| panic!("{compiler}: {e} (.ci/packages installs it)"));
    assert!(made.status.success(), "{source}: {}", String::from_utf8_lossy(&made.stderr));
    out
}

/// A C11 program.
pub fn build_c(source: &str, name: &str) -> PathBuf {
    build("cc", source, name, &["-std=c11"], Linked::Shared)
}

/// How a program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Under {
    Nothing,
    /// Which ends with 9 if it finds an error or a leak.
    Valgrind,
}

/// A program as a station of a network, stopped if it does not end.
pub fn station(program: &Path, under: Under, network: &str, number: u8) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", LIMIT]);
    if under == Under::Valgrind {
        command.args(["valgrind", "--quiet", "--fair-sched=yes", "--error-exitcode=9", "--leak-check=full"]);
    }
    command.arg(program).env("LLC_NETWORK", network).env("LLC_STATION", number.to_string());
    command
}

/// Runs it to its end, which must be a good one; what it printed.
pub fn good(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert_good(&out, &format!("{command:?}"));
    String::from_utf8(out.stdout).expect("programs print text")
}

pub fn assert_good(out: &Output, what: &str) {
    assert!(out.status.success(), "{what}: {}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
}
