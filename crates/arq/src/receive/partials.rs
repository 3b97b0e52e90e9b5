//! Reassembly of frames received in parts.

use std::collections::BTreeMap;

use crate::wire::part::Part;

/// Maximum number of incomplete frames; the lowest numbers are stored, because all others wait for them.
const MAX_FRAMES: usize = 8;
/// Maximum number of separate ranges of a frame. The longest frame has 300 if every second part of the minimum length
/// is missing.
const MAX_RANGES: usize = 512;

/// Incomplete frames: at most eight, each up to the maximum frame length.
#[derive(Debug)]
pub(crate) struct PartialFrames {
    /// Maximum frame length without the check.
    max_body: usize,
    frames: BTreeMap<u64, PartialFrame>,
}

#[derive(Debug, Default)]
struct PartialFrame {
    bytes: Vec<u8>,
    /// Ranges received, from and to, in order.
    ranges: Vec<(usize, usize)>,
    /// Length of the frame, once known.
    end: Option<usize>,
}

/// A part exceeds the maximum frame length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameTooLong;

impl PartialFrames {
    /// Creates storage for frames of at most `max_body` bytes without their check.
    pub fn new(max_body: usize) -> PartialFrames {
        PartialFrames { max_body, frames: BTreeMap::new() }
    }

    /// Adds a part of frame `number`; returns the frame if it is complete. All frames before `next` have arrived.
    pub fn add(&mut self, next: u64, number: u64, part: &Part<'_>) -> Result<Option<Vec<u8>>, FrameTooLong> {
        let (from, to) = (usize::from(part.offset), usize::from(part.offset) + part.bytes.len());
        if to > self.max_body {
            return Err(FrameTooLong);
        }
        while self.frames.first_key_value().is_some_and(|(first, _)| *first < next) {
            self.frames.pop_first();
        }
        if self.frames.len() == MAX_FRAMES && !self.frames.contains_key(&number) {
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

impl PartialFrame {
    fn add(&mut self, from: usize, to: usize, part: &Part<'_>) {
        if part.last {
            self.end = Some(to);
        }
        // Merges adjacent and overlapping ranges.
        let first = self.ranges.partition_point(|(_, end)| *end < from);
        let after = self.ranges.partition_point(|(begin, _)| *begin <= to);
        let merged =
            self.ranges[first..after].iter().fold((from, to), |(a, b), (c, d)| (a.min(*c), b.max(*d)));
        if first == after && self.ranges.len() == MAX_RANGES {
            return;
        }
        self.ranges.splice(first..after, [merged]);
        if self.bytes.len() < to {
            self.bytes.resize(to, 0);
        }
        self.bytes[from..to].copy_from_slice(part.bytes);
    }

    fn is_whole(&self) -> bool {
        self.end.is_some_and(|end| self.ranges == [(0, end)] && self.bytes.len() == end)
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
        fn parts_in_any_order_are_reassembled(length in 1usize..3000, seed in any::<u64>()) {
            let mut draw = Seed(seed).stream("parts");
            let bytes: Vec<u8> = (0..length).map(|_| draw.bits() as u8).collect();
            let mut partials = PartialFrames::new(3000);
            let mut received = vec![false; length];
            loop {
                let from = draw.below(length as u64) as usize;
                let to = (from + 1 + draw.below(400) as usize).min(length);
                received[from..to].fill(true);
                let frame = partials.add(5, 5, &part(&bytes, from, to)).unwrap();
                prop_assert_eq!(frame.is_some(), received.iter().all(|received| *received));
                if let Some(frame) = frame {
                    prop_assert!(frame == bytes && partials.frames.is_empty());
                    break;
                }
            }
        }
    }

    #[test]
    fn lowest_frames_are_stored() {
        let bytes = [3; 100];
        let mut partials = PartialFrames::new(100);
        for number in (0..20).rev() {
            assert_eq!(partials.add(0, number, &part(&bytes, 0, 60)), Ok(None));
        }
        assert!(partials.frames.keys().copied().eq(0..8));
        assert_eq!(partials.add(0, 8, &part(&bytes, 60, 100)), Ok(None), "the frame was dropped");
        assert_eq!(partials.add(0, 7, &part(&bytes, 60, 100)), Ok(Some(bytes.to_vec())));
        // Frames that have arrived whole are dropped.
        assert_eq!(partials.add(5, 9, &part(&bytes, 0, 60)), Ok(None));
        assert!(partials.frames.keys().copied().eq([5, 6, 9]));
    }

    #[test]
    fn ranges_and_frame_length_are_bounded() {
        let bytes = [3; 3000];
        let mut partials = PartialFrames::new(2999);
        for at in (0..2998).step_by(2) {
            assert_eq!(partials.add(0, 0, &part(&bytes, at, at + 1)), Ok(None));
        }
        assert_eq!(partials.frames[&0].ranges.len(), MAX_RANGES);
        assert_eq!(partials.add(0, 0, &part(&bytes, 2000, 3000)), Err(FrameTooLong));
        let whole = &bytes[..2999];
        assert_eq!(partials.add(0, 0, &part(whole, 0, 2999)), Ok(Some(whole.to_vec())));
    }
}
