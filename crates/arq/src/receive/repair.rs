//! The FEC decoder: rebuilds lost frames from the other frames of their block and its repair frames.
//!
//! The decoder stores the frames of the last [`STORED_BLOCKS`] blocks and the repair frames of at most
//! [`PENDING_BLOCKS`] blocks; older ones are dropped, and their lost frames are retransmitted. So memory is bounded:
//! for `fec = K+R` by 4 K + 2 R frames of the maximum length.

use std::collections::VecDeque;

use super::arrivals::Arrivals;
use crate::field::{add_product, coefficient, inverse, multiply};
use crate::options::{Fec, MAX_REPAIRS};
use crate::wire::repair;

/// Blocks whose frames are stored: the current block and those of reordered frames.
const STORED_BLOCKS: usize = 4;
/// Blocks whose repair frames may wait for more.
const PENDING_BLOCKS: usize = 2;

/// The frames that a repair frame protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub first: u64,
    pub frames: u8,
}

impl Block {
    fn numbers(self) -> std::ops::Range<u64> {
        self.first..self.first + u64::from(self.frames)
    }
}

/// The protected part of a received frame; empty slots have no chunks.
#[derive(Clone, Debug, Default)]
struct StoredFrame {
    number: u64,
    /// Kind and flags, as in every transmission.
    first_byte: u8,
    chunks: Vec<u8>,
}

/// A repair frame that waits for others.
#[derive(Debug)]
struct PendingRepair {
    block: Block,
    /// Index in its block, which selects the coefficients.
    row: u8,
    symbol: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RebuiltFrame {
    pub number: u64,
    /// Kind and flags, as in every transmission.
    pub first_byte: u8,
    pub chunks: Vec<u8>,
}

/// Outcome of an attempt to rebuild frames.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RebuildOutcome {
    /// Nothing can be rebuilt (yet).
    Nothing,
    /// The rebuilt frames.
    Frames(Vec<RebuiltFrame>),
    /// The repair frames contradict the received frames.
    Inconsistent,
}

/// Recent frames, and pending repair frames.
#[derive(Debug)]
pub(crate) struct Rebuilder {
    fec: Fec,
    /// Indexed by the remainder of the frame number.
    stored: Vec<StoredFrame>,
    pending: VecDeque<PendingRepair>,
}

impl Rebuilder {
    pub fn new(fec: Fec) -> Self {
        let stored = vec![StoredFrame::default(); STORED_BLOCKS * usize::from(fec.frames)];
        Rebuilder { fec, stored, pending: VecDeque::new() }
    }

    fn slot(&self, number: u64) -> usize {
        (number % self.stored.len() as u64) as usize
    }

    pub fn store(&mut self, number: u64, first_byte: u8, chunks: &[u8]) {
        let slot = self.slot(number);
        let frame = &mut self.stored[slot];
        if frame.chunks.is_empty() || frame.number < number {
            (frame.number, frame.first_byte) = (number, first_byte & !repair::MUTABLE_FLAGS);
            frame.chunks.clear();
            // Allocate no more than the frame, to keep the bound.
            frame.chunks.reserve_exact(chunks.len());
            frame.chunks.extend_from_slice(chunks);
        }
    }

    fn stored_frame(&self, number: u64) -> Option<&StoredFrame> {
        let frame = &self.stored[self.slot(number)];
        (frame.number == number && !frame.chunks.is_empty()).then_some(frame)
    }

    #[inline]
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Adds a repair frame; returns whether it conforms to the negotiated parameters.
    pub fn add_repair(&mut self, block: Block, row: u8, symbol: &[u8]) -> bool {
        if row >= self.fec.repairs || !(1..=self.fec.frames).contains(&block.frames) {
            return false;
        }
        if !self.pending.iter().any(|repair| (repair.block, repair.row) == (block, row)) {
            if self.pending.len() >= PENDING_BLOCKS * usize::from(self.fec.repairs) {
                self.pending.pop_front();
            }
            self.pending.push_back(PendingRepair { block, row, symbol: symbol.to_vec() });
        }
        true
    }

    /// Rebuilds missing frames of a block, if possible. Call it until it returns [`RebuildOutcome::Nothing`].
    pub fn rebuild(&mut self, arrivals: &Arrivals) -> RebuildOutcome {
        let mut at = 0;
        while let Some(&PendingRepair { block, .. }) = self.pending.get(at) {
            let missing: Vec<u64> = block.numbers().filter(|number| arrivals.is_missing(*number)).collect();
            let rows = self.pending.iter().filter(|repair| repair.block == block).count();
            let is_dropped =
                |number: u64| !arrivals.is_missing(number) && self.stored_frame(number).is_none();
            if missing.is_empty() || block.numbers().any(is_dropped) {
                self.pending.retain(|repair| repair.block != block);
            } else if missing.len() <= rows {
                return self.solve(block, &missing);
            } else {
                at += 1;
            }
        }
        RebuildOutcome::Nothing
    }

