//! Fast path for batches of received frames (GRO).
//!
//! In bulk transfer a batch holds the next frames of one channel, each with pieces of messages only. Then the
//! conditions on connection and channel are checked once per batch. The first frame that does not match, anywhere in
//! the batch, is left to the general path, unprocessed. Both paths have the same result, which `tests/receive_batches.rs`
//! checks.

use trunkline_units::Instant;

use super::Connection;
use crate::stages::StageGroup;
use crate::wire::data::{
    ACK, ACK_REQUEST, CONTROL, Chunks, END, FrameHeader, HEADER, NACK, SINGLE_HEADER, START,
};
use crate::wire::{KIND_MULTI, KIND_PIECE, NUMBER_MASK, epoch, get16, get24, kind};

impl Connection {
    /// Processes the first frames of a batch as far as they match. Each is `length` bytes long except the last of the
    /// batch. Returns the number of bytes processed.
    pub fn receive_batch(&mut self, now: Instant, batch: &[u8], length: usize) -> usize {
        let first = self.arrivals.next();
        let applies = self.fast_path_enabled
            && !self.arrivals.has_gap()
            && self.close_reason.is_none()
            && self.closing.peer_finish.is_none();
        let Some(head) = batch.first_chunk::<{ HEADER + SINGLE_HEADER }>() else { return 0 };
        let channel = get16(&head[HEADER..]);
        if !applies || length == 0 || channel == CONTROL {
            return 0;
        }
        let Some((check, secret)) = self.protection.checksum(epoch(first)) else { return 0 };
        let Some(mut receiver) = self.receiver.begin_batch(channel) else { return 0 };
        let (mut number, mut bytes, mut ack_requested) = (first, 0, false);
        // A sampled frame takes the general path.
        for frame in batch.chunks(length).take(self.stage_sampler.until_next_sample(StageGroup::FramesIn)) {
            // Cheap conditions first: the general path verifies frames itself.
            let Some(head) = frame.first_chunk::<HEADER>() else { break };
            let expected = u64::from(get24(&head[1..])) == number & NUMBER_MASK
                && epoch(number) == epoch(first)
                && head[0] & (ACK | NACK) == 0
                && matches!(kind(head[0]), KIND_PIECE | KIND_MULTI);
            if !expected {
                break;
            }
            let Some(body) = check.open(secret, frame) else { break };
            let Some((head, rest)) = body.split_first_chunk::<HEADER>() else { break };
            let is_accepted = match (kind(head[0]), rest.split_first_chunk::<SINGLE_HEADER>()) {
                (KIND_PIECE, Some((header, piece))) => {
                    let position = (head[0] & START != 0, head[0] & END != 0);
                    get16(header) == channel && receiver.take_piece(get16(&header[2..]), position, piece)
                }
                (KIND_MULTI, Some(_)) => FrameHeader::read(body)
                    .and_then(|(head, rest)| Chunks::read(&head, rest))
                    .is_some_and(|chunks| receiver.take_pieces(chunks)),
                _ => false,
            };
            if !is_accepted {
                break;
            }
            ack_requested |= head[0] & ACK_REQUEST != 0;
            (number, bytes) = (number + 1, bytes + frame.len());
        }
        let credit_used = receiver.finish();
        let frames = number - first;
        if frames > 0 {
            self.receiver.end_batch(channel, credit_used);
            self.record_activity(now);
            self.arrivals.record_next(frames);
            self.stage_sampler.skip(StageGroup::FramesIn, frames);
            self.statistics.frames_received += frames;
            self.schedule_ack_for(now, frames as u32, ack_requested);
        }
        bytes
    }
}
