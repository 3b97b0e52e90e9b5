//! Captures of links and hosts, as pcapng with nanosecond stamps.
//!
//! Headers are real; of the payload only what a program would look at is there: the header of a test message, and of the
//! guaranteed transport, whose frames are bytes here too, everything. A packet says its true length, so what lacks
//! payload looks as if it had been captured with a short snapshot length.
//!
//! A link, hub or ring is captured where its frames arrive, a host where its packets leave and arrive. Frames of an
//! ATM link are its AAL5 packets (`LINKTYPE_SUNATM`), stamped with their last cell.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use etherparse::{IpFragOffset, IpNumber, Ipv4Header, UdpHeader};
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use trunkline_endpoint::{Port, To};
use trunkline_experiment::plan::{Encapsulation, Medium as Framed};
use trunkline_llc::wire::{ALL, HEADER as PDU_HEADER, HIGHEST};
use trunkline_models::atm::CellFrame as _;
use trunkline_models::host::headers;
use trunkline_run::bundle;
use trunkline_run::message::{HEADER, Header};
use trunkline_units::Instant;

use crate::flow::{IP, UDP_IP};
use crate::frame::{Content, Frame, Packet};
use crate::network::Network;
use crate::network::topology::Topology;
use crate::stations;

/// The UDP and TCP ports of a simulated connection: sender, receiver.
const PORTS: (u16, u16) = (49_152, 5_001);
/// Longest packet that an interface says it captures: more than any is, as other programs have it.
const SNAP: u32 = 262_144;

/// The captures of a run.
pub struct Tracer {
    captures: Vec<Capture>,
    /// Of each medium and each station, its capture and, for a station, the framing of each interface.
    media: Vec<Option<usize>>,
    stations: Vec<Option<usize>>,
    /// Of each flow.
    flows: Vec<Parties>,
    /// The addresses of groups to which converters and their hosts send.
    groups: BTreeMap<u32, [u8; 4]>,
    buffer: Vec<u8>,
    trouble: Option<String>,
}

/// Who sends, to whom, and the address and hops of its group.
type Parties = (u32, To, Option<([u8; 4], u8)>);

struct Capture {
    name: String,
    file: PcapNgWriter<BufWriter<File>>,
    interfaces: Vec<Framing>,
    /// Many stations hear a frame, and it is captured once: the last that was.
    shared: Option<Option<u32>>,
}

/// What stands before a packet in a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Ethernet,
    Atm(Encapsulation),
    /// The packet alone.
    Bare,
}

impl Framing {
    fn of(medium: Framed, encapsulation: Encapsulation) -> Self {
        match medium {
            Framed::Ethernet => Framing::Ethernet,
            Framed::Atm => Framing::Atm(encapsulation),
            Framed::Ppp => Framing::Bare,
        }
    }

    fn link_type(self) -> DataLink {
        match self {
            Framing::Ethernet => DataLink::ETHERNET,
            Framing::Atm(_) => DataLink::SUNATM,
            Framing::Bare => DataLink::RAW,
        }
    }
}

impl Tracer {
    /// Opens `FOLDER/NAME.pcapng` for each link, hub, ring or host of `names`.
    ///
    /// # Errors
    /// A line that says which file could not be written.
    pub fn open(
        names: &[String],
        network: &Network,
        topology: &Topology<'_>,
        folder: &Path,
    ) -> Result<Tracer, String> {
        let mut tracer = Tracer {
            captures: Vec::new(),
            media: vec![None; network.media.len()],
            stations: vec![None; network.stations.len()],
            flows: Vec::new(),
            groups: groups(network),
            buffer: Vec::new(),
            trouble: None,
        };
        for name in names {
            let links = || topology.network.links.iter();
            let framing = |l: &trunkline_experiment::plan::Link| Framing::of(l.medium, l.encapsulation);
            let number = tracer.captures.len();
            let interfaces = if let Some(s) = network.stations.iter().position(|h| h.name == *name) {
                tracer.stations[s] = Some(number);
                let ports = topology.ports[network.stations[s].node].iter();
                ports.map(|hop| framing(&topology.network.links[hop.link])).collect()
            } else if let Some(m) = network.media.iter().position(|m| m.name == *name) {
                tracer.media[m] = Some(number);
                vec![links().find(|l| l.name == *name).map_or(Framing::Ethernet, framing)]
            } else {
                continue;
            };
            let path = folder.join(format!("{}.pcapng", name.replace('/', "_")));
            let shared = topology.node(name).is_some_and(|node| topology.is_shared(node));
            let capture = Capture::create(name, &path, interfaces, shared);
            tracer.captures.push(capture.map_err(|e| format!("writing {}: {e}", path.display()))?);
        }
        Ok(tracer)
    }

