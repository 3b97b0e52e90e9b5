//! Archives in PostgreSQL databases, on a server that the test starts.

#![allow(clippy::disallowed_methods, reason = "these tests watch programs that run in real time")]

#[path = "../../../counters/tests/support/server.rs"]
pub mod server;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;

use super::*;
use crate::command::{Running, signal, within};

const SOON: Duration = Duration::from_secs(100);

/// The address of a new database, with a password that must not be printed.
pub fn database() -> Option<String> {
    let server = server::server()?;
    Some(server.database().replace("trunkline@", "trunkline:hidden@"))
}

/// Returns the output of a command that must succeed and not print the password.
fn quietly(dir: &TestDir, args: &[&str]) -> String {
    let said = well(dir, args);
    assert!(!said.contains("hidden"), "{said}");
    said
}

#[test]
fn databases_and_files_export_the_same() {
    let Some(url) = database() else { return };
    let dir = TestDir::new();
    let mut text = String::from("time,in\n");
    for i in 0..3_000u64 {
        text += &format!("{},{}\n", 1_700_000_000 + 15 * i, 1000 * i + i * i % 77);
    }
    dir.write("sw1.csv", &text);
    let missing = dir.execute(&["monitor", "list", &url]);
    assert_eq!((missing.status, missing.err.lines().count()), (2, 1));
    assert!(missing.err.contains("is not an archive") && !missing.err.contains("hidden"), "{}", missing.err);
    let mut said = Vec::new();
    for archive in ["c.sqlite", &url] {
        let column = ["--device", "sw1", "--column", "in=port/eth0/in/octets"];
        let imported = quietly(&dir, &[&["monitor", "import", archive, "sw1.csv"], &column[..]].concat());
        assert!(imported.starts_with("3000 rows of 1 series: "), "{imported}");
        let list = quietly(&dir, &["monitor", "list", archive, "--json"]);
        let rows = quietly(&dir, &["monitor", "export", archive, "--csv", "-"]);
        let every = quietly(&dir, &["monitor", "export", archive, "--csv", "-", "--interval", "1h"]);
        let found = quietly(&dir, &["analyse", archive, "--column", "sw1:port/eth0/in/octets", "--json"]);
        let mut found: serde_json::Value = serde_json::from_str(&found).unwrap();
        found["series"] = "it".into();
        said.push((list, rows, every, found));
        let again = dir.execute(&[&["monitor", "import", archive, "sw1.csv"], &column[..]].concat());
        assert_eq!((again.status, again.err.lines().count()), (2, 1), "{}", again.err);
    }
    assert!(said[0] == said[1], "{}\n{}", said[0].0, said[1].0);
    let wrong = dir.execute(&["monitor", "list", &format!("{url}&sslmode=require")]);
    assert_eq!((wrong.status, wrong.err.lines().count()), (2, 1));
    assert!(wrong.err.contains("without TLS") && !wrong.err.contains("hidden"), "{}", wrong.err);
}

#[test]
fn runs_and_captures_are_stored_in_a_database() {
    let Some(url) = database() else { return };
    let dir = TestDir::new();
    let ended = dir.run(CALLS, &["--on", "sim", "--trace", "home", "--counters", &url]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    let said = quietly(&dir, &["monitor", "capture", "out", "--archive", &url, "--interval", "500ms"]);
    assert!(said.starts_with("200 packets, "), "{said}");
    let list = quietly(&dir, &["monitor", "list", &url, "--series", "*:flow/*/out/packets"]);
    assert!(list.contains(" udp/out/packets"), "{list}");
    let list = quietly(&dir, &["monitor", "list", &url, "--series", "calls*"]);
    assert!(list.contains("connection/"), "{list}");
}

fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// The server restarts during polling; readings of the outage are stored.
#[cfg(feature = "snmp")]
#[test]
fn a_poller_survives_a_restart_of_the_server() {
    let Some(server) = server::Server::own("off") else { return };
    let url = server.database();
    let dir = TestDir::new();
    dir.write(
        "poll.toml",
        "period = \"200ms\"\nflush = \"200ms\"\n[[machine]]\nname = \"here\"\ninterfaces = [\"lo\"]\n",
    );
    let [out, err] = ["out", "err"].map(|name| File::create_new(dir.path(name)).unwrap());
    let mut command = dir.trunkline(&["monitor", "poll", "poll.toml", "--json", "--archive", &url]);
    command.stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap());
    let running = Running::with(command, out, err);
    // The last line may not be whole yet.
    let polls = |since: jiff::Timestamp| {
        let text = fs::read_to_string(dir.path("out")).unwrap();
        let ours = text.lines().filter(|line| line.contains("port/lo/in/octets"));
        let lines = ours.filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        lines.filter(|line| line["at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap() >= since).count()
    };
    let told = |words: &str| fs::read_to_string(dir.path("err")).unwrap().contains(words);
    let more = |many: usize| {
        let since = jiff::Timestamp::now();
        within(SOON, "polls", || polls(since) >= many);
    };
    more(3);
    let stopped = now();
    server.stop();
    within(SOON, "that the server is gone", || told("is out of reach"));
    more(6);
    let began = now();
    server.restart();
    within(SOON, "that it is there again", || told("is written again; 0 responses are missing"));
    more(3);
    signal(running.id(), Signal::SIGTERM);
    let ended = running.end();
    assert_eq!(ended.status, 0, "{}", ended.err);
    let series = "here:port/lo/in/octets";
    let text = quietly(&dir, &["monitor", "export", &url, "--series", series, "--csv", "-"]);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let rows: Vec<BTreeMap<String, String>> = reader.deserialize().map(|row| row.unwrap()).collect();
    let times: Vec<f64> = rows.iter().map(|row| row["asked_s"].parse().unwrap()).collect();
    assert!(times.is_sorted_by(|a, b| a < b), "none is there twice");
    let meanwhile = times.iter().filter(|at| (stopped..began).contains(at)).count();
    assert!(meanwhile >= 5, "{meanwhile} while the server was gone");
}

/// The page is served from a database, and the server exits cleanly.
#[cfg(feature = "web")]
#[test]
fn the_page_serves_a_database() {
    let Some(url) = database() else { return };
    let dir = TestDir::new();
    dir.write("x.csv", "time,in\n1700000000,1\n1700000001,2\n");
    quietly(&dir, &["monitor", "import", &url, "x.csv", "--device", "sw1"]);
    let [out, err] = ["out", "err"].map(|name| File::create_new(dir.path(name)).unwrap());
    let mut command = dir.trunkline(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("TRUNKLINE_COUNTERS", &url);
    command.stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap());
    let running = Running::with(command, out, err);
    let mut link = String::new();
    within(SOON, "a link", || {
        link = fs::read_to_string(dir.path("out")).unwrap();
        link.ends_with('\n')
    });
    let address = link.trim().trim_start_matches("http://").trim_end_matches('/');
    for _ in 0..2 {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK") && text.contains("device=\"sw1\""), "{text}");
        // The server reconnects.
        let server = server::server().unwrap();
        server.client(server::name(&url)).batch(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        );
    }
    signal(running.id(), Signal::SIGTERM);
    let ended = running.end();
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
}
