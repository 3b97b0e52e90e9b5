//! The receiver of a connection: reassembles chunks of many channels into messages.
//!
//! | module | contents |
//! | --- | --- |
//! | [`single_frame`] | fast path for a whole message that the application waits for |
//! | [`arrivals`] | received frame numbers |
//! | [`partials`] | reassembly of frames in parts |
//! | [`repair`] | FEC decoder |
//!
//! An early chunk waits only for chunks of the same channel. Everything stored, early or unread, is covered by credit,
//! so memory is bounded by the credit plus [`CHUNK_COST`] bytes per chunk.

use std::collections::{BTreeMap, VecDeque};

use crate::Buffer;
use crate::channels::ChannelTable;
use crate::options::CHUNK_COST;
use crate::wire::data::{Chunk, ChunkKind, Chunks, is_pack, unpack};
use crate::wire::expand16;

pub(crate) mod arrivals;
pub(crate) mod partials;
pub(crate) mod repair;
mod single_frame;

/// Memory for the expected length of a message is preallocated up to this multiple of what has arrived: beyond that
/// the peer must pay with credit.
const PREALLOCATION_FACTOR: usize = 16;
/// Capacity of a buffer for several small messages.
const PACK_CAPACITY: usize = 8 << 10;

/// The receive queue of a channel.
#[derive(Debug)]
struct IncomingChannel {
    messages: VecDeque<PendingMessage>,
    /// Number of the next chunk.
    next: u64,
    /// Credit in total, since the connection began: granted, used by data that arrived, and freed by the application.
    limit: u64,
    received: u64,
    consumed: u64,
    /// Data was reported to the application.
    readable_reported: bool,
    /// Length of the last complete message.
    last_length: usize,
}

/// Received data, of which `read` bytes are read; reading the rest frees `cost` bytes of credit.
#[derive(Debug)]
enum PendingMessage {
    /// A message, or its first part.
    Message { bytes: Buffer, whole: bool, read: usize, cost: u64 },
    /// Several small messages, each with a length prefix.
    Pack { bytes: Buffer, read: usize, cost: u64 },
}

/// Result of [`Command::Receive`](crate::Command::Receive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveStatus {
    /// A complete message, or the rest of one.
    Complete,
    /// A part of a message that is longer than the credit of its channel; the next call appends more.
    Partial,
    /// No complete message has arrived.
    Empty,
}

/// The peer violated the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProtocolViolation;

#[derive(Debug)]
pub(crate) struct Receiver {
    channels: ChannelTable<IncomingChannel>,
    /// Chunks that arrived before their predecessors, by channel and number.
    early_chunks: BTreeMap<(u16, u64), (ChunkKind, Buffer)>,
    /// Number of the first chunk of each channel.
    pub first_chunk: u64,
    /// Credit of the connection in total, since it began: granted, used by data that arrived, and freed by the
    /// application.
    limit: u64,
    received: u64,
    consumed: u64,
    /// Credit that the peer has at most: of the connection, and of each channel.
    credit: u64,
    channel_credit: u64,
    /// Remaining credit below which the next chunk may not fit: a quarter of the credit, but at least a frame.
    /// `credit_short` is set when it is reached.
    min_credit: u64,
    credit_short: bool,
    /// Channels with data to report.
    pub readable: VecDeque<u16>,
    /// Channels to grant more credit.
    grants: VecDeque<u16>,
    spare: Vec<Buffer>,
}

