//! Bundle format 2: bundles that are valid DIS, for any number of hosts (docs/reference/bundle-wire.md).
//!
//! ```text
//! bundle:  index PDU | carried message…
//! index:   header 32 octets | entry 24 octets × count | control item…
//! carried: an unchanged DIS PDU | a wrapper PDU: header 12 octets | body | zeros up to a multiple of 8
//! ```
//!
//! The index and the wrappers are DIS PDUs of an experimental type. A DIS reader skips them by their lengths and
//! reads the PDUs of the simulation, which are unchanged. A bundle without messages and control items is a hello. The
//! format relies on the checksum of UDP.
//!
//! | module | contents |
//! | --- | --- |
//! | [`control`] | control items |

pub mod control;

use thiserror::Error;
use trunkline_units::Span;

use super::dis::{self, Pdu};
use crate::wire::classic::{self, PACKET_ADDRESSES};
use control::Control;

/// Octets of the index before its first entry.
pub const HEADER: usize = 32;
/// Octets of an entry.
pub const ENTRY: usize = 24;
/// The largest number of messages in a bundle.
pub const MAX_MESSAGES: usize = 255;
/// The longest message body that is not a DIS PDU: its wrapper is the longest PDU.
pub const MAX_BODY: usize = dis::MAX_PDU - dis::HEADER;
/// The default size of a datagram: an MTU of 1,500 octets without the headers of IPv4 and UDP.
pub const DEFAULT_DATAGRAM: usize = 1_472;
/// The smallest allowed size of a datagram: it fits an assignment, an entry and a short message.
pub const MIN_DATAGRAM: usize = 512;
/// The type and family of index and wrapper PDUs, from the experimental range of DIS.
pub const TYPE: u8 = 244;
/// No limit to the wait of a message besides the settings.
pub const NO_LIMIT: u16 = u16::MAX;

/// DIS version (IEEE 1278.1-2012), exercise, type and family.
const DIS: [u8; 4] = [7, 255, TYPE, TYPE];
/// `TL`.
const MAGIC: [u8; 2] = *b"TL";
/// The version of this format, in the upper half of an octet.
const VERSION: u8 = 1;
/// The alignment of index and wrapper PDUs.
const ALIGN: usize = 8;

const PRIORITY: u8 = 1;
const RELIABLE: u8 = 2;
const RELIABLE_PRIORITY: u8 = PRIORITY | RELIABLE;
/// The encoding of a message.
const WRAPPED: u8 = 0;
const UNCHANGED: u8 = 1;

/// The role of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A host.
    Host = 1,
    /// A level-1 converter.
    Level1 = 2,
    /// The central converter.
    Central = 3,
}

/// The sender and receiver of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The role of the sender.
    pub role: Role,
    /// The number of the sender, from 1 on; the central converter has 0.
    pub number: u16,
    /// The number of the receiver, 0 for the central converter or all hosts; on the wide area the packet address.
    pub receiver: u16,
    /// The incarnation of the sender: each start has a higher one, modulo 2³².
    pub incarnation: u32,
    /// The session that the central converter issued to the host or level-1 converter; 0 for none or broadcast.
    pub session: u32,
    /// Messages sent to this receiver in this session before this bundle, modulo 2³².
    pub sent_before: u32,
}

/// A message in a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The message address.
    pub address: u32,
    /// The original sender: site in the upper half, host in the lower.
    pub source: u32,
    /// The incarnation of the original sender.
    pub incarnation: u32,
    /// The sequence number among the messages of the same source, incarnation, packet address and class (ordinary or
    /// priority).
    pub sequence: u32,
    /// The longest wait in each converter, in 10 µs; [`NO_LIMIT`] uses the settings.
    pub max_wait_10us: u16,
    /// Whether the message has priority.
    pub priority: bool,
    /// For a reliable message, which has priority: its number among those of the sender in this session, modulo 2¹⁶.
    pub reliable: Option<u16>,
    /// The payload. A complete DIS PDU is carried unchanged, anything else in a wrapper.
    pub body: &'a [u8],
}

