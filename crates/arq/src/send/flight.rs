//! Frames in flight: acknowledgement, loss detection, and delivery rate.
//!
//! Encoded frames that are sent in one batch share a [`Flight`] until one of them is treated separately: then the
//! flight is split.
//!
//! A retransmitted frame keeps its number; its *order* distinguishes transmissions. A frame is lost if it was sent
//! well before a frame that has arrived: three transmissions before, or a quarter of a round trip (RFC 8985, RACK,
//! with a threshold in frames).
//!
//! The delivery rate is that of Cheng and Cardwell (draft-cheng-iccrg-delivery-rate-estimation). Its state
//! `C.delivered`, `C.delivered_time` and `C.first_sent_time` is `delivered`, `delivered_at` and `first_sent_at` here.

use std::collections::{BTreeSet, VecDeque};

use smallvec::SmallVec;
use trunkline_congestion::SinceSent;
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

#[derive(Debug)]
pub(crate) enum FrameContent {
    /// One chunk, the common case.
    Piece(Piece),
    /// Several chunks.
    Pieces(Pieces),
    /// Encoded frames of one channel; more than one only in a shared flight.
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
    /// Number of the first frame, and how many frames there are.
    pub first: u64,
    count: u16,
    /// Bytes of the chunks with their headers; here and below of each frame.
    pub body_length: u16,
    pub state: FlightState,
    pub transmissions: u8,
    /// Bytes of the last transmission.
    length: u16,
    sent_at: Instant,
    /// Order of the first frame's last transmission; those of the other frames follow.
    order: u64,
    /// Delivery state at the time of transmission: bytes acknowledged, time of the last acknowledgement, and when the
    /// last acknowledged frame was sent.
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    /// Those of the first frame.
    counts: SendCounts,
}

/// Numbers of frames acknowledged, declared lost and in flight when a frame was sent; the first two wrap.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendCounts {
    delivered: u32,
    lost: u32,
    /// Including the frame.
    in_flight: u32,
}

impl SendCounts {
    /// Returns those of the frame that was sent so many after this one in the same batch.
    fn after(self, frames: u32) -> SendCounts {
        SendCounts { in_flight: self.in_flight + frames, ..self }
    }
}

impl Flight {
    /// Creates an unsent frame whose chunks have `body_length` bytes with headers.
    pub fn new(content: FrameContent, body_length: usize) -> Self {
        Flight {
            content,
            first: 0,
            count: 1,
            body_length: body_length as u16,
            state: FlightState::Unsent,
            transmissions: 0,
            length: 0,
            sent_at: Instant::ZERO,
            order: 0,
            delivered: 0,
            delivered_at: Instant::ZERO,
            first_sent_at: Instant::ZERO,
            counts: SendCounts::default(),
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

/// Summary of the frames that an acknowledgement acknowledges for the first time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckSummary {
    pub frames: u32,
    pub bytes: u64,
    /// Whether the first unacknowledged number has advanced.
    pub advanced: bool,

    /// Length of the longest frame in bytes.
    pub longest: u16,
    /// Frames that were lost and rebuilt.
    pub rebuilt: u32,
    /// The last transmission among the frames sent once, and among the retransmitted frames.
    newest_sent_once: Option<NewestFrame>,
    newest_retransmitted: Option<NewestFrame>,
}

/// The acknowledged frame that was sent last, with the delivery state of its [`Flight`].
#[derive(Clone, Copy, Debug)]
struct NewestFrame {
    order: u64,
    sent_at: Instant,
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    counts: SendCounts,
}

/// The only frame in flight after its acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SingleFrameAck {
    /// Index of its stored message.
    pub message: StoreIndex,
    /// Bytes of its last transmission.
    pub bytes: u64,
    pub rate: Option<Rate>,
    pub since_sent: SinceSent,
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
        let sent_once = self.newest_sent_once.as_ref()?;
        let is_newest = self.newest_retransmitted.as_ref().is_none_or(|other| other.order < sent_once.order);
        is_newest.then_some(sent_once.sent_at)
    }

