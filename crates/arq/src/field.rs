//! Arithmetic in GF(256) and the coefficients of repair frames.
//!
//! Bytes are polynomials over GF(2) modulo x⁸ + x⁴ + x³ + x² + 1; addition is exclusive or. The coefficients form a
//! Cauchy matrix whose columns are scaled so that the first row is all ones. Every square submatrix is invertible
//! (Blömer and others 1995, "An XOR-based erasure-resilient coding scheme"), and the first row alone is a parity.

/// x⁸ modulo the polynomial.
const REDUCTION: u64 = 0x1D;
const LOW: u64 = 0x0101_0101_0101_0101;

/// Multiplies each byte of a word by x.
#[inline]
const fn double(word: u64) -> u64 {
    ((word & !(LOW << 7)) << 1) ^ (((word >> 7) & LOW) * REDUCTION)
}

/// Multiplies each byte of a word by a factor. `bits` holds a mask of ones or zeros for each bit of the factor.
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

pub(crate) fn multiply(a: u8, b: u8) -> u8 {
    product(a.into(), &bits(b)) as u8
}

/// Returns the multiplicative inverse of `a`, or 0 for 0.
pub(crate) fn inverse(a: u8) -> u8 {
    // a²⁵⁴ is the product of the powers 2, 4 … 128.
    let (mut power, mut result) = (a, 1);
    for _ in 0..7 {
        power = multiply(power, power);
        result = multiply(result, power);
    }
    result
}

/// Returns the coefficient of frame `index` (up to 127) of a block in repair frame `row` (up to 127). In row 0 all
/// are one.
pub(crate) fn coefficient(row: u8, index: u8) -> u8 {
    multiply(255 ^ index, inverse((255 - row) ^ index))
}

/// Adds `factor` times the bytes of `from` to `to`, up to the shorter length.
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
    fn gf256_is_a_field() {
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
    fn add_product_matches_multiply() {
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
    fn first_row_is_parity_and_column_pairs_are_independent() {
        for index in 0..128 {
            assert_eq!(coefficient(0, index), 1);
        }
        // Values from docs/wire.md.
        assert_eq!([coefficient(1, 0), coefficient(1, 1), coefficient(7, 10)], [0x7F, 0xFC, 0x2D]);
        for rows in [(0, 1), (0, 7), (1, 2), (6, 7)] {
            for a in 0..64 {
                for b in 0..a {
                    let cross = multiply(coefficient(rows.0, a), coefficient(rows.1, b));
                    assert_ne!(
                        cross,
                        multiply(coefficient(rows.1, a), coefficient(rows.0, b)),
                        "{rows:?} {a} {b}"
                    );
                }
            }
        }
    }
}
