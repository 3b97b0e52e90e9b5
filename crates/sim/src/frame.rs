//! Frames and packets that cross the media of a simulation. Payload is virtual: frames carry lengths and metadata, and
//! only headers that a node parses are bytes.

use std::sync::Arc;

use trunkline_endpoint::{Destination, Ecn, Frame as MediumFrame, MAX_BATCH};
use trunkline_models::atm::{CellFrame, Train};
use trunkline_run::message::{Header, MessageKind};
use trunkline_tcp::segment::LONGEST_HEADER;
use trunkline_units::{Instant, Rate};

use crate::stages::FrameTimes;

/// Bytes of a short TCP header that a packet stores: 12 of the fixed part and 16 of options, as `tcp_header` writes them.
pub const TCP_FIELDS: usize = 28;

/// Octets of an IEEE 802.1Q tag.
pub const VLAN_TAG: u32 = 4;

/// Bytes of an ATM cell.
const CELL: u32 = 53;
/// Maximum number of packet boxes kept for reuse.
const MAX_SPARE: usize = 4096;

/// A packet, a cell or a train of cells.
///
/// It has 24 bytes in three words: a frame is moved several times per hop, and the compiler moves words faster than the
/// separate fields of a struct. A packet, its last cell and its train own the [`Packet`]; a frame in flight uses no other
/// memory.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The packet; `None` for a cell that is not the last of its packet.
    packet: Option<Box<Packet>>,
    /// Addressing for the media, from the least significant bit: destination 32 bits, length 16, channel 16.
    route_word: u64,
    /// Serial number 32 bits, cell index 14, cell count 14 (0: a packet), damaged 1.
    cell_word: u64,
}

/// Bit offsets of the fields in a frame's words.
const LENGTH: u32 = 32;
const CHANNEL: u32 = 48;
const INDEX: u32 = 32;
const COUNT: u32 = 46;
/// The longest IPv4 packet has 1,366 cells.
const CELLS: u64 = (1 << 14) - 1;
const DAMAGED: u64 = 1 << 60;
/// The top bit of an encoded [`Destination`] marks a group. All bits set mean broadcast.
const GROUP: u32 = 1 << 31;

/// A packet and its content.
#[derive(Clone, Debug)]
pub struct Packet {
    pub content: Content,
    /// Bytes of the IP packet: at most 65,535 (IPv4).
    pub length: u32,
    /// The flow that it belongs to; `None` between LLC stations and between bundle workers, which serve many flows.
    pub flow: Option<u32>,
    pub channel: u16,
    /// Whether it goes from a receiver of its flow to the sender.
    pub is_reverse: bool,
    /// The octet of the IP header that has the DSCP and the ECN field.
    pub traffic_class: u8,
    pub to: Destination,
    /// The train, if it crosses a link as one.
    train: Option<Box<Train>>,
}

/// The content of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A measurement message, or a fragment of one, over UDP.
    Datagram(Datagram),
    /// A TCP segment: fields of its header, which contains its own length. The payload length follows from the packet length.
    Segment([u8; TCP_FIELDS]),
    /// The same with a longer header: selective acknowledgements, and a SYN with all options.
    LongSegment(Box<[u8; LONGEST_HEADER]>),
    /// A frame of the guaranteed transport over UDP, with the times at which it passed each point. All bytes are present,
    /// because the receiver verifies a checksum.
    Guaranteed(Box<(FrameTimes, Box<[u8]>)>),
    /// A packet of QUIC over UDP. All bytes are present, because the receiver verifies and decrypts them.
    Quic(Box<[u8]>),
    /// A frame of an LLC station, including its first octet (a priority or a token marker). A message consists of its
    /// header only; all other frames are complete. Receivers share the bytes.
    Pdu {
        /// Number of the sending station.
        from: u8,
        /// Number of the receiving station; 255: broadcast.
        to: u8,
        bytes: Arc<[u8]>,
    },
    /// A resource-management cell.
    Rm(RmCell),
    /// A bundle, or a message from or to the wide area, over UDP. Each fragment refers to the whole datagram. Receivers
    /// share the bytes.
    Bundle {
        datagram: Arc<BundleDatagram>,
        /// Index of this fragment, from 0.
        fragment: u16,
        /// Number of fragments, at least 1.
        fragments: u16,
    },
}

