//! The sender of a connection: messages of many channels, divided into frames.
//!
//! A frame carries one or more *chunks* of channels. A chunk is either a *piece*, all or part of one message, or a
//! *pack*, several small messages with length prefixes.
//!
//! | module | contents |
//! | --- | --- |
//! | [`channel`], [`queue`] | the messages of a channel, and whose turn it is |
//! | [`single_frame`] | fast path for a message in a single frame |
//! | [`store`] | stored messages and a pool of buffers |
//! | [`flight`] | frames in flight |
//! | [`repair`] | FEC encoder |
//! | [`frame_buffers`] | frames encoded when their messages are sent |
//!
//! Channels of the same priority take turns with a chunk each; channels of a higher priority always go first. A chunk
//! that does not fill a frame shares it with the next.
//!
//! Frames are built when they may leave ([`Sender::build_frame`]). In bulk transfer, if enabled, long messages are
//! encoded into frames already when they are queued; these frames wait for their turn, one frame at a time, and their
//! credit is reserved.

use std::collections::VecDeque;

use smallvec::SmallVec;
use trunkline_endpoint::MAX_BATCH;
use trunkline_units::{Instant, Span};

use crate::Buffer;
use crate::channels::ChannelTable;
use crate::options::CHUNK_COST;
use crate::wire::data::{
    self, CONTROL, ChunkKind, END, FrameHeader, MAX_PACKED, MULTI_HEADER, PACK, SINGLE_HEADER, START,
    packed_length,
};
use crate::wire::{KIND_MULTI, KIND_PACK, KIND_PIECE};

mod channel;
pub(crate) mod flight;
pub(crate) mod frame_buffers;
mod queue;
pub(crate) mod repair;
pub(crate) mod single_frame;
pub(crate) mod store;

use channel::{ChannelDefaults, OutgoingChannel, QueuedMessage};
use flight::{AckSummary, Flight, Flights, FrameContent, Piece, Pieces, SingleFrameAck};
use frame_buffers::{EncodedFrames, FrameBuffers};
use queue::SendQueue;
use store::{BufferPool, MessageStore, StoreIndex};

/// Maximum number of chunks in a frame, in total and per channel: with [`MAX_WINDOW`](crate::options::MAX_WINDOW)
/// frames, sequence numbers stay within half of their range.
const MAX_CHUNKS: usize = 64;
const MAX_CHUNKS_PER_CHANNEL: usize = 3;
/// A piece smaller than this waits for the next frame or for more credit, unless it ends its message.
const MIN_PIECE: usize = 64;

/// Maximum number of queued messages that are encoded together with a new one; together at most a batch of bytes.
const MAX_REENCODED: usize = 8;

#[derive(Debug)]
pub(crate) struct Sender {
    pub flights: Flights,
    store: MessageStore,
    pool: BufferPool,
    /// Present if pre-encoding is enabled.
    frame_buffers: Option<Box<FrameBuffers>>,
    /// The last channel with encoded frames; no encoded frames of other channels wait.
    last_encoded_channel: Option<u16>,
    channels: ChannelTable<OutgoingChannel>,
    send_queue: SendQueue,
    /// The last chunk emptied its channel.
    channel_emptied: bool,
    /// Credit of the connection in total, since it began: granted by the peer, and used.
    limit: u64,
    used: u64,
    channel_defaults: ChannelDefaults,
    /// Bytes that are not divided into frames yet.
    unsent_bytes: usize,
    /// No channel has credit for its data.
    blocked: bool,
    /// Maximum length of a pack in bytes.
    max_pack: usize,
    pub send_buffer: usize,
    /// Channels to report as writable again.
    pub writable: VecDeque<u16>,
}

impl Sender {
    /// Creates a sender with the peer's initial credits; `chunk_capacity` is the number of bytes for chunks in a frame.
    pub fn new(
        selective: bool,
        limit: u32,
        channel_limit: u32,
        send_buffer: usize,
        chunk_capacity: usize,
    ) -> Self {
        Sender {
            flights: Flights::new(selective),
            store: MessageStore::default(),
            pool: BufferPool::default(),
            frame_buffers: None,
            last_encoded_channel: None,
            channels: ChannelTable::default(),
            send_queue: SendQueue::default(),
            channel_emptied: false,
            limit: limit.into(),
            used: 0,
            channel_defaults: ChannelDefaults { limit: channel_limit.into(), sequence: 0 },
            unsent_bytes: 0,
            blocked: false,
            max_pack: chunk_capacity - data::PIGGYBACK - SINGLE_HEADER,
            send_buffer,
            writable: VecDeque::new(),
        }
    }

