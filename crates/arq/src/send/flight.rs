//! Frames in flight: which are acknowledged, which are taken for lost.
//!
//! Frames that were laid out and leave in one batch are a *run*, with one record until something happens to one of them
//! alone: then it is parted.
//!
//! A frame keeps its number when it is sent again; its *order* tells transmissions apart. What was sent well before
//! something that has arrived is lost: three transmissions before, or a quarter of a round trip (RFC 8985, the
//! algorithm RACK, with its threshold in frames).

use std::collections::{BTreeSet, VecDeque};

use smallvec::SmallVec;
use trunkline_units::{Instant, Rate, Size, Span};

use super::sheets::Laid;
use super::store::Place;
use crate::wire::data::CONTROL;

/// Part of what is kept, as a chunk of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub place: Place,
    pub offset: u32,
    pub length: u16,
    pub channel: u16,
    pub sequence: u16,
    /// [`START`](crate::wire::data::START), [`END`](crate::wire::data::END), [`PACK`](crate::wire::data::PACK).
    pub flags: u8,
}

/// The chunks of a frame: mostly the end of a message and the start of the next.
pub(crate) type Pieces = SmallVec<[Piece; 2]>;

/// What a frame carries.
#[derive(Debug)]
pub(crate) enum Load {
    /// One chunk, as most have.
    Piece(Piece),
    /// Several.
    Pieces(Pieces),
    /// Messages of one channel, where they were laid out; more than one frame only of a run.
    Laid(Laid),
}

impl Default for Load {
    #[inline]
    fn default() -> Self {
        Load::Pieces(Pieces::new())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not sent yet.
    Cut,
    InFlight,
    /// To be sent again.
    Lost,
    Acknowledged,
}

/// A frame that is not acknowledged, or behind one that is not; or a run of such frames, all alike.
#[derive(Debug)]
pub(crate) struct Flight {
    pub load: Load,
    /// The number of the first, and how many they are.
    pub first: u64,
    count: u16,
    /// Its chunks' bytes with their heads, here and below of each.
    pub body: u16,
    pub state: State,
    pub transmissions: u8,
    /// Bytes of the last transmission.
    length: u16,
    sent: Instant,
    /// Of the first.
    order: u64,
    /// When it was sent: bytes acknowledged until then, when the last of those were, and when the last of those had
    /// been sent.
    delivered: u64,
    delivered_at: Instant,
    delivered_sent: Instant,
}

impl Flight {
    pub fn new(load: Load, body: usize) -> Self {
        Flight {
            load,
            first: 0,
            count: 1,
            body: body as u16,
            state: State::Cut,
            transmissions: 0,
            length: 0,
            sent: Instant::ZERO,
            order: 0,
            delivered: 0,
            delivered_at: Instant::ZERO,
            delivered_sent: Instant::ZERO,
        }
    }

    /// Whether it carries nothing of the user's, or is acknowledged.
    pub fn is_told(&self) -> bool {
        self.state == State::Acknowledged
            || match &self.load {
                Load::Piece(piece) => piece.channel == CONTROL,
                Load::Pieces(pieces) => pieces.iter().all(|piece| piece.channel == CONTROL),
                Load::Laid(_) => false,
            }
    }
}

/// What an acknowledgement brought.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct News {
    pub frames: u32,
    pub bytes: u64,
    /// Whether frames at the start of the window are among them.
    pub advanced: bool,
    /// Frames that had been sent more than once.
    pub again: u32,
    /// Bytes of the longest.
    pub longest: u16,
    /// Of the frames, those that were lost and rebuilt.
    pub rebuilt: u32,
    /// The newest of those that were sent once, and of those that were sent again.
    newest_once: Option<Newest>,
    newest_again: Option<Newest>,
}

/// The frame sent last of those acknowledged.
#[derive(Clone, Copy, Debug)]
struct Newest {
    order: u64,
    sent: Instant,
    delivered: u64,
    delivered_at: Instant,
    delivered_sent: Instant,
}

/// What is to be known of the only frame there was once it has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    /// Where what it carried is kept.
    pub place: Place,
    /// Bytes of its last transmission.
    pub bytes: u64,
    pub rate: Option<Rate>,
}

impl News {
    /// When the last of them had been sent.
    #[inline]
    pub fn sent_at(&self) -> Option<Instant> {
        self.newest().map(|newest| newest.sent)
    }

    /// When the last of them had been sent, if that was its only transmission.
    #[inline]
    pub fn sent_once_at(&self) -> Option<Instant> {
        let once = self.newest_once.as_ref()?;
        let is_newest = self.newest_again.as_ref().is_none_or(|again| again.order < once.order);
        is_newest.then_some(once.sent)
    }