impl Receiver {
    /// Creates a receiver; `frame` is the maximum frame length, and both credits are at least twice as much.
    pub fn new(credit: u32, channel_credit: u32, frame: u16) -> Self {
        Receiver {
            channels: ChannelTable::default(),
            early_chunks: BTreeMap::new(),
            first_chunk: 0,
            limit: credit.into(),
            received: 0,
            consumed: 0,
            credit: credit.into(),
            channel_credit: channel_credit.into(),
            min_credit: u64::from(credit / 4).max(frame.into()),
            credit_short: false,
            readable: VecDeque::new(),
            grants: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// Processes a chunk of a new frame.
    #[inline]
    pub fn receive_chunk(&mut self, chunk: &Chunk<'_>) -> Result<(), ProtocolViolation> {
        let (first, credit) = (self.first_chunk, self.channel_credit);
        let incoming =
            self.channels.get_or_insert_with(chunk.channel, || IncomingChannel::new(first, credit));
        let cost = chunk.bytes.len() as u64 + CHUNK_COST;
        self.received += cost;
        incoming.received += cost;
        if self.received > self.limit || incoming.received > incoming.limit {
            return Err(ProtocolViolation);
        }
        let sequence = expand16(chunk.sequence, incoming.next);
        if sequence != incoming.next {
            let early = (chunk.kind, Buffer::from(chunk.bytes));
            let is_repeated = sequence < incoming.next
                || self.early_chunks.insert((chunk.channel, sequence), early).is_some();
            return if is_repeated { Err(ProtocolViolation) } else { Ok(()) };
        }
        incoming.accept(chunk.kind, chunk.bytes, &mut self.spare)?;
        if !self.early_chunks.is_empty() {
            while let Some((kind, bytes)) = self.early_chunks.remove(&(chunk.channel, incoming.next)) {
                incoming.accept(kind, &bytes, &mut self.spare)?;
            }
        }
        if self.limit - self.received < self.min_credit && !self.credit_short {
            self.credit_short = true;
            self.report_all_readable();
        } else if !incoming.readable_reported && incoming.is_readable(self.credit_short) {
            incoming.readable_reported = true;
            self.readable.push_back(chunk.channel);
        }
        Ok(())
    }

    /// Starts the reception of consecutive chunks of a known channel, if no early chunk is stored. They use credit
    /// only while it is not short; the general path handles the chunk that makes it short.
    #[inline]
    pub fn begin_batch(&mut self, channel: u16) -> Option<ChannelBatch<'_>> {
        if !self.early_chunks.is_empty() {
            return None;
        }
        let incoming = self.channels.get_mut(channel)?;
        let reserve = if self.credit_short { 0 } else { self.min_credit };
        let connection_credit = self.limit.saturating_sub(self.received + reserve);
        let credit_left = connection_credit.min(incoming.limit.saturating_sub(incoming.received));
        Some(ChannelBatch { incoming, spare: &mut self.spare, channel, credit_left, credit_used: 0 })
    }

    /// Ends the [batch](Receiver::begin_batch), whose chunks have used `credit_used` bytes of credit.
    #[inline]
    pub fn end_batch(&mut self, channel: u16, credit_used: u64) {
        self.received += credit_used;
        self.report_readable(channel);
    }

    /// Reports a channel that has become readable.
    #[inline]
    fn report_readable(&mut self, channel: u16) {
        if let Some(incoming) = self.channels.get_mut(channel)
            && !incoming.readable_reported
            && incoming.is_readable(self.credit_short)
        {
            incoming.readable_reported = true;
            self.readable.push_back(channel);
        }
    }

    /// Reports all channels with data when credit is short: partial messages may then be received, otherwise channels
    /// could wait for each other forever.
    #[cold]
    fn report_all_readable(&mut self) {
        let channels: Vec<u16> = self.channels.iter().map(|(channel, _)| channel).collect();
        channels.into_iter().for_each(|channel| self.report_readable(channel));
    }

    /// Returns the next message of a channel. If `into` is empty, a large message is swapped in without a copy, and
    /// the memory of `into` is reused.
    #[inline]
    pub fn take_message(&mut self, channel: u16, into: &mut Buffer) -> ReceiveStatus {
        let Some(incoming) = self.channels.get_mut(channel) else { return ReceiveStatus::Empty };
        let (status, freed) = incoming.take(into, self.credit_short, &mut self.spare);
        self.consumed += freed;
        if incoming.consume(freed, self.channel_credit) {
            self.grants.push_back(channel);
        }
        if incoming.messages.is_empty() && self.readable.front() == Some(&channel) {
            // It was received before it was reported.
            self.readable.pop_front();
            incoming.readable_reported = false;
        }
        status
    }

    /// Copies data of a channel as a byte stream, up to the length of `into`; returns the number of bytes.
    pub fn read(&mut self, channel: u16, into: &mut [u8]) -> usize {
        let Some(incoming) = self.channels.get_mut(channel) else { return 0 };
        let (mut read, mut freed) = (0, 0);
        while read < into.len() {
            let Some((bytes, cost)) = incoming.read(&mut into[read..]) else {
                incoming.readable_reported = false;
                break;
            };
            freed += cost;
            read += bytes;
        }
        self.consumed += freed;
        if incoming.consume(freed, self.channel_credit) {
            self.grants.push_back(channel);
        }
        read
    }

    /// Returns the unread bytes of a channel plus [`CHUNK_COST`] for each chunk.
    pub fn unread_bytes(&self, channel: u16) -> u64 {
        self.channels.get(channel).map_or(0, |incoming| incoming.received - incoming.consumed)
    }

    /// Returns whether a grant of credit is due.
    #[inline]
    pub fn needs_grant(&self) -> bool {
        self.consumed + self.credit - self.limit >= self.credit / 2 || !self.grants.is_empty()
    }

    /// Returns the new total credit of the connection, once half of it is freed.
    #[inline]
    pub fn grant(&mut self) -> Option<u64> {
        let limit = self.consumed + self.credit;
        (limit - self.limit >= self.credit / 2).then(|| {
            self.limit = limit;
            self.credit_short = false;
            limit
        })
    }

    /// Returns a channel and its new total credit.
    #[inline]
    pub fn grant_channel(&mut self) -> Option<(u16, u64)> {
        let channel = self.grants.pop_front()?;
        let credit = self.channel_credit;
        let incoming = self.channels.get_mut(channel)?;
        incoming.limit = incoming.consumed + credit;
        Some((channel, incoming.limit))
    }
}

/// Reception of consecutive chunks of one channel.
#[derive(Debug)]
pub(crate) struct ChannelBatch<'a> {
    incoming: &'a mut IncomingChannel,
    spare: &'a mut Vec<Buffer>,
    channel: u16,
    /// Credit available, and used.
    credit_left: u64,
    credit_used: u64,
}

