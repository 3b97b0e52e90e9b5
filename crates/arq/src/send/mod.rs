//! The sending half of a connection: messages of many channels, cut into frames.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`store`] | messages until they are acknowledged, and buffers to be used again |
//! | [`flight`] | frames until they are acknowledged |
//! | [`repair`] | repair frames, as they are made |
//!
//! Channels of the same priority take turns, a chunk each; a more urgent one goes first always. What does not fill a
//! frame shares it with what comes next.

use std::collections::VecDeque;

use crate::Buffer;
use crate::channels::Channels;
use crate::options::CHUNK_COST;
use crate::wire::data::{self, ALONE, AMONG, CONTROL, END, Form, Head, LONGEST_PACKED, PACK, START, packed};
use crate::wire::{KIND_MANY, KIND_PACK, KIND_PIECE};

pub(crate) mod flight;
pub(crate) mod repair;
pub(crate) mod store;

use flight::{Flight, Flights, News, Piece, Pieces};
use store::{Place, Pool, Store};

/// Priorities of channels, 0 to 7, and one above for what the ends tell each other.
const LEVELS: usize = 9;
/// Most chunks of a frame, and most of one channel: with [`MAX_WINDOW`](crate::options::MAX_WINDOW) frames that keeps
/// sequence numbers within half of their range.
const CHUNKS: usize = 64;
const OF_ONE_CHANNEL: usize = 3;
/// A piece smaller than this waits for the next frame or for more credit, unless it is the rest of its message.
const WORTH: usize = 64;

/// What a channel has to send.
#[derive(Debug, Default)]
struct Outgoing {
    messages: VecDeque<Place>,
    /// Of the first message, what has been cut.
    cut: u32,
    /// Chunks cut so far.
    sequence: u64,
    /// What the peer takes, ever, and what was used of it.
    limit: u64,
    used: u64,
    /// Bytes kept.
    kept: usize,
    priority: u8,
    /// It has its turn coming.
    queued: bool,
    /// Its user was told that it is full.
    full: bool,
}

/// What a channel begins with.
#[derive(Clone, Copy, Debug)]
struct Fresh {
    /// What the peer takes before it says more.
    limit: u64,
    /// The number of the first chunk.
    sequence: u64,
}

impl Fresh {
    fn of(self, channel: u16) -> Outgoing {
        let Fresh { limit, sequence } = self;
        match channel {
            CONTROL => {
                Outgoing { limit: u64::MAX, priority: LEVELS as u8 - 1, sequence, ..Outgoing::default() }
            }
            _ => Outgoing { limit, sequence, ..Outgoing::default() },
        }
    }
}

impl Outgoing {
    /// It has something to send: its turn will come.
    #[inline]
    fn queue(&mut self, channel: u16, turns: &mut Turns) {
        if !self.queued {
            self.queued = true;
            turns.add(usize::from(self.priority), channel);
        }
    }
}

/// The sending half.
#[derive(Debug)]
pub(crate) struct Sender {
    pub flights: Flights,
    store: Store,
    pool: Pool,
    channels: Channels<Outgoing>,
    turns: Turns,
    /// The last chunk was all that its channel had to send.
    last_of_channel: bool,
    /// What the peer takes of all channels together, and what was used of it.
    limit: u64,
    used: u64,
    fresh: Fresh,
    /// Bytes not cut yet.
    waiting: usize,
    /// No credit lets any of them leave.
    blocked: bool,
    /// Most bytes that a pack may have.
    longest_pack: usize,
    send_buffer: usize,
    /// Channels that were full and are not.
    eased: VecDeque<u16>,
}

impl Sender {
    /// `room` is what a frame has for chunks.
    pub fn new(selective: bool, limit: u32, channel_limit: u32, send_buffer: usize, room: usize) -> Self {
        Sender {
            flights: Flights::new(selective),
            store: Store::default(),
            pool: Pool::default(),
            channels: Channels::default(),
            turns: Turns::default(),
            last_of_channel: false,
            limit: limit.into(),
            used: 0,
            fresh: Fresh { limit: channel_limit.into(), sequence: 0 },
            waiting: 0,
            blocked: false,
            longest_pack: room - data::PIGGYBACK - ALONE,
            send_buffer,
            eased: VecDeque::new(),
        }
    }

    #[inline]
    fn channel(&mut self, channel: u16) -> &mut Outgoing {
        let fresh = self.fresh;
        self.channels.get_or(channel, || fresh.of(channel))
    }

    /// The first frame, and the first chunk of each channel, have these numbers.
    pub fn number_from(&mut self, frame: u64, chunk: u64) {
        self.fresh.sequence = chunk;
        self.flights.number_from(frame);
    }

