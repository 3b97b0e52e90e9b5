//! Who talks, over what: the keys of the tables, and how they are written.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use trunkline_llc::wire::Kind as PduKind;

use crate::packet::{self, ARP, IPV4, IPV6, Mac, Packet, TCP, UDP};

/// A sender or receiver: the highest-layer address in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Station {
    /// A station of LLC: Ethernet address 02:00:00:00:00:n, or a group's last number; 255 is all of them.
    Number(u8),
    /// Another Ethernet address.
    Ether(Mac),
    /// An IP address.
    Ip(IpAddr),
    /// One whose PDUs travel in datagrams that tell no number.
    Socket(SocketAddr),
}

/// What a station serves: the histogram by SAP, and its like for what has no SAPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// A service access point.
    Sap(u8),
    /// A port of TCP.
    Tcp(u16),
    /// A port of UDP.
    Udp(u16),
    /// Another protocol of IP.
    Ip(u8),
    /// Another type of Ethernet.
    Ether(u16),
    /// What could not be read.
    Unknown,
}

/// The two ends of a connection, in an order that does not depend on the direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Connection {
    /// What both speak; of ports and SAPs only the kind counts.
    pub over: Over,
    /// One end: port or SAP, 0 where there is none.
    pub a: (Station, u16),
    /// The other.
    pub b: (Station, u16),
}

/// What a connection is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Over {
    /// PDUs between SAPs.
    Llc,
    /// Segments between ports.
    Tcp,
    /// Datagrams between ports.
    Udp,
    /// Another protocol of IP.
    Ip(u8),
    /// Another type of Ethernet.
    Ether(u16),
    /// What could not be read.
    Unknown,
}

/// The colours of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// LLC without acknowledgement: type 1, and PDUs that are neither type 1 nor 3.
    Datagram,
    /// LLC that is acknowledged: type 3.
    Acknowledged,
    /// What keeps the ring: the token, and who joins.
    Token,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// Another protocol of IP.
    Ip,
    /// All else.
    Other,
}

impl Class {
    /// Every class, in the order in which they are stacked.
    pub const ALL: [Class; 7] =
        [Class::Datagram, Class::Acknowledged, Class::Token, Class::Tcp, Class::Udp, Class::Ip, Class::Other];

    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Class::Datagram => "llc",
            Class::Acknowledged => "ack",
            Class::Token => "token",
            Class::Tcp => "tcp",
            Class::Udp => "udp",
            Class::Ip => "ip",
            Class::Other => "other",
        }
    }
}

/// Everything that the tables ask of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// Who sent it.
    pub source: Option<Station>,
    /// To whom.
    pub destination: Option<Station>,
    /// Over what: the sender's and the receiver's SAP, one service twice where there are none.
    pub services: (Service, Service),
    /// Between whom.
    pub connection: Option<Connection>,
    /// Its colour.
    pub class: Class,
}

impl Names {
    /// Of a packet.
    pub fn of(packet: &Packet<'_>) -> Names {
        let (source, destination) = stations(packet);
        let (over, ports, services, class) = if let Some(llc) = packet.llc {
            let class = match llc.pdu.map(|pdu| pdu.kind) {
                _ if llc.control.is_some() => Class::Token,
                Ok(PduKind::Ac(_)) => Class::Acknowledged,
                _ => Class::Datagram,
            };
            let saps = (Service::Sap(llc.ssap), Service::Sap(llc.dsap));
            (Over::Llc, (llc.ssap.into(), llc.dsap.into()), saps, class)
        } else if let Some(ip) = packet.ip {
            match (ip.protocol, packet.ports) {
                (TCP, ports) => between(Over::Tcp, ports, Service::Tcp, Class::Tcp),
                (UDP, ports) => between(Over::Udp, ports, Service::Udp, Class::Udp),
                (number, _) => alone(Over::Ip(number), Service::Ip(number), Class::Ip),
            }
        } else if let Some(kind) = packet.ethertype {
            alone(Over::Ether(kind), Service::Ether(kind), Class::Other)
        } else {
            alone(Over::Unknown, Service::Unknown, Class::Other)
        };
        let connection = source.zip(destination).map(|(source, destination)| {
            let (from, to) = ((source, ports.0), (destination, ports.1));
            Connection { over, a: from.min(to), b: from.max(to) }
        });
        Names { source, destination, services, connection, class }
    }
}

type Sort = (Over, (u16, u16), (Service, Service), Class);