    #[inline]
    fn newest(&self) -> Option<&Newest> {
        match (&self.newest_once, &self.newest_again) {
            (Some(once), Some(again)) if once.order < again.order => Some(again),
            (Some(once), _) => Some(once),
            (None, again) => again.as_ref(),
        }
    }
}

/// Frames taken for lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Missing {
    pub frames: u32,
    pub bytes: u64,
    /// When the last of them had been sent.
    pub sent_at: Instant,
    /// Bytes of the shortest; 0 if there is none.
    pub shortest: u16,
}

/// Frames of consecutive numbers that left in a row.
#[derive(Clone, Copy, Debug)]
struct Departure {
    order: u64,
    number: u64,
    count: u64,
}

/// All frames from the first that is not acknowledged to the last that was cut.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    /// Whether single frames are taken for lost. If not, transmissions are not remembered in order.
    selective: bool,
    /// Of each frame, where its record is: those of a run have one together.
    ring: VecDeque<u32>,
    records: Vec<Flight>,
    free: Vec<u32>,
    /// The number of the first.
    base: u64,
    /// The number of the first that was never sent.
    unsent: u64,
    in_flight: u32,
    lost: BTreeSet<u64>,
    /// Transmissions, in order. Those overtaken by events are skipped.
    sequence: VecDeque<Departure>,
    order: u64,
    /// The order of the last transmission known to have arrived, and one more.
    arrived: u64,
    delivered: u64,
    delivered_at: Instant,
    delivered_sent: Instant,
}

impl Flights {
    pub fn new(selective: bool) -> Self {
        Flights { selective, ..Flights::default() }
    }

    /// The first frame has this number.
    pub fn number_from(&mut self, number: u64) {
        (self.base, self.unsent) = (number, number);
    }

    /// The number of the first frame that is not acknowledged.
    #[inline]
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The number of the first frame that was never sent.
    #[inline]
    pub fn unsent(&self) -> u64 {
        self.unsent
    }

    /// The number of the next frame to be cut.
    #[inline]
    pub fn next(&self) -> u64 {
        self.base + self.ring.len() as u64
    }

    /// Frames sent, not acknowledged, and not taken for lost.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether everything cut has been acknowledged.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Adds a frame, not sent yet; its number.
    #[inline]
    pub fn cut(&mut self, flight: Flight) -> u64 {
        let number = self.next();
        self.add(Flight { first: number, ..flight });
        number
    }

    #[inline]
    fn add(&mut self, flight: Flight) {
        let count = flight.count.into();
        let record = self.record(flight);
        match count {
            1 => self.ring.push_back(record),
            _ => self.ring.extend(std::iter::repeat_n(record, count)),
        }
    }

    #[inline]
    fn record(&mut self, flight: Flight) -> u32 {
        if let Some(record) = self.free.pop() {
            self.records[record as usize] = flight;
            return record;
        }
        self.records.push(flight);
        self.records.len() as u32 - 1
    }

    /// Where the record of a frame is.
    #[inline]
    fn find(&self, number: u64) -> Option<usize> {
        let at = usize::try_from(number.checked_sub(self.base)?).ok()?;
        self.ring.get(at).map(|record| *record as usize)
    }

    #[inline]
    fn at(&self, number: u64) -> usize {
        self.ring[(number - self.base) as usize] as usize
    }

    /// The record of a frame, alone or in its run.
    #[inline]
    pub fn get(&self, number: u64) -> Option<&Flight> {
        self.find(number).map(|record| &self.records[record])
    }

    /// A run that goes on at `number` ends before it, and another begins there.
    fn part(&mut self, number: u64) {
        let Some(record) = self.find(number) else { return };
        let flight = &mut self.records[record];
        let before = (number - flight.first) as u16;
        let Load::Laid(laid) = &mut flight.load else { return };
        if before == 0 {
            return;
        }
        let rest = Flight {
            load: Load::Laid(laid.part(before)),
            first: number,
            count: flight.count - before,
            order: flight.order + u64::from(before),
            ..*flight
        };
        flight.count = before;
        let (from, count) = ((number - self.base) as usize, usize::from(rest.count));
        let record = self.record(rest);
        self.ring.range_mut(from..from + count).for_each(|slot| *slot = record);
    }