/// A resource-management cell of explicit rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RmCell {
    /// To the controller of a line: the source of a flow is active and can use at most this rate.
    Request { flow: u32, line: u32, limit: Rate },
    /// To the controller of a line: the source ends.
    Leave { flow: u32, line: u32 },
    /// From the controller of a line to a source: the rate that it allows.
    Answer { flow: u32, line: u32, rate: Rate },
    /// From a source to its destination, with its current rate.
    Forward { flow: u32, rate: Rate },
    /// Back to the source, with the rate that the destination and the switches allow.
    Backward { flow: u32, rate: Rate },
}

/// A UDP datagram with a bundle or a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleDatagram {
    /// Number of the sending host.
    pub from_host: u32,
    /// Number of the datagram at its sender, for reassembly.
    pub number: u32,
    pub bytes: Box<[u8]>,
}

/// A measurement message in a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    pub sequence: u64,
    /// Time when the message was handed to the transport.
    pub sent_at: Instant,
    /// Bytes of the message, including its header.
    pub length: u32,
    /// Bytes of the requested response.
    pub response_length: u32,
    /// Index of this fragment, from 0.
    pub fragment: u16,
    /// Number of fragments of the message, at least 1.
    pub fragments: u16,
    pub kind: MessageKind,
}

impl Datagram {
    /// Returns the header of the message.
    #[inline]
    pub fn header(&self) -> Header {
        Header {
            sequence: self.sequence,
            sent_at: self.sent_at,
            length: self.length,
            response_length: self.response_length,
            kind: self.kind,
        }
    }
}

/// Allocates packets and reuses their boxes.
#[derive(Debug)]
pub struct PacketPool {
    /// Scratch buffer for the bytes of one segment.
    pub scratch: Box<[u8]>,
    /// Boxes of dropped packets for reuse, at most 4,096. Their packets own no memory.
    #[expect(clippy::vec_box, reason = "a frame carries a box and returns it")]
    spare: Vec<Box<Packet>>,
    /// Serial number of the next packet: the number of packets created.
    serial: u32,
}

impl Default for PacketPool {
    fn default() -> Self {
        PacketPool { scratch: vec![0; MAX_BATCH].into(), spare: Vec::new(), serial: 0 }
    }
}

impl PacketPool {
    /// Creates the frame of a packet and numbers it.
    #[inline(always)]
    pub fn new_frame(&mut self, packet: Packet) -> Frame {
        let serial = self.serial;
        self.serial = serial.wrapping_add(1);
        let (to, length, channel) = (packet.to, packet.length, packet.channel);
        let packet = match self.spare.pop() {
            Some(mut spare) => {
                // Not dropped: `recycle` has freed what it owned.
                std::mem::forget(std::mem::replace(&mut *spare, packet));
                spare
            }
            None => Box::new(packet),
        };
        Frame {
            packet: Some(packet),
            route_word: route_word(to, length, channel),
            cell_word: u64::from(serial),
        }
    }

    /// Keeps the box of a dropped packet for reuse.
    #[inline]
    pub fn recycle(&mut self, mut packet: Box<Packet>) {
        let owns_memory =
            !matches!(packet.content, Content::Datagram(_) | Content::Segment(_) | Content::Rm(_));
        if owns_memory || packet.train.is_some() {
            packet.free_content();
        }
        if self.spare.len() < MAX_SPARE {
            self.spare.push(packet);
        }
    }
}

/// Encodes the second word of a frame.
#[inline(always)]
fn route_word(to: Destination, length: u32, channel: u16) -> u64 {
    debug_assert!(length <= u32::from(u16::MAX), "the language has no larger MTU");
    let to = match to {
        Destination::Station(station) => station & !GROUP,
        Destination::Group(group) => group | GROUP,
        Destination::All => u32::MAX,
    };
    u64::from(to) | u64::from(length) << LENGTH | u64::from(channel) << CHANNEL
}

impl Packet {
    /// Creates a packet of `length` bytes of IP from the sender of `flow`, or to it if `is_reverse`.
    #[inline(always)]
    pub fn new(
        content: Content,
        length: u32,
        flow: u32,
        channel: u16,
        to: Destination,
        is_reverse: bool,
    ) -> Packet {
        Packet { content, length, flow: Some(flow), channel, is_reverse, traffic_class: 0, to, train: None }
    }

