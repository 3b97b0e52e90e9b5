//! What a packet capture saw against what the record says, the messages read by a decoder that was written from the
//! description of their layout alone.

#![allow(clippy::disallowed_methods, reason = "these tests watch a program that runs in real time")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::command::{TestDir, can, connection, free_ports, noise, number, signal, within};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// One message as the layout describes it: big endian, 32 bytes, then the payload.
#[derive(Debug)]
struct Message {
    token: u32,
    response: u32,
    flags: u16,
    sequence: u64,
    sent_s: f64,
    payload: Vec<u8>,
}

const PROGRESS: u16 = 4;
const CHECKED: u16 = 1;
const ANSWER: u16 = 2;

/// Reads a message and holds it against its own length and check.
fn decode(bytes: &[u8]) -> Message {
    let field = |at: std::ops::Range<usize>| bytes[at].iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
    let flags = field(16..18) as u16;
    assert_eq!(field(4..8) as usize, bytes.len(), "the length is the datagram's");
    let mut covered = if flags == CHECKED { bytes.to_vec() } else { bytes[..32].to_vec() };
    covered[12..16].fill(0);
    assert_eq!(field(12..16) as u32, crc32c(&covered), "the check holds");
    Message {
        token: field(0..4) as u32,
        response: field(8..12) as u32,
        flags,
        sequence: field(18..24),
        sent_s: field(24..32) as f64 / 1e12,
        payload: bytes[32..].to_vec(),
    }
}

/// CRC-32C bit by bit (RFC 3720, appendix B.4).
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 },
        )
    })
}

/// A capture of one port of the loopback interface, under way.
struct Capture {
    dumpcap: Child,
    file: std::path::PathBuf,
}

impl Capture {
    /// None, with the reason printed, where nothing can be captured.
    fn start(dir: &TestDir, port: u16) -> Option<Capture> {
        let file = dir.path("capture.pcapng");
        let trial = ["dumpcap", "-q", "-i", "lo", "-a", "duration:0", "-w", "/dev/null"];
        if !can(&["tshark", "--version"]) || !can(&trial) {
            return None;
        }
        let said = dir.path("dumpcap.err");
        let mut command = Command::new("dumpcap");
        command.args(["-i", "lo", "-f", &format!("udp port {port}"), "-w"]).arg(&file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&said).unwrap());
        let capture = Capture { dumpcap: command.spawn().unwrap(), file };
        within(Duration::from_secs(60), "the capture to begin", || {
            fs::read_to_string(&said).unwrap().contains("File: ")
        });
        Some(capture)
    }

    /// Every datagram, with the port it came from, once there are this many or no more come.
    fn datagrams(&mut self, wanted: u64) -> Vec<(u16, Vec<u8>)> {
        let mut found = Vec::new();
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(500));
            found = self.read();
            if found.len() as u64 >= wanted {
                break;
            }
        }
        signal(Pid::from_raw(self.dumpcap.id() as i32), Signal::SIGINT);
        assert!(self.dumpcap.wait().unwrap().success());
        let last = self.read();
        assert!(last.len() >= found.len());
        last
    }

    fn read(&self) -> Vec<(u16, Vec<u8>)> {
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(&self.file).args(["-T", "fields", "-e", "udp.srcport", "-e", "udp.payload"]);
        let text = String::from_utf8(tshark.output().unwrap().stdout).unwrap();
        let byte = |hex: &[u8]| u8::from_str_radix(std::str::from_utf8(hex).unwrap(), 16).unwrap();
        let line = |line: &str| {
            let (port, hex) = line.split_once('\t').unwrap();
            let hex = hex.replace(':', "");
            (port.parse().unwrap(), hex.as_bytes().chunks(2).map(byte).collect())
        };
        text.lines().map(line).collect()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.dumpcap.kill();
        let _ = self.dumpcap.wait();
    }
}

/// Sequence numbers from 0 rise by one, and send times with them, within the run.
fn assert_in_order<'a>(messages: impl IntoIterator<Item = &'a Message>, start_s: f64, end_s: f64) {
    let mut last_s = start_s;
    for (i, m) in messages.into_iter().enumerate() {
        assert_eq!(m.sequence, i as u64);
        assert!(m.sent_s >= last_s && m.sent_s <= end_s, "{last_s} {} {end_s}", m.sent_s);
        last_s = m.sent_s;
    }
}

