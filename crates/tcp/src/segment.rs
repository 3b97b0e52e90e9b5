//! The TCP header: 20 bytes, big endian, then options (RFC 793, section 3.1; window scale RFC 1323, section 2).

use std::ops::Add;

/// Length of a header without options, in bytes.
pub const HEADER: usize = 20;

/// Length of the longest header, in bytes.
pub const LONGEST_HEADER: usize = 60;

/// The sender has no more data.
pub const FIN: u8 = 1;
/// Synchronizes sequence numbers.
pub const SYN: u8 = 2;
/// Resets the connection.
pub const RST: u8 = 4;
/// Push: the sender's queue is empty.
pub const PSH: u8 = 8;
/// The acknowledgement field is valid.
pub const ACK: u8 = 16;

/// Largest shift of a window (RFC 1323, section 2.3).
pub const LARGEST_SCALE: u8 = 14;

/// Supported options and padding.
const END: u8 = 0;
const NOTHING: u8 = 1;
const MSS: u8 = 2;
const SCALE: u8 = 3;

/// A sequence number modulo 2³². Comparisons use the shorter distance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seq(pub u32);

impl Seq {
    /// Returns the distance from `earlier`.
    #[inline]
    pub const fn since(self, earlier: Seq) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Returns whether this number precedes `other`.
    #[inline]
    pub const fn before(self, other: Seq) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Returns whether this number follows `other`.
    #[inline]
    pub const fn after(self, other: Seq) -> bool {
        other.before(self)
    }
}

impl Add<u32> for Seq {
    type Output = Seq;
    #[inline]
    fn add(self, n: u32) -> Seq {
        Seq(self.0.wrapping_add(n))
    }
}

/// A decoded header, without urgent data, which is ignored, and the checksum, which the caller handles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Sequence number of the first byte, or of the SYN.
    pub seq: Seq,
    /// Next sequence number that the sender expects, if [`ACK`] is set.
    pub ack: Seq,
    /// [`FIN`], [`SYN`], [`RST`], [`PSH`], [`ACK`].
    pub flags: u8,
    /// Window field, before scaling.
    pub window: u16,
}

/// Options of a SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Maximum segment size of its sender.
    pub mss: Option<u16>,
    /// Window scale of its sender, at most [`LARGEST_SCALE`].
    pub scale: Option<u8>,
}

/// Why a segment is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Shorter than a header.
    Short,
    /// Its data offset is shorter than a header or longer than the segment.
    Offset,
    /// Its ports are not those of this connection.
    Ports,
    /// It belongs to no connection and cannot open one.
    Stray,
    /// It acknowledges data that was never sent.
    Unsent,
}

impl Header {
    /// Decodes the header of `segment`; returns it with its length including options.
    ///
    /// # Errors
    /// [`Problem::Short`] or [`Problem::Offset`] if the bytes are not a segment.
    #[inline]
    pub fn parse(segment: &[u8]) -> Result<(Header, usize), Problem> {
        let b: &[u8; HEADER] = segment.first_chunk().ok_or(Problem::Short)?;
        let length = usize::from(b[12] >> 4) * 4;
        if length < HEADER || length > segment.len() {
            return Err(Problem::Offset);
        }
        let header = Header {
            source: u16::from_be_bytes([b[0], b[1]]),
            destination: u16::from_be_bytes([b[2], b[3]]),
            seq: Seq(u32::from_be_bytes([b[4], b[5], b[6], b[7]])),
            ack: Seq(u32::from_be_bytes([b[8], b[9], b[10], b[11]])),
            flags: b[13],
            window: u16::from_be_bytes([b[14], b[15]]),
        };
        Ok((header, length))
    }

