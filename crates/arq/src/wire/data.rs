//! Numbered frames: they are acknowledged and, if lost, retransmitted under the same number.
//!
//! ```text
//! kind and flags u8 | number u24 | [acknowledged u24] | one chunk, or several | check
//!
//! one chunk:      channel u16 | sequence u16 | bytes
//! several, each:  channel u16 | sequence u16 | chunk flags u8 | length u16 | bytes
//! ```
//!
//! A full frame of a long message has 8 bytes of header plus the check.

use super::{KIND_MULTI, KIND_PACK, KIND_PIECE, get16, get24, kind, put24};

/// Flag: the piece starts its message.
pub const START: u8 = 1;
/// Flag: the piece ends its message.
pub const END: u8 = 2;
/// Flag: an acknowledgement follows the number.
pub const ACK: u8 = 4;
/// Flag: the receiver acknowledges immediately.
pub const ACK_REQUEST: u8 = 8;
/// Flag: the acknowledgement is negative, that number is missing.
pub const NACK: u8 = 16;
/// Flag of a chunk among several: it is a pack.
pub const PACK: u8 = 4;

/// Bytes of a frame header without an acknowledgement.
pub const HEADER: usize = 4;
/// Bytes of an acknowledgement in a data frame.
pub const PIGGYBACK: usize = 3;
/// Bytes of the header of a single chunk.
pub const SINGLE_HEADER: usize = 4;
/// Bytes of the header of a chunk among several.
pub const MULTI_HEADER: usize = 7;

/// The channel of control messages.
pub const CONTROL: u16 = u16::MAX;

/// Header of a numbered frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Kind of the frame: piece, pack or multi.
    pub kind: u8,
    /// [`START`] to [`NACK`].
    pub flags: u8,
    /// Lowest 24 bits of the frame number.
    pub number: u32,
    /// Lowest 24 bits of the first number that its sender has not received.
    pub acknowledged: Option<u32>,
}

impl FrameHeader {
    /// Returns whether the kind is a numbered one.
    #[inline]
    pub fn is_numbered(&self) -> bool {
        (KIND_PIECE..=KIND_MULTI).contains(&self.kind)
    }

    /// Decodes the header of a frame without its check; returns it and the rest, none if it is not a numbered frame.
    #[inline]
    pub fn read(body: &[u8]) -> Option<(FrameHeader, &[u8])> {
        let (head, rest) = body.split_first_chunk::<HEADER>()?;
        let kind = kind(head[0]);
        let flags = head[0] & 31;
        if !(KIND_PIECE..=KIND_MULTI).contains(&kind) {
            return None;
        }
        let number = get24(&head[1..]);
        if flags & ACK == 0 {
            return (flags & NACK == 0)
                .then_some((FrameHeader { kind, flags, number, acknowledged: None }, rest));
        }
        let (acknowledged, rest) = rest.split_first_chunk::<PIGGYBACK>()?;
        Some((FrameHeader { kind, flags, number, acknowledged: Some(get24(acknowledged)) }, rest))
    }

    /// Writes a header at the start of `frame`; returns its length.
    #[inline(always)]
    pub fn write(kind: u8, flags: u8, number: u64, acknowledged: Option<u64>, frame: &mut [u8]) -> usize {
        let first = |flags: u8| u32::from(kind << 5 | flags) << 24 | number as u32 & 0xFF_FFFF;
        match acknowledged {
            None => {
                frame[..HEADER].copy_from_slice(&first(flags).to_be_bytes());
                HEADER
            }
            Some(cumulative) => {
                let head = &mut frame[..HEADER + PIGGYBACK];
                head[..HEADER].copy_from_slice(&first(flags | ACK).to_be_bytes());
                put24(&mut head[HEADER..], cumulative);
                HEADER + PIGGYBACK
            }
        }
    }
}

/// A chunk of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Channel of the chunk.
    pub channel: u16,
    /// Lowest 16 bits of its number among the chunks of its channel.
    pub sequence: u16,
    /// Kind of the chunk.
    pub kind: ChunkKind,
    /// Contents.
    pub bytes: &'a [u8],
}