impl ChannelBatch<'_> {
    /// Accepts the only piece of a frame if it is the next one and needs no further checks; returns whether it did.
    #[inline]
    pub fn take_piece(&mut self, sequence: u16, (start, end): (bool, bool), bytes: &[u8]) -> bool {
        let credit_used = self.credit_used + bytes.len() as u64 + CHUNK_COST;
        let next = sequence == self.incoming.next as u16 && start != self.incoming.is_partial();
        if !next || credit_used > self.credit_left {
            return false;
        }
        self.credit_used = credit_used;
        self.incoming.accept(ChunkKind::Piece { start, end }, bytes, self.spare).is_ok()
    }

    /// Accepts all chunks of a frame or none; returns whether it did.
    pub fn take_pieces(&mut self, chunks: Chunks<'_>) -> bool {
        let (mut next, mut partial) = (self.incoming.next, self.incoming.is_partial());
        let mut credit_used = self.credit_used;
        for chunk in chunks.clone() {
            let ChunkKind::Piece { start, end } = chunk.kind else { return false };
            credit_used += chunk.bytes.len() as u64 + CHUNK_COST;
            let is_next = (chunk.channel, chunk.sequence) == (self.channel, next as u16);
            if !is_next || start == partial || credit_used > self.credit_left {
                return false;
            }
            (next, partial) = (next + 1, !end);
        }
        self.credit_used = credit_used;
        let mut chunks = chunks;
        chunks.all(|chunk| self.incoming.accept(chunk.kind, chunk.bytes, self.spare).is_ok())
    }

    /// Ends the batch; returns the credit used.
    #[inline]
    pub fn finish(self) -> u64 {
        self.incoming.received += self.credit_used;
        self.credit_used
    }
}

impl IncomingChannel {
    fn new(first: u64, credit: u64) -> Self {
        IncomingChannel {
            messages: VecDeque::new(),
            next: first,
            limit: credit,
            received: 0,
            consumed: 0,
            readable_reported: false,
            last_length: 0,
        }
    }

    #[inline]
    fn is_partial(&self) -> bool {
        matches!(self.messages.back(), Some(PendingMessage::Message { whole: false, .. }))
    }

    /// Frees credit; returns whether a grant has become due.
    #[inline]
    fn consume(&mut self, freed: u64, credit: u64) -> bool {
        let was_due = self.needs_grant(credit);
        self.consumed += freed;
        !was_due && self.needs_grant(credit)
    }

    /// Returns whether a grant is due.
    #[inline]
    fn needs_grant(&self, credit: u64) -> bool {
        self.consumed + credit - self.limit >= credit / 2
    }

    /// Returns whether there is data to receive: a complete message, or a part of one if the credit for the rest is
    /// short, either of the channel or, with `credit_short`, of the connection.
    #[inline]
    fn is_readable(&self, credit_short: bool) -> bool {
        match self.messages.front() {
            None => false,
            Some(PendingMessage::Pack { .. } | PendingMessage::Message { whole: true, .. }) => true,
            Some(PendingMessage::Message { whole: false, bytes, read, .. }) => {
                bytes.len() > *read && (credit_short || self.is_large_part(bytes.len() - read))
            }
        }
    }

