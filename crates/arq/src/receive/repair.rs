//! Frames that were lost, rebuilt from the others of their block and its repair frames.
//!
//! Kept are the last [`BLOCKS`] blocks' frames and at most [`HELD`] blocks' repair frames; what is older is forgotten, and
//! left to be sent again. So memory has a bound: for `fec = K+R` 4 K + 2 R frames of the longest size.

use std::collections::VecDeque;

use super::arrivals::Arrivals;
use crate::field::{add_product, inverse, multiply, weight};
use crate::options::{Fec, MAX_REPAIRS};
use crate::wire::repair;

/// Blocks of which frames are kept: the one that is arriving, and those that reordered frames may belong to.
const BLOCKS: usize = 4;
/// Blocks of which repair frames that do not suffice may wait for more.
const HELD: usize = 2;

/// The frames that a repair frame is for.
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

/// What is protected of a frame that has arrived; of none, if there are no bytes.
#[derive(Clone, Debug, Default)]
struct Kept {
    number: u64,
    first: u8,
    chunks: Vec<u8>,
}

/// A repair frame that waits.
#[derive(Debug)]
struct Held {
    block: Block,
    row: u8,
    sum: Vec<u8>,
}

/// A frame that was rebuilt: kind and flags as when it left, without those that may change, and its chunks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rebuilt {
    pub number: u64,
    pub first: u8,
    pub chunks: Vec<u8>,
}

/// What comes of the repair frames of a block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing, or nothing yet.
    Nothing,
    /// These frames.
    Frames(Vec<Rebuilt>),
    /// They do not belong to the frames that came.
    Nonsense,
}

/// The last frames, and the repair frames that wait for more.
#[derive(Debug)]
pub(crate) struct Rebuilder {
    fec: Fec,
    /// By the remainder of their numbers.
    kept: Vec<Kept>,
    held: VecDeque<Held>,
}

impl Rebuilder {
    pub fn new(fec: Fec) -> Self {
        let kept = vec![Kept::default(); BLOCKS * usize::from(fec.frames)];
        Rebuilder { fec, kept, held: VecDeque::new() }
    }

    fn slot(&self, number: u64) -> usize {
        (number % self.kept.len() as u64) as usize
    }

    /// A frame has arrived that had not before.
    pub fn keep(&mut self, number: u64, first: u8, chunks: &[u8]) {
        let slot = self.slot(number);
        let kept = &mut self.kept[slot];
        if kept.chunks.is_empty() || kept.number < number {
            (kept.number, kept.first) = (number, first & !repair::CHANGING);
            kept.chunks.clear();
            // No more than the frame: what is kept has a bound.
            kept.chunks.reserve_exact(chunks.len());
            kept.chunks.extend_from_slice(chunks);
        }
    }

    fn kept(&self, number: u64) -> Option<&Kept> {
        let kept = &self.kept[self.slot(number)];
        (kept.number == number && !kept.chunks.is_empty()).then_some(kept)
    }

    /// Whether repair frames wait for more.
    #[inline]
    pub fn waits(&self) -> bool {
        !self.held.is_empty()
    }

    /// A repair frame has come; whether it can be one of those that were agreed upon.
    pub fn hold(&mut self, block: Block, row: u8, sum: &[u8]) -> bool {
        if row >= self.fec.repairs || !(1..=self.fec.frames).contains(&block.frames) {
            return false;
        }
        if !self.held.iter().any(|held| (held.block, held.row) == (block, row)) {
            if self.held.len() >= HELD * usize::from(self.fec.repairs) {
                self.held.pop_front();
            }
            self.held.push_back(Held { block, row, sum: sum.to_vec() });
        }
        true
    }

    /// Rebuilds what is missing of a block, if that is possible; to be asked again until there is nothing.
    pub fn rebuild(&mut self, arrivals: &Arrivals) -> Outcome {
        let mut at = 0;
        while let Some(&Held { block, .. }) = self.held.get(at) {
            let missing: Vec<u64> = block.numbers().filter(|number| arrivals.misses(*number)).collect();
            let rows = self.held.iter().filter(|held| held.block == block).count();
            let forgotten = |number: &u64| !arrivals.misses(*number) && self.kept(*number).is_none();
            if missing.is_empty() || block.numbers().any(|number| forgotten(&number)) {
                self.held.retain(|held| held.block != block);
            } else if missing.len() <= rows {
                return self.solve(block, &missing);
            } else {
                at += 1;
            }
        }
        Outcome::Nothing
    }