    /// Whether `channel` takes another message.
    #[inline]
    pub fn has_room(&mut self, channel: u16) -> bool {
        let most = self.send_buffer;
        let outgoing = self.channel(channel);
        outgoing.full = outgoing.kept >= most;
        !outgoing.full
    }

    /// Takes a copy of a message.
    #[inline]
    pub fn copy(&mut self, channel: u16, bytes: &[u8]) {
        let size = packed(bytes.len());
        if size > self.longest_pack / 2 || bytes.len() > LONGEST_PACKED {
            let mut buffer = self.pool.take(bytes.len());
            buffer.extend_from_slice(bytes);
            return self.hand_over(channel, buffer);
        }
        let longest = self.longest_pack;
        let fresh = self.fresh;
        let outgoing = self.channels.get_or(channel, || fresh.of(channel));
        let last = outgoing.messages.back().copied();
        let place = match last.filter(|at| {
            let kept = self.store.get(*at);
            kept.is_pack && kept.bytes.len() + size <= longest
        }) {
            Some(place) => place,
            None => {
                let place = self.store.keep(self.pool.take(longest), channel, true);
                outgoing.messages.push_back(place);
                place
            }
        };
        let pack = &mut self.store.get_mut(place).bytes;
        match bytes.len() {
            short @ 0..128 => pack.push(short as u8),
            long => pack.extend_from_slice(&(0x8000 | long as u16).to_be_bytes()),
        }
        pack.extend_from_slice(bytes);
        self.waiting += size;
        self.blocked = false;
        outgoing.kept += size;
        outgoing.queue(channel, &mut self.turns);
    }

    /// Takes a message.
    #[inline]
    pub fn hand_over(&mut self, channel: u16, bytes: Buffer) {
        let size = bytes.len();
        if size == 0 {
            return self.copy(channel, &[]);
        }
        let place = self.store.keep(bytes, channel, false);
        let fresh = self.fresh;
        let outgoing = self.channels.get_or(channel, || fresh.of(channel));
        outgoing.messages.push_back(place);
        self.waiting += size;
        self.blocked = false;
        outgoing.kept += size;
        outgoing.queue(channel, &mut self.turns);
    }

    /// Tells the other end something, after everything told before.
    pub fn tell(&mut self, bytes: &[u8]) {
        self.hand_over(CONTROL, Buffer::from(bytes));
    }

    /// How urgent a channel is from now on.
    pub fn prioritize(&mut self, channel: u16, priority: u8) {
        let outgoing = self.channel(channel);
        let before = std::mem::replace(&mut outgoing.priority, priority.min(7));
        if outgoing.queued && before != priority.min(7) {
            self.turns.remove(usize::from(before), channel);
            self.turns.add(usize::from(priority.min(7)), channel);
        }
    }

