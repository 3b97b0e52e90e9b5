//! PDU encoding (IEEE 802.2-1998, clauses 3 and 5).
//!
//! | PDU | control | carries |
//! | --- | --- | --- |
//! | UI | `03` | information |
//! | XID | `AF`, with P or F `BF` | `81`, types of service, window |
//! | TEST | `E3`, with P or F `F3` | information, which the response repeats |
//! | AC0, AC1 | `67`, `E7`; with P or F `77`, `F7` | a command information; a response a status octet first |
//!
//! DSAP and SSAP precede the control octet. The low bit of the DSAP marks a group, that of the SSAP a response.

use std::fmt;

use thiserror::Error;

/// Broadcast station number.
pub const ALL: u8 = 255;
/// The highest priority.
pub const MAX_PRIORITY: u8 = 7;
/// The global SAP (IEEE 802.2 clause 3.3.1.2).
pub const GLOBAL_SAP: u8 = 0xFF;
/// The null SAP: the station itself.
pub const NULL_SAP: u8 = 0;
/// Octets before the information field.
pub const HEADER: usize = 3;
/// Maximum octets of information in a length-encapsulated Ethernet frame.
pub const MAX_INFORMATION: usize = 1500 - HEADER;
/// Octets of the optional checksum that ends the information field.
pub const CRC: usize = 4;

/// A service access point of a station. In C `{ SAP, station }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// SAP: even, 2 to 254; odd for a group; [`GLOBAL_SAP`]; [`NULL_SAP`].
    pub sap: u8,
    /// Station: 1 to 254, or [`ALL`].
    pub station: u8,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.station, self.sap)
    }
}

/// Kind of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Unnumbered information.
    Ui,
    /// Exchange identification.
    Xid,
    /// Test: the information is returned.
    Test,
    /// Acknowledged connectionless information with its one-bit sequence number; false for AC0.
    Ac(bool),
}

/// A PDU with borrowed information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pdu<'a> {
    /// Destination SAP; odd for a group.
    pub dsap: u8,
    /// Source SAP; even.
    pub ssap: u8,
    /// Whether it is a response.
    pub response: bool,
    /// Kind.
    pub kind: Kind,
    /// The poll bit of a command, the final bit of a response.
    pub poll: bool,
    /// Information field; in a response of an acknowledged PDU, the status octet comes first.
    pub information: &'a [u8],
}

/// Why bytes are not a valid PDU.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum BadPdu {
    /// Fewer than three octets.
    #[error("a PDU has at least three octets")]
    Short,
    /// More than [`MAX_INFORMATION`].
    #[error("the information has more than {MAX_INFORMATION} octets")]
    Long,
    /// Unsupported control octet.
    #[error("no PDU of type 1 or 3 has the control octet {0:#04x}")]
    Control(u8),
    /// UI cannot be a response (clause 5.4.1.1.2) or carry the poll bit.
    #[error("unnumbered information is a command")]
    Response,
    /// An acknowledged response lacks its status.
    #[error("a response of type 3 begins with its status")]
    MissingStatus,
}

const UI: u8 = 0x03;
const XID: u8 = 0xAF;
const TEST: u8 = 0xE3;
pub(crate) const AC0: u8 = 0x67;
const AC1: u8 = AC0 | NUMBER;
/// Sequence number bit of an acknowledged PDU.
pub(crate) const NUMBER: u8 = 0x80;
/// Poll or final bit.
pub(crate) const POLL: u8 = 0x10;
/// Response bit in the SSAP.
pub(crate) const RESPONSE: u8 = 1;

impl<'a> Pdu<'a> {
    /// Decodes a PDU.
    ///
    /// # Errors
    /// [`BadPdu`].
    #[inline]
    pub fn read(bytes: &'a [u8]) -> Result<Pdu<'a>, BadPdu> {
        let [dsap, ssap, control, ref information @ ..] = *bytes else { return Err(BadPdu::Short) };
        if information.len() > MAX_INFORMATION {
            return Err(BadPdu::Long);
        }
        let response = ssap & RESPONSE != 0;
        let kind = match control & !POLL {
            UI => Kind::Ui,
            XID => Kind::Xid,
            TEST => Kind::Test,
            AC0 => Kind::Ac(false),
            AC1 => Kind::Ac(true),
            _ => return Err(BadPdu::Control(control)),
        };
        let poll = control & POLL != 0;
        match kind {
            Kind::Ui if poll => return Err(BadPdu::Control(control)),
            Kind::Ui if response => return Err(BadPdu::Response),
            Kind::Ac(_) if response && information.is_empty() => return Err(BadPdu::MissingStatus),
            _ => {}
        }
        Ok(Pdu { dsap, ssap: ssap & !RESPONSE, response, kind, poll, information })
    }

    /// Returns the encoded length.
    #[inline]
    pub fn length(&self) -> usize {
        HEADER + self.information.len()
    }

    /// Encodes the PDU at the start of `into` and returns its length.
    ///
    /// # Panics
    /// If `into` is too short.
    #[inline]
    pub fn write(&self, into: &mut [u8]) -> usize {
        let control = match self.kind {
            Kind::Ui => UI,
            Kind::Xid => XID,
            Kind::Test => TEST,
            Kind::Ac(number) => AC0 | if number { NUMBER } else { 0 },
        };
        let into = &mut into[..self.length()];
        into[0] = self.dsap;
        into[1] = self.ssap & !RESPONSE | if self.response { RESPONSE } else { 0 };
        into[2] = control | if self.poll { POLL } else { 0 };
        into[HEADER..].copy_from_slice(self.information);
        self.length()
    }
}

/// XID information: types 1 and 3 (class III), no type 2 window (clause 5.4.1.1.2).
pub const IDENTITY: [u8; 3] = [0x81, 0x05, 0x00];

/// Status of a type 3 response (clause 5.4.3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Low half: status of the command.
    pub command: CommandStatus,
    /// High half: status of the response's information.
    pub response: ResponseStatus,
}