    /// The record of a frame, of which it is the only one from now on.
    #[inline]
    fn single(&mut self, number: u64) -> &mut Flight {
        if self.records[self.at(number)].count > 1 {
            self.part(number);
            self.part(number + 1);
        }
        let record = self.at(number);
        &mut self.records[record]
    }

    /// Frames leave that are the next in order.
    #[inline(always)]
    fn depart(&mut self, number: u64, count: u64) {
        let order = self.order;
        self.order += count;
        if !self.selective {
            return;
        }
        match self.sequence.back_mut() {
            Some(last) if last.order + last.count == order && last.number + last.count == number => {
                last.count += count;
            }
            _ => self.sequence.push_back(Departure { order, number, count }),
        }
    }

    /// The frame to be sent next: what was lost, lowest number first, then what was never sent.
    #[inline]
    pub fn due(&self) -> Option<u64> {
        match self.lost.first() {
            Some(number) => Some(*number),
            None => (self.unsent < self.next()).then_some(self.unsent),
        }
    }

    /// Whether a frame is to be sent again.
    #[inline]
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// A frame leaves, `length` bytes long.
    #[inline]
    pub fn leave(&mut self, now: Instant, number: u64, length: usize) {
        if self.in_flight == 0 {
            (self.delivered_at, self.delivered_sent) = (now, now);
        }
        let (order, delivered, delivered_at) = (self.order, self.delivered, self.delivered_at);
        let delivered_sent = self.delivered_sent;
        let flight = self.single(number);
        let before = std::mem::replace(&mut flight.state, State::InFlight);
        flight.transmissions = flight.transmissions.saturating_add(1);
        (flight.sent, flight.order, flight.length) = (now, order, length as u16);
        (flight.delivered, flight.delivered_at) = (delivered, delivered_at);
        flight.delivered_sent = delivered_sent;
        match before {
            State::Cut => self.unsent = number + 1,
            State::Lost => {
                self.lost.remove(&number);
            }
            State::InFlight | State::Acknowledged => self.in_flight -= 1,
        }
        self.in_flight += 1;
        self.depart(number, 1);
    }

    /// Frames that were laid out are cut and leave at once, when all that were cut before have left. Their chunks have
    /// `body` bytes with their heads, of each.
    #[inline]
    pub fn leave_run(&mut self, now: Instant, laid: Laid, body: u16) {
        self.leave_first(now, Load::Laid(laid), laid.count, body, laid.length);
    }

    /// The same of any `count` frames, each `length` bytes long.
    #[inline]
    pub fn leave_first(&mut self, now: Instant, load: Load, count: u16, body: u16, length: u16) {
        if self.in_flight == 0 {
            (self.delivered_at, self.delivered_sent) = (now, now);
        }
        let number = self.next();
        self.add(Flight {
            load,
            first: number,
            count,
            body,
            state: State::InFlight,
            transmissions: 1,
            length,
            sent: now,
            order: self.order,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            delivered_sent: self.delivered_sent,
        });
        self.in_flight += u32::from(count);
        self.unsent = number + u64::from(count);
        self.depart(number, count.into());
    }

    /// The same of one frame, of one chunk, where there is no other.
    #[inline(never)]
    pub fn leave_only(&mut self, now: Instant, piece: Piece, body: u16, length: u16) {
        let (number, order) = (self.base, self.order);
        let record = match self.free.pop() {
            Some(record) => record,
            None => self.record(Flight::new(Load::default(), 0)),
        };
        let flight = &mut self.records[record as usize];
        flight.load = Load::Piece(piece);
        (flight.first, flight.count, flight.body, flight.length) = (number, 1, body, length);
        (flight.state, flight.transmissions) = (State::InFlight, 1);
        (flight.sent, flight.order, flight.delivered) = (now, order, self.delivered);
        (flight.delivered_at, flight.delivered_sent) = (now, now);
        (self.delivered_at, self.delivered_sent) = (now, now);
        (self.in_flight, self.unsent) = (1, number + 1);
        self.ring.push_back(record);
        self.depart(number, 1);
    }