    /// The peer takes more, of all channels together.
    pub fn raise_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
        self.blocked = false;
    }

    /// The peer takes more of one channel.
    pub fn raise_channel_limit(&mut self, channel: u16, limit: u64) {
        self.blocked = false;
        let fresh = self.fresh;
        let outgoing = self.channels.get_or(channel, || fresh.of(channel));
        outgoing.limit = outgoing.limit.max(limit);
        if !outgoing.messages.is_empty() {
            outgoing.queue(channel, &mut self.turns);
        }
    }

    /// Bytes not cut yet.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether there is something to cut and, as far as is known, credit for it.
    #[inline]
    pub fn can_cut(&self) -> bool {
        self.waiting > 0 && !self.blocked
    }

    /// Whether everything that was taken has been acknowledged.
    pub fn is_done(&self) -> bool {
        self.waiting == 0 && self.flights.is_empty()
    }

    /// Whether all that is not acknowledged is what the ends tell each other.
    pub fn has_only_told(&self) -> bool {
        let told = |number| self.flights.get(number).is_some_and(Flight::is_told);
        self.waiting == 0 && (self.flights.base()..self.flights.next()).all(told)
    }

    /// A channel that was full and takes messages again.
    pub fn take_eased(&mut self) -> Option<u16> {
        self.eased.pop_front()
    }

    /// Everything before `cumulative` has arrived.
    #[inline]
    pub fn advance(&mut self, cumulative: u64, news: &mut News) {
        while self.flights.has_before(cumulative) {
            self.flights.acknowledge(self.flights.base(), news);
            let Some(pieces) = self.flights.forget_first(news) else { break };
            pieces.iter().for_each(|piece| self.release(piece.place));
        }
        if self.is_done() {
            self.pool.shrink();
        }
    }

    /// The only frame there is, which is in flight, has arrived.
    #[inline]
    pub fn settle(&mut self, news: &mut News) {
        if let Some(piece) = self.flights.settle(news) {
            self.release(piece.place);
        }
        if self.waiting == 0 {
            self.pool.shrink();
        }
    }

    /// Whether no channel is to be told of.
    #[inline]
    pub fn has_told(&self) -> bool {
        self.eased.is_empty()
    }

    /// Cuts a frame of all that there is to send, if that is one whole message or pack, which fits into `room`, its head
    /// included, and for which there is credit; its number and its bytes, head included.
    #[inline]
    pub fn cut_only(&mut self, room: usize) -> Option<(u64, usize)> {
        let (level, channel) = self.turns.only()?;
        let left = self.limit - self.used;
        let outgoing = self.channels.get_mut(channel)?;
        let &place = outgoing.messages.front()?;
        let kept = self.store.get_mut(place);
        let length = kept.bytes.len();
        let cost = length as u64 + CHUNK_COST;
        let whole = length == self.waiting && outgoing.cut == 0 && outgoing.messages.len() == 1;
        let credit = left.min(outgoing.limit - outgoing.used);
        if !whole || length + ALONE > room || cost > credit || channel == CONTROL {
            return None;
        }
        let flags = if kept.is_pack { PACK } else { START | END };
        let sequence = outgoing.sequence as u16;
        let piece = Piece { place, offset: 0, length: length as u16, channel, sequence, flags };
        (kept.pieces, kept.cut) = (1, true);
        outgoing.messages.clear();
        outgoing.queued = false;
        outgoing.sequence += 1;
        outgoing.used += cost;
        self.used += cost;
        self.last_of_channel = true;
        self.waiting = 0;
        self.turns.pass(level, false);
        let body = length + ALONE;
        Some((self.flights.cut(Flight::new(smallvec::smallvec![piece], body)), body))
    }

    /// What a frame that is done with carried can be forgotten.
    #[inline]
    fn release(&mut self, place: Place) {
        let Some((channel, bytes)) = self.store.release(place) else { return };
        let most = self.send_buffer;
        let outgoing = self.channel(channel);
        outgoing.kept -= bytes.len();
        if outgoing.full && outgoing.kept <= most / 2 {
            outgoing.full = false;
            self.eased.push_back(channel);
        }
        self.pool.give(bytes);
    }

    /// Cuts a frame whose chunks, heads included, take at most `room` bytes; its number. None if there is nothing that
    /// the peer's credit lets through.
    pub fn cut(&mut self, room: usize) -> Option<u64> {
        let Some(first) = self.next_piece(room - ALONE) else {
            self.blocked = true;
            return None;
        };
        let alone = usize::from(first.length) + ALONE;
        let mut pieces = Pieces::new();
        pieces.push(first);
        let mut body = alone + (AMONG - ALONE);
        // The three bytes more that the first one's head takes must be worth it.
        while body + AMONG + WORTH <= room && pieces.len() < CHUNKS {
            let Some(piece) = self.next_piece(room - body - AMONG) else { break };
            body += AMONG + usize::from(piece.length);
            pieces.push(piece);
            let of_one = pieces.iter().filter(|other| other.channel == piece.channel).count();
            if of_one >= OF_ONE_CHANNEL {
                break;
            }
        }
        let body = if pieces.len() == 1 { alone } else { body };
        Some(self.flights.cut(Flight::new(pieces, body)))
    }

    /// The next chunk, of at most `most` bytes, of the channel whose turn it is. A channel without credit loses its
    /// turn until it has more.
    #[inline]
    fn next_piece(&mut self, most: usize) -> Option<Piece> {
        while let Some((level, channel)) = self.turns.first() {
            match self.take_piece(channel, most) {
                Taken::Piece(piece) => {
                    self.turns.pass(level, !self.last_of_channel);
                    return Some(piece);
                }
                Taken::NoCredit => self.turns.pass(level, false),
                Taken::NoRoom => return None,
            }
        }
        None
    }

    #[inline]
    fn take_piece(&mut self, channel: u16, most: usize) -> Taken {
        let left = self.limit - self.used;
        let Some(outgoing) = self.channels.get_mut(channel) else { return Taken::NoCredit };
        let Some(&place) = outgoing.messages.front() else {
            outgoing.queued = false;
            return Taken::NoCredit;
        };
        let kept = self.store.get_mut(place);
        let whole = kept.bytes.len() - outgoing.cut as usize;
        let own = outgoing.limit - outgoing.used;
        let credit = if channel == CONTROL { u64::MAX } else { own.min(left).saturating_sub(CHUNK_COST) };
        let least = if kept.is_pack { whole } else { whole.min(WORTH) };
        if credit < least as u64 {
            // Short of its own credit it waits to be told; short of everybody's, for its turn.
            if own.saturating_sub(CHUNK_COST) >= least as u64 {
                return Taken::NoRoom;
            }
            outgoing.queued = false;
            return Taken::NoCredit;
        }
        if most < least {
            return Taken::NoRoom;
        }
        let length = whole.min(most).min(usize::try_from(credit).unwrap_or(usize::MAX));
        let end = length == whole;
        let flags = match kept.is_pack {
            true => PACK,
            false => (u8::from(outgoing.cut == 0) * START) | (u8::from(end) * END),
        };
        let piece = Piece {
            place,
            offset: outgoing.cut,
            length: length as u16,
            channel,
            sequence: outgoing.sequence as u16,
            flags,
        };
        outgoing.sequence += 1;
        kept.pieces += 1;
        kept.cut = end;
        if end {
            outgoing.messages.pop_front();
            outgoing.cut = 0;
        } else {
            outgoing.cut += length as u32;
        }
        outgoing.queued = !outgoing.messages.is_empty();
        self.last_of_channel = !outgoing.queued;
        if channel != CONTROL {
            let cost = length as u64 + CHUNK_COST;
            outgoing.used += cost;
            self.used += cost;
        }
        self.waiting -= length;
        Taken::Piece(piece)
    }

    /// Bytes of a frame without its check, if it is sent with an acknowledgement or without.
    #[inline]
    pub fn length(&self, number: u64, acknowledges: bool) -> usize {
        let body = self.flights.get(number).map_or(0, |flight| usize::from(flight.body));
        data::HEADER + usize::from(acknowledges) * data::PIGGYBACK + body
    }

    /// Writes a frame at the start of `frame`; how long it is without its check.
    #[inline]
    pub fn write(&self, number: u64, flags: u8, acknowledged: Option<u64>, frame: &mut [u8]) -> usize {
        let Some(flight) = self.flights.get(number) else { return 0 };
        if let [piece] = &flight.pieces[..] {
            let (kind, form) = match piece.flags & PACK {
                0 => (KIND_PIECE, piece.flags),
                _ => (KIND_PACK, 0),
            };
            let at = Head::write(kind, flags | form, number, acknowledged, frame);
            data::write_alone(piece.channel, piece.sequence, &mut frame[at..]);
            return self.put(piece, frame, at + ALONE);
        }
        let mut at = Head::write(KIND_MANY, flags, number, acknowledged, frame);
        for piece in &flight.pieces {
            let form = match piece.flags & PACK {
                0 => Form::Piece { start: piece.flags & START != 0, end: piece.flags & END != 0 },
                _ => Form::Pack,
            };
            data::write_among(piece.channel, piece.sequence, form, piece.length, &mut frame[at..]);
            at = self.put(piece, frame, at + AMONG);
        }
        at
    }

    #[inline]
    fn put(&self, piece: &Piece, frame: &mut [u8], at: usize) -> usize {
        let (begin, length) = (piece.offset as usize, usize::from(piece.length));
        frame[at..at + length].copy_from_slice(&self.store.get(piece.place).bytes[begin..begin + length]);
        at + length
    }
}

