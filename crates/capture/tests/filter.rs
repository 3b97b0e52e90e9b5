//! Filters against libpcap, where both speak the same language; and our own words against what packets are.

mod support;

use std::io::Write;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config as Runs, RngAlgorithm, TestRng, TestRunner};
use support::{captured, control, ethernet, ipv4, llc};
use trunkline_capture::Filter;
use trunkline_capture::packet::Packet;
use trunkline_io::must::skip;
use trunkline_llc::token::frame::{Control, Key, Token};
use trunkline_llc::wire::Kind;

/// Whether a filter passes each of these frames.
fn passes(filter: &str, frames: &[Vec<u8>]) -> String {
    let filter: Filter = filter.parse().unwrap_or_else(|e| panic!("{filter}: {e}"));
    let one = |frame: &Vec<u8>| filter.matches(&Packet::read(&captured(0, frame), None));
    frames.iter().map(|frame| if one(frame) { '1' } else { '0' }).collect()
}

/// An IPv6 packet.
fn ipv6(from: u8, to: u8, protocol: u8, ports: (u16, u16)) -> Vec<u8> {
    let inner = ipv4([0; 4].into(), [0; 4].into(), protocol, ports, &[0; 20]);
    let content = &inner[20..];
    let address = |n| [&[0xFE, 0x80][..], &[0; 13], &[n]].concat();
    let length = (content.len() as u16).to_be_bytes();
    [&[0x60, 0, 0, 0, length[0], length[1], protocol, 64], &address(from)[..], &address(to), content].concat()
}

/// One of few addresses and ports, so that filters find them.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let small = 1u8..4;
    let port = prop_oneof![Just(80u16), Just(443), Just(53), 1000u16..1004];
    let protocol = prop_oneof![Just(6u8), Just(17), Just(1), Just(2), Just(58), Just(132), any::<u8>()];
    (small.clone(), small, (port.clone(), port), protocol, 0usize..9, 0usize..200).prop_map(
        |(a, b, ports, protocol, shape, size)| {
            let v4 =
                |net: u8| ipv4([10, net, 0, a].into(), [10, 1, 0, b].into(), protocol, ports, &vec![0; size]);
            match shape {
                0..3 => ethernet(a, b, None, 0x0800, &v4(a)),
                3 => ethernet(a, b, None, 0x86DD, &ipv6(a, b, protocol, ports)),
                4 => {
                    let mut fragment = v4(1);
                    // The first fragment, or a later one.
                    fragment[6] = 0x20;
                    fragment[7] = if size % 2 == 0 { 0 } else { 9 };
                    ethernet(a, b, None, 0x0800, &fragment)
                }
                5 => {
                    let head = [0, 1, 8, 0, 6, 4, 0, 1];
                    let arp = [&head[..], &[2, 0, 0, 0, 0, a, 10, 1, 0, a], &[0, 0, 0, 0, 0, 0, 10, 1, 0, b]]
                        .concat();
                    ethernet(a, 255, None, 0x0806, &arp)
                }
                6 => ethernet(a, if size % 3 == 0 { 255 } else { b }, None, 0x88B5, &vec![0; size]),
                7 => {
                    let mut group = v4(2);
                    group[16] = 224 + (size % 16) as u8;
                    let mut bytes = ethernet(a, b, None, 0x0800, &group);
                    bytes[0] = 1;
                    bytes
                }
                _ => {
                    let mut bytes = llc((a, 4), (b, 6), 0, Kind::Ui, false, &vec![0; size]);
                    bytes.drain(12..16); // without its tag
                    bytes
                }
            }
        },
    )
}

/// A filter that both languages have.
fn filter() -> impl Strategy<Value = String> {
    let primitive = prop_oneof![
        (0usize..3, 1u8..4, 1u8..3).prop_map(|(side, net, n)| format!("{}host 10.{net}.0.{n}", SIDES[side])),
        (0usize..5, 1u8..4)
            .prop_map(|(side, n)| format!("{} host fe80::{n}", ["ip6", "src", "dst", "", "ip6 dst"][side])),
        (0usize..3, 1u8..4).prop_map(|(side, net)| format!("{}net 10.{net}", SIDES[side])),
        (0usize..3, 24u8..32).prop_map(|(side, bits)| format!("{}net 10.1.0.0/{bits}", SIDES[side])),
        (0usize..4, 0usize..3, prop_oneof![Just(80u16), Just(53), 1000u16..1004])
            .prop_map(|(over, side, port)| format!("{}{}port {port}", OVER[over], SIDES[side])),
        (0usize..4, 1000u16..1003).prop_map(|(over, low)| format!("{}portrange {low}-1002", OVER[over])),
        (0usize..3, 1u8..4).prop_map(|(side, n)| format!("ether {}host 02:00:00:00:00:0{n}", SIDES[side])),
        (0u8..4).prop_map(|n| format!("ip proto {}", [6, 17, 1, 99][usize::from(n)])),
        (0u8..3).prop_map(|n| format!("ip6 proto {}", [6, 17, 58][usize::from(n)])),
        (0usize..WORDS.len()).prop_map(|n| WORDS[n].to_owned()),
        (50u32..200).prop_map(|n| format!("less {n}")),
        (50u32..200).prop_map(|n| format!("greater {n}")),
        Just("port 80 or 443".to_owned()),
        Just("src host 10.1.0.1 or 10.1.0.2 or dst 10.1.0.3".to_owned()),
        Just("host 10.1.0.1 and not (tcp or udp)".to_owned()),
        Just("src or dst port 80".to_owned()),
        Just("src and dst net 10.1.0.0/16".to_owned()),
    ];
    primitive.prop_recursive(3, 12, 3, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            pair.clone().prop_map(|(a, b)| format!("{a} and {b}")),
            pair.clone().prop_map(|(a, b)| format!("{a} or {b}")),
            pair.prop_map(|(a, b)| format!("({a}) && !({b})")),
            inner.prop_map(|a| format!("not {a}")),
        ]
    })
}