    /// Sets the numbers of the first frame and of the first chunk of each channel.
    pub fn set_first_numbers(&mut self, frame: u64, chunk: u64) {
        self.channel_defaults.sequence = chunk;
        self.flights.set_first_number(frame);
    }

    /// Enables pre-encoding into frames of `frame` bytes, including `check` bytes of check.
    pub fn enable_pre_encoding(&mut self, frame: usize, check: usize) {
        self.frame_buffers = Some(Box::new(FrameBuffers::new(frame, check)));
    }

    /// Returns whether `channel` accepts another message.
    #[inline]
    pub fn has_room(&mut self, channel: u16) -> bool {
        let send_buffer = self.send_buffer;
        let Some(outgoing) = self.channels.get_mut(channel) else { return true };
        outgoing.full = outgoing.stored_bytes >= send_buffer;
        !outgoing.full
    }

    /// Queues a copy of a message; with `encode_now`, it is encoded into frames immediately, if possible.
    #[inline]
    pub fn queue_copy(&mut self, channel: u16, bytes: &[u8], encode_now: bool) {
        let size = packed_length(bytes.len());
        if size > self.max_pack / 2 || bytes.len() > MAX_PACKED {
            if encode_now && self.can_encode(channel, bytes.len()) {
                return self.encode(channel, bytes);
            }
            let mut buffer = self.pool.take(bytes.len());
            buffer.extend_from_slice(bytes);
            return self.queue_owned(channel, buffer);
        }
        self.close_frame(channel);
        let max_pack = self.max_pack;
        let outgoing = self.channel_defaults.get_or_create(&mut self.channels, channel);
        let last = match outgoing.messages.back() {
            Some(QueuedMessage::Stored(index)) => Some(*index),
            _ => None,
        };
        let index = match last.filter(|at| {
            let stored = self.store.get(*at);
            stored.is_pack && stored.bytes.len() + size <= max_pack
        }) {
            Some(index) => index,
            None => {
                let index = self.store.insert(self.pool.take(max_pack), channel, true);
                outgoing.messages.push_back(QueuedMessage::Stored(index));
                index
            }
        };
        let pack = &mut self.store.get_mut(index).bytes;
        match bytes.len() {
            short @ 0..128 => pack.push(short as u8),
            long => pack.extend_from_slice(&(0x8000 | long as u16).to_be_bytes()),
        }
        pack.extend_from_slice(bytes);
        self.unsent_bytes += size;
        self.blocked = false;
        outgoing.stored_bytes += size;
        outgoing.enqueue(channel, &mut self.send_queue);
    }

    /// Queues a message without a copy.
    #[inline]
    pub fn queue_owned(&mut self, channel: u16, bytes: Buffer) {
        let size = bytes.len();
        if size == 0 {
            return self.queue_copy(channel, &[], false);
        }
        self.close_frame(channel);
        let index = self.store.insert(bytes, channel, false);
        let outgoing = self.channel_defaults.get_or_create(&mut self.channels, channel);
        outgoing.messages.push_back(QueuedMessage::Stored(index));
        self.unsent_bytes += size;
        self.blocked = false;
        outgoing.stored_bytes += size;
        outgoing.enqueue(channel, &mut self.send_queue);
    }

    /// Returns whether a message may be encoded: no other channel has data, and the credit covers the whole message,
    /// because it is used immediately. The message must not wait behind others that might then lack credit: a few
    /// waiting messages are encoded with it.
    #[inline]
    fn can_encode(&mut self, channel: u16, length: usize) -> bool {
        let Some(buffers) = &self.frame_buffers else { return false };
        let outgoing = self.channel_defaults.get_or_create(&mut self.channels, channel);
        let credit = (self.limit - self.used).min(outgoing.limit - outgoing.used);
        let mut cost = length as u64 + CHUNK_COST * buffers.max_chunks(length);
        let mut reencoded = 0;
        for (count, index) in outgoing.unsent_from_last().enumerate() {
            let stored = self.store.get(index);
            reencoded += stored.bytes.len();
            if stored.is_pack || count >= MAX_REENCODED || reencoded > MAX_BATCH {
                return false;
            }
            cost += stored.bytes.len() as u64 + CHUNK_COST * buffers.max_chunks(stored.bytes.len());
        }
        cost <= credit && self.send_queue.has_no_other(channel)
    }

