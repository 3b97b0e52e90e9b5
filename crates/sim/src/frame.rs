//! What crosses the media of a simulation: lengths and meaning. Payload is virtual; only headers that somebody reads
//! are bytes.

use std::sync::Arc;

use trunkline_endpoint::{Frame as Crossing, MAX_BATCH, To};
use trunkline_models::atm::{CellFrame, Train};
use trunkline_run::message::Kind;
use trunkline_units::Instant;

use crate::flow::way::Way;

/// Bytes of the longest TCP header kept: options of a SYN are an MSS and a window scale.
pub const TCP_HEADER: usize = 28;

/// Bytes of a cell.
const CELL: u32 = 53;
/// Boxes kept to be filled again.
const SPARE: usize = 4096;

/// A packet, a cell or a train of cells: 24 bytes, in three words because it is moved several times on each of its hops,
/// and words are moved at once where the fields of a struct are moved one by one.
///
/// A packet owns what it carries, and so do its last cell and its train: what is cloned or dropped on the way is
/// Rust's to see to. Beside its [`Packet`], a frame under way takes no memory elsewhere.
#[derive(Clone, Debug)]
pub struct Frame {
    /// What it carries; nothing, if it is a cell and not the last of its packet.
    packet: Option<Box<Packet>>,
    /// What media ask: to 32, length 16, channel 16 bits, from below.
    way: u64,
    /// Serial 32, cell 14, cells 14 (0: it is a packet), damaged 1 bit.
    mark: u64,
}

/// Where the bits of a frame's words begin.
const LENGTH: u32 = 32;
const CHANNEL: u32 = 48;
const INDEX: u32 = 32;
const COUNT: u32 = 46;
/// The longest IPv4 packet has 1,366 cells.
const CELLS: u64 = (1 << 14) - 1;
const DAMAGED: u64 = 1 << 60;
/// The upper bit of [`To`] in half its size says that it is a group; everybody has all bits.
const GROUP: u32 = 1 << 31;

/// A packet and what it carries.
#[derive(Clone, Debug)]
pub struct Packet {
    /// What is in it.
    pub content: Content,
    /// Bytes of IP: at most 65,535, as IPv4 has it.
    pub length: u32,
    /// Which flow it belongs to.
    pub flow: u32,
    /// Its virtual channel.
    pub channel: u16,
    /// Whether it goes from a receiver of its flow to the sender.
    pub is_back: bool,
    /// Whom it is for.
    pub to: To,
    /// If it crosses as a train.
    train: Option<Box<Train>>,
}

/// What a packet carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A test message, or a fragment of one, over UDP.
    Datagram(Datagram),
    /// A TCP segment: its header, which says how long it is. The payload's length follows from the packet's.
    Segment([u8; TCP_HEADER]),
    /// A frame of the guaranteed transport, over UDP. It checks itself, so every byte is there; and the moments of its
    /// way.
    Frame(Box<(Way, Box<[u8]>)>),
    /// A frame of an LLC station, its first octet (a priority, or a token's mark) included. Of a message only the header
    /// is there, of all other frames everything. Shared among those who hear it.
    Pdu {
        /// The number of the station that sent it.
        from: u8,
        /// Of the one that it is for; 255: of all.
        to: u8,
        /// It.
        bytes: Arc<[u8]>,
    },
    /// A bundle, or a message from or for the wide area, over UDP: every byte is there, and with each fragment all of them.
    /// Shared among those who hear it.
    Bundle {
        /// All of it.
        parcel: Arc<Parcel>,
        /// Which fragment this is, and of how many.
        fragment: u16,
        /// Fragments, at least 1.
        fragments: u16,
    },
}

/// A datagram with a bundle or a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// The station that sent it.
    pub from: u32,
    /// As which of its datagrams.
    pub serial: u32,
    /// It.
    pub bytes: Box<[u8]>,
}

