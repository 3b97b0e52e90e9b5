//! Frames over packet sockets and UDP.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};

use trunkline_endpoint::Segment;
use trunkline_io::Groups;
use trunkline_io::packet::{self, PacketSocket};
use trunkline_units::Span;

use super::Network;
use crate::token::frame::{CONTROL, SAP};
use crate::wire::{ALL, HEADER, MAX_INFORMATION, MAX_PRIORITY};

/// Octets of destination and source address; the length field follows.
const ADDRESSES: usize = 12;
/// Offset of the PDU without a tag.
const HEAD: usize = ADDRESSES + 2;
/// Minimum length of a padded PDU.
const MIN_PDU: usize = 46;
/// Maximum length of a PDU.
const MAX_PDU: usize = HEADER + MAX_INFORMATION;
/// Offset of the PDU with a tag.
const TAGGED: usize = HEAD + 4;
/// Headroom that [`Line::send`] needs before a frame; the priority octet is overwritten, which saves a copy.
pub(super) const HEADROOM: usize = TAGGED - 1;
/// Buffer size for one received frame.
pub(super) const BUFFER_SIZE: usize = 2048;

/// The network that carries the frames.
#[derive(Debug)]
pub(super) enum Line {
    Ethernet {
        socket: PacketSocket,
        station: u8,
        /// Whether frames to the token's SAP control a ring.
        ring: bool,
    },
    Udp {
        groups: Groups,
        group: Ipv4Addr,
        port: u16,
    },
}

/// A received frame in the caller's buffer: a priority and a PDU, or a ring control frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReceivedFrame {
    pub station: u8,
    pub from: u16,
    pub to: u16,
}

/// Returns the MAC address of a station as a 48-bit number.
#[inline]
fn address(station: u8) -> u64 {
    match station {
        ALL => 0xFFFF_FFFF_FFFF,
        station => 0x0200_0000_0000 | u64::from(station),
    }
}

impl Line {
    pub fn open(network: &Network, station: u8, ring: bool, buffer: usize, ahead: usize) -> io::Result<Line> {
        match network {
            Network::Ethernet { interface } => {
                let own = [2, 0, 0, 0, 0, station];
                let options = packet::Options {
                    filter: packet::llc_to(own),
                    address: Some(own),
                    timestamps: false,
                    receive_buffer: buffer,
                    send_buffer: ahead,
                    ..packet::Options::default()
                };
                let socket = PacketSocket::open(interface, &options)?;
                if ![packet::ETHERNET, packet::LOOPBACK].contains(&socket.hardware()) {
                    let message = format!("{interface} is no Ethernet interface");
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
                }
                Ok(Line::Ethernet { socket, station, ring })
            }
            &Network::Udp { group, port, interface } => {
                let source = port + u16::from(station);
                let members = [station, ALL].map(|member| Network::group(group, member));
                Ok(Line::Udp {
                    groups: Groups::open(interface, port, source, &members, buffer, ahead)?,
                    group,
                    port,
                })
            }
        }
    }

    /// Sends a frame or batch of `length` octets, which begins [`HEADROOM`] octets into `room`; returns how many
    /// frames were sent. Blocks while the buffer is full. A single frame needs room for padding behind it, and is
    /// overwritten.
    #[inline]
    pub fn send(
        &self,
        to: u8,
        room: &mut [u8],
        length: usize,
        segment: Option<Segment>,
        scratch: &mut Vec<u8>,
    ) -> io::Result<usize> {
        match self {
            Line::Ethernet { socket, station, .. } if segment.is_none() => {
                let length = encapsulate(room, to, *station, length);
                socket.send(&room[..length]).map(usize::from)
            }
            Line::Ethernet { socket, station, .. } => {
                let (mut ends, mut count, mut left) = ([0; packet::MAX_SEND_MANY], 0, 0);
                scratch.clear();
                for frame in Segment::frames(segment, &room[HEADROOM..HEADROOM + length]) {
                    append(scratch, to, *station, frame);
                    ends[count] = scratch.len();
                    count += 1;
                    if count == ends.len() {
                        left += socket.send_many(scratch, &ends)?;
                        scratch.clear();
                        count = 0;
                    }
                }
                if count > 0 {
                    left += socket.send_many(scratch, &ends[..count])?;
                }
                Ok(left)
            }
            Line::Udp { groups, group, .. } => {
                let to = Network::group(*group, to);
                Segment::frames(segment, &room[HEADROOM..HEADROOM + length])
                    .try_fold(0, |left, frame| Ok(left + usize::from(groups.send(to, frame)?)))
            }
        }
    }

    /// Receives a frame into `room`; `None` if its source is no station. Blocks if it may, at most for
    /// [`limit_waiting`](Line::limit_waiting).
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if none is queued.
    #[inline(always)]
    pub fn receive(&self, room: &mut [u8; BUFFER_SIZE], may_wait: bool) -> io::Result<Option<ReceivedFrame>> {
        match self {
            Line::Ethernet { socket, ring, .. } => {
                let (got, tag) = socket.receive_tagged(room, may_wait)?;
                Ok(decapsulate(room, got, tag.map_or(0, packet::Tag::priority), *ring))
            }
            Line::Udp { groups, port, .. } => {
                let (got, from) = groups.receive(room, may_wait)?;
                let station = from.checked_sub(*port).and_then(|station| u8::try_from(station).ok());
                let station = station.filter(|station| (1..ALL).contains(station));
                Ok(station.map(|station| ReceivedFrame { station, from: 0, to: got as u16 }))
            }
        }
    }

