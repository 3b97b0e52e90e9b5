//! Frames in flight: acknowledgement and loss detection.
//!
//! Encoded frames that are sent in one batch share a record until one of them is treated separately: then the record
//! is split.
//!
//! A retransmitted frame keeps its number; its *order* distinguishes transmissions. A frame is lost if it was sent
//! well before a frame that has arrived: three transmissions before, or a quarter of a round trip (RFC 8985, RACK,
//! with a threshold in frames).

use std::collections::{BTreeSet, VecDeque};

use smallvec::SmallVec;
use trunkline_units::{Instant, Rate, Size, Span};

use super::frame_buffers::EncodedFrames;
use super::store::StoreIndex;
use crate::wire::data::CONTROL;

/// Part of a stored message, as a chunk of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub message: StoreIndex,
    pub offset: u32,
    pub length: u16,
    pub channel: u16,
    pub sequence: u16,
    /// [`START`](crate::wire::data::START), [`END`](crate::wire::data::END), [`PACK`](crate::wire::data::PACK).
    pub flags: u8,
}

/// The chunks of a frame: usually the end of a message and the start of the next.
pub(crate) type Pieces = SmallVec<[Piece; 2]>;

/// Contents of a frame.
#[derive(Debug)]
pub(crate) enum FrameContent {
    /// One chunk, the common case.
    Piece(Piece),
    /// Several chunks.
    Pieces(Pieces),
    /// Encoded frames of one channel; more than one only in a shared record.
    Encoded(EncodedFrames),
}

impl Default for FrameContent {
    #[inline]
    fn default() -> Self {
        FrameContent::Pieces(Pieces::new())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlightState {
    /// Not sent yet.
    Unsent,
    InFlight,
    /// To be retransmitted.
    Lost,
    Acknowledged,
}

/// A frame that is unacknowledged or follows an unacknowledged one; or several such frames in the same state.
#[derive(Debug)]
pub(crate) struct Flight {
    pub content: FrameContent,
    /// Number of the first frame, and number of frames.
    pub first: u64,
    count: u16,
    /// Bytes of the chunks with their headers; here and below per frame.
    pub body_length: u16,
    pub state: FlightState,
    pub transmissions: u8,
    /// Bytes of the last transmission.
    length: u16,
    sent_at: Instant,
    /// Order of the first frame.
    order: u64,
    /// Delivery state at the time of transmission: bytes acknowledged, time of the last acknowledgement, and when the
    /// last acknowledged frame was sent.
    delivered: u64,
    delivered_at: Instant,
    delivered_sent: Instant,
}

impl Flight {
    pub fn new(load: FrameContent, body: usize) -> Self {
        Flight {
            content: load,
            first: 0,
            count: 1,
            body_length: body as u16,
            state: FlightState::Unsent,
            transmissions: 0,
            length: 0,
            sent_at: Instant::ZERO,
            order: 0,
            delivered: 0,
            delivered_at: Instant::ZERO,
            delivered_sent: Instant::ZERO,
        }
    }

    /// Returns whether the frame is acknowledged or carries only control messages.
    pub fn is_control_or_acknowledged(&self) -> bool {
        self.state == FlightState::Acknowledged
            || match &self.content {
                FrameContent::Piece(piece) => piece.channel == CONTROL,
                FrameContent::Pieces(pieces) => pieces.iter().all(|piece| piece.channel == CONTROL),
                FrameContent::Encoded(_) => false,
            }
    }
}

/// Summary of an acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckSummary {
    pub frames: u32,
    pub bytes: u64,
    /// Whether the window advanced.
    pub advanced: bool,
    /// Frames that were sent more than once.
    pub retransmitted: u32,
    /// Length of the longest frame.
    pub longest: u16,
    /// Frames that were lost and rebuilt.
    pub rebuilt: u32,
    /// The newest frame sent once, and the newest retransmitted frame.
    newest_once: Option<NewestFrame>,
    newest_retransmitted: Option<NewestFrame>,
}

/// The acknowledged frame that was sent last.
#[derive(Clone, Copy, Debug)]
struct NewestFrame {
    order: u64,
    sent_at: Instant,
    delivered: u64,
    delivered_at: Instant,
    delivered_sent: Instant,
}

/// The only frame in flight after its acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SingleFrameAck {
    /// Index of its stored message.
    pub message: StoreIndex,
    /// Bytes of its last transmission.
    pub bytes: u64,
    pub rate: Option<Rate>,
}

