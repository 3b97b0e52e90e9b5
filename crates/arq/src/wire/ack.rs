//! An acknowledgement alone.
//!
//! ```text
//! kind and flags u8 | acknowledged u24 | delay u16 | doubles u8 | runs u8 | [rebuilt u16]
//!     | runs of (missing u16, arrived u16) | check
//! ```
//!
//! Every frame before `acknowledged` has arrived. From there on so many are missing, then so many have arrived, and so
//! forth. `delay` is how long its sender has had the last of the frames that arrived, in µs; `doubles` counts the frames
//! that came more than once, modulo 256.

use super::{KIND_ACK, get16, get24, kind, put24};
use crate::wire::data::NACK;

/// Said of a negative acknowledgement that asks for nothing: a frame came twice, because its acknowledgement was missed.
pub const AGAIN: u8 = 8;

/// The count of rebuilt frames is there.
pub const REBUILT: u8 = 1;

/// Bytes of that count.
pub const REBUILT_BYTES: usize = 2;

/// Most runs of an acknowledgement; the lowest are told.
pub const RUNS: usize = 255;

/// Bytes without runs and check.
pub const HEADER: usize = 8;

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// The lowest 24 bits of the first number that has not arrived.
    pub acknowledged: u32,
    /// Whether that number is asked for.
    pub negative: bool,
    /// Whether a frame came twice and nothing is asked for.
    pub again: bool,
    /// In µs.
    pub delay: u16,
    /// Modulo 256.
    pub doubles: u8,
    /// Frames that were lost and rebuilt, modulo 65,536; only with forward error correction.
    pub rebuilt: Option<u16>,
    runs: &'a [u8],
}

impl<'a> Ack<'a> {
    /// Reads a frame whose check has been taken off; none if it is no acknowledgement.
    #[inline]
    pub fn read(body: &'a [u8]) -> Option<Ack<'a>> {
        let (head, runs) = body.split_first_chunk::<HEADER>()?;
        let valid = kind(head[0]) == KIND_ACK && head[0] & 31 & !(NACK | AGAIN | REBUILT) == 0;
        let (rebuilt, runs) = match head[0] & REBUILT {
            0 => (None, runs),
            _ => runs.split_first_chunk::<REBUILT_BYTES>().map(|(count, runs)| (Some(get16(count)), runs))?,
        };
        (valid && runs.len() == usize::from(head[7]) * 4).then_some(Ack {
            acknowledged: get24(&head[1..]),
            negative: head[0] & NACK != 0 && head[0] & AGAIN == 0,
            again: head[0] & AGAIN != 0,
            delay: get16(&head[4..]),
            doubles: head[6],
            rebuilt,
            runs,
        })
    }

    /// Missing, then arrived, from the first that has not arrived on.
    #[inline]
    pub fn runs(&self) -> impl Iterator<Item = (u16, u16)> + 'a {
        self.runs.chunks_exact(4).map(|run| (get16(run), get16(&run[2..])))
    }
}

/// Writes an acknowledgement at the start of `frame`, with [`NACK`] and [`AGAIN`] as `flags`, and with the count of rebuilt
/// frames if there is one; how long it is without its check.
pub fn write(
    acknowledged: u64,
    flags: u8,
    delay_us: u16,
    doubles: u8,
    rebuilt: Option<u16>,
    runs: impl Iterator<Item = (u16, u16)>,
    frame: &mut [u8],
) -> usize {
    frame[0] = KIND_ACK << 5 | flags;
    put24(&mut frame[1..], acknowledged);
    frame[4..6].copy_from_slice(&delay_us.to_be_bytes());
    frame[6] = doubles;
    let mut header = HEADER;
    if let Some(rebuilt) = rebuilt {
        frame[0] |= REBUILT;
        frame[HEADER..HEADER + REBUILT_BYTES].copy_from_slice(&rebuilt.to_be_bytes());
        header += REBUILT_BYTES;
    }
    let mut count = 0;
    for (run, room) in runs.take(RUNS).zip(frame[header..].chunks_exact_mut(4)) {
        room[..2].copy_from_slice(&run.0.to_be_bytes());
        room[2..].copy_from_slice(&run.1.to_be_bytes());
        count += 1;
    }
    frame[7] = count;
    header + usize::from(count) * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_written() {
        let mut frame = [0; 2000];
        let runs = [(1, 2), (300, 65_535), (7, 1)];
        for rebuilt in [None, Some(0), Some(65_535)] {
            let length = write(0x1_0000_0005, NACK, 77, 200, rebuilt, runs.into_iter(), &mut frame);
            let ack = Ack::read(&frame[..length]).unwrap();
            assert_eq!((ack.acknowledged, ack.negative, ack.delay, ack.doubles), (5, true, 77, 200));
            assert_eq!((ack.runs().collect::<Vec<_>>(), ack.rebuilt), (runs.to_vec(), rebuilt));
            for other in (0..2000).filter(|other| *other != length) {
                assert_eq!(Ack::read(&frame[..other]), None);
            }
        }
    }

    #[test]
    fn it_has_a_bound() {
        let mut frame = [0; 2000];
        let length = write(0, 0, 0, 0, None, (0..1000).map(|n| (n, n)), &mut frame);
        assert_eq!(length, HEADER + 4 * RUNS);
        assert_eq!(Ack::read(&frame[..length]).unwrap().runs().last(), Some((254, 254)));
    }
}
