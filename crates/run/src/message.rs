//! The test message: 32 bytes of header, then a payload both ends know.
//!
//! ```text
//!  0 token    u32   which connection of which run; strangers are not counted
//!  4 length   u32   of the whole message, header included
//!  8 response u32   bytes of the answer that is asked for; 0: none
//! 12 check    u32   CRC-32C over the header with this field 0, and over the payload if CHECKED
//! 16 flags    u16 | sequence u48
//! 24 sent     u64   picoseconds since the run began
//! ```
//!
//! All integers big endian. A payload is either the connection's pattern, which the receiver compares byte by byte,
//! or foreign bytes (a file's) under the check.

use crc_fast::{CrcAlgorithm, Digest};
use trunkline_units::{Instant, Seed};

/// Bytes of a header, and so of the smallest message.
pub const HEADER: usize = 32;
/// The longest message: its length is 32 bits wide, and a receiver must bound what it believes.
pub const LARGEST: u32 = 1 << 30;

/// The check covers the payload, which is not the pattern.
const CHECKED: u16 = 1;
/// The message answers a request.
const ANSWER: u16 = 2;
/// The receiver tells the sender how far it has come (UDP at full speed).
const PROGRESS: u16 = 4;

/// What a header says. A value of this type is a well-formed header of the connection it was decoded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// From 0, by one a message; 48 bits.
    pub sequence: u64,
    /// When the message was handed to the transport.
    pub sent: Instant,
    /// Bytes of the whole message.
    pub length: u32,
    /// Bytes of the answer asked for; 0: none.
    pub response: u32,
    /// What the message is.
    pub kind: Kind,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its payload is the pattern.
    Pattern,
    /// Its payload is foreign, under the check.
    Checked,
    /// The answer to the request with the same sequence number; its payload is the pattern.
    Answer,
    /// No message: the receiver has seen everything up to `sequence`, and `sent` is when it said so.
    Progress,
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAHeader {
    /// Too few bytes.
    Short,
    /// The check does not hold, or a field is out of range.
    Damaged,
    /// Of another connection or run, or of somebody else altogether.
    Stranger,
}

impl Header {
    /// Writes the header of a message whose payload is the pattern, or has none.
    #[inline]
    pub fn encode(&self, token: u32, out: &mut [u8; HEADER]) {
        self.write(token, out);
        let check = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, out) as u32;
        out[12..16].copy_from_slice(&check.to_be_bytes());
    }

    /// Writes the header of a message with a foreign `payload`; `kind` should be [`Kind::Checked`].
    pub fn encode_checked(&self, token: u32, payload: &[u8], out: &mut [u8; HEADER]) {
        self.write(token, out);
        let check = check_of(out, payload);
        out[12..16].copy_from_slice(&check.to_be_bytes());
    }

    #[inline]
    fn write(&self, token: u32, out: &mut [u8; HEADER]) {
        let flags = match self.kind {
            Kind::Pattern => 0,
            Kind::Checked => CHECKED,
            Kind::Answer => ANSWER,
            Kind::Progress => PROGRESS,
        };
        out[0..4].copy_from_slice(&token.to_be_bytes());
        out[4..8].copy_from_slice(&self.length.to_be_bytes());
        out[8..12].copy_from_slice(&self.response.to_be_bytes());
        out[12..16].copy_from_slice(&[0; 4]);
        let word = u64::from(flags) << 48 | (self.sequence & ((1 << 48) - 1));
        out[16..24].copy_from_slice(&word.to_be_bytes());
        out[24..32].copy_from_slice(&self.sent.as_ps().to_be_bytes());
    }

    /// Reads the header at the front of `bytes`. The check of a [`Kind::Checked`] message is held over to
    /// [`Header::holds`], which needs the payload.
    #[inline]
    pub fn decode(token: u32, bytes: &[u8]) -> Result<Header, NotAHeader> {
        let bytes: &[u8; HEADER] = bytes.first_chunk().ok_or(NotAHeader::Short)?;
        let u32_at = |i: usize| u32::from_be_bytes(bytes[i..i + 4].try_into().expect("four bytes"));
        // Before the check: what anybody else sends has neither.
        if u32_at(0) != token {
            return Err(NotAHeader::Stranger);
        }
        let (_, header) = Header::peek(bytes).ok_or(NotAHeader::Damaged)?;
        if header.kind != Kind::Checked {
            let mut zeroed = *bytes;
            zeroed[12..16].fill(0);
            if crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, &zeroed) as u32 != u32_at(12) {
                return Err(NotAHeader::Damaged);
            }
        }
        let fits = (HEADER as u32..=LARGEST).contains(&header.length) && header.response <= LARGEST;
        if fits { Ok(header) } else { Err(NotAHeader::Damaged) }
    }

    /// The token and the header at the front of `bytes`, of whatever connection and length, nothing checked: for who knows
    /// already that they are whole.
    #[inline]
    pub fn peek(bytes: &[u8]) -> Option<(u32, Header)> {
        let bytes: &[u8; HEADER] = bytes.first_chunk()?;
        let u32_at = |i: usize| u32::from_be_bytes(bytes[i..i + 4].try_into().expect("four bytes"));
        let u64_at = |i: usize| u64::from_be_bytes(bytes[i..i + 8].try_into().expect("eight bytes"));
        let word = u64_at(16);
        let kind = match (word >> 48) as u16 {
            0 => Kind::Pattern,
            CHECKED => Kind::Checked,
            ANSWER => Kind::Answer,
            PROGRESS => Kind::Progress,
            _ => return None,
        };
        let header = Header {
            sequence: word & ((1 << 48) - 1),
            sent: Instant::from_ps(u64_at(24)),
            length: u32_at(4),
            response: u32_at(8),
            kind,
        };
        Some((u32_at(0), header))
    }

    /// Whether a [`Kind::Checked`] message is whole: `header` as it came, and its payload.
    pub fn holds(header: &[u8; HEADER], payload: &[u8]) -> bool {
        let mut zeroed = *header;
        zeroed[12..16].fill(0);
        check_of(&zeroed, payload).to_be_bytes() == header[12..16]
    }
}

