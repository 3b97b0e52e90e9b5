//! Repair frames: unnumbered frames that recover lost frames of a block of numbered frames. Each carries a *repair
//! symbol* (RFC 5052).
//!
//! ```text
//! kind and row u8 | first u24 | frames u8 | repair symbol | check
//! ```
//!
//! The symbol is a sum of these bytes of each frame of the block, padded with zeros to the longest:
//!
//! ```text
//! length of the chunks u16 | kind and flags u8, without ACK, ACK_REQUEST and NACK | chunks, with their headers
//! ```
//!
//! These bytes do not change in retransmissions. The sum is over GF(256), with a coefficient for each frame: in row 0
//! it is one, so the symbol is an exclusive or; in the other rows it depends on the row and the position of the frame.

use super::data::{ACK, ACK_REQUEST, HEADER, NACK, PIGGYBACK};
use super::{KIND_REPAIR, get24, kind, put24};
use crate::field::add_product;

/// Bytes before the symbol.
pub const REPAIR_HEADER: usize = 5;
/// Bytes of the symbol before the chunks.
pub const SYMBOL_HEADER: usize = 3;
/// Bytes by which a repair frame exceeds the longest frame of its block, if that has no acknowledgement.
pub const REPAIR_OVERHEAD: usize = REPAIR_HEADER + SYMBOL_HEADER - HEADER;

/// Flags that may differ between transmissions.
pub const MUTABLE_FLAGS: u8 = ACK | ACK_REQUEST | NACK;

/// Header of a repair frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairHeader {
    /// Index of the repair frame in its block, from 0.
    pub row: u8,
    /// Lowest 24 bits of the number of the block's first frame.
    pub first: u32,
    /// Number of frames in the block, at least 1.
    pub frames: u8,
}

impl RepairHeader {
    /// Decodes a frame without its check; returns header and symbol, none if it is not a valid repair frame.
    pub fn read(body: &[u8]) -> Option<(RepairHeader, &[u8])> {
        let (head, symbol) = body.split_first_chunk::<REPAIR_HEADER>()?;
        let repair = RepairHeader { row: head[0] & 31, first: get24(&head[1..]), frames: head[4] };
        let is_valid = kind(head[0]) == KIND_REPAIR && repair.frames > 0 && symbol.len() > SYMBOL_HEADER;
        is_valid.then_some((repair, symbol))
    }

    /// Writes a repair frame of the block that starts at `first` at the start of `frame`; returns its length without
    /// the check.
    pub fn write(row: u8, first: u64, frames: u8, symbol: &[u8], frame: &mut [u8]) -> usize {
        frame[0] = KIND_REPAIR << 5 | row;
        put24(&mut frame[1..], first);
        frame[4] = frames;
        frame[REPAIR_HEADER..REPAIR_HEADER + symbol.len()].copy_from_slice(symbol);
        REPAIR_HEADER + symbol.len()
    }
}

/// Returns the protected part of a numbered frame without its check: the first byte (kind and flags) without
/// [`MUTABLE_FLAGS`], and the chunks.
pub fn protected(body: &[u8]) -> (u8, &[u8]) {
    let first_byte = body.first().copied().unwrap_or_default();
    let head = if first_byte & ACK == 0 { HEADER } else { HEADER + PIGGYBACK };
    (first_byte & !MUTABLE_FLAGS, body.get(head..).unwrap_or_default())
}

/// Adds the protected part of a frame, times a coefficient, to a symbol. The symbol must be long enough; otherwise the
/// rest is ignored.
pub fn add(symbol: &mut [u8], coefficient: u8, first_byte: u8, chunks: &[u8]) {
    let [high, low] = (chunks.len() as u16).to_be_bytes();
    let (head, rest) = symbol.split_at_mut(SYMBOL_HEADER.min(symbol.len()));
    add_product(head, coefficient, &[high, low, first_byte]);
    add_product(rest, coefficient, chunks);
}

/// Returns the protected part of the only frame left in a symbol; none if that is not a valid frame.
pub fn extract(symbol: &[u8]) -> Option<(u8, &[u8])> {
    let (&[high, low, first_byte], rest) = symbol.split_first_chunk::<SYMBOL_HEADER>()?;
    let (chunks, padding) = rest.split_at_checked(u16::from_be_bytes([high, low]).into())?;
    (first_byte & MUTABLE_FLAGS == 0 && padding.iter().all(|byte| *byte == 0)).then_some((first_byte, chunks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::KIND_PIECE;
    use crate::wire::data::{END, FrameHeader, START};

    #[test]
    fn repair_frame_round_trips() {
        let mut frame = [0; 40];
        let length = RepairHeader::write(7, 0x1_2345_6789, 20, &[1, 2, 3, 4], &mut frame);
        let repair = RepairHeader { row: 7, first: 0x45_6789, frames: 20 };
        assert_eq!(RepairHeader::read(&frame[..length]), Some((repair, &[1, 2, 3, 4][..])));
        for short in 0..length - 1 {
            assert_eq!(
                RepairHeader::read(&frame[..short]).filter(|(_, symbol)| symbol.len() > 3),
                None,
                "{short}"
            );
        }
        frame[4] = 0;
        assert_eq!(RepairHeader::read(&frame[..length]), None, "an empty block");
        frame[4] = 1;
        frame[0] = KIND_PIECE << 5;
        assert_eq!(RepairHeader::read(&frame[..length]), None);
    }

    #[test]
    fn protected_part_is_independent_of_acknowledgements() {
        let mut frames = [[9; 20]; 2];
        FrameHeader::write(KIND_PIECE, START | END, 5, None, &mut frames[0]);
        FrameHeader::write(KIND_PIECE, START | END | ACK_REQUEST | NACK, 5, Some(77), &mut frames[1]);
        assert_eq!(protected(&frames[0][..17]), protected(&frames[1]));
        let (first_byte, chunks) = protected(&frames[0]);
        let mut symbol = [0; 30];
        add(&mut symbol, 1, first_byte, chunks);
        assert_eq!(extract(&symbol), Some((first_byte, chunks)));
        symbol[29] = 1;
        assert_eq!(extract(&symbol), None, "the padding is not zero");
        symbol[0] = 200;
        assert_eq!(extract(&symbol), None, "the length exceeds the symbol");
    }
}
