//! Arithmetic of GF(256), and the weights of repair frames.
//!
//! Bytes are polynomials over GF(2), modulo x⁸ + x⁴ + x³ + x² + 1. Sums are exclusive ors. The weights are a Cauchy matrix
//! each column of which is scaled so that its first row is all ones: whatever rows and as many columns are taken of it can
//! be solved (Blömer and others 1995, "An XOR-based erasure-resilient coding scheme"), and the first row alone is a parity.

/// What x⁸ is, of all eight bytes of a word.
const REDUCTION: u64 = 0x1D;
const LOW: u64 = 0x0101_0101_0101_0101;

/// Each byte of a word times x.
#[inline]
const fn double(word: u64) -> u64 {
    ((word & !(LOW << 7)) << 1) ^ (((word >> 7) & LOW) * REDUCTION)
}

/// Each byte of a word times a number, of which `bits` are the bits, each as a word of ones or zeros.
#[inline]
fn product(mut word: u64, bits: &[u64; 8]) -> u64 {
    let mut sum = 0;
    for bit in bits {
        sum ^= word & bit;
        word = double(word);
    }
    sum
}

#[inline]
fn bits(factor: u8) -> [u64; 8] {
    std::array::from_fn(|bit| if factor >> bit & 1 == 1 { u64::MAX } else { 0 })
}

/// `a` times `b`.
pub(crate) fn multiply(a: u8, b: u8) -> u8 {
    product(a.into(), &bits(b)) as u8
}

/// What times `a` is one; zero of zero.
pub(crate) fn inverse(a: u8) -> u8 {
    // Its 254th power: the powers 2, 4 … 128.
    let (mut power, mut result) = (a, 1);
    for _ in 0..7 {
        power = multiply(power, power);
        result = multiply(result, power);
    }
    result
}

/// The weight of the frame at `index` of its block, up to 127, in its repair frame `row`, up to 127; of row 0 always one.
pub(crate) fn weight(row: u8, index: u8) -> u8 {
    multiply(255 ^ index, inverse((255 - row) ^ index))
}

/// Adds `factor` times the bytes of `from` to those of `to`, as far as the shorter goes.
pub(crate) fn add_product(to: &mut [u8], factor: u8, from: &[u8]) {
    let bits = bits(factor);
    let (words, rest) = from.as_chunks::<8>();
    let mut to = to.chunks_mut(8);
    // Row 0 is all ones.
    let times = |word| if factor == 1 { word } else { product(word, &bits) };
    for (from, to) in words.iter().zip(to.by_ref()) {
        let sum = times(u64::from_ne_bytes(*from)).to_ne_bytes();
        to.iter_mut().zip(sum).for_each(|(to, byte)| *to ^= byte);
    }
    for (to, byte) in to.flatten().zip(rest) {
        *to ^= times((*byte).into()) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_field() {
        // 2 generates it: 255 powers, all different.
        let mut seen = [false; 256];
        let mut power = 1;
        for _ in 0..255 {
            assert!(!std::mem::replace(&mut seen[usize::from(power)], true));
            power = multiply(power, 2);
        }
        assert_eq!((power, seen[0]), (1, false));
        for a in 0..=255u8 {
            assert_eq!(multiply(a, inverse(a)), u8::from(a != 0));
            for b in 0..=255 {
                assert_eq!(multiply(a, b), multiply(b, a));
                assert_eq!(multiply(a, b ^ 77), multiply(a, b) ^ multiply(a, 77));
            }
        }
        // x⁷ times x is x⁴ + x³ + x² + 1.
        assert_eq!(multiply(0x80, 2), 0x1D);
    }

    #[test]
    fn products_of_many_bytes_are_those_of_each() {
        let from: Vec<u8> = (0..=255).collect();
        for length in [0, 1, 7, 8, 9, 200, 256] {
            for factor in [0, 1, 2, 29, 255] {
                for room in [length, length + 5, length / 2] {
                    let mut to = vec![0xA5; room];
                    add_product(&mut to, factor, &from[..length]);
                    for (at, byte) in to.iter().enumerate() {
                        let added = if at < length { multiply(factor, from[at]) } else { 0 };
                        assert_eq!(*byte, 0xA5 ^ added, "{length} {factor} {room} {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_first_row_is_a_parity_and_any_two_columns_can_be_solved() {
        for index in 0..128 {
            assert_eq!(weight(0, index), 1);
        }
        // As docs/wire.md has it.
        assert_eq!([weight(1, 0), weight(1, 1), weight(7, 10)], [0x7F, 0xFC, 0x2D]);
        for rows in [(0, 1), (0, 7), (1, 2), (6, 7)] {
            for a in 0..64 {
                for b in 0..a {
                    let cross = multiply(weight(rows.0, a), weight(rows.1, b));
                    assert_ne!(cross, multiply(weight(rows.1, a), weight(rows.0, b)), "{rows:?} {a} {b}");
                }
            }
        }
    }
}
