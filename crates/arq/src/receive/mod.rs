//! The receiving half of a connection: chunks of many channels, put together to messages.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`alone`] | a message that comes whole, for somebody who waits |
//! | [`arrivals`] | which frames have arrived |
//! | [`partials`] | frames that come in parts |
//! | [`repair`] | frames rebuilt from others |
//!
//! A chunk that comes early waits for those of its own channel only. All that waits, early or not yet taken, is paid
//! for by credit, so memory has a bound: the credit, and [`CHUNK_COST`] bytes a chunk.

use std::collections::{BTreeMap, VecDeque};

use crate::Buffer;
use crate::channels::Channels;
use crate::options::CHUNK_COST;
use crate::wire::data::{Chunk, Chunks, Form, is_pack, unpack};
use crate::wire::expand16;

mod alone;
pub(crate) mod arrivals;
pub(crate) mod partials;
pub(crate) mod repair;

/// A message that begins like the last one gets room for as much, up to so many times what is there of it: more is for the
/// peer to pay with credit.
const UNPAID: usize = 16;
/// Room for more small messages that a buffer of them gets.
const PACK_ROOM: usize = 8 << 10;

/// What has arrived of a channel.
#[derive(Debug)]
struct Incoming {
    arrived: VecDeque<Arrived>,
    /// The number of the next chunk.
    next: u64,
    /// What was granted, what arrived, and what of that was taken, ever.
    limit: u64,
    received: u64,
    taken: u64,
    /// Its user knows that there is something.
    told: bool,
    /// How long the last whole message was.
    last: usize,
}

/// Something that has arrived and is not taken.
#[derive(Debug)]
enum Arrived {
    /// A message, or its beginning.
    Message { bytes: Buffer, whole: bool, read: usize, cost: u64 },
    /// Small messages, each after its length.
    Pack { bytes: Buffer, read: usize, cost: u64 },
}

/// A chunk that came before others of its channel.
#[derive(Debug)]
struct Early {
    form: Form,
    bytes: Buffer,
}

/// What a user got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A whole message, or the rest of it.
    Whole,
    /// A part of a message that is longer than the credit of its channel; the next call appends more.
    Part,
    /// Nothing: no whole message is there yet.
    Nothing,
}

/// A peer that does what no peer may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation;

/// The receiving half.
#[derive(Debug)]
pub(crate) struct Receiver {
    channels: Channels<Incoming>,
    early: BTreeMap<(u16, u64), Early>,
    /// The number of each channel's first chunk.
    first: u64,
    limit: u64,
    received: u64,
    taken: u64,
    credit: u64,
    channel_credit: u64,
    /// What is left of the credit may be too little for the next chunk: less than this, which is a quarter of it and no
    /// less than a frame.
    least: u64,
    tight: bool,
    /// Channels that have something to take, to be told.
    readable: VecDeque<u16>,
    /// Channels that may be granted more.
    grants: VecDeque<u16>,
    spare: Vec<Buffer>,
}

