//! Bundles of both formats as Wireshark reads them with our dissector: those of daemons, and the same damaged, against what
//! the converter reads.

#![allow(clippy::disallowed_methods, reason = "these tests watch programs that run in real time")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::{TestDir, can, repository};
use trunkline_bundle::wire::classic;
use trunkline_bundle::wire::format2::{self, is_pdu};

const DISSECTOR: &str = "wireshark/trunkline-bundle.lua";
const SEED: u64 = 1997;

/// Daemons and two hosts on the loopback of a namespace: first with a workload, then between programs of DIS. What they say is
/// in `all.pcap`. `$1` is the command, `$2` the format, `$3` how the second host listens, `$4` where bundles for hosts go, `$5`
/// how the workload is sent.
const SCENE: &str = r#"
trunkline="$1"
ip link set lo up
jobs=
trap 'kill $jobs 2>/dev/null || true; wait' EXIT
# Waits until a file says something.
says() { for _ in $(seq 1000); do grep -q "$2" "$1" 2>/dev/null && return; sleep 0.02; done; cat "$1"; exit 9; }
dumpcap -q -P -i lo -w all.pcap 2>capture >/dev/null & capturing=$!; jobs="$jobs $!"
says capture File:
start() { out="$1"; shift; "$trunkline" converter "$@" >"$out" & jobs="$jobs $!"; says "$out" ' on '; }
start level1 level1 --format $2
start central central --format $2 --status 127.0.0.1:9000 $4
# Waits until the central converter says that host 1 wants so many addresses.
wanted() {
    python3 -c '
import sys, time, urllib.request
page = lambda: urllib.request.urlopen("http://127.0.0.1:9000/metrics").read().decode()
while sys.argv[1] not in page(): time.sleep(0.02)
' "trunkline_converter_wanted{host=\"1\"} $1"
}
start one host --format $2 --number 1 --join 0-63; one=$!
wanted 64
"$trunkline" converter host --format $2 --number 2 $3 --send 0-63,5000 --rate 300 --size 30-90 --time 1s $5 >/dev/null
kill -INT $one; wait $one
start one host --format $2 --number 1 --dis 127.0.0.1:3000 --dis-to 127.0.0.1:3002 --timers processor --status 127.0.0.1:9001
start two host --format $2 --number 2 $3 --dis 127.0.0.1:3001 --timers processor
wanted 1
python3 - <<'END'
import re, socket, struct, time, urllib.request

def arrived():
    page = urllib.request.urlopen("http://127.0.0.1:9001/metrics").read().decode()
    return int(re.search(r'^trunkline_converter_pdus_total{way="to_programs"} (\d+)', page, re.M)[1])

says, n = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0
# 79 PDUs, and more where some are lost.
while n < 40 or arrived() < 79:
    # An Entity State; every fifth claims articulations that are not there.
    entity = struct.pack(">HHHBB", 7, 8, n, 1, 0 if n % 5 else 9) + bytes([1, 1, 0, 225, 1, 1, 0, 0]) * 2
    where = bytes(12) + struct.pack(">ddd", -2.7e6 + n, -4.3e6, 3.8e6)
    body = (entity + where).ljust(132, b"\0")
    data = struct.pack(">BBBBIHH", 6, 9, 1, 1, n << 1, 12 + len(body), 0) + body
    says.sendto(data * (1 + n % 3), ("127.0.0.1", 3001))
    n += 1
    time.sleep(0.005)
END
# What a capture has of the last octets it writes a little later.
sleep 0.5
kill -INT $capturing; wait $capturing || true
"#;

/// A datagram of a capture: the frame before its payload, ports, payload.
struct Datagram {
    frame: Vec<u8>,
    from: u16,
    to: u16,
    payload: Vec<u8>,
}

/// Octets before a payload: of a record of pcap, and of Ethernet, IPv4 and UDP.
const RECORD: usize = 16;
const HEADERS: usize = 14 + 20 + 8;

/// The datagrams that the daemons said, of a capture in pcap's own format.
fn read_capture(file: &Path) -> Vec<Datagram> {
    let bytes = fs::read(file).unwrap();
    assert_eq!(bytes[..4], 0xa1b2_c3d4_u32.to_le_bytes());
    let (mut rest, mut found) = (&bytes[24..], Vec::new());
    while !rest.is_empty() {
        let octets = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        let (record, behind) = rest.split_at(RECORD + octets);
        rest = behind;
        let frame = &record[RECORD..];
        let is_udp = frame[12..14] == [8, 0] && frame[14 + 9] == 17 && frame.len() > HEADERS;
        let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let (from, to) = (port(34), port(36));
        if is_udp && [from, to].iter().any(|port| (3450..3460).contains(port)) {
            let (frame, payload) = (frame[..HEADERS].to_vec(), frame[HEADERS..].to_vec());
            found.push(Datagram { frame, from, to, payload });
        }
    }
    found
}