    /// Frees the memory that the packet owns. What remains has no meaning.
    #[inline(never)]
    fn free_content(&mut self) {
        (self.content, self.train) = (Content::Segment([0; TCP_FIELDS]), None);
    }

    /// Creates a packet of an endpoint that serves many flows.
    pub fn without_flow(content: Content, length: u32, channel: u16, to: Destination) -> Packet {
        let (flow, is_reverse, traffic_class, train) = (None, false, 0, None);
        Packet { content, length, flow, channel, is_reverse, traffic_class, to, train }
    }

    /// Returns the packet with a traffic class.
    #[inline(always)]
    pub fn with_traffic_class(mut self, traffic_class: u8) -> Packet {
        self.traffic_class = traffic_class;
        self
    }

    /// Returns what identifies its flow and direction; of an endpoint that serves many flows, what identifies it.
    fn flow_identity(&self) -> u64 {
        match self.flow {
            Some(flow) => u64::from(flow) << 1 | u64::from(self.is_reverse),
            None => 1 << 63 | u64::from(self.channel),
        }
    }
}

impl Frame {
    /// Returns the packet, if the frame carries one. Of the cells of a packet only the last does.
    #[inline]
    pub fn packet(&self) -> Option<&Packet> {
        self.packet.as_deref()
    }

    /// Returns the packet like [`packet`](Frame::packet) and consumes the frame.
    #[inline]
    pub fn into_inner(self) -> Option<Box<Packet>> {
        self.packet
    }

    /// Returns the resource-management cell, if it is one.
    #[inline]
    pub fn rm_cell(&self) -> Option<RmCell> {
        match self.packet.as_deref()?.content {
            Content::Rm(cell) => Some(cell),
            _ => None,
        }
    }

    /// Returns the resource-management cell, if it is one.
    pub fn rm_cell_mut(&mut self) -> Option<&mut RmCell> {
        match &mut self.packet.as_deref_mut()?.content {
            Content::Rm(cell) => Some(cell),
            _ => None,
        }
    }

    /// Returns the times of a frame of the guaranteed transport.
    #[inline]
    pub fn times_mut(&mut self) -> Option<&mut FrameTimes> {
        match self.packet.as_deref_mut() {
            Some(Packet { content: Content::Guaranteed(frame), .. }) => Some(&mut frame.0),
            _ => None,
        }
    }

    /// Makes the frame cell `index` of `count` cells, or a packet (`count` = 0), of `length` bytes.
    #[inline]
    fn set_wire_form(&mut self, length: u32, index: u16, count: u16) {
        self.route_word = self.route_word & !(0xFFFF << LENGTH) | u64::from(length) << LENGTH;
        self.cell_word = self.cell_word & !(CELLS << INDEX | CELLS << COUNT)
            | u64::from(index) << INDEX
            | u64::from(count) << COUNT;
    }
}

impl MediumFrame for Frame {
    #[inline]
    fn length(&self) -> u32 {
        u32::from((self.route_word >> LENGTH) as u16)
    }

    #[inline]
    fn destination(&self) -> Destination {
        match self.route_word as u32 {
            u32::MAX => Destination::All,
            group if group & GROUP != 0 => Destination::Group(group & !GROUP),
            station => Destination::Station(station),
        }
    }

    #[inline]
    fn channel(&self) -> u16 {
        (self.route_word >> CHANNEL) as u16
    }

    fn flow(&self) -> u64 {
        self.packet.as_ref().map_or(0, |packet| packet.flow_identity())
    }

    fn dscp(&self) -> u8 {
        self.packet.as_ref().map_or(0, |packet| packet.traffic_class >> 2)
    }

    fn ecn(&self) -> Ecn {
        self.packet.as_ref().map_or(Ecn::NotEct, |packet| Ecn::from_bits(packet.traffic_class))
    }

    fn mark_ce(&mut self) {
        if let Some(packet) = &mut self.packet {
            packet.traffic_class |= Ecn::Ce.bits();
        }
    }

    #[inline]
    fn damage(&mut self) {
        self.cell_word |= DAMAGED;
    }

    #[inline]
    fn is_damaged(&self) -> bool {
        self.cell_word & DAMAGED != 0
    }
}