    /// Notes who the next flow is between.
    pub fn begin(&mut self, from: u32, to: To, group: Option<([u8; 4], u8)>) {
        self.flows.push((from, to, group));
    }

    /// A medium hands on a frame at one of its ports.
    #[inline]
    pub fn passed(&mut self, now: Instant, medium: u32, _: Port, frame: &Frame) {
        if let Some(capture) = self.media[medium as usize] {
            self.write(capture, 0, now, frame);
        }
    }

    /// A station hands a frame to the medium at an interface, or gets one from it.
    #[inline]
    pub fn crossed(&mut self, now: Instant, station: u32, port: Port, frame: &Frame) {
        if let Some(capture) = self.stations[station as usize] {
            self.write(capture, port.0, now, frame);
        }
    }

    #[cold]
    fn write(&mut self, capture: usize, interface: u16, now: Instant, frame: &Frame) {
        // Of the cells of a packet only the last tells.
        let Some(packet) = frame.packet() else { return };
        let capture = &mut self.captures[capture];
        if let Some(last) = &mut capture.shared
            && last.replace(frame.serial()) == Some(frame.serial())
        {
            return;
        }
        let framing = capture.interfaces.get(usize::from(interface)).copied().unwrap_or(Framing::Bare);
        self.buffer.clear();
        if let Content::Pdu { from, to, bytes } = &packet.content {
            let length = lay_pdu(&mut self.buffer, (*from, *to), bytes, packet.length);
            if let Err(e) = capture.packet(interface, now, &self.buffer, length) {
                self.trouble.get_or_insert_with(|| format!("writing the capture of {}: {e}", capture.name));
            }
            return;
        }
        let parties = match (&packet.content, packet.to) {
            (Content::Bundle { parcel, .. }, to @ To::Group(group)) => {
                Some((parcel.from, to, self.groups.get(&group).map(|address| (*address, 1))))
            }
            (Content::Bundle { parcel, .. }, to) => Some((parcel.from, to, None)),
            _ => self.flows.get(packet.flow as usize).copied(),
        };
        let Some(flow) = parties else { return };
        if let Some(length) = lay(&mut self.buffer, framing, flow, packet)
            && let Err(e) = capture.packet(interface, now, &self.buffer, length)
        {
            self.trouble.get_or_insert_with(|| format!("writing the capture of {}: {e}", capture.name));
        }
    }

    /// Writes out what is still in memory.
    ///
    /// # Errors
    /// The first trouble that any capture met with, in a line.
    pub fn finish(mut self) -> Result<(), String> {
        for capture in &mut self.captures {
            if let Err(e) = std::io::Write::flush(capture.file.get_mut()) {
                self.trouble.get_or_insert_with(|| format!("writing the capture of {}: {e}", capture.name));
            }
        }
        self.trouble.map_or(Ok(()), Err)
    }
}

impl Capture {
    fn create(name: &str, path: &Path, interfaces: Vec<Framing>, shared: bool) -> Result<Capture, String> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|e| e.to_string())?;
        }
        let file = BufWriter::new(File::create(path).map_err(|e| e.to_string())?);
        let mut file = PcapNgWriter::new(file).map_err(|e| e.to_string())?;
        for (n, framing) in interfaces.iter().enumerate() {
            let mut block = InterfaceDescriptionBlock::new(framing.link_type(), SNAP);
            let label = if interfaces.len() == 1 { name.to_string() } else { format!("{name}.{n}") };
            block.options = vec![
                InterfaceDescriptionOption::IfName(Cow::Owned(label)),
                InterfaceDescriptionOption::IfTsResol(9),
            ];
            file.write_pcapng_block(block).map_err(|e| e.to_string())?;
        }
        Ok(Capture { name: name.to_string(), file, interfaces, shared: shared.then_some(None) })
    }

    fn packet(&mut self, interface: u16, now: Instant, bytes: &[u8], length: u32) -> Result<(), String> {
        let block = EnhancedPacketBlock {
            interface_id: interface.into(),
            timestamp: Duration::from_nanos(now.as_ns()),
            original_len: length,
            data: Cow::Borrowed(bytes),
            options: Vec::new(),
        };
        self.file.write_pcapng_block(block).map(drop).map_err(|e| e.to_string())
    }
}

