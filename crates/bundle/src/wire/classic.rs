//! Bundle format 1 (classic), of 1997 (Bobo, *Message-Bundle Converting in Internet Protocol Multicast-Based HLA
//! Exercises*, figure 3-1).
//!
//! ```text
//! bundle (level 1 or host → central):  mask u16 | message… | end u16 × count | count u8
//! bundle (central → level 1 or host):             message… | end u16 × count | count u8
//! message:                             address u16 | body
//! ```
//!
//! Integers are big endian. `end` is the offset from the first octet of the bundle to the octet after a message. Only
//! its length identifies a control message: 22 octets to the central converter or level 1, 24 octets to a host.

use thiserror::Error;

/// The largest number of messages in a bundle.
pub const MAX_MESSAGES: usize = 255;
/// The largest bundle in octets: the payload of one UDP datagram over IPv4.
pub const MAX_BUNDLE: usize = 65_507;
/// Octets of a message address.
pub const ADDRESS: usize = 2;
/// Octets of a control message to the central converter or to level 1.
pub const CONTROL: usize = 22;
/// Octets of a control message to a host.
pub const HOST_CONTROL: usize = 24;
/// The group of control messages to hosts.
pub const ALL_HOSTS: u16 = 0xFFFF;
/// The largest number of hosts: one for each bit of a group.
pub const MAX_HOSTS: u8 = 16;
/// Message addresses per packet address.
pub const ADDRESSES_PER_PACKET: u16 = 32;
/// The number of packet addresses.
pub const PACKET_ADDRESSES: usize = 65_536 / ADDRESSES_PER_PACKET as usize;

/// Returns the packet address of a message address: messages cross the wide area in groups of 32 addresses.
pub fn packet_address(address: u16) -> u16 {
    address / ADDRESSES_PER_PACKET
}

/// Octets of the mask.
const MASK: usize = 2;
/// Octets of an end offset.
const END: usize = 2;
/// The two highest bits of the mask of a level-1 converter.
const LEVEL_1: u16 = 0xC000;

/// The sender of a bundle to the central converter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A host, 1 to 16.
    Host(u8),
    /// A level-1 converter, from 1 on.
    Level1(u16),
}

impl Source {
    /// Returns the mask of its bundles.
    pub fn mask(self) -> u16 {
        match self {
            Source::Host(host) => host_bit(host),
            Source::Level1(number) => LEVEL_1 | number,
        }
    }

    /// Returns the sender with a mask. A host has one bit, a level-1 converter both highest bits and a number; other
    /// masks are invalid.
    pub fn from_mask(mask: u16) -> Option<Source> {
        match (mask.is_power_of_two(), mask & LEVEL_1 == LEVEL_1, mask & !LEVEL_1) {
            (true, ..) => Some(Source::Host(mask.trailing_zeros() as u8 + 1)),
            (_, true, number) if number > 0 => Some(Source::Level1(number)),
            _ => None,
        }
    }
}

/// Returns the bit of a host, 1 to 16, in groups and masks.
pub fn host_bit(host: u8) -> u16 {
    debug_assert!((1..=MAX_HOSTS).contains(&host), "host numbers are 1 to 16");
    1 << (host - 1)
}

/// A control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassicControl {
    /// Join this address; to level 1, its packet address.
    Join(u16),
    /// Leave this address.
    Drop(u16),
    /// The congestion level, 3 (none) to 6 (highest).
    Level(u8),
}

impl ClassicControl {
    /// Returns the control message that joins or leaves an address.
    pub fn membership(address: u16, joins: bool) -> ClassicControl {
        if joins { ClassicControl::Join(address) } else { ClassicControl::Drop(address) }
    }

    /// Reads a control message of 22 octets; returns `None` for an unknown action.
    pub fn read(message: ClassicMessage<'_>) -> Option<ClassicControl> {
        match *message.body.first()? {
            1 => Some(ClassicControl::Join(message.address)),
            2 => Some(ClassicControl::Drop(message.address)),
            level @ 3..=6 => Some(ClassicControl::Level(level)),
            _ => None,
        }
    }

