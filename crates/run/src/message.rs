//! The measurement message: a header of 32 bytes and a payload that both ends can generate.
//!
//! ```text
//!  0 token    u32   identifies the connection and the repetition
//!  4 length   u32   bytes of the message including the header
//!  8 response u32   bytes of the requested response; 0: none. In a response: the number of its receiver, or, to a model that
//!                  asks for reports, bytes received, modulo 2^30
//! 12 check    u32   CRC-32C over the header with this field 0, and over the payload if CHECKED
//! 16 flags    u16 | sequence u48
//! 24 sent     u64   picoseconds since the run began
//! ```
//!
//! All integers are big-endian. A payload is either the connection's pattern, which the receiver compares byte by byte,
//! or foreign bytes (a file) covered by the check.

use crc_fast::{CrcAlgorithm, Digest};
use trunkline_traffic::source::SMALLEST_MESSAGE;
use trunkline_units::{Instant, Seed};

/// Bytes of a header, and of the smallest message.
pub const HEADER: usize = SMALLEST_MESSAGE as usize;
/// Bytes of the longest message. A receiver must bound the 32-bit length field.
pub const MAX_MESSAGE: u32 = 1 << 30;

/// Flag: the check covers the payload, which is not the pattern.
const CHECKED: u16 = 1;
/// Flag: the message is a response.
const RESPONSE: u16 = 2;
/// Flag: a progress report from the receiver (UDP at full speed).
const PROGRESS: u16 = 4;

/// A decoded and valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Sequence number of the message, from 0; 48 bits.
    pub sequence: u64,
    /// Time when the message was handed to the transport.
    pub sent_at: Instant,
    /// Bytes of the message including the header.
    pub length: u32,
    /// Bytes of the requested response; 0: none. In a response: the number of the receiver that sends it, from 0 in the order of
    /// the plan, or, to a model that asks for reports, message bytes that have arrived, modulo 2³⁰.
    pub response_length: u32,
    /// The kind of the message.
    pub kind: MessageKind,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// The payload is the pattern.
    Pattern,
    /// The payload is foreign and covered by the check.
    Checked,
    /// The response to the request with the same sequence number; the payload is the pattern.
    Response,
    /// A progress report: `sequence` is one past the highest sequence number received; `sent_at` is the time of the report.
    Progress,
}

/// Why bytes are not a valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Too few bytes.
    TooShort,
    /// The checksum is wrong, or a field is out of range.
    Corrupt,
    /// The token belongs to another connection or repetition, or to foreign traffic.
    UnknownToken,
}

impl Header {
    /// Returns the header of a message with the pattern as payload that requests no response.
    #[inline(always)]
    pub fn pattern(sequence: u64, sent_at: Instant, length: u32) -> Header {
        Header { sequence, sent_at, length, response_length: 0, kind: MessageKind::Pattern }
    }

    /// Returns the header of the response to this request, sent at `now` by a receiver with this number.
    pub fn response(&self, now: Instant, responder: u32) -> Header {
        Header {
            sequence: self.sequence,
            sent_at: now,
            length: self.response_length.max(HEADER as u32),
            response_length: responder,
            kind: MessageKind::Response,
        }
    }

