//! A message that comes whole when nothing else is there, for somebody who waits for it.

use super::Receiver;
use crate::Buffer;
use crate::options::CHUNK_COST;
use crate::wire::data::{Chunk, Form, unpack};

impl Receiver {
    /// Whether nothing of a channel, that somebody has heard of before, is there to be taken. Its user knows now.
    #[inline]
    pub fn has_nothing(&mut self, channel: u16) -> bool {
        let Some(incoming) = self.channels.get_mut(channel) else { return false };
        let nothing = incoming.arrived.is_empty();
        incoming.told &= !nothing;
        nothing
    }

    /// Fills `into`, whatever it holds, with the message that a chunk is, if it is the next of its channel and whole, and
    /// nothing is there before it, nor waits for it; whether it was. If not, nothing has changed. As
    /// [`take_chunk`](Receiver::take_chunk) and [`take`](Receiver::take), without a place in between.
    #[inline(always)]
    pub fn pass_on(&mut self, chunk: &Chunk<'_>, into: &mut Buffer) -> bool {
        let Some(incoming) = self.channels.get_mut(chunk.channel) else { return false };
        let message = match chunk.form {
            Form::Piece { start: true, end: true } => chunk.bytes,
            Form::Piece { .. } => return false,
            Form::Pack => match unpack(chunk.bytes, 0) {
                Some((begin, end)) if end == chunk.bytes.len() => &chunk.bytes[begin..],
                _ => return false,
            },
        };
        let cost = chunk.bytes.len() as u64 + CHUNK_COST;
        let received = self.received + cost;
        let next = chunk.sequence == incoming.next as u16 && incoming.arrived.is_empty();
        let alone = self.early.is_empty() && self.readable.is_empty() && !self.tight;
        let within = incoming.received + cost <= incoming.limit && received + self.least <= self.limit;
        if !(next && alone && within) {
            return false;
        }
        into.refill(message);
        if chunk.form != Form::Pack {
            incoming.last = message.len();
        }
        incoming.next += 1;
        incoming.received += cost;
        (self.received, self.taken) = (received, self.taken + cost);
        if incoming.free(cost, self.channel_credit) {
            self.grants.push_back(chunk.channel);
        }
        true
    }
}
