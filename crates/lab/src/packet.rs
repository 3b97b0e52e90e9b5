//! IP packets of real kernels and Ethernet frames of LLC stations as frames of the media.

use std::hash::Hasher as _;
use std::net::IpAddr;

use siphasher::sip::SipHasher13;
use trunkline_endpoint::{Destination, Ecn, Frame};
use trunkline_models::atm::{CellFrame, Train, cell::CELL};

/// Bytes of an IPv4 header without options, and offsets in it (RFC 791 section 3.1).
const IPV4_HEADER: usize = 20;
const TRAFFIC_CLASS: usize = 1;
const FRAGMENT: usize = 6;
const PROTOCOL: usize = 9;
const CHECKSUM: usize = 10;
const IPV4_SOURCE: usize = 12;
const IPV4_DESTINATION: usize = 16;
/// Bits of the fragment offset.
const FRAGMENT_OFFSET: u16 = 0x1fff;
/// Bytes of an IPv6 header without extensions, and offsets in it (RFC 8200 section 3).
const IPV6_HEADER: usize = 40;
const NEXT_HEADER: usize = 6;
const IPV6_SOURCE: usize = 8;
const IPV6_DESTINATION: usize = 24;
/// Bytes of a hop-by-hop header with the option that reports of groups have (RFC 2711).
const ROUTER_ALERT: usize = 8;
/// Types of IGMP messages that report groups, of all versions (RFC 3376 section 4), and of ICMPv6 (RFC 3810 section 5.2, RFC 2710
/// section 3).
const IGMP_REPORTS: [u8; 4] = [0x12, 0x16, 0x17, 0x22];
const MLD_REPORTS: [u8; 3] = [131, 132, 143];

fn is_ipv6(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|byte| byte >> 4 == 6)
}

/// Returns the source address of an IP packet; `None` for anything else.
pub fn source_address(bytes: &[u8]) -> Option<IpAddr> {
    address(bytes, IPV4_SOURCE, IPV6_SOURCE)
}

/// Returns the destination address of an IP packet; `None` for anything else.
pub fn destination_address(bytes: &[u8]) -> Option<IpAddr> {
    address(bytes, IPV4_DESTINATION, IPV6_DESTINATION)
}

fn address(bytes: &[u8], in_ipv4: usize, in_ipv6: usize) -> Option<IpAddr> {
    match bytes.first()? >> 4 {
        4 => Some(IpAddr::from(*bytes.get(in_ipv4..)?.first_chunk::<4>()?)),
        6 => Some(IpAddr::from(*bytes.get(in_ipv6..)?.first_chunk::<16>()?)),
        _ => None,
    }
}

/// Octets of an Ethernet header: destination, source, length or type.
const ETHERNET: usize = 14;
/// The type of an IEEE 802.1Q tag, which precedes the length.
const TAG: [u8; 2] = [0x81, 0x00];