    /// Encodes a message into frames, after the messages that wait before it.
    fn encode(&mut self, channel: u16, bytes: &[u8]) {
        let outgoing = self.channel_defaults.get_or_create(&mut self.channels, channel);
        let Some(buffers) = &mut self.frame_buffers else { return };
        if self.unsent_bytes == 0 {
            buffers.align_batch();
        }
        let (used_before, mut reencoded) = (outgoing.used, 0);
        let indices: SmallVec<[StoreIndex; MAX_REENCODED]> = outgoing.unsent_from_last().collect();
        outgoing.messages.truncate(outgoing.messages.len() - indices.len());
        if !outgoing.has_more() {
            outgoing.encoded_sequence = outgoing.sequence;
        }
        for index in indices.iter().rev() {
            let stored = self.store.get_mut(*index);
            let begin = std::mem::take(&mut outgoing.offset) as usize;
            outgoing.encode(channel, begin, &stored.bytes, buffers);
            reencoded += stored.bytes.len() - begin;
            // The part that was sent from the message itself is needed until it is acknowledged.
            stored.pieces += 1;
            stored.fully_divided = true;
        }
        outgoing.encode(channel, 0, bytes, buffers);
        outgoing.stored_bytes += reencoded + bytes.len();
        outgoing.enqueue(channel, &mut self.send_queue);
        self.used += outgoing.used - used_before;
        self.last_encoded_channel = Some(channel);
        self.unsent_bytes += bytes.len();
        self.blocked = false;
        indices.into_iter().for_each(|index| self.release(index));
    }

    /// Closes the partly filled frame of a channel before another message follows.
    #[inline]
    fn close_frame(&mut self, channel: u16) {
        if let Some(buffers) = &mut self.frame_buffers
            && buffers.open_channel() == Some(channel)
            && let Some(outgoing) = self.channels.get_mut(channel)
        {
            outgoing.close_open_frame(buffers);
        }
    }

    /// Queues a control message for the peer; control messages stay in order.
    pub fn send_control(&mut self, bytes: &[u8]) {
        self.queue_owned(CONTROL, Buffer::from(bytes));
    }

    pub fn prioritize(&mut self, channel: u16, priority: u8) {
        let priority = priority.min(7);
        let outgoing = self.channel_defaults.get_or_create(&mut self.channels, channel);
        let previous = std::mem::replace(&mut outgoing.priority, priority);
        if outgoing.queued && previous != priority {
            self.send_queue.remove(usize::from(previous), channel);
            self.send_queue.add(usize::from(priority), channel);
        }
    }

