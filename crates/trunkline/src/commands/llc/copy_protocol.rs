//! Messages between the copy client and the file service, all numbers big endian: `docs/reference/llc.md`, "Copies".

use trunkline_llc::Options;
use trunkline_llc::wire::{CRC, MAX_INFORMATION};
use trunkline_units::Span;

/// Octets of a file's digest, SHA-256.
pub const DIGEST: usize = 32;
/// Header octets of a data message.
const DATA_HEADER: usize = 1 + 4 + 8;
/// Maximum octets of a file in one message.
pub const PIECE: usize = MAX_INFORMATION - CRC - DATA_HEADER;
/// Maximum length of a name, in octets.
pub const NAME: usize = 255;

/// Returns the options of both ends of a copy.
pub fn options(priority: u8) -> Options {
    Options { crc: true, response_timeout: Span::from_ms(20), tries: 10, ..Options::acknowledged(priority) }
}

/// A message of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// A file of this size and digest.
    Offer { copy: u32, force: bool, size: u64, digest: [u8; DIGEST], name: &'a str },
    /// A part of it.
    Data { copy: u32, at: u64, bytes: &'a [u8] },
    /// The end of the file.
    End { copy: u32 },
}

/// A message of the file service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response<'a> {
    /// Continue from this offset.
    From { copy: u32, at: u64 },
    /// The file is complete.
    Done { copy: u32 },
    /// The file is refused for this reason.
    Refused { copy: u32, why: &'a str },
    /// The copy is unknown and must be offered again.
    Unknown { copy: u32 },
}

/// Reads a number from the front.
fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*number), rest))
}

fn offset(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u64::from_be_bytes(*number), rest))
}

impl<'a> Request<'a> {
    /// Parses a message; `None` if it is invalid.
    pub fn read(bytes: &'a [u8]) -> Option<Request<'a>> {
        let (kind, rest) = bytes.split_first()?;
        let (copy, rest) = number(rest)?;
        match (kind, rest) {
            (1, [force @ 0..=1, rest @ ..]) => {
                let (size, rest) = offset(rest)?;
                let (digest, name) = rest.split_first_chunk()?;
                let name = std::str::from_utf8(name).ok().filter(|name| name.len() <= NAME)?;
                Some(Request::Offer { copy, force: *force == 1, size, digest: *digest, name })
            }
            (2, rest) => {
                let (at, bytes) = offset(rest)?;
                (!bytes.is_empty()).then_some(Request::Data { copy, at, bytes })
            }
            (3, []) => Some(Request::End { copy }),
            _ => None,
        }
    }

    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        let copy = self.copy().to_be_bytes();
        match self {
            Request::Offer { force, size, digest, name, .. } => {
                let (force, size) = ([u8::from(*force)], size.to_be_bytes());
                [&[1], &copy[..], &force, &size, digest, name.as_bytes()].concat()
            }
            Request::Data { at, bytes, .. } => [&[2], &copy[..], &at.to_be_bytes(), bytes].concat(),
            Request::End { .. } => [&[3], &copy[..]].concat(),
        }
    }

    /// Returns the number of the copy.
    pub fn copy(&self) -> u32 {
        match *self {
            Request::Offer { copy, .. } | Request::Data { copy, .. } | Request::End { copy } => copy,
        }
    }
}

impl<'a> Response<'a> {
    /// Parses a message; `None` if it is invalid.
    pub fn read(bytes: &'a [u8]) -> Option<Response<'a>> {
        let (kind, rest) = bytes.split_first()?;
        let (copy, rest) = number(rest)?;
        match (kind, rest) {
            (0x81, rest) => match offset(rest)? {
                (at, []) => Some(Response::From { copy, at }),
                _ => None,
            },
            (0x82, []) => Some(Response::Done { copy }),
            (0x83, why) => Some(Response::Refused { copy, why: std::str::from_utf8(why).ok()? }),
            (0x84, []) => Some(Response::Unknown { copy }),
            _ => None,
        }
    }

    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Response::From { copy, at } => [&[0x81], &copy.to_be_bytes()[..], &at.to_be_bytes()].concat(),
            Response::Done { copy } => [&[0x82], &copy.to_be_bytes()[..]].concat(),
            Response::Refused { copy, why } => [&[0x83], &copy.to_be_bytes()[..], why.as_bytes()].concat(),
            Response::Unknown { copy } => [&[0x84], &copy.to_be_bytes()[..]].concat(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip() {
        let digest = std::array::from_fn(|n| n as u8);
        for request in [
            Request::Offer { copy: 7, force: true, size: 1 << 40, digest, name: "naïve.txt" },
            Request::Data { copy: u32::MAX, at: 9, bytes: &[1; PIECE] },
            Request::End { copy: 0x0102_0304 },
        ] {
            let bytes = request.encode();
            assert!(bytes.len() <= MAX_INFORMATION - CRC);
            assert_eq!(Request::read(&bytes), Some(request));
            assert_eq!(Response::read(&bytes), None);
            assert!((0..5).all(|cut| Request::read(&bytes[..cut]).is_none()));
        }
        for response in [
            Response::From { copy: 7, at: 1 << 33 },
            Response::Done { copy: 8 },
            Response::Refused { copy: 9, why: "no" },
            Response::Unknown { copy: 1 },
        ] {
            let bytes = response.encode();
            assert_eq!(Response::read(&bytes), Some(response));
            assert_eq!(Request::read(&bytes), None);
        }
        assert_eq!(Request::read(&[3, 0, 0, 0, 1, 9]), None, "too long");
        assert_eq!(Request::read(&[1, 0, 0, 0, 1, 2]), None, "an unknown flag");
        assert_eq!(Request::read(&[2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]), None, "no octets");
    }
}
