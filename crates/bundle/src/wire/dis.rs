//! Distributed simulation (IEEE 1278.1): PDUs are found by their headers and never decoded.
//!
//! Several PDUs in one datagram are legal (IEEE 1278.2). One whose length lies ends the datagram: where the next begins
//! cannot be known.

use thiserror::Error;

/// Octets of a PDU's header.
pub const HEADER: usize = 12;
/// The longest PDU that is taken (IEEE 1278.2 asks for no more).
pub const LONGEST: usize = 8_192;
/// The type of Entity State.
pub const ENTITY_STATE: u8 = 1;

/// A PDU, with its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pdu<'a> {
    bytes: &'a [u8],
}

/// Why octets are no PDU.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Malformed {
    /// Fewer octets than a header has.
    #[error("a PDU of {0} octets, fewer than its header has")]
    Short(usize),
    /// Its length is less than that of its header, or more than is there.
    #[error("a PDU that says it has {said} octets where {there} are")]
    Length {
        /// What it says.
        said: usize,
        /// Octets from its first to the end of the datagram.
        there: usize,
    },
    /// It is longer than a PDU may be.
    #[error("a PDU of {0} octets, more than {LONGEST}")]
    Long(usize),
}

impl<'a> Pdu<'a> {
    /// The PDU at the beginning of `bytes`, and what is behind it.
    ///
    /// # Errors
    /// Why there is none.
    pub fn split(bytes: &'a [u8]) -> Result<(Pdu<'a>, &'a [u8]), Malformed> {
        let header = bytes.first_chunk::<HEADER>().ok_or(Malformed::Short(bytes.len()))?;
        let said = usize::from(u16::from_be_bytes([header[8], header[9]]));
        if said < HEADER || said > bytes.len() {
            return Err(Malformed::Length { said, there: bytes.len() });
        }
        if said > LONGEST {
            return Err(Malformed::Long(said));
        }
        let (bytes, rest) = bytes.split_at(said);
        Ok((Pdu { bytes }, rest))
    }

    /// The PDUs of a datagram, and at the end why the rest is none, if it is not.
    pub fn all(datagram: &'a [u8]) -> impl Iterator<Item = Result<Pdu<'a>, Malformed>> {
        let mut rest = datagram;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            match Pdu::split(rest) {
                Ok((pdu, behind)) => {
                    rest = behind;
                    Some(Ok(pdu))
                }
                Err(malformed) => {
                    rest = &[];
                    Some(Err(malformed))
                }
            }
        })
    }

    /// All of it.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The version of the standard.
    pub fn version(self) -> u8 {
        self.bytes[0]
    }

    /// The exercise.
    pub fn exercise(self) -> u8 {
        self.bytes[1]
    }

    /// What kind of PDU.
    pub fn kind(self) -> u8 {
        self.bytes[2]
    }

    /// The family of kinds.
    pub fn family(self) -> u8 {
        self.bytes[3]
    }

    /// The site of the entity, emitter or originator that stands behind the header in most PDUs.
    pub fn site(self) -> Option<u16> {
        self.number(HEADER)
    }

    /// The entity of an Entity State: site, application, entity.
    pub fn entity(self) -> Option<[u16; 3]> {
        if self.kind() != ENTITY_STATE {
            return None;
        }
        Some([self.number(HEADER)?, self.number(HEADER + 2)?, self.number(HEADER + 4)?])
    }

    /// The location of an Entity State: metres from the centre of the earth (IEEE 1278.1: world coordinates).
    pub fn location(self) -> Option<[f64; 3]> {
        /// After header, entity, force, articulations, two types and a velocity.
        const LOCATION: usize = HEADER + 6 + 1 + 1 + 8 + 8 + 12;
        if self.kind() != ENTITY_STATE {
            return None;
        }
        let at = |axis: usize| {
            let octets = self.bytes.get(LOCATION + 8 * axis..)?.first_chunk()?;
            Some(f64::from_be_bytes(*octets))
        };
        Some([at(0)?, at(1)?, at(2)?])
    }

    fn number(self, at: usize) -> Option<u16> {
        self.bytes.get(at..)?.first_chunk().map(|octets| u16::from_be_bytes(*octets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pdu(length: u16, there: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..there).map(|n| n as u8).collect();
        bytes[8..10].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    #[test]
    fn lengths_that_lie_end_a_datagram_and_hurt_nothing_before_them() {
        let good = pdu(20, 20);
        for (bad, why) in [
            (pdu(0, 160), Malformed::Length { said: 0, there: 160 }),
            (pdu(11, 160), Malformed::Length { said: 11, there: 160 }),
            (pdu(161, 160), Malformed::Length { said: 161, there: 160 }),
            (pdu(8_193, 9_000), Malformed::Long(8_193)),
            (vec![1; 11], Malformed::Short(11)),
        ] {
            let datagram = [&good[..], &good, &bad].concat();
            let found: Vec<_> = Pdu::all(&datagram).collect();
            assert_eq!(found[..2], [Ok(Pdu { bytes: &good }); 2]);
            assert_eq!(found[2..], [Err(why)]);
        }
        // 48 of 160: the rest is looked at as PDUs of its own.
        let short = pdu(48, 160);
        assert_eq!(Pdu::all(&short).next().unwrap().unwrap().bytes().len(), 48);
    }

    #[test]
    fn an_entity_state_says_who_and_where() {
        let mut bytes = pdu(144, 144);
        bytes[2] = ENTITY_STATE;
        bytes[12..18].copy_from_slice(&[0, 7, 0, 8, 1, 0]);
        for (axis, metres) in [1.5f64, -2e6, 6.4e6].into_iter().enumerate() {
            bytes[48 + 8 * axis..][..8].copy_from_slice(&metres.to_be_bytes());
        }
        let (pdu, _) = Pdu::split(&bytes).unwrap();
        assert_eq!((pdu.site(), pdu.entity()), (Some(7), Some([7, 8, 256])));
        assert_eq!(pdu.location(), Some([1.5, -2e6, 6.4e6]));
        let mut other = bytes.clone();
        other[2] = 2;
        assert_eq!(Pdu::split(&other).unwrap().0.location(), None);
    }

    proptest! {
        #[test]
        fn pdus_are_found_again(lengths in prop::collection::vec(12u16..400, 0..20)) {
            let pdus: Vec<_> = lengths.iter().map(|length| pdu(*length, usize::from(*length))).collect();
            let datagram = pdus.concat();
            let found: Vec<_> = Pdu::all(&datagram).map(|pdu| pdu.unwrap().bytes().to_vec()).collect();
            prop_assert_eq!(found, pdus);
        }

        #[test]
        fn any_datagram_comes_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let taken: usize = Pdu::all(&bytes).filter_map(Result::ok).map(|pdu| pdu.bytes().len()).sum();
            prop_assert!(taken <= bytes.len());
        }
    }
}
