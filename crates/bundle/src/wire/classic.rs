//! Bundles of 1997 (Bobo, *Message-Bundle Converting in Internet Protocol Multicast-Based HLA Exercises*, figure 3-1).
//!
//! ```text
//! bundle (level 1 or host → central):  mask u16 | message… | end u16 × count | count u8
//! bundle (central → level 1 or host):             message… | end u16 × count | count u8
//! message:                             address u16 | body
//! ```
//!
//! Big endian. `end` is the offset from the first octet of the bundle to the octet after a message. A message for the
//! central converter that has 22 octets in all, or for a host that has 24, is control; the format has no other sign.

use thiserror::Error;

/// Most messages of a bundle.
pub const MOST_MESSAGES: usize = 255;
/// Most octets of a bundle: what one UDP datagram over IPv4 carries.
pub const LONGEST: usize = 65_507;
/// Octets of a message's address.
pub const ADDRESS: usize = 2;
/// Octets of a message of control to the central converter, or from it to one of level 1.
pub const CONTROL: usize = 22;
/// Octets of a message of control to a host.
pub const HOST_CONTROL: usize = 24;
/// The group of control to hosts.
pub const EVERY_HOST: u16 = 0xFFFF;
/// Most hosts: one for each bit of a group.
pub const MOST_HOSTS: u8 = 16;
/// Messages addresses of one packet address.
pub const ADDRESSES_A_PACKET: u16 = 32;
/// Packet addresses.
pub const PACKETS: usize = 65_536 / ADDRESSES_A_PACKET as usize;

/// Octets of the mask.
const MASK: usize = 2;
/// Octets of an end.
const END: usize = 2;
/// The two highest bits: from a converter of level 1.
const LEVEL_1: u16 = 0xC000;

/// Who sent a bundle to the central converter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A host, 1 to 16.
    Host(u8),
    /// A converter of level 1, from 1 on.
    Level1(u16),
}

impl Source {
    /// The mask of its bundles.
    pub fn mask(self) -> u16 {
        match self {
            Source::Host(host) => bit(host),
            Source::Level1(number) => LEVEL_1 | number,
        }
    }

    /// Whose mask that is; nobody's has no bit, several without both highest, or those alone.
    pub fn of(mask: u16) -> Option<Source> {
        match (mask.is_power_of_two(), mask & LEVEL_1 == LEVEL_1, mask & !LEVEL_1) {
            (true, ..) => Some(Source::Host(mask.trailing_zeros() as u8 + 1)),
            (_, true, number) if number > 0 => Some(Source::Level1(number)),
            _ => None,
        }
    }
}

/// The bit of a host, 1 to 16, in groups and masks.
pub fn bit(host: u8) -> u16 {
    debug_assert!((1..=MOST_HOSTS).contains(&host), "hosts are 1 to 16");
    1 << (host - 1)
}

/// A message of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Messages with this address are wanted; to level 1: its packet address.
    Join(u16),
    /// No more.
    Drop(u16),
    /// The level of congestion, 3 (none) to 6 (most).
    Level(u8),
}

impl Control {
    /// What a message of 22 octets says; none if its action does not exist.
    pub fn read(message: Message<'_>) -> Option<Control> {
        match *message.body.first()? {
            1 => Some(Control::Join(message.address)),
            2 => Some(Control::Drop(message.address)),
            level @ 3..=6 => Some(Control::Level(level)),
            _ => None,
        }
    }

    /// What a message of 24 octets says to a host.
    pub fn read_for_host(message: Message<'_>) -> Option<Control> {
        match (message.address, *message.body.first()?) {
            (EVERY_HOST, level @ 3..=6) => Some(Control::Level(level)),
            _ => None,
        }
    }

    /// Its address and body, as to the central converter and to level 1.
    pub fn write(self) -> (u16, [u8; CONTROL - ADDRESS]) {
        let mut body = [0; CONTROL - ADDRESS];
        let (address, action) = match self {
            Control::Join(address) => (address, 1),
            Control::Drop(address) => (address, 2),
            Control::Level(level) => (0, level),
        };
        body[0] = action;
        (address, body)
    }

    /// The body of a level for hosts; its group is [`EVERY_HOST`].
    pub fn write_for_hosts(level: u8) -> [u8; HOST_CONTROL - ADDRESS] {
        let mut body = [0; HOST_CONTROL - ADDRESS];
        body[0] = level;
        body
    }
}

/// A message of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its address; from the central converter to hosts: the hosts that want it, a bit each.
    pub address: u16,
    /// All behind the address.
    pub body: &'a [u8],
}

