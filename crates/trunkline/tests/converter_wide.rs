//! The bundle converter in the wide format: real daemons, and a client that has nothing of ours.

#![allow(clippy::disallowed_methods, reason = "these tests watch programs that run in real time")]

use std::process::Command;

use crate::command::{TestDir, can, repository};

const WIDE: &str = "crates/trunkline/tests/converter/wide.py";

/// Runs a check of the independent client.
fn check(name: &str) {
    if !can(&["python3", "--version"]) {
        return;
    }
    let mut command = Command::new("python3");
    command.arg(repository(WIDE)).arg(env!("CARGO_BIN_EXE_trunkline")).arg(name);
    let ended = TestDir::new().end(command);
    assert_eq!((ended.status, ended.out), (0, format!("ok {name}\n")), "{}", ended.err);
}

macro_rules! checks {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*

        /// Each check of the client is a test here.
        #[test]
        fn no_check_is_left_out() {
            let text = std::fs::read_to_string(repository(WIDE)).unwrap();
            let there: Vec<&str> =
                text.lines().filter_map(|line| line.strip_prefix("def check_")?.strip_suffix("():")).collect();
            assert_eq!(there, [$(stringify!($name)),*]);
        }
    };
}

checks! {
    twenty_hosts_and_every_pdu_of_a_datagram_is_legal
    a_level_1_that_is_killed_is_replaced
    a_host_that_is_killed_or_ends_leaves_the_database
    in_any_order_and_interest_comes_back_by_itself
    priority_arrives_through_a_path_that_loses
    rules_give_priority
    a_host_takes_no_more_than_it_says
    one_bundle_to_all_by_broadcast_and_multicast
    who_speaks_the_other_format_is_told_once
    two_of_one_number_are_told
    what_is_no_bundle_is_counted
}

#[test]
fn options_of_the_other_format_are_errors_of_one_line() {
    let dir = TestDir::new();
    dir.write("far.toml", "default.address = 65536\n");
    dir.write("urgent.toml", "[[rule]]\ntype = 2\naddress = 1\npriority = true\n");
    dir.write("far-script.toml", "[[step]]\njoin = 65536\n");
    dir.write("urgent-script.toml", "[[step]]\nsend = { addresses = 1, priority = true }\n");
    dir.write("site.toml", "site = 7\n");
    for (words, line) in [
        (
            "host --number 17",
            "--number 17: the classic format supports hosts 1 to 16; use --format wide for more",
        ),
        ("host --join 65536", "address 65536 needs --format wide"),
        ("host --script far-script.toml", "far-script.toml: address 65536 needs --format wide"),
        ("host --script urgent-script.toml", "urgent-script.toml: priority needs --format wide"),
        ("host --dis 127.0.0.1 --rules far.toml", "far.toml: address 65536 needs --format wide"),
        ("host --dis 127.0.0.1 --rules urgent.toml", "urgent.toml: priority = true needs --format wide"),
        ("host --saturate 5", "--priority and --saturate need --format wide"),
        ("level1 --congestion rates", "--site and --congestion need --format wide"),
        ("central --config site.toml", "--site and --congestion need --format wide"),
        ("host --format wide --send 0-4294967295", "--send: 4294967296 addresses to send to; at most"),
        ("central --format wide --hosts 127.0.0.1,127.0.0.2", "--hosts: with --format wide, expected one"),
        ("central --format wide --hosts 127.0.0.1", "--hosts: with --format wide, expected one"),
    ] {
        let words: Vec<&str> = ["converter"].into_iter().chain(words.split(' ')).collect();
        dir.execute(&words).assert_line(2, line);
    }
    for words in
        ["host --format wide --number 65536", "host --format wide --longest 511", "host --saturate 0"]
    {
        let words: Vec<&str> = ["converter"].into_iter().chain(words.split(' ')).collect();
        let ended = dir.execute(&words);
        assert_eq!(ended.status, 2, "{ended:?}");
    }
}