impl CellFrame for Frame {
    #[inline]
    fn cell(&self, index: u16, count: u16) -> Self {
        let mut cell = Frame { packet: None, route_word: self.route_word, cell_word: self.cell_word };
        cell.set_wire_form(CELL, index, count);
        cell
    }

    #[inline]
    fn last_cell(mut self, index: u16, count: u16) -> Self {
        self.set_wire_form(CELL, index, count);
        self
    }

    #[inline]
    fn as_cell(&self) -> Option<(u16, u16)> {
        let (index, count) = (self.cell_word >> INDEX & CELLS, self.cell_word >> COUNT & CELLS);
        (count > 0).then_some((index as u16, count as u16))
    }

    #[inline]
    fn serial(&self) -> u32 {
        self.cell_word as u32
    }

    #[inline]
    fn into_packet(mut self) -> Self {
        if let Some(packet) = &self.packet {
            let length = packet.length;
            self.set_wire_form(length, 0, 0);
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

    const SEGMENT: Content = Content::Segment([7; TCP_FIELDS]);

    fn packet(to: Destination, length: u32) -> Packet {
        Packet::new(SEGMENT, length, 3, 0xFEDC, to, true)
    }

    #[test]
    fn a_frame_is_small() {
        // Hundreds of thousands of cells cross the media per second.
        assert_eq!((size_of::<Frame>(), size_of::<Packet>()), (24, 64));
    }

    #[test]
    fn a_frame_keeps_its_destination_as_packet_and_as_cells() {
        for (to, length) in
            [(Destination::Station(7), 28), (Destination::Group(9), 9180), (Destination::All, 65_535)]
        {
            let mut pool = PacketPool { serial: 0xFFFF_FFF1, ..PacketPool::default() };
            let mut whole = pool.new_frame(packet(to, length));
            assert_eq!((whole.destination(), whole.length(), whole.as_cell()), (to, length, None));
            let first = whole.cell(0, 1366);
            whole.damage();
            let last = whole.last_cell(1365, 1366);
            for (cell, index) in [(&first, 0), (&last, 1365)] {
                assert_eq!((cell.destination(), cell.channel(), cell.length()), (to, 0xFEDC, 53));
                assert_eq!((cell.as_cell(), cell.serial()), (Some((index, 1366)), 0xFFFF_FFF1));
                assert_eq!((cell.is_damaged(), cell.packet().is_some()), (index > 0, index > 0));
            }
            // The last cell carries the packet.
            let whole = last.into_packet();
            assert_eq!((whole.length(), whole.as_cell(), whole.is_damaged()), (length, None, true));
            assert_eq!(
                whole.into_inner().map(|packet| (packet.length, packet.content)),
                Some((length, SEGMENT))
            );
        }
    }

    #[test]
    fn a_mark_keeps_the_code_point() {
        let mut pool = PacketPool::default();
        let class = 46 << 2 | Ecn::Ect0.bits();
        let mut frame = pool.new_frame(packet(Destination::All, 100).with_traffic_class(class));
        assert_eq!((frame.dscp(), frame.ecn(), frame.flow()), (46, Ecn::Ect0, 7));
        frame.mark_ce();
        assert_eq!((frame.dscp(), frame.ecn()), (46, Ecn::Ce));
    }

    #[test]
    fn spare_boxes_are_reused_and_bounded() {
        let mut pool = PacketPool::default();
        (0..MAX_SPARE + 10).for_each(|_| pool.recycle(Box::new(packet(Destination::All, 100))));
        assert_eq!(pool.spare.len(), MAX_SPARE);
        let frame = pool.new_frame(packet(Destination::Station(1), 200));
        assert_eq!(
            frame.packet().map(|packet| (packet.to, packet.length)),
            Some((Destination::Station(1), 200))
        );
        assert_eq!(pool.spare.len(), MAX_SPARE - 1);
        assert_ne!(frame.serial(), pool.new_frame(packet(Destination::All, 100)).serial());
    }

    #[test]
    fn spare_packets_own_no_memory() {
        let mut pool = PacketPool::default();
        let bytes: Arc<[u8]> = Arc::from([1; 100]);
        let content = Content::Pdu { from: 1, to: 2, bytes: bytes.clone() };
        pool.recycle(Box::new(Packet::without_flow(content, 100, 0, Destination::All)));
        assert_eq!((pool.spare.len(), Arc::strong_count(&bytes)), (1, 1));
    }
}
