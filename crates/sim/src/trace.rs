//! The captures of a simulated run: its frames as packets.
//!
//! Headers are complete. Of the payload only the header of a measurement message is present; frames of the guaranteed transport
//! are complete. The original length is correct, so a packet looks as if captured with a short snapshot length.
//!
//! The files, and where frames are captured, are those of [`capture`].

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use etherparse::{IpDscp, IpEcn, IpFragOffset, IpNumber, Ipv4Header, UdpHeader};
use trunkline_endpoint::{Destination, Port};
use trunkline_llc::wire::{ALL, HEADER as PDU_HEADER, MAX_PRIORITY};
use trunkline_models::atm::CellFrame as _;
use trunkline_models::host::headers;
use trunkline_run::bundle;
use trunkline_run::message::HEADER;
use trunkline_tcp::segment::LONGEST_HEADER;
use trunkline_units::Instant;

use crate::capture::{self, CaptureError, CaptureFile, CapturePoints, Framing, IPV4, group_mac, link_header};
use crate::flow::{IP_HEADER, UDP_IP_HEADERS, tcp_header};
use crate::frame::{Content, Frame, Packet};
use crate::llc_stations;
use crate::network::Network;
use crate::network::topology::Topology;

/// UDP and TCP ports of a simulated connection: sender, receiver.
const PORTS: (u16, u16) = (tcp_header::PORTS[0], tcp_header::PORTS[1]);
/// Bytes of a UDP header.
const UDP_HEADER: u32 = UDP_IP_HEADERS - IP_HEADER;

/// The captures of a run.
pub struct Tracer {
    points: CapturePoints,
    encoder: Encoder,
}

/// Encodes packets and writes them to the files of captures.
struct Encoder {
    files: Vec<CaptureFile>,
    /// The addresses of each flow.
    flows: Vec<FlowAddresses>,
    /// The multicast address of each group.
    groups: BTreeMap<u32, [u8; 4]>,
    buffer: Vec<u8>,
    error: Option<CaptureError>,
}

/// Sender, destination, and the TTL of packets to a group.
type FlowAddresses = (u32, Destination, u8);

impl Tracer {
    /// Opens the captures of `names` in a folder, as [`capture::open`] does.
    ///
    /// # Errors
    /// Returns [`CaptureError::Create`] with the file that could not be created.
    pub fn open(
        names: &[String],
        network: &Network,
        topology: &Topology<'_>,
        folder: &Path,
    ) -> Result<Tracer, CaptureError> {
        let (points, files) = capture::open(names, network, topology, folder)?;
        let (flows, groups, buffer) = (Vec::new(), group_addresses(network), Vec::new());
        Ok(Tracer { points, encoder: Encoder { files, flows, groups, buffer, error: None } })
    }

    /// Adds the addresses of the next flow.
    pub fn add_flow(&mut self, from: u32, to: Destination, group_ttl: u8) {
        self.encoder.flows.push((from, to, group_ttl));
    }

    /// Captures a frame that has crossed a medium and leaves it at a port.
    #[inline]
    pub fn capture_medium(&mut self, now: Instant, medium: u32, port: Port, frame: &Frame) {
        // Of the cells of a packet only the last carries the packet.
        if let Some(packet) = frame.packet() {
            let Tracer { points, encoder } = self;
            points.at_medium(medium, port, frame.serial(), |capture| encoder.write(capture, 0, now, packet));
        }
    }

    /// Captures a frame that a host sends or receives at an interface.
    #[inline]
    pub fn capture_host(&mut self, now: Instant, host: u32, port: Port, frame: &Frame) {
        if let (Some(capture), Some(packet)) = (self.points.at_host(host), frame.packet()) {
            self.encoder.write(capture, port.0, now, packet);
        }
    }

    /// Writes all packets to the files.
    ///
    /// # Errors
    /// Returns the first error of any capture.
    pub fn finish(mut self) -> Result<(), CaptureError> {
        self.encoder.error.map_or(Ok(()), Err)?;
        self.encoder.files.iter_mut().try_for_each(CaptureFile::flush)
    }
}

