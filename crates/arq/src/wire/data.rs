//! Frames that are numbered: they are acknowledged and, if lost, sent again under the same number.
//!
//! ```text
//! kind and flags u8 | number u24 | [acknowledged u24] | one chunk, or several | check
//!
//! one chunk:      channel u16 | sequence u16 | bytes
//! several, each:  channel u16 | sequence u16 | chunk flags u8 | length u16 | bytes
//! ```
//!
//! A full frame of a long message thus carries 8 bytes of header and the check.

use super::{KIND_MANY, KIND_PACK, KIND_PIECE, get16, get24, kind, put24};

/// The piece begins its message.
pub const START: u8 = 1;
/// The piece ends its message.
pub const END: u8 = 2;
/// An acknowledgement follows the number.
pub const ACK: u8 = 4;
/// To be acknowledged at once.
pub const ASK: u8 = 8;
/// The acknowledgement is a negative one: that number is missing.
pub const NACK: u8 = 16;
/// Of a chunk among several: it is a pack.
pub const PACK: u8 = 4;

/// Bytes of a frame's header before its chunk or chunks, without an acknowledgement.
pub const HEADER: usize = 4;
/// Bytes that an acknowledgement adds.
pub const PIGGYBACK: usize = 3;
/// Bytes before a chunk that is alone.
pub const ALONE: usize = 4;
/// Bytes before a chunk among several.
pub const AMONG: usize = 7;

/// The channel that carries what the ends of the connection tell each other.
pub const CONTROL: u16 = u16::MAX;

/// What stands before the chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Kind of the frame: piece, pack or many.
    pub kind: u8,
    /// [`START`] to [`NACK`].
    pub flags: u8,
    /// The lowest 24 bits of its number.
    pub number: u32,
    /// The lowest 24 bits of the first number not yet arrived at its sender.
    pub acknowledged: Option<u32>,
}

impl Head {
    /// Whether its kind is one of those that are numbered.
    #[inline]
    pub fn is_numbered(&self) -> bool {
        (KIND_PIECE..=KIND_MANY).contains(&self.kind)
    }

    /// Reads the head of a frame whose check has been taken off, and what follows it; none if it is no numbered frame.
    #[inline]
    pub fn read(body: &[u8]) -> Option<(Head, &[u8])> {
        let (head, rest) = body.split_first_chunk::<HEADER>()?;
        let kind = kind(head[0]);
        let flags = head[0] & 31;
        if !(KIND_PIECE..=KIND_MANY).contains(&kind) {
            return None;
        }
        let number = get24(&head[1..]);
        if flags & ACK == 0 {
            return (flags & NACK == 0).then_some((Head { kind, flags, number, acknowledged: None }, rest));
        }
        let (acknowledged, rest) = rest.split_first_chunk::<PIGGYBACK>()?;
        Some((Head { kind, flags, number, acknowledged: Some(get24(acknowledged)) }, rest))
    }

    /// Writes it at the start of `frame`; how long it is.
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
    /// Whose it is.
    pub channel: u16,
    /// The lowest 16 bits of its number among the chunks of its channel.
    pub sequence: u16,
    /// What it is.
    pub form: Form,
    /// What it carries.
    pub bytes: &'a [u8],
}

/// What a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A piece of one message.
    Piece {
        /// The first.
        start: bool,
        /// The last.
        end: bool,
    },
    /// Whole messages, each after its length: one byte up to 127, else two with the uppermost bit set.
    Pack,
}

impl Form {
    #[inline]
    fn piece(flags: u8) -> Form {
        Form::Piece { start: flags & START != 0, end: flags & END != 0 }
    }

    /// The flags that say it, of a chunk among several.
    #[inline]
    pub fn flags(self) -> u8 {
        match self {
            Form::Piece { start, end } => (u8::from(start) * START) | (u8::from(end) * END),
            Form::Pack => PACK,
        }
    }
}

/// The chunks of a frame.
#[derive(Clone, Debug)]
pub struct Chunks<'a> {
    rest: &'a [u8],
    /// The form of the only one.
    alone: Option<Form>,
}

