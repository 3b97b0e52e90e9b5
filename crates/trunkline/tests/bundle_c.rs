//! The bundle converter from C: the tests and the example of `bindings/c`, against real daemons, plain and under valgrind;
//! and what the libraries export. Daemons and hosts are on addresses of their own of 127.0.0.0/8.

#![allow(clippy::disallowed_methods, reason = "these tests watch programs that run in real time")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use crate::command::{can, repository};

const FUNCTIONS: [&str; 19] = [
    "bundle_close",
    "bundle_define",
    "bundle_error",
    "bundle_figures",
    "bundle_join",
    "bundle_leave",
    "bundle_open",
    "bundle_page",
    "bundle_publish",
    "bundle_receive",
    "bundle_saturate",
    "bundle_send",
    "bundle_send_in",
    "bundle_subscribe",
    "bundle_text",
    "bundle_turn",
    "bundle_unpublish",
    "bundle_unsubscribe",
    "bundle_wake",
];
/// Seconds that a program may run: for none that works to be stopped on a busy machine.
const LIMIT: &str = "240";

/// Where the library was built: beside this test, or above it.
fn libraries() -> PathBuf {
    let exe = std::env::current_exe().expect("a test has a path");
    let has_both =
        |folder: &&Path| ["libbundle.so", "libbundle.a"].iter().all(|name| folder.join(name).exists());
    exe.ancestors().skip(1).find(has_both).expect("the library is built with these tests").to_owned()
}

/// Builds a program of `bindings/c` as `name`, and says where it is.
fn build(compiler: &str, source: &str, name: &str, flags: &[&str], is_static: bool) -> PathBuf {
    let (out, libraries) = (Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), libraries());
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-g", "-I"]).arg(repository("bindings/c")).args(flags);
    command.arg(repository("bindings/c").join(source)).arg("-o").arg(&out);
    match is_static {
        false => command
            .arg("-L")
            .arg(&libraries)
            .arg("-lbundle")
            .arg(format!("-Wl,-rpath,{}", libraries.display())),
        true => command.args(["-x", "none"]).arg(libraries.join("libbundle.a")).args([
            "-lgcc_s",
            "-lutil",
            "-lrt",
            "-lpthread",
            "-lm",
            "-ldl",
        ]),
    };
    let made = command
        .arg("-lpthread")
        .output()
        .unwrap_or_else(|e| panic!("{compiler}: {e} (.ci/packages installs it)"));
    assert!(made.status.success(), "{source}: {}", String::from_utf8_lossy(&made.stderr));
    out
}

fn build_c(source: &str, name: &str) -> PathBuf {
    build("cc", source, name, &["-std=c11", "-pedantic"], false)
}

/// A central converter at its own address; dropping this ends it.
struct Central {
    child: Child,
    address: String,
}

impl Central {
    fn start(format: &str, flags: &[&str]) -> Central {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let own = std::process::id();
        let address =
            format!("127.{}.{}.{}", 1 + own % 250, 1 + own / 250 % 250, NEXT.fetch_add(1, Ordering::Relaxed));
        let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        command.args([
            "converter",
            "central",
            "--format",
            format,
            "--listen-level1",
            &format!("{address}:3450"),
        ]);
        command.args(["--listen-hosts", &format!("{address}:3458")]).args(flags);
        if format == "classic" {
            command.args(["--level1", &format!("1={address}:3457")]);
            command.args(["--hosts", &format!("{address}:6001,{address}:6002")]);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().expect("trunkline starts");
        let mut said = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut said).unwrap();
        assert!(said.starts_with("central on "), "{said}");
        Central { child, address }
    }
}