/// Kind of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkKind {
    /// A piece of one message.
    Piece {
        /// First piece.
        start: bool,
        /// Last piece.
        end: bool,
    },
    /// Whole messages, each with a length prefix: one byte up to 127, otherwise two with the top bit set.
    Pack,
}

impl ChunkKind {
    #[inline]
    fn piece(flags: u8) -> ChunkKind {
        ChunkKind::Piece { start: flags & START != 0, end: flags & END != 0 }
    }

    /// Returns the flags of a chunk among several.
    #[inline]
    pub fn flags(self) -> u8 {
        match self {
            ChunkKind::Piece { start, end } => (u8::from(start) * START) | (u8::from(end) * END),
            ChunkKind::Pack => PACK,
        }
    }
}

/// Iterator over the chunks of a frame.
#[derive(Clone, Debug)]
pub struct Chunks<'a> {
    rest: &'a [u8],
    /// The kind if there is a single chunk.
    single: Option<ChunkKind>,
}

impl<'a> Chunks<'a> {
    /// Decodes the bytes after the header `head`; none unless they are one or more whole chunks.
    #[inline]
    pub fn read(head: &FrameHeader, rest: &'a [u8]) -> Option<Chunks<'a>> {
        let single = match head.kind {
            KIND_PIECE => Some(ChunkKind::piece(head.flags)),
            KIND_PACK => Some(ChunkKind::Pack),
            _ => None,
        };
        if single.is_some() {
            return (rest.len() >= SINGLE_HEADER).then_some(Chunks { rest, single });
        }
        let mut remaining = rest;
        loop {
            let (chunk, length) = read_multi(remaining)?;
            remaining = chunk.bytes.get(length..)?;
            if remaining.is_empty() {
                return Some(Chunks { rest, single });
            }
        }
    }
}

/// Decodes the header of the first of several chunks; returns the chunk with all following bytes, and its length.
#[inline]
fn read_multi(rest: &[u8]) -> Option<(Chunk<'_>, usize)> {
    let (head, bytes) = rest.split_first_chunk::<MULTI_HEADER>()?;
    let (channel, sequence, length) = (get16(head), get16(&head[2..]), get16(&head[5..]));
    let kind = match head[4] {
        PACK => ChunkKind::Pack,
        flags if flags & !(START | END) == 0 => ChunkKind::piece(flags),
        _ => return None,
    };
    Some((Chunk { channel, sequence, kind, bytes }, length.into()))
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;

    #[inline]
    fn next(&mut self) -> Option<Chunk<'a>> {
        if let Some(kind) = self.single {
            let (head, bytes) = self.rest.split_first_chunk::<SINGLE_HEADER>()?;
            self.rest = &[];
            return Some(Chunk { channel: get16(head), sequence: get16(&head[2..]), kind, bytes });
        }
        let (mut chunk, length) = read_multi(self.rest)?;
        (chunk.bytes, self.rest) = chunk.bytes.split_at_checked(length)?;
        Some(chunk)
    }
}

/// Writes the header of a single chunk.
#[inline(always)]
pub fn write_single_header(channel: u16, sequence: u16, frame: &mut [u8]) {
    let both = u32::from(channel) << 16 | u32::from(sequence);
    frame[..SINGLE_HEADER].copy_from_slice(&both.to_be_bytes());
}

/// Writes the header of a chunk among several.
#[inline]
pub fn write_multi_header(channel: u16, sequence: u16, kind: ChunkKind, length: u16, frame: &mut [u8]) {
    write_single_header(channel, sequence, frame);
    frame[4] = kind.flags();
    frame[5..7].copy_from_slice(&length.to_be_bytes());
}

/// Maximum length of a message in a pack.
pub const MAX_PACKED: usize = (1 << 14) - 1;

/// Returns the bytes that a message of `length` uses in a pack.
#[inline]
pub const fn packed_length(length: usize) -> usize {
    if length < 128 { 1 + length } else { 2 + length }
}