impl<'a> Chunks<'a> {
    /// What follows `head`; none unless it is chunks to its last byte, and at least one.
    #[inline]
    pub fn read(head: &Head, rest: &'a [u8]) -> Option<Chunks<'a>> {
        let alone = match head.kind {
            KIND_PIECE => Some(Form::piece(head.flags)),
            KIND_PACK => Some(Form::Pack),
            _ => None,
        };
        if alone.is_some() {
            return (rest.len() >= ALONE).then_some(Chunks { rest, alone });
        }
        let mut left = rest;
        loop {
            let (chunk, length) = among(left)?;
            left = chunk.bytes.get(length..)?;
            if left.is_empty() {
                return Some(Chunks { rest, alone });
            }
        }
    }
}

/// The head of the first of several chunks, with all the bytes that follow, and how many of them are its own.
#[inline]
fn among(rest: &[u8]) -> Option<(Chunk<'_>, usize)> {
    let (head, bytes) = rest.split_first_chunk::<AMONG>()?;
    let (channel, sequence, length) = (get16(head), get16(&head[2..]), get16(&head[5..]));
    let form = match head[4] {
        PACK => Form::Pack,
        flags if flags & !(START | END) == 0 => Form::piece(flags),
        _ => return None,
    };
    Some((Chunk { channel, sequence, form, bytes }, length.into()))
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;

    #[inline]
    fn next(&mut self) -> Option<Chunk<'a>> {
        if let Some(form) = self.alone {
            let (head, bytes) = self.rest.split_first_chunk::<ALONE>()?;
            self.rest = &[];
            return Some(Chunk { channel: get16(head), sequence: get16(&head[2..]), form, bytes });
        }
        let (mut chunk, length) = among(self.rest)?;
        (chunk.bytes, self.rest) = chunk.bytes.split_at_checked(length)?;
        Some(chunk)
    }
}

/// Writes the head of a chunk that is alone.
#[inline(always)]
pub fn write_alone(channel: u16, sequence: u16, frame: &mut [u8]) {
    let both = u32::from(channel) << 16 | u32::from(sequence);
    frame[..ALONE].copy_from_slice(&both.to_be_bytes());
}

/// Writes the head of a chunk among several.
#[inline]
pub fn write_among(channel: u16, sequence: u16, form: Form, length: u16, frame: &mut [u8]) {
    write_alone(channel, sequence, frame);
    frame[4] = form.flags();
    frame[5..7].copy_from_slice(&length.to_be_bytes());
}

/// Longest message that fits a pack.
pub const LONGEST_PACKED: usize = (1 << 14) - 1;

/// Bytes that a message of `length` takes in a pack.
#[inline]
pub const fn packed(length: usize) -> usize {
    if length < 128 { 1 + length } else { 2 + length }
}

/// The first message of a pack from `at` on, as where it begins and ends; none if there is no whole one.
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

/// Whether a pack holds whole messages to its last byte, and at least one.
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
    fn a_head_is_read_as_written() {
        let mut frame = [0; 20];
        for (kind, flags) in [(KIND_PIECE, START | END), (KIND_PACK, ASK), (KIND_MANY, 0)] {
            let written = Head::write(kind, flags, 0x1_2345_6789, None, &mut frame);
            let (head, rest) = Head::read(&frame).unwrap();
            assert_eq!((written, rest.len()), (HEADER, 16));
            assert_eq!(head, Head { kind, flags, number: 0x45_6789, acknowledged: None });
            let written = Head::write(kind, flags | NACK, 7, Some(0xFF00_0001), &mut frame);
            let (head, rest) = Head::read(&frame).unwrap();
            assert_eq!((written, rest.len()), (HEADER + PIGGYBACK, 13));
            let flags = flags | NACK | ACK;
            assert_eq!(head, Head { kind, flags, number: 7, acknowledged: Some(1) });
        }
        for kind in [0, 4, 5, 6, 7] {
            Head::write(kind, 0, 1, None, &mut frame);
            assert_eq!(Head::read(&frame), None);
        }
    }

    #[test]
    fn chunks_are_read_as_written() {
        let mut frame = [0; 40];
        write_among(3, 4, Form::Piece { start: false, end: true }, 5, &mut frame);
        write_among(65_534, 9, Form::Pack, 0, &mut frame[12..]);
        write_among(1, 2, Form::Piece { start: true, end: false }, 14, &mut frame[19..]);
        let head = Head { kind: KIND_MANY, flags: 0, number: 0, acknowledged: None };
        let chunks: Vec<_> = Chunks::read(&head, &frame).unwrap().collect();
        let said = chunks.iter().map(|c| (c.channel, c.sequence, c.form, c.bytes.len())).collect::<Vec<_>>();
        let (last, first) =
            (Form::Piece { start: false, end: true }, Form::Piece { start: true, end: false });
        assert_eq!(said, [(3, 4, last, 5), (65_534, 9, Form::Pack, 0), (1, 2, first, 14)]);
        // Cut anywhere, they are none at all.
        for length in (0..40).filter(|length| ![12, 19].contains(length)) {
            assert!(Chunks::read(&head, &frame[..length]).is_none(), "{length}");
        }
        let head = Head { kind: KIND_PIECE, flags: START, ..head };
        let chunks: Vec<_> = Chunks::read(&head, &frame[..6]).unwrap().collect();
        assert_eq!((chunks.len(), chunks[0].bytes, chunks[0].form), (1, &frame[4..6], first));
    }

    #[test]
    fn a_pack_is_whole_messages() {
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
