//! Captures: which frames each of them contains, and its pcapng file with nanosecond timestamps.
//!
//! Links, hubs and rings are captured where frames arrive, so a lost frame is missing; hosts where packets leave and
//! arrive. `NAME:NODE` is one direction of a link: the frames that `NODE` sends. Frames of an ATM link are AAL5 packets
//! (`LINKTYPE_SUNATM`) with the timestamp of their last cell.

use std::borrow::Cow;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use trunkline_endpoint::Port;
use trunkline_experiment::plan::{self, Encapsulation, Link, Medium as LinkMedium, NodeKind};
use trunkline_models::atm::CellFrame;
use trunkline_models::host::headers;

use crate::network::Network;
use crate::network::topology::Topology;

/// The framing on a hub or a ring.
const ETHERNET: Framing = (LinkMedium::Ethernet, Encapsulation::Llc);
/// Snapshot length in interface descriptions; the default of tcpdump.
const SNAPLEN: u32 = 262_144;
/// Bytes of blocks that wait to be written.
const BLOCKS: usize = 64 << 10;

/// Error of a capture.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// A file cannot be created.
    #[error("writing {}: {}", .0.display(), .1)]
    Create(PathBuf, io::Error),
    /// A file cannot be written.
    #[error("writing the capture of {0}: {1}")]
    Write(String, io::Error),
}

/// The link layer of packets in a capture; packets over PPP are raw IP.
pub type Framing = (LinkMedium, Encapsulation);

/// Which captures contain the frames of each medium and host, as indexes of their files.
#[derive(Debug)]
pub struct CapturePoints {
    media: Vec<Vec<MediumPoint>>,
    hosts: Vec<Option<usize>>,
}

#[derive(Debug)]
struct MediumPoint {
    capture: usize,
    /// The port at which the frames leave the medium; `None` for all ports.
    port: Option<Port>,
    /// On a shared medium, the serial number of the last captured frame: many stations receive it, one record is written.
    shared: Option<Option<u32>>,
}

/// The file of a capture. Each write has whole blocks, so a reader finds a complete file at any time.
pub struct CaptureFile {
    name: String,
    file: File,
    blocks: PcapNgWriter<Vec<u8>>,
    interfaces: Vec<Framing>,
}

impl fmt::Debug for CaptureFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureFile").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Returns why a name is not that of a capture in a network.
pub fn refuse(name: &str, network: &plan::Network) -> Option<String> {
    let node = |name: &str| network.nodes.iter().find(|n| n.name == name);
    let link = |name: &str| network.links.iter().find(|l| l.name == name);
    let shared = |name: &str| {
        node(name).is_some_and(|n| matches!(n.kind, NodeKind::Hub { .. } | NodeKind::Ring { .. }))
    };
    let (link, from) = match (link(name), name.rsplit_once(':')) {
        (None, Some((name, from))) => (link(name), Some(from)),
        (link, _) => (link, None),
    };
    match (node(name), link) {
        (Some(n), _) if matches!(n.kind, NodeKind::Switch { .. }) => {
            Some(format!("--trace {name}: capture the links of a switch, or the hosts at them"))
        }
        (Some(_), _) => None,
        (None, Some(l)) if shared(&l.a) || shared(&l.b) => {
            let medium = if shared(&l.a) { &l.a } else { &l.b };
            Some(format!("--trace {name}: this link is part of a shared medium; capture `{medium}`"))
        }
        (None, Some(l)) => from.filter(|from| *from != l.a && *from != l.b).map(|from| {
            format!("--trace {name}: `{from}` is no end of the link; its ends are `{}` and `{}`", l.a, l.b)
        }),
        (None, None) => {
            Some(format!("--trace {name}: the network has no link, host, hub or ring of that name"))
        }
    }
}

/// Opens `FOLDER/NAME.pcapng` for each link, direction of a link, hub, ring or host of `names`. In the name of a file,
/// `_` takes the place of `/` and `:`.
///
/// # Errors
/// Returns [`CaptureError::Create`] with the file that could not be created.
pub fn open<F: CellFrame>(
    names: &[String],
    network: &Network<F>,
    topology: &Topology<'_>,
    folder: &Path,
) -> Result<(CapturePoints, Vec<CaptureFile>), CaptureError> {
    let (media, hosts) = (network.media.iter().map(|_| Vec::new()), vec![None; network.hosts.len()]);
    let mut points = CapturePoints { media: media.collect(), hosts };
    let mut files = Vec::new();
    let framing = |l: &Link| (l.medium, l.encapsulation);
    let medium = |name: &str| network.media.iter().position(|m| m.name == name);
    for (n, name) in names.iter().enumerate() {
        if names[..n].contains(name) {
            continue;
        }
        let capture = files.len();
        let interfaces = if let Some(s) = network.hosts.iter().position(|h| h.name == *name) {
            points.hosts[s] = Some(capture);
            let ports = topology.ports[network.hosts[s].plan_node].iter();
            ports.map(|hop| framing(&topology.network.links[hop.link])).collect()
        } else {
            let direction = || name.rsplit_once(':').and_then(|(link, from)| Some((medium(link)?, from)));
            let Some((m, from)) =
                medium(name).map(|m| (m, None)).or_else(|| direction().map(|(m, from)| (m, Some(from))))
            else {
                continue;
            };
            let port = from.map(|from| {
                let is_first = network.neighbor_name(&network.media[m], Port(0)) == from;
                Port(u16::from(is_first))
            });
            let medium_name = &network.media[m].name;
            let is_shared = topology.node(medium_name).is_some_and(|node| topology.is_shared(node));
            points.media[m].push(MediumPoint { capture, port, shared: is_shared.then_some(None) });
            let link = topology.network.links.iter().find(|l| l.name == *medium_name);
            vec![link.map_or(ETHERNET, framing)]
        };
        let path = folder.join(format!("{}.pcapng", name.replace(['/', ':'], "_")));
        let file = CaptureFile::create(name, &path, interfaces);
        files.push(file.map_err(|cause| CaptureError::Create(path, cause))?);
    }
    Ok((points, files))
}