impl Encoder {
    #[cold]
    fn write(&mut self, capture: usize, interface: u16, now: Instant, packet: &Packet) {
        let file = &mut self.files[capture];
        let framing = file.framing(interface);
        self.buffer.clear();
        let length = match &packet.content {
            Content::Pdu { from, to, bytes } => {
                Some(encode_pdu(&mut self.buffer, (*from, *to), bytes, packet.length))
            }
            Content::Bundle { datagram, .. } => {
                let addresses = (datagram.from_host, packet.to, 1);
                encode_packet(&mut self.buffer, framing, addresses, &self.groups, packet)
            }
            _ => packet.flow.and_then(|flow| {
                let addresses = *self.flows.get(flow as usize)?;
                encode_packet(&mut self.buffer, framing, addresses, &self.groups, packet)
            }),
        };
        let at = Duration::from_nanos(now.as_ns());
        if let Some(length) = length
            && let Err(error) = file.write(interface, at, &self.buffer, length)
        {
            self.error.get_or_insert(error);
        }
    }
}

/// Encodes a packet for a capture and returns its original length; `None` if it does not fit an IPv4 header.
fn encode_packet(
    out: &mut Vec<u8>,
    framing: Framing,
    (sender, receiver, group_ttl): FlowAddresses,
    groups: &BTreeMap<u32, [u8; 4]>,
    packet: &Packet,
) -> Option<u32> {
    let (protocol, ports) = match packet.content {
        Content::Datagram(_) | Content::Guaranteed(_) | Content::Quic(_) => (IpNumber::UDP, PORTS),
        Content::Segment(_) | Content::LongSegment(_) => (IpNumber::TCP, PORTS),
        // The channel number is the port number.
        Content::Bundle { .. } => (IpNumber::UDP, (packet.channel, packet.channel)),
        Content::Pdu { .. } | Content::Rm(_) => return None,
    };
    // Reverse packets come from the destination of the sender's frames.
    let (from, to, ports) = match (packet.is_reverse, receiver) {
        (false, _) => (sender, receiver, ports),
        (true, Destination::Station(station)) => (station, Destination::Station(sender), (ports.1, ports.0)),
        (true, _) => (sender, Destination::Station(sender), (ports.1, ports.0)),
    };
    // Addresses start at 1: 10.0.0.0 is not a host address.
    let (from, to) = (
        from + 1,
        match to {
            Destination::Station(station) => Destination::Station(station + 1),
            other => other,
        },
    );
    let group = match to {
        Destination::Group(group) => groups.get(&group),
        _ => None,
    };
    let (destination, hops) = group.map_or((headers::ip(to), 64), |address| (*address, group_ttl));
    let mac = match to {
        Destination::Group(_) => group_mac(destination),
        to => headers::mac(to),
    };
    link_header(out, framing, (headers::station_mac(from), mac), IPV4, packet.channel);
    let before = out.len() as u32;
    let length = packet.length;
    let payload = u16::try_from(length - IP_HEADER).unwrap_or(u16::MAX);
    let source = headers::station_ip(from);
    let mut ip =
        Ipv4Header::new(payload.min(u16::MAX - IP_HEADER as u16), hops, protocol, source, destination)
            .ok()?;
    // Six bits and two bits: both fit.
    ip.dscp = IpDscp::try_new(packet.traffic_class >> 2).ok()?;
    ip.ecn = IpEcn::try_new(packet.traffic_class & 3).ok()?;
    let mut offset = 0;
    // The number of the datagram, the index and the number of its fragments, and its octets.
    let (datagram_id, index, count, octets) = match &packet.content {
        Content::Datagram(d) => (d.sequence as u16, d.fragment, d.fragments, d.length),
        Content::Bundle { datagram, fragment, fragments } => {
            (datagram.number as u16, *fragment, *fragments, datagram.bytes.len() as u32)
        }
        _ => (0, 0, 1, 0),
    };
    if count > 1 {
        ip.dont_fragment = false;
        ip.identification = datagram_id;
        ip.more_fragments = index + 1 < count;
        // All fragments but the last have the same length.
        offset = if ip.more_fragments {
            (length - IP_HEADER) * u32::from(index)
        } else {
            octets + UDP_IP_HEADERS - length
        };
        ip.fragment_offset = IpFragOffset::try_new((offset / 8) as u16).ok()?;
    }
    ip.header_checksum = ip.calc_header_checksum();
    out.extend_from_slice(&ip.to_bytes());
    let (source_port, destination_port) = ports;
    let udp = |octets: u32| {
        // No checksum (allowed by RFC 768): the payload is virtual.
        let length = (octets + UDP_HEADER).min(u32::from(u16::MAX)) as u16;
        UdpHeader { source_port, destination_port, length, checksum: 0 }.to_bytes()
    };
    match &packet.content {
        Content::Datagram(d) if d.fragment == 0 => {
            out.extend_from_slice(&udp(d.length));
            let mut bytes = [0; HEADER];
            d.header().encode(packet.flow.unwrap_or_default(), &mut bytes);
            out.extend_from_slice(&bytes[..HEADER.min((length - UDP_IP_HEADERS) as usize)]);
        }
        Content::Guaranteed(frame) => {
            out.extend_from_slice(&udp(length - UDP_IP_HEADERS));
            out.extend_from_slice(&frame.1);
        }
        Content::Quic(bytes) => {
            out.extend_from_slice(&udp(length - UDP_IP_HEADERS));
            out.extend_from_slice(bytes);
        }
        Content::Bundle { datagram, .. } => {
            if offset == 0 {
                out.extend_from_slice(&udp(octets));
            }
            let (from, until) = (offset.saturating_sub(UDP_HEADER), offset + length - UDP_IP_HEADERS);
            out.extend_from_slice(datagram.bytes.get(from as usize..until as usize).unwrap_or_default());
        }
        Content::Segment(_) | Content::LongSegment(_) => {
            let mut header = [0; LONGEST_HEADER];
            tcp_header::write(&packet.content, packet.is_reverse, &mut header);
            out.extend_from_slice(&header[..trunkline_tcp::header_length(&header)]);
        }
        _ => {}
    }
    Some(before + length)
}

