//! Frames encoded in place when their messages are sent.
//!
//! In bulk transfer the bytes of a message are copied once, into *frame buffers* of the length of a batch, with space
//! for headers and checks. A contiguous part of a buffer is a batch. Fields that are not known yet (numbers,
//! acknowledgement requests) are written when the frames are sent; until then the number field holds the number of
//! message bytes in the frame. Retransmissions are copied from the buffers.
//!
//! Bounds: the send buffer of a channel bounds the frames. A buffer stays while one of its frames is needed. Frames
//! are encoded only while a single channel has data, so waiting frames are contiguous. 32 spare buffers are kept,
//! none of an idle sender.

use trunkline_endpoint::{MAX_BATCH, MAX_SEGMENTS};

use super::MAX_CHUNKS_PER_CHANNEL;
use crate::Buffer;
use crate::wire::data::{
    self, ACK, ACK_REQUEST, ChunkKind, END, FrameHeader, HEADER, MULTI_HEADER, NACK, SINGLE_HEADER, START,
};
use crate::wire::{KIND_MULTI, KIND_PIECE, get24, kind};

/// Maximum number of spare buffers.
const MAX_SPARE: usize = 32;

/// Contiguous encoded frames of equal length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EncodedFrames {
    pub buffer: u32,
    /// Offset of the first frame.
    pub offset: u32,
    /// Message bytes that are freed with these frames. After a split of sent frames all bytes belong to the last
    /// part, which is freed last.
    pub bytes: u32,
    pub channel: u16,
    pub count: u16,
    /// Length of each frame with header and check.
    pub length: u16,
}

impl EncodedFrames {
    #[inline]
    fn end(&self) -> u32 {
        self.offset + u32::from(self.count) * u32::from(self.length)
    }

    /// Returns whether `other` is contiguous to these frames and has the same frame length.
    #[inline]
    pub fn is_followed_by(&self, other: &EncodedFrames) -> bool {
        (self.buffer, self.length, self.end()) == (other.buffer, other.length, other.offset)
    }

    #[inline]
    pub fn append(&mut self, other: &EncodedFrames) {
        self.count += other.count;
        self.bytes += other.bytes;
    }

    /// Keeps the first `count` frames; returns the others with all bytes.
    #[inline]
    pub fn split_off(&mut self, count: u16) -> EncodedFrames {
        let at = self.offset + u32::from(count) * u32::from(self.length);
        let rest = EncodedFrames { offset: at, count: self.count - count, ..*self };
        (self.count, self.bytes) = (count, 0);
        rest
    }

    /// Returns the frame after the first `count`.
    #[inline]
    pub fn nth(&self, count: u64) -> EncodedFrames {
        EncodedFrames {
            offset: self.offset + count as u32 * u32::from(self.length),
            count: 1,
            bytes: 0,
            ..*self
        }
    }
}

/// The partly filled frame.
#[derive(Debug)]
struct OpenFrame {
    channel: u16,
    /// Offset of the next chunk.
    cursor: usize,
    bytes: usize,
    chunks: usize,
}

#[derive(Debug, Default)]
struct FrameBuffer {
    bytes: Buffer,
    /// Number of frames in use, plus one while the buffer is current.
    users: u32,
}

#[derive(Debug)]
pub(crate) struct FrameBuffers {
    /// Length of a frame, and of its check.
    frame: usize,
    check: usize,
    buffers: Vec<FrameBuffer>,
    free: Vec<u32>,
    spare: Vec<Buffer>,
    /// The current buffer, and the offset of its next or partly filled frame.
    current: Option<u32>,
    offset: usize,
    open_frame: Option<OpenFrame>,
}

impl FrameBuffers {
    /// Creates buffers for frames of `frame` bytes, including `check` bytes of check.
    pub fn new(frame: usize, check: usize) -> Self {
        let (buffers, free, spare) = (Vec::new(), Vec::new(), Vec::new());
        FrameBuffers { frame, check, buffers, free, spare, current: None, offset: 0, open_frame: None }
    }

    /// Returns the length of a buffer: whole frames.
    #[inline]
    pub fn buffer_length(&self) -> usize {
        (MAX_BATCH / self.frame).clamp(1, MAX_SEGMENTS) * self.frame
    }

    /// Returns the maximum number of chunks of a message: the end of a frame, whole frames, and the rest.
    #[inline]
    pub fn max_chunks(&self, length: usize) -> u64 {
        2 + (length / (self.frame - self.check - HEADER - MULTI_HEADER)) as u64
    }

    /// Returns the channel of the partly filled frame.
    #[inline]
    pub fn open_channel(&self) -> Option<u16> {
        self.open_frame.as_ref().map(|open| open.channel)
    }