impl CapturePoints {
    /// Calls `each` with every capture that contains a frame which leaves a medium at a port.
    #[inline]
    pub fn at_medium(&mut self, medium: u32, port: Port, serial: u32, mut each: impl FnMut(usize)) {
        for point in &mut self.media[medium as usize] {
            let is_copy = |last: &mut Option<u32>| last.replace(serial) == Some(serial);
            if point.port.is_none_or(|only| only == port) && !point.shared.as_mut().is_some_and(is_copy) {
                each(point.capture);
            }
        }
    }

    /// Returns the capture that contains the frames which a host sends and receives.
    #[inline]
    pub fn at_host(&self, host: u32) -> Option<usize> {
        self.hosts[host as usize]
    }
}

impl CaptureFile {
    fn create(name: &str, path: &Path, interfaces: Vec<Framing>) -> io::Result<CaptureFile> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = File::create(path)?;
        let mut blocks = PcapNgWriter::new(Vec::new()).map_err(io::Error::other)?;
        for (n, framing) in interfaces.iter().enumerate() {
            let mut block = InterfaceDescriptionBlock::new(link_type(*framing), SNAPLEN);
            let label = if interfaces.len() == 1 { name.to_string() } else { format!("{name}.{n}") };
            block.options = vec![
                InterfaceDescriptionOption::IfName(Cow::Owned(label)),
                InterfaceDescriptionOption::IfTsResol(9),
            ];
            blocks.write_pcapng_block(block).map_err(io::Error::other)?;
        }
        Ok(CaptureFile { name: name.to_string(), file, blocks, interfaces })
    }

    /// Returns the link layer of an interface: the number of a host's interface, else 0.
    pub fn framing(&self, interface: u16) -> Framing {
        self.interfaces[usize::from(interface)]
    }

    /// Appends a packet of `length` bytes, of which `bytes` are present. `at` is the time since 1970.
    ///
    /// # Errors
    /// [`CaptureError::Write`].
    pub fn write(
        &mut self,
        interface: u16,
        at: Duration,
        bytes: &[u8],
        length: u32,
    ) -> Result<(), CaptureError> {
        let block = EnhancedPacketBlock {
            interface_id: interface.into(),
            timestamp: at,
            original_len: length,
            data: Cow::Borrowed(bytes),
            options: Vec::new(),
        };
        let written = self.blocks.write_pcapng_block(block).map_err(io::Error::other);
        written.map_err(|cause| CaptureError::Write(self.name.clone(), cause))?;
        if self.blocks.get_ref().len() >= BLOCKS { self.flush() } else { Ok(()) }
    }

    /// Writes all packets to the file.
    ///
    /// # Errors
    /// [`CaptureError::Write`].
    pub fn flush(&mut self) -> Result<(), CaptureError> {
        let blocks = self.blocks.get_mut();
        let written = self.file.write_all(blocks);
        blocks.clear();
        written.map_err(|cause| CaptureError::Write(self.name.clone(), cause))
    }
}

fn link_type((medium, _): Framing) -> DataLink {
    match medium {
        LinkMedium::Ethernet => DataLink::ETHERNET,
        LinkMedium::Atm => DataLink::SUNATM,
        LinkMedium::Ppp => DataLink::RAW,
    }
}

/// EtherType of IPv4.
pub const IPV4: [u8; 2] = [0x08, 0x00];

/// Appends the link-layer header of a packet between two MAC addresses, with its EtherType and on a virtual channel.
pub fn link_header(
    out: &mut Vec<u8>,
    framing: Framing,
    (from, to): ([u8; 6], [u8; 6]),
    ethertype: [u8; 2],
    channel: u16,
) {
    match framing {
        (LinkMedium::Ethernet, _) => {
            out.extend_from_slice(&to);
            out.extend_from_slice(&from);
            out.extend_from_slice(&ethertype);
        }
        (LinkMedium::Atm, encapsulation) => {
            // Traffic type LLC or none, VPI 0, VCI from 32 up (lower values are reserved).
            let kind = if encapsulation == Encapsulation::Llc { 2 } else { 0 };
            out.extend_from_slice(&[kind, 0]);
            out.extend_from_slice(&(32 + channel % 0x7fff).to_be_bytes());
            if encapsulation == Encapsulation::Llc {
                headers::llc_snap(ethertype, out);
            }
        }
        (LinkMedium::Ppp, _) => {}
    }
}

/// Returns the MAC address of an IPv4 group: its lower 23 bits (RFC 1112 section 6.4).
pub fn group_mac([_, b, c, d]: [u8; 4]) -> [u8; 6] {
    [0x01, 0x00, 0x5e, b & 0x7f, c, d]
}
