//! IP packets of real kernels as frames of the media.

use std::hash::Hasher as _;
use std::net::Ipv4Addr;

use siphasher::sip::SipHasher13;
use trunkline_endpoint::{Destination, Ecn, Frame};
use trunkline_models::atm::{CellFrame, Train, cell::CELL};

/// Bytes of an IPv4 header without options.
const MIN_HEADER: usize = 20;
/// Offsets in an IPv4 header (RFC 791 section 3.1).
const TRAFFIC_CLASS: usize = 1;
const FRAGMENT: usize = 6;
const PROTOCOL: usize = 9;
const CHECKSUM: usize = 10;
const DESTINATION: usize = 16;
/// Bits of the fragment offset.
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// Returns the destination address of an IPv4 packet; `None` for anything else.
pub fn destination_address(bytes: &[u8]) -> Option<Ipv4Addr> {
    let address: [u8; 4] = bytes.get(DESTINATION..MIN_HEADER)?.try_into().ok()?;
    (bytes[0] >> 4 == 4).then(|| address.into())
}

/// Returns whether a packet of IPv4 is a report of a kernel about its groups (IGMP, RFC 3376), which is for routers.
pub fn is_group_report(bytes: &[u8]) -> bool {
    destination_address(bytes).is_some() && i32::from(bytes[PROTOCOL]) == libc::IPPROTO_IGMP
}

/// An IPv4 packet, a cell or a train of cells.
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
}

#[derive(Clone, Debug)]
struct Content {
    bytes: Vec<u8>,
    train: Option<Box<Train>>,
}

impl Packet {
    /// Creates a packet to a destination. `bytes` have a whole IPv4 header; `serial` differs from that of packets before it.
    pub fn new(bytes: Vec<u8>, to: Destination, channel: u16, serial: u32) -> Packet {
        debug_assert!(destination_address(&bytes).is_some(), "only IPv4 packets have a destination");
        let length = bytes.len() as u32;
        let content = Some(Box::new(Content { bytes, train: None }));
        Packet { content, length, to, channel, cell: None, serial, is_damaged: false }
    }

    /// Returns the bytes to deliver. Those of a damaged packet fail the checksum of its transport.
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        let mut bytes = self.content?.bytes;
        if self.is_damaged
            && let Some(last) = bytes.last_mut()
        {
            *last = !*last;
        }
        Some(bytes)
    }

    fn bytes(&self) -> &[u8] {
        self.content.as_ref().map_or(&[], |content| &content.bytes)
    }
}

/// Replaces the traffic class of an IPv4 packet and updates its header checksum (RFC 1624, equation 3).
fn set_traffic_class(bytes: &mut [u8], class: u8) {
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
        if bytes.len() < MIN_HEADER {
            return 0;
        }
        hasher.write(&bytes[CHECKSUM + 2..MIN_HEADER]);
        hasher.write_u8(bytes[PROTOCOL]);
        let header = usize::from(bytes[0] & 0xf) * 4;
        let offset = u16::from_be_bytes([bytes[FRAGMENT], bytes[FRAGMENT + 1]]) & FRAGMENT_OFFSET;
        let has_ports = matches!(i32::from(bytes[PROTOCOL]), libc::IPPROTO_TCP | libc::IPPROTO_UDP);
        if let Some(ports) = bytes.get(header..header + 4).filter(|_| has_ports && offset == 0) {
            hasher.write(ports);
        }
        hasher.finish()
    }

    fn dscp(&self) -> u8 {
        self.bytes().get(TRAFFIC_CLASS).map_or(0, |class| class >> 2)
    }

    fn ecn(&self) -> Ecn {
        self.bytes().get(TRAFFIC_CLASS).map_or(Ecn::NotEct, |class| Ecn::from_bits(*class))
    }

    fn mark_ce(&mut self) {
        if let Some(content) = &mut self.content {
            let class = content.bytes[TRAFFIC_CLASS] | Ecn::Ce.bits();
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
        let Packet { to, channel, serial, is_damaged, .. } = *self;
        Packet { content: None, length: CELL, to, channel, cell: Some((index, count)), serial, is_damaged }
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
        let words = bytes[..MIN_HEADER].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
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

    #[test]
    fn only_ipv4_has_a_destination() {
        let bytes = datagram();
        assert_eq!(destination_address(&bytes), Some(Ipv4Addr::new(10, 0, 0, 2)));
        assert_eq!(destination_address(&bytes[..19]), None);
        assert_eq!(destination_address(&[]), None);
        let mut other = bytes;
        other[0] = 0x65;
        assert_eq!(destination_address(&other), None);
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