    /// Encodes the header into `buffer` with zero checksum and urgent pointer; returns its length: 20 bytes, or up to
    /// 28 with an offer.
    ///
    /// # Panics
    /// If the buffer is too short.
    #[inline]
    pub fn write(&self, offer: Option<Offer>, buffer: &mut [u8]) -> usize {
        let length = HEADER + offer.map_or(0, |offer| offer.write(&mut buffer[HEADER..]));
        let b: &mut [u8; HEADER] = buffer.first_chunk_mut().expect("a buffer has room for a header");
        b[0..2].copy_from_slice(&self.source.to_be_bytes());
        b[2..4].copy_from_slice(&self.destination.to_be_bytes());
        b[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        b[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        b[12] = (length as u8 / 4) << 4;
        b[13] = self.flags;
        b[14..16].copy_from_slice(&self.window.to_be_bytes());
        b[16..20].fill(0);
        length
    }

    /// Returns whether any of `flags` is set.
    #[inline]
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }
}

impl Offer {
    /// Decodes the options of a SYN. Unknown options are skipped; decoding stops at an option with an invalid length.
    pub fn parse(mut options: &[u8]) -> Offer {
        let mut offer = Offer::default();
        loop {
            options = match *options {
                [] | [END, ..] => return offer,
                [NOTHING, ref rest @ ..] => rest,
                [kind, length, ..] if length >= 2 && usize::from(length) <= options.len() => {
                    let (option, rest) = options.split_at(usize::from(length));
                    match (kind, &option[2..]) {
                        (MSS, &[high, low]) => offer.mss = Some(u16::from_be_bytes([high, low])),
                        (SCALE, &[shift]) => offer.scale = Some(shift.min(LARGEST_SCALE)),
                        _ => {}
                    }
                    rest
                }
                _ => return offer,
            }
        }
    }

    fn write(self, buffer: &mut [u8]) -> usize {
        let mut length = 0;
        let mut put = |bytes: &[u8; 4]| {
            buffer[length..length + 4].copy_from_slice(bytes);
            length += 4;
        };
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            put(&[MSS, 4, high, low]);
        }
        if let Some(shift) = self.scale {
            put(&[NOTHING, SCALE, 3, shift]);
        }
        length
    }
}

/// Returns the length of the header of `segment` including options; 0 if the bytes are not a segment.
#[inline]
pub fn header_length(segment: &[u8]) -> usize {
    Header::parse(segment).map_or(0, |(_, length)| length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_wrap() {
        let late = Seq(u32::MAX - 1);
        assert_eq!(late + 3, Seq(1));
        assert!(late.before(late + 3) && (late + 3).after(late) && !late.after(late));
        assert_eq!((late + 3).since(late), 3);
    }

    #[test]
    fn what_is_written_is_read() {
        let header = Header {
            source: 1,
            destination: 0xfffe,
            seq: Seq(0x0102_0304),
            ack: Seq(0xf0e0_d0c0),
            flags: SYN | ACK,
            window: 0x1234,
        };
        let offers = [
            (None, 20),
            (Some(Offer { mss: Some(9140), scale: None }), 24),
            (Some(Offer { mss: Some(9140), scale: Some(7) }), 28),
        ];
        for (offer, length) in offers {
            let mut buffer = [0xaa; 64];
            assert_eq!(header.write(offer, &mut buffer), length);
            assert_eq!(Header::parse(&buffer), Ok((header, length)));
            assert_eq!(Offer::parse(&buffer[HEADER..length]), offer.unwrap_or_default());
            assert_eq!(header_length(&buffer), length);
            assert!(Header::parse(&buffer[..length - 1]).is_err());
        }
    }

    #[test]
    fn a_lying_length_ends_the_options() {
        assert_eq!(Offer::parse(&[9, 3, 0, 2, 4, 5, 0xb4]).mss, Some(0x5b4));
        assert_eq!(Offer::parse(&[9, 1, 2, 4, 5, 0xb4]), Offer::default());
        assert_eq!(Offer::parse(&[9, 0, 2, 4, 5, 0xb4]), Offer::default());
        assert_eq!(Offer::parse(&[2, 4, 5]), Offer::default());
        assert_eq!(Offer::parse(&[2, 3, 5, 1, 3, 3, 99]).scale, Some(14));
        assert_eq!(Offer::parse(&[0, 2, 4, 5, 0xb4]), Offer::default());
        assert_eq!(Offer::parse(&[2]), Offer::default());
    }

    #[test]
    fn no_segment_no_header() {
        assert_eq!(Header::parse(&[0; 19]), Err(Problem::Short));
        let mut bytes = [0; 24];
        for (offset, ok) in [(0, false), (4, false), (5, true), (6, true), (7, false), (15, false)] {
            bytes[12] = offset << 4;
            assert_eq!(Header::parse(&bytes).is_ok(), ok, "{offset}");
        }
    }
}