    /// Copies a first part of `rest`, the remaining bytes of a message, into frames. `start` marks the start of the
    /// message; chunk numbers begin with `sequence`. Returns the number of bytes (none if the open frame is full),
    /// the number of chunks, and the frames if they are complete. The partly filled frame, if any, belongs to this
    /// channel.
    #[inline]
    pub fn encode(
        &mut self,
        channel: u16,
        sequence: u64,
        start: bool,
        rest: &[u8],
    ) -> (usize, u64, Option<EncodedFrames>) {
        if self.open_frame.is_none() {
            let buffer = self.current_buffer();
            let capacity = self.frame - self.check - HEADER - SINGLE_HEADER;
            if rest.len() >= capacity {
                let encoded = self.encode_full_frames(buffer, channel, sequence, start, rest);
                return (encoded.bytes as usize, encoded.count.into(), Some(encoded));
            }
            self.open_frame = Some(OpenFrame { channel, cursor: HEADER, bytes: 0, chunks: 0 });
        }
        let (Some(open), Some(buffer)) = (&mut self.open_frame, self.current) else { return (0, 0, None) };
        let room = self.frame - self.check - open.cursor;
        let length = rest.len().min(room.saturating_sub(MULTI_HEADER));
        if length > 0 {
            let frame = &mut self.buffers[buffer as usize].bytes[self.offset..self.offset + self.frame];
            let kind = ChunkKind::Piece { start, end: length == rest.len() };
            let chunk = &mut frame[open.cursor..];
            data::write_multi_header(channel, sequence as u16, kind, length as u16, chunk);
            chunk[MULTI_HEADER..MULTI_HEADER + length].copy_from_slice(&rest[..length]);
            open.cursor += MULTI_HEADER + length;
            open.bytes += length;
            open.chunks += 1;
            // Written each time, because the frame may be closed while its buffer is lent.
            FrameHeader::write(KIND_MULTI, 0, open.bytes as u64, None, frame);
        }
        // Equal frames form a batch, so a piece of any length is worth its header.
        let full = room <= 2 * MULTI_HEADER + length || open.chunks >= MAX_CHUNKS_PER_CHANNEL;
        (length, u64::from(length > 0), if full { self.close_frame() } else { None })
    }

    /// Copies data that fills whole frames, as far as the buffer has space: at least one frame.
    #[inline]
    fn encode_full_frames(
        &mut self,
        buffer: u32,
        channel: u16,
        sequence: u64,
        start: bool,
        rest: &[u8],
    ) -> EncodedFrames {
        let capacity = self.frame - self.check - HEADER - SINGLE_HEADER;
        let (at, max_frames) = (self.offset, (self.buffer_length() - self.offset) / self.frame);
        let memory = &mut self.buffers[buffer as usize];
        let (mut number, mut remaining, mut flags) = (sequence, rest, u8::from(start) * START);
        for frame in memory.bytes[at..].chunks_exact_mut(self.frame).take(max_frames) {
            let Some((piece, more)) = remaining.split_at_checked(capacity) else { break };
            flags |= u8::from(more.is_empty()) * END;
            FrameHeader::write(KIND_PIECE, flags, capacity as u64, None, frame);
            data::write_single_header(channel, number as u16, &mut frame[HEADER..]);
            frame[HEADER + SINGLE_HEADER..][..capacity].copy_from_slice(piece);
            (number, remaining, flags) = (number + 1, more, 0);
        }
        let count = (number - sequence) as u16;
        memory.users += u32::from(count);
        self.offset += usize::from(count) * self.frame;
        let bytes = (rest.len() - remaining.len()) as u32;
        EncodedFrames { buffer, offset: at as u32, bytes, channel, count, length: self.frame as u16 }
    }

    /// Closes the partly filled frame.
    pub fn close_frame(&mut self) -> Option<EncodedFrames> {
        let open = self.open_frame.take()?;
        let buffer = self.current.expect("an open frame has a buffer");
        let memory = &mut self.buffers[buffer as usize];
        memory.users += 1;
        let (at, length) = (self.offset as u32, open.cursor + self.check);
        self.offset += length;
        let bytes = open.bytes as u32;
        Some(EncodedFrames {
            buffer,
            offset: at,
            bytes,
            channel: open.channel,
            count: 1,
            length: length as u16,
        })
    }

    /// Returns a buffer with space for a frame.
    #[inline]
    fn current_buffer(&mut self) -> u32 {
        match self.current {
            Some(buffer) if self.offset + self.frame <= self.buffer_length() => buffer,
            _ => self.start_buffer(),
        }
    }

