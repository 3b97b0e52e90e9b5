//! Checksums, and the secret that keeps connections apart.
//!
//! A check covers the whole frame before it. What stands on the wire is the sum XORed with a word that both ends know
//! and nobody sent: a function of the connection's key, the direction, and how often the frame numbers have run over
//! their 24 bits. So a frame of an earlier connection, of the other direction, or of sixteen million frames ago fails
//! its check like any damaged one.

use crc_fast::{CrcAlgorithm, checksum, crc32_iscsi};

/// How frames are checked; both ends of a connection use the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// CRC-32C, 4 bytes (RFC 3720 appendix B.4): of random damage one in 2³² is missed, of bursts up to 32 bits none.
    #[default]
    Crc32c,
    /// CRC-64/NVME, 8 bytes: one in 2⁶⁴ is missed.
    Crc64,
    /// The sum of 1998, 4 bytes: 64-bit words added up, the upper half added onto the lower (section 5.2.2). It misses
    /// words that changed places, which is why it is here: to be measured.
    Folded,
    /// None of its own: 4 bytes that only tell the connection. For paths that check already.
    None,
    /// No sum: frames are encrypted with a key that both ends have, and end in a count of 3 bytes and a tag of 16 (see
    /// [`PresharedKey`](super::aead::PresharedKey)). Of damage of any kind one in 2¹²⁸ is missed, of forgeries hardly more.
    /// [`Options::key`](crate::Options::key) chooses it.
    Aead,
}

/// Why a frame is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unopened {
    /// It is damaged, forged, or of another connection.
    Damaged,
    /// It is encrypted and has come before, or so late that nobody knows.
    Again,
}

impl Check {
    /// All that are sums, or none.
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

    /// Its number on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Check::None => 0,
            Check::Crc32c => 1,
            Check::Crc64 => 2,
            Check::Folded => 3,
            Check::Aead => 4,
        }
    }

    /// The check with this number on the wire.
    pub fn of_code(code: u8) -> Option<Check> {
        Check::ALL.into_iter().chain([Check::Aead]).find(|check| check.code() == code)
    }

    /// Writes the check at the end of `frame`, over everything before it.
    ///
    /// # Panics
    /// If the frame is shorter than the check, or the check is [`Check::Aead`], which takes a
    /// [`Cipher`](super::aead::Cipher).
    #[inline(always)]
    pub fn seal(self, secret: u64, frame: &mut [u8]) {
        // The most common one, with what is then known of its length.
        if self == Check::Crc32c {
            let (body, room) = frame.split_last_chunk_mut().expect("there is room for the check");
            *room = (secret as u32 ^ crc32c(body)).to_be_bytes();
        } else {
            self.seal_otherwise(secret, frame);
        }
    }

    #[inline]
    fn seal_otherwise(self, secret: u64, frame: &mut [u8]) {
        let (body, room) = frame.split_at_mut(frame.len() - self.bytes());
        match self {
            Check::Crc64 => room.copy_from_slice(&self.sum(secret, body).to_be_bytes()),
            _ => room.copy_from_slice(&(self.sum(secret, body) as u32).to_be_bytes()),
        }
    }

    /// The same for each of the frames of `length` bytes that lie side by side.
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

    /// What `frame` holds before its check; none if the check fails, as [`Check::Aead`] does here always.
    #[inline(always)]
    pub fn open(self, secret: u64, frame: &[u8]) -> Option<&[u8]> {
        if self == Check::Crc32c {
            let (body, check) = frame.split_last_chunk()?;
            (u32::from_be_bytes(*check) == secret as u32 ^ crc32c(body)).then_some(body)
        } else {
            self.open_otherwise(secret, frame)
        }
    }

    #[inline]
    fn open_otherwise(self, secret: u64, frame: &[u8]) -> Option<&[u8]> {
        let (body, check) = frame.split_at_checked(frame.len().checked_sub(self.bytes())?)?;
        if self == Check::Aead {
            return None;
        }
        let sum = self.sum(secret, body);
        let holds = match check {
            [a, b, c, d] => u32::from_be_bytes([*a, *b, *c, *d]) == sum as u32,
            _ => check == sum.to_be_bytes(),
        };
        holds.then_some(body)
    }

    #[inline]
    fn sum(self, secret: u64, body: &[u8]) -> u64 {
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

/// Without the choice among all algorithms, which short frames feel.
#[inline(always)]
fn crc32c(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
}

/// The sum of 1998: big endian words of 64 bits, the last filled up with zeros.
fn folded(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let sum = words.iter().fold(u64::from_be_bytes(last), |sum, w| sum.wrapping_add(u64::from_be_bytes(*w)));
    ((sum >> 32) as u32).wrapping_add(sum as u32)
}

/// What the two ends of a connection have in common, and know their frames by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

/// Which way a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the end that opened the connection.
    Out,
    /// To it.
    Back,
}

impl Way {
    /// The other way.
    pub const fn reverse(self) -> Way {
        match self {
            Way::Out => Way::Back,
            Way::Back => Way::Out,
        }
    }
}

impl Key {
    /// The key of the connection between these two, each known by the number that it drew.
    pub const fn of(client: u64, server: u64) -> Key {
        Key(mix(client) ^ mix(server).rotate_left(32))
    }

    /// The word for frames that go `way`, whose number has run over `epoch` times.
    #[inline]
    pub const fn secret(self, way: Way, epoch: u64) -> u64 {
        let way = match way {
            Way::Out => 0x5851_F42D_4C95_7F2D,
            Way::Back => 0x1405_7B7E_F767_814F,
        };
        mix(self.0 ^ way ^ epoch.wrapping_mul(0xD134_2543_DE82_EF95))
    }
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_the_published_ones() {
        assert_eq!(Check::Crc32c.sum(0, b"123456789"), 0xE306_9283);
        assert_eq!(Check::Crc64.sum(0, b"123456789"), 0xAE8B_1486_0A79_9888);
        // 0x0102030405060708 + 0x0900000000000000, folded.
        assert_eq!(folded(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), 0x0A02_0304 + 0x0506_0708);
    }

    #[test]
    fn a_frame_opens_with_its_own_secret_only() {
        let key = Key::of(1, 2);
        for check in Check::ALL {
            let mut frame = b"some frame or other".to_vec();
            frame.resize(frame.len() + check.bytes(), 0);
            check.seal(key.secret(Way::Out, 3), &mut frame);
            assert_eq!(check.open(key.secret(Way::Out, 3), &frame), Some(&b"some frame or other"[..]));
            for other in
                [key.secret(Way::Back, 3), key.secret(Way::Out, 4), Key::of(2, 1).secret(Way::Out, 3)]
            {
                assert_eq!(check.open(other, &frame), None, "{check:?}");
            }
            for length in 0..check.bytes() {
                assert_eq!(check.open(0, &frame[..length]), None);
            }
            assert_eq!(Check::of_code(check.code()), Some(check));
        }
    }

    #[test]
    fn every_flipped_bit_is_seen_but_by_none() {
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
    fn the_sum_of_1998_misses_words_that_changed_places() {
        let mut frame: Vec<u8> = (0..68).collect();
        Check::Folded.seal(7, &mut frame);
        for at in 0..8 {
            frame.swap(8 + at, 24 + at);
        }
        assert!(Check::Folded.open(7, &frame).is_some());
        assert_eq!(Check::Crc32c.open(7, &frame), None);
    }
}