/// Lays a packet out as a capture has it; its true length. None if no IPv4 header can say that.
fn lay(
    out: &mut Vec<u8>,
    framing: Framing,
    (sender, receiver, group): Parties,
    packet: &Packet,
) -> Option<u32> {
    let (protocol, ports) = match packet.content {
        Content::Datagram(_) | Content::Frame(_) => (IpNumber::UDP, PORTS),
        Content::Segment(_) => (IpNumber::TCP, PORTS),
        // Its channel is its port.
        Content::Bundle { .. } => (IpNumber::UDP, (packet.channel, packet.channel)),
        Content::Pdu { .. } => return None,
    };
    // What goes back goes from the station that the sender's frames are for.
    let (from, to, ports) = match (packet.is_back, receiver) {
        (false, _) => (sender, receiver, ports),
        (true, To::Station(station)) => (station, To::Station(sender), (ports.1, ports.0)),
        (true, _) => (sender, To::Station(sender), (ports.1, ports.0)),
    };
    // Addresses count from 1: 10.0.0.0 is no host.
    let (from, to) = (
        from + 1,
        match to {
            To::Station(station) => To::Station(station + 1),
            other => other,
        },
    );
    let (destination, hops) = group.filter(|_| !packet.is_back).unwrap_or((headers::ip(to), 64));
    match framing {
        Framing::Ethernet => {
            headers::ethernet(from, to, out);
            if let (To::Group(_), [_, b, c, d]) = (to, destination) {
                // RFC 1112 section 6.4: the lower 23 bits of the group's own address.
                let start = out.len() - headers::ETHERNET;
                out[start..start + 6].copy_from_slice(&[0x01, 0x00, 0x5e, b & 0x7f, c, d]);
            }
        }
        Framing::Atm(encapsulation) => {
            // Traffic type LLC, or none; VPI 0; the channel is the connection's, from 32 on as users' are.
            let kind = if encapsulation == Encapsulation::Llc { 2 } else { 0 };
            out.extend_from_slice(&[kind, 0]);
            out.extend_from_slice(&(32 + packet.channel % 0x7fff).to_be_bytes());
            if encapsulation == Encapsulation::Llc {
                headers::llc_snap(out);
            }
        }
        Framing::Bare => {}
    }
    let before = out.len() as u32;
    let length = packet.length;
    let payload = u16::try_from(length - IP).unwrap_or(u16::MAX);
    let source = headers::station_ip(from);
    let mut ip =
        Ipv4Header::new(payload.min(u16::MAX - IP as u16), hops, protocol, source, destination).ok()?;
    let mut offset = 0;
    if let Some(Fragment { of, at, count, octets }) = Fragment::of(packet)
        && count > 1
    {
        ip.dont_fragment = false;
        ip.identification = of;
        ip.more_fragments = at + 1 < count;
        // All but the last are equally long.
        offset = if ip.more_fragments { (length - IP) * u32::from(at) } else { octets + UDP_IP - length };
        ip.fragment_offset = IpFragOffset::try_new((offset / 8) as u16).ok()?;
    }
    ip.header_checksum = ip.calc_header_checksum();
    out.extend_from_slice(&ip.to_bytes());
    match &packet.content {
        Content::Datagram(d) if d.fragment == 0 => {
            let udp = (d.size + UDP_IP - IP).min(u32::from(u16::MAX)) as u16;
            let (source_port, destination_port) = ports;
            // No checksum: RFC 768 allows it, and the payload is not there to be summed.
            let udp = UdpHeader { source_port, destination_port, length: udp, checksum: 0 };
            out.extend_from_slice(&udp.to_bytes());
            let header = Header {
                sequence: d.sequence,
                sent: d.sent,
                length: d.size,
                response: d.response,
                kind: d.kind,
            };
            let mut bytes = [0; HEADER];
            header.encode(packet.flow, &mut bytes);
            out.extend_from_slice(&bytes[..HEADER.min((length - UDP_IP) as usize)]);
        }
        Content::Frame(frame) => {
            let udp = (length - IP).min(u32::from(u16::MAX)) as u16;
            let (source_port, destination_port) = ports;
            let udp = UdpHeader { source_port, destination_port, length: udp, checksum: 0 };
            out.extend_from_slice(&udp.to_bytes());
            out.extend_from_slice(&frame.1);
        }
        Content::Bundle { parcel, .. } => {
            let bytes = &parcel.bytes;
            let udp = UDP_IP - IP;
            if offset == 0 {
                let (source_port, destination_port) = ports;
                let length = (bytes.len() as u32 + udp).min(u32::from(u16::MAX)) as u16;
                let header = UdpHeader { source_port, destination_port, length, checksum: 0 };
                out.extend_from_slice(&header.to_bytes());
            }
            let (from, until) = (offset.saturating_sub(udp), offset + length - IP - udp);
            out.extend_from_slice(bytes.get(from as usize..until as usize).unwrap_or_default());
        }
        Content::Segment(header) => {
            out.extend_from_slice(&header[..trunkline_tcp::header_length(header).min(header.len())]);
        }
        _ => {}
    }
    Some(before + length)
}