    /// Reads a control message of 24 octets to a host.
    pub fn read_for_host(message: ClassicMessage<'_>) -> Option<ClassicControl> {
        match (message.address, *message.body.first()?) {
            (ALL_HOSTS, level @ 3..=6) => Some(ClassicControl::Level(level)),
            _ => None,
        }
    }

    /// Returns address and body of a control message to the central converter or to level 1.
    pub fn write(self) -> (u16, [u8; CONTROL - ADDRESS]) {
        let mut body = [0; CONTROL - ADDRESS];
        let (address, action) = match self {
            ClassicControl::Join(address) => (address, 1),
            ClassicControl::Drop(address) => (address, 2),
            ClassicControl::Level(level) => (0, level),
        };
        body[0] = action;
        (address, body)
    }

    /// Returns the body of a level for hosts; its group is [`ALL_HOSTS`].
    pub fn write_for_hosts(level: u8) -> [u8; HOST_CONTROL - ADDRESS] {
        let mut body = [0; HOST_CONTROL - ADDRESS];
        body[0] = level;
        body
    }
}

/// A message in a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassicMessage<'a> {
    /// The message address; from the central converter to hosts, the subscribed hosts, one bit each.
    pub address: u16,
    /// The message without its address.
    pub body: &'a [u8],
}

impl<'a> ClassicMessage<'a> {
    /// Reads a message with its address, as it crosses the wide area.
    #[inline]
    pub fn read(bytes: &'a [u8]) -> Option<ClassicMessage<'a>> {
        let (address, body) = bytes.split_first_chunk::<ADDRESS>()?;
        Some(ClassicMessage { address: u16::from_be_bytes(*address), body })
    }

    /// Returns its octets, including the address.
    #[inline]
    pub fn octets(self) -> usize {
        ADDRESS + self.body.len()
    }
}

/// The reason why a bundle is malformed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ClassicError {
    /// It is shorter than its trailer.
    #[error("truncated bundle")]
    Truncated,
    /// It has no message.
    #[error("bundle without messages")]
    Empty,
    /// Its end offsets do not ascend to the trailer, or leave a message without an address.
    #[error("invalid end offsets in a bundle")]
    MessageEnds,
    /// Its mask is invalid.
    #[error("invalid mask {0:#06x} in a bundle")]
    Mask(u16),
}

/// A valid bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassicBundle<'a> {
    bytes: &'a [u8],
    first: usize,
    ends: &'a [u8],
}

impl<'a> ClassicBundle<'a> {
    /// Reads a bundle to the central converter and its sender.
    ///
    /// # Errors
    /// Returns why the bundle is malformed; drop all of it.
    pub fn read_with_mask(bytes: &'a [u8]) -> Result<(Source, ClassicBundle<'a>), ClassicError> {
        let mask = bytes.first_chunk::<MASK>().ok_or(ClassicError::Truncated)?;
        let mask = u16::from_be_bytes(*mask);
        let source = Source::from_mask(mask).ok_or(ClassicError::Mask(mask))?;
        Ok((source, ClassicBundle::read_from(bytes, MASK)?))
    }

