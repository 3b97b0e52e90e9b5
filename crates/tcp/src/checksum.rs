//! TCP checksum over IPv4 (RFC 793, section 3.1), for links without checksum offload.

use std::net::Ipv4Addr;

/// Offset of the checksum in the header.
const AT: usize = 16;

/// Protocol number of TCP.
const PROTOCOL: u64 = 6;

/// The one's complement sum of `bytes` as 16-bit words, an odd byte at the end padded with zero (RFC 1071).
pub fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let whole: u64 = words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    whole + u64::from(u32::from_be_bytes(last))
}

/// Returns the checksum field for words that add up to `sum`.
pub fn finish(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Sum of the pseudo header and the segment.
fn total(source: Ipv4Addr, destination: Ipv4Addr, segment: &[u8]) -> u64 {
    sum(&source.octets()) + sum(&destination.octets()) + PROTOCOL + segment.len() as u64 + sum(segment)
}

/// Writes the checksum into `segment`, which goes from `source` to `destination`. Data shorter than a header is left
/// unchanged.
pub fn fill(source: Ipv4Addr, destination: Ipv4Addr, segment: &mut [u8]) {
    if let Some(field) = segment.get_mut(AT..AT + 2) {
        field.fill(0);
        let checksum = finish(total(source, destination, segment));
        segment[AT..AT + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Returns whether the checksum in `segment` is correct.
pub fn verify(source: Ipv4Addr, destination: Ipv4Addr, segment: &[u8]) -> bool {
    segment.len() >= AT + 2 && finish(total(source, destination, segment)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const B: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

    #[test]
    fn the_example_of_rfc_1071() {
        assert_eq!(finish(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])), !0xddf2);
    }

    #[test]
    fn what_was_filled_verifies_and_no_flipped_bit_does() {
        for length in [20, 21, 22, 23, 24, 1480] {
            let mut segment: Vec<u8> = (0..length).map(|i| (i * 7) as u8).collect();
            fill(A, B, &mut segment);
            assert!(verify(A, B, &segment) && verify(B, A, &segment));
            assert!(!verify(A, A, &segment));
            for bit in 0..segment.len() * 8 {
                segment[bit / 8] ^= 1 << (bit % 8);
                assert!(!verify(A, B, &segment), "{length} bytes, bit {bit}");
                segment[bit / 8] ^= 1 << (bit % 8);
            }
        }
        fill(A, B, &mut [0; 17]);
        assert!(!verify(A, B, &[0xff; 17]));
    }
}