/// The service is the port that is more likely a server's: the lower one.
fn between(over: Over, ports: Option<(u16, u16)>, of: fn(u16) -> Service, class: Class) -> Sort {
    let ports = ports.unwrap_or_default();
    let service = of(ports.0.min(ports.1));
    (over, ports, (service, service), class)
}

fn alone(over: Over, service: Service, class: Class) -> Sort {
    (over, (0, 0), (service, service), class)
}

/// Who sent a packet, and to whom.
pub fn stations(packet: &Packet<'_>) -> (Option<Station>, Option<Station>) {
    if let Some((from, to)) = packet.llc.and_then(|llc| llc.stations) {
        return (Some(Station::Number(from)), Some(Station::Number(to)));
    }
    match (packet.ip, packet.ports, packet.ether) {
        (Some(ip), Some(ports), _) if packet.llc.is_some() => (
            Some(Station::Socket((ip.source, ports.0).into())),
            Some(Station::Socket((ip.destination, ports.1).into())),
        ),
        (Some(ip), ..) => (Some(Station::Ip(ip.source)), Some(Station::Ip(ip.destination))),
        (None, _, Some((to, from))) => (Some(Station::of(from)), Some(Station::of(to))),
        _ => (None, None),
    }
}

impl Station {
    /// Of an Ethernet address.
    pub fn of(mac: Mac) -> Station {
        packet::station(mac).map_or(Station::Ether(mac), Station::Number)
    }
}

impl fmt::Display for Station {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Station::Number(255) => f.pad("everybody"),
            Station::Number(n) => f.pad(&format!("station {n}")),
            Station::Ether([a, b, c, d, e, g]) => {
                f.pad(&format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}"))
            }
            Station::Ip(ip) => f.pad(&ip.to_string()),
            Station::Socket(address) => f.pad(&address.to_string()),
        }
    }
}

/// The name of an IP protocol, if it has one here.
pub fn ip_protocol(number: u8) -> Option<&'static str> {
    Some(match number {
        1 => "icmp",
        2 => "igmp",
        6 => "tcp",
        17 => "udp",
        41 => "ipv6",
        47 => "gre",
        50 => "esp",
        51 => "ah",
        58 => "icmp6",
        89 => "ospf",
        132 => "sctp",
        _ => return None,
    })
}

/// The name of an Ethernet type, if it has one here.
pub fn ether_type(kind: u16) -> Option<&'static str> {
    Some(match kind {
        IPV4 => "ip",
        IPV6 => "ip6",
        ARP => "arp",
        0x88CC => "lldp",
        0x88F7 => "ptp",
        0x8847 => "mpls",
        0x8863 | 0x8864 => "pppoe",
        _ => return None,
    })
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match *self {
            Service::Sap(255) => "sap all".into(),
            Service::Sap(sap) => format!("sap {sap}"),
            Service::Tcp(port) => format!("tcp {port}"),
            Service::Udp(port) => format!("udp {port}"),
            Service::Ip(number) => ip_protocol(number).map_or_else(|| format!("ip {number}"), str::to_owned),
            Service::Ether(kind) => {
                ether_type(kind).map_or_else(|| format!("ether {kind:04x}"), str::to_owned)
            }
            Service::Unknown => "unknown".into(),
        };
        f.pad(&text)
    }
}

impl Over {
    /// An end of a connection with its port or SAP: `10.0.0.1:80`, `9.4`.
    pub(crate) fn end(self, station: Station, port: u16) -> String {
        match (self, station) {
            (Over::Llc, Station::Number(n)) => format!("{n}.{port}"),
            (Over::Llc, station) => format!("{station}.{port}"),
            (Over::Tcp | Over::Udp, Station::Ip(IpAddr::V6(ip))) => format!("[{ip}]:{port}"),
            (Over::Tcp | Over::Udp, station) => format!("{station}:{port}"),
            (_, station) => station.to_string(),
        }
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let service = match *self {
            Over::Llc => return f.pad("llc"),
            Over::Tcp => return f.pad("tcp"),
            Over::Udp => return f.pad("udp"),
            Over::Ip(number) => Service::Ip(number),
            Over::Ether(kind) => Service::Ether(kind),
            Over::Unknown => Service::Unknown,
        };
        service.fmt(f)
    }
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Connection { over, a, b } = *self;
        f.pad(&format!("{over} {} - {}", over.end(a.0, a.1), over.end(b.0, b.1)))
    }
}