    /// Reads a bundle from the central converter.
    ///
    /// # Errors
    /// Returns why the bundle is malformed; drop all of it.
    pub fn read(bytes: &'a [u8]) -> Result<ClassicBundle<'a>, ClassicError> {
        ClassicBundle::read_from(bytes, 0)
    }

    fn read_from(bytes: &'a [u8], first: usize) -> Result<ClassicBundle<'a>, ClassicError> {
        let (count, rest) = bytes.split_last().ok_or(ClassicError::Truncated)?;
        let count = usize::from(*count);
        if count == 0 {
            return Err(ClassicError::Empty);
        }
        let messages =
            rest.len().checked_sub(count * END).filter(|end| *end >= first).ok_or(ClassicError::Truncated)?;
        let ends = &rest[messages..];
        let mut before = first;
        for end in ends.chunks_exact(END) {
            let end = usize::from(u16::from_be_bytes([end[0], end[1]]));
            if end < before + ADDRESS || end > messages {
                return Err(ClassicError::MessageEnds);
            }
            before = end;
        }
        match before == messages {
            true => Ok(ClassicBundle { bytes, first, ends }),
            false => Err(ClassicError::MessageEnds),
        }
    }

    /// Returns the number of messages.
    pub fn count(&self) -> usize {
        self.ends.len() / END
    }

    /// Returns the messages in order.
    #[inline]
    pub fn messages(&self) -> impl Iterator<Item = ClassicMessage<'a>> + use<'a> {
        let (bytes, mut from) = (self.bytes, self.first);
        self.ends.chunks_exact(END).filter_map(move |end| {
            let end = usize::from(u16::from_be_bytes([end[0], end[1]]));
            let message = ClassicMessage::read(bytes.get(from..end)?);
            from = end;
            message
        })
    }
}

/// A bundle being filled.
#[derive(Clone, Debug, Default)]
pub struct ClassicBuilder {
    /// The mask, if any, and the messages.
    bytes: Vec<u8>,
    ends: Vec<u8>,
    /// Octets of the mask.
    first: usize,
    /// The largest bundle in octets.
    max_octets: usize,
}

impl ClassicBuilder {
    /// Creates a builder of bundles of at most `max_octets` octets (limited to [`MAX_BUNDLE`]), with the mask of
    /// `source` if given.
    pub fn new(source: Option<Source>, max_octets: usize) -> ClassicBuilder {
        let mut bytes = Vec::new();
        if let Some(source) = source {
            bytes.extend_from_slice(&source.mask().to_be_bytes());
        }
        let first = bytes.len();
        ClassicBuilder { bytes, ends: Vec::new(), first, max_octets: max_octets.min(MAX_BUNDLE) }
    }

    /// Returns the number of messages.
    pub fn count(&self) -> usize {
        self.ends.len() / END
    }

    /// Returns whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the octets of the bundle so far.
    pub fn octets(&self) -> usize {
        self.bytes.len() + self.ends.len() + 1
    }

    /// Returns the largest message body that fits into an empty bundle.
    pub fn max_body(&self) -> usize {
        self.max_octets.saturating_sub(self.first + ADDRESS + END + 1)
    }

    /// Returns whether a message with a body of this length fits.
    pub fn has_room(&self, body: usize) -> bool {
        self.count() < MAX_MESSAGES && self.octets() + ADDRESS + body + END <= self.max_octets
    }

    /// Adds a message; returns whether there was room.
    pub fn push(&mut self, address: u16, body: &[u8]) -> bool {
        let fits = self.has_room(body.len());
        if fits {
            self.bytes.extend_from_slice(&address.to_be_bytes());
            self.bytes.extend_from_slice(body);
            self.ends.extend_from_slice(&(self.bytes.len() as u16).to_be_bytes());
        }
        fits
    }

    /// Writes the bundle, starts the next one and returns the length.
    ///
    /// # Panics
    /// Panics if `into` is too small or the bundle has no message.
    pub fn finish(&mut self, into: &mut [u8]) -> usize {
        assert!(!self.is_empty(), "a bundle needs at least one message");
        let (messages, ends) = (self.bytes.len(), self.ends.len());
        into[..messages].copy_from_slice(&self.bytes);
        into[messages..messages + ends].copy_from_slice(&self.ends);
        into[messages + ends] = (ends / END) as u8;
        self.bytes.truncate(self.first);
        self.ends.clear();
        messages + ends + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn masks_identify_one_host_or_level_1() {
        for host in 1..=16 {
            assert_eq!(Source::from_mask(Source::Host(host).mask()), Some(Source::Host(host)));
        }
        assert_eq!((Source::Host(1).mask(), Source::Host(3).mask(), Source::Host(16).mask()), (1, 4, 0x8000));
        for number in 1..0x4000 {
            assert_eq!(Source::from_mask(0xC000 | number), Some(Source::Level1(number)));
        }
        let unassigned = (0..=u16::MAX).filter(|mask| Source::from_mask(*mask).is_none()).count();
        assert_eq!(unassigned, 65_536 - 16 - 0x3FFF);
    }

    #[test]
    fn a_bundle_matches_the_published_example() {
        let mut builder = ClassicBuilder::new(Some(Source::Host(3)), MAX_BUNDLE);
        assert!(builder.push(21, b"ab") && builder.push(0x1234, b""));
        let mut bytes = [0; 32];
        let length = builder.finish(&mut bytes);
        assert_eq!(bytes[..length], [0, 4, 0, 21, b'a', b'b', 0x12, 0x34, 0, 6, 0, 8, 2]);
        let (source, bundle) = ClassicBundle::read_with_mask(&bytes[..length]).unwrap();
        assert_eq!((source, bundle.count()), (Source::Host(3), 2));
        let messages: Vec<_> = bundle.messages().collect();
        assert_eq!(messages[0], ClassicMessage { address: 21, body: b"ab" });
        assert_eq!(messages[1], ClassicMessage { address: 0x1234, body: b"" });
        assert!(builder.is_empty());
    }

    #[test]
    fn a_bundle_holds_255_messages_or_65_507_octets() {
        let mut builder = ClassicBuilder::new(None, MAX_BUNDLE);
        (0..255).for_each(|n| assert!(builder.push(n, b"")));
        assert!(!builder.push(255, b""));
        let mut bytes = vec![0; MAX_BUNDLE];
        let length = builder.finish(&mut bytes);
        assert_eq!(ClassicBundle::read(&bytes[..length]).unwrap().count(), 255);
        let max_body = builder.max_body();
        assert!(!builder.push(1, &vec![9; max_body + 1]) && builder.push(1, &vec![9; max_body]));
        assert_eq!(builder.finish(&mut bytes), MAX_BUNDLE);
        assert_eq!(ClassicBundle::read(&bytes).unwrap().messages().next().unwrap().body.len(), max_body);
    }

    #[test]
    fn control_is_recognized_by_its_length() {
        for control in [
            ClassicControl::Join(65_535),
            ClassicControl::Drop(0),
            ClassicControl::Level(3),
            ClassicControl::Level(6),
        ] {
            let (address, body) = control.write();
            assert_eq!(ClassicControl::read(ClassicMessage { address, body: &body }), Some(control));
            assert_eq!(body.len() + ADDRESS, CONTROL);
        }
        let body = ClassicControl::write_for_hosts(5);
        let read = ClassicControl::read_for_host(ClassicMessage { address: ALL_HOSTS, body: &body });
        assert_eq!((read, body.len() + ADDRESS), (Some(ClassicControl::Level(5)), HOST_CONTROL));
        assert_eq!(ClassicControl::read_for_host(ClassicMessage { address: 7, body: &body }), None);
        for action in [0, 7, 255] {
            assert_eq!(ClassicControl::read(ClassicMessage { address: 0, body: &[action] }), None);
        }
    }

    proptest! {
        #[test]
        fn written_bundles_read_back(
            messages in prop::collection::vec((any::<u16>(), prop::collection::vec(any::<u8>(), 0..300)), 1..=255),
            host in prop::option::of(1u8..=16),
        ) {
            let mut builder = ClassicBuilder::new(host.map(Source::Host), MAX_BUNDLE);
            let taken = messages.iter().take_while(|(address, body)| builder.push(*address, body)).count();
            let mut bytes = vec![0; MAX_BUNDLE];
            let announced = builder.octets();
            let length = builder.finish(&mut bytes);
            prop_assert_eq!(announced, length);
            let bundle = match host {
                Some(host) => {
                    let (source, bundle) = ClassicBundle::read_with_mask(&bytes[..length]).unwrap();
                    prop_assert_eq!(source, Source::Host(host));
                    bundle
                }
                None => ClassicBundle::read(&bytes[..length]).unwrap(),
            };
            let read: Vec<_> = bundle.messages().map(|m| (m.address, m.body.to_vec())).collect();
            prop_assert_eq!(&read[..], &messages[..taken]);
        }

        /// Every octet before the end offsets belongs to one message, or the bundle is refused.
        #[test]
        fn any_octets_parse_completely_or_not_at_all(bytes in prop::collection::vec(any::<u8>(), 0..80), count in 0u8..9) {
            let mut bytes = bytes;
            bytes.push(count);
            if let Ok(bundle) = ClassicBundle::read(&bytes) {
                prop_assert_eq!(bundle.messages().count(), bundle.count());
                let octets: usize = bundle.messages().map(ClassicMessage::octets).sum();
                prop_assert_eq!(octets + 2 * bundle.count() + 1, bytes.len());
            }
        }
    }
}