fn write_capture(file: &Path, datagrams: &[Datagram]) {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 1 << 18, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for Datagram { frame, payload, .. } in datagrams {
        let octets = (frame.len() + payload.len()) as u32;
        for word in [0, 0, octets, octets] {
            bytes.extend(word.to_le_bytes());
        }
        let mut frame = frame.clone();
        frame[16..18].copy_from_slice(&(28 + payload.len() as u16).to_be_bytes());
        frame[38..40].copy_from_slice(&(8 + payload.len() as u16).to_be_bytes());
        bytes.extend(frame);
        bytes.extend(payload);
    }
    fs::write(file, bytes).unwrap();
}

/// The content of a datagram: the addresses or groups of its messages and the number of DIS PDUs; `None` if it is not
/// a bundle.
type Decoded = Option<(Vec<u32>, usize)>;

fn read_wide(datagram: &Datagram) -> Decoded {
    let bundle = format2::Bundle::read(&datagram.payload).ok()?;
    let pdus = bundle.messages().filter(|message| is_pdu(message.body)).count();
    Some((bundle.messages().map(|message| message.address).collect(), pdus))
}

/// In the classic format the addresses of control as well.
fn read_classic(datagram: &Datagram) -> Decoded {
    let bytes = &datagram.payload[..];
    let messages: Vec<_> = match (datagram.from, datagram.to) {
        (_, 3456) => vec![classic::ClassicMessage::read(bytes)?],
        (_, 3450 | 3458) => classic::ClassicBundle::read_with_mask(bytes).ok()?.1.messages().collect(),
        _ => classic::ClassicBundle::read(bytes).ok()?.messages().collect(),
    };
    let to_hosts = datagram.from == 3458;
    let is_control = |message: &classic::ClassicMessage<'_>| match (datagram.to, to_hosts) {
        (3456, _) => false,
        (_, true) => message.octets() == classic::HOST_CONTROL,
        _ => message.octets() == classic::CONTROL,
    };
    let pdus = messages.iter().filter(|message| !is_control(message) && is_pdu(message.body)).count();
    Some((messages.into_iter().map(|message| message.address.into()).collect(), pdus))
}

/// What Wireshark says of each frame: a field's values by the frame's number.
struct Frames(BTreeMap<usize, Vec<String>>);

const FIELDS: [&str; 6] = [
    "tlbundle.format",
    "tlbundle.address",
    "tlbundle.group",
    "dis.pdu_type",
    "_ws.lua.error",
    "_ws.malformed",
];

fn tshark(file: &Path, filter: &str) -> Frames {
    let mut command = Command::new("tshark");
    command.args(["-X", &format!("lua_script:{}", repository(DISSECTOR).display()), "-n", "-Y", filter]);
    command.args(["-T", "fields", "-E", "separator=;", "-e", "frame.number", "-r"]).arg(file);
    command.args(FIELDS.iter().flat_map(|name| ["-e", name]));
    let output = command.output().expect(".ci/packages installs it");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let own: Vec<&str> = said.lines().filter(|line| !line.contains("Running as user \"root\"")).collect();
    assert!(output.status.success() && own.is_empty(), "{command:?}: {said}");
    let text = String::from_utf8(output.stdout).expect("text");
    let row = |line: &str| {
        let (number, fields) = line.split_once(';').expect("fields");
        (number.parse().expect("a number"), fields.split(';').map(str::to_owned).collect())
    };
    Frames(text.lines().map(row).collect())
}

fn numbers(list: &str) -> Vec<u32> {
    let one = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    list.split(',').filter(|text| !text.is_empty()).map(|text| one(text).expect("a number")).collect()
}