#[test]
fn sent_frames_agree_with_the_record() {
    let (dir, [port]) = (TestDir::new(), free_ports());
    let Some(mut capture) = Capture::start(&dir, port) else { return };
    let text = format!(
        "connection u {{ xmt = a; rcv = b:{port}; protocol = udp;
                         test = cbr (messagesize = uniform(100, 900), period = 5 ms); messages = 200; }}"
    );
    let record = dir.record(&text, &[]);
    let u = connection(&record, "u");
    let datagrams = capture.datagrams(200);
    assert_eq!(datagrams.len() as u64, u["messages_sent"].as_u64().unwrap());
    assert!(u["messages_received"].as_u64().unwrap() <= datagrams.len() as u64);
    let messages: Vec<Message> = datagrams.iter().map(|(_, bytes)| decode(bytes)).collect();
    assert!(messages.iter().all(|m| (m.token, m.response, m.flags) == (messages[0].token, 0, 0)));
    let run = &u["runs"][0];
    assert_in_order(&messages, number(&run["start_s"]), number(&record["duration_s"]));
    // Every payload is the beginning of one and the same pattern.
    let longest = messages.iter().map(|m| &m.payload).max_by_key(|p| p.len()).unwrap();
    assert!(messages.iter().all(|m| longest.starts_with(&m.payload)));
    let bytes: usize = datagrams.iter().map(|(_, bytes)| bytes.len()).sum();
    let recorded = number(&run["sent_bps"]) * number(&run["duration_s"]) / 8.0;
    assert!((recorded - bytes as f64).abs() < 0.01, "{recorded} {bytes}");
}

#[test]
fn requests_and_answers_pair_up() {
    let (dir, [port]) = (TestDir::new(), free_ports());
    let Some(mut capture) = Capture::start(&dir, port) else { return };
    let text = format!(
        "connection q {{ xmt = a; rcv = b:{port}; protocol = udp; test = request (request = 64, response = 300);
                         messages = 50; }}"
    );
    let record = dir.record(&text, &[]);
    let q = connection(&record, "q");
    let datagrams = capture.datagrams(100);
    let (answers, requests): (Vec<_>, Vec<_>) = datagrams.iter().partition(|(from, _)| *from == port);
    assert_eq!(requests.len() as u64, q["messages_sent"].as_u64().unwrap());
    assert!(answers.len() as f64 >= number(&q["counters"]["answers"]));
    let read = |of: &[&(u16, Vec<u8>)]| of.iter().map(|(_, bytes)| decode(bytes)).collect::<Vec<Message>>();
    let (requests, answers) = (read(&requests), read(&answers));
    assert!(requests.iter().all(|m| (m.flags, m.response, m.payload.len()) == (0, 300, 32)));
    assert!(answers.iter().all(|m| (m.flags, m.response, m.payload.len()) == (ANSWER, 0, 268)));
    assert_in_order(&requests, number(&q["runs"][0]["start_s"]), number(&record["duration_s"]));
    for answer in &answers {
        let request = &requests[answer.sequence as usize];
        assert!(answer.sent_s > request.sent_s && answer.token == request.token);
    }
}

#[test]
fn a_file_can_be_put_together_from_what_was_captured() {
    let (dir, [port]) = (TestDir::new(), free_ports());
    let Some(mut capture) = Capture::start(&dir, port) else { return };
    let data = noise(20_001);
    dir.write("data.bin", &data);
    let text = format!(
        r#"connection f {{ xmt = a; rcv = b:{port}; protocol = udp; test = file (path = "data.bin", messagesize = 532); }}"#
    );
    let record = dir.record(&text, &[]);
    let datagrams = capture.datagrams(41);
    // Datagrams from the receiver's port report its progress to the sender.
    let (told, sent): (Vec<_>, Vec<_>) = datagrams.iter().partition(|(from, _)| *from == port);
    assert!(told.iter().all(|(_, bytes)| decode(bytes).flags == PROGRESS));
    let messages = sent.iter().map(|(_, bytes)| decode(bytes)).collect::<Vec<_>>();
    assert_eq!(messages.len() as u64, connection(&record, "f")["messages_sent"].as_u64().unwrap());
    assert!(messages.iter().all(|m| m.flags == CHECKED));
    let pieces: BTreeMap<u64, &[u8]> = messages.iter().map(|m| (m.sequence, &m.payload[..])).collect();
    assert!(pieces.into_values().collect::<Vec<_>>().concat() == data);
}