    /// Limits how long [`receive`](Line::receive) blocks, rounded up to kernel ticks.
    pub fn limit_waiting(&self, limit: Span) -> io::Result<()> {
        match self {
            Line::Ethernet { socket, .. } => socket.limit_waiting(Some(limit)),
            Line::Udp { groups, .. } => groups.limit_waiting(limit),
        }
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Line::Ethernet { socket, .. } => socket.as_fd(),
            Line::Udp { groups, .. } => groups.as_fd(),
        }
    }
}

/// Builds the header of a PDU of `length` octets whose frame begins with `first`. Ring control frames have the
/// highest priority.
#[inline]
fn head(to: u8, station: u8, first: u8, length: usize) -> [u8; TAGGED] {
    let priority = if first == CONTROL { MAX_PRIORITY } else { first };
    // As integers, so that it takes three stores: destination, source, tag, length.
    let (to, station, tag) = (address(to), address(station), 0x8100_0000 | u64::from(priority) << 13);
    let mut head = [0; TAGGED];
    head[..8].copy_from_slice(&(to << 16 | station >> 32).to_be_bytes());
    head[8..16].copy_from_slice(&(station << 32 | tag).to_be_bytes());
    head[16..].copy_from_slice(&(length as u16).to_be_bytes());
    head
}

/// Builds the Ethernet frame of a station's frame in place, [`HEADROOM`] octets into `room`; returns its length.
#[inline]
fn encapsulate(room: &mut [u8], to: u8, station: u8, length: usize) -> usize {
    let pdu = length.saturating_sub(1);
    let head = head(to, station, room[HEADROOM], pdu);
    room[..TAGGED].copy_from_slice(&head);
    if pdu < MIN_PDU {
        // Always fill the same amount, which takes no loop.
        room[TAGGED + pdu..][..MIN_PDU].fill(0);
    }
    TAGGED + pdu.max(MIN_PDU)
}

/// Appends the same frame to a vector.
#[inline]
fn append(into: &mut Vec<u8>, to: u8, station: u8, frame: &[u8]) {
    let Some((first, pdu)) = frame.split_first() else { return };
    into.extend_from_slice(&head(to, station, *first, pdu.len()));
    into.extend_from_slice(pdu);
    if pdu.len() < MIN_PDU {
        into.resize(into.len() + MIN_PDU - pdu.len(), 0);
    }
}

/// Converts an Ethernet frame of `got` octets to a station's frame in place.
#[inline(always)]
fn decapsulate(room: &mut [u8], got: usize, priority: u8, ring: bool) -> Option<ReceivedFrame> {
    let frame = room.get_mut(..got)?;
    let (head, pdu) = frame.split_at_mut_checked(HEAD)?;
    let length = usize::from(u16::from_be_bytes([head[ADDRESSES], head[ADDRESSES + 1]]));
    let station = head[ADDRESSES - 1];
    let from = u64::from_be_bytes(*head[ADDRESSES - 8..].first_chunk()?) & 0xFFFF_FFFF_FFFF;
    if from != address(station) || !(1..ALL).contains(&station) || length > pdu.len() || length > MAX_PDU {
        return None;
    }
    let keeps = ring && pdu.first() == Some(&SAP) && length > 0;
    // The low octet of the length is no longer needed.
    head[HEAD - 1] = if keeps { CONTROL } else { priority };
    Some(ReceivedFrame { station, from: HEAD as u16 - 1, to: (HEAD + length) as u16 })
}

const _: () = assert!(HEAD + 4 + MAX_PDU <= BUFFER_SIZE && MAX_INFORMATION < MAX_PDU);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_out_as_it_went_in() {
        for (length, first) in [(3, 0), (4, 7), (49, 5), (60, 3), (1500, 6), (40, CONTROL)] {
            let mut frame: Vec<u8> = (0..=length as u16).map(|n| n as u8).collect();
            (frame[0], frame[1]) = (first, if first == CONTROL { SAP } else { 8 });
            let mut sent = Vec::new();
            append(&mut sent, 9, 200, &frame);
            let mut room = vec![0xEE; HEADROOM + frame.len() + MIN_PDU];
            room[HEADROOM..HEADROOM + frame.len()].copy_from_slice(&frame);
            let enclosed = encapsulate(&mut room, 9, 200, frame.len());
            assert_eq!(room[..enclosed], sent[..], "in place as behind others");
            assert!(sent.len() >= 64 && sent.len() >= length + HEAD + 4);
            // The kernel strips the tag.
            let tag = sent.drain(ADDRESSES..ADDRESSES + 4).collect::<Vec<_>>();
            let priority = tag[2] >> 5;
            assert_eq!((&tag[..2], priority), (&[0x81, 0][..], first.min(7)));
            let length = sent.len();
            let came = decapsulate(&mut sent, length, priority, true).unwrap();
            assert_eq!((came.station, &sent[came.from.into()..came.to.into()]), (200, &frame[..]));
        }
    }

    #[test]
    fn foreign_and_truncated_frames_are_ignored() {
        let mut good = Vec::new();
        append(&mut good, 1, 2, &[0, 2, 4, 3, 1]);
        good.drain(ADDRESSES..ADDRESSES + 4);
        for cut in 0..HEAD + 4 {
            assert_eq!(decapsulate(&mut good.clone(), cut, 0, false), None, "{cut}");
        }
        for (at, value) in [(6, 0), (11, 0), (11, 255), (12, 6)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(decapsulate(&mut bad, good.len(), 0, false), None, "{at}");
        }
    }
}