/// The reason why a bundle is malformed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum BundleError {
    /// It is truncated or has a wrong length.
    #[error("bundle with inconsistent lengths")]
    Length,
    /// It lacks the marks of this format.
    #[error("not a bundle of this format")]
    UnknownFormat,
    /// It has another version.
    #[error("bundle of version {0}; this is version {VERSION}")]
    Version(u8),
    /// Its role or number is invalid.
    #[error("bundle with an invalid sender")]
    Sender,
    /// An entry of the index is invalid or does not match its message.
    #[error("bundle with an invalid index")]
    Index,
    /// A control item is invalid.
    #[error("bundle with an invalid control item")]
    Control,
}

/// A valid bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bundle<'a> {
    header: Header,
    index: &'a [u8],
    control: &'a [u8],
    carried: &'a [u8],
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Returns the DIS header of an index or wrapper PDU.
fn dis_header(length: usize) -> [u8; dis::HEADER] {
    let mut header = [0; dis::HEADER];
    header[..4].copy_from_slice(&DIS);
    header[8..10].copy_from_slice(&(length as u16).to_be_bytes());
    header
}

/// Returns whether a body is carried unchanged: it is one complete PDU and not of our type.
pub fn is_pdu(body: &[u8]) -> bool {
    matches!(Pdu::split(body), Ok((pdu, [])) if pdu.kind() != TYPE)
}

/// Returns the octets that a body needs in a bundle, besides its entry.
pub fn carried_octets(body: &[u8]) -> usize {
    if is_pdu(body) { body.len() } else { (dis::HEADER + body.len()).next_multiple_of(ALIGN) }
}

/// Returns whether a message does not fit into bundles of at most `max_octets` octets.
pub fn is_too_long(body: &[u8], max_octets: usize) -> bool {
    (body.len() > MAX_BODY && !is_pdu(body)) || HEADER + ENTRY + carried_octets(body) > max_octets
}

impl Role {
    fn read(octet: u8) -> Option<Role> {
        [Role::Host, Role::Level1, Role::Central].into_iter().find(|role| *role as u8 == octet)
    }
}

impl Header {
    /// Returns the header of a bundle from the central converter.
    pub fn from_central(incarnation: u32, receiver: u16, session: u32) -> Header {
        Header { role: Role::Central, number: 0, receiver, incarnation, session, sent_before: 0 }
    }

    fn read(bytes: &[u8; HEADER]) -> Result<Header, BundleError> {
        let has_dis_header = bytes[..4] == DIS && bytes[4..8] == [0; 4] && bytes[10..12] == [0; 2];
        if !has_dis_header || bytes[12..14] != MAGIC {
            return Err(BundleError::UnknownFormat);
        }
        if bytes[14] >> 4 != VERSION {
            return Err(BundleError::Version(bytes[14] >> 4));
        }
        let role = Role::read(bytes[14] & 15).ok_or(BundleError::Sender)?;
        let (number, incarnation) = (u16_at(bytes, 16), u32_at(bytes, 20));
        if (role == Role::Central) != (number == 0) {
            return Err(BundleError::Sender);
        }
        let (receiver, session, sent_before) = (u16_at(bytes, 18), u32_at(bytes, 24), u32_at(bytes, 28));
        Ok(Header { role, number, receiver, incarnation, session, sent_before })
    }

    fn write(&self, length: usize, count: usize) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..dis::HEADER].copy_from_slice(&dis_header(length));
        bytes[12..14].copy_from_slice(&MAGIC);
        bytes[14] = VERSION << 4 | self.role as u8;
        bytes[15] = count as u8;
        bytes[16..18].copy_from_slice(&self.number.to_be_bytes());
        bytes[18..20].copy_from_slice(&self.receiver.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.incarnation.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.session.to_be_bytes());
        bytes[28..32].copy_from_slice(&self.sent_before.to_be_bytes());
        bytes
    }
}