impl<'a> Message<'a> {
    /// A message with its address before it, as it crosses the wide area.
    pub fn read(bytes: &'a [u8]) -> Option<Message<'a>> {
        let (address, body) = bytes.split_first_chunk::<ADDRESS>()?;
        Some(Message { address: u16::from_be_bytes(*address), body })
    }

    /// Octets of it with its address.
    pub fn octets(self) -> usize {
        ADDRESS + self.body.len()
    }
}

/// Why a bundle is none.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Malformed {
    /// It has no room for what every bundle has.
    #[error("a bundle is cut short")]
    Short,
    /// It has no message.
    #[error("a bundle without messages")]
    Empty,
    /// Its ends do not rise from its first message to the list of them, or leave a message without an address.
    #[error("the ends of a bundle's messages lie")]
    Ends,
    /// Nobody has its mask.
    #[error("nobody has the mask {0:#06x} of a bundle")]
    Mask(u16),
}

/// A bundle that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bundle<'a> {
    bytes: &'a [u8],
    first: usize,
    ends: &'a [u8],
}

impl<'a> Bundle<'a> {
    /// Reads what came to the central converter, and who sent it.
    ///
    /// # Errors
    /// Why it is none. All of it is then to be dropped: no part can be trusted.
    pub fn read_with_mask(bytes: &'a [u8]) -> Result<(Source, Bundle<'a>), Malformed> {
        let mask = bytes.first_chunk::<MASK>().ok_or(Malformed::Short)?;
        let mask = u16::from_be_bytes(*mask);
        let source = Source::of(mask).ok_or(Malformed::Mask(mask))?;
        Ok((source, Bundle::read_from(bytes, MASK)?))
    }

    /// Reads what came from the central converter.
    ///
    /// # Errors
    /// Why it is none.
    pub fn read(bytes: &'a [u8]) -> Result<Bundle<'a>, Malformed> {
        Bundle::read_from(bytes, 0)
    }

    fn read_from(bytes: &'a [u8], first: usize) -> Result<Bundle<'a>, Malformed> {
        let (count, rest) = bytes.split_last().ok_or(Malformed::Short)?;
        let count = usize::from(*count);
        if count == 0 {
            return Err(Malformed::Empty);
        }
        let messages =
            rest.len().checked_sub(count * END).filter(|end| *end >= first).ok_or(Malformed::Short)?;
        let ends = &rest[messages..];
        let mut before = first;
        for end in ends.chunks_exact(END) {
            let end = usize::from(u16::from_be_bytes([end[0], end[1]]));
            if end < before + ADDRESS || end > messages {
                return Err(Malformed::Ends);
            }
            before = end;
        }
        match before == messages {
            true => Ok(Bundle { bytes, first, ends }),
            false => Err(Malformed::Ends),
        }
    }

    /// How many messages it has.
    pub fn count(&self) -> usize {
        self.ends.len() / END
    }

    /// Its messages, in their order.
    pub fn messages(&self) -> impl Iterator<Item = Message<'a>> + use<'a> {
        let (bytes, mut from) = (self.bytes, self.first);
        self.ends.chunks_exact(END).filter_map(move |end| {
            let end = usize::from(u16::from_be_bytes([end[0], end[1]]));
            let message = Message::read(bytes.get(from..end)?);
            from = end;
            message
        })
    }
}

/// A bundle that is being gathered.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    /// Mask, if there is one, and messages.
    bytes: Vec<u8>,
    ends: Vec<u8>,
    /// Octets of the mask.
    first: usize,
    /// Octets that the bundle may have.
    longest: usize,
}

impl Builder {
    /// Of bundles with the mask of `source`, or without, of at most `longest` octets, which is no more than [`LONGEST`].
    pub fn new(source: Option<Source>, longest: usize) -> Builder {
        let mut bytes = Vec::new();
        if let Some(source) = source {
            bytes.extend_from_slice(&source.mask().to_be_bytes());
        }
        let first = bytes.len();
        Builder { bytes, ends: Vec::new(), first, longest: longest.min(LONGEST) }
    }

    /// Messages gathered.
    pub fn count(&self) -> usize {
        self.ends.len() / END
    }

    /// Whether nothing was gathered.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Octets of the bundle as it stands.
    pub fn octets(&self) -> usize {
        self.bytes.len() + self.ends.len() + 1
    }

    /// Octets that a message's body may have at the most, in a bundle of its own.
    pub fn longest_body(&self) -> usize {
        self.longest.saturating_sub(self.first + ADDRESS + END + 1)
    }

    /// Whether a message with a body of so many octets still fits.
    pub fn has_room(&self, body: usize) -> bool {
        self.count() < MOST_MESSAGES && self.octets() + ADDRESS + body + END <= self.longest
    }

    /// Adds a message; whether there was room.
    pub fn push(&mut self, address: u16, body: &[u8]) -> bool {
        let fits = self.has_room(body.len());
        if fits {
            self.bytes.extend_from_slice(&address.to_be_bytes());
            self.bytes.extend_from_slice(body);
            self.ends.extend_from_slice(&(self.bytes.len() as u16).to_be_bytes());
        }
        fits
    }