impl Receiver {
    /// `frame` is the longest frame that comes; either credit is at least twice that.
    pub fn new(credit: u32, channel_credit: u32, frame: u16) -> Self {
        Receiver {
            channels: Channels::default(),
            early: BTreeMap::new(),
            first: 0,
            limit: credit.into(),
            received: 0,
            taken: 0,
            credit: credit.into(),
            channel_credit: channel_credit.into(),
            least: u64::from(credit / 4).max(frame.into()),
            tight: false,
            readable: VecDeque::new(),
            grants: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// The first chunk of each channel has this number.
    pub fn number_from(&mut self, chunk: u64) {
        self.first = chunk;
    }

    /// Takes a chunk of a frame that has not arrived before.
    #[inline]
    pub fn take_chunk(&mut self, chunk: &Chunk<'_>) -> Result<(), Violation> {
        let (first, credit) = (self.first, self.channel_credit);
        let incoming = self.channels.get_or(chunk.channel, || Incoming::new(first, credit));
        let cost = chunk.bytes.len() as u64 + CHUNK_COST;
        self.received += cost;
        incoming.received += cost;
        if self.received > self.limit || incoming.received > incoming.limit {
            return Err(Violation);
        }
        let sequence = expand16(chunk.sequence, incoming.next);
        if sequence != incoming.next {
            let early = Early { form: chunk.form, bytes: Buffer::from(chunk.bytes) };
            let known =
                sequence < incoming.next || self.early.insert((chunk.channel, sequence), early).is_some();
            return if known { Err(Violation) } else { Ok(()) };
        }
        incoming.accept(chunk.form, chunk.bytes, &mut self.spare)?;
        if !self.early.is_empty() {
            while let Some(early) = self.early.remove(&(chunk.channel, incoming.next)) {
                incoming.accept(early.form, &early.bytes, &mut self.spare)?;
            }
        }
        if self.limit - self.received < self.least && !self.tight {
            self.tight = true;
            self.tell_all();
        } else if !incoming.told && incoming.has_something(self.tight) {
            incoming.told = true;
            self.readable.push_back(chunk.channel);
        }
        Ok(())
    }

    /// Begins to take chunks that are the next of a channel, of which some have come, while none is early on any. They use
    /// credit only as far as it is not short: what makes it so goes the long way.
    #[inline]
    pub fn begin_run(&mut self, channel: u16) -> Option<Run<'_>> {
        if !self.early.is_empty() {
            return None;
        }
        let incoming = self.channels.get_mut(channel)?;
        let least = if self.tight { 0 } else { self.least };
        let left = self.limit.saturating_sub(self.received + least);
        let left = left.min(incoming.limit.saturating_sub(incoming.received));
        Some(Run { incoming, spare: &mut self.spare, channel, left, came: 0 })
    }

    /// Chunks that [a run](Receiver::begin_run) took have used so much credit.
    #[inline]
    pub fn end_run(&mut self, channel: u16, came: u64) {
        self.received += came;
        self.tell(channel);
    }

    /// Tells that a channel has something to take, if it does and nobody knows.
    #[inline]
    fn tell(&mut self, channel: u16) {
        if let Some(incoming) = self.channels.get_mut(channel)
            && !incoming.told
            && incoming.has_something(self.tight)
        {
            incoming.told = true;
            self.readable.push_back(channel);
        }
    }

    /// Credit is short: whoever holds a part of a message may give it out, or they might wait for each other for ever.
    #[cold]
    fn tell_all(&mut self) {
        let channels: Vec<u16> = self.channels.iter().map(|(channel, _)| channel).collect();
        channels.into_iter().for_each(|channel| self.tell(channel));
    }

    /// A channel that has something to take, and had nothing before.
    #[inline]
    pub fn take_readable(&mut self) -> Option<u16> {
        self.readable.pop_front()
    }

    /// Whether no channel is to be told of.
    #[inline]
    pub fn has_told(&self) -> bool {
        self.readable.is_empty()
    }

    /// Gives the next message of a channel. Into an empty buffer it is not copied, if it is a large one; the buffer's
    /// own memory is used again.
    #[inline]
    pub fn take(&mut self, channel: u16, into: &mut Buffer) -> Taken {
        let Some(incoming) = self.channels.get_mut(channel) else { return Taken::Nothing };
        let (taken, freed) = incoming.take(into, self.tight, &mut self.spare);
        self.taken += freed;
        if incoming.free(freed, self.channel_credit) {
            self.grants.push_back(channel);
        }
        if incoming.arrived.is_empty() && self.readable.front() == Some(&channel) {
            // It was taken before its user was told.
            self.readable.pop_front();
            incoming.told = false;
        }
        taken
    }

    /// Copies what has arrived of a channel, whatever its messages, as much as there is and `into` holds; how much.
    pub fn read(&mut self, channel: u16, into: &mut [u8]) -> usize {
        let Some(incoming) = self.channels.get_mut(channel) else { return 0 };
        let (mut read, mut freed) = (0, 0);
        while read < into.len() {
            let Some((bytes, cost)) = incoming.read(&mut into[read..]) else {
                incoming.told = false;
                break;
            };
            freed += cost;
            read += bytes;
        }
        self.freed(channel, freed);
        read
    }

    /// Bytes that have arrived of a channel and are not taken; with [`CHUNK_COST`] for each chunk.
    pub fn held(&self, channel: u16) -> u64 {
        self.channels.get(channel).map_or(0, |incoming| incoming.received - incoming.taken)
    }

    #[inline]
    fn freed(&mut self, channel: u16, freed: u64) {
        self.taken += freed;
        let Some(incoming) = self.channels.get_mut(channel) else { return };
        if incoming.free(freed, self.channel_credit) {
            self.grants.push_back(channel);
        }
    }

    /// Whether the peer may be told that it may send more.
    #[inline]
    pub fn may_grant(&self) -> bool {
        self.taken + self.credit - self.limit >= self.credit / 2 || !self.grants.is_empty()
    }

    /// What the peer may be told that it may send: of all channels together, once half of the credit is used up.
    #[inline]
    pub fn grant(&mut self) -> Option<u64> {
        let limit = self.taken + self.credit;
        (limit - self.limit >= self.credit / 2).then(|| {
            self.limit = limit;
            self.tight = false;
            limit
        })
    }

    /// Of one channel.
    #[inline]
    pub fn grant_channel(&mut self) -> Option<(u16, u64)> {
        let channel = self.grants.pop_front()?;
        let credit = self.channel_credit;
        let incoming = self.channels.get_mut(channel)?;
        incoming.limit = incoming.taken + credit;
        Some((channel, incoming.limit))
    }
}

/// Chunks of one channel that come in order, one after another.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    incoming: &'a mut Incoming,
    spare: &'a mut Vec<Buffer>,
    channel: u16,
    /// Credit that may be used, and what was.
    left: u64,
    came: u64,
}

