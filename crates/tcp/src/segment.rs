//! The TCP header: 20 bytes, big endian, then options (RFC 793, section 3.1; window scale RFC 1323, section 2; selective
//! acknowledgement RFC 2018; timestamps RFC 7323; ECN RFC 3168; Accurate ECN RFC 9768).

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
/// ECN-Echo: the receiver has seen congestion.
pub const ECE: u8 = 64;
/// Congestion window reduced: the sender has answered an ECN-Echo.
pub const CWR: u8 = 128;

/// The flag AE of Accurate ECN, in the byte before the other flags (RFC 9768 section 3.1).
const AE: u8 = 1;
const AE_BYTE: usize = 12;

/// Largest shift of a window (RFC 1323, section 2.3).
pub const LARGEST_SCALE: u8 = 14;

/// Supported options and padding.
const END: u8 = 0;
const NOTHING: u8 = 1;
const MSS: u8 = 2;
const SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
/// Byte counters of Accurate ECN: ECT(0), CE, ECT(1), or in reverse (RFC 9768 section 3.2.3).
const ACCURATE_ECN_0: u8 = 172;
const ACCURATE_ECN_1: u8 = 174;

/// Maximum number of blocks of selective acknowledgement in a header (RFC 2018 section 3).
pub const MAX_BLOCKS: usize = 4;

/// Bytes of the timestamps option with its padding.
pub(crate) const TIMESTAMPS_LENGTH: u32 = 12;

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
    /// [`FIN`], [`SYN`], [`RST`], [`PSH`], [`ACK`], [`ECE`], [`CWR`].
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
    /// Whether its sender understands selective acknowledgements.
    pub sack_permitted: bool,
    /// Timestamp value and echo.
    pub timestamps: Option<(u32, u32)>,
}

/// Options of a segment other than a SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentOptions {
    /// Timestamp value and echo.
    pub timestamps: Option<(u32, u32)>,
    /// Blocks of selective acknowledgement, start and end, of which the first `block_count` are valid.
    pub blocks: [(Seq, Seq); MAX_BLOCKS],
    /// Number of blocks; with timestamps at most three fit.
    pub block_count: usize,
    /// Byte counters of Accurate ECN.
    pub ecn_bytes: Option<EcnBytes>,
}

/// Payload bytes that have arrived by ECN field, modulo 2²⁴, as far as an option of Accurate ECN has them (RFC 9768 section
/// 3.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EcnBytes {
    /// With ECT(0), plus 1.
    pub ect0: Option<u32>,
    /// With CE.
    pub ce: Option<u32>,
    /// With ECT(1), plus 1.
    pub ect1: Option<u32>,
}

impl EcnBytes {
    /// Bytes of an option with CE and one other counter.
    pub(crate) const LENGTH: usize = 8;

    fn parse(data: &[u8], is_reversed: bool) -> Option<EcnBytes> {
        let counter = |n: usize| data.get(3 * n..3 * n + 3).map(word);
        let (first, ce, last) = (counter(0), counter(1), counter(2));
        let (ect0, ect1) = if is_reversed { (last, first) } else { (first, last) };
        matches!(data.len(), 0 | 3 | 6 | 9).then_some(EcnBytes { ect0, ce, ect1 })
    }

    /// Encodes the counter of CE behind that of ECT(1) if it has one, otherwise of ECT(0).
    fn write(&self) -> [u8; EcnBytes::LENGTH] {
        let (kind, first) = match self.ect1 {
            Some(bytes) => (ACCURATE_ECN_1, bytes),
            None => (ACCURATE_ECN_0, self.ect0.unwrap_or(0)),
        };
        let ([_, a, b, c], [_, d, e, f]) = (first.to_be_bytes(), self.ce.unwrap_or(0).to_be_bytes());
        [kind, EcnBytes::LENGTH as u8, a, b, c, d, e, f]
    }
}

/// Returns the field ACE of an encoded header: the flags AE, CWR and ECE as three bits (RFC 9768 section 3.2.2).
///
/// # Panics
/// If the header is too short.
#[inline]
pub fn ace(header: &[u8]) -> u8 {
    (header[AE_BYTE] & AE) << 2 | header[AE_BYTE + 1] >> 6
}

/// Sets the flags of a field ACE in an encoded header that has none of them.
///
/// # Panics
/// If the header is too short.
pub fn set_ace(header: &mut [u8], ace: u8) {
    header[AE_BYTE] |= ace >> 2 & AE;
    header[AE_BYTE + 1] |= ace << 6;
}

/// The options in a header: kind and data. Unknown ones are returned too; it ends at an option with an invalid length.
struct OptionReader<'a>(&'a [u8]);

