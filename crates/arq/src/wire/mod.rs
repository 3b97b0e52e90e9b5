//! Wire format. `docs/wire.md` specifies it in full; all integers are big endian.
//!
//! | module | contents |
//! | --- | --- |
//! | [`check`] | checksums, and the secret that separates connections |
//! | [`aead`] | encryption with a preshared key; feature `aead` |
//! | [`data`] | numbered frames: pieces of messages, packs of messages, several chunks |
//! | [`part`] | parts of numbered frames that exceed the path MTU |
//! | [`ack`] | acknowledgements |
//! | [`repair`] | repair frames of forward error correction |
//! | [`handshake`] | handshake and control frames |
//!
//! The upper three bits of the first byte are the frame's kind, the lower five its flags.

pub mod ack;
#[cfg_attr(not(feature = "aead"), path = "no_aead.rs")]
pub mod aead;
pub mod check;
pub mod data;
pub mod handshake;
pub mod part;
pub mod repair;

/// Unnumbered frames; the lower five bits select the type, see [`handshake`].
pub const KIND_CONTROL: u8 = 0;
/// One chunk: a piece of a message.
pub const KIND_PIECE: u8 = 1;
/// One chunk: a pack of small messages of one channel.
pub const KIND_PACK: u8 = 2;
/// Several chunks.
pub const KIND_MULTI: u8 = 3;
/// An acknowledgement without data.
pub const KIND_ACK: u8 = 4;
/// A repair frame.
pub const KIND_REPAIR: u8 = 5;
/// A part of a numbered frame.
pub const KIND_PART: u8 = 6;

/// Returns the kind of a frame from its first byte.
#[inline]
pub const fn kind(first: u8) -> u8 {
    first >> 5
}

/// Number of bits of a frame number on the wire, and their mask.
const NUMBER_BITS: u32 = 24;
pub(crate) const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;

/// Returns the number nearest to `near` whose lowest 24 bits are `low`.
#[inline]
pub const fn expand(low: u32, near: u64) -> u64 {
    let half = 1 << (NUMBER_BITS - 1);
    let ahead = low.wrapping_sub(near as u32) & ((1 << NUMBER_BITS) - 1);
    if ahead < half {
        near.wrapping_add(ahead as u64)
    } else {
        near.wrapping_sub((1 << NUMBER_BITS) - ahead as u64)
    }
}

/// Returns the sequence number nearest to `near` whose lowest 16 bits are `low`.
#[inline]
pub const fn expand16(low: u16, near: u64) -> u64 {
    near.wrapping_add(low.wrapping_sub(near as u16) as i16 as i64 as u64)
}

/// Returns how often the 24 bits of a number have wrapped around.
#[inline]
pub const fn epoch(number: u64) -> u64 {
    number >> NUMBER_BITS
}

#[inline]
fn put24(bytes: &mut [u8], number: u64) {
    bytes[..3].copy_from_slice(&(number as u32).to_be_bytes()[1..]);
}

#[inline]
pub(crate) fn get24(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]])
}

#[inline]
pub(crate) fn get16(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes[1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_expand_from_their_lowest_bits() {
        let half = 1u64 << 23;
        for near in [0, 5, half - 1, half, (1 << 24) - 1, 1 << 24, 123_456_789_012, u64::MAX - half] {
            for away in [0, 1, 1000, half - 1] {
                assert_eq!(expand((near + away) as u32 & 0xFF_FFFF, near), near + away);
                if near >= away {
                    assert_eq!(expand((near - away) as u32 & 0xFF_FFFF, near), near - away);
                }
            }
            assert_eq!(expand16((near as u16).wrapping_add(32_767), near), near + 32_767);
            assert_eq!(expand16((near as u16).wrapping_sub(1), near), near.wrapping_sub(1));
        }
    }
}
