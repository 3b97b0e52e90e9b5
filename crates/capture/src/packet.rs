//! What stands in a frame: from bytes to addresses, ports, SAPs. Nothing that a frame holds is an error; what cannot be
//! read is absent.

use std::net::{IpAddr, Ipv4Addr};

use trunkline_io::packet::Tag;
use trunkline_llc::Pdu;
use trunkline_llc::token::frame::{CONTROL, Control, MAX_FRAME as LONGEST_CONTROL, SAP};
use trunkline_llc::wire::{ALL, BadPdu, MAX_PRIORITY};

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Ethernet's type of IPv4.
pub const IPV4: u16 = 0x0800;
/// Ethernet's type of IPv6.
pub const IPV6: u16 = 0x86DD;
/// Ethernet's type of ARP.
pub const ARP: u16 = 0x0806;
/// IP's number of TCP.
pub const TCP: u8 = 6;
/// IP's number of UDP.
pub const UDP: u8 = 17;
/// IP's number of SCTP.
pub const SCTP: u8 = 132;
/// Above this the type of a frame is its length (IEEE 802.3 clause 3.2.6).
const LONGEST: u16 = 1500;
/// Types that begin a tag.
const TAGS: [u16; 3] = [0x8100, 0x88A8, 0x9100];

/// What a captured frame begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Destination, source, type or length.
    Ethernet,
    /// The IP packet.
    Ip,
    /// The pseudo header of `LINKTYPE_SUNATM`, then LLC/SNAP or the IP packet.
    Atm,
    /// The 16 octets of Linux's `any` interface.
    Cooked,
    /// The 20 octets of its second version.
    Cooked2,
    /// Four octets of address family.
    Null,
}

/// A frame as it was captured.
#[derive(Clone, Copy, Debug)]
pub struct Captured<'a> {
    /// What it begins with.
    pub link: Link,
    /// When, in nanoseconds since 1970.
    pub at_ns: u64,
    /// Its octets, as many as were captured, a tag perhaps beside them.
    pub bytes: &'a [u8],
    /// How many there were, without that tag.
    pub original: u32,
    /// The outermost tag, if it was taken out.
    pub tag: Option<Tag>,
}

/// A frame that was read.
#[derive(Clone, Debug, Default)]
pub struct Packet<'a> {
    /// When, in nanoseconds since 1970.
    pub at_ns: u64,
    /// Octets on the wire, from the Ethernet destination to the last of the data.
    pub length: u32,
    /// Destination and source.
    pub ether: Option<(Mac, Mac)>,
    /// The outermost tag.
    pub tag: Option<Tag>,
    /// The type of what it carries, behind tags.
    pub ethertype: Option<u16>,
    /// What of IP it holds.
    pub ip: Option<Ip>,
    /// Source and destination port of TCP, UDP or SCTP; not in a later fragment.
    pub ports: Option<(u16, u16)>,
    /// Octets that UDP or TCP carries: of a datagram whole, also if it is cut or fragmented; none in a later fragment.
    pub payload: Option<u32>,
    /// Flags of TCP, as the octet that holds them.
    pub tcp_flags: Option<u8>,
    /// What of IEEE 802.2 it holds.
    pub llc: Option<Llc<'a>>,
    /// Operation, sender and target of ARP for IPv4.
    pub arp: Option<(u16, Ipv4Addr, Ipv4Addr)>,
}

/// The header of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// From.
    pub source: IpAddr,
    /// To.
    pub destination: IpAddr,
    /// What it carries, behind extension headers.
    pub protocol: u8,
}

/// A PDU of IEEE 802.2, on Ethernet or in a datagram.
#[derive(Clone, Copy, Debug)]
pub struct Llc<'a> {
    /// 0 to 7.
    pub priority: u8,
    /// To which SAP.
    pub dsap: u8,
    /// From which, without the bit of responses.
    pub ssap: u8,
    /// Of which kind, if it is of type 1 or 3.
    pub pdu: Result<Pdu<'a>, BadPdu>,
    /// The token or station information in it, if any.
    pub control: Option<Control>,
    /// The sending and the receiving station of a datagram, 255 for all: the source port is the station number above
    /// a base port, and the destination group ends with the number (docs/reference/llc.md, Networks).
    pub stations: Option<(u8, u8)>,
}

