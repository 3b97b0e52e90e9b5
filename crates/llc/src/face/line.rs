//! Frames of stations over packet sockets and UDP.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};

use trunkline_endpoint::Segment;
use trunkline_io::Groups;
use trunkline_io::packet::{self, PacketSocket};
use trunkline_units::Span;

use super::Network;
use crate::token::frame::{CONTROL, SAP};
use crate::wire::{ALL, HEADER, HIGHEST, MAX_INFORMATION};

/// Octets of a frame's destination and source, and where its length stands.
const ADDRESSES: usize = 12;
/// Where its PDU begins, without a tag.
const HEAD: usize = ADDRESSES + 2;
/// Shorter PDUs are padded.
const SMALLEST: usize = 46;
/// The longest PDU.
const LONGEST: usize = HEADER + MAX_INFORMATION;
/// Octets of an Ethernet frame before its PDU, with a tag.
const TAGGED: usize = HEAD + 4;
/// Octets that [`Line::send`] needs before a frame: that the priority, the frame's first, is overwritten spares a copy.
pub(super) const FRONT: usize = TAGGED - 1;
/// Room for one frame that comes, of either kind.
pub(super) const ROOM: usize = 2048;

/// What frames go over.
#[derive(Debug)]
pub(super) enum Line {
    Ethernet {
        socket: PacketSocket,
        station: u8,
        /// Whether frames to the token's SAP keep a ring.
        ring: bool,
    },
    Udp {
        groups: Groups,
        group: Ipv4Addr,
        port: u16,
    },
}

/// The frame that came, in the room that was given: a priority and a PDU, or one that keeps a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Came {
    pub station: u8,
    pub from: u16,
    pub to: u16,
}

/// The address of a station, as a number of 48 bits.
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
                    filter: packet::llc_for(own),
                    address: Some(own),
                    timestamps: false,
                    buffer,
                    ahead,
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

    /// Sends a frame, or a batch, of `length` octets that stand [`FRONT`] octets behind the begin of `room`; how many of them
    /// left. Waits for room. A single frame wants room for as much padding behind it, too, and is no more after it was sent.
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
                let length = enclose(room, to, *station, length);
                socket.send(&room[..length]).map(usize::from)
            }
            Line::Ethernet { socket, station, .. } => {
                let (mut ends, mut count, mut left) = ([0; packet::MANY], 0, 0);
                scratch.clear();
                for frame in Segment::frames(segment, &room[FRONT..FRONT + length]) {
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
                Segment::frames(segment, &room[FRONT..FRONT + length])
                    .try_fold(0, |left, frame| Ok(left + usize::from(groups.send(to, frame)?)))
            }
        }
    }

    /// The next frame from a station, in `room`; none if what came is from nobody. Waits for it, at most as long as
    /// [`limit_waiting`](Line::limit_waiting) says, if it may.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is none.
    #[inline(always)]
    pub fn receive(&self, room: &mut [u8; ROOM], may_wait: bool) -> io::Result<Option<Came>> {
        match self {
            Line::Ethernet { socket, ring, .. } => {
                let (got, tag) = socket.receive_tagged(room, may_wait)?;
                Ok(open_up(room, got, tag.map_or(0, packet::Tag::priority), *ring))
            }
            Line::Udp { groups, port, .. } => {
                let (got, from) = groups.receive(room, may_wait)?;
                let station = from.checked_sub(*port).and_then(|station| u8::try_from(station).ok());
                let station = station.filter(|station| (1..ALL).contains(station));
                Ok(station.map(|station| Came { station, from: 0, to: got as u16 }))
            }
        }
    }

    /// Lets [`receive`](Line::receive) wait so long at the most, rounded up to the system's ticks.
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

/// What stands before a PDU of `length` octets whose frame begins with `first`. What keeps a ring has the highest priority.
#[inline]
fn head(to: u8, station: u8, first: u8, length: usize) -> [u8; TAGGED] {
    let priority = if first == CONTROL { HIGHEST } else { first };
    // As numbers, so that it is made in three stores: destination, source, tag, length.
    let (to, station, tag) = (address(to), address(station), 0x8100_0000 | u64::from(priority) << 13);
    let mut head = [0; TAGGED];
    head[..8].copy_from_slice(&(to << 16 | station >> 32).to_be_bytes());
    head[8..16].copy_from_slice(&(station << 32 | tag).to_be_bytes());
    head[16..].copy_from_slice(&(length as u16).to_be_bytes());
    head
}

