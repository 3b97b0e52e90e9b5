//! What who copies files and who keeps them say to each other, octet by octet: `docs/reference/llc.md`, "Copies". Big endian.

use trunkline_llc::wire::{CRC, MAX_INFORMATION};

/// Octets of a file's digest, SHA-256.
pub const DIGEST: usize = 32;
/// Octets before those of the file.
const BEFORE: usize = 1 + 4 + 8;
/// Most octets of a file in one message.
pub const PIECE: usize = MAX_INFORMATION - CRC - BEFORE;
/// Octets of the longest name.
pub const NAME: usize = 255;

/// From who copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks<'a> {
    /// A file of this size and digest.
    Offer { copy: u32, force: bool, size: u64, digest: [u8; DIGEST], name: &'a str },
    /// A part of it.
    Data { copy: u32, at: u64, bytes: &'a [u8] },
    /// That was all.
    End { copy: u32 },
}

/// From who keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says<'a> {
    /// It is to go on from there.
    From { copy: u32, at: u64 },
    /// The file is there, whole.
    Done { copy: u32 },
    /// It is not taken, and why.
    Refused { copy: u32, why: &'a str },
    /// It knows of no such copy: it is to be offered again.
    Unknown { copy: u32 },
}

/// Reads numbers from the front.
fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*number), rest))
}

fn large(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u64::from_be_bytes(*number), rest))
}

impl<'a> Asks<'a> {
    /// Reads a message; none if it is none of these.
    pub fn read(bytes: &'a [u8]) -> Option<Asks<'a>> {
        let (kind, rest) = bytes.split_first()?;
        let (copy, rest) = number(rest)?;
        match (kind, rest) {
            (1, [force @ 0..=1, rest @ ..]) => {
                let (size, rest) = large(rest)?;
                let (digest, name) = rest.split_first_chunk()?;
                let name = std::str::from_utf8(name).ok().filter(|name| name.len() <= NAME)?;
                Some(Asks::Offer { copy, force: *force == 1, size, digest: *digest, name })
            }
            (2, rest) => {
                let (at, bytes) = large(rest)?;
                (!bytes.is_empty()).then_some(Asks::Data { copy, at, bytes })
            }
            (3, []) => Some(Asks::End { copy }),
            _ => None,
        }
    }

    /// Writes it in place of what is there.
    pub fn write(&self, into: &mut Vec<u8>) {
        into.clear();
        match self {
            Asks::Offer { copy, force, size, digest, name } => {
                into.push(1);
                into.extend_from_slice(&copy.to_be_bytes());
                into.push(u8::from(*force));
                into.extend_from_slice(&size.to_be_bytes());
                into.extend_from_slice(digest);
                into.extend_from_slice(name.as_bytes());
            }
            Asks::Data { copy, at, bytes } => {
                into.push(2);
                into.extend_from_slice(&copy.to_be_bytes());
                into.extend_from_slice(&at.to_be_bytes());
                into.extend_from_slice(bytes);
            }
            Asks::End { copy } => {
                into.push(3);
                into.extend_from_slice(&copy.to_be_bytes());
            }
        }
    }
}

impl<'a> Says<'a> {
    /// Reads a message; none if it is none of these.
    pub fn read(bytes: &'a [u8]) -> Option<Says<'a>> {
        let (kind, rest) = bytes.split_first()?;
        let (copy, rest) = number(rest)?;
        match (kind, rest) {
            (0x81, rest) => match large(rest)? {
                (at, []) => Some(Says::From { copy, at }),
                _ => None,
            },
            (0x82, []) => Some(Says::Done { copy }),
            (0x83, why) => Some(Says::Refused { copy, why: std::str::from_utf8(why).ok()? }),
            (0x84, []) => Some(Says::Unknown { copy }),
            _ => None,
        }
    }

    /// Writes it in place of what is there.
    pub fn write(&self, into: &mut Vec<u8>) {
        into.clear();
        let (kind, copy) = match self {
            Says::From { copy, .. } => (0x81, copy),
            Says::Done { copy } => (0x82, copy),
            Says::Refused { copy, .. } => (0x83, copy),
            Says::Unknown { copy } => (0x84, copy),
        };
        into.push(kind);
        into.extend_from_slice(&copy.to_be_bytes());
        match self {
            Says::From { at, .. } => into.extend_from_slice(&at.to_be_bytes()),
            Says::Refused { why, .. } => into.extend_from_slice(why.as_bytes()),
            Says::Done { .. } | Says::Unknown { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_was_written() {
        let mut bytes = Vec::new();
        let digest = std::array::from_fn(|n| n as u8);
        for asks in [
            Asks::Offer { copy: 7, force: true, size: 1 << 40, digest, name: "naïve.txt" },
            Asks::Data { copy: u32::MAX, at: 9, bytes: &[1; PIECE] },
            Asks::End { copy: 0x0102_0304 },
        ] {
            asks.write(&mut bytes);
            assert!(bytes.len() <= MAX_INFORMATION - CRC);
            assert_eq!(Asks::read(&bytes), Some(asks));
            assert_eq!(Says::read(&bytes), None);
            assert!((0..5).all(|cut| Asks::read(&bytes[..cut]).is_none()));
        }
        for says in [
            Says::From { copy: 7, at: 1 << 33 },
            Says::Done { copy: 8 },
            Says::Refused { copy: 9, why: "no" },
            Says::Unknown { copy: 1 },
        ] {
            says.write(&mut bytes);
            assert_eq!(Says::read(&bytes), Some(says));
            assert_eq!(Asks::read(&bytes), None);
        }
        assert_eq!(Asks::read(&[3, 0, 0, 0, 1, 9]), None, "too long");
        assert_eq!(Asks::read(&[1, 0, 0, 0, 1, 2]), None, "a flag that nobody knows");
        assert_eq!(Asks::read(&[2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]), None, "no octets");
    }
}
