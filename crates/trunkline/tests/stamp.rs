//! `trunkline stamp`: both ends over the loopback.

#![allow(clippy::disallowed_methods, reason = "these tests watch programs that run in real time")]

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::command::{Ended, Running, TestDir, signal, within};

const LONG: Duration = Duration::from_secs(60);

/// A reflector that is ready, with its address.
struct TestReflector {
    running: Running,
    output: PathBuf,
    address: String,
}

impl TestReflector {
    fn start(dir: &TestDir, words: &[&str]) -> TestReflector {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let output = dir.path(&format!("reflector-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        let (out, err) = (fs::File::create_new(&output).unwrap(), tempfile::tempfile().unwrap());
        let mut command = dir.trunkline(&[&["stamp", "reflect"], words].concat());
        command.stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap());
        let running = Running::with(command, fs::File::open(&output).unwrap(), err);
        let ready = || fs::read_to_string(&output).unwrap().contains("packets/s each");
        within(LONG, "the reflector", ready);
        let text = fs::read_to_string(&output).unwrap();
        let address =
            text.strip_prefix("STAMP reflector on ").unwrap().split(": ").next().unwrap().to_owned();
        TestReflector { running, output, address }
    }

    /// Interrupts the reflector and returns what it printed.
    fn end(self) -> String {
        signal(self.running.id(), Signal::SIGINT);
        let ended = self.running.end();
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        fs::read_to_string(self.output).unwrap()
    }
}

fn send(dir: &TestDir, to: &str, words: &[&str]) -> Ended {
    dir.execute(&[&["stamp", "send", to], words].concat())
}

fn json(dir: &TestDir, to: &str, words: &[&str]) -> Value {
    let ended = send(dir, to, &[words, &["--json", "--timeout", "30s"]].concat());
    assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{}", ended.out);
    serde_json::from_str(&ended.out).unwrap()
}

fn write_key(dir: &TestDir, name: &str, text: &str) {
    dir.write(name, text);
    fs::set_permissions(dir.path(name), fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_session_is_measured() {
    let dir = TestDir::new();
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        if UdpSocket::bind(listen).is_err() {
            continue; // no IPv6 here
        }
        let reflector = TestReflector::start(&dir, &["--listen", listen]);
        let words = ["--count", "50", "--interval", "1ms", "--dscp", "EF", "--size", "1000", "--stateful"];
        let result = json(&dir, &reflector.address, &words);
        for (name, expected) in
            [("sent", 50), ("answered", 50), ("lost", 0), ("lost_forward", 0), ("size", 1000)]
        {
            assert_eq!(result[name], expected, "{name}: {result}");
        }
        let measured = result["round_trip_us"]["count"].as_u64().unwrap();
        assert_eq!(measured + result["inconsistent"].as_u64().unwrap(), 50);
        assert_eq!(result["hops_forward"]["max"], 0);
        let text = reflector.end();
        assert!(text.contains("50 packets reflected in 1 sessions"), "{text}");
    }
}

#[test]
fn a_key_is_required_at_both_ends() {
    let dir = TestDir::new();
    write_key(&dir, "key", "00112233445566778899aabbccddeeff\n");
    write_key(&dir, "other", "ffeeddccbbaa99887766554433221100\n");
    let reflector = TestReflector::start(&dir, &["--listen", "127.0.0.1:0", "--key", "key"]);
    let to = reflector.address.clone();
    let result = json(&dir, &to, &["--count", "3", "--key", "key", "--interval", "1ms"]);
    assert_eq!((&result["answered"], &result["authenticated"]), (&3.into(), &true.into()));
    let few = &["--count", "2", "--timeout", "100ms"];
    for (words, key) in [
        (&["--key", "other"][..], "has another key"),
        (&["--size", "112"], "demands a key (--key)"),
        (&[], "demands a key (--key)"),
    ] {
        let silent = format!("{to} does not answer: it is no reflector, does not allow this host, or {key}");
        send(&dir, &to, &[few, words].concat()).assert_line(1, &silent);
    }
    let open = TestReflector::start(&dir, &["--listen", "127.0.0.1:0"]);
    let ended = send(&dir, &open.address, &[&few[..], &["--key", "key"]].concat());
    ended.assert_line(1, &format!("{} answers with another key, or without one", open.address));
    let text = reflector.end();
    assert!(text.contains("3 packets reflected"), "{text}");
    assert!(text.contains("4 without an answer: with a wrong HMAC"), "{text}");
    assert!(text.contains("2 without an answer: too short"), "{text}");
}

#[test]
fn a_reflector_answers_allowed_sources_at_their_rate() {
    let dir = TestDir::new();
    let reflector = TestReflector::start(
        &dir,
        &["--listen", "127.0.0.1:0", "--allow", "192.0.2.0/24", "::1", "127.0.0.9"],
    );
    let ended = send(&dir, &reflector.address, &["--count", "2", "--timeout", "100ms"]);
    ended.assert_line(1, "does not answer");
    assert!(reflector.end().contains("2 without an answer: from sources that are not allowed"));
    let reflector = TestReflector::start(&dir, &["--listen", "127.0.0.1:0", "--rate", "1"]);
    let words = ["--count", "20", "--interval", "1ms", "--timeout", "100ms", "--json"];
    let ended = send(&dir, &reflector.address, &words);
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    let answered = result["answered"].as_u64().unwrap();
    assert!((1..20).contains(&answered), "{result}");
    let text = reflector.end();
    assert!(
        text.contains(&format!("{} without an answer: beyond the rate of a source", 20 - answered)),
        "{text}"
    );
}

#[test]
fn wrong_usage_is_one_line() {
    let dir = TestDir::new();
    let reflect = |words: &[&str]| dir.execute(&[&["stamp", "reflect"], words].concat());
    reflect(&["--listen", "0.0.0.0:0"]).assert_line(2, "say with --allow which sources");
    reflect(&["--listen", "[::]:0"]).assert_line(2, "say with --allow which sources");
    reflect(&["--listen", "192.0.2.1:0", "--allow", "::/0"]).assert_line(2, "not an address of this machine");
    assert_eq!(reflect(&["--allow", "192.0.2.0/33"]).status, 2);
    dir.write("open", "00112233445566778899aabbccddeeff");
    write_key(&dir, "short", "0011");
    write_key(&dir, "text", "a key of more than 32 characters, not digits");
    reflect(&["--key", "missing"]).assert_line(2, "missing: No such file");
    reflect(&["--key", "open"]).assert_line(2, "run chmod 600");
    for name in ["short", "text"] {
        send(&dir, "127.0.0.1", &["--key", name]).assert_line(2, "expected at least 32 hexadecimal digits");
    }
    write_key(&dir, "key", "00112233445566778899aabbccddeeff");
    send(&dir, "127.0.0.1", &["--key", "key", "--size", "111"]).assert_line(2, "at least 112 octets");
    send(&dir, "127.0.0.1:port", &[]).assert_line(2, "127.0.0.1:port");
    for words in [["--size", "43"], ["--dscp", "64"], ["--interval", "0s"], ["--count", "0"]] {
        assert_eq!(send(&dir, "127.0.0.1", &words).status, 2, "{words:?}");
    }
}

/// Relays datagrams between a sender and `to`; drops the third of every five requests and the second of every four answers.
fn lossy_relay(to: &str) -> String {
    let [front, back] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    back.connect(to).unwrap();
    let address = front.local_addr().unwrap().to_string();
    let (answering, asking) = (front.try_clone().unwrap(), back.try_clone().unwrap());
    let (sender, known) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 2000];
        for number in 0.. {
            let Ok((length, from)) = front.recv_from(&mut buffer) else { return };
            let _ = sender.send(from);
            if number % 5 != 2 {
                asking.send(&buffer[..length]).unwrap();
            }
        }
    });
    std::thread::spawn(move || {
        let mut buffer = [0; 2000];
        let from = known.recv().unwrap();
        for number in 0.. {
            let Ok(length) = back.recv(&mut buffer) else { return };
            if number % 4 != 1 {
                answering.send_to(&buffer[..length], from).unwrap();
            }
        }
    });
    address
}

#[test]
fn losses_have_directions() {
    let dir = TestDir::new();
    for stateless in [false, true] {
        let words = ["--listen", "127.0.0.1:0", "--stateless"];
        let reflector = TestReflector::start(&dir, &words[..if stateless { 3 } else { 2 }]);
        let relay = lossy_relay(&reflector.address);
        let words = ["--count", "100", "--interval", "2ms", "--timeout", "1s", "--json"];
        let ended = send(&dir, &relay, &words);
        let result: Value = serde_json::from_str(&ended.out).unwrap();
        let of = |name: &str| result[name].as_u64();
        assert_eq!((of("sent"), of("answered"), of("lost")), (Some(100), Some(60), Some(40)), "{result}");
        let directions = [of("lost_forward"), of("lost_backward"), of("lost_unknown")];
        let expected = if stateless { [None; 3] } else { [Some(20), Some(20), Some(0)] };
        assert_eq!(directions, expected);
        assert!(reflector.end().contains("80 packets reflected"));
    }
}