    /// Solves as many sums as frames are missing, by elimination (Gauss and Jordan).
    fn solve(&mut self, block: Block, missing: &[u64]) -> Outcome {
        let mut sums: Vec<Held> = Vec::new();
        for held in std::mem::take(&mut self.held) {
            if held.block == block { sums.push(held) } else { self.held.push_back(held) }
        }
        sums.truncate(missing.len());
        if sums.iter().any(|held| held.sum.len() != sums[0].sum.len()) {
            return Outcome::Nonsense;
        }
        let index = |number: u64| (number - block.first) as u8;
        for Held { row, sum, .. } in &mut sums {
            for number in block.numbers().filter(|number| !missing.contains(number)) {
                let Some(kept) = self.kept(number) else { return Outcome::Nothing };
                if kept.chunks.len() + repair::SUM_HEADER > sum.len() {
                    return Outcome::Nonsense;
                }
                repair::add(sum, weight(*row, index(number)), kept.first, &kept.chunks);
            }
        }
        let mut weights = [[0; MAX_REPAIRS as usize]; MAX_REPAIRS as usize];
        for (weights, held) in weights.iter_mut().zip(&sums) {
            for (place, number) in weights.iter_mut().zip(missing) {
                *place = weight(held.row, index(*number));
            }
        }
        let mut sums: Vec<Vec<u8>> = sums.into_iter().map(|held| held.sum).collect();
        for pivot in 0..missing.len() {
            // Every square part of the weights can be solved, so in some row of those left this is not zero.
            let Some(row) = (pivot..missing.len()).find(|row| weights[*row][pivot] != 0) else {
                return Outcome::Nonsense;
            };
            weights.swap(pivot, row);
            sums.swap(pivot, row);
            let scale = inverse(weights[pivot][pivot]);
            weights[pivot].iter_mut().for_each(|weight| *weight = multiply(*weight, scale));
            let mut own = vec![0; sums[pivot].len()];
            add_product(&mut own, scale, &sums[pivot]);
            for row in (0..missing.len()).filter(|row| *row != pivot) {
                let factor = weights[row][pivot];
                let from = weights[pivot];
                add_product(&mut weights[row], factor, &from);
                add_product(&mut sums[row], factor, &own);
            }
            sums[pivot] = own;
        }
        let rebuilt = missing.iter().zip(&sums).map(|(&number, sum)| {
            let (first, chunks) = repair::extract(sum)?;
            Some(Rebuilt { number, first, chunks: chunks.to_vec() })
        });
        rebuilt.collect::<Option<Vec<_>>>().map_or(Outcome::Nonsense, Outcome::Frames)
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::{Instant, Seed, Stream};

    use super::*;
    use crate::send::repair::Repairs;
    use crate::wire::repair::{Repair, protected};

    /// Frames without their checks, and the repair frames of a block of them.
    fn block(draw: &mut Stream, fec: Fec, frames: u8) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let mut repairs = Repairs::new(fec);
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
        let mut left = Vec::new();
        while let Some((_, length)) = repairs.next() {
            let mut frame = vec![0; length];
            repairs.write(&mut frame);
            left.push(frame);
        }
        (frames, left)
    }

    fn arrive(rebuilder: &mut Rebuilder, arrivals: &mut Arrivals, number: u64, frame: &[u8]) {
        arrivals.note(number);
        let (_, chunks) = protected(frame);
        rebuilder.keep(number, frame[0], chunks);
    }

    fn hold(rebuilder: &mut Rebuilder, repair: &[u8]) -> bool {
        let (Repair { row, first, frames }, sum) = Repair::read(repair).expect("it was written so");
        rebuilder.hold(Block { first: first.into(), frames }, row, sum)
    }

