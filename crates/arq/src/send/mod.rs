//! The sending half of a connection: messages of many channels, cut into frames.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`alone`] | a message that leaves at once in a frame of its own |
//! | [`store`] | messages until they are acknowledged, and buffers to be used again |
//! | [`flight`] | frames until they are acknowledged |
//! | [`repair`] | repair frames, as they are made |
//! | [`sheets`] | frames laid out when their messages come |
//!
//! Channels of the same priority take turns, a chunk each; a more urgent one goes first always. What does not fill a
//! frame shares it with what comes next. In full flow, if that was asked for, long messages are laid out in frames when
//! they come; they wait for their turn, a frame each, and have their credit already.

use std::collections::VecDeque;

use smallvec::SmallVec;
use trunkline_endpoint::MAX_BATCH;
use trunkline_units::{Instant, Span};

use crate::Buffer;
use crate::channels::Channels;
use crate::options::CHUNK_COST;
use crate::wire::data::{self, ALONE, AMONG, CONTROL, END, Form, Head, LONGEST_PACKED, PACK, START, packed};
use crate::wire::{KIND_MANY, KIND_PACK, KIND_PIECE};

pub(crate) mod alone;
pub(crate) mod flight;
pub(crate) mod repair;
pub(crate) mod sheets;
pub(crate) mod store;

use flight::{Flight, Flights, Load, News, Piece, Pieces, Settled};
use sheets::{Laid, Sheets};
use store::{Place, Pool, Store};

/// Priorities of channels, 0 to 7, and one above for what the ends tell each other.
const LEVELS: usize = 9;
/// Most chunks of a frame, and most of one channel: with [`MAX_WINDOW`](crate::options::MAX_WINDOW) frames that keeps
/// sequence numbers within half of their range.
const CHUNKS: usize = 64;
const OF_ONE_CHANNEL: usize = 3;
/// A piece smaller than this waits for the next frame or for more credit, unless it is the rest of its message.
const WORTH: usize = 64;

/// Most messages that are laid out when another is, because they wait before it; of no more bytes than a batch has.
const RELAID: usize = 8;

/// What a channel has to send.
#[derive(Debug, Default)]
struct Outgoing {
    messages: VecDeque<Message>,
    /// It has a frame that is being laid out, with what came after all messages.
    open: bool,
    /// Of the first message, what has been cut.
    cut: u32,
    /// Chunks cut so far; and those with what is laid out, while that waits.
    sequence: u64,
    ahead: u64,
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

/// What waits on a channel to be cut.
#[derive(Clone, Copy, Debug)]
enum Message {
    /// A message, or small ones.
    Kept(Place),
    /// Frames of messages. Only such stand before them.
    Laid(Laid),
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
    /// Whether it has something to send.
    #[inline]
    fn has_more(&self) -> bool {
        self.open || !self.messages.is_empty()
    }

    /// What waits last and was not laid out, the last first.
    #[inline]
    fn kept_last(&self) -> impl Iterator<Item = Place> + '_ {
        self.messages.iter().rev().map_while(|message| match message {
            Message::Kept(place) => Some(*place),
            Message::Laid(_) => None,
        })
    }

    /// Lays out what follows `begin` of a message.
    #[inline]
    fn lay(&mut self, channel: u16, begin: usize, message: &[u8], sheets: &mut Sheets) {
        let mut at = begin;
        while at < message.len() {
            let (length, chunks, laid) = sheets.put(channel, self.ahead, at == 0, &message[at..]);
            at += length;
            self.ahead += chunks;
            self.used += length as u64 + CHUNK_COST * chunks;
            if let Some(laid) = laid {
                self.push(laid);
            }
        }
        self.open = sheets.open().is_some();
    }

    /// More frames wait, in the last record if they are like its.
    #[inline]
    fn push(&mut self, laid: Laid) {
        match self.messages.back_mut() {
            Some(Message::Laid(last)) if last.goes_on_with(&laid) => last.join(&laid),
            _ => self.messages.push_back(Message::Laid(laid)),
        }
    }

    /// Nothing more will stand on its open frame.
    fn take_open(&mut self, sheets: &mut Sheets) {
        if let Some(laid) = sheets.close() {
            self.push(laid);
        }
        self.open = false;
    }

