//! Recorded DIS through the converter, at its own pace and faster (`converter/replay.py`), and what dis-rs makes of what
//! arrives: a decoder that has nothing of ours.

#![allow(clippy::disallowed_methods, reason = "these tests watch programs that run in real time")]

use std::fs;
use std::io::Write;
use std::process::Command;

use crate::command::{TestDir, can, repository};
use dis_rs::comment::model::Comment;
use dis_rs::entity_state::model::EntityState;
use dis_rs::model::{EntityId, Location, Pdu, PduBody, PduHeader};
use dis_rs::{BodyInfo, BodyRaw};

const REPLAY: &str = "crates/trunkline/tests/converter/replay.py";
const RECORDING: &str = "../shared/data/dis/ground-vehicles.pcap";
/// The type of the wide format's own PDUs.
const OURS: u8 = 244;
/// Environmental Process: dis-rs has no words for its body, and gives it over as octets.
const UNKNOWN: u8 = 41;

/// The recording, if it lies beside the project; otherwise one that dis-rs has written.
fn recording() -> Vec<u8> {
    fs::read(repository(RECORDING)).unwrap_or_else(|_| written())
}

/// Entity States and Comments, 30 ms from each other, as a capture of nanoseconds.
fn written() -> Vec<u8> {
    let mut file = [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65_535, 1].map(u32::to_le_bytes).concat();
    for number in 0..400 {
        let pdu = one(number);
        let udp = pdu.len() as u16 + 8;
        let frame = [
            &[1, 0, 94, 1, 2, 3, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0][..],
            &(udp + 20).to_be_bytes(),
            &[0, 0, 0, 0, 1, 17, 0, 0, 10, 0, 0, 1, 239, 1, 2, 3],
            &[3_000_u16.to_be_bytes(), 3_000_u16.to_be_bytes(), udp.to_be_bytes(), [0; 2]].concat(),
            &pdu,
        ]
        .concat();
        let (at, length) = (u32::from(number) * 30, frame.len() as u32);
        let head = [at / 1_000, at % 1_000 * 1_000_000, length, length];
        file.extend(head.map(u32::to_le_bytes).concat());
        file.extend(frame);
    }
    file
}

fn one(number: u16) -> Vec<u8> {
    let id = EntityId::new(1, 2, number % 7);
    let body = match number % 5 {
        0 => Comment::builder().with_origination_id(id).build().into_pdu_body(),
        _ => {
            let at = Location::new(f64::from(number), 2.0, 3.0);
            EntityState::builder().with_entity_id(id).with_location(at).build().into_pdu_body()
        }
    };
    let pdu = Pdu::finalize_from_parts(PduHeader::new_v7(1, body.body_type()), body, u32::from(number));
    let mut bytes = bytes::BytesMut::with_capacity(1_024);
    pdu.serialize(&mut bytes).unwrap();
    bytes.to_vec()
}

/// How a client ends that cannot tell (`EX_TEMPFAIL`).
const STOOD_STILL: i32 = 75;

/// Runs a check; where it left what arrived.
fn check(name: &str) -> Option<TestDir> {
    if !can(&["python3", "--version"]) {
        return None;
    }
    let dir = TestDir::new();
    dir.write("recording", recording());
    let mut command = Command::new("python3");
    command.arg(repository(REPLAY)).arg(env!("CARGO_BIN_EXE_trunkline")).arg(name);
    command.env("CAPTURE", dir.path("recording")).current_dir(dir.path(""));
    // It ends by itself, though the whole recording takes six minutes.
    let ended = command.output().unwrap();
    let (said, trouble) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    if ended.status.code() == Some(STOOD_STILL) {
        // Also where what tests print is kept.
        let _ = writeln!(std::io::stderr(), "skipped: {trouble}");
        return None;
    }
    assert_eq!(said, format!("ok {name}\n"), "{trouble}");
    Some(dir)
}

/// Reads the datagrams that a check recorded.
fn recorded_datagrams(dir: &TestDir, name: &str) -> Vec<Vec<u8>> {
    let bytes = fs::read(dir.path(name)).unwrap();
    let mut rest = &bytes[..];
    let mut found = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk() {
        let (datagram, behind) = behind.split_at(u32::from_be_bytes(*length) as usize);
        found.push(datagram.to_vec());
        rest = behind;
    }
    found
}

fn length(bytes: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([bytes[8], bytes[9]]))
}

/// dis-rs reads a PDU as the one that its header says.
fn reads(bytes: &[u8]) -> PduBody {
    let pdus = dis_rs::parse(bytes).unwrap_or_else(|e| panic!("{e}: {bytes:02x?}"));
    let [pdu] = &pdus[..] else { panic!("{} PDUs in {bytes:02x?}", pdus.len()) };
    assert_eq!(u8::from(pdu.header.pdu_type), bytes[2]);
    assert_eq!(usize::from(pdu.header.pdu_length), bytes.len());
    assert_eq!(matches!(pdu.body, PduBody::Other(_)), bytes[2] == UNKNOWN, "{:?}", pdu.header);
    pdu.body.clone()
}

/// dis-rs reads every PDU that a program got.
fn assert_read(dir: &TestDir) {
    let pdus = recorded_datagrams(dir, "pdus");
    assert!(pdus.len() > 50);
    pdus.iter().for_each(|pdu| drop(reads(pdu)));
}

