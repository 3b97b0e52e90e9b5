//! Repair frames as they are made: the sums of a block whose frames are leaving.

use trunkline_units::Instant;

use crate::field::weight;
use crate::options::Fec;
use crate::wire::repair::{self, Repair, SUM_HEADER};

/// The block of frames that left last.
#[derive(Debug)]
pub(crate) struct Repairs {
    fec: Fec,
    first: u64,
    frames: u8,
    /// Of each repair frame, as long as the longest frame of the block wants it.
    sums: Vec<Vec<u8>>,
    /// A block that is not full is closed then; never, if it holds nothing.
    close_at: Instant,
    /// Rows that are to leave: the next, and one past the last.
    due: std::ops::Range<u8>,
}

impl Repairs {
    pub fn new(fec: Fec) -> Self {
        let sums = vec![Vec::new(); fec.repairs.into()];
        Repairs { fec, first: 0, frames: 0, sums, close_at: Instant::MAX, due: 0..0 }
    }

    /// A frame leaves for the first time, as it is without its check. Frames leave in the order of their numbers, and not
    /// while repair frames are due. The block is closed at `close_at`, unless another frame leaves before.
    pub fn add(&mut self, number: u64, body: &[u8], close_at: Instant) {
        if self.frames == 0 {
            self.first = number;
        }
        let (first, chunks) = repair::protected(body);
        for (row, sum) in self.sums.iter_mut().enumerate() {
            if sum.len() < SUM_HEADER + chunks.len() {
                sum.resize(SUM_HEADER + chunks.len(), 0);
            }
            repair::add(sum, weight(row as u8, self.frames), first, chunks);
        }
        self.frames += 1;
        self.close_at = close_at;
        if self.frames == self.fec.frames {
            self.close(0);
        }
    }

    /// When a block that is not full is to be closed.
    #[inline]
    pub fn close_at(&self) -> Instant {
        self.close_at
    }

    /// Whether repair frames are to leave.
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// A block that is not full is closed later, then.
    pub fn put_off(&mut self, close_at: Instant) {
        self.close_at = close_at;
    }

    /// Closes the block: its repair frames are due, in a short block as many as are its share. If all before `acknowledged`
    /// has arrived, and that is all of the block, nobody needs them.
    pub fn close(&mut self, acknowledged: u64) {
        self.close_at = Instant::MAX;
        let share = (u32::from(self.frames) * u32::from(self.fec.repairs)).div_ceil(self.fec.frames.into());
        self.due = 0..share as u8;
        if acknowledged >= self.first + u64::from(self.frames) {
            self.begin();
        }
    }

    /// The number that the next repair frame is checked by, and its length without its check.
    pub fn next(&self) -> Option<(u64, usize)> {
        let sum = self.sums.get(usize::from(self.due.start))?;
        self.is_due().then_some((self.first, repair::REPAIR_HEADER + sum.len()))
    }

    /// Writes the next repair frame, whose length [`next`](Self::next) told.
    pub fn write(&mut self, frame: &mut [u8]) {
        let Some(row) = self.due.next() else { return };
        Repair::write(row, self.first, self.frames, &self.sums[usize::from(row)], frame);
        if !self.is_due() {
            self.begin();
        }
    }

    /// A new block, of nothing yet.
    fn begin(&mut self) {
        (self.frames, self.due) = (0, 0..0);
        self.sums.iter_mut().for_each(Vec::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fec(frames: u8, repairs: u8) -> Fec {
        Fec { frames, repairs }
    }

    fn leave(repairs: &mut Repairs) -> Vec<Vec<u8>> {
        let mut left = Vec::new();
        while let Some((_, length)) = repairs.next() {
            let mut frame = vec![0; length];
            repairs.write(&mut frame);
            left.push(frame);
        }
        left
    }

    #[test]
    fn a_full_block_has_all_of_them_and_a_short_one_its_share() {
        for (k, r) in [(1, 1), (4, 1), (10, 2), (8, 8), (64, 8)] {
            let mut repairs = Repairs::new(fec(k, r));
            let mut number = 0;
            for frames in 1..=k {
                for _ in 0..frames {
                    assert!(!repairs.is_due());
                    repairs.add(number, &[0x20, 0, 0, 0, 1, 2, 3, 4], Instant::from_ps(7));
                    number += 1;
                }
                assert_eq!(repairs.is_due(), frames == k);
                repairs.close(0);
                let left = leave(&mut repairs);
                let share = (usize::from(frames) * usize::from(r)).div_ceil(k.into());
                assert_eq!((left.len(), left[0][4], left[0].len()), (share, frames, 12), "{k}+{r}");
                assert_eq!((repairs.close_at(), repairs.is_due()), (Instant::MAX, false));
            }
        }
    }

    #[test]
    fn what_has_arrived_needs_no_repair() {
        let mut repairs = Repairs::new(fec(4, 2));
        let frame = [0x20, 0, 0, 0, 1, 2, 3, 4];
        for (acknowledged, needed) in [(9, true), (10, false), (11, false)] {
            repairs.add(8, &frame, Instant::ZERO);
            repairs.add(9, &frame, Instant::ZERO);
            repairs.close(acknowledged);
            assert_eq!(repairs.is_due(), needed);
            leave(&mut repairs);
        }
    }
}
