//! The encoder of repair frames: computes the repair symbols of the current block.

use trunkline_units::Instant;

use crate::field::coefficient;
use crate::options::Fec;
use crate::wire::repair::{self, RepairHeader, SYMBOL_HEADER};

/// The current block of sent frames.
#[derive(Debug)]
pub(crate) struct RepairEncoder {
    fec: Fec,
    /// Number of the block's first frame, and how many frames it has.
    first: u64,
    frames: u8,
    /// The symbol of each repair frame, as long as the longest frame of the block requires.
    symbols: Vec<Vec<u8>>,
    /// When an incomplete block is closed; never if it is empty.
    pub close_at: Instant,
    /// Indices of the repair frames that are due.
    due: std::ops::Range<u8>,
}

impl RepairEncoder {
    pub fn new(fec: Fec) -> Self {
        let symbols = vec![Vec::new(); fec.repairs.into()];
        RepairEncoder { fec, first: 0, frames: 0, symbols, close_at: Instant::MAX, due: 0..0 }
    }

    /// Adds a frame, without its check, at its first transmission. Frames are added in the order of their numbers,
    /// and not while repair frames are due. The block is closed at `close_at` unless another frame is added before.
    pub fn add(&mut self, number: u64, body: &[u8], close_at: Instant) {
        if self.frames == 0 {
            self.first = number;
        }
        let (first_byte, chunks) = repair::protected(body);
        for (row, symbol) in self.symbols.iter_mut().enumerate() {
            if symbol.len() < SYMBOL_HEADER + chunks.len() {
                symbol.resize(SYMBOL_HEADER + chunks.len(), 0);
            }
            repair::add(symbol, coefficient(row as u8, self.frames), first_byte, chunks);
        }
        self.frames += 1;
        self.close_at = close_at;
        if self.frames == self.fec.frames {
            self.close(0);
        }
    }

    #[inline]
    pub fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Closes the block: its repair frames become due, in an incomplete block a proportional number. If
    /// `acknowledged` covers the whole block, none is due.
    pub fn close(&mut self, acknowledged: u64) {
        self.close_at = Instant::MAX;
        let repairs = (u32::from(self.frames) * u32::from(self.fec.repairs)).div_ceil(self.fec.frames.into());
        self.due = 0..repairs as u8;
        if acknowledged >= self.first + u64::from(self.frames) {
            self.start_block();
        }
    }

    /// Returns the number of the block's first frame, which the check of the next repair frame needs, and the length
    /// of that repair frame without the check.
    pub fn next(&self) -> Option<(u64, usize)> {
        let symbol = self.symbols.get(usize::from(self.due.start))?;
        self.is_due().then_some((self.first, repair::REPAIR_HEADER + symbol.len()))
    }

    /// Writes the next repair frame; [`next`](Self::next) returns its length.
    pub fn write(&mut self, frame: &mut [u8]) {
        let Some(row) = self.due.next() else { return };
        RepairHeader::write(row, self.first, self.frames, &self.symbols[usize::from(row)], frame);
        if !self.is_due() {
            self.start_block();
        }
    }

    fn start_block(&mut self) {
        (self.frames, self.due) = (0, 0..0);
        self.symbols.iter_mut().for_each(Vec::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fec(frames: u8, repairs: u8) -> Fec {
        Fec { frames, repairs }
    }

    fn write_all(repairs: &mut RepairEncoder) -> Vec<Vec<u8>> {
        let mut written = Vec::new();
        while let Some((_, length)) = repairs.next() {
            let mut frame = vec![0; length];
            repairs.write(&mut frame);
            written.push(frame);
        }
        written
    }

    #[test]
    fn repair_frames_are_proportional_to_the_block() {
        for (k, r) in [(1, 1), (4, 1), (10, 2), (8, 8), (64, 8)] {
            let mut repairs = RepairEncoder::new(fec(k, r));
            let mut number = 0;
            for frames in 1..=k {
                for _ in 0..frames {
                    assert!(!repairs.is_due());
                    repairs.add(number, &[0x20, 0, 0, 0, 1, 2, 3, 4], Instant::from_ps(7));
                    number += 1;
                }
                assert_eq!(repairs.is_due(), frames == k);
                repairs.close(0);
                let written = write_all(&mut repairs);
                let expected = (usize::from(frames) * usize::from(r)).div_ceil(k.into());
                assert_eq!(
                    (written.len(), written[0][4], written[0].len()),
                    (expected, frames, 12),
                    "{k}+{r}"
                );
                assert_eq!((repairs.close_at, repairs.is_due()), (Instant::MAX, false));
            }
        }
    }

    #[test]
    fn acknowledged_blocks_need_no_repair() {
        let mut repairs = RepairEncoder::new(fec(4, 2));
        let frame = [0x20, 0, 0, 0, 1, 2, 3, 4];
        for (acknowledged, needed) in [(9, true), (10, false), (11, false)] {
            repairs.add(8, &frame, Instant::ZERO);
            repairs.add(9, &frame, Instant::ZERO);
            repairs.close(acknowledged);
            assert_eq!(repairs.is_due(), needed);
            write_all(&mut repairs);
        }
    }
}