/// Lays a frame of an LLC station out as it is on Ethernet, with a tag if it `takes` more than its PDU (docs/wire.md, LLC);
/// its true length. Of a message only the header is there.
fn lay_pdu(out: &mut Vec<u8>, (from, to): (u8, u8), frame: &[u8], takes: u32) -> u32 {
    let Some((&first, there)) = frame.split_first() else { return 0 };
    let mac = |station: u8| if station == ALL { [0xFF; 6] } else { headers::station_mac(station.into()) };
    let pdu = stations::length(frame);
    out.extend_from_slice(&mac(to));
    out.extend_from_slice(&mac(from));
    if takes != pdu {
        out.extend_from_slice(&[0x81, 0x00, first.min(HIGHEST) << 5, 0x00]);
    }
    out.extend_from_slice(&(pdu as u16).to_be_bytes());
    let whole = pdu as usize == there.len();
    let seen = if whole { there.len() } else { (PDU_HEADER + HEADER).min(pdu as usize).min(there.len()) };
    out.extend_from_slice(&there[..seen]);
    let length = headers::ETHERNET + takes as usize;
    if whole {
        out.resize(length, 0);
    }
    length as u32
}

/// Which fragment of a datagram a packet is.
struct Fragment {
    /// The datagram's number.
    of: u16,
    at: u16,
    count: u16,
    /// Octets of the whole datagram behind its headers.
    octets: u32,
}

impl Fragment {
    fn of(packet: &Packet) -> Option<Fragment> {
        match &packet.content {
            Content::Datagram(d) => {
                Some(Fragment { of: d.sequence as u16, at: d.fragment, count: d.fragments, octets: d.size })
            }
            Content::Bundle { parcel, fragment, fragments } => Some(Fragment {
                of: parcel.serial as u16,
                at: *fragment,
                count: *fragments,
                octets: parcel.bytes.len() as u32,
            }),
            _ => None,
        }
    }
}

/// The addresses of the network's groups of IPv4. Bundles for hosts go to the one before those of the wide area.
fn groups(network: &Network) -> BTreeMap<u32, [u8; 4]> {
    let hosts = Ipv4Addr::from(u32::from(bundle::BASE) - 1);
    let named = network.groups.iter().filter_map(|(address, group)| match address {
        IpAddr::V4(address) => Some((*group, address.octets())),
        IpAddr::V6(_) => None,
    });
    named.chain([(network.everybody, hosts.octets())]).collect()
}