impl<'a> Packet<'a> {
    /// Reads a frame. `llc_port`: UDP datagrams from or to this port carry a PDU.
    pub fn read(frame: &Captured<'a>, llc_port: Option<u16>) -> Packet<'a> {
        let mut packet = Packet {
            at_ns: frame.at_ns,
            length: frame.original + if frame.tag.is_some() { 4 } else { 0 },
            tag: frame.tag,
            ..Packet::default()
        };
        let bytes = frame.bytes;
        match frame.link {
            Link::Ethernet => packet.ethernet(bytes, llc_port),
            Link::Ip => packet.internet(bytes, llc_port),
            Link::Atm => packet.atm(bytes, llc_port),
            Link::Cooked => packet.typed(half(bytes, 14), bytes.get(16..), llc_port),
            Link::Cooked2 => packet.typed(half(bytes, 0), bytes.get(20..), llc_port),
            Link::Null => packet.internet(bytes.get(4..).unwrap_or_default(), llc_port),
        }
        packet
    }

    /// The priority: of the datagram or tag that carries a PDU, else of the tag; none without a tag.
    pub fn priority(&self) -> Option<u8> {
        self.llc.map(|llc| llc.priority).or(self.tag.map(Tag::priority))
    }

    /// What it says of the ring's token: that it is passed on, or who wants to join.
    pub fn control(&self) -> Option<Control> {
        self.llc?.control
    }

    /// The PDU, if it is of type 1 or 3.
    pub fn pdu(&self) -> Option<&Pdu<'a>> {
        self.llc.as_ref()?.pdu.as_ref().ok()
    }

    fn ethernet(&mut self, bytes: &'a [u8], llc_port: Option<u16>) {
        let (Some(destination), Some(source)) = (address(bytes, 0), address(bytes, 6)) else { return };
        self.ether = Some((destination, source));
        let mut at = 12;
        while let Some(protocol) = half(bytes, at).filter(|kind| TAGS.contains(kind)) {
            let Some(control) = half(bytes, at + 2) else { return };
            self.tag.get_or_insert(Tag { protocol, control });
            at += 4;
        }
        match half(bytes, at) {
            Some(length) if length <= LONGEST => {
                let content = bytes.get(at + 2..).unwrap_or_default();
                // What is behind the length is padding.
                let content = content.get(..usize::from(length)).unwrap_or(content);
                self.llc = Llc::read(self.tag.map_or(0, Tag::priority), content);
            }
            kind => self.typed(kind, bytes.get(at + 2..), llc_port),
        }
    }

    fn typed(&mut self, kind: Option<u16>, content: Option<&'a [u8]>, llc_port: Option<u16>) {
        self.ethertype = kind;
        let content = content.unwrap_or_default();
        match kind {
            Some(IPV4 | IPV6) => self.internet(content, llc_port),
            Some(ARP) => self.arp(content),
            _ => {}
        }
    }

    /// Traffic type, path and channel; a type of 2 has LLC/SNAP before the packet.
    fn atm(&mut self, bytes: &'a [u8], llc_port: Option<u16>) {
        match bytes.first().map(|first| first & 0x0F) {
            Some(2) => self.typed(half(bytes, 10), bytes.get(12..), llc_port),
            _ => self.internet(bytes.get(4..).unwrap_or_default(), llc_port),
        }
    }

    fn arp(&mut self, bytes: &[u8]) {
        let ip = |at| bytes.get(at..at + 4).and_then(|b: &[u8]| <[u8; 4]>::try_from(b).ok());
        if let (Some(1), Some(IPV4), Some(operation)) = (half(bytes, 0), half(bytes, 2), half(bytes, 6))
            && let (Some(sender), Some(target)) = (ip(14), ip(24))
        {
            self.arp = Some((operation, sender.into(), target.into()));
        }
    }

    fn internet(&mut self, bytes: &'a [u8], llc_port: Option<u16>) {
        let Some(Transport { ip, first, length, content }) = Transport::of(bytes) else { return };
        self.ethertype.get_or_insert(if ip.source.is_ipv4() { IPV4 } else { IPV6 });
        self.ip = Some(ip);
        if !matches!(ip.protocol, TCP | UDP | SCTP) || !first {
            return;
        }
        let (Some(from), Some(to)) = (half(content, 0), half(content, 2)) else { return };
        self.ports = Some((from, to));
        self.payload = match ip.protocol {
            UDP => half(content, 4).map(|length| u32::from(length).saturating_sub(8)),
            TCP => {
                content.get(12).map(|offset| length.unwrap_or(0).saturating_sub(u32::from(offset >> 4) * 4))
            }
            _ => None,
        };
        if ip.protocol == TCP {
            self.tcp_flags = content.get(13).copied();
        } else if ip.protocol == UDP
            && llc_port.is_some_and(|port| port == from || port == to)
            && let Some([first, pdu @ ..]) = content.get(8..)
        {
            let priority = if *first == CONTROL { MAX_PRIORITY } else { *first };
            self.llc = if priority <= MAX_PRIORITY { Llc::read(priority, pdu) } else { None };
            let port = llc_port.unwrap_or_default();
            if let Some(llc) = &mut self.llc {
                llc.stations = numbers(from, to, ip.destination, port);
            }
        }
    }
}

