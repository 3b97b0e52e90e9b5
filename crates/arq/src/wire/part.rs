//! Parts of a numbered frame that exceeds the path MTU.
//!
//! ```text
//! kind and flags u8 | number u24 | offset u16 | bytes | check
//! ```
//!
//! The concatenated bytes of all parts are the frame as in [`data`](super::data), without an acknowledgement and
//! without its check. The number is that of the frame: it has arrived when all its parts have arrived.

use super::data::END;
use super::{KIND_PART, get16, get24, kind, put24};

/// Bytes of the header of a part.
pub const HEADER: usize = 6;

/// A part of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// Lowest 24 bits of the frame number.
    pub number: u32,
    /// Offset in the frame.
    pub offset: u16,
    /// Whether the frame ends with this part.
    pub last: bool,
    /// Contents, at least one byte.
    pub bytes: &'a [u8],
}

impl<'a> Part<'a> {
    /// Decodes a frame without its check; none if it is not a valid part.
    pub fn read(body: &'a [u8]) -> Option<Part<'a>> {
        let (head, bytes) = body.split_first_chunk::<HEADER>()?;
        let flags = head[0] & 31;
        if kind(head[0]) != KIND_PART || flags & !END != 0 || bytes.is_empty() {
            return None;
        }
        let (number, offset) = (get24(&head[1..]), get16(&head[4..]));
        Some(Part { number, offset, last: flags & END != 0, bytes })
    }

    /// Writes the header of a part at the start of `frame`.
    pub fn write_head(number: u64, offset: u16, last: bool, frame: &mut [u8]) {
        frame[0] = KIND_PART << 5 | if last { END } else { 0 };
        put24(&mut frame[1..], number);
        frame[4..HEADER].copy_from_slice(&offset.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_round_trips() {
        let mut frame = [7; 20];
        for last in [false, true] {
            Part::write_head(0x1_2345_6789, 40_000, last, &mut frame);
            let part = Part { number: 0x45_6789, offset: 40_000, last, bytes: &[7; 14] };
            assert_eq!(Part::read(&frame), Some(part));
        }
        for length in 0..=HEADER {
            assert_eq!(Part::read(&frame[..length]), None, "{length} bytes");
        }
        for first in (0..=255).filter(|first| ![0xC0, 0xC2].contains(first)) {
            frame[0] = first;
            assert_eq!(Part::read(&frame), None, "{first:02x}");
        }
    }
}