/// Makes the Ethernet frame that carries a station's, [`FRONT`] octets behind the begin of `room`, in place; how many octets
/// from there.
#[inline]
fn enclose(room: &mut [u8], to: u8, station: u8, length: usize) -> usize {
    let pdu = length.saturating_sub(1);
    let head = head(to, station, room[FRONT], pdu);
    room[..TAGGED].copy_from_slice(&head);
    if pdu < SMALLEST {
        // More than is missing, but always as much: that takes no loop.
        room[TAGGED + pdu..][..SMALLEST].fill(0);
    }
    TAGGED + pdu.max(SMALLEST)
}

/// Appends the same frame.
#[inline]
fn append(into: &mut Vec<u8>, to: u8, station: u8, frame: &[u8]) {
    let Some((first, pdu)) = frame.split_first() else { return };
    into.extend_from_slice(&head(to, station, *first, pdu.len()));
    into.extend_from_slice(pdu);
    if pdu.len() < SMALLEST {
        into.resize(into.len() + SMALLEST - pdu.len(), 0);
    }
}

/// Makes a station's frame of an Ethernet frame of `got` octets, in place.
#[inline(always)]
fn open_up(room: &mut [u8], got: usize, priority: u8, ring: bool) -> Option<Came> {
    let frame = room.get_mut(..got)?;
    let (head, pdu) = frame.split_at_mut_checked(HEAD)?;
    let length = usize::from(u16::from_be_bytes([head[ADDRESSES], head[ADDRESSES + 1]]));
    let station = head[ADDRESSES - 1];
    let from = u64::from_be_bytes(*head[ADDRESSES - 8..].first_chunk()?) & 0xFFFF_FFFF_FFFF;
    if from != address(station) || !(1..ALL).contains(&station) || length > pdu.len() || length > LONGEST {
        return None;
    }
    let keeps = ring && pdu.first() == Some(&SAP) && length > 0;
    // The low octet of the length has been read.
    head[HEAD - 1] = if keeps { CONTROL } else { priority };
    Some(Came { station, from: HEAD as u16 - 1, to: (HEAD + length) as u16 })
}

const _: () = assert!(HEAD + 4 + LONGEST <= ROOM && MAX_INFORMATION < LONGEST);

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
            let mut room = vec![0xEE; FRONT + frame.len() + SMALLEST];
            room[FRONT..FRONT + frame.len()].copy_from_slice(&frame);
            let enclosed = enclose(&mut room, 9, 200, frame.len());
            assert_eq!(room[..enclosed], sent[..], "in place as behind others");
            assert!(sent.len() >= 64 && sent.len() >= length + HEAD + 4);
            // The system takes the tag out.
            let tag = sent.drain(ADDRESSES..ADDRESSES + 4).collect::<Vec<_>>();
            let priority = tag[2] >> 5;
            assert_eq!((&tag[..2], priority), (&[0x81, 0][..], first.min(7)));
            let length = sent.len();
            let came = open_up(&mut sent, length, priority, true).unwrap();
            assert_eq!((came.station, &sent[came.from.into()..came.to.into()]), (200, &frame[..]));
        }
    }

    #[test]
    fn frames_of_others_and_cut_ones_are_nobodys() {
        let mut good = Vec::new();
        append(&mut good, 1, 2, &[0, 2, 4, 3, 1]);
        good.drain(ADDRESSES..ADDRESSES + 4);
        for cut in 0..HEAD + 4 {
            assert_eq!(open_up(&mut good.clone(), cut, 0, false), None, "{cut}");
        }
        for (at, value) in [(6, 0), (11, 0), (11, 255), (12, 6)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(open_up(&mut bad, good.len(), 0, false), None, "{at}");
        }
    }
}