    #[inline]
    fn newest(&self) -> Option<&NewestFrame> {
        match (&self.newest_sent_once, &self.newest_retransmitted) {
            (Some(sent_once), Some(retransmitted)) if sent_once.order < retransmitted.order => {
                Some(retransmitted)
            }
            (Some(sent_once), _) => Some(sent_once),
            (None, retransmitted) => retransmitted.as_ref(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossSummary {
    pub frames: u32,
    pub bytes: u64,
    /// When the last of the frames was sent.
    pub sent_at: Instant,
    /// Length of the shortest frame in bytes; 0 if there is none.
    pub shortest: u16,
    /// Counts when the last of the frames was sent.
    counts: SendCounts,
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
    /// Index in `flights` of each frame, in the order of their numbers; several frames may share a flight.
    index_of: VecDeque<u32>,
    flights: Vec<Flight>,
    free_indices: Vec<u32>,
    /// Number of the first frame.
    base: u64,
    /// Number of the first frame that was never sent.
    unsent: u64,
    in_flight: u32,
    /// Numbers of the frames to retransmit.
    lost: BTreeSet<u64>,
    /// Transmissions in order; obsolete ones are skipped.
    departures: VecDeque<Departure>,
    /// Order of the next transmission.
    order: u64,
    /// One more than the order of the last transmission known to have arrived.
    delivered_order: u64,
    /// Current delivery state, see [`Flight`].
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    /// Numbers of frames acknowledged and declared lost.
    delivered_frames: u32,
    lost_frames: u32,
}

impl Flights {
    pub fn new(selective: bool) -> Self {
        Flights { selective, ..Flights::default() }
    }

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
        self.base + self.index_of.len() as u64
    }

    /// Returns the number of frames that are neither acknowledged nor declared lost.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns whether all frames are acknowledged.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.index_of.is_empty()
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
        let index = self.insert(flight);
        match count {
            1 => self.index_of.push_back(index),
            _ => self.index_of.extend(std::iter::repeat_n(index, count)),
        }
    }

    #[inline]
    fn insert(&mut self, flight: Flight) -> u32 {
        if let Some(index) = self.free_indices.pop() {
            self.flights[index as usize] = flight;
            return index;
        }
        self.flights.push(flight);
        self.flights.len() as u32 - 1
    }

    /// Returns the index of the flight of a frame, if the frame exists.
    #[inline]
    fn find_index(&self, number: u64) -> Option<usize> {
        let at = usize::try_from(number.checked_sub(self.base)?).ok()?;
        self.index_of.get(at).map(|index| *index as usize)
    }

    /// Returns the index of the flight of an existing frame.
    #[inline]
    fn index(&self, number: u64) -> usize {
        self.index_of[(number - self.base) as usize] as usize
    }

    /// Returns the flight of a frame, which it may share with others.
    #[inline]
    pub fn get(&self, number: u64) -> Option<&Flight> {
        self.find_index(number).map(|index| &self.flights[index])
    }

    /// Splits the flight of `number` so that `number` is the first of its flight.
    fn split_at(&mut self, number: u64) {
        let Some(index) = self.find_index(number) else { return };
        let flight = &mut self.flights[index];
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
            counts: flight.counts.after(before.into()),
            ..*flight
        };
        flight.count = before;
        let (from, count) = ((number - self.base) as usize, usize::from(rest.count));
        let index = self.insert(rest);
        self.index_of.range_mut(from..from + count).for_each(|entry| *entry = index);
    }

    /// Returns the flight of a frame after splitting it from any others.
    #[inline]
    fn isolate(&mut self, number: u64) -> &mut Flight {
        if self.flights[self.index(number)].count > 1 {
            self.split_at(number);
            self.split_at(number + 1);
        }
        let index = self.index(number);
        &mut self.flights[index]
    }

    /// Records the transmission of `count` frames from `number` on.
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
    pub fn next_to_send(&self) -> Option<u64> {
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
            (self.delivered_at, self.first_sent_at) = (now, now);
        }
        let (order, delivered, delivered_at) = (self.order, self.delivered, self.delivered_at);
        let (first_sent_at, counts) = (self.first_sent_at, self.counts());
        let flight = self.isolate(number);
        let previous = std::mem::replace(&mut flight.state, FlightState::InFlight);
        flight.transmissions = flight.transmissions.saturating_add(1);
        (flight.sent_at, flight.order, flight.length) = (now, order, length as u16);
        (flight.delivered, flight.delivered_at) = (delivered, delivered_at);
        (flight.first_sent_at, flight.counts) = (first_sent_at, counts);
        match previous {
            FlightState::Unsent => self.unsent = number + 1,
            FlightState::Lost => {
                self.lost.remove(&number);
            }
            FlightState::InFlight | FlightState::Acknowledged => {
                flight.counts.in_flight -= 1;
                self.in_flight -= 1;
            }
        }
        self.in_flight += 1;
        self.record_departure(number, 1);
    }