/// Returns the destination of an Ethernet frame between LLC stations, whose hosts have these numbers, in the order of the
/// stations; `None` for any other frame.
pub fn station_destination(bytes: &[u8], hosts: &[u32]) -> Option<Destination> {
    match *bytes.first_chunk::<6>()? {
        [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => Some(Destination::All),
        [2, 0, 0, 0, 0, station] => {
            hosts.get(usize::from(station).checked_sub(1)?).copied().map(Destination::Station)
        }
        _ => None,
    }
}

/// Returns the length of an Ethernet frame of an LLC station on its medium, as in the simulator: on Ethernet a tag and the padded
/// PDU, on a ring the PDU.
pub fn station_frame_length(bytes: &[u8], on_ethernet: bool) -> u32 {
    let length = bytes.len().saturating_sub(ETHERNET) as u32;
    let length_at = if bytes.get(12..14) == Some(&TAG) { 16 } else { 12 };
    match bytes.get(length_at..length_at + 2) {
        Some(&[a, b]) if !on_ethernet => length.min(u16::from_be_bytes([a, b]).into()),
        _ => length,
    }
}

/// Returns whether a packet reports the groups of a host to multicast routers (IGMP, MLD).
pub fn is_group_report(bytes: &[u8]) -> bool {
    let has = |at: usize, value: i32| bytes.get(at).is_some_and(|byte| i32::from(*byte) == value);
    let has_kind = |at: usize, kinds: &[u8]| bytes.get(at).is_some_and(|kind| kinds.contains(kind));
    if is_ipv6(bytes) {
        has(NEXT_HEADER, libc::IPPROTO_HOPOPTS)
            && has(IPV6_HEADER, libc::IPPROTO_ICMPV6)
            && has_kind(IPV6_HEADER + ROUTER_ALERT, &MLD_REPORTS)
    } else {
        has(PROTOCOL, libc::IPPROTO_IGMP) && has_kind(ipv4_header(bytes), &IGMP_REPORTS)
    }
}

/// Returns the length of an IPv4 header with its options.
fn ipv4_header(bytes: &[u8]) -> usize {
    usize::from(bytes.first().map_or(0, |byte| byte & 0xf)) * 4
}

/// An IP packet, an Ethernet frame of an LLC station, a cell or a train of cells.
#[derive(Clone, Debug)]
pub struct Packet {
    /// `None` for a cell that is not the last of its packet.
    content: Option<Box<Content>>,
    length: u32,
    to: Destination,
    channel: u16,
    /// Index of the cell and number of cells of its packet.
    cell: Option<(u16, u16)>,
    serial: u32,
    is_damaged: bool,
    /// Whether the bytes are an Ethernet frame.
    is_ethernet: bool,
}

#[derive(Clone, Debug)]
struct Content {
    bytes: Vec<u8>,
    train: Option<Box<Train>>,
}

impl Packet {
    /// Creates a packet to a destination. `bytes` have a whole IP header; `serial` differs from that of packets before it.
    pub fn new(bytes: Vec<u8>, to: Destination, channel: u16, serial: u32) -> Packet {
        debug_assert!(destination_address(&bytes).is_some(), "only IP packets have a destination");
        let length = bytes.len() as u32;
        let content = Some(Box::new(Content { bytes, train: None }));
        Packet { content, length, to, channel, cell: None, serial, is_damaged: false, is_ethernet: false }
    }

    /// Creates a packet for the Ethernet frame of an LLC station, which has this length on its medium.
    pub fn ethernet(bytes: Vec<u8>, to: Destination, length: u32, serial: u32) -> Packet {
        let content = Some(Box::new(Content { bytes, train: None }));
        Packet { content, length, to, channel: 0, cell: None, serial, is_damaged: false, is_ethernet: true }
    }

    /// Returns whether this is an Ethernet frame of an LLC station, and not an IP packet.
    pub fn is_ethernet(&self) -> bool {
        self.is_ethernet
    }

    /// Returns a copy of the bytes as they are now; `None` for a cell that is not the last of its packet.
    pub fn captured(&self) -> Option<Vec<u8>> {
        let content = self.content.as_ref()?;
        Packet { content: Some(Box::new(Content { bytes: content.bytes.clone(), train: None })), ..*self }
            .into_bytes()
    }

    /// Returns the bytes to deliver. Those of a damaged packet fail the checksum of its transport; a damaged Ethernet frame,
    /// whose FCS no interface checks here, is not delivered.
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        if self.is_damaged && self.is_ethernet {
            return None;
        }
        let mut bytes = self.content?.bytes;
        if self.is_damaged
            && let Some(last) = bytes.last_mut()
        {
            *last = !*last;
        }
        Some(bytes)
    }

    /// Returns the bytes of an IP packet; none of an Ethernet frame.
    fn bytes(&self) -> &[u8] {
        self.content.as_ref().filter(|_| !self.is_ethernet).map_or(&[], |content| &content.bytes)
    }
}

/// Returns the traffic class of an IP packet.
fn traffic_class(bytes: &[u8]) -> u8 {
    match bytes {
        [first, second, ..] if first >> 4 == 6 => first << 4 | second >> 4,
        [_, class, ..] => *class,
        _ => 0,
    }
}

/// Replaces the traffic class of an IP packet. That of IPv4 changes the header checksum (RFC 1624, equation 3).
fn set_traffic_class(bytes: &mut [u8], class: u8) {
    if is_ipv6(bytes) {
        bytes[0] = 6 << 4 | class >> 4;
        bytes[1] = class << 4 | bytes[1] & 0xf;
        return;
    }
    let word = |bytes: &[u8], at: usize| u32::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    let before = word(bytes, 0);
    bytes[TRAFFIC_CLASS] = class;
    let after = word(bytes, 0);
    let mut sum = (!word(bytes, CHECKSUM) & 0xffff) + (!before & 0xffff) + after;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    bytes[CHECKSUM..CHECKSUM + 2].copy_from_slice(&(!sum as u16).to_be_bytes());
}

impl Frame for Packet {
    fn length(&self) -> u32 {
        self.length
    }

    fn destination(&self) -> Destination {
        self.to
    }

    fn channel(&self) -> u16 {
        self.channel
    }

