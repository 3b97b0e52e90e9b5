//! A message that leaves at once in a frame of its own, when nothing else waits or is in flight.

use trunkline_units::Instant;

use super::Sender;
use super::flight::Piece;
use crate::options::CHUNK_COST;
use crate::wire::KIND_PACK;
use crate::wire::data::{self, ALONE, Head, LONGEST_PACKED, PACK, packed};

/// What is to be written before and after the message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around {
    pub flags: u8,
    pub acknowledged: Option<u64>,
    /// Bytes of the check.
    pub check: usize,
}

impl Sender {
    /// Takes a copy of a small message, for which there is credit, and writes the frame that carries it, but for its
    /// check, into `frame`: its number and its length. None, and nothing has changed, if it is not the only thing to send,
    /// or nobody knows its channel yet. As [`copy`](Sender::copy), [`cut_only`](Sender::cut_only) and
    /// [`write`](Sender::write) one after the other, without the queues in between.
    #[inline(always)]
    pub fn send_alone(
        &mut self,
        now: Instant,
        channel: u16,
        bytes: &[u8],
        around: Around,
        frame: &mut [u8],
    ) -> Option<(u64, usize)> {
        let size = packed(bytes.len());
        let small = size <= self.longest_pack / 2 && bytes.len() <= LONGEST_PACKED;
        if !small || self.waiting > 0 || self.turns.any != 0 || !self.flights.is_empty() {
            return None;
        }
        let cost = size as u64 + CHUNK_COST;
        let outgoing = self.channels.get_mut(channel)?;
        let credit = (self.limit - self.used).min(outgoing.limit - outgoing.used);
        if cost > credit || outgoing.kept >= self.send_buffer || outgoing.has_more() {
            return None;
        }
        let number = self.flights.next();
        let at = Head::write(KIND_PACK, around.flags, number, around.acknowledged, frame);
        let sequence = outgoing.sequence as u16;
        data::write_alone(channel, sequence, &mut frame[at..]);
        let at = at + ALONE;
        let written = &mut frame[at..at + size];
        match bytes.len() {
            short @ 0..128 => written[0] = short as u8,
            long => written[..2].copy_from_slice(&(0x8000 | long as u16).to_be_bytes()),
        }
        written[size - bytes.len()..].copy_from_slice(bytes);
        let place = self.store.keep_pack(written, channel, self.longest_pack, &mut self.pool);
        let length = at + size + around.check;
        (outgoing.full, outgoing.queued) = (false, false);
        outgoing.sequence += 1;
        outgoing.used += cost;
        outgoing.kept += size;
        (self.used, self.last_of_channel, self.blocked) = (self.used + cost, true, false);
        let piece = Piece { place, offset: 0, length: size as u16, channel, sequence, flags: PACK };
        self.flights.leave_only(now, piece, (size + ALONE) as u16, length as u16);
        Some((number, length))
    }
}
