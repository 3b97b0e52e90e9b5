//! Check sequences, and the secret that separates connections.
//!
//! A check covers the whole frame before it. The value on the wire is the checksum XORed with a secret that both ends
//! derive and never send: a function of the connection's key, the direction, and the number of wrap-arounds of the
//! 24-bit frame numbers. So a frame of an earlier connection, of the other direction, or of sixteen million frames
//! ago fails its check like a damaged one.

// CRC-32C is called directly: selecting the algorithm at run time is slow for short frames.
use crc_fast::{CrcAlgorithm, checksum, crc32_iscsi as crc32c};

/// Check sequence of frames; both ends of a connection use the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// CRC-32C, 4 bytes (RFC 3720, appendix B.4): misses one in 2³² random errors and no burst up to 32 bits.
    #[default]
    Crc32c,
    /// CRC-64/NVME, 8 bytes: misses one in 2⁶⁴ random errors.
    Crc64,
    /// The checksum of the 1998 paper, 4 bytes: the sum of 64-bit words, with the upper half added to the lower
    /// (section 5.2.2). It misses swapped words; it exists for comparison.
    Folded,
    /// No checksum: 4 bytes that only identify the connection. For paths that verify their data.
    None,
    /// AES-256-GCM: frames are encrypted with a preshared key and end with a count of 3 bytes and a tag of 16 (see
    /// [`PresharedKey`](super::aead::PresharedKey)). Misses one in 2¹²⁸ errors of any kind, and hardly more
    /// forgeries. Selected by [`Options::key`](crate::Options::key).
    Aead,
}

/// Reason why a frame is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The frame is damaged, forged, or of another connection.
    Damaged,
    /// An encrypted frame was replayed, or is too old for the replay window.
    Replayed,
}

impl Check {
    /// All checks except [`Check::Aead`].
    pub const ALL: [Check; 4] = [Check::Crc32c, Check::Crc64, Check::Folded, Check::None];

    /// Bytes at the end of each frame.
    #[inline]
    pub const fn bytes(self) -> usize {
        match self {
            Check::Crc64 => 8,
            Check::Crc32c | Check::Folded | Check::None => 4,
            Check::Aead => 3 + 16,
        }
    }

    /// Returns the code on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Check::None => 0,
            Check::Crc32c => 1,
            Check::Crc64 => 2,
            Check::Folded => 3,
            Check::Aead => 4,
        }
    }

    /// Returns the check with this code on the wire.
    pub fn from_code(code: u8) -> Option<Check> {
        Check::ALL.into_iter().chain([Check::Aead]).find(|check| check.code() == code)
    }

    /// Writes the check at the end of `frame`, over everything before it.
    ///
    /// # Panics
    /// If the frame is shorter than the check, or the check is [`Check::Aead`], which takes a
    /// [`Cipher`](super::aead::Cipher).
    #[inline(always)]
    pub fn seal(self, secret: u64, frame: &mut [u8]) {
        // The common case, with a constant length.
        if self == Check::Crc32c {
            let (body, trailer) = frame.split_last_chunk_mut().expect("there is room for the check");
            *trailer = (secret as u32 ^ crc32c(body)).to_be_bytes();
        } else {
            self.seal_other(secret, frame);
        }
    }

    #[inline]
    fn seal_other(self, secret: u64, frame: &mut [u8]) {
        let (body, trailer) = frame.split_at_mut(frame.len() - self.bytes());
        match self {
            Check::Crc64 => trailer.copy_from_slice(&self.checksum(secret, body).to_be_bytes()),
            _ => trailer.copy_from_slice(&(self.checksum(secret, body) as u32).to_be_bytes()),
        }
    }

    /// Seals each of several contiguous frames of `length` bytes.
    #[inline]
    pub(crate) fn seal_each(self, secret: u64, frames: &mut [u8], length: usize) {
        let frames = frames.chunks_exact_mut(length);
        match self {
            Check::None => {
                let word = (secret as u32).to_be_bytes();
                frames.for_each(|frame| frame[length - 4..].copy_from_slice(&word));
            }
            _ => frames.for_each(|frame| self.seal(secret, frame)),
        }
    }

    /// Verifies the check and returns the bytes before it; none if the check fails, as [`Check::Aead`] always does
    /// here.
    #[inline(always)]
    pub fn open(self, secret: u64, frame: &[u8]) -> Option<&[u8]> {
        if self == Check::Crc32c {
            let (body, check) = frame.split_last_chunk()?;
            (u32::from_be_bytes(*check) == secret as u32 ^ crc32c(body)).then_some(body)
        } else {
            self.open_other(secret, frame)
        }
    }

    #[inline]
    fn open_other(self, secret: u64, frame: &[u8]) -> Option<&[u8]> {
        let (body, check) = frame.split_at_checked(frame.len().checked_sub(self.bytes())?)?;
        if self == Check::Aead {
            return None;
        }
        let sum = self.checksum(secret, body);
        let is_valid = match check {
            [a, b, c, d] => u32::from_be_bytes([*a, *b, *c, *d]) == sum as u32,
            _ => check == sum.to_be_bytes(),
        };
        is_valid.then_some(body)
    }

    #[inline]
    fn checksum(self, secret: u64, body: &[u8]) -> u64 {
        secret
            ^ match self {
                Check::None => 0,
                Check::Crc32c => crc32c(body).into(),
                Check::Crc64 => checksum(CrcAlgorithm::Crc64Nvme, body),
                Check::Folded => u64::from(folded(body)),
                Check::Aead => unreachable!("a sum is no tag"),
            }
    }
}