impl Drop for Central {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end, which must be a good one; what it printed.
fn good(program: &Path, valgrind: bool, words: &[&str]) -> String {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", LIMIT]);
    if valgrind {
        command.args(["valgrind", "--quiet", "--fair-sched=yes", "--error-exitcode=9", "--leak-check=full"]);
    }
    let out = command.arg(program).args(words).stdin(Stdio::null()).output().expect("timeout runs");
    assert!(out.status.success(), "{command:?}: {}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("programs print text")
}

/// Runs a test of C against a central converter, plain and under valgrind.
fn check(source: &str, formats: &[&str], flags: &[&str]) {
    let program = build_c(&format!("tests/{source}.c"), source);
    for format in formats {
        for valgrind in [false, true] {
            if !valgrind || can(&["valgrind", "--version"]) {
                let central = Central::start(format, flags);
                good(&program, valgrind, &[format, &central.address]);
            }
        }
    }
}

#[test]
fn every_code_is_returned() {
    check("bundle_answers", &["classic", "wide"], &[]);
}

#[test]
fn messages_arrive_by_address_and_by_region_and_are_counted() {
    check("bundle_messages", &["classic", "wide"], &[]);
}

#[test]
fn threads_wait_send_and_wake() {
    check("bundle_threads", &["classic"], &[]);
}

#[test]
fn threads_of_a_gateway_do_not_wait_for_each_other_for_ever() {
    check("bundle_gateway", &["wide"], &[]);
}

#[test]
fn a_congested_network_signals_it() {
    check("bundle_congested", &["classic", "wide"], &["--capacity", "600"]);
}

#[test]
fn two_tanks_see_each_other() {
    let tank = build_c("examples/bundle_tank.c", "bundle_tank");
    let central = Central::start("wide", &[]);
    let at = format!("{}:3458", central.address);
    std::thread::scope(|scope| {
        for number in ["7", "8"] {
            let (tank, at) = (&tank, &at);
            scope.spawn(move || {
                let said = good(tank, false, &[number, "20", at]);
                let other = if number == "7" { "host 8 of site 1 is in cell" } else { "host 7 of site 1" };
                assert!(said.starts_with(other) && said.contains("\nseen "), "{said}");
            });
        }
    });
    for words in [&[][..], &["0"], &["7", "20", "nowhere"]] {
        let refused = Command::new(&tank).args(words).output().unwrap();
        let status = if words.len() > 1 { 1 } else { 2 };
        assert_eq!(refused.status.code(), Some(status));
        assert_eq!(String::from_utf8_lossy(&refused.stderr).lines().count(), 1);
    }
}

#[test]
fn the_header_is_c_and_cpp_and_the_libraries_are_both_whole() {
    for (compiler, name, flags, is_static) in [
        ("cc", "bundle-header-99", &["-std=c99", "-pedantic"][..], false),
        ("cc", "bundle-header-11", &["-std=c11", "-pedantic", "-O2"], false),
        ("c++", "bundle-header-cpp", &["-x", "c++", "-std=c++11", "-pedantic"], false),
        ("cc", "bundle-header-static", &["-std=c11"], true),
    ] {
        good(&build(compiler, "tests/bundle_header.c", name, flags, is_static), false, &[]);
    }
    let program = build("cc", "tests/bundle_messages.c", "bundle_messages-static", &["-std=c11"], true);
    let central = Central::start("wide", &[]);
    good(&program, false, &["wide", &central.address]);
}

#[test]
fn nothing_else_is_exported() {
    let mut command = Command::new("nm");
    command.args(["-D", "--defined-only", "--format=posix"]).arg(libraries().join("libbundle.so"));
    let out = command.output().expect("binutils are there with a compiler");
    let text = String::from_utf8(out.stdout).unwrap();
    let mut names: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    names.sort_unstable();
    assert_eq!(names, FUNCTIONS);
}

#[test]
fn every_function_and_number_of_the_header_is_in_a_test() {
    let read = |name: &str| std::fs::read_to_string(repository("bindings/c").join(name)).unwrap();
    let header = read("bundle.h");
    let tests: String = ["answers", "messages", "threads", "congested", "check"]
        .map(|name| read(&format!("tests/bundle_{name}.{}", if name == "check" { "h" } else { "c" })))
        .concat();
    let defined = header.lines().filter_map(|line| line.strip_prefix("#define ")?.split([' ', '(']).next());
    // Values that are another name of nothing said, or tell converters what they are.
    let unsaid = ["BUNDLE_H", "BUNDLE_TICK", "BUNDLE_DELAY", "BUNDLE_RATES", "BUNDLE_LEVELS"];
    let names: Vec<&str> = defined.filter(|name| !unsaid.contains(name)).chain(FUNCTIONS).collect();
    assert_eq!(names.len(), 13 + 6 + FUNCTIONS.len());
    for name in names {
        assert!(tests.contains(name), "no test in C has {name}");
    }
    let declared = |name: &&str| header.contains(&format!("{name}("));
    assert!(FUNCTIONS.iter().all(declared));
}
