//! The wide format: bundles that are legal DIS, for any number of hosts (docs/bundle-wire.md).
//!
//! ```text
//! bundle:  index PDU | carried message…
//! index:   header 32 octets | entry 24 octets × count | control item…
//! carried: a PDU of DIS as it is | a wrapper PDU: header 12 octets | body | zeros up to a multiple of 8
//! ```
//!
//! The index and each wrapper are PDUs of DIS of an experimental type. A reader of DIS that knows nothing of this steps
//! over them by their lengths and reads the PDUs of the simulation, which stand there unchanged. A bundle without messages
//! and control is a hello. There is no check of its own: UDP has one.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`control`] | what converters and hosts tell each other |

pub mod control;

use thiserror::Error;
use trunkline_units::Span;

use super::dis::{self, Pdu};
use crate::interest::packet;
use crate::wire::classic::PACKETS;
use control::{Control, Items};

/// Octets before the first entry of the index.
pub const HEADER: usize = 32;
/// Octets of an entry.
pub const ENTRY: usize = 24;
/// Most messages of a bundle.
pub const MOST_MESSAGES: usize = 255;
/// Longest body of a message that is no PDU of DIS: its wrapper is then as long as a PDU may be.
pub const LONGEST_BODY: usize = dis::LONGEST - dis::HEADER;
/// Octets of a datagram that any path carries unless it says otherwise: 1,500 less the headers of IPv4 and UDP.
pub const PATH: usize = 1_472;
/// The least octets a path must carry: a hold and an entry, with something in it.
pub const LEAST_PATH: usize = 512;
/// The type of our PDUs in DIS, and their family: in the range for experiments.
pub const TYPE: u8 = 244;
/// No limit but the setting to how long a message may wait on its way.
pub const NO_LIMIT: u16 = u16::MAX;

/// Version of DIS (IEEE 1278.1-2012), an exercise, type and family.
const DIS: [u8; 4] = [7, 255, TYPE, TYPE];
/// `TL`.
const MAGIC: [u8; 2] = *b"TL";
/// Of this format; the upper half of an octet.
const VERSION: u8 = 1;
/// Multiples of this are the lengths of our PDUs.
const ALIGN: usize = 8;

const PRIORITY: u8 = 1;
const RELIABLE: u8 = 2;
const RELIABLE_PRIORITY: u8 = PRIORITY | RELIABLE;
/// How a message is carried.
const WRAPPED: u8 = 0;
const AS_IT_IS: u8 = 1;

/// What a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The interface of a host.
    Host = 1,
    /// A converter of level 1.
    Level1 = 2,
    /// The central converter.
    Central = 3,
}

/// Who sent a bundle, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the sender is.
    pub role: Role,
    /// Its number, from 1 on; the central converter's is 0.
    pub number: u16,
    /// The number of the receiver, 0 for the central one or for all hosts; on the wide area the packet address.
    pub to: u16,
    /// The sender's incarnation: each start has a higher one (in a circle of 2³²).
    pub life: u32,
    /// The session that the central converter gave to this host or converter of level 1; 0: none, or to all.
    pub session: u32,
    /// Messages sent to this receiver in this session before this bundle, modulo 2³².
    pub before: u32,
}

/// A message in a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// To whom.
    pub address: u32,
    /// Who sent it first: its site in the upper half, the host's number in the lower.
    pub source: u32,
    /// The incarnation of that host.
    pub life: u32,
    /// The how manieth of its source, in this life, of its packet address and of its class, ordinary or with priority.
    pub sequence: u32,
    /// How long it may wait in each converter, in 10 µs; [`NO_LIMIT`]: as long as the setting says.
    pub within: u16,
    /// Whether it has priority.
    pub priority: bool,
    /// If it is to be acknowledged, which only messages with priority are: the how manieth such of its sender in this session, modulo 2¹⁶.
    pub reliable: Option<u16>,
    /// What the simulation said. If it is one whole PDU of DIS it stands in the bundle as it is, or else wrapped.
    pub body: &'a [u8],
}