/// Status of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CommandStatus {
    /// Accepted.
    Ok = 0,
    /// Service not implemented or disabled.
    Unimplemented = 1,
    /// User error.
    UserError = 5,
    /// Protocol error.
    ProtocolError = 6,
    /// Permanent failure.
    Permanent = 7,
    /// Resources temporarily unavailable.
    Unavailable = 9,
    /// Temporary failure.
    Temporary = 15,
}

/// Status of the information in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ResponseStatus {
    /// Present.
    Present = 0,
    /// Service not implemented or disabled.
    Unimplemented = 1,
    /// Never submitted.
    NeverSubmitted = 3,
    /// Not requested.
    NotRequested = 4,
    /// User error.
    UserError = 5,
    /// Permanent failure.
    Permanent = 7,
    /// Resources temporarily unavailable.
    Unavailable = 9,
    /// Temporary failure.
    Temporary = 15,
}

impl Status {
    /// Decodes the octet; `None` if it is invalid.
    #[inline]
    pub fn read(octet: u8) -> Option<Status> {
        let command = match octet & 15 {
            0 => CommandStatus::Ok,
            1 => CommandStatus::Unimplemented,
            5 => CommandStatus::UserError,
            6 => CommandStatus::ProtocolError,
            7 => CommandStatus::Permanent,
            9 => CommandStatus::Unavailable,
            15 => CommandStatus::Temporary,
            _ => return None,
        };
        let response = match octet >> 4 {
            0 => ResponseStatus::Present,
            1 => ResponseStatus::Unimplemented,
            3 => ResponseStatus::NeverSubmitted,
            4 => ResponseStatus::NotRequested,
            5 => ResponseStatus::UserError,
            7 => ResponseStatus::Permanent,
            9 => ResponseStatus::Unavailable,
            15 => ResponseStatus::Temporary,
            _ => return None,
        };
        Some(Status { command, response })
    }

    /// Returns the octet.
    #[inline]
    pub const fn octet(self) -> u8 {
        (self.response as u8) << 4 | self.command as u8
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_control_octets_are_those_of_the_standard() {
        let octet = |kind, poll, response| {
            let mut into = [0; 4];
            Pdu { dsap: 4, ssap: 6, response, kind, poll, information: &[0x40] }.write(&mut into);
            (into[1], into[2])
        };
        assert_eq!(octet(Kind::Ui, false, false), (6, 0x03));
        assert_eq!(octet(Kind::Xid, true, true), (7, 0xBF));
        assert_eq!(octet(Kind::Test, true, false), (6, 0xF3));
        assert_eq!(octet(Kind::Ac(false), false, false), (6, 0x67));
        assert_eq!(octet(Kind::Ac(true), true, true), (7, 0xF7));
    }

    #[test]
    fn every_status_is_read_as_it_is_written() {
        let read = (0..=255).filter_map(|octet| Some((octet, Status::read(octet)?)));
        assert_eq!(read.inspect(|(octet, status)| assert_eq!(status.octet(), *octet)).count(), 7 * 8);
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_again(bytes in proptest::collection::vec(any::<u8>(), 0..40), control in 0usize..9) {
            let mut bytes = bytes;
            if let Some(octet) = bytes.get_mut(2) {
                *octet = [0x03, 0xAF, 0xBF, 0xE3, 0xF3, 0x67, 0x77, 0xE7, 0xF7][control];
            }
            if let Ok(pdu) = Pdu::read(&bytes) {
                let mut into = vec![0; pdu.length()];
                prop_assert_eq!(pdu.write(&mut into), bytes.len());
                prop_assert_eq!(into, bytes);
            }
        }
    }
}
