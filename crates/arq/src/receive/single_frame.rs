//! Fast path for a whole message that the application waits for.

use super::Receiver;
use crate::Buffer;
use crate::options::CHUNK_COST;
use crate::wire::data::{Chunk, ChunkKind, unpack};

impl Receiver {
    /// Returns whether a known channel is empty. If it is, new data will be reported again.
    #[inline]
    pub fn is_channel_empty(&mut self, channel: u16) -> bool {
        let Some(incoming) = self.channels.get_mut(channel) else { return false };
        let is_empty = incoming.messages.is_empty();
        incoming.readable_reported &= !is_empty;
        is_empty
    }

    /// Replaces the contents of `into` with the message in a chunk, if it is the next whole message of its channel
    /// and no other data is stored. Returns whether it did; if not, nothing has changed. Same result as
    /// [`receive_chunk`](Receiver::receive_chunk) and [`take_message`](Receiver::take_message), without the queue.
    #[inline(always)]
    pub fn deliver_chunk(&mut self, chunk: &Chunk<'_>, into: &mut Buffer) -> bool {
        let Some(incoming) = self.channels.get_mut(chunk.channel) else { return false };
        let message = match chunk.kind {
            ChunkKind::Piece { start: true, end: true } => chunk.bytes,
            ChunkKind::Piece { .. } => return false,
            ChunkKind::Pack => match unpack(chunk.bytes, 0) {
                Some((begin, end)) if end == chunk.bytes.len() => &chunk.bytes[begin..],
                _ => return false,
            },
        };
        let cost = chunk.bytes.len() as u64 + CHUNK_COST;
        let received = self.received + cost;
        let is_next = chunk.sequence == incoming.next as u16 && incoming.messages.is_empty();
        let is_idle = self.early_chunks.is_empty() && self.readable.is_empty() && !self.credit_short;
        let has_credit =
            incoming.received + cost <= incoming.limit && received + self.min_credit <= self.limit;
        if !(is_next && is_idle && has_credit) {
            return false;
        }
        into.refill(message);
        if chunk.kind != ChunkKind::Pack {
            incoming.last_length = message.len();
        }
        incoming.next += 1;
        incoming.received += cost;
        (self.received, self.consumed) = (received, self.consumed + cost);
        if incoming.consume(cost, self.channel_credit) {
            self.grants.push_back(chunk.channel);
        }
        true
    }
}