    /// The first `count` frames that it had laid out leave, with so many bytes of messages.
    #[inline]
    fn leave(&mut self, count: u16, bytes: u32) {
        if let Some(Message::Laid(first)) = self.messages.front_mut() {
            if count < first.count {
                let rest = first.part(count);
                *first = Laid { bytes: rest.bytes - bytes, ..rest };
            } else {
                self.messages.pop_front();
            }
        }
        if !self.open && !matches!(self.messages.front(), Some(Message::Laid(_))) {
            self.sequence = self.ahead;
        }
        self.queued = self.has_more();
    }

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
    /// If frames may be laid out when their messages come.
    sheets: Option<Box<Sheets>>,
    /// The last channel that laid out any: none but it has such frames waiting.
    laid_last: Option<u16>,
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
            sheets: None,
            laid_last: None,
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

    /// From now on frames may be laid out when their messages come, `frame` bytes long, of which `check` are the check's.
    pub fn lay_frames(&mut self, frame: usize, check: usize) {
        self.sheets = Some(Box::new(Sheets::new(frame, check)));
    }

    /// Whether `channel` takes another message.
    #[inline]
    pub fn has_room(&mut self, channel: u16) -> bool {
        let most = self.send_buffer;
        let Some(outgoing) = self.channels.get_mut(channel) else { return true };
        outgoing.full = outgoing.kept >= most;
        !outgoing.full
    }