    /// If all before `cumulative` has arrived the first frame has, or as much of the first run: nobody needs it any
    /// more. What it carried.
    #[inline]
    pub fn forget_first(&mut self, cumulative: u64, news: &mut News) -> Option<Load> {
        let before = cumulative.checked_sub(self.base).filter(|before| *before > 0)?;
        let record = *self.ring.front()?;
        let flight = &mut self.records[record as usize];
        let count = before.min(flight.count.into()) as u16;
        match flight.state {
            State::InFlight => {
                self.in_flight -= u32::from(count);
                news.add(flight, count);
            }
            State::Lost => {
                self.lost.remove(&self.base);
                news.add(flight, count);
            }
            State::Cut | State::Acknowledged => {}
        }
        news.advanced = true;
        self.base += u64::from(count);
        self.unsent = self.unsent.max(self.base);
        self.ring.drain(..usize::from(count));
        match &mut flight.load {
            Load::Laid(laid) if count < flight.count => {
                let rest = laid.part(count);
                (flight.first, flight.count) = (self.base, flight.count - count);
                flight.order += u64::from(count);
                Some(Load::Laid(std::mem::replace(laid, rest)))
            }
            load => {
                self.free.push(record);
                Some(std::mem::take(load))
            }
        }
    }

    /// The record of the only frame, if that is in flight, with one piece.
    #[inline(always)]
    pub fn only(&self) -> Option<u32> {
        let (Some(&record), 1) = (self.ring.front(), self.ring.len()) else { return None };
        let flight = &self.records[record as usize];
        (flight.state == State::InFlight && matches!(&flight.load, Load::Piece(_))).then_some(record)
    }

    /// When that was sent, and whether once.
    #[inline]
    pub fn only_sent(&self, record: u32) -> (Instant, bool) {
        let flight = &self.records[record as usize];
        (flight.sent, flight.transmissions == 1)
    }

    /// The only frame, of one chunk, has arrived, and nobody needs it any more. Its bytes, and as
    /// [`take_stock`](Flights::take_stock), which is `sure` or not that its last transmission has.
    #[inline(always)]
    pub fn settle(&mut self, record: u32, now: Instant, least: Span, sure: bool) -> Option<Settled> {
        let flight = &self.records[record as usize];
        let Load::Piece(Piece { place, .. }) = flight.load else { return None };
        let bytes = u64::from(flight.length);
        self.delivered += bytes;
        self.delivered_at = now;
        let mut rate = None;
        if sure {
            self.arrived = self.arrived.max(flight.order + 1);
            self.delivered_sent = self.delivered_sent.max(flight.sent);
            let time = now.since(flight.delivered_at).max(flight.sent.since(flight.delivered_sent));
            let bytes = Size::from_bytes(self.delivered - flight.delivered);
            rate = (!time.is_zero() && time >= least).then(|| Rate::of(bytes, time));
        }
        self.free.push(record);
        self.ring.clear();
        // No transmission is of interest any more. One departure goes on with the next.
        if self.sequence.len() > 1 {
            self.sequence.clear();
        }
        self.base += 1;
        self.in_flight = 0;
        Some(Settled { place, bytes, rate })
    }

    /// Frames further on have arrived, `from` and all after it before `to`.
    pub fn acknowledge(&mut self, from: u64, to: u64, news: &mut News) {
        let (mut number, to) = (from.max(self.base), to.min(self.next()));
        while number < to {
            let record = self.at(number);
            let flight = &self.records[record];
            let end = flight.first + u64::from(flight.count);
            if matches!(flight.state, State::Cut | State::Acknowledged) {
                number = end;
                continue;
            }
            if number > flight.first {
                self.part(number);
                continue;
            }
            if end > to {
                self.part(to);
            }
            let flight = &mut self.records[record];
            match std::mem::replace(&mut flight.state, State::Acknowledged) {
                State::Lost => {
                    self.lost.remove(&number);
                }
                _ => self.in_flight -= u32::from(flight.count),
            }
            news.add(flight, flight.count);
            number += u64::from(flight.count);
        }
    }

    /// Takes account of what has arrived. It was the last transmission of a frame that was sent more than once if that is
    /// `again` ago. How fast bytes arrived, if that can be told of no less than `least`, the least round trip.
    pub fn take_stock(&mut self, now: Instant, news: &News, least: Span, again: Span) -> Option<Rate> {
        self.delivered += news.bytes;
        self.delivered_at = now;
        let sure = news.newest_again.is_none_or(|newest| now.since(newest.sent) >= again);
        let newest = if sure { news.newest() } else { news.newest_once.as_ref() }?;
        self.arrived = self.arrived.max(newest.order + 1);
        self.delivered_sent = self.delivered_sent.max(newest.sent);
        let sending = newest.sent.since(newest.delivered_sent);
        let time = now.since(newest.delivered_at).max(sending);
        let bytes = self.delivered - newest.delivered;
        // Less than a round trip tells of lumps, not of the path.
        (!time.is_zero() && time >= least).then(|| Rate::of(Size::from_bytes(bytes), time))
    }