    /// Solves the equations of the missing frames by Gauss–Jordan elimination.
    fn solve(&mut self, block: Block, missing: &[u64]) -> RebuildOutcome {
        let mut repairs: Vec<PendingRepair> = Vec::new();
        for repair in std::mem::take(&mut self.pending) {
            if repair.block == block { repairs.push(repair) } else { self.pending.push_back(repair) }
        }
        repairs.truncate(missing.len());
        if repairs.iter().any(|repair| repair.symbol.len() != repairs[0].symbol.len()) {
            return RebuildOutcome::Inconsistent;
        }
        let index = |number: u64| (number - block.first) as u8;
        for PendingRepair { row, symbol, .. } in &mut repairs {
            for number in block.numbers().filter(|number| !missing.contains(number)) {
                let Some(frame) = self.stored_frame(number) else { return RebuildOutcome::Nothing };
                if frame.chunks.len() + repair::SYMBOL_HEADER > symbol.len() {
                    return RebuildOutcome::Inconsistent;
                }
                repair::add(symbol, coefficient(*row, index(number)), frame.first_byte, &frame.chunks);
            }
        }
        let mut matrix = [[0; MAX_REPAIRS as usize]; MAX_REPAIRS as usize];
        for (equation, repair) in matrix.iter_mut().zip(&repairs) {
            for (entry, number) in equation.iter_mut().zip(missing) {
                *entry = coefficient(repair.row, index(*number));
            }
        }
        let mut symbols: Vec<Vec<u8>> = repairs.into_iter().map(|repair| repair.symbol).collect();
        for pivot in 0..missing.len() {
            // Every square submatrix of the coefficients is invertible, so some remaining row is not zero here.
            let Some(row) = (pivot..missing.len()).find(|row| matrix[*row][pivot] != 0) else {
                return RebuildOutcome::Inconsistent;
            };
            matrix.swap(pivot, row);
            symbols.swap(pivot, row);
            let scale = inverse(matrix[pivot][pivot]);
            matrix[pivot].iter_mut().for_each(|entry| *entry = multiply(*entry, scale));
            let mut scaled = vec![0; symbols[pivot].len()];
            add_product(&mut scaled, scale, &symbols[pivot]);
            for row in (0..missing.len()).filter(|row| *row != pivot) {
                let factor = matrix[row][pivot];
                let pivot_equation = matrix[pivot];
                add_product(&mut matrix[row], factor, &pivot_equation);
                add_product(&mut symbols[row], factor, &scaled);
            }
            symbols[pivot] = scaled;
        }
        let rebuilt = missing.iter().zip(&symbols).map(|(&number, symbol)| {
            let (first_byte, chunks) = repair::extract(symbol)?;
            Some(RebuiltFrame { number, first_byte, chunks: chunks.to_vec() })
        });
        rebuilt.collect::<Option<Vec<_>>>().map_or(RebuildOutcome::Inconsistent, RebuildOutcome::Frames)
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::{Instant, Seed, Stream};

    use super::*;
    use crate::send::repair::RepairEncoder;
    use crate::wire::repair::{RepairHeader, protected};

    /// Returns frames without their checks, and the repair frames of their block.
    fn block(draw: &mut Stream, fec: Fec, frames: u8) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let mut repairs = RepairEncoder::new(fec);
        let frame = |draw: &mut Stream| {
            let length = 8 + draw.below(300);
            let mut frame: Vec<u8> = (0..length).map(|_| draw.bits() as u8).collect();
            frame[0] = 0x20 | frame[0] & 31;
            frame
        };
        let frames: Vec<Vec<u8>> = (0..frames).map(|_| frame(draw)).collect();
        for (number, frame) in frames.iter().enumerate() {
            repairs.add(number as u64, frame, Instant::ZERO);
        }
        repairs.close(0);
        let mut repair_frames = Vec::new();
        while let Some((_, length)) = repairs.next() {
            let mut frame = vec![0; length];
            repairs.write(&mut frame);
            repair_frames.push(frame);
        }
        (frames, repair_frames)
    }

    fn receive_frame(rebuilder: &mut Rebuilder, arrivals: &mut Arrivals, number: u64, frame: &[u8]) {
        arrivals.record(number);
        let (_, chunks) = protected(frame);
        rebuilder.store(number, frame[0], chunks);
    }

    fn receive_repair(rebuilder: &mut Rebuilder, repair: &[u8]) -> bool {
        let (RepairHeader { row, first, frames }, symbol) =
            RepairHeader::read(repair).expect("a valid repair frame");
        rebuilder.add_repair(Block { first: first.into(), frames }, row, symbol)
    }