/// Why octets are no bundle.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Malformed {
    /// It is cut short, or what it says of its length is not so.
    #[error("a bundle whose lengths lie")]
    Length,
    /// It does not begin as bundles do.
    #[error("no bundle of this format")]
    Stranger,
    /// It has another version.
    #[error("a bundle of version {0}; this is version {VERSION}")]
    Version(u8),
    /// Its sender cannot be.
    #[error("a bundle whose sender cannot be")]
    Sender,
    /// An entry of the index says what no entry may, or something else than what it stands for.
    #[error("a bundle whose index lies")]
    Index,
    /// An item of control is not what it may be.
    #[error("a bundle whose control makes no sense")]
    Control,
}

/// A bundle that is whole.
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

/// The header of one of our PDUs.
fn dis_header(length: usize) -> [u8; dis::HEADER] {
    let mut header = [0; dis::HEADER];
    header[..4].copy_from_slice(&DIS);
    header[8..10].copy_from_slice(&(length as u16).to_be_bytes());
    header
}

/// Whether a body stands in a bundle as it is: it is one whole PDU, and none of ours.
pub fn is_pdu(body: &[u8]) -> bool {
    matches!(Pdu::split(body), Ok((pdu, [])) if pdu.kind() != TYPE)
}

/// Octets that a body takes in a bundle, besides its entry.
pub fn carried(body: &[u8]) -> usize {
    if is_pdu(body) { body.len() } else { (dis::HEADER + body.len()).next_multiple_of(ALIGN) }
}

/// Whether a message is too long for bundles of at most `longest` octets.
pub fn is_too_long(body: &[u8], longest: usize) -> bool {
    (body.len() > LONGEST_BODY && !is_pdu(body)) || HEADER + ENTRY + carried(body) > longest
}

impl Role {
    fn read(octet: u8) -> Option<Role> {
        [Role::Host, Role::Level1, Role::Central].into_iter().find(|role| *role as u8 == octet)
    }
}

impl Header {
    fn read(bytes: &[u8; HEADER]) -> Result<Header, Malformed> {
        let begins = bytes[..4] == DIS && bytes[4..8] == [0; 4] && bytes[10..12] == [0; 2];
        if !begins || bytes[12..14] != MAGIC {
            return Err(Malformed::Stranger);
        }
        if bytes[14] >> 4 != VERSION {
            return Err(Malformed::Version(bytes[14] >> 4));
        }
        let role = Role::read(bytes[14] & 15).ok_or(Malformed::Sender)?;
        let (number, life) = (u16_at(bytes, 16), u32_at(bytes, 20));
        if (role == Role::Central) != (number == 0) {
            return Err(Malformed::Sender);
        }
        let (to, session, before) = (u16_at(bytes, 18), u32_at(bytes, 24), u32_at(bytes, 28));
        Ok(Header { role, number, to, life, session, before })
    }

    fn write(&self, length: usize, count: usize) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..dis::HEADER].copy_from_slice(&dis_header(length));
        bytes[12..14].copy_from_slice(&MAGIC);
        bytes[14] = VERSION << 4 | self.role as u8;
        bytes[15] = count as u8;
        bytes[16..18].copy_from_slice(&self.number.to_be_bytes());
        bytes[18..20].copy_from_slice(&self.to.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.life.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.session.to_be_bytes());
        bytes[28..32].copy_from_slice(&self.before.to_be_bytes());
        bytes
    }
}