impl<'a> Bundle<'a> {
    /// Reads a datagram.
    ///
    /// # Errors
    /// Returns why the bundle is malformed; drop all of it.
    pub fn read(bytes: &'a [u8]) -> Result<Bundle<'a>, BundleError> {
        let first = bytes.first_chunk::<HEADER>().ok_or(BundleError::Length)?;
        let header = Header::read(first)?;
        let (length, index) = (usize::from(u16_at(first, 8)), ENTRY * usize::from(first[15]));
        let fits = length.is_multiple_of(ALIGN) && length <= dis::MAX_PDU && HEADER + index <= length;
        if !fits || length > bytes.len() {
            return Err(BundleError::Length);
        }
        let (pdu, carried) = bytes.split_at(length);
        let (index, control) = pdu[HEADER..].split_at(index);
        let bundle = Bundle { header, index, control, carried };
        bundle.check_index()?;
        let is_valid = control::items(control).all(|item| item.is_some());
        is_valid.then_some(bundle).ok_or(BundleError::Control)
    }

    fn check_index(&self) -> Result<(), BundleError> {
        let mut rest = self.carried;
        for entry in self.index.as_chunks::<ENTRY>().0 {
            (_, rest) = read_entry(entry, rest)?;
        }
        if rest.is_empty() { Ok(()) } else { Err(BundleError::Length) }
    }

    /// Returns sender and receiver.
    pub fn header(&self) -> Header {
        self.header
    }

    /// Returns the number of messages.
    pub fn count(&self) -> usize {
        self.index.len() / ENTRY
    }

    /// Returns the messages in order.
    pub fn messages(&self) -> impl Iterator<Item = Message<'a>> + use<'a> {
        let mut rest = self.carried;
        self.index.as_chunks::<ENTRY>().0.iter().filter_map(move |entry| {
            let (message, after) = read_entry(entry, rest).ok()?;
            rest = after;
            Some(message)
        })
    }

    /// Returns the control items in order.
    pub fn control(&self) -> impl Iterator<Item = Control<'a>> + use<'a> {
        control::items(self.control).flatten()
    }
}

/// Reads the message of an entry from the start of `rest`; returns it with the remaining octets.
fn read_entry<'a>(entry: &[u8; ENTRY], rest: &'a [u8]) -> Result<(Message<'a>, &'a [u8]), BundleError> {
    let (length, max_wait_10us) = (usize::from(u16_at(entry, 16)), u16_at(entry, 18));
    let (encoding, flags, number) = (entry[20], entry[21], u16_at(entry, 22));
    let reliable = (flags & RELIABLE != 0).then_some(number);
    // Only priority messages are reliable, and a number requires its flag.
    let flags_are_right = matches!(flags, 0 | PRIORITY | RELIABLE_PRIORITY);
    if !flags_are_right || (reliable.is_none() && number != 0) || encoding > UNCHANGED {
        return Err(BundleError::Index);
    }
    let (body, after) = match encoding {
        UNCHANGED => {
            let (body, after) = rest.split_at_checked(length).ok_or(BundleError::Length)?;
            is_pdu(body).then_some((body, after)).ok_or(BundleError::Index)?
        }
        _ => read_wrapper(length, rest)?,
    };
    let (address, source) = (u32_at(entry, 0), u32_at(entry, 4));
    let (incarnation, sequence, priority) = (u32_at(entry, 8), u32_at(entry, 12), flags & PRIORITY != 0);
    Ok((Message { address, source, incarnation, sequence, max_wait_10us, priority, reliable, body }, after))
}

fn read_wrapper(length: usize, rest: &[u8]) -> Result<(&[u8], &[u8]), BundleError> {
    let whole = (dis::HEADER + length).next_multiple_of(ALIGN);
    let (pdu, after) = rest.split_at_checked(whole).ok_or(BundleError::Length)?;
    let (header, padded) = pdu.split_at(dis::HEADER);
    let (body, zeros) = padded.split_at(length);
    let is_wrapper = header == dis_header(whole) && length <= MAX_BODY && zeros.iter().all(|z| *z == 0);
    // What can be carried unchanged must be: each message has a single encoding.
    if is_wrapper && !is_pdu(body) { Ok((body, after)) } else { Err(BundleError::Index) }
}

impl Message<'_> {
    fn entry(&self) -> [u8; ENTRY] {
        let mut entry = [0; ENTRY];
        entry[..4].copy_from_slice(&self.address.to_be_bytes());
        entry[4..8].copy_from_slice(&self.source.to_be_bytes());
        entry[8..12].copy_from_slice(&self.incarnation.to_be_bytes());
        entry[12..16].copy_from_slice(&self.sequence.to_be_bytes());
        entry[16..18].copy_from_slice(&(self.body.len() as u16).to_be_bytes());
        entry[18..20].copy_from_slice(&self.max_wait_10us.to_be_bytes());
        entry[20] = if is_pdu(self.body) { UNCHANGED } else { WRAPPED };
        entry[21] = if self.priority { PRIORITY } else { 0 };
        if let Some(number) = self.reliable {
            entry[21] |= RELIABLE;
            entry[22..].copy_from_slice(&number.to_be_bytes());
        }
        entry
    }
}