    /// Takes for lost what was sent `threshold` transmissions before the last that arrived, or earlier than that and
    /// more than `patience` ago. When to look again, if nothing comes.
    #[inline]
    pub fn find_lost(
        &mut self,
        now: Instant,
        threshold: u64,
        patience: Span,
        missing: &mut Missing,
    ) -> Option<Instant> {
        while let Some(&Departure { order, number, count }) = self.sequence.front() {
            if number < self.base {
                self.skip(count.min(self.base - number));
                continue;
            }
            let Some(sent) = self.sent_in(order, number) else {
                self.skip(1);
                continue;
            };
            if order + 1 >= self.arrived {
                return None;
            }
            if order + 1 + threshold > self.arrived && sent + patience > now {
                return Some(sent + patience);
            }
            self.skip(1);
            self.lose(number, missing);
        }
        None
    }

    /// The first transmissions are of no more interest, so many.
    #[inline]
    fn skip(&mut self, count: u64) {
        if let Some(first) = self.sequence.front_mut() {
            (first.order, first.number) = (first.order + count, first.number + count);
            first.count -= count;
            if first.count == 0 {
                self.sequence.pop_front();
            }
        }
    }

    /// When a frame was sent, if it is in flight and that was the transmission.
    #[inline]
    fn sent_in(&self, order: u64, number: u64) -> Option<Instant> {
        let flight = self.get(number)?;
        let last = flight.order + (number - flight.first) == order;
        (flight.state == State::InFlight && last).then_some(flight.sent)
    }

    fn lose(&mut self, number: u64, missing: &mut Missing) {
        let flight = self.single(number);
        flight.state = State::Lost;
        let (length, sent) = (flight.length, flight.sent);
        self.in_flight -= 1;
        self.lost.insert(number);
        missing.frames += 1;
        missing.bytes += u64::from(length);
        missing.sent_at = missing.sent_at.max(sent);
        missing.shortest = if missing.frames == 1 { length } else { missing.shortest.min(length) };
    }

    /// Takes a frame in flight for lost.
    pub fn lose_one(&mut self, number: u64, missing: &mut Missing) {
        if self.sent_at(number).is_some() {
            self.lose(number, missing);
        }
    }

    /// Takes frames in flight for lost that are longer than `length`.
    pub fn lose_longer(&mut self, length: usize, missing: &mut Missing) {
        for number in self.base..self.unsent {
            let flight = &self.records[self.at(number)];
            if flight.state == State::InFlight && usize::from(flight.length) > length {
                self.lose(number, missing);
            }
        }
    }

    /// Bytes of the frames in flight, in order.
    pub fn lengths_in_flight(&self) -> impl Iterator<Item = usize> + '_ {
        let flights = self.ring.iter().map(|record| &self.records[*record as usize]);
        flights.filter(|flight| flight.state == State::InFlight).map(|flight| flight.length.into())
    }

    /// Whether a frame is there and not acknowledged.
    pub fn is_wanted(&self, number: u64) -> bool {
        self.get(number).is_some_and(|flight| flight.state != State::Acknowledged)
    }

    /// Takes everything in flight for lost.
    pub fn lose_all(&mut self, missing: &mut Missing) {
        for number in self.base..self.unsent {
            if self.records[self.at(number)].state == State::InFlight {
                self.lose(number, missing);
            }
        }
        self.sequence.clear();
    }

    /// When the frame `number` was last sent, if it is in flight.
    pub fn sent_at(&self, number: u64) -> Option<Instant> {
        self.get(number).filter(|flight| flight.state == State::InFlight).map(|flight| flight.sent)
    }

    /// The last frame in flight.
    pub fn last_in_flight(&self) -> Option<u64> {
        (self.base..self.unsent).rev().find(|n| self.sent_at(*n).is_some())
    }
}

impl News {
    /// The first `count` frames of a record are among it.
    #[inline]
    fn add(&mut self, flight: &Flight, count: u16) {
        let many = u32::from(count);
        self.frames += many;
        self.bytes += u64::from(many * u32::from(flight.length));
        self.again += if flight.transmissions > 1 { many } else { 0 };
        self.longest = self.longest.max(flight.length);
        let newest = if flight.transmissions == 1 { &mut self.newest_once } else { &mut self.newest_again };
        let order = flight.order + u64::from(count) - 1;
        if newest.is_none_or(|other| other.order < order) {
            *newest = Some(Newest {
                order,
                sent: flight.sent,
                delivered: flight.delivered,
                delivered_at: flight.delivered_at,
                delivered_sent: flight.delivered_sent,
            });
        }
    }
}

#[cfg(test)]
mod tests;