/// Whose turn it is: channels by priority.
#[derive(Debug, Default)]
struct Turns {
    levels: [VecDeque<u16>; LEVELS],
    /// A bit for each level that has any.
    any: u16,
}

impl Turns {
    /// The most urgent, and its level.
    #[inline]
    fn first(&self) -> Option<(usize, u16)> {
        let level = self.any.checked_ilog2()? as usize;
        self.levels[level].front().map(|channel| (level, *channel))
    }

    /// The only channel that has its turn coming, and its level.
    #[inline]
    fn only(&self) -> Option<(usize, u16)> {
        let turns = self.first().filter(|_| self.any.is_power_of_two());
        turns.filter(|(level, _)| self.levels[*level].len() == 1)
    }

    #[inline]
    fn add(&mut self, level: usize, channel: u16) {
        self.levels[level].push_back(channel);
        self.any |= 1 << level;
    }

    /// The first of a level has had its turn; it gets another when all others have, if it has more to send.
    #[inline]
    fn pass(&mut self, level: usize, more: bool) {
        let turns = &mut self.levels[level];
        if more && turns.len() == 1 {
            return;
        }
        let channel = turns.pop_front();
        if more {
            turns.extend(channel);
        } else if turns.is_empty() {
            self.any &= !(1 << level);
        }
    }

    fn remove(&mut self, level: usize, channel: u16) {
        self.levels[level].retain(|other| *other != channel);
        if self.levels[level].is_empty() {
            self.any &= !(1 << level);
        }
    }
}

/// What became of a channel's turn.
enum Taken {
    Piece(Piece),
    /// It has none, or nothing to send.
    NoCredit,
    /// The frame has no room for it, or the connection no credit.
    NoRoom,
}