impl Run<'_> {
    /// Takes the piece that is all of a frame, if it is the next and leaves nothing to be looked into; whether it did.
    #[inline]
    pub fn take_piece(&mut self, sequence: u16, (start, end): (bool, bool), bytes: &[u8]) -> bool {
        let came = self.came + bytes.len() as u64 + CHUNK_COST;
        let next = sequence == self.incoming.next as u16 && start != self.incoming.is_partial();
        if !next || came > self.left {
            return false;
        }
        self.came = came;
        self.incoming.accept(Form::Piece { start, end }, bytes, self.spare).is_ok()
    }

    /// The same of the chunks of a frame: all or none.
    pub fn take_pieces(&mut self, chunks: Chunks<'_>) -> bool {
        let (mut next, mut partial) = (self.incoming.next, self.incoming.is_partial());
        let mut came = self.came;
        for chunk in chunks.clone() {
            let Form::Piece { start, end } = chunk.form else { return false };
            came += chunk.bytes.len() as u64 + CHUNK_COST;
            let is_next = (chunk.channel, chunk.sequence) == (self.channel, next as u16);
            if !is_next || start == partial || came > self.left {
                return false;
            }
            (next, partial) = (next + 1, !end);
        }
        self.came = came;
        let mut chunks = chunks;
        chunks.all(|chunk| self.incoming.accept(chunk.form, chunk.bytes, self.spare).is_ok())
    }

    /// That was all; the credit that it used.
    #[inline]
    pub fn end(self) -> u64 {
        self.incoming.received += self.came;
        self.came
    }
}

impl Incoming {
    fn new(first: u64, credit: u64) -> Self {
        Incoming {
            arrived: VecDeque::new(),
            next: first,
            limit: credit,
            received: 0,
            taken: 0,
            told: false,
            last: 0,
        }
    }

    /// Whether the last message has not come to its end.
    #[inline]
    fn is_partial(&self) -> bool {
        matches!(self.arrived.back(), Some(Arrived::Message { whole: false, .. }))
    }

    /// So much more has been taken; whether more should be granted, which it should not before.
    #[inline]
    fn free(&mut self, freed: u64, credit: u64) -> bool {
        let before = self.owes(credit);
        self.taken += freed;
        !before && self.owes(credit)
    }