impl<'a> Bundle<'a> {
    /// Reads a datagram.
    ///
    /// # Errors
    /// Why it is no bundle. All of it is then to be dropped: no part can be trusted.
    pub fn read(bytes: &'a [u8]) -> Result<Bundle<'a>, Malformed> {
        let first = bytes.first_chunk::<HEADER>().ok_or(Malformed::Length)?;
        let header = Header::read(first)?;
        let (length, index) = (usize::from(u16_at(first, 8)), ENTRY * usize::from(first[15]));
        let fits = length.is_multiple_of(ALIGN) && length <= dis::LONGEST && HEADER + index <= length;
        if !fits || length > bytes.len() {
            return Err(Malformed::Length);
        }
        let (pdu, carried) = bytes.split_at(length);
        let (index, control) = pdu[HEADER..].split_at(index);
        let bundle = Bundle { header, index, control, carried };
        bundle.check_index()?;
        Items::check(control).then_some(bundle).ok_or(Malformed::Control)
    }

    fn check_index(&self) -> Result<(), Malformed> {
        let mut rest = self.carried;
        for entry in self.index.as_chunks::<ENTRY>().0 {
            (_, rest) = read_entry(entry, rest)?;
        }
        if rest.is_empty() { Ok(()) } else { Err(Malformed::Length) }
    }

    /// Who sent it, and to whom.
    pub fn header(&self) -> Header {
        self.header
    }

    /// How many messages it has.
    pub fn count(&self) -> usize {
        self.index.len() / ENTRY
    }

    /// Its messages, in their order.
    pub fn messages(&self) -> impl Iterator<Item = Message<'a>> + use<'a> {
        let mut rest = self.carried;
        self.index.as_chunks::<ENTRY>().0.iter().filter_map(move |entry| {
            let (message, behind) = read_entry(entry, rest).ok()?;
            rest = behind;
            Some(message)
        })
    }

    /// What its sender tells, in its order.
    pub fn control(&self) -> impl Iterator<Item = Control<'a>> + use<'a> {
        Items::new(self.control).filter_map(Result::ok)
    }
}

/// The message of an entry, whose octets are the first of `rest`, and what is behind them.
fn read_entry<'a>(entry: &[u8; ENTRY], rest: &'a [u8]) -> Result<(Message<'a>, &'a [u8]), Malformed> {
    let (length, within) = (usize::from(u16_at(entry, 16)), u16_at(entry, 18));
    let (how, flags, number) = (entry[20], entry[21], u16_at(entry, 22));
    let reliable = (flags & RELIABLE != 0).then_some(number);
    // Only what has priority is acknowledged, and a number without its flag says nothing.
    let flags_are_right = matches!(flags, 0 | PRIORITY | RELIABLE_PRIORITY);
    if !flags_are_right || (reliable.is_none() && number != 0) || how > AS_IT_IS {
        return Err(Malformed::Index);
    }
    let (body, behind) = match how {
        AS_IT_IS => {
            let (body, behind) = rest.split_at_checked(length).ok_or(Malformed::Length)?;
            is_pdu(body).then_some((body, behind)).ok_or(Malformed::Index)?
        }
        _ => read_wrapped(length, rest)?,
    };
    let (address, source) = (u32_at(entry, 0), u32_at(entry, 4));
    let (life, sequence, priority) = (u32_at(entry, 8), u32_at(entry, 12), flags & PRIORITY != 0);
    Ok((Message { address, source, life, sequence, within, priority, reliable, body }, behind))
}

fn read_wrapped(length: usize, rest: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let whole = (dis::HEADER + length).next_multiple_of(ALIGN);
    let (pdu, behind) = rest.split_at_checked(whole).ok_or(Malformed::Length)?;
    let (header, padded) = pdu.split_at(dis::HEADER);
    let (body, zeros) = padded.split_at(length);
    let is_wrapper = header == dis_header(whole) && length <= LONGEST_BODY && zeros.iter().all(|z| *z == 0);
    // What could stand as it is does: so each message is written in one way only.
    if is_wrapper && !is_pdu(body) { Ok((body, behind)) } else { Err(Malformed::Index) }
}

