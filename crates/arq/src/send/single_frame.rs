//! Fast path for a message in a single frame when nothing else is unsent or in flight.

use trunkline_units::Instant;

use super::Sender;
use super::flight::Piece;
use crate::options::CHUNK_COST;
use crate::wire::KIND_PACK;
use crate::wire::data::{self, FrameHeader, MAX_PACKED, PACK, SINGLE_HEADER, packed_length};

/// What a frame has besides its chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameOverhead {
    pub flags: u8,
    /// The number that the frame acknowledges, if any.
    pub acknowledged: Option<u64>,
    /// Bytes of the check.
    pub check_length: usize,
}

impl Sender {
    /// Writes a frame with a small message, without the check, into `frame` and records its transmission; returns its
    /// number and length with the check. Returns none, without an effect, if there is other data to send, no credit,
    /// or the channel is new. Same result as [`queue_copy`](Sender::queue_copy),
    /// [`build_single_frame`](Sender::build_single_frame) and [`write_frame`](Sender::write_frame), without the
    /// queues.
    #[inline(always)]
    pub fn send_message(
        &mut self,
        now: Instant,
        channel: u16,
        bytes: &[u8],
        overhead: FrameOverhead,
        frame: &mut [u8],
    ) -> Option<(u64, usize)> {
        let size = packed_length(bytes.len());
        let is_small = size <= self.max_pack / 2 && bytes.len() <= MAX_PACKED;
        if !is_small || self.unsent_bytes > 0 || !self.send_queue.is_empty() || !self.flights.is_empty() {
            return None;
        }
        let cost = size as u64 + CHUNK_COST;
        let outgoing = self.channels.get_mut(channel)?;
        let credit = (self.limit - self.used).min(outgoing.limit - outgoing.used);
        if cost > credit || outgoing.stored_bytes >= self.send_buffer || outgoing.has_more() {
            return None;
        }
        let number = self.flights.next();
        let at = FrameHeader::write(KIND_PACK, overhead.flags, number, overhead.acknowledged, frame);
        let sequence = outgoing.sequence as u16;
        data::write_single_header(channel, sequence, &mut frame[at..]);
        let at = at + SINGLE_HEADER;
        let packed = &mut frame[at..at + size];
        match bytes.len() {
            short @ 0..128 => packed[0] = short as u8,
            long => packed[..2].copy_from_slice(&(0x8000 | long as u16).to_be_bytes()),
        }
        packed[size - bytes.len()..].copy_from_slice(bytes);
        let index = self.store.insert_pack(packed, channel, self.max_pack, &mut self.pool);
        let length = at + size + overhead.check_length;
        (outgoing.full, outgoing.queued) = (false, false);
        outgoing.sequence += 1;
        outgoing.used += cost;
        outgoing.stored_bytes += size;
        (self.used, self.channel_emptied, self.blocked) = (self.used + cost, true, false);
        let piece = Piece { message: index, offset: 0, length: size as u16, channel, sequence, flags: PACK };
        self.flights.send_single(now, piece, (size + SINGLE_HEADER) as u16, length as u16);
        Some((number, length))
    }
}
