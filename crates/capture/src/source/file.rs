//! A capture file: pcap with micro- or nanoseconds, or pcapng.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption as Of,
};
use pcap_file::pcapng::{Block, PcapNgReader};

use super::{Looked, NoSource};
use crate::monitor::Monitor;
use crate::packet::{Captured, Link};
use crate::trace::plain;

/// A capture file, read from its beginning.
pub struct CaptureFile {
    name: String,
    reader: Reader,
    /// Time of the last packet, for one that has none.
    last_ns: u64,
    /// Packets of links that are not read.
    unread: u64,
}

enum Reader {
    Pcap(PcapReader<Box<dyn Read>>, Link),
    Next(PcapNgReader<Box<dyn Read>>),
}

impl std::fmt::Debug for CaptureFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CaptureFile").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How a pcapng file begins.
const SECTION: [u8; 4] = [0x0A, 0x0D, 0x0D, 0x0A];

impl CaptureFile {
    /// Opens it.
    ///
    /// # Errors
    /// [`NoSource::Io`] if it cannot be read or is no capture, [`NoSource::Link`].
    pub fn open(path: &Path) -> Result<CaptureFile, NoSource> {
        let name = path.display().to_string();
        let io = |error| NoSource::Io { name: name.clone(), error };
        CaptureFile::read(&name, File::open(path).map_err(io)?)
    }

    /// Reads one from anywhere.
    ///
    /// # Errors
    /// As [`CaptureFile::open`].
    pub fn read(name: &str, mut from: impl Read + 'static) -> Result<CaptureFile, NoSource> {
        let io = |error| NoSource::Io { name: name.into(), error };
        let foreign = |_| io(io::Error::new(io::ErrorKind::InvalidData, "neither pcap nor pcapng"));
        let mut first = [0; 4];
        from.read_exact(&mut first).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => foreign(()),
            _ => io(e),
        })?;
        let whole: Box<dyn Read> = Box::new(io::Cursor::new(first).chain(from));
        let reader = if first == SECTION {
            Reader::Next(PcapNgReader::new(whole).map_err(|_| foreign(()))?)
        } else {
            let pcap = PcapReader::new(whole).map_err(|_| foreign(()))?;
            let kind = pcap.header().datalink;
            let link = Link::of(kind)
                .ok_or_else(|| NoSource::Link { name: name.into(), what: format!("link type {kind:?}") })?;
            Reader::Pcap(pcap, link)
        };
        Ok(CaptureFile { name: name.into(), reader, last_ns: 0, unread: 0 })
    }

    /// Hands over up to `most` packets, fewer at the end of a sample.
    ///
    /// # Errors
    /// If the file cannot be read on, or is cut off.
    pub fn look(&mut self, monitor: &mut Monitor, most: usize) -> io::Result<Looked> {
        let before = monitor.load().closed();
        for _ in 0..most {
            if !self.next(monitor)? {
                return Ok(Looked::End);
            }
            if monitor.load().closed() != before {
                break;
            }
        }
        Ok(Looked::Some)
    }

    /// The next packet or block; false at the end.
    fn next(&mut self, monitor: &mut Monitor) -> io::Result<bool> {
        self.next_packet(|packet| monitor.add(packet))
    }

    /// Hands over the next packet, if the next block of the file is one. False at the end.
    ///
    /// # Errors
    /// If the file cannot be read on, or is cut off.
    pub fn next_packet(&mut self, mut handle: impl FnMut(&Captured<'_>)) -> io::Result<bool> {
        let frame = match &mut self.reader {
            Reader::Pcap(reader, link) => {
                let Some(packet) = reader.next_packet() else { return Ok(false) };
                let packet = packet.map_err(plain)?;
                let at_ns = packet.timestamp.as_nanos() as u64;
                handle(&Captured {
                    link: *link,
                    at_ns,
                    bytes: &packet.data,
                    original: packet.orig_len,
                    tag: None,
                });
                return Ok(true);
            }
            Reader::Next(reader) => {
                let Some(block) = reader.next_block() else { return Ok(false) };
                // Borrowed from the reader, whose interfaces are asked for next.
                match block.map_err(plain)? {
                    Block::EnhancedPacket(p) => {
                        Some((p.interface_id, Some(p.timestamp), p.original_len, p.data.into_owned()))
                    }
                    Block::SimplePacket(p) => Some((0, None, p.original_len, p.data.into_owned())),
                    Block::Packet(p) => {
                        let stamp = std::time::Duration::from_nanos(p.timestamp);
                        Some((p.interface_id.into(), Some(stamp), p.original_len, p.data.into_owned()))
                    }
                    _ => None,
                }
            }
        };
        let (Some((interface, stamp, original, bytes)), Reader::Next(reader)) = (frame, &self.reader) else {
            return Ok(true);
        };
        let interface = reader.interfaces().get(interface as usize);
        let Some((interface, link)) = interface.and_then(|i| Some((i, Link::of(i.linktype)?))) else {
            self.unread += 1;
            return Ok(true);
        };
        // The crate takes every stamp for nanoseconds.
        self.last_ns = stamp.map_or(self.last_ns, |stamp| nanoseconds(interface, stamp.as_nanos() as u64));
        handle(&Captured { link, at_ns: self.last_ns, bytes: &bytes, original, tag: None });
        Ok(true)
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Packets that were left out, since what they begin with is not read.
    pub fn unread(&self) -> u64 {
        self.unread
    }
}

/// A stamp of an interface in nanoseconds since 1970: by its `if_tsresol`, microseconds without, and `if_tsoffset`.
fn nanoseconds(interface: &InterfaceDescriptionBlock<'_>, stamp: u64) -> u64 {
    const NS: u128 = 1_000_000_000;
    let mut per_second = 1_000_000;
    let mut offset_s = 0;
    for option in &interface.options {
        match *option {
            Of::IfTsResol(power) if power & 0x80 != 0 => per_second = 1u128 << (power & 0x7F).min(64),
            Of::IfTsResol(power) => per_second = 10u128.pow(u32::from(power.min(20))),
            Of::IfTsOffset(seconds) => offset_s = seconds,
            _ => {}
        }
    }
    let ns = u128::from(stamp) * NS / per_second + u128::from(offset_s) * NS;
    u64::try_from(ns).unwrap_or(u64::MAX)
}