fn check_of(header: &[u8; HEADER], payload: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(header);
    digest.update(payload);
    digest.finalize() as u32
}

/// The payload of a connection: 64 KiB of random bytes that both ends draw from the seed, over and over.
#[derive(Clone, Debug)]
pub struct Payload(Box<[u8]>);

/// Bytes after which a payload begins again.
pub const PAYLOAD_PERIOD: usize = 1 << 16;

impl Payload {
    /// The payload of the connection called `place`.
    pub fn new(seed: Seed, place: &str) -> Self {
        let mut stream = seed.stream(&format!("{place} / payload"));
        Payload((0..PAYLOAD_PERIOD / 8).flat_map(|_| stream.bits().to_be_bytes()).collect())
    }

    /// The bytes from `offset` of the payload on, as many as lie in one piece, at most `length`.
    #[inline]
    pub fn piece(&self, offset: usize, length: usize) -> &[u8] {
        let rest = &self.0[offset % PAYLOAD_PERIOD..];
        &rest[..length.min(rest.len())]
    }

    /// Whether `bytes` stand at `offset` of the payload.
    #[inline]
    pub fn matches(&self, mut offset: usize, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let piece = self.piece(offset, bytes.len());
            let (front, rest) = bytes.split_at(piece.len());
            if front != piece {
                return false;
            }
            offset += front.len();
            bytes = rest;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(kind: Kind) -> Header {
        Header {
            sequence: 0x1234_5678_9abc,
            sent: Instant::from_ps(u64::MAX - 7),
            length: 1250,
            response: 64,
            kind,
        }
    }

    #[test]
    fn a_header_survives_and_a_flipped_bit_does_not() {
        for kind in [Kind::Pattern, Kind::Answer, Kind::Progress] {
            let mut bytes = [0; HEADER];
            header(kind).encode(7, &mut bytes);
            assert_eq!(Header::decode(7, &bytes), Ok(header(kind)));
            assert_eq!(Header::decode(8, &bytes), Err(NotAHeader::Stranger));
            assert_eq!(Header::decode(7, &bytes[..31]), Err(NotAHeader::Short));
            for bit in 0..HEADER * 8 {
                let mut bad = bytes;
                bad[bit / 8] ^= 1 << (bit % 8);
                // One bit of the flags may make it claim a check of its own, which then fails.
                match Header::decode(7, &bad) {
                    Err(_) => {}
                    Ok(h) => assert!(h.kind == Kind::Checked && !Header::holds(&bad, &[])),
                }
            }
        }
    }

    #[test]
    fn a_checked_message_tells_any_damage() {
        let payload = vec![9; 500];
        let mut bytes = [0; HEADER];
        header(Kind::Checked).encode_checked(7, &payload, &mut bytes);
        assert!(Header::decode(7, &bytes).is_ok() && Header::holds(&bytes, &payload));
        let mut bad = payload.clone();
        bad[499] ^= 1;
        assert!(!Header::holds(&bytes, &bad));
    }

    proptest! {
        #[test]
        fn anything_may_be_decoded(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Header::decode(1, &bytes);
        }

        #[test]
        fn a_payload_matches_itself_only(offset in 0usize..200_000, length in 1usize..200_000, flip in any::<usize>()) {
            let payload = Payload::new(Seed(3), "a-b");
            let mut bytes = Vec::new();
            while bytes.len() < length {
                bytes.extend_from_slice(payload.piece(offset + bytes.len(), length - bytes.len()));
            }
            prop_assert!(payload.matches(offset, &bytes));
            bytes[flip % length] ^= 1;
            prop_assert!(!payload.matches(offset, &bytes));
        }
    }
}