/// Encodes a frame of an LLC station as an Ethernet frame and returns its original length. The frame has a VLAN tag if its
/// `wire_length` exceeds its PDU (docs/wire.md, LLC). A message consists of its header only.
fn encode_pdu(out: &mut Vec<u8>, (from, to): (u8, u8), frame: &[u8], wire_length: u32) -> u32 {
    let Some((&first, present)) = frame.split_first() else { return 0 };
    let mac = |station: u8| if station == ALL { [0xFF; 6] } else { headers::station_mac(station.into()) };
    let pdu = llc_stations::pdu_length(frame);
    out.extend_from_slice(&mac(to));
    out.extend_from_slice(&mac(from));
    if wire_length != pdu {
        out.extend_from_slice(&[0x81, 0x00, first.min(MAX_PRIORITY) << 5, 0x00]);
    }
    out.extend_from_slice(&(pdu as u16).to_be_bytes());
    let is_complete = pdu as usize == present.len();
    let captured =
        if is_complete { present.len() } else { (PDU_HEADER + HEADER).min(pdu as usize).min(present.len()) };
    out.extend_from_slice(&present[..captured]);
    let length = headers::ETHERNET + wire_length as usize;
    if is_complete {
        out.resize(length, 0);
    }
    length as u32
}

/// Returns the IPv4 addresses of the groups. The group of bundles for hosts precedes those of the wide area.
fn group_addresses(network: &Network) -> BTreeMap<u32, [u8; 4]> {
    let hosts = Ipv4Addr::from(u32::from(bundle::WIDE_AREA_BASE) - 1);
    let named = network.groups.iter().filter_map(|(address, group)| match address {
        IpAddr::V4(address) => Some((*group, address.octets())),
        IpAddr::V6(_) => None,
    });
    named.chain([(network.all_hosts_group, hosts.octets())]).collect()
}