/// The checksum of the 1998 paper: big endian words of 64 bits, the last padded with zeros.
fn folded(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let sum = words.iter().fold(u64::from_be_bytes(last), |sum, w| sum.wrapping_add(u64::from_be_bytes(*w)));
    ((sum >> 32) as u32).wrapping_add(sum as u32)
}

/// The shared value of a connection from which its secrets are derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumKey(u64);

/// Direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client, which opened the connection, to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

impl Direction {
    /// Returns the opposite direction.
    pub const fn reverse(self) -> Direction {
        match self {
            Direction::ToServer => Direction::ToClient,
            Direction::ToClient => Direction::ToServer,
        }
    }
}

impl ChecksumKey {
    /// Returns the key of the connection with these two connection numbers.
    pub const fn new(client: u64, server: u64) -> ChecksumKey {
        ChecksumKey(mix(client) ^ mix(server).rotate_left(32))
    }

    /// Returns the secret of a direction after `epoch` wrap-arounds of the frame numbers.
    #[inline]
    pub const fn secret(self, direction: Direction, epoch: u64) -> u64 {
        let direction = match direction {
            Direction::ToServer => 0x5851_F42D_4C95_7F2D,
            Direction::ToClient => 0x1405_7B7E_F767_814F,
        };
        mix(self.0 ^ direction ^ epoch.wrapping_mul(0xD134_2543_DE82_EF95))
    }
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_match_published_values() {
        assert_eq!(Check::Crc32c.checksum(0, b"123456789"), 0xE306_9283);
        assert_eq!(Check::Crc64.checksum(0, b"123456789"), 0xAE8B_1486_0A79_9888);
        // 0x0102030405060708 + 0x0900000000000000, folded.
        assert_eq!(folded(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), 0x0A02_0304 + 0x0506_0708);
    }

    #[test]
    fn frame_opens_only_with_its_secret() {
        let key = ChecksumKey::new(1, 2);
        for check in Check::ALL {
            let mut frame = b"some frame or other".to_vec();
            frame.resize(frame.len() + check.bytes(), 0);
            check.seal(key.secret(Direction::ToServer, 3), &mut frame);
            assert_eq!(
                check.open(key.secret(Direction::ToServer, 3), &frame),
                Some(&b"some frame or other"[..])
            );
            for other in [
                key.secret(Direction::ToClient, 3),
                key.secret(Direction::ToServer, 4),
                ChecksumKey::new(2, 1).secret(Direction::ToServer, 3),
            ] {
                assert_eq!(check.open(other, &frame), None, "{check:?}");
            }
            for length in 0..check.bytes() {
                assert_eq!(check.open(0, &frame[..length]), None);
            }
            assert_eq!(Check::from_code(check.code()), Some(check));
        }
    }

    #[test]
    fn every_checksum_detects_flipped_bits() {
        for check in [Check::Crc32c, Check::Crc64, Check::Folded] {
            let mut frame: Vec<u8> = (0..100).collect();
            check.seal(7, &mut frame);
            for bit in 0..800 {
                frame[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(check.open(7, &frame), None, "{check:?} bit {bit}");
                frame[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn folded_sum_misses_swapped_words() {
        let mut frame: Vec<u8> = (0..68).collect();
        Check::Folded.seal(7, &mut frame);
        for at in 0..8 {
            frame.swap(8 + at, 24 + at);
        }
        assert!(Check::Folded.open(7, &frame).is_some());
        assert_eq!(Check::Crc32c.open(7, &frame), None);
    }
}
