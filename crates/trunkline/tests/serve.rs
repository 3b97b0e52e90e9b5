//! The page's server as a person starts and ends it. What it answers is tested where it lives.

#![cfg(feature = "web")]
#![allow(clippy::disallowed_methods, reason = "these tests watch a program that runs in real time")]

mod command;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use command::{Desk, Running, signal, within};
use nix::sys::signal::Signal;
use trunkline_counters::archive::Writer;

const SOON: Duration = Duration::from_secs(60);

/// Starts it, with its output in a file of the desk; and the link that it prints.
fn start(desk: &Desk, more: &[&str]) -> (Running, String) {
    let out = fs::File::create_new(desk.path("link")).unwrap();
    let err = tempfile::tempfile().unwrap();
    let mut command = desk.trunkline(&[&["serve", "--archive", "counters.sqlite"], more].concat());
    command.stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap());
    let running = Running::with(command, out, err);
    let mut link = String::new();
    within(SOON, "a link", || {
        link = fs::read_to_string(desk.path("link")).unwrap();
        link.ends_with('\n')
    });
    fs::remove_file(desk.path("link")).unwrap();
    (running, link.trim_end().to_owned())
}

/// The first line of what is at a link.
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
fn it_serves_until_it_is_ended() {
    let desk = Desk::new();
    drop(Writer::open(desk.path("counters.sqlite")).unwrap());
    for how in [Signal::SIGINT, Signal::SIGTERM] {
        let (running, link) = start(&desk, &["--listen", "127.0.0.1:0"]);
        assert_eq!(status(&link), "HTTP/1.1 200 OK", "{link}");
        let second =
            desk.say(&["serve", "--archive", "counters.sqlite", "--listen", &link[7..link.len() - 1]]);
        second.assert_line(1, "cannot listen on");
        signal(running.id(), how);
        let ended = running.end();
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    }
}

#[test]
fn a_token_is_made_once_and_kept_secret() {
    let desk = Desk::new();
    drop(Writer::open(desk.path("counters.sqlite")).unwrap());
    let listen = ["--listen", "127.0.0.1:0", "--token-file", "token"];
    let (running, link) = start(&desk, &listen);
    let (bare, secret) = link.split_once("?token=").expect("a new token is told");
    assert_eq!(fs::metadata(desk.path("token")).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(status(bare), "HTTP/1.1 401 Unauthorized");
    assert_eq!(status(&link), "HTTP/1.1 303 See Other");
    drop(running);
    let (_running, again) = start(&desk, &listen);
    assert!(!again.contains("token"), "{again}");
    assert_eq!(status(&format!("{again}?token={secret}")), "HTTP/1.1 303 See Other");
}

#[test]
fn what_cannot_be_served_is_refused() {
    let desk = Desk::new();
    let say = |more: &[&str]| desk.say(&[&["serve"], more].concat());
    say(&[]).assert_line(2, "there is no archive at");
    desk.write("text", "no archive");
    say(&["--archive", "text"]).assert_line(2, "is not an archive of counters");
    drop(Writer::open(desk.path("counters.sqlite")).unwrap());
    desk.write("token", "short");
    say(&["--archive", "counters.sqlite", "--token-file", "token"]).assert_line(2, "16 to 256 letters");
    say(&["--archive", "counters.sqlite", "--token-file", "."]).assert_line(2, "Is a directory");
    assert_eq!(say(&["--listen", "localhost"]).status, 2);
}

#[test]
fn help_shows_no_password_of_the_environment() {
    let desk = Desk::new();
    for command in [&["serve"][..], &["run"], &["records", "list"]] {
        let mut help = desk.trunkline(&[command, &["--help"]].concat());
        help.env("TRUNKLINE_COUNTERS", "postgres://me:hidden@h/x").env("TRUNKLINE_ARCHIVE", "hidden");
        let ended = desk.end(help);
        assert_eq!(ended.status, 0);
        assert!(!ended.out.contains("hidden"), "{command:?}: {}", ended.out);
    }
}
