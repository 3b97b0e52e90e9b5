//! Capture files: what is written is read again, what others write is read, and what is damaged is no panic.

mod support;

use std::io::Cursor;

use proptest::prelude::*;
use support::{captured, ethernet, llc};
use trunkline_capture::monitor::{Config, Limits};
use trunkline_capture::packet::{Captured, Link};
use trunkline_capture::source::{CaptureFile, Looked, NoSource};
use trunkline_capture::{Monitor, Source};
use trunkline_llc::wire::Kind;

/// Reads a file to its end.
fn read(bytes: Vec<u8>) -> Result<Monitor, String> {
    let limits = Limits { trace: 10_000, ..Limits::default() };
    let mut monitor = Monitor::new(Config { limits, ..Config::default() });
    let mut file = CaptureFile::read("test", Cursor::new(bytes)).map_err(|e| e.to_string())?;
    while file.look(&mut monitor, 100).map_err(|e| e.to_string())? != Looked::End {}
    Ok(monitor)
}

/// Words of 32 bits, in one byte order or the other.
fn words(big: bool, words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| if big { w.to_be_bytes() } else { w.to_le_bytes() }).collect()
}

/// A pcap file of one packet at 5.000000007 or 5.000007 s.
fn pcap(big: bool, nanoseconds: bool, packet: &[u8]) -> Vec<u8> {
    let magic = if nanoseconds { 0xA1B2_3C4D } else { 0xA1B2_C3D4 };
    let version = if big { 2 << 16 | 4 } else { 4 << 16 | 2 };
    let length = packet.len() as u32;
    [words(big, &[magic, version, 0, 0, 65_535, 1, 5, 7, length, length]), packet.to_vec()].concat()
}

/// A pcapng file of one packet, stamped 5,000,007 in units of `resolution`.
fn pcapng(big: bool, resolution: Option<u8>, packet: &[u8]) -> Vec<u8> {
    let option = |value: u8| {
        let head = if big { [0, 9, 0, 1] } else { [9, 0, 1, 0] };
        [head, [value, 0, 0, 0], [0; 4]].concat()
    };
    let options = resolution.map(option).unwrap_or_default();
    let link = if big { 1 << 16 } else { 1 };
    let section =
        words(big, &[0x0A0D_0D0A, 28, 0x1A2B_3C4D, if big { 1 << 16 } else { 1 }, u32::MAX, u32::MAX, 28]);
    let size = 20 + options.len() as u32;
    let interface = [words(big, &[1, size, link, 65_535]), options, words(big, &[size])].concat();
    let length = packet.len() as u32;
    let padded = packet.len().next_multiple_of(4);
    let size = 32 + padded as u32;
    let mut content = packet.to_vec();
    content.resize(padded, 0);
    let block =
        [words(big, &[6, size, 0, 0, 5_000_007, length, length]), content, words(big, &[size])].concat();
    [section, interface, block].concat()
}

#[test]
fn files_of_others_are_read_with_their_times() {
    let packet = ethernet(1, 2, None, 0x88B5, &[9; 47]);
    let mut files = Vec::new();
    for big in [false, true] {
        files.push((pcap(big, true, &packet), 5_000_000_007));
        files.push((pcap(big, false, &packet), 5_000_007_000));
        files.push((pcapng(big, None, &packet), 5_000_007_000));
        files.push((pcapng(big, Some(9), &packet), 5_000_007));
        files.push((pcapng(big, Some(3), &packet), 5_000_007_000_000));
        files.push((pcapng(big, Some(0x80 | 10), &packet), 5_000_007u64 * 1_000_000_000 / 1024));
    }
    for (n, (file, at_ns)) in files.into_iter().enumerate() {
        let monitor = read(file).unwrap_or_else(|e| panic!("file {n}: {e}"));
        let events: Vec<_> = monitor.trace().events().collect();
        assert_eq!(events.len(), 1, "file {n}");
        assert_eq!((events[0].at_ns, &events[0].bytes, events[0].original), (at_ns, &packet, 61), "file {n}");
    }
}

#[test]
fn what_the_trace_writes_is_read_again() {
    let mut monitor = Monitor::new(Config::default());
    let ip = [&[0x45, 0, 0, 20, 0, 0, 0, 0, 64, 1, 0, 0][..], &[10, 0, 0, 1], &[10, 0, 0, 2]].concat();
    for n in 0..20u64 {
        let frame = llc((1, 4), (2, 6), 3, Kind::Ac(n % 2 == 1), false, &vec![n as u8; n as usize * 200]);
        let mut whole = captured(1_700_000_000_123_456_789 + n, &frame);
        whole.original += n as u32;
        monitor.add(&whole);
        let bare = Captured { link: Link::Ip, bytes: &ip, original: 20, ..whole };
        monitor.add(&bare);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pcapng");
    assert_eq!(monitor.trace().write(&path).unwrap(), 40);
    let again = read(std::fs::read(&path).unwrap()).unwrap();
    assert!(again.trace().events().eq(monitor.trace().events()));
    assert_eq!(again.load().total(), monitor.load().total());
    let refused = monitor.trace().write(&path).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::AlreadyExists, "nothing is overwritten");
}

#[test]
fn an_invalid_source_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let why = |name: &str| Source::open(name, 0).unwrap_err();
    assert!(matches!(why("no-such-thing"), NoSource::Unknown(_)));
    assert!(matches!(why(&path("")), NoSource::NoCapture(_)));
    std::fs::write(path("text"), "connection a {}").unwrap();
    assert_eq!(why(&path("text")).to_string(), format!("{}: neither pcap nor pcapng", path("text")));
    std::fs::write(path("short"), "a").unwrap();
    assert_eq!(why(&path("short")).to_string(), format!("{}: neither pcap nor pcapng", path("short")));
    let packet = ethernet(1, 2, None, 0x88B5, &[]);
    std::fs::write(path("b.pcap"), pcap(false, true, &packet)).unwrap();
    assert_eq!(Source::open(&path(""), 0).unwrap().name(), path("b.pcap"));
    std::fs::write(path("record.json"), "{}").unwrap();
    assert_eq!(Source::open(&path("record.json"), 0).unwrap().name(), path("b.pcap"));
    std::fs::write(path("a.pcapng"), pcapng(false, None, &packet)).unwrap();
    assert!(why(&path("")).to_string().ends_with("name one of a.pcapng, b.pcap"));
    let mut wlan = pcap(false, true, &packet);
    wlan[20] = 105;
    std::fs::write(path("wlan.pcap"), wlan).unwrap();
    assert!(matches!(why(&path("wlan.pcap")), NoSource::Link { .. }));
}

proptest! {
    #[test]
    fn a_damaged_file_is_an_error_or_less(
        kind in 0usize..4,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let packet = ethernet(1, 2, None, 0x88B5, &[9; 47]);
        let mut file = match kind {
            0 => pcap(false, true, &packet),
            1 => pcap(true, false, &packet),
            2 => pcapng(false, Some(9), &packet),
            _ => pcapng(true, None, &packet),
        };
        let more = file[file.len() - 80..].to_vec();
        file.extend(more);
        for (at, octet) in damage {
            let at = at.index(file.len());
            file[at] = octet;
        }
        if cuts {
            file.truncate(cut.index(file.len()));
        }
        let _ = read(file);
    }
}
