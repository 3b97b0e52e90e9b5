//! Many frames that come in one piece.
//!
//! In full flow a batch is the next frames of one channel, of which each carries pieces of messages and nothing else. Then
//! what is to be asked of the connection and the channel is asked once for all of them. What is not as expected, be it in
//! the middle, is left to the long way, untouched; both leave the same behind, which `tests/runs.rs` holds.

use trunkline_units::Instant;

use super::Connection;
use crate::stages::Of;
use crate::wire::data::{ACK, ALONE, ASK, CONTROL, Chunks, END, HEADER, Head, NACK, START};
use crate::wire::{KIND_MANY, KIND_PIECE, epoch, get16, get24, kind};

impl Connection {
    /// Takes the first frames of a batch, each `length` bytes long but for the last of all, as far as they are expected;
    /// how many bytes they have.
    pub fn take_run(&mut self, now: Instant, batch: &[u8], length: usize) -> usize {
        let first = self.arrivals.next();
        let free =
            self.plain && !self.arrivals.has_gap() && self.over.is_none() && self.closing.peer.is_none();
        let Some(head) = batch.first_chunk::<{ HEADER + ALONE }>() else { return 0 };
        let channel = get16(&head[HEADER..]);
        if !free || length == 0 || channel == CONTROL {
            return 0;
        }
        let Some((check, secret)) = self.guard.sum(epoch(first)) else { return 0 };
        let Some(mut run) = self.receiver.begin_run(channel) else { return 0 };
        let (mut number, mut bytes, mut asked) = (first, 0, false);
        // One that is to be measured goes alone.
        for frame in batch.chunks(length).take(self.stages.unmeasured(Of::FramesIn)) {
            // What is cheap to ask first: what goes the long way is opened there.
            let Some(head) = frame.first_chunk::<HEADER>() else { break };
            let expected = u64::from(get24(&head[1..])) == number & LOW
                && epoch(number) == epoch(first)
                && head[0] & (ACK | NACK) == 0
                && matches!(kind(head[0]), KIND_PIECE | KIND_MANY);
            if !expected {
                break;
            }
            let Some(body) = check.open(secret, frame) else { break };
            let Some((head, rest)) = body.split_first_chunk::<HEADER>() else { break };
            let taken = match (kind(head[0]), rest.split_first_chunk::<ALONE>()) {
                (KIND_PIECE, Some((alone, piece))) => {
                    let form = (head[0] & START != 0, head[0] & END != 0);
                    get16(alone) == channel && run.take_piece(get16(&alone[2..]), form, piece)
                }
                (KIND_MANY, Some(_)) => Head::read(body)
                    .and_then(|(head, rest)| Chunks::read(&head, rest))
                    .is_some_and(|chunks| run.take_pieces(chunks)),
                _ => false,
            };
            if !taken {
                break;
            }
            asked |= head[0] & ASK != 0;
            (number, bytes) = (number + 1, bytes + frame.len());
        }
        let came = run.end();
        let frames = number - first;
        if frames > 0 {
            self.receiver.end_run(channel, came);
            self.hear(now);
            self.arrivals.note_run(frames);
            self.stages.pass(Of::FramesIn, frames);
            self.statistics.frames_received += frames;
            self.owe_for(now, frames as u32, asked);
        }
        bytes
    }
}

/// The bits of a number that are on the wire.
const LOW: u64 = (1 << 24) - 1;