    /// Takes a copy of a message. In full flow (`flows`) it is laid out in frames at once, if that may be done.
    #[inline]
    pub fn copy(&mut self, channel: u16, bytes: &[u8], flows: bool) {
        let size = packed(bytes.len());
        if size > self.longest_pack / 2 || bytes.len() > LONGEST_PACKED {
            if flows && self.may_lay(channel, bytes.len()) {
                return self.lay(channel, bytes);
            }
            let mut buffer = self.pool.take(bytes.len());
            buffer.extend_from_slice(bytes);
            return self.hand_over(channel, buffer);
        }
        self.close_frame(channel);
        let longest = self.longest_pack;
        let fresh = self.fresh;
        let outgoing = self.channels.get_or(channel, || fresh.of(channel));
        let last = match outgoing.messages.back() {
            Some(Message::Kept(place)) => Some(*place),
            _ => None,
        };
        let place = match last.filter(|at| {
            let kept = self.store.get(*at);
            kept.is_pack && kept.bytes.len() + size <= longest
        }) {
            Some(place) => place,
            None => {
                let place = self.store.keep(self.pool.take(longest), channel, true);
                outgoing.messages.push_back(Message::Kept(place));
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
            return self.copy(channel, &[], false);
        }
        self.close_frame(channel);
        let place = self.store.keep(bytes, channel, false);
        let fresh = self.fresh;
        let outgoing = self.channels.get_or(channel, || fresh.of(channel));
        outgoing.messages.push_back(Message::Kept(place));
        self.waiting += size;
        self.blocked = false;
        outgoing.kept += size;
        outgoing.queue(channel, &mut self.turns);
    }

    /// Whether a message may be laid out: no other channel has a turn coming, and there is credit for all of it, which
    /// it takes now. So it must not wait behind what might lack credit then: that is laid out with it, if it is little.
    #[inline]
    fn may_lay(&mut self, channel: u16, length: usize) -> bool {
        let Some(sheets) = &self.sheets else { return false };
        let (fresh, left) = (self.fresh, self.limit - self.used);
        let outgoing = self.channels.get_or(channel, || fresh.of(channel));
        let credit = left.min(outgoing.limit - outgoing.used);
        let mut cost = length as u64 + CHUNK_COST * sheets.most_chunks(length);
        let mut again = 0;
        for (index, place) in outgoing.kept_last().enumerate() {
            let kept = self.store.get(place);
            again += kept.bytes.len();
            if kept.is_pack || index >= RELAID || again > MAX_BATCH {
                return false;
            }
            cost += kept.bytes.len() as u64 + CHUNK_COST * sheets.most_chunks(kept.bytes.len());
        }
        cost <= credit && self.turns.has_none_but(channel)
    }

    /// Lays out a message in frames, after what waits before it.
    fn lay(&mut self, channel: u16, bytes: &[u8]) {
        let fresh = self.fresh;
        let outgoing = self.channels.get_or(channel, || fresh.of(channel));
        let Some(sheets) = &mut self.sheets else { return };
        if self.waiting == 0 {
            sheets.settle();
        }
        let (before, mut again) = (outgoing.used, 0);
        let places: SmallVec<[Place; RELAID]> = outgoing.kept_last().collect();
        outgoing.messages.truncate(outgoing.messages.len() - places.len());
        if !outgoing.has_more() {
            outgoing.ahead = outgoing.sequence;
        }
        for place in places.iter().rev() {
            let kept = self.store.get_mut(*place);
            let begin = std::mem::take(&mut outgoing.cut) as usize;
            outgoing.lay(channel, begin, &kept.bytes, sheets);
            again += kept.bytes.len() - begin;
            // What has been cut of it is needed until it is acknowledged.
            kept.pieces += 1;
            kept.cut = true;
        }
        outgoing.lay(channel, 0, bytes, sheets);
        outgoing.kept += again + bytes.len();
        outgoing.queue(channel, &mut self.turns);
        self.used += outgoing.used - before;
        self.laid_last = Some(channel);
        self.waiting += bytes.len();
        self.blocked = false;
        places.into_iter().for_each(|place| self.release(place));
    }

    /// Something else is to follow what was laid out last, if that is the channel's.
    #[inline]
    fn close_frame(&mut self, channel: u16) {
        if let Some(sheets) = &mut self.sheets
            && sheets.open() == Some(channel)
            && let Some(outgoing) = self.channels.get_mut(channel)
        {
            outgoing.take_open(sheets);
        }
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
        if outgoing.has_more() {
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
        // Of frames that were laid out, mostly many of one channel.
        let (mut channel, mut bytes) = (CONTROL, 0);
        while let Some(load) = self.flights.forget_first(cumulative, news) {
            match load {
                Load::Piece(piece) => self.release(piece.place),
                Load::Pieces(pieces) => pieces.iter().for_each(|piece| self.release(piece.place)),
                Load::Laid(laid) => {
                    self.sheets.iter_mut().for_each(|sheets| sheets.release(&laid));
                    if laid.channel != channel {
                        self.freed(channel, bytes);
                        (channel, bytes) = (laid.channel, 0);
                    }
                    bytes += laid.bytes as usize;
                }
            }
        }
        self.freed(channel, bytes);
        if self.is_done() {
            self.pool.shrink();
            self.sheets.iter_mut().for_each(|sheets| sheets.shrink());
        }
    }

    /// The only frame there is, which is in flight and has this record, has arrived.
    #[inline(always)]
    pub fn settle(&mut self, record: u32, now: Instant, least: Span, sure: bool) -> Option<Settled> {
        let settled = self.flights.settle(record, now, least, sure)?;
        match self.store.rest(settled.place) {
            Some((channel, bytes)) => self.freed(channel, bytes),
            None => self.release(settled.place),
        }
        if self.waiting == 0 {
            self.pool.shrink();
            if let Some(sheets) = &mut self.sheets {
                sheets.shrink();
            }
        }
        Some(settled)
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
        let &Message::Kept(place) = outgoing.messages.front()? else { return None };
        let kept = self.store.get_mut(place);
        let length = kept.bytes.len();
        let cost = length as u64 + CHUNK_COST;
        let whole =
            length == self.waiting && outgoing.cut == 0 && outgoing.messages.len() == 1 && !outgoing.open;
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
        Some((self.flights.cut(Flight::new(Load::Piece(piece), body)), body))
    }

    /// What a frame that is done with carried can be forgotten.
    #[inline]
    fn release(&mut self, place: Place) {
        let Some((channel, bytes)) = self.store.release(place) else { return };
        self.freed(channel, bytes.len());
        self.pool.give(bytes);
    }

    /// So many bytes of a channel need not be kept any more.
    #[inline(always)]
    fn freed(&mut self, channel: u16, bytes: usize) {
        let most = self.send_buffer;
        let Some(outgoing) = self.channels.get_mut(channel) else { return };
        outgoing.kept -= bytes;
        if outgoing.full && outgoing.kept <= most / 2 {
            outgoing.full = false;
            self.eased.push_back(channel);
        }
    }

    /// Cuts a frame whose chunks, heads included, take at most `room` bytes; its number. None if there is nothing that
    /// the peer's credit lets through.
    pub fn cut(&mut self, room: usize) -> Option<u64> {
        let first = match self.next_piece(room - ALONE) {
            Next::Piece(first) => first,
            Next::Laid(level, channel) => return self.cut_laid(level, channel),
            Next::Nothing => {
                let number = self.cut_out_of_turn();
                self.blocked = number.is_none();
                return number;
            }
        };
        let alone = usize::from(first.length) + ALONE;
        let mut pieces = Pieces::new();
        pieces.push(first);
        let mut body = alone + (AMONG - ALONE);
        // The three bytes more that the first one's head takes must be worth it.
        while body + AMONG + WORTH <= room && pieces.len() < CHUNKS {
            let Next::Piece(piece) = self.next_piece(room - body - AMONG) else { break };
            body += AMONG + usize::from(piece.length);
            pieces.push(piece);
            let of_one = pieces.iter().filter(|other| other.channel == piece.channel).count();
            if of_one >= OF_ONE_CHANNEL {
                break;
            }
        }
        let (load, body) = match &pieces[..] {
            [piece] => (Load::Piece(*piece), alone),
            _ => (Load::Pieces(pieces), body),
        };
        Some(self.flights.cut(Flight::new(load, body)))
    }

    /// Takes the frame that a channel has had laid out as the next.
    fn cut_laid(&mut self, level: usize, channel: u16) -> Option<u64> {
        let laid = self.take_laid(channel)?;
        self.turns.pass(level, self.channels.get(channel).is_some_and(|outgoing| outgoing.queued));
        self.cut_taken(laid)
    }

    /// Whoever has a turn is short of everybody's credit. What was laid out has taken its own before, and must not wait
    /// for others: the peer grants more for what has come only.
    #[cold]
    fn cut_out_of_turn(&mut self) -> Option<u64> {
        let channel = self.laid_last?;
        let laid = self.take_laid(channel)?;
        let outgoing = self.channels.get(channel)?;
        if !outgoing.queued {
            self.turns.remove(usize::from(outgoing.priority), channel);
        }
        self.cut_taken(laid)
    }

    fn cut_taken(&mut self, laid: Laid) -> Option<u64> {
        let body = self.sheets.as_ref()?.body(&laid);
        Some(self.flights.cut(Flight::new(Load::Laid(laid), body)))
    }

    /// The next frame that a channel has had laid out.
    #[inline]
    fn take_laid(&mut self, channel: u16) -> Option<Laid> {
        let (outgoing, sheets) = (self.channels.get_mut(channel)?, self.sheets.as_mut()?);
        if outgoing.open && outgoing.messages.is_empty() {
            outgoing.take_open(sheets);
        }
        let Some(&Message::Laid(laid)) = outgoing.messages.front() else { return None };
        let laid = Laid { count: 1, bytes: sheets.carried(&laid), ..laid };
        outgoing.leave(1, laid.bytes);
        self.waiting -= laid.bytes as usize;
        Some(laid)
    }

    /// The next chunk, of at most `most` bytes, of the channel whose turn it is. A channel without credit loses its
    /// turn until it has more.
    #[inline]
    fn next_piece(&mut self, most: usize) -> Next {
        while let Some((level, channel)) = self.turns.first() {
            match self.take_piece(channel, most) {
                Taken::Piece(piece) => {
                    self.turns.pass(level, !self.last_of_channel);
                    return Next::Piece(piece);
                }
                Taken::Laid => return Next::Laid(level, channel),
                Taken::NoCredit => self.turns.pass(level, false),
                Taken::NoRoom => return Next::Nothing,
            }
        }
        Next::Nothing
    }

    #[inline]
    fn take_piece(&mut self, channel: u16, most: usize) -> Taken {
        let left = self.limit - self.used;
        let Some(outgoing) = self.channels.get_mut(channel) else { return Taken::NoCredit };
        let place = match outgoing.messages.front() {
            None if outgoing.open => return Taken::Laid,
            Some(Message::Kept(place)) => *place,
            Some(Message::Laid(_)) => return Taken::Laid,
            None => {
                outgoing.queued = false;
                return Taken::NoCredit;
            }
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
        outgoing.queued = outgoing.has_more();
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
        let pieces = match &flight.load {
            Load::Piece(piece) => std::slice::from_ref(piece),
            Load::Pieces(pieces) => pieces,
            Load::Laid(laid) => {
                let Some(sheets) = &self.sheets else { return 0 };
                let laid = laid.after(number - flight.first);
                return sheets.copy(&laid, flags, number, acknowledged, frame);
            }
        };
        if let [piece] = pieces {
            let (kind, form) = match piece.flags & PACK {
                0 => (KIND_PIECE, piece.flags),
                _ => (KIND_PACK, 0),
            };
            let at = Head::write(kind, flags | form, number, acknowledged, frame);
            data::write_alone(piece.channel, piece.sequence, &mut frame[at..]);
            return self.put(piece, frame, at + ALONE);
        }
        let mut at = Head::write(KIND_MANY, flags, number, acknowledged, frame);
        for piece in pieces {
            let form = match piece.flags & PACK {
                0 => Form::Piece { start: piece.flags & START != 0, end: piece.flags & END != 0 },
                _ => Form::Pack,
            };
            data::write_among(piece.channel, piece.sequence, form, piece.length, &mut frame[at..]);
            at = self.put(piece, frame, at + AMONG);
        }
        at
    }

    /// The frames that are to be cut next, if they were laid out; one that is not full only if that is wanted.
    #[inline]
    pub fn next_laid(&mut self, open: bool) -> Option<Laid> {
        let (level, channel) = self.turns.first()?;
        let outgoing = self.channels.get_mut(channel)?;
        if open && outgoing.open && outgoing.messages.is_empty() {
            outgoing.take_open(self.sheets.as_mut()?);
        }
        match outgoing.messages.front() {
            // Others have their turns between its frames.
            Some(&Message::Laid(laid)) if self.turns.levels[level].len() > 1 => {
                Some(Laid { count: 1, ..laid })
            }
            Some(&Message::Laid(laid)) => Some(laid),
            _ => None,
        }
    }

    /// Of the frames that [`next_laid`](Sender::next_laid) told, the first leave: as many as are said now, with as many
    /// bytes of messages. No frame that was cut before waits.
    #[inline]
    pub fn leave_laid(&mut self, now: Instant, laid: Laid) {
        let (Some(outgoing), Some(sheets)) = (self.channels.get_mut(laid.channel), &self.sheets) else {
            return;
        };
        outgoing.leave(laid.count, laid.bytes);
        self.turns.pass(outgoing.priority.into(), outgoing.queued);
        self.waiting -= laid.bytes as usize;
        self.flights.leave_run(now, laid, sheets.body(&laid) as u16);
    }

    /// Whether the next frame to be cut was laid out, and leaves from where it lies.
    pub fn is_next_laid(&self) -> bool {
        match self.turns.first().and_then(|(_, channel)| self.channels.get(channel)) {
            _ if self.flights.due().is_some() => false,
            Some(outgoing) => match outgoing.messages.front() {
                Some(message) => matches!(message, Message::Laid(_)),
                None => outgoing.open,
            },
            None => false,
        }
    }

    /// Lends the memory of a sheet, to be [given back](Sender::give_back) before anything else is asked of the sender's
    /// sheets.
    #[inline]
    pub fn lend(&mut self, sheet: u32) -> Buffer {
        self.sheets.as_mut().map(|sheets| sheets.lend(sheet)).unwrap_or_default()
    }

    /// Takes it back.
    #[inline]
    pub fn give_back(&mut self, sheet: u32, bytes: Buffer) {
        if let Some(sheets) = &mut self.sheets {
            sheets.give_back(sheet, bytes);
        }
    }

    /// Bytes of a sheet.
    #[inline]
    pub fn sheet(&self, sheet: u32) -> &[u8] {
        self.sheets.as_ref().map_or(&[], |sheets| sheets.bytes(sheet))
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

    /// Whether nobody but `channel` has a turn coming.
    #[inline]
    fn has_none_but(&self, channel: u16) -> bool {
        let Some((level, first)) = self.first() else { return true };
        first == channel && self.any == 1 << level && self.levels[level].len() == 1
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
    /// A frame that is laid out is next, and is not taken.
    Laid,
    /// It has none, or nothing to send.
    NoCredit,
    /// The frame has no room for it, or the connection no credit.
    NoRoom,
}

/// What is next to be cut.
enum Next {
    Piece(Piece),
    /// The frame that this channel, of this level, had laid out.
    Laid(usize, u16),
    Nothing,
}
