//! A packet in words: one line for a list, and every layer with its octets for a closer look.

use trunkline_llc::token::frame::{Control, Key};
use trunkline_llc::wire::{Kind, Pdu, Status};

use crate::name::{Station, ether_type, ip_protocol, stations};
use crate::packet::{Captured, Llc, Packet};

/// A packet in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Who sent it; empty if it does not say.
    pub source: String,
    /// To whom.
    pub destination: String,
    /// The highest protocol that was read.
    pub protocol: String,
    /// What it says.
    pub info: String,
}

/// A packet in one line.
pub fn line(packet: &Packet<'_>) -> Line {
    let (source, destination) = stations(packet);
    let text = |station: Option<Station>| station.map(|s| s.to_string()).unwrap_or_default();
    let (protocol, info) = if let Some(llc) = &packet.llc {
        ("llc".into(), pdu_line(llc))
    } else if let Some((operation, sender, target)) = packet.arp {
        let info = match operation {
            1 => format!("who has {target}? tell {sender}"),
            2 => format!("{sender} is there"),
            other => format!("operation {other}"),
        };
        ("arp".into(), info)
    } else if let Some(ip) = packet.ip {
        let protocol = ip_protocol(ip.protocol).map_or_else(|| format!("ip {}", ip.protocol), str::to_owned);
        let flags = packet.tcp_flags.map(|flags| format!(" [{}]", tcp_flags(flags))).unwrap_or_default();
        let info = match packet.ports {
            Some((from, to)) => format!("{from} > {to}{flags}"),
            None => String::new(),
        };
        (protocol, info)
    } else if let Some(kind) = packet.ethertype {
        (ether_type(kind).map_or_else(|| format!("{kind:04x}"), str::to_owned), String::new())
    } else {
        ("?".into(), "cut off".into())
    };
    Line { source: text(source), destination: text(destination), protocol, info }
}

/// `priority 5  4 > 6  AC0 command, poll, 100 B`.
fn pdu_line(llc: &Llc<'_>) -> String {
    let what = match (&llc.pdu, llc.control) {
        (_, Some(control)) => control_words(control),
        (Ok(pdu), None) => pdu_words(pdu),
        (Err(bad), None) => bad.to_string(),
    };
    format!("{} > {}  {what}  priority {}", llc.ssap, llc.dsap, llc.priority)
}

/// `token for 9, generation 3, owner 1, sequence 17, 4 stations`.
fn control_words(control: Control) -> String {
    let (what, station, token) = match control {
        Control::Token { token, to } => ("token for", to, token),
        Control::Window { token, first } => ("window from", first, token),
        Control::Join => return "wants to join".into(),
    };
    let Key { generation, owner, sequence } = token.key;
    let stations = token.members.count();
    format!(
        "{what} {station}, generation {generation}, owner {owner}, sequence {sequence}, {stations} stations"
    )
}

fn pdu_words(pdu: &Pdu<'_>) -> String {
    let kind = match pdu.kind {
        Kind::Ui => "UI",
        Kind::Xid => "XID",
        Kind::Test => "TEST",
        Kind::Ac(false) => "AC0",
        Kind::Ac(true) => "AC1",
    };
    let sort = match (pdu.kind, pdu.response) {
        (Kind::Ui, _) => "",
        (_, false) => " command",
        (_, true) => " response",
    };
    let status = match (pdu.kind, pdu.response, pdu.information) {
        (Kind::Ac(_), true, [octet, ..]) => match Status::read(*octet) {
            Some(status) => format!(", {:?}", status.command),
            None => format!(", status {octet:02x}"),
        },
        _ => String::new(),
    };
    let poll = match (pdu.poll, pdu.response) {
        (false, _) => "",
        (true, false) => ", poll",
        (true, true) => ", final",
    };
    format!("{kind}{sort}{poll}{status}, {} B", pdu.information.len())
}

/// Flags of TCP as letters, in their order.
fn tcp_flags(flags: u8) -> String {
    let names = [(2, 'S'), (16, '.'), (1, 'F'), (4, 'R'), (8, 'P'), (32, 'U')];
    names.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name).collect()
}

/// Every layer, a line each, and the octets, 16 a line.
pub fn detail(frame: &Captured<'_>, packet: &Packet<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let captured = match frame.bytes.len() as u32 {
        all if all >= frame.original => String::new(),
        some => format!(", {some} captured"),
    };
    lines.push(format!("Frame     {} B{captured}", packet.length));
    if let Some((to, from)) = packet.ether {
        lines.push(format!("Ethernet  {} > {}", Station::Ether(from), Station::Ether(to)));
    }
    if let Some(tag) = packet.tag {
        lines.push(format!(
            "Tag       {:04x}, priority {}, VLAN {}",
            tag.protocol,
            tag.priority(),
            tag.vlan()
        ));
    }
    if let Some(kind) = packet.ethertype {
        lines.push(format!("Type      {kind:04x} {}", ether_type(kind).unwrap_or_default()));
    }
    if let Some(ip) = packet.ip {
        let protocol = ip_protocol(ip.protocol).unwrap_or("protocol");
        lines.push(format!("IP        {} > {}, {protocol} {}", ip.source, ip.destination, ip.protocol));
    }
    if let Some((from, to)) = packet.ports {
        let flags = packet.tcp_flags.map(|flags| format!(", flags {}", tcp_flags(flags))).unwrap_or_default();
        lines.push(format!("Ports     {from} > {to}{flags}"));
    }
    if packet.arp.is_some() {
        lines.push(format!("ARP       {}", line(packet).info));
    }
    if let Some(llc) = &packet.llc {
        lines.push(format!("LLC       {}", pdu_line(llc)));
    }
    lines.push(String::new());
    lines.extend(frame.bytes.chunks(16).enumerate().map(|(n, octets)| hex(n * 16, octets)));
    lines
}

/// `0010  00 01 …  ab.`.
fn hex(at: usize, octets: &[u8]) -> String {
    let digits: Vec<String> = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    let letter =
        |octet: &u8| if octet.is_ascii_graphic() || *octet == b' ' { char::from(*octet) } else { '.' };
    let letters: String = octets.iter().map(letter).collect();
    format!("{at:04x}  {:<47}  {letters}", digits.join(" "))
}