    /// Writes the bundle and begins the next; how many octets.
    ///
    /// # Panics
    /// If `into` has no room for it, or it has no message.
    pub fn finish(&mut self, into: &mut [u8]) -> usize {
        assert!(!self.is_empty(), "a bundle has a message at least");
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
    fn masks_are_of_one_host_or_of_level_1() {
        for host in 1..=16 {
            assert_eq!(Source::of(Source::Host(host).mask()), Some(Source::Host(host)));
        }
        assert_eq!((Source::Host(1).mask(), Source::Host(3).mask(), Source::Host(16).mask()), (1, 4, 0x8000));
        for number in 1..0x4000 {
            assert_eq!(Source::of(0xC000 | number), Some(Source::Level1(number)));
        }
        let nobody = (0..=u16::MAX).filter(|mask| Source::of(*mask).is_none()).count();
        assert_eq!(nobody, 65_536 - 16 - 0x3FFF);
    }

    #[test]
    fn a_bundle_as_it_is_printed() {
        let mut builder = Builder::new(Some(Source::Host(3)), LONGEST);
        assert!(builder.push(21, b"ab") && builder.push(0x1234, b""));
        let mut bytes = [0; 32];
        let length = builder.finish(&mut bytes);
        assert_eq!(bytes[..length], [0, 4, 0, 21, b'a', b'b', 0x12, 0x34, 0, 6, 0, 8, 2]);
        let (source, bundle) = Bundle::read_with_mask(&bytes[..length]).unwrap();
        assert_eq!((source, bundle.count()), (Source::Host(3), 2));
        let messages: Vec<_> = bundle.messages().collect();
        assert_eq!(messages[0], Message { address: 21, body: b"ab" });
        assert_eq!(messages[1], Message { address: 0x1234, body: b"" });
        assert!(builder.is_empty());
    }

    #[test]
    fn a_bundle_is_full_at_255_messages_or_65_507_octets() {
        let mut builder = Builder::new(None, LONGEST);
        (0..255).for_each(|n| assert!(builder.push(n, b"")));
        assert!(!builder.push(255, b""));
        let mut bytes = vec![0; LONGEST];
        let length = builder.finish(&mut bytes);
        assert_eq!(Bundle::read(&bytes[..length]).unwrap().count(), 255);
        let longest = builder.longest_body();
        assert!(!builder.push(1, &vec![9; longest + 1]) && builder.push(1, &vec![9; longest]));
        assert_eq!(builder.finish(&mut bytes), LONGEST);
        assert_eq!(Bundle::read(&bytes).unwrap().messages().next().unwrap().body.len(), longest);
    }

    #[test]
    fn control_is_told_by_its_length() {
        for control in [Control::Join(65_535), Control::Drop(0), Control::Level(3), Control::Level(6)] {
            let (address, body) = control.write();
            assert_eq!(Control::read(Message { address, body: &body }), Some(control));
            assert_eq!(body.len() + ADDRESS, CONTROL);
        }
        let body = Control::write_for_hosts(5);
        let read = Control::read_for_host(Message { address: EVERY_HOST, body: &body });
        assert_eq!((read, body.len() + ADDRESS), (Some(Control::Level(5)), HOST_CONTROL));
        assert_eq!(Control::read_for_host(Message { address: 7, body: &body }), None);
        for action in [0, 7, 255] {
            assert_eq!(Control::read(Message { address: 0, body: &[action] }), None);
        }
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(
            messages in prop::collection::vec((any::<u16>(), prop::collection::vec(any::<u8>(), 0..300)), 1..=255),
            host in prop::option::of(1u8..=16),
        ) {
            let mut builder = Builder::new(host.map(Source::Host), LONGEST);
            let taken = messages.iter().take_while(|(address, body)| builder.push(*address, body)).count();
            let mut bytes = vec![0; LONGEST];
            let announced = builder.octets();
            let length = builder.finish(&mut bytes);
            prop_assert_eq!(announced, length);
            let bundle = match host {
                Some(host) => {
                    let (source, bundle) = Bundle::read_with_mask(&bytes[..length]).unwrap();
                    prop_assert_eq!(source, Source::Host(host));
                    bundle
                }
                None => Bundle::read(&bytes[..length]).unwrap(),
            };
            let read: Vec<_> = bundle.messages().map(|m| (m.address, m.body.to_vec())).collect();
            prop_assert_eq!(&read[..], &messages[..taken]);
        }

        /// Whatever comes, each octet before the ends is in one message, or all is refused.
        #[test]
        fn any_octets_are_whole_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80), count in 0u8..9) {
            let mut bytes = bytes;
            bytes.push(count);
            if let Ok(bundle) = Bundle::read(&bytes) {
                prop_assert_eq!(bundle.messages().count(), bundle.count());
                let octets: usize = bundle.messages().map(Message::octets).sum();
                prop_assert_eq!(octets + 2 * bundle.count() + 1, bytes.len());
            }
        }
    }
}
