//! `trunkline converter replay`: sends the UDP payloads of a capture again, to DIS programs or a host's interface, at
//! the recorded pace or faster. Other packets are skipped and counted.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use etherparse::{SlicedPacket, TransportSlice};
use pcap_file::pcap::PcapReader;
use pcap_file::{DataLink, PcapError};
use trunkline_io::Clock;
use trunkline_units::Span;

use crate::failure::{Failure, print};
use crate::flags::converter::{DIS, Replay, loopback};

/// The first bytes of a pcapng file.
const PCAPNG: [u8; 4] = [0x0A, 0x0D, 0x0D, 0x0A];

/// Sends the datagrams of the capture.
pub fn replay(flags: &Replay) -> Result<(), Failure> {
    let name = flags.capture.display();
    let invalid = |reason: &dyn std::fmt::Display| Failure::input(format!("{name}: {reason}"));
    let mut capture = open(flags).map_err(|error| invalid(&error))?;
    let link = capture.header().datalink;
    if !matches!(link, DataLink::ETHERNET | DataLink::RAW | DataLink::IPV4 | DataLink::LINUX_SLL) {
        return Err(invalid(&format!("unsupported link type {link:?}: neither Ethernet nor IP")));
    }
    let (port, speed) = (flags.port.unwrap_or(DIS), flags.speed.unwrap_or(1));
    let to = flags.to.unwrap_or(loopback(DIS));
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(Failure::run)?;
    socket.set_broadcast(true).map_err(Failure::run)?;
    let (clock, mut first) = (Clock::start(), None);
    let (mut sent, mut others) = (0u64, 0u64);
    while let Some(packet) = capture.next_packet() {
        let packet = packet.map_err(|error| invalid(&describe(&error)))?;
        let Some(body) = datagram(link, &packet.data, port) else {
            others += 1;
            continue;
        };
        let since = packet.timestamp.saturating_sub(*first.get_or_insert(packet.timestamp));
        wait_until(clock, since / speed);
        socket.send_to(body, to).map_err(|e| Failure::run(format!("cannot send to {to}: {e}")))?;
        sent += 1;
    }
    if sent == 0 {
        let reason = format!("none of the {others} packets is a datagram to port {port} (--port)");
        return Err(invalid(&reason));
    }
    let took = clock.now().since(trunkline_units::Instant::ZERO).as_s();
    print(&format!("sent {sent} datagrams to {to} in {took:.1} s, skipped {others} packets\n"))
}

fn open(flags: &Replay) -> Result<PcapReader<BufReader<File>>, String> {
    let mut file = File::open(&flags.capture).map_err(|e| e.to_string())?;
    let mut begin = [0; 4];
    if file.read_exact(&mut begin).is_ok() && begin == PCAPNG {
        return Err("pcapng is not supported; convert it with `editcap -F nsecpcap`".into());
    }
    file.rewind().map_err(|e| e.to_string())?;
    PcapReader::new(BufReader::new(file)).map_err(|error| describe(&error))
}

/// Describes an error of a capture in one line.
fn describe(error: &PcapError) -> String {
    match error {
        PcapError::IncompleteBuffer => "the file is truncated".into(),
        PcapError::IoError(e) if e.kind() == ErrorKind::UnexpectedEof => "the file is truncated".into(),
        PcapError::IoError(e) => e.to_string(),
        _ => format!("not a capture: {error}"),
    }
}

/// Returns the payload of a complete datagram to a port.
fn datagram(link: DataLink, bytes: &[u8], port: u16) -> Option<&[u8]> {
    let packet = match link {
        DataLink::ETHERNET => SlicedPacket::from_ethernet(bytes),
        DataLink::LINUX_SLL => SlicedPacket::from_linux_sll(bytes),
        _ => SlicedPacket::from_ip(bytes),
    };
    match packet.ok()?.transport? {
        TransportSlice::Udp(udp) if udp.destination_port() == port => Some(udp.payload()),
        _ => None,
    }
}

/// Waits until this time after the start.
#[expect(clippy::disallowed_methods, reason = "the capture is replayed in real time")]
fn wait_until(clock: Clock, since: Duration) {
    let due = Span::from_ns(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX / 1_000));
    let passed = clock.now().since(trunkline_units::Instant::ZERO);
    if due > passed {
        std::thread::sleep(Duration::from_nanos(due.as_ns() - passed.as_ns()));
    }
}