impl AckSummary {
    /// Returns when the last of the frames was sent.
    #[inline]
    pub fn sent_at(&self) -> Option<Instant> {
        self.newest().map(|newest| newest.sent_at)
    }

    /// Returns when the last of the frames was sent, if that was its only transmission.
    #[inline]
    pub fn sent_once_at(&self) -> Option<Instant> {
        let once = self.newest_once.as_ref()?;
        let is_newest = self.newest_retransmitted.as_ref().is_none_or(|again| again.order < once.order);
        is_newest.then_some(once.sent_at)
    }

    #[inline]
    fn newest(&self) -> Option<&NewestFrame> {
        match (&self.newest_once, &self.newest_retransmitted) {
            (Some(once), Some(again)) if once.order < again.order => Some(again),
            (Some(once), _) => Some(once),
            (None, again) => again.as_ref(),
        }
    }
}

/// Summary of frames declared lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossSummary {
    pub frames: u32,
    pub bytes: u64,
    /// Returns when the last of the frames was sent.
    pub sent_at: Instant,
    /// Length of the shortest frame; 0 if there is none.
    pub shortest: u16,
}

/// Consecutive transmissions of consecutive frames.
#[derive(Clone, Copy, Debug)]
struct Departure {
    order: u64,
    number: u64,
    count: u64,
}

/// All frames from the first unacknowledged to the last created.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    /// Whether single frames may be declared lost. If not, the order of transmissions is not recorded.
    selective: bool,
    /// Index of the record of each frame; several frames may share a record.
    record_of: VecDeque<u32>,
    records: Vec<Flight>,
    free: Vec<u32>,
    /// Number of the first frame.
    base: u64,
    /// Number of the first frame that was never sent.
    unsent: u64,
    in_flight: u32,
    lost: BTreeSet<u64>,
    /// Transmissions in order; obsolete ones are skipped.
    departures: VecDeque<Departure>,
    order: u64,
    /// One more than the order of the last transmission known to have arrived.
    delivered_order: u64,
    delivered: u64,
    delivered_at: Instant,
    delivered_sent: Instant,
}

impl Flights {
    pub fn new(selective: bool) -> Self {
        Flights { selective, ..Flights::default() }
    }

    /// Sets the number of the first frame.
    pub fn set_first_number(&mut self, number: u64) {
        (self.base, self.unsent) = (number, number);
    }

    /// Returns the number of the first unacknowledged frame.
    #[inline]
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Returns the number of the first frame that was never sent.
    #[inline]
    pub fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Returns the number of the next frame to create.
    #[inline]
    pub fn next(&self) -> u64 {
        self.base + self.record_of.len() as u64
    }