    #[test]
    fn lost_frames_are_rebuilt_in_any_arrival_order() {
        let mut draw = Seed(9265).stream("rebuild");
        let mut rebuilt = [0; 9];
        for _ in 0..2000 {
            let k = 1 + draw.below(64) as u8;
            let fec = Fec { frames: k, repairs: 1 + draw.below(8.min(k.into())) as u8 };
            let count = 1 + draw.below(k.into()) as u8;
            let (frames, repairs) = block(&mut draw, fec, count);
            let (mut rebuilder, mut arrivals) = (Rebuilder::new(fec), Arrivals::new(100));
            // Frames and repair frames, shuffled, some of them lost.
            let all = frames.len() + repairs.len();
            let mut order: Vec<usize> = (0..all).collect();
            (1..all).for_each(|at| order.swap(at, draw.below(at as u64 + 1) as usize));
            let lost = draw.below(repairs.len() as u64 + 3) as usize;
            let (lost, received) = order.split_at(lost.min(all));
            let mut rebuilt_frames = Vec::new();
            for &index in received {
                match frames.get(index) {
                    Some(frame) if arrivals.is_missing(index as u64) => {
                        receive_frame(&mut rebuilder, &mut arrivals, index as u64, frame);
                    }
                    Some(_) => {}
                    None => assert!(receive_repair(&mut rebuilder, &repairs[index - frames.len()])),
                }
                if let RebuildOutcome::Frames(frames) = rebuilder.rebuild(&arrivals) {
                    frames.iter().for_each(|frame| arrivals.record(frame.number));
                    rebuilt_frames.extend(frames);
                }
                assert_eq!(rebuilder.rebuild(&arrivals), RebuildOutcome::Nothing);
            }
            for RebuiltFrame { number, first_byte, chunks } in &rebuilt_frames {
                assert_eq!((*first_byte, &chunks[..]), protected(&frames[*number as usize]));
            }
            let missing = (0..frames.len()).filter(|number| arrivals.is_missing(*number as u64)).count();
            assert!(
                missing == 0 || lost.len() > repairs.len(),
                "{missing} frames are missing of {fec:?}, lost: {lost:?}"
            );
            rebuilt[rebuilt_frames.len()] += 1;
        }
        assert!(rebuilt.iter().all(|times| *times > 0), "{rebuilt:?}");
    }

    #[test]
    fn storage_is_bounded_and_old_frames_are_dropped() {
        let fec = Fec { frames: 4, repairs: 2 };
        let mut rebuilder = Rebuilder::new(fec);
        let mut arrivals = Arrivals::new(8000);
        for number in 0..4000 {
            if number % 4 < 2 {
                let frame = vec![0x20; 1004 - (number % 300) as usize];
                receive_frame(&mut rebuilder, &mut arrivals, number, &frame);
            } else {
                assert!(rebuilder.add_repair(Block { first: number - number % 4, frames: 4 }, 1, &[0; 1003]));
            }
            rebuilder.rebuild(&arrivals);
            let stored: usize = rebuilder.stored.iter().map(|frame| frame.chunks.capacity()).sum();
            let pending: usize = rebuilder.pending.iter().map(|repair| repair.symbol.capacity()).sum();
            assert!(stored <= 4 * 4 * 1000 && pending <= 2 * 2 * 1003, "{stored} and {pending} bytes");
        }
        // Two frames of the block are missing, and its others are no longer stored.
        for row in 0..2 {
            assert!(rebuilder.add_repair(Block { first: 0, frames: 4 }, row, &[0; 1003]));
        }
        assert_eq!(rebuilder.rebuild(&arrivals), RebuildOutcome::Nothing);
        assert!(!rebuilder.pending.iter().any(|repair| repair.block.first == 0));
    }

    #[test]
    fn nonconforming_repair_frames_are_refused() {
        let mut rebuilder = Rebuilder::new(Fec { frames: 4, repairs: 2 });
        let block = |frames| Block { first: 0, frames };
        assert!(!rebuilder.add_repair(block(5), 0, &[0; 9]), "too many frames");
        assert!(!rebuilder.add_repair(block(0), 0, &[0; 9]), "none");
        assert!(!rebuilder.add_repair(block(4), 2, &[0; 9]), "no such row");
        let mut arrivals = Arrivals::new(100);
        receive_frame(&mut rebuilder, &mut arrivals, 0, &[0x20; 30]);
        // Shorter than a frame of its block.
        assert!(rebuilder.add_repair(block(2), 0, &[0; 9]));
        assert_eq!(rebuilder.rebuild(&arrivals), RebuildOutcome::Inconsistent);
        // Two rows of different lengths.
        assert!(rebuilder.add_repair(block(3), 0, &[0; 100]) && rebuilder.add_repair(block(3), 1, &[0; 101]));
        assert_eq!(rebuilder.rebuild(&arrivals), RebuildOutcome::Inconsistent);
        // The remainder claims a length beyond its end.
        assert!(rebuilder.add_repair(block(2), 0, &[0xFF; 100]));
        assert_eq!(rebuilder.rebuild(&arrivals), RebuildOutcome::Inconsistent);
        assert!(!rebuilder.has_pending());
    }
}
