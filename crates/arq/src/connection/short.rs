//! The short way of a frame that comes or goes alone (Jacobson 1990, "4BSD header prediction").
//!
//! When a message at a time is under way, each frame is the next of its peer, carries one whole message or pack, and
//! acknowledges the only frame in flight; and each message finds nothing in flight. Then most of what the long way asks
//! is known to be so. Both ways leave the same behind, which `tests/short.rs` holds: whatever is not as expected is left
//! to the long way, untouched.

use trunkline_units::{Instant, Size};

use super::Connection;
use super::frames::CATCH_UP;
use crate::Buffer;
use crate::congestion::{Acked, Sent};
use crate::options::Mode;
use crate::receive::arrivals::Arrival;
use crate::send::alone::Around;
use crate::stages::{Of, Stage};
use crate::wire::data::{ACK, ALONE, ASK, CONTROL, Chunk, END, Form, HEADER, NACK, PIGGYBACK, START};
use crate::wire::{KIND_PACK, KIND_PIECE, epoch, get16, get24, kind};

/// What stands before the message.
const BEFORE: usize = HEADER + PIGGYBACK + ALONE;

impl Connection {
    /// The frame that is the next of the peer, and acknowledges the only frame in flight: its head's flags, and its only
    /// chunk. Its check is still to be opened.
    #[inline(always)]
    fn foresee<'a>(&self, frame: &'a [u8]) -> Option<(u8, Chunk<'a>)> {
        let head = frame.first_chunk::<BEFORE>()?;
        let bytes = frame.get(BEFORE..frame.len().checked_sub(self.options.check.bytes())?)?;
        let form = match (kind(head[0]), head[0] & (START | END)) {
            (KIND_PACK, _) => Form::Pack,
            (KIND_PIECE, flags) if flags == START | END => Form::Piece { start: true, end: true },
            _ => return None,
        };
        let flights = &self.sender.flights;
        let channel = get16(&head[HEADER + PIGGYBACK..]);
        let expected = head[0] & (ACK | NACK) == ACK
            && u64::from(get24(&head[1..])) == self.arrivals.next() & LOW
            && u64::from(get24(&head[HEADER..])) == flights.unsent() & LOW
            && channel != CONTROL
            && flights.has_only_one()
            && !self.arrivals.has_gap()
            && !self.guard.is_sealed()
            && self.over.is_none()
            && !self.closing.wanted
            && self.closing.peer.is_none();
        let sequence = get16(&head[HEADER + PIGGYBACK + 2..]);
        expected.then_some((head[0], Chunk { channel, sequence, form, bytes }))
    }

    /// It has come, and its check holds.
    #[inline(always)]
    fn note_next(&mut self, now: Instant, flags: u8) {
        self.hear(now);
        self.arrivals.note_next();
        self.statistics.frames_received += 1;
        self.statistics.acks_received_piggybacked += 1;
        self.owe(now, Arrival::InOrder, flags & ASK != 0);
    }

    /// Takes a frame if it is the one expected; whether it was.
    #[inline]
    pub(super) fn take_next(&mut self, now: Instant, frame: &[u8]) -> bool {
        let Some((flags, chunk)) = self.foresee(frame) else { return false };
        let began = self.stages.begin(Of::FramesIn);
        if self.guard.open(epoch(self.arrivals.next()), frame).is_err() {
            self.stages.take_back(Of::FramesIn, began);
            return false;
        }
        let opened = self.stages.next(Stage::Open, began);
        self.note_next(now, flags);
        if self.receiver.take_chunk(&chunk).is_err() {
            self.end_for_violation();
        }
        self.stages.end(Stage::Join, opened);
        self.take_only_ack(now);
        true
    }

    /// Takes a frame if it is the one expected and brings the next message of a channel, which is appended to `into`;
    /// whether it did. If not, nothing has changed.
    #[inline]
    pub fn take_at_once(&mut self, now: Instant, frame: &[u8], channel: u16, into: &mut Buffer) -> bool {
        if !self.plain || self.stages.has_meter() {
            return false;
        }
        let Some((flags, chunk)) = self.foresee(frame) else { return false };
        let opens = chunk.channel == channel && self.guard.open(epoch(self.arrivals.next()), frame).is_ok();
        if !opens || !self.receiver.pass_on(&chunk, into) {
            return false;
        }
        self.note_next(now, flags);
        self.take_only_ack(now);
        self.grant();
        true
    }

    /// Whether nothing is there to be taken of a channel that is known, and something may still come.
    #[inline]
    pub fn awaits(&mut self, channel: u16) -> bool {
        self.over.is_none() && !self.closing.finished && self.receiver.has_nothing(channel)
    }

    /// All that was in flight, which is one frame, has been acknowledged.
    #[inline]
    fn take_only_ack(&mut self, now: Instant) {
        let Some(flight) = self.sender.settle() else { return };
        let (sent_at, once) = (flight.sent_at(), flight.was_sent_once());
        if once {
            self.doubled = 0;
            self.round_trip.sample(now, now.since(sent_at));
        }
        let round_trip = if once { self.round_trip.latest() } else { None };
        let least = self.round_trip.least().unwrap_or_default();
        let rate = self.sender.flights.take_stock_of(now, &flight, least, self.surely_again());
        let idle = self.sender.waiting() == 0;
        let came = std::mem::take(&mut self.came);
        let (frames, bytes, in_flight) = (1, flight.bytes(), 1);
        let acked = Acked { now, frames, bytes, in_flight, round_trip, rate, idle, came, sent_at };
        self.policy.acknowledged(&acked);
        self.consult();
        (self.backoff, self.retransmit_at) = (0, Instant::MAX);
        if self.repaired_at.is_some_and(|number| self.sender.flights.base() >= number) {
            self.repaired_at = None;
            self.round_trip.recovered();
        }
        if self.options.mode == Mode::Selective {
            self.loss_at = Instant::MAX;
        }
    }

    /// Whether a frame may leave that carries all there is to say, as far as that has not to do with messages.
    #[inline(always)]
    fn may_leave_alone(&self, now: Instant) -> bool {
        self.errands.is_empty()
            && self.probe.is_none()
            && self.over.is_none()
            && !self.resting
            && !self.closing.wanted
            && !(self.arrivals.has_gap() && self.options.mode == Mode::Selective)
            && (self.pace.is_none() || self.pace_at <= now)
    }

    /// Its flags, and what it acknowledges if it does.
    #[inline(always)]
    fn around(&self, now: Instant) -> Around {
        let owes = self.owed.frames > 0 || self.owed.at <= now;
        let asks = if self.is_last_for_now(self.allowed) { ASK } else { 0 };
        let negative = if owes && self.owed.negative { NACK } else { 0 };
        let acknowledged = owes.then(|| self.arrivals.next());
        Around { flags: asks | negative, acknowledged, check: self.options.check.bytes() }
    }

    /// It was written and sealed, and leaves.
    #[inline(always)]
    fn left_alone(&mut self, now: Instant, around: &Around, frame: &[u8]) {
        if around.acknowledged.is_some() {
            self.statistics.acks_piggybacked += 1;
            self.statistics.nacks_sent += u64::from(self.owed.negative);
            self.owed.settle();
        }
        let length = frame.len() as u64;
        self.statistics.frames_sent += 1;
        self.statistics.bytes_sent += length;
        self.echoes.note(frame);
        if let Some(rate) = self.pace {
            let from = self.pace_at.max(Instant::from_ps(now.as_ps().saturating_sub(CATCH_UP.as_ps())));
            let time = rate.time_for(Size::from_bytes(length));
            // No timeout is less than the floor.
            let within = time <= self.options.timeout.floor;
            self.pace_at =
                from + if within { time } else { time.min(self.round_trip.timeout(self.peer_ack_delay)) };
        }
        if self.retransmit_at == Instant::MAX {
            self.arm(now);
        }
        self.policy.sent(&Sent { now, frames: 1, bytes: length, in_flight: 1 });
    }

    /// Writes the frame of the only message or pack that waits, if nothing is in flight and nothing else is to be said;
    /// how long it is.
    #[inline]
    pub(super) fn send_alone(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        let free = self.sender.can_cut()
            && self.sender.flights.is_empty()
            && self.may_leave_alone(now)
            && (now >= self.hold_until || self.sender.waiting() >= self.room());
        if !free {
            return None;
        }
        let around = self.around(now);
        let before = HEADER + if around.acknowledged.is_some() { PIGGYBACK } else { 0 };
        let (number, body) = self.sender.cut_only(self.room() + HEADER - before)?;
        let length = before + body + around.check;
        let frame = &mut buffer[..length];
        let began = self.stages.begin(Of::FramesOut);
        self.sender.write(number, around.flags, around.acknowledged, frame);
        let written = self.stages.next(Stage::Frame, began);
        self.guard.seal_numbered(number, around.acknowledged, frame);
        self.stages.end(Stage::Seal, written);
        self.sender.flights.leave(now, number, length);
        self.left_alone(now, &around, frame);
        Some(length)
    }

    /// Takes a copy of a message and writes the frame that carries it, if that is then all there is to say and nothing is
    /// to be told; how long it is. If not, nothing has changed.
    #[inline]
    pub fn send_at_once(
        &mut self,
        now: Instant,
        channel: u16,
        bytes: &[u8],
        buffer: &mut [u8],
    ) -> Option<usize> {
        let free = self.plain
            && !self.closing.finished
            && self.lays_from > 0
            && now >= self.hold_until
            && self.receiver.has_told()
            && self.sender.has_told()
            && !self.stages.has_meter()
            && channel != CONTROL
            && self.may_leave_alone(now);
        if !free {
            return None;
        }
        let around = self.around(now);
        let (number, length) = self.sender.send_alone(now, channel, bytes, around, buffer)?;
        let frame = &mut buffer[..length];
        self.guard.seal_numbered(number, around.acknowledged, frame);
        self.left_alone(now, &around, frame);
        Some(length)
    }

    /// The [deadline](Connection::deadline) of one that is [settled](Connection::is_settled).
    #[inline]
    pub fn settled_deadline(&self) -> Instant {
        self.retransmit_at.min(self.loss_at).min(self.ask_at).min(self.owed.at)
    }

    /// The same, if nothing is to be told and afterwards nothing is left to say.
    #[inline]
    pub fn say_only(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        let told = self.plain && !self.closing.finished && self.receiver.has_told() && self.sender.has_told();
        // Whether an acknowledgement is due is all that could be left: the frame takes it along.
        if told { self.send_alone(now, buffer) } else { None }
    }

    /// Whether it has nothing more to say now: to ask it would come to nothing and change nothing.
    #[inline]
    pub fn is_settled(&self, now: Instant) -> bool {
        self.plain
            && self.sender.waiting() == 0
            && self.sender.flights.due().is_none()
            && self.errands.is_empty()
            && self.owed.at > now
            && self.probe.is_none()
            && self.over.is_none()
            && !self.resting
            && !self.closing.finished
            && self.receiver.has_told()
            && self.sender.has_told()
    }
}

/// The bits of a number that are on the wire.
const LOW: u64 = (1 << 24) - 1;