/// Returns the receiver field of a datagram without further checks; on the wide area this is the packet address.
pub fn receiver_of(datagram: &[u8]) -> Option<u16> {
    (datagram.len() >= HEADER).then(|| u16_at(datagram, 18))
}

/// Returns whether a datagram begins like a bundle of this format, of any version.
pub fn has_magic(datagram: &[u8]) -> bool {
    datagram.len() >= HEADER && datagram[..4] == DIS && datagram[12..14] == MAGIC
}

/// Encodes the longest wait of a message: in 10 µs, rounded down and saturated.
pub fn encode_max_wait(max_wait: Option<Span>) -> u16 {
    max_wait.map_or(NO_LIMIT, |max_wait| (max_wait.as_ns() / 10_000).min(u64::from(NO_LIMIT) - 1) as u16)
}

/// Returns the longest body, if not a PDU, in a datagram of at most `max_octets` octets.
pub fn max_body(max_octets: usize) -> usize {
    let carried = max_octets.saturating_sub(HEADER + ENTRY) / ALIGN * ALIGN;
    carried.saturating_sub(dis::HEADER).min(MAX_BODY)
}

/// Returns the packet address of a message address. It equals that of 1997 up to 65,535 and wraps beyond, so that the
/// number of groups stays the same.
pub fn packet_address(address: u32) -> u16 {
    classic::packet_address((address % 65_536) as u16)
}

/// A set of packet addresses, one bit each.
pub type PacketBitmap = [u8; PACKET_ADDRESSES / 8];

/// A bundle being filled.
#[derive(Clone, Debug, Default)]
pub struct BundleBuilder {
    max_octets: usize,
    index: Vec<u8>,
    control: Vec<u8>,
    carried: Vec<u8>,
}

impl BundleBuilder {
    /// Creates a builder of bundles of at most `max_octets` octets.
    pub fn new(max_octets: usize) -> BundleBuilder {
        BundleBuilder { max_octets, ..BundleBuilder::default() }
    }

    /// Returns the octets of the bundle so far.
    pub fn octets(&self) -> usize {
        HEADER + self.index.len() + self.control.len() + self.carried.len()
    }

    /// Returns the number of messages.
    pub fn count(&self) -> usize {
        self.index.len() / ENTRY
    }

    /// Returns the octets that still fit, for control items or for messages with their entries.
    pub fn available(&self) -> usize {
        self.max_octets.saturating_sub(self.octets())
    }

    /// Returns whether a message fits.
    pub fn has_room(&self, body: &[u8]) -> bool {
        let index = HEADER + self.index.len() + ENTRY + self.control.len();
        self.count() < MAX_MESSAGES
            && index <= dis::MAX_PDU
            && ENTRY + carried_octets(body) <= self.available()
    }

    /// Adds a message; returns whether there was room.
    pub fn push(&mut self, message: &Message<'_>) -> bool {
        let body = message.body;
        if !self.has_room(body) || is_too_long(body, self.max_octets) {
            return false;
        }
        self.index.extend_from_slice(&message.entry());
        let octets = carried_octets(body);
        let end = self.carried.len() + octets;
        if !is_pdu(body) {
            self.carried.extend_from_slice(&dis_header(octets));
        }
        self.carried.extend_from_slice(body);
        self.carried.resize(end, 0);
        true
    }

    /// Adds a control item; returns whether there was room.
    pub fn push_control(&mut self, control: &Control<'_>) -> bool {
        let octets = control.octets();
        let index = HEADER + self.index.len() + self.control.len() + octets;
        let fits = octets <= self.available() && index <= dis::MAX_PDU;
        if fits {
            control.write(&mut self.control);
        }
        fits
    }

    /// Writes the bundle, starts the next one and returns the length.
    ///
    /// # Panics
    /// Panics if `into` is too small.
    pub fn finish(&mut self, header: &Header, into: &mut [u8]) -> usize {
        let length = HEADER + self.index.len() + self.control.len();
        let header = header.write(length, self.count());
        let mut at = 0;
        for part in [&header[..], &self.index, &self.control, &self.carried] {
            into[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        [&mut self.index, &mut self.control, &mut self.carried].into_iter().for_each(Vec::clear);
        at
    }
}

#[cfg(test)]
mod tests;
