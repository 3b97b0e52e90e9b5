//! Distributed Interactive Simulation (IEEE 1278.1): PDUs are located by their headers and not decoded.
//!
//! A datagram may contain several PDUs (IEEE 1278.2). A PDU with a wrong length ends the datagram, since the start of
//! the next one is unknown.

use thiserror::Error;

/// Octets of a PDU header.
pub const HEADER: usize = 12;
/// The longest accepted PDU (IEEE 1278.2 requires no more).
pub const MAX_PDU: usize = 8_192;
/// The type of the Entity State PDU.
pub const ENTITY_STATE: u8 = 1;

/// A PDU with its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pdu<'a> {
    bytes: &'a [u8],
}

/// The reason why a PDU is malformed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum PduError {
    /// It is shorter than a header.
    #[error("truncated PDU of {0} octets")]
    Truncated(usize),
    /// Its length is below that of a header or beyond the datagram.
    #[error("a PDU claims {claimed} octets, but {available} are available")]
    Length {
        /// The length in the header.
        claimed: usize,
        /// Octets to the end of the datagram.
        available: usize,
    },
    /// It exceeds [`MAX_PDU`].
    #[error("PDU of {0} octets exceeds {MAX_PDU}")]
    TooLong(usize),
}

impl<'a> Pdu<'a> {
    /// Splits the first PDU from `bytes`.
    ///
    /// # Errors
    /// Returns why the PDU is malformed.
    pub fn split(bytes: &'a [u8]) -> Result<(Pdu<'a>, &'a [u8]), PduError> {
        let header = bytes.first_chunk::<HEADER>().ok_or(PduError::Truncated(bytes.len()))?;
        let claimed = usize::from(u16::from_be_bytes([header[8], header[9]]));
        if claimed < HEADER || claimed > bytes.len() {
            return Err(PduError::Length { claimed, available: bytes.len() });
        }
        if claimed > MAX_PDU {
            return Err(PduError::TooLong(claimed));
        }
        let (bytes, rest) = bytes.split_at(claimed);
        Ok((Pdu { bytes }, rest))
    }

    /// Iterates over the PDUs of a datagram. An error ends the iteration.
    pub fn all(datagram: &'a [u8]) -> impl Iterator<Item = Result<Pdu<'a>, PduError>> {
        let mut rest = datagram;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let split = Pdu::split(rest);
            rest = split.map_or(&[], |(_, after)| after);
            Some(split.map(|(pdu, _)| pdu))
        })
    }

    /// Returns all octets.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the protocol version.
    pub fn version(self) -> u8 {
        self.bytes[0]
    }

    /// Returns the exercise identifier.
    pub fn exercise(self) -> u8 {
        self.bytes[1]
    }

    /// Returns the PDU type.
    pub fn kind(self) -> u8 {
        self.bytes[2]
    }

    /// Returns the protocol family.
    pub fn family(self) -> u8 {
        self.bytes[3]
    }

    /// Returns the site of the entity, emitter or originator, which follows the header in most PDUs.
    pub fn site(self) -> Option<u16> {
        self.number(HEADER)
    }

    /// Returns the entity of an Entity State PDU: site, application, entity.
    pub fn entity(self) -> Option<[u16; 3]> {
        if self.kind() != ENTITY_STATE {
            return None;
        }
        Some([self.number(HEADER)?, self.number(HEADER + 2)?, self.number(HEADER + 4)?])
    }

    /// Returns the location of an Entity State PDU in meters from the center of the earth (world coordinates of IEEE
    /// 1278.1).
    pub fn location(self) -> Option<[f64; 3]> {
        /// After header, entity, force, articulation count, two entity types and a velocity.
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

    fn pdu(length: u16, available: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..available).map(|n| n as u8).collect();
        bytes[8..10].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    #[test]
    fn a_wrong_length_ends_the_datagram_after_the_valid_pdus() {
        let good = pdu(20, 20);
        for (malformed, error) in [
            (pdu(0, 160), PduError::Length { claimed: 0, available: 160 }),
            (pdu(11, 160), PduError::Length { claimed: 11, available: 160 }),
            (pdu(161, 160), PduError::Length { claimed: 161, available: 160 }),
            (pdu(8_193, 9_000), PduError::TooLong(8_193)),
            (vec![1; 11], PduError::Truncated(11)),
        ] {
            let datagram = [&good[..], &good, &malformed].concat();
            let found: Vec<_> = Pdu::all(&datagram).collect();
            assert_eq!(found[..2], [Ok(Pdu { bytes: &good }); 2]);
            assert_eq!(found[2..], [Err(error)]);
        }
        // A length of 48 in 160 octets: the rest is read as further PDUs.
        let short = pdu(48, 160);
        assert_eq!(Pdu::all(&short).next().unwrap().unwrap().bytes().len(), 48);
    }

    #[test]
    fn an_entity_state_has_an_entity_and_a_location() {
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
        fn concatenated_pdus_are_found(lengths in prop::collection::vec(12u16..400, 0..20)) {
            let pdus: Vec<_> = lengths.iter().map(|length| pdu(*length, usize::from(*length))).collect();
            let datagram = pdus.concat();
            let found: Vec<_> = Pdu::all(&datagram).map(|pdu| pdu.unwrap().bytes().to_vec()).collect();
            prop_assert_eq!(found, pdus);
        }

        #[test]
        fn parsing_any_datagram_terminates(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let taken: usize = Pdu::all(&bytes).filter_map(Result::ok).map(|pdu| pdu.bytes().len()).sum();
            prop_assert!(taken <= bytes.len());
        }
    }
}