    /// A hash of addresses, protocol and ports; fragments, which have no ports, are flows by address.
    fn flow(&self) -> u64 {
        let bytes = self.bytes();
        let mut hasher = SipHasher13::new();
        let (addresses, protocol, ports) = match is_ipv6(bytes) {
            true => (IPV6_SOURCE..IPV6_HEADER, NEXT_HEADER, IPV6_HEADER),
            false => (IPV4_SOURCE..IPV4_HEADER, PROTOCOL, ipv4_header(bytes)),
        };
        let Some(addresses) = bytes.get(addresses) else { return 0 };
        hasher.write(addresses);
        hasher.write_u8(bytes[protocol]);
        // A fragment of IPv6 has another protocol.
        let offset = u16::from_be_bytes([bytes[FRAGMENT], bytes[FRAGMENT + 1]]) & FRAGMENT_OFFSET;
        let has_ports = matches!(i32::from(bytes[protocol]), libc::IPPROTO_TCP | libc::IPPROTO_UDP)
            && (is_ipv6(bytes) || offset == 0);
        if let Some(ports) = bytes.get(ports..ports + 4).filter(|_| has_ports) {
            hasher.write(ports);
        }
        hasher.finish()
    }

    fn dscp(&self) -> u8 {
        traffic_class(self.bytes()) >> 2
    }

    fn ecn(&self) -> Ecn {
        Ecn::from_bits(traffic_class(self.bytes()))
    }

    fn mark_ce(&mut self) {
        if let Some(content) = self.content.as_mut().filter(|_| !self.is_ethernet) {
            let class = traffic_class(&content.bytes) | Ecn::Ce.bits();
            set_traffic_class(&mut content.bytes, class);
        }
    }

    fn damage(&mut self) {
        self.is_damaged = true;
    }

    fn is_damaged(&self) -> bool {
        self.is_damaged
    }
}

impl CellFrame for Packet {
    fn cell(&self, index: u16, count: u16) -> Self {
        Packet { content: None, length: CELL, cell: Some((index, count)), ..*self }
    }

    fn last_cell(self, index: u16, count: u16) -> Self {
        Packet { length: CELL, cell: Some((index, count)), ..self }
    }

    fn as_cell(&self) -> Option<(u16, u16)> {
        self.cell
    }

    fn serial(&self) -> u32 {
        self.serial
    }

    fn into_packet(self) -> Self {
        let length = self.content.as_ref().map_or(self.length, |content| content.bytes.len() as u32);
        Packet { length, cell: None, ..self }
    }

    fn into_train(mut self, train: Box<Train>) -> Self {
        if let Some(content) = &mut self.content {
            content.train = Some(train);
        }
        self
    }