impl Message<'_> {
    fn entry(&self) -> [u8; ENTRY] {
        let mut entry = [0; ENTRY];
        entry[..4].copy_from_slice(&self.address.to_be_bytes());
        entry[4..8].copy_from_slice(&self.source.to_be_bytes());
        entry[8..12].copy_from_slice(&self.life.to_be_bytes());
        entry[12..16].copy_from_slice(&self.sequence.to_be_bytes());
        entry[16..18].copy_from_slice(&(self.body.len() as u16).to_be_bytes());
        entry[18..20].copy_from_slice(&self.within.to_be_bytes());
        entry[20] = if is_pdu(self.body) { AS_IT_IS } else { WRAPPED };
        entry[21] = if self.priority { PRIORITY } else { 0 };
        if let Some(number) = self.reliable {
            entry[21] |= RELIABLE;
            entry[22..].copy_from_slice(&number.to_be_bytes());
        }
        entry
    }
}

/// To whom a datagram says it is, whatever else it says: the receiver's number, on the wide area the packet address.
pub fn receiver_of(datagram: &[u8]) -> Option<u16> {
    (datagram.len() >= HEADER).then(|| u16_at(datagram, 18))
}

/// Whether a datagram begins as bundles of this format do, of whatever version.
pub fn is_ours(datagram: &[u8]) -> bool {
    datagram.len() >= HEADER && datagram[..4] == DIS && datagram[12..14] == MAGIC
}

/// How long a message may wait, as it stands in its entry: in 10 µs, rounded down, and no longer than can be said.
pub fn within(within: Option<Span>) -> u16 {
    within.map_or(NO_LIMIT, |within| (within.as_ns() / 10_000).min(u64::from(NO_LIMIT) - 1) as u16)
}

/// Octets of the longest body, which is no PDU, of a message in a datagram of at most `longest` octets.
pub fn longest_body(longest: usize) -> usize {
    let carried = longest.saturating_sub(HEADER + ENTRY) / ALIGN * ALIGN;
    carried.saturating_sub(dis::HEADER).min(LONGEST_BODY)
}

/// The packet address of a message address: that of 1997 up to 65,535, and round again beyond, so that there are never
/// more groups than then.
pub fn packet_of(address: u32) -> u16 {
    packet((address % 65_536) as u16)
}

/// Packet addresses, a bit each.
pub type Packets = [u8; PACKETS / 8];

/// A bundle that is being written.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    longest: usize,
    index: Vec<u8>,
    control: Vec<u8>,
    carried: Vec<u8>,
}

impl Builder {
    /// Of bundles of at most `longest` octets.
    pub fn new(longest: usize) -> Builder {
        Builder { longest, ..Builder::default() }
    }

    /// Octets of the bundle as it stands.
    pub fn octets(&self) -> usize {
        HEADER + self.index.len() + self.control.len() + self.carried.len()
    }

    /// Messages in it.
    pub fn count(&self) -> usize {
        self.index.len() / ENTRY
    }

    /// Octets that still fit, of control or of messages with their entries.
    pub fn room(&self) -> usize {
        self.longest.saturating_sub(self.octets())
    }

    /// Whether a message still fits.
    pub fn has_room(&self, body: &[u8]) -> bool {
        let index = HEADER + self.index.len() + ENTRY + self.control.len();
        self.count() < MOST_MESSAGES && index <= dis::LONGEST && ENTRY + carried(body) <= self.room()
    }

    /// Adds a message; whether there was room.
    pub fn push(&mut self, message: &Message<'_>) -> bool {
        let body = message.body;
        if !self.has_room(body) || is_too_long(body, self.longest) {
            return false;
        }
        self.index.extend_from_slice(&message.entry());
        let octets = carried(body);
        let end = self.carried.len() + octets;
        if !is_pdu(body) {
            self.carried.extend_from_slice(&dis_header(octets));
        }
        self.carried.extend_from_slice(body);
        self.carried.resize(end, 0);
        true
    }

    /// Adds an item of control; whether there was room.
    pub fn tell(&mut self, control: &Control<'_>) -> bool {
        let octets = control.octets();
        let index = HEADER + self.index.len() + self.control.len() + octets;
        let fits = octets <= self.room() && index <= dis::LONGEST;
        if fits {
            control.write(&mut self.control);
        }
        fits
    }

    /// Writes the bundle and begins the next; how many octets.
    ///
    /// # Panics
    /// If `into` has no room for it.
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
