//! `trunkline serve`: start, tokens, errors, waiting for the archive. The crate `web` tests the HTTP API.

#![cfg(feature = "web")]
#![allow(clippy::disallowed_methods, reason = "these tests watch a program that runs in real time")]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::command::{Running, TestDir, signal, within};
use nix::sys::signal::Signal;
use trunkline_counters::archive::Writer;

/// Limit for anything that happens promptly.
const SOON: Duration = Duration::from_secs(60);

/// Starts the server and waits for the link that it prints.
fn start(dir: &TestDir, more: &[&str]) -> (Running, String) {
    let out = fs::File::create_new(dir.path("link")).unwrap();
    let err = tempfile::tempfile().unwrap();
    let mut command = dir.trunkline(&[&["serve", "--archive", "counters.sqlite"], more].concat());
    command.stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap());
    let running = Running::with(command, out, err);
    let mut link = String::new();
    within(SOON, "a link", || {
        link = fs::read_to_string(dir.path("link")).unwrap();
        link.ends_with('\n')
    });
    fs::remove_file(dir.path("link")).unwrap();
    (running, link.trim_end().to_owned())
}

/// Returns the status line of a GET request for a link.
fn status(link: &str) -> String {
    let (address, path) = link.strip_prefix("http://").and_then(|rest| rest.split_once('/')).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn serves_until_a_signal() {
    let dir = TestDir::new();
    drop(Writer::open(dir.path("counters.sqlite")).unwrap());
    for how in [Signal::SIGINT, Signal::SIGTERM] {
        let (running, link) = start(&dir, &["--listen", "127.0.0.1:0"]);
        assert_eq!(status(&link), "HTTP/1.1 200 OK", "{link}");
        let second =
            dir.execute(&["serve", "--archive", "counters.sqlite", "--listen", &link[7..link.len() - 1]]);
        second.assert_line(1, "cannot listen on");
        signal(running.id(), how);
        let ended = running.end();
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    }
}

#[test]
fn a_token_is_created_once_and_not_printed_again() {
    let dir = TestDir::new();
    drop(Writer::open(dir.path("counters.sqlite")).unwrap());
    let listen = ["--listen", "127.0.0.1:0", "--token-file", "token"];
    let (running, link) = start(&dir, &listen);
    let (bare, secret) = link.split_once("?token=").expect("a new token is printed");
    assert_eq!(fs::metadata(dir.path("token")).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(status(bare), "HTTP/1.1 401 Unauthorized");
    assert_eq!(status(&link), "HTTP/1.1 303 See Other");
    drop(running);
    let (_running, again) = start(&dir, &listen);
    assert!(!again.contains("token"), "{again}");
    assert_eq!(status(&format!("{again}?token={secret}")), "HTTP/1.1 303 See Other");
}

#[test]
fn unusable_archives_and_tokens_are_errors() {
    let dir = TestDir::new();
    let serve = |more: &[&str]| dir.execute(&[&["serve"], more].concat());
    dir.write("text", "no archive");
    serve(&["--archive", "text"]).assert_line(2, "is not an archive of counters");
    drop(Writer::open(dir.path("counters.sqlite")).unwrap());
    dir.write("token", "short");
    serve(&["--archive", "counters.sqlite", "--token-file", "token"]).assert_line(2, "16 to 256 letters");
    serve(&["--archive", "counters.sqlite", "--token-file", "."]).assert_line(2, "Is a directory");
    assert_eq!(serve(&["--listen", "localhost"]).status, 2);
}

#[test]
fn help_shows_no_password_of_the_environment() {
    let dir = TestDir::new();
    for command in
        [&["serve"][..], &["run"], &["records", "list"], &["monitor", "list"], &["monitor", "poll"]]
    {
        let mut help = dir.trunkline(&[command, &["--help"]].concat());
        help.env("TRUNKLINE_COUNTERS", "postgres://me:hidden@h/x").env("TRUNKLINE_ARCHIVE", "hidden");
        let ended = dir.end(help);
        assert_eq!(ended.status, 0);
        assert!(!ended.out.contains("hidden"), "{command:?}: {}", ended.out);
    }
}

/// A server that waits for its archive; standard output and error are the files `out` and `err`.
fn start_waiting(dir: &TestDir, args: &[&str]) -> Running {
    let mut command = dir.trunkline(&[&["serve", "--listen", "127.0.0.1:0"], args].concat());
    let [out, err] = ["out", "err"].map(|name| fs::File::create(dir.path(name)).unwrap());
    let reader = |name| fs::File::open(dir.path(name)).unwrap();
    command.stdout(out).stderr(err);
    let running = Running::with(command, reader("out"), reader("err"));
    within(SOON, "a line that the server waits", || {
        fs::read_to_string(dir.path("err")).unwrap().ends_with('\n')
    });
    running
}

#[test]
fn waits_for_an_archive_that_does_not_exist_yet() {
    let dir = TestDir::new();
    // The default archive, which the poller creates in a new folder.
    let running = start_waiting(&dir, &[]);
    let archive = dir.path(".local/share/trunkline/counters.sqlite");
    fs::create_dir_all(archive.parent().unwrap()).unwrap();
    // SQLite creates an empty file before it writes the tables.
    fs::write(&archive, "").unwrap();
    drop(Writer::open(&archive).unwrap());
    let mut link = String::new();
    within(SOON, "a link", || {
        link = fs::read_to_string(dir.path("out")).unwrap();
        link.ends_with('\n')
    });
    assert_eq!(status(link.trim_end()), "HTTP/1.1 200 OK", "{link}");
    signal(running.id(), Signal::SIGINT);
    let ended = running.end();
    let line = format!(
        "trunkline: waiting for `trunkline monitor poll` to create the archive {}\n",
        archive.display()
    );
    assert_eq!((ended.status, ended.err), (0, line));
}

#[test]
fn a_signal_ends_the_wait() {
    let dir = TestDir::new();
    for how in [Signal::SIGINT, Signal::SIGTERM] {
        let running = start_waiting(&dir, &["--archive", "none.sqlite"]);
        signal(running.id(), how);
        let ended = running.end();
        assert_eq!(
            (ended.status, ended.out.as_str(), ended.err.lines().count()),
            (0, "", 1),
            "{}",
            ended.err
        );
    }
    assert!(!dir.path("none.sqlite").exists());
}