    /// Returns the number of frames that are neither acknowledged nor declared lost.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns whether all frames are acknowledged.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.record_of.is_empty()
    }

    /// Adds a frame that is not sent yet; returns its number.
    #[inline]
    pub fn push(&mut self, flight: Flight) -> u64 {
        let number = self.next();
        self.add(Flight { first: number, ..flight });
        number
    }

    #[inline]
    fn add(&mut self, flight: Flight) {
        let count = flight.count.into();
        let record = self.record(flight);
        match count {
            1 => self.record_of.push_back(record),
            _ => self.record_of.extend(std::iter::repeat_n(record, count)),
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

    /// Returns the index of the record of a frame.
    #[inline]
    fn find(&self, number: u64) -> Option<usize> {
        let at = usize::try_from(number.checked_sub(self.base)?).ok()?;
        self.record_of.get(at).map(|record| *record as usize)
    }

    #[inline]
    fn at(&self, number: u64) -> usize {
        self.record_of[(number - self.base) as usize] as usize
    }

    /// Returns the record of a frame, which it may share with others.
    #[inline]
    pub fn get(&self, number: u64) -> Option<&Flight> {
        self.find(number).map(|record| &self.records[record])
    }

    /// Splits the record of `number` so that `number` is the first of its record.
    fn split_at(&mut self, number: u64) {
        let Some(record) = self.find(number) else { return };
        let flight = &mut self.records[record];
        let before = (number - flight.first) as u16;
        let FrameContent::Encoded(encoded) = &mut flight.content else { return };
        if before == 0 {
            return;
        }
        let rest = Flight {
            content: FrameContent::Encoded(encoded.split_off(before)),
            first: number,
            count: flight.count - before,
            order: flight.order + u64::from(before),
            ..*flight
        };
        flight.count = before;
        let (from, count) = ((number - self.base) as usize, usize::from(rest.count));
        let record = self.record(rest);
        self.record_of.range_mut(from..from + count).for_each(|slot| *slot = record);
    }

    /// Returns the record of a frame after splitting it from any others.
    #[inline]
    fn isolate(&mut self, number: u64) -> &mut Flight {
        if self.records[self.at(number)].count > 1 {
            self.split_at(number);
            self.split_at(number + 1);
        }
        let record = self.at(number);
        &mut self.records[record]
    }

    /// Records the order of transmissions.
    #[inline(always)]
    fn record_departure(&mut self, number: u64, count: u64) {
        let order = self.order;
        self.order += count;
        if !self.selective {
            return;
        }
        match self.departures.back_mut() {
            Some(last) if last.order + last.count == order && last.number + last.count == number => {
                last.count += count;
            }
            _ => self.departures.push_back(Departure { order, number, count }),
        }
    }

    /// Returns the frame to send next: lost frames in the order of their numbers, then frames never sent.
    #[inline]
    pub fn due(&self) -> Option<u64> {
        match self.lost.first() {
            Some(number) => Some(*number),
            None => (self.unsent < self.next()).then_some(self.unsent),
        }
    }

    /// Returns whether a frame is to be retransmitted.
    #[inline]
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Records the transmission of a frame of `length` bytes.
    #[inline]
    pub fn send(&mut self, now: Instant, number: u64, length: usize) {
        if self.in_flight == 0 {
            (self.delivered_at, self.delivered_sent) = (now, now);
        }
        let (order, delivered, delivered_at) = (self.order, self.delivered, self.delivered_at);
        let delivered_sent = self.delivered_sent;
        let flight = self.isolate(number);
        let before = std::mem::replace(&mut flight.state, FlightState::InFlight);
        flight.transmissions = flight.transmissions.saturating_add(1);
        (flight.sent_at, flight.order, flight.length) = (now, order, length as u16);
        (flight.delivered, flight.delivered_at) = (delivered, delivered_at);
        flight.delivered_sent = delivered_sent;
        match before {
            FlightState::Unsent => self.unsent = number + 1,
            FlightState::Lost => {
                self.lost.remove(&number);
            }
            FlightState::InFlight | FlightState::Acknowledged => self.in_flight -= 1,
        }
        self.in_flight += 1;
        self.record_departure(number, 1);
    }

    /// Adds encoded frames and records their transmission, when all earlier frames were sent. The chunks of each have
    /// `body` bytes with headers.
    #[inline]
    pub fn send_encoded(&mut self, now: Instant, encoded: EncodedFrames, body: u16) {
        self.send_new(now, FrameContent::Encoded(encoded), encoded.count, body, encoded.length);
    }

    /// Does the same for any `count` frames of `length` bytes each.
    #[inline]
    pub fn send_new(&mut self, now: Instant, load: FrameContent, count: u16, body: u16, length: u16) {
        if self.in_flight == 0 {
            (self.delivered_at, self.delivered_sent) = (now, now);
        }
        let number = self.next();
        self.add(Flight {
            content: load,
            first: number,
            count,
            body_length: body,
            state: FlightState::InFlight,
            transmissions: 1,
            length,
            sent_at: now,
            order: self.order,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            delivered_sent: self.delivered_sent,
        });
        self.in_flight += u32::from(count);
        self.unsent = number + u64::from(count);
        self.record_departure(number, count.into());
    }

    /// Does the same for one frame with one chunk when no other frame exists.
    #[inline(never)]
    pub fn send_single(&mut self, now: Instant, piece: Piece, body: u16, length: u16) {
        let (number, order) = (self.base, self.order);
        let record = match self.free.pop() {
            Some(record) => record,
            None => self.record(Flight::new(FrameContent::default(), 0)),
        };
        let flight = &mut self.records[record as usize];
        flight.content = FrameContent::Piece(piece);
        (flight.first, flight.count, flight.body_length, flight.length) = (number, 1, body, length);
        (flight.state, flight.transmissions) = (FlightState::InFlight, 1);
        (flight.sent_at, flight.order, flight.delivered) = (now, order, self.delivered);
        (flight.delivered_at, flight.delivered_sent) = (now, now);
        (self.delivered_at, self.delivered_sent) = (now, now);
        (self.in_flight, self.unsent) = (1, number + 1);
        self.record_of.push_back(record);
        self.record_departure(number, 1);
    }

    /// Removes the first frame, or the first frames of a shared record, if they precede `cumulative`; returns their
    /// contents.
    #[inline]
    pub fn pop_acknowledged(&mut self, cumulative: u64, summary: &mut AckSummary) -> Option<FrameContent> {
        let before = cumulative.checked_sub(self.base).filter(|before| *before > 0)?;
        let record = *self.record_of.front()?;
        let flight = &mut self.records[record as usize];
        let count = before.min(flight.count.into()) as u16;
        match flight.state {
            FlightState::InFlight => {
                self.in_flight -= u32::from(count);
                summary.add(flight, count);
            }
            FlightState::Lost => {
                self.lost.remove(&self.base);
                summary.add(flight, count);
            }
            FlightState::Unsent | FlightState::Acknowledged => {}
        }
        summary.advanced = true;
        self.base += u64::from(count);
        self.unsent = self.unsent.max(self.base);
        self.record_of.drain(..usize::from(count));
        match &mut flight.content {
            FrameContent::Encoded(encoded) if count < flight.count => {
                let rest = encoded.split_off(count);
                (flight.first, flight.count) = (self.base, flight.count - count);
                flight.order += u64::from(count);
                Some(FrameContent::Encoded(std::mem::replace(encoded, rest)))
            }
            load => {
                self.free.push(record);
                Some(std::mem::take(load))
            }
        }
    }

    /// Returns the record of the only frame, if it is in flight and has one piece.
    #[inline(always)]
    pub fn single_in_flight(&self) -> Option<u32> {
        let (Some(&record), 1) = (self.record_of.front(), self.record_of.len()) else { return None };
        let flight = &self.records[record as usize];
        (flight.state == FlightState::InFlight && matches!(&flight.content, FrameContent::Piece(_)))
            .then_some(record)
    }

    /// Returns when that frame was sent, and whether only once.
    #[inline]
    pub fn single_sent_at(&self, record: u32) -> (Instant, bool) {
        let flight = &self.records[record as usize];
        (flight.sent_at, flight.transmissions == 1)
    }

    /// Removes the only frame, of one chunk, after its acknowledgement. Returns its bytes and the delivery rate, like
    /// [`update_delivery`](Flights::update_delivery); `sure` means that its last transmission has arrived.
    #[inline(always)]
    pub fn acknowledge_single(
        &mut self,
        record: u32,
        now: Instant,
        least: Span,
        sure: bool,
    ) -> Option<SingleFrameAck> {
        let flight = &self.records[record as usize];
        let FrameContent::Piece(Piece { message, .. }) = flight.content else { return None };
        let bytes = u64::from(flight.length);
        self.delivered += bytes;
        self.delivered_at = now;
        let mut rate = None;
        if sure {
            self.delivered_order = self.delivered_order.max(flight.order + 1);
            self.delivered_sent = self.delivered_sent.max(flight.sent_at);
            let time = now.since(flight.delivered_at).max(flight.sent_at.since(flight.delivered_sent));
            let bytes = Size::from_bytes(self.delivered - flight.delivered);
            rate = (!time.is_zero() && time >= least).then(|| Rate::of(bytes, time));
        }
        self.free.push(record);
        self.record_of.clear();
        // No recorded transmission matters any more. A single departure continues with the next frame.
        if self.departures.len() > 1 {
            self.departures.clear();
        }
        self.base += 1;
        self.in_flight = 0;
        Some(SingleFrameAck { message, bytes, rate })
    }

    /// Processes the acknowledgement of the frames from `from` to before `to`.
    pub fn acknowledge(&mut self, from: u64, to: u64, summary: &mut AckSummary) {
        let (mut number, to) = (from.max(self.base), to.min(self.next()));
        while number < to {
            let record = self.at(number);
            let flight = &self.records[record];
            let end = flight.first + u64::from(flight.count);
            if matches!(flight.state, FlightState::Unsent | FlightState::Acknowledged) {
                number = end;
                continue;
            }
            if number > flight.first {
                self.split_at(number);
                continue;
            }
            if end > to {
                self.split_at(to);
            }
            let flight = &mut self.records[record];
            match std::mem::replace(&mut flight.state, FlightState::Acknowledged) {
                FlightState::Lost => {
                    self.lost.remove(&number);
                }
                _ => self.in_flight -= u32::from(flight.count),
            }
            summary.add(flight, flight.count);
            number += u64::from(flight.count);
        }
    }

    /// Updates the delivery state after an acknowledgement. The acknowledgement of a retransmitted frame belongs to
    /// its last transmission if that is at least `again` ago. Returns the delivery rate if it spans at least `least`,
    /// the minimum round-trip time.
    pub fn update_delivery(
        &mut self,
        now: Instant,
        summary: &AckSummary,
        least: Span,
        again: Span,
    ) -> Option<Rate> {
        self.delivered += summary.bytes;
        self.delivered_at = now;
        let sure = summary.newest_retransmitted.is_none_or(|newest| now.since(newest.sent_at) >= again);
        let newest = if sure { summary.newest() } else { summary.newest_once.as_ref() }?;
        self.delivered_order = self.delivered_order.max(newest.order + 1);
        self.delivered_sent = self.delivered_sent.max(newest.sent_at);
        let sending = newest.sent_at.since(newest.delivered_sent);
        let time = now.since(newest.delivered_at).max(sending);
        let bytes = self.delivered - newest.delivered;
        // Over less than a round trip the rate measures aggregation, not the path.
        (!time.is_zero() && time >= least).then(|| Rate::of(Size::from_bytes(bytes), time))
    }

    /// Declares frames lost that were sent `threshold` transmissions before the last that arrived, or before it and
    /// more than `max_age` ago. Returns when to check again without an acknowledgement.
    #[inline]
    pub fn detect_lost(
        &mut self,
        now: Instant,
        threshold: u64,
        max_age: Span,
        missing: &mut LossSummary,
    ) -> Option<Instant> {
        while let Some(&Departure { order, number, count }) = self.departures.front() {
            if number < self.base {
                self.skip_departures(count.min(self.base - number));
                continue;
            }
            let Some(sent) = self.sent_at_order(order, number) else {
                self.skip_departures(1);
                continue;
            };
            if order + 1 >= self.delivered_order {
                return None;
            }
            if order + 1 + threshold > self.delivered_order && sent + max_age > now {
                return Some(sent + max_age);
            }
            self.skip_departures(1);
            self.mark_lost(number, missing);
        }
        None
    }

    /// Removes the first `count` recorded transmissions.
    #[inline]
    fn skip_departures(&mut self, count: u64) {
        if let Some(first) = self.departures.front_mut() {
            (first.order, first.number) = (first.order + count, first.number + count);
            first.count -= count;
            if first.count == 0 {
                self.departures.pop_front();
            }
        }
    }

    /// Returns when a frame was sent, if it is in flight and this was its last transmission.
    #[inline]
    fn sent_at_order(&self, order: u64, number: u64) -> Option<Instant> {
        let flight = self.get(number)?;
        let last = flight.order + (number - flight.first) == order;
        (flight.state == FlightState::InFlight && last).then_some(flight.sent_at)
    }

    fn mark_lost(&mut self, number: u64, missing: &mut LossSummary) {
        let flight = self.isolate(number);
        flight.state = FlightState::Lost;
        let (length, sent) = (flight.length, flight.sent_at);
        self.in_flight -= 1;
        self.lost.insert(number);
        missing.frames += 1;
        missing.bytes += u64::from(length);
        missing.sent_at = missing.sent_at.max(sent);
        missing.shortest = if missing.frames == 1 { length } else { missing.shortest.min(length) };
    }

    /// Declares a frame lost if it is in flight.
    pub fn mark_one_lost(&mut self, number: u64, missing: &mut LossSummary) {
        if self.sent_at(number).is_some() {
            self.mark_lost(number, missing);
        }
    }

    /// Declares frames in flight lost that are longer than `length`.
    pub fn mark_longer_lost(&mut self, length: usize, missing: &mut LossSummary) {
        for number in self.base..self.unsent {
            let flight = &self.records[self.at(number)];
            if flight.state == FlightState::InFlight && usize::from(flight.length) > length {
                self.mark_lost(number, missing);
            }
        }
    }

    /// Iterates over the lengths of the frames in flight.
    pub fn lengths_in_flight(&self) -> impl Iterator<Item = usize> + '_ {
        let flights = self.record_of.iter().map(|record| &self.records[*record as usize]);
        flights.filter(|flight| flight.state == FlightState::InFlight).map(|flight| flight.length.into())
    }

    /// Returns whether a frame exists and is unacknowledged.
    pub fn is_unacknowledged(&self, number: u64) -> bool {
        self.get(number).is_some_and(|flight| flight.state != FlightState::Acknowledged)
    }

    /// Declares all frames in flight lost.
    pub fn mark_all_lost(&mut self, missing: &mut LossSummary) {
        for number in self.base..self.unsent {
            if self.records[self.at(number)].state == FlightState::InFlight {
                self.mark_lost(number, missing);
            }
        }
        self.departures.clear();
    }

    /// Returns when frame `number` was last sent, if it is in flight.
    pub fn sent_at(&self, number: u64) -> Option<Instant> {
        self.get(number).filter(|flight| flight.state == FlightState::InFlight).map(|flight| flight.sent_at)
    }

    /// Returns the last frame in flight.
    pub fn last_in_flight(&self) -> Option<u64> {
        (self.base..self.unsent).rev().find(|n| self.sent_at(*n).is_some())
    }
}

impl AckSummary {
    /// Adds the first `count` frames of a record.
    #[inline]
    fn add(&mut self, flight: &Flight, count: u16) {
        let many = u32::from(count);
        self.frames += many;
        self.bytes += u64::from(many * u32::from(flight.length));
        self.retransmitted += if flight.transmissions > 1 { many } else { 0 };
        self.longest = self.longest.max(flight.length);
        let newest =
            if flight.transmissions == 1 { &mut self.newest_once } else { &mut self.newest_retransmitted };
        let order = flight.order + u64::from(count) - 1;
        if newest.is_none_or(|other| other.order < order) {
            *newest = Some(NewestFrame {
                order,
                sent_at: flight.sent_at,
                delivered: flight.delivered,
                delivered_at: flight.delivered_at,
                delivered_sent: flight.delivered_sent,
            });
        }
    }
}

#[cfg(test)]
mod tests;