/// A test message in a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Sequence number.
    pub sequence: u64,
    /// When it was handed to the transport.
    pub sent: Instant,
    /// Bytes of the message, header included.
    pub size: u32,
    /// Bytes of the answer asked for.
    pub response: u32,
    /// Which fragment this is, and of how many.
    pub fragment: u16,
    /// Fragments of the message, at least 1.
    pub fragments: u16,
    /// What the message is.
    pub kind: Kind,
}

/// What packets are made with.
#[derive(Debug)]
pub struct Kit {
    /// Room for one segment's bytes.
    pub scratch: Box<[u8]>,
    /// Boxes of packets that are no more, at most 4,096, to be filled again.
    #[expect(clippy::vec_box, reason = "a frame carries a box, and gives one back")]
    spare: Vec<Box<Packet>>,
    /// Packets so far.
    serial: u32,
}

impl Default for Kit {
    fn default() -> Self {
        Kit { scratch: vec![0; MAX_BATCH].into(), spare: Vec::new(), serial: 0 }
    }
}

impl Kit {
    /// Sends a packet out.
    #[inline(always)]
    pub fn frame(&mut self, packet: Packet) -> Frame {
        let serial = self.serial;
        self.serial = serial.wrapping_add(1);
        let (to, length, channel) = (packet.to, packet.length, packet.channel);
        let packet = match self.spare.pop() {
            Some(mut spare) => {
                *spare = packet;
                spare
            }
            None => Box::new(packet),
        };
        Frame { packet: Some(packet), way: way(to, length, channel), mark: u64::from(serial) }
    }

    /// Keeps the box of a packet that is no more.
    #[inline]
    pub fn keep(&mut self, mut packet: Box<Packet>) {
        if let Content::Frame(frame) = &mut packet.content {
            frame.1 = Box::default();
        }
        if self.spare.len() < SPARE {
            self.spare.push(packet);
        }
    }
}

/// A frame's second word.
#[inline(always)]
fn way(to: To, length: u32, channel: u16) -> u64 {
    debug_assert!(length <= u32::from(u16::MAX), "the language has no larger MTU");
    let to = match to {
        To::Station(station) => station & !GROUP,
        To::Group(group) => group | GROUP,
        To::All => u32::MAX,
    };
    u64::from(to) | u64::from(length) << LENGTH | u64::from(channel) << CHANNEL
}

impl Packet {
    /// A packet of `length` bytes of IP, from the sender of `flow` or (`is_back`) to it.
    #[inline(always)]
    pub fn new(content: Content, length: u32, flow: u32, channel: u16, to: To, is_back: bool) -> Packet {
        Packet { content, length, flow, channel, is_back, to, train: None }
    }
}

impl Frame {
    /// The packet, if it is one or carries one: of its cells, the last.
    #[inline]
    pub fn packet(&self) -> Option<&Packet> {
        self.packet.as_deref()
    }

    /// The packet, as [`packet`](Frame::packet), to keep.
    #[inline]
    pub fn open(self) -> Option<Box<Packet>> {
        self.packet
    }

    /// The moments of its way, if it carries a frame of the guaranteed transport.
    #[inline]
    pub fn way(&mut self) -> Option<&mut Way> {
        match self.packet.as_deref_mut() {
            Some(Packet { content: Content::Frame(frame), .. }) => Some(&mut frame.0),
            _ => None,
        }
    }

    /// Makes it a cell, or with a `count` of 0 a packet, that is so long on the line.
    #[inline]
    fn cross_as(&mut self, length: u32, index: u16, count: u16) {
        self.way = self.way & !(0xFFFF << LENGTH) | u64::from(length) << LENGTH;
        self.mark = self.mark & !(CELLS << INDEX | CELLS << COUNT)
            | u64::from(index) << INDEX
            | u64::from(count) << COUNT;
    }
}

impl Crossing for Frame {
    #[inline]
    fn length(&self) -> u32 {
        u32::from((self.way >> LENGTH) as u16)
    }

    #[inline]
    fn to(&self) -> To {
        match self.way as u32 {
            u32::MAX => To::All,
            group if group & GROUP != 0 => To::Group(group & !GROUP),
            station => To::Station(station),
        }
    }