const SIDES: [&str; 3] = ["", "src ", "dst "];
const OVER: [&str; 4] = ["", "tcp ", "udp ", "sctp "];
const WORDS: [&str; 14] = [
    "ip",
    "ip6",
    "arp",
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "igmp",
    "broadcast",
    "multicast",
    "ether multicast",
    "ip multicast",
    "ether proto 0x88b5",
    "llc",
];

/// The frames as a pcap file.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xA1B2_C3D4u32, 4 << 16 | 2, 0, 0, 65_535, 1] {
        file.extend(word.to_ne_bytes());
    }
    for frame in frames {
        for word in [0, 0, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_ne_bytes());
        }
        file.extend(frame);
    }
    file
}

#[test]
fn it_passes_what_libpcap_passes() {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[19; 32]);
    let mut runner = TestRunner::new_with_rng(Runs::default(), rng);
    let frames: Vec<Vec<u8>> = (0..300).map(|_| frame().new_tree(&mut runner).unwrap().current()).collect();
    let filters: Vec<String> = (0..400).map(|_| filter().new_tree(&mut runner).unwrap().current()).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("frames.pcap");
    std::fs::write(&file, capture(&frames)).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pcap_says.py");
    let mut command = Command::new("python3");
    command.arg(script).arg(&file).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut python) = command.spawn() else {
        return skip("no python3");
    };
    let mut asked = python.stdin.take().unwrap();
    asked.write_all((filters.join("\n") + "\n").as_bytes()).unwrap();
    drop(asked);
    let output = python.wait_with_output().unwrap();
    if output.status.code() == Some(77) {
        return skip("no libpcap");
    }
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).unwrap();
    let mut judged = 0;
    for (filter, said) in filters.iter().zip(said.lines()) {
        assert!(!said.starts_with("error"), "{filter}: {said}");
        // It refuses what can never be, such as `tcp and arp`; ours passes nothing then.
        let ours = passes(filter, &frames);
        let want = if said == "refused" { "0".repeat(frames.len()) } else { said.to_owned() };
        assert_eq!(ours, want, "{filter}");
        judged += usize::from(said.contains('1') && said.contains('0'));
    }
    assert_eq!(said.lines().count(), filters.len());
    assert!(judged > 200, "only {judged} filters separate packets");
}

#[test]
fn words_of_our_own() {
    let frames = [
        llc((1, 4), (2, 6), 5, Kind::Ui, false, &[0; 10]),
        llc((2, 6), (1, 4), 5, Kind::Ac(false), true, &[0; 10]),
        llc((3, 8), (255, 255), 0, Kind::Xid, false, &[0; 3]),
        ethernet(1, 9, Some(2), 0x88B5, &[0; 50]),
        ethernet(1, 9, None, 0x0800, &ipv4([1; 4].into(), [2; 4].into(), 17, (1, 2), &[])),
    ];
    for (filter, want) in [
        ("llc", "11100"),
        ("llc ui", "10000"),
        ("llc ac", "01000"),
        ("llc ac0", "01000"),
        ("llc ac1", "00000"),
        ("llc response", "01000"),
        ("llc xid or llc test", "00100"),
        ("sap 4", "11000"),
        ("src sap 4", "10000"),
        ("dst sap 255", "00100"),
        ("sap 4 or 8", "11100"),
        ("station 1", "11011"),
        ("dst station 1", "01000"),
        ("src and dst station 1", "00000"),
        ("station 255", "00100"),
        ("priority 5", "11000"),
        ("priority 0", "00100"),
        ("priority 2", "00010"),
        ("vlan", "11110"),
        ("vlan 0", "11110"),
        ("vlan 7", "00000"),
        ("not llc and station 9", "00011"),
        ("token", "00000"),
    ] {
        assert_eq!(passes(filter, &frames), want, "{filter}");
    }
    let key = Key { generation: 1, owner: 1, sequence: 1 };
    let pass = Control::Token { token: Token { key, members: [1, 2].into_iter().collect() }, to: 2 };
    assert_eq!(passes("token", &[control(1, 255, pass), control(2, 1, Control::Join)]), "11");
}

proptest! {
    #[test]
    fn no_text_is_a_panic(text in "[ -~]{0,60}", words in proptest::collection::vec(0usize..24, 0..12)) {
        const ANY: [&str; 24] = [
            "tcp", "src", "dst", "or", "and", "not", "(", ")", "host", "net", "port", "10.0.0.1", "80", "ether", "proto",
            "vlan", "sap", "llc", "ui", "::", "1-2", "10.1/99", "0x", "portrange",
        ];
        let text = if words.is_empty() { text } else { words.iter().map(|n| ANY[*n]).collect::<Vec<_>>().join(" ") };
        if let Err(bad) = text.parse::<Filter>() {
            let line = bad.to_string();
            prop_assert!(line.starts_with("filter: ") && !line.contains('\n'), "{}", line);
        }
    }
}
