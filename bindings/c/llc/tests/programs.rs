//! The C tests of `bindings/c/tests`, plain and under valgrind, over UDP on the loopback; and what the libraries export.

mod support;

use std::process::Command;

use support::{Linked, Under, assert_good, build, build_c, good, libraries, station};

const FUNCTIONS: [&str; 11] = [
    "LLCclose",
    "LLCoff",
    "LLCon",
    "LLCopbits",
    "LLCopen",
    "LLCoption",
    "LLCrecv",
    "LLCreset",
    "LLCstatus",
    "LLCstbits",
    "LLCxmit",
];

/// Runs a C test program, each variant on a separate network.
fn check(source: &str, name: &str, port: u16) {
    let program = build_c(source, name);
    for (under, port) in [(Under::Nothing, port), (Under::Valgrind, port + 256)] {
        good(&mut station(&program, under, &format!("udp:239.77.5.0:{port}"), 7));
    }
}

#[test]
fn operations_return_the_documented_status() {
    check("tests/operations.c", "operations", 24_000);
}

#[test]
fn operations_end_with_the_documented_signal() {
    check("tests/statuses.c", "statuses", 24_512);
}

#[test]
fn signal_functions_are_called() {
    check("tests/signals.c", "signals", 25_024);
}

#[test]
fn the_header_is_old_c_and_cpp_and_the_libraries_are_both_whole() {
    let ways: [(&str, &str, &[&str], Linked); 5] = [
        ("cc", "header-89", &["-std=c89", "-pedantic"], Linked::Shared),
        ("cc", "header-11", &["-std=c11", "-pedantic"], Linked::Shared),
        ("c++", "header-cpp", &["-x", "c++", "-pedantic"], Linked::Shared),
        ("cc", "header-static", &["-std=c11"], Linked::Static),
        ("cc", "header-optimised", &["-std=c11", "-O2"], Linked::Shared),
    ];
    for (compiler, name, flags, linked) in ways {
        let program = build(compiler, "tests/header.c", name, flags, linked);
        assert_good(&Command::new(&program).output().unwrap(), name);
    }
    let program = build("cc", "tests/statuses.c", "statuses-static", &["-std=c11"], Linked::Static);
    good(&mut station(&program, Under::Nothing, "udp:239.77.5.0:25536", 254));
}

#[test]
fn nothing_else_is_exported() {
    let mut command = Command::new("nm");
    command.args(["-D", "--defined-only", "--format=posix"]).arg(libraries().join("libllcio.so"));
    let text = good(&mut command);
    let mut names: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    names.sort_unstable();
    assert_eq!(names, FUNCTIONS);
}

/// The numbers and names of the header are those of the library.
#[test]
fn every_function_and_number_is_in_a_test() {
    let header = std::fs::read_to_string(support::bindings().join("llcio.h")).unwrap();
    let tests: String = ["operations", "statuses", "signals", "listen"]
        .iter()
        .map(|name| std::fs::read_to_string(support::bindings().join(format!("tests/{name}.c"))).unwrap())
        .collect();
    let defined = header.lines().filter_map(|line| line.strip_prefix("#define ")?.split([' ', '(']).next());
    let names: Vec<&str> = defined.filter(|name| *name != "LLCIO_H").chain(FUNCTIONS).collect();
    assert_eq!(names.len(), 17 + FUNCTIONS.len());
    for name in names {
        assert!(tests.contains(name), "no test in C has {name}");
    }
}
