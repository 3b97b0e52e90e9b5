//! Frames that come in parts.

use std::collections::BTreeMap;

use crate::wire::part::Part;

/// Frames of which parts are remembered. The lowest: all others wait for those anyway.
const FRAMES: usize = 8;
/// Stretches of a frame that may be there with gaps between them. The longest frame has 300, if every other part of the
/// shortest length is missing.
const STRETCHES: usize = 512;

/// Frames of which some parts have arrived: at most eight, each as long as a frame may be.
#[derive(Debug)]
pub(crate) struct Partials {
    /// Longest frame, without its check.
    longest: usize,
    frames: BTreeMap<u64, Partial>,
}

#[derive(Debug, Default)]
struct Partial {
    bytes: Vec<u8>,
    /// What is there, from and to, in order.
    there: Vec<(usize, usize)>,
    /// Where the frame ends, once that is known.
    end: Option<usize>,
}

/// A part of a frame that is longer than it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Partials {
    /// Of frames of at most `longest` bytes, without their check.
    pub fn new(longest: usize) -> Partials {
        Partials { longest, frames: BTreeMap::new() }
    }

    /// Adds a part of frame `number`, where all before `next` have arrived; the frame, if that was the last missing.
    pub fn add(&mut self, next: u64, number: u64, part: &Part<'_>) -> Result<Option<Vec<u8>>, TooLong> {
        let (from, to) = (usize::from(part.offset), usize::from(part.offset) + part.bytes.len());
        if to > self.longest {
            return Err(TooLong);
        }
        while self.frames.first_key_value().is_some_and(|(first, _)| *first < next) {
            self.frames.pop_first();
        }
        if self.frames.len() == FRAMES && !self.frames.contains_key(&number) {
            match self.frames.last_entry() {
                Some(last) if *last.key() > number => last.remove(),
                _ => return Ok(None),
            };
        }
        let partial = self.frames.entry(number).or_default();
        partial.add(from, to, part);
        if !partial.is_whole() {
            return Ok(None);
        }
        Ok(self.frames.remove(&number).map(|partial| partial.bytes))
    }
}

impl Partial {
    fn add(&mut self, from: usize, to: usize, part: &Part<'_>) {
        if part.last {
            self.end = Some(to);
        }
        // All that touch it become one with it.
        let first = self.there.partition_point(|(_, end)| *end < from);
        let after = self.there.partition_point(|(begin, _)| *begin <= to);
        let merged =
            self.there[first..after].iter().fold((from, to), |(a, b), (c, d)| (a.min(*c), b.max(*d)));
        if first == after && self.there.len() == STRETCHES {
            return;
        }
        self.there.splice(first..after, [merged]);
        if self.bytes.len() < to {
            self.bytes.resize(to, 0);
        }
        self.bytes[from..to].copy_from_slice(part.bytes);
    }

    fn is_whole(&self) -> bool {
        self.end.is_some_and(|end| self.there == [(0, end)] && self.bytes.len() == end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use trunkline_units::Seed;

    fn part(bytes: &[u8], from: usize, to: usize) -> Part<'_> {
        let (offset, last) = (from as u16, to == bytes.len());
        Part { number: 0, offset, last, bytes: &bytes[from..to] }
    }

    proptest! {
        #[test]
        fn parts_of_any_cut_in_any_order_make_the_frame(length in 1usize..3000, seed in any::<u64>()) {
            let mut draw = Seed(seed).stream("parts");
            let bytes: Vec<u8> = (0..length).map(|_| draw.bits() as u8).collect();
            let mut partials = Partials::new(3000);
            let mut there = vec![false; length];
            loop {
                let from = draw.below(length as u64) as usize;
                let to = (from + 1 + draw.below(400) as usize).min(length);
                there[from..to].fill(true);
                let got = partials.add(5, 5, &part(&bytes, from, to)).unwrap();
                prop_assert_eq!(got.is_some(), there.iter().all(|there| *there));
                if let Some(got) = got {
                    prop_assert!(got == bytes && partials.frames.is_empty());
                    break;
                }
            }
        }
    }

    #[test]
    fn the_lowest_frames_are_remembered_and_no_more() {
        let bytes = [3; 100];
        let mut partials = Partials::new(100);
        for number in (0..20).rev() {
            assert_eq!(partials.add(0, number, &part(&bytes, 0, 60)), Ok(None));
        }
        assert!(partials.frames.keys().copied().eq(0..8));
        assert_eq!(partials.add(0, 8, &part(&bytes, 60, 100)), Ok(None), "it was forgotten");
        assert_eq!(partials.add(0, 7, &part(&bytes, 60, 100)), Ok(Some(bytes.to_vec())));
        // What has arrived otherwise is not waited for.
        assert_eq!(partials.add(5, 9, &part(&bytes, 0, 60)), Ok(None));
        assert!(partials.frames.keys().copied().eq([5, 6, 9]));
    }

    #[test]
    fn crumbs_have_a_bound_and_nothing_is_longer_than_a_frame() {
        let bytes = [3; 3000];
        let mut partials = Partials::new(2999);
        for at in (0..2998).step_by(2) {
            assert_eq!(partials.add(0, 0, &part(&bytes, at, at + 1)), Ok(None));
        }
        assert_eq!(partials.frames[&0].there.len(), STRETCHES);
        assert_eq!(partials.add(0, 0, &part(&bytes, 2000, 3000)), Err(TooLong));
        let whole = &bytes[..2999];
        assert_eq!(partials.add(0, 0, &part(whole, 0, 2999)), Ok(Some(whole.to_vec())));
    }
}
