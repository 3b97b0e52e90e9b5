//! Ring control frames.
//!
//! ```text
//! 80 | 54 54 03 | kind | station | generation u32 | owner | sequence u32 | members, 32 octets     token, window
//! 80 | 54 54 03 | 3                                                                              join
//! ```
//!
//! Big endian. The first octet replaces the priority and is above all of them; a UI PDU from and to [`SAP`] follows,
//! so on Ethernet these are frames to that SAP. `kind` is 1 for a token, where `station` is its destination, and 2
//! for a window, where it is the first invited station. Token and window are broadcasts; a join goes to the station
//! that opened the window. A token is 46 octets of PDU: the shortest Ethernet frame.

use crate::token::Members;
use crate::token::members::OCTETS;
use crate::wire::ALL;

/// First octet of every ring control frame.
pub const CONTROL: u8 = 0x80;
/// SAP of these frames. No user may open it on a network with a token. Its second bit is zero: it is not reserved by
/// the standard (IEEE 802.2 clause 3.3.1).
pub const SAP: u8 = 0x54;
/// Length of the longest ring control frame, a token or a window, including its first octet.
pub const MAX_FRAME: usize = HEADER.len() + TOKEN;

const HEADER: [u8; 4] = [CONTROL, SAP, SAP, 0x03];
const TOKEN: usize = 11 + OCTETS;

/// Identity of a token. A newer token replaces all older ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// Number of tokens that replaced a lost one; 0: a station alone.
    pub generation: u32,
    /// The station that issued it.
    pub owner: u8,
    /// Number of passes.
    pub sequence: u32,
}

impl Key {
    /// Returns whether this token is newer than `other`: by generation, owner, then sequence, with serial number
    /// arithmetic (RFC 1982).
    pub fn is_newer(self, other: Key) -> bool {
        let ahead = |a: u32, b: u32| (a.wrapping_sub(b) as i32) > 0;
        if self.generation != other.generation {
            return ahead(self.generation, other.generation);
        }
        if self.owner != other.owner {
            return self.owner > other.owner;
        }
        ahead(self.sequence, other.sequence)
    }
}

/// A token and its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its identity.
    pub key: Key,
    /// Members of the ring.
    pub members: Members,
}

/// A ring control frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// A token is passed.
    Token {
        /// The token.
        token: Token,
        /// Destination.
        to: u8,
    },
    /// The token's holder invites stations to join.
    Window {
        /// The held token.
        token: Token,
        /// First invited station; some nonmembers after it are invited too.
        first: u8,
    },
    /// The sender asks to join.
    Join,
}

impl Control {
    /// Decodes a frame; `None` if it is not a valid ring control frame.
    pub fn read(frame: &[u8]) -> Option<Control> {
        let content = frame.strip_prefix(&HEADER)?;
        if content == [3] {
            return Some(Control::Join);
        }
        let (fields, members) = content.split_first_chunk::<11>()?;
        let [kind, station, g0, g1, g2, g3, owner, s0, s1, s2, s3] = *fields;
        let members = Members::read(members.try_into().ok()?)?;
        let generation = u32::from_be_bytes([g0, g1, g2, g3]);
        let key = Key { generation, owner, sequence: u32::from_be_bytes([s0, s1, s2, s3]) };
        let token = Token { key, members };
        match kind {
            _ if owner == 0 || owner == ALL || station == 0 || station == ALL => None,
            1 => members.has(station).then_some(Control::Token { token, to: station }),
            2 => (!members.is_empty()).then_some(Control::Window { token, first: station }),
            _ => None,
        }
    }

    /// Encodes the frame at the start of `into`, which holds at least [`MAX_FRAME`] octets; returns its length.
    pub fn write(&self, into: &mut [u8]) -> usize {
        let (header, content) = into.split_at_mut(HEADER.len());
        header.copy_from_slice(&HEADER);
        let (kind, station, token) = match self {
            Control::Token { token, to } => (1, *to, token),
            Control::Window { token, first } => (2, *first, token),
            Control::Join => {
                content[0] = 3;
                return HEADER.len() + 1;
            }
        };
        content[..2].copy_from_slice(&[kind, station]);
        content[2..6].copy_from_slice(&token.key.generation.to_be_bytes());
        content[6] = token.key.owner;
        content[7..11].copy_from_slice(&token.key.sequence.to_be_bytes());
        content[11..TOKEN].copy_from_slice(&token.members.octets());
        MAX_FRAME
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::{Kind, Pdu};

    fn token() -> Token {
        let key = Key { generation: 0x01020304, owner: 9, sequence: 0x0a0b0c0d };
        Token { key, members: [1, 9, 254].into_iter().collect() }
    }

    #[test]
    fn the_octets_are_those_of_the_page() {
        let mut into = [0xEE; MAX_FRAME];
        assert_eq!(Control::Token { token: token(), to: 9 }.write(&mut into), 47);
        assert_eq!(into[..15], [0x80, 0x54, 0x54, 3, 1, 9, 1, 2, 3, 4, 9, 10, 11, 12, 13]);
        assert_eq!((into[15], into[16], into[46]), (2, 2, 0x40));
        let pdu = Pdu::read(&into[1..]).unwrap();
        assert_eq!((pdu.dsap, pdu.ssap, pdu.kind, pdu.information.len()), (SAP, SAP, Kind::Ui, 43));
        assert_eq!(Control::Join.write(&mut into), 5);
        assert_eq!(Control::read(&into[..5]), Some(Control::Join));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut whole = [0; MAX_FRAME];
        let length = Control::Token { token: token(), to: 9 }.write(&mut whole);
        assert!(Control::read(&whole[..length]).is_some());
        assert_eq!(Control::read(&whole[..length - 1]), None);
        assert_eq!(Control::read(&[&whole[..length], &[0]].concat()), None);
        // Kind, destination (0, broadcast, nonmember), owner.
        for (at, octet) in [(4, 4), (5, 0), (5, 255), (5, 8), (10, 0), (10, 255), (3, 0x13), (1, 0x56)] {
            let mut frame = whole;
            frame[at] = octet;
            assert_eq!(Control::read(&frame), None, "octet {at}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_again(bytes in proptest::collection::vec(any::<u8>(), 43), kind in 1u8..3) {
            let mut frame = [&HEADER[..], &bytes].concat();
            frame[4] = kind;
            if let Some(control) = Control::read(&frame) {
                let mut into = [0; MAX_FRAME];
                let length = control.write(&mut into);
                prop_assert_eq!(&into[..length], &frame[..]);
            }
        }

        #[test]
        fn of_two_tokens_one_is_newer(a: (u32, u8, u32), b: (u32, u8, u32)) {
            let key = |(generation, owner, sequence)| Key { generation, owner, sequence };
            let (a, b) = (key(a), key(b));
            prop_assert!(!(a.is_newer(b) && b.is_newer(a)));
            let half = a.generation.wrapping_sub(b.generation) == 1 << 31
                || a.sequence.wrapping_sub(b.sequence) == 1 << 31;
            prop_assert!(a == b || half || a.is_newer(b) || b.is_newer(a));
        }
    }
}