    pub fn raise_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
        self.blocked = false;
    }

    pub fn raise_channel_limit(&mut self, channel: u16, limit: u64) {
        self.blocked = false;
        let outgoing = self.channel_defaults.get_or_create(&mut self.channels, channel);
        outgoing.limit = outgoing.limit.max(limit);
        if outgoing.has_more() {
            outgoing.enqueue(channel, &mut self.send_queue);
        }
    }

    /// Returns the number of bytes that are not divided into frames yet.
    #[inline]
    pub fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Returns whether there is unsent data and, as far as known, credit for a frame of it.
    #[inline]
    pub fn can_build_frame(&self) -> bool {
        self.unsent_bytes > 0 && !self.blocked
    }

    /// Returns whether all data is acknowledged.
    pub fn is_done(&self) -> bool {
        self.unsent_bytes == 0 && self.flights.is_empty()
    }

    /// Returns whether only control messages are unacknowledged.
    pub fn has_only_control(&self) -> bool {
        let is_control = |number| self.flights.get(number).is_some_and(Flight::is_control_or_acknowledged);
        self.unsent_bytes == 0 && (self.flights.base()..self.flights.next()).all(is_control)
    }

    /// Processes the acknowledgement of all frames before `cumulative`.
    #[inline]
    pub fn acknowledge_until(&mut self, cumulative: u64, summary: &mut AckSummary) {
        // Encoded frames mostly come in groups of one channel.
        let (mut channel, mut bytes) = (CONTROL, 0);
        while let Some(content) = self.flights.pop_acknowledged(cumulative, summary) {
            match content {
                FrameContent::Piece(piece) => self.release(piece.message),
                FrameContent::Pieces(pieces) => pieces.iter().for_each(|piece| self.release(piece.message)),
                FrameContent::Encoded(encoded) => {
                    self.frame_buffers.iter_mut().for_each(|buffers| buffers.release(&encoded));
                    if encoded.channel != channel {
                        self.free_bytes(channel, bytes);
                        (channel, bytes) = (encoded.channel, 0);
                    }
                    bytes += encoded.bytes as usize;
                }
            }
        }
        self.free_bytes(channel, bytes);
        if self.is_done() {
            self.shrink_buffers();
        }
    }

    /// Frees memory that an idle sender does not need.
    #[inline(always)]
    fn shrink_buffers(&mut self) {
        self.pool.shrink();
        if let Some(buffers) = &mut self.frame_buffers {
            buffers.shrink();
        }
    }

    /// Processes the acknowledgement of the only frame in flight.
    #[inline(always)]
    pub fn acknowledge_single(
        &mut self,
        flight_index: u32,
        now: Instant,
        min_rtt: Span,
        is_unambiguous: bool,
    ) -> Option<SingleFrameAck> {
        let acked = self.flights.acknowledge_single(flight_index, now, min_rtt, is_unambiguous)?;
        match self.store.retain_pack(acked.message) {
            Some((channel, bytes)) => self.free_bytes(channel, bytes),
            None => self.release(acked.message),
        }
        if self.unsent_bytes == 0 {
            self.shrink_buffers();
        }
        Some(acked)
    }

    /// Creates a frame with all unsent data, if that is one whole message or pack that has credit and fits into
    /// `max_body` bytes with its header. Returns the number of the frame, and the length of the chunk with its header.
    #[inline]
    pub fn build_single_frame(&mut self, max_body: usize) -> Option<(u64, usize)> {
        let (level, channel) = self.send_queue.only_channel()?;
        let connection_credit = self.limit - self.used;
        let outgoing = self.channels.get_mut(channel)?;
        let &QueuedMessage::Stored(index) = outgoing.messages.front()? else { return None };
        let stored = self.store.get_mut(index);
        let length = stored.bytes.len();
        let cost = length as u64 + CHUNK_COST;
        let is_whole = length == self.unsent_bytes
            && outgoing.offset == 0
            && outgoing.messages.len() == 1
            && !outgoing.has_open_frame;
        let credit = connection_credit.min(outgoing.limit - outgoing.used);
        if !is_whole || length + SINGLE_HEADER > max_body || cost > credit || channel == CONTROL {
            return None;
        }
        let flags = if stored.is_pack { PACK } else { START | END };
        let sequence = outgoing.sequence as u16;
        let piece = Piece { message: index, offset: 0, length: length as u16, channel, sequence, flags };
        (stored.pieces, stored.fully_divided) = (1, true);
        outgoing.messages.clear();
        outgoing.queued = false;
        outgoing.sequence += 1;
        outgoing.used += cost;
        self.used += cost;
        self.channel_emptied = true;
        self.unsent_bytes = 0;
        self.send_queue.advance(level, false);
        let body = length + SINGLE_HEADER;
        Some((self.flights.push(Flight::new(FrameContent::Piece(piece), body)), body))
    }

    /// Releases the stored data of an acknowledged frame.
    #[inline]
    fn release(&mut self, index: StoreIndex) {
        let Some((channel, bytes)) = self.store.release(index) else { return };
        self.free_bytes(channel, bytes.len());
        self.pool.put(bytes);
    }

    #[inline(always)]
    fn free_bytes(&mut self, channel: u16, bytes: usize) {
        let send_buffer = self.send_buffer;
        let Some(outgoing) = self.channels.get_mut(channel) else { return };
        outgoing.stored_bytes -= bytes;
        if outgoing.full && outgoing.stored_bytes <= send_buffer / 2 {
            outgoing.full = false;
            self.writable.push_back(channel);
        }
    }

    /// Creates a frame whose chunks have at most `max_body` bytes with headers; returns its number. None if no data
    /// has credit.
    pub fn build_frame(&mut self, max_body: usize) -> Option<u64> {
        let first = match self.next_piece(max_body - SINGLE_HEADER) {
            NextFrame::Piece(first) => first,
            NextFrame::Encoded(level, channel) => return self.build_encoded_frame(level, channel),
            NextFrame::Nothing => {
                let number = self.build_out_of_turn();
                self.blocked = number.is_none();
                return number;
            }
        };
        let single = usize::from(first.length) + SINGLE_HEADER;
        let mut pieces = Pieces::new();
        pieces.push(first);
        let mut body = single + (MULTI_HEADER - SINGLE_HEADER);
        // A second chunk makes the first chunk's header three bytes longer, so it must be large enough.
        while body + MULTI_HEADER + MIN_PIECE <= max_body && pieces.len() < MAX_CHUNKS {
            let NextFrame::Piece(piece) = self.next_piece(max_body - body - MULTI_HEADER) else { break };
            body += MULTI_HEADER + usize::from(piece.length);
            pieces.push(piece);
            let of_channel = pieces.iter().filter(|other| other.channel == piece.channel).count();
            if of_channel >= MAX_CHUNKS_PER_CHANNEL {
                break;
            }
        }
        let (content, body) = match &pieces[..] {
            [piece] => (FrameContent::Piece(*piece), single),
            _ => (FrameContent::Pieces(pieces), body),
        };
        Some(self.flights.push(Flight::new(content, body)))
    }

    /// Creates a frame from the next encoded one of the channel whose turn it is.
    fn build_encoded_frame(&mut self, level: usize, channel: u16) -> Option<u64> {
        let encoded = self.take_encoded(channel)?;
        self.send_queue.advance(level, self.channels.get(channel).is_some_and(|outgoing| outgoing.queued));
        self.add_encoded_frame(encoded)
    }

    /// Creates a frame from an encoded one out of turn: the channel whose turn it is lacks credit of the connection,
    /// but encoded frames have reserved theirs and must not wait, because the peer grants more only for data that
    /// arrives.
    #[cold]
    fn build_out_of_turn(&mut self) -> Option<u64> {
        let channel = self.last_encoded_channel?;
        let encoded = self.take_encoded(channel)?;
        let outgoing = self.channels.get(channel)?;
        if !outgoing.queued {
            self.send_queue.remove(usize::from(outgoing.priority), channel);
        }
        self.add_encoded_frame(encoded)
    }

    fn add_encoded_frame(&mut self, encoded: EncodedFrames) -> Option<u64> {
        let body = self.frame_buffers.as_ref()?.body_length(&encoded);
        Some(self.flights.push(Flight::new(FrameContent::Encoded(encoded), body)))
    }

    #[inline]
    fn take_encoded(&mut self, channel: u16) -> Option<EncodedFrames> {
        let (outgoing, buffers) = (self.channels.get_mut(channel)?, self.frame_buffers.as_mut()?);
        if outgoing.has_open_frame && outgoing.messages.is_empty() {
            outgoing.close_open_frame(buffers);
        }
        let Some(&QueuedMessage::Encoded(encoded)) = outgoing.messages.front() else { return None };
        let encoded = EncodedFrames { count: 1, bytes: buffers.message_bytes(&encoded), ..encoded };
        outgoing.remove_sent(1, encoded.bytes);
        self.unsent_bytes -= encoded.bytes as usize;
        Some(encoded)
    }

    /// Returns the next chunk, of at most `max_length` bytes, of the channel whose turn it is. A channel without
    /// credit loses its turn until it has more.
    #[inline]
    fn next_piece(&mut self, max_length: usize) -> NextFrame {
        while let Some((level, channel)) = self.send_queue.first() {
            match self.take_piece(channel, max_length) {
                PieceOutcome::Piece(piece) => {
                    self.send_queue.advance(level, !self.channel_emptied);
                    return NextFrame::Piece(piece);
                }
                PieceOutcome::Encoded => return NextFrame::Encoded(level, channel),
                PieceOutcome::NoCredit => self.send_queue.advance(level, false),
                PieceOutcome::NoRoom => return NextFrame::Nothing,
            }
        }
        NextFrame::Nothing
    }

    #[inline]
    fn take_piece(&mut self, channel: u16, max_length: usize) -> PieceOutcome {
        let connection_credit = self.limit - self.used;
        let Some(outgoing) = self.channels.get_mut(channel) else { return PieceOutcome::NoCredit };
        let index = match outgoing.messages.front() {
            None if outgoing.has_open_frame => return PieceOutcome::Encoded,
            Some(QueuedMessage::Stored(index)) => *index,
            Some(QueuedMessage::Encoded(_)) => return PieceOutcome::Encoded,
            None => {
                outgoing.queued = false;
                return PieceOutcome::NoCredit;
            }
        };
        let stored = self.store.get_mut(index);
        let remaining = stored.bytes.len() - outgoing.offset as usize;
        let channel_credit = outgoing.limit - outgoing.used;
        let credit = match channel {
            CONTROL => u64::MAX,
            _ => channel_credit.min(connection_credit).saturating_sub(CHUNK_COST),
        };
        let min_length = if stored.is_pack { remaining } else { remaining.min(MIN_PIECE) };
        if credit < min_length as u64 {
            // Without channel credit, the channel waits for a grant; without connection credit, it keeps
            // its turn.
            if channel_credit.saturating_sub(CHUNK_COST) >= min_length as u64 {
                return PieceOutcome::NoRoom;
            }
            outgoing.queued = false;
            return PieceOutcome::NoCredit;
        }
        if max_length < min_length {
            return PieceOutcome::NoRoom;
        }
        let length = remaining.min(max_length).min(usize::try_from(credit).unwrap_or(usize::MAX));
        let end = length == remaining;
        let flags = match stored.is_pack {
            true => PACK,
            false => (u8::from(outgoing.offset == 0) * START) | (u8::from(end) * END),
        };
        let piece = Piece {
            message: index,
            offset: outgoing.offset,
            length: length as u16,
            channel,
            sequence: outgoing.sequence as u16,
            flags,
        };
        outgoing.sequence += 1;
        stored.pieces += 1;
        stored.fully_divided = end;
        if end {
            outgoing.messages.pop_front();
            outgoing.offset = 0;
        } else {
            outgoing.offset += length as u32;
        }
        outgoing.queued = outgoing.has_more();
        self.channel_emptied = !outgoing.queued;
        if channel != CONTROL {
            let cost = length as u64 + CHUNK_COST;
            outgoing.used += cost;
            self.used += cost;
        }
        self.unsent_bytes -= length;
        PieceOutcome::Piece(piece)
    }

    /// Returns the length of a frame without its check, with or without an acknowledgement.
    #[inline]
    pub fn frame_length(&self, number: u64, acknowledges: bool) -> usize {
        let body = self.flights.get(number).map_or(0, |flight| usize::from(flight.body_length));
        data::HEADER + usize::from(acknowledges) * data::PIGGYBACK + body
    }

    /// Writes a frame at the start of `frame`; returns its length without the check.
    #[inline]
    pub fn write_frame(&self, number: u64, flags: u8, acknowledged: Option<u64>, frame: &mut [u8]) -> usize {
        let Some(flight) = self.flights.get(number) else { return 0 };
        let pieces = match &flight.content {
            FrameContent::Piece(piece) => std::slice::from_ref(piece),
            FrameContent::Pieces(pieces) => pieces,
            FrameContent::Encoded(encoded) => {
                let Some(buffers) = &self.frame_buffers else { return 0 };
                let encoded = encoded.nth(number - flight.first);
                return buffers.copy_frame(&encoded, flags, number, acknowledged, frame);
            }
        };
        if let [piece] = pieces {
            let (kind, position) = match piece.flags & PACK {
                0 => (KIND_PIECE, piece.flags),
                _ => (KIND_PACK, 0),
            };
            let at = FrameHeader::write(kind, flags | position, number, acknowledged, frame);
            data::write_single_header(piece.channel, piece.sequence, &mut frame[at..]);
            return self.write_piece(piece, frame, at + SINGLE_HEADER);
        }
        let mut at = FrameHeader::write(KIND_MULTI, flags, number, acknowledged, frame);
        for piece in pieces {
            let kind = match piece.flags & PACK {
                0 => ChunkKind::Piece { start: piece.flags & START != 0, end: piece.flags & END != 0 },
                _ => ChunkKind::Pack,
            };
            data::write_multi_header(piece.channel, piece.sequence, kind, piece.length, &mut frame[at..]);
            at = self.write_piece(piece, frame, at + MULTI_HEADER);
        }
        at
    }

    /// Returns the encoded frames that are next, if any; a partly filled one only if `close_open_frame` is set.
    #[inline]
    pub fn next_encoded(&mut self, close_open_frame: bool) -> Option<EncodedFrames> {
        let (level, channel) = self.send_queue.first()?;
        let outgoing = self.channels.get_mut(channel)?;
        if close_open_frame && outgoing.has_open_frame && outgoing.messages.is_empty() {
            outgoing.close_open_frame(self.frame_buffers.as_mut()?);
        }
        match outgoing.messages.front() {
            // Other channels take turns between its frames.
            Some(&QueuedMessage::Encoded(encoded)) if self.send_queue.is_shared(level) => {
                Some(EncodedFrames { count: 1, ..encoded })
            }
            Some(&QueuedMessage::Encoded(encoded)) => Some(encoded),
            _ => None,
        }
    }

    /// Records the transmission of the first of the frames that [`next_encoded`](Sender::next_encoded) returned.
    /// `encoded` has their count and message bytes. No frame that was created before waits.
    #[inline]
    pub fn send_encoded(&mut self, now: Instant, encoded: EncodedFrames) {
        let (Some(outgoing), Some(buffers)) = (self.channels.get_mut(encoded.channel), &self.frame_buffers)
        else {
            return;
        };
        outgoing.remove_sent(encoded.count, encoded.bytes);
        self.send_queue.advance(outgoing.priority.into(), outgoing.queued);
        self.unsent_bytes -= encoded.bytes as usize;
        self.flights.send_encoded(now, encoded, buffers.body_length(&encoded) as u16);
    }

    /// Returns whether the next frame is encoded and will be sent in place, without a copy.
    pub fn is_next_encoded(&self) -> bool {
        match self.send_queue.first().and_then(|(_, channel)| self.channels.get(channel)) {
            _ if self.flights.next_to_send().is_some() => false,
            Some(outgoing) => match outgoing.messages.front() {
                Some(message) => matches!(message, QueuedMessage::Encoded(_)),
                None => outgoing.has_open_frame,
            },
            None => false,
        }
    }

    /// Takes the memory of a frame buffer. [Return](Sender::return_frame_buffer) it before any other use of the frame
    /// buffers.
    #[inline]
    pub fn lend_frame_buffer(&mut self, buffer: u32) -> Buffer {
        self.frame_buffers.as_mut().map(|buffers| buffers.lend(buffer)).unwrap_or_default()
    }

    #[inline]
    pub fn return_frame_buffer(&mut self, buffer: u32, bytes: Buffer) {
        if let Some(buffers) = &mut self.frame_buffers {
            buffers.return_buffer(buffer, bytes);
        }
    }

    #[inline]
    pub fn frame_buffer(&self, buffer: u32) -> &[u8] {
        self.frame_buffers.as_ref().map_or(&[], |buffers| buffers.bytes(buffer))
    }

    #[inline]
    fn write_piece(&self, piece: &Piece, frame: &mut [u8], at: usize) -> usize {
        let (begin, length) = (piece.offset as usize, usize::from(piece.length));
        frame[at..at + length].copy_from_slice(&self.store.get(piece.message).bytes[begin..begin + length]);
        at + length
    }
}

/// Outcome of a channel's turn.
enum PieceOutcome {
    Piece(Piece),
    /// The next frame is an encoded one; it was not taken.
    Encoded,
    /// The channel lacks credit or data.
    NoCredit,
    /// The frame lacks space, or the connection lacks credit.
    NoRoom,
}

/// The next data to send.
enum NextFrame {
    Piece(Piece),
    /// An encoded frame of this channel at this level.
    Encoded(usize, u16),
    Nothing,
}