    fn start_buffer(&mut self) -> u32 {
        self.retire_current();
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(self.buffer_length(), 0);
        let buffer = FrameBuffer { bytes, users: 1 };
        let number = match self.free.pop() {
            Some(number) => {
                self.buffers[number as usize] = buffer;
                number
            }
            None => {
                self.buffers.push(buffer);
                self.buffers.len() as u32 - 1
            }
        };
        (self.current, self.offset) = (Some(number), 0);
        number
    }

    /// Adds no more frames to the current buffer.
    fn retire_current(&mut self) {
        if let Some(before) = self.current.take() {
            self.drop_users(before, 1);
        }
    }

    /// With no waiting data, the next frame starts a batch in a new buffer, unless more than half of the current one
    /// is free.
    #[inline]
    pub fn align_batch(&mut self) {
        if self.open_frame.is_none() && 2 * self.offset >= self.buffer_length() {
            self.retire_current();
        }
    }

    #[inline]
    pub fn release(&mut self, encoded: &EncodedFrames) {
        self.drop_users(encoded.buffer, encoded.count.into());
    }

    #[inline]
    fn drop_users(&mut self, buffer: u32, users: u32) {
        let memory = &mut self.buffers[buffer as usize];
        memory.users -= users;
        if memory.users == 0 {
            self.free.push(buffer);
            let bytes = std::mem::take(&mut memory.bytes);
            if self.spare.len() < MAX_SPARE {
                self.spare.push(bytes);
            }
        }
    }