/// Returns start and end of the first message of a pack from `at` on; none if no whole message follows.
#[inline]
pub fn unpack(pack: &[u8], at: usize) -> Option<(usize, usize)> {
    let first = *pack.get(at)?;
    let (begin, length) = match first < 128 {
        true => (at + 1, usize::from(first)),
        false => (at + 2, usize::from(first & 127) << 8 | usize::from(*pack.get(at + 1)?)),
    };
    let end = begin + length;
    (end <= pack.len()).then_some((begin, end))
}

/// Returns whether a pack consists of one or more whole messages.
pub fn is_pack(pack: &[u8]) -> bool {
    let mut at = 0;
    while let Some((_, end)) = unpack(pack, at) {
        at = end;
    }
    at == pack.len() && at > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trips() {
        let mut frame = [0; 20];
        for (kind, flags) in [(KIND_PIECE, START | END), (KIND_PACK, ACK_REQUEST), (KIND_MULTI, 0)] {
            let written = FrameHeader::write(kind, flags, 0x1_2345_6789, None, &mut frame);
            let (head, rest) = FrameHeader::read(&frame).unwrap();
            assert_eq!((written, rest.len()), (HEADER, 16));
            assert_eq!(head, FrameHeader { kind, flags, number: 0x45_6789, acknowledged: None });
            let written = FrameHeader::write(kind, flags | NACK, 7, Some(0xFF00_0001), &mut frame);
            let (head, rest) = FrameHeader::read(&frame).unwrap();
            assert_eq!((written, rest.len()), (HEADER + PIGGYBACK, 13));
            let flags = flags | NACK | ACK;
            assert_eq!(head, FrameHeader { kind, flags, number: 7, acknowledged: Some(1) });
        }
        for kind in [0, 4, 5, 6, 7] {
            FrameHeader::write(kind, 0, 1, None, &mut frame);
            assert_eq!(FrameHeader::read(&frame), None);
        }
    }

    #[test]
    fn chunks_round_trip() {
        let mut frame = [0; 40];
        write_multi_header(3, 4, ChunkKind::Piece { start: false, end: true }, 5, &mut frame);
        write_multi_header(65_534, 9, ChunkKind::Pack, 0, &mut frame[12..]);
        write_multi_header(1, 2, ChunkKind::Piece { start: true, end: false }, 14, &mut frame[19..]);
        let head = FrameHeader { kind: KIND_MULTI, flags: 0, number: 0, acknowledged: None };
        let chunks: Vec<_> = Chunks::read(&head, &frame).unwrap().collect();
        let fields =
            chunks.iter().map(|c| (c.channel, c.sequence, c.kind, c.bytes.len())).collect::<Vec<_>>();
        let (last, first) =
            (ChunkKind::Piece { start: false, end: true }, ChunkKind::Piece { start: true, end: false });
        assert_eq!(fields, [(3, 4, last, 5), (65_534, 9, ChunkKind::Pack, 0), (1, 2, first, 14)]);
        // Truncated anywhere, they are invalid.
        for length in (0..40).filter(|length| ![12, 19].contains(length)) {
            assert!(Chunks::read(&head, &frame[..length]).is_none(), "{length}");
        }
        let head = FrameHeader { kind: KIND_PIECE, flags: START, ..head };
        let chunks: Vec<_> = Chunks::read(&head, &frame[..6]).unwrap().collect();
        assert_eq!((chunks.len(), chunks[0].bytes, chunks[0].kind), (1, &frame[4..6], first));
    }

    #[test]
    fn pack_consists_of_whole_messages() {
        let mut pack = vec![3, b'a', b'b', b'c', 0, 0x81, 0x00];
        pack.extend([7; 256]);
        assert!(is_pack(&pack) && !is_pack(&[]));
        assert_eq!(unpack(&pack, 0), Some((1, 4)));
        assert_eq!(unpack(&pack, 4), Some((5, 5)));
        assert_eq!(unpack(&pack, 5), Some((7, 263)));
        assert_eq!(unpack(&pack, 263), None);
        for cut in [1, 3, 6, 7, 262] {
            assert!(!is_pack(&pack[..cut]), "{cut}");
        }
    }
}