/// What an IP packet carries.
struct Transport<'a> {
    ip: Ip,
    /// Whether it begins here: in a packet that is whole, or its first fragment.
    first: bool,
    /// Its octets by the header, also if it was cut short.
    length: Option<u32>,
    content: &'a [u8],
}

impl<'a> Transport<'a> {
    /// Reads the headers of a packet, which may have been cut short; none if it is no IP.
    fn of(bytes: &'a [u8]) -> Option<Transport<'a>> {
        match bytes.first()? >> 4 {
            4 => Self::v4(bytes),
            6 => Self::v6(bytes),
            _ => None,
        }
    }

    /// RFC 791 section 3.1.
    fn v4(bytes: &'a [u8]) -> Option<Transport<'a>> {
        let header = usize::from(bytes[0] & 15) * 4;
        let length = usize::from(half(bytes, 2)?);
        let octets = |at: usize| Some(<[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?.into());
        let ip = Ip { source: octets(12)?, destination: octets(16)?, protocol: bytes[9] };
        let first = half(bytes, 6)? & 0x1FFF == 0;
        // Offload leaves the length 0; what is behind the length is padding.
        let end = if length >= header { length.min(bytes.len()) } else { bytes.len() };
        let content = bytes.get(header.max(20)..end).unwrap_or_default();
        let carried = length.checked_sub(header).filter(|_| header >= 20).and_then(|n| u32::try_from(n).ok());
        Some(Transport { ip, first, length: carried, content })
    }

    /// RFC 8200 sections 3 and 4.
    fn v6(bytes: &'a [u8]) -> Option<Transport<'a>> {
        const HOP_BY_HOP: u8 = 0;
        const ROUTING: u8 = 43;
        const FRAGMENT: u8 = 44;
        const AUTHENTICATION: u8 = 51;
        const OPTIONS: u8 = 60;
        const MOST: usize = 8;
        let octets = |at: usize| Some(<[u8; 16]>::try_from(bytes.get(at..at + 16)?).ok()?.into());
        let mut ip = Ip { source: octets(8)?, destination: octets(24)?, protocol: bytes[6] };
        let (mut content, mut first) = (&bytes[40..], true);
        let mut carried = u32::from(half(bytes, 4)?);
        for _ in 0..MOST {
            let Some(&[next, length, ..]) = content.first_chunk::<8>() else { break };
            let length = match ip.protocol {
                HOP_BY_HOP | ROUTING | OPTIONS => 8 + usize::from(length) * 8,
                AUTHENTICATION => 8 + usize::from(length) * 4,
                FRAGMENT => {
                    first = half(content, 2)? & 0xFFF8 == 0;
                    8
                }
                _ => break,
            };
            carried = carried.saturating_sub(length as u32);
            (ip.protocol, content) = (next, content.get(length..).unwrap_or_default());
            if !first {
                break;
            }
        }
        Some(Transport { ip, first, length: Some(carried), content })
    }
}

impl<'a> Llc<'a> {
    fn read(priority: u8, bytes: &'a [u8]) -> Option<Llc<'a>> {
        let [dsap, ssap, ..] = *bytes else { return None };
        Some(Llc {
            priority,
            dsap,
            ssap: ssap & !1,
            pdu: Pdu::read(bytes),
            control: if dsap == SAP { control(bytes) } else { None },
            stations: None,
        })
    }
}

/// The stations of a datagram from one port to another, if it goes to a group of stations that listen on `port`.
fn numbers(from: u16, to: u16, group: IpAddr, port: u16) -> Option<(u8, u8)> {
    let number = u8::try_from(from.checked_sub(port)?).ok().filter(|n| (1..ALL).contains(n))?;
    match group {
        IpAddr::V4(group) if group.is_multicast() && to == port => {
            Some((number, group.octets()[3])).filter(|(_, to)| *to != 0)
        }
        _ => None,
    }
}

/// A frame of the ring. On Ethernet it lacks the first octet, which is put back here.
fn control(pdu: &[u8]) -> Option<Control> {
    let mut whole = [CONTROL; LONGEST_CONTROL];
    let whole = whole.get_mut(..=pdu.len())?;
    whole[1..].copy_from_slice(pdu);
    Control::read(whole)
}

/// The station that an Ethernet address stands for: n of 02:00:00:00:00:n, 255 of broadcast.
pub fn station(mac: Mac) -> Option<u8> {
    match mac {
        [2, 0, 0, 0, 0, n] if n > 0 && n < 255 => Some(n),
        [255, 255, 255, 255, 255, 255] => Some(255),
        _ => None,
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

fn address(bytes: &[u8], at: usize) -> Option<Mac> {
    bytes.get(at..at + 6)?.try_into().ok()
}