    #[test]
    fn as_many_as_there_are_repair_frames_are_rebuilt_in_whatever_order_things_come() {
        let mut draw = Seed(9265).stream("rebuild");
        let mut rebuilt = [0; 9];
        for _ in 0..2000 {
            let k = 1 + draw.below(64) as u8;
            let fec = Fec { frames: k, repairs: 1 + draw.below(8.min(k.into())) as u8 };
            let count = 1 + draw.below(k.into()) as u8;
            let (frames, repairs) = block(&mut draw, fec, count);
            let (mut rebuilder, mut arrivals) = (Rebuilder::new(fec), Arrivals::new(100));
            // Frames and repair frames, shuffled, and some of them lost.
            let all = frames.len() + repairs.len();
            let mut order: Vec<usize> = (0..all).collect();
            (1..all).for_each(|at| order.swap(at, draw.below(at as u64 + 1) as usize));
            let lost = draw.below(repairs.len() as u64 + 3) as usize;
            let (lost, came) = order.split_at(lost.min(all));
            let mut got = Vec::new();
            for &what in came {
                match frames.get(what) {
                    Some(frame) if arrivals.misses(what as u64) => {
                        arrive(&mut rebuilder, &mut arrivals, what as u64, frame);
                    }
                    Some(_) => {}
                    None => assert!(hold(&mut rebuilder, &repairs[what - frames.len()])),
                }
                if let Outcome::Frames(frames) = rebuilder.rebuild(&arrivals) {
                    frames.iter().for_each(|frame| arrivals.note(frame.number));
                    got.extend(frames);
                }
                assert_eq!(rebuilder.rebuild(&arrivals), Outcome::Nothing);
            }
            for Rebuilt { number, first, chunks } in &got {
                assert_eq!((*first, &chunks[..]), protected(&frames[*number as usize]));
            }
            let missing = (0..frames.len()).filter(|number| arrivals.misses(*number as u64)).count();
            assert!(missing == 0 || lost.len() > repairs.len(), "{missing} are missing of {fec:?}, {lost:?}");
            rebuilt[got.len()] += 1;
        }
        assert!(rebuilt.iter().all(|times| *times > 0), "{rebuilt:?}");
    }

    #[test]
    fn what_waits_has_a_bound_and_what_is_old_is_forgotten() {
        let fec = Fec { frames: 4, repairs: 2 };
        let mut rebuilder = Rebuilder::new(fec);
        let mut arrivals = Arrivals::new(8000);
        for number in 0..4000 {
            if number % 4 < 2 {
                let frame = vec![0x20; 1004 - (number % 300) as usize];
                arrive(&mut rebuilder, &mut arrivals, number, &frame);
            } else {
                assert!(rebuilder.hold(Block { first: number - number % 4, frames: 4 }, 1, &[0; 1003]));
            }
            rebuilder.rebuild(&arrivals);
            let kept: usize = rebuilder.kept.iter().map(|kept| kept.chunks.capacity()).sum();
            let held: usize = rebuilder.held.iter().map(|held| held.sum.capacity()).sum();
            assert!(kept <= 4 * 4 * 1000 && held <= 2 * 2 * 1003, "{kept} and {held} bytes");
        }
        // Both are missing that the second row tells of, and of the first block's others nobody knows any more.
        for row in 0..2 {
            assert!(rebuilder.hold(Block { first: 0, frames: 4 }, row, &[0; 1003]));
        }
        assert_eq!(rebuilder.rebuild(&arrivals), Outcome::Nothing);
        assert!(!rebuilder.held.iter().any(|held| held.block.first == 0));
    }

    #[test]
    fn what_was_not_agreed_upon_or_does_not_fit_is_refused() {
        let mut rebuilder = Rebuilder::new(Fec { frames: 4, repairs: 2 });
        let block = |frames| Block { first: 0, frames };
        assert!(!rebuilder.hold(block(5), 0, &[0; 9]), "too many frames");
        assert!(!rebuilder.hold(block(0), 0, &[0; 9]), "none");
        assert!(!rebuilder.hold(block(4), 2, &[0; 9]), "no such row");
        let mut arrivals = Arrivals::new(100);
        arrive(&mut rebuilder, &mut arrivals, 0, &[0x20; 30]);
        // Shorter than a frame of its block.
        assert!(rebuilder.hold(block(2), 0, &[0; 9]));
        assert_eq!(rebuilder.rebuild(&arrivals), Outcome::Nonsense);
        // Two rows of other lengths.
        assert!(rebuilder.hold(block(3), 0, &[0; 100]) && rebuilder.hold(block(3), 1, &[0; 101]));
        assert_eq!(rebuilder.rebuild(&arrivals), Outcome::Nonsense);
        // What is left says that it is longer than all.
        assert!(rebuilder.hold(block(2), 0, &[0xFF; 100]));
        assert_eq!(rebuilder.rebuild(&arrivals), Outcome::Nonsense);
        assert!(!rebuilder.waits());
    }
}