    /// Returns the counts to store with the next frame that is sent.
    #[inline(always)]
    fn counts(&self) -> SendCounts {
        let (delivered, lost) = (self.delivered_frames, self.lost_frames);
        SendCounts { delivered, lost, in_flight: self.in_flight + 1 }
    }

    /// Returns what has happened since a frame was sent.
    #[inline(always)]
    fn since(&self, counts: &SendCounts) -> SinceSent {
        SinceSent {
            delivered: self.delivered_frames.wrapping_sub(counts.delivered),
            lost: self.lost_frames.wrapping_sub(counts.lost),
            in_flight: counts.in_flight,
        }
    }

    /// Returns what has happened since the last of acknowledged frames was sent.
    #[inline]
    pub fn since_acked(&self, summary: &AckSummary) -> SinceSent {
        summary.newest().map_or(SinceSent::default(), |newest| self.since(&newest.counts))
    }

    /// Returns what has happened since the last of lost frames was sent.
    pub fn since_lost(&self, summary: &LossSummary) -> SinceSent {
        self.since(&summary.counts)
    }

    /// Counts frames as lost that were rebuilt from others.
    pub fn count_rebuilt(&mut self, frames: u32) {
        self.lost_frames = self.lost_frames.wrapping_add(frames);
    }

    /// Adds encoded frames and records their transmission, when all earlier frames were sent. The chunks of each have
    /// `body_length` bytes with headers.
    #[inline]
    pub fn send_encoded(&mut self, now: Instant, encoded: EncodedFrames, body_length: u16) {
        if self.in_flight == 0 {
            (self.delivered_at, self.first_sent_at) = (now, now);
        }
        let (number, count) = (self.next(), encoded.count);
        self.add(Flight {
            content: FrameContent::Encoded(encoded),
            first: number,
            count,
            body_length,
            state: FlightState::InFlight,
            transmissions: 1,
            length: encoded.length,
            sent_at: now,
            order: self.order,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            counts: self.counts(),
        });
        self.in_flight += u32::from(count);
        self.unsent = number + u64::from(count);
        self.record_departure(number, count.into());
    }

    /// Adds a frame with one chunk and records its transmission, when no other frame exists. The chunk has
    /// `body_length` bytes with its header, the frame `length` bytes.
    #[inline(never)]
    pub fn send_single(&mut self, now: Instant, piece: Piece, body_length: u16, length: u16) {
        let (number, order) = (self.base, self.order);
        let counts = self.counts();
        let index = match self.free_indices.pop() {
            Some(index) => index,
            None => self.insert(Flight::new(FrameContent::default(), 0)),
        };
        let flight = &mut self.flights[index as usize];
        flight.content = FrameContent::Piece(piece);
        (flight.first, flight.count, flight.body_length, flight.length) = (number, 1, body_length, length);
        (flight.state, flight.transmissions) = (FlightState::InFlight, 1);
        (flight.sent_at, flight.order, flight.delivered) = (now, order, self.delivered);
        (flight.delivered_at, flight.first_sent_at) = (now, now);
        flight.counts = counts;
        (self.delivered_at, self.first_sent_at) = (now, now);
        (self.in_flight, self.unsent) = (1, number + 1);
        self.index_of.push_back(index);
        self.record_departure(number, 1);
    }

    /// Removes the first frame, or the first frames of a shared flight, if they precede `cumulative`; returns their
    /// contents.
    #[inline]
    pub fn pop_acknowledged(&mut self, cumulative: u64, summary: &mut AckSummary) -> Option<FrameContent> {
        let before = cumulative.checked_sub(self.base).filter(|before| *before > 0)?;
        let index = *self.index_of.front()?;
        let flight = &mut self.flights[index as usize];
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
        self.index_of.drain(..usize::from(count));
        match &mut flight.content {
            FrameContent::Encoded(encoded) if count < flight.count => {
                let rest = encoded.split_off(count);
                (flight.first, flight.count) = (self.base, flight.count - count);
                flight.order += u64::from(count);
                flight.counts = flight.counts.after(count.into());
                Some(FrameContent::Encoded(std::mem::replace(encoded, rest)))
            }
            content => {
                self.free_indices.push(index);
                Some(std::mem::take(content))
            }
        }
    }