    /// Returns whether a partial message is delivered before its end arrives: from a quarter of the credit on.
    #[inline]
    fn is_large_part(&self, unread: usize) -> bool {
        unread as u64 * 4 >= self.limit - self.consumed
    }

    /// Appends the next chunk.
    #[inline]
    fn accept(
        &mut self,
        kind: ChunkKind,
        chunk: &[u8],
        spare: &mut Vec<Buffer>,
    ) -> Result<(), ProtocolViolation> {
        self.next += 1;
        let chunk_cost = chunk.len() as u64 + CHUNK_COST;
        let last_length = self.last_length;
        match (kind, self.messages.back_mut()) {
            (
                ChunkKind::Piece { start: false, end },
                Some(PendingMessage::Message { bytes, whole: false, cost, .. }),
            ) => {
                if bytes.len() + chunk.len() > bytes.capacity() {
                    grow(bytes, chunk.len(), last_length, spare);
                }
                bytes.extend_from_slice(chunk);
                *cost += chunk_cost;
                if end {
                    self.finish();
                }
            }
            (ChunkKind::Piece { start: false, .. }, _)
            | (_, Some(PendingMessage::Message { whole: false, .. })) => {
                return Err(ProtocolViolation);
            }
            (ChunkKind::Piece { start: true, end }, _) => {
                let capacity = if end { chunk.len() } else { initial_capacity(chunk.len(), last_length) };
                let mut bytes = take_buffer(spare, capacity);
                bytes.extend_from_slice(chunk);
                let message = PendingMessage::Message { bytes, whole: false, read: 0, cost: chunk_cost };
                self.messages.push_back(message);
                if end {
                    self.finish();
                }
            }
            (ChunkKind::Pack, _) if !is_pack(chunk) => return Err(ProtocolViolation),
            (ChunkKind::Pack, Some(PendingMessage::Pack { bytes, cost, .. }))
                if bytes.len() + chunk.len() <= bytes.capacity() =>
            {
                bytes.extend_from_slice(chunk);
                *cost += chunk_cost;
            }
            (ChunkKind::Pack, last) => {
                // The first pack gets a buffer of its size, to keep idle channels small; further packs get a larger
                // one.
                let is_first = !matches!(last, Some(PendingMessage::Pack { .. }));
                let capacity = if is_first { chunk.len() } else { PACK_CAPACITY.max(chunk.len()) };
                let mut bytes = take_buffer(spare, capacity);
                bytes.extend_from_slice(chunk);
                self.messages.push_back(PendingMessage::Pack { bytes, read: 0, cost: chunk_cost });
            }
        }
        Ok(())
    }

    #[inline]
    fn finish(&mut self) {
        if let Some(PendingMessage::Message { bytes, whole, .. }) = self.messages.back_mut() {
            *whole = true;
            self.last_length = bytes.len();
        }
    }

    /// Moves the next message, or a part of it, to `into`; returns the result and the credit freed.
    #[inline]
    fn take(
        &mut self,
        into: &mut Buffer,
        credit_short: bool,
        spare: &mut Vec<Buffer>,
    ) -> (ReceiveStatus, u64) {
        if !self.is_readable(credit_short) {
            self.readable_reported = false;
            return (ReceiveStatus::Empty, 0);
        }
        let Some(front) = self.messages.front_mut() else { return (ReceiveStatus::Empty, 0) };
        match front {
            PendingMessage::Pack { bytes, read, cost } => {
                let Some((begin, end)) = unpack(bytes, *read) else { return (ReceiveStatus::Empty, 0) };
                into.extend_from_slice(&bytes[begin..end]);
                let mut freed = (end - *read) as u64;
                *cost -= freed;
                *read = end;
                if end == bytes.len() {
                    freed += *cost;
                    self.drop_front(spare);
                }
                (ReceiveStatus::Complete, freed)
            }
            PendingMessage::Message { bytes, whole: true, read, cost } => {
                let freed = *cost;
                if into.is_empty() && *read == 0 {
                    std::mem::swap(into, bytes);
                } else {
                    into.extend_from_slice(&bytes[*read..]);
                }
                self.drop_front(spare);
                (ReceiveStatus::Complete, freed)
            }
            PendingMessage::Message { bytes, read, cost, .. } => {
                into.extend_from_slice(&bytes[*read..]);
                let freed = *cost;
                (*cost, *read) = (0, 0);
                bytes.clear();
                (ReceiveStatus::Partial, freed)
            }
        }
    }

