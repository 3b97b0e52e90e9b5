//! The last so many packets, whole, to be paged through and written as pcapng.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, PcapError};

use crate::packet::{Captured, Link};

/// Most octets of a packet that are kept.
pub const SNAP: usize = 2048;

/// A packet that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its place among all that came, from 1.
    pub number: u64,
    /// What its octets begin with.
    pub link: Link,
    /// When, in nanoseconds since 1970.
    pub at_ns: u64,
    /// Its octets, the tag back in its place.
    pub bytes: Vec<u8>,
    /// How many there were.
    pub original: u32,
}

impl Event {
    /// As it was captured.
    pub fn captured(&self) -> Captured<'_> {
        let Event { link, at_ns, original, .. } = *self;
        Captured { link, at_ns, bytes: &self.bytes, original, tag: None }
    }
}

/// The last events, at most so many, each of at most [`SNAP`] octets.
#[derive(Clone, Debug)]
pub struct Trace {
    events: VecDeque<Event>,
    limit: usize,
    seen: u64,
}

impl Trace {
    /// Keeps the last `limit`.
    pub fn new(limit: usize) -> Trace {
        Trace { events: VecDeque::new(), limit, seen: 0 }
    }

    /// Keeps a packet, and forgets the oldest if there is no room.
    pub fn add(&mut self, frame: &Captured<'_>) {
        self.seen += 1;
        if self.limit == 0 {
            return;
        }
        // Full: the oldest one's memory is used again.
        let full = self.events.len() >= self.limit;
        let mut bytes =
            if full { self.events.pop_front().map(|e| e.bytes).unwrap_or_default() } else { Vec::new() };
        bytes.clear();
        let mut original = frame.original;
        let mut rest = frame.bytes;
        if let (Some(tag), Link::Ethernet, Some((addresses, behind))) =
            (frame.tag, frame.link, frame.bytes.split_at_checked(12))
        {
            bytes.extend_from_slice(addresses);
            bytes.extend_from_slice(&tag.octets());
            original += 4;
            rest = behind;
        }
        bytes.extend_from_slice(&rest[..rest.len().min(SNAP - bytes.len())]);
        let event = Event { number: self.seen, link: frame.link, at_ns: frame.at_ns, bytes, original };
        self.events.push_back(event);
    }

    /// The events, the oldest first.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &Event> + ExactSizeIterator {
        self.events.iter()
    }

    /// The event at this place, from 0, the oldest.
    pub fn get(&self, at: usize) -> Option<&Event> {
        self.events.get(at)
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Writes them into a new file as pcapng, with nanoseconds; how many.
    ///
    /// # Errors
    /// If the file exists, or cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<usize> {
        let file = BufWriter::new(File::create_new(path)?);
        let mut file = PcapNgWriter::new(file).map_err(plain)?;
        let mut links: Vec<Link> = Vec::new();
        for event in &self.events {
            if !links.contains(&event.link) {
                links.push(event.link);
                let mut block = InterfaceDescriptionBlock::new(event.link.data_link(), SNAP as u32);
                block.options = vec![InterfaceDescriptionOption::IfTsResol(9)];
                file.write_pcapng_block(block).map_err(plain)?;
            }
            let interface = links.iter().position(|link| *link == event.link).unwrap_or_default();
            let block = EnhancedPacketBlock {
                interface_id: interface as u32,
                timestamp: Duration::from_nanos(event.at_ns),
                original_len: event.original,
                data: event.bytes.as_slice().into(),
                options: Vec::new(),
            };
            file.write_pcapng_block(block).map_err(plain)?;
        }
        file.get_mut().flush()?;
        Ok(self.events.len())
    }
}

impl Link {
    /// The link type of capture files.
    pub fn data_link(self) -> DataLink {
        match self {
            Link::Ethernet => DataLink::ETHERNET,
            Link::Ip => DataLink::RAW,
            Link::Atm => DataLink::SUNATM,
            Link::Cooked => DataLink::LINUX_SLL,
            Link::Cooked2 => DataLink::LINUX_SLL2,
            Link::Null => DataLink::NULL,
        }
    }

    /// What a link type of capture files means, if it is understood.
    pub fn of(kind: DataLink) -> Option<Link> {
        Some(match kind {
            DataLink::ETHERNET => Link::Ethernet,
            DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => Link::Ip,
            DataLink::SUNATM => Link::Atm,
            DataLink::LINUX_SLL => Link::Cooked,
            DataLink::LINUX_SLL2 => Link::Cooked2,
            DataLink::NULL | DataLink::LOOP => Link::Null,
            _ => return None,
        })
    }
}

/// What the capture crate says, as an error of input or output.
pub(crate) fn plain(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(e) => e,
        other => io::Error::new(io::ErrorKind::InvalidData, other.to_string()),
    }
}