impl<'a> Iterator for OptionReader<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        while let [NOTHING, rest @ ..] = self.0 {
            self.0 = rest;
        }
        match *self.0 {
            [] | [END, ..] => None,
            [kind, length, ..] if length >= 2 && usize::from(length) <= self.0.len() => {
                let (option, rest) = self.0.split_at(usize::from(length));
                self.0 = rest;
                Some((kind, &option[2..]))
            }
            _ => None,
        }
    }
}

fn word(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// Reads value and echo.
#[inline]
fn timestamps(data: &[u8]) -> Option<(u32, u32)> {
    let both = u64::from_be_bytes(data.try_into().ok()?);
    Some(((both >> 32) as u32, both as u32))
}

#[inline]
fn timestamps_option(value: u32, echo: u32) -> [u8; TIMESTAMPS_LENGTH as usize] {
    let mut option = [NOTHING, NOTHING, TIMESTAMPS, 10, 0, 0, 0, 0, 0, 0, 0, 0];
    option[4..8].copy_from_slice(&value.to_be_bytes());
    option[8..].copy_from_slice(&echo.to_be_bytes());
    option
}

/// Decodes options in the usual layout of timestamps without others (RFC 7323 appendix A): value and echo.
#[inline]
pub(crate) fn only_timestamps(options: &[u8]) -> Option<(u32, u32)> {
    let (start, data) = options.split_first_chunk()?;
    if *start == [NOTHING, NOTHING, TIMESTAMPS, 10] { timestamps(data) } else { None }
}

/// Encodes timestamps without other options, as [`SegmentOptions::write`] does.
///
/// # Panics
/// If the buffer is too short.
#[inline]
pub(crate) fn write_timestamps(value: u32, echo: u32, buffer: &mut [u8]) -> usize {
    const LENGTH: usize = HEADER + TIMESTAMPS_LENGTH as usize;
    let b: &mut [u8; LENGTH] = buffer.first_chunk_mut().expect("a buffer has room for a header");
    b[12] = (LENGTH as u8 / 4) << 4;
    b[HEADER..].copy_from_slice(&timestamps_option(value, echo));
    LENGTH
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
    /// 44 with an offer.
    ///
    /// # Panics
    /// If the buffer is too short.
    #[inline(always)]
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
    pub fn parse(options: &[u8]) -> Offer {
        let mut offer = Offer::default();
        for (kind, data) in OptionReader(options) {
            match (kind, data) {
                (MSS, &[high, low]) => offer.mss = Some(u16::from_be_bytes([high, low])),
                (SCALE, &[shift]) => offer.scale = Some(shift.min(LARGEST_SCALE)),
                (SACK_PERMITTED, &[]) => offer.sack_permitted = true,
                (TIMESTAMPS, data) => offer.timestamps = timestamps(data).or(offer.timestamps),
                _ => {}
            }
        }
        offer
    }

    fn write(self, buffer: &mut [u8]) -> usize {
        let mut length = 0;
        let mut put = |bytes: &[u8]| {
            buffer[length..length + bytes.len()].copy_from_slice(bytes);
            length += bytes.len();
        };
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            put(&[MSS, 4, high, low]);
        }
        if let Some(shift) = self.scale {
            put(&[NOTHING, SCALE, 3, shift]);
        }
        if self.sack_permitted {
            put(&[NOTHING, NOTHING, SACK_PERMITTED, 2]);
        }
        if let Some((value, echo)) = self.timestamps {
            put(&timestamps_option(value, echo));
        }
        length
    }
}

impl SegmentOptions {
    /// Decodes the options of a segment, as [`Offer::parse`] does.
    pub fn parse(options: &[u8]) -> SegmentOptions {
        let mut found = SegmentOptions::default();
        for (kind, data) in OptionReader(options) {
            match kind {
                TIMESTAMPS => found.timestamps = timestamps(data).or(found.timestamps),
                SACK if data.len().is_multiple_of(8) => {
                    for block in data.chunks_exact(8).take(MAX_BLOCKS) {
                        found.push_block(Seq(word(&block[..4])), Seq(word(&block[4..])));
                    }
                }
                ACCURATE_ECN_0 | ACCURATE_ECN_1 => {
                    found.ecn_bytes = EcnBytes::parse(data, kind == ACCURATE_ECN_1).or(found.ecn_bytes);
                }
                _ => {}
            }
        }
        found
    }

    /// Adds a block if there is room for it.
    pub fn push_block(&mut self, start: Seq, end: Seq) {
        let most = if self.timestamps.is_some() { MAX_BLOCKS - 1 } else { MAX_BLOCKS };
        if self.block_count < most {
            self.blocks[self.block_count] = (start, end);
            self.block_count += 1;
        }
    }

    /// Returns the blocks.
    #[inline]
    pub fn blocks(&self) -> &[(Seq, Seq)] {
        &self.blocks[..self.block_count]
    }