    /// Encodes the header of a message whose payload is the pattern or empty.
    #[inline]
    pub fn encode(&self, token: u32, out: &mut [u8; HEADER]) {
        self.write(token, out);
        let check = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, out) as u32;
        out[12..16].copy_from_slice(&check.to_be_bytes());
    }

    /// Encodes the header into the space before the foreign payload of `message`; `kind` should be [`MessageKind::Checked`].
    pub fn encode_checked(&self, token: u32, message: &mut [u8]) {
        let (out, payload) = message.split_first_chunk_mut().expect("a message has a header");
        self.write(token, out);
        let check = checksum(out, payload);
        out[12..16].copy_from_slice(&check.to_be_bytes());
    }

    #[inline]
    fn write(&self, token: u32, out: &mut [u8; HEADER]) {
        let flags = match self.kind {
            MessageKind::Pattern => 0,
            MessageKind::Checked => CHECKED,
            MessageKind::Response => RESPONSE,
            MessageKind::Progress => PROGRESS,
        };
        out[0..4].copy_from_slice(&token.to_be_bytes());
        out[4..8].copy_from_slice(&self.length.to_be_bytes());
        out[8..12].copy_from_slice(&self.response_length.to_be_bytes());
        out[12..16].copy_from_slice(&[0; 4]);
        let word = u64::from(flags) << 48 | (self.sequence & ((1 << 48) - 1));
        out[16..24].copy_from_slice(&word.to_be_bytes());
        out[24..32].copy_from_slice(&self.sent_at.as_ps().to_be_bytes());
    }

    /// Decodes the header at the front of `bytes`. The checksum of a [`MessageKind::Checked`] message is verified by
    /// [`Header::is_checksum_valid`], which needs the payload.
    ///
    /// # Errors
    /// Returns why the bytes are not a valid header of this connection.
    #[inline]
    pub fn decode(token: u32, bytes: &[u8]) -> Result<Header, HeaderError> {
        let bytes: &[u8; HEADER] = bytes.first_chunk().ok_or(HeaderError::TooShort)?;
        let u32_at = |i: usize| u32::from_be_bytes(bytes[i..i + 4].try_into().expect("four bytes"));
        // Test the token first: foreign traffic has no valid checksum either.
        if u32_at(0) != token {
            return Err(HeaderError::UnknownToken);
        }
        let (_, header) = Header::peek(bytes).ok_or(HeaderError::Corrupt)?;
        if header.kind != MessageKind::Checked {
            let mut zeroed = *bytes;
            zeroed[12..16].fill(0);
            if crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, &zeroed) as u32 != u32_at(12) {
                return Err(HeaderError::Corrupt);
            }
        }
        let is_in_range =
            (HEADER as u32..=MAX_MESSAGE).contains(&header.length) && header.response_length <= MAX_MESSAGE;
        if is_in_range { Ok(header) } else { Err(HeaderError::Corrupt) }
    }

    /// Returns the token and the header at the front of `bytes` without validation, for bytes that are known to be intact.
    #[inline]
    pub fn peek(bytes: &[u8]) -> Option<(u32, Header)> {
        let bytes: &[u8; HEADER] = bytes.first_chunk()?;
        let u32_at = |i: usize| u32::from_be_bytes(bytes[i..i + 4].try_into().expect("four bytes"));
        let u64_at = |i: usize| u64::from_be_bytes(bytes[i..i + 8].try_into().expect("eight bytes"));
        let word = u64_at(16);
        let kind = match (word >> 48) as u16 {
            0 => MessageKind::Pattern,
            CHECKED => MessageKind::Checked,
            RESPONSE => MessageKind::Response,
            PROGRESS => MessageKind::Progress,
            _ => return None,
        };
        let header = Header {
            sequence: word & ((1 << 48) - 1),
            sent_at: Instant::from_ps(u64_at(24)),
            length: u32_at(4),
            response_length: u32_at(8),
            kind,
        };
        Some((u32_at(0), header))
    }

    /// Whether the checksum of a [`MessageKind::Checked`] message is valid.
    pub fn is_checksum_valid(header: &[u8; HEADER], payload: &[u8]) -> bool {
        let mut zeroed = *header;
        zeroed[12..16].fill(0);
        checksum(&zeroed, payload).to_be_bytes() == header[12..16]
    }
}

fn checksum(header: &[u8; HEADER], payload: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(header);
    digest.update(payload);
    digest.finalize() as u32
}

/// The payload pattern of a connection: 64 KiB of random bytes that both ends draw from the seed, repeated.
#[derive(Clone, Debug)]
pub struct Payload(Box<[u8]>);

/// Bytes after which a payload repeats.
pub const PAYLOAD_PERIOD: usize = 1 << 16;

impl Payload {
    /// Creates the payload of the connection with this name.
    pub fn new(seed: Seed, connection: &str) -> Self {
        let mut stream = seed.stream(&format!("{connection} / payload"));
        Payload((0..PAYLOAD_PERIOD / 8).flat_map(|_| stream.bits().to_be_bytes()).collect())
    }

    /// Returns at most `length` contiguous bytes of the payload from `offset`.
    #[inline]
    pub fn piece(&self, offset: usize, length: usize) -> &[u8] {
        let rest = &self.0[offset % PAYLOAD_PERIOD..];
        &rest[..length.min(rest.len())]
    }

    /// Whether `bytes` equal the payload at `offset`.
    #[inline]
    pub fn matches(&self, mut offset: usize, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let piece = self.piece(offset, bytes.len());
            let (start, rest) = bytes.split_at(piece.len());
            if start != piece {
                return false;
            }
            offset += start.len();
            bytes = rest;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(kind: MessageKind) -> Header {
        Header {
            sequence: 0x1234_5678_9abc,
            sent_at: Instant::from_ps(u64::MAX - 7),
            length: 1250,
            response_length: 64,
            kind,
        }
    }

    #[test]
    fn headers_round_trip_and_flipped_bits_are_detected() {
        for kind in [MessageKind::Pattern, MessageKind::Response, MessageKind::Progress] {
            let mut bytes = [0; HEADER];
            header(kind).encode(7, &mut bytes);
            assert_eq!(Header::decode(7, &bytes), Ok(header(kind)));
            assert_eq!(Header::decode(8, &bytes), Err(HeaderError::UnknownToken));
            assert_eq!(Header::decode(7, &bytes[..31]), Err(HeaderError::TooShort));
            for bit in 0..HEADER * 8 {
                let mut corrupt = bytes;
                corrupt[bit / 8] ^= 1 << (bit % 8);
                // A flipped flag may select the payload checksum, which then fails.
                match Header::decode(7, &corrupt) {
                    Err(_) => {}
                    Ok(h) => {
                        assert!(h.kind == MessageKind::Checked && !Header::is_checksum_valid(&corrupt, &[]))
                    }
                }
            }
        }
    }

    #[test]
    fn a_checked_message_detects_corruption() {
        let mut message = [9; HEADER + 500];
        header(MessageKind::Checked).encode_checked(7, &mut message);
        let is_valid = |message: &[u8]| {
            let (bytes, payload) = message.split_first_chunk().expect("a header");
            Header::decode(7, bytes).is_ok() && Header::is_checksum_valid(bytes, payload)
        };
        assert!(is_valid(&message));
        message[HEADER + 499] ^= 1;
        assert!(!is_valid(&message));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
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
