//! Repair frames: outside of the count, they make good what was lost of a block of numbered frames.
//!
//! ```text
//! kind and row u8 | first u24 | frames u8 | sum | check
//! ```
//!
//! What is summed up of each frame of the block, filled up with zeros to the longest:
//!
//! ```text
//! length of the chunks u16 | kind and flags u8, but ACK, ASK and NACK | chunks, with their heads
//! ```
//!
//! That is what does not change when a frame is sent again. The sum is over GF(256), each frame times its weight: in row 0
//! that is one, so that the sum is an exclusive or; in the others it follows from the row and from the frame's place.

use super::data::{ACK, ASK, HEADER, NACK, PIGGYBACK};
use super::{KIND_REPAIR, get24, kind, put24};
use crate::field::add_product;

/// Bytes before the sum.
pub const REPAIR_HEADER: usize = 5;
/// Bytes of the sum before the chunks.
pub const SUM_HEADER: usize = 3;
/// By so much a repair frame is longer than the longest frame of its block, if that carries no acknowledgement.
pub const EXCESS: usize = REPAIR_HEADER + SUM_HEADER - HEADER;

/// Flags that may differ from one transmission to the next.
pub const CHANGING: u8 = ACK | ASK | NACK;

/// What stands before the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repair {
    /// Which repair frame of its block, from 0.
    pub row: u8,
    /// The lowest 24 bits of the number of the block's first frame.
    pub first: u32,
    /// Frames of the block, at least 1.
    pub frames: u8,
}

impl Repair {
    /// Reads a frame whose check has been taken off, and its sum; none if it is no repair frame.
    pub fn read(body: &[u8]) -> Option<(Repair, &[u8])> {
        let (head, sum) = body.split_first_chunk::<REPAIR_HEADER>()?;
        let repair = Repair { row: head[0] & 31, first: get24(&head[1..]), frames: head[4] };
        let makes_sense = kind(head[0]) == KIND_REPAIR && repair.frames > 0 && sum.len() > SUM_HEADER;
        makes_sense.then_some((repair, sum))
    }

    /// Writes one of the block from `first` on at the start of `frame`; how long it is without its check.
    pub fn write(row: u8, first: u64, frames: u8, sum: &[u8], frame: &mut [u8]) -> usize {
        frame[0] = KIND_REPAIR << 5 | row;
        put24(&mut frame[1..], first);
        frame[4] = frames;
        frame[REPAIR_HEADER..REPAIR_HEADER + sum.len()].copy_from_slice(sum);
        REPAIR_HEADER + sum.len()
    }
}

/// Of a numbered frame without its check, what is protected: kind and flags, and the chunks.
pub fn protected(body: &[u8]) -> (u8, &[u8]) {
    let first = body.first().copied().unwrap_or_default();
    let head = if first & ACK == 0 { HEADER } else { HEADER + PIGGYBACK };
    (first & !CHANGING, body.get(head..).unwrap_or_default())
}

/// Adds what is protected of a frame to a sum, with a weight. The sum must be long enough, or the rest is cut off.
pub fn add(sum: &mut [u8], weight: u8, first: u8, chunks: &[u8]) {
    let [high, low] = (chunks.len() as u16).to_be_bytes();
    let (head, rest) = sum.split_at_mut(SUM_HEADER.min(sum.len()));
    add_product(head, weight, &[high, low, first]);
    add_product(rest, weight, chunks);
}

/// What was protected of the only frame left in a sum; none if it cannot have been one.
pub fn extract(sum: &[u8]) -> Option<(u8, &[u8])> {
    let (&[high, low, first], rest) = sum.split_first_chunk::<SUM_HEADER>()?;
    let (chunks, filling) = rest.split_at_checked(u16::from_be_bytes([high, low]).into())?;
    (first & CHANGING == 0 && filling.iter().all(|byte| *byte == 0)).then_some((first, chunks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::KIND_PIECE;
    use crate::wire::data::{END, Head, START};

    #[test]
    fn it_is_read_as_written() {
        let mut frame = [0; 40];
        let length = Repair::write(7, 0x1_2345_6789, 20, &[1, 2, 3, 4], &mut frame);
        let repair = Repair { row: 7, first: 0x45_6789, frames: 20 };
        assert_eq!(Repair::read(&frame[..length]), Some((repair, &[1, 2, 3, 4][..])));
        for short in 0..length - 1 {
            assert_eq!(Repair::read(&frame[..short]).filter(|(_, sum)| sum.len() > 3), None, "{short}");
        }
        frame[4] = 0;
        assert_eq!(Repair::read(&frame[..length]), None, "a block of nothing");
        frame[4] = 1;
        frame[0] = KIND_PIECE << 5;
        assert_eq!(Repair::read(&frame[..length]), None);
    }

    #[test]
    fn what_is_protected_is_the_same_with_an_acknowledgement_and_without() {
        let mut frames = [[9; 20]; 2];
        Head::write(KIND_PIECE, START | END, 5, None, &mut frames[0]);
        Head::write(KIND_PIECE, START | END | ASK | NACK, 5, Some(77), &mut frames[1]);
        assert_eq!(protected(&frames[0][..17]), protected(&frames[1]));
        let (first, chunks) = protected(&frames[0]);
        let mut sum = [0; 30];
        add(&mut sum, 1, first, chunks);
        assert_eq!(extract(&sum), Some((first, chunks)));
        sum[29] = 1;
        assert_eq!(extract(&sum), None, "what fills it up is not zero");
        sum[0] = 200;
        assert_eq!(extract(&sum), None, "it is longer than the sum");
    }
}