/// Wireshark finds in a capture what the converter does: each message, each PDU, and what is no bundle. How many are none.
fn compare(file: &Path, format: &str, expected: &[Decoded], is_damaged: bool) -> usize {
    let frames = tshark(file, "tlbundle");
    assert_eq!(frames.0.len(), expected.len(), "every datagram is known");
    let malformed = tshark(file, "tlbundle.malformed");
    for (at, said) in expected.iter().enumerate() {
        let [its, addresses, groups, pdus, error, _] = &frames.0[&(at + 1)][..] else { panic!("fields") };
        assert_eq!((its.as_str(), error.as_str()), (format, ""), "frame {}, seed {SEED}", at + 1);
        assert_eq!(malformed.0.contains_key(&(at + 1)), said.is_none(), "frame {}, seed {SEED}", at + 1);
        if let Some((all, of_dis)) = said {
            let found = if groups.is_empty() { addresses } else { groups };
            assert_eq!(&numbers(found), all, "frame {}, seed {SEED}", at + 1);
            // Wireshark rejects some complete PDUs: those of unknown versions and families.
            let known = pdus.split(',').filter(|one| !one.is_empty()).count();
            let right = if is_damaged { known <= *of_dis } else { known == *of_dis };
            assert!(right, "frame {}, seed {SEED}: {pdus:?} of {of_dis}, damaged: {is_damaged}", at + 1);
        }
    }
    malformed.0.len()
}

/// Splitmix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % most as u64) as usize
    }
}

/// Damages a payload behind its first octets, by which a bundle of the wide format is known.
fn damage(payload: &mut Vec<u8>, keep: usize, dice: &mut Dice) {
    match dice.below(8) {
        0 => payload.truncate(keep.max(1) + dice.below(payload.len() - keep)),
        1 => (0..=dice.below(16)).for_each(|_| payload.push(dice.below(256) as u8)),
        _ => {
            // Mostly where the lengths and counts are, at both ends.
            let span = payload.len() - keep;
            let near = dice.below(span.min(96));
            let at = match dice.below(3) {
                0 => keep + near,
                1 => payload.len() - 1 - near,
                _ => keep + dice.below(span),
            };
            payload[at] = [0, 1, 255, payload[at] ^ 1 << dice.below(8), dice.below(256) as u8][dice.below(5)];
        }
    }
}

fn check(format: &str, second: &str, to_hosts: &str, priority: &str, read: fn(&Datagram) -> Decoded) {
    let here =
        can(&["unshare", "-n", "true"]) && can(&["tshark", "--version"]) && can(&["dumpcap", "--version"]);
    if !here || !can(&["python3", "--version"]) {
        return;
    }
    let dir = TestDir::new();
    let ended = dir.end(dir.unshared("-n", SCENE, &[format, second, to_hosts, priority]));
    assert_eq!(ended.status, 0, "{}\n{}", ended.out, ended.err);
    let mut datagrams = read_capture(&dir.path("all.pcap"));
    let said: Vec<Decoded> = datagrams.iter().map(read).collect();
    let (messages, pdus) =
        said.iter().flatten().fold((0, 0), |(m, p), (all, pdus)| (m + all.len(), p + pdus));
    assert!(
        messages > 600 && pdus >= 3 * 79,
        "{messages} messages, {pdus} PDUs of {} datagrams",
        datagrams.len()
    );
    let file = dir.path("daemons.pcap");
    write_capture(&file, &datagrams);
    assert_eq!(compare(&file, format, &said, false), 0);
    // What daemons say has no fault, but the PDUs that claim what they have not, which are some programs'.
    assert_eq!(tshark(&file, "tlbundle && (tlbundle.bad_control || _ws.lua.error)").0.len(), 0);

    let (mut dice, keep) = (Dice(SEED), if format == "wide" { 14 } else { 0 });
    for datagram in &mut datagrams {
        damage(&mut datagram.payload, keep, &mut dice);
    }
    datagrams.retain(|datagram| !datagram.payload.is_empty());
    let said: Vec<Decoded> = datagrams.iter().map(read).collect();
    let file = dir.path("damaged.pcap");
    write_capture(&file, &datagrams);
    let malformed = compare(&file, format, &said, true);
    assert!(
        malformed > datagrams.len() / 10 && malformed < datagrams.len(),
        "{malformed} of {}",
        datagrams.len()
    );
}

#[test]
fn wireshark_reads_what_the_converter_reads_in_the_wide_format() {
    check("wide", "--listen 127.0.0.1:0", "", "--priority", read_wide);
}

#[test]
fn wireshark_reads_what_the_converter_reads_in_the_classic_format() {
    check("classic", "--listen 127.0.0.1:3460", "--hosts 127.0.0.1:3459,127.0.0.1:3460", "", read_classic);
}
