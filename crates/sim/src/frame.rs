//! What crosses the media of a simulation: lengths and meaning. Payload is virtual; only headers that somebody reads
//! are bytes.

use trunkline_atm::{CellFrame, Train};
use trunkline_endpoint::{Frame as Crossing, To};
use trunkline_run::message::Kind;
use trunkline_units::Instant;

/// Bytes of the longest TCP header kept: options of a SYN are an MSS and a window scale.
pub const TCP_HEADER: usize = 28;

/// A packet, a cell or a train of cells: 64 bytes, and nothing elsewhere but a train's times. This is all the memory
/// that a pending packet takes.
#[derive(Clone, Debug)]
pub struct Frame {
    /// [`Content`], packed: a frame is moved several times on each of its hops, and words are moved at once where the
    /// fields of an enum are moved one by one.
    words: [u64; 4],
    train: Option<Box<Train>>,
    /// [`To`], in half its size: groups have the upper bit set, everybody has all.
    to: u32,
    length: u32,
    /// A number of the packet; its cells share it.
    pub serial: u32,
    /// Which flow it belongs to.
    pub flow: u32,
    channel: u16,
    cell: u16,
    /// Cells of its packet; 0: it is a packet.
    cells: u16,
    /// What the words are. No enum: an `Option` of a frame would keep its mark there, and move that by itself.
    holds: u8,
    flags: u8,
}

const NOTHING: u8 = 0;
const DATAGRAM: u8 = 1;
const SEGMENT: u8 = 2;

const DAMAGED: u8 = 1;
const BACK: u8 = 2;
const GROUP: u32 = 1 << 31;
/// Bytes of a cell.
const CELL: u32 = 53;

/// What a packet carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing that anybody reads: a cell that is not the last of its packet.
    Nothing,
    /// A test message, or a fragment of one, over UDP.
    Datagram(Datagram),
    /// A TCP segment: its header, which says how long it is. The payload's length follows from the packet's.
    Segment([u8; TCP_HEADER]),
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

impl Frame {
    /// A packet of `length` bytes of IP, from the sender of `flow` or (`back`) to it.
    #[inline]
    pub fn packet(content: Content, length: u32, flow: u32, channel: u16, to: To, back: bool) -> Frame {
        let flags = if back { BACK } else { 0 };
        let to = match to {
            To::Station(station) => station & !GROUP,
            To::Group(group) => group & !GROUP | GROUP,
            To::All => u32::MAX,
        };
        let (holds, words) = match content {
            Content::Nothing => (NOTHING, [0; 4]),
            Content::Datagram(d) => (DATAGRAM, d.pack()),
            Content::Segment(header) => (SEGMENT, pack(&header)),
        };
        let (cell, cells, serial, train) = (0, 0, 0, None);
        Frame { words, train, to, length, serial, flow, channel, cell, cells, holds, flags }
    }

    /// What it carries.
    #[inline]
    pub fn content(&self) -> Content {
        match self.holds {
            DATAGRAM => Content::Datagram(Datagram::unpack(self.words)),
            SEGMENT => Content::Segment(unpack(self.words)),
            _ => Content::Nothing,
        }
    }

    /// Whether it is a packet or the cell that stands for one: the last.
    #[inline]
    pub fn carries_packet(&self) -> bool {
        self.holds != NOTHING
    }

    /// Bytes of its packet, whether it is one or one of its cells.
    #[inline]
    pub fn packet_length(&self) -> u32 {
        self.length
    }

    /// Whether it goes from a receiver of its flow to the sender.
    #[inline]
    pub fn is_back(&self) -> bool {
        self.flags & BACK != 0
    }
}

impl Datagram {
    #[inline]
    fn pack(&self) -> [u64; 4] {
        let kind = match self.kind {
            Kind::Pattern => 0,
            Kind::Checked => 1,
            Kind::Answer => 2,
            Kind::Progress => 3,
        };
        [
            self.sequence,
            self.sent.as_ps(),
            u64::from(self.size) | u64::from(self.response) << 32,
            u64::from(self.fragment) | u64::from(self.fragments) << 16 | kind << 32,
        ]
    }

