//! TCP headers as packets carry them.

use trunkline_tcp::segment::{HEADER, LONGEST_HEADER};

use crate::frame::{Content, TCP_FIELDS};

/// Ports of the sender and the receiver. They only make captures readable: both ends know their peer.
pub const PORTS: [u16; 2] = [49_152, 5_001];

/// Where the sequence number starts and the window ends. The ports before and the checksum and urgent pointer behind are not
/// stored: the former are constant, the latter zero.
const FIXED: std::ops::Range<usize> = 4..16;
const FIXED_LENGTH: usize = FIXED.end - FIXED.start;
/// Bytes of the longest header that fits into a packet without a box.
const SHORT_HEADER: usize = HEADER + TCP_FIELDS - FIXED_LENGTH;

/// Returns the content of a segment, given its header in a buffer that may be longer.
#[inline(always)]
pub fn content(buffer: &[u8; LONGEST_HEADER]) -> Content {
    let length = usize::from(buffer[12] >> 4) * 4;
    if length > SHORT_HEADER {
        return Content::LongSegment(Box::new(*buffer));
    }
    let mut fields = [0; TCP_FIELDS];
    let (fixed, options) = fields.split_at_mut(FIXED_LENGTH);
    fixed.copy_from_slice(&buffer[FIXED]);
    options.copy_from_slice(&buffer[HEADER..SHORT_HEADER]);
    Content::Segment(fields)
}

/// Writes the header of a segment, which goes to the sender of its flow if `is_reverse`; returns whether it is one.
#[inline(always)]
pub fn write(content: &Content, is_reverse: bool, buffer: &mut [u8; LONGEST_HEADER]) -> bool {
    match content {
        Content::Segment(fields) => {
            let [from, to] = PORTS.map(u16::to_be_bytes);
            let (from, to) = if is_reverse { (to, from) } else { (from, to) };
            let (fixed, options) = fields.split_at(FIXED_LENGTH);
            buffer[..2].copy_from_slice(&from);
            buffer[2..4].copy_from_slice(&to);
            buffer[FIXED].copy_from_slice(fixed);
            buffer[FIXED.end..HEADER].fill(0);
            buffer[HEADER..SHORT_HEADER].copy_from_slice(options);
            true
        }
        Content::LongSegment(header) => {
            *buffer = **header;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use trunkline_tcp::segment::{ACK, Header, SegmentOptions, Seq};

    use super::*;

    #[test]
    fn headers_of_any_length_are_restored() {
        for (blocks, is_reverse) in [(0, false), (0, true), (1, false), (3, true)] {
            let [from, to] = PORTS;
            let (source, destination) = if is_reverse { (to, from) } else { (from, to) };
            let header = Header {
                source,
                destination,
                seq: Seq(0x0102_0304),
                ack: Seq(0xf0e0_d0c0),
                flags: ACK,
                window: 0x1234,
            };
            let timestamps = Some((0x0506_0708, 0x1518_1921));
            let mut options = SegmentOptions { timestamps, ..SegmentOptions::default() };
            (0..blocks).for_each(|n| options.push_block(Seq(n), Seq(n + 1)));
            let mut buffer = [0xaa; LONGEST_HEADER];
            header.write(None, &mut buffer);
            let length = options.write(&mut buffer);
            let content = content(&buffer);
            assert_eq!(matches!(content, Content::Segment(_)), blocks == 0);
            let mut restored = [0x55; LONGEST_HEADER];
            assert!(write(&content, is_reverse, &mut restored));
            assert_eq!(restored[..length], buffer[..length]);
        }
    }
}