    /// Whether more should be granted.
    #[inline]
    fn owes(&self, credit: u64) -> bool {
        self.taken + credit - self.limit >= credit / 2
    }

    /// Whether there is something to take: a whole message, or part of one for the rest of which credit is short, be it
    /// the channel's or, if that is `tight`, the connection's.
    #[inline]
    fn has_something(&self, tight: bool) -> bool {
        match self.arrived.front() {
            None => false,
            Some(Arrived::Pack { .. } | Arrived::Message { whole: true, .. }) => true,
            Some(Arrived::Message { whole: false, bytes, read, .. }) => {
                bytes.len() > *read && (tight || self.is_long(bytes.len() - read))
            }
        }
    }

    /// Whether so much of a message is handed out before its end has come: a quarter of what may be granted.
    #[inline]
    fn is_long(&self, held: usize) -> bool {
        held as u64 * 4 >= self.limit - self.taken
    }

    #[inline]
    fn accept(&mut self, form: Form, chunk: &[u8], spare: &mut Vec<Buffer>) -> Result<(), Violation> {
        self.next += 1;
        let more = chunk.len() as u64 + CHUNK_COST;
        let last = self.last;
        match (form, self.arrived.back_mut()) {
            (Form::Piece { start: false, end }, Some(Arrived::Message { bytes, whole: false, cost, .. })) => {
                if bytes.len() + chunk.len() > bytes.capacity() {
                    grow(bytes, chunk.len(), last, spare);
                }
                bytes.extend_from_slice(chunk);
                *cost += more;
                if end {
                    self.finish();
                }
            }
            (Form::Piece { start: false, .. }, _) | (_, Some(Arrived::Message { whole: false, .. })) => {
                return Err(Violation);
            }
            (Form::Piece { start: true, end }, _) => {
                let mut bytes = obtain(spare, if end { chunk.len() } else { room(chunk.len(), last) });
                bytes.extend_from_slice(chunk);
                self.arrived.push_back(Arrived::Message { bytes, whole: false, read: 0, cost: more });
                if end {
                    self.finish();
                }
            }
            (Form::Pack, _) if !is_pack(chunk) => return Err(Violation),
            (Form::Pack, Some(Arrived::Pack { bytes, cost, .. }))
                if bytes.len() + chunk.len() <= bytes.capacity() =>
            {
                bytes.extend_from_slice(chunk);
                *cost += more;
            }
            (Form::Pack, before) => {
                // The first has a buffer to its measure: an idle channel should hold little. More means many.
                let many = matches!(before, Some(Arrived::Pack { .. }));
                let room = if many { PACK_ROOM.max(chunk.len()) } else { chunk.len() };
                let mut bytes = obtain(spare, room);
                bytes.extend_from_slice(chunk);
                self.arrived.push_back(Arrived::Pack { bytes, read: 0, cost: more });
            }
        }
        Ok(())
    }

    #[inline]
    fn finish(&mut self) {
        if let Some(Arrived::Message { bytes, whole, .. }) = self.arrived.back_mut() {
            *whole = true;
            self.last = bytes.len();
        }
    }

    #[inline]
    fn take(&mut self, into: &mut Buffer, tight: bool, spare: &mut Vec<Buffer>) -> (Taken, u64) {
        if !self.has_something(tight) {
            self.told = false;
            return (Taken::Nothing, 0);
        }
        let Some(front) = self.arrived.front_mut() else { return (Taken::Nothing, 0) };
        match front {
            Arrived::Pack { bytes, read, cost } => {
                let Some((begin, end)) = unpack(bytes, *read) else { return (Taken::Nothing, 0) };
                into.extend_from_slice(&bytes[begin..end]);
                let mut freed = (end - *read) as u64;
                *cost -= freed;
                *read = end;
                if end == bytes.len() {
                    freed += *cost;
                    self.drop_front(spare);
                }
                (Taken::Whole, freed)
            }
            Arrived::Message { bytes, whole: true, read, cost } => {
                let freed = *cost;
                if into.is_empty() && *read == 0 {
                    std::mem::swap(into, bytes);
                } else {
                    into.extend_from_slice(&bytes[*read..]);
                }
                self.drop_front(spare);
                (Taken::Whole, freed)
            }
            Arrived::Message { bytes, read, cost, .. } => {
                into.extend_from_slice(&bytes[*read..]);
                let freed = *cost;
                (*cost, *read) = (0, 0);
                bytes.clear();
                (Taken::Part, freed)
            }
        }
    }