#[test]
fn a_recording_arrives_and_another_decoder_reads_it_classic() {
    if let Some(dir) = check("replayed_classic") {
        assert_read(&dir);
    }
}

#[test]
fn a_recording_arrives_and_another_decoder_reads_it_and_the_bundles_wide() {
    let Some(dir) = check("replayed_wide") else { return };
    assert_read(&dir);
    let bundles = recorded_datagrams(&dir, "bundles");
    let mut carried = 0;
    for bundle in &bundles {
        let pdus = dis_rs::parse(bundle).unwrap_or_else(|e| panic!("{e}: {bundle:02x?}"));
        let mut rest = &bundle[..];
        for (at, pdu) in pdus.iter().enumerate() {
            let (bytes, behind) = rest.split_at(length(rest));
            rest = behind;
            // Ours is one of an unknown type, which it gives over as octets.
            assert_eq!(u8::from(pdu.header.pdu_type) == OURS, at == 0, "{:?}", pdu.header);
            match at {
                0 => assert!(matches!(&pdu.body, PduBody::Other(_)), "{:?}", pdu.body),
                _ => {
                    assert_eq!(pdu.body, reads(bytes));
                    carried += 1;
                }
            }
        }
        assert!(rest.is_empty(), "{} octets are left of {}", rest.len(), bundle.len());
    }
    assert!(carried > recorded_datagrams(&dir, "pdus").len() / 2, "{carried} in {} bundles", bundles.len());
}

#[test]
fn a_part_at_its_own_pace_classic() {
    check("a_part_at_its_own_pace_classic");
}

#[test]
fn a_part_at_its_own_pace_wide() {
    check("a_part_at_its_own_pace_wide");
}

#[cfg(feature = "soak")]
#[test]
fn all_at_its_own_pace_classic() {
    check("all_at_its_own_pace_classic");
}

#[cfg(feature = "soak")]
#[test]
fn all_at_its_own_pace_wide() {
    check("all_at_its_own_pace_wide");
}

#[test]
fn no_check_is_left_out() {
    let checks = fs::read_to_string(repository(REPLAY)).unwrap();
    let here = fs::read_to_string(repository("crates/trunkline/tests/converter_replay.rs")).unwrap();
    let mut names = checks.lines().filter_map(|line| line.strip_prefix("def check_")?.strip_suffix("():"));
    assert!(names.all(|name| here.contains(&format!("check(\"{name}\")"))));
}

/// A capture of these frames.
fn capture(link: u32, frames: &[&[u8]]) -> Vec<u8> {
    let mut file = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, link].map(u32::to_le_bytes).concat();
    for frame in frames {
        file.extend([0, 0, frame.len() as u32, frame.len() as u32].map(u32::to_le_bytes).concat());
        file.extend(*frame);
    }
    file
}

#[test]
fn an_invalid_capture_is_an_error_of_one_line() {
    let dir = TestDir::new();
    dir.write("text", "a text that is longer than the header of a capture");
    dir.write("short", [0xd4, 0xc3, 0xb2, 0xa1]);
    dir.write("new.pcapng", [0x0A, 0x0D, 0x0D, 0x0A, 0, 0, 0, 0]);
    dir.write("others", capture(1, &[&[], &[0; 60]]));
    dir.write("radio", capture(127, &[]));
    let whole = recording();
    dir.write("cut", &whole[..whole.len() - 1]);
    for (name, line) in [
        ("nowhere", "nowhere: No such file"),
        ("text", "text: not a capture: "),
        ("short", "short: the file is truncated"),
        ("new.pcapng", "new.pcapng: pcapng is not supported; convert it with `editcap -F nsecpcap`"),
        ("radio", "radio: unsupported link type IEEE802_11_RADIOTAP: neither Ethernet nor IP"),
        ("cut", "cut: the file is truncated"),
        ("others", "others: none of the 2 packets is a datagram to port 3000 (--port)"),
    ] {
        let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = nobody.local_addr().unwrap().to_string();
        dir.execute(&["converter", "replay", name, "--to", &to, "--speed", "1000000"]).assert_line(2, line);
    }
    assert_eq!(dir.execute(&["converter", "replay", "cut", "--speed", "0"]).status, 2);
}

#[test]
fn what_is_no_datagram_of_dis_is_passed_over() {
    let dir = TestDir::new();
    let whole = recording();
    let length = u32::from_le_bytes(whole[32..36].try_into().unwrap()) as usize;
    let frame = &whole[40..40 + length];
    let mut elsewhere = frame.to_vec();
    elsewhere[37] ^= 1;
    let mut part = frame.to_vec();
    part[20] = 0x20;
    dir.write("mixed", capture(1, &[frame, &elsewhere, &part, &frame[..30], &[], &[0; 60], frame]));
    let hears = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    hears.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    let to = hears.local_addr().unwrap().to_string();
    let ended = dir.execute(&["converter", "replay", "mixed", "--to", &to]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    assert!(ended.out.starts_with(&format!("sent 2 datagrams to {to} in ")), "{}", ended.out);
    assert!(ended.out.ends_with(" s, skipped 5 packets\n"), "{}", ended.out);
    let mut buffer = [0; 65_536];
    for _ in 0..2 {
        let length = hears.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..length], frame[42..]);
    }
}
