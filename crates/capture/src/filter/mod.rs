//! Filters as text: the part of pcap's language (pcap-filter(7)) that names things, and words of LLC beside it.
//!
//! | module | contents |
//! | --- | --- |
//! | [`read`] | text → [`Filter`] |
//!
//! Filters are asked of packets that were read, not compiled to the kernel's instructions: so they know SAPs, priorities
//! and tokens, inside datagrams too, and mean the same for an interface and a file. What is not understood is refused.
//!
//! What differs from pcap: a tag of a VLAN hides nothing, so that `host 10.0.0.1` also finds a tagged packet and `vlan 5`
//! changes nothing to its right; extension headers of IPv6 are looked behind.

pub mod read;

use std::net::IpAddr;

use trunkline_llc::wire::{Kind as PduKind, Pdu};

use crate::packet::{ARP, IPV4, IPV6, Mac, Packet, station};
pub use read::BadFilter;

/// What a packet must be. Made by [`str::parse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Not(Box<Test>),
    And(Box<Test>, Box<Test>),
    Or(Box<Test>, Box<Test>),
    /// An Ethernet type.
    Type(u16),
    /// IPv4 or IPv6 with this protocol.
    Protocol(u8),
    /// An address in a network, of the packet or of ARP; one address is a network of all its bits.
    Net(Side, Net),
    /// A port from one to another, over these protocols.
    Port(Side, u16, u16),
    Ether(Side, Mac),
    /// To a group, or to everybody.
    EtherGroup,
    IpGroup,
    /// Tagged, perhaps with this VLAN.
    Vlan(Option<u16>),
    /// At most, and at least so long.
    Less(u32),
    Greater(u32),
    /// Any PDU, or one of a kind.
    Llc(Option<Kind>),
    Sap(Side, u8),
    Station(Side, u8),
    Priority(u8),
    Token,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
    Either,
    Both,
}

impl Side {
    fn of(self, source: bool, destination: bool) -> bool {
        match self {
            Side::Source => source,
            Side::Destination => destination,
            Side::Either => source || destination,
            Side::Both => source && destination,
        }
    }
}

/// A network; the bits of its address behind the mask are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Net {
    address: IpAddr,
    bits: u8,
}

impl Net {
    fn holds(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && Net { address, ..self }.masked() == self.address
    }

    /// The address without what is behind the mask.
    fn masked(self) -> IpAddr {
        match self.address {
            IpAddr::V4(a) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4((a.to_bits() & mask).into())
            }
            IpAddr::V6(a) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V6((a.to_bits() & mask).into())
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ui,
    Xid,
    Test,
    /// Acknowledged, of any number or this one.
    Ac(Option<bool>),
    Command,
    Response,
}

impl Kind {
    fn matches(self, pdu: &Pdu<'_>) -> bool {
        match self {
            Kind::Ui => pdu.kind == PduKind::Ui,
            Kind::Xid => pdu.kind == PduKind::Xid,
            Kind::Test => pdu.kind == PduKind::Test,
            Kind::Ac(None) => matches!(pdu.kind, PduKind::Ac(_)),
            Kind::Ac(Some(number)) => pdu.kind == PduKind::Ac(number),
            Kind::Command => !pdu.response,
            Kind::Response => pdu.response,
        }
    }
}

impl Filter {
    /// Whether a packet is what is wanted.
    pub fn matches(&self, packet: &Packet<'_>) -> bool {
        self.test.holds(packet)
    }
}

impl Test {
    fn holds(&self, packet: &Packet<'_>) -> bool {
        match *self {
            Test::Not(ref test) => !test.holds(packet),
            Test::And(ref a, ref b) => a.holds(packet) && b.holds(packet),
            Test::Or(ref a, ref b) => a.holds(packet) || b.holds(packet),
            Test::Type(kind) => packet.ethertype == Some(kind),
            Test::Protocol(number) => packet.ip.is_some_and(|ip| ip.protocol == number),
            Test::Net(side, net) => {
                addresses(packet).is_some_and(|(a, b)| side.of(net.holds(a), net.holds(b)))
            }
            Test::Port(side, low, high) => {
                let holds = |port| (low..=high).contains(&port);
                packet.ports.is_some_and(|(a, b)| side.of(holds(a), holds(b)))
            }
            Test::Ether(side, mac) => packet.ether.is_some_and(|(to, from)| side.of(from == mac, to == mac)),
            Test::EtherGroup => packet.ether.is_some_and(|(to, _)| to[0] & 1 != 0),
            Test::IpGroup => packet.ip.is_some_and(|ip| match ip.destination {
                // pcap: the first octet is at least that of the first group.
                IpAddr::V4(address) => address.octets()[0] >= 224,
                IpAddr::V6(address) => address.is_multicast(),
            }),
            Test::Vlan(wanted) => packet.tag.is_some_and(|tag| wanted.is_none_or(|id| tag.vlan() == id)),
            Test::Less(length) => packet.length <= length,
            Test::Greater(length) => packet.length >= length,
            Test::Llc(None) => packet.llc.is_some(),
            Test::Llc(Some(kind)) => packet.pdu().is_some_and(|pdu| kind.matches(pdu)),
            Test::Sap(side, sap) => packet.llc.is_some_and(|llc| side.of(llc.ssap == sap, llc.dsap == sap)),
            Test::Station(side, number) => {
                let told = packet.llc.and_then(|llc| llc.stations);
                let of_ether = || packet.ether.map(|(to, from)| (station(from), station(to)));
                told.map(|(from, to)| (Some(from), Some(to)))
                    .or_else(of_ether)
                    .is_some_and(|(from, to)| side.of(from == Some(number), to == Some(number)))
            }
            Test::Priority(priority) => packet.priority() == Some(priority),
            Test::Token => packet.control().is_some(),
        }
    }
}

/// Whose `host` and `net` are asked: IP's, or those that ARP speaks of.
fn addresses(packet: &Packet<'_>) -> Option<(IpAddr, IpAddr)> {
    match (packet.ip, packet.arp) {
        (Some(ip), _) => Some((ip.source, ip.destination)),
        (None, Some((_, sender, target))) => Some((sender.into(), target.into())),
        _ => None,
    }
}

/// Ethernet types by their word.
const TYPES: [(&str, u16); 3] = [("ip", IPV4), ("ip6", IPV6), ("arp", ARP)];