    /// Returns the index of the only frame's flight, if the frame is in flight and has one chunk.
    #[inline(always)]
    pub fn single_in_flight(&self) -> Option<u32> {
        let (Some(&index), 1) = (self.index_of.front(), self.index_of.len()) else { return None };
        let flight = &self.flights[index as usize];
        (flight.state == FlightState::InFlight && matches!(&flight.content, FrameContent::Piece(_)))
            .then_some(index)
    }

    /// Returns when the frame at `flight_index` was last sent, and whether that was its only transmission.
    #[inline]
    pub fn single_sent_at(&self, flight_index: u32) -> (Instant, bool) {
        let flight = &self.flights[flight_index as usize];
        (flight.sent_at, flight.transmissions == 1)
    }

    /// Removes the only frame, of one chunk, after its acknowledgement. Returns its bytes and the delivery rate, like
    /// [`update_delivery`](Flights::update_delivery). `is_unambiguous` means that its last transmission has arrived.
    #[inline(always)]
    pub fn acknowledge_single(
        &mut self,
        flight_index: u32,
        now: Instant,
        min_rtt: Span,
        is_unambiguous: bool,
    ) -> Option<SingleFrameAck> {
        let flight = &self.flights[flight_index as usize];
        let FrameContent::Piece(Piece { message, .. }) = flight.content else { return None };
        let bytes = u64::from(flight.length);
        self.delivered += bytes;
        self.delivered_at = now;
        self.delivered_frames = self.delivered_frames.wrapping_add(1);
        let since_sent = self.since(&flight.counts);
        let mut rate = None;
        if is_unambiguous {
            self.delivered_order = self.delivered_order.max(flight.order + 1);
            self.first_sent_at = self.first_sent_at.max(flight.sent_at);
            let time = now.since(flight.delivered_at).max(flight.sent_at.since(flight.first_sent_at));
            let bytes = Size::from_bytes(self.delivered - flight.delivered);
            rate = (!time.is_zero() && time >= min_rtt).then(|| Rate::of(bytes, time));
        }
        self.free_indices.push(flight_index);
        self.index_of.clear();
        // No recorded transmission matters any more. A single departure continues with the next frame.
        if self.departures.len() > 1 {
            self.departures.clear();
        }
        self.base += 1;
        self.in_flight = 0;
        Some(SingleFrameAck { message, bytes, rate, since_sent })
    }

