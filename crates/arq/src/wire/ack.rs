//! Acknowledgement frames.
//!
//! ```text
//! kind and flags u8 | acknowledged u24 | delay u16 | duplicates u8 | ranges u8 | [rebuilt u16]
//!     | ranges of (missing u16, received u16) | check
//! ```
//!
//! Every frame before `acknowledged` has arrived. From there on, each range gives a number of missing frames and a
//! number of received frames. `delay` is the time in µs since the last frame arrived; `duplicates` counts duplicate
//! frames, modulo 256.

use super::{KIND_ACK, get16, get24, kind, put24};
use crate::wire::data::NACK;

/// Flag of a negative acknowledgement that requests nothing: a duplicate has arrived because its acknowledgement was
/// lost.
pub const DUPLICATE: u8 = 8;

/// Flag: the count of rebuilt frames is present.
pub const REBUILT: u8 = 1;

/// Bytes of the count of rebuilt frames.
pub const REBUILT_BYTES: usize = 2;

/// Maximum number of ranges in an acknowledgement; the lowest are sent.
pub const MAX_RANGES: usize = 255;

/// Bytes without ranges and check.
pub const HEADER: usize = 8;

/// A decoded acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// Lowest 24 bits of the first number that has not arrived.
    pub acknowledged: u32,
    /// Whether that number is requested.
    pub negative: bool,
    /// Whether a duplicate has arrived and nothing is requested.
    pub duplicate: bool,
    /// Delay of the acknowledgement in µs.
    pub delay: u16,
    /// Duplicate frames received, modulo 256.
    pub duplicates: u8,
    /// Frames lost and rebuilt, modulo 65,536; only with forward error correction.
    pub rebuilt: Option<u16>,
    ranges: &'a [u8],
}

impl<'a> Ack<'a> {
    /// Decodes a frame without its check; none if it is not a valid acknowledgement.
    #[inline]
    pub fn read(body: &'a [u8]) -> Option<Ack<'a>> {
        let (head, ranges) = body.split_first_chunk::<HEADER>()?;
        let valid = kind(head[0]) == KIND_ACK && head[0] & 31 & !(NACK | DUPLICATE | REBUILT) == 0;
        let (rebuilt, ranges) = match head[0] & REBUILT {
            0 => (None, ranges),
            _ => ranges
                .split_first_chunk::<REBUILT_BYTES>()
                .map(|(count, ranges)| (Some(get16(count)), ranges))?,
        };
        (valid && ranges.len() == usize::from(head[7]) * 4).then_some(Ack {
            acknowledged: get24(&head[1..]),
            negative: head[0] & NACK != 0 && head[0] & DUPLICATE == 0,
            duplicate: head[0] & DUPLICATE != 0,
            delay: get16(&head[4..]),
            duplicates: head[6],
            rebuilt,
            ranges,
        })
    }

    /// Iterates over pairs of counts (missing, received), starting with the first missing number.
    #[inline]
    pub fn ranges(&self) -> impl Iterator<Item = (u16, u16)> + 'a {
        self.ranges.chunks_exact(4).map(|range| (get16(range), get16(&range[2..])))
    }
}

/// Writes an acknowledgement at the start of `frame` and returns its length without the check. `flags` may contain
/// [`NACK`] and [`DUPLICATE`].
pub fn write(
    acknowledged: u64,
    flags: u8,
    delay_us: u16,
    duplicates: u8,
    rebuilt: Option<u16>,
    ranges: impl Iterator<Item = (u16, u16)>,
    frame: &mut [u8],
) -> usize {
    frame[0] = KIND_ACK << 5 | flags;
    put24(&mut frame[1..], acknowledged);
    frame[4..6].copy_from_slice(&delay_us.to_be_bytes());
    frame[6] = duplicates;
    let mut header = HEADER;
    if let Some(rebuilt) = rebuilt {
        frame[0] |= REBUILT;
        frame[HEADER..HEADER + REBUILT_BYTES].copy_from_slice(&rebuilt.to_be_bytes());
        header += REBUILT_BYTES;
    }
    let mut count = 0;
    for (range, entry) in ranges.take(MAX_RANGES).zip(frame[header..].chunks_exact_mut(4)) {
        entry[..2].copy_from_slice(&range.0.to_be_bytes());
        entry[2..].copy_from_slice(&range.1.to_be_bytes());
        count += 1;
    }
    frame[7] = count;
    header + usize::from(count) * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ack_round_trips() {
        let mut frame = [0; 2000];
        let ranges = [(1, 2), (300, 65_535), (7, 1)];
        for rebuilt in [None, Some(0), Some(65_535)] {
            let length = write(0x1_0000_0005, NACK, 77, 200, rebuilt, ranges.into_iter(), &mut frame);
            let ack = Ack::read(&frame[..length]).unwrap();
            assert_eq!((ack.acknowledged, ack.negative, ack.delay, ack.duplicates), (5, true, 77, 200));
            assert_eq!((ack.ranges().collect::<Vec<_>>(), ack.rebuilt), (ranges.to_vec(), rebuilt));
            for other in (0..2000).filter(|other| *other != length) {
                assert_eq!(Ack::read(&frame[..other]), None);
            }
        }
    }

    #[test]
    fn ack_length_is_bounded() {
        let mut frame = [0; 2000];
        let length = write(0, 0, 0, 0, None, (0..1000).map(|n| (n, n)), &mut frame);
        assert_eq!(length, HEADER + 4 * MAX_RANGES);
        assert_eq!(Ack::read(&frame[..length]).unwrap().ranges().last(), Some((254, 254)));
    }
}
