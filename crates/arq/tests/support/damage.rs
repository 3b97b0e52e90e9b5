//! Damaged frames, made quickly.

use trunkline_arq::Check;
use trunkline_units::{Seed, Stream};

/// What the damage is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Damage {
    /// Two to four words of 32 bits become others.
    Words,
    /// One to four bits are flipped.
    Bits,
    /// Two words of 64 bits change places.
    Swap,
    /// Two words of 32 bits do.
    SwapHalves,
}

/// Of `count` damaged frames of 64 to 128 bytes, those that pass their check.
pub fn accepted(check: Check, damage: Damage, count: u64, seed: u64) -> u64 {
    let mut draw = Seed(seed).stream("damage");
    let secret = draw.bits();
    let mut accepted = 0;
    let (mut frame, mut left) = (sealed(&mut draw, check, secret), 0);
    for _ in 0..count {
        if left == 0 {
            (frame, left) = (sealed(&mut draw, check, secret), 64);
        }
        left -= 1;
        let whole = frame;
        apply(&mut draw, damage, &mut frame.0[..frame.1]);
        if frame.0 != whole.0 {
            accepted += u64::from(check.open(secret, &frame.0[..frame.1]).is_some());
        } else {
            left += 1;
        }
        frame = whole;
    }
    accepted
}

fn sealed(draw: &mut Stream, check: Check, secret: u64) -> ([u8; 128], usize) {
    let mut frame = [0; 128];
    let length = 64 + 4 * draw.below(17) as usize;
    frame.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&draw.bits().to_le_bytes()));
    frame[length..].fill(0);
    check.seal(secret, &mut frame[..length]);
    (frame, length)
}

/// One draw decides nearly all, since this is what takes the time.
pub fn apply(draw: &mut Stream, damage: Damage, frame: &mut [u8]) {
    let word = draw.bits();
    let place = |nth: u32, size: usize, count: usize| {
        let share = (word >> (14 * nth)) as usize & 0x3FFF;
        ((share * count) >> 14) * size
    };
    match damage {
        Damage::Words => {
            let (first, second) = (draw.bits(), draw.bits());
            let others = [first as u32, (first >> 32) as u32, second as u32, (second >> 32) as u32];
            for (nth, other) in (0..2 + (word >> 62) as u32 % 3).zip(others) {
                let at = place(nth, 4, frame.len() / 4);
                frame[at..at + 4].copy_from_slice(&other.to_le_bytes());
            }
        }
        Damage::Bits => {
            for nth in 0..1 + (word >> 62) as u32 {
                let bit = place(nth, 1, frame.len() * 8);
                frame[bit / 8] ^= 1 << (bit % 8);
            }
        }
        Damage::Swap | Damage::SwapHalves => {
            let size = if damage == Damage::Swap { 8 } else { 4 };
            let whole = (frame.len() - 4) / size;
            let (a, b) = (place(0, size, whole), place(1, size, whole));
            for at in 0..size {
                frame.swap(a + at, b + at);
            }
        }
    }
}