    fn take_train(&mut self) -> Option<Box<Train>> {
        self.content.as_mut()?.train.take()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    /// A UDP datagram of 4 bytes from 10.0.0.1 to 10.0.0.2 with the code point AF41 and ECT(0).
    fn datagram() -> Vec<u8> {
        let mut bytes = vec![0x45, 34 << 2 | 2, 0, 32, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let sum = header_sum(&bytes);
        bytes[CHECKSUM..CHECKSUM + 2].copy_from_slice(&(!sum).to_be_bytes());
        bytes.extend([0x12, 0x34, 0x56, 0x78, 0, 12, 0, 0, 1, 2, 3, 4]);
        bytes
    }

    /// The one's complement sum of the header: 0xffff if the checksum is valid.
    fn header_sum(bytes: &[u8]) -> u16 {
        let words = bytes[..IPV4_HEADER].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
        let mut sum: u32 = words.sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    fn packet(bytes: Vec<u8>) -> Packet {
        Packet::new(bytes, Destination::Station(2), 7, 1)
    }

    #[test]
    fn a_mark_keeps_the_header_checksum_valid() {
        for ecn in [Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
            for identification in 0..=u8::MAX {
                let mut bytes = datagram();
                bytes[TRAFFIC_CLASS] = 34 << 2 | ecn.bits();
                bytes[5] = identification;
                bytes[CHECKSUM..CHECKSUM + 2].fill(0);
                let sum = header_sum(&bytes);
                bytes[CHECKSUM..CHECKSUM + 2].copy_from_slice(&(!sum).to_be_bytes());
                let mut packet = packet(bytes);
                assert_eq!((packet.ecn(), packet.dscp()), (ecn, 34));
                packet.mark_ce();
                assert_eq!((packet.ecn(), packet.dscp()), (Ecn::Ce, 34));
                assert_eq!(header_sum(&packet.into_bytes().unwrap()), 0xffff);
            }
        }
    }

    #[test]
    fn flows_differ_by_ports_and_addresses() {
        let change = |at: usize| {
            let mut bytes = datagram();
            bytes[at] ^= 1;
            packet(bytes).flow()
        };
        let flow = packet(datagram()).flow();
        // Source and destination address, source and destination port.
        for at in [15, 19, 21, 23] {
            assert_ne!(change(at), flow, "byte {at}");
        }
        // Identification, checksum of UDP, payload.
        for at in [5, 27, 31] {
            assert_eq!(change(at), flow, "byte {at}");
        }
        // A later fragment has no ports.
        let fragment = |port: u8| {
            let mut bytes = datagram();
            (bytes[7], bytes[21]) = (1, port);
            packet(bytes).flow()
        };
        assert_eq!(fragment(1), fragment(2));
    }

    /// The same datagram from fd00::1 to fd00::2, with the flow label 0x12345.
    fn ipv6_datagram() -> Vec<u8> {
        let class = 34 << 2 | 2;
        let mut bytes = vec![6 << 4 | class >> 4, class << 4 | 1, 0x23, 0x45, 0, 12, 17, 64];
        for host in [1, 2] {
            bytes.extend(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host).octets());
        }
        bytes.extend([0x12, 0x34, 0x56, 0x78, 0, 12, 0, 0, 1, 2, 3, 4]);
        bytes
    }

    #[test]
    fn a_mark_of_ipv6_changes_two_bits() {
        for ecn in [Ecn::Ect0, Ecn::Ect1] {
            let mut bytes = ipv6_datagram();
            set_traffic_class(&mut bytes, 34 << 2 | ecn.bits());
            let mut packet = packet(bytes.clone());
            assert_eq!((packet.ecn(), packet.dscp()), (ecn, 34));
            packet.mark_ce();
            assert_eq!((packet.ecn(), packet.dscp()), (Ecn::Ce, 34));
            bytes[1] |= 3 << 4;
            assert_eq!(packet.into_bytes(), Some(bytes));
        }
    }

    #[test]
    fn flows_of_ipv6_differ_by_ports_and_addresses() {
        let change = |at: usize| {
            let mut bytes = ipv6_datagram();
            bytes[at] ^= 1;
            packet(bytes).flow()
        };
        let flow = packet(ipv6_datagram()).flow();
        for at in [8, 23, 24, 39, 41, 43] {
            assert_ne!(change(at), flow, "byte {at}");
        }
        // Traffic class, flow label, hop limit, checksum of UDP, payload.
        for at in [1, 3, 7, 47, 51] {
            assert_eq!(change(at), flow, "byte {at}");
        }
    }

    #[test]
    fn only_ip_has_a_destination() {
        let bytes = datagram();
        assert_eq!(destination_address(&bytes), Some([10, 0, 0, 2].into()));
        assert_eq!(source_address(&bytes), Some([10, 0, 0, 1].into()));
        assert_eq!(destination_address(&bytes[..19]), None);
        assert_eq!(destination_address(&[]), None);
        let bytes = ipv6_datagram();
        assert_eq!(destination_address(&bytes), Some("fd00::2".parse().unwrap()));
        assert_eq!(source_address(&bytes), Some("fd00::1".parse().unwrap()));
        assert_eq!(destination_address(&bytes[..39]), None);
        assert_eq!(destination_address(&[0x56; 60]), None);
    }

    #[test]
    fn only_igmp_and_mld_report_groups() {
        let mut igmp = datagram();
        (igmp[PROTOCOL], igmp[20]) = (2, 0x22);
        let mut mld = ipv6_datagram();
        mld.splice(40.., [58, 0, 5, 2, 0, 0, 1, 0, 143, 0]);
        mld[NEXT_HEADER] = 0;
        assert!(is_group_report(&igmp) && is_group_report(&mld));
        let mut echo = mld.clone();
        echo[48] = 128;
        let mut query = igmp.clone();
        query[20] = 0x11;
        for other in
            [datagram(), ipv6_datagram(), echo, query, mld[..48].to_vec(), igmp[..9].to_vec(), vec![]]
        {
            assert!(!is_group_report(&other), "{other:?}");
        }
    }

    #[test]
    fn damage_shows_in_the_bytes_once() {
        let mut damaged = packet(datagram());
        damaged.damage();
        damaged.damage();
        let bytes = damaged.into_bytes().unwrap();
        assert_eq!(bytes[..31], datagram()[..31]);
        assert_eq!(bytes[31], !4);
    }

    #[test]
    fn cells_carry_the_packet_last() {
        let complete = packet(datagram());
        let first = complete.cell(0, 2);
        assert_eq!((first.length(), first.as_cell(), first.channel()), (CELL, Some((0, 2)), 7));
        assert_eq!(first.into_bytes(), None);
        let last = complete.last_cell(1, 2).into_packet();
        assert_eq!((last.length(), last.as_cell()), (32, None));
        assert_eq!(last.into_bytes(), Some(datagram()));
    }
}
