//! Ports, peer addresses and batches of frames.

use std::fmt;
use std::num::NonZeroU16;

/// Maximum length of a frame or batch in bytes: the payload of a UDP datagram over IPv4.
pub const MAX_BATCH: usize = 65_507;

/// Maximum number of frames in a batch: the original limit of UDP segmentation offload in Linux (`UDP_MAX_SEGMENTS`).
pub const MAX_SEGMENTS: usize = 64;

/// A socket, an interface or a station, numbered from 0 by the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(pub u16);

/// Maximum length of an address in bytes: an IPv6 address with port and scope takes 22.
const PEER_BYTES: usize = 23;

/// An opaque address. Its bytes have a meaning only for the driver (a socket address, a MAC address, a station); the
/// endpoint copies it, compares it, and returns it to reply without storing state about the peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    bytes: [u8; PEER_BYTES],
    length: u8,
}

impl Peer {
    /// No address: the other end of a point-to-point line, or all stations of a broadcast port.
    pub const NONE: Peer = Peer { bytes: [0; PEER_BYTES], length: 0 };

    /// Creates an address from at most 23 bytes.
    ///
    /// # Panics
    /// If `address` is longer: addresses come from drivers, not from the network.
    #[inline]
    pub const fn new(address: &[u8]) -> Peer {
        assert!(address.len() <= PEER_BYTES, "an address has at most 23 bytes");
        let mut bytes = [0; PEER_BYTES];
        bytes.split_at_mut(address.len()).0.copy_from_slice(address);
        Peer { bytes, length: address.len() as u8 }
    }

    /// Returns its bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Peer(")?;
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// The length of the frames of a batch. A batch is a sequence of frames of this length, of which only the last may be
/// shorter: at most [`MAX_SEGMENTS`] frames and [`MAX_BATCH`] bytes, all to or from one peer through one port. A batch
/// is equivalent to its frames one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    length: NonZeroU16,
}

impl Segment {
    /// Creates a segment of `length` bytes.
    pub const fn new(length: NonZeroU16) -> Segment {
        Segment { length }
    }

    /// Returns the segment for `total` bytes in frames of `frame` bytes; none for a single frame.
    pub fn of(frame: usize, total: usize) -> Option<Segment> {
        let length = u16::try_from(frame).ok().and_then(NonZeroU16::new)?;
        (total > frame).then_some(Segment { length })
    }

    /// Returns the length in bytes of every frame but the last.
    pub const fn length(self) -> usize {
        self.length.get() as usize
    }

    /// Iterates over the frames in `bytes`. Without a segment this is a single frame, which may be empty.
    pub fn frames(segment: Option<Segment>, bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
        let length = segment.map_or(bytes.len(), Segment::length);
        let empty = bytes.is_empty().then_some(bytes);
        empty.into_iter().chain(bytes.chunks(length.max(1)))
    }

    /// Returns whether `total` bytes are within the limits of a frame or batch.
    pub fn fits(segment: Option<Segment>, total: usize) -> bool {
        total <= MAX_BATCH && segment.is_none_or(|s| total.div_ceil(s.length()) <= MAX_SEGMENTS)
    }
}

/// The ports that accept a frame now.
#[derive(Clone, Copy, Debug)]
pub struct Writable<'a>(Bits<'a>);

#[derive(Clone, Copy, Debug)]
enum Bits<'a> {
    All,
    Some(&'a [u64]),
}

impl Writable<'_> {
    /// Every port.
    pub const ALL: Writable<'static> = Writable(Bits::All);
    /// No port.
    pub const NONE: Writable<'static> = Writable(Bits::Some(&[]));

    /// Returns whether `port` accepts a frame.
    #[inline]
    pub fn has(self, port: Port) -> bool {
        match self.0 {
            Bits::All => true,
            Bits::Some(words) => {
                words.get(usize::from(port.0 / 64)).is_some_and(|word| word & (1 << (port.0 % 64)) != 0)
            }
        }
    }
}

/// A set of ports, for drivers with more than one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortSet(Vec<u64>);

impl PortSet {
    /// Adds a port. Allocates only for a port number higher than all before.
    pub fn insert(&mut self, port: Port) {
        let word = usize::from(port.0 / 64);
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (port.0 % 64);
    }

    /// Removes a port.
    pub fn remove(&mut self, port: Port) {
        if let Some(word) = self.0.get_mut(usize::from(port.0 / 64)) {
            *word &= !(1 << (port.0 % 64));
        }
    }

    /// Returns the set as an endpoint receives it.
    pub fn writable(&self) -> Writable<'_> {
        Writable(Bits::Some(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(length: u16) -> Option<Segment> {
        Some(Segment::new(NonZeroU16::new(length).unwrap()))
    }

    #[test]
    fn a_batch_is_its_frames() {
        let frames = |segment, bytes| Segment::frames(segment, bytes).map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(frames(segment(2), b"abcde"), [b"ab".to_vec(), b"cd".to_vec(), b"e".to_vec()]);
        assert_eq!(frames(None, b"abcde"), [b"abcde".to_vec()]);
        assert_eq!(frames(segment(9), b"abcde"), [b"abcde".to_vec()]);
        assert_eq!(frames(None, b""), [b"".to_vec()]);
        assert_eq!(Segment::of(5, 5), None);
        assert_eq!(Segment::of(5, 6), segment(5));
        assert_eq!(Segment::of(0, 6), None);
    }

    #[test]
    fn a_batch_has_limits() {
        assert!(Segment::fits(segment(1000), 64_000) && !Segment::fits(segment(1000), 64_001));
        assert!(Segment::fits(None, MAX_BATCH) && !Segment::fits(None, MAX_BATCH + 1));
        assert!(!Segment::fits(segment(2000), MAX_BATCH + 1));
    }

    #[test]
    fn ports_are_inserted_and_removed() {
        let mut set = PortSet::default();
        [0, 1, 200].into_iter().for_each(|port| set.insert(Port(port)));
        set.remove(Port(1));
        set.remove(Port(9999));
        let has: Vec<u16> = (0..300).filter(|p| set.writable().has(Port(*p))).collect();
        assert_eq!(has, [0, 200]);
        assert!(Writable::ALL.has(Port(u16::MAX)) && !Writable::NONE.has(Port(0)));
    }

    #[test]
    fn a_peer_returns_its_bytes() {
        assert_eq!(Peer::new(&[1, 2, 0]).as_bytes(), [1, 2, 0]);
        assert_ne!(Peer::new(&[1, 2, 0]), Peer::new(&[1, 2]));
        assert_eq!(Peer::new(&[]), Peer::NONE);
        assert_eq!(format!("{:?}", Peer::new(&[2, 255])), "Peer(02ff)");
        assert_eq!(size_of::<Peer>(), 24);
    }
}