    /// Copies from the first message; returns the number of bytes and the credit freed, none if there is no data.
    fn read(&mut self, into: &mut [u8]) -> Option<(usize, u64)> {
        let (length, is_complete, cost) = match self.messages.front_mut()? {
            PendingMessage::Message { bytes, read, whole, .. } if *read == bytes.len() && !*whole => {
                return None;
            }
            PendingMessage::Message { bytes, read, cost, whole } => {
                let length = into.len().min(bytes.len() - *read);
                into[..length].copy_from_slice(&bytes[*read..*read + length]);
                *read += length;
                let all = *read == bytes.len();
                if all && !*whole {
                    // Read data is not stored until the message ends, and its credit is freed.
                    let freed = std::mem::take(cost);
                    bytes.clear();
                    *read = 0;
                    return Some((length, freed));
                }
                if *read >= bytes.len() / 2 && !*whole {
                    bytes.copy_within(*read.., 0);
                    bytes.resize(bytes.len() - *read, 0);
                    *read = 0;
                }
                (length, all, cost)
            }
            PendingMessage::Pack { bytes, read, cost } => {
                let (begin, end) = unpack(bytes, *read)?;
                let length = into.len().min(end - begin);
                into[..length].copy_from_slice(&bytes[begin..begin + length]);
                *read = begin + length;
                if *read < end {
                    write_remaining_length(bytes, read, end);
                }
                (length, *read == bytes.len(), cost)
            }
        };
        let mut freed = (length as u64).min(*cost);
        *cost -= freed;
        if is_complete {
            freed += *cost;
            self.messages.pop_front();
        }
        Some((length, freed))
    }

    /// Removes the first message, and keeps its buffer as a spare one.
    #[inline]
    fn drop_front(&mut self, spare: &mut Vec<Buffer>) {
        let Some(PendingMessage::Message { mut bytes, .. } | PendingMessage::Pack { mut bytes, .. }) =
            self.messages.pop_front()
        else {
            return;
        };
        if spare.len() < MAX_SPARE && (1..=MAX_SPARE_BUFFER).contains(&bytes.capacity()) {
            bytes.clear();
            spare.push(bytes);
        }
    }
}

/// Writes the remaining length of a message that ends at `end` before the rest.
fn write_remaining_length(bytes: &mut Buffer, read: &mut usize, end: usize) {
    let remaining = end - *read;
    if remaining < 128 {
        *read -= 1;
        bytes[*read] = remaining as u8;
    } else {
        *read -= 2;
        bytes[*read..*read + 2].copy_from_slice(&(0x8000 | remaining as u16).to_be_bytes());
    }
}

/// Maximum number and size of spare buffers.
const MAX_SPARE: usize = 32;
const MAX_SPARE_BUFFER: usize = 256 << 10;

/// Returns the initial capacity for a message of which `received` bytes have arrived, and which may become as long as
/// the last message: the preallocation limit or, if that is less than a quarter of `last_length`, what has arrived.
#[inline]
fn initial_capacity(received: usize, last_length: usize) -> usize {
    let preallocated = last_length.min(PREALLOCATION_FACTOR * received);
    if preallocated < last_length / 4 { received } else { preallocated.max(received) }
}

/// Grows the buffer of a message for `additional` bytes, preferably at once to the length of the last message. Beyond
/// that, and while little may be preallocated, the capacity doubles.
fn grow(bytes: &mut Buffer, additional: usize, last_length: usize, spare: &mut Vec<Buffer>) {
    let received = bytes.len() + additional;
    if last_length >= received && PREALLOCATION_FACTOR * received >= last_length / 4 {
        let mut longer = take_buffer(spare, initial_capacity(received, last_length));
        longer.extend_from_slice(bytes);
        *bytes = longer;
    }
}

/// Returns an empty buffer with a capacity of `bytes`, and not much more.
#[inline]
fn take_buffer(spare: &mut Vec<Buffer>, bytes: usize) -> Buffer {
    match spare.last() {
        Some(last) if last.capacity() >= bytes && last.capacity() / 4 <= bytes => {
            spare.pop().unwrap_or_default()
        }
        _ => Buffer::with_capacity(bytes),
    }
}