    /// Frees all memory when the sender is idle.
    #[inline(always)]
    pub fn shrink(&mut self) {
        if !self.buffers.is_empty() && self.open_frame.is_none() {
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.retire_current();
        (self.buffers, self.free, self.spare) = (Vec::new(), Vec::new(), Vec::new());
    }

    /// Returns the number of message bytes in the first of these frames, which must be unsent.
    #[inline]
    pub fn message_bytes(&self, encoded: &EncodedFrames) -> u32 {
        get24(&self.buffers[encoded.buffer as usize].bytes[encoded.offset as usize + 1..])
    }

    /// Returns the bytes of each frame between header and check.
    #[inline]
    pub fn body_length(&self, encoded: &EncodedFrames) -> usize {
        usize::from(encoded.length) - HEADER - self.check
    }

    /// Writes a new header and a copy of the rest of a frame at the start of `into`; returns the length.
    pub fn copy_frame(
        &self,
        encoded: &EncodedFrames,
        flags: u8,
        number: u64,
        acknowledged: Option<u64>,
        into: &mut [u8],
    ) -> usize {
        let frame = &self.buffers[encoded.buffer as usize].bytes;
        let first = frame[encoded.offset as usize];
        let flags = flags | first & 31 & !(ACK_REQUEST | ACK | NACK);
        let at = FrameHeader::write(kind(first), flags, number, acknowledged, into);
        let body = &frame[encoded.offset as usize + HEADER..][..self.body_length(encoded)];
        into[at..at + body.len()].copy_from_slice(body);
        at + body.len()
    }

    #[inline]
    pub fn bytes(&self, buffer: u32) -> &[u8] {
        self.buffers.get(buffer as usize).map_or(&[], |buffer| &buffer.bytes)
    }

    /// Takes the memory of a buffer, until [`return_buffer`](FrameBuffers::return_buffer).
    #[inline]
    pub fn lend(&mut self, buffer: u32) -> Buffer {
        std::mem::take(&mut self.buffers[buffer as usize].bytes)
    }

    #[inline]
    pub fn return_buffer(&mut self, buffer: u32, bytes: Buffer) {
        self.buffers[buffer as usize].bytes = bytes;
    }
}

/// Writes the numbers of contiguous frames of `length` bytes, starting at `first`; returns their message bytes.
#[inline]
pub(crate) fn write_numbers(frames: &mut [u8], length: usize, first: u64) -> u32 {
    let mut bytes = 0;
    for (frame, number) in frames.chunks_exact_mut(length).zip(first..) {
        bytes += get24(&frame[1..]);
        FrameHeader::write(kind(frame[0]), frame[0] & 31, number, None, frame);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::data::Chunks;

    /// Decodes frames like a receiver; returns the bytes and the kind of each chunk.
    fn read(
        buffers: &FrameBuffers,
        encoded: &EncodedFrames,
        sequence: &mut u64,
    ) -> Vec<(Vec<u8>, ChunkKind)> {
        let mut decoded = Vec::new();
        for at in 0..u64::from(encoded.count) {
            let one = encoded.nth(at);
            let frame =
                &buffers.bytes(one.buffer)[one.offset as usize..][..HEADER + buffers.body_length(&one)];
            let (head, rest) = FrameHeader::read(frame).unwrap();
            let chunks: Vec<_> = Chunks::read(&head, rest).unwrap().collect();
            let bytes = chunks.iter().map(|chunk| chunk.bytes.len() as u32).sum::<u32>();
            assert_eq!(bytes, buffers.message_bytes(&one));
            for chunk in &chunks {
                assert_eq!((chunk.channel, chunk.sequence), (encoded.channel, *sequence as u16));
                *sequence += 1;
            }
            decoded.extend(chunks.iter().map(|chunk| (chunk.bytes.to_vec(), chunk.kind)));
        }
        assert_eq!(decoded.iter().map(|(bytes, _)| bytes.len()).sum::<usize>(), encoded.bytes as usize);
        decoded
    }

    proptest! {
        #[test]
        fn frames_decode_to_the_messages_and_buffers_are_released(
            frame in 128usize..9000,
            check in prop::sample::select(vec![4, 8]),
            sizes in prop::collection::vec(1usize..40_000, 1..20),
            close_every in 1usize..8,
        ) {
            let mut buffers = FrameBuffers::new(frame, check);
            let messages: Vec<Vec<u8>> =
                sizes.iter().enumerate().map(|(m, size)| (0..*size).map(|i| (i * 7 + m) as u8).collect()).collect();
            let begin = (1 << 16) - 3;
            let (mut frames, mut chunks): (Vec<EncodedFrames>, u64) = (Vec::new(), 0);
            for (index, message) in messages.iter().enumerate() {
                let (mut at, mut chunks_of_message) = (0, 0);
                while at < message.len() {
                    let (length, more, encoded) = buffers.encode(9, begin + chunks, at == 0, &message[at..]);
                    at += length;
                    chunks_of_message += more;
                    chunks += more;
                    if let Some(encoded) = encoded {
                        match frames.last_mut() {
                            Some(last) if last.is_followed_by(&encoded) => last.append(&encoded),
                            _ => frames.push(encoded),
                        }
                    }
                }
                prop_assert!(chunks_of_message <= buffers.max_chunks(message.len()));
                if index % close_every == 0 {
                    frames.extend(buffers.close_frame());
                }
            }
            frames.extend(buffers.close_frame());
            let mut sequence = begin;
            let (mut received, mut partial): (Vec<Vec<u8>>, Option<Vec<u8>>) = (Vec::new(), None);
            for encoded in &frames {
                prop_assert!((encoded.end() as usize) <= buffers.buffer_length());
                prop_assert!(usize::from(encoded.length) <= frame);
                for (bytes, kind) in read(&buffers, encoded, &mut sequence) {
                    let ChunkKind::Piece { start, end } = kind else { panic!("no pack was encoded") };
                    prop_assert_eq!(start, partial.is_none());
                    let mut message = partial.take().unwrap_or_default();
                    message.extend(bytes);
                    if end { received.push(message) } else { partial = Some(message) }
                }
            }
            prop_assert_eq!(&received, &messages);
            prop_assert_eq!(sequence, begin + chunks);
            // A copy equals the frame in place, apart from its header fields.
            let (encoded, mut copy) = (frames[0], vec![0; frame]);
            let last = encoded.nth(u64::from(encoded.count) - 1);
            let length = buffers.copy_frame(&last, 0, 76 + u64::from(encoded.count), None, &mut copy);
            let mut original = buffers.lend(encoded.buffer);
            let range = encoded.offset as usize..encoded.end() as usize;
            prop_assert_eq!(write_numbers(&mut original[range], encoded.length.into(), 77), encoded.bytes);
            prop_assert_eq!(&copy[..length], &original[last.offset as usize..][..length]);
            buffers.return_buffer(encoded.buffer, original);
            // Split or not, frames are released once.
            for mut encoded in frames {
                if encoded.count > 1 {
                    let rest = encoded.split_off(encoded.count / 2);
                    prop_assert!(encoded.is_followed_by(&rest));
                    buffers.release(&rest);
                }
                buffers.release(&encoded);
            }
            let users: u32 = buffers.buffers.iter().map(|buffer| buffer.users).sum();
            prop_assert!(users <= 1 && buffers.spare.len() <= MAX_SPARE);
            buffers.shrink();
            prop_assert!(buffers.buffers.is_empty() && buffers.spare.is_empty() && buffers.current.is_none());
        }
    }

    #[test]
    fn spare_buffers_are_bounded() {
        let mut buffers = FrameBuffers::new(1472, 4);
        let frames: Vec<EncodedFrames> =
            (0..100 * 44).filter_map(|n| buffers.encode(0, n, true, &[1; 1460]).2).collect();
        assert_eq!(frames.len(), 4400);
        assert_eq!(buffers.buffers.len(), 100);
        frames.iter().for_each(|encoded| buffers.release(encoded));
        assert_eq!(buffers.spare.len(), MAX_SPARE);
    }
}