    /// Processes the acknowledgement of the frames from `from` to before `to`.
    pub fn acknowledge(&mut self, from: u64, to: u64, summary: &mut AckSummary) {
        let (mut number, to) = (from.max(self.base), to.min(self.next()));
        while number < to {
            let index = self.index(number);
            let flight = &self.flights[index];
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
            let flight = &mut self.flights[index];
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
    /// its last transmission if that is at least `retransmission_ack_delay` ago. Returns the delivery rate if it spans
    /// at least `min_rtt`, the minimum round-trip time.
    pub fn update_delivery(
        &mut self,
        now: Instant,
        summary: &AckSummary,
        min_rtt: Span,
        retransmission_ack_delay: Span,
    ) -> Option<Rate> {
        self.delivered += summary.bytes;
        self.delivered_at = now;
        self.delivered_frames = self.delivered_frames.wrapping_add(summary.frames);
        let is_unambiguous = summary
            .newest_retransmitted
            .is_none_or(|newest| now.since(newest.sent_at) >= retransmission_ack_delay);
        let newest = if is_unambiguous { summary.newest() } else { summary.newest_sent_once.as_ref() }?;
        self.delivered_order = self.delivered_order.max(newest.order + 1);
        self.first_sent_at = self.first_sent_at.max(newest.sent_at);
        let send_time = newest.sent_at.since(newest.first_sent_at);
        let time = now.since(newest.delivered_at).max(send_time);
        let bytes = self.delivered - newest.delivered;
        // Over less than a round trip the rate measures aggregation, not the path.
        (!time.is_zero() && time >= min_rtt).then(|| Rate::of(Size::from_bytes(bytes), time))
    }

    /// Declares frames lost that were sent `threshold` transmissions before the last that arrived, or before it and
    /// more than `max_age` ago. Returns when to check again without an acknowledgement.
    #[inline]
    pub fn detect_lost(
        &mut self,
        now: Instant,
        threshold: u64,
        max_age: Span,
        summary: &mut LossSummary,
    ) -> Option<Instant> {
        while let Some(&Departure { order, number, count }) = self.departures.front() {
            if number < self.base {
                self.skip_departures(count.min(self.base - number));
                continue;
            }
            let Some(sent_at) = self.sent_at_order(order, number) else {
                self.skip_departures(1);
                continue;
            };
            if order + 1 >= self.delivered_order {
                return None;
            }
            if order + 1 + threshold > self.delivered_order && sent_at + max_age > now {
                return Some(sent_at + max_age);
            }
            self.skip_departures(1);
            self.mark_lost(number, summary);
        }
        None
    }

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
        let is_last = flight.order + (number - flight.first) == order;
        (flight.state == FlightState::InFlight && is_last).then_some(flight.sent_at)
    }

    /// Declares a frame lost, which must be in flight.
    pub fn mark_lost(&mut self, number: u64, summary: &mut LossSummary) {
        let flight = self.isolate(number);
        flight.state = FlightState::Lost;
        let (length, sent_at, counts) = (flight.length, flight.sent_at, flight.counts);
        self.in_flight -= 1;
        self.lost_frames = self.lost_frames.wrapping_add(1);
        self.lost.insert(number);
        summary.frames += 1;
        summary.bytes += u64::from(length);
        if summary.frames == 1 || sent_at >= summary.sent_at {
            (summary.sent_at, summary.counts) = (sent_at, counts);
        }
        summary.shortest = if summary.frames == 1 { length } else { summary.shortest.min(length) };
    }

    /// Declares frames in flight lost that are longer than `length`.
    pub fn mark_longer_lost(&mut self, length: usize, summary: &mut LossSummary) {
        for number in self.base..self.unsent {
            let flight = &self.flights[self.index(number)];
            if flight.state == FlightState::InFlight && usize::from(flight.length) > length {
                self.mark_lost(number, summary);
            }
        }
    }

    pub fn lengths_in_flight(&self) -> impl Iterator<Item = usize> + '_ {
        let flights = self.index_of.iter().map(|index| &self.flights[*index as usize]);
        flights.filter(|flight| flight.state == FlightState::InFlight).map(|flight| flight.length.into())
    }

    pub fn is_unacknowledged(&self, number: u64) -> bool {
        self.get(number).is_some_and(|flight| flight.state != FlightState::Acknowledged)
    }

    pub fn mark_all_lost(&mut self, summary: &mut LossSummary) {
        self.mark_longer_lost(0, summary);
        self.departures.clear();
    }

    /// Returns when frame `number` was last sent, if it is in flight.
    pub fn sent_at(&self, number: u64) -> Option<Instant> {
        self.get(number).filter(|flight| flight.state == FlightState::InFlight).map(|flight| flight.sent_at)
    }

    pub fn last_in_flight(&self) -> Option<u64> {
        (self.base..self.unsent).rev().find(|n| self.sent_at(*n).is_some())
    }
}

impl AckSummary {
    /// Adds the first `count` frames of a flight.
    #[inline]
    fn add(&mut self, flight: &Flight, count: u16) {
        let count = u32::from(count);
        self.frames += count;
        self.bytes += u64::from(count * u32::from(flight.length));

        self.longest = self.longest.max(flight.length);
        let newest = if flight.transmissions == 1 {
            &mut self.newest_sent_once
        } else {
            &mut self.newest_retransmitted
        };
        let order = flight.order + u64::from(count) - 1;
        if newest.is_none_or(|other| other.order < order) {
            *newest = Some(NewestFrame {
                order,
                sent_at: flight.sent_at,
                delivered: flight.delivered,
                delivered_at: flight.delivered_at,
                first_sent_at: flight.first_sent_at,
                counts: flight.counts.after(count - 1),
            });
        }
    }
}

#[cfg(test)]
mod tests;
