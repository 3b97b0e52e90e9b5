//! The messages of a channel that wait to be sent.

use std::collections::VecDeque;

use super::frame_buffers::{EncodedFrames, FrameBuffers};
use super::queue::{PRIORITY_LEVELS, SendQueue};
use super::store::StoreIndex;
use crate::channels::ChannelTable;
use crate::options::CHUNK_COST;
use crate::wire::data::CONTROL;

#[derive(Debug, Default)]
pub(super) struct OutgoingChannel {
    pub messages: VecDeque<QueuedMessage>,
    /// A partly filled frame follows the queued messages.
    pub has_open_frame: bool,
    /// Bytes of the first message already divided into frames.
    pub offset: u32,
    /// Number of the next chunk; and of the next chunk after the encoded frames, while these wait.
    pub sequence: u64,
    pub encoded_sequence: u64,
    /// Credit in total, since the connection began: granted by the peer, and used.
    pub limit: u64,
    pub used: u64,
    /// Bytes stored until they are acknowledged.
    pub stored_bytes: usize,
    pub priority: u8,
    /// The channel is in the queue of channels with data.
    pub queued: bool,
    /// The channel refused a message because it was full.
    pub full: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum QueuedMessage {
    /// A message, or a pack of small ones.
    Stored(StoreIndex),
    /// Encoded frames. Only encoded frames precede them.
    Encoded(EncodedFrames),
}

/// Initial state of a channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChannelDefaults {
    /// Initial credit.
    pub limit: u64,
    /// Number of the first chunk.
    pub sequence: u64,
}

impl ChannelDefaults {
    /// Returns a channel; creates it if it was never used.
    #[inline]
    pub fn get_or_create(
        self,
        channels: &mut ChannelTable<OutgoingChannel>,
        channel: u16,
    ) -> &mut OutgoingChannel {
        channels.get_or_insert_with(channel, || {
            let (limit, priority) = match channel {
                CONTROL => (u64::MAX, PRIORITY_LEVELS as u8 - 1),
                _ => (self.limit, 0),
            };
            OutgoingChannel { limit, priority, sequence: self.sequence, ..OutgoingChannel::default() }
        })
    }
}

impl OutgoingChannel {
    #[inline]
    pub fn has_more(&self) -> bool {
        self.has_open_frame || !self.messages.is_empty()
    }

    /// Iterates over the messages after the last encoded frame, from the last to the first.
    #[inline]
    pub fn unsent_from_last(&self) -> impl Iterator<Item = StoreIndex> + '_ {
        self.messages.iter().rev().map_while(|message| match message {
            QueuedMessage::Stored(index) => Some(*index),
            QueuedMessage::Encoded(_) => None,
        })
    }

    /// Encodes a message from `begin` on.
    #[inline]
    pub fn encode(&mut self, channel: u16, begin: usize, message: &[u8], buffers: &mut FrameBuffers) {
        let mut at = begin;
        while at < message.len() {
            let (length, chunks, encoded) =
                buffers.encode(channel, self.encoded_sequence, at == 0, &message[at..]);
            at += length;
            self.encoded_sequence += chunks;
            self.used += length as u64 + CHUNK_COST * chunks;
            if let Some(encoded) = encoded {
                self.push_encoded(encoded);
            }
        }
        self.has_open_frame = buffers.open_channel().is_some();
    }

    /// Queues encoded frames; merges them with the last entry if they are contiguous.
    #[inline]
    pub fn push_encoded(&mut self, encoded: EncodedFrames) {
        match self.messages.back_mut() {
            Some(QueuedMessage::Encoded(last)) if last.is_followed_by(&encoded) => last.append(&encoded),
            _ => self.messages.push_back(QueuedMessage::Encoded(encoded)),
        }
    }

    pub fn close_open_frame(&mut self, buffers: &mut FrameBuffers) {
        if let Some(encoded) = buffers.close_frame() {
            self.push_encoded(encoded);
        }
        self.has_open_frame = false;
    }

    /// Removes the first `count` encoded frames, with `bytes` bytes of messages.
    #[inline]
    pub fn remove_sent(&mut self, count: u16, bytes: u32) {
        if let Some(QueuedMessage::Encoded(first)) = self.messages.front_mut() {
            if count < first.count {
                let rest = first.split_off(count);
                *first = EncodedFrames { bytes: rest.bytes - bytes, ..rest };
            } else {
                self.messages.pop_front();
            }
        }
        if !self.has_open_frame && !matches!(self.messages.front(), Some(QueuedMessage::Encoded(_))) {
            self.sequence = self.encoded_sequence;
        }
        self.queued = self.has_more();
    }

    /// Adds the channel to the queue of channels with data.
    #[inline]
    pub fn enqueue(&mut self, channel: u16, send_queue: &mut SendQueue) {
        if !self.queued {
            self.queued = true;
            send_queue.add(usize::from(self.priority), channel);
        }
    }
}