    /// Copies of the first thing there is; how many bytes, and what credit that frees. None if there is nothing.
    fn read(&mut self, into: &mut [u8]) -> Option<(usize, u64)> {
        let (length, done, cost) = match self.arrived.front_mut()? {
            Arrived::Message { bytes, read, whole, .. } if *read == bytes.len() && !*whole => return None,
            Arrived::Message { bytes, read, cost, whole } => {
                let length = into.len().min(bytes.len() - *read);
                into[..length].copy_from_slice(&bytes[*read..*read + length]);
                *read += length;
                let all = *read == bytes.len();
                if all && !*whole {
                    // What was read is not kept until the message ends, and its chunks are paid back.
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
            Arrived::Pack { bytes, read, cost } => {
                let (begin, end) = unpack(bytes, *read)?;
                let length = into.len().min(end - begin);
                into[..length].copy_from_slice(&bytes[begin..begin + length]);
                *read = begin + length;
                if *read < end {
                    shorten(bytes, read, end);
                }
                (length, *read == bytes.len(), cost)
            }
        };
        let mut freed = (length as u64).min(*cost);
        *cost -= freed;
        if done {
            freed += *cost;
            self.arrived.pop_front();
        }
        Some((length, freed))
    }

    #[inline]
    fn drop_front(&mut self, spare: &mut Vec<Buffer>) {
        let Some(Arrived::Message { mut bytes, .. } | Arrived::Pack { mut bytes, .. }) =
            self.arrived.pop_front()
        else {
            return;
        };
        if spare.len() < SPARE && (1..=LARGEST_SPARE).contains(&bytes.capacity()) {
            bytes.clear();
            spare.push(bytes);
        }
    }
}

/// Puts the length of what is left of a message, which ends at `end`, before it.
fn shorten(bytes: &mut Buffer, read: &mut usize, end: usize) {
    let left = end - *read;
    if left < 128 {
        *read -= 1;
        bytes[*read] = left as u8;
    } else {
        *read -= 2;
        bytes[*read..*read + 2].copy_from_slice(&(0x8000 | left as u16).to_be_bytes());
    }
}

/// Buffers kept to be used again, and the largest of them.
const SPARE: usize = 32;
const LARGEST_SPARE: usize = 256 << 10;

/// Room for a message of which so many bytes are there, and which may become as long as the `last`: as much as is lent,
/// or, if that is less than a quarter, what is there.
#[inline]
fn room(there: usize, last: usize) -> usize {
    let lent = last.min(UNPAID * there);
    if lent < last / 4 { there } else { lent.max(there) }
}

/// Makes room for `more` bytes of a message that grows, at once for as much as the last one had, if that is known of it.
/// Beyond that, and while little of it is lent, it doubles.
fn grow(bytes: &mut Buffer, more: usize, last: usize, spare: &mut Vec<Buffer>) {
    let there = bytes.len() + more;
    if last >= there && UNPAID * there >= last / 4 {
        let mut longer = obtain(spare, room(there, last));
        longer.extend_from_slice(bytes);
        *bytes = longer;
    }
}

/// An empty buffer with room for `bytes`, and not much more.
#[inline]
fn obtain(spare: &mut Vec<Buffer>, bytes: usize) -> Buffer {
    match spare.last() {
        Some(last) if last.capacity() >= bytes && last.capacity() / 4 <= bytes => {
            spare.pop().unwrap_or_default()
        }
        _ => Buffer::with_capacity(bytes),
    }
}