    /// Encodes the options behind a header of [`HEADER`] bytes in `buffer`, whose length field it updates; returns the length
    /// of both.
    ///
    /// # Panics
    /// If the buffer is too short.
    pub fn write(&self, buffer: &mut [u8]) -> usize {
        let mut length = HEADER;
        let mut put = |bytes: &[u8]| {
            buffer[length..length + bytes.len()].copy_from_slice(bytes);
            length += bytes.len();
        };
        if let Some((value, echo)) = self.timestamps {
            put(&timestamps_option(value, echo));
        }
        if self.block_count > 0 {
            put(&[NOTHING, NOTHING, SACK, 2 + 8 * self.block_count as u8]);
            for (start, end) in self.blocks() {
                put(&start.0.to_be_bytes());
                put(&end.0.to_be_bytes());
            }
        }
        if let Some(ecn_bytes) = self.ecn_bytes {
            put(&ecn_bytes.write());
        }
        buffer[12] = (length as u8 / 4) << 4;
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
            (Some(Offer { mss: Some(9140), ..Offer::default() }), 24),
            (Some(Offer { mss: Some(9140), scale: Some(7), ..Offer::default() }), 28),
            (
                Some(Offer {
                    mss: Some(1460),
                    scale: Some(7),
                    sack_permitted: true,
                    timestamps: Some((0x0102_0304, u32::MAX)),
                }),
                44,
            ),
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
    fn options_of_a_segment_are_read_as_written() {
        for timestamps in [None, Some((1, 0xfedc_ba98))] {
            for count in 0..=MAX_BLOCKS {
                let mut options = SegmentOptions { timestamps, ..SegmentOptions::default() };
                for n in 0..count as u32 {
                    options.push_block(Seq(u32::MAX - n * 100), Seq(u32::MAX - n * 100) + 50);
                }
                let mut buffer = [0xaa; LONGEST_HEADER];
                Header::default().write(None, &mut buffer);
                let length = options.write(&mut buffer);
                let blocks = if count > 0 { 4 + 8 * options.block_count } else { 0 };
                let expected = HEADER + timestamps.map_or(0, |_| 12) + blocks;
                assert_eq!((length, header_length(&buffer)), (expected, expected));
                assert_eq!(SegmentOptions::parse(&buffer[HEADER..length]), options);
                let only = timestamps.filter(|_| count == 0);
                assert_eq!(only_timestamps(&buffer[HEADER..length]), only);
                if let Some((value, echo)) = only {
                    let mut other = buffer;
                    other[12..].fill(0xbb);
                    other[13..HEADER].copy_from_slice(&buffer[13..HEADER]);
                    assert_eq!(write_timestamps(value, echo, &mut other), length);
                    assert_eq!(other[..length], buffer[..length]);
                }
                assert_eq!(options.blocks().len(), count.min(4 - usize::from(timestamps.is_some())));
            }
        }
        // With byte counters, of which those of CE and one other are written.
        for (ect0, ect1) in [(Some(1), None), (None, Some(0xff_ffff))] {
            let ecn_bytes = Some(EcnBytes { ect0, ce: Some(0x01_0203), ect1 });
            let mut options = SegmentOptions { ecn_bytes, ..SegmentOptions::default() };
            options.push_block(Seq(1), Seq(2));
            let mut buffer = [0xaa; LONGEST_HEADER];
            Header::default().write(None, &mut buffer);
            let length = options.write(&mut buffer);
            assert_eq!(ace(&buffer), 0);
            let field = if ect0.is_some() { 0b110 } else { 0b101 };
            set_ace(&mut buffer, field);
            assert_eq!((length, header_length(&buffer), ace(&buffer)), (40, 40, field));
            let flags = if ect0.is_some() { CWR } else { ECE };
            assert_eq!(Header::parse(&buffer[..length]).unwrap().0.flags, flags);
            assert_eq!(SegmentOptions::parse(&buffer[HEADER..length]), options);
        }
        let all = SegmentOptions::parse(&[174, 11, 0, 0, 1, 0, 0, 2, 0, 0, 3]).ecn_bytes;
        assert_eq!(all, Some(EcnBytes { ect0: Some(3), ce: Some(2), ect1: Some(1) }));
        assert_eq!(SegmentOptions::parse(&[172, 2]).ecn_bytes, Some(EcnBytes::default()));
        assert_eq!(SegmentOptions::parse(&[172, 4, 0, 0]).ecn_bytes, None);
        // Half a block, and more blocks than fit, are no blocks; a header cannot hold them.
        assert_eq!(SegmentOptions::parse(&[SACK, 6, 0, 0, 0, 1]).blocks(), []);
        assert_eq!(SegmentOptions::parse(&[SACK, 2]).blocks(), []);
        assert_eq!(SegmentOptions::parse(&[TIMESTAMPS, 6, 0, 0, 0, 1]).timestamps, None);
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