    #[inline]
    fn unpack(words: [u64; 4]) -> Datagram {
        let [sequence, sent, sizes, rest] = words;
        Datagram {
            sequence,
            sent: Instant::from_ps(sent),
            size: sizes as u32,
            response: (sizes >> 32) as u32,
            fragment: rest as u16,
            fragments: (rest >> 16) as u16,
            kind: match rest >> 32 {
                0 => Kind::Pattern,
                1 => Kind::Checked,
                2 => Kind::Answer,
                _ => Kind::Progress,
            },
        }
    }
}

#[inline]
fn pack(header: &[u8; TCP_HEADER]) -> [u64; 4] {
    let mut bytes = [0; 32];
    bytes[..TCP_HEADER].copy_from_slice(header);
    std::array::from_fn(|word| u64::from_le_bytes(std::array::from_fn(|byte| bytes[word * 8 + byte])))
}

#[inline]
fn unpack(words: [u64; 4]) -> [u8; TCP_HEADER] {
    std::array::from_fn(|byte| words[byte / 8].to_le_bytes()[byte % 8])
}

impl Crossing for Frame {
    #[inline]
    fn length(&self) -> u32 {
        if self.cells == 0 { self.length } else { CELL }
    }

    #[inline]
    fn to(&self) -> To {
        match self.to {
            u32::MAX => To::All,
            group if group & GROUP != 0 => To::Group(group & !GROUP),
            station => To::Station(station),
        }
    }

    #[inline]
    fn channel(&self) -> u16 {
        self.channel
    }

    #[inline]
    fn damage(&mut self) {
        self.flags |= DAMAGED;
    }

    #[inline]
    fn is_damaged(&self) -> bool {
        self.flags & DAMAGED != 0
    }
}

impl CellFrame for Frame {
    #[inline]
    fn cell(&self, index: u16, count: u16) -> Self {
        let (words, holds, train) = ([0; 4], NOTHING, None);
        Frame { words, holds, train, cell: index, cells: count, ..*self }
    }

    #[inline]
    fn last_cell(mut self, index: u16, count: u16) -> Self {
        (self.cell, self.cells) = (index, count);
        self
    }

    #[inline]
    fn as_cell(&self) -> Option<(u16, u16)> {
        (self.cells > 0).then_some((self.cell, self.cells))
    }

    #[inline]
    fn serial(&self) -> u32 {
        self.serial
    }

    #[inline]
    fn into_packet(mut self) -> Self {
        (self.cell, self.cells) = (0, 0);
        self
    }

    #[inline]
    fn into_train(mut self, train: Box<Train>) -> Self {
        self.train = Some(train);
        self
    }

    #[inline]
    fn take_train(&mut self) -> Option<Box<Train>> {
        self.train.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_small() {
        // A cell crosses the media in hundreds of thousands a second.
        assert_eq!(size_of::<Frame>(), 64);
    }

    #[test]
    fn a_frame_gives_back_what_it_carries() {
        let datagram = |kind| {
            let (sequence, sent) = (u64::MAX - 5, Instant::from_ps(u64::MAX - 7));
            let (size, response, fragment, fragments) = (u32::MAX - 1, 0x8000_0001, 0xFFFE, 0xFFFF);
            Content::Datagram(Datagram { sequence, sent, size, response, fragment, fragments, kind })
        };
        let segment = Content::Segment(std::array::from_fn(|byte| 0xF0 ^ byte as u8));
        let datagrams = [Kind::Pattern, Kind::Checked, Kind::Answer, Kind::Progress].map(datagram);
        for content in datagrams.into_iter().chain([segment, Content::Nothing]) {
            let frame = Frame::packet(content.clone(), 1500, 3, 1, To::All, false);
            assert_eq!(frame.last_cell(7, 8).into_packet().content(), content);
        }
    }

    #[test]
    fn a_frame_knows_its_way() {
        for to in [To::Station(7), To::Group(9), To::All] {
            let frame = Frame::packet(Content::Nothing, 1500, 3, 1, to, true);
            assert_eq!((frame.to(), frame.is_back(), frame.length()), (to, true, 1500));
            let last = frame.clone().last_cell(31, 32);
            assert_eq!((last.length(), last.packet_length(), last.as_cell()), (53, 1500, Some((31, 32))));
            assert_eq!(last.into_packet().as_cell(), None);
        }
    }
}