    #[inline]
    fn channel(&self) -> u16 {
        (self.way >> CHANNEL) as u16
    }

    #[inline]
    fn damage(&mut self) {
        self.mark |= DAMAGED;
    }

    #[inline]
    fn is_damaged(&self) -> bool {
        self.mark & DAMAGED != 0
    }
}

impl CellFrame for Frame {
    #[inline]
    fn cell(&self, index: u16, count: u16) -> Self {
        let mut cell = Frame { packet: None, way: self.way, mark: self.mark };
        cell.cross_as(CELL, index, count);
        cell
    }

    #[inline]
    fn last_cell(mut self, index: u16, count: u16) -> Self {
        self.cross_as(CELL, index, count);
        self
    }

    #[inline]
    fn as_cell(&self) -> Option<(u16, u16)> {
        let (index, count) = (self.mark >> INDEX & CELLS, self.mark >> COUNT & CELLS);
        (count > 0).then_some((index as u16, count as u16))
    }

    #[inline]
    fn serial(&self) -> u32 {
        self.mark as u32
    }

    #[inline]
    fn into_packet(mut self) -> Self {
        if let Some(packet) = &self.packet {
            let length = packet.length;
            self.cross_as(length, 0, 0);
        }
        self
    }

    #[inline]
    fn into_train(mut self, train: Box<Train>) -> Self {
        if let Some(packet) = &mut self.packet {
            packet.train = Some(train);
        }
        self
    }

    #[inline]
    fn take_train(&mut self) -> Option<Box<Train>> {
        self.packet.as_mut()?.train.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: Content = Content::Segment([7; TCP_HEADER]);

    fn packet(to: To, length: u32) -> Packet {
        Packet::new(SEGMENT, length, 3, 0xFEDC, to, true)
    }

    #[test]
    fn a_frame_is_small() {
        // A cell crosses the media in hundreds of thousands a second.
        assert_eq!((size_of::<Frame>(), size_of::<Packet>()), (24, 64));
    }

    #[test]
    fn a_frame_knows_its_way_whole_and_in_cells() {
        for (to, length) in [(To::Station(7), 28), (To::Group(9), 9180), (To::All, 65_535)] {
            let mut kit = Kit { serial: 0xFFFF_FFF1, ..Kit::default() };
            let mut whole = kit.frame(packet(to, length));
            assert_eq!((whole.to(), whole.length(), whole.as_cell()), (to, length, None));
            let first = whole.cell(0, 1366);
            whole.damage();
            let last = whole.last_cell(1365, 1366);
            for (cell, index) in [(&first, 0), (&last, 1365)] {
                assert_eq!((cell.to(), cell.channel(), cell.length()), (to, 0xFEDC, 53));
                assert_eq!((cell.as_cell(), cell.serial()), (Some((index, 1366)), 0xFFFF_FFF1));
                assert_eq!((cell.is_damaged(), cell.packet().is_some()), (index > 0, index > 0));
            }
            // The packet goes with the last cell.
            let whole = last.into_packet();
            assert_eq!((whole.length(), whole.as_cell(), whole.is_damaged()), (length, None, true));
            assert_eq!(whole.open().map(|packet| (packet.length, packet.content)), Some((length, SEGMENT)));
        }
    }

    #[test]
    fn spare_boxes_are_filled_again_and_few_are_kept() {
        let mut kit = Kit::default();
        (0..SPARE + 10).for_each(|_| kit.keep(Box::new(packet(To::All, 100))));
        assert_eq!(kit.spare.len(), SPARE);
        let frame = kit.frame(packet(To::Station(1), 200));
        assert_eq!(frame.packet().map(|packet| (packet.to, packet.length)), Some((To::Station(1), 200)));
        assert_eq!(kit.spare.len(), SPARE - 1);
        assert_ne!(frame.serial(), kit.frame(packet(To::All, 100)).serial());
    }
}
